"""Is a learner of labelled points worse than the inputs? Fits to parts of the rows say so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._early_stopping import votes_under
from nearfar.estimators._input import class_weight_among
from nearfar.estimators._shrinkage import warn_if_worse
from nearfar.kernels import Array, take_rows, to_host
from nearfar.supervision import ClassOrder

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

FOLDS = 3  # each is left out by one trial: power for about the time of two fits more
FEWEST_ROWS, MOST_ROWS = 30, 1000  # with fewer nothing can be said, with more it takes too long
VOTERS = 3
STANDARD_ERRORS = 1.5  # that are chance: nobody asked for this check, it should not cry wolf
ENDED = ("converged", "max_iter", "stalled")  # fits that nobody cut short

_on_trial: ContextVar[bool] = ContextVar("on_trial", default=False)


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
