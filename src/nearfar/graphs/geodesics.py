"""An initial layout of a graph from the lengths of shortest paths to a few landmarks.

(1) landmarks  classical scaling of the squared path lengths P among m landmarks: the leading
               eigenvectors V and values θ of −½HPH with H = I − 11ᵀ/m
(2) others     yᵢ = −½ θ^(−½) Vᵀ (pᵢ − p̄) from the squared path lengths pᵢ of node i to the
               landmarks and p̄, the mean of P's rows                                       [dST04]

[dST04] de Silva & Tenenbaum, Sparse multidimensional scaling using landmark points, 2004.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.csgraph import dijkstra

from nearfar.graphs.neighborhood import NeighborhoodGraph
from nearfar.linalg import null_tolerance

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


def geodesic_layout(graph: NeighborhoodGraph, landmarks: Index, n_components: int) -> Matrix:
    """Positions (n, n_components) of the nodes of a connected graph. Time O(m e log n)."""
    paths = dijkstra(graph.adjacency(), directed=False, indices=landmarks) ** 2  # (m, n)
    among = 0.5 * (paths[:, landmarks] + paths[:, landmarks].T)
    mean = among.mean(axis=0)
    values, vectors = linalg.eigh(-0.5 * (among - mean - mean[:, None] + mean.mean()))
    values, vectors = values[::-1], vectors[:, ::-1]
    count = min(n_components, int((values > null_tolerance(values)).sum()))
    places = np.zeros((graph.n_nodes, n_components))
    places[:, :count] = -0.5 * (paths.T - mean) @ (vectors[:, :count] / np.sqrt(values[:count]))
    return places
