"""Kernels on Gram matrices of points in torch, on the device that holds them, in float64."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.kernels import gram_numpy
from nearfar.kernels.gram_numpy import RIDGES

SCHUR_COPIES = 2  # arrays (m, m) that `schur` holds
SINGLE_ROWS = sys.maxsize  # of a Schur matrix: never, as a GPU for float64 is as fast with that
EXACT_NODES = 90  # up to which `least_relative_eigenvalue` is faster than Lanczos' method
ROWS = 4096  # rows of a block of products between edges


def gram_lengths(K: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """K_hh − 2 K_ht + K_tt along each edge. Time O(m)."""
    squares = K.diagonal()
    return squares[heads] + squares[tails] - 2 * K[heads, tails]


def product_lengths(A: Tensor, B: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """`gram_lengths` of ½(AB + (AB)ᵀ), for a symmetric A. Time O(n³)."""
    product = A @ B
    squares = product.diagonal()
    return squares[heads] + squares[tails] - product[heads, tails] - product[tails, heads]


def laplacian(heads: Tensor, tails: Tensor, weights: Tensor, n: int) -> Tensor:
    """Lap(w) as a dense matrix (n, n). Time O(n² + m)."""
    off = torch.zeros((n, n), dtype=torch.float64, device=weights.device)
    off.index_put_((heads, tails), weights, accumulate=True)
    out = -(off + off.T)
    out.diagonal().copy_(off.sum(0) + off.sum(1))
    return out


def sparse_laplacian(heads: Tensor, tails: Tensor, weights: Tensor, n: int) -> Tensor:
    """Lap(w) in the form that multiplies fastest, here dense."""
    return laplacian(heads, tails, weights, n)


def inner(A: Tensor, B: Tensor) -> float:
    """The inner product of two matrices."""
    return float((A * B).sum())


def edge_rows(F: Tensor, heads: Tensor, tails: Tensor, scale: Tensor) -> Tensor:
    """s_e (F_h − F_t) for each edge, (m, n)."""
    rows = F[heads]
    rows -= F[tails]
    rows *= scale[:, None]
    return rows


def cholesky(A: Tensor) -> Tensor | None:
    """The lower factor of a positive definite matrix, or None if it is not."""
    factor, info = torch.linalg.cholesky_ex(A)
    return factor if int(info) == 0 else None


def cholesky_inverse(L: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹."""
    return torch.cholesky_inverse(L)


def lower_solver(L: Tensor) -> Callable[[Tensor, bool], Tensor]:
    """A function of b and whether to transpose: L⁻¹ b or L⁻ᵀ b, for many b.

    Uses the inverse: on a GPU a product is much faster than solving a triangular system.
    """
    unit = torch.eye(len(L), dtype=L.dtype, device=L.device)
    inverse = torch.linalg.solve_triangular(L, unit, upper=False)
    return lambda b, transposed: (inverse.T if transposed else inverse) @ b


def least_relative_eigenvalue(L: Tensor) -> Callable[[Tensor], float]:
    """A function of a symmetric A: the least eigenvalue of L⁻¹ A L⁻ᵀ; all rows, in O(n³) time."""

    def least(A: Tensor) -> float:
        half = torch.linalg.solve_triangular(L, A, upper=False)
        whole = torch.linalg.solve_triangular(L, half.mT, upper=False)
        return float(torch.linalg.eigvalsh(whole)[0])

    return least


