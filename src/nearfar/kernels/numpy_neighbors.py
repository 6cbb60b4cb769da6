"""Kernels of `on_numpy` that find nearest points, or sum over all of them for each query."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.near_blocks import pruned_nearest_others
from nearfar.kernels.numpy_similarities import (
    NEGLIGIBLE,
    SOFTMAX_BYTES,
    SOFTMAX_ROWS,
    local_laplacian,
)
from nearfar.kernels.parallel import TABLE_ENTRIES, in_threads, query_slices, rows_in_cache
from nearfar.kernels.search import FEWEST_POINTS, Search
from nearfar.kernels.threads import n_threads
from nearfar.kernels.tiles import inexact, labels_of
from nearfar.limits import check_time

Floats = NDArray[np.floating]
Index = NDArray[np.intp]

TREE_DIMENSIONS = 15  # up to which a tree finds neighbours in a large class
GROUP = 32  # distances in a group; the maxima of the groups bound the k-th nearest distance
CENTRE_ROWS = 512  # rows that are enough for a centre
COARSE = 0.01  # rounding errors of a product in float32, as a share of the k-th distance, at most
TRIED = 32  # queries that tell whether float32 suffices for most
UNDERFLOW = 1e-30  # of the largest squared distance: what float32 may lose is below 1e-7 of that
ROUGH = 1e-8  # a squared distance, relative to the largest, that a matrix product has lost
MIDDLE_ROWS = 32  # whose median is in the middle of a class, unless half of them are outliers


def searches_are_cheap(Z: NDArray[Any]) -> bool:  # noqa: ARG001 - the device twin needs it
    """Whether a search costs no more than a few steps: not on the host."""
    return False


def kth_squares(X: Floats, starts: Index, k: int) -> NDArray[np.float64]:
    """Squared distances to the k-th nearest others of the class (n,), in float64.

    A point of a smaller class has the largest, and one alone has 0. Distances come from a matrix
    product; points for which it may have lost digits are compared with their whole class. Time
    O(Σ m² d), memory O(SOFTMAX_BYTES).
    """
    out = np.zeros(len(X))
    for first, last in pairwise(starts.tolist()):
        near = min(k, last - first - 1)
        if near == 0:
            continue
        points = X[first:last].astype(np.float64)
        points -= _middle(points)
        squares = np.einsum("ij,ij->i", points, points)
        rough = ROUGH * 2 * squares.max()
        step = max(SOFTMAX_ROWS, SOFTMAX_BYTES // (8 * len(points)))
        for begin in range(0, len(points), step):
            check_time()
            rows = slice(begin, min(begin + step, len(points)))
            table = np.matmul(-2 * points[rows], points.T)
            table += squares
            table[np.arange(len(table)), np.arange(rows.start, rows.stop)] = np.inf
            table.partition(near - 1, axis=1)
            found = table[:, near - 1] + squares[rows]
            for row in np.flatnonzero(found < rough).tolist():
                found[row] = _exact_kth(points, begin + row, near)
            out[first + rows.start : first + rows.stop] = found
    return out


def neighbor_laplacian(Z: Floats, starts: Index, k: int, least: float) -> Floats:
    """`local_laplacian` with √`kth_squares`, at least ``least`` of the largest, as scales.

    Distances within a class are computed once, half of them, unless the class is very large. Time
    O(Σ m² r), memory O(TABLE_ENTRIES) a thread.
    """
    out, scales = np.empty_like(Z), np.empty(len(Z))
    parts = [slice(*ends) for ends in pairwise(starts.tolist())]
    sizes = np.diff(starts)
    known = [part for part, m in zip(parts, sizes, strict=True) if m * m <= TABLE_ENTRIES]
    most = max((part.stop - part.start for part in known), default=0)
    # Tables are allocated once: new memory takes a third of the time of what is computed in it.
    tables = [np.empty(most**2) for _ in range(min(n_threads(), len(known)))]

    def of_class(part: slice) -> None:
        table = tables.pop()
        scales[part] = _laplacian_of_class(Z[part], k, out[part], table)
        tables.append(table)

    in_threads(of_class, known, int((sizes**2).sum()) * Z.shape[1] * Z.itemsize)
    large = [part for part in parts if part not in known]
    for part in large:
        scales[part] = kth_squares(Z[part], np.array([0, part.stop - part.start]), k) ** 0.5
    lowest = least * max(float(scales.max(initial=0.0)), least)
    for part in parts:
        if part in large or scales[part].min(initial=lowest) < lowest:
            whole = np.array([0, part.stop - part.start])
            out[part] = local_laplacian(Z[part], scales[part].clip(lowest, None), whole)
    return out


def _laplacian_of_class(Z: Floats, k: int, out: Floats, table: Floats) -> NDArray[np.float64]:
    """The scales of a class (m,); its part of `local_laplacian` goes to ``out`` (m, r).

    It is not finite where a scale is zero. ``table`` has room for m² numbers.
    """
    m, near = len(Z), min(k, len(Z) - 1)
    if near < 1:
        out[...] = 0
        return np.zeros(m)
    points = Z.astype(np.float64)
    points -= _middle(points)
    twice = np.sqrt(2.0) * points
    table = np.matmul(
        twice, twice.T, out=table[: m * m].reshape(m, m)
    )  # half of the work of a product of two matrices
    squares, found = 0.5 * np.diag(table), np.empty(m)
    step = max(SOFTMAX_ROWS, SOFTMAX_BYTES // (8 * m))
    blocks = [slice(first, min(first + step, m)) for first in range(0, m, step)]
    for rows in blocks:
        part = table[rows]
        np.subtract(squares, part, out=part)
        part += squares[rows, None]
        np.fill_diagonal(part[:, rows], np.inf)
        found[rows] = np.partition(part, near - 1, axis=1)[:, near - 1]
        np.fill_diagonal(part[:, rows], 0)
    for row in np.flatnonzero(found < ROUGH * 2 * squares.max()).tolist():
        found[row] = _exact_kth(points, row, near)
    scales, points = np.sqrt(found), points.astype(Z.dtype, copy=False)
    ones = np.ones(m, Z.dtype)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = 1 / scales
        for rows in blocks:
            part = table[rows]
            part *= inverse
            part *= -inverse[rows, None]
            affinities = np.clip(part, NEGLIGIBLE, 0, out=part).astype(Z.dtype, copy=False)
            np.exp(affinities, out=affinities)
            np.fill_diagonal(affinities[:, rows], 0)  # which its own part of the sum is, exactly
            np.matmul(affinities, points, out=out[rows])
            degrees = affinities @ ones  # in a third of the time of a sum
            np.subtract(degrees[:, None] * points[rows], out[rows], out=out[rows])
    return scales


def _middle(points: Floats) -> Floats:
    """A centre from which no distance is large unless the point is an outlier."""
    some = points[:: -(-len(points) // MIDDLE_ROWS)]
    middle: Floats = np.partition(some, len(some) // 2, axis=0)[len(some) // 2]
    return middle


def _exact_kth(points: Floats, row: int, k: int) -> float:
    """The squared distance of a row to its k-th nearest other, by differences."""
    exact = ((points - points[row]) ** 2).sum(axis=1)
    return float(np.partition(exact, k)[k])  # after the point itself


def nearest_in_class(X: Floats, starts: Index, k: int) -> tuple[Index, Index]:
    """Edges from each point to its k nearest others of its class, nearest first.

    A class of m < k + 1 points gives each of its points m − 1 edges. Time O(Σ m² d), less for large
    classes: by a tree in few dimensions, otherwise by blocks (see `nearfar.kernels.near_blocks`).
    """
    heads: list[Index] = [np.empty(0, dtype=np.intp)]
    tails: list[Index] = [np.empty(0, dtype=np.intp)]
    for first, last in pairwise(starts.tolist()):
        check_time()
        near = min(k, last - first - 1)
        if near == 0:
            continue
        heads.append(np.repeat(np.arange(first, last), near))
        tails.append(first + _nearest_others(X[first:last], near).ravel())
    return np.concatenate(heads), np.concatenate(tails)


def _nearest_others(points: Floats, k: int) -> Index:
    """The k nearest other points of each point (m, k), nearest first, ties by number."""
    in_tree = len(points) >= FEWEST_POINTS and points.shape[1] <= TREE_DIMENSIONS
    pruned = None if in_tree else pruned_nearest_others(points, k, in_threads)
    if pruned is not None:
        return pruned
    search = Search.of(points, "kd_tree" if in_tree else "brute")
    found, _ = search.nearest(points, k + 1)
    others = found != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # after as many equal points it does not find itself
    chosen: Index = found[others].reshape(len(points), k)
    return chosen


def nearest(Q: Floats, Z: Floats, k: int) -> tuple[Index, Floats]:
    """Rows (m, k) of Z nearest to each row of Q, nearest first, and their squared distances.

    Ties are ordered by row number; k is at most n. Distances are computed in float64; the order of
    two that differ only by rounding depends on the order of summation.

    A matrix product gives −½D, raised by a bound on its rounding error. Its k-th largest value
    bounds the k-th distance from above, and all points that may be that near are compared by exact
    differences. Points in float64 are multiplied in float32 first, in half the time; queries for
    which rounding is no small share of the k-th distance are multiplied again. Time O(m n r),
    memory O(TABLE_ENTRIES) plus the answer.
    """
    near = np.empty((len(Q), k), dtype=np.intp)
    lengths = np.empty((len(Q), k))
    if near.size == 0:
        return near, lengths
    A, B = _centred(Q, Z)
    screens = [screen for screen in (_Screen.single(A, B, k), _Screen.of(A, B)) if screen]

    def search(rows: slice) -> None:
        found, left = list[tuple[Index, Index]](), np.arange(rows.start, rows.stop)
        for screen in screens:
            passed, sure = screen.passed(left, k)
            if screen is screens[-1]:
                sure[:] = True
            heads, tails = np.divmod(np.flatnonzero(passed[sure]), len(Z))
            found.append((left[sure][heads], tails))
            left = left[~sure]
            if not len(left):
                break
        heads, tails = (np.concatenate(ends) for ends in zip(*found, strict=True))
        squared = _exact_squares(Q, Z, heads, tails)
        order = np.lexsort((squared, heads))  # stable: equals stay in the order of their rows
        first = np.searchsorted(heads[order], np.arange(rows.start, rows.stop))
        chosen = order[first[:, None] + np.arange(k)]
        near[rows], lengths[rows] = tails[chosen], squared[chosen]

    in_threads(search, query_slices(len(Q), len(Z)), len(Q) * Z.nbytes)
    return near, lengths


class _Screen(NamedTuple):
    """A matrix product that tells which points may be among the nearest of a query."""

    left: Floats  # (m, r + 2)
    right: Floats  # (r + 2, n)
    squares: NDArray[np.float64]  # (m,) ‖q‖² and what may underflow
    c: float  # rounding errors of a squared distance, as a share of ‖q‖² + ‖z‖²

    @classmethod
    def of(cls, A: Floats, B: Floats, tiny: float = 0.0) -> _Screen:
        """Of queries and points in one dtype, which is that of the product."""
        c = (B.shape[1] + 8) * float(np.finfo(B.dtype).eps)
        squares, shrink = np.einsum("ij,ij->i", A, A), B.dtype.type(0.5 - c)
        left = np.column_stack([A, np.ones(len(A), A.dtype), -shrink * squares])
        below = -shrink * np.einsum("ij,ij->i", B, B)
        right = np.column_stack([B, below, np.ones(len(B), B.dtype)]).T
        return cls(left, right, squares.astype(np.float64) + tiny, c)

    @classmethod
    def single(cls, A: Floats, B: Floats, k: int) -> _Screen | None:
        """The same in float32, of points in float64; None where that is no use for most queries.

        Units are such that the largest entry is about 1.
        """
        largest = max(float(np.abs(A).max(initial=0)), float(np.abs(B).max(initial=0)))
        if B.dtype == np.float32 or not 0 < largest < np.inf:
            return None
        unit = 2.0 ** -np.round(np.log2(largest))
        queries, points = ((each * unit).astype(np.float32) for each in (A, B))
        screen = cls.of(queries, points, UNDERFLOW)
        _, sure = screen.passed(np.arange(0, len(A), -(-len(A) // TRIED)), k)
        return screen if 2 * sure.sum() > len(sure) else None

    def passed(self, rows: Index, k: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which points may be among the k nearest of each query, and whether these are few."""
        c = self.c
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            score = self.left[rows] @ self.right
            # Of a point with score s: D <= −2s + 4c(‖q‖² + ‖z‖²), and ‖z‖² <= 2‖q‖² + 2D.
            slack = 12 * c * self.squares[rows]
            reach = slack - 2.0 * _kth_largest(score, k)
            bar = (-0.5 / (1 - 8 * c) * reach).astype(score.dtype)
            bar = np.nextafter(bar, -np.inf, dtype=score.dtype)
            return ~(score < bar[:, None]), slack <= COARSE * reach


