"""Graphs of points, of distances and of edges, against plain loops."""

import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.csgraph import shortest_path
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import kneighbors_graph

from nearfar import NeighborhoodGraph
from nearfar.errors import DisconnectedGraphError, InvalidInputError


def edges_of(graph):
    return set(zip(graph.heads.tolist(), graph.tails.tolist(), strict=True))


def neighbors_by_loops(D, k=None, radius=np.inf):
    """The neighbours of each node: the nearest others at known distances, ties by number."""
    near = []
    for i, row in enumerate(D):
        others = [j for j in range(len(D)) if j != i and row[j] <= radius and row[j] < np.inf]
        near.append(sorted(others, key=lambda j, row=row: (row[j], j))[:k])
    return near


def edges_by_loops(D, k=None, radius=np.inf, angles=False):
    near = neighbors_by_loops(D, k, radius)
    edges = {(min(i, j), max(i, j)) for i, others in enumerate(near) for j in others}
    if angles:
        among = {(min(a, b), max(a, b)) for others in near for a in others for b in others}
        edges |= {(a, b) for a, b in among if a != b and D[a, b] < np.inf}
    return edges


def assert_sound(graph):
    """Edges once, from the smaller to the larger number, in order."""
    keys = graph.heads * graph.n_nodes + graph.tails
    assert (graph.heads < graph.tails).all()
    assert (np.diff(keys) > 0).all()
    assert graph.heads.dtype == graph.tails.dtype == np.intp
    assert graph.lengths.dtype == np.float64
    assert graph.lengths.shape == graph.heads.shape
    assert graph.heads.min(initial=0) >= 0
    assert graph.tails.max(initial=0) < graph.n_nodes


@pytest.fixture
def X(rng, read_only):
    return read_only(rng.normal(size=(50, 3)))


# -- of points -------------------------------------------------------------------------------


@pytest.mark.parametrize("angles", [False, True])
@pytest.mark.parametrize(
    ("k", "radius"), [(4, None), (1, None), (None, 0.9), (3, 0.7), (49, None), (None, 100.0)]
)
def test_neighbours_of_points(X, k, radius, angles, backend, dtype):
    X = X.astype(dtype)
    graph = NeighborhoodGraph.from_points(backend.asarray(X), k, radius=radius, angles=angles)
    D = pairwise_distances(X.astype(np.float64))
    assert edges_of(graph) == edges_by_loops(D, k, radius or np.inf, angles)
    assert_sound(graph)
    exact = np.linalg.norm(X[graph.heads].astype(np.float64) - X[graph.tails], axis=1)
    np.testing.assert_allclose(graph.lengths, exact, rtol=1e-12)
    assert graph.n_nodes == 50
    np.testing.assert_array_equal(backend.to_numpy(graph.points), X)


def test_four_neighbours_with_angles_by_default(X):
    plain = NeighborhoodGraph.from_points(X)
    assert edges_of(plain) == edges_of(NeighborhoodGraph.from_points(X, 4, angles=True))


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_the_graph_does_not_depend_on_the_scale(X, scale):
    graph, scaled = (NeighborhoodGraph.from_points(points, 5) for points in (X, scale * X))
    assert edges_of(graph) == edges_of(scaled)
    np.testing.assert_allclose(scaled.lengths, scale * graph.lengths, rtol=1e-12)


def test_the_graph_does_not_depend_on_a_far_offset(X):
    X = np.round(X * 2**20) / 2**20  # so that adding 2**20 is exact
    graph, moved = (NeighborhoodGraph.from_points(points, 5) for points in (X, X + 2.0**20))
    assert edges_of(graph) == edges_of(moved)
    np.testing.assert_array_equal(moved.lengths, graph.lengths)
    graph, moved = (NeighborhoodGraph.from_points(x, radius=0.9) for x in (X, X + 2.0**20))
    assert edges_of(graph) == edges_of(moved)


