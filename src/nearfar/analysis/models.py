"""Queries about a fitted model: its maps, the points that it keeps, and where it puts points."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from nearfar.blocks import is_lazy
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.evaluation.spectra import principal_axes
from nearfar.kernels import is_torch, to_host

Index = NDArray[np.intp]
Floats = NDArray[np.float64]


def principal_plane(points: Any) -> tuple[Floats, tuple[str, str]]:
    """The first two principal directions (2, d), and what axes along them are called."""
    directions, shares = principal_axes(points)
    first, second = (f"axis {k + 1} ({shares[k]:.0%} of variance)" for k in range(2))
    return directions[:2], (first, second)


def name_of(estimator: Any) -> str:
    """The name of the model: its class, or that of the last step that maps points."""
    estimator = without_classifier(unwrapped(estimator))
    if hasattr(estimator, "steps"):
        return name_of(estimator.steps[-1][1])
    return type(estimator).__name__


def unwrapped(estimator: Any) -> Any:
    """The fitted model in a frozen one or in a search for parameters; else the model itself."""
    if isinstance(estimator, FrozenEstimator):
        return unwrapped(estimator.estimator)
    found = getattr(estimator, "best_estimator_", None)
    return estimator if found is None else unwrapped(found)


def without_classifier(model: Any) -> Any:
    """The steps of a pipeline before a classifier of another library; else the model itself."""
    last = _deciding_step(model)
    return model if last is None or isinstance(last, Estimator) else model[:-1]


def _deciding_step(model: Any) -> Any:
    """The classifier at the end of a pipeline of several steps that maps no points, or None."""
    if len(getattr(model, "steps", ())) < 2:
        return None
    last = unwrapped(model.steps[-1][1])
    decides = hasattr(last, "fit") and not hasattr(last, "transform") and is_classifier(last)
    return last if decides else None


def metric_of(estimator: Any) -> Any:
    """The fitted model that maps points; that of a classifier is its metric.

    A search is its best model, and a pipeline that ends in a classifier the steps before it.
    """
    if isinstance(estimator, type):
        raise InvalidInputError(
            f"a display needs a fitted model; got the class {estimator.__name__}. Make one and fit"
            f" it: {estimator.__name__}().fit(X, y)."
        )
    model = without_classifier(unwrapped(estimator))
    check_is_fitted(model)
    last = _deciding_step(model)
    if last is not None:
        raise InvalidInputError(
            f"a display draws a metric among the features that it measures; {type(last).__name__}"
            " measures those that the steps before it make. Give pipeline[-1] with"
            " X=pipeline[:-1].transform(X)."
        )
    return metric_of(model.metric_) if hasattr(model, "metric_") else model


def known_points(estimator: Any) -> Any:
    """The points that a fitted model keeps in memory, or None."""
    model = unwrapped(estimator)
    for name in ("points_", "X_fit_"):
        kept = getattr(model, name, None)
        if kept is not None and not is_lazy(kept):
            return kept
    return None


def known_labels(estimator: Any) -> Any:
    """The labels of `known_points`, or None."""
    return getattr(unwrapped(estimator), "labels_", None)


def images_of(estimator: Any, X: Any) -> Floats:
    """Images of points (n, r), in float64 on the host; X=None is what the model was fitted on."""
    model = metric_of(estimator)
    if X is None:
        X = known_points(estimator)
        if hasattr(model, "embedding_"):
            return to_host(model.embedding_).astype(np.float64)
        if X is None:
            raise InvalidInputError(
                f"{name_of(model)} does not keep the points that it was fitted on. Give them as X."
            )
    if has_several_metrics(model):
        raise InvalidInputError(
            f"{name_of(model)} has several metrics, under which points have no common places. Use"
            " EllipsesDisplay or NeighborsDisplay."
        )
    if not hasattr(model, "transform"):
        if hasattr(model, "embedding_"):
            return _places_of_fit(model, X)
        raise InvalidInputError(
            f"a display needs a model with transform, embedding_ or both; {name_of(model)} has"
            " neither. Give a metric learner or an embedding."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X (does not have|has) .*feature names")
        return to_host(model.transform(X)).astype(np.float64)


def _places_of_fit(model: Any, X: Any) -> Floats:
    """The embedding of a model that places no other points than those of ``fit``."""
    places, n = to_host(model.embedding_).astype(np.float64), row_count(X)
    if n != len(places):
        raise InvalidInputError(
            f"{name_of(model)} places the points of fit only, which were {len(places)}; X has {n}"
            " rows. Give those, or leave X out."
        )
    return places


def row_count(X: Any) -> int:
    """The number of rows of an array, table, tensor or list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def holds(model: Any) -> str:
    """What the model takes for X: points ("euclidean"), distances ("precomputed") or "kernel"."""
    if hasattr(model, "embedding_"):
        return str(getattr(model, "metric", "euclidean"))
    return "kernel" if getattr(model, "kernel", None) == "precomputed" else "euclidean"


