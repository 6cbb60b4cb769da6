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

Where rounding stops the path before the gap is small, the program is asked for one that differs
little from it and is better posed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.solvers.run import Iterate

Array = Any

LANCZOS = 60  # steps that estimate how far a matrix may go along a direction, at most
CLOSE = 0.05  # the error of that, relative to it
REFINEMENTS = 6  # of the solution of (4), at most
ROUNDING = 1e-14  # of the right side of (4), which is solved no more exactly
CORRECTIONS = 3  # of a direction, at most
ACCURATE = 1e-11  # what a direction may leave of the constraints
WORTH = 0.3  # of what was left, above which a correction is the last
LEAST_TARGET = 1e-6  # relative to the mean product
SHARE = 0.9  # of the way to the border of a cone
CORRECTORS = 3  # at most
PAYS = 0.9  # of the mean product, to which another corrector lowers it; of its step's length
SHORTEST = 1e-3  # of both steps: below, rounding errors allow no progress
PATIENCE = 8  # steps in which the mean product has to fall to SLOW of itself
SLOW = 0.5


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
    """Iterates along the path of the program, and of its relaxation where that ends too early.

    Value and residual of an iterate are the program's value and gap, its state is the program's,
    and its certificate the program that it is a point of.
    """
    while program is not None:
        for iterate in _path(program):
            yield iterate
        program = program.relaxed(iterate.state)


def _path(program: Any) -> Iterator[Iterate]:
    """Iterates from the program's start; it ends where rounding allows no further step."""
    state = program.start()
    S = program.dual_slack(state.y)
    factors = program.cholesky(state.K), program.cholesky(S)
    means: list[float] = []
    while True:
        zp, zm = program.upper - state.y, program.lower + state.y
        mu = float((state.K * S).sum() + state.above @ zp + state.below @ zm) / program.size
        yield Iterate(
            np.empty(0),
            program.value(state),
            program.gap(state),
            exact=True,
            info={
                "objective": program.variance(state),
                "bound": program.bound(state),
                "violation": program.violation(state),
                "mu": mu,
            },
            state=state,
            certificate=program,
        )
        means.append(mu)
        if program.is_exhausted(state):
            return
        if len(means) > PATIENCE and mu > SLOW * means[-1 - PATIENCE]:
            return
        inverse = program.inverse(factors[1])
        weights = state.above / zp, state.below / zm
        M = program.schur(state.K, inverse, weights[0] + weights[1])
        if M is None:
            return
        solver = _Direction(program, state, inverse, M, weights, (zp, zm))
        step = _corrected(solver, factors, S, mu)
        del M, solver  # the largest array, before the next one is made
        if max(step.primal, step.dual) < SHORTEST:
            return
        state, S, factors = _moved(program, state, step)
        if state is None:
            return


def _corrected(solver: _Direction, factors: tuple[Array, Array], S: Array, mu: float) -> Step:
    """The predictor's step corrected, as often as the mean product falls by it."""
    step = solver.limited(solver(0.0, None), factors, 1.0)
    target, best, least, reach = mu, step, np.inf, 0.0
    for _ in range(CORRECTORS):
        share = solver.mean_product(step, S) / mu
        target = min(target, mu * max(share**2, LEAST_TARGET))
        step = solver.limited(solver(target, step), factors, SHARE)
        left = solver.mean_product(step, S)
        if left > PAYS * least or step.primal + step.dual < PAYS * reach:
            break
        best, least, reach = step, left, step.primal + step.dual
    return best


