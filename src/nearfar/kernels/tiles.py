"""Helpers of both fast versions: tiles of all pairs, and bounds on rounding errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import check_memory, free_memory

Index = NDArray[np.intp]

PAIR_BYTES = 230  # memory that LMNN needs at a time for a pair with one triplet
SPARE = 8  # candidates beyond k, so that rounding rarely hides one of the k nearest
INEXACT = 0.01  # relative rounding error above which a distance is recomputed


class PairCount:
    """Counts the pairs that a search finds, in all threads.

    Raises if learning from them would need more memory than allowed.
    """

    def __init__(self, points: Any) -> None:
        self._points, self._count, self._lock = points, 0, Lock()
        self._room = free_memory(points)

    def add(self, count: int) -> None:
        """Add to the count."""
        with self._lock:
            self._count += count
        if PAIR_BYTES * self._count > self._room:
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
    at most ``size`` rows and end where large classes end, so that few pairs of the same class are
    visited. Off the diagonal, the second range may join several ranges, up to ``most`` rows.
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
    """Classes that overlap a range of rows: the overlap, and the class's first and last row.

    The overlap is a slice relative to the first row of the range.
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
    """Whether a point that is no candidate may be nearer than the k-th nearest candidate.

    The error of a distance D from a matrix product is at most c(‖x‖² + ‖y‖²) with c = (d + 8) eps,
    and ‖y‖² <= 2‖x‖² + 2D. So a point reported beyond ``last`` is at least
    (last − 3c‖x‖²)(1 − 2c) away, or 0 if that is negative.
    """
    c = (d + 8) * eps
    return kth > ((last - 3 * c * squares) * (1 - 2 * c)).clip(0, None)


def inexact(table: Any, first: Any, second: Any, least: float, d: int, eps: float) -> Any:
    """Mask of distances with a rounding error that may exceed INEXACT (D + least).

    ``table`` holds distances D from a matrix product, between points of squared norms ``first`` and
    ``second``; their errors are at most (d + 8) eps times the sum of both norms. None if all are
    accurate enough, the usual case.
    """
    if len(first) == 0 or len(second) == 0:
        return None
    share = (d + 8) * eps / INEXACT
    if share * (float(first.max()) + float(second.max())) < least:
        return None
    return ~(share * (first[:, None] + second) < table + least)  # true for nan
