"""Nearest neighbours under one metric or several, and their vote.

With several metrics, the metric of the neighbour measures the distance [JMLR09, eq. 16]:
D(a, b) = ‖L_c (a − b)‖², where c is the metric of b.

[JMLR09] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for, to_host

Index = NDArray[np.intp]
Found = tuple[Index, NDArray[np.float64]]

BLOCK_ENTRIES = 2**22  # votes held at a time: 32 MB


def nearest_under(X: Array, points: Array, components: Array, metric_of: Any, k: int) -> Index:
    """Rows of the k nearest points of each row of X, each point measured by its own metric.

    Parameters
    ----------
    X : array of shape (m, d)
        The queries.
    points : array of shape (n, d)
        The training points, on the device of X.
    components : array of shape (C, r, d)
        The maps L of the metrics.
    metric_of : integers of shape (n,)
        The metric of each training point.
    k : int
        How many neighbours, at most n.

    Returns
    -------
    ndarray of shape (m, k)
        Row numbers on the host, nearest first, ties by number. Pass them with the labels' codes to
        `vote`: ``vote(codes[nearest], n_classes)``. Time O(m n r), memory O(n r + m C k).
    """
    kernels = kernels_for(X)
    maps = np.asarray(to_host(components), dtype=np.float64)
    groups = metric_groups(metric_of)

    def found() -> Iterable[tuple[Index, Found]]:
        for metric, rows in groups:
            images = kernels.apply(points[kernels.index(rows, points)], maps[metric])
            queries = kernels.apply(X, maps[metric])
            near, lengths = kernels_for(images).nearest(queries, images, min(k, len(rows)))
            yield rows, (to_host(near), to_host(lengths))

    return merged(found(), k)[0]


def metric_groups(metric_of: Any) -> list[tuple[int, Index]]:
    """Metrics that have points, each with the rows of its points in ascending order."""
    metrics = np.asarray(kernels_for(metric_of).to_host(metric_of))
    return [(int(metric), np.flatnonzero(metrics == metric)) for metric in np.unique(metrics)]


def merged(parts: Iterable[tuple[Index, Found]], k: int) -> Found:
    """Merge the nearest neighbours found in parts of the rows into the k nearest of all.

    A part is its rows, and the positions (m, ·) of the nearest among them with their squared
    distances. Ties are ordered by row number.
    """
    rows, lengths = zip(*((rows[near], lengths) for rows, (near, lengths) in parts), strict=True)
    near, squares = np.hstack(rows), np.hstack(lengths)
    order = np.lexsort((near, squares), axis=1)[:, :k]
    return np.take_along_axis(near, order, 1), np.take_along_axis(squares, order, 1)


def without_own_rows(nearest: Index) -> NDArray[np.bool_]:
    """Which entries to keep of the k + 1 nearest points (n, k + 1) of each of n points: k others.

    Where equal points, which are as near, took the place of the point itself, the last is dropped.
    """
    own: NDArray[np.bool_] = nearest == np.arange(len(nearest))[:, None]
    own[~own.any(axis=1), -1] = True
    return ~own


def vote(nearest: Index, n_classes: int) -> Index:
    """The majority class of each row of class numbers (m, k), sorted from near to far.

    If classes tie, k is reduced by one until the tie breaks [JMLR09, section 4], at the latest at
    k = 1.
    """
    block = max(1, BLOCK_ENTRIES // n_classes)
    winners = [
        _vote_block(nearest[first : first + block], n_classes)
        for first in range(0, len(nearest), block)
    ]
    return np.concatenate(winners) if winners else np.empty(0, dtype=np.intp)


def _vote_block(nearest: Index, n_classes: int) -> Index:
    rows = np.arange(len(nearest))
    votes = votes_of(nearest, n_classes)
    for j in reversed(range(1, nearest.shape[1])):
        most = votes.max(axis=1, keepdims=True)
        tied = np.flatnonzero((votes == most).sum(axis=1) > 1)
        votes[rows[tied], nearest[tied, j]] -= 1  # the farthest vote of a tied row is dropped
    winners: Index = votes.argmax(axis=1)
    return winners


def votes_of(nearest: Index, n_classes: int) -> NDArray[np.int64]:
    """Number of votes for each class (m, n_classes), from rows of class numbers (m, k)."""
    votes = np.zeros((len(nearest), n_classes), dtype=np.int64)
    rows = np.arange(len(nearest))
    for column in nearest.T:
        votes[rows, column] += 1
    return votes
