"""ITML as an estimator: forms of input, priors, bounds, limits and difficult data."""

import numpy as np
import pytest

from nearfar import ITML, LSML, Tuples, make_pairs, verify
from nearfar.errors import ConvergenceWarning, InvalidInputError


@pytest.fixture
def pairs(overlapping):
    return make_pairs(*overlapping, 60, random_state=0)


def objective(M, X, indices, kinds, bounds, weight, prior):
    """The divergence and the broken bounds, in plain loops."""
    ratio = M @ np.linalg.inv(prior)
    total = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(M)
    for (a, b), kind in zip(indices, kinds, strict=True):
        q = (X[a] - X[b]) @ M @ (X[a] - X[b])
        r = max(q / bounds[0], 1) if kind == 1 else min(q / bounds[1], 1)
        total += weight * (r - np.log(r) - 1)
    return total


@pytest.mark.parametrize("prior", ["identity", "covariance", "given"])
def test_the_objective_is_that_of_the_loops_and_certified(overlapping, pairs, prior, rng):
    X, _ = overlapping
    tuples, kinds = pairs
    matrix = {"identity": np.eye(5), "covariance": np.linalg.inv(np.cov(tuples.points.T))}
    given = rng.normal(size=(5, 5))
    given = given @ given.T + np.eye(5)
    A = matrix.get(prior, given)
    model = ITML(violation_weight=0.3, prior=given if prior == "given" else prior, tol=1e-8)
    model.fit(tuples, kinds)
    M = model.get_mahalanobis_matrix()
    value = objective(M, X, tuples.indices, kinds, model.bounds_, 0.3, A)
    assert model.objective_ == pytest.approx(value, rel=1e-8)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-8
    for _ in range(5):  # no metric nearby is better
        step = rng.normal(size=(5, 5))
        other = M + 1e-2 * M @ (step + step.T) @ M
        assert objective(other, X, tuples.indices, kinds, model.bounds_, 0.3, A) > value


def test_float32_is_kept_and_certified(pairs):
    tuples, kinds = pairs
    single = Tuples(tuples.points.astype(np.float32), tuples.indices)
    model = ITML().fit(single, kinds)
    assert model.components_.dtype == np.float32
    assert model.duality_gap_ <= 1e-3


def test_given_bounds_are_kept(pairs):
    model = ITML(bounds=[1.0, 9.0]).fit(*pairs)
    assert model.bounds_ == (1.0, 9.0)


def test_little_weight_leaves_the_prior_and_much_meets_the_bounds(pairs):
    tuples, kinds = pairs
    light = ITML(violation_weight=1e-9).fit(tuples, kinds)
    np.testing.assert_allclose(light.get_mahalanobis_matrix(), np.eye(5), atol=1e-6)

    def broken(model):
        squares = model.pair_distance(tuples) ** 2
        return np.sum(np.where(kinds == 1, squares > model.bounds_[0], squares < model.bounds_[1]))

    heavy = ITML(violation_weight=10.0, bounds=light.bounds_).fit(tuples, kinds)
    assert broken(heavy) < broken(light)


def test_scale_of_the_data_is_no_matter_with_a_prior_that_has_it(overlapping):
    X, y = overlapping
    images = ITML(prior="covariance", tol=1e-8).fit_transform(X, y)
    for scale in (1e-100, 1e100):
        other = ITML(prior="covariance", tol=1e-8).fit_transform(scale * X, y)
        np.testing.assert_allclose(other, images, atol=1e-3 * np.abs(images).max())


@pytest.mark.parametrize("scale", [1e-130, 1e130])
def test_the_start_is_no_multiple_of_the_prior_for_which_a_length_is_zero(overlapping, scale):
    X, y = overlapping
    model = ITML(n_pairs=40, random_state=0).fit(scale * X, y)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= model.tol


def test_a_far_pair_too_near_for_float64_is_named(overlapping):
    X, _ = overlapping
    X, rows = np.where(np.arange(len(X))[:, None] < 2, 0, X), np.array([[2, 3], [0, 1]])
    X[1, 0] = 1e-200
    with pytest.raises(InvalidInputError, match=r"that of rows 0 and 1 is below .* \(1 such"):
        ITML().fit(Tuples(X, rows), [1, -1])


