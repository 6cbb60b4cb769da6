"""Descent along limited-memory BFGS directions, for smooth functions of a matrix on the host.

The memory is `nearfar.solvers.lbfgs.LBFGS` and the step scipy's search for the strong Wolfe
conditions. scipy's own L-BFGS cannot be stopped and continued, as the one loop does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import line_search

from nearfar.solvers.lbfgs import LBFGS
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

MEMORY = 20
FIRST_STEP = 0.1  # length of a step without memory, relative to that of the point
SHORTER = (1.0, 1e-2, 1e-4)  # factors of that, tried in turn: near a minimum it is too long
TRIALS = 20  # evaluations of one line search at most


class Evaluated(Protocol):
    """A point with what a problem says of it."""

    @property
    def L(self) -> Matrix:
        """The point."""

    @property
    def value(self) -> float:
        """What is minimised."""

    @property
    def gradient(self) -> Matrix:
        """Its gradient."""


@dataclass(frozen=True)
class Memory:
    """What a descent needs, beside a point, to go on as if it had not ended there."""

    steps: Matrix  # (m, N)
    changes: Matrix  # (m, N)
    gain: float  # of the last step


def descend(
    evaluate: Callable[[Matrix], Any],
    start: Matrix,
    residual: Callable[[Any, float], float | None],
    info: Callable[[Any], dict[str, Any]] = lambda _: {},
    memory: Memory | None = None,
) -> Iterator[Iterate]:
    """Iterates of a descent; it ends by itself where no step lowers the value.

    ``evaluate`` gives an `Evaluated` for a matrix, ``residual`` what `run` compares with its
    tolerance, from that and the gain to expect of the next step (infinite at first). The state of
    an iterate is a `Memory`; with it, another descent continues this one from there. The last
    iterate comes twice if no step follows: with the gain of the step before, and with what its
    slope alone lets expect.
    """
    lbfgs, at, last_gain = LBFGS(MEMORY), evaluate(start), np.inf
    if memory is not None:
        last_gain = memory.gain
        for step, change in zip(memory.steps, memory.changes, strict=True):
            lbfgs.remember(step, change)

    def told(gain: float) -> Iterate:
        state = Memory(*lbfgs.pairs, last_gain)
        return Iterate(at.L, at.value, residual(at, gain), info=info(at), state=state)

    while True:
        direction = lbfgs.direction(at.gradient) if len(lbfgs) else _steepest(at)
        slope = float(np.vdot(at.gradient, direction))
        if slope >= 0 and len(lbfgs):
            lbfgs.forget()
            continue
        yield told(max(-0.5 * slope, last_gain))
        new = _stepped(evaluate, at, direction) if len(lbfgs) else None
        if new is None:  # there is no memory, or it misleads
            lbfgs.forget()
            direction = _steepest(at)
            tries = (_stepped(evaluate, at, factor * direction) for factor in SHORTER)
            new = next((found for found in tries if found is not None), None)
        if new is None:
            yield told(-0.5 * float(np.vdot(at.gradient, direction)))
            return
        lbfgs.remember(new.L - at.L, new.gradient - at.gradient)
        at, last_gain = new, at.value - new.value


def _steepest(at: Any) -> Matrix:
    """The direction of steepest descent, of a cautious length."""
    slope = float(np.linalg.norm(at.gradient))
    length = FIRST_STEP * float(np.linalg.norm(at.L)) / slope if slope > 0 else 0.0
    direction: Matrix = -length * at.gradient
    return direction


def _stepped(evaluate: Callable[[Matrix], Any], at: Any, direction: Matrix) -> Any:
    """The point after a step along a direction, or None if none lowers the value."""
    shape = at.L.shape
    seen: dict[bytes, Any] = {}

    def point(x: NDArray[np.float64]) -> Any:
        key = x.tobytes()
        if key not in seen:
            seen.clear()  # the search asks for the slope where it has just asked for the value
            seen[key] = evaluate(x.reshape(shape))
        return seen[key]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no step was found is told by the answer
        step = line_search(
            lambda x: point(x).value,
            lambda x: point(x).gradient.ravel(),
            at.L.ravel(),
            direction.ravel(),
            at.gradient.ravel(),
            at.value,
            maxiter=TRIALS,
        )[0]
    if step is None:
        return None
    new = point(at.L.ravel() + step * direction.ravel())
    return new if new.value < at.value else None
