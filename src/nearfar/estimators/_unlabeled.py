"""Rows without a label: they are labelled under the metric of the others, and learned from.

They are not learned from if that would hurt: if under a rough metric of all rows the nearest
labelled rows contradict the spread labels more often than under the metric of the labelled rows, by
more than a standard error.
"""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, NearfarWarning, warn
from nearfar.estimators._input import checked_labels, numbers_for_rows
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.solvers import Status
from nearfar.supervision.neighbors import vote
from nearfar.supervision.spreading import spread_labels
from nearfar.validation import check_number

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

UNLABELED = -1  # as in scikit-learn
SHARE = 0.25  # of max_seconds, for the metric of the labelled rows, and for the rough one
LOOSE = 0.3  # relative gap that is enough to compare votes


def with_spread_labels(
    estimator: Any, X: Array, y: Any, sample_weight: Any, target_neighbors: Any
) -> tuple[NDArray[Any], Floats | None]:
    """Labels and weights of all rows of X; sets ``transduction_``, the labels.

    A copy of the estimator learns a metric from the labelled rows of positive weight, and their
    labels are spread under it. The weight of an unlabelled row is its ``sample_weight`` times
    ``unlabeled_weight`` times the confidence in its label, or 0 if these rows would hurt.
    """
    name = type(estimator).__name__
    check_number("unlabeled_weight", estimator.unlabeled_weight, Real, 0, None, open_ends=True)
    refused = {"target_neighbors": target_neighbors}
    refused |= {"validation_fraction": estimator.validation_fraction}
    for argument, value in refused.items():
        if value is not None:
            raise InvalidInputError(
                f"{argument} cannot be used with unlabeled_weight, which labels rows that it would"
                " need the true label of. Leave one of them out."
            )
    order = checked_labels(estimator, X, y)
    labels = order.classes[order.codes]
    if labels.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"unlabeled_weight needs labels that are numbers, with {UNLABELED} for rows without"
            f" one; y has {labels.dtype}. Number the classes, for example with"
            " sklearn.preprocessing.LabelEncoder."
        )
    unlabeled = labels == UNLABELED
    if unlabeled.all():
        raise InvalidInputError(
            f"{name} needs labelled rows; all {len(labels)} labels are {UNLABELED}, which with"
            " unlabeled_weight means that a row has none. Label some rows of each class, or set"
            f" unlabeled_weight=None if {UNLABELED} is a class."
        )
    estimator.transduction_ = labels
    if not unlabeled.any():
        return labels, sample_weight
    weights = np.ones(len(labels))
    if sample_weight is not None:
        weights = numbers_for_rows(estimator, len(labels), sample_weight)
    known = np.flatnonzero(~unlabeled & (weights > 0))
    first = _metric_of_step(estimator, estimator.tol)
    first.fit(take_rows(X, known), labels[known], sample_weight=weights[known])
    _stop_if_interrupted(first)
    codes = np.full(len(labels), -1, dtype=np.intp)
    codes[known] = np.searchsorted(first.classes_, labels[known])
    spread, confidence = spread_labels(first.transform(X), codes, len(first.classes_))
    found = unlabeled & (spread >= 0)
    estimator.transduction_ = np.where(found, first.classes_[spread], labels)
    share = np.where(unlabeled, estimator.unlabeled_weight * confidence, 1.0)
    if _hurts(estimator, first, X, codes, np.where(found, spread, codes), weights * share):
        share[unlabeled] = 0
    return estimator.transduction_, weights * share


def _hurts(
    estimator: Any, first: Any, X: Array, codes: Index, spread: Index, weights: Floats
) -> bool:
    """Whether learning from all rows would hurt, by a rough metric of them; warns if so.

    ``codes`` are the class numbers of the labelled rows, and −1 for the others.
    """
    learned = np.flatnonzero(weights > 0)
    others = learned[codes[learned] < 0]
    if len(others) == 0:
        return False
    rough = _metric_of_step(estimator, max(estimator.tol, LOOSE))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearfarWarning)  # the fit itself warns of the same
        rough.fit(
            take_rows(X, learned),
            first.classes_[spread[learned]],
            sample_weight=weights[learned],
        )
    _stop_if_interrupted(rough)
    known = np.flatnonzero(codes >= 0)
    before, after = (
        _contradicted(metric, X, known, others, codes[known], spread[others])
        for metric in (first, rough)
    )
    lost, won = int((after & ~before).sum()), int((before & ~after).sum())
    if lost - won <= (lost + won) ** 0.5:  # a standard error
        return False
    warn(
        f"{len(others)} rows without a label are not learned from: if they were, the nearest"
        f" labelled rows would contradict {after.mean():.1%} of the labels spread to them instead"
        f" of {before.mean():.1%}. Label more rows, or leave these out.",
        DataWarning,
    )
    return True


def _contradicted(
    metric: Any, X: Array, known: Index, others: Index, voters: Index, expected: Index
) -> NDArray[np.bool_]:
    """Which of the other rows get another class than expected from the nearest known rows."""
    points, new = (metric.transform(take_rows(X, rows)) for rows in (known, others))
    near = kernels_for(points).nearest(new, points, min(metric.n_neighbors, len(known)))[0]
    contradicted: NDArray[np.bool_] = vote(voters[to_host(near)], int(voters.max()) + 1) != expected
    return contradicted


def _stop_if_interrupted(metric: Any) -> None:
    """Raise, since before the last step there is no answer."""
    if metric.status_ == Status.INTERRUPTED:
        raise KeyboardInterrupt


def _metric_of_step(estimator: Any, tol: float) -> Any:
    """An estimator of the same parameters but ``tol``, without callbacks, for all labels.

    ``max_iter`` is that of the class, so that a checkpoint can be continued with another one.
    """
    parameters = estimator.get_params(deep=False)
    for name in ("unlabeled_weight", "warm_start", "checkpoint", "max_iter"):
        del parameters[name]
    if estimator.max_seconds is not None:
        parameters["max_seconds"] *= SHARE
    return type(estimator)(**parameters | {"tol": tol})
