"""Unfoldings of few dimensions as points Y (n, r), K = YYᵀ: no matrix of n × n numbers.

With edges e = (i, j) of squares D as in `nearfar.problems.variational_mvu`, ȳ the mean of the
points, ℓₑ = ‖yᵢ − yⱼ‖², and prices of growing and shrinking, u and v, some of them 0 or infinite:

(1) maximise c tr K − Σₑ hₑ(ℓₑ − Dₑ),  hₑ(x) = max of mx over −vₑ ≤ m ≤ uₑ, the cost of a change
(2) dual     minimise Σₑ Dₑmₑ over −v ≤ m ≤ u with Lap(m) ⪰ cI on vectors of mean zero
(3) smoothed φₑ(x) = max of mx − (m − yₑ)² / 2βₑ over −vₑ ≤ m ≤ uₑ, reached at
             mₑ = yₑ + βₑx, limited to [−vₑ, uₑ]
(4) minimise F(Y) = Σₑ φₑ(ℓₑ − Dₑ) − c Σᵢ ‖yᵢ − ȳ‖²
(5) gradient ∇F = 2 Lap(m) Y − 2c (Y − ȳ)
(6) line     ℓ − D of Y + tP is ℓ − D + 2t ⟨yᵢ − yⱼ, pᵢ − pⱼ⟩ + t² ‖pᵢ − pⱼ‖²
(7) update   y := m, and β grows where changes are forbidden
(8) gap      (8) of `nearfar.problems.mvu` with y = Dm/c; for "shrink" Y is made smaller first, so
             that no edge is longer than it may be

(1) is the program of `nearfar.problems.mvu` in units in which the variance has the weight c:
"equal" has u = v = ∞, "shrink" v = 0, "slack" finite prices. (3) and (7) are the method of
multipliers. The squared changes of `variational_mvu`, halved, are (3) with y = 0, β = w and no
limits: there F itself is minimised, nothing is updated, and Σ m²/2w is added to (2).

Any m that is proved to be feasible in (2) bounds (1) [`nearfar.problems.unfolding_bound`]. At a
minimum of F with enough columns m is feasible, and optimal for the smoothed program [Burer].

[Burer] Burer & Monteiro, A nonlinear programming algorithm for solving semidefinite programs via
low-rank factorization, Mathematical Programming 95, 2003.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for, to_device_of
from nearfar.problems.variational_mvu import Edges

Matrix = NDArray[np.float64]

STIFFER = 1.03  # growth of β in (7)


@dataclass(frozen=True)
class Evaluation:
    """Points with (3), (4) and (5), where the edges are."""

    Y: Array  # (n, r)
    excess: Array  # (e,) ℓ − D
    forces: Array  # (e,) m
    value: float  # F
    gradient: Array  # (n, r)
    stiffness: Array  # (e,) β


@dataclass(frozen=True)
class Line:
    """F along Y + tP."""

    program: LowRankProgram
    excess: Array
    slope: Array  # (e,) 2⟨yᵢ − yⱼ, pᵢ − pⱼ⟩
    square: Array  # (e,) ‖pᵢ − pⱼ‖²
    variances: tuple[float, float, float]  # coefficients of c Σ ‖yᵢ − ȳ‖² in 1, t and t²
    direction: Array
    limit: float = np.inf

    def at(self, t: float) -> tuple[float, float, float]:
        """Value, slope and curvature."""
        program, (constant, linear, square) = self.program, self.variances
        if program.squared:
            along = self._polynomial
            return along(t), along.deriv()(t), along.deriv(2)(t)
        excess = self.moved(t)
        value, m = program.smoothed(excess)
        change = self.slope + (2 * t) * self.square
        free = program.stiffness * ((m > program.lower) & (m < program.upper))
        return (
            value - (constant + t * linear + t * t * square),
            float(m @ change) - (linear + 2 * t * square),
            float((free * change) @ change) + 2 * float(m @ self.square) - 2 * square,
        )

    @cached_property
    def _polynomial(self) -> np.polynomial.Polynomial:
        """F along the line if (3) is the cost itself, of degree 4 in t."""
        x, s, q, w = self.excess, self.slope, self.square, self.program.stiffness
        wx, ws, wq = w * x, w * s, w * q
        misfit = [
            0.5 * float(wx @ x),
            float(wx @ s),
            float(wx @ q) + 0.5 * float(ws @ s),
            float(ws @ q),
            0.5 * float(wq @ q),
        ]
        variance = [*self.variances, 0.0, 0.0]
        return np.polynomial.Polynomial(np.subtract(misfit, variance))

    def moved(self, t: float) -> Array:
        """(6)."""
        return self.excess + t * self.slope + (t * t) * self.square


@dataclass(frozen=True)
class Certificate:
    """Objective and gap of points with a feasible m, the variance having the weight 1."""

    objective: float
    gap: float
    unit: float  # what the gap is relative to

    def in_units(self, square: float) -> Certificate:
        """The same if the unit of squared lengths is ``square``."""
        return replace(self, objective=square * self.objective, unit=square * self.unit)


@dataclass(frozen=True)
class LowRankProgram:
    """Equations (1) to (7). Time O(e r) for a place and for a line, memory O(e + n r)."""

    edges: Edges
    pull: float  # c
    stiffness: Array  # (e,) β
    centre: Array  # (e,) y
    lower: Array  # (e,) −v
    upper: Array  # (e,) u
    squared: bool  # whether (3) is the cost itself

    @classmethod
    def of_squares(cls, edges: Edges, pull: float) -> LowRankProgram:
        """Half the program of `variational_mvu` for all K; ``pull`` is its c."""
        free = 0 * edges.weights + np.inf
        return cls(edges, pull, edges.weights, 0 * edges.weights, -free, free, squared=True)

    @classmethod
    def of_prices(cls, edges: Edges, pull: float, prices: tuple[Matrix, Matrix]) -> LowRankProgram:
        """(1), with prices for a unit of variance."""
        like = kernels_for(edges.squares).like
        up, down = (like(pull * price, edges.squares) for price in prices)
        return cls(edges, pull, edges.weights, 0 * edges.weights, -down, up, squared=False)

    def smoothed(self, excess: Array) -> tuple[float, Array]:
        """Σ φ and m of (3)."""
        y, stiffness = self.centre, self.stiffness
        if self.squared:
            m = stiffness * excess
            return 0.5 * float(m @ excess), m
        m = (y + stiffness * excess).clip(self.lower, self.upper)
        value = float(m @ excess) - 0.5 * float(((m - y) / stiffness) @ (m - y))
        return value, m

    def place(self, Y: Array) -> Evaluation:
        """Evaluate (3) to (5) for points on the host or where the edges are."""
        Y = to_device_of(self.edges.squares, Y)
        return self._evaluate(Y, self.edges.excess(Y))

    def _evaluate(self, Y: Array, excess: Array) -> Evaluation:
        value, m = self.smoothed(excess)
        centred = Y - Y.mean(0)
        product = kernels_for(Y).laplacian_matmul(self.edges.heads, self.edges.tails, m, Y)
        gradient = 2 * product - (2 * self.pull) * centred  # (5)
        value -= self.pull * _dot(centred, centred)  # (4)
        return Evaluation(Y, excess, m, value, gradient, self.stiffness)

    def line(self, at: Evaluation, direction: Array) -> Line:
        """F along a direction."""
        cross, square = kernels_for(at.Y).edge_products(
            at.Y, direction, self.edges.heads, self.edges.tails
        )
        centred, change = at.Y - at.Y.mean(0), direction - direction.mean(0)
        products = _dot(centred, centred), 2 * _dot(centred, change), _dot(change, change)
        constant, linear, quadratic = (self.pull * product for product in products)
        return Line(self, at.excess, 2 * cross, square, (constant, linear, quadratic), direction)

    def moved(self, at: Evaluation, line: Line, t: float) -> Evaluation:
        """The place Y + tP on a `line`."""
        return self._evaluate(at.Y + t * line.direction, line.moved(t))

    def successor(self, at: Evaluation) -> LowRankProgram:
        """The program after the update (7)."""
        if self.squared:
            return self
        growth = STIFFER if self.forbids else 1.0
        return replace(self, centre=at.forces, stiffness=growth * self.stiffness)

    def continued(self, forces: Matrix, stiffness: Matrix) -> LowRankProgram:
        """The program after (7) at a place of these forces and stiffnesses, both on the host."""
        if self.squared:
            return self
        like = kernels_for(self.edges.squares).like
        growth = STIFFER if self.forbids else 1.0
        centre, stiffness = (
            like(side, self.edges.squares) for side in (forces, growth * stiffness)
        )
        return replace(self, centre=centre, stiffness=stiffness)

    def bound(self, m: Matrix) -> float:
        """(2) of a feasible m on the host."""
        return float(self.edges.on_host()[0] @ m)

    def certificate(self, Y: Matrix, m: Matrix) -> tuple[Matrix, Certificate]:
        """The points, smaller for "shrink", and (8) with a feasible m; all on the host."""
        to_host = kernels_for(self.edges.squares).to_host
        D, up, down = to_host(self.edges.squares), to_host(self.upper), -to_host(self.lower)
        change = to_host(self.edges.excess(to_device_of(self.edges.squares, Y))) / D
        if np.isinf(up).all() and not down.any():
            growth = 1 + max(0.0, float(change.max()))
            Y, change = Y / np.sqrt(growth), (1 + change) / growth - 1
        grown, shrunk = np.maximum(change, 0.0), np.maximum(-change, 0.0)
        no_longer, no_shorter = np.isinf(up), np.isinf(down)
        sold = np.where(no_longer, 0.0, up) @ (D * grown)
        sold += np.where(no_shorter, 0.0, down) @ (D * shrunk)
        centred = Y - Y.mean(axis=0)
        objective = float(np.vdot(centred, centred)) - float(sold) / self.pull
        y = D * m / self.pull
        bound, forbidden = float(y.sum()), no_longer * grown + no_shorter * shrunk
        cost = float(2 * (abs(y) + abs(y).mean()) @ forbidden)
        unit = max(float(D.mean()), abs(bound))
        width = max(bound - objective, 0.0) + cost
        return Y, Certificate(objective, max(width / unit, float(forbidden.max())), unit)

    @property
    def forbids(self) -> bool:
        """Whether some changes are forbidden."""
        return not np.isfinite(float(self.upper.max()))


def _dot(A: Array, B: Array) -> float:
    return float(A.ravel() @ B.ravel())
