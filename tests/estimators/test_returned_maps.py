"""Objectives are those of the map that the user gets, also where units differ by powers of ten.

Each is computed anew from ``components_`` and the data as they were given, by the definition in the
docstring of its class and with nothing of the library.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import LMNN, MCML, MMC, NCA, RCA, DMLEig, LinearMetric, MultiMetricLMNN, as_metric
from nearfar.errors import DataWarning

N, D, CLASSES = 120, 12, 6
DEAD = [3, 7]


@pytest.fixture(scope="module")
def embeddings():
    """Like those of sentence encoders: two outputs hold next to nothing, one holds very little."""
    rng = np.random.default_rng(1)
    y = np.arange(N) % CLASSES
    X = 0.03 * rng.normal(size=(CLASSES, D))[y] + 0.05 * rng.normal(size=(N, D))
    for column, size in ((3, 4e-33), (7, 4e-33), (9, 9e-9)):
        X[:, column] = size * (1.7 + rng.normal(size=N))
    return X, y


def squares(L, X):
    """Squared learned distances of all points, by differences."""
    Z = np.asarray(X, dtype=np.float64) @ np.asarray(L, dtype=np.float64).T
    return ((Z[:, None] - Z[None]) ** 2).sum(axis=2)


def targets(X, y, k=3):
    distances = squares(np.eye(X.shape[1]), X)
    distances[(y[:, None] != y) | np.eye(len(y), dtype=bool)] = np.inf
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def large_margin(near, far, X, y, mu=0.5):
    """(1 − mu) Σ D(i, j) + mu Σ [1 + D(i, j) − D(i, l)]₊."""
    total = 0.0
    for i, neighbours in enumerate(targets(X, y)):
        others = y != y[i]
        for j in neighbours:
            slack = 1 + near[i, j] - far[i, others]
            total += (1 - mu) * near[i, j] + mu * slack[slack > 0].sum()
    return total


def lmnn(model, X, y):
    distances = squares(model.components_, X)
    return large_margin(distances, distances, X, y)


def multi_metric(model, X, y):
    """The distance to a point is that of the metric of its class."""
    by_metric = np.array([squares(L, X) for L in model.components_])
    distances = by_metric[y, :, np.arange(len(y))].T
    return large_margin(distances, distances, X, y)


def soft_neighbours(model, X):
    distances = squares(model.components_, X)
    np.fill_diagonal(distances, np.inf)
    weights = np.exp(distances.min(axis=1, keepdims=True) - distances)
    return weights / weights.sum(axis=1, keepdims=True)


def mcml(model, X, y):
    """Σ KL[p0(·|i) ‖ p(·|i)]."""
    p, total = soft_neighbours(model, X), 0.0
    for i in range(len(y)):
        others = (y == y[i]) & (np.arange(len(y)) != i)
        total -= np.log(p[i, others] * others.sum()).mean()
    return total


def nca(model, X, y):
    return np.sum(soft_neighbours(model, X)[y[:, None] == y])


def mmc(model, X, y):
    upper = np.triu(y[:, None] != y)
    return np.sqrt(squares(model.components_, X)[upper]).sum()


def dml_eig(model, X, y):
    return squares(model.components_, X)[y[:, None] != y].min()


def rca(model, X, y):
    """Σ (x − m)ᵀ M (x − m) − N log det M, det M on the rows of L; and the ridge."""
    X, L = np.asarray(X, dtype=np.float64), np.asarray(model.components_, dtype=np.float64)
    within = np.vstack([X[y == label] - X[y == label].mean(axis=0) for label in np.unique(y)])
    # Features in units of their own: the determinant changes by that of the units.
    units = np.where(L.any(axis=0), 1 / np.maximum(np.abs(L).max(axis=0), 1e-300), 1.0)
    volume = np.linalg.slogdet(L[:, L.any(axis=0)] * units[L.any(axis=0)])[1]
    volume -= np.log(units[L.any(axis=0)]).sum()
    return np.sum((within @ L.T) ** 2) - 2 * len(X) * volume


LEARNERS = [
    (LMNN(shrinkage=0), lmnn),
    (LMNN(shrinkage=0, n_passes=1, max_iter=7), lmnn),
    (LMNN(shrinkage=0, n_components=3), lmnn),
    (MultiMetricLMNN(shrinkage=0), multi_metric),
    (MCML(shrinkage=0), mcml),
    (MCML(n_components=2, reduce="learn", shrinkage=0), mcml),
    (NCA(shrinkage=0), nca),
    (NCA(diagonal=True, shrinkage=0), nca),
    (MMC(shrinkage=0.1), mmc),
    (MMC(diagonal=True, shrinkage=0), mmc),
    (DMLEig(shrinkage=0.1), dml_eig),
    (RCA(shrinkage=0), rca),
]


@pytest.mark.filterwarnings("ignore:.*stopped before tol:nearfar.errors.ConvergenceWarning")
@pytest.mark.parametrize(("learner", "judge"), LEARNERS, ids=[str(model) for model, _ in LEARNERS])
def test_the_objective_is_that_of_the_returned_map(learner, judge, embeddings, dtype):
    X, y = embeddings
    X = X.astype(dtype)
    with pytest.warns(DataWarning, match=r"2 of 12 features vary .*no weight: columns 3, 7"):
        model = clone(learner).fit(X, y)
    components = np.asarray(model.components_)
    assert components.dtype == dtype
    assert not components[..., DEAD].any()
    assert components.shape[-2] <= D - len(DEAD)
    assert model.objective_ == pytest.approx(judge(model, X, y), rel=1e-9)
    if model.duality_gap_ is not None and model.status_ == "converged":
        assert model.duality_gap_ <= getattr(model, "tol", 1e-9)


@pytest.mark.parametrize(("learner", "judge"), LEARNERS, ids=[str(model) for model, _ in LEARNERS])
@pytest.mark.filterwarnings("ignore:.*stopped before tol:nearfar.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*features vary by less:nearfar.errors.DataWarning")
def test_dead_features_change_nothing(learner, judge, embeddings):  # noqa: ARG001
    """The answer is that for the data without them."""
    X, y = embeddings
    kept = np.delete(np.arange(D), DEAD)
    model, expected = clone(learner).fit(X, y), clone(learner).fit(X[:, kept], y)
    assert model.status_ == expected.status_
    if isinstance(learner, MMC | DMLEig):  # their ridge is a mean over all features
        return
    tolerance = getattr(learner, "tol", 1e-9)
    assert model.objective_ == pytest.approx(expected.objective_, rel=max(tolerance, 1e-9))


@pytest.mark.parametrize("ratio", [1e-3, 1e-7, 1e-11])
def test_a_live_feature_in_small_units_hides_no_other(ratio, iris):
    """Units of one feature: its weights become larger by as much, and distances do not change."""
    X, y = iris
    units, chosen = np.array([1, 1, ratio, 1]), targets(X, y)
    plain, scaled = LMNN(shrinkage=0).fit(X, y, chosen), LMNN(shrinkage=0).fit(X * units, y, chosen)
    assert scaled.components_.shape == plain.components_.shape
    assert scaled.duality_gap_ <= scaled.tol
    distances = squares(scaled.components_, X * units)
    expected = large_margin(distances, distances, X, y)
    assert scaled.objective_ == pytest.approx(expected, rel=1e-9)
    M = scaled.get_mahalanobis_matrix() * np.outer(units, units)
    np.testing.assert_allclose(M, plain.get_mahalanobis_matrix(), atol=0.05)


def test_a_linear_metric_keeps_rows_that_matter_in_small_units():
    L = np.array([[1e20, 0.5], [0.0, 0.25], [0.0, 0.0]])
    metric = LinearMetric(L).fit(np.zeros((1, 2)))
    np.testing.assert_allclose(metric.get_mahalanobis_matrix(), L.T @ L, rtol=1e-12)
    assert metric.components_.shape == (2, 2)
    pair = [[[0.0, 0.0], [1e-20, 4.0]]]
    np.testing.assert_allclose(metric.pair_distance(pair), np.hypot(3.0, 1.0))


def test_a_pipeline_of_small_units_folds_into_one_map(embeddings):
    """Standardised, dead features are like others; the folded map keeps all distances."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = embeddings
    pipeline = make_pipeline(StandardScaler(), LMNN(shrinkage=0, max_iter=20, tol=1e-1)).fit(X, y)
    Z = pipeline.transform(X)
    expected = np.linalg.norm(Z[:60] - Z[60:], axis=1)
    found = as_metric(pipeline).pair_distance(np.stack([X[:60], X[60:]], axis=1))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_map_too_large_for_float32_is_refused():
    from nearfar.errors import InvalidInputError

    rng = np.random.default_rng(0)
    X = (1e-42 * rng.normal(size=(40, 2))).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInputError, match=r"float32, because X varies by very little\."):
            LMNN(shrinkage=0).fit(X, np.arange(40) % 2)
