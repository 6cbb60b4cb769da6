"""Metric scaling: exact distances are recovered, and stress is that of loops and of SMACOF."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.manifold import smacof
from sklearn.metrics import pairwise_distances

from nearfar import MetricMDS, NeighborhoodGraph, NonmetricMDS

LOSSES = ["stress", "sstress"]
each_loss = pytest.mark.parametrize("loss", LOSSES)


def value_by_loops(Y, D, W, loss="stress"):
    total = 0.0
    for i in range(len(Y)):
        for j in range(i):
            if W[i, j] > 0:
                d = math.dist(Y[i], Y[j])
                error = D[i, j] - d if loss == "stress" else D[i, j] ** 2 - d**2
                total += W[i, j] * error**2
    return total


@pytest.fixture
def plane(rng):
    return rng.normal(size=(40, 2))


@pytest.fixture
def dissimilar(rng):
    """Distances of points in five dimensions with noise, and symmetric weights."""
    D = pairwise_distances(rng.normal(size=(25, 5)))
    D *= np.exp(0.2 * rng.normal(size=D.shape))
    D, W = np.triu(D, 1), np.triu(rng.uniform(0.1, 3, size=D.shape), 1)
    return D + D.T, W + W.T


# -- recovery ----------------------------------------------------------------------------------


@each_loss
@pytest.mark.parametrize("share", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("form", ["dense", "sparse", "graph"])
def test_points_of_a_plane_are_found_from_their_distances(plane, rng, loss, share, form):
    """All, half or a fifth of the distances: the others follow, since the answer is unique.

    From few of them the classical start may lead to another minimum, with a point on the wrong side
    of others, so that a start near the answer is given.
    """
    D = pairwise_distances(plane)
    mask = np.triu(rng.uniform(size=D.shape) < share, 1)
    mask[0] = mask[1] = mask[2] = True  # three points of which all distances are known
    mask = np.triu(mask | mask.T, 1)
    heads, tails = np.nonzero(mask)
    if form == "dense":
        X = np.where(mask | mask.T, D, np.nan)
    elif form == "sparse":
        X = sparse.coo_array(D * (mask | mask.T))
    else:
        X = NeighborhoodGraph.from_edges(heads, tails, D[heads, tails], 40)
    init = plane + 0.1 * rng.normal(size=plane.shape) if share < 0.5 else "classical"
    model = MetricMDS(metric="precomputed", loss=loss, init=init, tol=1e-9, max_iter=1000).fit(X)
    assert model.status_ == "converged"
    np.testing.assert_allclose(pairwise_distances(model.embedding_), D, atol=1e-3 * D.max())


def test_points_in_a_far_corner_of_a_weighted_world(plane, rng):
    """Exact distances are met whatever their weights, over six orders of magnitude."""
    D = pairwise_distances(plane)
    W = np.triu(10 ** rng.uniform(-3, 3, size=D.shape), 1)
    model = MetricMDS(init="random", random_state=0, max_iter=2000, tol=1e-8)
    model.set_params(init=plane + 0.3 * rng.normal(size=plane.shape)).fit(plane, weights=W + W.T)
    np.testing.assert_allclose(pairwise_distances(model.embedding_), D, atol=0.02 * D.max())


# -- the objective -----------------------------------------------------------------------------


@each_loss
def test_the_objective_is_recomputed_by_loops(dissimilar, loss):
    D, W = dissimilar
    known = np.where(W > 0.5, D, np.nan)
    for X, weights, counted in (
        (D, None, np.ones_like(D)),
        (D, W, W),
        (known, None, (W > 0.5).astype(float)),
        (known, W, W * (W > 0.5)),
    ):
        model = MetricMDS(metric="precomputed", loss=loss).fit(X, weights=weights)
        expected = value_by_loops(model.embedding_, D, counted, loss)
        assert model.objective_ == pytest.approx(expected, rel=1e-9)


@each_loss
@pytest.mark.parametrize("weighted", [True, False])
def test_the_answer_is_a_local_minimum(dissimilar, rng, loss, weighted):
    D, W = dissimilar
    W = W if weighted else np.ones_like(D)
    model = MetricMDS(metric="precomputed", loss=loss, tol=1e-12, max_iter=2000)
    model.fit(D, weights=W if weighted else None)
    Y, least = model.embedding_, model.objective_
    for size in (1e-4, 1e-3, 1e-2):
        for _ in range(5):
            moved = Y + size * rng.normal(size=Y.shape)
            assert value_by_loops(moved, D, W, loss) > least * (1 - 1e-10)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_stress_is_no_worse_than_that_of_smacof_from_the_same_starts(rng):
    """scikit-learn's majorisation, run for long. Either may end in a better local minimum.

    From our answer on it has nothing left to gain.
    """
    D = pairwise_distances(np.random.default_rng(0).normal(size=(30, 5)))
    options = {"n_init": 1, "max_iter": 2000, "eps": 1e-12}
    theirs, ours = [], []
    for _ in range(9):
        start = 2 * rng.normal(size=(30, 2))
        theirs.append(smacof(D, init=start, **options)[1])
        model = MetricMDS(metric="precomputed", init=start, tol=1e-10, max_iter=2000).fit(D)
        ours.append(model.objective_)
        on = smacof(D, init=model.embedding_, **options)[1]
        assert on == pytest.approx(model.objective_, rel=1e-6)
    assert np.median(ours) < 1.1 * np.median(theirs)


def test_a_weight_of_zero_is_a_missing_distance(dissimilar):
    D, W = dissimilar
    W = np.where(W > 1, 1.0, 0.0)
    spoiled = np.where(W > 0, D, 99.0)
    np.fill_diagonal(spoiled, 0)
    by_weight = MetricMDS(metric="precomputed").fit(spoiled, weights=W)
    by_nan = MetricMDS(metric="precomputed").fit(np.where(W > 0, D, np.nan))
    np.testing.assert_allclose(by_weight.embedding_, by_nan.embedding_, atol=1e-9)


@pytest.mark.parametrize("cls", [MetricMDS, NonmetricMDS])
def test_equal_weights_count_as_none(dissimilar, cls):
    D, _ = dissimilar
    alike = cls(metric="precomputed", tol=1e-9).fit(D, weights=np.full(D.shape, 7.0))
    none = cls(metric="precomputed", tol=1e-9).fit(D)
    size = np.abs(none.embedding_).max()
    np.testing.assert_allclose(alike.embedding_, none.embedding_, atol=1e-3 * size)


def test_a_heavy_pair_is_met_more_closely(dissimilar):
    D, _ = dissimilar
    W = np.ones_like(D)
    W[3, 8] = W[8, 3] = 1e3
    errors = []
    for weights in (None, W):
        Y = MetricMDS(metric="precomputed").fit_transform(D, weights=weights)
        errors.append(abs(math.dist(Y[3], Y[8]) - D[3, 8]))
    assert errors[1] < 0.05 * errors[0]


def test_sparse_weights_and_weights_of_sparse_distances(dissimilar):
    D, W = dissimilar
    few = np.where(W > 2.5, D, 0)
    few[0], few[:, 0] = D[0], D[:, 0]
    expected = MetricMDS(metric="precomputed").fit(
        np.where((few > 0) | np.eye(25, dtype=bool), D, np.nan), weights=W
    )
    for weights in (W, sparse.csr_array(W)):
        model = MetricMDS(metric="precomputed").fit(sparse.csr_array(few), weights=weights)
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)


def test_a_graph_brings_its_weights(dissimilar):
    D, W = dissimilar
    chosen = W > 2
    chosen[0] = True
    heads, tails = np.nonzero(np.triu(chosen, 1))
    W[0], W[:, 0] = 1, 1
    graph = NeighborhoodGraph.from_edges(heads, tails, D[heads, tails], 25, W[heads, tails])
    model = MetricMDS().fit(graph)
    counted = np.zeros_like(D)
    counted[heads, tails] = counted[tails, heads] = W[heads, tails]
    assert model.objective_ == pytest.approx(value_by_loops(model.embedding_, D, counted))
    assert model.n_features_in_ == 25


# -- starts ------------------------------------------------------------------------------------


def test_a_seed_fixes_a_random_start(dissimilar):
    D, _ = dissimilar
    first, again, other = (
        MetricMDS(metric="precomputed", init="random", random_state=seed).fit(D)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.embedding_, again.embedding_)
    assert first.history_[0]["objective"] != other.history_[0]["objective"]


def test_a_given_start_is_where_it_starts(dissimilar, rng):
    D, _ = dissimilar
    start = rng.normal(size=(25, 2))
    model = MetricMDS(metric="precomputed", init=start).fit(D)
    first = value_by_loops(start, D, np.ones_like(D))
    assert model.history_[0]["objective"] == pytest.approx(first)
    again = MetricMDS(metric="precomputed", init=model.embedding_).fit(D)
    assert again.n_iter_ <= 5
    assert again.objective_ <= model.objective_


@pytest.mark.parametrize("start", ["zeros", "line", "classical"])
def test_a_start_in_one_place_or_in_a_line_is_left(rng, start):
    """Points of a plane from starts that gradients alone would never lead out of.

    The classical start has a zero column for distances whose Gram matrix has one positive
    eigenvalue only; here distances are those of a plane, so "classical" is just the plain case.
    """
    X = rng.normal(size=(15, 2))
    line = np.column_stack([np.arange(15.0), np.zeros(15)])
    init = {"zeros": np.zeros((15, 2)), "line": line, "classical": "classical"}[start]
    model = MetricMDS(init=init, random_state=0, max_iter=2000).fit(X)
    variances = np.linalg.norm(model.embedding_, axis=0)
    assert variances[1] > 0.1 * variances[0]


def test_classical_start_is_better_than_a_random_one_here(plane):
    """Of exact distances it is the answer: nothing is left to do."""
    model = MetricMDS().fit(plane)
    assert model.n_iter_ <= 3
    assert model.objective_ < 1e-20


def test_one_dimension(rng):
    x = np.sort(rng.uniform(size=(20, 1)), axis=0)
    Y = MetricMDS(n_components=1).fit_transform(x)
    np.testing.assert_allclose(np.abs(np.diff(Y, axis=0)), np.diff(x, axis=0), atol=1e-6)


def test_large_starts_by_iteration_are_the_same(plane, monkeypatch):
    from nearfar.problems import classical_mds

    X = np.column_stack([plane, 0.1 * plane[:, :1] ** 2])
    expected = MetricMDS().fit(X)
    monkeypatch.setattr(classical_mds, "LARGE", 10)
    model = MetricMDS().fit(X)
    np.testing.assert_allclose(model.embedding_, expected.embedding_, atol=1e-6)
