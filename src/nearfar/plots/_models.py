"""What displays ask of a fitted model: where it maps points, and which points it knows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import InvalidInputError
from nearfar.estimators._notebook import Estimator
from nearfar.kernels import kernels_for
from nearfar.linalg import signed

Floats = NDArray[np.float64]


def host(values: Any) -> NDArray[Any]:
    """An array on the host, of an array, a table, a sparse array or a tensor on any device."""
    if sparse.issparse(values):
        return np.asarray(values.toarray())
    return np.asarray(kernels_for(values).to_host(values))


def principal(points: Any) -> tuple[Floats, Floats]:
    """Principal directions (r, d) of points, with their variances, largest first."""
    centred = host(points).astype(np.float64)
    centred -= centred.mean(axis=0)
    n, d = centred.shape
    if d > n:
        _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
        return signed(directions), lengths**2 / n
    values, vectors = np.linalg.eigh(centred.T @ centred)
    return signed(vectors.T[::-1]), values[::-1].clip(0, None) / n


def principal_plane(points: Any) -> tuple[Floats, tuple[str, str]]:
    """The first two principal directions (2, d), and what axes along them are called."""
    directions, variances = principal(points)
    shares = variances / max(float(variances.sum()), np.finfo(float).tiny)
    first, second = (f"axis {k + 1} ({shares[k]:.0%} of variance)" for k in range(2))
    return directions[:2], (first, second)


def name_of(estimator: Any) -> str:
    """What a picture calls the model: its class, or that of the last step that maps points."""
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
    """The points that a fitted model keeps, or None."""
    model = unwrapped(estimator)
    for name in ("points_", "X_fit_"):
        if getattr(model, name, None) is not None:
            return getattr(model, name)
    return None


def known_labels(estimator: Any) -> Any:
    """The labels of `known_points`, or None."""
    return getattr(unwrapped(estimator), "labels_", None)


def images_of(estimator: Any, X: Any) -> Floats:
    """Where points go, (n, r) in float64 on the host; X = None is what the model was fitted on."""
    model = metric_of(estimator)
    if X is None:
        X = known_points(estimator)
        if hasattr(model, "embedding_"):
            return host(model.embedding_).astype(np.float64)
        if X is None:
            raise InvalidInputError(
                f"{name_of(model)} does not keep the points that it was fitted on. Give them as X."
            )
    if hasattr(model, "_metric_of_new"):
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
        return host(model.transform(X)).astype(np.float64)


def _places_of_fit(model: Any, X: Any) -> Floats:
    """The embedding of a model that places no other points than those of ``fit``."""
    places, n = host(model.embedding_).astype(np.float64), row_count(X)
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


def all_distances(X: Any, held: str) -> Floats:
    """Distances (n, n) that a matrix of distances or of kernel values tells; NaN where unknown."""
    if sparse.issparse(X):
        whole = np.full(X.shape, np.nan)
        table = sparse.coo_array(X)
        whole[table.coords] = table.data
        np.fill_diagonal(whole, 0.0)
        return whole
    given = host(X).astype(np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise InvalidInputError(
            "distances and kernel values must be given for all pairs of rows; got shape"
            f" {given.shape}. Give a square matrix."
        )
    if held == "precomputed":
        return np.where(np.isfinite(given), given, np.nan)
    diagonal = given.diagonal()
    squares = diagonal[:, None] + diagonal[None] - 2 * given
    distances: Floats = np.sqrt(squares.clip(0, None))
    return distances


def checked_labels(y: Any, n: int) -> NDArray[Any] | None:
    """A label for each of n rows, or None."""
    if y is None:
        return None
    labels = host(y)
    if labels.shape != (n,):
        raise InvalidInputError(
            f"there must be a label for each of the {n} rows; got y of shape {labels.shape}."
            " Check that they belong together."
        )
    return labels


def checked_places(embedding: Any) -> Floats:
    """An embedding (n, r) in float64 on the host, all finite."""
    places = host(embedding).astype(np.float64)
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
