"""A primal-dual interior point method for semidefinite programs of edge lengths.

The program (see `nearfar.problems.mvu`) has K ⪰ 0 with S ⪰ 0, and prices on slacks x⁺, x⁻ ≥ 0 with
z⁺ = u − y and z⁻ = v + y ≥ 0. With targets τ for all products:

(1) K S = τI,  x z = τ                                       the central path
(2) ΔS = Lap(Δy / D),  Δz⁺ = −Δy,  Δz⁻ = Δy                    the dual stays feasible
(3) ΔK = τS⁻¹ − K − ½(K ΔS S⁻¹ + S⁻¹ ΔS K) − correction        the direction of Helmberg et al.
(4) M Δy = what (3) and x leave of the constraints,  M = (BKBᵀ) ∘ (BS⁻¹Bᵀ) + diag(x⁺/z⁺ + x⁻/z⁻)

(4) is an elementwise product since every constraint has rank one. A predictor (τ = 0) tells how far
it goes, which sets τ for the corrector with Mehrotra's second-order terms. As long as that pays,
the corrector is the predictor of another one: with (4) factored, its solutions are cheap.

ΔK is a difference of large matrices, and what rounding leaves of the constraints is worse than what
(4) leaves. So the constraints are evaluated for ΔK itself, (4) is solved again for what is left,
and the small answer is added: (4) is refined with (3) as its residual.

Near the end of the path K and S are nearly singular, and rounding spoils (3) and (4): M is
indefinite, or steps become short. From there on the program is written in coordinates in which K is
the unit matrix, and anew after each step. That takes about three times as long, and goes to gaps
that are a hundred times smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal

from nearfar.solvers.run import Iterate

Array = Any

LANCZOS = 60  # steps that estimate how far a matrix may go along a direction, at most
CLOSE = 0.05  # the error of that, relative to it
CORRECTIONS = 3  # of a direction, at most
ACCURATE = 1e-11  # what a direction may leave of the constraints
WORTH = 0.3  # of what was left, above which a correction is the last
LEAST_TARGET = 1e-6  # relative to the mean product
SHARE = 0.9  # of the way to the border of a cone
CORRECTORS = 3  # at most
PAYS = 0.9  # of the mean product, to which another corrector lowers it; of its step's length
SHORT = 0.25  # of one of the steps: below, rounding errors ask for other coordinates
SHORTEST = 1e-3  # of both steps: below, they allow no progress
PATIENCE = 8  # steps in which the mean product has to fall to SLOW of itself
SLOW = 0.5
SPENT = 1e-3  # of the gap, to which the products add less: the rest is slack or rounding


@dataclass(frozen=True)
class Step:
    """A direction, and how far it may go."""

    K: Array
    y: Array
    S: Array
    above: Array
    below: Array
    primal: float = 0.0
    dual: float = 0.0


def interior_point(program: Any) -> Iterator[Iterate]:
    """Iterates along the central path, until rounding allows no further step.

    Value and residual of an iterate are the program's value and certified gap, and its state is a
    point of the program.
    """
    place: _Place | None = _Place.at(program, program.start())
    means: list[float] = []
    while place is not None:
        iterate, mu = place.iterate(), place.mu
        yield iterate
        gap = program.gap(iterate.state)
        if program.remaining(mu, iterate.state) <= SPENT * gap:
            return
        means.append(mu)
        if len(means) > PATIENCE and mu > SLOW * means[-1 - PATIENCE]:
            return
        step = place.step()
        if not place.is_scaled and (step is None or min(step.primal, step.dual) < SHORT):
            place = place.scaled()
            step = None if place is None else place.step()
        if place is None or step is None or max(step.primal, step.dual) < SHORTEST:
            return
        place = place.moved(step)


@dataclass(frozen=True)
class _Place:
    """A point inside the cones, in the coordinates of its program."""

    program: Any
    state: Any
    S: Array
    factors: tuple[Array, Array]  # of K and S
    is_scaled: bool = False

    @classmethod
    def at(cls, program: Any, state: Any) -> _Place:
        S = program.dual_slack(state.y)
        return cls(program, state, S, (program.cholesky(state.K), program.cholesky(S)))

    @property
    def slacks(self) -> tuple[Array, Array]:
        """z⁺ and z⁻."""
        return self.program.upper - self.state.y, self.program.lower + self.state.y

    @property
    def mu(self) -> float:
        """The mean product."""
        (zp, zm), state = self.slacks, self.state
        matrices = self.program.gram.inner(state.K, self.S)
        size: int = self.program.size
        return float(matrices + state.above @ zp + state.below @ zm) / size

    def iterate(self) -> Iterate:
        program, state = self.program.plain(self.state)
        return Iterate(
            np.empty(0),
            program.value(state),
            program.gap(state),
            exact=True,
            info={
                "objective": program.variance(state),
                "bound": program.bound(state),
                "violation": program.violation(state),
                "mu": self.mu,
            },
            state=state,
            certified=True,
        )

    def step(self) -> Step | None:
        """The way to go from here, or None if (4) is not definite."""
        program, state, slacks = self.program, self.state, self.slacks
        inverse = program.inverse(self.factors[1])
        weights = state.above / slacks[0], state.below / slacks[1]
        M = program.schur(state.K, inverse, weights[0] + weights[1])
        if M is None:
            return None
        return _corrected(_Direction(self, inverse, M, weights))

    def scaled(self) -> _Place | None:
        """The same place in coordinates in which K is the unit matrix."""
        program = self.program.scaled(self.factors[0])
        unit = program.gram.eye(program.n, self.S)
        S = program.dual_slack(self.state.y)
        factor = program.cholesky(S)
        if factor is None:
            return None
        return _Place(program, replace(self.state, K=unit), S, (unit, factor), is_scaled=True)

    def moved(self, step: Step) -> _Place | None:
        """The place after a step, shortened where a matrix has left its cone after all."""
        program, state, primal, dual = self.program, self.state, step.primal, step.dual
        for _ in range(20):
            K = program.projected(_symmetric(state.K + primal * step.K))
            first = program.cholesky(K)
            if first is not None:
                break
            primal *= 0.8
        for _ in range(20):
            y = state.y + dual * step.y
            S = program.dual_slack(y)
            second = program.cholesky(S)
            if second is not None:
                break
            dual *= 0.8
        if first is None or second is None:
            return None
        above, below = state.above + primal * step.above, state.below + primal * step.below
        place = _Place(program, type(state)(K, y, above, below), S, (first, second))
        return place.scaled() if self.is_scaled else place


def _corrected(solver: _Direction) -> Step:
    """The predictor's step corrected, as often as the mean product falls by it."""
    step = solver.limited(solver(0.0, None), 1.0)
    target, best, least, reach = solver.mu, step, np.inf, 0.0
    for _ in range(CORRECTORS):
        share = solver.mean_product(step) / solver.mu
        target = min(target, solver.mu * max(share**3, LEAST_TARGET))
        step = solver.limited(solver(target, step), SHARE)
        left = solver.mean_product(step)
        if left > PAYS * least or step.primal + step.dual < PAYS * reach:
            break
        best, least, reach = step, left, step.primal + step.dual
    return solver.limited(solver.refined(best), SHARE)


