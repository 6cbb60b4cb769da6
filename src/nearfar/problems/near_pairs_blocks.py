"""Pairs of rows that lie in blocks: `nearfar.problems.near_pairs` as sums over shards of pairs.

A shard holds the differences x of the pairs of one kind, near or far, in float64, as many as the
blocks of an array of all of them: their sizes depend on the number of pairs and features alone.
Shards are made on the workers from the rows that their pairs name. Differences of near pairs are
multiplied by √w, so that their weights are needed nowhere else.

Sums are in the order of the shards. What comes to this machine are sums of at most (d, d) numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Task, current_engine
from nearfar.blocks.engine import FAN_IN, Threads, added_up, unchanged
from nearfar.blocks.rows import BATCH, IN_FLIGHT, block_starts, floating, rows_at_a_time
from nearfar.kernels import Array, check_memory, kernels_for, take_rows, to_host
from nearfar.linalg import squared_norm
from nearfar.problems.lmnn_blocks_whitening import Framing, row_space
from nearfar.problems.near_pairs import reaching, refuse_apart, triangular
from nearfar.problems.whitening import SAMPLE_ROWS, gram_under, resolved
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Matrix = NDArray[np.float64]

COPIES = 2  # of a difference, in float64, that a fit holds: itself and its whitened coordinates


def check_room(shape: tuple[int, int], dtype: Any, n_pairs: int) -> None:
    """Raise if threads of this machine have no memory for so many rows and pairs of them."""
    n, d = shape
    if isinstance(current_engine(), Threads):
        check_memory(
            float(n) * d * floating(dtype).itemsize + 8.0 * COPIES * n_pairs * d,
            f"to hold the {n} rows that are named and the differences of {n_pairs} pairs",
            "Start a dask.distributed.Client of a cluster, give fewer pairs",
            np.empty(0),
        )


@dataclass(frozen=True)
class PairBlocks:
    """Differences of pairs in shards, as `nearfar.problems.near_pairs.NearAndFar`."""

    near: Blocks  # (m, d) √w x, float64
    far: Blocks  # (m, d) x, float64
    far_weights: list[Any]  # (·,) of each shard, as a task; None for ones
    near_total: float  # the sum of the weights of the near pairs
    live: Mask  # (d,) features that vary among the rows
    variance: Matrix  # (d,) of the rows
    dtype: np.dtype[Any]  # of the rows

    @classmethod
    def of(cls, pairs: Pairs) -> PairBlocks:
        """The differences of pairs whose points are `Blocks`."""
        rows: Blocks = pairs.points
        first = rows.take(np.zeros(1, dtype=np.intp))
        counts, sums = rows.total(_about_first, name="variance", shared=(first,))
        mean = to_host(kernels_for(first).double(first))[0] + sums / rows.shape[0]
        squares = rows.total(_squares_about, name="variance", shared=(mean,))
        near_weights, far_weights = pairs.near_weights, pairs.far_weights
        roots = None if near_weights is None else np.sqrt(near_weights)
        far = differences(rows, *pairs.far_edges())
        parts = [None] * len(far)
        if far_weights is not None:
            parts = rows.engine.map(unchanged, far.split(far_weights), name="weights")
        return cls(
            near=differences(rows, *pairs.near_edges(), roots),
            far=far,
            far_weights=parts,
            near_total=pairs.near_total,
            live=counts > 0,
            variance=squares / rows.shape[0],
            dtype=rows.dtype,
        )

    # -- what `whitened_by_near_pairs` needs -----------------------------------------------------

    def constant(self) -> Mask:
        """As `NearAndFar.constant`."""
        return ~self.live

    def near_scatter(self) -> Matrix:
        """As `NearAndFar.near_scatter`."""
        return np.asarray(self.near.folded(_gram, name="scatter"))

    def near_rows(self) -> Matrix:
        """As `NearAndFar.near_rows`: a triangular factor."""
        factors = self.near.map(_triangular, name="factor")
        while len(factors) > 1:
            groups = [factors[first : first + FAN_IN] for first in range(0, len(factors), FAN_IN)]
            factors = [
                self.near.engine.map(triangular, *([part] for part in some), name="factor")[0]
                for some in groups
            ]
        return np.asarray(self.near.engine.results(factors)[0])

    def whitened(self, near: Matrix, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """As `NearAndFar.whitened`."""
        far, n, d = self.far, *self.far.shape
        framing = Framing(np.zeros(d), None, None)

        def total(function: Callable[..., Any], *shared: Any) -> Any:
            return added_up(
                far.folded(function, name="whiten", shared=shared), function(near, *shared)
            )

        def measured(basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
            gram, sums = far.folded(_moments, name="whiten", shared=(basis,))
            return gram_under(kernels_for(near), near, basis), gram, sums

        sample = np.abs(to_host(far.take(np.arange(0, n, -(-n // SAMPLE_ROWS)))))
        squares = np.asarray(far.total(_squares, name="whiten"))
        basis, dual = row_space(total, framing, sample, np.sqrt(squares / n), n)
        basis, dual, P, _ = resolved(basis, dual, measured, n, self.near_total, ridge)
        return basis, dual, P

    def refuse_unbounded(self, basis: Matrix, null: Matrix, *, equal: bool) -> None:
        """As `NearAndFar.refuse_unbounded`."""
        self._refuse(_apart, basis, null, equal=equal)

    def refuse_features(self, scale: Matrix, null: Mask, *, equal: bool) -> None:
        """Raise if far pairs differ in the features ``null``, which are divided by a scale."""
        self._refuse(_apart_in_features, scale, null, equal=equal)

    def _refuse(self, function: Callable[..., Index], *shared: Any, equal: bool) -> None:
        found = self.far.results(function, name="unbounded", shared=shared)
        apart = [first + part for first, part in zip(self.far.starts, found, strict=False)]
        refuse_apart(np.concatenate(apart), self.far.shape[0], equal=equal)

    # -- what a floor and a certificate need -----------------------------------------------------

    @cached_property
    def near_squares(self) -> Matrix:
        """The diagonal of Σ_near xxᵀ."""
        return np.asarray(self.near.total(_squares, name="near_squares"))

    def floor(self, shrinkage: float) -> tuple[Matrix, float]:
        """The diagonal of (3) for b = 1, and its number φ, which is that of features that vary."""
        spread = float(self.near_squares.sum())
        share = shrinkage / spread if spread > 0 else 0.0
        return share * self.live.astype(np.float64), share

    def size(self, components: Matrix, regularization: float) -> float:
        """⟨H, A⟩ of (1) for the metric A of a map, from the differences of the near pairs."""
        found = self.near.total(_squares, name="near_images", shared=(components,))
        ridge = regularization * float(self.near_squares.sum()) / max(int(self.live.sum()), 1)
        return float(np.sum(found)) + ridge * squared_norm(components)


def differences(rows: Blocks, heads: Index, tails: Index, factors: Matrix | None = None) -> Blocks:
    """The differences of pairs of rows, times factors, in float64; few shards are made at a time.

    A task gets the rows that the pairs of its shard name: twice the rows of a block, at most.
    """
    engine, d = rows.engine, rows.shape[1]
    starts = block_starts((len(heads), d), np.float64)
    found = Blocks(engine, [], starts, (len(heads), d), np.dtype(np.float64))
    waiting: list[list[Task]] = []
    for some in _batches(found.rows, BATCH * engine.n_at_a_time()):
        ids = [np.unique(np.concatenate([heads[shard], tails[shard]])) for shard in some]
        ends = [
            [np.searchsorted(own, end[shard]) for own, shard in zip(ids, some, strict=True)]
            for end in (heads, tails)
        ]
        own_factors = [None if factors is None else factors[shard] for shard in some]
        tasks = engine.map(_differences, rows.fetch(ids), *ends, own_factors, name="differences")
        found.parts.extend(tasks)
        waiting.append(tasks)
        if len(waiting) > IN_FLIGHT:
            engine.finish(waiting.pop(0))
    engine.finish(found.parts)
    return found


def _batches(items: list[slice], size: int) -> Iterator[list[slice]]:
    return (items[first : first + size] for first in range(0, len(items), size))


# -- tasks -----------------------------------------------------------------------------------------


def _differences(pieces: list[Array], heads: Index, tails: Index, factors: Matrix | None) -> Array:
    kernels = kernels_for(pieces[0])
    rows = pieces[0] if len(pieces) == 1 else kernels.concatenate(pieces)
    found = kernels.double(take_rows(rows, heads)) - take_rows(rows, tails)
    return found if factors is None else found * kernels.like(factors, found)[:, None]


def _about_first(block: Array, first: Array) -> tuple[Index, Matrix]:
    """How many rows differ from the first in each feature, and by how much in total."""
    kernels = kernels_for(block)
    sums = [
        to_host((kernels.double(part) - kernels.double(first)).sum(0))
        for part in rows_at_a_time(block)
    ]
    return to_host((block != first).sum(0)), np.asarray(added_up(*sums))


def _squares_about(block: Array, mean: Matrix) -> Matrix:
    """Sums of squares of each feature, relative to the mean."""
    kernels, sums = kernels_for(block), []
    for part in rows_at_a_time(block):
        points = kernels.double(part)
        points = points - kernels.like(mean, points)
        sums.append(to_host((points * points).sum(0)))
    return np.asarray(added_up(*sums))


def _gram(x: Array) -> Matrix:
    gram: Matrix = kernels_for(x).gram(x, x)
    return gram


def _triangular(x: Array) -> Matrix:
    return triangular(to_host(x))


def _moments(x: Array, basis: Matrix) -> tuple[Matrix, Matrix]:
    """The Gram matrix and the sum of differences in the coordinates of a basis."""
    kernels = kernels_for(x)
    U = kernels.apply(x, basis.T)
    return kernels.gram(U, U), to_host(U.sum(0))


def _squares(x: Array, components: Matrix | None = None) -> Matrix:
    """Sums of squares of each feature, or of each row of a map."""
    images = x if components is None else kernels_for(x).apply(x, components)
    return to_host((images * images).sum(0))


def _apart(x: Array, basis: Matrix, null: Matrix) -> Index:
    """Which pairs differ along directions of the coordinates of a basis."""
    kernels = kernels_for(x)
    U = kernels.apply(x, basis.T)
    Z = kernels.apply(U, null.T)
    return to_host(reaching(kernels, (Z * Z).sum(1), (U * U).sum(1)))


def _apart_in_features(x: Array, scale: Matrix, null: Mask) -> Index:
    """Which pairs differ in these features, which are divided by a scale."""
    kernels = kernels_for(x)
    unit = x / kernels.like(scale, x)
    along = unit * kernels.like(null, x)
    return to_host(reaching(kernels, (along * along).sum(1), (unit * unit).sum(1)))
