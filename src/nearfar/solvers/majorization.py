"""Majorisation, accelerated by limited-memory BFGS.

At each point Y a problem gives half its gradient, the slope h, and the step −V⁻¹h to the minimum of
a quadratic function with curvature V that lies above the objective and touches it at Y. Such steps
never raise the objective but converge slowly. Limited-memory BFGS uses V⁻¹ as its preconditioner.
If its step does not lower the value, the majorisation step does, up to rounding. Points are arrays
of any library with NumPy's arithmetic.

References
----------
De Leeuw & Heiser, Multidimensional scaling with restrictions on the configuration, 1980.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from nearfar.solvers.line_search import backtrack
from nearfar.solvers.quasi_newton import LBFGS
from nearfar.solvers.run import Iterate

Array = Any

MEMORY = 10  # steps that are remembered
SUFFICIENT = 1e-4  # share of the decrease predicted by the slope that a step must reach
HALVINGS = 30  # largest number of halvings of a step


class Evaluated(Protocol):
    """A point, its objective, its slope and its majorisation step."""

    @property
    def Y(self) -> Array:
        """The point."""

    @property
    def value(self) -> float:
        """The objective, which is minimised."""

    @property
    def slope(self) -> Array:
        """Half the gradient."""

    @property
    def step(self) -> Array:
        """The majorisation step −V⁻¹ slope."""


Point = TypeVar("Point", bound=Evaluated)


def majorize(
    evaluate: Callable[[Array], Point],
    start: Array,
    residual: Callable[[Point, float], float],
    info: Callable[[Point], dict[str, Any]] = lambda _: {},
) -> Iterator[Iterate[Point, None]]:
    """Iterates of a descent; it ends where no step lowers the value.

    ``residual(place, gain)`` is compared with the tolerance of `run`; ``gain`` is the expected gain
    of the next step (infinite at first). If no step follows, the last iterate is yielded twice:
    with the gain of the previous step, and with the gain that its slope predicts.
    """
    memory = LBFGS(MEMORY)
    at, gain = evaluate(start), np.inf

    def make_iterate(gain: float) -> Iterate[Point, None]:
        return Iterate(at.Y, at.value, residual(at, gain), exact=True, info=info(at), state=at)

    while True:
        direction = memory.direction(at.slope, -at.step)
        promise = _promise(at, direction)
        if promise <= 0 and len(memory):
            memory.forget()
            continue
        yield make_iterate(max(promise, gain))
        new = _backtrack(evaluate, at, direction)
        if new is None and len(memory):  # it is misleading
            memory.forget()
            direction = at.step
            new = _backtrack(evaluate, at, direction)
        if new is None:
            yield make_iterate(_promise(at, direction))
            return
        memory.remember(new.Y - at.Y, new.slope - at.slope, at.step - new.step)
        at, gain = new, at.value - new.value


def _promise(at: Evaluated, direction: Array) -> float:
    """Half of the decrease that the slope predicts for a step along a direction."""
    return float(-(at.slope * direction).sum())


def _backtrack(evaluate: Callable[[Array], Point], at: Point, direction: Array) -> Point | None:
    """The point after a step along a direction, or None if none lowers the value."""
    promise = _promise(at, direction)

    def lower(t: float) -> Point | None:
        new = evaluate(at.Y + t * direction)
        enough = at.value - 2 * SUFFICIENT * t * promise
        return new if new.value < at.value and new.value <= enough else None

    found = backtrack(lower, 1.0, HALVINGS)
    return None if found is None else found[0]
