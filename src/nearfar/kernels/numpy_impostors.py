"""Kernels of `on_numpy` that find impostors: points of other classes within reach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.numpy_edges import sq_lengths
from nearfar.kernels.parallel import in_threads
from nearfar.kernels.slabs import (
    leading,
    lowered_halves,
    nearer,
    pruned_impostor_pairs,
    pruned_mutual_pairs,
)
from nearfar.kernels.tiles import PairCount, cross_tiles, labels_of, unlike_tiles

Floats = NDArray[np.floating]
Index = NDArray[np.intp]

TILE = 1536  # rows of a tile of the all-pairs search: 9 MB of float32 products, a share of the L3
SMALL_TILE = 128  # the same if there are few points
LEADING_ROWS = 4096  # points from which a screen of fewer directions pays


def impostor_pairs(
    Z: Floats, reach: Floats, starts: Index, screen: Floats | None = None
) -> tuple[Index, Index]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l.

    If bounds between blocks of near points exclude most pairs (see `nearfar.kernels.slabs`), only
    the remaining pairs are compared; otherwise all are, in time O(n² r / 2). Memory is O(TILE²), or
    that of the blocks, plus the answer. ``screen`` may be Z rounded to a cheaper type, which saves
    time and does not change the answer.
    """
    n = len(Z)
    code = pruned_impostor_pairs(Z, reach, starts, in_threads)
    if code is None:
        code = _screened_impostor_pairs(
            Z, reach, starts, _screen(Z, reach) if screen is None else screen
        )
    code.sort()
    heads, tails = np.divmod(code, max(n, 1))
    return heads, tails


