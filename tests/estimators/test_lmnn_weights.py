"""Weights of rows in LMNN: a row of weight w is w copies, as a point and as an impostor."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar
from nearfar import LMNN
from nearfar.errors import CheckpointError, ConvergenceWarning, DataWarning, InvalidInputError

LEARNERS = [
    LMNN(shrinkage=0),
    LMNN(shrinkage=0.3, push_weight=0.7),
    LMNN(),
    LMNN(n_components=2),
    LMNN(n_components=2, reduce="project"),
    LMNN(n_passes=2),
    LMNN(validation_fraction=0.25, random_state=0),
]
each = pytest.mark.parametrize("learner", LEARNERS, ids=repr)


@pytest.fixture
def weights(overlapping, rng):
    """Integers from 0 to 3."""
    return rng.integers(0, 4, len(overlapping[1]))


def objective_by_loops(model, X, y, targets, push_weight):
    """The papers' objective of given target neighbours under the map of a model."""
    Z = model.transform(X)
    pull = push = 0.0
    for i, row in enumerate(targets):
        far = ((Z[i] - Z[y != y[i]]) ** 2).sum(axis=1)
        for j in row[row >= 0]:
            near = ((Z[i] - Z[j]) ** 2).sum()
            pull += near
            push += np.maximum(1 + near - far, 0).sum()
    return (1 - push_weight) * pull + push_weight * push


class Repeated:
    """Rows repeated so often, each copy with one copy of each target of its row.

    With a mean weight of w the pull of the copies is w times that of weights of mean 1, and the
    push w². So f of the copies at the push weight μ' = μ / (μ + (1−μ) w) is w² / (μ + (1−μ) w)
    times f of the weights at μ.
    """

    def __init__(self, X, y, counts, targets, push_weight):
        rows = np.repeat(np.arange(len(y)), counts)
        first = np.append(np.searchsorted(rows, np.arange(len(y))), -1)  # the last is of -1: none
        first[:-1][counts == 0] = -1
        self.X, self.y, self.targets = X[rows], y[rows], first[targets[rows]]
        unit = counts.sum() / (counts > 0).sum()
        self.push_weight = push_weight / (push_weight + (1 - push_weight) * unit)
        self.factor = unit**2 / (push_weight + (1 - push_weight) * unit)


# -- what they mean --------------------------------------------------------------------------------


@pytest.mark.parametrize("push_weight", [0.3, 0.8])
def test_integers_are_repeated_rows_with_the_same_targets(
    push_weight, overlapping, weights, nearest_of_class
):
    """By plain loops over the copies, at the map that was learned from the weights."""
    X, y = overlapping
    targets = nearest_of_class(X, y, 2)
    model = LMNN(push_weight=push_weight, shrinkage=0)
    model.fit(X, y, target_neighbors=targets, sample_weight=weights)
    copies = Repeated(X, y, weights, targets, push_weight)
    repeated = objective_by_loops(model, copies.X, copies.y, copies.targets, copies.push_weight)
    assert repeated == pytest.approx(copies.factor * model.objective_, rel=1e-9)


@pytest.mark.parametrize("shrinkage", [0, 0.3])
@pytest.mark.parametrize("push_weight", [0.3, 0.8])
def test_the_optimum_is_that_of_the_repeated_rows(
    push_weight, shrinkage, overlapping, weights, nearest_of_class
):
    X, y = overlapping
    targets = nearest_of_class(X, y, 2)
    learner = LMNN(push_weight=push_weight, shrinkage=shrinkage, tol=1e-5)
    model = clone(learner).fit(X, y, target_neighbors=targets, sample_weight=weights)
    copies = Repeated(X, y, weights, targets, push_weight)
    other = clone(learner).set_params(push_weight=copies.push_weight)
    other.fit(copies.X, copies.y, target_neighbors=copies.targets)
    assert model.status_ == other.status_ == "converged"
    assert other.objective_ == pytest.approx(copies.factor * model.objective_, rel=2e-5)


