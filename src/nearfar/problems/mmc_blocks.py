"""MMC of pairs in shards: the equations of `nearfar.problems.mmc` as sums over shards of pairs.

A shard of the problem is an `MMCProblem` of its own: the whitened differences u of the far pairs of
a shard of `nearfar.problems.near_pairs_blocks`, their weights w and what the floor keeps of them,
c. It has lengths, moments and lines of its pairs, and these are added up here. What needs all pairs
comes from sums of an earlier round: the scale (5), and the mean length below which lengths are
held.

Rounds, in each of which a shard has one task: two to evaluate a factor (lengths; W with the bound),
one for a line, and one for each trial of a step, but for the first two, which are one. What travels
are factors, of at most (k, k) numbers, and sums of so many.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Sized, Task
from nearfar.kernels import Array, kernels_for
from nearfar.linalg import squared_norm
from nearfar.problems.lmnn_shards import elsewhere
from nearfar.problems.mmc import (
    SHORT,
    SHORTEST,
    STEP_LIMIT,
    Certificate,
    DiagonalMMCProblem,
    Line,
    MMCProblem,
    Placement,
    weighted_sum,
    whitened_features,
)
from nearfar.problems.near_pairs import Floor, ratio, whitened_by_near_pairs
from nearfar.problems.near_pairs_blocks import PairBlocks
from nearfar.supervision import Pairs

Matrix = NDArray[np.float64]


class Shard(Sized, MMCProblem):
    """The far pairs of a shard."""


class DiagonalShard(Sized, DiagonalMMCProblem):
    """The same for (8)."""


class ShardLine(Sized, Line):
    """What the far pairs of a shard add to f along a line."""


@dataclass(frozen=True)
class Placed:
    """A factor L at the scale (5), and sums over the far pairs at it."""

    L: Matrix
    scale: float
    mean: float  # of the lengths
    W: Matrix  # of (6)
    held: float  # Σ w ℓ, where ℓ is at least SHORTEST of the mean
    less: Matrix | float  # what W is less, and 0 if it is not,
    longer: float  # and Σ w ℓ, where ℓ is at least SHORT of the mean
    lengths: list[Task]  # (·,) of each shard, at L / ‖L‖
    shards: Blocks


@dataclass(frozen=True)
class BlockLine:
    """f along L + tΔ."""

    shards: Blocks  # of `ShardLine`
    direction: Matrix
    norm: tuple[float, float, float]  # ½‖L + tΔ‖², a polynomial in t
    known: dict[float, Matrix] = field(default_factory=dict)
    limit: ClassVar[float] = STEP_LIMIT

    def at(self, t: float) -> tuple[float, float, float]:
        """Value, slope and curvature at t: a round, but for t = 0 and 1 together."""
        if t not in self.known:
            steps = (t,) if self.known else (*{0.0: 0, 1.0: 0, t: 0},)
            found = self.shards.total(_at_steps, name="line_search", shared=(steps,))
            self.known.update(zip(steps, found, strict=True))
        a, b, c = self.norm
        value, slope, curvature = map(float, self.known[t])
        return a + t * (b + t * c) + value, b + 2 * t * c + slope, 2 * c + curvature


@dataclass(frozen=True, kw_only=True)
class MMCBlocks(MMCProblem):
    """The problem on pairs in shards. U has no rows here: it says the type alone."""

    pairs: PairBlocks
    shards: Blocks  # of `Shard`

    shard_kind: ClassVar[type[MMCProblem]] = Shard

    @classmethod
    def of(cls, pairs: Pairs, shrinkage: float = 0.0, *, floored: bool = True) -> Self:
        """As `MMCProblem.build`, of pairs whose points are in blocks."""
        known = PairBlocks.of(pairs)
        basis = cls._basis(known, ratio(shrinkage))
        floor, share = None, None
        if floored and shrinkage:
            diagonal, share = known.floor(shrinkage)
            floor = Floor(diagonal, np.empty(0))
        if not floored:
            basis = basis / (1 - shrinkage) ** 0.5
        U = np.empty((0, basis.shape[-1]), dtype=known.dtype)
        return cls(
            U=U,
            edges=None,
            basis=basis,
            exact=elsewhere,
            measure=elsewhere,
            shrinkage=shrinkage,
            floor=floor,
            pairs=known,
            shards=cls._shards(known, basis, share, single=U.itemsize == 4),
        )

    @staticmethod
    def _basis(pairs: PairBlocks, regularization: float) -> Matrix:
        return whitened_by_near_pairs(pairs, regularization)[0]

    @classmethod
    def _shards(
        cls, pairs: PairBlocks, basis: Matrix, share: float | None, *, single: bool
    ) -> Blocks:
        shared = (cls.shard_kind, basis, share, single)
        parts = pairs.far.map(_shard, pairs.far_weights, name="shard", shared=shared)
        dtype = np.float32 if single else np.float64
        return pairs.far.with_parts(parts, basis.shape[-1], dtype)

    def _check_start(self, L: Matrix) -> None:
        self._check_separates(float(self.shards.total(_squares, name="start", shared=(L,))))

    def place(self, L: Matrix) -> Placed:  # type: ignore[override]
        """As `MMCProblem.place`: two rounds."""
        return self._placed_in(L, self.shards)

    def _placed_in(self, L: Matrix, shards: Blocks) -> Placed:
        L = L / np.linalg.norm(L)
        lengths = shards.map(_lengths, name="place", shared=(L,))
        scale, plain = shards.total(_sums, lengths, name="lengths")
        mean = scale * plain / shards.shape[0]
        W, held, less, longer = shards.folded(
            _moments, lengths, name="gradient", shared=(scale, mean)
        )
        return Placed(scale * L, scale, mean, W, held, less, longer, lengths, shards)

    def line(self, at: Placed, direction: Matrix) -> BlockLine:  # type: ignore[override]
        """As `MMCProblem.line`; each trial is a round."""
        L, shared = at.L, (at.scale, at.mean, at.L, direction)
        lines = at.shards.map(_line, at.lengths, name="line", shared=shared)
        return BlockLine(
            shards=replace(at.shards, parts=lines),
            direction=direction,
            norm=(
                0.5 * squared_norm(L),
                float((L * direction).sum()),
                0.5 * squared_norm(direction),
            ),
        )

    def bound(self, at: Placed) -> Certificate:  # type: ignore[override]
        """As `MMCProblem.bound`."""
        square = at.held * self._largest(at.W)
        if np.any(at.less):
            square = min(square, at.longer * self._largest(at.W + at.less))
        return Certificate(float(np.linalg.norm(at.L)), square**0.5)

    def certify(self, L: Matrix) -> Certificate:
        """As `MMCProblem.certify`, from the shards in float64."""
        components, shards = self.returned(L), self.shards
        if shards.dtype == np.float32:
            share = None if self.floor is None else self.pairs.floor(self.shrinkage)[1]
            shards = self._shards(self.pairs, self.basis, share, single=False)
        bound = self.bound(self._placed_in(L, shards)).bound
        objective = self.pairs.far.total(
            _objective, self.pairs.far_weights, name="objective", shared=(components,)
        )
        size = self.pairs.size(components, ratio(self.shrinkage))
        return Certificate(float(objective), bound, (1 - self.shrinkage) * size)


class DiagonalMMCBlocks(MMCBlocks, DiagonalMMCProblem):
    """The same over diagonal A, as (8)."""

    shard_kind = DiagonalShard

    @staticmethod
    def _basis(pairs: PairBlocks, regularization: float) -> Matrix:
        usual = 2 * pairs.near_total * pairs.variance
        squares, refuse = pairs.near_squares, pairs.refuse_features
        return whitened_features(squares, usual, pairs.live, regularization, None, refuse)


# -- tasks -----------------------------------------------------------------------------------------


def _shard(
    x: Array,
    weights: Matrix | None,
    kind: type[MMCProblem],
    basis: Matrix,
    share: float | None,
    single: bool,
) -> MMCProblem:
    """The far pairs of a shard, of whose squared lengths a floor keeps a share."""
    kernels = kernels_for(x)
    U = kind._apply(kernels, x, basis.T)
    floor = None if share is None else Floor(np.empty(0), share * (x * x).sum(1))
    return kind(
        U=kernels.single(U) if single else U,
        edges=None,
        basis=np.empty(0),
        exact=elsewhere,
        measure=elsewhere,
        floor=floor,
        weights=None if weights is None else kernels.like(weights, x),
    )


def _squares(shard: MMCProblem, L: Matrix) -> float:
    """Σ ‖Lu‖²."""
    return float(shard._squares(shard._apply(shard.kernels, shard.U, L)).sum())


def _lengths(shard: MMCProblem, L: Matrix) -> Array:
    """ℓ at a factor of norm 1."""
    return shard._far_lengths(L, shard.U)[0]


def _sums(shard: MMCProblem, lengths: Array) -> tuple[float, float]:
    """Σ w ℓ and Σ ℓ."""
    return weighted_sum(lengths, shard.weights), float(lengths.sum())


def _moments(
    shard: MMCProblem, lengths: Array, scale: float, mean: float
) -> tuple[Matrix, float, Matrix | float, float]:
    """The sums of `Placed`: W, with lengths held, and what they are with longer ones."""
    lengths = lengths * scale
    held, longer = (lengths.clip(share * mean, None) for share in (SHORTEST, SHORT))
    W = shard._weighted_moment(1 / held, shard.U)
    some = shard.kernels.flatnonzero(lengths < SHORT * mean)
    less: Matrix | float = 0.0
    if len(some):
        less = shard._weighted_moment((1 / longer - 1 / held)[some], shard.U, some)
    return W, weighted_sum(held, shard.weights), less, weighted_sum(longer, shard.weights)


def _line(
    shard: MMCProblem, lengths: Array, scale: float, mean: float, L: Matrix, direction: Matrix
) -> ShardLine:
    """The line of a shard, without the norm of L."""
    Z = shard._apply(shard.kernels, shard.U, L)
    line = shard.line(Placement(L, Z, lengths * scale, np.empty(0), shard.U), direction)
    return ShardLine(direction, (0.0, 0.0, 0.0), line.squares, line.weights, (SHORTEST * mean) ** 2)


def _at_steps(line: ShardLine, steps: tuple[float, ...]) -> Matrix:
    """Value, slope and curvature at some steps, (steps, 3)."""
    return np.array([line.at(step) for step in steps])


def _objective(x: Array, weights: Matrix | None, components: Matrix) -> float:
    """Σ w ℓ under a map on the features."""
    kernels = kernels_for(x)
    images = kernels.apply(x, components)
    w = None if weights is None else kernels.like(weights, x)
    return weighted_sum((images * images).sum(1) ** 0.5, w)