def nearest_of_classes(Q: Floats, X: Floats, starts: Index, k: int) -> Index:
    """Rows (m, C, k) of each class of X nearest to each row of Q, −1 where a class has fewer."""
    near = np.full((len(Q), len(starts) - 1, k), -1)
    for c, (first, last) in enumerate(pairwise(starts.tolist())):
        count = min(k, last - first)
        near[:, c, :count] = first + nearest(Q, X[first:last], count)[0]
    return near


def hinge_sums(
    Q: Floats, Z: Floats, starts: Index, reach: Floats, radius: Floats
) -> tuple[Floats, Floats]:
    """As in `nearfar.kernels.reference`.

    Distances come from a matrix product in the dtype of Z, and from differences where its rounding
    error may exceed a hundredth of the distance plus the smallest reach. The first sum is taken
    over all l, from sorted distances, and the terms of class c are subtracted. Time
    O(m n (r + k + log n) + m C k log n), memory O(TABLE_ENTRIES).
    """
    m, n_classes, k = reach.shape
    outside, inside = np.zeros((m, n_classes)), np.zeros((m, n_classes))
    A, B = _centred(Q, Z)
    with np.errstate(over="ignore"):
        left = np.column_stack([-2 * A, np.ones(len(A), A.dtype), np.einsum("ij,ij->i", A, A)])
        right = np.column_stack([B, np.einsum("ij,ij->i", B, B), np.ones(len(B), B.dtype)])
    bars = np.maximum(reach, 0).astype(Z.dtype)  # in the dtype of the distances
    widest = np.nextafter(radius.max(axis=1, initial=0).astype(Z.dtype), np.inf, dtype=Z.dtype)
    values = np.concatenate([reach.ravel(), radius.ravel()])
    least = float(values.min(where=np.isfinite(values), initial=np.inf))
    labels, eps = labels_of(starts), float(np.finfo(Z.dtype).eps)

    def add_sums(rows: slice) -> None:
        with np.errstate(all="ignore"):  # overflows are recomputed below
            table = left[rows] @ right.T
            doubt = inexact(table, left[rows, -1], right[:, -2], least, Z.shape[1], eps)
            if doubt is not None:
                heads, tails = np.divmod(np.flatnonzero(doubt), len(Z))
                table[heads, tails] = _exact_squares(Q, Z, heads + rows.start, tails)
        np.maximum(table, 0, out=table)
        near, place = np.divmod(np.flatnonzero(table < widest), len(Z))
        hinges = np.maximum(radius[place] - table[near, place, None], 0).sum(axis=1)
        code = near * n_classes + labels[place]
        inside[rows] = np.bincount(code, hinges, len(table) * n_classes).reshape(-1, n_classes)
        if k:
            own = [
                _hinges(bars[rows, c], table[:, first:last])
                for c, (first, last) in enumerate(pairwise(starts.tolist()))
            ]
            whole = [_hinges_of_many(bar, row) for bar, row in zip(bars[rows], table, strict=True)]
            outside[rows] = (np.array(whole) - np.column_stack(own)).clip(0)

    in_threads(add_sums, query_slices(m, len(Z)) if len(Z) else [], m * Z.nbytes)
    return outside, inside


