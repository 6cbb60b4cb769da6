"""Moves of single nodes: each gains, no two neighbours move at once."""

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.estimators._out_of_sample import move_single_nodes, place_untrusted_nodes


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
    corner = int(np.argmin(np.where(graph.degrees() >= 5, places.sum(axis=1), np.inf)))
    Y = places.copy()
    Y[corner] = (
        2 * places[np.argsort(np.linalg.norm(places - places[corner], axis=1))[8]] - Y[corner]
    )
    moved, count = move_single_nodes(graph, squares, weights, Y, NOBODY)
    assert count == 1
    np.testing.assert_allclose(moved, places, atol=1e-6)


def test_where_all_fits_nothing_moves(network):
    places, graph, squares, weights = network
    moved, count = move_single_nodes(graph, squares, weights, places, NOBODY)
    assert count == 0
    np.testing.assert_array_equal(moved, places)


def test_moves_gain_and_neighbours_do_not_move_together(network, rng):
    places, graph, squares, weights = network
    Y = places + 0.1 * rng.normal(size=places.shape)
    fixed = rng.uniform(size=80) < 0.2
    moved, count = move_single_nodes(graph, squares, weights, Y, fixed)
    moving = (moved != Y).any(axis=1)
    assert moving.sum() == count > 0
    assert not (moving[graph.heads] & moving[graph.tails]).any()
    assert not moving[fixed].any()
    assert misfit(graph, squares, weights, moved) < misfit(graph, squares, weights, Y)


@pytest.mark.parametrize("count", [4, 10])
def test_neighbours_on_the_wrong_side_together_go_home(network, count):
    """The nodes nearest to a corner, mirrored: alone none of them would move far enough."""
    places, graph, squares, weights = network
    Y, corner = places.copy(), np.argsort(places.sum(axis=1))[:count]
    Y[corner] = 0.5 - Y[corner][:, ::-1]
    moved, n_moved = place_untrusted_nodes(graph, squares, weights, Y, NOBODY)
    held = graph.degrees() > 2
    assert n_moved >= held[corner].sum()
    np.testing.assert_allclose(moved[held], places[held], atol=1e-6)
    fixed = np.isin(np.arange(80), corner)
    moved, _ = place_untrusted_nodes(graph, squares, weights, Y, fixed)
    np.testing.assert_array_equal(moved[corner], Y[corner])


def test_a_mirrored_node_that_only_mirrored_ones_hold_goes_home():
    """A grid whose three nodes at a corner, and a fourth that hangs on these, are mirrored.

    All lengths of the fourth fit, and it would hold the three where they are.
    """
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    places = np.vstack([grid + 0.05 * np.sin(np.arange(32.0)).reshape(16, 2), [[-0.9, -0.8]]])
    three = [0, 1, 4]
    pairs = [(i, j) for i in range(16) for j in range(i) if np.abs(grid[i] - grid[j]).max() <= 2]
    heads, tails = np.array([*pairs, *((16, node) for node in three)]).T
    lengths = np.linalg.norm(places[heads] - places[tails], axis=1)
    graph = NeighborhoodGraph.from_edges(heads, tails, lengths, 17)
    Y, ones, mirrored = places.copy(), np.ones(len(heads)), [*three, 16]
    Y[mirrored] = 2 - Y[mirrored][:, ::-1]
    squares = graph.lengths**2
    moved, count = place_untrusted_nodes(graph, squares, ones, Y, np.zeros(17, dtype=bool))
    assert count >= 4
    np.testing.assert_allclose(moved, places, atol=1e-6)


def test_where_all_fits_nothing_is_settled_anew(network):
    places, graph, squares, weights = network
    moved, count = place_untrusted_nodes(graph, squares, weights, places, NOBODY)
    assert count == 0
    np.testing.assert_array_equal(moved, places)


def test_nodes_with_too_few_lengths_stay():
    """Two lengths in the plane have two best places: there is no reason to prefer the other."""
    graph = NeighborhoodGraph.from_edges([0, 0, 1], [1, 2, 2], [1.0, 1, 1], 3)
    Y = np.array([[0.0, 0], [1, 0], [0.5, -0.2]])
    moved, count = move_single_nodes(graph, np.ones(3), np.ones(3), Y, np.zeros(3, dtype=bool))
    assert count == 0
    np.testing.assert_array_equal(moved, Y)
    moved, count = place_untrusted_nodes(graph, np.ones(3), np.ones(3), Y, np.zeros(3, dtype=bool))
    assert count == 0
    np.testing.assert_array_equal(moved, Y)
