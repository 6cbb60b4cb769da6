"""Edges that join the components of a graph."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import pairwise_distances

from nearfar import NeighborhoodGraph
from nearfar.errors import DisconnectedGraphError, InvalidInputError


def edges_of(graph):
    return set(zip(graph.heads.tolist(), graph.tails.tolist(), strict=True))


@pytest.fixture
def X(rng, read_only):
    """Four clouds, of 40, 25, 25 and 9 points, in mixed order."""
    centres = np.repeat([[0, 0], [30, 0], [0, 30], [30, 31]], [40, 25, 25, 9], axis=0)
    return read_only((centres + rng.normal(size=(99, 2)))[rng.permutation(99)])


def possible_links(X, labels):
    """x' x'' for every choice of x, for all components that one has (thesis, 3.1.12)."""
    D, found = pairwise_distances(X), set()
    for x in range(len(X)):
        inside = labels == labels[x]
        outside = np.flatnonzero(~inside)
        other = outside[D[x, outside].argmin()]
        back = np.flatnonzero(inside)[D[other, inside].argmin()]
        found.add((min(other, back), max(other, back)))
    return found


@pytest.mark.parametrize("given", [False, True])
def test_two_components_are_linked_by_the_rule(rng, given, backend):
    """Two rows of points side by side, of 30 and 20. x is drawn in the smaller one, and the link
    is near to it.
    """
    X = np.concatenate(
        [
            np.stack([np.arange(30.0), 0 * np.arange(30)], axis=1),
            np.stack([np.arange(20.0), 0 * np.arange(20) + 5], axis=1),
        ]
    )
    X += 0.1 * rng.normal(size=X.shape)
    D = pairwise_distances(X)
    graph = NeighborhoodGraph.from_points(backend.asarray(X), 3)
    if given:
        graph = NeighborhoodGraph.from_distances(D, 3, angles=True)
    assert graph.report().component_sizes == (30, 20)
    seen = set()
    for draw in range(12):
        linked = graph.linked(D if given else None, random_state=draw)
        (link,) = edges_of(linked) - edges_of(graph)
        assert link in possible_links(X, graph.components())
        (place,) = np.flatnonzero((linked.heads == link[0]) & (linked.tails == link[1]))
        assert linked.lengths[place] == pytest.approx(D[link], rel=1e-9)
        assert linked.directions[place] == 3
        assert linked.report().connected
        seen.add(link)
    assert len(seen) > 3


def test_many_components_become_one(X, backend):
    graph = NeighborhoodGraph.from_points(backend.asarray(X), 3, angles=False)
    count = graph.components().max() + 1
    linked = graph.linked(random_state=0)
    assert count >= 4
    assert linked.report().connected
    assert count - 1 <= linked.n_edges - graph.n_edges <= 2 * (count - 1)
    assert edges_of(graph) < edges_of(linked)
    keys = linked.heads * 99 + linked.tails
    assert (np.diff(keys) > 0).all()


def test_links_of_points_are_those_of_their_distances(X):
    graph = NeighborhoodGraph.from_points(X, 5)
    D = pairwise_distances(X)
    first = possible_links(X, graph.components())
    for given in (None, D, sparse.csr_array(D)):
        linked = graph.linked(given, random_state=1)
        assert linked.report().connected
        assert first & (edges_of(linked) - edges_of(graph))


def test_a_thousand_components(rng):
    """Pairs of points: each has as many as |C| + 1 = 3 nearest to look at."""
    X = np.repeat(rng.uniform(0, 100, size=(1000, 2)), 2, axis=0)
    X += 1e-3 * rng.normal(size=X.shape)
    graph = NeighborhoodGraph.from_points(X, 1)
    assert graph.components().max() == 999
    assert graph.linked(random_state=0).report().component_sizes == (2000,)


def test_the_seed_fixes_the_links(X):
    graph = NeighborhoodGraph.from_points(X, 5)
    first, again = (edges_of(graph.linked(random_state=3)) for _ in range(2))
    assert first == again


def test_a_connected_graph_stays_as_it_is(X):
    graph = NeighborhoodGraph.from_points(X, 50)
    assert graph.linked() is graph


def test_copies_belong_to_the_component_of_their_original(X):
    more = np.concatenate([X, X[[0] * 9]])
    graph = NeighborhoodGraph.from_points(more, 5)
    linked = graph.linked(random_state=0)
    assert linked.report().connected
    assert (linked.lengths == 0).sum() == 9


def test_unknown_distances_link_nothing(X):
    """Only one distance leads from the first 50 nodes to the others, so it must be the link."""
    D = pairwise_distances(X)
    D[:50, 50:] = D[50:, :50] = np.nan
    graph = NeighborhoodGraph.from_distances(D)
    sizes = graph.report().component_sizes
    assert sizes == (50, 49)
    with pytest.raises(DisconnectedGraphError) as caught:
        graph.linked(D)
    assert str(caught.value) == (
        "no known distance joins the 2 components of the graph, of 50 and 49 nodes. Give more"
        " distances, or set on_disconnected='separate' to unfold each by itself."
    )
    assert caught.value.component_sizes == sizes
    np.testing.assert_array_equal(caught.value.indices, range(50, 99))
    D[7, 80] = D[80, 7] = 123.0
    for form in (D, sparse.csr_array(np.nan_to_num(D))):
        linked = graph.linked(form, random_state=0)
        assert edges_of(linked) - edges_of(graph) == {(7, 80)}
        assert linked.lengths[(linked.heads == 7) & (linked.tails == 80)] == 123.0


def test_new_edges_get_the_mean_weight():
    graph = NeighborhoodGraph.from_edges([0, 2], [1, 3], [1.0, 1.0], 4, [1.0, 4.0])
    linked = graph.linked(1 - np.eye(4), random_state=0)
    assert sorted(linked.weights) == [1.0, 2.5, 4.0]


def test_without_points_distances_are_needed():
    graph = NeighborhoodGraph.from_edges([0, 2], [1, 3], [1.0, 1.0], 4)
    with pytest.raises(InvalidInputError, match=r"links need distances .* Pass the matrix as dist"):
        graph.linked()
    with pytest.raises(InvalidInputError, match="those of the 4 nodes; got a matrix of 5"):
        graph.linked(1 - np.eye(5))
