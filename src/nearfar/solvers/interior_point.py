"""A primal-dual interior point method for semidefinite programs of edge lengths.

The program (see `nearfar.problems.mvu`) has K ⪰ 0 with S ⪰ 0, and prices on slacks x⁺, x⁻ ≥ 0 with
z⁺ = u − y and z⁻ = v + y ≥ 0. With targets τ for all products:

(1) K S = τI,  x z = τ                                       the central path
(2) ΔS = Lap(Δy / D),  Δz⁺ = −Δy,  Δz⁻ = Δy                    the dual stays feasible
(3) ΔK = τS⁻¹ − K − ½(K ΔS S⁻¹ + S⁻¹ ΔS K) − correction        the direction of Helmberg et al.
(4) M Δy = what (3) and x leave of the constraints,  M = (BKBᵀ) ∘ (BS⁻¹Bᵀ) + diag(x⁺/z⁺ + x⁻/z⁻)

M is an elementwise product because every constraint has rank one. `predictor_corrector` chooses τ
and adds the corrections, several if that pays: once (4) is factored, solving it again is cheap. The
more constraints, the more of the time goes into factors, the more correctors pay, and the longer
steps should be. With few constraints they stay away from the boundary, where rounding would end the
path at larger gaps.

For large programs (4) is first factored in single precision, in half the time; the same refinement
removes the error. As M becomes ill-conditioned on the way, so that solutions have fewer than four
correct digits, it is factored in double precision.

ΔK is a difference of large matrices, and its rounding errors violate the constraints more than (4)
does. So the constraints are evaluated for ΔK itself, (4) is solved again for this residual, and the
small correction is added: iterative refinement of (4) with (3) as its residual.

Near the end of the path K and S are nearly singular, and rounding spoils (3) and (4): M becomes
indefinite, or steps become short. From then on, each step is made in coordinates in which K is the
identity. That takes about three times as long, and reaches gaps that are a hundred times smaller.
Steps from a poor start may be short, too, but there K and S are well-conditioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from nearfar.linalg import symmetric
from nearfar.solvers.predictor_corrector import (
    Share,
    definite_step_by_lanczos,
    positive_step,
    predictor_corrector,
)
from nearfar.solvers.run import Iterate

Array = Any

LOOSE = 1e-4  # share of a residual that a factor in single precision may leave, to be used again
USELESS = 0.5  # the same, above which the step is made again in double precision
CORRECTIONS = 3  # largest number of refinements of a direction
ACCURATE = 1e-11  # residual of the constraints at which refinement stops, and the same
NEGLIGIBLE = 1e-7  # relative to the gap that the products leave, if that is below 1
WORTH = 0.3  # refinement also stops if it leaves more than this share of the residual
SHARE = Share(0.95)  # of the way to the boundary of a cone
MANY = 1000  # constraints
CORRECTORS = (MANY, 6), (500, 3), (0, 1)  # constraints from which so many correctors pay, at most
DOMINANT = 2500, 5.0  # constraints, and times n, from which factors take so long that these pay:
LONG_SHARE, MORE_CORRECTORS, MORE_DAMPING = Share(0.9, 0.09), 10, 0.6
ROUGH = 0.1  # relative error of the length of a step, if there are fewer
SHORT = 0.25  # length of one of the steps below which scaled coordinates may be needed:
ROUNDED = 1e-10  # they are if the mean product is below this, relative to the norms of K and S
LESS_SHORT, MORE_ROUNDED = 0.6, 1e-14  # or both
SHORTEST = 1e-3  # length of both steps below which there is no progress
PATIENCE = 8  # steps in which the mean product must fall to the share SLOW
SLOW = 0.5
SPENT = 1e-3  # share of the gap due to the products; below it, the rest is slack or rounding


class Interior(Protocol):
    """A point inside the cones."""

    @property
    def K(self) -> Array: ...  # noqa: D102
    @property
    def y(self) -> Array: ...  # noqa: D102
    @property
    def above(self) -> Array: ...  # noqa: D102
    @property
    def below(self) -> Array: ...  # noqa: D102


State = TypeVar("State", bound=Interior)


class Program(Protocol[State]):
    """What the solver needs of a program; see `nearfar.problems.mvu`."""

    @property
    def n(self) -> int: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def upper(self) -> Array: ...  # noqa: D102
    @property
    def lower(self) -> Array: ...  # noqa: D102
    @property
    def gram(self) -> ModuleType: ...  # noqa: D102
    def start(self) -> State: ...  # noqa: D102
    def point(self, K: Array, y: Array, above: Array, below: Array) -> State: ...  # noqa: D102
    def scaled(self, factor: Array) -> Program[State]: ...  # noqa: D102
    def plain(self, state: State) -> tuple[Program[State], State]: ...  # noqa: D102
    def value(self, state: State, gap: float) -> float: ...  # noqa: D102
    def variance(self, state: State) -> float: ...  # noqa: D102
    def bound(self, state: State) -> float: ...  # noqa: D102
    def gap(self, state: State) -> float: ...  # noqa: D102
    def violation(self, state: State) -> float: ...  # noqa: D102
    def remaining(self, mu: float, state: State) -> float: ...  # noqa: D102
    def lengths(self, K: Array) -> Array: ...  # noqa: D102
    def product_lengths(self, A: Array, B: Array) -> Array: ...  # noqa: D102
    def dual_slack(self, y: Array) -> Array: ...  # noqa: D102
    def change(self, y: Array) -> Array: ...  # noqa: D102
    def projected(self, A: Array) -> Array: ...  # noqa: D102
    def cholesky(self, A: Array) -> Array | None: ...  # noqa: D102
    def inverse(self, factor: Array) -> Array: ...  # noqa: D102
    def schur(  # noqa: D102
        self, K: Array, inverse: Array, extra: Array, single: bool = False
    ) -> Array | None: ...


@dataclass(frozen=True)
class Step:
    """A direction, and its step lengths."""

    K: Array
    y: Array
    S: Array
    above: Array
    below: Array
    primal: float = 0.0
    dual: float = 0.0


def interior_point(program: Program[State], start: State | None = None) -> Iterator[Iterate[State]]:
    """Iterates along the central path, until rounding allows no further step.

    ``start`` is a point inside the cones, by default that of the program. The value and the
    residual of an iterate are the value and the certified gap of the program; its state is a point
    of it.
    """
    place: _InteriorPoint[State] | None = _InteriorPoint.at(program, start or program.start())
    means: list[float] = []
    single = len(program.upper) >= program.gram.SINGLE_ROWS
    while place is not None:
        iterate, mu = place.iterate(), place.mu
        yield iterate
        assert iterate.residual is not None  # its gap
        if program.remaining(mu, iterate.state) <= SPENT * iterate.residual:
            return
        means.append(mu)
        if len(means) > PATIENCE and mu > SLOW * means[-1 - PATIENCE]:
            return
        step, left = place.step(single)
        if single and (left > USELESS or _is_blocked(step)):
            single = False
            step, left = place.step()
        single = single and left <= LOOSE
        if place.needs_scaling(step):
            place = place.scaled()
            step = None if place is None else place.step()[0]
        if place is None or step is None or max(step.primal, step.dual) < SHORTEST:
            return
        place = place.moved(step)


def _is_blocked(step: Step | None) -> bool:
    """Whether there is no step, or one that is short in both cones."""
    return step is None or max(step.primal, step.dual) < SHORT


@dataclass(frozen=True)
class _InteriorPoint(Generic[State]):
    """A point inside the cones, in the coordinates of its program."""

    program: Program[State]
    state: State
    S: Array
    factors: tuple[Array, Array]  # of K and S
    is_scaled: bool = False

    @classmethod
    def at(cls, program: Program[State], state: State) -> _InteriorPoint[State]:
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
        return float(matrices + state.above @ zp + state.below @ zm) / self.program.size

    def needs_scaling(self, step: Step | None) -> bool:
        """Whether rounding has spoilt this step, or None, in plain coordinates."""
        if self.is_scaled or step is None:
            return not self.is_scaled
        inner, K, S = self.program.gram.inner, self.state.K, self.S
        size = (inner(K, K) * inner(S, S)) ** 0.5
        length, product = min(step.primal, step.dual), self.mu / size
        spoilt = length < SHORT and product < ROUNDED
        return spoilt or (length < LESS_SHORT and product < MORE_ROUNDED)

    def iterate(self) -> Iterate[State]:
        program, state = self.program.plain(self.state)
        gap = program.gap(state)
        return Iterate(
            np.empty(0),
            program.value(state, gap),
            gap,
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

    def step(self, single: bool = False) -> tuple[Step | None, float]:
        """The next step, or None if the matrix of (4) is not definite; and its `_Newton.left`.

        With ``single`` the matrix is factored in single precision.
        """
        program, state, slacks = self.program, self.state, self.slacks
        inverse = program.inverse(self.factors[1])
        weights = state.above / slacks[0], state.below / slacks[1]
        M = program.schur(state.K, inverse, weights[0] + weights[1], single)
        if M is None:
            return None, np.inf
        system = _Newton(self, inverse, M, weights)
        m = len(state.y)
        dominant = m >= max(DOMINANT[0], DOMINANT[1] * program.n)
        share = LONG_SHARE if dominant else SHARE
        if dominant:
            best = predictor_corrector(system, share, MORE_CORRECTORS, MORE_DAMPING)
        else:
            correctors = next(most for least, most in CORRECTORS if m >= least)
            best = predictor_corrector(system, share, correctors)
        refined = system.refined(best)
        if refined is not best:
            refined = system.limited(refined, share.after(best))
        return refined, system.left

    def scaled(self) -> _InteriorPoint[State] | None:
        """The same place in coordinates in which K is the identity."""
        program = self.program.scaled(self.factors[0])
        unit = program.gram.eye(program.n, self.S)
        S = program.dual_slack(self.state.y)
        factor = program.cholesky(S)
        if factor is None:
            return None
        state = program.point(unit, self.state.y, self.state.above, self.state.below)
        return _InteriorPoint(program, state, S, (unit, factor), is_scaled=True)

    def moved(self, step: Step) -> _InteriorPoint[State] | None:
        """The place after a step, which is shortened if rounding takes a matrix out of its cone."""
        program, state, primal, dual = self.program, self.state, step.primal, step.dual
        for _ in range(20):
            K = program.projected(symmetric(state.K + primal * step.K))
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
        place = _InteriorPoint(program, program.point(K, y, above, below), S, (first, second))
        return place.scaled() if self.is_scaled else place


class _Newton(Generic[State]):
    """Equations (2) to (4) at a place."""

    def __init__(
        self, place: _InteriorPoint[State], inverse: Array, M: Array, weights: tuple[Array, Array]
    ) -> None:
        self._place, self._inverse, self._M, self._weights = place, inverse, M, weights
        self._program, self._state, self._slacks = place.program, place.state, place.slacks
        close = None if len(place.state.y) >= MANY else ROUGH
        gram = self._program.gram
        self._longest = [_longest_steps(gram, factor, close) for factor in place.factors]
        self.mu, self.left, self._before = place.mu, 0.0, 0.0
        self._inner = self._program.gram.inner(place.state.K, place.S)
        self._lengths = self._program.lengths(place.state.K)
        self._inverse_lengths = self._program.lengths(inverse)
        self._lack = 1 - (self._lengths - place.state.above + place.state.below)

    def direction(self, target: float, predictor: Step | None) -> Step:
        """(3) for a target, with the correction of a predictor.

        The constraints need only the lengths of the correction, so that one product of matrices
        gives both terms of (3).
        """
        program, state, inverse, (zp, zm) = self._program, self._state, self._inverse, self._slacks
        up, down = target / zp - state.above, target / zm - state.below
        lengths, second = target * self._inverse_lengths - self._lengths, 0.0
        if predictor is not None:
            second = program.gram.product(predictor.S, predictor.K)
            lengths = lengths - program.product_lengths(inverse, second)
            up = up + predictor.above * predictor.y / zp
            down = down - predictor.below * predictor.y / zm
        left = lengths - up + down - self._lack
        self._before = float(abs(left).max())
        change = program.gram.solve_factored(self._M, left)
        S = program.change(change)
        moved = program.gram.product(S, state.K)
        moved += second
        product = program.gram.product(inverse, moved)
        return Step(
            program.gram.direction(target, inverse, state.K, product),
            change,
            S,
            up + self._weights[0] * change,
            down - self._weights[1] * change,
        )

    def refined(self, step: Step) -> Step:
        """Refine a direction while the residual of the constraints falls enough.

        ``left`` becomes the share of the residual that solving (4) once has left.
        """
        left = self._residual(step)
        size = float(abs(left).max())
        self.left = size / self._before if self._before > 0 else 0.0
        gap = min(1.0, self._program.remaining(self.mu, self._state))
        for _ in range(CORRECTIONS):
            if size <= max(ACCURATE, NEGLIGIBLE * gap):
                break
            better = self._solve(step, left)
            left = self._residual(better)
            before, size = size, float(abs(left).max())
            if size < before:
                step = better
            if size > WORTH * before:
                break
        return step

    def _residual(self, step: Step) -> Array:
        """The residual of the constraints after a full step along the direction."""
        return self._program.lengths(step.K) - step.above + step.below - self._lack

    def _solve(self, step: Step, left: Array) -> Step:
        """The direction, corrected by the solution of (4) for its residual."""
        change = self._program.gram.solve_factored(self._M, left)
        S = self._program.change(change)
        gram = self._program.gram
        product = gram.product(self._inverse, gram.product(S, self._state.K))
        return Step(
            step.K - symmetric(product),
            step.y + change,
            S + step.S,
            step.above + self._weights[0] * change,
            step.below - self._weights[1] * change,
        )

    def limited(self, step: Step, share: float) -> Step:
        """The step with lengths of this share of the way to the boundary, at most 1."""
        state, (zp, zm) = self._state, self._slacks
        primal, dual = self._program.gram.both(
            lambda: self._longest[0](step.K), lambda: self._longest[1](step.S), self._program.n
        )
        for values, changes in ((state.above, step.above), (state.below, step.below)):
            primal = min(primal, positive_step(values, changes))
        for values, changes in ((zp, -step.y), (zm, step.y)):
            dual = min(dual, positive_step(values, changes))
        return replace(step, primal=min(1.0, share * primal), dual=min(1.0, share * dual))

    def mean_product(self, step: Step) -> float:
        """The mean product after a step."""
        state, (zp, zm), a, b = self._state, self._slacks, step.primal, step.dual
        lengths = self._lengths + a * (self._lack + step.above - step.below)  # after the step
        matrices = self._inner + a * self._program.gram.inner(step.K, self._place.S)
        matrices += b * float(step.y @ lengths)  # ⟨K, ΔS⟩, by (2)
        above = (state.above + a * step.above) @ (zp - b * step.y)
        below = (state.below + a * step.below) @ (zm + b * step.y)
        return max(float(matrices + above + below), 0.0) / self._program.size


def _longest_steps(
    gram: ModuleType, factor: Array, close: float | None
) -> Callable[[Array], float]:
    """A function of a change: about how far the matrix of this factor stays definite along it."""
    if len(factor) > gram.EXACT_NODES:
        solve, start = gram.lower_solver(factor), None

        def nearly(change: Array) -> float:
            nonlocal start  # changes of one step are similar
            length, start = definite_step_by_lanczos(solve, change, close, start)
            return length

        return nearly

    least_eigenvalue = gram.least_relative_eigenvalue(factor)

    def exact(change: Array) -> float:
        least = least_eigenvalue(change)
        return -1 / least if least < 0 else np.inf

    return exact
