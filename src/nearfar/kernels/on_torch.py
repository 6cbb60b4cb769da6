"""The kernels on torch tensors, on the device that holds them.

Sums over shared indices use atomic additions on CUDA, so that results there agree between runs to
rounding only. Float64 is needed (losses are summed in it), which excludes Apple's MPS device.
Searches among many points on CUDA are those of `nearfar.kernels.fused`, where Triton can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.kernels import free_memory, numpy_similarities, on_numpy, slabs
from nearfar.kernels.devices import fused_search_fault
from nearfar.kernels.tiles import (
    SPARE,
    PairCount,
    classes_of,
    inexact,
    labels_of,
    may_hide,
    unlike_tiles,
)
from nearfar.limits import check_time

Index = NDArray[np.intp]

EDGE_BLOCK = 1 << 28  # bytes of gathered rows at a time
GRAM_ROWS = 8192  # of a block, over which sums are taken in the type of the points
FUSED_POINTS = 8192  # from which the fused searches are faster
MOST_ROWS = 16384  # of a tile: 2 GB of products in float64
MANY_ON_HOST = 1024  # points from which on_numpy finds the soft neighbours faster on the host


def to_host(x: Any) -> NDArray[Any]:
    """Return x as a NumPy array."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)


def detached(x: Tensor) -> Tensor:
    """Return the values of x as a plain tensor, without its gradient and its subclass."""
    return x.detach().as_subclass(Tensor)


def like(x: Any, reference: Tensor) -> Tensor:
    """Return host array x with the dtype and device of the reference."""
    return torch.as_tensor(np.asarray(x), dtype=reference.dtype, device=reference.device)


def index(x: Any, reference: Tensor) -> Tensor:
    """Return host integers x as indices on the device of the reference."""
    return torch.as_tensor(np.asarray(x), dtype=torch.int64, device=reference.device)


def compact(x: Tensor, size: int) -> Tensor:
    """Return indices below ``size`` as they are kept: on CUDA in 32 bits where these suffice."""
    return x.to(torch.int32) if x.is_cuda and size < 2**31 else x


def double(x: Tensor) -> Tensor:
    """Return x in float64."""
    return x.to(torch.float64)


def single(x: Tensor) -> Tensor:
    """Return x in float32."""
    return x.to(torch.float32)


def sqrt(x: Tensor) -> Tensor:
    """√x, whose derivative at 0 counts as 1: times that of a square, it is 0 and not 0 · ∞."""
    if not x.requires_grad:
        return x.sqrt()
    zero = x == 0
    return torch.where(zero, x, torch.where(zero, 1.0, x).sqrt())


def flatnonzero(mask: Tensor) -> Tensor:
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


def arange(size: int, reference: Tensor) -> Tensor:
    """0, 1, … size − 1."""
    return torch.arange(size, device=reference.device)


def searchsorted(ordered: Tensor, values: Tensor) -> Tensor:
    """Positions at which the values would stand in an ordered array."""
    return torch.searchsorted(ordered, values)


def cumsum(values: Tensor) -> Tensor:
    """Running sums."""
    return torch.cumsum(values, 0)


def segment_sum(index: Tensor, weights: Tensor, size: int) -> Tensor:
    """Sum of the weights that share an index, for indices 0 … size − 1."""
    out = torch.zeros(size, dtype=torch.float64, device=weights.device)
    return out.index_add_(0, index, weights.to(torch.float64))


