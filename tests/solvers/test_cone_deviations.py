"""Least absolute deviations in a cone: known answers, and a general solver on general cones."""

from dataclasses import dataclass

import clarabel
import numpy as np
import pytest
from scipy.optimize import linprog

from nearfar.solvers.cone_deviations import least_deviations
from tests.conic import solve_conic

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # callers silence them


@dataclass(frozen=True)
class Balls:
    """Minimise Σ|Ax + b| + cᵀx over the ball ‖x‖ ≤ R, so that u = (R, x).

    The dual bound is min over the ball of (c + Aᵀσ)ᵀx + bᵀσ = bᵀσ − R‖c + Aᵀσ‖.
    """

    A: np.ndarray
    b: np.ndarray
    c: np.ndarray
    radius: float
    numbers: np.ndarray

    @property
    def G(self):
        v = self.A.shape[1]
        return np.vstack([np.zeros(v), np.eye(v)])

    @property
    def h(self):
        return self.radius * np.eye(self.A.shape[1] + 1)[:, :1]

    def start(self):
        m, v = self.A.shape[2], self.A.shape[1]
        z = np.vstack([np.full((1, m), 1 + np.linalg.norm(self.c)), self.c + np.zeros((v, m))])
        return np.zeros((v, m)), z

    def gap(self, x, sigma):
        value = np.abs((self.A * x).sum(axis=1) + self.b).sum(axis=0) + (self.c * x).sum(axis=0)
        slope = self.c + (self.A * sigma[:, None]).sum(axis=0)
        bound = (self.b * sigma).sum(axis=0) - self.radius * np.linalg.norm(slope, axis=0)
        assert not (np.linalg.norm(x, axis=0) > self.radius * (1 + 1e-12)).any()
        assert not (np.abs(sigma) > 1 + 1e-12).any()  # nan where it broke down
        return value - bound

    def take(self, chosen):
        return Balls(
            self.A[..., chosen], self.b[:, chosen], self.c, self.radius, self.numbers[chosen]
        )


def balls(rng, k, v, m, radius):
    A, b, c = rng.normal(size=(k, v, m)), rng.normal(size=(k, m)), 0.5 * rng.normal(size=(v, 1))
    return Balls(A, b, c, radius, np.arange(m))


def by_clarabel(A, b, c, radius):
    """The optimum, for the unknowns x and bounds t on |Ax + b|."""
    k, v = A.shape
    G = np.block(
        [
            [A, -np.eye(k)],
            [-A, -np.eye(k)],
            [np.zeros((1, v + k))],
            [-np.eye(v), np.zeros((v, k))],
        ]
    )
    constants = np.concatenate([-b, b, [radius], np.zeros(v)])
    cones = [clarabel.NonnegativeConeT(2 * k), clarabel.SecondOrderConeT(v + 1)]
    solution = solve_conic(np.concatenate([c, np.ones(k)]), G, constants, cones)
    return solution.obj_val, np.array(solution.x[:v])


@pytest.mark.parametrize("radius", [0.3, 3.0], ids=["small ball", "large ball"])
@pytest.mark.parametrize(("k", "v"), [(3, 1), (6, 2), (4, 5), (12, 4)], ids=str)
def test_the_optimum_is_that_of_another_solver(rng, k, v, radius):
    problems = balls(rng, k, v, 8, radius)
    found = least_deviations(problems, tol=1e-9)
    np.testing.assert_allclose(found.gap, problems.gap(found.x, found.sigma), atol=1e-12)
    assert (found.gap <= 1e-7).all()
    for i in range(8):
        optimum, _ = by_clarabel(problems.A[..., i], problems.b[:, i], problems.c[:, 0], radius)
        ours = np.abs(problems.A[..., i] @ found.x[:, i] + problems.b[:, i]).sum()
        assert ours + problems.c[:, 0] @ found.x[:, i] == pytest.approx(optimum, abs=1e-6)


def test_far_from_the_border_it_is_a_linear_program(rng):
    A, b = rng.normal(size=(9, 2, 5)), rng.normal(size=(9, 5))
    found = least_deviations(Balls(A, b, np.zeros((2, 1)), 100.0, np.arange(5)), tol=1e-9)
    for i in range(5):
        blocks = np.block([[A[..., i], -np.eye(9)], [-A[..., i], -np.eye(9)]])
        cost, limits = np.r_[0, 0, np.ones(9)], np.r_[-b[:, i], b[:, i]]
        program = linprog(cost, blocks, limits, bounds=(None, None))
        np.testing.assert_allclose(found.x[:, i], program.x[:2], atol=1e-6)


def test_problems_do_not_depend_on_those_beside_them(rng):
    problems = balls(rng, 6, 3, 40, 0.7)
    together = least_deviations(problems, tol=1e-9)
    for i in (0, 17, 39):
        alone = problems.take(np.array([i]))
        alone = least_deviations(Balls(alone.A, alone.b, alone.c, 0.7, np.arange(1)), tol=1e-9)
        np.testing.assert_allclose(alone.x[:, 0], together.x[:, i], atol=1e-9)
        assert max(alone.gap[0], together.gap[i]) <= 1e-9


def test_a_problem_that_breaks_down_keeps_its_best_point(rng):
    """A tolerance that rounding does not allow ends in nan or at the last step."""
    problems = balls(rng, 6, 2, 10, 0.7)
    found = least_deviations(problems, tol=0.0)
    assert np.isfinite(found.x).all()
    assert (found.gap <= 1e-9).all()


def test_solved_from_the_start(rng):
    problems = balls(rng, 4, 2, 3, 1.0)
    found = least_deviations(problems, tol=np.inf)
    np.testing.assert_array_equal(found.x, 0)
    np.testing.assert_array_equal(found.sigma, 0)
