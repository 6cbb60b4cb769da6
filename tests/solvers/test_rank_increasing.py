"""A descent that adds rows, on ½‖LᵀL − T‖²: its optimum is the positive part of T."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from nearfar.solvers import Status, run
from nearfar.solvers.rank_increasing import Proof, rank_increasing_descent


@dataclass(frozen=True)
class Quadratic:
    """½‖LᵀL − T‖² + c, with the optimum c + ½ Σ (negative eigenvalues of T)²."""

    T: np.ndarray
    rest: float = 1.0

    @dataclass(frozen=True)
    class Point:
        L: np.ndarray
        value: float
        gradient: np.ndarray

    def evaluate(self, L):
        difference = L.T @ L - self.T
        value = self.rest + 0.5 * np.vdot(difference, difference)
        return self.Point(L, float(value), 2 * L @ difference)

    @property
    def optimum(self):
        values = np.linalg.eigvalsh(self.T)
        return self.rest + 0.5 * np.sum(np.minimum(values, 0) ** 2)

    def prove(self, L):
        """The value falls by t·slope along vvᵀ if v is an eigenvector of T − LᵀL above zero."""
        value = self.evaluate(L).value
        values, vectors = np.linalg.eigh(self.T - L.T @ L)
        steep = values > 1e-9 * np.abs(self.T).max()
        directions = (vectors[:, steep] * np.sqrt(values[steep])).T
        return Proof((value - self.optimum) / value, directions, ("of", len(L)))

    def iterates(self, start, tol):
        def remaining(at, gain):
            return 10 * gain / at.value

        return rank_increasing_descent(self.evaluate, start, remaining, self.prove, tol)


@pytest.fixture
def quadratic(rng):
    """Eigenvalues 5, 3, 2, -1, -2 and 0 in random directions."""
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return Quadratic(Q @ np.diag([5.0, 3.0, 2.0, -1.0, -2.0, 0.0]) @ Q.T)


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_rows_are_added_until_the_proof_holds(quadratic, rows, rng):
    solution = run(quadratic.iterates(rng.normal(size=(rows, 6)), 1e-8), tol=1e-8, max_iter=500)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.value == pytest.approx(quadratic.optimum, rel=1e-7)
    L = solution.iterate.point
    assert max(rows, 3) <= len(L) <= rows + 4
    values, vectors = np.linalg.eigh(quadratic.T)
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(L.T @ L, positive, atol=1e-2)
    assert solution.iterate.certificate == ("of", len(L))


def test_the_value_falls_also_where_rows_are_added(quadratic, rng):
    iterates = [
        iterate
        for iterate in islice(quadratic.iterates(rng.normal(size=(1, 6)), 1e-6), 60)
        if iterate.value > quadratic.optimum * (1 + 1e-6)
    ]
    values = [iterate.value for iterate in iterates]
    assert len({len(iterate.point) for iterate in iterates}) > 1
    assert (np.diff(values) <= 1e-12).all()


def test_only_what_a_proof_was_tried_of_has_a_residual(quadratic, rng):
    solution = run(quadratic.iterates(rng.normal(size=(1, 6)), 1e-6), tol=1e-6, max_iter=500)
    gaps = [record["duality_gap"] for record in solution.history]
    tried = [gap for gap in gaps if gap is not None]
    assert gaps[-1] == tried[-1] <= 1e-6
    assert 2 <= len(tried) < len(gaps) / 2
    assert [record["residual"] for record in solution.history] == gaps


def test_it_ends_where_nothing_lowers_the_value(quadratic):
    """At zero the gradient vanishes, and new rows as long as the others have no length. A tolerance
    of zero is not met."""
    assert len(list(quadratic.iterates(np.zeros((1, 6)), 1e-6))) <= 2
    solution = run(quadratic.iterates(np.eye(3, 6), 0.0), tol=0.0, max_iter=500)
    assert solution.status in (Status.STALLED, Status.CONVERGED)
    assert solution.iterate.residual == pytest.approx(0, abs=1e-12)


def test_directions_that_do_not_lower_the_value_are_not_added(quadratic, rng):
    """A proof that names wrong directions does not lead astray: the descent ends."""
    values, vectors = np.linalg.eigh(quadratic.T)
    wrong = vectors[:, :1].T

    def prove(_):
        return Proof(1.0, wrong)

    solution = run(
        rank_increasing_descent(
            quadratic.evaluate, rng.normal(size=(3, 6)), lambda _, gain: gain, prove, 1e-6
        ),
        tol=1e-6,
        max_iter=500,
    )
    assert values[0] == pytest.approx(-2)
    assert solution.status is Status.STALLED
    assert solution.iterate.point.shape == (3, 6)
    assert solution.iterate.value == pytest.approx(quadratic.optimum, rel=1e-6)