def segment_max(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Largest of the values that share an index; −inf where there is none."""
    out = torch.full((size,), -torch.inf, dtype=torch.float64, device=values.device)
    return out.scatter_reduce_(0, index.to(torch.int64), values.to(torch.float64), "amax")


def smallest(values: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` smallest values (or of all), ascending by value. Time O(n)."""
    return values.topk(min(count, len(values)), largest=False).indices


def first_equal(X: Tensor) -> Tensor:
    """The number of the first row that equals each row; −0 equals 0.

    Rows are grouped by a hash of their bits, and each is compared with the first of its group. If
    two differ, a sort decides instead.
    """
    factors = np.random.default_rng(0).integers(-(2**63), 2**63, 2 * X.shape[1])
    factors = index(factors[: X.shape[1] * X.element_size() // 4], X)
    blocks = X.split(max(1, EDGE_BLOCK // (16 * X.shape[1])))
    words = ((rows + 0.0).contiguous().view(torch.int32) for rows in blocks)  # −0 + 0 is 0
    keys = torch.cat([(row_words * factors).sum(1) for row_words in words])
    found = _first_of_group(torch.unique(keys, return_inverse=True)[1])
    for rows, first in zip(blocks, found.split(len(blocks[0])), strict=True):
        if not bool((rows == X[first]).all()):
            return _first_of_group(torch.unique(X, dim=0, return_inverse=True)[1])
    return found


def _first_of_group(group: Tensor) -> Tensor:
    """For each row the first row of the same group."""
    rows = torch.arange(len(group), device=group.device)
    return torch.empty_like(rows).scatter_reduce_(0, group, rows, "amin", include_self=False)[group]


def kth_squares(X: Tensor, starts: Index, k: int) -> Tensor:
    """Squared distances to the k-th nearest others of the class (n,), in float64.

    A point of a smaller class has the largest, and one alone has 0. Distances come from
    differences. Time O(Σ m² d).
    """
    out = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    for first, last in pairwise(starts.tolist()):
        near = min(k, last - first - 1)
        points = X[first:last].double()
        for rows in _tables(points, len(points) if near else 0):
            table = torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist")
            # The point itself is the first, at a distance of 0.
            found = table.kthvalue(near + 1, dim=1).values ** 2
            out[first + rows.start : first + rows.stop] = found
    return out


def _fused(points: Tensor) -> ModuleType | None:
    """The module of fused searches, if it is fast for these points and can run on their device."""
    few = len(points) < FUSED_POINTS or points.shape[1] == 0
    if few or not points.is_cuda or points.requires_grad:
        return None
    if fused_search_fault(str(points.device)) is not None:
        return None
    from nearfar.kernels import fused

    return fused


def searches_are_cheap(Z: Tensor) -> bool:
    """Whether a search costs no more than a few steps: where it is fused."""
    return _fused(Z) is not None


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
        fused = _fused(X[first:last])
        found = fused and fused.nearest(X[first:last], X[first:last], near, others=True)
        if found:
            heads.append(torch.arange(first, last, device=X.device).repeat_interleave(near))
            tails.append(first + found[0].ravel())
            continue
        points = X[first:last].double()
        points = points - points.median(0).values
        squares = (points * points).sum(1)
        everyone = torch.arange(last - first, device=X.device)
        for part in _tables(points, len(points)):
            rows = everyone[part]
            score = torch.addmm(-0.5 * squares, points[rows], points.T)  # ½(‖x‖² − D)
            score[torch.arange(len(rows)), rows] = -torch.inf
            proposed = score.topk(min(near + SPARE, last - first - 1), dim=1)
            nearest, lengths = _exact_nearest(points, rows, proposed.indices, near)
            reported = squares[rows] - 2 * proposed.values[:, -1]
            eps = _matmul_eps(points)
            hidden = may_hide(squares[rows], reported, lengths[:, -1], points.shape[1], eps)
            if near + SPARE < last - first - 1:
                for row in flatnonzero(hidden).tolist():
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


def impostor_pairs(
    Z: Tensor, reach: Tensor, starts: Index, screen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l.

    As in `nearfar.kernels.on_numpy`: a matrix product, corrected for rounding, screens every pair,
    and exact differences decide those that pass. Large sets of points on the host are left to that
    module, which compares only blocks that are near each other.
    """
    n = len(Z)
    if n >= slabs.FEWEST_POINTS and Z.device.type == "cpu":
        rounded = None if screen is None else to_host(screen)
        heads, tails = on_numpy.impostor_pairs(to_host(Z), to_host(reach), starts, rounded)
        return index(heads, Z), index(tails, Z)
    fused = _fused(Z)
    if fused:
        found = fused.impostor_pairs(Z, reach, starts, partial(sq_lengths, Z))
        if found is not None:
            return found // n, found % n
    S = Z if screen is None else screen
    half = _lowered_halves(S)
    ones = torch.ones_like(half)
    left = torch.column_stack([S, ones, -half])
    right = torch.column_stack([S, -half, ones])
    bar = (-0.5 * reach).to(S.dtype)
    bar = torch.nextafter(bar, torch.full_like(bar, -torch.inf))
    found = [torch.empty(0, dtype=torch.int64, device=Z.device)]  # flat codes i n + l
    labels, count = index(labels_of(starts), Z), PairCount(Z)

    def decide(heads: Tensor, tails: Tensor) -> None:
        exact = (labels[heads] != labels[tails]) & (sq_lengths(Z, heads, tails) < reach[heads])
        found.append(heads[exact] * n + tails[exact])
        count.add(len(found[-1]))

    for rows, columns in unlike_tiles(starts, _tile(Z)):
        check_time()
        product = left[rows] @ right[columns].T
        i, j = torch.nonzero(~(product <= bar[rows, None]), as_tuple=True)
        decide(i + rows.start, j + columns.start)
        i, j = torch.nonzero(~(product <= bar[columns]), as_tuple=True)
        decide(j + columns.start, i + rows.start)
    code = torch.unique(torch.cat(found), sorted=True)
    return code // n, code % n


def cross_impostor_pairs(
    Q: Tensor,
    reach: Tensor,
    Z: Tensor,
    labels: Tensor,
    others: Tensor,
    screen: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """All (i, l) with ‖qᵢ − z_l‖² < reachᵢ and different labels, by i and then by l."""
    stack = torch.cat([Q, Z])
    if (fused := _fused(Z)) and len(Q):
        code = fused.cross_impostor_pairs(
            Q, reach, Z, labels, others, lambda i, j: sq_lengths(stack, i, len(Q) + j)
        )
        if code is not None:
            return code // len(Z), code % len(Z)
    A, B = (Q, Z) if screen is None else screen
    eps = torch.finfo(B.dtype).eps
    half = _lowered_halves(B)
    bar = _lowered_halves(A) - (0.5 * reach).to(B.dtype)
    bar[bar == -torch.inf] = torch.nan  # a reach beyond the type: all pairs pass
    bar = bar * torch.where(bar < 0, 1 + eps, 1 - eps)
    bar = torch.nextafter(bar, torch.full_like(bar, -torch.inf))
    right = torch.column_stack([B, -half]).T
    left = torch.column_stack([A, torch.ones_like(A[:, :1])])
    none = torch.empty(0, dtype=torch.int64, device=Z.device)
    heads, tails = [none], [none]
    step = max(1, _tile(Z) ** 2 // max(len(Z), 1))
    count = PairCount(Q)
    for first in range(0, len(Q), step):
        check_time()
        rows = slice(first, first + step)
        product = left[rows] @ right
        i, j = torch.nonzero(~(product <= bar[rows, None]), as_tuple=True)
        i = i + first
        unlike = flatnonzero(labels[i] != others[j])
        i, j = i[unlike], j[unlike]
        near = flatnonzero(sq_lengths(stack, i, len(Q) + j) < reach[i])
        heads.append(i[near])
        tails.append(j[near])
        count.add(len(near))
    return torch.cat(heads), torch.cat(tails)


def mutual_impostor_pairs(
    Q: Tensor,
    reach: Tensor,
    Z: Tensor,
    others_reach: Tensor,
    labels: Tensor,
    others: Tensor,
    screen: tuple[Tensor, Tensor] | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """`cross_impostor_pairs` of Q among Z, and of Z among Q."""
    back = None if screen is None else screen[::-1]
    return (
        cross_impostor_pairs(Q, reach, Z, labels, others, screen),
        cross_impostor_pairs(Z, others_reach, Q, others, labels, back),
    )


def _lowered_halves(S: Tensor) -> Tensor:
    """½‖s‖² of each row minus a bound on the rounding of its products; nan on overflow."""
    half = (S * S).sum(1) * (0.5 - (S.shape[1] + 8) * _matmul_eps(S))
    return torch.where(half.isinf(), torch.nan, half)


def _matmul_eps(S: Tensor) -> float:
    """Relative rounding error of the terms of a matrix product: larger if TF32 is allowed."""
    reduced = S.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return 2.0**-8 if reduced else torch.finfo(S.dtype).eps


def _tile(Z: Tensor) -> int:
    """Rows of a tile: its products, masks and indices fill an eighth of the GPU's free memory."""
    if Z.device.type != "cuda":
        return 1536
    free = max(0.0, min(torch.cuda.mem_get_info(Z.device)[0], free_memory(Z)))
    return int(min(MOST_ROWS, max(256, (free / 8 / 24) ** 0.5)))


def _edge_blocks(m: int, row_bytes: int) -> Iterator[slice]:
    step = max(1, EDGE_BLOCK // max(row_bytes, 1))
    for first in range(0, m, step):
        check_time()
        yield slice(first, first + step)


def sq_lengths(Z: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """‖z_h − z_t‖² along each edge. Time O(m r)."""
    if (fused := _fused(Z)) and len(heads):
        lengths: Tensor = fused.sq_lengths(Z, heads, tails)
        return lengths
    out = torch.empty(len(heads), dtype=Z.dtype, device=Z.device)
    for part in _edge_blocks(len(heads), Z.shape[1] * Z.element_size()):
        difference = Z[heads[part]] - Z[tails[part]]
        out[part] = (difference * difference).sum(1)
    return out


def edge_products(Z: Tensor, D: Tensor, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge. Time O(m r)."""
    if (fused := _fused(Z)) and len(heads):
        found: tuple[Tensor, Tensor] = fused.edge_products(Z, D, heads, tails)
        return found
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
    if (fused := _fused(Z)) and len(heads):
        product: Tensor = fused.laplacian_matmul(heads, tails, weights, Z)
        return product
    used = flatnonzero(weights != 0)
    heads, tails, weights = heads[used], tails[used], weights[used].to(Z.dtype)
    out = torch.zeros_like(Z)
    for part in _edge_blocks(len(heads), Z.shape[1] * Z.element_size()):
        h, t = heads[part], tails[part]
        flow = weights[part, None] * (Z[h] - Z[t])
        out.index_add_(0, h, flow)
        out.index_add_(0, t, flow, alpha=-1)
    return out


def apply(U: Tensor, L: NDArray[np.floating] | Tensor) -> Tensor:
    """U Lᵀ in the dtype of U, L on the host or beside U."""
    return U @ torch.as_tensor(L, dtype=U.dtype, device=U.device).T


def image_squares(U: Tensor, L: NDArray[np.floating]) -> Tensor:
    """‖L u‖² for each row u of U, L on the host."""
    images = apply(U, L)
    return (images * images).sum(1)


def apply_centred(X: Tensor, centre: Tensor, L: NDArray[np.floating]) -> Tensor:
    """(X − centre) Lᵀ in float64, L on the host; rows are made float64 a block at a time."""
    out = torch.empty((len(X), len(L)), dtype=torch.float64, device=X.device)
    for rows in _edge_blocks(len(X), 8 * X.shape[1]):
        out[rows] = apply(double(X[rows]) - centre, L)
    return out


def gram(A: Tensor, B: Tensor) -> NDArray[np.float64]:
    """Aᵀ B on the host, its sums over blocks of rows taken in float64."""
    (n, r), c = A.shape, B.shape[1]
    whole = n // GRAM_ROWS * GRAM_ROWS
    total = (A[whole:].T @ B[whole:]).double()
    step = GRAM_ROWS * max(1, EDGE_BLOCK // max(1, 8 * r * c))
    for first in range(0, whole, step):
        rows = slice(first, min(first + step, whole))
        left, right = A[rows].view(-1, GRAM_ROWS, r), B[rows].view(-1, GRAM_ROWS, c)
        total += (left.mT @ right).double().sum(0)
    product: NDArray[np.float64] = total.cpu().numpy()
    return product


def edge_scatter(
    Z: Tensor, heads: Tensor, tails: Tensor, weights: Tensor | None = None
) -> NDArray[np.float64]:
    """Σ w (z_h − z_t)(z_h − z_t)ᵀ over the edges, on the host in float64. Time O(m d²).

    Weights are not negative; None for w = 1.
    """
    total = np.zeros((Z.shape[1], Z.shape[1]))
    for part in _edge_blocks(len(heads), 8 * Z.shape[1]):
        difference = double(Z[heads[part]]) - Z[tails[part]]
        if weights is not None:
            difference *= double(weights[part]).sqrt()[:, None]
        total += gram(difference, difference)
    return total


def group_scatter(Z: Tensor, rows: Tensor, starts: Index) -> NDArray[np.float64]:
    """Σ (z − m)(z − m)ᵀ over groups of rows, m being the mean of the group of z.

    Group g is ``rows[starts[g]:starts[g + 1]]``, which is not empty. The sum is on the host in
    float64. Time O(m d²), memory O(m d).
    """
    members = double(Z[rows])
    sizes = index(np.diff(starts), Z)
    groups = repeat(arange(len(sizes), Z), sizes)
    sums = members.new_zeros((len(sizes), Z.shape[1])).index_add_(0, groups, members)
    members -= (sums / sizes[:, None])[groups]
    return gram(members, members)


def nearest(Q: Tensor, Z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Rows (m, k) of Z nearest to each row of Q, nearest first, and their squared distances.

    Ties are ordered by row number; k is at most n. Distances are computed in float64; the order of
    two that differ only by rounding depends on the order of summation.
    """
    near = torch.empty((len(Q), k), dtype=torch.int64, device=Z.device)
    lengths = torch.empty((len(Q), k), dtype=torch.float64, device=Z.device)
    if k == 0:
        return near, lengths
    fused = _fused(Z)
    found = fused and fused.nearest(Q, Z, k)
    if found:
        near, lengths = found
        return near, lengths
    n, c = len(Z), (Z.shape[1] + 8) * torch.finfo(torch.float64).eps
    stack = torch.cat([Z, Q]).double()
    centred = stack - stack[:n].median(0).values
    squares = (centred * centred).sum(1)
    half = (0.5 - c) * squares
    for rows in _tables(Z, len(Q)):
        queries = slice(n + rows.start, n + rows.stop)
        score = centred[queries] @ centred[:n].T - half[queries, None] - half[:n]  # −½D, raised
        # Of a point with score s: D <= −2s + 4c(‖q‖² + ‖z‖²), and ‖z‖² <= 2‖q‖² + 2D.
        kth = score.topk(k, dim=1).values[:, -1]
        bar = (kth - 6 * c * squares[queries]) / (1 - 8 * c)
        bar = torch.nextafter(bar, torch.full_like(bar, -torch.inf))
        heads, tails = torch.nonzero(~(score < bar[:, None]), as_tuple=True)
        squared = sq_lengths(stack, n + rows.start + heads, tails)
        order = squared.argsort(stable=True)
        order = order[heads[order].argsort(stable=True)]  # by query, distance and row
        first = torch.searchsorted(heads, torch.arange(len(score), device=Z.device))
        chosen = order[first[:, None] + torch.arange(k, device=Z.device)]
        near[rows], lengths[rows] = tails[chosen], squared[chosen]
    return near, lengths


def _tables(Z: Tensor, m: int) -> Iterator[slice]:
    """Consecutive slices of m queries, such that a table of distances to all points fits."""
    step = max(1, _tile(Z) ** 2 // max(len(Z), 1))
    for first in range(0, m, step):
        check_time()
        yield slice(first, min(first + step, m))


def nearest_of_classes(Q: Tensor, X: Tensor, starts: Index, k: int) -> Tensor:
    """Rows (m, C, k) of each class of X nearest to each row of Q, −1 where a class has fewer."""
    shape = (len(Q), len(starts) - 1, k)
    near = torch.full(shape, -1, dtype=torch.int64, device=X.device)
    for c, (first, last) in enumerate(pairwise(starts.tolist())):
        count = min(k, last - first)
        near[:, c, :count] = first + nearest(Q, X[first:last], count)[0]
    return near


def hinge_sums(
    Q: Tensor, Z: Tensor, starts: Index, reach: Tensor, radius: Tensor
) -> tuple[Tensor, Tensor]:
    """As in `nearfar.kernels.reference`."""
    (m, n_classes, k), n = reach.shape, len(Z)
    outside = torch.zeros((m, n_classes), dtype=torch.float64, device=Z.device)
    inside = torch.zeros_like(outside)
    if n == 0:
        return outside, inside
    stack = torch.cat([Z, Q]).double()
    centred = (stack - stack[:n].median(0).values).to(Z.dtype)
    A, B = centred[n:], centred[:n]
    first, second = (A * A).sum(1), (B * B).sum(1)
    values = torch.cat([reach.ravel(), radius.ravel()])
    least = float(torch.where(values.isfinite(), values, torch.inf).amin()) if len(values) else 0.0
    bars = reach.clamp(min=0).to(Z.dtype)
    radius = torch.column_stack([radius.double(), torch.zeros_like(second).double()])
    widest = radius.max(1).values.to(Z.dtype)
    widest = torch.nextafter(widest, torch.full_like(widest, torch.inf))
    labels = index(labels_of(starts), Z)
    for rows in _tables(Z, m):
        table = first[rows, None] + second - 2 * (A[rows] @ B.T)
        doubt = inexact(table, first[rows], second, least, Z.shape[1], _matmul_eps(Z))
        if doubt is not None:
            heads, tails = torch.nonzero(doubt, as_tuple=True)
            table[heads, tails] = sq_lengths(stack, n + rows.start + heads, tails).to(Z.dtype)
        table = table.clamp(min=0)
        near, place = torch.nonzero(table < widest, as_tuple=True)
        hinges = (radius[place] - table[near, place, None]).clamp(min=0).sum(1)
        code = near * n_classes + labels[place]
        inside[rows] = segment_sum(code, hinges, len(table) * n_classes).view(-1, n_classes)
        if k:
            own = [
                _hinges(bars[rows, c], table[:, begin:end])
                for c, (begin, end) in enumerate(pairwise(starts.tolist()))
            ]
            ordered = table.sort(dim=1).values
            whole = _sorted_hinges(bars[rows].reshape(len(table), -1), ordered)
            whole = whole.view(len(table), n_classes, k).sum(2)
            outside[rows] = (whole - torch.column_stack(own)).clamp(min=0)
    return outside, inside


def _hinges(bars: Tensor, table: Tensor) -> Tensor:
    """Σⱼ Σ_l [bars_tj − table_tl]₊ for each t."""
    total = torch.zeros(len(table), dtype=torch.float64, device=table.device)
    for bar in bars.T:
        total += (bar[:, None] - table).clamp(min=0).sum(1, dtype=torch.float64)
    return total


def _sorted_hinges(bars: Tensor, table: Tensor) -> Tensor:
    """Σ_l [bars_tj − table_tl]₊ for each t and j; the rows of the table are sorted."""
    running = table.double().cumsum(1)
    running = torch.column_stack([torch.zeros_like(running[:, 0]), running])
    below = torch.searchsorted(table, bars.contiguous())
    return below * bars.double() - running.gather(1, below)


def similarities(
    X: Tensor, Y: Tensor, kernel: str, gamma: float = 1.0, degree: int = 3, coef0: float = 1.0
) -> Tensor:
    """k(x, y) for each row x of X and y of Y, (m, n). Time O(m n d)."""
    if kernel == "laplacian":
        return torch.exp(-gamma * torch.cdist(X, Y, p=1))
    if kernel == "cosine":
        X, Y = torch.nn.functional.normalize(X), torch.nn.functional.normalize(Y)
    product = X @ Y.T
    if kernel == "rbf":
        squares = (X * X).sum(1)[:, None] + (Y * Y).sum(1) - 2 * product
        return torch.exp(-gamma * squares.clip(0))
    if kernel == "poly":
        return (gamma * product + coef0) ** degree
    return torch.tanh(gamma * product + coef0) if kernel == "sigmoid" else product


def softmax_neighbors(
    Z: Tensor,
    Y: Tensor,
    starts: Index,
    own: bool = False,
    both: bool = False,
    masses: NDArray[np.float64] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """As in `nearfar.kernels.reference`; on the host `on_numpy` computes it for many points."""
    if Z.device.type == "cpu" and len(Z) >= MANY_ON_HOST:
        logs, shares, degrees, forward, backward = (
            None if part is None else torch.from_numpy(part)
            for part in on_numpy.softmax_neighbors(
                to_host(Z), to_host(Y), starts, own, both, masses
            )
        )
        return logs, shares, degrees, forward, backward
    if _fused(Z):
        from nearfar.kernels import fused_softmax

        sums = fused_softmax.softmax_neighbors(Z, Y, starts, own, both, masses)
        if sums is not None:
            return sums
    n, sizes = len(Z), np.diff(starts)
    squares, one = (Z * Z).sum(1)[:, None], torch.ones_like(Z[:, :1])
    heights = squares if masses is None else squares - like(np.log(masses), Z)[:, None]
    left, right = torch.hstack([2 * Z, -one, -squares]), torch.hstack([Z, heights, one]).T
    counted = np.repeat(sizes > 1, sizes) * (1.0 if masses is None else masses)
    weights = torch.as_tensor(counted, device=Z.device)
    logs, shares = torch.empty_like(weights), torch.empty_like(weights)
    degrees = torch.zeros_like(weights)
    forward = torch.empty_like(Y)
    backward = torch.zeros_like(Y) if both else None
    everyone = torch.arange(n, device=Z.device)
    for rows in _tables(Z, n):
        W = left[rows] @ right
        itself = everyone[: len(W)], everyone[rows]
        W[itself] = -torch.inf
        top = W.amax(1)
        if float(top.min()) < numpy_similarities.FAR:
            W -= top[:, None]
        else:
            top.zero_()
        total = W.exp_().sum(1).double()
        logs[rows] = top.double() + total.log()
        scale = weights[rows] / total
        for members, (first, last) in classes_of(rows, starts):
            share = W[members, first:last].sum(1).double() / total[members]
            shares[rows][members] = share
            if own:
                outside = (-share * scale[members]).to(W.dtype)[:, None]
                inside = ((1 - share) * scale[members]).to(W.dtype)[:, None]
                W[members, :first] *= outside
                W[members, first:last] *= inside
                W[members, last:] *= outside
        factors = torch.ones_like(top) if own else scale.to(W.dtype)
        forward[rows] = (W @ Y) * factors[:, None]
        degrees += factors @ W
        if not own:
            degrees[rows] += weights[rows]
        if backward is not None:
            backward.addmm_(W.T, factors[:, None] * Y[rows])
    return logs, shares, degrees, forward, backward


def kernel_regression(
    Z: Tensor, U: Tensor, y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """As in `nearfar.kernels.reference`; on the host `on_numpy` computes it for many points."""
    if Z.device.type == "cpu" and len(Z) >= MANY_ON_HOST:
        return on_numpy.kernel_regression(to_host(Z), to_host(U), y)
    n, s = U.shape
    squares, everyone = (Z * Z).sum(1), torch.arange(n, device=Z.device)
    targets = torch.as_tensor(y, device=Z.device)
    column = targets[:, None].to(Z.dtype)
    moments = torch.hstack([U, column * U, column])
    estimates = torch.empty_like(targets)
    backward = torch.zeros((2, n), dtype=torch.float64, device=Z.device)
    across = torch.zeros((s, s), dtype=torch.float64, device=Z.device)
    for rows in _tables(Z, n):
        W = torch.addmm(-squares, Z[rows], Z.T, alpha=2)
        W[everyone[: len(W)], everyone[rows]] = -torch.inf
        W = torch.softmax(W, dim=1)
        found = (W @ moments).double()
        estimates[rows] = found[:, 2 * s]
        b = 2 * (estimates[rows] - targets[rows])
        a = b * estimates[rows]
        inside = a[:, None] * found[:, :s] - b[:, None] * found[:, s : 2 * s]
        across += U[rows].T.double() @ inside
        backward += (torch.stack([a, b]).to(W.dtype) @ W).double()
    columns = (backward[0] - targets * backward[1])[:, None]
    scatter = U.T.double() @ (columns * U.double()) - across - across.T
    return to_host(estimates), to_host(scatter)


def local_laplacian(Z: Tensor, scales: Tensor, starts: Index) -> Tensor:
    """Σⱼ aᵢⱼ (zᵢ − zⱼ) over the class of i (n, r), with aᵢⱼ = exp(−‖zᵢ − zⱼ‖² / (sᵢ sⱼ)).

    As in `nearfar.kernels.on_numpy`.
    """
    out, inverse = torch.empty_like(Z), (1 / scales).to(Z.dtype)
    for first, last in pairwise(starts.tolist()):
        all_of = Z[first:last] - Z[first:last].mean(0)
        squares, inverses = (all_of * all_of).sum(1), inverse[first:last]
        for rows in _tables(all_of, last - first):
            one = all_of[rows]
            table = torch.addmm(-squares, one, all_of.T, alpha=2) - squares[rows, None]
            table = (table.clamp_(max=0) * inverses).mul_(inverses[rows, None]).exp_()
            out[first + rows.start : first + rows.stop] = table.sum(1)[:, None] * one
            out[first + rows.start : first + rows.stop] -= table @ all_of
    return out


def neighbor_laplacian(Z: Tensor, starts: Index, k: int, least: float) -> Tensor:
    """`local_laplacian` with √`kth_squares`, at least ``least`` of the largest, as scales."""
    scales = kth_squares(Z, starts, k).sqrt()
    lowest = least * max(float(scales.max()), least)
    return local_laplacian(Z, scales.clamp(min=lowest).to(Z.dtype), starts)
