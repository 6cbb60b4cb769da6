"""Step lengths along a direction: exact steps, the strong Wolfe conditions, and backtracking."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import line_search

Matrix = NDArray[np.float64]
Line = Callable[[float], tuple[float, float, float]]
"""A function of one number that returns its value, slope and curvature."""

ROUNDING = 1e-14  # relative increase of a value that may be rounding
FLAT = 0.05  # an exact step ends when the slope has fallen to this share
MOST_NEWTON_STEPS = 20  # of an exact step
MOST_TRIALS = 20  # of a search for the Wolfe conditions


def exact_step(along: Line, limit: float) -> float:
    """A local minimiser t in (0, limit] of a function given with slope and curvature.

    Newton's method on the slope, kept inside a bracket; ends when the slope has fallen to the share
    FLAT of the slope at 0. Returns 0 if the slope at 0 is not negative.
    """
    start, slope0, _ = along(0.0)
    if slope0 >= 0:
        return 0.0
    start += ROUNDING * abs(start)
    low, high, t = 0.0, np.inf, min(1.0, limit)
    for _ in range(MOST_NEWTON_STEPS):
        value, slope, curvature = along(t)
        if abs(slope) <= FLAT * -slope0 and value <= start:
            return t
        if slope > 0 or value > start:
            high = t
        else:
            low = t
            if t >= limit:
                return t
        newton = t - slope / curvature if curvature > 0 else np.inf
        if not low < newton < high:
            newton = 0.5 * (low + high) if np.isfinite(high) else 2 * t
        t = min(newton, limit)
    return low


def quartic_step(coefficients: Matrix) -> float:
    """The t > 0 that minimises c₀t⁴ + c₁t³ + c₂t² + c₃t, or 0 if it is never negative."""
    c0, c1, c2, c3 = coefficients
    if not (np.isfinite(coefficients).all() and c3 < 0):
        return 0.0
    # In units of t₀ = −c₃ / scale the roots are neither huge nor tiny.
    scale = max(abs(c2), (c0 * c3 * c3) ** (1 / 3), abs(c1 * c3) ** 0.5)
    if scale == 0:
        return 0.0
    unit = -c3 / scale
    scaled = np.array([c0 * unit**4, c1 * unit**3, c2 * unit**2, c3 * unit])
    roots = np.roots(scaled / -scaled[-1] * [4, 3, 2, 1])
    steps = roots.real[(np.abs(roots.imag) <= 1e-6 * np.abs(roots)) & (roots.real > 0)]
    if not len(steps):
        return 0.0
    values = np.polyval([*scaled, 0.0], steps)
    best = int(values.argmin())
    return float(unit * steps[best]) if values[best] < 0 else 0.0


class Evaluated(Protocol):
    """A point, its objective and its gradient."""

    @property
    def L(self) -> Matrix:
        """The point."""

    @property
    def value(self) -> float:
        """The objective, which is minimised."""

    @property
    def gradient(self) -> Matrix:
        """Its gradient."""


Point = TypeVar("Point", bound=Evaluated)


def wolfe_step(evaluate: Callable[[Matrix], Point], at: Point, direction: Matrix) -> Point | None:
    """The point after a step that meets the strong Wolfe conditions; None if none is found.

    SciPy's line search, on the objective as a function of the step length.
    """
    last: dict[float, Point] = {}

    def point(t: NDArray[np.float64]) -> Point:
        step = float(t[0])
        if step not in last:
            last.clear()  # the search asks for the value and then for the slope of a point
            last[step] = evaluate(at.L + step * direction)
        return last[step]

    def slope(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([np.vdot(point(t).gradient, direction)])

    origin, ahead = np.zeros(1), np.ones(1)
    first_slope = np.array([np.vdot(at.gradient, direction)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # if no step was found, it returns None
        step = line_search(
            lambda t: point(t).value,
            slope,
            origin,
            ahead,
            first_slope,
            at.value,
            maxiter=MOST_TRIALS,
        )[0]
    if step is None:
        return None
    new = point(step * ahead)
    return new if new.value < at.value else None


Found = TypeVar("Found")


def backtrack(
    trial: Callable[[float], Found | None], step: float, halvings: int
) -> tuple[Found, float] | None:
    """Try step, step/2, step/4, …; the first result other than None with its step, or None."""
    for _ in range(halvings):
        found = trial(step)
        if found is not None:
            return found, step
        step *= 0.5
    return None
