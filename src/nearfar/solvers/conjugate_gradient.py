"""Preconditioned nonlinear conjugate gradients with exact steps, for polynomials of degree four.

(1) direction  p = −M⁻¹g + β p,  β = max(0, ⟨g, v − v'⟩ / ⟨g', v'⟩),  v = M⁻¹g      [NW06, eq. 5.45]
(2) step       the best positive root of the derivative of the polynomial along p

g' and v' are those of the step before. With exact steps p is a direction of descent.

[NW06] Nocedal & Wright, Numerical optimization, 2nd edition 2006.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

RECENT = 10  # steps whose gain tells how much is left


class Polynomial(Protocol):
    """What the solver asks of a problem; `nearfar.problems.stress` explains each part."""

    def place(self, Y: Matrix) -> Any: ...  # noqa: D102
    def line(self, at: Any, direction: Matrix) -> tuple[Matrix, Any]: ...  # noqa: D102
    def moved(self, at: Any, line: Any, t: float) -> Any: ...  # noqa: D102


def conjugate_gradient(
    problem: Polynomial, start: Matrix, precondition: Callable[[Matrix], Matrix]
) -> Iterator[Iterate]:
    """Iterates of a descent; it ends by itself where no step lowers the value.

    ``precondition`` multiplies by M⁻¹, symmetric and positive definite on gradients. The residual
    is what the last RECENT steps gained, relative to the place's ``size``; None before. The state
    of an iterate is its place.
    """
    at = problem.place(start)
    image = precondition(at.gradient)
    product = float(np.vdot(at.gradient, image))
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
        before, product_before = image, product
        at = problem.moved(at, line, t)
        image = precondition(at.gradient)
        product = float(np.vdot(at.gradient, image))
        beta = max(0.0, (product - float(np.vdot(at.gradient, before))) / product_before)  # (1)
        direction = beta * direction - image
        values.append(at.value)


def _step(problem: Polynomial, at: Any, direction: Matrix) -> tuple[float, Any]:
    """How far to go along a direction, 0 if nowhere, and the line."""
    coefficients, line = problem.line(at, direction)
    return quartic_step(coefficients), line


def quartic_step(coefficients: Matrix) -> float:
    """The t > 0 at which c₀t⁴ + c₁t³ + c₂t² + c₃t is least, 0 if it is nowhere below zero."""
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
