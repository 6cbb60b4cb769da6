"""What both fast versions share: tiles of all pairs, and a bound on rounding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import check_memory

Index = NDArray[np.intp]

PAIR_BYTES = 290  # of all arrays that LMNN holds at a time for a pair with one triplet
SPARE = 8  # neighbours proposed beyond k, so that rounding rarely hides one of the k nearest
INEXACT = 0.01  # share of a distance that rounding may move before it is computed anew


class PairCount:
    """The number of pairs that a search has found so far, in all threads.

    It refuses more than memory can hold of them and of what is learned from each.
    """

    def __init__(self, points: Any) -> None:
        self._points, self._count, self._lock = points, 0, Lock()

    def add(self, count: int) -> None:
        """Count some more."""
        with self._lock:
            self._count += count
        check_memory(
            PAIR_BYTES * self._count,
            f"learning from {len(self._points)} points with {self._count} triplets or more at a"
            " time",
            "Fit to fewer rows, lower n_neighbors",
            self._points,
        )


def unlike_tiles(starts: Index, size: int, most: int = 0) -> Iterator[tuple[slice, slice]]:
    """Pairs of row ranges that together hold each pair of points of different classes.

    Each unordered pair lies in one tile, or in both halves of a tile on the diagonal. Ranges have
    at most ``size`` rows and end at the borders of large classes, so that few pairs of like points
    are visited. Off the diagonal, the second range may be several of these, of ``most`` rows
    together.
    """
    cuts = [0]
    for first, last in pairwise(starts.tolist()):
        large = last - first > size // 2
        if large and first > cuts[-1]:
            cuts.append(first)
        while last - cuts[-1] > size:
            cuts.append(cuts[-1] + size)
        if large:
            cuts.append(last)
    cuts.append(int(starts[-1]))
    pieces = [slice(a, b) for a, b in pairwise(cuts) if b > a]
    labels = labels_of(starts)
    for position, rows in enumerate(pieces):
        joined = None
        for columns in pieces[position:]:
            if labels[rows.start] == labels[columns.stop - 1]:
                continue
            if joined is None or joined == rows or columns.stop - joined.start > most:
                if joined is not None:
                    yield rows, joined
                joined = columns
            else:
                joined = slice(joined.start, columns.stop)
        if joined is not None:
            yield rows, joined


def labels_of(starts: Index) -> Index:
    """The class number of each row."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def classes_of(rows: slice, starts: Index) -> Iterator[tuple[slice, tuple[int, int]]]:
    """The classes that a range of rows meets, each with its first and last row.

    The slice before is its part of the range, counted from the first row of that.
    """
    c = int(np.searchsorted(starts, rows.start, side="right")) - 1
    begin = rows.start
    while begin < rows.stop:
        first, last = int(starts[c]), int(starts[c + 1])
        end = min(last, rows.stop)
        if end > begin:
            yield slice(begin - rows.start, end - rows.start), (first, last)
        begin, c = end, c + 1


def may_hide(squares: Any, last: Any, kth: Any, d: int, eps: float = 2.0**-52) -> Any:
    """Whether a point that was not proposed may be nearer than the k-th of those that were.

    Distances D by products err by c(‖x‖² + ‖y‖²) with c = (d + 8) eps, and ‖y‖² <= 2‖x‖² + 2D, so
    whoever was reported beyond ``last`` is truly at least (last − 3c‖x‖²)(1 − 2c) away, or 0.
    """
    c = (d + 8) * eps
    return kth > ((last - 3 * c * squares) * (1 - 2 * c)).clip(0, None)


def inexact(table: Any, first: Any, second: Any, least: float, d: int, eps: float) -> Any:
    """Which distances by products rounding may have moved by more than INEXACT (D + least).

    ``table`` holds D between points of squared norms ``first`` and ``second``; its entries err by
    (d + 8) eps times the sum of both. None if all are exact enough, as almost always.
    """
    if len(first) == 0 or len(second) == 0:
        return None
    share = (d + 8) * eps / INEXACT
    if share * (float(first.max()) + float(second.max())) < least:
        return None
    return ~(share * (first[:, None] + second) < table + least)  # true for nan
