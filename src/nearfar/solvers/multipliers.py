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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from nearfar.errors import MemoryLimitError
from nearfar.linalg import symmetric
from nearfar.solvers.line_search import Line, exact_step
from nearfar.solvers.quasi_newton import LBFGS, Bounded, LineSearchable, pairs_in_memory
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]

WIDTH = 0.1  # of the smoothed hinge, in margins
SEARCH_MARGIN = 0.1  # triplets up to this far outside the margin are kept at hand


@dataclass(frozen=True)
class Tuning:
    """Constants of the descent. They change its speed, not its result."""

    # steps
    memory: int = 30  # pairs that the quasi-Newton method remembers, at most
    first_step: float = 0.1  # length of a step without memory, relative to L
    least_scale: float = 0.02  # share of the norm of LLᵀ that is added to it before it scales steps
    # Newton's method
    close: float = 20.0  # times the tolerance: largest gap at which it precedes a look
    leading: float = 0.005  # share of the largest eigenvalue of M above which a direction leads
    newton_tol: float = 0.1  # tolerance of the conjugate gradients for its step,
    newton_steps: int = 20  # and their largest number
    newton_reach: float = 1e6  # longest step, relative to L
    negligible: float = 1e-20  # M on whitened points, beside margins of 1
    ridge: float = (
        1e-3  # that is added to its Hessian, relative to the curvature along the gradient
    )
    # looks and multipliers
    look_every: int = 5  # iterations between looks
    most_looks: int = 10  # looks in a row without progress, before float64 replaces float32
    nearer: float = 0.9  # progress: a residual below this share of the smallest so far,
    lower: float = 1 - 1e-4  # or an objective below this share of the smallest so far
    settled: float = 1.0  # multipliers advance if the objective fell by less than this share of
    enough: float = 0.2  # their error, and that error is above this share of the tolerance
    most_rests: int = 10  # failures to descend in a row before the end; each halves the width, so
    # that the multipliers move twice as far as after the one before
    less_error: float = 0.9  # new multipliers helped if their error fell below this share
    rounding: float = 1e-14  # gap at hand that is rounding
    # searches
    first_search: int = 3  # iterations between searches at first, and after a late search
    search_growth: float = 1.6  # growth of that number from one search to the next,
    last_search: int = 60  # up to this number
    fallen: float = 0.75  # search again once the objective has fallen to this share
    missed: float = 0.1  # a search was late if it added more than this share of the objective
    few_missed: float = 0.01  # above this share, the next search keeps all triplets at hand
    most_missed: float = 0.5  # above this share, all searches do so for some time
    forgotten: float = 0.1  # share of that memory that each search loses
    most_halvings: int = 6  # of the way since the last search, if there is no memory for triplets
    # initial scale
    scaled_rows: int = 300  # rows with enough target edges to find the scale
    start_length: float = 2.0  # mean squared length of a target edge, in margins, that is too long
    warm_stretch: float = 1.3  # the same for a factor with about the right scale
    smallest: float = 1e-8  # least scale of a metric: a metric of zeros would have no directions
    # rank
    dead: float = 1e-5  # share of the largest eigenvalue of M below which a row of L is dropped
    missing: float = 0.5  # share of a typical eigenvalue of M below which L lacks a direction
    nothing: float = 1e-16  # eigenvalue of M, in units of P, below which all points coincide
    unit: float = 1.0  # stands for the typical eigenvalue if M = 0: the pull is about I
    new_row: float = 0.1  # first guess of a new row's eigenvalue, as a share of a typical one
    steep: float = 0.3  # share of the largest violation of the dual that is worth a row


TUNING = Tuning()


# -- what the solver needs of a problem ------------------------------------------------------------


class Triplets(Protocol):
    """The triplets at hand, with their multipliers and the width of the smoothed hinge."""

    @property
    def width(self) -> float: ...  # noqa: D102
    def __len__(self) -> int: ...


