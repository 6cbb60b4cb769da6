"""Descent in a factor L of M = LᵀL with proximal multipliers, a working set and an adaptive rank.

For problems min over M ⪰ 0 of a linear term plus hinges (see `nearfar.problems.lmnn`). Every
iteration makes a step, and some iterations do more:

* **step**: a limited-memory BFGS step with an exact line search, on the smoothed objective over the
  triplets at hand (the working set). Near the end, before each look, it is a step of Newton's
  method in the leading directions of M, since the bound is tight only if M is stationary there;
* **look**, every few iterations: compute the duality gap over the triplets at hand;
* **search**, less and less often: find all triplets. A small gap at hand also starts a search, then
  with a certificate from the data in float64. If memory does not hold them, it takes only active
  ones, and goes back towards the last search if these are too many;
* **update**, after a look or a search: the multipliers advance once the smoothed objective hardly
  falls any more. If the dual proves that M should grow in a direction that L lacks, L gains a row;
  rows that became negligible are dropped. So the cost depends on the rank of the answer, and the
  descent still ends at the optimum over all M ⪰ 0.

Of very many rows, the first steps learn from some (`nearfar.solvers.coarse_start`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import MemoryLimitError
from nearfar.solvers.coarse_start import coarse_start
from nearfar.solvers.factor_steps import at_best_scale
from nearfar.solvers.hinge_problem import (
    SEARCH_MARGIN,
    TUNING,
    WIDTH,
    Along,
    At,
    HingeProblem,
    Known,
)
from nearfar.solvers.multiplier_state import State
from nearfar.solvers.quasi_newton import LBFGS, pairs_in_memory
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]


def descend_in_both_precisions(
    problem: HingeProblem[At, Known, Along],
    L: Matrix,
    tol: float,
    *,
    fixed_rank: bool = False,
    **options: Any,
) -> Iterator[Iterate[Known]]:
    """`proximal_factor_descent`, continued in float64 once float32 makes no more progress.

    Along directions in which no target edge differs, lengths in float32 are rounding errors. They
    matter if the metric is large in such directions.
    """
    value = residual = np.inf
    looks = 0  # in a row, without progress
    for iterate in proximal_factor_descent(problem, L, tol, fixed_rank=fixed_rank, **options):
        yield iterate
        if not problem.is_single or fixed_rank or iterate.residual is None:
            continue
        nearer = iterate.residual < TUNING.nearer * residual
        looks = 0 if nearer or iterate.value < TUNING.lower * value else looks + 1
        value, residual = min(value, iterate.value), min(residual, iterate.residual)
        if looks == TUNING.most_looks:
            break
    if problem.is_single and not fixed_rank:
        doubled = problem.in_double()
        more = proximal_factor_descent(doubled, iterate.point, tol, triplets=iterate.state)
        del iterate  # its triplets would stay as long as this descent
        yield from more


def proximal_factor_descent(
    problem: HingeProblem[At, Known, Along],
    L: Matrix,
    tol: float,
    *,
    warm: bool = False,
    width: float = WIDTH,
    margin: float = SEARCH_MARGIN,
    interval: int = TUNING.first_search,
    triplets: Known | None = None,
    fixed_rank: bool = False,
) -> Iterator[Iterate[Known]]:
    """Iterates towards the optimum over all M ⪰ 0, or over L of its shape if ``fixed_rank``.

    ``warm`` means that the scale of L is about right. A smaller ``width`` smooths the hinge less,
    for an L close to the optimum; a wider ``margin`` keeps more triplets at hand, for a start far
    from it; the second search comes after ``interval`` iterations. ``triplets`` with their
    multipliers continue an earlier descent from L as it is.

    Iterates have a residual only after a look: the relative gap over the triplets at hand. It is an
    estimate until it is at most ``tol`` or the descent ends; then it is certified. For a fixed rank
    it is an estimate of the relative decrease that is left.
    """
    if triplets is None:
        if not (warm or fixed_rank):
            begun = yield from coarse_start(problem, L, tol, width, margin)
            L, warm = begun.L, begun.near
            if begun.near:
                width, interval = TUNING.near_width, TUNING.near_search
        L = at_best_scale(problem, L, warm=warm, width=width)
    else:
        width = triplets.width
    memory = LBFGS(pairs_in_memory(TUNING.memory, L.size) if fixed_rank else TUNING.memory)
    at: At | None = None
    with suppress(MemoryLimitError):
        at = problem.survey(L, margin, width, triplets)
    if at is None:  # and the error, which holds what had been found, is gone
        at = problem.survey(L, 0.0, width, triplets, insist=True)  # only those that are active
    state = State(problem, at, tol, fixed_rank, margin, interval, memory)
    del at, triplets  # they would stay as long as the descent, with arrays as large as the triplets
    start: Iterate[Known] | None = state.start()
    while True:
        state.step()
        if not (state.searches.due(state.n_iter, state.value) or state.looks):
            info = {"active_triplets": state.n_active, "searched": False}
            yield Iterate(state.at.L, state.value, info=info, state=state.at.triplets, start=start)
            start = None
            continue
        look = state.look()
        found = state.search(look)
        yield state.iterate(found, start)
        start = None
        if found.ends:
            return
        state.update(look, found)
