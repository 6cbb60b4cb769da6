"""Weights of rows in LMNN: a row of weight w is w copies, as a point and as an impostor."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier

import nearfar
from nearfar import LMNN
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError


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


def test_a_checkpoint_continues_with_the_weights(overlapping, weights, tmp_path):
    X, y = overlapping
    whole = LMNN(n_passes=2, tol=1e-4).fit(X, y, sample_weight=weights)
    learner = LMNN(n_passes=2, tol=1e-4, checkpoint=tmp_path / "state", max_iter=7)
    with pytest.warns(ConvergenceWarning):
        learner.fit(X, y, sample_weight=weights)
    model = learner.set_params(max_iter=1000).fit(X, y, sample_weight=weights)
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-3)
    assert nearfar.verify(model, X, y).proved


# -- what is refused -------------------------------------------------------------------------------


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