def test_small_differences_beside_a_far_point():
    """Taken relative to the first point, the others would all be in the same place."""
    X = np.array([[1e8], [0.0], [1e-9], [3e-9], [7e-9]])
    graph = NeighborhoodGraph.from_points(X, 1, angles=False)
    assert edges_of(graph) == {(0, 1), (1, 2), (2, 3), (3, 4)}  # from 0 all are as far
    np.testing.assert_allclose(graph.lengths[1:], [1e-9, 2e-9, 4e-9], rtol=1e-12)


def test_a_radius_in_many_dimensions(rng):
    """Where the search goes by products of points, which round the distances of far ones."""
    X = 1e4 + rng.normal(size=(40, 50))
    D = np.linalg.norm(X[:, None] - X, axis=2)
    for radius in np.quantile(D[D > 0], [0.01, 0.5, 0.99]):
        graph = NeighborhoodGraph.from_points(X, radius=radius)
        assert edges_of(graph) == edges_by_loops(D, radius=radius, angles=True)


def test_directions_say_who_named_whom(X):
    graph = NeighborhoodGraph.from_points(X, 4)
    near = neighbors_by_loops(pairwise_distances(X), 4)
    for i, j, direction in zip(graph.heads, graph.tails, graph.directions, strict=True):
        assert direction == (j in near[i]) + 2 * (i in near[j])


def test_copies_hang_on_the_first_and_count_for_nobody_else(X, backend):
    """Searched among different points, the others have the neighbours they had without copies."""
    twice = np.concatenate([X, X[[7] * 9], X[[2]], -0.0 * X[[0]], 0.0 * X[[0]]])
    graph = NeighborhoodGraph.from_points(backend.asarray(twice), 4)
    plain = NeighborhoodGraph.from_points(np.concatenate([X, 0 * X[[0]]]), 4)
    moved = {(7, i) for i in range(50, 59)} | {(2, 59), (60, 61)}
    rows = np.append(np.arange(50), 60)
    assert edges_of(graph) == {(rows[i], rows[j]) for i, j in edges_of(plain)} | moved
    assert graph.report().n_duplicates == 11
    assert (graph.lengths == 0).sum() == 11


def test_merged_copies_give_the_graph_without_copies(X, rng):
    twice = np.concatenate([X, X[[7] * 9], X[[2]]])
    order = rng.permutation(len(twice))
    labels, merged = NeighborhoodGraph.from_points(twice[order], 4).merged()
    np.testing.assert_array_equal(merged.points[labels], twice[order])
    plain = NeighborhoodGraph.from_points(merged.points, 4)
    assert merged.n_nodes == 50
    assert edges_of(merged) == edges_of(plain)
    np.testing.assert_array_equal(merged.lengths, plain.lengths)
    np.testing.assert_array_equal(merged.directions, plain.directions)
    assert_sound(merged)


@pytest.mark.parametrize(
    ("points", "arguments", "text"),
    [
        (np.eye(5), {"n_neighbors": 5}, "n_neighbors=5 needs at least 6 different points; there"),
        (
            np.eye(5)[[0, 1, 1, 1, 1]],
            {"n_neighbors": 2},
            "at least 3 different points; there are 2",
        ),
        (np.eye(5), {"n_neighbors": 0}, "n_neighbors must be an integer of at least 1; got 0"),
        (np.eye(5), {"n_neighbors": 2.0}, "n_neighbors must be an integer of at least 1; got 2.0"),
        (
            np.eye(5),
            {"n_neighbors": True},
            "n_neighbors must be an integer of at least 1; got True",
        ),
        (np.eye(5), {"radius": 0}, "radius must be a number above 0; got 0"),
        (np.eye(5), {"radius": np.nan}, "radius must be a number above 0; got nan"),
        (np.eye(1), {"radius": 1.0}, "at least 2 points; got n_samples=1. Add points"),
        (np.ones((4, 2)), {}, "needs points that differ; all 4 are equal. Check the data"),
    ],
)
def test_points_that_make_no_graph(points, arguments, text, backend):
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        NeighborhoodGraph.from_points(backend.asarray(points), **arguments)


