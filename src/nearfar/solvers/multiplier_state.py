"""The state of the descent by proximal multipliers: steps, looks, searches and updates."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import MemoryLimitError
from nearfar.solvers.factor_steps import (
    adapted_rows,
    grown,
    mean_metric,
    newton_direction,
    row_scales,
    shrunk,
)
from nearfar.solvers.hinge_problem import (
    SEARCH_MARGIN,
    TUNING,
    Along,
    At,
    Certificate,
    HingeProblem,
    Known,
)
from nearfar.solvers.line_search import Line, exact_step
from nearfar.solvers.quasi_newton import LBFGS
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]


@dataclass
class Searches:
    """Schedule of the searches for all triplets, and how far outside the margin they look."""

    objective: float  # at the last search
    margin: float
    interval: int  # iterations to the next one
    next_one: int
    last: int = 0  # iteration of the last search
    missed: float = 0.0  # share of the objective that it added
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
        self.objective, kept_all = objective, self.keeps_triplets
        self.missed = (objective - known) / max(objective, 1.0)
        self.lately = max(self.missed, (1 - TUNING.forgotten) * self.lately)
        if self.missed < TUNING.missed:
            longer = int(TUNING.search_growth * self.interval) + 1
            # Nothing was missed in all iterations since the last search. But where this one has
            # kept all triplets, the next one drops most of them.
            if self.missed < TUNING.nothing_missed and not kept_all:
                longer = max(longer, int(TUNING.rare_growth * (n_iter - self.last)) + 1)
            self.interval = min(longer, TUNING.last_search)
            self.margin = max(self.margin / 2, SEARCH_MARGIN)
        else:
            self.interval = TUNING.first_search
            self.margin = max(self.margin, min(2 * self.margin, TUNING.widest))
        self.last, self.next_one = n_iter, n_iter + self.interval


@dataclass(frozen=True)
class Look:
    """Measurements at a place, over the triplets at hand."""

    fall: float  # of the smoothed objective since the last look
    error: float  # of the multipliers
    residual: float  # relative gap, or estimate of the relative decrease that is left
    certificate: Certificate | None  # of the triplets at hand, unless the rank is fixed


@dataclass(frozen=True)
class Found:
    """The result of a search, if there was one."""

    residual: float
    searched: bool = False
    proof: Certificate | None = None  # from the data
    ends: bool = False  # whether rounding allows no further progress


@dataclass
class State(Generic[At, Known, Along]):
    """The state of the descent, and its actions."""

    problem: HingeProblem[At, Known, Along]
    at: At
    tol: float
    fixed_rank: bool
    margin: InitVar[float]  # of the first search,
    interval: InitVar[int]  # and iterations to the second
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
    searches: Searches = field(init=False)

    def __post_init__(self, margin: float, interval: int) -> None:
        value = self.problem.objective(self.at)[0]
        self.searches = Searches(value, margin, interval, interval)
        self.searched = self.at.L
        self._measure()

    def start(self) -> Iterate[Known]:
        """The iterate before the first step."""
        return Iterate(self.at.L, self.searches.objective, exact=True, state=self.at.triplets)

    def _measure(self) -> None:
        """Compute gradient and scales of a new place."""
        self.memory.precondition(partial(np.matmul, row_scales(self.at.L)))
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
            del line, along  # they are as large as the triplets, and the next ones are
        self.rests = self.rests + 1 if t == 0 else 0
        self.at, self.smoothed = problem.move(self.at, line, t), along(t)[0]
        reached = t >= line.limit
        del line, along
        previous_gradient, self.gradient = self.gradient, problem.gradient(self.at)
        kept = memory.remember(t * direction, self.gradient - previous_gradient)
        if not kept and reached:
            memory.forget()  # the longest allowed step is too short: its scale is stale
        self.n_iter += 1
        self.value, self.n_active = problem.objective(self.at)

    def _direction(self) -> Matrix:
        if self.close and (self.n_iter + 1) % TUNING.look_every == 0:
            self.close = False
            newton = newton_direction(self.problem, self.at, self.gradient)
            if newton is not None:
                return newton
        direction: Matrix = self.memory.direction(self.gradient)
        if not len(self.memory):
            length = float(np.linalg.norm(direction))
            if length > 0:  # otherwise the step will be zero
                direction = TUNING.first_step * np.linalg.norm(self.at.L) * (direction / length)
        return direction

    # -- look --

    def look(self) -> Look:
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
        return Look(fall, error, residual, certificate)

    # -- search --

    def search(self, look: Look) -> Found:
        """Find all triplets if it is time, with a certificate if the gap at hand is small."""
        gives_up = self.rests > TUNING.most_rests
        rounded = look.residual <= TUNING.rounding
        known = self.value
        if look.residual <= self.tol or gives_up or rounded:
            proof = self._certify()
            missed = self.searches.missed
            residual = look.residual + missed if self.fixed_rank else proof.gap
            ends = gives_up or (rounded and missed <= TUNING.rounding)
            found = Found(residual, True, proof, ends)
            if proof.confidence is not None and proof.gap > self.tol and not ends:
                self._survey()  # a sample finds only some of the triplets that are missing
        elif self.n_iter >= self.searches.next_one or self.rests:
            self._survey()
            found = Found(look.residual, searched=True)
        else:
            return Found(look.residual)
        self.level = self.level + self.value - known
        return found

    def _certify(self) -> Certificate:
        """Find all triplets in float64, with a certificate."""
        problem, L, known = self.problem, self.at.L, self.at.triplets
        del self.at  # as in `_survey`
        proof, triplets = problem.certify(L, known, keep=self.fixed_rank)
        del known
        if proof.objective < 1 and not self.fixed_rank:
            L, proof, triplets = shrunk(problem, L, proof, triplets, self.tol)
        self.searches.record(self.n_iter, self.value, proof.objective)
        self.value, self.n_active = proof.objective, proof.n_active
        self.at, self.searched = problem.place(L, triplets), L
        return proof

    def _survey(self) -> None:
        """Find all triplets in working precision."""
        problem, searches = self.problem, self.searches
        keep = self.fixed_rank or searches.keeps_triplets
        L, known = self.at.L, self.at.triplets
        del self.at  # what it holds is not needed while triplets are searched
        at: At | None = None
        with suppress(MemoryLimitError):
            at = problem.survey(L, searches.margin, known.width, known, keep=keep)
        # The error, which holds what had been found, is gone here.
        self.at = self._survey_within_memory(L, known) if at is None else at
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
            with suppress(MemoryLimitError):
                return self.problem.survey(L, 0.0, known.width, known)
            L = mean_metric(L, self.searched, fixed_rank=self.fixed_rank)
            self.memory.forget()
        return self.problem.survey(L, 0.0, known.width, known, insist=True)

    def iterate(self, found: Found, start: Iterate[Known] | None) -> Iterate[Known]:
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

    def update(self, look: Look, found: Found) -> None:
        """Advance the multipliers if they have settled, and adapt the rank after a look."""
        worthwhile = look.error > TUNING.enough * self.tol * self.value
        if self.rests or (worthwhile and look.fall < TUNING.settled * look.error):
            self._advance_multipliers()
        if look.certificate is not None:
            one_metric = self.at.L.ndim == 2  # no Newton's method for several metrics
            self.close = one_metric and found.residual <= TUNING.close * self.tol
            self._adapt_rank(look.certificate)
        self._measure()

    def _adapt_rank(self, certificate: Certificate) -> None:
        change = adapted_rows(self.problem, self.at, certificate)
        if change is None:
            return
        rotation, direction = change
        self.memory.transform(rotation)
        L, triplets = rotation @ self.at.L, self.at.triplets
        del self.at  # its images are as large as those of the new place
        self.at = self.problem.place(L, triplets)
        self.at = grown(self.problem, self.at, direction)

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
