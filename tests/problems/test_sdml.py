"""SDML: equations (3) to (8), against the definition, a general solver's optimum and each other."""

import numpy as np
import pytest
from scipy.optimize import minimize

from nearfar.problems.sdml import SDMLProblem, largest_balance
from nearfar.solvers.graphical_lasso import graphical_lasso, solution

D = 4


@pytest.fixture
def S(rng):
    root = rng.normal(size=(D, D))
    return root @ root.T / D + 0.3 * np.eye(D)


def plain_value(A, S, penalty):
    total = np.trace(A @ S) - np.log(np.linalg.det(A))
    for i in range(D):
        for j in range(D):
            total += penalty * abs(A[i, j]) * (i != j)
    return total


def test_the_value_is_that_of_the_definition(S, rng):
    root = rng.normal(size=(D, D))
    A = root @ root.T + np.eye(D)
    problem = SDMLProblem(S, 0.3, log_volume=1.7)
    assert problem.value(A) == pytest.approx(plain_value(A, S, 0.3) + 1.7 - D, rel=1e-12)
    assert problem.value(A - 2 * np.eye(D) * np.linalg.eigvalsh(A)[-1]) == np.inf
    assert problem.value(np.diag([-1.0, -1.0, 1.0, 1.0])) == np.inf  # of positive determinant


@pytest.mark.parametrize("penalty", [0.05, 0.2])
def test_the_optimum_is_that_of_a_general_solver(S, penalty):
    """A = FFᵀ with F free, from several starts: no solver finds less than the certified optimum."""
    problem = SDMLProblem(S, penalty)
    *_, last = graphical_lasso(problem)
    assert last.residual <= 1e-9
    found = min(
        minimize(
            lambda f: plain_value(f.reshape(D, D) @ f.reshape(D, D).T, S, penalty),
            np.linalg.cholesky(np.linalg.inv(S)).ravel() * scale,
            method="Powell",
            options={"maxiter": 20000, "ftol": 1e-12, "xtol": 1e-9},
        ).fun
        for scale in (1.0, 0.7)
    )
    assert last.value + D <= found + 1e-9
    assert found - D <= last.value + 1e-3


def test_every_dual_point_bounds_every_metric(S, rng):
    problem = SDMLProblem(S, 0.2)
    *_, last = graphical_lasso(problem)
    for _ in range(20):
        W = S + rng.uniform(-0.3, 0.3, size=(D, D))
        dual = problem.dual_point(W)
        np.testing.assert_array_equal(np.diag(dual), np.diag(S))
        assert (np.abs(dual - S) <= 0.2 + 1e-15).all()
        assert np.linalg.eigvalsh(dual)[0] > 0
        assert problem.bound(dual) <= last.value + 1e-9


def test_the_gap_vanishes_without_a_penalty(S):
    A, W = solution(SDMLProblem(S, 0.0), 1e-8)
    np.testing.assert_allclose(A, np.linalg.inv(S), rtol=1e-8)
    np.testing.assert_allclose(W, S, rtol=1e-8)


def test_blocks_are_solved_as_the_whole():
    """Entries of S between the blocks are within λ: those of the optimum are 0."""
    S = np.array(
        [[2.0, 0.9, 0.05, 0.0], [0.9, 2.0, 0.0, 0.1], [0.05, 0.0, 1.0, -0.5], [0.0, 0.1, -0.5, 1.0]]
    )
    problem = SDMLProblem(S, 0.1)
    assert [block.tolist() for block in problem.blocks] == [[0, 1], [2, 3]]
    *_, last = graphical_lasso(problem)
    assert last.residual <= 1e-9
    assert not last.point[:2, 2:].any()


def test_the_largest_balance_is_where_the_matrix_becomes_singular(rng):
    Q = rng.normal(size=(D, D))
    Q = Q + Q.T
    L = rng.normal(size=(D, D)) + 3 * np.eye(D)
    limit = largest_balance(Q, L)
    inverse = np.linalg.inv(L.T @ L)
    assert np.linalg.eigvalsh(inverse + 0.999 * limit * Q)[0] > 0
    assert np.linalg.eigvalsh(inverse + 1.001 * limit * Q)[0] < 0
    assert largest_balance(Q @ Q, L) == np.inf
