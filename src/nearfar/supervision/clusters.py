"""Clusters of points: given, or made by k-means or spectral clustering."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from nearfar.errors import InvalidInputError
from nearfar.kernels import kernels_for

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

SPECTRAL_NEIGHBORS = 10  # of the graph that spectral clustering cuts


def made_clusters(
    kind: str, X: NDArray[Any], learned: Index, count: int, seed: int
) -> tuple[Index, Matrix | None]:
    """The cluster of each row, and the centres if the method has any.

    Clusters are made from the rows ``learned``; the other rows join the nearest cluster.
    """
    from sklearn.cluster import KMeans, SpectralClustering  # slow to import, and rarely used

    points = np.asarray(X, dtype=np.float64)
    most = len(learned) - (kind == "spectral")
    if count > most:
        raise InvalidInputError(
            f"partition={kind!r} makes at most {most} clusters of {len(learned)} rows"
            f" that are learned from; n_metrics is {count}. Lower n_metrics."
        )
    if kind == "kmeans":
        with threadpool_limits(1, "openmp"):  # its threads add in any order
            model = KMeans(count, n_init=10, random_state=seed).fit(points[learned])
        # Equal points may give equal centres, of which only the first has points.
        nearest = nearest_row(points, model.cluster_centers_)
        used, codes = np.unique(nearest, return_inverse=True)
        return codes, model.cluster_centers_[used]
    model = SpectralClustering(
        count,
        affinity="nearest_neighbors",
        n_neighbors=min(SPECTRAL_NEIGHBORS, len(learned)),
        random_state=seed,
    )
    # Clusters that are far apart are fine.
    with threadpool_limits(1, "openmp"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        codes = codes_of(model.fit_predict(points[learned]), len(learned))
    return codes[nearest_row(points, points[learned])], None


def codes_of(clusters: ArrayLike, n: int) -> Index:
    """Cluster labels of any type as numbers 0, 1, …"""
    given = kernels_for(clusters).to_host(clusters)
    try:
        names, codes = np.unique(given, return_inverse=True)
        sound = given.shape == (n,) and not (names != names).any()
    except TypeError:  # labels that cannot be compared
        sound = False
    if not sound:
        raise InvalidInputError(
            f"clusters must have a value for each of the {n} rows of X, all of one kind and none"
            f" missing; got {given.dtype} of shape {given.shape}. Check that they belong together."
        )
    return codes


def nearest_row(X: NDArray[Any], points: NDArray[Any]) -> Index:
    """Number of the point nearest to each row of X."""
    queries = np.asarray(X, dtype=np.float64)
    near, _ = kernels_for(queries).nearest(queries, np.asarray(points, dtype=np.float64), 1)
    found: Index = near[:, 0]
    return found
