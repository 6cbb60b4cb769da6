"""Weights of rows in MultiMetricLMNN: as in LMNN, and rows without weight do not vote."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar import MultiMetricLMNN
from nearfar.errors import CheckpointError, ConvergenceWarning, DataWarning, InvalidInputError

LEARNERS = [
    MultiMetricLMNN(shrinkage=0),
    MultiMetricLMNN(shrinkage=0.3, push_weight=0.7),
    MultiMetricLMNN(),
    MultiMetricLMNN("kmeans", 2, shrinkage=0.1, random_state=0),
    MultiMetricLMNN(shrinkage=0, validation_fraction=0.25, random_state=0),
]
each = pytest.mark.parametrize("learner", LEARNERS, ids=repr)


@pytest.fixture
def weights(overlapping, rng):
    """Integers from 0 to 3."""
    return rng.integers(0, 4, len(overlapping[1]))


@pytest.mark.parametrize("push_weight", [0.3, 0.8])
def test_integers_are_repeated_rows_with_the_same_targets(push_weight, overlapping, rng):
    """By plain loops over the copies: with w of each row in the mean their objective at the push
    weight μ' = μ / (μ + (1−μ) w) is w² / (μ + (1−μ) w) times that of the weights at μ."""
    X, y = overlapping
    counts = rng.integers(1, 4, len(y))
    model = MultiMetricLMNN(shrinkage=0, push_weight=push_weight).fit(X, y, sample_weight=counts)
    targets, maps = model.proof_["targets"], model.components_[y]
    rows = np.repeat(np.arange(len(y)), counts)
    pull = push = 0.0
    for i in rows:
        others = rows[y[rows] != y[i]]
        images = np.einsum("lrd,ld->lr", maps[others], X[i] - X[others])
        for j in targets[i]:
            near = ((maps[j] @ (X[i] - X[j])) ** 2).sum()
            pull += near
            push += np.maximum(1 + near - (images**2).sum(axis=1), 0).sum()
    unit = counts.mean()
    scale = push_weight + (1 - push_weight) * unit
    repeated = (1 - push_weight / scale) * pull + push_weight / scale * push
    assert repeated == pytest.approx(unit**2 / scale * model.objective_, rel=1e-9)


@each
def test_a_row_of_weight_zero_is_dropped(learner, overlapping, weights):
    X, y = overlapping
    kept = weights > 0
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(X[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(model.components_, other.components_)
    np.testing.assert_array_equal(model.metric_of_, other.metric_of_)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert (model.objective_, model.n_iter_) == (other.objective_, other.n_iter_)


def test_given_clusters(overlapping, weights):
    """The cluster "c" has rows without weight only, and no metric."""
    X, y = overlapping
    weights[:10] = 0
    clusters = np.where(np.arange(len(y)) % 2, "a", "b")
    clusters[:10] = "c"
    model = MultiMetricLMNN("given", shrinkage=0.1)
    model.fit(X, y, clusters=clusters, sample_weight=weights)
    assert len(model.components_) == 2
    assert nearfar.verify(model, X, y).proved
    with pytest.raises(InvalidInputError, match="a value for each of the 60 rows of X"):
        model.fit(X, y, clusters=clusters[weights > 0], sample_weight=weights)


@each
def test_only_ratios_matter_and_ones_change_nothing(learner, overlapping, rng):
    X, y = overlapping
    weights = rng.uniform(0.5, 2, len(y))
    model, scaled = (clone(learner).fit(X, y, sample_weight=c * weights) for c in (1, 1024))
    np.testing.assert_array_equal(model.components_, scaled.components_)
    plain, ones = clone(learner).fit(X, y), clone(learner).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_array_equal(plain.components_, ones.components_)
    assert not np.array_equal(plain.components_, model.components_)


def test_points_that_are_all_equal():
    y, weights = np.array([0, 0, 0, 1, 1, 0]), np.array([1.0, 2, 3, 1, 2, 0])
    learner = MultiMetricLMNN(n_neighbors=1, push_weight=0.3)
    with pytest.warns(DataWarning, match="all points are equal"):
        model = learner.fit(np.ones((6, 2)), y, sample_weight=weights)
    m = weights / 1.8
    assert model.objective_ == pytest.approx(0.3 * 2 * m[:3].sum() * m[3:].sum())
    assert nearfar.verify(model, np.ones((6, 2)), y).proved


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_weights_are_verified_and_saved(learner, dtype, overlapping, weights, tmp_path):
    X, y = overlapping[0].astype(dtype), overlapping[1]
    model = clone(learner).fit(X, y, sample_weight=weights)
    nearfar.save(model, tmp_path / "model.nearfar")
    assert nearfar.verify(tmp_path / "model.nearfar", X, y).proved
    kept, permuted = np.flatnonzero(weights), 1.0 * weights
    permuted[kept] = permuted[kept[::-1]]  # of the same rows
    for other in (permuted, np.ones(len(y)), -1.0 * weights):
        model.proof_ = {**model.proof_, "sample_weight": other}
        assert nearfar.verify(model, X, y).violations


@pytest.mark.torch
@each
def test_tensors(learner, overlapping, weights, torch):
    X, y = overlapping
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(torch.tensor(X), y, sample_weight=torch.tensor(weights))
    assert float(other.objective_) == pytest.approx(model.objective_, rel=1e-2)
    assert nearfar.verify(other, X, y).proved


def test_a_checkpoint_of_other_weights_is_refused(overlapping, weights, tmp_path):
    X, y = overlapping
    start = np.eye(5)
    learner = MultiMetricLMNN(checkpoint=tmp_path / "state", max_iter=2, tol=0, init=start)
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y, sample_weight=weights + 1)
    with pytest.raises(CheckpointError):
        learner.fit(X, y, sample_weight=weights + 2)


def test_a_pipeline_routes_the_weights(overlapping, weights):
    X, y = overlapping
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        learner = MultiMetricLMNN().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, learner).fit(X, y, sample_weight=weights)
    expected = MultiMetricLMNN().fit(pipeline[0].transform(X), y, sample_weight=weights)
    np.testing.assert_array_equal(pipeline[-1].components_, expected.components_)


def test_bad_weights_are_refused_before_any_work(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="MultiMetricLMNN needs a weight for each of the"):
        MultiMetricLMNN().fit(X, y, sample_weight=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="all 60 weights are zero"):
        MultiMetricLMNN().fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(InvalidInputError, match="needs at least two classes; y has 1 class, 0"):
        MultiMetricLMNN().fit(X, y, sample_weight=np.where(y == 0, 1.0, 0.0))
