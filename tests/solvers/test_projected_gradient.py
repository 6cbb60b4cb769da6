"""Projected gradient descent: minima over the cone that can be derived, and Armijo's rule."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import linalg

from nearfar.linalg import project_psd
from nearfar.solvers import Status, run
from nearfar.solvers.projected_gradient import SUFFICIENT, projected_descent

D = 5


@dataclass(frozen=True)
class Evaluated:
    L: np.ndarray
    value: float
    slope: np.ndarray


def slope(at):
    return at.slope


def descended(evaluate, start, tol=1e-12, max_iter=500):
    """Run until the last step gained less than ``tol``."""
    last = [np.inf]

    def residual(at):
        gain, last[0] = last[0] - at.value, at.value
        return gain

    return run(projected_descent(evaluate, slope, start, residual), tol=tol, max_iter=max_iter)


@pytest.fixture
def target(rng):
    """A symmetric matrix with eigenvalues of both signs."""
    A = rng.normal(size=(D, D))
    return A + A.T


@pytest.fixture
def nearest(target):
    """½‖A − B‖², whose minimiser over the cone is the projection of B."""

    def evaluate(L):
        difference = L.T @ L - target
        return Evaluated(L, 0.5 * float(np.sum(difference**2)), difference)

    return evaluate


def test_the_nearest_metric(nearest, target):
    solution = descended(nearest, np.eye(D), tol=1e-10)
    assert solution.status is Status.CONVERGED
    L = solution.iterate.point
    np.testing.assert_allclose(L.T @ L, project_psd(target), atol=1e-5)


def test_a_barrier(rng):
    """⟨C, A⟩ − log det(I + A): where C has the eigenvalue c, the minimiser has (1/c − 1)₊."""
    V = linalg.qr(rng.normal(size=(D, D)))[0]
    c = np.array([0.1, 0.5, 0.9, 1.5, 4.0])
    C = (V * c) @ V.T

    def evaluate(L):
        A = L.T @ L
        value = np.sum(C * A) - np.linalg.slogdet(np.eye(D) + A)[1]
        return Evaluated(L, float(value), C - np.linalg.inv(np.eye(D) + A))

    solution = descended(evaluate, np.eye(D), tol=1e-15, max_iter=2000)
    L = solution.iterate.point
    np.testing.assert_allclose(L.T @ L, (V * np.maximum(1 / c - 1, 0)) @ V.T, atol=1e-4)
    assert np.linalg.matrix_rank(L, tol=1e-6) == 3


def test_steps_are_projected_gradient_steps_that_lower_the_value_enough(nearest):
    """A⁺ = [A − tG]₊ for some t, and f(A⁺) ≤ f(A) − σ⟨G, A − A⁺⟩."""
    descent = projected_descent(nearest, slope, np.eye(D), lambda _: None)
    iterates = list(itertools.islice(descent, 6))
    assert len(iterates) == 6
    for before, after in itertools.pairwise(iterates):
        A, new = (point.T @ point for point in (before.point, after.point))
        G = before.state.slope
        bound = before.value - SUFFICIENT * np.sum(G * (A - new))
        assert after.value <= bound + 1e-12
        # The part of A − A⁺ in the range of A⁺ is tG there, since the projection leaves it alone.
        values, vectors = linalg.eigh(new)
        v = vectors[:, -1]
        step = (v @ A @ v - values[-1]) / (v @ G @ v)
        np.testing.assert_allclose(project_psd(A - step * G), new, atol=1e-8)


def test_the_start_comes_first_and_need_not_be_square(nearest, rng):
    start = rng.normal(size=(2, D))
    first = next(projected_descent(nearest, slope, start, lambda at: at.value))
    assert first.point is start
    assert first.residual == first.value == nearest(start).value


def test_points_are_factors_of_as_many_rows_as_features(nearest, rng):
    iterates = projected_descent(nearest, slope, rng.normal(size=(2, D)), lambda _: None)
    assert [point.point.shape for point in itertools.islice(iterates, 4)] == [(2, D), *[(D, D)] * 3]


def test_it_ends_by_itself_at_the_minimum(nearest, target):
    iterates = list(
        itertools.islice(projected_descent(nearest, slope, np.eye(D), lambda _: None), 5000)
    )
    assert len(iterates) < 5000
    L = iterates[-1].point
    np.testing.assert_allclose(L.T @ L, project_psd(target), atol=1e-6)


def test_it_ends_at_once_where_the_gradient_vanishes():
    def flat(L):
        return Evaluated(L, 1.0, np.zeros((D, D)))

    assert len(list(projected_descent(flat, slope, np.eye(D), lambda _: None))) == 1


def test_a_gradient_that_misleads_ends_it():
    """tr A along −I: every step is uphill, however short."""

    def evaluate(L):
        return Evaluated(L, float(np.sum(L**2)), -np.eye(D))

    assert len(list(projected_descent(evaluate, slope, np.eye(D), lambda _: None))) == 1


def test_a_start_of_any_scale(nearest, target):
    """The first step is a share of the start, and steps can double."""
    for scale in (1e-4, 1e4):
        L = descended(nearest, scale * np.eye(D), tol=1e-13, max_iter=5000).iterate.point
        np.testing.assert_allclose(L.T @ L, project_psd(target), atol=1e-4)
