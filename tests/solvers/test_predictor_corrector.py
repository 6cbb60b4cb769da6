"""Steps along the central path: how far they go, and Mehrotra's choice of their target."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from nearfar.kernels import gram_numpy
from nearfar.solvers import predictor_corrector
from nearfar.solvers.predictor_corrector import (
    Share,
    definite_step,
    definite_step_by_lanczos,
    positive_step,
)


@pytest.mark.parametrize(("steps", "close"), [(5, 0), (60, 0.05), (60, 0)])
def test_lanczos_tells_how_far_a_matrix_stays_definite(rng, monkeypatch, steps, close):
    """By few steps about, by many as closely as wanted, and less rather than more."""
    monkeypatch.setattr(predictor_corrector, "LANCZOS", steps)
    monkeypatch.setattr(predictor_corrector, "CLOSE", close)
    A, B = rng.normal(size=(2, 30, 30))
    A, B = A @ A.T + np.eye(30), B + B.T
    factor = gram_numpy.cholesky(A)
    C = np.linalg.solve(factor, np.linalg.solve(factor, B).T)
    true = -1 / np.linalg.eigvalsh(0.5 * (C + C.T))[0]
    solve = gram_numpy.lower_solver(factor)
    found, _ = definite_step_by_lanczos(solve, B)
    error = 0.5 if steps == 5 else 2 * close + 1e-6
    assert true * (1 - error) <= found <= true * (1 + 1e-6 if steps > 5 else 1.5)
    assert definite_step_by_lanczos(solve, np.eye(30))[0] > 1


def test_lanczos_starts_from_the_vector_of_a_similar_change(rng):
    """In fewer products for the same length; and a vector that is no eigenvector hides none."""
    A, B, C = rng.normal(size=(3, 80, 80))
    A, B = A @ A.T + 80 * np.eye(80), B + B.T
    factor, products = gram_numpy.cholesky(A), []
    solve = gram_numpy.lower_solver(factor)

    def counted(b, transposed):
        products.append(1)
        return solve(b, transposed)

    def longest(change, start=None):
        products.clear()
        return *definite_step_by_lanczos(counted, change, 1e-3, start), len(products)

    _, vector, _ = longest(B)
    change = B + 0.02 * (C + C.T)
    expected, other, cold = longest(change)
    found, _, warm = longest(change, vector)
    assert found == pytest.approx(expected, rel=2e-3)
    assert warm < 0.75 * cold
    whole = np.linalg.solve(factor, np.linalg.solve(factor, change).T)
    least, vectors = np.linalg.eigh(0.5 * (whole + whole.T))
    assert abs(vectors[:, 0] @ other) == pytest.approx(1, abs=0.01)
    misled, *_ = longest(change, vectors[:, -1])
    assert misled == pytest.approx(-1 / least[0], rel=2e-3)


def test_how_far_values_stay_positive():
    assert positive_step(np.array([1.0, 2.0]), np.array([-0.5, -4.0])) == 0.5
    assert positive_step(np.array([1.0, 2.0]), np.array([0.5, 0.0])) == np.inf


def test_the_exact_step_is_how_far_a_matrix_stays_definite(rng):
    """At it the least eigenvalue is zero; along a positive definite change there is no end."""
    A, B = rng.normal(size=(2, 6, 6))
    A, B = A @ A.T + np.eye(6), B + B.T
    root = np.linalg.cholesky(A)
    t = definite_step(root, B)
    assert np.linalg.eigvalsh(A + t * B)[0] == pytest.approx(0, abs=1e-12)
    assert definite_step(root, A) == np.inf


@dataclass(frozen=True)
class Step:
    x: np.ndarray
    z: np.ndarray
    primal: float = 0.0
    dual: float = 0.0


class Line:
    """Minimise cᵀx over x ≥ 0 with Σx = 1: z = c − y·1, and (dx, dz) from x dz + z dx = τ − xz."""

    def __init__(self, x, z):
        self.x, self.z, self.mu, self.targets = x, z, float(x @ z) / len(x), []
        self.limits = []

    def direction(self, target, predictor):
        self.targets.append(target)
        right = target - self.x * self.z
        if predictor is not None:
            right = right - predictor.x * predictor.z
        dy = -(right / self.z).sum() / (self.x / self.z).sum()  # Σ dx = 0
        return Step((right + self.x * dy) / self.z, np.full(len(self.x), -dy))

    def limited(self, step, share):
        primal = min(1.0, share * positive_step(self.x, step.x))
        dual = min(1.0, share * positive_step(self.z, step.z))
        self.limits.append((share, min(primal, dual)))
        return replace(step, primal=primal, dual=dual)

    def mean_product(self, step):
        return float((self.x + step.primal * step.x) @ (self.z + step.dual * step.z)) / len(self.x)


@pytest.mark.parametrize("correctors", [1, 3])
def test_steps_lead_to_the_optimum_of_a_linear_program(rng, correctors):
    """All weight on the smallest cost; the target is σ³μ after a predictor that left σμ."""
    c = rng.uniform(1, 2, 5)
    x, z = np.full(5, 0.2), c.copy()
    for _ in range(12):
        system = Line(x, z)
        predicted = system.limited(system.direction(0.0, None), 1.0)
        sigma = system.mean_product(predicted) / system.mu
        step = predictor_corrector.predictor_corrector(system, Share(0.95), correctors)
        assert system.targets[2] == pytest.approx(system.mu * max(sigma**3, 1e-6))
        assert len(system.targets) <= 2 + correctors
        x, z = x + step.primal * step.x, z + step.dual * step.z
        assert min(x.min(), z.min()) > 0
        assert x.sum() == pytest.approx(1)
    np.testing.assert_allclose(x, np.arange(5) == c.argmin(), atol=1e-5)


def test_a_long_step_may_be_followed_to_nearer_the_boundary(rng):
    """The predictor may reach it; the share of each corrector is a + bt of the step before."""
    system = Line(np.full(5, 0.2), rng.uniform(1, 2, 5))
    predictor_corrector.predictor_corrector(system, Share(0.8, 0.1), 3)
    shares, shorter = zip(*system.limits, strict=True)
    assert len(shares) >= 2
    assert shares[0] == 1
    np.testing.assert_allclose(shares[1:], 0.8 + 0.1 * np.array(shorter[:-1]))