class EvaluatedFactor(Protocol):
    """A factor and the triplets at hand, with everything that the objective depends on."""

    @property
    def L(self) -> Matrix: ...  # noqa: D102
    @property
    def triplets(self) -> Any: ...  # noqa: D102


class Certificate(Bounded, Protocol):
    """A duality gap of a factor, with the dual slack."""

    @property
    def n_active(self) -> int: ...  # noqa: D102
    @property
    def complementarity(self) -> float: ...  # noqa: D102
    @property
    def confidence(self) -> float | None: ...  # noqa: D102
    @property
    def ratios(self) -> tuple[Matrix, ...]: ...  # noqa: D102
    @property
    def directions(self) -> tuple[Matrix, ...]: ...  # noqa: D102
    @property
    def free(self) -> tuple[Matrix, ...]: ...  # noqa: D102


At = TypeVar("At", bound=EvaluatedFactor)
Known = TypeVar("Known", bound=Triplets)
Along = TypeVar("Along", bound=LineSearchable)


class HingeProblem(Protocol[At, Known, Along]):
    """What the solver needs of a problem; see `nearfar.problems.lmnn`."""

    @property
    def is_single(self) -> bool: ...  # noqa: D102
    def in_double(self) -> HingeProblem[At, Known, Along]: ...  # noqa: D102
    def sampled(self, rows: int) -> HingeProblem[At, Known, Along]: ...  # noqa: D102
    def normalised(self, L: Matrix) -> Matrix: ...  # noqa: D102
    def survey(  # noqa: D102
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Known | None = None,
        *,
        keep: bool = False,
    ) -> At: ...
    def place(self, L: Matrix, triplets: Known) -> At: ...  # noqa: D102
    def objective(self, at: At) -> tuple[float, int]: ...  # noqa: D102
    def complementarity(self, at: At) -> float: ...  # noqa: D102
    def gradient(self, at: At) -> Matrix: ...  # noqa: D102
    def curvature(self, at: At, rows: Matrix) -> Callable[[Matrix], Matrix]: ...  # noqa: D102
    def line(self, at: At, direction: Matrix) -> Along: ...  # noqa: D102
    def move(self, at: At, line: Along, t: float) -> At: ...  # noqa: D102
    def advance_multipliers(self, at: At, width: float) -> At: ...  # noqa: D102
    def narrow(self, at: At, width: float) -> At: ...  # noqa: D102
    def bound(self, at: At) -> tuple[Certificate, At]: ...  # noqa: D102
    def certify(  # noqa: D102
        self, L: Matrix, previous: Known | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Known]: ...


# -- the descent -----------------------------------------------------------------------------------


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
        yield from proximal_factor_descent(doubled, iterate.point, tol, triplets=iterate.state)


def proximal_factor_descent(
    problem: HingeProblem[At, Known, Along],
    L: Matrix,
    tol: float,
    *,
    warm: bool = False,
    width: float = WIDTH,
    margin: float = SEARCH_MARGIN,
    triplets: Known | None = None,
    fixed_rank: bool = False,
) -> Iterator[Iterate[Known]]:
    """Iterates towards the optimum over all M ⪰ 0, or over L of its shape if ``fixed_rank``.

    ``warm`` means that the scale of L is about right. A smaller ``width`` smooths the hinge less,
    for an L close to the optimum; a wider ``margin`` keeps more triplets at hand, for a start far
    from it. ``triplets`` with their multipliers continue an earlier descent from L as it is.

    Iterates have a residual only after a look: the relative gap over the triplets at hand. It is an
    estimate until it is at most ``tol`` or the descent ends; then it is certified. For a fixed rank
    it is an estimate of the relative decrease that is left.
    """
    if triplets is None:
        L = at_best_scale(problem, L, warm=warm, width=width)
    else:
        width = triplets.width
    memory = LBFGS(pairs_in_memory(TUNING.memory, L.size) if fixed_rank else TUNING.memory)
    try:
        at = problem.survey(L, margin, width, triplets)
    except MemoryLimitError:
        at = problem.survey(L, 0.0, width, triplets)  # only those that are active
    state = _State(problem, at, tol, fixed_rank, margin, memory)
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