def _hinges(bars: Floats, table: Floats) -> NDArray[np.float64]:
    """Σⱼ Σ_l [bars_tj − table_tl]₊ for each t."""
    total = np.zeros(len(table))
    for bar in bars.T:
        total += np.maximum(bar[:, None] - table, 0).sum(axis=1, dtype=np.float64)
    return total


def _hinges_of_many(bars: Floats, row: Floats) -> NDArray[np.float64]:
    """Σⱼ Σ_l [bars_cj − row_l]₊ for each c, from the cumulative sums of the sorted row."""
    below = row[row < bars.max()]
    below.sort()
    running = np.concatenate([[0], np.cumsum(below, dtype=np.float64)])
    count = np.searchsorted(below, bars)
    total: NDArray[np.float64] = (count * bars.astype(np.float64) - running[count]).sum(axis=1)
    return total


def _kth_largest(score: Floats, k: int) -> Floats:
    """A lower bound on the k-th largest entry of each row, from the maxima of small groups."""
    depth = max(1, min(GROUP, score.shape[1] // (4 * k)))
    width = score.shape[1] // depth
    maxima = score[:, : depth * width].reshape(len(score), depth, width).max(axis=1)
    return np.partition(maxima, width - k, axis=1)[:, width - k].astype(np.float64)


def _centred(Q: Floats, Z: Floats) -> tuple[Floats, Floats]:
    """Both sets, centred at the median of a sample of Z to reduce rounding, in the dtype of Z."""
    if len(Z) == 0:
        return Q, Z
    centre = np.median(Z[:: -(-len(Z) // CENTRE_ROWS)].astype(np.float64), axis=0)
    return (Q - centre).astype(Z.dtype), (Z - centre).astype(Z.dtype)


def _exact_squares(Q: Floats, Z: Floats, heads: Index, tails: Index) -> NDArray[np.float64]:
    """‖q_h − z_t‖² by differences in float64."""
    out = np.empty(len(heads))
    step = rows_in_cache(8 * Z.shape[1])
    for first in range(0, len(heads), step):
        part = slice(first, first + step)
        difference = Q[heads[part]].astype(np.float64)
        difference -= Z[tails[part]]
        np.vecdot(difference, difference, out=out[part])
    return out
