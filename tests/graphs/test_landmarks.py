"""Nodes that stand for all."""

import re

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from nearfar import NeighborhoodGraph
from nearfar.errors import InvalidInputError


def test_each_landmark_is_the_farthest_from_those_before(rng):
    graph = NeighborhoodGraph.from_points(rng.normal(size=(120, 2)), 6)
    D = shortest_path(graph.adjacency(), directed=False)
    chosen = graph.landmarks(30, random_state=5)
    for count in range(1, 30):
        apart = D[:, chosen[:count]].min(axis=1)
        assert apart[chosen[count]] == pytest.approx(apart.max(), rel=1e-12)
    assert len(set(chosen)) == 30


def test_all_nodes_can_be_landmarks(rng):
    X = rng.normal(size=(30, 2))
    graph = NeighborhoodGraph.from_points(np.concatenate([X, X[:10]]), 4)
    for method in ("farthest", "random"):
        chosen = graph.landmarks(40, method=method, random_state=0)
        np.testing.assert_array_equal(np.sort(chosen), range(40))


def test_every_component_gets_one_first(rng):
    X = np.concatenate([rng.normal(size=(50, 2)) + 1000 * i for i in range(4)])
    graph = NeighborhoodGraph.from_points(X, 6)
    chosen = graph.landmarks(graph.components().max() + 1, random_state=0)
    assert len(set(graph.components()[chosen])) == len(chosen) >= 4


@pytest.mark.parametrize("method", ["farthest", "random"])
def test_the_seed_fixes_them(rng, method):
    graph = NeighborhoodGraph.from_points(rng.normal(size=(50, 2)), 6)
    first, again, other = (
        graph.landmarks(10, method=method, random_state=seed).tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"count": 0}, "count must be an integer from 1 to 3; got 0"),
        ({"count": 4}, "count must be an integer from 1 to 3; got 4"),
        ({"count": 2, "method": "k-means"}, "method must be 'farthest' or 'random'; got 'k-means'"),
    ],
)
def test_bad_arguments(arguments, text):
    graph = NeighborhoodGraph.from_edges([0, 1], [1, 2], [1.0, 1.0], 3)
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        graph.landmarks(**arguments)
