"""The kernels on torch tensors, on the device that holds them.

Sums over shared indices use atomic additions on CUDA, so that results there agree between runs to
rounding only. Float64 is needed (losses are summed in it), which excludes Apple's MPS device.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.kernels.tiles import SPARE, labels_of, may_hide, unlike_tiles

Index = NDArray[np.intp]

EDGE_BLOCK = 1 << 28  # bytes of gathered rows at a time


def to_host(x: Any) -> NDArray[Any]:
    """Return x as a NumPy array."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)


def like(x: Any, reference: Tensor) -> Tensor:
    """Return host array x with the dtype and device of the reference."""
    return torch.as_tensor(np.asarray(x), dtype=reference.dtype, device=reference.device)


def index(x: Any, reference: Tensor) -> Tensor:
    """Return host integers x as indices on the device of the reference."""
    return torch.as_tensor(np.asarray(x), dtype=torch.int64, device=reference.device)


def double(x: Tensor) -> Tensor:
    """Return x in float64."""
    return x.to(torch.float64)


def single(x: Tensor) -> Tensor:
    """Return x in float32."""
    return x.to(torch.float32)


def where(mask: Tensor) -> Tensor:
    """Positions at which a one-dimensional mask is true."""
    return torch.nonzero(mask).ravel()


def concatenate(parts: list[Tensor]) -> Tensor:
    """Join one-dimensional arrays."""
    return torch.cat(parts)


def unique(values: Tensor) -> Tensor:
    """The distinct values in ascending order."""
    return torch.unique(values, sorted=True)


def repeat(values: Tensor, counts: Tensor) -> Tensor:
    """Repeat each value as often as its count says."""
    return torch.repeat_interleave(values, counts)


def count_up(size: int, reference: Tensor) -> Tensor:
    """0, 1, … size − 1."""
    return torch.arange(size, device=reference.device)


def find_sorted(ordered: Tensor, values: Tensor) -> Tensor:
    """Positions at which the values would stand in an ordered array."""
    return torch.searchsorted(ordered, values)


def cumulative(values: Tensor) -> Tensor:
    """Running sums."""
    return torch.cumsum(values, 0)


def segment_sum(index: Tensor, weights: Tensor, size: int) -> Tensor:
    """Sum of the weights that share an index, for indices 0 … size − 1."""
    out = torch.zeros(size, dtype=torch.float64, device=weights.device)
    return out.index_add_(0, index, weights.to(torch.float64))