@pytest.mark.parametrize("learner", [ITML, LSML])
def test_a_metric_that_rounding_makes_singular_is_refused(learner, overlapping):
    X, y = overlapping
    prior = np.diag([1e-100, 1, 1, 1, 1])
    with pytest.raises(InvalidInputError, match="singular to rounding: scales are too different"):
        learner(prior=prior).fit(X.astype(np.float32), y)


def test_a_singular_covariance_is_a_prior_on_its_span(overlapping):
    X, y = overlapping
    wide = np.hstack([X, X[:, :2]])
    model = ITML(prior="covariance").fit(wide, y)
    assert model.components_.shape == (5, 7)
    assert model.duality_gap_ <= 1e-3


def test_max_iter_warns(pairs):
    with pytest.warns(
        ConvergenceWarning, match=r"ITML stopped before tol=0\.001: reached max_iter"
    ):
        model = ITML(max_iter=1).fit(*pairs)
    assert (model.status_, model.n_iter_) == ("max_iter", 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"violation_weight": 0}, "violation_weight must be a number above 0; got 0"),
        ({"bounds": [1.0]}, "bounds must be two positive numbers, .*; got"),
        ({"bounds": [0.0, 1.0]}, "bounds must be two positive numbers"),
        (
            {"violation_weight": "much"},
            "violation_weight must be one of 'auto' or a number above 0",
        ),
        ({"prior": "random"}, "prior must be one of 'auto', 'identity', 'covariance' or an array"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
        ({"tol": -1}, "tol must be a number of at least 0"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
    ],
)
def test_parameters_that_cannot_be_used_are_an_error(pairs, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        ITML(**parameters).fit(*pairs)


@pytest.mark.torch
def test_tensors(pairs, torch):
    tuples, kinds = pairs
    moved = Tuples(torch.tensor(tuples.points.copy()), tuples.indices)
    model, expected = ITML(tol=1e-6).fit(moved, kinds), ITML(tol=1e-6).fit(tuples, kinds)
    assert isinstance(model.components_, torch.Tensor)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-5)


def test_auto_is_the_metric_and_the_weight_that_labels_choose(overlapping):
    """At the prior Σ_near slope · length is n / 16: pairs pull n / 16d times as strongly."""
    X, y = overlapping
    model = ITML(tol=1e-9, max_seconds=1000).fit(X, y)  # a limit leaves the trials out
    W, (upper, _) = model.prior_components_, model.bounds_
    squares = np.array([np.sum((W @ (a - b)) ** 2) for a in X for b in X])
    near = np.triu(y[:, None] == y, 1).ravel()
    pull = np.sum((1 / upper - 1 / np.maximum(squares, upper))[near] * squares[near])
    assert model.violation_weight_ * pull == pytest.approx(len(X) / 16, rel=1e-9)
    given = ITML(prior=W.T @ W, violation_weight=model.violation_weight_, tol=1e-9)
    given.fit(X, y)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), given.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-6
    )
    assert verify(model, X, y).proved
    model.prior_components_ = np.eye(5)
    assert not verify(model, X, y).proved


def test_a_claimed_weight_is_checked(overlapping):
    model = ITML(tol=1e-6, max_seconds=1000).fit(*overlapping)
    assert verify(model, *overlapping).proved
    model.violation_weight_ *= 2
    assert not verify(model, *overlapping).proved


def test_for_pairs_auto_is_the_euclidean_prior_and_a_weight_of_one(pairs):
    auto, paper = ITML().fit(*pairs), ITML(violation_weight=1.0, prior="identity").fit(*pairs)
    assert (auto.prior_components_, auto.violation_weight_) == (None, 1.0)
    np.testing.assert_array_equal(auto.components_, paper.components_)


def test_classes_without_near_pairs_leave_the_prior(rng):
    """No bound of a near pair is broken by copies of one point: the weight falls back to 1."""
    X = np.repeat(rng.normal(size=(4, 3)), 3, axis=0)
    model = ITML(max_seconds=1000).fit(X, np.repeat(range(4), 3))
    assert model.violation_weight_ == 1.0
    assert model.status_ == "converged"
