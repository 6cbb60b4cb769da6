"""MCML and NCA on rows in blocks: sums over soft neighbours as sums over pairs of blocks.

The equations are those of `nearfar.problems.soft_neighbors`. With E_ij = −D(i, j), which is
symmetric, a pair of blocks is visited once and counts both ways. An evaluation takes two visits:

(1) totals    tᵢ = maxⱼ E_ij, Σⱼ mⱼ exp(E_ij − tᵢ) and its class's part, of the rows of a pair of
              blocks. Those of a row from all blocks are joined: log Zᵢ, and the share pᵢ
(2) weights   ω_ij = w_ij + w_ji with w_ij = mᵢ p(j|i), or mᵢ p(j|i)([yᵢ = yⱼ] − pᵢ) for NCA, which
              need Z of both rows, and so a second visit
(3) spread    S = Σ over pairs of blocks (A, B) of  U_Aᵀ deg U_A + U_Bᵀ deg U_B − 2 sym(U_Aᵀ Ω U_B),
              deg the sums of Ω over its columns and rows; for A = B of Ω above its diagonal
(4) few rows  L S = Σ (deg Z_A − Ω Z_B)ᵀ U_A + (deg Z_B − ΩᵀZ_A)ᵀ U_B

One visit would not do: a column sum Σᵢ w_ij needs 1 / Zᵢ of all rows i, and second moments for each
row, from which it could be made up later, would take n d² numbers.

Cost of an evaluation with b blocks, n rows, d features and a map of r rows:

- tasks: b (b + 1) on pairs, b (b − 1) that move blocks, b, and for more than FAN_IN blocks about
  b² / FAN_IN that join totals and sums;
- bytes: (b − 1) n d numbers of rows, at most 6 b n of totals, and b² d² / 2 of sums;
- work: n² (r + d / 2) multiplications, or n² (r + r) for few rows, and n² exponentials. In memory
  it is n² (r + d), n² (r + 2 r) and n². Images are computed for each pair of blocks, which adds a
  share of order b d / n.

Bytes for each multiplication are of order b / n: the larger the blocks, the less moves, but there
must be more pairs than workers. ROWS is between the two. A worker holds its rows, the blocks of
IN_FLIGHT rounds, and in a task some copies of two blocks; tables of pairs are tiles. This machine
holds labels, weights, log Z and p: some numbers for each row, and matrices (d, d).

All tasks are pure, nothing depends on history, and sums are in the order of the pairs: the same
bits on any number of workers, and after the loss of one. Images come from the rows in float64,
relative to the centre, and are rounded to float32 for rows in float32; proofs are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.blocks import Blocks, Task
from nearfar.blocks.engine import FAN_IN, unchanged
from nearfar.blocks.pairs import met_once
from nearfar.kernels import Array, to_host
from nearfar.kernels.tiles import labels_of
from nearfar.linalg import symmetric
from nearfar.problems import soft_neighbors_tasks as work
from nearfar.problems.lmnn_blocks_whitening import Framing, row_space
from nearfar.problems.soft_neighbors import (
    INEXACT,
    NARROW,
    ROUNDINGS,
    SoftNeighborsProblem,
    Sums,
    counted_masses,
    price_and_floor,
    pull_scales,
)
from nearfar.problems.soft_neighbors_tasks import Labelled
from nearfar.problems.whitening import SAMPLE_ROWS, resolved

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

ROWS = 1 << 14  # of a block, at most: a pair of blocks takes seconds, and many workers have a share


@dataclass(frozen=True)
class BlockRows:
    """Rows in blocks, sorted by class, with their classes and weights."""

    blocks: Blocks
    centre: Matrix  # (features,) one of the rows
    starts: Index  # of the classes
    masses: Matrix | None  # (n,)
    labels: list[Task]  # Labelled, of each block
    means: list[Task]  # means (·, features) of the classes from each block's first to its last

    @classmethod
    def of(cls, blocks: Blocks, centre: Matrix, starts: Index, masses: Matrix | None) -> BlockRows:
        """Send each block its labels, and find the means of the classes."""
        codes, counted = labels_of(starts), counted_masses(starts, masses)
        shares, scales = map(np.concatenate, zip(*pull_scales(starts, masses), strict=True))
        columns = [blocks.split(values) for values in (codes, counted, shares, scales)]
        of_masses = [None] * len(blocks) if masses is None else blocks.split(masses)
        labels = blocks.engine.map(Labelled, columns[0], of_masses, *columns[1:], name="labels")
        found = blocks.results(work.class_sums, labels, name="class_means", shared=(centre,))
        means = np.zeros((len(starts) - 1, blocks.shape[1]))
        for own, sums in zip(columns[0], found, strict=True):
            means[own[0] : own[-1] + 1] += sums
        of_blocks = [means[own[0] : own[-1] + 1] for own in columns[0]]
        sent = blocks.engine.map(unchanged, of_blocks, name="class_means")
        return cls(blocks, centre, starts, masses, labels, sent)

    @property
    def weight(self) -> float:
        """N, the weight of the rows that are not alone in their class."""
        return float(counted_masses(self.starts, self.masses).sum())

    def total(self, function: Callable[..., Any], *shared: Any, name: str) -> Any:
        """The sum of ``function(block, labels, means, centre, *shared)`` over blocks."""
        more = (self.centre, *shared)
        return self.blocks.total(function, self.labels, self.means, name=name, shared=more)

    def pull_squares(self, F: Matrix) -> float:
        """⟨S(p₀), FᵀF⟩ for a map on the features."""
        return float(self.total(work.pull_squares, F, name="pull"))

    def moments(self, basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """S(p₀), the Gram matrix and the sum of the rows, in the coordinates of a basis."""
        pull, gram, total = self.total(work.moments, basis, name="whiten")
        return pull, gram, total

    # -- visits of pairs -------------------------------------------------------------------------

    def ends(self, F: Matrix, single: bool, differences: bool = False) -> list[Task]:
        """(1) under a map F on the features, in float32 or in float64, for each block."""
        blocks, shared = self.blocks, (self.centre, F, single, differences)
        met: list[list[tuple[Task, int]]] = [[] for _ in self.labels]
        for pairs, tasks in met_once(
            blocks, work.pair_totals, self.labels, name="soft_neighbors", shared=shared
        ):
            for pair, task in zip(pairs, tasks, strict=True):
                for end in (0,) if pair[0] == pair[1] else (0, 1):
                    met[pair[end]].append((task, end))
            full = [found for found in met if len(found) >= FAN_IN]
            joined = blocks.engine.map(work.joined, *_columns(full), name="join_totals")
            for found, task in zip(full, joined, strict=True):
                found[:] = [(task, 0)]
        return blocks.map(
            work.ends_of, self.labels, *_columns(met), name="totals", shared=(self.centre, F)
        )

    def spread(
        self, ends: list[Task], F: Matrix, basis: Matrix, L: Matrix | None, single: bool, own: bool
    ) -> Matrix:
        """S of (3) in the coordinates of a basis, or L S of (4) for a map of few rows."""
        components = None if L is None else L @ basis.T
        tasks = [
            task
            for _, some in met_once(
                self.blocks,
                work.pair_spread,
                self.labels,
                ends,
                name="gradient",
                shared=(self.centre, F, basis, components, single, own),
            )
            for task in some
        ]
        return np.asarray(self.blocks.engine.total(tasks))


def _columns(met: list[list[tuple[Task, int]]]) -> tuple[list[list[Task]], list[list[int]]]:
    """Tasks, and which of the blocks of a pair is meant, for each block."""
    return [[task for task, _ in found] for found in met], [[e for _, e in found] for found in met]


@dataclass(frozen=True)
class Mapped:
    """All rows under a map on the features: images that are computed where the rows are."""

    components: Matrix


@dataclass(frozen=True, kw_only=True)
class SoftNeighborBlocks(SoftNeighborsProblem):
    """The problem on rows in blocks. U has no rows here: it says the type alone."""

    rows: BlockRows

    @classmethod
    def shrunk(
        cls,
        X: Blocks,
        centre: Matrix,
        starts: Index,
        shrinkage: float,
        masses: Matrix | None = None,
        *,
        floored: bool = True,
    ) -> Self:
        """As `SoftNeighborsProblem.shrunk`, of rows in blocks, sorted by class."""
        rows = BlockRows.of(X, np.asarray(centre), starts, masses)
        regularization, floor = 0.0, np.zeros(X.shape[1])
        if shrinkage:
            first = X.take(np.zeros(1, dtype=np.intp))
            varies = np.asarray(X.total(work.differing, name="varying", shared=(first,))) > 0
            weight = rows.weight if floored else 0.0
            total = cls.near_squares_of(rows)
            regularization, floor = price_and_floor(shrinkage, total, varies, weight)
        basis, dual, P, Q = cls.whitened(rows, regularization)
        width = basis.shape[1]
        return cls(
            U=np.empty((0, width), dtype=X.dtype),
            starts=starts,
            basis=basis,
            dual_basis=dual,
            P=P,
            ridge=regularization * (basis.T @ basis),
            Q=Q,
            regularization=regularization,
            floor=floor,
            masses=masses,
            exact=lambda: np.empty((0, width)),
            images=Mapped,
            rows=rows,
        )

    @classmethod
    def near_squares_of(cls, rows: BlockRows) -> float:
        """T of (5)."""
        return rows.pull_squares(np.eye(rows.blocks.shape[1]))

    @classmethod
    def whitened(cls, rows: BlockRows, ridge: float) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Basis, dual basis, P and Q, as `nearfar.problems.whitening.whitened` has them."""
        blocks, n = rows.blocks, rows.blocks.shape[0]
        framing = Framing(rows.centre, None, None)

        def total(function: Any, *shared: Any) -> Any:
            return blocks.total(function, name="whiten", shared=shared)

        sample = to_host(framing.of(blocks.take(np.arange(0, n, -(-n // SAMPLE_ROWS)))))
        squares = np.asarray(rows.total(work.squares, name="whiten"))
        basis, dual = row_space(total, framing, np.abs(sample), np.sqrt(squares / n), n)
        return resolved(basis, dual, rows.moments, n, rows.weight, ridge)

    def _pull(self, Z: Mapped) -> float:
        """Σᵢⱼ mᵢ p₀(j|i) D(i, j) of images."""
        return self.rows.pull_squares(Z.components)

    def sums(self, L: Matrix, U: Array | None = None, own: bool = False) -> Sums:
        """As `SoftNeighborsProblem.sums`, in two visits of all pairs of blocks."""
        single = (self.U if U is None else U).itemsize == 4
        F = L @ self.basis.T
        if self.floor.any():  # no more rows than features
            stacked = np.vstack([F, np.diag(self.floor**0.5)])
            F = linalg.qr(stacked, mode="r")[0][: len(self.floor)]
        return self._sums_under(F, L, single, own)

    def _sums_under(self, F: Matrix, L: Matrix, single: bool, own: bool) -> Sums:
        """The sums at a factor L, where F is a map of φI + A on the features."""
        narrow, ends = len(L) < NARROW * L.shape[1], self.rows.ends(F, single)
        found = self.rows.spread(ends, F, self.basis, L if narrow else None, single, own)
        logs, shares, length = self._gathered(ends)
        precision = 2.0**-23 if single else 2.0**-52
        rounding = ROUNDINGS * precision * length
        if narrow:
            return Sums(logs, shares, found, None, rounding)
        spread = symmetric(found)
        return Sums(logs, shares, L @ spread, spread, rounding)

    def _gathered(self, ends: list[Task]) -> tuple[Matrix, Matrix, float]:
        """log Zᵢ and pᵢ of all rows, and the length of their squared lengths times weights."""
        found = self.rows.blocks.engine.results(ends)
        logs = np.concatenate([part.logs for part in found])
        shares = np.concatenate([part.shares for part in found])
        return logs, shares, sum(part.length for part in found) ** 0.5

    def soft_neighbors_of(self, components: Matrix) -> tuple[Mapped, Matrix, Matrix]:
        """As `SoftNeighborsProblem.soft_neighbors_of`."""
        rows = self.rows
        largest = max(
            rows.blocks.results(
                work.largest_square, name="images", shared=(rows.centre, components)
            )
        )
        inexact = ROUNDINGS * np.finfo(np.float64).eps * largest > INEXACT
        ends = rows.ends(components, single=False, differences=inexact)
        return Mapped(components), *self._gathered(ends)[:2]
