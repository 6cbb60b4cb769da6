"""Descent in a factor Y of few columns, K = YYᵀ, for a convex program of K ⪰ 0 with a dual bound.

The steps are those of preconditioned limited-memory BFGS, exact along each direction. After a round
of steps the problem may replace itself (the method of multipliers). Now and then a proof tells how
far Y is from the optimum over all K; if the gap does not fall, the directions in which Y lacks a
column are added [Boumal]. All columns should differ from zero at the start: where the flat ones are
unstable they grow by themselves, in many places of a large graph at once.

[Boumal] Boumal, Voroninski & Bandeira, Deterministic guarantees for Burer-Monteiro factorizations
of smooth semidefinite programs, Communications on Pure and Applied Mathematics 73, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from nearfar.limits import check_time
from nearfar.solvers.line_search import exact_step
from nearfar.solvers.quasi_newton import LBFGS, LineSearchable
from nearfar.solvers.rank_increasing import Proof
from nearfar.solvers.run import Iterate

Array = Any  # of NumPy or torch

ROUND = 50  # steps of an iterate
MEMORY = 10  # pairs of BFGS
RARER = 1.3  # growth of the number of rounds after which the next proof follows
FALLEN = 0.9  # of the last gap, above which columns are added
MOST_COLUMNS = 40
SETTLED = 1e-14  # decrease of the value in a round, relative, that is rounding
OPENED = 0.1  # largest entry of a new column


class Evaluated(Protocol):
    """A point, and the objective there."""

    @property
    def Y(self) -> Array: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def gradient(self) -> Array: ...  # noqa: D102


Point = TypeVar("Point", bound=Evaluated)
Line = TypeVar("Line", bound=LineSearchable)


class Problem(Protocol[Point, Line]):
    """What the solver needs of a problem; see `nearfar.problems.mvu_low_rank`."""

    def place(self, Y: Array) -> Point: ...  # noqa: D102
    def line(self, at: Point, direction: Array) -> Line: ...  # noqa: D102
    def moved(self, at: Point, line: Line, t: float) -> Point: ...  # noqa: D102
    def successor(self, at: Point) -> Self: ...  # noqa: D102


def staircase(
    problem: Problem[Point, Line],
    start: Array,
    precondition: Callable[[Array], Array],
    prove: Callable[[Point], Proof],
) -> Iterator[Iterate[Point]]:
    """Iterates of ROUND steps each; it ends where nothing lowers the value.

    ``precondition`` multiplies by a symmetric matrix that is positive definite on gradients. The
    residual of an iterate with a proof is the certified gap, and the others have none; that of a
    proof which was not tried, since it would not do, is only estimated. The directions of a proof
    are columns (n, k) that Y lacks. The state of an iterate is its place.
    """
    at = problem.place(start)
    yield Iterate(at.Y, at.value, state=at)
    memory = LBFGS(MEMORY)
    rounds, next_proof, last = 0, 1, np.inf
    while True:
        at, stationary = _descend(problem, at, precondition, memory)
        rounds += 1
        grown = None
        if rounds >= next_proof or stationary:
            next_proof = int(RARER * rounds) + 1
            proof = prove(at)
            info = {"n_columns": at.Y.shape[1]}
            yield Iterate(
                at.Y,
                at.value,
                proof.gap if proof.certified else None,
                state=at,
                certificate=proof.certificate,
                certified=proof.certified,
                info=info if proof.certified else info | {"estimated_gap": proof.gap},
            )
            if proof.gap > FALLEN * last:
                grown = _with_columns(at.Y, proof.directions)
            last = proof.gap
        else:
            yield Iterate(at.Y, at.value, state=at, info={"n_columns": at.Y.shape[1]})
        successor = problem.successor(at)
        if grown is None and successor is problem:
            if stationary:
                return
            continue
        problem = successor
        at = problem.place(at.Y if grown is None else grown)
        memory.forget()


def _descend(
    problem: Problem[Point, Line],
    at: Point,
    precondition: Callable[[Array], Array],
    memory: LBFGS,
) -> tuple[Point, bool]:
    """The place after a round of steps, and whether only rounding changed the value."""
    image, start = precondition(at.gradient), at.value
    for _ in range(ROUND):
        check_time()
        line = problem.line(at, memory.direction(at.gradient, image))
        t = exact_step(line.at, line.limit)
        if t == 0 and len(memory):
            memory.forget()
            line = problem.line(at, -image)
            t = exact_step(line.at, line.limit)
        if t == 0:
            return at, True
        new = problem.moved(at, line, t)
        new_image = precondition(new.gradient)
        memory.remember(new.Y - at.Y, new.gradient - at.gradient, new_image - image)
        at, image = new, new_image
    return at, start - at.value <= SETTLED * abs(start)


def _with_columns(Y: Array, directions: Array) -> Array | None:
    """The factor with new columns, or None if there are none or there is no room."""
    count = min(directions.shape[1], MOST_COLUMNS - Y.shape[1])
    if count <= 0:
        return None
    rank = Y.shape[1]
    grown = Y[:, [*range(rank), *[0] * count]]  # a copy
    for number, column in enumerate(directions.T[:count]):
        grown[:, rank + number] = column * (OPENED / float(abs(column).max()))
    return grown
