"""The search for impostors without most of the pairs: blocks of points, and the slabs between them.

The points of each class are cut into blocks of near points with centres c. On the line through the
centres of two blocks A and B of different classes, B ends somewhere, and a point i of A may lie far
beyond that end:

(1) ‖c_A − c_B‖ ‖zᵢ − z_l‖ ≥ (c_A − c_B)·zᵢ − e_BA  for l in B,  e_BA = max_{l∈B} (c_A − c_B)·z_l

so that B holds no impostor of i, none nearer to it than ρᵢ, where

(2) (c_B − c_A)·zᵢ + e_BA + ρᵢ ‖c_A − c_B‖ < 0

and none of any point of A where e_AB + e_BA + maxᵢ ρᵢ ‖c_A − c_B‖ < 0. It takes only products of
points and centres. A block is much narrower along a line than the ball or the box around it: these
bounds leave few pairs in tens of dimensions, where trees of balls or boxes visit nearly all.

The products are taken in float32, of points about their median. With eps the rounding of that type,
(2) errs by less than 2(r + 16) eps (‖zᵢ‖² + ‖z_l‖² + ‖c_A‖² + ‖c_B‖²), which is added to it.
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

FEWEST_POINTS = 10_000  # below, the search of all pairs takes some tens of milliseconds
BLOCK_SIZE = 0.4  # points of a block, times √n: blocks and the pairs left then cost about the same
FEW_DIMENSIONS = 8  # below, blocks grow in proportion: even large ones leave few pairs
MOST_BLOCKS = 4  # times the number that this makes of one class: small classes make more
SAMPLE = 16  # points for each block from which its centre is found
ROUNDS = 3  # of moving the centres
TRIED = 24  # blocks whose points tell what share of the pairs is left
WORTHWHILE = 0.3  # that share up to which it pays: such a pair costs two to three times as much
LARGEST = 1e15  # coordinates beyond might overflow in float32
FARTHEST = 1e18  # beyond all points whose coordinates are that large
SHARED = 8  # blocks that a thread takes at a time
MASK_BYTES = 1 << 26  # of the table of points and blocks that is held at a time
PRODUCT_ENTRIES = 1 << 19  # of a product of points and a block
GATHER_BYTES = 1 << 20  # of gathered rows: an L2
ROWS = 4096  # of a product of points and centres

EPS = np.finfo(np.float32).eps
TINY = np.finfo(np.float32).tiny


def pruned_impostor_pairs(
    Z: Floats, reach: Floats, starts: Index, in_threads: InThreads
) -> Index | None:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, as i n + l in any order.

    None where too many pairs would be left for this to be faster than the search of all pairs.
    Time O(n^1.5 r + s n² r), with s the share of the pairs that is left; memory O(n r + MASK_BYTES)
    and the answer. ``in_threads`` gives the results of a function on each of a list of parts.
    """
    blocks = Blocks.build(Z, starts, in_threads) if len(Z) >= FEWEST_POINTS else None
    if blocks is None:
        return None
    slabs = Slabs.build(blocks, Z, reach, in_threads)
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
    """The points about their median, block by block."""

    order: Index  # (n,) row of Z of each point
    cuts: Index  # (b + 1,) block a holds the points cuts[a]:cuts[a + 1]
    labels: Index  # (b,) class of each block
    points: Single  # (n, r)
    centres: Single  # (b, r)

    @classmethod
    def build(cls, Z: Floats, starts: Index, in_threads: InThreads) -> Blocks | None:
        """Cut each class into blocks; None where float32 or the number of classes forbids it."""
        n, r = Z.shape
        sizes = np.diff(starts)
        size = max(1, round(BLOCK_SIZE * max(1, FEW_DIMENSIONS / max(1, r)) * n**0.5))
        if r == 0 or (-(-sizes // size)).sum() > MOST_BLOCKS * n / size:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            S = (Z - np.median(Z[:: -(-n // ROWS)], axis=0)).astype(np.float32)
        if not np.abs(S).max() < LARGEST:
            return None
        classes = np.flatnonzero(sizes)

        def cut(c: int) -> tuple[Index, Index]:
            order, firsts = _cut(S[starts[c] : starts[c + 1]], size)
            return starts[c] + order, starts[c] + firsts

        found = in_threads(cut, list(classes), S.nbytes)
        order, firsts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        labels = np.repeat(classes, [len(parts) for _, parts in found])
        points = S[order]
        return cls(order, np.append(firsts, n), labels, points, _means(points, firsts))

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, a: int) -> slice:
        """The points of block a."""
        return slice(int(self.cuts[a]), int(self.cuts[a + 1]))


def _cut(points: Single, size: int) -> tuple[Index, Index]:
    """An order of the points, and where in it their blocks begin: k-means on a sample of them."""
    count = -(-len(points) // size)
    sample = points[:: max(1, len(points) // (SAMPLE * count))]
    centres = sample[np.arange(count) * len(sample) // count]
    for _ in range(ROUNDS):
        order, firsts = _assigned(sample, centres)
        centres = _means(sample[order], firsts)
    return _assigned(points, centres)


def _assigned(points: Single, centres: Single) -> tuple[Index, Index]:
    """The points in the order of their nearest centres, and where each centre's begin."""
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest = np.empty(len(points), np.intp)
    for first in range(0, len(points), ROWS):
        check_time()
        product = points[first : first + ROWS] @ centres.T
        product -= half
        nearest[first : first + ROWS] = product.argmax(axis=1)
    order = np.argsort(nearest, kind="stable")
    return order, np.flatnonzero(np.diff(nearest[order], prepend=-1))


def _means(points: Single, firsts: Index) -> Single:
    """The mean of each run of points."""
    counts = np.diff(firsts, append=len(points))[:, None]
    means: Single = (np.add.reduceat(points, firsts, axis=0) / counts).astype(np.float32)
    return means


@dataclass(frozen=True)
class Slabs:
    """What (2) is made of, for all pairs of blocks."""

    blocks: Blocks
    left: Single  # (n, r + 3) of each point z: z, its share of the rounding less c_A·z, 1, and ρ
    ends: Single  # (b, b) e_BA, with its share of the rounding
    apart: Single  # (b, b) ‖c_A − c_B‖
    near: Mask  # (b, b) whether points of A may have impostor_pairs in B

    @classmethod
    def build(cls, blocks: Blocks, Z: Floats, reach: Floats, in_threads: InThreads) -> Slabs:
        """Find where the blocks end, and which pairs of them are left."""
        points, centres = blocks.points, blocks.centres
        r, own = points.shape[1], np.repeat(np.arange(len(blocks)), np.diff(blocks.cuts))
        # A length beyond ρ is not below the reach even if rounding has made it shorter.
        exact = np.finfo(Z.dtype)
        with np.errstate(over="ignore"):
            square = reach[blocks.order] * (1 + 2 * (r + 8) * exact.eps) + r * exact.tiny
        rho = np.sqrt(square.clip(0)).clip(None, FARTHEST) * (1 + 2 * (r + 16) * EPS)
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

        in_threads(measure, _shares(range(len(blocks))), points.nbytes * len(blocks))
        double = centres.astype(np.float64)
        apart = (cdist(double, double) * (1 + 4 * EPS)).astype(np.float32)
        widest = np.maximum.reduceat(left[:, -1], blocks.cuts[:-1])
        near = ~(ends + ends.T + widest[:, None] * apart < 0)
        near &= blocks.labels[:, None] != blocks.labels
        return cls(blocks, left, ends, apart, near)

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
        """The share of the pairs that is left, from the points of some blocks."""
        sizes, labels = np.diff(self.blocks.cuts), self.blocks.labels
        unlike = len(self.left) - np.bincount(labels, sizes)[labels]
        tried = range(0, len(sizes), -(-len(sizes) // TRIED))
        left = 0
        for a in tried:
            others = np.flatnonzero(self.near[a])
            left += int(sizes[others] @ np.count_nonzero(self.kept(a, others), axis=1))
        return left / max(1.0, float(sizes[tried] @ unlike[tried]))

    def impostor_pairs(self, Z: Floats, reach: Floats, in_threads: InThreads) -> Index:
        """The pairs that are left, as far as they are nearer than the reach, as i n + l."""
        blocks, (n, r) = self.blocks, self.blocks.points.shape
        pairs, count = Pairs.build(blocks, Z, reach), PairCount(Z)
        found: list[list[Index]] = []
        for targets in _shares(range(len(blocks)), max(1, MASK_BYTES // n)):
            mask = np.zeros((len(targets), n), np.bool_)  # whose impostors may be in which block

            def mark(part: range, targets: range = targets, mask: Mask = mask) -> None:
                for a in part:
                    others = np.flatnonzero(self.near[a, targets.start : targets.stop])
                    if len(others):
                        mask[others, blocks.rows(a)] = self.kept(a, targets.start + others)

            def search(part: range, first: int = targets.start, mask: Mask = mask) -> list[Index]:
                codes = [code for b in part for code in pairs.near(b, mask[b - first])]
                count.add(sum(map(len, codes)))
                return codes

            in_threads(mark, _shares(range(len(blocks))), n * n * r)
            found += in_threads(search, _shares(targets), n * n * r)
        return np.concatenate([np.empty(0, np.intp), *(code for part in found for code in part)])


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
        shrink = np.float32(0.5 - 2 * (points.shape[1] + 8) * EPS)
        half = shrink * np.einsum("ij,ij->i", points, points)
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
        """The impostor_pairs in block b of the points under the mask, as i n + l."""
        order, columns = self.blocks.order, self.blocks.rows(b)
        points, width = np.flatnonzero(mask), columns.stop - columns.start
        step = max(1, PRODUCT_ENTRIES // width)
        for first in range(0, len(points), step):
            check_time()
            rows = points[first : first + step]
            product = self.left[rows] @ self.right[columns].T
            i, j = np.divmod(np.flatnonzero(~(product <= self.bar[rows, None])), width)
            heads, tails = order[rows[i]], order[columns.start + j]
            near = nearer(self.Z, self.reach, heads, tails)
            yield heads[near] * len(order) + tails[near]


def _shares(blocks: range, size: int = SHARED) -> list[range]:
    """Some blocks at a time."""
    return [blocks[first : first + size] for first in range(0, len(blocks), size)]
