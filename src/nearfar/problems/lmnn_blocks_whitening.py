"""Whitened coordinates of LMNN for rows in blocks: sums over shards in place of arrays.

The mathematics is that of `nearfar.problems.whitening`, whose equation numbers these are, and of
(7) in `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Task
from nearfar.kernels import Array, kernels_for, row_blocks, to_host
from nearfar.problems.lmnn_points import FLOOR, identity_prior
from nearfar.problems.lmnn_shards import Base, joined
from nearfar.problems.whitening import (
    LOST,
    SAMPLE_ROWS,
    feature_scales,
    resolved,
    span_of_gram,
    unit_rows,
)

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Whitened:
    """Coordinates, and what (7) of LMNN needs beside them."""

    basis: Matrix
    dual_basis: Matrix
    P: Matrix
    Q: Matrix
    prior: Matrix
    prior_inverse: Matrix
    ridge: float
    floor: float
    edge_pull: float  # (1−μ) Σ_e m_e ‖We‖²


@dataclass(frozen=True)
class Framing:
    """How rows are placed before they are whitened: W(x − centre), and the weights of rows."""

    centre: Matrix
    prior: Matrix | None
    masses: Matrix | None

    def of(self, rows: Array) -> Array:
        """The rows, in float64."""
        kernels = kernels_for(rows)
        points = kernels.double(rows)
        points = points - kernels.like(self.centre, points)
        return points if self.prior is None else kernels.apply(points, self.prior)

    def edges(self, base: Base, points: Array) -> tuple[Array, Array, Array]:
        """Heads, tails and weights of the target edges."""
        kernels = kernels_for(points)
        heads, tails = (kernels.index(end, points) for end in (base.heads, base.tails))
        masses = np.ones(len(base.heads))
        if self.masses is not None:
            masses = self.masses[base.ids[base.heads]]
        return heads, tails, kernels.like(masses, points)


def whitened_blocks(
    blocks: Blocks,
    bases: list[Task],
    centre: Matrix,
    edges: tuple[Index, Index],
    weight: float,
    shrinkage: float,
    *,
    prior: tuple[Matrix, Matrix] | None,
    masses: Matrix | None,
) -> Whitened:
    """`nearfar.problems.whitening.whitened` of the pull of target edges, by sums over shards."""

    def total(function: Any, *shared: Any) -> Any:
        return blocks.total(function, name="whiten", shared=shared)

    def edge_total(function: Any, *shared: Any) -> Any:
        return blocks.total(function, bases, name="whiten", shared=shared)

    n = blocks.shape[0]
    count = float(len(edges[0]) if masses is None else masses[edges[0]].sum())
    framing = Framing(centre, None if prior is None else prior[0], masses)
    squares, edge_squares = edge_total(_squares, framing)
    W, inverse = identity_prior(squares > 0, shrinkage > 0) if prior is None else prior
    ridge = floor = 0.0
    if shrinkage and edge_squares > 0:
        r = shrinkage / (1 - shrinkage)
        ridge = weight * r * edge_squares / len(W)
        floor = FLOOR * r * count / edge_squares
    sample = to_host(framing.of(blocks.take(np.arange(0, n, -(-n // SAMPLE_ROWS)))))
    basis, dual = row_space(total, framing, np.abs(sample), np.sqrt(squares / n), n)

    def measured(basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        pull, gram, sums = edge_total(_sums, framing, basis)
        return weight * pull, gram, sums

    basis, dual, P, Q = resolved(basis, dual, measured, n, weight * count, ridge)
    if prior is not None:
        basis, dual = W.T @ basis, inverse @ dual
    return Whitened(basis, dual, P, Q, W, inverse, ridge, floor, weight * edge_squares)


def row_space(
    total: Any, framing: Framing, sample: Matrix, deviation: Matrix, n: int
) -> tuple[Matrix, Matrix]:
    """As the function of that name in `nearfar.problems.whitening`."""
    scale, varies = feature_scales(sample, deviation, n)
    gram, n_live = total(_unit_gram, framing, varies / scale)
    span = np.where(varies[:, None], span_of_gram(gram), 0.0)
    basis, dual = span / scale[:, None], span * scale[:, None]
    if span.shape[1] == min(int(varies.sum()), int(n_live)):
        return basis, dual
    inverse = varies / np.where(varies, deviation, 1.0)
    gram, n_lost = total(_lost_gram, framing, basis, dual, inverse)
    if not n_lost:
        return basis, dual
    found = np.where(varies[:, None], span_of_gram(gram), 0.0)
    read, added = found / np.where(varies, deviation, 1.0)[:, None], found * deviation[:, None]
    return np.hstack([basis, read - basis @ (dual.T @ read)]), np.hstack([dual, added])


def _squares(X: Array, base: Base, framing: Framing) -> tuple[Matrix, float]:
    """Sums of squares of each coordinate of the rows, and of the target edges."""
    points = joined([framing.of(rows) for rows in base.pieces(X)])
    own = points[: len(X)]
    heads, tails, masses = framing.edges(base, points)
    lengths = kernels_for(points).sq_lengths(points, heads, tails)
    return to_host((own * own).sum(0)), float((masses * lengths).sum())


def _unit_gram(X: Array, framing: Framing, factors: Matrix) -> tuple[Matrix, int]:
    """The Gram matrix of rows of scaled features and length 1, and how many are not zero."""
    gram, count = np.zeros((len(factors), len(factors))), 0
    for rows in row_blocks(X):
        points = framing.of(rows)
        kernels = kernels_for(points)
        scaled = points * kernels.like(factors, points)
        unit = unit_rows(scaled)
        gram += kernels.gram(unit, unit)
        count += int((scaled != 0).any(1).sum())
    return gram, count


def _lost_gram(
    X: Array, framing: Framing, basis: Matrix, dual: Matrix, inverse: Matrix
) -> tuple[Matrix, int]:
    """The same of what a basis loses of rows that lose much."""
    gram, count = np.zeros((len(inverse), len(inverse))), 0
    for part in row_blocks(X):
        points = framing.of(part)
        kernels = kernels_for(points)
        factors = kernels.like(inverse, points)
        lost = (points - kernels.apply(kernels.apply(points, basis.T), dual)) * factors
        whole = ((points * factors) ** 2).sum(1)
        rows = kernels.flatnonzero((lost * lost).sum(1) > LOST**2 * whole)
        unit = unit_rows(lost[rows])
        gram += kernels.gram(unit, unit)
        count += len(rows)
    return gram, count


def _sums(X: Array, base: Base, framing: Framing, basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Pull of the edges, Gram matrix and sum of the rows, in the coordinates of a basis."""
    kernels = kernels_for(X)
    U = joined(
        [
            kernels.apply(framing.of(rows), basis.T)
            for piece in base.pieces(X)
            for rows in row_blocks(piece)
        ]
    )
    own = U[: len(X)]
    heads, tails, masses = framing.edges(base, U)
    pull = kernels.gram(U, kernels.laplacian_matmul(heads, tails, masses, U))
    return pull, kernels.gram(own, own), to_host(own.sum(0))
