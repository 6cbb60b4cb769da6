"""Preconditioned nonlinear conjugate gradients with exact steps, for polynomials of degree four.

(1) direction  p = −M⁻¹g + β p,  β = max(0, ⟨g, v − v'⟩ / ⟨g', v'⟩),  v = M⁻¹g      [NW06, eq. 5.45]
(2) step       the best positive root of the derivative of the polynomial along p

g' and v' belong to the previous step. With exact steps p is a descent direction.

[NW06] Nocedal & Wright, Numerical optimization, 2nd edition 2006.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.line_search import quartic_step
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]
Array = Any  # of NumPy or torch

RECENT = 10  # steps; their gain estimates how much is left


class Evaluated(Protocol):
    """A point, and the objective there."""

    @property
    def Y(self) -> Array: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def gradient(self) -> Array: ...  # noqa: D102
    @property
    def size(self) -> float: ...  # noqa: D102


Point = TypeVar("Point", bound=Evaluated)
Line = TypeVar("Line")


class Polynomial(Protocol[Point, Line]):
    """What the solver needs of a problem; see `nearfar.problems.stress`."""

    def place(self, Y: Array) -> Point: ...  # noqa: D102
    def line(self, at: Point, direction: Array) -> tuple[Matrix, Line]: ...  # noqa: D102
    def moved(self, at: Point, line: Line, t: float) -> Point: ...  # noqa: D102


def conjugate_gradient(
    problem: Polynomial[Point, Line], start: Array, precondition: Callable[[Array], Array]
) -> Iterator[Iterate[Point, None]]:
    """Iterates of a descent; it ends where no step lowers the value.

    ``precondition`` multiplies by M⁻¹, symmetric and positive definite on gradients. The residual
    is the gain of the last RECENT steps, relative to the place's ``size``; None before that. The
    state of an iterate is its place.
    """
    at = problem.place(start)
    image = precondition(at.gradient)
    product = _dot(at.gradient, image)
    direction = -image
    values = [at.value]
    while True:
        recent = values[-RECENT - 1 :]
        residual = (recent[0] - at.value) / at.size if len(recent) > RECENT else None
        if product <= 0:  # the gradient is zero
            residual = 0.0
        yield Iterate(at.Y, at.value, residual, True, {"objective": -at.value}, state=at)
        t, line = _step(problem, at, direction)
        if t == 0 and product > 0:
            direction = -image
            t, line = _step(problem, at, direction)
        if t == 0:
            yield Iterate(at.Y, at.value, 0.0, True, {"objective": -at.value}, state=at)
            return
        previous_image, previous_product = image, product
        at = problem.moved(at, line, t)
        image = precondition(at.gradient)
        product = _dot(at.gradient, image)
        change = product - _dot(at.gradient, previous_image)
        beta = max(0.0, change / previous_product)  # (1)
        direction = beta * direction - image
        values.append(at.value)


def _step(problem: Polynomial[Point, Line], at: Point, direction: Array) -> tuple[float, Line]:
    """The best step length along a direction, 0 if there is none, and the line."""
    coefficients, line = problem.line(at, direction)
    return quartic_step(coefficients), line


def _dot(A: Array, B: Array) -> float:
    return float(A.ravel() @ B.ravel())
