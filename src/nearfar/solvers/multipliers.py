"""Descent in a factor L of M = LᵀL with proximal multipliers, a working set and an adaptive rank.

For problems min over M ⪰ 0 of a linear part plus hinges (see `nearfar.problems.lmnn`). Five things
happen, each when it pays:

* every iteration: a limited-memory BFGS step, exact along its line, on the smoothed objective over
  the triplets at hand;
* near the end, before each look: a step of Newton's method in the leading directions of M instead,
  since the bound asks for a metric that is stationary there;
* every few iterations, a look at the duality gap over the triplets at hand. When the smoothed
  objective hardly falls any more, the multipliers advance. Where the dual proves that M should grow
  in a direction that L lacks, L gains a row; rows that have died are dropped. So the descent costs
  what the rank of the answer costs, and still ends at the optimum over all M ⪰ 0;
* ever more rarely: a full search for triplets;
* when the gap at hand is small enough: a full search and a certificate from the data in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.linalg import symmetric
from nearfar.solvers.lbfgs import LBFGS, Line, exact_step
from nearfar.solvers.linear_cg import linear_cg
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

MEMORY = 30  # steps that the quasi-Newton method remembers
FIRST_STEP = 0.1  # length of a step without memory, relative to L
LOOK_EVERY = 5  # iterations
WIDTH = 0.1  # of the smoothed hinge, in margins
SETTLED = 1.0  # multipliers advance when a look sees less decrease than this share of their error
ENOUGH = 0.2  # and only while their error is more than this share of the tolerance
MOST_RESTS = 3  # failures to descend in a row, each answered by new multipliers, before giving up
ROUNDING = 1e-14  # gap at hand that no descent can close
MOST_LOOKS = 10  # in a row that see no progress, before float64 takes the place of float32
NEARER, LOWER = 0.9, 1 - 1e-4  # shares of the least residual and value: what progress is
SEARCH_MARGIN = 0.1  # triplets this far outside the margin are kept at hand, at least
FIRST_SEARCH, SEARCH_GROWTH, LAST_SEARCH = 3, 1.6, 60  # iterations between full searches
FALLEN = 0.75  # share of the objective at a search, at most, at which there is another
MISSED = 0.1  # share of the objective beyond which a search was late: search wider and sooner
MOST, FORGOTTEN = 0.5, 0.1  # a search that added most of the objective is remembered for some more
FLOOR = 0.02  # share of the norm of M that is added to it before it scales a step
CLOSE = 20  # times the tolerance: gaps from which Newton's method precedes a look
LEADING = 0.005  # share of the largest eigenvalue of M from which a direction is a leading one
NEWTON_TOL, NEWTON_STEPS, RIDGE = 0.1, 20, 1e-3  # of the conjugate gradients for its step
SCALED_ROWS = 300  # whose target edges are enough to find the scale of a start
START_LENGTH = 2.0  # mean squared length of a target edge, in margins, to start from above
LEAST_SCALE = 1e-8  # to which a metric shrinks at the end: of zeros it would have no directions
WARM_STRETCH = 1.3  # the same for a factor whose scale is about right
DEAD = 1e-5  # share of the largest eigenvalue of M below which a row of L is dropped
MISSING = 0.5  # share of a typical eigenvalue of M below which it lacks a direction
NOTHING = 1e-16  # eigenvalue of M, in units of P, of a metric under which all points coincide
UNIT = 1.0  # a typical eigenvalue of M = 0, for which there is none: the pull is about I
NEW_ROW = 0.1  # first guess of a new row's eigenvalue, as a share of a typical one


class HingeProblem(Protocol):
    """What the solver asks of a problem; `nearfar.problems.lmnn` explains each part."""

    @property
    def is_single(self) -> bool: ...  # noqa: D102
    def in_double(self) -> HingeProblem: ...  # noqa: D102
    def sampled(self, rows: int) -> HingeProblem: ...  # noqa: D102
    def normalised(self, L: Matrix) -> Matrix: ...  # noqa: D102
    def survey(  # noqa: D102
        self, L: Matrix, margin: float, width: float, previous: Any = None, *, keep: bool = False
    ) -> Any: ...
    def place(self, L: Matrix, triplets: Any) -> Any: ...  # noqa: D102
    def objective(self, at: Any) -> tuple[float, int]: ...  # noqa: D102
    def complementarity(self, at: Any) -> float: ...  # noqa: D102
    def gradient(self, at: Any) -> Matrix: ...  # noqa: D102
    def curvature(self, at: Any, rows: Matrix) -> Callable[[Matrix], Matrix]: ...  # noqa: D102
    def line(self, at: Any, direction: Matrix) -> Any: ...  # noqa: D102
    def move(self, at: Any, line: Any, t: float) -> Any: ...  # noqa: D102
    def advance_multipliers(self, at: Any, width: float) -> Any: ...  # noqa: D102
    def narrow(self, at: Any, width: float) -> Any: ...  # noqa: D102
    def bound(self, at: Any) -> Any: ...  # noqa: D102
    def certify(  # noqa: D102
        self, L: Matrix, previous: Any = None, *, keep: bool = False
    ) -> tuple[Any, Any]: ...


def descend_in_both_precisions(
    problem: HingeProblem, L: Matrix, tol: float, *, fixed_rank: bool = False, **options: Any
) -> Iterator[Iterate]:
    """As `descend`; where float32 makes no more progress towards a metric, it goes on in float64.

    Lengths along directions in which no target edge differs are rounding errors there, and a metric
    that is large in them makes them matter.
    """
    value = residual = np.inf
    looks = 0  # in a row, without progress
    for iterate in descend(problem, L, tol, fixed_rank=fixed_rank, **options):
        yield iterate
        if not problem.is_single or fixed_rank or iterate.residual is None:
            continue
        progress = iterate.residual < NEARER * residual or iterate.value < LOWER * value
        looks = 0 if progress else looks + 1
        value, residual = min(value, iterate.value), min(residual, iterate.residual)
        if looks == MOST_LOOKS:
            break
    if problem.is_single and not fixed_rank:
        yield from descend(problem.in_double(), iterate.point, tol, triplets=iterate.state)


def descend(
    problem: HingeProblem,
    L: Matrix,
    tol: float,
    *,
    warm: bool = False,
    width: float = WIDTH,
    margin: float = SEARCH_MARGIN,
    triplets: Any = None,
    fixed_rank: bool = False,
) -> Iterator[Iterate]:
    """Iterates towards the optimum over all M ⪰ 0, or over L of its shape if ``fixed_rank``.

    ``warm`` says that the scale of L is about right, and a smaller ``width`` that L is so close to
    the optimum that it should not be left for a smoother one; a wider ``margin`` is for a start
    that will soon be left far behind; ``triplets`` with their multipliers
    continue an earlier descent from L as it is. The residual of an iterate, where the descent
    looked, is the relative gap over the triplets at hand, which is an estimate, and certified once
    that is at most ``tol`` and at the end. For a fixed rank it is an estimate of the relative
    decrease that is left.
    """
    at = _start(problem, L, warm, width, margin, triplets)
    memory = LBFGS(MEMORY)
    memory.precondition(_row_scales(at.L))
    gradient = problem.gradient(at)
    whole = problem.objective(at)[0]  # objective at the last search
    start: Iterate | None = Iterate(at.L, whole, exact=True, state=at.triplets)
    level = np.inf  # smoothed objective at the last look
    missed = 0.0  # share of the objective that the last search added
    lately = 0.0  # the largest such share, less FORGOTTEN of it with each search since
    n_iter, interval, next_search = 0, FIRST_SEARCH, FIRST_SEARCH
    close = False  # whether Newton's method precedes the next look
    rests = 0  # iterations in a row that could not descend, nor settle the multipliers
    rested = np.inf  # error of the multipliers at the last of them
    while True:
        direction = None
        if close and (n_iter + 1) % LOOK_EVERY == 0:
            close, direction = False, _newton(problem, at, gradient)
        if direction is None:
            direction = memory.direction(gradient)
            if not len(memory):
                length = float(np.linalg.norm(direction))
                if length > 0:  # else nothing can be gained, and the step below is zero
                    direction = FIRST_STEP * np.linalg.norm(at.L) * (direction / length)
        line = problem.line(at, direction)
        t = exact_step(line.at, line.limit)
        if t == 0 and len(memory):
            memory.forget()
            continue
        rests = rests + 1 if t == 0 else 0
        at = problem.move(at, line, t)
        before, gradient = gradient, problem.gradient(at)
        if not memory.remember(t * direction, gradient - before) and t >= line.limit:
            memory.forget()  # as long as steps may be and still too short: its scale is stale
        n_iter += 1
        value, n_active = problem.objective(at)
        info: dict[str, Any] = {"active_triplets": n_active, "searched": False}
        looks = rests or n_iter % LOOK_EVERY == 0
        if value < FALLEN * whole:  # on the triplets at hand alone
            next_search = n_iter
        if not looks and n_iter < next_search:
            yield Iterate(at.L, value, info=info, state=at.triplets, start=start)
            start = None
            continue

        smoothed = line.at(t)[0]
        fall, level = (0.0 if rests else max(level - smoothed, 0.0)), smoothed
        certificate = problem.bound(at) if looks and not fixed_rank else None
        if certificate is None:
            error, estimate = problem.complementarity(at), np.inf
            if fixed_rank:
                estimate = (error + LOOK_EVERY * fall) / max(value, 1.0)
        else:
            error, estimate = certificate.complementarity, certificate.gap
        if rests and error < 0.9 * rested:
            rests = 1
        rested = error if rests else np.inf
        ends = rests > MOST_RESTS or estimate <= ROUNDING
        proof, searched, known = None, True, value
        if estimate <= tol or ends:
            proof, found = problem.certify(at.L, at.triplets, keep=fixed_rank)
            if proof.objective < 1 and not fixed_rank:
                at, proof, found = _shrunk(problem, at, proof, found, tol)
            missed = (proof.objective - value) / max(proof.objective, 1.0)
            ends = rests > MOST_RESTS or (ends and missed <= ROUNDING)
            estimate = estimate + missed if fixed_rank else proof.gap
            value, n_active = proof.objective, proof.n_active
            at = problem.place(at.L, found)
        elif n_iter >= next_search or rests:
            keep = fixed_rank or missed > MISSED / 10 or lately > MOST
            at = problem.survey(at.L, margin, at.triplets.width, at.triplets, keep=keep)
            value, n_active = problem.objective(at)
            missed = (value - known) / max(value, 1.0)
        else:
            searched = False
        if searched:
            lately = max(missed, (1 - FORGOTTEN) * lately)
            if missed < MISSED:
                interval = min(int(SEARCH_GROWTH * interval) + 1, LAST_SEARCH)
                margin = max(margin / 2, SEARCH_MARGIN)
            else:
                interval, margin = FIRST_SEARCH, 2 * margin
            next_search, level, whole = n_iter + interval, level + value - known, value
        info = {"active_triplets": n_active, "searched": searched, "rank": at.L.shape[-2]}
        residual = estimate if looks or fixed_rank else None
        certified = proof is not None and not fixed_rank
        yield Iterate(
            at.L, value, residual, searched, info, at.triplets, proof, start, certified=certified
        )
        start = None
        if ends:
            return
        if rests or (error > ENOUGH * tol * value and fall < SETTLED * error):
            width = 0.5 * at.triplets.width
            if fixed_rank:  # without convexity multipliers need not settle
                at = problem.narrow(at, width)
            else:
                at = problem.advance_multipliers(at, width if rests else at.triplets.width)
            level = np.inf
        if certificate is not None:
            close = at.L.ndim == 2 and estimate <= CLOSE * tol  # several metrics go without it
            at = _adapt_rank(problem, at, certificate, memory)
        memory.precondition(_row_scales(at.L))
        gradient = problem.gradient(at)


def _row_scales(L: Matrix) -> Matrix:
    """(LLᵀ + εI)⁻¹ up to scale.

    A step −(LLᵀ)⁻¹∂f/∂L changes M = LᵀL as a step along the gradient in M would, as far as the rank
    of M allows. So the descent is as well conditioned as the problem in M, while a plain one also
    suffers from a spread of the eigenvalues of M [Tong, Ma & Chi, Accelerating ill-conditioned
    low-rank matrix estimation via scaled gradient descent, JMLR 22 (2021)].
    """
    products = L @ np.swapaxes(L, -1, -2)
    norm = np.maximum(np.linalg.norm(products, axis=(-2, -1), keepdims=True), 1e-300)
    scales: Matrix = np.linalg.inv(products / norm + FLOOR * np.eye(L.shape[-2]))
    return scales


def _newton(problem: HingeProblem, at: Any, gradient: Matrix) -> Matrix | None:
    """Newton's direction for M in the span of the leading rows of L; None without curvature.

    With orthonormal rows R of that span it is Δ with LᵀΔ + ΔᵀL = RᵀYR, where Y solves H Y = −G with
    the gradient G and the Hessian H of the smoothed objective in Y.
    """
    values, left = np.linalg.eigh(at.L @ at.L.T)
    leading = values > LEADING * values[-1]
    rows = left[:, leading].T / np.sqrt(values[leading])[:, None]
    R = rows @ at.L
    G = 0.5 * symmetric(rows @ gradient @ R.T)
    hessian = problem.curvature(at, rows)
    curvature = float(np.vdot(G, hessian(G)))
    if not curvature > 0:
        return None
    ridge = RIDGE * curvature / np.vdot(G, G)
    Y = linear_cg(
        lambda D: hessian(D[..., 0])[..., None] + ridge * D,
        -G[..., None],
        lambda D: D,
        NEWTON_TOL,
        NEWTON_STEPS,
    )
    direction: Matrix = 0.5 * rows.T @ Y[..., 0] @ R
    return direction


def _start(
    problem: HingeProblem, L: Matrix, warm: bool, width: float, margin: float, triplets: Any
) -> Any:
    """Place L, at its best scale unless its triplets are given."""
    if triplets is None:
        return problem.survey(at_best_scale(problem, L, warm=warm, width=width), margin, width)
    return problem.survey(L, margin, triplets.width, triplets)


def at_best_scale(
    problem: HingeProblem, L: Matrix, *, warm: bool = False, width: float = WIDTH
) -> Matrix:
    """The multiple of L with the smallest objective, by a sample of the target edges.

    The objective is convex in the squared scale, and its triplets grow in number as the scale
    shrinks: start from above, with a margin that keeps the set complete from 1/√2 of the scale up.
    """
    problem = problem.sampled(SCALED_ROWS)
    L = WARM_STRETCH * L if warm else START_LENGTH**0.5 * problem.normalised(L)
    reach, count = 1 - 0.5**0.5, -1
    while True:  # ends at the latest when all triplets are at hand, or none is active
        before, at = count, problem.survey(L, 1.0, width)
        count = len(at.triplets)
        line = problem.line(at, L)
        grow = exact_step(line.at, line.limit)
        shrink = 0.0 if grow > 0 else exact_step(problem.line(at, -reach * L).at, 1.0)
        L = (1 + grow - reach * shrink) * L
        if grow < line.limit and (shrink < 1 or count == before > 0):
            return L


def _shrunk(
    problem: HingeProblem, at: Any, proof: Any, found: Any, tol: float
) -> tuple[Any, Any, Any]:
    """The best smaller multiple of L with its certificate and triplets, if that is better.

    Objectives below 1 are far from their optimum long after the gap, relative to 1, is small.
    """
    here = problem.place(at.L, found)
    line = problem.line(here, -at.L)
    moved = problem.move(here, line, exact_step(line.at, 1 - LEAST_SCALE))
    again, triplets = problem.certify(moved.L, found)
    if again.objective < proof.objective and again.gap <= max(proof.gap, tol):
        return moved, again, triplets
    return at, proof, found


def _adapt_rank(problem: HingeProblem, at: Any, certificate: Any, memory: LBFGS) -> Any:
    """Drop dead rows of L and add rows where the dual proves that M should grow.

    Several metrics keep one number of rows; those with less rank end in rows of zeros.
    """
    stack = at.L.reshape(-1, *at.L.shape[-2:])
    # Of L Lᵀ, which has the eigenvalues of M; an SVD of L may fail on near multiples of I.
    values, left = np.linalg.eigh(stack @ stack.transpose(0, 2, 1))
    values, left = values[:, ::-1], left[:, :, ::-1]
    alive = values > np.maximum(DEAD * values[:, :1], NOTHING)
    typical = values[alive].mean() if alive.any() else UNIT  # of M, in units of P
    added = [
        np.vstack(
            [
                _new_rows(L, ratios, directions, max(4, rank // 4), typical),
                _free_rows(L, free, typical),
            ]
        )
        for L, rank, ratios, directions, free in zip(
            stack,
            alive.sum(axis=1),
            certificate.ratios,
            certificate.directions,
            certificate.free,
            strict=True,
        )
    ]
    rows = max(1, *(int(kept.sum()) + len(new) for kept, new in zip(alive, added, strict=True)))
    if rows == stack.shape[1] and not any(map(len, added)):
        return at
    rotation = np.zeros((len(stack), rows, stack.shape[1]))
    direction = np.zeros((len(stack), rows, stack.shape[2]))
    for metric, (kept, new) in enumerate(zip(alive, added, strict=True)):
        rank = kept.sum()
        rotation[metric, :rank] = left[metric][:, kept].T
        direction[metric, rank : rank + len(new)] = new
    memory.transform(rotation)
    shape = (*at.L.shape[:-2], rows, at.L.shape[-1])
    at = problem.place((rotation @ stack).reshape(shape), at.triplets)
    if not direction.any():
        return at
    line = problem.line(at, direction.reshape(shape))
    return problem.move(at, line, exact_step(_of_square(line.at), line.limit) ** 0.5)


def _new_rows(L: Matrix, ratios: Matrix, directions: Matrix, most: int, typical: float) -> Matrix:
    """Rows along the directions in which the dual is least feasible and L is short."""
    excess = np.maximum(ratios - 1, 0)
    wanted = (excess > 0.3 * excess.max(initial=0.0)) & (np.arange(len(excess)) < most)
    B = directions[:, wanted]
    missing = np.linalg.norm(L @ B, axis=0) ** 2 < MISSING * typical
    share = excess[wanted][missing] / max(excess.max(initial=0.0), 1e-12)
    rows: Matrix = (B[:, missing] * np.sqrt(NEW_ROW * typical * share)).T
    return rows


def _free_rows(L: Matrix, directions: Matrix, typical: float) -> Matrix:
    """Rows along the directions in which M grows for free and L has next to nothing."""
    B = directions / np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
    missing = np.linalg.norm(L @ B, axis=0) ** 2 < DEAD * typical
    rows: Matrix = (B[:, missing] * np.sqrt(NEW_ROW * typical)).T
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