class _Direction:
    """Equations (2) to (4) at a point."""

    def __init__(
        self, program: Any, state: Any, inverse: Array, M: Any, weights: Any, slacks: Any
    ) -> None:
        self._program, self._state, self._inverse, self._M = program, state, inverse, M
        self._weights, self._slacks = weights, slacks
        above, below = state.above, state.below
        self._lack = 1 - (program.lengths(state.K) - above + below)

    def __call__(self, target: float, predictor: Step | None) -> Step:
        state, inverse, (zp, zm) = self._state, self._inverse, self._slacks
        R = target * inverse - state.K
        up, down = target / zp - state.above, target / zm - state.below
        if predictor is not None:
            R = R - _symmetric((predictor.K @ predictor.S) @ inverse)
            up = up + predictor.above * predictor.y / zp
            down = down - predictor.below * predictor.y / zm
        dK, dy, size = R, 0 * up, np.inf
        above, below = up, down
        for _ in range(1 + CORRECTIONS):
            left = self._program.lengths(dK) - above + below - self._lack
            before, size = size, float(abs(left).max())
            if size <= ACCURATE or size > WORTH * before:
                break
            change = self._solved(left)
            dS = self._program.laplacian(change)
            dK = dK - _symmetric((state.K @ dS) @ inverse)
            dy = dy + change
            above, below = up + self._weights[0] * dy, down - self._weights[1] * dy
        return Step(dK, dy, self._program.laplacian(dy), above, below)

    def _solved(self, right: Array) -> Array:
        """By conjugate gradients, of which the factor takes nearly all the work."""
        x = self._M.solve(right)
        left = right - self._M.matvec(x)
        size = float(right @ right)
        direction, product = None, 0.0
        for _ in range(REFINEMENTS):
            if float(left @ left) <= ROUNDING**2 * size:
                break
            corrected = self._M.solve(left)
            before, product = product, float(left @ corrected)
            kept = 0.0 if direction is None else (product / before) * direction
            direction = corrected + kept
            image = self._M.matvec(direction)
            length = product / float(direction @ image)
            x = x + length * direction
            left = left - length * image
        return x

    def limited(self, step: Step, factors: tuple[Array, Array], share: float) -> Step:
        """The step with lengths that keep this share of the way to the border, 1 at most."""
        state, (zp, zm) = self._state, self._slacks
        solve = self._program.gram.solve_lower
        primal = min(
            _reach(factors[0], step.K, solve),
            _ratio(state.above, step.above),
            _ratio(state.below, step.below),
        )
        dual = min(_reach(factors[1], step.S, solve), _ratio(zp, -step.y), _ratio(zm, step.y))
        ends = min(1.0, share * primal), min(1.0, share * dual)
        return Step(step.K, step.y, step.S, step.above, step.below, *ends)

    def mean_product(self, step: Step, S: Array) -> float:
        """The mean product after a step."""
        state, (zp, zm), a, b = self._state, self._slacks, step.primal, step.dual
        matrices = ((state.K + a * step.K) * (S + b * step.S)).sum()
        above = (state.above + a * step.above) @ (zp - b * step.y)
        below = (state.below + a * step.below) @ (zm + b * step.y)
        size: int = self._program.size
        return max(float(matrices + above + below), 0.0) / size


def _moved(program: Any, state: Any, step: Step) -> tuple[Any, Array, Any]:
    """The point after a step, shortened where a matrix has left its cone after all."""
    primal, dual = step.primal, step.dual
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
        return None, S, None
    above, below = state.above + primal * step.above, state.below + primal * step.below
    return type(state)(K, y, above, below), S, (first, second)


def _reach(factor: Array, change: Array, solve: Any) -> float:
    """About how far A + t·change stays definite, A = factor·factorᵀ.

    By Lanczos' method for the least eigenvalue of factor⁻¹·change·factor⁻ᵀ, less its error.
    """
    n = len(factor)
    q = change[0] * 0 + 1
    q = q + change.diagonal() / (1e-300 + abs(change.diagonal()).max())  # any start that is not 1
    if float(abs(q).max()) < 1e-6:  # of entries that are alike and negative
        q = (q * 0 + 1).cumsum(0)
    basis = [q / float((q * q).sum()) ** 0.5]
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(min(LANCZOS, n)):
        w = solve(factor, change @ solve(factor, basis[-1], transposed=True))
        diagonal.append(float((w * basis[-1]).sum()))
        for vector in basis:
            w = w - (w * vector).sum() * vector
        off.append(float((w * w).sum()) ** 0.5)
        T = np.diag(diagonal) + np.diag(off[:-1], 1)
        values, vectors = np.linalg.eigh(T, UPLO="U")
        error = abs(off[-1] * vectors[-1, 0])
        if error <= CLOSE * abs(values[0]) or off[-1] <= 1e-12 * abs(values).max():
            break
        basis.append(w / off[-1])
    least = float(values[0] - error)
    return np.inf if least >= 0 else -1 / least


def _ratio(values: Array, changes: Array) -> float:
    """How far values + t·changes stays positive."""
    least = float((changes / values).min())
    return np.inf if least >= 0 else -1 / least


def _symmetric(A: Array) -> Array:
    return 0.5 * (A + A.T)
