"""k-nearest-neighbour classification with the papers' rule for ties.

The label of a point is the majority among its k nearest training points. When two classes tie, k
is reduced by one until the tie breaks [weinberger2009, section 4]; at k = 1 it always does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from nearfar.blocks import is_dask
from nearfar.blocks.collections import array_of_known_rows
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import lazy_images
from nearfar.kernels.search import Search
from nearfar.supervision.neighbor_blocks import nearest_in_blocks
from nearfar.supervision.neighbors import vote, without_own_rows


def knn_error(
    model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any, n_neighbors: int = 3
) -> float:
    """The share of test points that their nearest training points classify wrongly.

    Parameters
    ----------
    model : fitted transformer or None
        Maps the points to where distances are Euclidean; None takes them as they are.
    X_train, y_train : array-like or Dask arrays of shapes (n, d) and (n,)
        The points that vote, and their labels.
    X_test, y_test : array-like or Dask arrays of shapes (m, d) and (m,)
        The points that are classified, and their true labels.
    n_neighbors : int
        How many neighbours vote. Ties are broken by reducing it, as in the papers.

    Returns
    -------
    error : float
        Between 0 and 1.
    """
    return float(knn_mistakes(model, X_train, y_train, X_test, y_test, n_neighbors).mean())


def knn_mistakes(
    model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any, n_neighbors: int = 3
) -> NDArray[np.bool_]:
    """Which test points their nearest training points classify wrongly; see `knn_error`."""
    y_train, y_test = np.asarray(y_train), np.asarray(y_test)
    X_train, X_test = (_mapped(model, X) for X in (X_train, X_test))
    if (y_train.dtype.kind in "biuf") != (y_test.dtype.kind in "biuf"):
        raise InvalidInputError(
            f"training labels are {y_train.dtype} and test labels are {y_test.dtype}: they cannot "
            "be compared. Write the labels the same way in both."
        )
    if len(y_test) != len(X_test):
        raise InvalidInputError(
            f"X_test has {len(X_test)} rows and y_test has {len(y_test)}. Give every row one label."
        )
    predicted = knn_predict(X_train, y_train, X_test, n_neighbors)
    return np.asarray(predicted != y_test)


def mistakes_of_counts(
    X_train: Any, y_train: Any, X_test: Any, y_test: Any, counts: list[int]
) -> list[NDArray[np.bool_]]:
    """`knn_mistakes` for several numbers of neighbours, by one search."""
    classes, codes = np.unique(np.asarray(y_train), return_inverse=True)
    near = codes[_nearest(X_train, X_test, min(max(counts), len(X_train)))]
    return [classes[vote(near[:, :count], len(classes))] != y_test for count in counts]


def leave_one_out_error(model: Any, X: Any, y: Any, n_neighbors: int = 3) -> float:
    """The share of points that their nearest other points classify wrongly.

    This is the training error of the papers. It is lower than the error of new points, since the
    metric was learned from these.

    Parameters
    ----------
    model : fitted transformer or None
        Maps the points to where distances are Euclidean; None takes them as they are.
    X, y : array-like or Dask arrays of shapes (n, d) and (n,)
        The points and their labels.
    n_neighbors : int
        How many other points vote. Ties are broken by reducing it, as in the papers.

    Returns
    -------
    error : float
        Between 0 and 1.
    """
    y, points = np.asarray(y), _mapped(model, X)
    if len(y) != len(points):
        raise InvalidInputError(
            f"X has {len(points)} rows and y has {len(y)}. Give every row one label."
        )
    if not 1 <= n_neighbors < len(y):
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} must be between 1 and {len(y) - 1}, the other points. Lower"
            " n_neighbors or give more points."
        )
    classes, codes = np.unique(y, return_inverse=True)
    near = _nearest(points, points, n_neighbors + 1)
    near = near[without_own_rows(near)].reshape(-1, n_neighbors)
    return float(np.mean(vote(codes[near], len(classes)) != codes))


def knn_predict(X_train: Any, y_train: Any, X_test: Any, n_neighbors: int = 3) -> np.ndarray:
    """The majority label of the nearest training points of each test point.

    Time O(m n d), or less where a tree helps; memory O(m k) beyond the data. Dask arrays are
    searched block by block, where they are.
    """
    X_train, X_test = (_mapped(None, X) for X in (X_train, X_test))
    if not 1 <= n_neighbors <= len(X_train):
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} must be between 1 and the {len(X_train)} training points. "
            "Lower n_neighbors or give more points."
        )
    if len(y_train) != len(X_train):
        raise InvalidInputError(
            f"X_train has {len(X_train)} rows and y_train has {len(y_train)}. Give every row one "
            "label."
        )
    classes, codes = np.unique(np.asarray(y_train), return_inverse=True)
    nearest = _nearest(X_train, X_test, n_neighbors)
    return classes[vote(codes[nearest], len(classes))]


def _mapped(model: Any, X: Any) -> Any:
    """Where the model puts the points; a Dask array stays one, with known rows."""
    if is_dask(X):
        return array_of_known_rows(X if model is None else lazy_images(model, X))
    return X if model is None else model.transform(X)


def _nearest(X_train: Any, X_test: Any, n_neighbors: int) -> NDArray[np.intp]:
    """Row numbers (m, k) of the nearest training points."""
    points, queries = (
        X if is_dask(X) else check_array(X, dtype=[np.float64, np.float32], ensure_min_samples=0)
        for X in (X_train, X_test)
    )
    if is_dask(points) or is_dask(queries):
        nearest, _ = nearest_in_blocks(points, queries, n_neighbors)
    else:
        nearest, _ = Search.of(points).nearest(queries, n_neighbors)
    return np.asarray(nearest, dtype=np.intp)
