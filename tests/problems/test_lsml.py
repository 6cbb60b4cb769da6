"""LSML: equations (1) to (6), against the definition and finite differences."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for
from nearfar.problems.logdet import LogDetProblem
from nearfar.problems.lsml import ComparisonLoss
from nearfar.solvers.newton_cg import newton_cg

D, M = 3, 15


@pytest.fixture
def loss():
    return ComparisonLoss(M, 7.0)


@pytest.fixture
def lengths(rng):
    return rng.uniform(0.1, 5, size=2 * M)


def test_the_value_is_that_of_the_definition(loss, lengths):
    total = 0.0
    for a, c in zip(lengths[:M], lengths[M:], strict=True):
        total += max(a**0.5 - c**0.5, 0) ** 2 * 7 / M
    assert loss.value(lengths) == pytest.approx(total, rel=1e-12)
    assert loss.value(lengths) == pytest.approx(loss.slopes(lengths) @ lengths, rel=1e-12)


def test_slopes_and_curvature_are_those_of_finite_differences(loss, lengths, rng):
    step, vector = 1e-6, rng.normal(size=2 * M)
    ahead, behind = (loss.value(lengths + sign * step * vector) for sign in (1, -1))
    assert loss.slopes(lengths) @ vector == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)
    ahead, behind = (loss.slopes(lengths + sign * step * vector) for sign in (1, -1))
    np.testing.assert_allclose(
        loss.curvature(lengths)(vector), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7
    )


def test_the_loss_is_convex(loss, rng):
    for _ in range(50):
        first, second = rng.uniform(0.01, 5, size=(2, 2 * M))
        middle = loss.value(0.3 * first + 0.7 * second)
        assert middle <= 0.3 * loss.value(first) + 0.7 * loss.value(second) + 1e-12


def test_slopes_are_feasible_for_the_dual(loss, lengths):
    alpha, beta = loss.slopes(lengths).reshape(2, M)
    unit = 7 / M
    assert (alpha <= unit).all()
    assert (beta <= 0).all()
    assert ((unit - alpha) * (unit - beta) >= unit**2 * (1 - 1e-12)).all()


def test_the_start_is_the_best_multiple_of_the_prior(loss, rng):
    X = 3 * rng.normal(size=(12, D))
    edges = rng.integers(0, 6, 2 * M), rng.integers(6, 12, 2 * M)
    problem = LogDetProblem.build(kernels_for(X), X, edges, np.eye(D), lambda _: loss)
    start = problem.start
    np.testing.assert_array_equal(start, start[0, 0] * np.eye(D))
    assert start[0, 0] < 0.9
    for factor in (0.99, 1.01):
        assert problem.place(start).value < problem.place(factor * start).value


def test_every_iterate_proves_a_bound_on_the_optimum(loss, rng):
    """The bound is log det K of the weights, where K ≻ 0."""
    X = rng.normal(size=(12, D)) * [1, 2, 3]
    edges = rng.integers(0, 6, 2 * M), rng.integers(6, 12, 2 * M)
    problem = LogDetProblem.build(kernels_for(X), X, edges, np.eye(D), lambda _: loss)
    iterates = list(newton_cg(problem, problem.start))
    assert iterates[-1].residual < 1e-9
    differences, checked = X[edges[0]] - X[edges[1]], 0
    for iterate in iterates:
        bound = iterate.value - iterate.residual * max(iterate.value, 1.0)
        assert bound <= iterates[-1].value + 1e-9
        weights = loss.slopes(iterate.certificate.lengths)
        K = np.eye(D) + differences.T @ (weights[:, None] * differences)
        if np.linalg.eigvalsh(K)[0] > 0:
            assert bound == pytest.approx(max(np.linalg.slogdet(K)[1], 0.0), abs=1e-7)
            checked += 1
    assert checked > 1
