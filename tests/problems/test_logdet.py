"""The LogDet problem: equations (1) to (7), with a loss that is not separable."""

import numpy as np
import pytest
from scipy import linalg
from scipy.optimize import minimize

from nearfar.kernels import kernels_for
from nearfar.linalg import symmetric
from nearfar.problems.logdet import LogDetProblem

D, M = 3, 12


class Quadratic:
    """½ pᵀHp with p = q + 1 and H of positive entries: convex, and it is felt by all lengths."""

    homogeneous = False

    def __init__(self, rng):
        root = rng.uniform(size=(M, M))
        self.H = 0.01 * root @ root.T

    def value(self, lengths):
        return float(0.5 * (lengths + 1) @ self.H @ (lengths + 1))

    def slopes(self, lengths):
        return self.H @ (lengths + 1)

    def curvature(self, _):
        return lambda vector: self.H @ vector

    def conjugate(self, c):
        """sup ⟨c, q⟩ − ℓ(q) = ½ cᵀH⁻¹c − Σ c, at q = H⁻¹c − 1."""
        return float(0.5 * c @ np.linalg.solve(self.H, c) - c.sum())


@pytest.fixture(params=[(0, 3), (0, 0), (20, 0)], ids=["held", "few points", "few edges"])
def posed(request, rng, backend, monkeypatch):
    """Edges are held as differences, or gathered from the points; then all, or some of them."""
    more, few = request.param
    monkeypatch.setattr("nearfar.problems.logdet.FEW_EDGES", few)
    X = np.vstack([rng.normal(size=(9, D)), np.zeros((more, D))])
    edges = rng.integers(0, 5, M), rng.integers(5, 9, M)
    prior = rng.normal(size=(D, D)) + 2 * np.eye(D)
    loss = Quadratic(rng)
    moved = backend.asarray(X)
    problem = LogDetProblem.build(kernels_for(moved), moved, edges, prior, lambda _: loss)
    return problem, X[edges[0]] - X[edges[1]], prior, loss


def value(A, differences, prior, loss):
    """(2) by its definition, on the features."""
    ratio = A @ np.linalg.inv(prior.T @ prior)
    divergence = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - D
    return divergence + loss.value(np.einsum("ij,jk,ik->i", differences, A, differences))


@pytest.fixture
def C(rng):
    return rng.normal(size=(D, D)) + 2 * np.eye(D)


def test_the_value_is_that_of_the_definition(posed, C):
    problem, differences, prior, loss = posed
    L = C @ prior
    assert problem.place(C).value == pytest.approx(value(L.T @ L, differences, prior, loss))
    assert problem.at_map(L).value == pytest.approx(problem.place(C).value)
    K = problem.components(C)
    np.testing.assert_allclose(K.T @ K, L.T @ L, rtol=1e-9)


def test_the_value_of_a_multiple_of_the_prior_is_that_of_the_definition(posed):
    problem, differences, prior, loss = posed
    A = 0.49 * prior.T @ prior
    found = problem.place(0.7 * np.eye(D))
    assert found.value == pytest.approx(value(A, differences, prior, loss))
    nearly = problem.place(0.7 * np.eye(D) + 1e-9 * np.ones((D, D)))  # its images are computed
    np.testing.assert_allclose(found.gradient, nearly.gradient, atol=1e-6)


def test_gradient_and_curvature_are_those_of_finite_differences(posed, C, rng):
    problem, *_ = posed
    at, step = problem.place(C), 1e-5
    for _ in range(3):
        S = symmetric(rng.normal(size=(D, D)))
        ahead, behind = at.moved(step * S), at.moved(-step * S)
        slope = (ahead.value - behind.value) / (2 * step)
        assert np.vdot(at.gradient, S) == pytest.approx(slope, rel=1e-6)
        second = (ahead.value - 2 * at.value + behind.value) / step**2
        assert np.vdot(S, at.product()(S)) == pytest.approx(second, rel=1e-3)


def test_the_gap_is_the_distance_from_the_dual(posed, C):
    """At a point near the optimum, where the slopes are feasible."""
    problem, differences, prior, loss = posed
    found = minimize(
        lambda c: problem.place(c.reshape(D, D)).value, np.eye(D).ravel(), method="BFGS", tol=1e-3
    )
    at = problem.place(found.x.reshape(D, D) + 0.01 * C)
    c = loss.slopes(at.lengths)
    moved = differences @ prior.T
    K = np.eye(D) + moved.T @ (c[:, None] * moved)
    bound = np.linalg.slogdet(K)[1] - loss.conjugate(c)
    assert linalg.eigvalsh(K)[0] > 0
    assert 0 < bound < at.value
    assert at.gap == pytest.approx((at.value - bound) / max(at.value, 1), rel=1e-6)


def test_a_bad_place_has_the_gap_of_the_bound_zero(posed):
    problem, *_ = posed
    at = problem.place(1e-3 * np.eye(D))
    assert at.value > 1
    assert 0 < at.gap <= 1


def test_no_place_beyond_the_cone(posed):
    problem, *_ = posed
    assert problem.place(np.eye(D)).moved(-2 * np.eye(D)) is None
