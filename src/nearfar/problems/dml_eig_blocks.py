"""DMLEig of pairs in shards: `nearfar.problems.dml_eig` with far pairs that lie on workers.

A shard of the problem is a `DMLEigProblem` of its own: the whitened differences u of the far pairs
of a shard of `nearfar.problems.near_pairs_blocks`, and what the floor keeps of them, c. Lengths and
weights of all far pairs stay in shards, too; solvers see them as `Column`, of which they need the
minimum, the sum and multiples.

A round, one task for each shard, gives all lengths, another one their minimum, and one more the
shortest pairs, of which each shard offers as many as are wanted. The working set of the solver is
on this machine, as in memory: some differences for each dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Sized, Task
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.problems.dml_eig import NEGLIGIBLE, DMLEigProblem, n_reaching
from nearfar.problems.lmnn_shards import elsewhere
from nearfar.problems.near_pairs import Floor, ratio, whitened_by_near_pairs
from nearfar.problems.near_pairs_blocks import PairBlocks
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


class Shard(Sized, DMLEigProblem):
    """The far pairs of a shard."""


@dataclass(frozen=True)
class Column:
    """A number for each far pair, in the order of the shards, times a factor."""

    shards: Blocks
    parts: list[Task]  # (·,) of each shard, float64
    factor: float = 1.0

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """The smallest number and the sum, without the factor."""
        found = self.shards.engine.results(
            self.shards.engine.map(_extremes, self.parts, name="shortest")
        )
        return min(least for least, _ in found), sum(total for _, total in found)

    def min(self) -> float:
        """The smallest number, for a factor that is not negative."""
        return self.factor * self._extremes[0]

    def sum(self) -> float:
        """The sum."""
        return self.factor * self._extremes[1]

    def __rmul__(self, factor: float) -> Column:
        return replace(self, factor=factor * self.factor)

    def __add__(self, other: Column) -> Column:
        shared = self.factor, other.factor
        engine = self.shards.engine
        parts = engine.map(_added, self.parts, other.parts, name="add_lengths", shared=shared)
        return Column(self.shards, parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        """The numbers on this machine: of a dual point, which a model keeps."""
        del copy
        found = self.shards.engine.results(self.parts)
        return self.factor * np.concatenate([to_host(part) for part in found]).astype(dtype)


@dataclass(frozen=True, kw_only=True)
class DMLEigBlocks(DMLEigProblem):
    """The problem on pairs in shards. Rows and points are none here: they say the type alone."""

    shards: Blocks  # of `Shard`

    @classmethod
    def of(cls, pairs: Pairs, shrinkage: float = 0.0, *, floored: bool = True) -> Self:
        """As `DMLEigProblem.build`, of pairs whose points are in blocks."""
        known, regularization = PairBlocks.of(pairs), ratio(shrinkage)
        basis, _, free = whitened_by_near_pairs(known, regularization)
        floor, share = None, None
        if floored:
            diagonal, share = known.floor(shrinkage)
            floor = Floor(diagonal, np.empty(0))
        parts = known.far.map(_shard, name="shard", shared=(basis, share))
        shards = known.far.with_parts(parts, basis.shape[1], np.float64)

        def measure(components: Matrix) -> tuple[Column, float]:
            squares = known.far.map(_squares, name="objective", shared=(components,))
            return Column(shards, squares), known.size(components, regularization)

        problem = cls(
            rows=np.empty((0, basis.shape[1])),
            edges=None,
            basis=basis,
            points=np.empty((0, len(basis)), dtype=known.dtype),
            measure=measure,
            shrinkage=shrinkage if floored else 0.0,
            floor=floor,
            shards=shards,
        )
        problem.refuse_lost(int(shards.total(_n_lost, name="lost")), shards.shape[0])
        if shrinkage <= NEGLIGIBLE and free.shape[1]:
            apart = shards.total(n_reaching, name="ridge", shared=(free,))
            problem.warn_of_ridge(free, int(apart), shards.shape[0])
        return problem

    def lengths(self, L: Matrix) -> Column:
        """As `DMLEigProblem.lengths`."""
        return Column(self.shards, self.shards.map(_lengths, name="lengths", shared=(L,)))

    def shortest(self, lengths: Column, count: int, below: float = np.inf) -> Index:
        """As `DMLEigProblem.shortest`, the first of equal ones."""
        assert lengths.factor == 1, "lengths of a factor"
        found = self.shards.results(
            _shortest, lengths.parts, name="shortest", shared=(count, below)
        )
        starts = self.shards.starts
        numbers = np.concatenate([s + own for s, (own, _) in zip(starts, found, strict=False)])
        values = np.concatenate([values for _, values in found])
        return np.asarray(numbers[np.lexsort((numbers, values))[:count]], dtype=np.intp)

    def differences(self, numbers: Index) -> Matrix:
        """As `DMLEigProblem.differences`."""
        return to_host(self.shards.take(numbers, _differences))

    def kept(self, numbers: Index) -> Matrix:
        """As `DMLEigProblem.kept`."""
        if self.floor is None:
            return np.zeros(len(numbers))
        return to_host(self.shards.take(numbers, _kept))

    def soft_weights(self, lengths: Column, smoothing: float) -> Column:
        """As `DMLEigProblem.soft_weights`."""
        parts = self.shards.engine.map(
            _soft_weights,
            lengths.parts,
            name="soft_weights",
            shared=(lengths.factor, lengths.min(), smoothing),
        )
        weights = Column(self.shards, parts)
        return (1 / weights.sum()) * weights

    def scatter(self, weights: Column) -> Matrix:
        """As `DMLEigProblem.scatter`."""
        found = self.shards.folded(_scatter, weights.parts, name="gradient")
        return weights.factor * np.asarray(found)


# -- tasks -----------------------------------------------------------------------------------------


def _shard(x: Array, basis: Matrix, share: float | None) -> Shard:
    """The far pairs of a shard, of whose squared lengths a floor keeps a share."""
    U = kernels_for(x).apply(x, basis.T)
    floor = None if share is None else Floor(np.empty(0), share * (x * x).sum(1))
    return Shard(U, None, np.empty((0, U.shape[1])), U[:0], elsewhere, floor=floor)


def _squares(x: Array, components: Matrix) -> Array:
    """‖x‖² under a map on the features."""
    images = kernels_for(x).apply(x, components)
    return (images * images).sum(1)


def _n_lost(shard: Shard) -> int:
    """How many pairs have no length."""
    return int((shard.lengths(np.eye(shard.size)) == 0).sum())


def _lengths(shard: Shard, L: Matrix) -> Array:
    return shard.lengths(L)


def _extremes(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.sum())


def _added(values: Array, others: Array, factor: float, other_factor: float) -> Array:
    return factor * values + other_factor * others


def _shortest(shard: Shard, lengths: Array, count: int, below: float) -> tuple[Index, Matrix]:
    """The numbers and lengths of the shortest pairs of a shard."""
    numbers = shard.shortest(lengths, count, below)
    return numbers, to_host(lengths)[numbers]


def _differences(shard: Shard, numbers: Index) -> Matrix:
    return shard.differences(numbers)


def _kept(shard: Shard, numbers: Index) -> Matrix:
    return shard.kept(numbers)


def _soft_weights(lengths: Array, factor: float, least: float, smoothing: float) -> Array:
    """α of (7), before they are divided by their sum."""
    weights: Array = np.e ** ((least - factor * lengths) / smoothing)
    return weights


def _scatter(shard: Shard, weights: Array) -> Matrix:
    return shard.scatter(weights)
