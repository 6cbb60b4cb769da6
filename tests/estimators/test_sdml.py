"""SDML as an estimator: forms of input, balance, sparsity, and data without a minimum."""

import numpy as np
import pytest

from nearfar import SDML, Tuples, make_pairs, verify
from nearfar.errors import InvalidInputError


@pytest.fixture
def pairs(overlapping):
    return make_pairs(*overlapping, 60, random_state=0)


def objective(M, X, indices, kinds, balance, weight, prior):
    """The divergence, the pairs and the entries off the diagonal, in plain loops."""
    ratio = M @ np.linalg.inv(prior)
    total = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(M)
    for (a, b), kind in zip(indices, kinds, strict=True):
        total += balance * kind * (X[a] - X[b]) @ M @ (X[a] - X[b])
    return total + weight * (np.abs(M).sum() - np.abs(np.diag(M)).sum())


@pytest.mark.parametrize("prior", ["identity", "covariance", "given"])
def test_the_objective_is_that_of_the_loops_and_certified(overlapping, pairs, prior, rng):
    X, _ = overlapping
    tuples, kinds = pairs
    given = rng.normal(size=(5, 5))
    given = given @ given.T + np.eye(5)
    A = {"identity": np.eye(5), "covariance": np.linalg.inv(np.cov(X.T))}.get(prior, given)
    model = SDML(sparsity_weight=0.02, prior=given if prior == "given" else prior, tol=1e-8)
    model.fit(tuples, kinds)
    M = model.get_mahalanobis_matrix()
    if prior == "covariance":  # that of the points in pairs
        A = np.linalg.inv(np.cov(tuples.points.T))
    value = objective(M, X, tuples.indices, kinds, model.balance_, 0.02, A)
    assert model.objective_ == pytest.approx(value, rel=1e-7)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-8
    np.testing.assert_allclose(model.sparse_metric_, M, rtol=1e-6, atol=1e-9 * M.max())


def test_auto_keeps_the_distance_that_labels_choose(overlapping):
    """The objective in loops, where far pairs weigh as much as near ones in all."""
    X, y = overlapping
    model = SDML(tol=1e-8).fit(X, y)
    W = model.prior_components_
    A = W.T @ W
    assert np.diag(np.linalg.inv(A)).mean() == pytest.approx(1)
    pairs = np.array([(i, j) for i in range(len(X)) for j in range(i)])
    near = y[pairs[:, 0]] == y[pairs[:, 1]]
    r = near.sum() / (~near).sum()
    assert model.far_weight_ == pytest.approx(r)
    M = model.get_mahalanobis_matrix()
    value = objective(M, X, pairs, np.where(near, 1, -r), model.balance_, 0.01, A)
    assert model.objective_ == pytest.approx(value, rel=1e-7)
    assert verify(model, X, y).proved
    given = SDML(prior=A, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(given.get_mahalanobis_matrix(), M, rtol=1e-5, atol=1e-7 * M.max())
    model.far_weight_ = 1.0
    assert not verify(model, X, y).proved


def test_a_given_balance_is_that_of_the_paper(overlapping):
    """The default of another number of far pairs than near ones, and a balance that is given."""
    X, y = overlapping
    default = SDML(prior="identity", max_seconds=1000).fit(X, y)  # without trials
    assert default.far_weight_ < 1
    assert SDML(prior="identity", balance=1e-6).fit(X, y).far_weight_ == 1
    drawn = SDML(n_pairs=50, random_state=0).fit(X, y)
    assert (drawn.far_weight_, drawn.prior_components_) == (1, None)


def test_auto_is_the_identity_for_pairs(pairs):
    auto, identity = (SDML(prior=prior).fit(*pairs) for prior in ("auto", "identity"))
    assert auto.prior_components_ is None
    np.testing.assert_array_equal(auto.components_, identity.components_)


def test_features_that_do_not_vary_keep_a_weight(overlapping):
    X, y = overlapping
    model = SDML().fit(np.column_stack([X, np.full(len(X), 3.0)]), y)
    assert model.prior_components_.shape == (6, 6)
    np.testing.assert_array_equal(model.prior_components_[5], [0, 0, 0, 0, 0, 1])


def test_more_weight_leaves_fewer_entries(pairs):
    few, many = (SDML(sparsity_weight=w).fit(*pairs).sparse_metric_ for w in (10.0, 1e-3))
    assert np.count_nonzero(few) == 5  # the diagonal
    assert np.count_nonzero(many) > 15


def test_a_balance_without_a_minimum_is_refused_with_the_limit(pairs):
    limit = SDML().fit(*pairs).largest_balance_
    SDML(balance=0.99 * limit).fit(*pairs)
    with pytest.raises(InvalidInputError, match="must be positive definite") as found:
        SDML(balance=1.01 * limit).fit(*pairs)
    assert f"Set balance below {limit:.3g}, or leave it out." in str(found.value)


def test_the_default_balance_is_half_of_the_limit(pairs):
    model = SDML().fit(*pairs)
    assert model.balance_ == pytest.approx(0.5 * model.largest_balance_)


def test_a_singular_covariance_is_no_prior(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match=r"prior of full rank; the covariance .* rank 5"):
        SDML(prior="covariance").fit(np.column_stack([X, X[:, 0]]), y)


def test_float32_is_kept_and_certified(pairs):
    tuples, kinds = pairs
    single = Tuples(tuples.points.astype(np.float32), tuples.indices)
    model = SDML().fit(single, kinds)
    assert model.components_.dtype == np.float32
    assert model.duality_gap_ <= 1e-3


def test_one_feature(overlapping):
    """A = 1 / S."""
    X, y = overlapping
    model = SDML(balance=1e-6).fit(X[:, :1], y)
    v = X[:, :1] - X[:, 0]
    sign = np.where(y[:, None] == y, 1, -1)
    S = 1 + 1e-6 * (np.triu(sign, 1) * v**2).sum()
    assert model.components_[0, 0] ** 2 == pytest.approx(1 / S)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
@pytest.mark.parametrize("prior", ["auto", "identity"])
def test_points_whose_squares_leave_the_range_are_refused(overlapping, prior, scale):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="squares leave the range of float64"):
        SDML(prior=prior).fit(X * scale, y)
