"""How well the positions of sensors are known: standard errors, looseness, and which are pinned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from nearfar.estimators._small_program import (
    ScaledGraph,
)
from nearfar.problems.sensor_localization import (
    Elasticity,
    core,
    has_mirror_image,
)
from nearfar.solvers.batched import conjugate_gradients

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

LOOSE = 50.0  # times the error of a node whose neighbours are known, at which it is not pinned down
SAMPLES = 12  # of errors, from which standard errors and looseness are estimated
SOLVED = 1e-3  # relative error of the moves that errors cause: soft motions must show
TREMBLING = 1e-4  # and of those that show looseness: one loose node among many must show
STEPS = 1000  # to solve for them, at most


@dataclass(frozen=True)
class Firmness:
    """How well the positions of nodes are known; all (n,)."""

    errors: Matrix
    looseness: Matrix
    pinned: Mask

    @classmethod
    def unknown(cls, n: int) -> Firmness:
        """Of nodes of which nothing is known."""
        return cls(np.full(n, np.inf), np.full(n, np.inf), np.zeros(n, dtype=bool))

    def put(self, rows: NDArray[np.intp], part: Firmness) -> None:
        """Fill in some nodes."""
        self.errors[rows], self.looseness[rows] = part.errors, part.looseness
        self.pinned[rows] = part.pinned


def measure_firmness(
    scaled: ScaledGraph, Y: Matrix, misfits: Matrix, fixed: Mask, random: RandomState
) -> Firmness:
    """Standard errors, looseness, and which nodes are pinned down, from points Y and their misfits.

    Motions of the network are sampled: those that errors of the size of the misfits cause, and
    those of a network that trembles.
    """
    graph, (squares, weights), (n, r) = scaled.graph, scaled.edges.on_host(), Y.shape
    elasticity = Elasticity.build(graph.heads, graph.tails, weights, Y, fixed)
    signs = random.choice([-1.0, 1.0], size=(len(misfits), SAMPLES))
    spare = len(misfits) - r * (n - int(fixed.sum()))  # a fit hides errors of its own number
    inflated = misfits * np.sqrt(len(misfits) / max(spare, 1))

    def precondition(X: Matrix) -> Matrix:
        image: Matrix = scaled.spectrum.inverse(X.reshape(n, -1)).reshape(X.shape)
        return np.asarray(elasticity.free[:, :, None] * image)

    def solve(right: Matrix, tol: float) -> Matrix:
        return conjugate_gradients(elasticity.product, right, precondition, tol, STEPS)

    displacements = solve(elasticity.noise_forces(random, SAMPLES), TREMBLING)
    looseness = elasticity.looseness(elasticity.squares_beside_most(displacements, random))
    moved = solve(elasticity.moved_by(inflated[:, None] * signs), SOLVED)
    errors = scaled.unit * np.sqrt(elasticity.squares(moved))
    kept = core(n, graph.heads, graph.tails, r + 1, fixed)
    twofold = has_mirror_image(graph.heads, graph.tails, squares, Y)
    pinned = fixed | (kept & (looseness <= LOOSE) & ~twofold)
    return Firmness(np.where(pinned, errors, np.inf), looseness, pinned)
