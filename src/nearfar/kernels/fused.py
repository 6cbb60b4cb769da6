"""Searches over all pairs on CUDA: products in half precision, fused with the test of their result.

A tile of products is computed by the tensor cores, compared, and leaves one bit for each pair, so
that no table of distances is ever written. Rounding loses no pair; `on_torch` decides the pairs
that pass by exact differences. Points are centred and scaled by a power of 2 to x = s(z − c), and
rounded to float16 to h. With

(1) q = ½‖h‖²,  ε >= ‖x − h‖, both computed in float64, so that ε is the actual error of a point;
    it contains that of x itself, 2⁻⁵² ‖x‖; a point beyond float16 has h = 0 and ε = ∞

a pair with ‖xᵢ − x_l‖ < ρᵢ has ‖hᵢ − h_l‖ < ρᵢ + εᵢ + ε_l, and for any t > 0

(2) ‖hᵢ − h_l‖² <= (1 + t)(ρᵢ + εᵢ)² + (1 + 1/t) ε_l².

A product of two entries has 22 bits and is exact in float32; it cannot underflow. The sums of the
tensor cores are in float32, but they may truncate: each of the D additions is taken to be wrong by
up to 2⁻²² of Σ|hᵢₖ h_lₖ| <= ‖hᵢ‖ ‖h_l‖ <= qᵢ + q_l. The computed product p therefore satisfies

(3) |p − hᵢ·h_l| <= γ (qᵢ + q_l),  γ = (D + 16) 2⁻²²

and since ‖hᵢ − h_l‖² = 2(qᵢ + q_l − hᵢ·h_l), by (2) and (3) all pairs nearer than ρᵢ pass the test

(4) p >= barᵢ + half_l,
    barᵢ = (1 − γ) qᵢ − ½(1 + t)(ρᵢ + εᵢ)²,  half_l = (1 − γ) q_l − ½(1 + 1/t) ε_l².

Both terms are lowered by 2⁻²² of themselves, for their rounding to float32 and that of their sum.
The t with the least slack is ε/ρ; it is taken from the medians.

To find the k nearest of i, a first pass needs a distance that k points do not exceed. By the same
inequalities with x and h exchanged,

(5) ‖xᵢ − x_l‖² <= 2(1 + t)(farᵢ + far_l − p),  far = (1 + γ) q + ε²/t

The columns are cut into chunks, and the pass keeps the largest p − far_l of each. The k-th largest
of these belongs to k different points, so that

(6) ρᵢ² = 2(1 + t)(farᵢ − k-th largest)

is such a distance, and a second pass finds the candidates by (4). The 16 of (3) covers the rounding
of p − far_l, together with a far that is raised by 2⁻²⁰ of itself.

Row numbers are int32 on the card, offsets into arrays int64: n is limited by 2³¹.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.kernels import free_memory, fused_tiles
from nearfar.kernels.tiles import PairCount, labels_of
from nearfar.limits import check_time

Index = NDArray[np.intp]
Lengths = Callable[[Tensor, Tensor], Tensor]

MANY = 1 << 21  # points from which a program for their own number of entries is worth compiling
PADDING = 256  # rows behind the last that a tile may read
SAMPLE = 8192  # points from which centre and scale are found
UNIT = 3  # the median point has its largest entry in [2², 2³): float16 has 12 powers of 2 above
OUTLIERS = 0.01  # largest share of points beyond float16
DENSE = 0.25  # largest share of words with a hit: with more, the exact decision costs too much
MASK_BYTES = 1 << 29  # of the bits that are held at a time,
MASK_SHARE = 1 / 16  # and no larger share of the memory that is free,
MASK_ROWS = 2048  # held at a time at least, so that columns are read rarely enough
WORDS = 1 << 21  # with hits, whose bits are spread out at a time,
WORD_BYTES = 256  # each
CHUNKS = 512  # of columns in the first pass for the k nearest
CHUNKS_EACH = 8  # for each of the k nearest, at least
BLOCK = 1 << 25  # entries that are rounded at a time
EDGE_ENTRIES = 1024  # of the rows of edges that a program holds at a time


def check(device: str) -> None:
    """Raise whatever Triton raises if it cannot compile for a device, or run there."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    with torch.cuda.device_of(out):
        fused_tiles.write_one[(1,)](out)
    assert int(out) == 1


