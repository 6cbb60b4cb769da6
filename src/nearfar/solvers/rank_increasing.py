"""Descent in a factor L of few rows, for a convex function of LᵀL whose optimum has low rank.

Where a factor of r rows is stationary, either it is the optimum among all metrics, which a proof
tells, or there are directions v such that the function falls from LᵀL to LᵀL + εvvᵀ. They become
rows, and the descent goes on. [Journée, Bach, Absil & Sepulchre, Low-rank optimization on the cone
of positive semidefinite matrices, SIAM J. Optim. 20 (2010)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.line_search import Evaluated, backtrack
from nearfar.solvers.quasi_newton import Memory, descend
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

SETTLED = 0.01  # of the tolerance: the decrease still to expect at which a proof is tried
PATIENCE = 0.25  # factor of that after a proof in vain
OPENED = 0.1  # length of the longest new row, relative to the mean of the others, at first
HALVINGS = 10  # of that length


Point = TypeVar("Point", bound=Evaluated)


@dataclass(frozen=True)
class Proof:
    """What is known of a factor among all metrics, whatever their rank."""

    gap: float  # certified
    directions: Matrix  # (m, d) that the factor lacks, the longer the steeper; perhaps none
    certificate: Any = None


def rank_increasing_descent(
    evaluate: Callable[[Matrix], Point],
    start: Matrix,
    remaining: Callable[[Point, float], float],
    prove: Callable[[Matrix], Proof],
    tol: float,
) -> Iterator[Iterate[Memory]]:
    """Iterates of descents in ever more rows; only those that a proof was tried of have a residual.

    That residual is the certified gap. ``remaining`` estimates the relative gain that is left from
    what ``evaluate`` gave and the gain of the next step; ``prove`` is asked where that is small. It
    ends by itself where nothing lowers the value.
    """
    L, threshold = start, SETTLED * tol
    while True:
        grown, settled = None, False
        for iterate in descend(evaluate, L, remaining):
            settled = iterate.residual is not None and iterate.residual <= threshold
            if not settled:
                yield replace(iterate, residual=None)
                continue
            proof = prove(iterate.point)
            yield _proved(iterate, proof)
            threshold *= PATIENCE
            grown = _with_rows(evaluate, iterate, proof.directions)
            if grown is not None:
                break
        if not settled:  # the descent ended by itself
            proof = prove(iterate.point)
            yield _proved(iterate, proof)
            grown = _with_rows(evaluate, iterate, proof.directions)
        if grown is None:
            return
        L = grown


def _proved(iterate: Iterate[Memory], proof: Proof) -> Iterate[Memory]:
    return replace(iterate, residual=proof.gap, certificate=proof.certificate, certified=True)


def _with_rows(
    evaluate: Callable[[Matrix], Point], iterate: Iterate, directions: Matrix
) -> Matrix | None:
    """The factor with new rows along the directions, so short that the value falls, if it does."""
    if not len(directions):
        return None
    L = iterate.point
    length = OPENED * float(np.linalg.norm(L)) / len(L) ** 0.5
    rows = directions / np.linalg.norm(directions, axis=1).max()

    def lower(length: float) -> Matrix | None:
        grown = np.vstack([L, length * rows])
        return grown if evaluate(grown).value < iterate.value else None

    found = backtrack(lower, length, HALVINGS)
    return None if found is None else found[0]
