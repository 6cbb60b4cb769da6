"""What an unfolding is given: points, a neighbourhood graph, distances, or kernel values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import validated_points
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import Array, is_torch, kernels_for

METRICS = ("euclidean", "precomputed", "kernel")
NOT_POSITIVE = 1e-8  # of the largest kernel value: a squared distance may be so far below zero


@dataclass(frozen=True)
class GraphInput:
    """A graph, and what new points and further edges need."""

    graph: NeighborhoodGraph
    points: Array | None  # (n, d) where they live; None if only distances are known
    distances: Any  # (n, n), dense or sparse, if they were given
    reference: Array  # tells the device and the dtype of what is computed


def graph_input(
    estimator: Any, X: Any, metric: str, n_neighbors: int | None, angles: bool
) -> GraphInput:
    """The graph of an estimator's X; ``n_features_in_`` is set."""
    if isinstance(X, NeighborhoodGraph):
        return _of_graph(estimator, X)
    if metric == "euclidean":
        points = validated_points(estimator, X, reset=True)
        graph = NeighborhoodGraph.from_points(points, n_neighbors, angles=angles)
        return GraphInput(graph, points, None, points)
    distances = distances_of_kernel(X) if metric == "kernel" else X
    graph = NeighborhoodGraph.from_distances(distances, n_neighbors, angles=angles)
    _set_features(estimator, graph.n_nodes)
    reference = X if is_torch(X) and X.is_floating_point() else np.empty(0)
    return GraphInput(graph, None, distances, reference)


def _of_graph(estimator: Any, graph: NeighborhoodGraph) -> GraphInput:
    if graph.points is None:
        _set_features(estimator, graph.n_nodes)
        return GraphInput(graph, None, None, np.empty(0))
    points = validated_points(estimator, graph.points, reset=True)
    return GraphInput(graph, points, None, points)


def _set_features(estimator: Any, count: int) -> None:
    estimator.n_features_in_ = count
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def distances_of_kernel(K: Any) -> NDArray[np.float64]:
    """√(kᵢᵢ − 2kᵢⱼ + kⱼⱼ) of a kernel matrix, on the host. Memory O(n²)."""
    if sparse.issparse(K):
        raise InvalidInputError(
            "a kernel matrix must be dense; got a sparse one. Use K.toarray(), or give sparse"
            " distances with metric='precomputed'."
        )
    K = np.asarray(kernels_for(K).to_host(K), dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not np.isfinite(K).all():
        raise InvalidInputError(
            "a kernel matrix must be square and finite, (n_samples, n_samples); got shape"
            f" {K.shape}. For points use metric='euclidean'."
        )
    diagonal = K.diagonal()
    squares: NDArray[np.float64] = diagonal[:, None] + diagonal - 2 * K
    np.fill_diagonal(squares, 0.0)
    least = np.unravel_index(squares.argmin(), squares.shape)
    if squares[least] < -NOT_POSITIVE * np.abs(diagonal).max():
        i, j = map(int, least)
        raise InvalidInputError(
            "a kernel matrix must be positive semidefinite; the squared distance k_ii - 2 k_ij +"
            f" k_jj of {i} and {j} is {squares[least]:g}. Check that these are kernel values: for"
            " distances use metric='precomputed'.",
            [[i, j]],
        )
    distances: NDArray[np.float64] = np.sqrt(squares.clip(0, None))
    return distances