@dataclass(frozen=True)
class Shape:
    """How a product is cut into tiles."""

    D: int  # entries of a padded point
    K1: int  # of them held for a row of tiles
    K2: int  # also held
    BM: int = 128  # rows of a tile
    BN: int = 128  # columns
    num_warps: int = 4
    num_stages: int = 2

    @classmethod
    def of(cls, points: Tensor) -> Shape:
        """The shape for points (n, r) on a device: at most 98 KiB of shared memory, or 194 KiB."""
        r = points.shape[1]
        if r > 256:
            return cls(-(-r // 64) * 64, 64, 0)
        if len(points) < MANY:
            K = 1 << max(4, (r - 1).bit_length())
            K1, K2 = (K, 0) if r <= 128 else (128, 64 if r <= 192 else 128)
        else:
            K1, K2 = pieces(r)
        size = 128 if r <= 128 or shared_memory(points) >= 200 << 10 else 64
        return cls(K1 + K2, K1, K2, size, size)

    def arguments(self) -> dict[str, int]:
        """The compile-time arguments of a kernel."""
        return {**vars(self), "enable_fp_fusion": False}


def pieces(r: int) -> tuple[int, int]:
    """Two powers of 2, or one and 0, whose sum is at least r, which is at most 256."""
    K1 = min(128, 1 << max(4, r.bit_length() - 1))
    return K1, 0 if r <= K1 else max(16, 1 << (r - K1 - 1).bit_length())


def shared_memory(points: Tensor) -> int:
    """Bytes of shared memory that a program may use on a device: 99 KiB on most small cards."""
    if not points.is_cuda:
        return 227 << 10
    card = torch.cuda.get_device_properties(points.device)
    return int(getattr(card, "shared_memory_per_block_optin", 99 << 10))


@dataclass(frozen=True)
class Frame:
    """The centre c and the scale s of (1)."""

    centre: Tensor  # (r,) in float64
    scale: float  # a power of 2

    @classmethod
    def of(cls, Z: Tensor) -> Frame:
        """The frame of the points, from some of them."""
        some = Z[:: -(-len(Z) // SAMPLE)].double()
        centre = some.median(0).values
        sizes = (some - centre).abs().amax(1)
        median, largest = float(sizes.median()), float(sizes.max())
        size = median or largest or 1.0
        return cls(centre, float(np.ldexp(1.0, int(np.clip(UNIT - np.frexp(size)[1], -900, 900)))))


@dataclass(frozen=True)
class Rounded:
    """Points in half precision, with zeros behind the last."""

    rows: Tensor  # (n + PADDING, D) h, in float16
    halves: Tensor  # (n,) q, in float64
    errors: Tensor  # (n,) ε, in float64

    @classmethod
    def of(cls, Z: Tensor, frame: Frame, D: int, order: Tensor | None = None) -> Rounded:
        """Round the points, or those of the given row numbers, by (1)."""
        n, r = Z.shape
        rows = torch.zeros((n + PADDING, D), dtype=torch.float16, device=Z.device)
        halves = torch.empty(n, dtype=torch.float64, device=Z.device)
        errors = torch.empty_like(halves)
        step = max(1, BLOCK // r)
        for first in range(0, n, step):
            part = slice(first, min(first + step, n))
            x = (Z[part] if order is None else Z[order[part]]).double()
            x = (x - frame.centre) * frame.scale
            h = x.half()
            beyond = h.isinf().any(1)
            h[beyond] = 0
            rows[part, :r] = h
            rounded = h.double()
            error = (x - rounded).norm(dim=1) * (1 + 2.0**-40) + 2.0**-51 * x.norm(dim=1)
            halves[part] = 0.5 * (rounded * rounded).sum(1)
            errors[part] = error.masked_fill_(beyond, torch.inf)
        return cls(rows, halves, errors)

    def beyond(self) -> float:
        """The share of points beyond float16."""
        return float(self.errors.isinf().double().mean())

    def side(self, rho: Tensor, t: float) -> Side:
        """The points with their tests (4); a negative ρ is that of a point without a bar."""
        q = (1 - _gamma(self.rows)) * self.halves
        bar = q - 0.5 * (1 + t) * (rho + self.errors) ** 2
        bar = torch.where(rho < 0, torch.inf, bar)
        half = q - 0.5 * (1 + 1 / t) * self.errors**2
        return Side(self.rows, _lowered(bar), _lowered(half))

    def far(self, t: float) -> Tensor:
        """The far of (5), in float64."""
        far: Tensor = (1 + _gamma(self.rows)) * self.halves + self.errors**2 / t
        return far * (1 + 2.0**-20)


@dataclass(frozen=True)
class Side:
    """Rows or columns of a search: points in half precision, and the terms of (4), all padded."""

    points: Tensor
    bar: Tensor
    half: Tensor


def _gamma(rows: Tensor) -> float:
    """γ of (3)."""
    return float(rows.shape[1] + 16) * 2.0**-22


def _lowered(values: Tensor) -> Tensor:
    """Values in float32, lowered for their rounding, with ∞ in the padding."""
    low = (values - 2.0**-22 * values.abs() - 1e-37).float()
    return torch.nn.functional.pad(low, (0, PADDING), value=torch.inf)


def _balance(errors: Tensor, rho: Tensor) -> float:
    """The t of (2) for most points: any positive number is valid."""
    sizes = rho[rho > 0]
    if len(sizes) == 0:
        return 1.0
    return min(1.0, max(2.0**-13, float(errors.median()) / float(sizes.median())))


def _slack_radius(squares: Tensor, r: int, dtype: torch.dtype, scale: float) -> Tensor:
    """ρ such that a computed squared distance below ``squares`` is one of points nearer than ρ.

    −1 where there is no such distance.
    """
    exact = torch.finfo(dtype)
    wide = squares.double() * (1 + 2 * (r + 8) * exact.eps) + 2 * r * exact.tiny
    return torch.where(squares > 0, wide.clamp(min=0).sqrt() * scale * (1 + 2.0**-40), -1.0)


def impostor_pairs(Z: Tensor, reach: Tensor, starts: Index, lengths: Lengths) -> Tensor | None:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, as i n + l in ascending order.

    None if half precision excludes too few pairs. ``lengths`` computes squared distances of pairs,
    which decide. Each unordered pair is visited once. Time O(n² r), memory O(n r + MASK_BYTES) plus
    the answer; more pairs than memory holds raise.
    """
    n, r = Z.shape
    shape, frame = Shape.of(Z), Frame.of(Z)
    points = Rounded.of(Z, frame, shape.D)
    if points.beyond() > OUTLIERS:
        return None
    rho = _slack_radius(reach, r, Z.dtype, frame.scale)
    side = points.side(rho, _balance(points.errors, rho))
    stops = starts[1:][labels_of(starts)]  # the first row of a later class
    excluded = _row_numbers(np.zeros(n), Z), _row_numbers(stops, Z)
    found, first = [torch.empty(0, dtype=torch.int64, device=Z.device)], 0
    count = PairCount(Z)
    while first < n and (column := int(stops[first])) < n:
        rows = slice(first, min(n, first + _band(n - column, shape, _mask_bytes(Z))))
        pairs = _pairs(_bits(side, side, excluded, rows, (column, n), shape))
        if pairs is None:
            return None
        for i, j in pairs:
            i, j = i + first, j + column
            squares = lengths(i, j)
            near = torch.nonzero(squares < reach[i]).ravel()
            found.append(i[near] * n + j[near])
            near = torch.nonzero(squares < reach[j]).ravel()
            found.append(j[near] * n + i[near])
            count.add(len(found[-2]) + len(near))
        first = rows.stop
    code = torch.cat(found)
    found.clear()  # memory that the sort needs
    return torch.unique(code, sorted=True)


def cross_impostor_pairs(
    Q: Tensor, reach: Tensor, Z: Tensor, labels: Tensor, others: Tensor, lengths: Lengths
) -> Tensor | None:
    """All (i, l) with ‖qᵢ − z_l‖² < reachᵢ and different labels, as i n + l in ascending order.

    As `impostor_pairs`; Z need not be sorted by class. Time O(m n r).
    """
    n, r = Z.shape
    shape, frame = Shape.of(Z), Frame.of(Z)
    ordered, order = others.sort(stable=True)
    A, B = Rounded.of(Q, frame, shape.D), Rounded.of(Z, frame, shape.D, order)
    if max(A.beyond(), B.beyond()) > OUTLIERS:
        return None
    rho = _slack_radius(reach, r, Z.dtype, frame.scale)
    t = _balance(B.errors, rho)
    first = torch.searchsorted(ordered, labels.contiguous())
    stop = torch.searchsorted(ordered, labels.contiguous(), right=True)
    excluded = _row_numbers(first, Z), _row_numbers(stop, Z)
    found = [torch.empty(0, dtype=torch.int64, device=Z.device)]
    count = PairCount(Q)
    for rows, pairs in _one_sided(
        A.side(rho, t), B.side(-torch.ones_like(B.errors), t), excluded, shape
    ):
        if pairs is None:
            return None
        for i, j in pairs:
            heads, tails = i + rows.start, order[j]
            near = torch.nonzero(lengths(heads, tails) < reach[heads]).ravel()
            found.append(heads[near] * n + tails[near])
            count.add(len(near))
    code = torch.cat(found)
    found.clear()
    return torch.unique(code, sorted=True)


def nearest(Q: Tensor, Z: Tensor, k: int, *, others: bool = False) -> tuple[Tensor, Tensor] | None:
    """Rows (m, k) of Z nearest to each row of Q, and their squared distances in float64.

    Nearest first, ties by number. With ``others``, Q is Z, and a row is not its own neighbour. None
    if there are too few points, or half precision excludes too few pairs. Time O(m n r), memory
    O((m + n) r + MASK_BYTES).
    """
    (m, r), n = Q.shape, len(Z)
    shape = Shape.of(Z)
    tiles = -(-n // shape.BN)
    span = max(1, tiles // max(CHUNKS, CHUNKS_EACH * (k + others)))
    chunks = -(-tiles // span)
    if chunks < CHUNKS_EACH * (k + others):
        return None
    frame = Frame.of(Z)
    # Neighbours in the order of the rows are put into different chunks.
    order = torch.arange(tiles * shape.BN, device=Z.device).view(-1, tiles).T.ravel()
    order = order[order < n]
    A, B = Rounded.of(Q, frame, shape.D), Rounded.of(Z, frame, shape.D, order)
    if B.beyond() > OUTLIERS or A.beyond() > OUTLIERS:
        return None
    t = 2.0**-10
    far_a, far_b = A.far(t), B.far(t)
    padded = torch.nn.functional.pad(
        (far_b * (1 + 2.0**-23)).float(), (0, PADDING), value=torch.inf
    )
    top = torch.empty(m, dtype=torch.float32, device=Z.device)
    step = max(shape.BM, _mask_bytes(Z) // (4 * chunks) // shape.BM * shape.BM)
    for first in range(0, m, step):
        check_time()
        rows = slice(first, min(first + step, m))
        best = torch.empty((rows.stop - first, chunks), dtype=torch.float32, device=Z.device)
        grid = (-(-len(best) // shape.BM), chunks)
        with torch.cuda.device_of(best):
            fused_tiles.best[grid](
                A.rows, B.rows, padded, best, first, rows.stop, tiles, span, chunks,
                **shape.arguments(),
            )  # fmt: skip
        top[rows] = best.topk(k + others, dim=1).values[:, -1]
    squares = 2 * (1 + t) * (far_a - top.double()).clamp(min=0)  # (6)
    rho = _slack_radius(squares.clamp(min=1e-200), r, torch.float64, 1.0)
    t = _balance(B.errors, rho)
    sides = A.side(rho, t), B.side(-torch.ones_like(B.errors), t)
    nothing = _row_numbers(np.zeros(m), Z)
    near = torch.empty((m, k), dtype=torch.int64, device=Z.device)
    lengths = torch.empty((m, k), dtype=torch.float64, device=Z.device)
    for rows, pairs in _one_sided(*sides, (nothing, nothing), shape):
        if pairs is None:
            return None
        found = [(i + rows.start, order[j]) for i, j in pairs]
        heads, tails = (torch.cat(part) for part in zip(*found, strict=True))
        if others:
            apart = torch.nonzero(heads != tails).ravel()
            heads, tails = heads[apart], tails[apart]
        near[rows], lengths[rows] = _nearest_of(Q, Z, heads, tails, rows, k)
    return near, lengths


def _nearest_of(
    Q: Tensor, Z: Tensor, heads: Tensor, tails: Tensor, rows: slice, k: int
) -> tuple[Tensor, Tensor]:
    """The k nearest of the candidates of each row, by differences in float64; ties by number."""
    squares = torch.empty(len(heads), dtype=torch.float64, device=Z.device)
    step = max(1, BLOCK // Z.shape[1])
    for first in range(0, len(heads), step):
        part = slice(first, first + step)
        difference = Q[heads[part]].double() - Z[tails[part]].double()
        squares[part] = (difference * difference).sum(1)
    order = tails.argsort(stable=True)
    order = order[squares[order].argsort(stable=True)]
    order = order[heads[order].argsort(stable=True)]
    each = torch.arange(rows.start, rows.stop, device=Z.device)
    begin = torch.searchsorted(heads[order], each)
    chosen = order[begin[:, None] + torch.arange(k, device=Z.device)]
    return tails[chosen], squares[chosen]


def _mask_bytes(Z: Tensor) -> int:
    """Of the bits that are held at a time: little of the memory that is free."""
    return int(min(MASK_BYTES, max(MASK_SHARE * free_memory(Z), 0)))


def _band(columns: int, shape: Shape, mask_bytes: int) -> int:
    """Rows of which the bits are held at a time."""
    rows = max(MASK_ROWS, 8 * mask_bytes // max(columns, 1))
    return max(1, rows // shape.BM) * shape.BM


def _row_numbers(values: Any, Z: Tensor) -> Tensor:
    """Numbers of rows or columns, one for each row, padded."""
    numbers = torch.as_tensor(values, dtype=torch.int32, device=Z.device)
    return torch.nn.functional.pad(numbers, (0, PADDING))


def _one_sided(
    left: Side, right: Side, excluded: tuple[Tensor, Tensor], shape: Shape
) -> Iterator[tuple[slice, Iterator[tuple[Tensor, Tensor]] | None]]:
    """Some rows after others, and the pairs that pass by the bars of these rows."""
    m, n = (len(side.points) - PADDING for side in (left, right))
    for first in range(0, m, step := _band(n, shape, _mask_bytes(left.bar))):
        rows = slice(first, min(first + step, m))
        yield rows, _pairs(_bits(left, right, excluded, rows, (0, n), shape, both=False))


def _bits(
    left: Side,
    right: Side,
    excluded: tuple[Tensor, Tensor],
    rows: slice,
    columns: tuple[int, int],
    shape: Shape,
    *,
    both: bool = True,
) -> Tensor:
    """The bits of `fused_tiles.mark`, in words of int32, for some rows and a range of columns.

    ``excluded`` are the first columns of each row that have no bit, and those at which they end.
    """
    check_time()
    tiles = -(-(columns[1] - columns[0]) // shape.BN)
    words = tiles * shape.BN // 32
    bits = torch.empty((rows.stop - rows.start, words), dtype=torch.int32, device=left.bar.device)
    span = max(16, -(-tiles // 60_000))  # tiles of a program; a grid has less than 2¹⁶ of these
    grid = (-(-len(bits) // shape.BM), -(-tiles // span))
    with torch.cuda.device_of(bits):
        fused_tiles.mark[grid](
            left.points, left.bar, left.half, right.points, right.bar, right.half, *excluded, bits,
            rows.start, rows.stop, columns[0], tiles, span, words,
            BOTH=both, **shape.arguments(),
        )  # fmt: skip
    return bits


def _pairs(bits: Tensor) -> Iterator[tuple[Tensor, Tensor]] | None:
    """The row and column of each bit that is set, some at a time; None if there are too many."""
    rows, words = torch.nonzero(bits, as_tuple=True)
    if len(rows) > max(DENSE * bits.numel(), WORDS):
        return None
    return _spread(bits, rows, words)


def _spread(bits: Tensor, rows: Tensor, words: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    each = torch.arange(32, dtype=torch.int32, device=bits.device)
    step = max(1, min(WORDS, max(WORDS >> 6, _mask_bytes(bits) // WORD_BYTES)))
    for first in range(0, max(1, len(rows)), step):
        i, w = rows[first : first + step], words[first : first + step]
        at, bit = torch.nonzero((bits[i, w][:, None] >> each) & 1, as_tuple=True)
        yield i[at], 32 * w[at] + bit


def sq_lengths(Z: Tensor, heads: Tensor, tails: Tensor) -> Tensor:
    """‖z_h − z_t‖² along each edge; no row is copied."""
    Z, out = Z.contiguous(), torch.empty(len(heads), dtype=Z.dtype, device=Z.device)
    grid, shape = _edge_shape(Z, len(heads))
    with torch.cuda.device_of(out):
        fused_tiles.edge_lengths[grid](Z, heads.contiguous(), tails.contiguous(), out, *shape)
    return out


def edge_products(Z: Tensor, D: Tensor, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge; no row is copied."""
    cross = torch.empty(len(heads), dtype=Z.dtype, device=Z.device)
    square = torch.empty_like(cross)
    grid, shape = _edge_shape(Z, len(heads))
    edges = heads.contiguous(), tails.contiguous()
    with torch.cuda.device_of(cross):
        fused_tiles.edge_products[grid](
            Z.contiguous(), D.contiguous(), *edges, cross, square, *shape
        )
    return cross, square


def laplacian_matmul(heads: Tensor, tails: Tensor, weights: Tensor, Z: Tensor) -> Tensor:
    """Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ Z, by atomic additions; no row is copied."""
    out = torch.zeros(Z.shape, dtype=Z.dtype, device=Z.device)
    grid, shape = _edge_shape(Z, len(heads))
    edges = heads.contiguous(), tails.contiguous(), weights.to(Z.dtype).contiguous()
    with torch.cuda.device_of(out):
        fused_tiles.laplacian[grid](Z.contiguous(), *edges, out, *shape)
    return out


def _edge_shape(Z: Tensor, m: int) -> tuple[tuple[int], tuple[int, int, int, int]]:
    """The grid, and the last arguments of a kernel on m edges."""
    r = Z.shape[1]
    K = min(64, 1 << max(2, (r - 1).bit_length()))
    return (-(-m * K // EDGE_ENTRIES),), (m, r, EDGE_ENTRIES // K, K)
