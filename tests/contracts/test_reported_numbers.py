"""What fits of unfoldings and scalings report, from what they return and their definitions alone.

MVU, whose numbers are those of its kernel, is in tests/estimators/test_mvu.py.
"""

import numpy as np
import pytest
from scipy import sparse
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import pairwise_distances

from nearfar import (
    MVU,
    ClassicalMDS,
    LandmarkMVU,
    LocalMDS,
    MetricMDS,
    NeighborhoodGraph,
    NonmetricMDS,
    SensorLocalization,
    VariationalMVU,
)

KINDS = {
    "ordinary": lambda X, _: X,
    "float32": lambda X, _: X.astype(np.float32),
    "duplicates": lambda X, rng: np.vstack([X, X[rng.integers(0, 20, 8)]]),
    "mixed scales": lambda X, _: X * [1, 1e-3, 1e3, 1e-9, 1e-50],
    "large": lambda X, _: 1e30 * X,
    "small": lambda X, _: 1e-30 * X,
    "far from the origin": lambda X, _: X + 1e6,
    "an outlier": lambda X, _: np.vstack([X, X[:1] + 1e4]),
    "in a plane": lambda X, _: X * [1, 1, 0, 0, 0],
    "in a plane, float32": lambda X, _: (X * [1, 1, 0, 0, 0]).astype(np.float32),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def data(kind, rng):
    return KINDS[kind](rng.normal(size=(20, 5)) * [4, 3, 2, 1, 1], rng)


def distances(X):
    """Of all pairs, by differences in float64."""
    X = np.asarray(X, dtype=np.float64)
    return np.sqrt(np.sum((X[:, None] - X) ** 2, axis=2))


def pairs(n):
    return np.triu_indices(n, 1)


def distinct(graph):
    """A graph without its copies, and the first row of each node of it."""
    if graph.lengths.all():
        return graph, np.arange(graph.n_nodes)
    places, merged = graph.merged()
    return merged, np.unique(places, return_index=True)[1]


def along(graph, Y):
    """Distances of places along the edges."""
    return np.linalg.norm(Y[graph.heads] - Y[graph.tails], axis=1)


@each_kind
def test_classical_mds(data):
    """‖G − Y Yᵀ‖², up to the rounding of Y and of G."""
    model = ClassicalMDS().fit(data)
    X, Y = (np.asarray(A, dtype=np.float64) for A in (data, model.embedding_))
    Z = X - X.mean(axis=0)
    G = Z @ Z.T
    strain, size = np.sum((G - Y @ Y.T) ** 2), np.sum(G**2)
    eps = np.finfo(model.embedding_.dtype).eps
    assert model.objective_ == pytest.approx(strain, rel=1e-6, abs=(100 * eps) ** 2 * size)
    assert (model.duality_gap_, model.status_) == (0, "converged")


@each_kind
@pytest.mark.parametrize("loss", ["stress", "sstress"])
def test_metric_mds(data, loss):
    """Σ (δ − d)² or Σ (δ² − d²)² over pairs."""
    model = MetricMDS(loss=loss, random_state=0).fit(data)
    D, d = (distances(A)[pairs(len(data))] for A in (data, model.embedding_))
    power = 1 if loss == "stress" else 2
    value, size = np.sum((D**power - d**power) ** 2), np.sum(D ** (2 * power))
    assert model.objective_ == pytest.approx(value, rel=1e-6, abs=1e-24 * size)
    assert model.history_[-1]["objective"] == pytest.approx(value, rel=1e-3, abs=1e-12 * size)


def test_metric_mds_with_weights_and_missing_distances(rng):
    X = rng.normal(size=(15, 3))
    D, W = distances(X), rng.uniform(0.5, 2, size=(15, 15))
    W = W + W.T
    D[2, 9] = D[9, 2] = np.nan
    model = MetricMDS(metric="precomputed", random_state=0).fit(1e5 * D, weights=W)
    d, upper = distances(model.embedding_), pairs(15)
    assert model.objective_ == pytest.approx(np.nansum((W * (1e5 * D - d) ** 2)[upper]), rel=1e-9)


def test_a_given_start_is_in_the_unit_of_the_data(rng):
    X = 1e6 * rng.normal(size=(15, 2))
    model = MetricMDS(init=X, random_state=0).fit(X)
    assert model.n_iter_ <= 2
    np.testing.assert_allclose(distances(model.embedding_), distances(X), atol=1e-6)


@pytest.mark.parametrize("kind", ["ordinary", "float32", "large", "small", "mixed scales"])
def test_nonmetric_mds(data):
    """Kruskal's stress-1 with isotonic regression by scikit-learn; all dissimilarities differ."""
    model = NonmetricMDS(random_state=0).fit(data)
    D, d = (distances(A)[pairs(len(data))] for A in (data, model.embedding_))
    ranks = np.argsort(np.argsort(D))
    fitted = IsotonicRegression().fit_transform(ranks, d)
    stress = np.sqrt(np.sum((d - fitted) ** 2) / np.sum(d**2))
    assert model.objective_ == pytest.approx(stress, rel=1e-4, abs=1e-8)
    assert np.mean(d**2) == pytest.approx(1, rel=1e-6)


@each_kind
def test_local_mds(data):
    """Σ (δ − d)² over edges less t Σ d over the other pairs of different points."""
    model = LocalMDS(n_neighbors=5, on_disconnected="link", random_state=0).fit(data)
    graph, firsts = distinct(model.graph_)
    n, m, Y = graph.n_nodes, graph.n_edges, np.asarray(model.embedding_, dtype=np.float64)[firsts]
    d, push = along(graph, Y), 0.05 * np.median(graph.lengths) * m / (n * (n - 1) / 2 - m)
    others = distances(Y)[pairs(n)].sum() - d.sum()
    value = np.sum((graph.lengths - d) ** 2) - push * others
    size = np.sum(graph.lengths**2)
    assert model.objective_ == pytest.approx(value, abs=1e-9 * size)
    distortion = np.abs((d / graph.lengths) ** 2 - 1).max()
    assert model.max_distortion_ == pytest.approx(distortion, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(model.eigenvalues_, np.sum(Y**2, axis=0), rtol=1e-5)


@each_kind
@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("learner", [VariationalMVU, LandmarkMVU])
def test_variational_and_landmark_mvu(data, learner, refine):
    """2 ρ λ tr − Σ w (change)² in units of the mean squared length: of the embedding, or without a
    refinement of the program, whose K has as many dimensions as functions."""
    few = {"n_eigenvectors": 4} if learner is VariationalMVU else {"n_landmarks": 5}
    options = {"n_neighbors": 5, "on_disconnected": "link", "stretch": 0.02, "random_state": 0}
    model = learner(4 if not refine else 2, refine=refine, **few, **options).fit(data)
    graph, firsts = distinct(model.graph_)
    unit = np.sqrt(np.mean(graph.lengths**2))
    Y = np.asarray(model.embedding_, dtype=np.float64)[firsts] / unit
    D = (graph.lengths / unit) ** 2
    W = sparse.coo_array((np.ones(graph.n_edges), (graph.heads, graph.tails)), (len(Y),) * 2)
    W = (W + W.T).toarray()
    second = np.linalg.eigvalsh(np.diag(W.sum(axis=0)) - W)[1]
    trace = np.sum((Y - Y.mean(axis=0)) ** 2)
    value = 2 * 0.02 * second * trace - np.sum((along(graph, Y) ** 2 - D) ** 2)
    rounding = 1e-5 if model.embedding_.dtype == np.float32 and not refine else 1e-8
    assert model.objective_ == pytest.approx(value, abs=rounding * np.sum(D**2))
    assert model.program_gap_ <= 1e-4
    bound = (value + model.duality_gap_ * np.sum(D**2)) / (1 - model.duality_gap_)
    assert bound >= value - rounding * np.sum(D**2)
    if not refine:
        distortion = np.abs(along(graph, Y) ** 2 / D - 1).max()
        assert model.max_distortion_ == pytest.approx(distortion, rel=1e-3)


@each_kind
def test_sensor_localization(data):
    """−Σ (misfit)² of squared distances, in units of their mean."""
    model = SensorLocalization(random_state=0).fit(pairwise_distances(data))
    graph = model.graph_
    unit = np.sqrt(np.mean(graph.lengths**2))
    D, d = (graph.lengths / unit) ** 2, along(graph, model.embedding_ / unit)
    assert model.objective_ == pytest.approx(-np.sum((d**2 - D) ** 2), rel=1e-6, abs=1e-24)
    wide = D > 0
    distortion = np.abs(d[wide] ** 2 / D[wide] - 1).max()
    assert model.max_distortion_ == pytest.approx(distortion, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", ["ordinary", "float32", "duplicates", "large", "small"])
@pytest.mark.parametrize("constraints", ["equal", "shrink", "slack"])
@pytest.mark.filterwarnings("ignore:MVU has locked up")
def test_mvu(data, constraints):
    """Trace, price, distortion and spectrum of the kernel; an embedding of all its dimensions."""
    options = {"n_neighbors": 4, "on_disconnected": "link", "random_state": 0}
    model = MVU(3, constraints=constraints, slack_weight=0.999, **options).fit(data)
    graph, firsts = distinct(model.graph_)
    K, D = model.kernel_[np.ix_(firsts, firsts)], graph.lengths**2
    squares = np.diag(K)[graph.heads] + np.diag(K)[graph.tails] - 2 * K[graph.heads, graph.tails]
    slack_cost = 999 * np.abs(squares - D).sum() if constraints == "slack" else 0.0
    assert model.objective_ == pytest.approx(np.trace(K) - slack_cost, rel=1e-9)
    distortion = np.abs(squares / D - 1).max()
    assert model.max_distortion_ == pytest.approx(distortion, rel=1e-6, abs=1e-12)
    values = np.linalg.eigvalsh(K)[::-1]
    np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-9 * values[0])
    lengths = np.linalg.norm(np.asarray(model.embedding_, dtype=np.float64)[firsts], axis=0)
    np.testing.assert_allclose(lengths**2, values[:3], rtol=1e-5)
    assert model.duality_gap_ <= 1e-6


def test_gaps_of_separate_programs_are_those_of_their_sum(rng):
    """Bound less objective of all, over bound less the objective of no points at all."""
    X = rng.normal(size=(30, 4)) * [3, 2, 1, 1]
    X = np.vstack([X[:18], 1e-3 * X[18:] + 1e5])
    options = {"n_neighbors": 4, "n_eigenvectors": 4, "refine": False, "random_state": 0}
    model = VariationalMVU(on_disconnected="separate", **options).fit(X)
    gaps, sizes, objective = [], [], 0.0
    for rows in (X[:18], X[18:]):
        part = VariationalMVU(**options).fit(NeighborhoodGraph.from_points(rows, 4))
        objective += part.objective_
        none = part.graph_.n_edges * np.mean((part.graph_.lengths**2) ** 2)
        none /= np.mean(part.graph_.lengths**2) ** 2  # Σ D² in units of the mean of D
        sizes.append((part.objective_ + none) / (1 - part.duality_gap_))
        gaps.append(part.duality_gap_ * sizes[-1])
    assert model.objective_ == pytest.approx(objective, rel=1e-6)
    assert model.duality_gap_ == pytest.approx(sum(gaps) / sum(sizes), rel=1e-2)