def checked_labels(y: Any, n: int) -> NDArray[Any] | None:
    """A label for each of n rows, or None."""
    if y is None:
        return None
    labels = to_host(y)
    if labels.shape != (n,):
        raise InvalidInputError(
            f"there must be a label for each of the {n} rows; got y of shape {labels.shape}."
            " Check that they belong together."
        )
    return labels


def checked_places(embedding: Any) -> Floats:
    """An embedding (n, r) in float64 on the host, all finite."""
    places = to_host(embedding).astype(np.float64)
    if places.ndim != 2 or not places.size:
        raise InvalidInputError(
            f"an embedding must have shape (n_samples, n_components); got {places.shape}."
            " Give the places of the points, one in each row."
        )
    bad = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if len(bad):
        raise InvalidInputError(
            f"an embedding must be finite; row {bad[0]} is not ({len(bad)} in all). Drop them.",
            bad,
        )
    return places


def row_numbers(name: str, rows: Any, n: int) -> Index:
    """Distinct row numbers, from numbers or from a mask of the n rows."""
    given = to_host(rows)
    if given.dtype.kind == "b" and given.shape == (n,):
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{name} must be row numbers or a mask of the {n} rows; got an array of shape"
            f" {given.shape} and dtype {given.dtype}."
        )
    bad = given[(given < 0) | (given >= n)]
    if len(bad) or len(np.unique(given)) < len(given):
        found = f"got {bad[0]}" if len(bad) else "got one of them twice"
        raise InvalidInputError(
            f"{name} must be distinct row numbers from 0 to {n - 1}; {found}. Check them.", bad
        )
    return given.astype(np.intp)


def sample_rows(rows: Index, count: int, random_state: int) -> Index:
    """Draw ``count`` of the rows at random, in ascending order; all if there are no more."""
    if len(rows) <= count:
        return rows
    chosen = np.random.default_rng(random_state).choice(len(rows), count, replace=False)
    return rows[np.sort(chosen)]


def take_rows(X: Any, rows: Index) -> Any:
    """Rows of an array, tensor or table, which keeps its column names."""
    return X[rows] if is_torch(X) else _safe_indexing(X, rows)


def has_several_metrics(model: Any) -> bool:
    """Whether the model measures the distance to a point by the metric of that point."""
    return hasattr(model, "_metric_of_new")


def linear_maps(model: Any) -> NDArray[Any]:
    """The linear maps (m, r, d) of a fitted metric, one or several."""
    if hasattr(model, "components_"):
        maps = to_host(model.components_)
        return maps if maps.ndim == 3 else maps[None]
    values, vectors = np.linalg.eigh(model.get_mahalanobis_matrix())  # for a linear kernel only
    return np.asarray((np.sqrt(values.clip(0, None)) * vectors).T[None])
