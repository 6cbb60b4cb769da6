"""Sums and rankings over all pairs of points, in blocks of rows.

The same code runs on NumPy arrays and on torch tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.kernels.parallel import in_threads
from nearfar.limits import check_time

Index = NDArray[np.intp]
Weigh = Callable[[slice, Array], tuple[Any, Array]]
"""Maps a range of rows and their squared distances (b, n) to a sum and to weights (b, n)."""

HOST_ENTRIES = 1 << 18  # distances in a block on the host, which then stays in the cache
CLOSE = 1e-6  # squared distance, relative to the norms, below which products lose too many digits
DEVICE_ENTRIES = 1 << 26  # the same on a GPU: half a gigabyte
# The same for blocks that are sorted, with a dozen arrays of that size: 100 MB a thread, 800 MB on
# a GPU.
SORTED_HOST_ENTRIES, SORTED_DEVICE_ENTRIES = 1 << 20, 1 << 23
LARGEST_EXPONENT = 1000  # largest exponent of a power of two with a representable inverse


def pair_forces(Y: Array, weigh: Weigh) -> tuple[float, Array]:
    """½ Σᵢⱼ vᵢⱼ and Lap(W) Y, where each pair has a value vᵢⱼ and a weight wᵢⱼ.

    ``weigh`` returns the sum of the values of a block, and its weights. The value of a point with
    itself must be 0; its weight must be finite and has no effect. Points should be centred. Time
    O(n² r) plus the time of ``weigh``, memory O(n r) and one block for each thread.
    """

    def work(rows: slice) -> tuple[float, Array]:
        value, weights = weigh(rows, sq_distances(Y[rows], Y))
        return float(value), weights.sum(1)[:, None] * Y[rows] - weights @ Y

    found = _over_rows(work, Y)
    return 0.5 * sum(value for value, _ in found), kernels_for(Y).concatenate([f for _, f in found])


def sq_distances(Q: Array, Y: Array) -> Array:
    """‖q − y‖² (b, n) of all rows of two arrays, by differences. Time O(b n r)."""
    total = _squares(Q[:, 0], Y[:, 0])
    for c in range(1, Y.shape[1]):
        total += _squares(Q[:, c], Y[:, c])
    return total


def _squares(first: Array, second: Array) -> Array:
    difference = first[:, None] - second
    difference *= difference
    return difference


def distances(X: Array) -> Array:
    """‖xᵢ − xⱼ‖ of all pairs (n, n) in float64.

    Computed from a matrix product, and from differences where the distance is small.
    Time O(n² d), memory O(n²).
    """
    kernels = kernels_for(X)
    Z = kernels.double(X)
    Z = Z - Z.mean(0)
    squares = (Z * Z).sum(1)

    def work(rows: slice) -> Array:
        norms = squares[rows, None] + squares
        table = (norms - 2 * (Z[rows] @ Z.T)).clip(0)
        close = kernels.flatnonzero((table < CLOSE * norms).reshape(-1))
        heads, tails = close // len(Z) + rows.start, close % len(Z)
        table[heads - rows.start, tails] = kernels.sq_lengths(Z, heads, tails)
        return table**0.5

    return kernels.concatenate(_over_rows(work, Z))


def ranks(X: Array, heads: Index, tails: Index) -> Index:
    """For each edge the number of points nearer to x_h than x_t; ties count if they precede x_t.

    ``heads`` must be ascending. A matrix product in float64 decides most comparisons, and
    differences decide those within its rounding error. Time O(n² d) and O(n) for each edge, memory
    O(n d) and some blocks.
    """
    kernels = kernels_for(X)
    points = kernels.double(X)
    Z = points - points.mean(0)
    squares, rounding = (Z * Z).sum(1), 4 * (Z.shape[1] + 8) * np.finfo(float).eps
    slack = rounding * (squares + squares.max())  # of distances from each point

    def work(rows: slice) -> Index:
        table = squares[rows, None] + squares - 2 * (Z[rows] @ Z.T)
        first, last = np.searchsorted(heads, [rows.start, rows.stop])
        out = np.empty(last - first, dtype=np.intp)
        for edges in _one_each(heads[first:last]):
            own, other = (kernels.index(ends[first + edges], Z) for ends in (heads, tails))
            bar, near = kernels.sq_lengths(points, own, other), table[own - rows.start]
            low, high = bar - slack[own], bar + slack[own]
            sure, maybe = _counts(near < low[:, None]), _counts(near <= high[:, None])
            out[edges] = sure - kernels.to_host(table[own - rows.start, own] < low)  # less itself
            for e in np.flatnonzero(maybe > sure + 1):  # more than x_t: they are compared exactly
                out[edges[e]] = _exact_rank(points, int(own[e]), int(other[e]))
        return out

    return np.concatenate(_over_rows(work, Z))


def _exact_rank(points: Array, head: int, tail: int) -> int:
    kernels, numbers = kernels_for(points), np.arange(len(points))
    difference = points - points[head]
    squares = kernels.to_host((difference * difference).sum(1))
    nearer = (squares < squares[tail]) | ((squares == squares[tail]) & (numbers < tail))
    return int(nearer.sum() - nearer[head])


def ranks_in(table: NDArray[np.float64], start: int, heads: Index, tails: Index) -> Index:
    """`ranks` from a table of distances; its first row belongs to head ``start``."""
    numbers = np.arange(table.shape[1])
    out = np.empty(len(heads), dtype=np.intp)
    for edges in _one_each(heads):
        own, other = heads[edges], tails[edges]
        near, bar = table[own - start], table[own - start, other][:, None]
        nearer = (near < bar) | ((near == bar) & (numbers < other[:, None]))
        nearer[np.arange(len(own)), own] = False
        out[edges] = _counts(nearer)
    return out


def over_rankings(Q: Array, Z: Array, use: Callable[[slice, Array], Any]) -> list[Any]:
    """Call ``use`` with ranges of queries and their rankings; returns its results in order.

    A ranking lists the row numbers of Z, nearest first, ties by row number; ``use`` gets those of a
    block of queries, (b, n). Distances from a matrix product are sorted first. Runs of distances
    that are equal up to rounding are then sorted again by differences, summed in float64. Time
    O(m n (d + log n)), memory O((m + n) d) and some blocks.
    """
    kernels, n = kernels_for(Z), len(Z)
    stack = kernels.concatenate([kernels.double(Z), kernels.double(Q)])
    centred = stack - stack[:n].mean(0)
    exponent = int(np.frexp(max(float(centred.max()), -float(centred.min())))[1])
    scale = 2.0 ** -min(max(exponent, -LARGEST_EXPONENT), LARGEST_EXPONENT)
    stack *= scale  # exact, and no square overflows or vanishes
    centred *= scale
    squares, rounding = (centred * centred).sum(1), 4 * (Z.shape[1] + 8) * np.finfo(float).eps
    slack = float(rounding) * (squares[n:] + squares[:n].max())  # of distances from each query

    def work(rows: slice) -> Any:
        queries = slice(n + rows.start, n + rows.stop)
        table = squares[queries, None] + squares[:n] - 2 * (centred[queries] @ centred[:n].T)
        order = table.argsort(1)
        table = table[kernels.arange(len(order), Z)[:, None], order]
        first, last = table >= -np.inf, table >= -np.inf  # of each run: true, and then
        first[:, 1:] = table[:, 1:] - table[:, :-1] > 2 * slack[rows, None]
        last[:, :-1] = first[:, 1:]
        unsure = kernels.flatnonzero(~(first & last).reshape(-1))  # all but runs of one
        runs = kernels.cumsum(first.reshape(-1))[unsure]
        heads, tails = unsure // n, order.reshape(-1)[unsure]
        lengths = kernels.sq_lengths(stack, n + rows.start + heads, tails)
        by = tails.argsort(stable=True)
        by = by[lengths[by].argsort(stable=True)]
        by = by[runs[by].argsort(stable=True)]  # by run, distance and number
        order[heads, unsure % n] = tails[by]
        return use(rows, order)

    entries = SORTED_DEVICE_ENTRIES if _on_card(Z) else SORTED_HOST_ENTRIES
    return _over_rows(work, Z, len(Q), entries)


def _counts(mask: Array) -> Index:
    """Number of true entries in each row, on the host."""
    if is_torch(mask):
        return np.asarray(kernels_for(mask).to_host(mask.sum(1)), dtype=np.intp)
    return np.array([np.count_nonzero(row) for row in mask], dtype=np.intp)  # sums would convert


def _one_each(heads: Index) -> Iterator[Index]:
    """Split edges with ascending heads into groups in which every head is different."""
    turn = np.arange(len(heads)) - np.searchsorted(heads, heads)
    for number in range(int(turn.max(initial=-1)) + 1):
        yield np.flatnonzero(turn == number)


def _over_rows(
    work: Callable[[slice], Any], Y: Array, n_rows: int | None = None, entries: int | None = None
) -> list[Any]:
    """Results of the work on ranges of rows; distances from a range to all rows of Y fill a block.

    The rows are those of Y, or ``n_rows`` others. Blocks have the default size unless one is given.
    """
    n, m = len(Y), len(Y) if n_rows is None else n_rows
    step = max(1, (entries or (DEVICE_ENTRIES if _on_card(Y) else HOST_ENTRIES)) // n)
    parts = [slice(first, min(first + step, m)) for first in range(0, m, step)]
    if is_torch(Y):
        found = []
        for part in parts:
            check_time()
            found.append(work(part))
        return found
    return in_threads(work, parts, 8 * m * n * Y.shape[1])


def _on_card(Y: Array) -> bool:
    return is_torch(Y) and bool(Y.is_cuda)
