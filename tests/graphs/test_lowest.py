"""The lowest eigenpairs of a pencil, against dense matrices."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.graphs.lowest import lowest_pairs


@pytest.fixture
def pencil(rng):
    """A symmetric, indefinite A and a positive definite B."""
    A, B = rng.normal(size=(2, 60, 60))
    return A + A.T, B @ B.T + 60 * np.eye(60)


def test_values_and_vectors_are_those_of_dense_matrices(rng, backend, pencil):
    A, B = map(backend.asarray, pencil)
    inverse = backend.asarray(np.linalg.inv(pencil[1]))
    start = backend.asarray(rng.normal(size=(60, 4)))
    products = (lambda X: A @ X), (lambda X: B @ X), (lambda X: inverse @ X)
    values, vectors = lowest_pairs(*products, start, 200, 1e-7)
    expected = linalg.eigh(*pencil, eigvals_only=True)[:4]
    np.testing.assert_allclose(values, expected, atol=1e-6)
    X = backend.to_numpy(vectors)
    np.testing.assert_allclose(X.T @ pencil[1] @ X, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(pencil[0] @ X, pencil[1] @ X * values, atol=1e-4)


def test_estimates_fall_and_stay_above(rng, pencil):
    A, B = pencil
    least = linalg.eigh(A, B, eigvals_only=True)[0]
    start = rng.normal(size=(60, 2))
    products = A.__matmul__, B.__matmul__, lambda X: X / 60
    found = [lowest_pairs(*products, start, steps, 0.0)[0][0] for steps in (0, 3, 10, 30)]
    assert (np.diff(found) < 0).all()
    assert found[-1] >= least - 1e-9


def test_dependent_vectors_are_left_out(rng, pencil):
    A, B = pencil
    start = rng.normal(size=(60, 3))[:, [0, 1, 1, 2]]
    values, vectors = lowest_pairs(A.__matmul__, B.__matmul__, lambda X: X / 60, start, 5, 0.0)
    assert len(values) == vectors.shape[1] == 3
