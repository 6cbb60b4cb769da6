"""A layout by path lengths."""

import numpy as np
from scipy.spatial.distance import pdist

from nearfar import NeighborhoodGraph
from nearfar.graphs.geodesics import geodesic_layout


def test_a_complete_graph_of_points_gives_the_points(rng):
    """Paths are straight then, and landmarks in general position place all others exactly."""
    X = rng.normal(size=(12, 3))
    graph = NeighborhoodGraph.from_points(X, 11, angles=False)
    found = geodesic_layout(graph, np.array([0, 4, 5, 7, 9]), 3)
    np.testing.assert_allclose(pdist(found), pdist(X), rtol=1e-8)


def test_a_chain_becomes_straight():
    graph = NeighborhoodGraph.from_edges(range(5), range(1, 6), [1.0, 2, 1, 3, 1], 6)
    found = geodesic_layout(graph, np.array([0, 5]), 2)
    np.testing.assert_allclose(np.abs(np.diff(found[:, 0])), [1, 2, 1, 3, 1])
    np.testing.assert_array_equal(found[:, 1], 0)
