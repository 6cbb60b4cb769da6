"""Validation of what LMNN needs to learn from given triplets instead of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array
from nearfar.supervision.pairs import equal_points, warn_of_far_and_equal

Index = NDArray[np.intp]

NEED_LABELS = {
    "n_passes": 1,
    "validation_fraction": None,
    "checkpoint": None,
    "class_weight": None,
    "unlabeled_weight": None,
}  # unless these


def check_no_labels_needed(estimator: Any, **arguments: Any) -> None:
    """Raise if a parameter, or an argument of ``fit`` that is not None, needs class labels."""
    needing = {
        name: getattr(estimator, name)
        for name, neutral in NEED_LABELS.items()
        if getattr(estimator, name) != neutral
    }
    if isinstance(estimator.init, str) and estimator.init == "lda":
        needing["init"] = estimator.init
    shown = {name: repr(value) for name, value in needing.items()}
    shown |= {name: "…" for name, value in arguments.items() if value is not None}
    for name, value in shown.items():
        raise InvalidInputError(
            f"{name}={value} needs points with labels, but X holds triplets. Leave it out."
        )
    if estimator.certificate != "all":
        raise InvalidInputError(
            "certificate='sample' is for labelled points; given triplets are all at hand."
            " Leave certificate='all'."
        )


def with_different_ends(points: Array, triplets: Index, name: str) -> Index:
    """The triplets whose first and last points differ; of others a warning, or an error if all."""
    same = equal_points(points)[triplets]
    equal = same[:, 0] == same[:, 2]
    if equal.all():
        raise InvalidInputError(
            f"{name} needs triplets whose first and last points differ; they are equal in all"
            f" {len(triplets)}. Check the row numbers and the features."
        )
    warn_of_far_and_equal(np.flatnonzero(equal), "triplet")
    kept: Index = triplets[~equal]
    return kept
