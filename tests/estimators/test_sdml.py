"""SDML as an estimator: forms of input, balance, sparsity, and data without a minimum."""

import numpy as np
import pytest

from nearfar import SDML, Tuples, make_pairs
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