def test_points_with_nan_or_of_another_shape(X, torch):
    spoiled = X.copy()
    spoiled[3, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        NeighborhoodGraph.from_points(spoiled)
    with pytest.raises(InvalidInputError, match=r"without NaN or infinity; got shape \(50, 3\)"):
        NeighborhoodGraph.from_points(torch.tensor(spoiled))
    with pytest.raises(InvalidInputError, match=r"shape \(n_samples, n_features\).*got shape \(2,"):
        NeighborhoodGraph.from_points(torch.zeros(2, 3, 4))


# -- of distances ----------------------------------------------------------------------------


@pytest.fixture
def partial(X, rng):
    """Distances of which about a third is not known."""
    D = pairwise_distances(X)
    D = 0.5 * (D + D.T)  # exactly symmetric
    hidden = np.triu(rng.uniform(size=D.shape) < 0.33, 1)
    D[hidden | hidden.T] = np.nan
    return D


def stored(D):
    """The known distances as a sparse array; zeros are stored."""
    i, j = np.nonzero(np.isfinite(D) & ~np.eye(len(D), dtype=bool))
    return sparse.coo_array((D[i, j], (i, j)), shape=D.shape)


@pytest.mark.parametrize("form", [np.asarray, stored, np.float32])
@pytest.mark.parametrize("angles", [False, True])
@pytest.mark.parametrize(
    ("k", "radius"), [(None, None), (3, None), (None, 1.0), (2, 0.8), (40, None)]
)
def test_neighbours_of_known_distances(partial, form, k, radius, angles):
    D = form(partial)
    known = np.asarray(D if form is np.float32 else partial, dtype=np.float64)
    graph = NeighborhoodGraph.from_distances(D, k, radius=radius, angles=angles)
    known = np.where(np.isnan(known), np.inf, known)
    assert edges_of(graph) == edges_by_loops(known, k, radius or np.inf, angles)
    assert_sound(graph)
    np.testing.assert_array_equal(graph.lengths, known[graph.heads, graph.tails])
    assert graph.points is None


def test_blocks_of_rows_change_nothing(partial, monkeypatch):
    whole = NeighborhoodGraph.from_distances(partial, 5, angles=True)
    monkeypatch.setattr("nearfar.graphs.distances.BLOCK_ENTRIES", 120)
    parts = NeighborhoodGraph.from_distances(partial, 5, angles=True)
    assert edges_of(whole) == edges_of(parts)
    partial[40, 45] = partial[45, 40] = -1
    with pytest.raises(InvalidInputError, match="between nodes 40 and 45 is -1"):
        NeighborhoodGraph.from_distances(partial)


def test_full_distances_give_the_graph_of_the_points(X, backend):
    D = backend.asarray(pairwise_distances(X))
    graph = NeighborhoodGraph.from_distances(D, 5, angles=True)
    plain = NeighborhoodGraph.from_points(X, 5)
    assert edges_of(graph) == edges_of(plain)
    np.testing.assert_allclose(graph.lengths, plain.lengths, rtol=1e-9)
    np.testing.assert_array_equal(graph.directions, plain.directions)


def test_infinity_is_unknown_too_and_integers_are_distances():
    D = np.array([[0, 1, np.inf], [1, 0, 2], [np.inf, 2, 0]])
    assert edges_of(NeighborhoodGraph.from_distances(D)) == {(0, 1), (1, 2)}
    whole = NeighborhoodGraph.from_distances(np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]]))
    np.testing.assert_array_equal(whole.lengths, [1, 3, 2])