class _Direction:
    """Equations (2) to (4) at a place."""

    def __init__(self, place: _Place, inverse: Array, M: Any, weights: Any) -> None:
        self._place, self._inverse, self._M, self._weights = place, inverse, M, weights
        self._program, self._state, self._slacks = place.program, place.state, place.slacks
        self._solvers = [self._program.gram.lower_solver(factor) for factor in place.factors]
        self.mu = place.mu
        lengths = self._program.lengths(place.state.K)
        self._lack = 1 - (lengths - place.state.above + place.state.below)

    def __call__(self, target: float, predictor: Step | None) -> Step:
        state, inverse, (zp, zm) = self._state, self._inverse, self._slacks
        R = target * inverse - state.K
        up, down = target / zp - state.above, target / zm - state.below
        if predictor is not None:
            product = self._program.gram.product(inverse, predictor.S @ predictor.K)
            R = R - _symmetric(product)
            up = up + predictor.above * predictor.y / zp
            down = down - predictor.below * predictor.y / zm
        first = Step(R, 0 * up, 0.0, up, down)
        return self._solved(first, self._left(first))

    def refined(self, step: Step) -> Step:
        """The direction corrected, as long as it leaves much less of the constraints."""
        left = self._left(step)
        size = float(abs(left).max())
        for _ in range(CORRECTIONS):
            if size <= ACCURATE:
                break
            better = self._solved(step, left)
            left = self._left(better)
            before, size = size, float(abs(left).max())
            if size < before:
                step = better
            if size > WORTH * before:
                break
        return step

    def _left(self, step: Step) -> Array:
        """What the direction leaves of the constraints."""
        return self._program.lengths(step.K) - step.above + step.below - self._lack

    def _solved(self, step: Step, left: Array) -> Step:
        """The direction with (4) solved for what it leaves of the constraints."""
        change = self._program.gram.solve_factored(self._M, left)
        S = self._program.change(change)
        product = self._program.gram.product(self._inverse, S @ self._state.K)
        return Step(
            step.K - _symmetric(product),
            step.y + change,
            S + step.S,
            step.above + self._weights[0] * change,
            step.below - self._weights[1] * change,
        )

    def limited(self, step: Step, share: float) -> Step:
        """The step with lengths that keep this share of the way to the border, 1 at most."""
        state, (zp, zm) = self._state, self._slacks
        primal = min(
            _reach(self._solvers[0], step.K),
            _ratio(state.above, step.above),
            _ratio(state.below, step.below),
        )
        dual = min(_reach(self._solvers[1], step.S), _ratio(zp, -step.y), _ratio(zm, step.y))
        return replace(step, primal=min(1.0, share * primal), dual=min(1.0, share * dual))

    def mean_product(self, step: Step) -> float:
        """The mean product after a step."""
        state, (zp, zm), a, b = self._state, self._slacks, step.primal, step.dual
        inner = self._program.gram.inner
        K = state.K + a * step.K
        matrices = inner(K, self._place.S) + b * inner(K, step.S)
        above = (state.above + a * step.above) @ (zp - b * step.y)
        below = (state.below + a * step.below) @ (zm + b * step.y)
        size: int = self._program.size
        return max(float(matrices + above + below), 0.0) / size