def solve_factored(L: Tensor | SingleFactor, b: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹ b, from the lower factor; in float32 if the factor is."""
    if isinstance(L, SingleFactor):
        size = float(abs(b).max()) or 1.0  # so that nothing overflows
        right = (b * L.scale / size).float()
        return size * L.scale * torch.cholesky_solve(right[:, None], L.lower)[:, 0]
    return torch.cholesky_solve(b[:, None], L)[:, 0]


def product(A: Tensor, B: Tensor) -> Tensor:
    """A B for matrices of many rows."""
    return A @ B


class SingleFactor(NamedTuple):
    """A lower factor in float32, of a matrix whose rows and columns were scaled."""

    lower: Tensor
    scale: Tensor  # (m,)


def schur(
    Z: Tensor,
    W: Tensor,
    heads: Tensor,
    tails: Tensor,
    scale: Tensor,
    extra: Tensor,
    single: bool = False,
) -> Tensor | SingleFactor | None:
    """The lower factor of (B Z Bᵀ) ∘ (B W Bᵀ) + diag, or None if that is not definite.

    B has a row √s_e (eₕ − e_t) for each edge. Time O(m² + m n + m³ / 3), memory 16 m² bytes. With
    ``single`` the factor is in float32; entries are computed in float64, and scaled so that the
    diagonal is 1.
    """
    m = len(heads)
    array = torch.empty((m, m), dtype=torch.float32 if single else torch.float64, device=Z.device)
    if single:
        squares = gram_lengths(Z, heads, tails) * gram_lengths(W, heads, tails) * scale**2 + extra
        if not float(squares.min()) > 0:
            return None
        units = squares**-0.5
        scale, extra = scale * units, extra * units**2
    for first in range(0, m, ROWS):
        rows = slice(first, first + ROWS)
        block = _products(Z, heads, tails, rows)
        block *= _products(W, heads, tails, rows)
        block *= scale
        block *= scale[rows, None]
        array[rows] = block
    lower = _factored(array, extra, (0.0,))
    return SingleFactor(lower, units) if single and lower is not None else lower


def direction(target: float, inverse: Tensor, K: Tensor, product: Tensor) -> Tensor:
    """τ S⁻¹ − K − ½(P + Pᵀ)."""
    return target * inverse - K - 0.5 * (product + product.T)


def both(first: Callable[[], float], second: Callable[[], float], n: int) -> list[float]:  # noqa: ARG001
    """The results of two functions."""
    return [first(), second()]


def schur_of_rows(C: Tensor, CW: Tensor, extra: Tensor) -> Tensor | None:
    """The lower factor of (C Cᵀ) ∘ (C W Cᵀ) + diag from C and C W, as accurate as the rows of C.

    The smallest of RIDGES that makes the matrix definite is added to its diagonal. Time
    O(m² n + m³ / 3).
    """
    array = C @ C.T
    for first in range(0, len(C), ROWS):
        rows = slice(first, first + ROWS)
        array[rows] *= CW[rows] @ C.T
    return _factored(array, extra, RIDGES)


def _factored(array: Tensor, extra: Tensor, ridges: tuple[float, ...]) -> Tensor | None:
    """Factor the array plus a diagonal, with the first ridge that makes it definite."""
    array.diagonal().add_(extra)
    diagonal = array.diagonal().clone()
    for ridge in ridges:
        array.diagonal().copy_(diagonal * (1 + ridge))
        factor, info = torch.linalg.cholesky_ex(array)
        if int(info) == 0:
            return factor
        del factor  # as large as the array
    return None


def _products(K: Tensor, heads: Tensor, tails: Tensor, rows: slice) -> Tensor:
    """(eₕ − e_t)ᵀ K (eₕ' − e_t') for a range of edges and all edges."""
    difference = K[heads[rows]] - K[tails[rows]]
    return difference[:, heads] - difference[:, tails]


def eigenvalues(A: Tensor) -> Tensor:
    """Those of a symmetric matrix, ascending."""
    values: Tensor = torch.linalg.eigvalsh(A)
    return values


def eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and vectors of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(A)
    return values, vectors


def eye(n: int, reference: Tensor) -> Tensor:
    """The unit matrix."""
    return torch.eye(n, dtype=torch.float64, device=reference.device)


def total_memory(reference: Tensor) -> float:
    """Bytes of memory that are free on the device, with those that torch holds and does not use."""
    if reference.device.type == "cuda":
        device = reference.device
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + held)
    return gram_numpy.total_memory(None)


def held_memory(reference: Tensor) -> float:
    """Bytes that all tensors of this process have on the device; 0 on the host."""
    return float(torch.cuda.memory_allocated(reference.device)) if reference.is_cuda else 0.0


def begin_peak(reference: Tensor) -> None:
    """Begin to measure what `peak_bytes` returns."""
    if reference.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(reference.device)


def peak_bytes(reference: Tensor) -> int | None:
    """The most memory that tensors had on the device; None on the host, which does not count it."""
    if reference.device.type != "cuda":
        return None
    return int(torch.cuda.max_memory_allocated(reference.device))
