"""Validation for LMNN: points with labels, or triplets, and the parameters."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import Streamed, in_blocks, is_dask
from nearfar.blocks.rows import with_known_rows
from nearfar.errors import InvalidInputError
from nearfar.estimators._dask import refuse_dask, validated_dask
from nearfar.estimators._input import (
    drop_rows_without_weight,
    validated_labels,
    validated_points,
    validated_weights,
)
from nearfar.estimators._large_margin import Split, check_margin_parameters, given_edges
from nearfar.estimators._margin_rows import Rows, rows_of_points
from nearfar.estimators._shrinkage import check_shrinkage
from nearfar.estimators._start import (
    central_point,
    given_start,
    learned_rows,
    without_dead_features,
)
from nearfar.estimators._streamed import validated_streamed
from nearfar.estimators._tuples import validated_triplets
from nearfar.estimators._unlabeled import with_spread_labels
from nearfar.kernels import Array, gram_kernels_for, to_host
from nearfar.supervision import ClassOrder, class_order
from nearfar.supervision.labels import check_class_sizes
from nearfar.supervision.pairs import equal_points, warn_of_far_and_equal
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]

INITS = ("auto", "identity", "pca", "lda")
NEED_LABELS = {
    "n_passes": 1,
    "validation_fraction": None,
    "checkpoint": None,
    "class_weight": None,
    "unlabeled_weight": None,
}  # unless these


def validated_rows_of_points(
    estimator: Any, X: Any, y: Any, targets: Any, sample_weight: Any
) -> Rows:
    """Validate points with labels, and sort by class those to learn from."""
    X = _validated_points(estimator, X)
    reference = X.reference if isinstance(X, Streamed) else X
    gram_kernels_for(reference).begin_peak(reference)
    if estimator.unlabeled_weight is not None:
        refuse_dask(estimator, X)
        y, sample_weight = with_spread_labels(estimator, X, y, sample_weight, targets)
    all_labels = validated_labels(estimator, X, y)
    weights = validated_weights(estimator, X.shape[0], sample_weight, all_labels)
    targets = None if targets is None else to_host(targets)
    counted, labels, _ = drop_rows_without_weight(estimator, X, all_labels, weights)
    _check_parameters(estimator)
    _check_parameters_of_points(estimator, X, labels, targets)

    edges = None if targets is None else given_edges(targets, all_labels, X, weights)
    fraction, name = estimator.validation_fraction, type(estimator).__name__
    split = Split.of(labels, fraction, estimator.random_state, name)
    voters = estimator.n_neighbors if estimator.shrinkage == "auto" else None
    return rows_of_points(X, counted, split, weights, edges, voters)


def validated_rows_of_triplets(
    estimator: Any, X: Any, y: Any, targets: Any, sample_weight: Any
) -> Rows:
    """Validate triplets, all of which are at hand, so that there is nothing to choose."""
    points, triplets = validated_triplets(estimator, X, y, reset=True)
    _check_parameters(estimator)
    _check_no_labels_needed(estimator, target_neighbors=targets, sample_weight=sample_weight)
    points = without_dead_features(points)
    triplets = _with_different_ends(points, triplets, type(estimator).__name__)
    alike = class_order(np.zeros(len(points), dtype=np.intp), type(estimator).__name__)
    order = np.arange(len(points))
    return Rows(points, points, central_point(points), alike, order, triplets=triplets)


def _validated_points(estimator: Any, X: Any) -> Array:
    """Points, which may be sparse if a map of few rows is learned."""
    if is_dask(X):
        return with_known_rows(validated_dask(estimator, X, reset=True))
    if isinstance(X, Streamed):
        return validated_streamed(estimator, X, reset=True)
    count: Any = estimator.n_components
    rows = int(count) if isinstance(count, Integral) else None
    few = sparse.issparse(X) and learned_rows(rows, estimator.reduce, X.shape[1]) is not None
    return validated_points(
        estimator,
        X,
        reset=True,
        accept_sparse=few,
        to_accept="A map of few rows is learned from sparse points: set n_components, and leave"
        " reduce='learn'. ",
    )


def _check_parameters(estimator: Any) -> None:
    """Validate the parameters by themselves."""
    check_margin_parameters(estimator)
    n_components, n_features = estimator.n_components, estimator.n_features_in_
    if n_components is not None:
        check_number("n_components", n_components, Integral, 1, n_features)
    check_shrinkage(estimator.shrinkage)
    check_choice("reduce", estimator.reduce, ("learn", "project"))
    check_number("n_passes", estimator.n_passes, Integral, 1, None)
    check_choice("certificate", estimator.certificate, ("all", "sample"))
    rows = learned_rows(n_components, estimator.reduce, n_features)
    if estimator.certificate == "sample" and rows is not None:
        raise InvalidInputError(
            f"certificate='sample' needs a full metric; n_components={n_components} learns a map"
            " of few rows, for which no gap is known. Set reduce='project', or leave"
            " certificate='all'."
        )
    if isinstance(estimator.init, str) or estimator.init is None:
        check_choice("init", estimator.init, INITS, or_else=" or an array")
    given_start(estimator, rows)  # raises if it does not fit


def _check_parameters_of_points(
    estimator: Any, X: Any, labels: ClassOrder, targets: NDArray[Any] | None
) -> None:
    """Validate what the parameters ask of the points and their labels."""
    held_out = estimator.validation_fraction is not None
    if in_blocks(X) and held_out:
        raise InvalidInputError(
            "validation_fraction needs rows in memory, not in blocks. Leave it None, and"
            " raise shrinkage or tol against overfitting, or fit to a sample of the rows."
        )
    if in_blocks(X) and estimator.certificate == "sample":
        raise InvalidInputError(
            "certificate='sample' needs rows in memory, not in blocks. Leave certificate='all'."
        )
    if targets is not None and held_out:
        raise InvalidInputError(
            "target_neighbors and validation_fraction cannot be used together: held-out rows"
            " would be missing from the neighbours. Leave one of them out."
        )
    chooses = targets is None or estimator.n_passes > 1
    n_neighbors = estimator.n_neighbors if chooses else None
    check_class_sizes(labels, n_neighbors, type(estimator).__name__)


def _check_no_labels_needed(estimator: Any, **arguments: Any) -> None:
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


def _with_different_ends(points: Array, triplets: Index, name: str) -> Index:
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
