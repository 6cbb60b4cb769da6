"""MLKR as an estimator: targets, starts, limits and difficult data."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from nearfar import MLKR
from nearfar.errors import ConvergenceWarning, InvalidInputError
from nearfar.kernels import numpy_regression


@pytest.fixture
def data(rng, read_only):
    """Only the first of four features matters."""
    X = rng.normal(size=(60, 4))
    return read_only(X), read_only(np.sin(2 * X[:, 0]))


def error(model, X, y):
    Z = X @ np.asarray(model.components_, dtype=np.float64).T
    D = np.sum((Z[:, None] - Z) ** 2, axis=2)
    np.fill_diagonal(D, np.inf)
    K = np.exp(D.min(axis=1, keepdims=True) - D)
    return np.sum((K @ y / K.sum(axis=1) - y) ** 2)


def test_finds_the_feature_that_matters(data):
    X, y = data
    model = MLKR(1).fit(X, y)
    row = np.abs(model.components_[0])
    assert row[0] > 5 * row[1:].max()
    assert model.status_ == "converged"
    assert model.duality_gap_ is None
    assert model.objective_ < 0.2 * np.sum((y - y.mean()) ** 2)


def test_the_objective_is_the_error_of_the_estimates(data, dtype):
    X, y = data
    model = MLKR().fit(X.astype(dtype), 1e3 * y)
    assert model.components_.dtype == dtype
    assert model.objective_ == pytest.approx(error(model, X.astype(dtype), 1e3 * y), rel=1e-4)
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_, rel=1e-3)


def test_units_of_features_and_targets_do_not_matter(data):
    X, y = data
    first = pdist(MLKR().fit_transform(X, y))
    second = pdist(MLKR().fit_transform(X * [1, 1e5, 1e-5, 1], 1e-3 * y + 3))
    np.testing.assert_allclose(second, first, atol=0.05 * first.max())


def test_a_start_of_huge_distances(data):
    """Rounding of exponents of some -1e20 can be above zero, and their exponentials infinite."""
    X, y = data
    with pytest.warns(ConvergenceWarning, match="rounding errors allow no further decrease"):
        model = MLKR(init="identity").fit(1e10 * X, y)
    assert model.objective_ == pytest.approx(error(model, 1e10 * X, y), rel=1e-4)


def test_starts(data):
    X, y = data
    given = MLKR(init=np.eye(4)).fit(X, y)
    named = MLKR(init="identity").fit(X, y)
    np.testing.assert_allclose(given.components_, named.components_)
    with pytest.warns(ConvergenceWarning, match="MLKR stopped before tol=0.0001: reached max_iter"):
        short = MLKR(max_iter=2).fit(X, y)
    assert short.n_iter_ == 2
    assert short.history_[1]["objective"] < short.history_[0]["objective"]


def test_blocks_do_not_matter(data, monkeypatch):
    X, y = data
    whole = MLKR(2).fit(X, y)
    monkeypatch.setattr(numpy_regression, "STRIP_BYTES", 1)
    monkeypatch.setattr(numpy_regression, "SOFTMAX_ROWS", 7)
    assert MLKR(2).fit(X, y).objective_ == pytest.approx(whole.objective_, rel=1e-3)


def test_equal_points_or_targets_leave_the_identity(data):
    X, y = data
    for model in (MLKR().fit(np.ones_like(X), y), MLKR().fit(X, np.ones(60))):
        np.testing.assert_array_equal(model.components_, np.eye(4))
        assert model.status_ == "converged"
    assert model.objective_ == 0
    mean = MLKR().fit(np.ones_like(X), y)
    assert mean.objective_ == pytest.approx(np.sum((60 / 59 * (y - y.mean())) ** 2))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "MLKR requires y to be passed, but the target y is None"),
        (np.arange(59), "X has 60 rows and y has 59"),
        (np.array(["a"] * 60), "MLKR learns from numbers; y holds .*For class labels take NCA"),
        (np.array([np.nan] + [1.0] * 59), r"y has NaN or infinity in row 0 \(1 in all\)"),
    ],
)
def test_targets_that_cannot_be_used_are_an_error(data, y, message):
    with pytest.raises(InvalidInputError, match=message):
        MLKR().fit(data[0], y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 5}, "n_components must be an integer from 1 to 4; got 5"),
        ({"init": "pca"}, "init must be one of 'auto', 'identity' or an array; got 'pca'"),
        ({"init": np.eye(3)}, r"the map of init must have shape \(rows, 4\)"),
        ({"tol": -1}, "tol must be a number of at least 0"),
    ],
)
def test_parameters_that_cannot_be_used_are_an_error(data, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        MLKR(**parameters).fit(*data)


@pytest.mark.torch
def test_tensors(data, torch):
    X, y = data
    model, expected = MLKR(2).fit(torch.tensor(X.copy()), torch.tensor(y.copy())), MLKR(2).fit(X, y)
    assert isinstance(model.components_, torch.Tensor)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-2)


def test_pairs_are_refused():
    with pytest.raises(InvalidInputError, match=r"^MLKR learns from points with numbers, .* pairs"):
        MLKR().fit(np.zeros((4, 2, 3)), np.arange(4.0))
