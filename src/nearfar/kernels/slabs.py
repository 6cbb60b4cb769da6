"""A search for impostors that skips most pairs: blocks of points, and the slabs between them.

The points of each class are cut into blocks of near points with centres c. On the line through the
centres of two blocks A and B of different classes, B ends somewhere, and a point i of A may lie far
beyond that end:

(1) ‖c_A − c_B‖ ‖zᵢ − z_l‖ ≥ (c_A − c_B)·zᵢ − e_BA  for l in B,  e_BA = max_{l∈B} (c_A − c_B)·z_l

so that B holds no impostor of i, none nearer to it than ρᵢ, where

(2) (c_B − c_A)·zᵢ + e_BA + ρᵢ ‖c_A − c_B‖ < 0

and none of any point of A where e_AB + e_BA + maxᵢ ρᵢ ‖c_A − c_B‖ < 0. This takes only products of
points and centres. Along a line a block is much narrower than the ball or the box around it, so
these bounds exclude most pairs even in tens of dimensions, where trees of balls or boxes visit
nearly all of them.

Points are compared in the directions in which they vary most, as far as these make distances
shorter by little beside the reach: bounds on shorter distances exclude no pair wrongly. Pairs that
remain are screened by products in these directions, and decided by exact differences.

The products are computed in float32, with points centred at their median. With eps the rounding
unit of float32, the error of (2) is less than 2(r + 16) eps (‖zᵢ‖² + ‖z_l‖² + ‖c_A‖² + ‖c_B‖²),
which is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from nearfar.kernels.tiles import PairCount
from nearfar.limits import check_time

Floats = NDArray[np.floating]
Single = NDArray[np.float32]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
InThreads = Callable[[Callable[[Any], Any], list[Any], int], list[Any]]

FEWEST_POINTS = 10_000  # with fewer, searching all pairs takes some tens of milliseconds
BLOCK_SIZE = 0.4  # points of a block, times √n: blocks and remaining pairs then cost about the same
FEW_DIMENSIONS = 8  # with fewer, blocks are larger in proportion: even large blocks exclude most
MOST_BLOCKS = 4  # times the number of blocks of a single class of n points: small classes need more
SAMPLE = 16  # points for each block from which its centre is found
ROUNDS = 3  # of k-means
TRIED = 24  # blocks from which the share of remaining pairs is estimated
WORTHWHILE = 0.4  # largest share worth the effort: such a pair costs twice as much
LARGEST = 1e15  # larger coordinates might overflow in float32
FARTHEST = 1e18  # larger than the distance of any such points
SHARED = 8  # blocks that a thread takes at a time
MASK_BYTES = 1 << 26  # of the table of points and blocks that is held at a time
PRODUCT_ENTRIES = 1 << 19  # of a product of points and a block
DROPPED = 0.2  # of the mean reach, by which a screen may shorten the mean squared distance
STEP = 8  # directions of a screen are a multiple of it
GATHER_BYTES = 1 << 20  # bytes of gathered rows: an L2 cache
ROWS = 4096  # of a product of points and centres

EPS = np.finfo(np.float32).eps
TINY = np.finfo(np.float32).tiny


def pruned_impostor_pairs(
    Z: Floats, reach: Floats, starts: Index, in_threads: InThreads
) -> Index | None:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, as i n + l in any order.

    None if so many pairs remain that searching all pairs is faster. Time O(n^1.5 r + s n² r), with
    s the share of pairs that remain; memory O(n r + MASK_BYTES) plus the answer. ``in_threads``
    returns the results of a function on each of a list of parts.
    """
    few = len(Z) < FEWEST_POINTS
    blocks = None if few else Blocks.build(Z, reach, starts, in_threads)
    if blocks is None:
        return None
    slabs = Slabs.build(blocks, Z, reach, in_threads)
    return slabs.impostor_pairs(Z, reach, in_threads) if slabs.share() <= WORTHWHILE else None


def pruned_mutual_pairs(
    Z: Floats, reach: Floats, labels: Index, first: int, in_threads: InThreads
) -> Index | None:
    """The same between the points before number ``first`` and those from there on.

    ``labels`` are the classes of all points; None, too, unless they ascend on both sides.
    """
    n, count = len(Z), int(labels.max(initial=0)) + 1
    falls = np.flatnonzero(np.diff(labels) < 0) + 1
    if n < FEWEST_POINTS or count > n or (falls != first).any():
        return None
    numbers = np.arange(count)
    sides = (
        np.searchsorted(labels[:first], numbers),
        first + np.searchsorted(labels[first:], numbers),
    )
    blocks = Blocks.build(Z, reach, np.concatenate([*sides, [n]]), in_threads)
    if blocks is None:
        return None
    side, label = np.divmod(blocks.labels, count)
    unlike = (side[:, None] != side) & (label[:, None] != label)
    slabs = Slabs.build(blocks, Z, reach, in_threads, unlike)
    return slabs.impostor_pairs(Z, reach, in_threads) if slabs.share() <= WORTHWHILE else None


