"""Descent in a factor L of few rows, for a convex function of LᵀL with an optimum of low rank.

A stationary factor of r rows is either optimal among all metrics, which a proof shows, or the
function falls from LᵀL to LᵀL + εvvᵀ for some directions v. These become new rows, and the descent
continues. [Journée, Bach, Absil & Sepulchre, Low-rank optimization on the cone of positive
semidefinite matrices, SIAM J. Optim. 20 (2010)]
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

SETTLED = 0.01  # share of the tolerance: expected decrease at which a proof is attempted
PATIENCE = 0.25  # factor of that share after a failed proof
OPENED = 0.1  # initial length of the longest new row, relative to the mean of the others
HALVINGS = 10  # of that length


Point = TypeVar("Point", bound=Evaluated)


@dataclass(frozen=True)
class Proof:
    """The gap of a factor among metrics of any rank, and directions that it lacks."""

    gap: float
    directions: Any  # (m, d) directions that the factor lacks, longer if steeper; may be empty
    certificate: Any = None
    certified: bool = True  # otherwise the gap is an estimate from below


def rank_increasing_descent(
    evaluate: Callable[[Matrix], Point],
    start: Matrix,
    remaining: Callable[[Point, float], float],
    prove: Callable[[Matrix], Proof],
    tol: float,
    info: Callable[[Point], dict[str, Any]] = lambda _: {},
) -> Iterator[Iterate[Memory]]:
    """Iterates of descents with a growing number of rows.

    ``remaining(point, gain)`` estimates the relative gain that is left, from the gain of the next
    step; if it is small, ``prove`` is called. Iterates with a proof have the certified gap as their
    residual, the others have none. The descent ends where nothing lowers the value.
    """
    L, threshold = start, SETTLED * tol
    while True:
        grown, settled = None, False
        for iterate in descend(evaluate, L, remaining, info):
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
        if not settled:  # the descent ended
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
    """The factor with new rows along the directions, short enough to lower the value, or None."""
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
