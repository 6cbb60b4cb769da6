"""Local scaling: its objective by loops, what the push does, and what it unfolds."""

import math

import numpy as np
import pytest
from sklearn.datasets import make_swiss_roll
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsTransformer

from nearfar import LocalMDS, MetricMDS, NeighborhoodGraph
from nearfar.errors import DisconnectedGraphError, InvalidInputError
from nearfar.evaluation import measure_embedding


@pytest.fixture(scope="module")
def roll():
    X, _ = make_swiss_roll(300, noise=0.05, random_state=0)
    X.setflags(write=False)
    return X


def objective_by_loops(Y, graph, repulsion):
    near = {(i, j): k for k, (i, j) in enumerate(zip(graph.heads, graph.tails, strict=True))}
    n, m = graph.n_nodes, graph.n_edges
    t = repulsion * np.median(graph.lengths) * m / (n * (n - 1) / 2 - m)
    total = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            d = math.dist(Y[i], Y[j])
            if (i, j) in near:
                k = near[i, j]
                weight = 1.0 if graph.weights is None else graph.weights[k]
                total += weight * (graph.lengths[k] - d) ** 2
            else:
                total -= t * d
    return total


@pytest.mark.parametrize("repulsion", [0.0, 0.01, 0.5])
def test_the_objective_is_recomputed_by_loops(roll, repulsion):
    model = LocalMDS(repulsion=repulsion).fit(roll)
    expected = objective_by_loops(model.embedding_, model.graph_, repulsion)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.duality_gap_ is None
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_, rel=1e-12)


def test_a_weighted_graph(roll, rng):
    plain = NeighborhoodGraph.from_points(roll[:80], 6, angles=False).linked(random_state=0)
    weights = rng.uniform(0.5, 2, plain.n_edges)
    graph = NeighborhoodGraph.from_edges(plain.heads, plain.tails, plain.lengths, 80, weights)
    model = LocalMDS().fit(graph)
    expected = objective_by_loops(model.embedding_, graph, 0.05)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


def test_the_answer_is_a_local_minimum(roll, rng):
    model = LocalMDS(tol=1e-11, max_iter=2000).fit(roll[::3])
    Y, graph = model.embedding_, model.graph_
    for size in (1e-3, 1e-2):
        for _ in range(3):
            moved = Y + size * rng.normal(size=Y.shape)
            assert objective_by_loops(moved, graph, 0.05) > model.objective_


def test_without_a_push_it_is_metric_scaling_of_the_edges(roll):
    graph = NeighborhoodGraph.from_points(roll, 6, angles=False)
    local, metric = LocalMDS(repulsion=0).fit(graph), MetricMDS(metric="precomputed").fit(graph)
    assert local.objective_ == pytest.approx(metric.objective_, rel=1e-2)


def test_the_push_widens(roll):
    """The more it pushes, the larger the embedding, and the longer its edges."""
    fits = [LocalMDS(repulsion=repulsion).fit(roll) for repulsion in (0.001, 0.1, 1.0)]
    sizes = [np.linalg.norm(model.embedding_) for model in fits]
    assert sizes[0] < sizes[1] < sizes[2]
    distortions = [model.max_distortion_ for model in fits]
    assert distortions[0] < distortions[2]


def test_it_unfolds_what_a_projection_does_not():
    """With 500 points no edge joins two turns of the roll."""
    roll, _ = make_swiss_roll(500, noise=0.05, random_state=0)
    local = measure_embedding(roll, LocalMDS(repulsion=0.001).fit_transform(roll), 10)
    pca = measure_embedding(roll, PCA(2).fit_transform(roll), 10)
    assert local.local_trust > 0.9 > pca.local_trust
    assert local.neighborhood_intersection > 0.85 > pca.neighborhood_intersection


def test_eigenvalues_and_distortion_are_those_of_the_places(roll):
    model = LocalMDS().fit(roll)
    Y, graph = model.embedding_, model.graph_
    np.testing.assert_allclose(model.eigenvalues_, np.sum(Y**2, axis=0))
    squares = np.sum((Y[graph.heads] - Y[graph.tails]) ** 2, axis=1)
    errors = np.abs(squares / graph.lengths**2 - 1)
    assert model.max_distortion_ == pytest.approx(errors.max())


def test_new_points(roll, rng):
    """Those beside fitted ones land beside them, and fitted ones where they are."""
    model = LocalMDS(repulsion=0.001).fit(roll)
    np.testing.assert_array_equal(model.transform(roll), model.embedding_)
    moved = roll + 0.01 * rng.normal(size=roll.shape)
    off = np.linalg.norm(model.transform(moved) - model.embedding_, axis=1)
    assert np.median(off) < 0.05 * np.abs(model.embedding_).max()


@pytest.mark.parametrize("repulsion", [-0.1, "much", None])
def test_a_push_must_be_a_number_of_at_least_0(roll, repulsion):
    with pytest.raises(InvalidInputError, match="repulsion must be a number of at least 0"):
        LocalMDS(repulsion=repulsion).fit(roll)


def test_pieces_are_an_error(roll):
    apart = np.vstack([roll[:40], roll[:30] + 1000])
    with pytest.raises(DisconnectedGraphError, match="LocalMDS needs a connected"):
        LocalMDS(n_neighbors=8, on_disconnected="error").fit(apart)


def test_all_pairs_are_neighbours():
    """Then nobody is pushed, and it is metric scaling."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = LocalMDS(n_neighbors=11, repulsion=1.0).fit(X)
    assert model.objective_ < 1e-12


def test_new_points_by_some_of_their_distances_are_an_error(rng):
    """A graph of nearest neighbours is enough to fit, but not to place a new point."""
    X = rng.normal(size=(40, 3))
    graph = KNeighborsTransformer(n_neighbors=12).fit(X)
    model = LocalMDS(metric="precomputed").fit(graph.transform(X))
    message = "distances of each new point to all 40 fitted ones; got a sparse matrix"
    with pytest.raises(InvalidInputError, match=message):
        model.transform(graph.transform(X[:3] + 0.1))
    assert model.transform(pairwise_distances(X[:3] + 0.1, X)).shape == (3, 2)
