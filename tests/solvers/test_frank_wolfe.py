"""The lecture's algorithm 15.3.1, step by step, against its lines in plain NumPy."""

from itertools import islice

import numpy as np
import pytest
from scipy import linalg

from nearfar.problems.dml_eig import DMLEigProblem
from nearfar.solvers.frank_wolfe import frank_wolfe
from nearfar.supervision import Pairs


@pytest.fixture
def data(rng):
    """Near and far differences of 30 points in four features."""
    X = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4))
    heads, tails = rng.integers(0, 30, (2, 60))
    tails = np.where(heads == tails, (tails + 1) % 30, tails)
    return Pairs(X, heads, tails, np.arange(60) < 25)


def the_lecture(pairs, sigma, T):
    """Algorithm 15.3.1 as it stands, with d vvᵀ for vvᵀ: metrics of the features, and gradients."""
    X, (heads, tails) = pairs.points, pairs.near_edges()
    d = X.shape[1]
    H = sum(np.outer(x, x) for x in X[heads] - X[tails])
    inverse = np.linalg.inv(linalg.sqrtm(H).real)
    heads, tails = pairs.far_edges()
    X_tilde = [inverse @ np.outer(x, x) @ inverse for x in X[heads] - X[tails]]
    M, metrics, gradients = np.eye(d), [], []
    for t in range(1, T + 1):
        weights = np.array([np.exp(-np.sum(X_tau * M) / sigma) for X_tau in X_tilde])
        G = sum(w * X_tau for w, X_tau in zip(weights, X_tilde, strict=True)) / weights.sum()
        v = np.linalg.eigh(G)[1][:, -1]
        M = (t - 1) / t * M + 1 / t * d * np.outer(v, v)
        metrics.append(inverse @ M @ inverse)
        gradients.append(G)
    return metrics, gradients


def test_every_step_is_that_of_the_lecture(data):
    sigma = 0.02
    problem = DMLEigProblem.build(data)
    metrics, gradients = the_lecture(data, sigma, 40)
    heads, tails = data.far_edges()
    far = data.points[heads] - data.points[tails]
    bound = np.inf
    for iterate, A, G in zip(frank_wolfe(problem, sigma), metrics, gradients, strict=False):
        C = problem.components(iterate.point)
        np.testing.assert_allclose(C.T @ C, A, rtol=1e-6, atol=1e-8 * np.abs(A).max())
        assert np.sum(iterate.point**2) == pytest.approx(4)
        value = np.einsum("ij,jk,ik->i", far, A, far).min()
        bound = min(bound, 4 * np.linalg.eigvalsh(G)[-1])
        assert iterate.info["objective"] == -iterate.value == pytest.approx(value, rel=1e-6)
        assert iterate.residual == pytest.approx(bound / value - 1, rel=1e-6)
        proof = problem.certify(iterate.point, *iterate.certificate)
        assert proof.bound == pytest.approx(bound, rel=1e-6)
        assert proof.objective == pytest.approx(value, rel=1e-6)


def test_without_the_factor_the_trace_would_leave_that_of_the_lecture(data):
    """M₁ = vvᵀ has trace 1, while the lecture takes M from those of trace d: hence the factor."""
    problem = DMLEigProblem.build(data)
    for iterate in islice(frank_wolfe(problem, 0.1), 5):
        assert np.sum(iterate.point**2) == pytest.approx(4)


class TwoAxes:
    """u = e₁ and u = 2e₂, for which M = diag(8, 2)/5 is best."""

    size, trace = 2, 2.0
    rows = np.diag([1.0, 2.0])

    def lengths(self, L):
        return ((self.rows @ L.T) ** 2).sum(axis=1)

    def soft_weights(self, lengths, smoothing):
        weights = np.exp((lengths.min() - lengths) / smoothing)
        return weights / weights.sum()

    def scatter(self, weights):
        return self.rows.T @ np.diag(weights) @ self.rows


def test_a_length_of_zero_is_an_infinite_gap():
    """M₀ = I has e₁ the shorter, so that M₁ = 2 e₁e₁ᵀ leaves e₂ without length; M mends it."""
    first, *_, last = islice(frank_wolfe(TwoAxes(), 1e-3), 3000)
    np.testing.assert_allclose(first.point.T @ first.point, np.diag([2.0, 0.0]), atol=1e-12)
    assert first.value == 0
    assert first.residual == np.inf
    np.testing.assert_allclose(last.point.T @ last.point, np.diag([1.6, 0.4]), atol=1e-2)
    assert len(last.point) <= 4
    assert last.residual < 0.02
