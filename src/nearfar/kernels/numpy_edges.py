"""Kernels of `on_numpy` over edges: lengths, Laplacians, scatter matrices; and products of rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.kernels.numpy_arrays import double, unique
from nearfar.kernels.parallel import (
    in_threads,
    is_worth_threads,
    over_blocks,
    row_slices,
    summed,
)
from nearfar.limits import check_time

Floats = NDArray[np.floating]
Index = NDArray[np.intp]

SCATTER_ROWS = 1024  # rows that are gathered for such a product at a time


def sq_lengths(Z: Floats, heads: Index, tails: Index) -> Floats:
    """‖z_h − z_t‖² along each edge. Time O(m r)."""
    out = np.empty(len(heads), Z.dtype)

    def block(part: slice) -> None:
        difference = _differences(Z, heads[part], tails[part])
        _dots(difference, difference, out[part])

    over_blocks(block, len(heads), Z.shape[1] * Z.itemsize)
    return out


def edge_products(Z: Floats, D: Floats, heads: Index, tails: Index) -> tuple[Floats, Floats]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge. Time O(m r)."""
    cross = np.empty(len(heads), Z.dtype)
    square = np.empty(len(heads), Z.dtype)

    def block(part: slice) -> None:
        change = _differences(D, heads[part], tails[part])
        _dots(_differences(Z, heads[part], tails[part]), change, cross[part])
        _dots(change, change, square[part])

    over_blocks(block, len(heads), 2 * Z.shape[1] * Z.itemsize)
    return cross, square


def _dots(A: Floats, B: Floats, out: Floats) -> None:
    """Dot products of the rows of A and B; faster than `vecdot` for short rows."""
    np.einsum("ij,ij->i", A, B, out=out)


def _differences(Z: Floats, heads: Index, tails: Index) -> Floats:
    difference = np.take(Z, heads, axis=0)
    difference -= np.take(Z, tails, axis=0)
    return difference


def laplacian_matmul(heads: Index, tails: Index, weights: Floats, Z: Floats) -> Floats:
    """Lap(w) Z, where Lap(w) = Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ. Time O(m r)."""
    n = len(Z)
    used = np.flatnonzero(weights)
    heads, tails, weights = heads[used], tails[used], weights[used]
    degree = np.bincount(heads, weights, n) + np.bincount(tails, weights, n)
    out, weights = degree.astype(Z.dtype)[:, None] * Z, weights.astype(Z.dtype)
    if not is_worth_threads(2 * len(used) * Z.shape[1] * Z.itemsize):
        order = np.argsort(heads, kind="stable")  # quick, as there are sorted runs
        starts = np.searchsorted(heads, np.arange(n + 1), sorter=order)
        W = sparse.csr_array((weights[order], tails[order], starts), shape=(n, n))
        out -= W @ Z
        out -= W.T @ Z
        return out
    check_time()
    W = sparse.csr_array((weights, (heads, tails)), shape=(n, n))
    check_time()
    transposed = W.T.tocsr()
    check_time()
    symmetric = (W + transposed).tocsr()  # rows that threads can share
    del used, heads, tails, weights, W, transposed  # as large as the sum

    def rows_of(rows: slice) -> None:
        out[rows] -= symmetric[rows] @ Z

    in_threads(rows_of, row_slices(n), symmetric.nnz * Z.shape[1] * Z.itemsize)
    return out


def apply(U: Floats, L: Floats) -> Floats:
    """U Lᵀ in the dtype of U, L on the host."""
    factor = L.astype(U.dtype, copy=False).T
    out = np.empty((len(U), len(L)), U.dtype)

    def rows_of(rows: slice) -> None:
        np.matmul(U[rows], factor, out=out[rows])

    in_threads(rows_of, row_slices(len(U)), U.nbytes * len(L))
    return out


def image_squares(U: Floats, L: Floats) -> Floats:
    """‖L u‖² for each row u of U, L on the host; images are held for a block of rows at a time."""
    factor, out = L.astype(U.dtype, copy=False).T, np.empty(len(U), U.dtype)

    def block(part: slice) -> None:
        images = U[part] @ factor
        _dots(images, images, out[part])

    over_blocks(block, len(U), (U.shape[1] + len(L)) * U.itemsize)
    return out


def apply_centred(X: Floats, centre: Floats, L: Floats) -> NDArray[np.float64]:
    """(X − centre) Lᵀ in float64, L on the host; rows are made float64 a block at a time."""
    out = np.empty((len(X), len(L)))

    def rows_of(rows: slice) -> None:
        np.matmul(double(X[rows]) - centre, L.T, out=out[rows])

    in_threads(rows_of, row_slices(len(X)), X.nbytes * len(L))
    return out


def gram(A: Floats, B: Floats) -> NDArray[np.float64]:
    """Aᵀ B on the host, its sums over blocks of rows taken in float64."""
    shape = A.shape[1], B.shape[1]
    work = A.nbytes * B.shape[1]
    return summed(lambda rows: A[rows].T @ B[rows], row_slices(len(A)), shape, work)


def edge_scatter(
    Z: Floats, heads: Index, tails: Index, weights: Floats | None = None
) -> NDArray[np.float64]:
    """Σ w (z_h − z_t)(z_h − z_t)ᵀ over the edges, on the host in float64. Time O(m d²).

    Weights are not negative; None for w = 1.
    """
    d = Z.shape[1]

    def scatter(part: slice) -> NDArray[np.float64]:
        total = np.zeros((d, d))
        for first in range(part.start, part.stop, SCATTER_ROWS):
            edges = slice(first, min(first + SCATTER_ROWS, part.stop))
            difference = double(np.take(Z, heads[edges], axis=0))
            difference -= np.take(Z, tails[edges], axis=0)
            if weights is not None:
                difference *= np.sqrt(weights[edges])[:, None]
            total += difference.T @ difference
        return total

    return summed(scatter, row_slices(len(heads)), (d, d), 8 * len(heads) * d * d)


def group_scatter(Z: Floats, rows: Index, starts: Index) -> NDArray[np.float64]:
    """Σ (z − m)(z − m)ᵀ over groups of rows, m being the mean of the group of z.

    Group g is ``rows[starts[g]:starts[g + 1]]``, which is not empty. The sum is on the host in
    float64. Time O(m d²), memory O(SCATTER_ROWS d) a thread, or that of the largest group.
    """
    d = Z.shape[1]

    def scatter(part: slice) -> NDArray[np.float64]:
        total = np.zeros((d, d))
        for groups in _whole_groups(starts, part, SCATTER_ROWS):
            cuts = starts[groups.start : groups.stop + 1]
            members = double(np.take(Z, rows[cuts[0] : cuts[-1]], axis=0))
            sizes = np.diff(cuts)
            means = np.add.reduceat(members, cuts[:-1] - cuts[0], axis=0) / sizes[:, None]
            members -= np.repeat(means, sizes, axis=0)
            total += members.T @ members
        return total

    size = -(-len(rows) // max(len(row_slices(len(rows))), 1))
    parts = _whole_groups(starts, slice(0, len(starts) - 1), size)
    return summed(scatter, parts, (d, d), 8 * len(rows) * d * d)


def _whole_groups(starts: Index, groups: slice, size: int) -> list[slice]:
    """Consecutive slices of some groups, each of about ``size`` rows, or of one larger group."""
    first, last = int(starts[groups.start]), int(starts[groups.stop])
    ends = np.searchsorted(starts, [*range(first + size, last, size), last] if last > first else [])
    return [slice(*pair) for pair in pairwise([groups.start, *unique(ends).tolist()])]
