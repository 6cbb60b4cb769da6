"""Kernels on Gram matrices of points in torch, on the device that holds them, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.kernels import gram_numpy

SCHUR_COPIES = 2  # arrays (m, m) that `schur` holds
ROWS = 4096  # rows of a block of products between edges
RIDGES = (0.0, 1e-13, 1e-12, 1e-10, 1e-8)  # relative to the diagonal, tried until it is definite


def gram_lengths(K: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """K_hh − 2 K_ht + K_tt along each edge. Time O(m)."""
    squares = K.diagonal()
    return squares[heads] + squares[tails] - 2 * K[heads, tails]


def laplacian(heads: Tensor, tails: Tensor, weights: Tensor, n: int) -> Tensor:
    """Lap(w) as a dense matrix (n, n). Time O(n² + m)."""
    off = torch.zeros((n, n), dtype=torch.float64, device=weights.device)
    off.index_put_((heads, tails), weights, accumulate=True)
    out = -(off + off.T)
    out.diagonal().copy_(off.sum(0) + off.sum(1))
    return out


def cholesky(A: Tensor) -> Tensor | None:
    """The lower factor of a positive definite matrix, or None if it is not."""
    factor, info = torch.linalg.cholesky_ex(A)
    return factor if int(info) == 0 else None


def cholesky_inverse(L: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹."""
    return torch.cholesky_inverse(L)


def solve_lower(L: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """L⁻¹ b, or L⁻ᵀ b."""
    if transposed:
        return torch.linalg.solve_triangular(L.T, b[:, None], upper=True)[:, 0]
    return torch.linalg.solve_triangular(L, b[:, None], upper=False)[:, 0]


@dataclass(frozen=True)
class Schur:
    """M = (B Z Bᵀ) ∘ (B W Bᵀ) + diag and its factor; B has a scaled row eₕ − e_t for each edge.

    Where rounding leaves M indefinite its diagonal is raised, in all that follows.
    """

    array: Tensor
    factor: Tensor

    def solve(self, b: Tensor) -> Tensor:
        """M⁻¹ b by the factor alone."""
        return torch.cholesky_solve(b[:, None], self.factor)[:, 0]

    def matvec(self, x: Tensor) -> Tensor:
        """M x."""
        return self.array @ x


def schur(
    Z: Tensor, W: Tensor, heads: Tensor, tails: Tensor, scale: Tensor, extra: Tensor
) -> Schur | None:
    """The matrix of `Schur` with rows of B scaled, plus a diagonal; None if it is not definite.

    Time O(m n + m³ / 3), memory 16 m² bytes.
    """
    m = len(heads)
    array = torch.empty((m, m), dtype=torch.float64, device=Z.device)
    for first in range(0, m, ROWS):
        rows = slice(first, first + ROWS)
        block = _products(Z, heads, tails, rows)
        block *= _products(W, heads, tails, rows)
        block *= scale
        block *= scale[rows, None]
        array[rows] = block
    array.diagonal().add_(extra)
    diagonal = array.diagonal().clone()
    for ridge in RIDGES:
        array.diagonal().copy_(diagonal * (1 + ridge))
        factor, info = torch.linalg.cholesky_ex(array)
        if int(info) == 0:
            return Schur(array, factor)
    return None


def _products(K: Tensor, heads: Tensor, tails: Tensor, rows: slice) -> Tensor:
    """(eₕ − e_t)ᵀ K (eₕ' − e_t') for a range of edges and all edges."""
    difference = K[heads[rows]] - K[tails[rows]]
    return difference[:, heads] - difference[:, tails]


def eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and vectors of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(A)
    return values, vectors


def eye(n: int, reference: Tensor) -> Tensor:
    """The unit matrix."""
    return torch.eye(n, dtype=torch.float64, device=reference.device)


def total_memory(reference: Tensor) -> float:
    """Bytes of memory of the device."""
    if reference.device.type == "cuda":
        return float(torch.cuda.mem_get_info(reference.device)[0])
    return gram_numpy.total_memory(None)
