"""The nearest others among many points: blocks of near points, and the slabs between them.

The k-th nearest point of the own block bounds the distance to the k-th nearest of all. Other blocks
are left out where the slabs of `nearfar.kernels.slabs` show that they hold nothing nearer; what
remains is compared by products, and the nearest are chosen by exact differences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.slabs import (
    BLOCK_SIZE,
    GATHER_BYTES,
    WORTHWHILE,
    Blocks,
    Floats,
    Index,
    InThreads,
    Mask,
    Pairs,
    Slabs,
    consecutive,
    cut_into_blocks,
    leading,
    means_of_runs,
)
from nearfar.limits import check_time

FEWEST_POINTS = 10_000  # with fewer, comparing all takes less than a second
SAMPLE = 1024  # points with which those of small blocks are compared first
MOST_FOUND = 1 << 21  # pairs from which only the nearest are kept

Double = NDArray[np.float64]


def pruned_nearest_others(X: Floats, k: int, in_threads: InThreads) -> Index | None:
    """The k nearest other rows of each row (n, k), nearest first, ties by row number; k < n.

    None if there are few rows, if so many pairs remain that comparing all is faster, or if float32
    cannot hold the points. Time O(n^1.5 d + s n² d) with s the share of pairs that remain; memory
    O(n d) plus that of MOST_FOUND pairs.
    """
    n = len(X)
    points = leading(X, np.empty(0)) if n >= FEWEST_POINTS else None
    if points is None:
        return None
    order, firsts = cut_into_blocks(points, max(k + 1, round(BLOCK_SIZE * n**0.5)))
    points = points[order]
    # As labels, block numbers: the pairs of a block are compared here.
    labels = np.arange(len(firsts))
    blocks = Blocks(order, np.append(firsts, n), labels, points, means_of_runs(points, firsts))
    found = _Nearest(X, k)
    reach = _within_blocks(X, blocks, found, in_threads)
    slabs = Slabs.build(blocks, X, reach, in_threads)
    if slabs.share() > WORTHWHILE:
        return None
    pairs = Pairs.build(blocks, X, reach)
    for targets, mask in slabs.masks(in_threads):

        def search(part: range, first: int = targets.start, mask: Mask = mask) -> Index:
            codes = [code for b in part for code in pairs.near(b, mask[b - first])]
            return np.concatenate([np.empty(0, np.intp), *codes])

        for shares in consecutive(targets, 64):
            found.add(in_threads(search, consecutive(shares), n * n * X.shape[1]))
    return found.tails()


def _within_blocks(X: Floats, blocks: Blocks, found: _Nearest, in_threads: InThreads) -> Double:
    """Add the near pairs of each block; return a bound beyond each row's k-th squared distance."""
    (n, d), k = X.shape, found.k
    reach, exact, double = np.empty(n), np.finfo(X.dtype), np.finfo(np.float64)
    sample = np.arange(0, n, max(1, n // max(SAMPLE, k + 1)))

    def compare(part: range) -> Index:
        codes = [np.empty(0, np.intp)]
        for a in part:
            check_time()
            rows = blocks.order[blocks.rows(a)]
            # Those of a small block are compared with a sample of all, too.
            others = rows if len(rows) > k else np.union1d(rows, sample)
            members = X[others].astype(np.float64)
            centre = members.mean(axis=0)
            members -= centre
            heads = members if others is rows else X[rows] - centre
            squares = np.einsum("ij,ij->i", members, members)
            table = np.einsum("ij,ij->i", heads, heads)[:, None] + squares - 2 * heads @ members.T
            error = 8 * (d + 8) * double.eps * (float(squares.max()) + np.abs(table).max())
            table[rows[:, None] == others] = np.inf
            farthest = np.partition(table, k - 1, axis=1)[:, k - 1] + error
            # A length up to it is below the reach even if rounding makes it longer.
            reach[rows] = farthest * (1 + 4 * (d + 8) * exact.eps) + d * exact.tiny
            i, j = np.nonzero(table - error < reach[rows, None])
            codes.append(rows[i] * n + others[j])
        return np.concatenate(codes)

    for part in consecutive(range(len(blocks)), 64):
        found.add(in_threads(compare, consecutive(part), 8 * n * d))
    return reach


class _Nearest:
    """The nearest tails of each head so far, of pairs that are added as i n + l."""

    def __init__(self, X: Floats, k: int) -> None:
        self.X, self.k = X, k
        self.codes, self.count = [np.empty(0, np.intp)], 0

    def add(self, parts: list[Index]) -> None:
        """Add pairs; of many, only the nearest are kept."""
        self.codes += parts
        self.count += sum(map(len, parts))
        if self.count > MOST_FOUND + self.k * len(self.X):
            self._keep_nearest()

    def _keep_nearest(self) -> None:
        code = np.concatenate(self.codes)
        self.codes = []
        heads, tails = np.divmod(code, len(self.X))
        order = np.lexsort((tails, _squares(self.X, heads, tails), heads))
        code = code[order]
        code = code[np.append(True, code[1:] != code[:-1])]  # each pair once
        heads = code // len(self.X)
        place = np.arange(len(heads)) - np.searchsorted(heads, heads)
        self.codes = [code[place < self.k]]
        self.count = len(self.codes[0])

    def tails(self) -> Index:
        """The nearest of every head, (n, k)."""
        self._keep_nearest()
        return (self.codes[0] % len(self.X)).reshape(len(self.X), self.k)


def _squares(X: Floats, heads: Index, tails: Index) -> Double:
    """‖x_h − x_t‖² by differences in float64."""
    out = np.empty(len(heads))
    step = max(64, GATHER_BYTES // (8 * max(X.shape[1], 1)))
    for first in range(0, len(heads), step):
        check_time()
        part = slice(first, first + step)
        difference = X[heads[part]].astype(np.float64)
        difference -= X[tails[part]]
        np.einsum("ij,ij->i", difference, difference, out=out[part])
    return out