def segment_max(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Largest of the values that share an index; −inf where there is none."""
    out = torch.full((size,), -torch.inf, dtype=torch.float64, device=values.device)
    return out.scatter_reduce_(0, index, values.to(torch.float64), "amax")


def nearest_in_class(X: Tensor, starts: Index, k: int) -> tuple[Tensor, Tensor]:
    """Edges from each point to its k nearest others of its class, nearest first.

    A class of m < k + 1 points gives each of its points m − 1 edges. Time O(Σ m² d).
    """
    none = torch.empty(0, dtype=torch.int64, device=X.device)
    heads, tails = [none], [none]
    for first, last in pairwise(starts.tolist()):
        near = min(k, last - first - 1)
        if near == 0:
            continue
        points = X[first:last].double()
        points = points - points.median(0).values
        squares = (points * points).sum(1)
        everyone = torch.arange(last - first, device=X.device)
        for begin in range(0, last - first, _tile(X)):
            rows = everyone[begin : begin + _tile(X)]
            score = points[rows] @ points.T - 0.5 * squares  # ½(‖x‖² − D)
            score[torch.arange(len(rows)), rows] = -torch.inf
            proposed = score.topk(min(near + SPARE, last - first - 1), dim=1)
            nearest, lengths = _exact_nearest(points, rows, proposed.indices, near)
            reported = squares[rows] - 2 * proposed.values[:, -1]
            eps = _matmul_eps(points)
            hidden = may_hide(squares[rows], reported, lengths[:, -1], points.shape[1], eps)
            if near + SPARE < last - first - 1:
                for row in where(hidden).tolist():
                    others = everyone[everyone != rows[row]][None]
                    nearest[row] = _exact_nearest(points, rows[row][None], others, near)[0]
            heads.append((first + rows).repeat_interleave(near))
            tails.append(first + nearest.ravel())
    return torch.cat(heads), torch.cat(tails)


def _exact_nearest(
    points: Tensor, rows: Tensor, candidates: Tensor, near: int
) -> tuple[Tensor, Tensor]:
    """The nearest of the candidates of each row, and their squared distances; ties by number."""
    candidates, count = candidates.sort(dim=1).values, candidates.shape[1]
    lengths = sq_lengths(points, rows.repeat_interleave(count), candidates.ravel())
    lengths, order = lengths.view(-1, count).sort(dim=1, stable=True)
    return candidates.gather(1, order[:, :near]), lengths[:, :near]


def invaders(
    Z: Tensor, reach: Tensor, starts: Index, screen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l.

    As in `nearfar.kernels.on_numpy`: every pair is screened by a matrix product that rounding
    cannot make too small, and those that pass are decided by their exact difference.
    """
    n, r = Z.shape
    S = Z if screen is None else screen
    half = (S * S).sum(1) * (0.5 - (r + 8) * _matmul_eps(S))
    ones = torch.ones_like(half)
    left = torch.column_stack([S, ones, -half])
    right = torch.column_stack([S, -half, ones])
    bar = (-0.5 * reach).to(S.dtype)
    bar = torch.nextafter(bar, torch.full_like(bar, -torch.inf))
    found = [torch.empty(0, dtype=torch.int64, device=Z.device)]  # flat codes i n + l
    for rows, columns in unlike_tiles(starts, _tile(Z)):
        product = left[rows] @ right[columns].T
        i, j = torch.nonzero(~(product <= bar[rows, None]), as_tuple=True)
        found.append((i + rows.start) * n + j + columns.start)
        i, j = torch.nonzero(~(product <= bar[columns]), as_tuple=True)
        found.append((j + columns.start) * n + i + rows.start)
    code = torch.cat(found)
    heads, tails = code // n, code % n
    labels = index(labels_of(starts), Z)
    exact = (labels[heads] != labels[tails]) & (sq_lengths(Z, heads, tails) < reach[heads])
    code = torch.unique(code[exact], sorted=True)
    return code // n, code % n


def _matmul_eps(S: Tensor) -> float:
    """The relative rounding of one product in a matrix product: larger if TF32 is allowed."""
    reduced = S.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return 2.0**-8 if reduced else torch.finfo(S.dtype).eps


def _tile(Z: Tensor) -> int:
    """Rows of a tile: its products, masks and indices fill an eighth of the card's free memory."""
    if Z.device.type != "cuda":
        return 1536
    free, _ = torch.cuda.mem_get_info(Z.device)
    return int(min(16384, max(256, (free / 8 / 24) ** 0.5)))


def _edge_blocks(m: int, row_bytes: int) -> Iterator[slice]:
    step = max(1, EDGE_BLOCK // max(row_bytes, 1))
    for first in range(0, m, step):
        yield slice(first, first + step)


def sq_lengths(Z: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """‖z_h − z_t‖² along each edge. Time O(m r)."""
    out = torch.empty(len(heads), dtype=Z.dtype, device=Z.device)
    for part in _edge_blocks(len(heads), Z.shape[1] * Z.element_size()):
        difference = Z[heads[part]] - Z[tails[part]]
        out[part] = (difference * difference).sum(1)
    return out


def edge_products(Z: Tensor, D: Tensor, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge. Time O(m r)."""
    cross = torch.empty(len(heads), dtype=Z.dtype, device=Z.device)
    square = torch.empty_like(cross)
    for part in _edge_blocks(len(heads), Z.shape[1] * Z.element_size()):
        h, t = heads[part], tails[part]
        change = D[h] - D[t]
        cross[part] = ((Z[h] - Z[t]) * change).sum(1)
        square[part] = (change * change).sum(1)
    return cross, square


def laplacian_matmul(heads: Tensor, tails: Tensor, weights: Tensor, Z: Tensor) -> Tensor:
    """Lap(w) Z, where Lap(w) = Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ. Time O(m r)."""
    used = where(weights != 0)
    heads, tails, weights = heads[used], tails[used], weights[used].to(Z.dtype)
    out = torch.zeros_like(Z)
    for part in _edge_blocks(len(heads), Z.shape[1] * Z.element_size()):
        h, t = heads[part], tails[part]
        flow = weights[part, None] * (Z[h] - Z[t])
        out.index_add_(0, h, flow)
        out.index_add_(0, t, flow, alpha=-1)
    return out


def apply(U: Tensor, L: NDArray[np.float64]) -> Tensor:
    """U Lᵀ in the dtype of U, L on the host."""
    return U @ like(L, U).T


def gram(A: Tensor, B: Tensor) -> NDArray[np.float64]:
    """Aᵀ B on the host, its sums over blocks of rows taken in float64."""
    total = torch.zeros((A.shape[1], B.shape[1]), dtype=torch.float64, device=A.device)
    for first in range(0, len(A), 8192):
        rows = slice(first, first + 8192)
        total += A[rows].T @ B[rows]
    product: NDArray[np.float64] = total.cpu().numpy()
    return product
