"""ITML: equations (1) to (7), against the program with slacks and the paper's projections."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist

from nearfar.kernels import kernels_for
from nearfar.problems.itml import BoundLoss, default_bounds
from nearfar.problems.logdet import LogDetProblem
from nearfar.solvers.newton_cg import newton_cg

D = 3
NEAR = np.array([True, False] * 10)
UPPER, LOWER = 0.8, 3.0


@pytest.fixture(params=[0.3, 5.0], ids=["soft", "hard"])
def loss(request):
    return BoundLoss.of(NEAR, UPPER, LOWER, request.param)


@pytest.fixture
def lengths(rng):
    return rng.uniform(0.1, 6, size=20)


def divergence(x, b):
    """D of (1) for numbers."""
    return x / b - np.log(x / b) - 1


def test_the_loss_is_the_least_of_all_slacks(loss, lengths):
    """(2) for a fixed metric: one slack after the other."""
    total = 0.0
    for q, near in zip(lengths, NEAR, strict=True):
        ends = (q, 100) if near else (1e-3, q)
        b = UPPER if near else LOWER
        found = minimize_scalar(
            lambda x, b=b: divergence(x, b), bounds=ends, method="bounded", options={"xatol": 1e-9}
        )
        total += loss.weight * min(found.fun, divergence(q, b))
    assert loss.value(lengths) == pytest.approx(total, rel=1e-5)


def test_slopes_and_curvature_are_those_of_finite_differences(loss, lengths, rng):
    step, vector = 1e-5, rng.normal(size=20)
    ahead, behind = (loss.value(lengths + sign * step * vector) for sign in (1, -1))
    assert loss.slopes(lengths) @ vector == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)
    ahead, behind = (loss.slopes(lengths + sign * step * vector) for sign in (1, -1))
    np.testing.assert_allclose(
        loss.curvature(lengths)(vector), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-8
    )


def test_slopes_are_multipliers_that_attain_the_conjugate(loss, lengths):
    """ℓ(q) = Σ δλq + γ Σ log(1 − δλb/γ), and no other λ gives more."""
    best = loss.multipliers(lengths)
    signs = np.where(NEAR, 1.0, -1.0)
    assert (best >= 0).all()
    assert (best[NEAR] < loss.weight / UPPER).all()

    def bound(multipliers):
        return signs * multipliers @ lengths + loss.dual_value(multipliers)

    assert bound(best) == pytest.approx(loss.value(lengths), rel=1e-9)
    for share in (0.0, 0.5, 0.99):
        assert bound(share * best) <= bound(best) + 1e-9


@pytest.fixture
def pairs(rng):
    """Points and edges whose near and far pairs contradict each other somewhat."""
    X = rng.normal(size=(15, D)) * [1, 2, 3]
    edges = rng.integers(0, 7, 20), rng.integers(7, 15, 20)
    return X, edges


def bregman(differences, loss, sweeps=3000):
    """The paper's algorithm: project on one bound after the other, by updates of rank one."""
    A, slacks, multipliers = np.eye(D), loss.bounds.copy(), np.zeros(len(loss.near))
    for _ in range(sweeps):
        for i, v in enumerate(differences):
            sign, p = (1 if loss.near[i] else -1), v @ A @ v
            step = loss.weight / (loss.weight + 1) * sign * (1 / p - 1 / slacks[i])
            alpha = min(multipliers[i], step)
            multipliers[i] -= alpha
            slacks[i] = 1 / (1 / slacks[i] + sign * alpha / loss.weight)
            A = A + sign * alpha / (1 - sign * alpha * p) * np.outer(A @ v, A @ v)
    return A, multipliers


def test_the_optimum_is_that_of_the_projections_of_the_paper(pairs, loss):
    X, edges = pairs
    problem = LogDetProblem.build(kernels_for(X), X, edges, np.eye(D), lambda _: loss)
    *_, last = newton_cg(problem, problem.start)
    A, multipliers = bregman(X[edges[0]] - X[edges[1]], loss)
    np.testing.assert_allclose(last.point.T @ last.point, A, rtol=1e-4, atol=1e-5)
    assert last.residual < 1e-10
    found = loss.multipliers(last.certificate.lengths)
    np.testing.assert_allclose(found, multipliers, atol=1e-4 * multipliers.max())


def test_every_iterate_proves_a_bound_on_the_optimum(pairs, loss):
    """The gap is that of the dual (6) in the features, where the slopes are feasible."""
    X, edges = pairs
    problem = LogDetProblem.build(kernels_for(X), X, edges, np.eye(D), lambda _: loss)
    iterates = list(newton_cg(problem, problem.start))
    optimum, differences = iterates[-1].value, X[edges[0]] - X[edges[1]]
    checked = 0
    for iterate in iterates:
        bound = iterate.value - iterate.residual * max(iterate.value, 1.0)
        assert bound <= optimum + 1e-9
        multipliers = loss.multipliers(iterate.certificate.lengths)
        weights = np.where(NEAR, 1, -1) * multipliers
        K = np.eye(D) + differences.T @ (weights[:, None] * differences)
        if np.linalg.eigvalsh(K)[0] > 0:
            dual = np.linalg.slogdet(K)[1] + loss.dual_value(multipliers)
            assert bound == pytest.approx(max(dual, 0.0), abs=1e-7)
            checked += 1
    assert checked > 1


def test_bounds_that_hold_already_leave_the_prior(pairs):
    X, edges = pairs
    loss = BoundLoss.of(NEAR, 1e3, 1e-3, 1.0)
    problem = LogDetProblem.build(kernels_for(X), X, edges, np.eye(D), lambda _: loss)
    at = problem.place(problem.start)
    assert (at.value, at.gap) == (0.0, 0.0)


def test_default_bounds_are_percentiles_under_the_prior(rng, backend):
    X, L = rng.normal(size=(30, D)), rng.normal(size=(D, D))
    X[3] = X[4]  # a distance of zero does not count
    moved = backend.asarray(X)
    squares = pdist(X @ L.T) ** 2
    expected = np.percentile(squares[squares > 0], [5, 95])
    np.testing.assert_allclose(default_bounds(kernels_for(moved), moved, L), expected, rtol=1e-6)
