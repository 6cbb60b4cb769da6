"""One metric beside the usual ones, on the same split."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler

from nearfar.evaluation.knn import knn_error
from nearfar.evaluation.split import Split
from nearfar.evaluation.statistics import standard_error

_PCA_VARIANCE = 0.95  # the share of variance that PCA keeps when no dimension is asked for


@dataclass(frozen=True)
class Row:
    """How one method did.

    Attributes
    ----------
    method : name of the method
    dimensions : number of coordinates in which the neighbours were searched
    error, standard_error : kNN test error and its binomial standard error
    seconds : wall time of the fit, or None if nothing was fitted
    duality_gap : certified relative gap of the fit, or None where there is no certificate
    reason : why the method could not be computed, and then dimensions and errors are None
    """

    method: str
    dimensions: int | None
    error: float | None
    standard_error: float | None
    seconds: float | None
    duality_gap: float | None
    reason: str | None = None


def compare(
    model: Any, split: Split, n_neighbors: int = 3, n_components: int | None = None
) -> list[Row]:
    """Fit `model` and the usual linear maps, and classify the test points with each.

    Parameters
    ----------
    model : transformer
        It is fitted here, on the training points.
    split : Split
        The points that all methods share.
    n_neighbors : int
        How many neighbours vote.
    n_components : int or None
        The dimensions of PCA and, at most, of LDA. None lets PCA keep 95 % of the variance and LDA
        all its directions.

    Returns
    -------
    rows : list of Row
        Those of `baselines`, then `model`.
    """
    rows = baselines(split, n_neighbors, n_components)
    return [*rows, _fit_and_measure(model, split, n_neighbors, type(model).__name__)]


def baselines(split: Split, n_neighbors: int = 3, n_components: int | None = None) -> list[Row]:
    """The rows for Euclidean, standardised, PCA and, with more points than classes, LDA.

    A method that these points have no answer for, such as LDA where no class varies, has a row that
    gives the reason.
    """
    n, d = split.X_train.shape
    n_classes = len(np.unique(split.y_train))
    methods: dict[str, Any] = {
        "standardised": StandardScaler(),
        "PCA": PCA(_PCA_VARIANCE if n_components is None else min(n_components, n, d)),
    }
    if 1 < n_classes < n:
        most = min(n_classes - 1, d)
        methods["LDA"] = LinearDiscriminantAnalysis(n_components=min(n_components or most, most))
    return [
        measure(None, split, n_neighbors),
        *(_measured_or_reason(map_, split, n_neighbors, name) for name, map_ in methods.items()),
    ]


def measure(
    transformer: Any,
    split: Split,
    n_neighbors: int = 3,
    seconds: float | None = None,
    method: str | None = None,
) -> Row:
    """The row for a fitted transformer, or for None, the Euclidean distance.

    A classifier without ``transform``, such as `MultiMetricLMNN`, predicts by itself. `method` is
    by default the transformer's class name.
    """
    name, dimensions = type(transformer).__name__, split.X_train.shape[1]
    if transformer is None or hasattr(transformer, "transform"):
        error = knn_error(
            transformer, split.X_train, split.y_train, split.X_test, split.y_test, n_neighbors
        )
    else:
        error = float(np.mean(transformer.predict(split.X_test) != split.y_test))
    if transformer is None:
        name = "Euclidean"
    elif hasattr(transformer, "transform"):
        dimensions = transformer.transform(split.X_train[:1]).shape[1]
    return Row(
        method=method or name,
        dimensions=dimensions,
        error=error,
        standard_error=standard_error(error, len(split.y_test)),
        seconds=seconds,
        duality_gap=getattr(transformer, "duality_gap_", None),
    )


def _measured_or_reason(transformer: Any, split: Split, n_neighbors: int, method: str) -> Row:
    """The row for one of scikit-learn's maps, which refuse some points by these errors."""
    try:
        return _fit_and_measure(transformer, split, n_neighbors, method)
    except (ArithmeticError, IndexError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if not _varies_within_classes(split):
            reason = "no class has two different training rows"
        return Row(method, None, None, None, None, None, reason)


def _varies_within_classes(split: Split) -> bool:
    """Whether some class has training points that differ."""
    X, y = np.asarray(split.X_train), np.asarray(split.y_train)
    return any(bool((X[y == label] != X[y == label][0]).any()) for label in np.unique(y))


def _fit_and_measure(transformer: Any, split: Split, n_neighbors: int, method: str) -> Row:
    start = time.perf_counter()
    transformer.fit(split.X_train, split.y_train)
    seconds = time.perf_counter() - start
    return measure(transformer, split, n_neighbors, seconds, method)
