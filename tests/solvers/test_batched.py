"""Conjugate gradients for many right sides, and roots of many decreasing functions."""

import numpy as np
import pytest

from nearfar.solvers.batched import bisect_decreasing, conjugate_gradients


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
    found = conjugate_gradients(apply(A), right, apply(M), 1e-10, 100)
    np.testing.assert_allclose(
        found.reshape(15, 4), np.linalg.solve(A, right.reshape(15, 4)), atol=1e-8
    )


def test_a_right_side_of_zero_and_one_that_needs_more(system):
    """They end apart: the first at once, an eigenvector after one step."""
    A, right = system
    values, vectors = np.linalg.eigh(A)
    right = right.copy()
    right[..., 0], right[..., 1] = 0, vectors[:, 3].reshape(5, 3)
    found = conjugate_gradients(apply(A), right, lambda X: X, 1e-12, 100)
    assert (found[..., 0] == 0).all()
    np.testing.assert_allclose(found[..., 1].ravel(), vectors[:, 3] / values[3], atol=1e-10)
    flat = right.reshape(15, 4)
    np.testing.assert_allclose(A @ found.reshape(15, 4), flat, atol=1e-7)


def test_the_number_of_steps_is_limited(system):
    """After one step the answer is the right side, scaled."""
    A, right = system
    b = right.reshape(15, 4)
    found = conjugate_gradients(apply(A), right, lambda X: X, 1e-12, 1).reshape(15, 4)
    lengths = np.sum(b * b, axis=0) / np.sum(b * (A @ b), axis=0)
    np.testing.assert_allclose(found, lengths * b, rtol=1e-12)


def test_roots_of_many_functions(rng):
    roots = rng.uniform(0.1, 3, size=50)
    found = bisect_decreasing(lambda t: roots**3 - t**3, np.zeros(50), np.full(50, 4.0))
    np.testing.assert_allclose(found, roots, rtol=1e-15)


def test_a_root_much_nearer_to_one_end():
    found = bisect_decreasing(lambda t: 1e-15 - t, np.zeros(1), np.ones(1))
    np.testing.assert_allclose(found, 1e-15, rtol=1e-4)


def test_no_root_inside():
    low, high = np.zeros(2), np.ones(2)
    found = bisect_decreasing(lambda t: np.array([-1.0, 1.0]) - t * 0.1, low, high)
    np.testing.assert_allclose(found, [0, 1], atol=1e-15)


def test_the_ends_are_not_changed():
    low, high = np.zeros(3), np.ones(3)
    bisect_decreasing(lambda t: 0.5 - t, low, high)
    assert (low == 0).all()
    assert (high == 1).all()