def test_a_stored_zero_is_a_distance_of_zero():
    D = sparse.coo_array(([0.0, 0.0, 1.0, 1.0], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    graph = NeighborhoodGraph.from_distances(D)
    assert edges_of(graph) == {(0, 1), (1, 2)}
    assert graph.report().n_duplicates == 1
    assert not graph.components().any()


def test_weights_of_distances(partial, rng):
    W = rng.uniform(1, 2, partial.shape)
    W += W.T
    for form in (np.asarray, sparse.csr_array):
        graph = NeighborhoodGraph.from_distances(partial, 3, weights=form(W))
        np.testing.assert_array_equal(graph.weights, W[graph.heads, graph.tails])
    with pytest.raises(InvalidInputError, match=r"weights must have the shape .* got \(3, 3\)"):
        NeighborhoodGraph.from_distances(partial, weights=np.ones((3, 3)))
    graph = NeighborhoodGraph.from_distances(partial)
    i, j = graph.heads[9], graph.tails[9]
    W[i, j] = 17.0
    with pytest.raises(InvalidInputError, match=r"edge 9, .* another weight in the other direc"):
        NeighborhoodGraph.from_distances(partial, weights=W)
    W[i, j] = W[j, i] = 0
    with pytest.raises(
        InvalidInputError, match=r"edge 9, .* positive weight \(1 in all\)\. Leave out"
    ):
        NeighborhoodGraph.from_distances(partial, weights=W)


SPOILED = [
    ({(2, 5): -1.0, (5, 2): -1.0}, "negative; that between nodes 2 and 5 is -1 (2 in all)"),
    ({(2, 5): 7.0}, "symmetric; from node 2 to 5 it is 7, and back 1 (2 in all)"),
    ({(4, 4): 2.0}, "a node to itself must be 0; that of node 4 is 2 (1 in all)"),
]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("spoil", "text"), SPOILED)
def test_what_are_no_distances(form, spoil, text):
    D = 1 - np.eye(6)
    for entry, value in spoil.items():
        D[entry] = value
    with pytest.raises(InvalidInputError, match=re.escape(text)) as caught:
        NeighborhoodGraph.from_distances(form(D))
    assert set(spoil) <= {tuple(entry) for entry in caught.value.indices.tolist()}


def test_distances_known_in_one_direction_only():
    D = 1 - np.eye(6)
    D[2, 5] = np.nan
    with pytest.raises(InvalidInputError, match="from node 2 to 5 it is unknown, and back 1"):
        NeighborhoodGraph.from_distances(D)


@pytest.mark.parametrize("n_neighbors", [None, 2])
@pytest.mark.parametrize("own", [False, True])
def test_nearest_neighbours_by_scikit_learn_are_neighbours_either_way(n_neighbors, own, rng):
    """The same graph as that of all distances with so many neighbours."""
    X = rng.normal(size=(30, 3))
    nearest = kneighbors_graph(X, 3 + own, mode="distance", include_self=own)
    assert (nearest != nearest.T).nnz > 0
    graph = NeighborhoodGraph.from_distances(nearest, n_neighbors)
    expected = NeighborhoodGraph.from_distances(pairwise_distances(X), n_neighbors or 3)
    np.testing.assert_array_equal(graph.heads, expected.heads)
    np.testing.assert_array_equal(graph.tails, expected.tails)
    np.testing.assert_allclose(graph.lengths, expected.lengths)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_stored_distance_must_be_finite(value):
    D = (1 - np.eye(4)) * 1.0
    D[1, 3] = D[3, 1] = value
    with pytest.raises(InvalidInputError, match=f"between nodes 1 and 3 is {value} .2 in all"):
        NeighborhoodGraph.from_distances(sparse.csr_array(D))


@pytest.mark.parametrize(
    ("D", "k", "text"),
    [
        (np.ones((3, 2)), None, "must be a square matrix of real numbers, .* got shape (3, 2)"),
        (np.zeros((1, 1)), None, "at least 2 points; got n_samples=1"),
        (1 - np.eye(4), 4, "n_neighbors=4 needs at least 5 nodes; there are 4"),
        (np.array([["a", "b"], ["c", "d"]]), None, "got shape (2, 2) of <U1"),
    ],
)
def test_matrices_that_make_no_graph(D, k, text):
    with pytest.raises(InvalidInputError, match=".*".join(map(re.escape, text.split(".*")))):
        NeighborhoodGraph.from_distances(D, k)


def test_rounding_is_no_asymmetry(X):
    """As of squares with rounding errors: the root of 1e-16 is 1e-8."""
    D = pairwise_distances(X)
    wrong = D + 1e-9 * np.triu(np.ones_like(D), 1)
    graph = NeighborhoodGraph.from_distances(wrong, 4)
    np.testing.assert_allclose(graph.lengths, D[graph.heads, graph.tails] + 0.5e-9, rtol=1e-12)


# -- of edges --------------------------------------------------------------------------------


def test_edges_in_any_order_and_in_both_directions(torch):
    graph = NeighborhoodGraph.from_edges(
        [3, 0, 1, 2, 1], [1, 2, 3, 0, 2], [5.0, 1.0, 5.0, 1.0, 2.0], 4, [1.0, 2.0, 3.0, 2.0, 7.0]
    )
    assert_sound(graph)
    np.testing.assert_array_equal(graph.heads, [0, 1, 1])
    np.testing.assert_array_equal(graph.tails, [2, 2, 3])
    np.testing.assert_array_equal(graph.lengths, [1, 2, 5])
    np.testing.assert_array_equal(graph.weights, [2, 7, 2])
    tensors = (torch.tensor(column) for column in ([0], [1], [2.0]))
    np.testing.assert_array_equal(NeighborhoodGraph.from_edges(*tensors, 2).lengths, [2])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0, 1], [1, 1], [1.0, 1.0], 3), "edge 1, of nodes 1 and 1, joins a node with itself"),
        (([0, 1], [1, 2], [1.0, -1.0], 3), "edge 1, of nodes 1 and 2, has a negative length"),
        (([0, 1], [1, 2], [np.nan, 1.0], 3), "edge 0, of nodes 0 and 1, has no finite length"),
        (([0, 1], [1, 0], [1.0, 2.0], 3), "with different lengths (2 in all). Keep one"),
        (([0, 3], [1, 2], [1.0, 1.0], 3), "heads must be node numbers from 0 to 2; entry 1 is 3"),
        (([0, 1], [1, -2], [1.0, 1.0], 3), "tails must be node numbers from 0 to 2; entry 1 is -2"),
        (([0.5], [1], [1.0], 3), "heads must be node numbers, integers of shape (n_edges,)"),
        (([0, 1], [1], [1.0, 1.0], 3), "tails must have an entry for each of the 2 heads"),
        (([0, 1], [1, 2], [1.0], 3), "lengths must have an entry for each of the 2 heads"),
        (([0], [1], [1.0], 2, [0.0]), "edge 0, of nodes 0 and 1, has no positive weight"),
        (([0], [1], [1.0], 2, [1.0, 1.0]), "weights must have an entry for each of the 1 heads"),
        (([], [], [], 1), "at least 2 points; got n_samples=1"),
    ],
)
def test_edges_that_make_no_graph(arguments, text):
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        NeighborhoodGraph.from_edges(*arguments)


