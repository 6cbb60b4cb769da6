"""Projections onto convex sets, and the two algorithms of the thesis that alternate them.

A point is a symmetric matrix or any array; inner products are sums over entries.

(1) half-space  {P : ⟨W, P⟩ ≤ c}      P − [⟨W, P⟩ − c]₊ W / ‖W‖²              [W07, lemma 4]
(2) hyperplane  {P : ⟨W, P⟩ = c}      P − (⟨W, P⟩ − c) W / ‖W‖²               [W07, lemma 4]
(3) cone        {P : P ⪰ 0}           V max(Λ, 0) Vᵀ for P = V Λ Vᵀ           [W07, lemma 5]

[W07] Weinberger, Metric learning with convex optimization, thesis, University of Pennsylvania,
2007, section 1.3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from nearfar.errors import InvalidInputError
from nearfar.linalg import project_psd
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]
Projection = Callable[[Matrix], Matrix]
"""The point of a convex set that is nearest to a given one."""


def onto_half_space(W: Matrix, c: float) -> Projection:
    """(1) argmin over ⟨W, Q⟩ ≤ c of ‖Q − P‖, as a function of P."""
    square = _squared_length(W)

    def project(P: Matrix) -> Matrix:
        excess = float(np.vdot(W, P)) - c
        return P - (max(excess, 0.0) / square) * W

    return project


def onto_hyperplane(W: Matrix, c: float) -> Projection:
    """(2) argmin over ⟨W, Q⟩ = c of ‖Q − P‖, as a function of P."""
    square = _squared_length(W)

    def project(P: Matrix) -> Matrix:
        return P - ((float(np.vdot(W, P)) - c) / square) * W

    return project


def onto_psd_cone(P: Matrix) -> Matrix:
    """(3) argmin over Q ⪰ 0 of ‖Q − P‖, for a symmetric P. O(d³)."""
    return project_psd(P)


def onto_psd_cone_less(M: Matrix, weight: float, x: Matrix) -> Matrix:
    """(3) of M − weight · xxᵀ for M ⪰ 0 and weight ≥ 0, in place.

    By interlacing at most one eigenvalue is negative, so the smallest eigenpair suffices. Only the
    lower triangle of M is read and written; M is in Fortran order. O(d³), but a half to a quarter
    of the time of all eigenvectors.
    """
    M = blas.dsyr(-weight, x, a=M, lower=1, overwrite_a=1)
    value, v = smallest_eigenpair(M)
    if value < 0:
        M = blas.dsyr(-value, v, a=M, lower=1, overwrite_a=1)
    return M


def smallest_eigenpair(M: Matrix) -> tuple[float, Matrix]:
    """The smallest eigenvalue and its vector (d,), of a matrix given by its lower triangle."""
    values, vectors, _, _, failed = lapack.dsyevr(M, range="I", il=1, iu=1, lower=1)
    if failed:
        raise linalg.LinAlgError(f"dsyevr found no smallest eigenvalue (info={failed})")
    return float(values[0]), vectors[:, 0]


def alternating_projection(start: Matrix, projections: Sequence[Projection]) -> Iterator[Iterate]:
    """Algorithm 1: project onto one set after the other, round by round.

    The points converge to a point in all sets, if there is one; in general not the nearest such
    point. An iterate's ``value`` is the largest distance covered by a projection of the round;
    ``residual`` is how far the whole round moved the point, the ε of the thesis.

    Parameters
    ----------
    start : array
        The first point.
    projections : sequence of functions
        Onto the sets, in the order of a round.

    Yields
    ------
    Iterate
        The point after each round.
    """
    point = start
    while True:
        previous = point
        point, distance = _round(point, projections)
        yield Iterate(point, distance, _distance(point, previous))


def gradient_alternating_projection(
    start: Matrix,
    projections: Sequence[Projection],
    value_and_gradient: Callable[[Matrix], tuple[float, Matrix]],
    step: Callable[[int], float],
) -> Iterator[Iterate]:
    """Algorithm 2: a step down the gradient before each round of projections.

    A constant step ends near the optimum, at a distance of the order of the step, because a round
    does not find the nearest feasible point. Steps that fall to zero but sum to infinity, such as
    ``lambda t: 1 / t``, converge to the optimum [N11]. An iterate's ``value`` is the objective,
    which is below the optimum while the point is infeasible; ``residual`` is how far the round
    moved the point, gradient step included, and ``info["distance"]`` is the ``value`` of
    Algorithm 1.

    Parameters
    ----------
    start : array
        The first point.
    projections : sequence of functions
        Onto the sets, in the order of a round.
    value_and_gradient : callable
        The convex objective and its gradient at a point.
    step : callable
        The length of the step of round t = 1, 2, …, as a multiple of the gradient.

    Yields
    ------
    Iterate
        The point after each round.

    References
    ----------
    [N11] Nedić, Random algorithms for convex minimization problems, Math. Prog. 129 (2011).
    """
    point = start
    _, gradient = value_and_gradient(point)
    for t in count(1):
        previous = point
        point, distance = _round(point - step(t) * gradient, projections)
        value, gradient = value_and_gradient(point)
        yield Iterate(point, value, _distance(point, previous), info={"distance": distance})


def _round(point: Matrix, projections: Sequence[Projection]) -> tuple[Matrix, float]:
    """Project onto each set in turn; also the largest distance that a projection covered."""
    largest = 0.0
    for project in projections:
        previous = point
        point = project(point)
        largest = max(largest, _distance(point, previous))
    return point, largest


def _distance(P: Matrix, Q: Matrix) -> float:
    return float(np.linalg.norm(P - Q))


def _squared_length(W: Matrix) -> float:
    """‖W‖² of a normal vector; raises if it is zero."""
    square = float(np.vdot(W, W))
    if not square > 0:
        raise InvalidInputError(
            "a half-space or hyperplane needs a normal vector W with an entry other than zero;"
            " got one of zeros. Leave this constraint out."
        )
    return square
