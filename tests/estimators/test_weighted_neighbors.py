"""Weights of rows in MCML and NCA: a row of weight w is w copies that do not choose each other."""

import numpy as np
import pytest
from sklearn.base import clone

import nearfar
from nearfar import MCML, NCA


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
