"""LSML as an estimator: forms of input, priors, scores and difficult data."""

import numpy as np
import pytest

from nearfar import LSML, MMC, Tuples, make_quadruplets, make_triplets
from nearfar.errors import ConvergenceWarning, InvalidInputError

PAPER = {"violation_weight": 1.0, "prior": "identity"}


@pytest.fixture
def quadruplets(overlapping):
    return make_quadruplets(*overlapping, 80, random_state=0)


def objective(M, points, indices, weight, prior):
    """The divergence and the residuals, in plain loops."""
    ratio = M @ np.linalg.inv(prior)
    total = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(M)
    for a, b, c, d in points[indices]:
        excess = np.sqrt((a - b) @ M @ (a - b)) - np.sqrt((c - d) @ M @ (c - d))
        total += weight / len(indices) * max(excess, 0) ** 2
    return total


@pytest.mark.parametrize("prior", ["identity", "covariance"])
def test_the_objective_is_that_of_the_loops_and_certified(overlapping, quadruplets, prior, rng):
    X, _ = overlapping
    A = np.eye(5) if prior == "identity" else np.linalg.inv(np.cov(X.T))
    model = LSML(violation_weight=30.0, prior=prior, tol=1e-8).fit(quadruplets)
    M = model.get_mahalanobis_matrix()
    value = objective(M, X, quadruplets.indices, 30.0, A)
    assert model.objective_ == pytest.approx(value, rel=1e-7)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-8
    for _ in range(5):  # no metric nearby is better
        step = rng.normal(size=(5, 5))
        other = M + 1e-2 * M @ (step + step.T) @ M
        assert objective(other, X, quadruplets.indices, 30.0, A) > value


def test_dense_quadruplets_and_tuples_are_learned_from_alike(quadruplets, dtype):
    points = quadruplets.points.astype(dtype)
    model = LSML(violation_weight=30.0, tol=1e-6).fit(Tuples(points, quadruplets.indices))
    dense = LSML(violation_weight=30.0, tol=1e-6).fit(points[quadruplets.indices])
    assert model.components_.dtype == dense.components_.dtype == dtype
    assert dense.objective_ == pytest.approx(model.objective_, rel=1e-5)
    assert model.duality_gap_ <= 1e-6


def test_a_triplet_compares_its_two_distances(overlapping):
    triplets = make_triplets(*overlapping, 60, random_state=0)
    same = Tuples(triplets.points, triplets.indices[:, [0, 1, 0, 2]])
    first, second = (LSML(violation_weight=30.0).fit(data) for data in (triplets, same))
    np.testing.assert_array_equal(first.components_, second.components_)
    assert first.score(triplets) == second.score(same)


def test_contradictory_comparisons_are_data(overlapping):
    """(a, c) is far in one triplet and near in another, which pair learners refuse."""
    X, _ = overlapping
    triplets = Tuples(X, [[0, 1, 2], [0, 2, 3], [2, 0, 1]])
    assert LSML().fit(triplets).status_ == "converged"


def test_the_score_is_the_share_of_comparisons_that_hold(overlapping, quadruplets):
    X, y = overlapping
    model = LSML(violation_weight=100.0).fit(quadruplets)
    pairs = X[quadruplets.indices]
    near, far = model.pair_distance(pairs[:, :2]), model.pair_distance(pairs[:, 2:])
    assert model.score(quadruplets) == pytest.approx(np.mean(near < far))
    assert model.score(X, y) > 0.5


def test_labels_draw_quadruplets(overlapping):
    X, y = overlapping
    model = LSML(n_quadruplets=80, prior="identity", random_state=0).fit(X, y)
    by_hand = LSML().fit(make_quadruplets(X, y, 80, random_state=0))
    np.testing.assert_allclose(model.components_, by_hand.components_)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert not hasattr(by_hand, "classes_")


@pytest.mark.parametrize("scale", [1e-40, 1e100])
def test_data_in_other_units_than_the_prior_is_solved(overlapping, scale):
    """The residuals grow with the units, and the start is the best multiple of the prior."""
    X, y = overlapping
    model = LSML(random_state=0).fit(scale * X, y)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-3


def test_equal_points_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="LSML needs points that differ, within a class"):
        LSML().fit(np.ones_like(X), y)


def test_max_iter_warns(quadruplets):
    with pytest.warns(ConvergenceWarning, match=r"LSML stopped before tol=1e-12: reached max_iter"):
        LSML(violation_weight=100.0, tol=1e-12, max_iter=1).fit(quadruplets)


def test_tuples_that_cannot_be_used_are_an_error(overlapping, quadruplets):
    X, _ = overlapping
    with pytest.raises(InvalidInputError, match="LSML takes quadruplets without y"):
        LSML().fit(quadruplets, np.ones(80))
    with pytest.raises(InvalidInputError, match=r"takes quadruplets of shape .*; got \(1, 2, 5\)"):
        LSML().fit(Tuples(X, [[0, 1]]))
    with pytest.raises(InvalidInputError, match=r"MMC takes pairs of shape .*; got \(80, 4, 5\)"):
        MMC().fit(quadruplets, np.ones(80))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"violation_weight": 0}, "violation_weight must be a number above 0; got 0"),
        (
            {"violation_weight": "much"},
            "violation_weight must be one of 'auto' or a number above 0",
        ),
        ({"prior": "random"}, "prior must be one of 'auto', 'identity', 'covariance' or an array"),
        ({"n_quadruplets": 0}, "n_quadruplets must be an integer of at least 1; got 0"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
    ],
)
def test_parameters_that_cannot_be_used_are_an_error(overlapping, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        LSML(**parameters).fit(*overlapping)


@pytest.mark.torch
def test_tensors(quadruplets, torch):
    moved = Tuples(torch.tensor(quadruplets.points.copy()), quadruplets.indices)
    model, expected = (LSML(violation_weight=30.0).fit(data) for data in (moved, quadruplets))
    assert isinstance(model.components_, torch.Tensor)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)


def test_auto_is_the_metric_and_the_weight_that_labels_choose(overlapping):
    """At the prior the mean of slope · length over near pairs, times the weight, is n / 16."""
    X, y = overlapping
    model = LSML(n_quadruplets=80, tol=1e-9, random_state=0).fit(X, y)
    W, quadruplets = model.prior_components_, make_quadruplets(X, y, 80, random_state=0)
    images = X @ W.T
    pulls = []
    for a, b, c, d in images[quadruplets.indices]:
        near, far = np.sum((a - b) ** 2), np.sum((c - d) ** 2)
        pulls.append((1 - np.sqrt(far / near)) * near if near > far else 0.0)
    assert model.violation_weight_ * np.mean(pulls) == pytest.approx(len(X) / 16, rel=1e-9)
    given = LSML(violation_weight=model.violation_weight_, prior=W.T @ W, tol=1e-9).fit(quadruplets)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), given.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-6
    )


def test_for_quadruplets_auto_is_the_euclidean_prior_and_a_weight_of_one(quadruplets):
    auto, paper = (LSML(**given).fit(quadruplets) for given in ({}, PAPER))
    assert (auto.prior_components_, auto.violation_weight_) == (None, 1.0)
    np.testing.assert_array_equal(auto.components_, paper.components_)