@dataclass
class _Searches:
    """Schedule of the searches for all triplets, and how far outside the margin they look."""

    objective: float  # at the last search
    margin: float
    interval: int = TUNING.first_search  # iterations to the next one
    next_one: int = TUNING.first_search
    missed: float = 0.0  # share of the objective that the last search added
    lately: float = 0.0  # the largest such share, reduced by each later search

    def due(self, n_iter: int, value: float) -> bool:
        """Whether it is time for a search, or the objective at hand, ``value``, has fallen much."""
        if value < TUNING.fallen * self.objective:
            self.next_one = n_iter
        return n_iter >= self.next_one

    @property
    def keeps_triplets(self) -> bool:
        """Whether to keep all triplets at hand, since recent searches found many missing ones."""
        return self.missed > TUNING.few_missed or self.lately > TUNING.most_missed

    def record(self, n_iter: int, known: float, objective: float) -> None:
        """Plan the next search, after one that corrected the objective ``known`` at hand."""
        self.objective = objective
        self.missed = (objective - known) / max(objective, 1.0)
        self.lately = max(self.missed, (1 - TUNING.forgotten) * self.lately)
        if self.missed < TUNING.missed:
            longer = int(TUNING.search_growth * self.interval) + 1
            self.interval = min(longer, TUNING.last_search)
            self.margin = max(self.margin / 2, SEARCH_MARGIN)
        else:
            self.interval, self.margin = TUNING.first_search, 2 * self.margin
        self.next_one = n_iter + self.interval


@dataclass(frozen=True)
class _Look:
    """Measurements at a place, over the triplets at hand."""

    fall: float  # of the smoothed objective since the last look
    error: float  # of the multipliers
    residual: float  # relative gap, or estimate of the relative decrease that is left
    certificate: Certificate | None  # of the triplets at hand, unless the rank is fixed


@dataclass(frozen=True)
class _Found:
    """The result of a search, if there was one."""

    residual: float
    searched: bool = False
    proof: Certificate | None = None  # from the data
    ends: bool = False  # whether rounding allows no further progress


