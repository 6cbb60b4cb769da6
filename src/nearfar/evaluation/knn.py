"""k-nearest-neighbour classification with the papers' rule for ties.

The label of a point is the majority among its k nearest training points. When two classes tie, k
is reduced by one until the tie breaks [weinberger2009, section 4]; at k = 1 it always does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from nearfar.errors import InvalidInputError

_BLOCK_ENTRIES = 2**22  # votes held at a time: 32 MB


def knn_error(
    model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any, n_neighbors: int = 3
) -> float:
    """The share of test points that their nearest training points classify wrongly.

    Parameters
    ----------
    model : fitted transformer or None
        Maps the points to where distances are Euclidean; None takes them as they are.
    X_train, y_train : array-like of shapes (n, d) and (n,)
        The points that vote, and their labels.
    X_test, y_test : array-like of shapes (m, d) and (m,)
        The points that are classified, and their true labels.
    n_neighbors : int
        How many neighbours vote. Ties are broken by reducing it, as in the papers.

    Returns
    -------
    error : float
        Between 0 and 1.
    """
    y_train, y_test = np.asarray(y_train), np.asarray(y_test)
    if (y_train.dtype.kind in "biuf") != (y_test.dtype.kind in "biuf"):
        raise InvalidInputError(
            f"training labels are {y_train.dtype} and test labels are {y_test.dtype}: they cannot "
            "be compared. Write the labels the same way in both."
        )
    if len(y_test) != len(X_test):
        raise InvalidInputError(
            f"X_test has {len(X_test)} rows and y_test has {len(y_test)}. Give every row one label."
        )
    if model is not None:
        X_train, X_test = model.transform(X_train), model.transform(X_test)
    predicted = knn_predict(X_train, y_train, X_test, n_neighbors)
    return float(np.mean(predicted != y_test))


def standard_error(error: float, n: int) -> float:
    """sqrt(error (1 - error) / n), the binomial standard error of a share of n points."""
    return math.sqrt(error * (1 - error) / n)


def knn_predict(X_train: Any, y_train: Any, X_test: Any, n_neighbors: int = 3) -> np.ndarray:
    """The majority label of the nearest training points of each test point.

    Time O(m n d), or less where a tree helps; memory O(m k) beyond the data.
    """
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
    search = NearestNeighbors(n_neighbors=n_neighbors).fit(X_train)
    nearest = codes[search.kneighbors(X_test, return_distance=False)]  # (m, k) class codes
    predicted: np.ndarray = classes[_vote(nearest, len(classes))]
    return predicted


def _vote(nearest: np.ndarray, n_classes: int) -> np.ndarray:
    """The winning class of each row of codes, which are sorted from near to far."""
    block = max(1, _BLOCK_ENTRIES // n_classes)
    winners = [
        _vote_block(nearest[start : start + block], n_classes)
        for start in range(0, len(nearest), block)
    ]
    return np.concatenate(winners) if winners else np.empty(0, dtype=np.intp)


def _vote_block(nearest: np.ndarray, n_classes: int) -> np.ndarray:
    m, k = nearest.shape
    rows = np.arange(m)
    votes = np.zeros((m, n_classes), dtype=np.int64)
    for j in range(k):
        votes[rows, nearest[:, j]] += 1
    for j in reversed(range(1, k)):
        most = votes.max(axis=1, keepdims=True)
        tied = np.flatnonzero((votes == most).sum(axis=1) > 1)
        votes[tied, nearest[tied, j]] -= 1  # the farthest vote of a tied row is dropped
    winners: np.ndarray = votes.argmax(axis=1)
    return winners
