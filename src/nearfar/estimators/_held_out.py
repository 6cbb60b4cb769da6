"""Held-out rows: early stopping by them, and whether a learner is worse on them than the inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._input import class_weight_among
from nearfar.estimators._shrinkage import warn_if_worse
from nearfar.kernels import Array, take_rows, to_host
from nearfar.solvers import Iterate, Record, Solution, Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.neighbors import nearest_under, vote

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

PATIENCE = 5  # looks without a smaller validation error
CLOSELY = 10  # iterations at first that are all measured: where points are few, the best is there
FOLDS = 3  # each is left out by one trial: power for about the time of two fits more
FEWEST_ROWS, MOST_ROWS = 30, 1000  # with fewer nothing can be said, with more it takes too long
VOTERS = 3
STANDARD_ERRORS = 1.5  # that are chance: nobody asked for this check, it should not cry wolf
ENDED = ("converged", "max_iter", "stalled")  # fits that nobody cut short
_on_trial: ContextVar[bool] = ContextVar("on_trial", default=False)


class EarlyStopping:
    """Follows the error on held-out rows, and ends the run when it no longer falls.

    ``predict`` gives the class numbers of the held-out rows at an iterate, and ``codes`` are the
    true ones; ``began`` is the number of records before the run at hand; ``best`` is the
    iterate with the smallest error so far, ``error`` its error, and ``resting`` how many looks
    there were since the last smaller one.
    """

    def __init__(
        self,
        predict: Callable[[Iterate], NDArray[Any]],
        codes: NDArray[np.intp],
        began: int = 0,
    ) -> None:
        self._predict, self._codes, self._began = predict, codes, began
        self.best: Iterate | None = None
        self.error = np.inf
        self.resting = 0

    def begin(self, start: Iterate) -> None:
        """Measure where the run starts: the iterate to keep if there is no better one."""
        self.best, self.error = start, self.measured(start)

    def measured(self, iterate: Iterate) -> float:
        """The error at an iterate."""
        return float(np.mean(self._predict(iterate) != self._codes))

    def __call__(self, iterate: Iterate, trace: list[Record]) -> Status | None:
        """Measure one of the first iterates, or one at which the solver looked up."""
        looked = trace[-1]["residual"] is not None
        if not looked and len(trace) - self._began > CLOSELY:
            return None
        error = trace[-1]["validation_error"] = self.measured(iterate)
        self.resting = 0 if error < self.error else self.resting + looked
        if error <= self.error:  # of equals the later, which is closer to the optimum
            self.best, self.error = iterate, error
        return Status.EARLY_STOPPED if self.resting >= PATIENCE else None

    def kept(self, solution: Solution) -> Solution:
        """The solution with the iterate of the smallest error, and why the run ended."""
        if self.best is None:
            return solution
        early = solution.status is Status.CONVERGED and self.best is not solution.iterate
        status = Status.EARLY_STOPPED if early else solution.status
        return replace(solution, iterate=self.best, status=status)


def votes_under(
    maps: NDArray[np.float64],
    points: Array,
    codes: NDArray[np.intp],
    new: Array,
    n_neighbors: int,
    metric_of: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """The class numbers that new points get from the points nearest to them under a map.

    If there are several maps, ``metric_of`` is the number of the one that measures the distance to
    each point.
    """
    if metric_of is None:
        maps, metric_of = maps[None], np.zeros(len(codes), dtype=np.intp)
    nearest = nearest_under(new, points, maps, metric_of, min(n_neighbors, len(codes)))
    return vote(codes[nearest], int(codes.max()) + 1)


def held_out_rows(
    labels: ClassOrder, fraction: float, random: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to learn from and rows to validate on: a share of each class, leaving at least two."""
    held = []
    for first, last in zip(labels.starts[:-1], labels.starts[1:], strict=True):
        members = random.permutation(labels.order[first:last])
        held.append(members[: max(0, min(int(fraction * len(members)), len(members) - 2))])
    held_out = np.sort(np.concatenate(held))
    if len(held_out) == 0:
        raise InvalidInputError(
            f"validation_fraction={fraction} leaves no row to validate on: every class is too"
            " small. Raise it, or set it to None."
        )
    return np.setdiff1d(np.arange(len(labels.codes)), held_out), held_out


# -- is a learner worse than the inputs? Fits to parts of the rows say so --------------------------


@contextmanager
def _trial() -> Iterator[None]:
    """Fits in here have no trials of their own, and do not warn."""
    token = _on_trial.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit to all rows has warned of what matters
            yield
    finally:
        _on_trial.reset(token)


def warn_if_trials_are_worse(estimator: Any, X: Array, labels: ClassOrder | None) -> None:
    """Learn without a third of the rows at a time, and warn if the inputs classify it better.

    For learners at their defaults whose objective is not about nearest neighbours. It takes one to
    two times as long as the fit that it follows, and is made only for a full metric of few rows and
    without a time limit.
    """
    if labels is None or _on_trial.get():
        return
    n = X.shape[0]
    if not FEWEST_ROWS <= n <= MOST_ROWS:
        return
    if estimator.max_seconds is not None or estimator.status_ not in ENDED:
        return
    if estimator.n_components is not None:  # who asks for few rows may accept a loss
        return
    folds, codes = _folds(labels), labels.codes
    learned, before = np.empty_like(codes), np.empty_like(codes)
    for fold in range(FOLDS):
        rows, new = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        known, unseen = take_rows(X, rows), take_rows(X, new)
        try:
            L = _learned(estimator, known, labels.classes[codes[rows]])
        except InvalidInputError:  # too few rows are left for a trial
            return
        learned[new] = votes_under(L, known, codes[rows], unseen, VOTERS)
        before[new] = votes_under(np.eye(X.shape[1]), known, codes[rows], unseen, VOTERS)
    warn_if_worse(
        learned,
        before,
        codes,
        n_rows=n - n // FOLDS,
        n_features=X.shape[1],
        n_classes=len(labels.classes),
        standard_errors=STANDARD_ERRORS,
    )


def _folds(labels: ClassOrder) -> Index:
    """Numbers of folds that have the same share of each class, drawn at random."""
    random, folds = np.random.RandomState(0), np.empty_like(labels.codes)
    for first, last in zip(labels.starts[:-1], labels.starts[1:], strict=True):
        folds[random.permutation(labels.order[first:last])] = np.arange(last - first) % FOLDS
    return folds


def _learned(estimator: Any, X: Array, y: NDArray[Any]) -> Matrix:
    """The map that the estimator learns from some rows."""
    settings = deepcopy(estimator.get_params(deep=False)) | {"verbose": 0}
    if "class_weight" in settings:
        settings["class_weight"] = class_weight_among(settings["class_weight"], y)
    settings |= {"checkpoint": None} if "checkpoint" in settings else {}
    with _trial():
        trial = type(estimator)(**settings).fit(X, y)  # without the callbacks of the fit
    return np.asarray(to_host(trial.components_), dtype=np.float64)
