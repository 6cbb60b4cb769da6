"""A start for the descent by multipliers: the approximate optimum of a coarser problem.

Far from the optimum a problem of very many points needs many iterations, and each of them visits
far more triplets than there are at the optimum. A part of the points leads to the same region, at a
fraction of the cost, where the problem says that it determines a metric well. The parts are nested:
a coarser problem may have a coarser one itself.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.factor_steps import at_best_scale
from nearfar.solvers.hinge_problem import TUNING, Along, At, HingeProblem, Known
from nearfar.solvers.multiplier_state import State
from nearfar.solvers.quasi_newton import LBFGS
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]


class Begun(NamedTuple):
    """Where the descent starts, and whether that is near the optimum, and its scale right."""

    L: Matrix
    near: bool = False


def coarse_start(
    problem: HingeProblem[At, Known, Along], L: Matrix, tol: float, width: float, margin: float
) -> Generator[Iterate[Known], None, Begun]:
    """Iterates on coarser problems, and the last factor; L itself where there are none.

    The values of the iterates are estimates of the objective.
    """
    found = problem.coarser()
    if found is None:
        return Begun(L)
    coarser, differs = found
    share = float(np.trace(coarser.P) / np.trace(problem.P))
    deeper = coarse_start(coarser, L, tol, width, margin)
    while True:
        try:
            yield _scaled(next(deeper), share)
        except StopIteration as end:
            L = end.value.L
            break
    enough = TUNING.coarse if differs else tol
    L = at_best_scale(coarser, L, width=width)
    at = coarser.survey(L, margin, width, insist=True)
    memory = LBFGS(TUNING.memory)
    state = State(coarser, at, 0.0, False, margin, TUNING.first_search, memory)
    del at
    value = np.inf
    while state.n_iter < TUNING.coarse_steps:
        state.step()
        info = {"active_triplets": state.n_active, "searched": False}
        yield _scaled(Iterate(state.at.L, state.value, info=info), share)
        if not (state.searches.due(state.n_iter, state.value) or state.looks):
            continue
        look = state.look()
        searched = state.search(look)
        if state.looks:
            rests = differs and state.value > TUNING.coarse_fall * value
            if look.residual <= enough or rests:
                break
            value = state.value
        state.update(look, searched)
    return Begun(state.at.L, near=not differs)


def _scaled(iterate: Iterate[Known], share: float) -> Iterate[Known]:
    return Iterate(iterate.point, iterate.value / share, info=iterate.info)