def test_merging_refuses_what_contradicts_a_distance_of_zero():
    graph = NeighborhoodGraph.from_edges([0, 0, 1], [1, 2, 2], [0.0, 1.0, 2.0], 3)
    with pytest.raises(InvalidInputError, match=r"differs in length .* Correct the distances"):
        graph.merged()
    graph = NeighborhoodGraph.from_edges([0, 1, 0], [1, 2, 2], [0.0, 0.0, 3.0], 3)
    with pytest.raises(InvalidInputError, match="also joined by edges of length 0"):
        graph.merged()


def test_merging_sums_weights_and_keeps_directions():
    """Nodes 1 and 3 are one. Edges 1-2 and 2-3 become one, of which the second is turned round."""
    graph = NeighborhoodGraph(
        4,
        heads=np.array([0, 1, 1, 2]),
        tails=np.array([1, 2, 3, 3]),
        lengths=np.array([1.0, 2.0, 0.0, 2.0]),
        weights=np.array([1.0, 2.0, 9.0, 3.0]),
        directions=np.array([1, 0, 3, 1], dtype=np.uint8),
    )
    labels, merged = graph.merged()
    np.testing.assert_array_equal(labels, [0, 1, 2, 1])
    np.testing.assert_array_equal(merged.heads, [0, 1])
    np.testing.assert_array_equal(merged.tails, [1, 2])
    np.testing.assert_array_equal(merged.lengths, [1, 2])
    np.testing.assert_array_equal(merged.weights, [1, 5])
    np.testing.assert_array_equal(merged.directions, [1, 2])