@dataclass
class _State(Generic[At, Known, Along]):
    """The state of the descent, and its actions."""

    problem: HingeProblem[At, Known, Along]
    at: At
    tol: float
    fixed_rank: bool
    margin: InitVar[float]  # of the first search
    memory: LBFGS
    n_iter: int = 0
    close: bool = False  # whether Newton's method precedes the next look
    level: float = np.inf  # smoothed objective at the last look
    rests: int = 0  # iterations in a row that could not descend, nor settle the multipliers
    rested: float = np.inf  # error of the multipliers at the last of them
    gradient: Matrix = field(init=False)  # of the smoothed objective
    value: float = field(init=False)  # objective over the triplets at hand
    n_active: int = field(init=False)  # of these triplets
    searched: Matrix = field(init=False)  # the factor of the last search
    smoothed: float = field(init=False)  # objective over these triplets
    searches: _Searches = field(init=False)

    def __post_init__(self, margin: float) -> None:
        self.searches = _Searches(self.problem.objective(self.at)[0], margin)
        self.searched = self.at.L
        self._measure()

    def start(self) -> Iterate[Known]:
        """The iterate before the first step."""
        return Iterate(self.at.L, self.searches.objective, exact=True, state=self.at.triplets)

    def _measure(self) -> None:
        """Compute gradient and scales of a new place."""
        self.memory.precondition(partial(np.matmul, _row_scales(self.at.L)))
        self.gradient = self.problem.gradient(self.at)

    @property
    def looks(self) -> bool:
        """Whether it is time for a look."""
        return self.rests > 0 or self.n_iter % TUNING.look_every == 0

    # -- step --

    def step(self) -> None:
        """Move to a lower smoothed objective, or stay if there is none."""
        problem, memory = self.problem, self.memory
        while True:
            direction = self._direction()
            line = problem.line(self.at, direction)
            along = _LastValue(line.at)
            t = exact_step(along, line.limit)
            if t != 0 or not len(memory):
                break
            memory.forget()
        self.rests = self.rests + 1 if t == 0 else 0
        self.at, self.smoothed = problem.move(self.at, line, t), along(t)[0]
        reached = t >= line.limit
        del line, along  # they are as large as the triplets
        previous_gradient, self.gradient = self.gradient, problem.gradient(self.at)
        kept = memory.remember(t * direction, self.gradient - previous_gradient)
        if not kept and reached:
            memory.forget()  # the longest allowed step is too short: its scale is stale
        self.n_iter += 1
        self.value, self.n_active = problem.objective(self.at)

    def _direction(self) -> Matrix:
        if self.close and (self.n_iter + 1) % TUNING.look_every == 0:
            self.close = False
            newton = _newton(self.problem, self.at, self.gradient)
            if newton is not None:
                return newton
        direction: Matrix = self.memory.direction(self.gradient)
        if not len(self.memory):
            length = float(np.linalg.norm(direction))
            if length > 0:  # otherwise the step will be zero
                direction = TUNING.first_step * np.linalg.norm(self.at.L) * (direction / length)
        return direction

    # -- look --

    def look(self) -> _Look:
        """Compare objective and bound over the triplets at hand."""
        problem, at = self.problem, self.at
        fall = 0.0 if self.rests else max(self.level - self.smoothed, 0.0)
        self.level = self.smoothed
        certificate = None
        if self.looks and not self.fixed_rank:
            certificate, self.at = problem.bound(at)
            error, residual = certificate.complementarity, certificate.gap
        else:
            error, residual = problem.complementarity(at), np.inf
            if self.fixed_rank:
                residual = (error + TUNING.look_every * fall) / max(self.value, 1.0)
        if self.rests and error < TUNING.less_error * self.rested:
            self.rests = 1
        self.rested = error if self.rests else np.inf
        return _Look(fall, error, residual, certificate)

    # -- search --

    def search(self, look: _Look) -> _Found:
        """Find all triplets if it is time, with a certificate if the gap at hand is small."""
        gives_up = self.rests > TUNING.most_rests
        rounded = look.residual <= TUNING.rounding
        known = self.value
        if look.residual <= self.tol or gives_up or rounded:
            proof = self._certify()
            missed = self.searches.missed
            residual = look.residual + missed if self.fixed_rank else proof.gap
            ends = gives_up or (rounded and missed <= TUNING.rounding)
            found = _Found(residual, True, proof, ends)
            if proof.confidence is not None and proof.gap > self.tol and not ends:
                self._survey()  # a sample finds only some of the triplets that are missing
        elif self.n_iter >= self.searches.next_one or self.rests:
            self._survey()
            found = _Found(look.residual, searched=True)
        else:
            return _Found(look.residual)
        self.level = self.level + self.value - known
        return found

    def _certify(self) -> Certificate:
        """Find all triplets in float64, with a certificate."""
        problem, at = self.problem, self.at
        proof, triplets = problem.certify(at.L, at.triplets, keep=self.fixed_rank)
        if proof.objective < 1 and not self.fixed_rank:
            at, proof, triplets = _shrunk(problem, at, proof, triplets, self.tol)
        self.searches.record(self.n_iter, self.value, proof.objective)
        self.value, self.n_active = proof.objective, proof.n_active
        self.at, self.searched = problem.place(at.L, triplets), at.L
        return proof

    def _survey(self) -> None:
        """Find all triplets in working precision."""
        problem, searches = self.problem, self.searches
        keep = self.fixed_rank or searches.keeps_triplets
        L, known = self.at.L, self.at.triplets
        del self.at  # what it holds is not needed while triplets are searched
        try:
            self.at = problem.survey(L, searches.margin, known.width, known, keep=keep)
        except MemoryLimitError:
            self.at = self._survey_within_memory(L, known)
        self.searched = self.at.L
        objective, self.n_active = problem.objective(self.at)
        searches.record(self.n_iter, self.value, objective)
        self.value = objective

    def _survey_within_memory(self, L: Matrix, known: Known) -> At:
        """Find the triplets without those outside the margin, at L or nearer to the last search.

        Between two searches the metric may move to where it has very many triplets. There were few
        enough at the last search, and the objective at a mean of two metrics is at most the larger
        one of theirs.
        """
        for _ in range(TUNING.most_halvings):
            try:
                return self.problem.survey(L, 0.0, known.width, known)
            except MemoryLimitError:
                L = _mean_metric(L, self.searched, fixed_rank=self.fixed_rank)
                self.memory.forget()
        return self.problem.survey(L, 0.0, known.width, known)

    def iterate(self, found: _Found, start: Iterate[Known] | None) -> Iterate[Known]:
        """The iterate after a look or a search."""
        info = {
            "active_triplets": self.n_active,
            "searched": found.searched,
            "rank": self.at.L.shape[-2],
        }
        proof, certified = found.proof, found.proof is not None and not self.fixed_rank
        if certified and proof is not None and proof.confidence is not None:
            info |= {"sampled_gap": proof.gap, "gap_confidence": proof.confidence}
            certified = False
        return Iterate(
            self.at.L,
            self.value,
            found.residual if self.looks or self.fixed_rank else None,
            found.searched,
            info,
            self.at.triplets,
            proof,
            start,
            certified=certified,
        )

    # -- update --

    def update(self, look: _Look, found: _Found) -> None:
        """Advance the multipliers if they have settled, and adapt the rank after a look."""
        worthwhile = look.error > TUNING.enough * self.tol * self.value
        if self.rests or (worthwhile and look.fall < TUNING.settled * look.error):
            self._advance_multipliers()
        if look.certificate is not None:
            one_metric = self.at.L.ndim == 2  # no Newton's method for several metrics
            self.close = one_metric and found.residual <= TUNING.close * self.tol
            self.at = _adapt_rank(self.problem, self.at, look.certificate, self.memory)
        self._measure()

    def _advance_multipliers(self) -> None:
        width = self.at.triplets.width
        if self.fixed_rank:  # without convexity, multipliers need not converge
            self.at = self.problem.narrow(self.at, 0.5 * width)
        else:
            width = 0.5 * width if self.rests else width
            self.at = self.problem.advance_multipliers(self.at, width)
        self.level = np.inf


