"""Majorisation with a memory, on functions whose minimum and majorising curvature are known."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from nearfar.solvers import Status, run
from nearfar.solvers.majorization import majorize
from nearfar.solvers.quasi_newton import LBFGS


@dataclass(frozen=True)
class At:
    Y: object
    value: float
    slope: object
    step: object


class Logarithms:
    """Σ log(1 + aᵢ yᵢ²) + b·y²/2 with curvature at most V = 2aᵢ + b: half of it majorises."""

    def __init__(self, rng, size=30):
        self.a = 10 ** rng.uniform(-2, 2, size=(size, 1))
        self.b = 0.01
        self.calls = 0

    def evaluate(self, Y):
        self.calls += 1
        value = float(np.sum(np.log1p(self.a * Y**2)) + self.b * np.sum(Y**2) / 2)
        half = self.a * Y / (1 + self.a * Y**2) + self.b * Y / 2
        return At(Y, value, half, -half / (self.a + self.b / 2))


@pytest.fixture
def problem(rng):
    return Logarithms(rng)


@pytest.fixture
def start(rng):
    return rng.normal(size=(30, 1)) * 3


def absolute(_, gain):
    return gain


def test_finds_the_minimum(problem, start):
    solution = run(majorize(problem.evaluate, start, absolute), tol=1e-14, max_iter=500)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.value < 1e-12


def test_never_raises_the_value(problem, start):
    values = [it.value for it in islice(majorize(problem.evaluate, start, absolute), 60)]
    assert (np.diff(values) <= 0).all()
    assert values[-1] < values[0]


def test_a_memory_is_quicker_than_none(problem, start, monkeypatch):
    with_memory = run(majorize(problem.evaluate, start, absolute), tol=1e-9, max_iter=20000)
    calls, problem.calls = problem.calls, 0
    monkeypatch.setattr(LBFGS, "remember", lambda *_: None)
    without = run(majorize(problem.evaluate, start, absolute), tol=1e-9, max_iter=20000)
    assert with_memory.status is without.status is Status.CONVERGED
    assert calls < problem.calls / 3


def test_without_a_memory_the_steps_are_those_of_majorisation(problem, start, monkeypatch):
    monkeypatch.setattr(LBFGS, "remember", lambda *_: None)
    points = [it.point for it in islice(majorize(problem.evaluate, start, absolute), 5)]
    Y = start
    for point in points:
        np.testing.assert_array_equal(point, Y)
        Y = Y + problem.evaluate(Y).step


def test_a_quadratic_function_is_solved_by_one_step(rng):
    """Where the majorising function is the function itself."""
    C = rng.normal(size=(8, 2))

    def evaluate(Y):
        return At(Y, float(np.sum((Y - C) ** 2)), Y - C, C - Y)

    solution = run(majorize(evaluate, np.zeros((8, 2)), absolute), tol=1e-20, max_iter=10)
    assert solution.status is Status.CONVERGED
    np.testing.assert_allclose(solution.iterate.point, C)
    assert solution.n_iter <= 3


def test_a_start_at_the_minimum_ends_at_once():
    def evaluate(Y):
        return At(Y, float(np.sum(Y**2)), Y, -Y)

    solution = run(majorize(evaluate, np.zeros((3, 2)), absolute), tol=1e-20, max_iter=10)
    assert solution.status is Status.CONVERGED
    assert solution.n_iter == 2


def test_a_step_that_is_too_long_is_halved():
    """y⁴ with a step that claims too little curvature."""

    def evaluate(Y):
        return At(Y, float(np.sum(Y**4)), 2 * Y**3, -50 * Y**3)

    values = [it.value for it in islice(majorize(evaluate, np.ones((4, 1)), absolute), 30)]
    assert (np.diff(values) <= 0).all()
    assert values[-1] < 1e-6 * values[0]


def test_slopes_that_lie_end_the_run():
    """No step lowers a value that always grows: the solver ends by itself."""
    calls = []

    def evaluate(Y):
        calls.append(1)
        return At(Y, float(len(calls)), Y, -Y)

    solution = run(majorize(evaluate, np.ones((2, 2)), absolute), tol=1e-9, max_iter=10)
    assert solution.status is Status.STALLED
    np.testing.assert_array_equal(solution.iterate.point, np.ones((2, 2)))


def test_a_value_that_is_not_finite_is_not_accepted(problem, start):
    """Beyond a wall the value is NaN: steps that cross it are shortened."""
    wall = np.abs(start).max() * 1.01

    def evaluate(Y):
        at = problem.evaluate(Y)
        far = np.abs(Y).max() > wall
        return At(Y, np.nan if far else at.value, at.slope, 40 * at.step)

    values = [it.value for it in islice(majorize(evaluate, start, absolute), 40)]
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 0).all()


def test_on_torch(torch, rng):
    C = torch.tensor(rng.normal(size=(8, 2)))
    scale = torch.tensor(10 ** rng.uniform(-1, 1, size=(8, 1)))

    def evaluate(Y):
        slope = scale * (Y - C)
        return At(Y, float((scale * (Y - C) ** 2).sum()), slope, -slope / scale.max())

    solution = run(
        majorize(evaluate, torch.zeros((8, 2)).double(), absolute), tol=1e-16, max_iter=99
    )
    assert solution.status is Status.CONVERGED
    np.testing.assert_allclose(solution.iterate.point.numpy(), C.numpy(), atol=1e-6)
