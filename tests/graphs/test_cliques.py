"""Stiff graphs: cliques of more points than their dimension needs."""

import numpy as np
import pytest

from nearfar import NeighborhoodGraph


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_a_graph_is_stiff_with_more_neighbours_than_dimensions(rng, dimension):
    X = rng.normal(size=(60, dimension))
    assert NeighborhoodGraph.from_points(X, n_neighbors=dimension + 1).is_stiff()
    more = np.hstack([X, rng.normal(size=(60, dimension + 4))])
    assert not NeighborhoodGraph.from_points(more, n_neighbors=dimension + 1).is_stiff()


def test_without_angles_nothing_is_stiff_by_chance():
    """A chain of equal steps on a circle: every triple has a distance that is not given."""
    angles = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    assert not NeighborhoodGraph.from_points(X, n_neighbors=2, angles=False).is_stiff()


def test_three_points_on_a_line_are_stiff_in_any_dimension(rng):
    X = rng.normal(size=(8, 6))
    X[2] = 0.25 * X[0] + 0.75 * X[1]
    graph = NeighborhoodGraph.from_points(X, n_neighbors=7)
    assert graph.is_stiff()
    apart = np.delete(X, 2, axis=0)[:6]
    assert not NeighborhoodGraph.from_points(apart, n_neighbors=5).is_stiff()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_the_unit_of_length_does_not_matter(rng, scale):
    X = scale * rng.normal(size=(40, 3))
    assert NeighborhoodGraph.from_points(X, n_neighbors=4).is_stiff()
    noisy = np.hstack([X, scale * rng.normal(size=(40, 3))])
    assert not NeighborhoodGraph.from_points(noisy, n_neighbors=4).is_stiff()
