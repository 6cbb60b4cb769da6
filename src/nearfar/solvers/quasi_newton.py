"""Limited-memory BFGS: its directions, and two descents along them.

SciPy's L-BFGS-B cannot be used: it cannot be paused and continued, as `run` needs, and it supports
neither preconditioners nor exact steps, nor a rotation of the variables or a change of their
number.

[NW06] Nocedal & Wright, Numerical optimization, 2nd edition 2006.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.line_search import Evaluated, exact_step, wolfe_step
from nearfar.solvers.run import Iterate

Array = Any
Matrix = NDArray[np.float64]
Apply = Callable[[Array], Array]

SMALLEST_PRODUCT = 1e-280  # smaller products of steps and changes lose digits or underflow
CURVATURE_FLOOR = 1e-12  # least cosine between step and change of a pair that is kept

MEMORY = 20  # pairs that `descend` keeps, at most
LEAST_MEMORY, MEMORY_ENTRIES = 5, 1 << 25  # at least, and numbers in them: a vocabulary is wide
FIRST_STEP = 0.1  # length of a step without memory, relative to the point
SHORTER = (1.0, 1e-2, 1e-4)  # factors of that, tried in turn: near a minimum it is too long
ASCENT_MEMORY = 10  # pairs that `ascend` keeps


# -- directions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """A step s, the change y of the gradient along it, and H₀y."""

    step: Array
    change: Array
    image: Array
    curvature: float  # s · y
    square: float  # y · H₀y


def pairs_in_memory(most: int, size: int) -> int:
    """How many pairs of points of this size to keep."""
    return max(LEAST_MEMORY, min(most, MEMORY_ENTRIES // (2 * size)))


class LBFGS:
    """The inverse Hessian H implied by the last steps and gradient changes  [NW06, algorithm 7.4].

    The initial H₀ is, up to scale, a preconditioner or the identity. Arrays may have any shape, and
    come from any library with NumPy's arithmetic.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._precondition: Apply | None = None
        self._pairs: list[_Pair] = []

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def pairs(self) -> tuple[Matrix, Matrix]:
        """The steps and the changes (m, N) on the host, oldest first."""
        steps = [pair.step.ravel() for pair in self._pairs]
        changes = [pair.change.ravel() for pair in self._pairs]
        return np.array(steps), np.array(changes)

    def forget(self) -> None:
        """Drop all pairs."""
        self._pairs.clear()

    def precondition(self, apply: Apply) -> None:
        """Set H₀ to the product with a positive definite matrix.

        Last pairs whose products are then out of the range of floats are dropped.
        """
        self._precondition = apply
        while self._pairs:  # the last one scales H₀
            pair = self._pairs.pop()
            image = apply(pair.change)
            square = _dot(pair.change, image)
            if square >= SMALLEST_PRODUCT:
                self._pairs.append(replace(pair, image=image, square=square))
                return

    def direction(self, gradient: Array, image: Array | None = None) -> Array:
        """−H · gradient; ``image`` is H₀ · gradient, if known, like the images of all pairs."""
        shares = []
        for pair in reversed(self._pairs):
            share = _dot(pair.step, gradient) / pair.curvature
            shares.append(share)
            gradient = gradient - share * pair.change
            image = None if image is None else image - share * pair.image
        image = self._image(gradient) if image is None else image
        if not self._pairs:
            return -image
        image = image * (self._pairs[-1].curvature / self._pairs[-1].square)
        for pair, share in zip(self._pairs, reversed(shares), strict=True):
            image = image + (share - _dot(pair.change, image) / pair.curvature) * pair.step
        return -image

    def remember(self, step: Array, change: Array, image: Array | None = None) -> bool:
        """Keep a pair if its curvature is positive and its products are in the range of floats.

        ``image`` is H₀ · change, if known. Returns whether the pair was kept.
        """
        curvature, square = _dot(step, change), _dot(change, change)
        if not curvature > CURVATURE_FLOOR * _dot(step, step) ** 0.5 * square**0.5:
            return False
        if image is not None or self._precondition is not None:
            image = self._image(change) if image is None else image
            square = _dot(change, image)
        if not min(curvature, square) >= SMALLEST_PRODUCT:
            return False
        if self._pairs and self._pairs[-1].step.shape != step.shape:
            self._pairs.clear()
        step, change = 1 * step, 1 * change  # copies
        image = change if image is None else image
        self._pairs.append(_Pair(step, change, image, curvature, square))
        del self._pairs[: -self._memory]
        return True

    def transform(self, rows: Matrix) -> None:
        """Change variables: L → rows · L with orthonormal rows, some of them new.

        If L is a stack of matrices, so is ``rows``. H₀ is reset to the identity.
        """
        pairs, self._pairs, self._precondition = self._pairs, [], None
        for pair in pairs:
            self.remember(rows @ pair.step, rows @ pair.change)

    def _image(self, array: Array) -> Array:
        return array if self._precondition is None else self._precondition(array)


