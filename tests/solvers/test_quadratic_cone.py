"""The interior point method on programs whose answer is known."""

from dataclasses import dataclass

import numpy as np
import pytest

from nearfar.linalg import project_psd, smat, svec
from nearfar.solvers import Status, run
from nearfar.solvers.quadratic_cone import quadratic_cone


@dataclass(frozen=True)
class Certificate:
    objective: float
    bound: float
    gap: float


@dataclass(frozen=True)
class Program:
    """Maximise ⟨g, Z⟩ − ½⟨Z, G(Z)⟩; a bound is known from the answer."""

    G: np.ndarray
    g: np.ndarray
    best: float = 0.0

    @property
    def size(self):
        return len(smat(self.g))

    def slope(self, Z):
        return smat(self.G @ svec(Z) - self.g)

    def certificate(self, Z):
        z = svec(Z)
        objective = self.g @ z - 0.5 * z @ self.G @ z
        return Certificate(objective, self.best, self.best - objective)


@pytest.mark.parametrize("m", [1, 2, 7])
def test_the_nearest_matrix_in_the_cone(rng, m):
    """With G = I the answer is the projection of g, whose objective is half its square."""
    A = rng.normal(size=(m, m))
    A = A + A.T + 0.5 * np.eye(m)
    nearest = project_psd(A)
    p = len(svec(A))
    program = Program(np.eye(p), svec(A), 0.5 * np.sum(nearest**2))
    solution = run(quadratic_cone(program), tol=1e-10, max_iter=40)
    assert solution.status is Status.CONVERGED
    np.testing.assert_allclose(solution.iterate.point, nearest, atol=1e-4)


def test_an_answer_of_zero(rng):
    """No Z is better than none where g is negative definite."""
    A = rng.normal(size=(4, 4))
    program = Program(np.eye(10), svec(-A @ A.T - np.eye(4)), 0.0)
    solution = run(quadratic_cone(program), tol=1e-9, max_iter=40)
    assert solution.status is Status.CONVERGED
    assert np.abs(solution.iterate.point).max() < 1e-6


def test_a_singular_quadratic_part(rng):
    """G = aaᵀ and g = 2a with a = svec(P), P ≻ 0: any Z ⪰ 0 with ⟨P, Z⟩ = 2 has the value 2."""
    L = rng.normal(size=(5, 5))
    P = L @ L.T + np.eye(5)
    a = svec(P)
    solution = run(quadratic_cone(Program(np.outer(a, a), 2 * a, 2.0)), tol=1e-10, max_iter=40)
    assert solution.status is Status.CONVERGED
    assert np.vdot(P, solution.iterate.point) == pytest.approx(2, rel=1e-4)


def test_scales_do_not_matter(rng):
    A = rng.normal(size=(3, 3))
    A = A + A.T + np.eye(3)
    counts = []
    for scale in (1e-8, 1.0, 1e8):
        best = 0.5 * scale**2 * np.sum(project_psd(A) ** 2)
        program = Program(np.eye(6), scale * svec(A), best)
        solution = run(quadratic_cone(program), tol=1e-9 * scale**2, max_iter=40)
        assert solution.status is Status.CONVERGED
        counts.append(solution.n_iter)
    assert len(set(counts)) == 1


def test_it_ends_by_itself_where_nothing_is_left_to_gain(rng):
    A = rng.normal(size=(3, 3))
    program = Program(np.eye(6), svec(A @ A.T), 1e9)  # a bound that is never reached
    solution = run(quadratic_cone(program), tol=0.0, max_iter=500)
    assert solution.status is Status.STALLED
    np.testing.assert_allclose(solution.iterate.point, A @ A.T, rtol=1e-6)