def _reach(solve: Any, change: Any) -> float:
    """About how far A + t·change stays definite; ``solve`` is the `lower_solver` of A's factor L.

    By Lanczos' method for the least eigenvalue of L⁻¹·change·L⁻ᵀ, less its error.
    """
    q = change.diagonal()
    q = 1 + q / (1e-300 + abs(q).max())  # any start that is not 1
    if float(abs(q).max()) < 1e-6:  # of entries that are alike and negative
        q = (q * 0 + 1).cumsum(0)
    w, size, rows = q, float(q @ q) ** 0.5, 0 * q[:LANCZOS, None] * q
    diagonal: list[float] = []
    off: list[float] = []
    for row in range(len(rows)):
        rows[row], basis = w / size, rows[: row + 1]
        w = solve(change @ solve(rows[row], True), False)
        products = basis @ w
        diagonal.append(float(products[-1]))
        w = w - products @ basis
        w = w - (basis @ w) @ basis  # rounding leaves the first a part
        size = float(w @ w) ** 0.5
        values, vectors = eigh_tridiagonal(diagonal, off, select="i", select_range=(0, 0))
        error = abs(size * vectors[-1, 0])
        off.append(size)
        if error <= CLOSE * abs(values[0]) or size <= 1e-12 * max(map(abs, diagonal + off)):
            break
    least = float(values[0] - error)
    return np.inf if least >= 0 else -1 / least


def _ratio(values: Array, changes: Array) -> float:
    """How far values + t·changes stays positive."""
    least = float((changes / values).min())
    return np.inf if least >= 0 else -1 / least


def _symmetric(A: Array) -> Array:
    return 0.5 * (A + A.T)
