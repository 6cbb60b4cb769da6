"""The ascent with exact steps, on a problem of vectors that is written out here."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import optimize

from nearfar.solvers import Status, run
from nearfar.solvers.line_descent import ascend


@dataclass(frozen=True)
class Proof:
    objective: float
    gap: float


@dataclass(frozen=True)
class Point:
    L: np.ndarray


@dataclass(frozen=True)
class Along:
    direction: np.ndarray
    at: object
    limit: float = 10.0


class Widths:
    """max Σ ‖l ∘ u‖ over l of length 1, by f(l) = ½‖l‖² − Σ ‖l ∘ u‖, u the rows of a table.

    The bound: with B = l² in the simplex it is concave, so that the optimum is at most
    ½ objective + ½ max_j Σ u_j² / ‖l ∘ u‖ for l of length 1.
    """

    def __init__(self, rng):
        self.squares = rng.uniform(0.1, 2.0, (20, 4)) ** 2
        self.certified = 0

    def place(self, L):
        L = L / np.linalg.norm(L)
        return Point(L * np.sqrt(self.squares @ L**2).sum())

    def gradient(self, at):
        return at.L - at.L * (self.squares / np.sqrt(self.squares @ at.L**2)[:, None]).sum(axis=0)

    def line(self, at, direction):
        def f(t):
            L = at.L + t * direction
            lengths = np.sqrt(self.squares @ L**2)
            slope = L - L * (self.squares / lengths[:, None]).sum(axis=0)
            rates = self.squares @ (L * direction) / lengths
            bends = (self.squares @ direction**2 - rates**2) / lengths
            value = 0.5 * L @ L - lengths.sum()
            return value, slope @ direction, direction @ direction - bends.sum()

        return Along(direction, f)

    def bound(self, at):
        unit = at.L / np.linalg.norm(at.L)
        lengths = np.sqrt(self.squares @ unit**2)
        top = (self.squares / lengths[:, None]).sum(axis=0).max()
        objective = lengths.sum()
        return Proof(objective, 0.5 * (objective + top) / objective - 1)

    def certify(self, L):
        self.certified += 1
        return self.bound(Point(L))


@pytest.fixture
def problem(rng):
    return Widths(rng)


@pytest.fixture
def optimum(problem):
    def minus(logs):
        B = np.exp(logs) / np.exp(logs).sum()
        return -np.sqrt(problem.squares @ B).sum()

    return -optimize.minimize(minus, np.zeros(4), options={"gtol": 1e-9}).fun


def test_reaches_the_optimum_with_a_proof(problem, optimum):
    solution = run(ascend(problem, np.ones(4), 1e-6), tol=1e-6, max_iter=200)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.residual <= 1e-6
    assert solution.iterate.certificate.objective == pytest.approx(optimum, rel=2e-6)
    assert solution.iterate.value == -solution.iterate.certificate.objective
    assert problem.certified == 1
    gaps = [record["duality_gap"] for record in solution.history]
    assert gaps == [None] * (solution.n_iter - 1) + [solution.iterate.residual]
    assert None not in [record["residual"] for record in solution.history]


def test_the_trace_has_the_objective_which_grows(problem):
    solution = run(ascend(problem, np.ones(4), 1e-6), tol=1e-6, max_iter=200)
    objectives = [record["objective"] for record in solution.history]
    assert objectives[0] == problem.bound(Point(np.ones(4))).objective
    assert (np.diff(objectives) > 0).all()
    assert solution.n_iter > 2


def test_ends_by_itself_with_a_proof_where_rounding_allows_no_more(problem, optimum):
    iterates = list(ascend(problem, np.ones(4), 0.0))
    assert iterates[-1].certificate.objective == pytest.approx(optimum, rel=1e-7)
    assert iterates[-1].residual < 1e-9
    assert problem.certified == sum(iterate.certified for iterate in iterates) >= 1
    assert iterates[-1].certified


def test_a_fixed_rank_stops_by_what_a_step_promises(problem, optimum):
    """Without certificates; the gain that was left is no more than twice the promise."""
    solution = run(ascend(problem, np.ones(4), 1e-4, fixed_rank=True), tol=1e-4, max_iter=200)
    assert solution.status is Status.CONVERGED
    assert problem.certified == 0
    assert {record["duality_gap"] for record in solution.history} == {None}
    left = optimum / solution.iterate.certificate.objective - 1
    assert left < 1e-4


def test_a_start_at_the_optimum_is_one_iterate(problem):
    first = run(ascend(problem, np.ones(4), 1e-8), tol=1e-8, max_iter=200)
    again = run(ascend(problem, first.iterate.point, 1e-6), tol=1e-6, max_iter=200)
    assert again.n_iter == 1
