"""Renumbered nodes: the same graph, with neighbours nearer to each other in number."""

import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.graphs.ordering import in_near_order


@pytest.mark.parametrize("weighted", [False, True])
def test_the_graph_is_the_same(rng, weighted):
    X = rng.uniform(size=(300, 2))
    graph = NeighborhoodGraph.from_points(X, 4)
    if weighted:
        weights = rng.uniform(size=graph.n_edges)
        graph = NeighborhoodGraph.from_edges(graph.heads, graph.tails, graph.lengths, 300, weights)
    order, new = in_near_order(graph)
    np.testing.assert_array_equal(np.sort(order), np.arange(300))
    old = graph.adjacency().toarray()[np.ix_(order, order)]
    np.testing.assert_array_equal(new.adjacency().toarray(), old)
    assert (new.heads < new.tails).all()
    keys = new.heads * 300 + new.tails
    assert (np.diff(keys) > 0).all()
    if weighted:
        old = graph.adjacency(graph.weights).toarray()[np.ix_(order, order)]
        np.testing.assert_array_equal(new.adjacency(new.weights).toarray(), old)
        assert new.directions is None
    else:
        np.testing.assert_array_equal(new.points, X[order])
    assert np.mean(new.tails - new.heads) < 0.3 * np.mean(graph.tails - graph.heads)


def test_directions_are_kept(rng):
    """Who is a neighbour of whom, as a matrix of directed edges."""
    graph = NeighborhoodGraph.from_points(rng.normal(size=(60, 3)), 4)

    def directed(graph):
        A = np.zeros((60, 60), dtype=bool)
        A[graph.heads, graph.tails] = graph.directions & 1
        A[graph.tails, graph.heads] = graph.directions >> 1
        return A

    order, new = in_near_order(graph)
    np.testing.assert_array_equal(directed(new), directed(graph)[np.ix_(order, order)])