def _screened_impostor_pairs(Z: Floats, reach: Floats, starts: Index, S: Floats) -> Index:
    """The impostor pairs as codes i n + l in any order, found among all pairs.

    Screens every pair once by −½‖zᵢ − z_l‖² = zᵢ·z_l − ½‖zᵢ‖² − ½‖z_l‖², computed by a matrix
    product of the rounded points S and corrected by a bound on its rounding error. The few pairs
    that pass are decided by exact differences. Many points in float32 are screened in the
    directions in which they vary most, as in `nearfar.kernels.slabs`.
    """
    n = len(Z)
    # |computed − true| <= (r + 8) eps (‖zᵢ‖² + ‖z_l‖²): shrink the norms by that much.
    half = _lowered_halves(S)
    points = leading(Z, reach) if n >= LEADING_ROWS and S.dtype == np.float32 else None
    if points is not None:
        S, half = points, lowered_halves(points, Z.shape[1])
    ones = np.ones(n, S.dtype)
    left = np.column_stack([S, ones, -half])
    right = np.column_stack([S, -half, ones]).T
    with np.errstate(over="ignore"):
        bar = np.nextafter((-0.5 * reach).astype(S.dtype), -np.inf, dtype=S.dtype)
    labels, count = labels_of(starts), PairCount(Z)

    def codes(tile: tuple[slice, slice]) -> Index:
        rows, columns = tile
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right[:, columns]
        far = product <= bar[rows, None]
        far &= product <= bar[columns]
        place = np.flatnonzero(np.logical_not(far, out=far))
        i, j = np.divmod(place, far.shape[1])
        i, j, score = i + rows.start, j + columns.start, product.ravel()[place]
        unlike = labels[i] != labels[j]
        one = unlike & ~(score <= bar[i])
        heads, tails = i[one], j[one]
        if rows != columns:  # a tile on the diagonal holds each pair both ways
            other = unlike & ~(score <= bar[j])
            heads, tails = np.concatenate([heads, j[other]]), np.concatenate([tails, i[other]])
        near = nearer(Z, reach, heads, tails)
        code: Index = heads[near] * n + tails[near]
        count.add(len(code))
        return code

    tiles = list(unlike_tiles(starts, min(TILE, max(SMALL_TILE, n // 8)), TILE))
    found = in_threads(codes, tiles, n * n * S.itemsize)
    return np.concatenate([np.empty(0, np.intp), *found])


def _screen(Z: Floats, reach: Floats) -> Floats:
    """Z in float32 if the rounding error is small compared with the reach, else Z."""
    if Z.dtype == np.float32 or len(Z) == 0:
        return Z
    error = 2 * (Z.shape[1] + 8) * np.finfo(np.float32).eps * np.einsum("ij,ij->i", Z, Z).max()
    return (
        Z.astype(np.float32)
        if error < 0.02 * reach.min(where=np.isfinite(reach), initial=np.inf)
        else Z
    )


def cross_impostor_pairs(
    Q: Floats,
    reach: Floats,
    Z: Floats,
    labels: Index,
    others: Index,
    screen: tuple[Floats, Floats] | None = None,
) -> tuple[Index, Index]:
    """All (i, l) with ‖qᵢ − z_l‖² < reachᵢ and different labels, by i and then by l.

    As `impostor_pairs`, for queries that are not among the points: a matrix product screens the
    pairs, exact differences decide, and ``screen`` may be both arrays rounded to a cheaper type.
    Time O(m n r).
    """
    A, B = (Q, Z) if screen is None else screen
    r, width, eps = Q.shape[1], max(len(Z), 1), np.finfo(B.dtype).eps
    half, bar = _lowered_halves(B), _lowered_halves(A)
    with np.errstate(over="ignore"):
        bar -= (0.5 * reach).astype(B.dtype)
    bar[bar == -np.inf] = np.nan  # a reach beyond the type: all pairs pass
    bar = np.nextafter(bar * np.where(bar < 0, 1 + eps, 1 - eps), -np.inf, dtype=B.dtype)
    right = np.column_stack([B, -half]).T
    left = np.column_stack([A, np.ones(len(A), A.dtype)])
    stack = np.concatenate([Q, Z])

    def codes(rows: slice) -> Index:
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right
        heads, tails = np.divmod(np.flatnonzero(~(product <= bar[rows, None])), width)
        heads += rows.start
        unlike = labels[heads] != others[tails]
        heads, tails = heads[unlike], tails[unlike]
        near = sq_lengths(stack, heads, len(Q) + tails) < reach[heads]
        code: Index = heads[near] * width + tails[near]
        return code

    step = max(16, TILE * TILE // width)
    parts = [slice(first, min(first + step, len(Q))) for first in range(0, len(Q), step)]
    found = in_threads(codes, parts, len(Q) * width * r * B.itemsize)
    heads, tails = np.divmod(np.concatenate([*found, np.empty(0, np.intp)]), width)
    return heads, tails


def mutual_impostor_pairs(
    Q: Floats,
    reach: Floats,
    Z: Floats,
    others_reach: Floats,
    labels: Index,
    others: Index,
    screen: tuple[Floats, Floats] | None = None,
) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
    """`cross_impostor_pairs` of Q among Z, and of Z among Q.

    Where labels ascend, bounds between blocks may exclude most pairs, as in `impostor_pairs`.
    Otherwise one matrix product screens all pairs. Many points in float32 are screened in the
    directions in which they vary most.
    """
    n, width = max(len(Q), 1), max(len(Z), 1)
    stack, reaches = np.concatenate([Q, Z]), np.concatenate([reach, others_reach])
    both = np.concatenate([labels, others])
    code = pruned_mutual_pairs(stack, reaches, both, len(Q), in_threads)
    if code is None:
        A, B = (Q, Z) if screen is None else screen
        forth, back = _screened_mutual_pairs(stack, reaches, both, A, B)
    else:
        heads, tails = np.divmod(code, len(stack))
        ahead = heads < len(Q)
        forth = heads[ahead] * width + tails[ahead] - len(Q)
        back = (heads[~ahead] - len(Q)) * n + tails[~ahead]
    forth.sort()
    back.sort()
    return np.divmod(forth, width), np.divmod(back, n)


def _screened_mutual_pairs(
    stack: Floats, reaches: Floats, both: Index, A: Floats, B: Floats
) -> tuple[Index, Index]:
    """Codes of the pairs from Q to Z, which follow each other in the stack, and from Z to Q.

    A and B are Q and Z, or these rounded to a cheaper type.
    """
    n, r, width = len(A), stack.shape[1], max(len(B), 1)
    labels, others = both[:n], both[n:]
    reach, others_reach = reaches[:n], reaches[n:]
    halves = _lowered_halves(A), _lowered_halves(B)
    if len(stack) >= LEADING_ROWS and B.dtype == np.float32:
        points = leading(stack, reaches)
        if points is not None:
            lowered = lowered_halves(points, r)
            A, B = points[:n], points[n:]
            halves = lowered[:n], lowered[n:]
    left = np.column_stack([A, np.ones(len(A), A.dtype), -halves[0]])
    right = np.column_stack([B, -halves[1], np.ones(len(B), B.dtype)]).T
    with np.errstate(over="ignore"):
        bar, others_bar = (
            np.nextafter((-0.5 * values).astype(B.dtype), -np.inf, dtype=B.dtype)
            for values in (reach, others_reach)
        )

    def codes(tile: tuple[slice, slice]) -> tuple[Index, Index]:
        rows, columns = tile
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right[:, columns]
        far = product <= bar[rows, None]
        far &= product <= others_bar[columns]
        i, j = np.divmod(np.flatnonzero(np.logical_not(far, out=far)), far.shape[1])
        i, j = i + rows.start, j + columns.start
        unlike = labels[i] != others[j]
        i, j = i[unlike], j[unlike]
        lengths, code = sq_lengths(stack, i, n + j), i * width + j
        forth, back = code[lengths < reach[i]], code[lengths < others_reach[j]]
        count.add(len(forth) + len(back))
        return forth, back

    count = PairCount(stack)
    tiles = list(cross_tiles(labels, others, TILE))
    found = in_threads(codes, tiles, n * width * r * B.itemsize)
    none = np.empty(0, np.intp)
    forth, back = (np.concatenate([none, *(part[way] for part in found)]) for way in (0, 1))
    i, j = np.divmod(back, width)
    return forth, j * max(n, 1) + i


def _lowered_halves(S: Floats) -> Floats:
    """½‖s‖² of each row minus a bound on the rounding of its products; nan on overflow."""
    shrink = S.dtype.type(0.5 - (S.shape[1] + 8) * np.finfo(S.dtype).eps)
    with np.errstate(over="ignore"):
        half: Floats = np.einsum("ij,ij->i", S, S) * shrink
    half[np.isinf(half)] = np.nan
    return half
