"""Conjugate gradients: exact steps, few of them on quadratics, and a sound end."""

from dataclasses import dataclass

import numpy as np
import pytest

from nearfar.solvers import Status, run
from nearfar.solvers.conjugate_gradient import RECENT, conjugate_gradient


@dataclass(frozen=True)
class Place:
    Y: np.ndarray
    value: float
    gradient: np.ndarray
    size: float = 1.0


@dataclass(frozen=True)
class Quadratic:
    """½⟨Y, AY⟩ − ⟨B, Y⟩."""

    A: np.ndarray
    B: np.ndarray

    def place(self, Y):
        value = 0.5 * np.vdot(Y, self.A @ Y) - np.vdot(self.B, Y)
        return Place(Y, value, self.A @ Y - self.B)

    def line(self, at, direction):
        square = 0.5 * np.vdot(direction, self.A @ direction)
        return np.array([0, 0, square, np.vdot(at.gradient, direction)]), direction

    def moved(self, at, line, t):
        return self.place(at.Y + t * line)


@dataclass(frozen=True)
class Norms:
    """Σ (yᵢ² − 1)², with minima at all signs and none elsewhere."""

    def place(self, Y):
        return Place(Y, np.sum((Y**2 - 1) ** 2), 4 * Y * (Y**2 - 1))

    def line(self, at, p):
        a, b, c = at.Y**2 - 1, 2 * at.Y * p, p**2
        return np.array([c @ c, 2 * b @ c, b @ b + 2 * a @ c, 2 * a @ b]), p

    def moved(self, at, line, t):
        return self.place(at.Y + t * line)


def test_a_quadratic_takes_as_many_steps_as_it_has_eigenvalues(rng):
    """Four different ones of twelve; the first iterate is the start."""
    Q, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    A = (Q * np.repeat([1.0, 3.0, 10.0, 40.0], 3)) @ Q.T
    problem = Quadratic(A, rng.normal(size=(12, 2)))
    iterates = conjugate_gradient(problem, np.zeros((12, 2)), lambda G: G)
    places = [next(iterates).point for _ in range(5)]
    answer = np.linalg.solve(A, problem.B)
    np.testing.assert_allclose(places[-1], answer, atol=1e-10)
    assert np.abs(places[-2] - answer).max() > 1e-3


def test_the_inverse_as_preconditioner_takes_one_step(rng):
    L = rng.normal(size=(9, 9))
    A = L @ L.T + 0.01 * np.eye(9)
    problem = Quadratic(A, rng.normal(size=(9, 1)))
    iterates = conjugate_gradient(problem, np.zeros((9, 1)), lambda G: np.linalg.solve(A, G))
    next(iterates)
    np.testing.assert_allclose(next(iterates).point, np.linalg.solve(A, problem.B), rtol=1e-8)


def test_values_never_rise_and_a_minimum_is_reached(rng):
    iterates = conjugate_gradient(Norms(), rng.normal(size=6), lambda G: G)
    solution = run(iterates, tol=1e-12, max_iter=200)
    assert solution.status is Status.CONVERGED
    values = [-record["objective"] for record in solution.history]
    assert (np.diff(values) <= 1e-15).all()
    np.testing.assert_allclose(np.abs(solution.iterate.point), 1, atol=1e-5)


def test_the_residual_is_what_recent_steps_gained(rng):
    A = np.diag(np.geomspace(1, 1e4, 40))
    problem = Quadratic(A, rng.normal(size=(40, 1)))
    iterates = conjugate_gradient(problem, np.zeros((40, 1)), lambda G: G)
    seen = [next(iterates) for _ in range(RECENT + 3)]
    assert [one.residual for one in seen[:RECENT]] == [None] * RECENT
    for k in range(RECENT, len(seen)):
        assert seen[k].residual == pytest.approx(seen[k - RECENT].value - seen[k].value)


def test_a_start_without_slope_is_an_answer():
    solution = run(conjugate_gradient(Norms(), np.ones(3), lambda G: G), tol=1e-9, max_iter=9)
    assert (solution.status, solution.n_iter) == (Status.CONVERGED, 1)
