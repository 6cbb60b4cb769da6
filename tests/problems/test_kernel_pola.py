"""Products of pairs in feature space, and the map that coordinates give."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for, reference
from nearfar.problems.kernel_pola import coefficients, products


@pytest.fixture
def pairs(rng):
    """Four pairs and three others, in three dimensions."""
    return rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 3, 3))


def test_products(pairs, backend):
    """(φ(u) − φ(v))·(φ(u') − φ(v')), one after the other."""
    ours, others = pairs
    gamma = 0.3

    def kernel(X, Y):
        return kernels_for(X).similarities(X, Y, "rbf", gamma)

    found = products(kernel, tuple(map(backend.asarray, ours)), tuple(map(backend.asarray, others)))

    def k(a, b):
        return reference.similarities(a[None], b[None], "rbf", gamma)[0, 0]

    for i, (u, v) in enumerate(zip(*ours, strict=True)):
        for j, (s, t) in enumerate(zip(*others, strict=True)):
            assert found[i, j] == pytest.approx(k(u, s) - k(u, t) - k(v, s) + k(v, t), abs=1e-12)


def test_the_map_gives_the_distances_of_the_coordinates(pairs, rng):
    """With the linear kernel φ(x) = x, so that the metric is Bᵀ N B for the basis B = L⁻¹ δ."""
    (heads, tails), _ = pairs
    heads, tails = heads[:3], tails[:3]  # as many pairs as dimensions: the basis is complete
    delta = heads - tails
    L = np.linalg.cholesky(delta @ delta.T)
    F = rng.normal(size=(2, 3))
    C = coefficients(F, L)
    assert C.shape == (2, 6)
    np.testing.assert_allclose(C.sum(axis=1), 0, atol=1e-12)
    basis = np.linalg.solve(L, delta)
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(C @ np.vstack([heads, tails]), F @ basis, atol=1e-10)
