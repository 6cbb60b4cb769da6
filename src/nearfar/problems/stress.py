"""Points that fit the lengths of the edges of a graph: the refinement of `variational_mvu`.

With the edges e = (i, j), weights w and squares D of `nearfar.problems.variational_mvu`, Y (n, r)
the points, ȳ their mean, and ℓₑ = ‖yᵢ − yⱼ‖²:

(1) minimise F(Y) = Σₑ wₑ (ℓₑ − Dₑ)² − 2ρλ Σᵢ ‖yᵢ − ȳ‖²                 [Thesis, 3.1.8 and eq. 3.26]
(2) gradient ∇F = 4 Lap(w(ℓ − D)) Y − 4ρλ (Y − ȳ)
(3) line     F(Y + tP) is a polynomial of degree 4 in t, because ℓ − D of it is
             ℓ − D + 2t ⟨yᵢ − yⱼ, pᵢ − pⱼ⟩ + t² ‖pᵢ − pⱼ‖²
(4) fixed    fixed nodes are left out of the gradient (2) and of directions; then ρ = 0

F is not convex. Its global minimum over Y of enough columns is minus the optimum of the program of
`variational_mvu` for U = I.

[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for, to_device_of
from nearfar.problems.variational_mvu import Edges

Matrix = NDArray[np.float64]

Ray = tuple[Array, Array, Array]
"""A direction P, and 2⟨yᵢ − yⱼ, pᵢ − pⱼ⟩ and ‖pᵢ − pⱼ‖² of the edges."""

FLOOR = 1e-10  # share of Σ wD² below which a misfit counts as none


@dataclass(frozen=True)
class Evaluation:
    """Points with (1) and (2), where the edges are."""

    Y: Array  # (n, r)
    excess: Array  # (e,) ℓ − D
    value: float  # F
    gradient: Array  # (n, r)
    size: float  # Σ w(ℓ − D)² + 2ρλ Σ ‖yᵢ − ȳ‖² + FLOOR Σ wD²: what a gain is compared with


@dataclass(frozen=True)
class Stress:
    """Equations (1) to (4). Time O(e r) for a place and for a line, memory O(e + n r)."""

    edges: Edges
    pull: float = 0.0  # 2ρλ
    free: Array | None = None  # (n, 1), 0 for fixed nodes and 1 for the others, like the edges

    def place(self, Y: Array) -> Evaluation:
        """Evaluate (1) and (2) for points on the host or where the edges are."""
        Y = to_device_of(self.edges.squares, Y)
        return self._evaluate(Y, self.edges.excess(Y))

    def _evaluate(self, Y: Array, excess: Array) -> Evaluation:
        edges = self.edges
        misfit = float(edges.weights @ (excess * excess))
        centred = Y - Y.mean(0)
        variance = self.pull * _dot(centred, centred)
        gradient = 4 * edges.laplacian_matmul(excess, Y) - (2 * self.pull) * centred  # (2)
        if self.free is not None:
            gradient = self.free * gradient
        none = FLOOR * float(edges.weights @ (edges.squares * edges.squares))
        return Evaluation(Y, excess, misfit - variance, gradient, misfit + variance + none)

    def line(self, at: Evaluation, direction: Array) -> tuple[Matrix, Ray]:
        """Coefficients of t⁴ … t¹ of F(Y + tP) − F(Y), and the line for `moved`."""
        edges = self.edges
        cross, square = kernels_for(at.Y).edge_products(at.Y, direction, edges.heads, edges.tails)
        w, slope = edges.weights, 2 * cross
        centred, change = at.Y - at.Y.mean(0), direction - direction.mean(0)
        coefficients = np.array(
            [
                float(w @ (square * square)),
                2 * float(w @ (slope * square)),
                float(w @ (slope * slope + 2 * at.excess * square))
                - self.pull * _dot(change, change),
                2 * float(w @ (at.excess * slope)) - 2 * self.pull * _dot(centred, change),
            ]
        )
        return coefficients, (direction, slope, square)

    def moved(self, at: Evaluation, line: Ray, t: float) -> Evaluation:
        """The place Y + tP on a `line`."""
        direction, slope, square = line
        return self._evaluate(at.Y + t * direction, at.excess + t * slope + t * t * square)  # (3)


def _dot(A: Array, B: Array) -> float:
    return float(A.ravel() @ B.ravel())
