"""Majorisation, quickened by a memory of its steps.

A problem offers at each point Y half its gradient, the slope h, and the step −V⁻¹h to the minimum
of a quadratic function with curvature V that lies above its value and touches it at Y. Such steps
never raise the value but converge slowly. Limited-memory BFGS in the geometry of V takes them as
its first guess: −H h with H = γ V⁻¹ before the memory is taken in. Where its step does not lower
the value, the majorisation step does, up to rounding. Points are arrays of any library that spells
arithmetic and ``.sum()`` as NumPy does.

References
----------
De Leeuw & Heiser, Multidimensional scaling with restrictions on the configuration, 1980.
Nocedal & Wright, Numerical optimization, algorithm 7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nearfar.solvers.run import Iterate

MEMORY = 10  # steps that are remembered
SUFFICIENT = 1e-4  # share of the decrease by the slope that a step must reach
HALVINGS = 30  # of a step at most


class Placed(Protocol):
    """A point with what a problem says of it."""

    @property
    def Y(self) -> Any:
        """The point."""

    @property
    def value(self) -> float:
        """What is minimised."""

    @property
    def slope(self) -> Any:
        """Half its gradient."""

    @property
    def step(self) -> Any:
        """The majorisation step −V⁻¹ slope."""


def majorize(
    evaluate: Callable[[Any], Any],
    start: Any,
    residual: Callable[[Any, float], float],
    info: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> Iterator[Iterate]:
    """Iterates of a descent; it ends by itself where no step lowers the value.

    ``evaluate`` gives a `Placed` for a point, ``residual`` what `run` compares with its tolerance,
    from that and the gain to expect of the next step (infinite at first). The last iterate comes
    twice if no step follows: with the gain of the step before, and with what its slope alone lets
    expect.
    """
    memory: list[_Pair] = []
    at, gain = evaluate(start), np.inf

    def told(gain: float) -> Iterate:
        return Iterate(at.Y, at.value, residual(at, gain), exact=True, info=info(at), state=at)

    while True:
        direction = _direction(memory, at)
        promise = -_dot(at.slope, direction)
        if promise <= 0 and memory:
            memory.clear()
            continue
        yield told(max(promise, gain))
        new = _stepped(evaluate, at, direction, promise)
        if new is None and memory:  # which misleads
            memory.clear()
            direction, promise = at.step, -_dot(at.slope, at.step)
            new = _stepped(evaluate, at, direction, promise)
        if new is None:
            yield told(promise)
            return
        _remember(memory, at, new)
        at, gain = new, at.value - new.value


@dataclass(frozen=True)
class _Pair:
    """A step and the change of the slope along it, also in the geometry of V."""

    step: Any
    change: Any  # Δh
    lifted: Any  # V⁻¹ Δh
    curvature: float  # step · Δh
    square: float  # Δh · V⁻¹ Δh


def _remember(memory: list[_Pair], at: Any, new: Any) -> None:
    """Keep a pair if its curvature is positive."""
    step, change, lifted = new.Y - at.Y, new.slope - at.slope, at.step - new.step
    curvature, square = _dot(step, change), _dot(change, lifted)
    if curvature > 0 and square > 0:
        memory.append(_Pair(step, change, lifted, curvature, square))
        del memory[:-MEMORY]


def _direction(memory: list[_Pair], at: Any) -> Any:
    """−H h by the two loops of limited-memory BFGS."""
    if not memory:
        return at.step
    h, lifted, shares = at.slope, -at.step, []
    for pair in reversed(memory):
        share = _dot(pair.step, h) / pair.curvature
        shares.append(share)
        h, lifted = h - share * pair.change, lifted - share * pair.lifted
    lifted = lifted * (memory[-1].curvature / memory[-1].square)
    for pair, share in zip(memory, reversed(shares), strict=True):
        lifted = lifted + (share - _dot(pair.change, lifted) / pair.curvature) * pair.step
    return -lifted


def _stepped(evaluate: Callable[[Any], Any], at: Any, direction: Any, promise: float) -> Any:
    """The point after a step along a direction, or None if none lowers the value."""
    t = 1.0
    for _ in range(HALVINGS):
        new = evaluate(at.Y + t * direction)
        if new.value < at.value and new.value <= at.value - 2 * SUFFICIENT * t * promise:
            return new
        t /= 2
    return None


def _dot(a: Any, b: Any) -> float:
    return float((a * b).sum())
