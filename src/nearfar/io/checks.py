"""Checks of the numbers, words and shapes that a model file claims of a fitted model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nearfar.graphs import NeighborhoodGraph
from nearfar.io.classes import UnusableFile, is_ours
from nearfar.solvers import Status

FEW = 1000  # neighbours that a classifier may ask for however few points it has


def check_account(model: Any) -> None:
    """Raise unless a model describes its fit by numbers and words that nearfar writes."""
    for attribute, (is_sound, expected) in _ACCOUNT.items():
        value = vars(model).get(attribute)
        if attribute in vars(model) and not is_sound(value):
            raise UnusableFile(
                f"holds {value!r:.60} as {attribute}; expected {expected}. Fit and save again."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_record(value: Any) -> bool:
    """Whether `value` is a line of the trace of a fit."""
    return (
        isinstance(value, dict)
        and all(isinstance(key, str) for key in value)
        and all(_is_number(value.get(key)) for key in ("n_iter", "seconds", "objective"))
        and math.isfinite(value["seconds"])
    )


# Attributes of a fit, whether a value can be one, and that in words.
_ACCOUNT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_features_in_": (_is_count, "a number of features"),
    "n_iter_": (_is_count, "a number of iterations"),
    "n_neighbors_": (_is_count, "a number of neighbours"),
    "objective_": (_is_number_or_none, "a number or None"),
    "duality_gap_": (_is_number_or_none, "a number or None"),
    "sampled_gap_": (_is_number_or_none, "a number or None"),
    "gap_confidence_": (_is_number_or_none, "a number or None"),
    "status_": (lambda value: value in list(Status), f"one of {', '.join(Status)}"),
    "history_": (
        lambda value: isinstance(value, list) and all(map(_is_record, value)),
        "a list of iterations with n_iter, seconds and objective",
    ),
    "classes_": (
        lambda value: isinstance(value, np.ndarray) and value.ndim == 1,
        "an array of labels",
    ),
    "feature_names_in_": (
        lambda value: isinstance(value, np.ndarray) and all(isinstance(v, str) for v in value.flat),
        "an array of names",
    ),
}


def check_shapes(model: Any) -> None:
    """Arrays have the axes that the class declares, d of them features, and names are as many.

    Those of ``_axes_if_any`` may be None.
    """
    lengths = {"d": model.n_features_in_}
    optional = getattr(model, "_axes_if_any", {})
    for attribute, axes in (model._axes | optional).items():
        array: Any = getattr(model, attribute, None)
        if array is None and attribute in optional:
            continue
        shape, kind = np.shape(array), getattr(getattr(array, "dtype", None), "kind", "O")
        fits = isinstance(array, np.ndarray) and len(shape) == len(axes)
        fits = fits and all(
            lengths.setdefault(axis, size) == size for axis, size in zip(axes, shape, strict=True)
        )
        if not fits or (len(axes) > 1 and kind != "f"):
            expected = ", ".join(str(lengths.get(axis, axis)) for axis in axes)
            raise UnusableFile(
                f"holds {attribute} of shape {shape}; expected an array of shape ({expected}) with "
                f"n_features_in_={model.n_features_in_}. Fit and save again."
            )
    _check_counts(model, lengths.get("n"))
    names = getattr(model, "feature_names_in_", None)
    if names is not None and np.shape(names) != (model.n_features_in_,):
        raise UnusableFile(
            f"holds feature_names_in_ of shape {np.shape(names)}; expected "
            f"n_features_in_={model.n_features_in_} names. Fit and save again."
        )
    metric = getattr(model, "metric_", model)
    if not is_ours(metric) or getattr(metric, "n_features_in_", None) != model.n_features_in_:
        raise UnusableFile(
            f"holds {metric!r} as metric_; expected a fitted metric learner with "
            f"n_features_in_={model.n_features_in_}. Fit and save again."
        )


def _check_counts(model: Any, n: int | None) -> None:
    """Raise if a count, for which arrays are made later, is larger than the stored arrays."""
    graph, n_neighbors = getattr(model, "graph_", None), getattr(model, "n_neighbors_", None)
    if isinstance(graph, NeighborhoodGraph) and graph.n_nodes != n:
        raise UnusableFile(
            f"holds a graph of {graph.n_nodes} nodes; expected {n}, one for each row of embedding_."
            " Fit and save again."
        )
    if n_neighbors is not None and n is not None and n_neighbors > max(n, FEW):
        raise UnusableFile(
            f"holds {n_neighbors} as n_neighbors_; expected at most {FEW} or the {n} points. Fit "
            "and save again."
        )
