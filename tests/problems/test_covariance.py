"""Covariance: equations (1) to (6), against NumPy's covariance and pseudo-inverse."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.kernels import kernels_for
from nearfar.problems.covariance import CovarianceProblem, _near_origin

D = 5


@pytest.fixture
def points(rng):
    """Correlated features, far from the origin."""
    return rng.normal(size=(40, D)) @ rng.normal(size=(D, D)) + 100


def posed(X):
    return CovarianceProblem.build(kernels_for(X), X)


def test_the_metric_is_the_inverse_covariance(points, backend):
    L = posed(backend.asarray(points)).solution()
    np.testing.assert_allclose(L.T @ L, np.linalg.inv(np.cov(points.T)), rtol=1e-7)


@pytest.mark.parametrize("kind", ["near", "constant", "far", "huge", "late"])
def test_means_are_subtracted_from_products_only_where_no_digit_is_lost(rng, kind, backend):
    X = rng.normal(size=(600, D)) @ rng.normal(size=(D, D)) + 0.3
    X[:, 2] += {"far": 1e6, "huge": 1e200}.get(kind, 0.0)
    if kind == "constant":
        X[:, 2] = 7.0
    if kind == "late":  # some rows are not among those that tell
        X[1::2, 2] += 1e6
    moved = backend.asarray(X)
    exact = X - X[:1]
    C = np.cov(exact.T)
    problem = posed(moved)
    assert _near_origin(kernels_for(moved), moved) == (kind in ("near", "late"))
    found = problem.dual @ problem.dual.T
    np.testing.assert_allclose(found, C, atol=1e-12 * np.abs(C).max())
    assert problem.rank == (4 if kind in ("constant", "huge") else 5)


def test_objective_and_gap_are_those_of_the_definition(points, rng):
    """f* = d + log det C by (3), so that the gap can be computed without (5)."""
    C, problem = np.cov(points.T), posed(points)
    optimum = D + np.linalg.slogdet(C)[1]
    best = problem.solution()
    assert problem.objective_and_gap(best)[0] == pytest.approx(optimum, rel=1e-9)
    assert problem.objective_and_gap(best)[1] < 1e-12
    L = best + 0.1 * rng.normal(size=(D, D)) @ best
    value = np.trace(L @ C @ L.T) - np.linalg.slogdet(L.T @ L)[1]
    objective, gap = problem.objective_and_gap(L)
    assert objective == pytest.approx(value, rel=1e-9)
    assert gap == pytest.approx((value - optimum) / max(abs(value), 1), rel=1e-6)


@pytest.mark.parametrize("shape", ["dependent", "constant", "few points"])
def test_a_singular_covariance_has_its_pseudo_inverse(rng, shape):
    if shape == "few points":
        X = rng.normal(size=(4, 9))
    else:
        X = rng.normal(size=(40, D)) * [1, 2, 3, 4, 5]
        X[:, 4] = X[:, 0] - 2 * X[:, 1] if shape == "dependent" else 7.0
    problem = posed(X)
    L = problem.solution()
    assert problem.rank == len(L) == (3 if shape == "few points" else 4)
    expected = linalg.pinv(np.cov(X.T), rtol=1e-9)
    np.testing.assert_allclose(L.T @ L, expected, atol=1e-8 * np.abs(expected).max())
    assert problem.objective_and_gap(L)[1] < 1e-9


def test_features_in_any_units_are_kept(points):
    units = np.array([1.0, 1e-9, 1e9, 1e-4, 1e5])
    problem = posed(points * units)
    L = problem.solution()
    assert problem.rank == D
    np.testing.assert_allclose(
        L.T @ L * np.outer(units, units), np.linalg.inv(np.cov(points.T)), rtol=1e-5
    )
    assert problem.objective_and_gap(L)[1] < 1e-9