class _LastValue:
    """A function of one number, which need not be computed again where it was computed last."""

    def __init__(self, along: Line) -> None:
        self.along, self.t, self.value = along, np.nan, (np.nan, np.nan, np.nan)

    def __call__(self, t: float) -> tuple[float, float, float]:
        if t != self.t:
            self.t, self.value = t, self.along(t)
        return self.value


# -- directions ------------------------------------------------------------------------------------


def _row_scales(L: Matrix) -> Matrix:
    """(LLᵀ + εI)⁻¹ up to scale.

    A step −(LLᵀ)⁻¹∂f/∂L changes M = LᵀL like a gradient step in M, as far as the rank of M allows.
    So the descent is as well conditioned as the problem in M; unscaled, it would also depend on the
    spread of the eigenvalues of M [Tong, Ma & Chi, Accelerating ill-conditioned low-rank matrix
    estimation via scaled gradient descent, JMLR 22 (2021)].
    """
    products = L @ np.swapaxes(L, -1, -2)
    norm = np.maximum(np.linalg.norm(products, axis=(-2, -1), keepdims=True), 1e-300)
    return np.linalg.inv(products / norm + TUNING.least_scale * np.eye(L.shape[-2]))


def _newton(problem: HingeProblem[At, Known, Along], at: At, gradient: Matrix) -> Matrix | None:
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


def _mean_metric(L: Matrix, other: Matrix, *, fixed_rank: bool) -> Matrix:
    """A factor of the mean of two metrics; for a fixed rank the mean of the factors."""
    if fixed_rank:
        return 0.5 * (L + other)
    rows = np.concatenate([L, other], axis=-2) / 2**0.5
    if rows.shape[-2] > rows.shape[-1]:
        return np.asarray(np.linalg.qr(rows, mode="r"))
    return rows


