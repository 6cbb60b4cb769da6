"""Kernels on Gram matrices of points in NumPy: lengths and products of edges, factorisations.

All in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack
from scipy.sparse import coo_array, csr_array

from nearfar import limits
from nearfar.kernels.on_numpy import _in_threads
from nearfar.limits import check_cost

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

_FACTOR_OPERATIONS = 0.7  # times m³, at the speed of a matrix product, for a factor of m rows
SCHUR_COPIES = 1  # arrays (m, m) that `schur` needs
ROWS = 256  # rows of a block of products between edges
_PANEL = 512  # columns factored at a time, if the matrix has several times as many
RIDGES = (1e-14, 1e-13, 1e-12, 1e-10, 1e-8)  # shares of the diagonal, tried until it is definite


def gram_lengths(K: Matrix, heads: Index, tails: Index) -> Matrix:
    """K_hh − 2 K_ht + K_tt along each edge. Time O(m)."""
    squares = np.diagonal(K)
    return squares[heads] + squares[tails] - 2 * K[heads, tails]


def laplacian(heads: Index, tails: Index, weights: Matrix, n: int) -> Matrix:
    """Lap(w) as a dense matrix (n, n). Time O(n² + m)."""
    off = coo_array((weights, (heads, tails)), shape=(n, n)).toarray()
    out: Matrix = -(off + off.T)
    out[np.arange(n), np.arange(n)] = off.sum(axis=0) + off.sum(axis=1)
    return out


def sparse_laplacian(heads: Index, tails: Index, weights: Matrix, n: int) -> csr_array:
    """Lap(w) in the form that multiplies fastest, here sparse: times (n, n) it takes O(m n)."""
    rows = np.concatenate([heads, tails, heads, tails])
    columns = np.concatenate([heads, tails, tails, heads])
    values = np.concatenate([weights, weights, -weights, -weights])
    return coo_array((values, (rows, columns)), shape=(n, n)).tocsr()


def inner(A: Matrix, B: Any) -> float:
    """The inner product of a matrix and one that may be sparse."""
    return float((A * B).sum() if isinstance(B, np.ndarray) else B.multiply(A).sum())


def edge_rows(F: Matrix, heads: Index, tails: Index, scale: Matrix) -> Matrix:
    """s_e (F_h − F_t) for each edge, (m, n)."""
    rows = F[heads]
    rows -= F[tails]
    rows *= scale[:, None]
    return rows


def cholesky(A: Matrix) -> Matrix | None:
    """The lower factor of a positive definite matrix, or None if it is not."""
    factor, info = lapack.dpotrf(A, lower=1, clean=1)
    return factor if info == 0 else None


def cholesky_inverse(L: Matrix) -> Matrix:
    """(L Lᵀ)⁻¹."""
    inverse, _ = lapack.dpotri(L, lower=1)
    lower = np.tril(inverse)
    whole: Matrix = lower + np.tril(inverse, -1).T
    return whole


def lower_solver(L: Matrix) -> Callable[[Matrix, bool], Matrix]:
    """A function of a vector b and whether to transpose: L⁻¹ b or L⁻ᵀ b, for many b."""

    def solve(b: Matrix, transposed: bool) -> Matrix:
        # scipy.linalg.solve_triangular spends far more on its checks than on a small system.
        found: Matrix = blas.dtrsv(L, b, lower=1, trans=int(transposed))
        return found

    return solve


def solve_factored(L: Matrix, b: Matrix) -> Matrix:
    """(L Lᵀ)⁻¹ b, from the lower factor."""
    x, _ = lapack.dpotrs(L, b, lower=1)
    found: Matrix = x
    return found


def schur(
    Z: Matrix, W: Matrix, heads: Index, tails: Index, scale: Matrix, extra: Matrix
) -> Matrix | None:
    """The lower factor of (B Z Bᵀ) ∘ (B W Bᵀ) + diag, or None if that is not definite.

    B has a row √s_e (eₕ − e_t) for each edge. Time O(m² + m n + m³ / 3), memory 8 m² bytes.
    """
    _check_factor(len(heads))
    array = np.empty((len(heads), len(heads)))

    def rows_of(ends: tuple[int, int]) -> None:
        rows, columns = slice(*ends), slice(0, ends[1])
        block = _products(Z, heads, tails, rows, columns)
        block *= _products(W, heads, tails, rows, columns)
        block *= scale[columns]
        block *= scale[rows, None]
        _put(array, ends, block)

    _in_threads(rows_of, _blocks(len(heads)), 16 * array.size)
    return _factored(array, extra, (0.0,))


def schur_of_rows(C: Matrix, CW: Matrix, extra: Matrix) -> Matrix | None:
    """The lower factor of (C Cᵀ) ∘ (C W Cᵀ) + diag from C and C W, as accurate as the rows of C.

    The smallest of RIDGES that makes the matrix definite is added to its diagonal. Time
    O(m² n + m³ / 3).
    """
    _check_factor(len(C))
    array = np.empty((len(C), len(C)))

    def rows_of(ends: tuple[int, int]) -> None:
        rows, columns = slice(*ends), slice(0, ends[1])
        block = C[rows] @ C[columns].T
        block *= CW[rows] @ C[columns].T
        _put(array, ends, block)

    _in_threads(rows_of, _blocks(len(C)), array.size * C.shape[1])
    return _factored(array, extra, RIDGES)


def product(A: Matrix, B: Matrix) -> Matrix:
    """A B for matrices of many rows."""
    out = np.empty((len(A), B.shape[1]))

    def rows_of(ends: tuple[int, int]) -> None:
        np.matmul(A[slice(*ends)], B, out=out[slice(*ends)])

    _in_threads(rows_of, _blocks(len(A)), A.size * B.shape[1])
    return out


def _check_factor(m: int) -> None:
    """Raise `TimeLimitError` if there is no time to factor a system of m rows."""
    check_cost(_FACTOR_OPERATIONS * float(m) ** 3, f"the factor of a {m} x {m} system")


def _blocks(m: int, size: int = ROWS) -> list[tuple[int, int]]:
    """First and last row of each block of rows."""
    return list(pairwise([*range(0, m, size), m]))


def _put(array: Matrix, ends: tuple[int, int], block: Matrix) -> None:
    """Store rows of a symmetric matrix up to the diagonal, and their transpose above it."""
    rows, columns = slice(*ends), slice(0, ends[1])
    array[rows, columns] = block
    array[columns, rows] = block.T


def _factored(array: Matrix, extra: Matrix, ridges: tuple[float, ...]) -> Matrix | None:
    """Factor the array plus a diagonal in place, with the first ridge that makes it definite.

    The factor overwrites the upper triangle, which is the lower triangle of the transposed array.
    The entries below the diagonal remain for the next attempt.
    """
    everyone = np.arange(len(array))
    array[everyone, everyone] += extra
    diagonal = np.diagonal(array).copy()
    for ridge in ridges:
        array[everyone, everyone] = diagonal * (1 + ridge)
        if _factor_in_place(array.T):
            return array.T
        for first, last in _blocks(len(array)):  # restore the upper triangle
            array[:first, first:last] = array[first:last, :first].T
            block = array[first:last, first:last]
            block[:] = np.tril(block) + np.tril(block, -1).T
    return None


def _factor_in_place(A: Matrix) -> bool:
    """Replace the lower triangle of A by its Cholesky factor; returns whether A was definite.

    The upper triangle is kept. A large matrix is factored panel by panel; the columns to the right
    are updated in threads, in blocks that do not depend on the number of threads. Time O(m³ / 3).
    """
    if len(A) < 4 * _PANEL:
        _, info = lapack.dpotrf(A, lower=1, clean=0, overwrite_a=1)
        return bool(info == 0)
    for first, last in _blocks(len(A), _PANEL):
        corner, info = lapack.dpotrf(A[first:last, first:last], lower=1, clean=0)
        if info != 0:
            return False
        A[first:last, first:last] = corner
        panel = A[last:, first:last]
        if len(panel):
            _update_below(A[last:, last:], panel, corner)
    return True


def _update_below(A: Matrix, panel: Matrix, corner: Matrix) -> None:
    """Solve P Lᵀ = panel in place, with the lower factor L in the corner; subtract P Pᵀ from A."""
    rows, work = _blocks(len(panel)), panel.size * len(corner)
    P = np.empty(panel.shape)

    def solve(ends: tuple[int, int]) -> None:
        part = slice(*ends)
        P[part] = panel[part] = blas.dtrsm(1.0, corner, panel[part], side=1, lower=1, trans_a=1)

    def subtract(ends: tuple[int, int]) -> None:
        first, last = ends
        A[first:last, :first] -= P[first:last] @ P[:first].T
        A[first:last, first:last] -= np.tril(P[first:last] @ P[first:last].T)

    _in_threads(solve, rows, work)
    _in_threads(subtract, rows[::-1], work * len(panel) // len(corner))  # the longest first


def _products(K: Matrix, heads: Index, tails: Index, rows: slice, columns: slice) -> Matrix:
    """(eₕ − e_t)ᵀ K (eₕ' − e_t') for ranges of edges."""
    difference = K[heads[rows]] - K[tails[rows]]
    product = np.take(difference, heads[columns], axis=1)
    product -= np.take(difference, tails[columns], axis=1)
    return product


def eigh(A: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues, ascending, and vectors of a symmetric matrix."""
    values, vectors = linalg.eigh(A, driver="evd", check_finite=False)
    return values, vectors


def eye(n: int, reference: Any) -> Matrix:  # noqa: ARG001 - the device twin needs it
    """The unit matrix."""
    return np.eye(n)


def total_memory(reference: Any) -> float:  # noqa: ARG001 - the device twin needs it
    """Bytes of memory of the machine, or what the limit of this process leaves, if that is less.

    `limits.ASSUMED_MEMORY` where the operating system does not report the memory.
    """
    total = limits.machine_memory() or limits.ASSUMED_MEMORY
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used = pages * resource.getpagesize()
    except (ImportError, OSError):  # other systems have no such limit, or do not report usage
        return total
    return total if limit == resource.RLIM_INFINITY else min(total, limit - used)


def held_memory(reference: Any) -> float:  # noqa: ARG001
    """0: the host does not count the memory of arrays."""
    return 0.0


def begin_peak(reference: Any) -> None:
    """Begin to measure what `peak_bytes` returns: nothing on the host."""


def peak_bytes(reference: Any) -> int | None:  # noqa: ARG001
    """None: the host does not count the memory of arrays."""
    return None
