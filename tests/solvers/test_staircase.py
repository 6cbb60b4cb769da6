"""Descent in few columns, with proofs: the largest eigenvalues of a matrix as an example.

F(Y) = ‖YYᵀ − A‖² / 4 over Y (n, r), with the eigenvalues A = diag(3, 2, 1, −1, …): the best YYᵀ has
rank 3 and is the positive part of A.
"""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from nearfar.solvers import Status, run
from nearfar.solvers.rank_increasing import Proof
from nearfar.solvers.staircase import MOST_COLUMNS, ROUND, staircase

A = np.diag([3.0, 2.0, 1.0, -1.0, -2.0])
BEST = 0.25 * (1 + 4)


@dataclass(frozen=True)
class Place:
    Y: np.ndarray
    value: float
    gradient: np.ndarray


@dataclass(frozen=True)
class Ray:
    problem: "Distance"
    Y: np.ndarray
    direction: np.ndarray
    limit: float = np.inf

    def at(self, t):
        place, step, P = self.problem.place(self.Y + t * self.direction), 1e-5, self.direction
        slopes = [
            np.vdot(self.problem.place(self.Y + s * P).gradient, P) for s in (t - step, t + step)
        ]
        curvature = (slopes[1] - slopes[0]) / (2 * step)
        return place.value, float(np.vdot(place.gradient, P)), float(curvature)


class Distance:
    updates = 0

    def place(self, Y):
        R = Y @ Y.T - A
        return Place(Y, 0.25 * float(np.sum(R * R)), R @ Y)

    def line(self, at, direction):
        return Ray(self, at.Y, direction)

    def moved(self, at, line, t):
        return self.place(at.Y + t * line.direction)

    def successor(self, _):
        self.updates += 1
        return self


def prove(at):
    """The lowest eigenvector of the slope YYᵀ − A is what Y lacks."""
    values, vectors = np.linalg.eigh(at.Y @ at.Y.T - A)
    lacking = values < -1e-6
    return Proof(max(at.value - BEST, 0.0), vectors[:, lacking][:, :1], certificate="proof")


def test_columns_are_added_until_the_optimum_is_proved(rng):
    start = 0.1 * rng.normal(size=(5, 1))
    problem = Distance()
    found = run(staircase(problem, start, lambda G: G, prove), tol=1e-9, max_iter=100)
    assert found.status is Status.CONVERGED
    assert found.iterate.point.shape == (5, 3)
    np.testing.assert_allclose(
        found.iterate.point @ found.iterate.point.T, np.diag([3, 2, 1, 0, 0]), atol=1e-4
    )
    assert found.iterate.certificate == "proof"
    proved = [record for record in found.history if record["duality_gap"] is not None]
    assert [record["n_columns"] for record in proved][-1] == 3
    assert problem.updates


def test_an_iterate_is_a_round_of_steps(rng):
    solves = []
    iterates = staircase(
        Distance(), rng.normal(size=(5, 3)), lambda G: solves.append(1) or 1e-3 * G, prove
    )
    first = next(iterates)
    assert first.residual is None
    assert not solves
    second = next(iterates)
    assert second.certified
    assert 2 < len(solves) <= ROUND + 1


def test_it_ends_where_nothing_lowers_the_value():
    start = np.diag([3.0, 2.0, 1.0, 0, 0])[:, :3] ** 0.5
    found = run(staircase(Distance(), start, lambda G: G, prove), tol=-1.0, max_iter=100)
    assert found.status is Status.STALLED
    assert found.iterate.value == pytest.approx(BEST)


def test_no_more_columns_than_allowed(rng):
    start = rng.normal(size=(5, MOST_COLUMNS))
    iterates = staircase(Distance(), start, lambda G: G, lambda _: Proof(1.0, np.ones((5, 3))))
    shapes = {iterate.point.shape[1] for iterate in islice(iterates, 5)}
    assert shapes == {MOST_COLUMNS}


def test_each_round_may_have_its_own_preconditioner(rng):
    """It is made where the round begins, from the problem of that round."""
    problem, made = Distance(), []

    def renewed(of, at):
        made.append((of, at.Y))
        return lambda G: G

    def refused(_):
        raise AssertionError("the first preconditioner is not used")

    start = 0.1 * rng.normal(size=(5, 3))
    iterates = list(islice(staircase(problem, start, refused, prove, renewed), 4))
    assert all(of is problem for of, _ in made)
    for (_, Y), iterate in zip(made, iterates, strict=False):
        np.testing.assert_array_equal(Y, iterate.point)
    assert len(made) >= len(iterates) - 1