@each
def test_a_row_of_weight_zero_is_dropped(learner, overlapping, weights):
    X, y = overlapping
    kept = weights > 0
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(X[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(model.components_, other.components_)
    assert (model.objective_, model.n_iter_) == (other.objective_, other.n_iter_)


def test_given_targets_without_weight_are_none(overlapping, weights, nearest_of_class):
    X, y = overlapping
    targets, kept = nearest_of_class(X, y, 3), np.flatnonzero(weights)
    model = LMNN(shrinkage=0).fit(X, y, target_neighbors=targets, sample_weight=weights)
    place = np.full(len(y) + 1, -1)
    place[kept] = np.arange(len(kept))
    other = LMNN(shrinkage=0).fit(
        X[kept], y[kept], target_neighbors=place[targets[kept]], sample_weight=weights[kept]
    )
    np.testing.assert_array_equal(model.components_, other.components_)
    assert nearfar.verify(model, X, y, target_neighbors=targets).proved
    wrong = targets.copy()
    wrong[kept[0], 0] = -1 if weights[targets[kept[0], 0]] else kept[y[kept] == y[kept[0]]][-1]
    found = nearfar.verify(model, X, y, target_neighbors=wrong)
    assert "not those that were given" in str(found)


@each
def test_only_ratios_matter_and_ones_change_nothing(learner, overlapping, rng):
    X, y = overlapping
    weights = rng.uniform(0.5, 2, len(y))
    model, scaled = (clone(learner).fit(X, y, sample_weight=c * weights) for c in (1, 1024))
    np.testing.assert_array_equal(model.components_, scaled.components_)
    assert model.objective_ == scaled.objective_
    plain, ones = clone(learner).fit(X, y), clone(learner).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_array_equal(plain.components_, ones.components_)
    assert plain.proof_.keys() == ones.proof_.keys()
    assert not np.array_equal(plain.components_, model.components_)


def test_a_class_whose_rows_have_no_weight_is_none(overlapping):
    X, y = overlapping
    model = LMNN().fit(X, y, sample_weight=1.0 * (y != 1))
    assert model.classes_.tolist() == [0, 2]


@pytest.mark.torch
@each
def test_tensors(learner, overlapping, weights, torch):
    X, y = overlapping
    model = clone(learner).fit(X, y, sample_weight=weights)
    other = clone(learner).fit(torch.tensor(X), y, sample_weight=torch.tensor(weights))
    assert float(other.objective_) == pytest.approx(model.objective_, rel=1e-3)
    assert not nearfar.verify(other, X, y).violations


@pytest.mark.parametrize("shrinkage", [0, 0.2])
@pytest.mark.parametrize("ratio", [1e-30, 1e30])
def test_weights_of_very_different_sizes(ratio, shrinkage, overlapping):
    X, y = overlapping
    weights = np.ones(len(y))
    weights[0] = ratio
    model = LMNN(shrinkage=shrinkage).fit(X, y, sample_weight=weights)
    assert model.status_ == "converged"
    assert np.isfinite(model.components_).all()
    assert nearfar.verify(model, X, y).proved


def test_points_that_are_all_equal():
    """Every slack is 1: the objective is μ Σ m_i k m_l over points, targets and impostors."""
    y, weights = np.array([0, 0, 0, 1, 1, 0]), np.array([1.0, 2, 3, 1, 2, 0])
    with pytest.warns(DataWarning, match="all points are equal"):
        model = LMNN(n_neighbors=1, push_weight=0.3).fit(np.ones((6, 2)), y, sample_weight=weights)
    m = weights / 1.8
    assert model.objective_ == pytest.approx(0.3 * 2 * m[:3].sum() * m[3:].sum())
    assert nearfar.verify(model, np.ones((6, 2)), y).proved


# -- classes ---------------------------------------------------------------------------------------


def test_balanced_classes_have_the_same_weight(overlapping):
    X, y = overlapping
    rows = np.concatenate([np.flatnonzero(y == 0)[:5], np.flatnonzero(y > 0)])
    X, y = X[rows], y[rows]
    balanced = LMNN(class_weight="balanced").fit(X, y)
    weights = (1 / np.bincount(y))[y]
    other = LMNN().fit(X, y, sample_weight=weights)
    assert balanced.objective_ == pytest.approx(other.objective_, rel=1e-6)
    named = LMNN(class_weight={0: weights[0], 1: weights[-1], 2: weights[-1]}).fit(X, y)
    assert named.objective_ == pytest.approx(other.objective_, rel=1e-6)


@pytest.mark.parametrize("n_components", [1, 2])
def test_balanced_classes_raise_the_recall_of_a_rare_class(n_components):
    """One row in ten differs along one feature, the two common classes along another."""
    rng, found = np.random.default_rng(0), {None: [], "balanced": []}

    def draw(*sizes):
        y = np.repeat([0, 1, 2], sizes)
        X = rng.normal(size=(len(y), 10))
        X[:, 0] += 2.0 * (y == 1)
        X[:, 1] += 2.5 * (y == 2)
        return X, y

    for _ in range(4):
        (X, y), (new, _) = draw(95, 95, 20), draw(0, 0, 200)
        for class_weight, recalls in found.items():
            model = LMNN(n_components=n_components, shrinkage=0, class_weight=class_weight)
            knn = KNeighborsClassifier(3).fit(model.fit(X, y).transform(X), y)
            recalls.append(np.mean(knn.predict(model.transform(new)) == 2))
    assert np.mean(found["balanced"]) > np.mean(found[None]) + 0.03


# -- what goes with a fit --------------------------------------------------------------------------


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_weights_are_verified_and_saved(learner, dtype, overlapping, weights, tmp_path):
    X, y = overlapping[0].astype(dtype), overlapping[1]
    model = clone(learner).fit(X, y, sample_weight=weights)
    nearfar.save(model, tmp_path / "model.nearfar")
    found = nearfar.verify(tmp_path / "model.nearfar", X, y)
    assert not found.violations
    assert found.proved == (model.duality_gap_ is not None)
    assert np.array_equal(model.proof_["sample_weight"], weights)
    kept = np.flatnonzero(weights)
    permuted = 1.0 * weights
    permuted[kept] = permuted[kept[::-1]]  # of the same rows
    others = (permuted, np.ones(len(y)), weights[::-1].astype(float), -1.0 * weights)
    for other in (*others, np.zeros(len(y))):
        model.proof_ = {**model.proof_, "sample_weight": other}
        assert nearfar.verify(model, X, y).violations


def test_a_checkpoint_of_other_weights_is_refused(overlapping, weights, tmp_path):
    X, y = overlapping
    learner = LMNN(checkpoint=tmp_path / "state", max_iter=2, tol=0)
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y, sample_weight=weights + 1)
    with pytest.raises(CheckpointError):
        learner.fit(X, y, sample_weight=weights + 2)


def test_a_checkpoint_continues_with_the_weights(overlapping, weights, tmp_path):
    X, y = overlapping
    whole = LMNN(n_passes=2, tol=1e-4).fit(X, y, sample_weight=weights)
    learner = LMNN(n_passes=2, tol=1e-4, checkpoint=tmp_path / "state", max_iter=7)
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y, sample_weight=weights)
    model = learner.set_params(max_iter=1000).fit(X, y, sample_weight=weights)
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-3)
    assert nearfar.verify(model, X, y).proved


