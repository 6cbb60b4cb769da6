"""Kernels of `on_numpy` over the similarities of all pairs: kernel values, soft neighbours."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar.kernels.parallel import in_threads
from nearfar.kernels.threads import n_threads
from nearfar.kernels.tiles import classes_of
from nearfar.limits import check_time

Floats = NDArray[np.floating]
Index = NDArray[np.intp]

SOFTMAX_BYTES = 1 << 19  # bytes of a block of soft neighbours, which should stay in the cache
# Exponents that are lower than the largest by this much count as it: exp(−60) is lost in any sum of
# probabilities, but smaller ones become subnormal numbers, with which processors compute a hundred
# times slower. Exponents are shifted if their largest is below FAR.
NEGLIGIBLE, FAR = -60, -20
SOFTMAX_ROWS = 64  # rows of such a block at least,
ENOUGH_ROWS = 192  # and of products that are as fast as larger ones
SOFTMAX_SHARES = 16  # partial sums over columns; at most this many threads can work


def similarities(
    X: Floats, Y: Floats, kernel: str, gamma: float = 1.0, degree: int = 3, coef0: float = 1.0
) -> Floats:
    """k(x, y) for each row x of X and y of Y, (m, n). Time O(m n d).

    In float64, as scikit-learn computes them: its checks would take longer than a small block.
    """
    if kernel in ("laplacian", "cosine"):
        parameters = {"gamma": gamma} if kernel == "laplacian" else {}
        return np.asarray(pairwise_kernels(X, Y, metric=kernel, **parameters), dtype=X.dtype)
    dtype = X.dtype
    X, Y = X.astype(np.float64, copy=False), Y.astype(np.float64, copy=False)
    values = X @ Y.T
    if kernel == "rbf":
        values *= -2
        values += np.einsum("ij,ij->i", X, X)[:, None]
        values += np.einsum("ij,ij->i", Y, Y)
        np.maximum(values, 0, out=values)
        values *= -gamma
        np.exp(values, out=values)
    elif kernel != "linear":
        values *= gamma
        values += coef0
        if kernel == "poly":
            values **= degree
        else:  # sigmoid
            np.tanh(values, out=values)
    return values.astype(dtype, copy=False)


def softmax_neighbors(
    Z: Floats,
    Y: Floats,
    starts: Index,
    own: bool = False,
    both: bool = False,
    masses: NDArray[np.float64] | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats | None]:
    """As in `nearfar.kernels.reference`.

    Exponents come from one matrix product in the dtype of Z, so that Z should be centred. Time
    O(n² (r + c)), memory O(SOFTMAX_BYTES) or that of Z a thread, and SOFTMAX_SHARES times the
    column sums.
    """
    (n, columns), dtype = Y.shape, Z.dtype
    squares, one = np.einsum("ij,ij->i", Z, Z)[:, None], np.ones((n, 1), dtype)
    heights = squares if masses is None else squares - np.log(masses)[:, None].astype(dtype)
    # −‖zᵢ − zⱼ‖² + log mⱼ, in one product with a matrix that is laid out for it
    left, right = np.hstack([2 * Z, -one, -squares]), np.vstack([Z.T, heights.T, one.T])
    weights = np.repeat(np.diff(starts) > 1, np.diff(starts)) * (1.0 if masses is None else masses)
    logs, shares = np.empty(n), np.empty(n)
    forward = np.empty((n, columns), Y.dtype)
    # Up to ENOUGH_ROWS rows, blocks may be as large as Z.
    least = max(SOFTMAX_ROWS, min(ENOUGH_ROWS, Z.shape[1]))
    step = min(n, max(least, SOFTMAX_BYTES // (n * Z.itemsize)))
    size = max(step, -(-n // SOFTMAX_SHARES))
    step = -(-size // -(-size // step))  # all blocks of a part have about the same size
    parts = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    # Large buffers are allocated here: memory that threads allocate stays in their heaps.
    buffers = [np.empty((step, n), dtype) for _ in range(min(n_threads(), len(parts)))]

    def sums(part: slice) -> tuple[NDArray[np.float64], Floats | None]:
        degrees = np.zeros(n)
        backward = np.zeros((n, columns), Y.dtype) if both else None
        buffer = buffers.pop()
        for first in range(part.start, part.stop, step):
            check_time()
            rows = slice(first, min(first + step, part.stop))
            W = np.matmul(left[rows], right, out=buffer[: rows.stop - rows.start])
            top, total = _exponentials(W, np.arange(rows.start, rows.stop))
            logs[rows] = top + np.log(total)
            scale = weights[rows] / total
            shares[rows] = _shares_of_class(W, rows, starts) / total
            if own:
                _subtract_share(W, rows, starts, shares[rows], scale)
                scale = np.ones(len(W))
            factors = scale.astype(dtype)
            np.matmul(W, Y, out=forward[rows])
            forward[rows] *= factors[:, None]
            degrees += factors @ W
            if not own:
                degrees[rows] += weights[rows]
            if backward is not None:
                backward += W.T @ (factors[:, None] * Y[rows])
        buffers.append(buffer)
        return degrees, backward

    found = in_threads(sums, parts, n * n * (Z.shape[1] + columns) * Z.itemsize)
    degrees = np.zeros(n)
    backward = np.zeros((n, columns), Y.dtype) if both else None
    for part, products in found:
        degrees += part
        if backward is not None and products is not None:
            backward += products
    return logs, shares, degrees, forward, backward


def _exponentials(table: Floats, columns: Index) -> tuple[Floats, NDArray[np.float64]]:
    """Turn exponents of points into their exponentials, in place; zero in their own columns.

    Returns what was subtracted from the exponents of each row first, and the sums of the rows. It
    is the largest exponent if one of them is below FAR, or above -FAR by rounding of points far
    from the centre, and otherwise 0, which saves a pass.
    """
    itself = np.arange(len(table)), columns
    table[itself] = -np.inf
    top = table.max(axis=1)
    if top.min(initial=0.0) < FAR or top.max(initial=0.0) > -FAR:
        table -= top[:, None]
        lowest = NEGLIGIBLE
    else:
        top, lowest = np.zeros_like(top), NEGLIGIBLE + FAR
    table[itself] = 0
    if table.min(initial=0.0) < lowest:
        np.maximum(table, lowest, out=table)
    np.exp(table, out=table)
    table[itself] = 0
    return top, table.sum(axis=1).astype(np.float64)


def softmax(table: Floats, itself: Index) -> None:
    """Turn exponents of points into probabilities of all others, in place.

    ``itself`` is the column of the point of each row.
    """
    total = _exponentials(table, itself)[1]
    table /= total[:, None].astype(table.dtype)


def _shares_of_class(table: Floats, rows: slice, starts: Index) -> NDArray[np.float64]:
    """The sums of some rows over their class."""
    sums = np.empty(len(table))
    for members, (first, last) in classes_of(rows, starts):
        sums[members] = table[members, first:last].sum(axis=1)
    return sums


def _subtract_share(
    table: Floats,
    rows: slice,
    starts: Index,
    shares: NDArray[np.float64],
    scale: NDArray[np.float64],
) -> None:
    """Multiply entries of the own class by (1 − share) scale, others by −share scale, in place."""
    inside = ((1 - shares) * scale)[:, None].astype(table.dtype)
    outside = (-shares * scale)[:, None].astype(table.dtype)
    for members, (first, last) in classes_of(rows, starts):
        table[members, :first] *= outside[members]
        table[members, first:last] *= inside[members]
        table[members, last:] *= outside[members]


def local_laplacian(Z: Floats, scales: Floats, starts: Index) -> Floats:
    """Σⱼ aᵢⱼ (zᵢ − zⱼ) over the class of i (n, r), with aᵢⱼ = exp(−‖zᵢ − zⱼ‖² / (sᵢ sⱼ)).

    Distances come from a matrix product in the dtype of Z, of points relative to the mean of their
    class. Time O(Σ m² r) for classes of m points, memory O(SOFTMAX_BYTES) a thread.
    """
    out, inverse = np.empty_like(Z), (1 / scales).astype(Z.dtype)
    parts = []
    for first, last in pairwise(starts.tolist()):
        step = max(SOFTMAX_ROWS, SOFTMAX_BYTES // (max(last - first, 1) * Z.itemsize))
        rows = range(first, last, step)
        parts += [(slice(begin, min(begin + step, last)), (first, last)) for begin in rows]

    def products(part: tuple[slice, tuple[int, int]]) -> None:
        rows, (first, last) = part
        centre = Z[first:last].mean(axis=0)
        one, all_of = Z[rows] - centre, Z[first:last] - centre
        table = np.matmul(2 * one, all_of.T)
        table -= np.einsum("ij,ij->i", all_of, all_of)
        table -= np.einsum("ij,ij->i", one, one)[:, None]
        np.minimum(table, 0, out=table)
        table *= inverse[first:last]
        table *= inverse[rows, None]
        np.maximum(table, NEGLIGIBLE, out=table)
        np.exp(table, out=table)
        out[rows] = table.sum(axis=1)[:, None] * one - table @ all_of

    sizes = np.diff(starts)
    in_threads(products, parts, int((sizes**2).sum()) * Z.shape[1] * Z.itemsize)
    return out
