"""Weights of rows in all learners from labels that have them."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar import LMNN, MCML, NCA, MultiMetricLMNN
from nearfar.errors import CheckpointError, ConvergenceWarning, InvalidInputError

LEARNERS = [
    LMNN(shrinkage=0),
    LMNN(shrinkage=0.3, push_weight=0.7),
    LMNN(),
    LMNN(n_components=2),
    LMNN(n_components=2, reduce="project"),
    LMNN(n_passes=2),
    LMNN(validation_fraction=0.25, random_state=0),
    MultiMetricLMNN(shrinkage=0),
    MultiMetricLMNN(shrinkage=0.3, push_weight=0.7),
    MultiMetricLMNN(),
    MultiMetricLMNN("kmeans", 2, shrinkage=0.1, random_state=0),
    MultiMetricLMNN(shrinkage=0, validation_fraction=0.25, random_state=0),
    MCML(shrinkage=0),
    MCML(shrinkage=0.2),
    MCML(solver="projected-gradient"),
    MCML(n_components=2, reduce="learn"),
    NCA(shrinkage=0),
    NCA(shrinkage=0.2),
    NCA(n_components=2),
    NCA(diagonal=True),
]
# NCA without shrinkage separates float32 rows until each is right, whatever its weight
DISTINCT = [learner for learner in LEARNERS if repr(learner) != "NCA(shrinkage=0)"]
each = pytest.mark.parametrize("learner", LEARNERS, ids=repr)
each_class = pytest.mark.parametrize("cls", [LMNN, MultiMetricLMNN, MCML, NCA])
each_of_classes = pytest.mark.parametrize("cls", [LMNN, MCML, NCA])  # with class_weight


# -- what they mean --------------------------------------------------------------------------------


@each
def test_a_row_of_weight_zero_is_dropped(learner, overlapping, weights):
    X, y = overlapping
    kept = weights > 0
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(X[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(model.components_, other.components_)
    assert (model.objective_, model.n_iter_) == (other.objective_, other.n_iter_)
    if isinstance(learner, MultiMetricLMNN):
        np.testing.assert_array_equal(model.metric_of_, other.metric_of_)
        np.testing.assert_array_equal(model.predict(X), other.predict(X))


@each
def test_only_ratios_matter_and_ones_change_nothing(learner, overlapping, rng):
    X, y = overlapping
    weights = rng.uniform(0.5, 2, len(y))
    model, scaled = (clone(learner).fit(X, y, sample_weight=c * weights) for c in (1, 1024))
    np.testing.assert_array_equal(model.components_, scaled.components_)
    assert model.objective_ == scaled.objective_
    plain, ones = clone(learner).fit(X, y), clone(learner).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_array_equal(plain.components_, ones.components_)
    assert set(plain.proof_ or ()) == set(ones.proof_ or ())
    assert not np.array_equal(plain.components_, model.components_)


@each_class
def test_a_class_whose_rows_have_no_weight_is_none(cls, overlapping):
    X, y = overlapping
    assert cls().fit(X, y, sample_weight=1.0 * (y != 1)).classes_.tolist() == [0, 2]


@each_of_classes
def test_balanced_classes_have_the_same_weight(cls, overlapping):
    X, y = overlapping
    rows = np.concatenate([np.flatnonzero(y == 0)[:5], np.flatnonzero(y > 0)])
    X, y = X[rows], y[rows]
    weights = (1 / np.bincount(y))[y]
    expected = pytest.approx(cls().fit(X, y, sample_weight=weights).objective_, rel=1e-6)
    assert cls(class_weight="balanced").fit(X, y).objective_ == expected
    named = {0: weights[0], 1: weights[-1], 2: weights[-1]}
    assert cls(class_weight=named).fit(X, y).objective_ == expected


@pytest.mark.torch
@each
def test_tensors(learner, overlapping, weights, torch):
    X, y = overlapping
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(torch.tensor(X), y, sample_weight=torch.tensor(weights))
    assert float(other.objective_) == pytest.approx(model.objective_, rel=max(learner.tol, 1e-3))
    assert not nearfar.verify(other, X, y).violations


# -- what goes with a fit --------------------------------------------------------------------------


@pytest.mark.parametrize("learner", DISTINCT, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_weights_are_verified_and_saved(learner, dtype, overlapping, weights, tmp_path):
    X, y = overlapping[0].astype(dtype), overlapping[1]
    model = clone(learner).fit(X, y, sample_weight=weights)
    nearfar.save(model, tmp_path / "model.nearfar")
    found = nearfar.verify(tmp_path / "model.nearfar", X, y)
    assert not found.violations
    assert found.proved == (model.duality_gap_ is not None)
    assert np.array_equal(model.proof_["sample_weight"], weights)
    kept, permuted = np.flatnonzero(weights), 1.0 * weights
    permuted[kept] = permuted[kept[::-1]]  # of the same rows
    others = (permuted, np.ones(len(y)), weights[::-1].astype(float), -1.0 * weights)
    for other in (*others, np.zeros(len(y))):
        model.proof_ = {**model.proof_, "sample_weight": other}
        assert nearfar.verify(model, X, y).violations


@pytest.mark.parametrize(
    "learner", [LMNN(), MultiMetricLMNN(init=np.eye(5)), MCML(), NCA()], ids=repr
)
def test_a_checkpoint_of_other_weights_is_refused(learner, overlapping, weights, tmp_path):
    X, y = overlapping
    learner = clone(learner).set_params(checkpoint=tmp_path / "state", max_iter=2, tol=0)
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y, sample_weight=weights + 1)
    with pytest.raises(CheckpointError):
        learner.fit(X, y, sample_weight=weights + 2)


@each_class
def test_a_pipeline_routes_the_weights(cls, overlapping, weights):
    X, y = overlapping
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        learner = cls().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, learner).fit(X, y, sample_weight=weights)
    expected = cls().fit(pipeline[0].transform(X), y, sample_weight=weights)
    np.testing.assert_array_equal(pipeline[-1].components_, expected.components_)


# -- what is refused -------------------------------------------------------------------------------


@each_class
def test_bad_weights_are_refused_before_any_work(cls, overlapping):
    X, y = overlapping
    for weights, message in (
        ([1.0, 2.0], f"{cls.__name__} needs a weight for each of the 60 rows"),
        (np.where(y == 0, -1.0, 1.0), "finite weights of at least 0"),
        (np.zeros(60), "all 60 weights are zero"),
        (np.where(y == 0, 1.0, 0.0), "needs at least two classes; y has 1 class, 0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            cls().fit(X, y, sample_weight=weights)


@each_of_classes
def test_weights_of_unknown_classes_are_refused(cls, overlapping):
    with pytest.raises(InvalidInputError, match="names the class 'x', which is not in y"):
        cls(class_weight={"x": 2}).fit(*overlapping)