def _dot(a: Array, b: Array) -> float:
    return float(a.ravel() @ b.ravel())


# -- descent by the strong Wolfe conditions --------------------------------------------------------


Point = TypeVar("Point", bound=Evaluated)


@dataclass(frozen=True)
class Memory:
    """What a descent needs besides a point to continue as if it had not stopped there."""

    steps: Matrix  # (m, N)
    changes: Matrix  # (m, N)
    gain: float  # of the last step


def descend(
    evaluate: Callable[[Matrix], Point],
    start: Matrix,
    residual: Callable[[Point, float], float | None],
    info: Callable[[Point], dict[str, Any]] = lambda _: {},
    memory: Memory | None = None,
    preconditioner: Callable[[Point], Apply | None] = lambda _: None,
) -> Iterator[Iterate[Memory, None]]:
    """Iterates of a descent; it ends where no step lowers the value.

    ``residual(point, gain)`` is compared with the tolerance of `run`; ``gain`` is the expected gain
    of the next step (infinite at first). The state of an iterate is a `Memory`, with which another
    descent can continue from there. If no step follows, the last iterate is yielded twice: with the
    gain of the previous step, and with the gain that its slope predicts. ``preconditioner(point)``
    multiplies by about the inverse Hessian at a point, or is None where there is none.
    """
    lbfgs, at, last_gain = LBFGS(pairs_in_memory(MEMORY, start.size)), evaluate(start), np.inf
    if memory is not None:
        last_gain = memory.gain
        for step, change in zip(memory.steps, memory.changes, strict=True):
            lbfgs.remember(step.reshape(start.shape), change.reshape(start.shape))

    def make_iterate(gain: float) -> Iterate[Memory, None]:
        state = Memory(*lbfgs.pairs, last_gain)
        return Iterate(at.L, at.value, residual(at, gain), info=info(at), state=state)

    while True:
        newton = preconditioner(at)
        if newton is not None:
            lbfgs.precondition(newton)
        informed = newton is not None or len(lbfgs) > 0
        direction = lbfgs.direction(at.gradient) if informed else _steepest(at)
        slope = float(np.vdot(at.gradient, direction))
        if slope >= 0 and len(lbfgs):
            lbfgs.forget()
            continue
        yield make_iterate(max(-0.5 * slope, last_gain))
        new = wolfe_step(evaluate, at, direction) if informed else None
        if new is None:  # nothing is known about the curvature, or it is misleading
            lbfgs.forget()
            direction = _steepest(at)
            tries = (wolfe_step(evaluate, at, factor * direction) for factor in SHORTER)
            new = next((found for found in tries if found is not None), None)
        if new is None:
            yield make_iterate(-0.5 * float(np.vdot(at.gradient, direction)))
            return
        lbfgs.remember(new.L - at.L, new.gradient - at.gradient)
        at, last_gain = new, at.value - new.value


