"""Weights of rows in MultiMetricLMNN: as in LMNN, and rows without weight do not vote."""

import numpy as np
import pytest

import nearfar
from nearfar import MultiMetricLMNN
from nearfar.errors import DataWarning, InvalidInputError


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


def test_points_that_are_all_equal():
    y, weights = np.array([0, 0, 0, 1, 1, 0]), np.array([1.0, 2, 3, 1, 2, 0])
    learner = MultiMetricLMNN(n_neighbors=1, push_weight=0.3)
    with pytest.warns(DataWarning, match="all points are equal"):
        model = learner.fit(np.ones((6, 2)), y, sample_weight=weights)
    m = weights / 1.8
    assert model.objective_ == pytest.approx(0.3 * 2 * m[:3].sum() * m[3:].sum())
    assert nearfar.verify(model, np.ones((6, 2)), y).proved
