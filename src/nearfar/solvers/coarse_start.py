"""A start for the descent by multipliers: the approximate optimum of a coarser problem.

Far from the optimum a problem of very many points needs many iterations, and each of them visits
far more triplets than there are at the optimum. A part of the points leads to the same region, at a
fraction of the cost, where the problem says that it determines a metric well. The parts are nested:
a coarser problem may have a coarser one itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.factor_steps import at_best_scale
from nearfar.solvers.hinge_problem import TUNING, Along, At, HingeProblem, Known
from nearfar.solvers.multiplier_state import State
from nearfar.solvers.quasi_newton import LBFGS

Matrix = NDArray[np.float64]


def coarse_start(
    problem: HingeProblem[At, Known, Along], L: Matrix, width: float, margin: float
) -> Matrix:
    """A factor near the optimum of a coarser problem; L itself where there is none."""
    coarser = problem.coarser()
    if coarser is None:
        return L
    L = at_best_scale(coarser, coarse_start(coarser, L, width, margin), width=width)
    at = coarser.survey(L, margin, width)
    memory, interval = LBFGS(TUNING.memory), TUNING.first_search
    state = State(coarser, at, 0.0, False, margin, interval, memory)
    value = np.inf
    while state.n_iter < TUNING.coarse_steps:
        state.step()
        if not (state.searches.due(state.n_iter, state.value) or state.looks):
            continue
        look = state.look()
        found = state.search(look)
        if state.looks:
            if look.residual <= TUNING.coarse or state.value > TUNING.coarse_fall * value:
                break
            value = state.value
        state.update(look, found)
    return state.at.L
