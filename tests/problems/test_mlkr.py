"""MLKR: equations (1) to (5), against plain loops and finite differences."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from nearfar.kernels import kernels_for
from nearfar.problems.mlkr import MLKRProblem

D = 4


@pytest.fixture
def data(rng):
    X = rng.normal(size=(25, D)) * [1, 10, 0.1, 2] + 5
    return X, X[:, 0] ** 2 + X[:, 3] + 100


@pytest.fixture
def problem(data, backend):
    X, y = data
    moved = backend.asarray(X)
    return MLKRProblem.build(kernels_for(moved), moved, y)


def loops(L, X, y):
    """(3), one point after the other."""
    total = 0.0
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i]
        weights = np.array([np.exp(-np.sum((L @ (X[i] - X[j])) ** 2)) for j in others])
        total += (weights @ y[others] / weights.sum() - y[i]) ** 2
    return total


@pytest.mark.parametrize("rows", [1, 2, D])
def test_the_value_is_that_of_the_loops(problem, data, rng, rows):
    """In units of the targets; also that of the map on the features."""
    L = 0.7 * rng.normal(size=(rows, D))
    components = L @ problem.white
    value = loops(components, *data)
    assert problem.evaluate(L).value * problem.unit**2 == pytest.approx(value, rel=1e-9)
    assert problem.objective(components) == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(problem.factor(components), L, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 2, D])
def test_the_gradient_is_that_of_finite_differences(problem, rng, rows):
    L = 0.7 * rng.normal(size=(rows, D))
    expected = approx_fprime(L.ravel(), lambda v: problem.evaluate(v.reshape(rows, D)).value, 1e-7)
    found = problem.evaluate(L).gradient.ravel()
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_first_guess_begins_with_linear_regression(problem, data):
    X, y = data
    L = problem.first_guess(2)
    assert L.shape == (2, D)
    slope = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean())[0]
    row = L[0] @ problem.white
    cosine = row @ slope / np.linalg.norm(row) / np.linalg.norm(slope)
    assert abs(cosine) == pytest.approx(1, abs=1e-9)
    assert np.linalg.norm(L[0]) == pytest.approx(4 * np.linalg.norm(L[1]))