def nearer(Z: Floats, reach: Floats, heads: Index, tails: Index) -> Mask:
    """Whether ‖z_h − z_t‖² < reach_h, by differences, in the thread that calls it."""
    near = np.empty(len(heads), np.bool_)
    step = max(64, GATHER_BYTES // max(1, Z.shape[1] * Z.itemsize))
    for first in range(0, len(heads), step):
        rows = heads[first : first + step]
        difference = np.take(Z, rows, axis=0)
        with np.errstate(over="ignore"):  # infinitely far
            difference -= np.take(Z, tails[first : first + step], axis=0)
            squares = np.einsum("ij,ij->i", difference, difference)
            near[first : first + step] = squares < reach[rows]
    return near


@dataclass(frozen=True)
class Blocks:
    """The points in their leading directions, sorted by block."""

    order: Index  # (n,) row of Z of each point
    cuts: Index  # (b + 1,) block a holds the points cuts[a]:cuts[a + 1]
    labels: Index  # (b,) class of each block
    points: Single  # (n, r)
    centres: Single  # (b, r)

    @classmethod
    def build(cls, Z: Floats, reach: Floats, starts: Index, in_threads: InThreads) -> Blocks | None:
        """Cut each class into blocks; None if float32 or the number of classes forbids it."""
        n, r = Z.shape
        sizes = np.diff(starts)
        size = max(1, round(BLOCK_SIZE * max(1, FEW_DIMENSIONS / max(1, r)) * n**0.5))
        if r == 0 or (-(-sizes // size)).sum() > MOST_BLOCKS * n / size:
            return None
        S = leading(Z, reach)
        if S is None:
            return None
        classes = np.flatnonzero(sizes)

        def cut(c: int) -> tuple[Index, Index]:
            order, firsts = cut_into_blocks(S[starts[c] : starts[c + 1]], size)
            return starts[c] + order, starts[c] + firsts

        found = in_threads(cut, list(classes), S.nbytes)
        order, firsts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        labels = np.repeat(classes, [len(parts) for _, parts in found])
        points = S[order]
        return cls(order, np.append(firsts, n), labels, points, means_of_runs(points, firsts))

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, a: int) -> slice:
        """The points of block a."""
        return slice(int(self.cuts[a]), int(self.cuts[a + 1]))


def cut_into_blocks(points: Single, size: int) -> tuple[Index, Index]:
    """Points in the order of their blocks, and the first of each block; k-means on a sample."""
    count = -(-len(points) // size)
    sample = points[:: max(1, len(points) // (SAMPLE * count))]
    centres = sample[np.arange(count) * len(sample) // count]
    for _ in range(ROUNDS):
        order, firsts = _assigned(sample, centres)
        centres = means_of_runs(sample[order], firsts)
    return _assigned(points, centres)


def _assigned(points: Single, centres: Single) -> tuple[Index, Index]:
    """Points in the order of their nearest centres, and the first point of each centre."""
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest = np.empty(len(points), np.intp)
    for first in range(0, len(points), ROWS):
        check_time()
        product = points[first : first + ROWS] @ centres.T
        product -= half
        nearest[first : first + ROWS] = product.argmax(axis=1)
    order = np.argsort(nearest, kind="stable")
    return order, np.flatnonzero(np.diff(nearest[order], prepend=-1))


def means_of_runs(points: Single, firsts: Index) -> Single:
    """The mean of each run of points."""
    counts = np.diff(firsts, append=len(points))[:, None]
    return (np.add.reduceat(points, firsts, axis=0) / counts).astype(np.float32)


@dataclass(frozen=True)
class Slabs:
    """The terms of (2) for all pairs of blocks."""

    blocks: Blocks
    left: Single  # (n, r + 3) of each point z: z, its share of the rounding less c_A·z, 1, and ρ
    ends: Single  # (b, b) e_BA, with its share of the rounding
    apart: Single  # (b, b) ‖c_A − c_B‖
    near: Mask  # (b, b) whether points of A may have impostors in B
    unlike: Mask  # (b, b) whether points of A and B are compared: those of different classes

    @classmethod
    def build(
        cls,
        blocks: Blocks,
        Z: Floats,
        reach: Floats,
        in_threads: InThreads,
        unlike: Mask | None = None,
    ) -> Slabs:
        """Find where the blocks end, and which pairs of blocks remain."""
        if unlike is None:
            unlike = blocks.labels[:, None] != blocks.labels
        points, centres = blocks.points, blocks.centres
        r, own = points.shape[1], np.repeat(np.arange(len(blocks)), np.diff(blocks.cuts))
        # A length beyond ρ is not below the reach even if rounding has made it shorter.
        exact, d = np.finfo(Z.dtype), Z.shape[1]
        with np.errstate(over="ignore"):
            square = reach[blocks.order] * (1 + 2 * (d + 8) * exact.eps) + d * exact.tiny
        rho = np.sqrt(square.clip(0)).clip(None, FARTHEST) * (1 + 2 * (r + 16) * EPS)
        rho[square == -np.inf] = -FARTHEST  # the point has no impostors
        squares = np.einsum("ij,ij->i", centres, centres)[own]
        squares += np.einsum("ij,ij->i", points, points)
        offset = 2 * (r + 16) * (EPS * squares + TINY)
        offset -= np.einsum("ij,ij->i", points, centres[own])
        ones = np.ones(len(points))
        left = np.column_stack([points, offset, ones, rho]).astype(np.float32)
        lines = np.column_stack([centres, np.ones(len(blocks), np.float32)]).T
        ends = np.empty((len(blocks), len(blocks)), np.float32)

        def measure(part: range) -> None:
            for a in part:
                np.max(left[blocks.rows(a), : r + 1] @ lines, axis=0, out=ends[a])

        in_threads(measure, consecutive(range(len(blocks))), points.nbytes * len(blocks))
        double = centres.astype(np.float64)
        apart = (cdist(double, double) * (1 + 4 * EPS)).astype(np.float32)
        widest = np.maximum.reduceat(left[:, -1], blocks.cuts[:-1])
        near = ~(ends + ends.T + widest[:, None] * apart < 0)
        near &= unlike
        return cls(blocks, left, ends, apart, near, unlike)

    def kept(self, a: int, others: Index) -> Mask:
        """Where (2) does not hold, for other blocks (rows) and the points of block a (columns)."""
        right = np.column_stack(
            [
                self.blocks.centres[others],
                np.ones(len(others), np.float32),
                self.ends[others, a],
                self.apart[others, a],
            ]
        )
        # All factors are finite. The BLAS of some processors works on whole vector registers and
        # raises the flag for entries beyond the end of the arrays, which it does not return.
        with np.errstate(invalid="ignore"):
            return ~(right @ self.left[self.blocks.rows(a)].T < 0)

    def share(self) -> float:
        """Share of the pairs that remain, estimated from the points of some blocks."""
        sizes = np.diff(self.blocks.cuts)
        tried = range(0, len(sizes), -(-len(sizes) // TRIED))
        unlike = self.unlike[tried] @ sizes
        left = 0
        for a in tried:
            others = np.flatnonzero(self.near[a])
            left += int(sizes[others] @ np.count_nonzero(self.kept(a, others), axis=1))
        return left / max(1.0, float(sizes[tried] @ unlike))

    def impostor_pairs(self, Z: Floats, reach: Floats, in_threads: InThreads) -> Index:
        """Those of the remaining pairs that are nearer than the reach, as i n + l."""
        n, r = self.blocks.points.shape
        pairs, count = Pairs.build(self.blocks, Z, reach), PairCount(Z)
        found: list[list[Index]] = []
        for targets, mask in self.masks(in_threads):

            def search(part: range, first: int = targets.start, mask: Mask = mask) -> list[Index]:
                codes = [code for b in part for code in pairs.near(b, mask[b - first])]
                count.add(sum(map(len, codes)))
                return codes

            found += in_threads(search, consecutive(targets), n * n * r)
        return np.concatenate([np.empty(0, np.intp), *(code for part in found for code in part)])

    def masks(self, in_threads: InThreads) -> Iterator[tuple[range, Mask]]:
        """Some blocks at a time, and which points (columns) may have impostors in each (rows)."""
        blocks, (n, r) = self.blocks, self.blocks.points.shape
        for targets in consecutive(range(len(blocks)), max(1, MASK_BYTES // n)):
            mask = np.zeros((len(targets), n), np.bool_)

            def mark(part: range, targets: range = targets, mask: Mask = mask) -> None:
                for a in part:
                    others = np.flatnonzero(self.near[a, targets.start : targets.stop])
                    if len(others):
                        mask[others, blocks.rows(a)] = self.kept(a, targets.start + others)

            in_threads(mark, consecutive(range(len(blocks))), n * n * r)
            yield targets, mask


@dataclass(frozen=True)
class Pairs:
    """Points and whole blocks, compared by products as in `on_numpy.impostor_pairs`."""

    blocks: Blocks
    Z: Floats
    reach: Floats
    left: Single  # (n, r + 2)
    right: Single  # (n, r + 2) left · right is at least −½‖zᵢ − z_l‖², whatever the rounding
    bar: Single  # (n,) −½ reach

    @classmethod
    def build(cls, blocks: Blocks, Z: Floats, reach: Floats) -> Pairs:
        """Prepare the products of all points."""
        points = blocks.points
        half = lowered_halves(points, Z.shape[1])
        ones = np.ones(len(points), np.float32)
        with np.errstate(over="ignore"):
            bar = (-0.5 * reach[blocks.order]).astype(np.float32)
        return cls(
            blocks,
            Z,
            reach,
            left=np.column_stack([points, ones, -half]),
            right=np.column_stack([points, -half, ones]),
            bar=np.nextafter(bar, np.float32(-np.inf)),
        )

    def near(self, b: int, mask: Mask) -> Iterator[Index]:
        """The impostors in block b of the masked points, as i n + l."""
        order, columns = self.blocks.order, self.blocks.rows(b)
        points, width = np.flatnonzero(mask), columns.stop - columns.start
        step = max(1, PRODUCT_ENTRIES // width)
        for first in range(0, len(points), step):
            check_time()
            rows = points[first : first + step]
            product = self.right[columns] @ self.left[rows].T
            # Maxima take a third of the time of comparing all, and few rows have an impostor.
            some = np.flatnonzero(~(product.max(axis=0) <= self.bar[rows]))
            rows, product = rows[some], product[:, some]
            j, i = np.divmod(np.flatnonzero(~(product <= self.bar[rows])), len(rows))
            heads, tails = order[rows[i]], order[columns.start + j]
            near = nearer(self.Z, self.reach, heads, tails)
            yield heads[near] * len(order) + tails[near]


def leading(Z: Floats, reach: Floats) -> Single | None:
    """Centred points in the directions in which they vary most, those that hardly matter left out.

    Distances only become shorter, by little beside the mean reach: a screen may use them. None if
    coordinates might overflow in float32. Rows are made float64 a block at a time.
    """
    n, r = Z.shape
    with np.errstate(over="ignore", invalid="ignore"):
        sample = Z[:: -(-n // ROWS)].astype(np.float64)
        centre = np.median(sample, axis=0)
        sample -= centre
        if not np.abs(sample).max() < LARGEST:
            return None
        directions = _directions(sample, reach)
        points = np.empty((n, r if directions is None else directions.shape[1]), np.float32)
        for first in range(0, n, ROWS):
            part = Z[first : first + ROWS] - centre
            points[first : first + ROWS] = part if directions is None else part @ directions
    return points if np.abs(points).max() < LARGEST else None


def lowered_halves(points: Single, d: int) -> Single:
    """½‖z‖² of `leading` points of d coordinates, less a bound on the rounding of their screen.

    That of the products and coordinates, and of the exact squares that decide, is below
    2(d + 8) eps (‖zᵢ‖² + ‖z_l‖²).
    """
    shrink = np.float32(0.5 - 2 * (d + 8) * EPS)
    half: Single = shrink * np.einsum("ij,ij->i", points, points)
    return half


def _directions(sample: NDArray[np.float64], reach: Floats) -> NDArray[np.float64] | None:
    """Orthonormal columns, the directions in which a sample varies most; None for all."""
    r, finite = sample.shape[1], reach[np.isfinite(reach)]
    if r <= STEP or len(finite) == 0:
        return None
    centred = sample - sample.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    dropped = int(np.searchsorted(np.cumsum(values), DROPPED * finite.mean() / 2))
    count = STEP * max(1, -(-(r - dropped) // STEP))
    return vectors[:, -count:] if count < r else None


def consecutive(blocks: range, size: int = SHARED) -> list[range]:
    """Consecutive ranges of blocks."""
    return [blocks[first : first + size] for first in range(0, len(blocks), size)]