# -- scale -----------------------------------------------------------------------------------------


def at_best_scale(
    problem: HingeProblem[At, Known, Along], L: Matrix, *, warm: bool = False, width: float = WIDTH
) -> Matrix:
    """The multiple of L with the smallest objective on a sample of the target edges.

    The objective is convex in the squared scale, and has more triplets the smaller the scale is. So
    start with a large scale, with a margin that keeps the set complete down to 1/√2 of the scale.
    """
    problem = problem.sampled(TUNING.scaled_rows)
    L = TUNING.warm_stretch * L if warm else TUNING.start_length**0.5 * problem.normalised(L)
    reach, count, size = 1 - 0.5**0.5, -1, float(np.linalg.norm(L))
    while True:  # ends when all triplets are at hand or none is active, or before
        at = problem.survey(L, 1.0, width)
        previous_count, count = count, len(at.triplets)
        line = problem.line(at, L)
        grow = exact_step(line.at, line.limit)
        shrink = 0.0 if grow > 0 else exact_step(problem.line(at, -reach * L).at, 1.0)
        L = (1 + grow - reach * shrink) * L
        least = np.linalg.norm(L) <= TUNING.smallest * size  # where nothing is to be pushed
        if grow < line.limit and (shrink < 1 or count == previous_count > 0 or least):
            return L


def _shrunk(
    problem: HingeProblem[At, Known, Along], at: At, proof: Certificate, triplets: Known, tol: float
) -> tuple[At, Certificate, Known]:
    """The best smaller multiple of L with its certificate and triplets, if that is better.

    The gap is relative to 1 at least. So an objective below 1 may be far from its optimum although
    the gap is small.
    """
    here = problem.place(at.L, triplets)
    line = problem.line(here, -at.L)
    moved = problem.move(here, line, exact_step(line.at, 1 - TUNING.smallest))
    again, found = problem.certify(moved.L, triplets)
    if again.objective < proof.objective and again.gap <= max(proof.gap, tol):
        return moved, again, found
    return at, proof, triplets


# -- rank ------------------------------------------------------------------------------------------


def _adapt_rank(
    problem: HingeProblem[At, Known, Along], at: At, certificate: Certificate, memory: LBFGS
) -> At:
    """Drop negligible rows of L, and add rows where the dual proves that M should grow.

    Several metrics have the same number of rows; those of lower rank end in rows of zeros.
    """
    stack = at.L.reshape(-1, *at.L.shape[-2:])
    # Of L Lᵀ, which has the eigenvalues of M; an SVD of L may fail on near multiples of I.
    values, left = np.linalg.eigh(stack @ stack.transpose(0, 2, 1))
    values, left = values[:, ::-1], left[:, :, ::-1]
    alive = values > np.maximum(TUNING.dead * values[:, :1], TUNING.nothing)
    typical = values[alive].mean() if alive.any() else TUNING.unit  # of M, in units of P
    added = [
        np.vstack(
            [
                _new_rows(L, ratios, directions, max(4, rank // 4), typical),
                _free_rows(L, free, typical, exact=not problem.is_single),
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
    rotation = rotation.reshape(*at.L.shape[:-2], rows, -1)
    memory.transform(rotation)
    at = problem.place(rotation @ at.L, at.triplets)
    if not direction.any():
        return at
    line = problem.line(at, direction.reshape(at.L.shape))
    return problem.move(at, line, exact_step(_of_square(line.at), line.limit) ** 0.5)


def _new_rows(L: Matrix, ratios: Matrix, directions: Matrix, most: int, typical: float) -> Matrix:
    """Rows along the directions in which the dual is least feasible and L is small."""
    excess = np.maximum(ratios - 1, 0)
    wanted = (excess > TUNING.steep * excess.max(initial=0.0)) & (np.arange(len(excess)) < most)
    B = directions[:, wanted]
    missing = np.linalg.norm(L @ B, axis=0) ** 2 < TUNING.missing * typical
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
