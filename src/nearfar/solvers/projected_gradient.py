"""Projected gradient descent on positive semidefinite matrices, with Armijo's rule.

(1) A(t) = [A − t G]₊            G the gradient at A, [·]₊ the projection on the cone
(2) the largest t among t₀, t₀/2, t₀/4, …  with  f(A(t)) ≤ f(A) − σ ⟨G, A − A(t)⟩

t₀ is twice the previous step, so that steps can grow. [Bertsekas, On the Goldstein-Levitin-Polyak
gradient projection method, IEEE Trans. Automatic Control 21 (1976)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.linalg import factor_psd, project_psd
from nearfar.solvers.line_search import Evaluated
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

SUFFICIENT = 0.1  # σ of (2)
FIRST_STEP = 0.1  # length of the first trial, relative to that of the start
HALVINGS = 50  # of a step, after which only rounding can prevent a decrease


Point = TypeVar("Point", bound=Evaluated)


def projected_descent(
    evaluate: Callable[[Matrix], Point],
    gradient: Callable[[Point], Matrix],
    start: Matrix,
    residual: Callable[[Point], float | None],
) -> Iterator[Iterate]:
    """Iterates from A = LᵀL of a start L; their points are factors, as ``evaluate`` takes them.

    ``gradient`` gives G from the result of ``evaluate``. Ends where no step lowers the value.
    """
    at = evaluate(start)
    A = start.T @ start
    slope = np.linalg.norm(gradient(at))
    step = FIRST_STEP * float(np.linalg.norm(A)) / float(slope) if slope > 0 else 1.0
    while True:
        yield Iterate(at.L, at.value, residual(at), state=at)
        G = gradient(at)
        for _ in range(HALVINGS):
            new = project_psd(A - step * G)  # (1)
            trial = evaluate(factor_psd(new))
            if trial.value <= at.value - SUFFICIENT * float(np.vdot(G, A - new)):  # (2)
                break
            step *= 0.5
        else:
            return
        if trial.value >= at.value:
            return
        A, at, step = new, trial, 2 * step
