"""Whitened coordinates of LMNN for rows in blocks: sums over shards in place of arrays.

The mathematics is that of `nearfar.problems.whitening`, whose equation numbers these are, and of
(7) in `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Task
from nearfar.blocks.rows import n_rows_at_a_time, rows_at_a_time
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.problems.lmnn_points import FLOOR, identity_prior
from nearfar.problems.lmnn_shard_rows import Base, joined, taken
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

MOST_ENDS = 1.5  # rows with the ends of their edges, for each row that may be in float64 at a time


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
        return blocks.folded(function, name="whiten", shared=shared)

    def edge_total(function: Any, *shared: Any) -> Any:
        return blocks.folded(function, bases, name="whiten", shared=shared)

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
    squares, total = [], 0.0
    for own, rows, heads, tails, masses in _parts(X, base, framing):
        points = framing.of(rows)
        squares.append(to_host((points[:own] * points[:own]).sum(0)))
        lengths = kernels_for(points).sq_lengths(points, heads, tails)
        total += float((masses * lengths).sum())
    return np.sum(squares, axis=0), total


def _unit_gram(X: Array, framing: Framing, factors: Matrix) -> tuple[Matrix, int]:
    """The Gram matrix of rows of scaled features and length 1, and how many are not zero."""
    gram, count = np.zeros((len(factors), len(factors))), 0
    for rows in rows_at_a_time(X):
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
    for part in rows_at_a_time(X):
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
    kernels, d = kernels_for(X), basis.shape[1]
    pull, gram, total = np.zeros((d, d)), np.zeros((d, d)), np.zeros(d)
    for own, rows, heads, tails, masses in _parts(X, base, framing):
        U = kernels.apply(framing.of(rows), basis.T)
        pull += kernels.gram(U, kernels.laplacian_matmul(heads, tails, masses, U))
        gram += kernels.gram(U[:own], U[:own])
        total += to_host(U[:own].sum(0))
    return pull, gram, total


def _parts(
    X: Array, base: Base, framing: Framing
) -> Iterator[tuple[int, Array, Array, Array, Array]]:
    """Some rows of X at a time: their number, they and the other ends of their edges, the edges.

    So few are in float64 at a time. Rows of one class follow each other, and most target
    neighbours are among them; where they are not, fewer rows are taken.
    """
    pieces, most = base.pieces(X), n_rows_at_a_time(X)
    waiting = [(first, min(first + most, len(X))) for first in range(0, max(len(X), 1), most)]
    waiting.reverse()
    while waiting:
        first, last = waiting.pop()
        cuts = slice(*np.searchsorted(base.heads, [first, last]))
        heads, tails = base.heads[cuts], base.tails[cuts]
        others = np.setdiff1d(tails, np.arange(first, last))
        if last - first + len(others) > MOST_ENDS * most and last - first > 1:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
            continue
        rows = X[first:last]
        inside = (tails >= first) & (tails < last)
        place = np.where(inside, tails - first, last - first + np.searchsorted(others, tails))
        found = joined([rows, taken(pieces, others)]) if len(others) else rows
        kernels = kernels_for(rows)
        weights = np.ones(len(heads))
        if framing.masses is not None:
            weights = framing.masses[base.ids[heads]]
        yield (
            last - first,
            found,
            kernels.index(heads - first, rows),
            kernels.index(place, rows),
            kernels.like(weights, kernels.double(rows[:0])),
        )
