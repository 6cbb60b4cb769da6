"""Directions, scales and the rank of a factor L of M = LᵀL, for the descent by multipliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from nearfar.linalg import symmetric
from nearfar.solvers.hinge_problem import (
    TUNING,
    WIDTH,
    Along,
    At,
    Certificate,
    HingeProblem,
    Known,
)
from nearfar.solvers.line_search import Line, exact_step

Matrix = NDArray[np.float64]


def row_scales(L: Matrix) -> Matrix:
    """(LLᵀ + εI)⁻¹ up to scale.

    A step −(LLᵀ)⁻¹∂f/∂L changes M = LᵀL like a gradient step in M, as far as the rank of M allows.
    So the descent is as well conditioned as the problem in M; unscaled, it would also depend on the
    spread of the eigenvalues of M [Tong, Ma & Chi, Accelerating ill-conditioned low-rank matrix
    estimation via scaled gradient descent, JMLR 22 (2021)].
    """
    products = L @ np.swapaxes(L, -1, -2)
    norm = np.maximum(np.linalg.norm(products, axis=(-2, -1), keepdims=True), 1e-300)
    return np.linalg.inv(products / norm + TUNING.least_scale * np.eye(L.shape[-2]))


def newton_direction(
    problem: HingeProblem[At, Known, Along], at: At, gradient: Matrix
) -> Matrix | None:
    """Newton's direction for M in the span of the leading rows of L; None where it is no use.

    With orthonormal rows R of that span it is Δ with LᵀΔ + ΔᵀL = RᵀYR, where Y solves H Y = −G with
    the gradient G and the Hessian H of the smoothed objective in Y.
    """
    values, left = np.linalg.eigh(at.L @ at.L.T)
    if not values[-1] > TUNING.negligible:
        return None
    leading = values > TUNING.leading * values[-1]
    rows = left[:, leading].T / np.sqrt(values[leading])[:, None]
    R = rows @ at.L
    G = 0.5 * symmetric(rows @ gradient @ R.T)
    hessian = problem.curvature(at, rows)
    curvature = float(np.vdot(G, hessian(G)))
    if not curvature > 0:
        return None
    ridge = TUNING.ridge * curvature / np.vdot(G, G)

    def ridged(y: Matrix) -> Matrix:
        return (hessian(y.reshape(G.shape)) + ridge * y.reshape(G.shape)).ravel()

    operator = LinearOperator((G.size, G.size), ridged)
    Y = cg(operator, -G.ravel(), rtol=TUNING.newton_tol, maxiter=TUNING.newton_steps)[0].reshape(
        G.shape
    )
    direction: Matrix = 0.5 * rows.T @ Y @ R
    if not np.linalg.norm(direction) <= TUNING.newton_reach * np.linalg.norm(at.L):
        return None  # M is negligible beside Y, and LᵀΔ + ΔᵀL beside ΔᵀΔ: no model of M + Y
    return direction


def mean_metric(L: Matrix, other: Matrix, *, fixed_rank: bool) -> Matrix:
    """A factor of the mean of two metrics; for a fixed rank the mean of the factors."""
    if fixed_rank:
        return 0.5 * (L + other)
    rows = np.concatenate([L, other], axis=-2) / 2**0.5
    if rows.shape[-2] > rows.shape[-1]:
        return np.asarray(np.linalg.qr(rows, mode="r"))
    return rows


def at_best_scale(
    problem: HingeProblem[At, Known, Along], L: Matrix, *, warm: bool = False, width: float = WIDTH
) -> Matrix:
    """The multiple of L with the smallest objective on a sample of the target edges.

    The objective is convex in the squared scale, and has more triplets the smaller the scale is. So
    start with a large scale, with a margin that keeps the set complete down to 1/√2 of the scale.
    While there are none, the objective is the pull, and ever smaller shares of the scale are tried:
    triplets that only a larger scale makes active would be at hand by now.
    """
    problem = problem.sampled(TUNING.scaled_rows)
    L = TUNING.warm_stretch * L if warm else TUNING.start_length**0.5 * problem.normalised(L)
    share, count, size = 0.5**0.5, -1, float(np.linalg.norm(L))
    while True:  # ends when all triplets are at hand or none is active, or before
        at = problem.survey(L, 1.0, width, insist=True)
        previous_count, count = count, len(at.triplets)
        share = max(share**2, TUNING.least_share) if count == previous_count == 0 else 0.5**0.5
        reach = 1 - share
        line = problem.rescaling(at, 1.0)
        grow = exact_step(line.at, line.limit)
        shrink = 0.0 if grow > 0 else exact_step(problem.line(at, -reach * L).at, 1.0)
        L = (1 + grow - reach * shrink) * L
        least = np.linalg.norm(L) <= TUNING.smallest * size  # where nothing is to be pushed
        if grow < line.limit and (shrink < 1 or count == previous_count > 0 or least):
            return L


def shrunk(
    problem: HingeProblem[At, Known, Along],
    L: Matrix,
    proof: Certificate,
    triplets: Known,
    tol: float,
) -> tuple[Matrix, Certificate, Known]:
    """The best smaller multiple of L with its certificate and triplets, if that is better.

    The gap is relative to 1 at least. So an objective below 1 may be far from its optimum although
    the gap is small.
    """
    here = problem.place(L, triplets)
    line = problem.rescaling(here, -1.0)
    moved = problem.move(here, line, exact_step(line.at, 1 - TUNING.smallest))
    again, found = problem.certify(moved.L, triplets)
    if again.objective < proof.objective and again.gap <= max(proof.gap, tol):
        return moved.L, again, found
    return L, proof, triplets


def adapted_rows(
    problem: HingeProblem[At, Known, Along], at: At, certificate: Certificate
) -> tuple[Matrix, Matrix] | None:
    """How to drop negligible rows of L, and add rows where the dual proves that M should grow.

    A rotation, to be multiplied with L, and a direction for the new rows, which are zero after it;
    None if L has all rows that it needs, and no others. Several metrics have the same number of
    rows; those of lower rank end in rows of zeros.
    """
    stack = at.L.reshape(-1, *at.L.shape[-2:])
    # Of L Lᵀ, which has the eigenvalues of M; an SVD of L may fail on near multiples of I.
    values, left = np.linalg.eigh(stack @ stack.transpose(0, 2, 1))
    values, left = values[:, ::-1], left[:, :, ::-1]
    alive = values > np.maximum(TUNING.dead * values[:, :1], TUNING.nothing)
    typical = values[alive].mean() if alive.any() else TUNING.unit  # of M, in units of P
    pulled = stack @ problem.P
    pull = (pulled * stack).sum() / max(alive.sum(), 1)  # of a typical row
    added = [
        np.vstack(
            [
                _new_rows(LP, pull, ratios, directions, max(4, rank // 4), typical),
                _free_rows(L, free, typical, exact=not problem.is_single),
            ]
        )
        for L, LP, rank, ratios, directions, free in zip(
            stack,
            pulled,
            alive.sum(axis=1),
            certificate.ratios,
            certificate.directions,
            certificate.free,
            strict=True,
        )
    ]
    rows = max(1, *(int(kept.sum()) + len(new) for kept, new in zip(alive, added, strict=True)))
    if rows == stack.shape[1] and not any(map(len, added)):
        return None
    rotation = np.zeros((len(stack), rows, stack.shape[1]))
    direction = np.zeros((len(stack), rows, stack.shape[2]))
    for metric, (kept, new) in enumerate(zip(alive, added, strict=True)):
        rank = kept.sum()
        rotation[metric, :rank] = left[metric][:, kept].T
        direction[metric, rank : rank + len(new)] = new
    shape = at.L.shape[:-2]
    return rotation.reshape(*shape, rows, -1), direction.reshape(*shape, rows, -1)


def grown(problem: HingeProblem[At, Known, Along], at: At, direction: Matrix) -> At:
    """The best place along a direction for rows of L that are zero."""
    if not direction.any():
        return at
    line = problem.line(at, direction)
    return problem.move(at, line, exact_step(_of_square(line.at), line.limit) ** 0.5)


def _new_rows(
    LP: Matrix, pull: float, ratios: Matrix, directions: Matrix, most: int, typical: float
) -> Matrix:
    """Rows along the directions in which the dual is least feasible and L is small.

    Directions b have bᵀPb = 1, and M has ‖LPb‖² of bbᵀ: a row with lᵀPb = 0 has nothing of it, even
    if it is not orthogonal to b. ``pull`` is ⟨P, M⟩ of a typical row.
    """
    excess = np.maximum(ratios - 1, 0)
    wanted = (excess > TUNING.steep * excess.max(initial=0.0)) & (np.arange(len(excess)) < most)
    B = directions[:, wanted]
    missing = np.linalg.norm(LP @ B, axis=0) ** 2 <= TUNING.missing * pull
    share = excess[wanted][missing] / max(excess.max(initial=0.0), 1e-12)
    rows: Matrix = (B[:, missing] * np.sqrt(TUNING.new_row * typical * share)).T
    return rows


def _free_rows(L: Matrix, directions: Matrix, typical: float, *, exact: bool) -> Matrix:
    """Rows along the directions in which M grows for free and L has next to nothing.

    Next to a typical eigenvalue, or to what gains a margin there: beside an outlier that may be
    many powers of ten more, too many for steps that look for it. Unless they are ``exact``, lengths
    of directions are rounding errors.
    """
    lengths = np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
    B, wanted = directions / lengths, np.maximum(lengths**2 if exact else 0 * lengths, typical)
    missing = np.linalg.norm(L @ B, axis=0) ** 2 < TUNING.dead * wanted
    rows: Matrix = (B[:, missing] * np.sqrt(TUNING.new_row * wanted[missing])).T
    return rows


def _of_square(along: Line) -> Line:
    """A function that is even in t, as a function of τ = t²."""

    def at(tau: float) -> tuple[float, float, float]:
        t = tau**0.5
        value, slope, curvature = along(t)
        if t == 0:
            return value, curvature / 2, 0.0
        return value, slope / (2 * t), (curvature - slope / t) / (4 * tau)

    return at
