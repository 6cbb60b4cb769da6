"""Limited-memory BFGS with exact steps, for objectives that are cheap along a line.

For problems in a factor L of a metric of which every point proves a bound, such as those of
`nearfar.problems.mmc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.lbfgs import LBFGS, exact_step
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

MEMORY = 10  # steps that the quasi-Newton method remembers


class LineProblem(Protocol):
    """What the solver asks of a problem; `nearfar.problems.mmc` explains each part."""

    def place(self, L: Matrix) -> Any: ...  # noqa: D102
    def gradient(self, at: Any) -> Matrix: ...  # noqa: D102
    def line(self, at: Any, direction: Matrix) -> Any: ...  # noqa: D102
    def bound(self, at: Any) -> Any: ...  # noqa: D102
    def certify(self, L: Matrix) -> Any: ...  # noqa: D102


def ascend(
    problem: LineProblem, L: Matrix, tol: float, *, fixed_rank: bool = False
) -> Iterator[Iterate]:
    """Iterates towards the largest objective, whose value they hold negated.

    The residual is the relative gap: an estimate in working precision, certified once that is at
    most ``tol`` and at the end. For a ``fixed_rank``, where no bound need be tight, it is an
    estimate of the relative gain that is left.
    """
    at = problem.place(L)
    gradient = problem.gradient(at)
    direction = -gradient
    memory = LBFGS(MEMORY)
    best, least, failures = -np.inf, np.inf, 0  # steps in a row that bettered nothing
    while True:
        certificate, certified = problem.bound(at), False
        residual = certificate.gap
        if fixed_rank:  # f of the problem is −½ objective²: twice what its quadratic model promises
            promise = -np.vdot(gradient, direction) / certificate.objective**2
            residual = min(residual, float(promise))
        elif residual <= tol:
            certificate, certified = problem.certify(at.L), True
            residual = certificate.gap
        yield _iterate(at, certificate, residual, certified)
        better = certificate.objective > best or residual < least
        failures = 0 if better else failures + 1
        best, least = max(best, certificate.objective), min(least, residual)
        line, t = _step(problem, at, direction)
        if (failures or t == 0) and len(memory):
            memory.forget()
            line, t = _step(problem, at, -gradient)
        if t == 0 or failures > 1:
            if not fixed_rank:
                certificate = problem.certify(at.L)
                yield _iterate(at, certificate, certificate.gap, certified=True)
            return
        before, slope = at.L, gradient
        at = problem.place(at.L + t * line.direction)
        gradient = problem.gradient(at)
        memory.remember(at.L - before, gradient - slope)
        direction = memory.direction(gradient)


def _step(problem: LineProblem, at: Any, direction: Matrix) -> tuple[Any, float]:
    line = problem.line(at, direction)
    return line, exact_step(line.at, line.limit)


def _iterate(at: Any, certificate: Any, residual: float, certified: bool) -> Iterate:
    objective = certificate.objective
    info = {"objective": objective}
    return Iterate(
        at.L, -objective, residual, True, info, certificate=certificate, certified=certified
    )