# -- looking at it ---------------------------------------------------------------------------


def test_matrices_of_a_graph(X, rng):
    graph = NeighborhoodGraph.from_points(X, 3)
    A = graph.adjacency().toarray()
    dense = np.zeros((50, 50))
    for i, j, length in zip(graph.heads, graph.tails, graph.lengths, strict=True):
        dense[i, j] = dense[j, i] = length
    np.testing.assert_array_equal(A, dense)
    np.testing.assert_array_equal(graph.degrees(), (dense > 0).sum(axis=1))
    w = rng.uniform(1, 2, graph.n_edges)
    Z = rng.normal(size=(50, 2))
    energy = sum(
        w[e] * np.sum((Z[i] - Z[j]) ** 2)
        for e, (i, j) in enumerate(zip(graph.heads, graph.tails, strict=True))
    )
    assert np.sum(Z * (graph.laplacian(w) @ Z)) == pytest.approx(energy, rel=1e-12)
    np.testing.assert_array_equal(np.diag(graph.laplacian().toarray()), graph.degrees())
    heavy = NeighborhoodGraph.from_edges(graph.heads, graph.tails, graph.lengths, 50, w)
    np.testing.assert_allclose(heavy.laplacian().toarray(), graph.laplacian(w).toarray())


def test_edges_of_length_zero_are_edges():
    graph = NeighborhoodGraph.from_edges([0, 1], [1, 2], [0.0, 0.0], 3)
    assert not graph.components().any()
    np.testing.assert_array_equal(shortest_path(graph.adjacency(), directed=False), 0)


def test_report(X):
    far = np.concatenate([X, X + 100, X[[4, 4]]])
    graph = NeighborhoodGraph.from_points(far, 4)
    report, degrees = graph.report(), graph.degrees()
    assert report.component_sizes == (52, 50)
    assert not report.connected
    assert (report.n_nodes, report.n_edges) == (102, len(graph.heads))
    assert report.n_angles == report.n_edges - graph.without_angles().n_edges > 0
    assert report.n_duplicates == 2
    assert (report.min_degree, report.max_degree) == (degrees.min(), degrees.max())
    assert report.mean_degree == degrees.mean() == pytest.approx(2 * report.n_edges / 102)
    positive = graph.lengths[graph.lengths > 0]
    assert (report.min_length, report.max_length) == (positive.min(), positive.max())
    assert report.mean_length == positive.mean()
    assert str(report).splitlines() == [
        "nodes       102 (2 components: 52 and 50)",
        f"edges       {report.n_edges} ({report.n_angles} of them angles)",
        f"degrees     1 to {degrees.max()}, mean {degrees.mean():.1f}",
        f"lengths     {positive.min():.3g} to {positive.max():.3g}, mean {positive.mean():.3g}",
        "duplicates  2",
    ]
    assert repr(graph) == f"<NeighborhoodGraph: 102 nodes, {report.n_edges} edges>"


def test_report_of_no_edges():
    report = NeighborhoodGraph.from_edges([], [], [], 8).report()
    assert report.component_sizes == (1,) * 8
    assert (report.max_degree, report.max_length, report.n_duplicates) == (0, 0, 0)
    assert "8 components: 1, 1, 1, 1, 1 and 3 smaller ones" in str(report)