def test_a_pipeline_routes_the_weights(overlapping, weights):
    X, y = overlapping
    with config_context(enable_metadata_routing=True):
        learner = LMNN().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(learner, KNeighborsClassifier()).fit(X, y, sample_weight=weights)
    expected = LMNN().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(pipeline[0].components_, expected.components_)


# -- what is refused -------------------------------------------------------------------------------


def test_bad_weights_are_refused_before_any_work(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="LMNN needs a weight for each of the 60 rows"):
        LMNN().fit(X, y, sample_weight=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="finite weights of at least 0"):
        LMNN().fit(X, y, sample_weight=np.where(y == 0, -1.0, 1.0))
    with pytest.raises(InvalidInputError, match="all 60 weights are zero"):
        LMNN().fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(InvalidInputError, match="names the class 'x', which is not in y"):
        LMNN(class_weight={"x": 2}).fit(X, y)
    with pytest.raises(InvalidInputError, match="needs at least two classes; y has 1 class, 0"):
        LMNN().fit(X, y, sample_weight=np.where(y == 0, 1.0, 0.0))


def test_given_targets_that_all_lack_a_weight(overlapping):
    X, y = overlapping
    targets = np.full((60, 1), -1)
    targets[0] = 1
    weights = np.ones(60)
    weights[1] = 0
    with pytest.raises(InvalidInputError, match=r"names no two rows of positive weight\. Name"):
        LMNN().fit(X, y, target_neighbors=targets, sample_weight=weights)


def test_triplets_take_no_weights(rng):
    triplets = rng.normal(size=(9, 3, 2))
    with pytest.raises(InvalidInputError, match="sample_weight=… needs points with labels, but X"):
        LMNN().fit(triplets, sample_weight=np.ones(9))
    with pytest.raises(InvalidInputError, match="class_weight='balanced' needs points with labels"):
        LMNN(class_weight="balanced").fit(triplets)
