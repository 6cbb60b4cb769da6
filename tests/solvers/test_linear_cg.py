"""Conjugate gradients for many right sides."""

import numpy as np
import pytest

from nearfar.solvers.linear_cg import linear_cg


@pytest.fixture
def system(rng):
    L = rng.normal(size=(15, 15))
    return L @ L.T + np.eye(15), rng.normal(size=(5, 3, 4))  # right sides of 15 numbers, 4 of them


def apply(A):
    return lambda X: (A @ X.reshape(15, -1)).reshape(X.shape)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_all_systems_are_solved(system, preconditioned):
    A, right = system
    M = np.diag(1 / np.diag(A)) if preconditioned else np.eye(15)
    found = linear_cg(apply(A), right, apply(M), 1e-10, 100)
    np.testing.assert_allclose(
        found.reshape(15, 4), np.linalg.solve(A, right.reshape(15, 4)), atol=1e-8
    )


def test_a_right_side_of_zero_and_one_that_needs_more(system):
    """They end apart: the first at once, an eigenvector after one step."""
    A, right = system
    values, vectors = np.linalg.eigh(A)
    right = right.copy()
    right[..., 0], right[..., 1] = 0, vectors[:, 3].reshape(5, 3)
    found = linear_cg(apply(A), right, lambda X: X, 1e-12, 100)
    assert (found[..., 0] == 0).all()
    np.testing.assert_allclose(found[..., 1].ravel(), vectors[:, 3] / values[3], atol=1e-10)
    flat = right.reshape(15, 4)
    np.testing.assert_allclose(A @ found.reshape(15, 4), flat, atol=1e-7)


def test_the_number_of_steps_is_limited(system):
    """After one step the answer is the right side, scaled."""
    A, right = system
    b = right.reshape(15, 4)
    found = linear_cg(apply(A), right, lambda X: X, 1e-12, 1).reshape(15, 4)
    lengths = np.sum(b * b, axis=0) / np.sum(b * (A @ b), axis=0)
    np.testing.assert_allclose(found, lengths * b, rtol=1e-12)
