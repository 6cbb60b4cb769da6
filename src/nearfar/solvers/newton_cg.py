"""Newton's method on positive definite matrices, its steps by conjugate gradients.

For problems in B = CᵀC of which every point proves a bound, such as `nearfar.problems.logdet`.
Steps S are in the coordinates of the factor: B becomes CᵀC + CᵀSC. There the Hessian of −log det B
is the identity, and conjugate gradients need few products. See Nocedal & Wright, Numerical
Optimization, chapter 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

FORCING = 0.5  # a Newton system is solved to this share of its right side at most
MOST_PRODUCTS = 200  # of the Hessian, for one step
DECREASE = 1e-4  # share of what a step promises that it must gain
SHORTEST = 1e-10  # step that is tried


class NewtonProblem(Protocol):
    """What the solver asks of a problem; `nearfar.problems.logdet` explains each part."""

    def place(self, C: Matrix) -> Any: ...  # noqa: D102


def newton_cg(problem: NewtonProblem, C: Matrix) -> Iterator[Iterate]:
    """Iterates towards the smallest objective; the residual is the relative gap, certified."""
    at = problem.place(C)
    while True:
        yield Iterate(at.C, at.value, at.gap, True, certified=True, certificate=at)
        gradient = at.gradient
        S = newton_step(at.product(), gradient)
        slope = float(np.vdot(gradient, S))
        length, found = 1.0, None
        while found is None and length >= SHORTEST:
            trial = at.moved(length * S)
            if trial is not None and trial.value <= at.value + DECREASE * length * slope:
                found = trial
            length /= 2
        if found is None or found.value >= at.value:  # rounding hides what is left
            return
        at = found


def newton_step(product: Callable[[Matrix], Matrix], gradient: Matrix) -> Matrix:
    """S with product(S) about −gradient, by conjugate gradients: always a descent direction."""
    S, left = np.zeros_like(gradient), -gradient
    direction, square = left, float(np.vdot(left, left))
    enough = min(FORCING, square**0.25) ** 2 * square  # superlinear: theorem 7.2
    for _ in range(MOST_PRODUCTS):
        if square <= enough:
            break
        image = product(direction)
        length = square / float(np.vdot(direction, image))
        S = S + length * direction
        left = left - length * image
        before, square = square, float(np.vdot(left, left))
        direction = left + square / before * direction
    return S
