"""Kernels on Gram matrices of points in NumPy: lengths and products of edges, factorisations.

All in float64. A Schur matrix holds its entries below the diagonal and its factor above, so that
one array serves both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack
from scipy.sparse import coo_array

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

SCHUR_COPIES = 1  # arrays (m, m) that `schur` holds
ROWS = 256  # rows of a block of products between edges
RIDGES = (0.0, 1e-13, 1e-12, 1e-10, 1e-8)  # relative to the diagonal, tried until it is definite


def gram_lengths(K: Matrix, heads: Index, tails: Index) -> Matrix:
    """K_hh − 2 K_ht + K_tt along each edge. Time O(m)."""
    squares = np.diagonal(K)
    lengths: Matrix = squares[heads] + squares[tails] - 2 * K[heads, tails]
    return lengths


def laplacian(heads: Index, tails: Index, weights: Matrix, n: int) -> Matrix:
    """Lap(w) as a dense matrix (n, n). Time O(n² + m)."""
    off = coo_array((weights, (heads, tails)), shape=(n, n)).toarray()
    out: Matrix = -(off + off.T)
    out[np.arange(n), np.arange(n)] = off.sum(axis=0) + off.sum(axis=1)
    return out


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


def solve_lower(L: Matrix, b: Matrix, transposed: bool = False) -> Matrix:
    """L⁻¹ b, or L⁻ᵀ b."""
    trans = "T" if transposed else "N"
    found: Matrix = linalg.solve_triangular(L, b, lower=True, trans=trans, check_finite=False)
    return found


@dataclass(frozen=True)
class Schur:
    """M = (B Z Bᵀ) ∘ (B W Bᵀ) + diag and its factor; B has a scaled row eₕ − e_t for each edge.

    Where rounding leaves M indefinite its diagonal is raised, in all that follows: what the factor
    cannot tell from zero must not be refined.
    """

    array: Matrix  # entries of M below the diagonal, the factor U of M = UᵀU on it and above
    diagonal: Matrix  # of M

    def solve(self, b: Matrix) -> Matrix:
        """M⁻¹ b by the factor alone."""
        x, _ = lapack.dpotrs(self.array.T, b, lower=1)
        found: Matrix = x
        return found

    def matvec(self, x: Matrix) -> Matrix:
        """M x."""
        product: Matrix = blas.dsymv(1.0, self.array.T, x, lower=0)
        product += (self.diagonal - np.diagonal(self.array)) * x
        return product


def schur(
    Z: Matrix, W: Matrix, heads: Index, tails: Index, scale: Matrix, extra: Matrix
) -> Schur | None:
    """The matrix of `Schur` with rows of B scaled, plus a diagonal; None if it is not definite.

    Time O(m n + m³ / 3), memory 8 m² bytes.
    """
    from nearfar.kernels.on_numpy import _in_threads

    m = len(heads)
    array = np.empty((m, m))

    def rows_of(ends: tuple[int, int]) -> None:
        part = slice(*ends)
        columns = slice(0, ends[1])
        block = _products(Z, heads, tails, part, columns)
        block *= _products(W, heads, tails, part, columns)
        block *= scale[columns]
        block *= scale[part, None]
        array[part, columns] = block
        array[columns, part] = block.T

    cuts = [*range(0, m, ROWS), m]
    _in_threads(rows_of, list(pairwise(cuts)), 16 * m * m)
    everyone = np.arange(m)
    array[everyone, everyone] += extra
    diagonal = np.diagonal(array).copy()
    for ridge in RIDGES:
        array[everyone, everyone] = raised = diagonal * (1 + ridge)
        _, info = lapack.dpotrf(array.T, lower=1, clean=0, overwrite_a=1)
        if info == 0:
            return Schur(array, raised)
        for first, last in pairwise(cuts):  # the factor has overwritten what is above
            array[:first, first:last] = array[first:last, :first].T
            block = array[first:last, first:last]
            block[:] = np.tril(block) + np.tril(block, -1).T
    return None


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
    """Bytes of memory of the machine."""
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
