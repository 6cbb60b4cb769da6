"""Moves of single nodes: each gains, no two neighbours move at once."""

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.estimators._relocation import relocated, resettled


def misfit(graph, squares, weights, Y):
    lengths = np.sum((Y[graph.heads] - Y[graph.tails]) ** 2, axis=1)
    return weights @ (lengths - squares) ** 2


@pytest.fixture
def network(rng):
    places = rng.uniform(size=(80, 2))
    graph = NeighborhoodGraph.from_points(places, radius=0.3, angles=False)
    return places, graph, graph.lengths**2, rng.uniform(0.5, 2, graph.n_edges)


NOBODY = np.zeros(80, dtype=bool)


def test_a_node_on_the_wrong_side_goes_home(network):
    places, graph, squares, weights = network
    corner = int(np.argmin(places.sum(axis=1)))
    Y = places.copy()
    Y[corner] = (
        2 * places[np.argsort(np.linalg.norm(places - places[corner], axis=1))[8]] - Y[corner]
    )
    moved, count = relocated(graph, squares, weights, Y, NOBODY)
    assert count == 1
    np.testing.assert_allclose(moved, places, atol=1e-6)


def test_where_all_fits_nothing_moves(network):
    places, graph, squares, weights = network
    moved, count = relocated(graph, squares, weights, places, NOBODY)
    assert count == 0
    np.testing.assert_array_equal(moved, places)


def test_moves_gain_and_neighbours_do_not_move_together(network, rng):
    places, graph, squares, weights = network
    Y = places + 0.1 * rng.normal(size=places.shape)
    fixed = rng.uniform(size=80) < 0.2
    moved, count = relocated(graph, squares, weights, Y, fixed)
    moving = (moved != Y).any(axis=1)
    assert moving.sum() == count > 0
    assert not (moving[graph.heads] & moving[graph.tails]).any()
    assert not moving[fixed].any()
    assert misfit(graph, squares, weights, moved) < misfit(graph, squares, weights, Y)


def test_where_all_fits_nothing_is_settled_anew(network):
    places, graph, squares, weights = network
    moved, count = resettled(graph, squares, weights, places, NOBODY)
    assert count == 0
    np.testing.assert_array_equal(moved, places)


def test_nodes_with_too_few_lengths_stay():
    """Two lengths in the plane have two best places: there is no reason to prefer the other."""
    graph = NeighborhoodGraph.from_edges([0, 0, 1], [1, 2, 2], [1.0, 1, 1], 3)
    Y = np.array([[0.0, 0], [1, 0], [0.5, -0.2]])
    moved, count = relocated(graph, np.ones(3), np.ones(3), Y, np.zeros(3, dtype=bool))
    assert count == 0
    np.testing.assert_array_equal(moved, Y)
    moved, count = resettled(graph, np.ones(3), np.ones(3), Y, np.zeros(3, dtype=bool))
    assert count == 0
    np.testing.assert_array_equal(moved, Y)
