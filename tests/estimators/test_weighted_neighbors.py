"""Weights of rows in MCML and NCA: a row of weight w is w copies that do not choose each other."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar
from nearfar import MCML, NCA
from nearfar.errors import CheckpointError, ConvergenceWarning, InvalidInputError

LEARNERS = [
    MCML(shrinkage=0),
    MCML(shrinkage=0.2),
    MCML(solver="projected-gradient"),
    MCML(n_components=2, reduce="learn"),
    NCA(shrinkage=0),
    NCA(shrinkage=0.2),
    NCA(n_components=2),
    NCA(diagonal=True),
]
each = pytest.mark.parametrize("learner", LEARNERS, ids=repr)


@pytest.fixture
def weights(overlapping, rng):
    """Integers from 0 to 3."""
    return rng.integers(0, 4, len(overlapping[1]))


def repeated_objective(model, X, y, counts):
    """Of the rows repeated so often, where the copies of a row do not choose each other."""
    rows = np.repeat(np.arange(len(y)), counts)
    Z, labels = model.transform(X)[rows], y[rows]
    D = ((Z[:, None] - Z) ** 2).sum(axis=2)
    D[rows[:, None] == rows] = np.inf
    p = np.exp(-D - np.logaddexp.reduce(-D, axis=1)[:, None])
    mates = (labels[:, None] == labels) & (rows[:, None] != rows)
    if isinstance(model, NCA):
        return float(p[mates].sum())
    wanted = mates / mates.sum(axis=1, keepdims=True)
    return float((wanted[mates] * np.log(wanted[mates] / p[mates])).sum())


# -- what they mean --------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", [MCML(shrinkage=0), NCA(shrinkage=0)], ids=repr)
def test_integers_are_repeated_rows_whose_copies_do_not_choose_each_other(
    learner, overlapping, weights
):
    """Weights are scaled to a mean of 1 over the rows that have any."""
    X, y = overlapping
    model = clone(learner).fit(X, y, sample_weight=weights)
    unit = weights.sum() / (weights > 0).sum()
    repeated = repeated_objective(model, X, y, weights)
    assert unit * model.objective_ == pytest.approx(repeated, rel=1e-9)


def test_no_metric_is_better_for_the_repeated_rows(overlapping, weights):
    """The bound of the weighted program holds for theirs."""
    X, y = overlapping
    model = MCML(shrinkage=0, tol=1e-5).fit(X, y, sample_weight=weights)
    unit = weights.sum() / (weights > 0).sum()
    bound = unit * (model.objective_ - model.duality_gap_ * model.objective_)
    for other in (MCML(shrinkage=0).fit(X, y), MCML(shrinkage=0.1).fit(X, y, weights)):
        assert repeated_objective(other, X, y, weights) >= bound
    assert repeated_objective(model, X, y, weights) == pytest.approx(bound, rel=1e-4)


@each
def test_a_row_of_weight_zero_is_dropped(learner, overlapping, weights):
    X, y = overlapping
    kept = weights > 0
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(X[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(model.components_, other.components_)
    assert (model.objective_, model.n_iter_) == (other.objective_, other.n_iter_)


@each
def test_only_ratios_matter_and_ones_change_nothing(learner, overlapping, rng):
    X, y = overlapping
    weights = rng.uniform(0.5, 2, len(y))
    model, scaled = (clone(learner).fit(X, y, sample_weight=c * weights) for c in (1, 1024))
    np.testing.assert_array_equal(model.components_, scaled.components_)
    assert model.objective_ == scaled.objective_
    plain, ones = clone(learner).fit(X, y), clone(learner).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_array_equal(plain.components_, ones.components_)
    assert not np.array_equal(plain.components_, model.components_)


def test_a_class_whose_rows_have_no_weight_is_none(overlapping):
    X, y = overlapping
    model = MCML().fit(X, y, sample_weight=1.0 * (y != 1))
    assert model.classes_.tolist() == [0, 2]


@pytest.mark.torch
@each
def test_tensors(learner, overlapping, weights, torch):
    X, y = overlapping
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(torch.tensor(X), y, sample_weight=torch.tensor(weights))
    assert float(other.objective_) == pytest.approx(model.objective_, rel=1e-3)


@pytest.mark.parametrize("ratio", [1e-30, 1e30])
def test_weights_of_very_different_sizes(ratio, overlapping):
    """A row that outweighs all others has the others of its class to choose, still."""
    X, y = overlapping
    weights = np.ones(len(y))
    weights[0] = ratio
    model = MCML(shrinkage=0.2).fit(X, y, sample_weight=weights)
    assert model.status_ == "converged"
    assert np.isfinite(model.components_).all()
    assert nearfar.verify(model, X, y).proved


# -- classes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [MCML, NCA])
def test_balanced_classes_have_the_same_weight(cls, overlapping):
    X, y = overlapping
    rows = np.concatenate([np.flatnonzero(y == 0)[:5], np.flatnonzero(y > 0)])
    X, y = X[rows], y[rows]
    balanced = cls(class_weight="balanced").fit(X, y)
    weights = (1 / np.bincount(y))[y]
    other = cls().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(balanced.objective_, other.objective_, rtol=1e-6)
    named = cls(class_weight={0: weights[0], 1: weights[-1], 2: weights[-1]}).fit(X, y)
    np.testing.assert_allclose(named.objective_, other.objective_, rtol=1e-6)


@pytest.mark.parametrize("cls", [MCML, NCA])
def test_balanced_classes_help_a_rare_class(cls):
    """One class in twenty differs along one feature, the two common ones along the other."""
    rng = np.random.default_rng(0)
    found = {}
    for class_weight in (None, "balanced"):
        hits = []
        for _ in range(5):
            y = np.repeat([0, 1, 2], [95, 95, 10])
            X = rng.normal(size=(200, 6))
            X[:, 0] += 3.0 * (y == 1)
            X[:, 1] += 3.0 * (y == 2)
            model = cls(n_components=1, shrinkage=0, class_weight=class_weight)
            if cls is MCML:
                model.set_params(reduce="learn")
            Z = model.fit(X, y).transform(X)
            rare = Z[y == 2].mean(axis=0) - Z[y == 0].mean(axis=0)
            spread = Z[y == 0].std(axis=0)
            hits.append(float(abs(rare / spread)[0]))
        found[class_weight] = np.mean(hits)
    assert found["balanced"] > found[None]


# -- what goes with a fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner", [MCML(), MCML(shrinkage=0), NCA(), NCA(diagonal=True)], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_weights_are_verified_and_saved(learner, dtype, overlapping, weights, tmp_path):
    X, y = overlapping[0].astype(dtype), overlapping[1]
    model = clone(learner).fit(X, y, sample_weight=weights)
    nearfar.save(model, tmp_path / "model.nearfar")
    found = nearfar.verify(tmp_path / "model.nearfar", X, y)
    assert not found.violations
    assert found.proved == (model.duality_gap_ is not None)
    assert np.array_equal(model.proof_["sample_weight"], weights)
    for other in (np.ones(len(y)), weights[::-1].astype(float), -1.0 * weights, np.zeros(len(y))):
        model.proof_ = {**model.proof_, "sample_weight": other}
        assert nearfar.verify(model, X, y).violations


@pytest.mark.parametrize("cls", [MCML, NCA])
def test_a_checkpoint_of_other_weights_is_refused(cls, overlapping, weights, tmp_path):
    X, y = overlapping
    learner = cls(checkpoint=tmp_path / "state", max_iter=2, tol=0)
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y, sample_weight=weights + 1)
    with pytest.raises(CheckpointError):
        learner.fit(X, y, sample_weight=weights + 2)


@pytest.mark.parametrize("cls", [MCML, NCA])
def test_a_pipeline_routes_the_weights(cls):
    X, y = load_wine(return_X_y=True)
    weights = np.linspace(0.1, 2, len(y))
    with config_context(enable_metadata_routing=True):
        learner = cls().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(learner, KNeighborsClassifier()).fit(X, y, sample_weight=weights)
    expected = cls().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(pipeline[0].components_, expected.components_)


@pytest.mark.parametrize("cls", [MCML, NCA])
def test_bad_weights_are_refused_before_any_work(cls, overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match=rf"{cls.__name__} needs a weight for each of the"):
        cls().fit(X, y, sample_weight=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="names the class 'x', which is not in y"):
        cls(class_weight={"x": 2}).fit(X, y)
    one_class = np.where(y == 0, 1.0, 0.0)
    with pytest.raises(InvalidInputError, match="needs at least two classes; y has 1 class, 0"):
        cls().fit(X, y, sample_weight=one_class)