def _steepest(at: Evaluated) -> Matrix:
    """The direction of steepest descent, of cautious length."""
    slope = float(np.linalg.norm(at.gradient))
    length = FIRST_STEP * float(np.linalg.norm(at.L)) / slope if slope > 0 else 0.0
    return -length * at.gradient


# -- ascent by exact steps, with a bound at every point --------------------------------------------


class LineSearchable(Protocol):
    """A problem along a line."""

    @property
    def limit(self) -> float: ...  # noqa: D102
    def at(self, t: float) -> tuple[float, float, float]: ...  # noqa: D102


class Bounded(Protocol):
    """An objective, and an upper bound on its relative distance from the optimum."""

    @property
    def objective(self) -> float: ...  # noqa: D102
    @property
    def gap(self) -> float: ...  # noqa: D102


class EvaluatedFactor(Protocol):
    """A factor with everything that its objective depends on."""

    @property
    def L(self) -> Matrix: ...  # noqa: D102


Place = TypeVar("Place", bound=EvaluatedFactor)
Proof = TypeVar("Proof", bound=Bounded)
Proof_co = TypeVar("Proof_co", bound=Bounded, covariant=True)


class LineProblem(Protocol[Place, Proof_co]):
    """What `ascend` needs of a problem; see `nearfar.problems.mmc`."""

    def place(self, L: Matrix) -> Place: ...  # noqa: D102
    def gradient(self, at: Place) -> Matrix: ...  # noqa: D102
    def line(self, at: Place, direction: Matrix) -> LineSearchable: ...  # noqa: D102
    def bound(self, at: Place) -> Proof_co: ...  # noqa: D102
    def certify(self, L: Matrix) -> Proof_co: ...  # noqa: D102


def ascend(
    problem: LineProblem[Place, Proof], L: Matrix, tol: float, *, fixed_rank: bool = False
) -> Iterator[Iterate[None, Proof]]:
    """Iterates towards the largest objective; their value is the negative objective.

    The residual is the relative gap: an estimate in working precision, and certified once it is at
    most ``tol``, and at the end. With ``fixed_rank`` bounds need not be tight, and the residual
    estimates the relative gain that is left.
    """
    at = problem.place(L)
    gradient = problem.gradient(at)
    direction = -gradient
    memory = LBFGS(ASCENT_MEMORY)
    best, least, failures = -np.inf, np.inf, 0  # steps in a row without improvement
    while True:
        certificate, certified = problem.bound(at), False
        residual = certificate.gap
        if fixed_rank:  # f of the problem is −½ objective²: twice what its quadratic model promises
            promise = -np.vdot(gradient, direction) / certificate.objective**2
            residual = min(residual, float(promise))
        elif residual <= tol:
            certificate, certified = problem.certify(at.L), True
            residual = certificate.gap
        yield _bounded(at, certificate, residual, certified)
        better = certificate.objective > best or residual < least
        failures = 0 if better else failures + 1
        best, least = max(best, certificate.objective), min(least, residual)
        step = _exact(problem, at, direction)
        if (failures or step is None) and len(memory):
            memory.forget()
            step = _exact(problem, at, -gradient)
        if step is None or failures > 1:
            if not fixed_rank:
                certificate = problem.certify(at.L)
                yield _bounded(at, certificate, certificate.gap, certified=True)
            return
        previous, previous_gradient = at, gradient
        at = problem.place(at.L + step)
        gradient = problem.gradient(at)
        memory.remember(at.L - previous.L, gradient - previous_gradient)
        direction = memory.direction(gradient)


def _exact(problem: LineProblem[Place, Proof], at: Place, direction: Matrix) -> Matrix | None:
    """The step to a minimum along a direction; None if it is not a descent direction."""
    line = problem.line(at, direction)
    t = exact_step(line.at, line.limit)
    return t * direction if t else None


def _bounded(
    at: EvaluatedFactor, certificate: Proof, residual: float, certified: bool
) -> Iterate[None, Proof]:
    objective = certificate.objective
    info = {"objective": objective}
    return Iterate(
        at.L, -objective, residual, True, info, certificate=certificate, certified=certified
    )
