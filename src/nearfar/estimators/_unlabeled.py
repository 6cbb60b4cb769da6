"""Rows without a label: they are labelled under the metric of the others, and learned from."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._input import checked_labels, numbers_for_rows
from nearfar.kernels import Array, take_rows
from nearfar.solvers import Status
from nearfar.supervision.spreading import spread_labels
from nearfar.validation import check_number

UNLABELED = -1  # as in scikit-learn
SHARE = 0.5  # of max_seconds, for the metric of the labelled rows


def with_spread_labels(
    estimator: Any, X: Array, y: Any, sample_weight: Any, target_neighbors: Any
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Labels and weights of all rows of X; sets ``transduction_``, the labels.

    A copy of the estimator learns a metric from the labelled rows of positive weight, and their
    labels are spread under it. An unlabelled row has ``unlabeled_weight`` times the confidence in
    its label as a weight, times its ``sample_weight``.
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
    first = _copy_for_labeled_rows(estimator)
    first.fit(take_rows(X, known), labels[known], sample_weight=weights[known])
    if first.status_ == Status.INTERRUPTED:  # there is no answer yet
        raise KeyboardInterrupt
    codes = np.full(len(labels), -1, dtype=np.intp)
    codes[known] = np.searchsorted(first.classes_, labels[known])
    spread, confidence = spread_labels(first.transform(X), codes, len(first.classes_))
    found = unlabeled & (spread >= 0)
    estimator.transduction_ = np.where(found, first.classes_[spread], labels)
    share = np.where(unlabeled, estimator.unlabeled_weight * confidence, 1.0)
    return estimator.transduction_, weights * share


def _copy_for_labeled_rows(estimator: Any) -> Any:
    """An estimator of the same parameters, without callbacks, that takes labelled rows alone.

    ``max_iter`` is that of the class, so that a checkpoint can be continued with another one.
    """
    parameters = estimator.get_params(deep=False)
    for name in ("unlabeled_weight", "warm_start", "checkpoint", "max_iter"):
        del parameters[name]
    if estimator.max_seconds is not None:
        parameters["max_seconds"] *= SHARE
    return type(estimator)(**parameters)
