"""Relevant component analysis of rows in blocks: the equations of `nearfar.problems.rca`.

C and T of (1) and (2) are sums over blocks, in one pass over the rows; in coordinates of a subspace
they are summed once more, from the rows in these coordinates, so that no digits are lost to the
units of features. What is small, d × d matrices, is on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.scatter import Scatter
from nearfar.linalg import symmetric
from nearfar.problems.rca import RCAProblem, leading_directions
from nearfar.supervision.labelled_blocks import GroupedStream

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ChunkletBlocks:
    """Rows in blocks, features of which are multiplied by ``scale``, and their chunklets."""

    rows: GroupedStream
    centre: Matrix  # (d,) the first row
    within: Scatter  # of the rows as they were given
    live: NDArray[np.bool_]  # (d,) the features that count
    scale: Matrix  # (d,)

    @property
    def count(self) -> float:
        """N, the weight of the rows in chunklets."""
        return self.within.weight

    @property
    def n_live(self) -> int:
        """Features that vary."""
        return int(self.live.sum())

    def in_features(self) -> RCAProblem:
        """As `RCAProblem.in_features`."""
        C = self.within.within / self.count * self.scale * self.scale[:, None]
        return RCAProblem.of_covariance(C, self.count, self.live)

    def in_span(self, principal: float | None, *, orthogonal: bool) -> RCAProblem:
        """As `RCAProblem.in_span`."""
        _, T = self._covariances(np.eye(len(self.live))[self.live])
        deviations = np.sqrt(np.diag(T))
        plain = principal is not None or orthogonal
        units = np.ones(len(T)) if plain else np.where(deviations > 0, deviations, 1.0)
        lengths, vectors = leading_directions(T / units / units[:, None], principal)
        basis, dual = np.zeros((2, len(self.live), len(lengths)))
        basis[self.live] = vectors / lengths / units[:, None]
        dual[self.live] = vectors * lengths * units[:, None]
        C, T = self._covariances(basis.T)
        return RCAProblem(C, self.count, T, basis, dual)

    def within_images(self, problem: RCAProblem, L: Matrix) -> Matrix:
        """As `RCAProblem.within_images`."""
        return problem.shrunk_images(self._covariances(L)[0], L)

    def _covariances(self, L: Matrix) -> tuple[Matrix, Matrix]:
        """C of (1) and T of (2) of the images under L."""
        within, total, *_ = self.rows.scatters(self.centre, L * self.scale, total=True)
        assert total is not None, "asked for above"
        return symmetric(within.within) / self.count, symmetric(total.within) / total.weight