def test_a_disconnected_graph_is_refused_with_sizes_and_remedies(X):
    NeighborhoodGraph.from_points(X, 6).check_connected("MVU")
    far = np.concatenate([X[:20] + 100, X, X[:10] - 100])
    graph = NeighborhoodGraph.from_points(far, 6)
    with pytest.raises(DisconnectedGraphError) as caught:
        graph.check_connected("MVU")
    assert str(caught.value) == (
        "MVU needs a connected neighbourhood graph; this one has 3 components, of 50, 20 and 10"
        " nodes. Raise n_neighbors, set on_disconnected='link' to join them by edges between near"
        " points, or on_disconnected='separate' to unfold each by itself."
    )
    assert caught.value.component_sizes == (50, 20, 10)
    np.testing.assert_array_equal(caught.value.indices, [*range(20), *range(70, 80)])
    assert graph.component_sizes() == graph.report().component_sizes == (50, 20, 10)
    assert isinstance(caught.value, InvalidInputError)


def test_pickle_and_no_change_in_place(X):
    graph = NeighborhoodGraph.from_points(X, 4)
    twin = pickle.loads(pickle.dumps(graph))
    assert edges_of(twin) == edges_of(graph)
    with pytest.raises(AttributeError, match="cannot assign"):
        graph.n_nodes = 3


# -- changing it -----------------------------------------------------------------------------


def test_angles_can_be_added_and_removed(X):
    plain = NeighborhoodGraph.from_points(X, 4, angles=False)
    full = NeighborhoodGraph.from_points(X, 4)
    assert edges_of(plain.with_angles()) == edges_of(full)
    assert edges_of(full.without_angles()) == edges_of(plain)
    given = NeighborhoodGraph.from_distances(pairwise_distances(X), 4)
    assert edges_of(given.with_angles(pairwise_distances(X))) == edges_of(full)
    with pytest.raises(InvalidInputError, match=r"angles need distances .* not made from points"):
        given.with_angles()
    with pytest.raises(InvalidInputError, match="those of the 50 nodes; got a matrix of 3"):
        given.with_angles(1 - np.eye(3))


def test_edges_can_be_removed_by_number_or_mask(X, rng):
    graph = NeighborhoodGraph.from_points(X, 4)
    numbers = rng.permutation(graph.n_edges)[:20]
    mask = np.isin(np.arange(graph.n_edges), numbers)
    for gone in (numbers, mask, numbers.tolist()):
        left = graph.without(gone)
        np.testing.assert_array_equal(left.lengths, graph.lengths[~mask])
        np.testing.assert_array_equal(left.heads, graph.heads[~mask])
        np.testing.assert_array_equal(left.directions, graph.directions[~mask])
    assert graph.without([]).n_edges == graph.n_edges
    with pytest.raises(InvalidInputError, match=r"an entry for each of the .* got shape \(3,\)"):
        graph.without(np.array([True, False, True]))
    with pytest.raises(InvalidInputError, match=f"from 0 to {graph.n_edges - 1}; entry 1 is 1000"):
        graph.without([0, 1000])


def test_separated_components(X, rng, backend):
    order = rng.permutation(90)
    far = np.concatenate([X[:30] + 100, X, X[:10] - 100])[order]
    graph = NeighborhoodGraph.from_points(backend.asarray(far), 4)
    parts = graph.separated()
    assert [part.n_nodes for _, part in parts] == [50, 30, 10]
    np.testing.assert_array_equal(np.sort(np.concatenate([rows for rows, _ in parts])), range(90))
    found = set()
    for rows, part in parts:
        assert_sound(part)
        assert (np.diff(rows) > 0).all()
        np.testing.assert_array_equal(backend.to_numpy(part.points), far[rows])
        found |= {(rows[i], rows[j]) for i, j in edges_of(part)}
        exact = np.linalg.norm(far[rows[part.heads]] - far[rows[part.tails]], axis=1)
        np.testing.assert_allclose(part.lengths, exact)
    assert found == edges_of(graph)


def test_a_connected_graph_has_one_part(X):
    graph = NeighborhoodGraph.from_points(X, 6)
    ((rows, part),) = graph.separated()
    np.testing.assert_array_equal(rows, range(50))
    assert edges_of(part) == edges_of(graph)
