"""GMML: equations (1) to (11), against plain loops and independent formulas."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.kernels import kernels_for
from nearfar.problems import gmml
from nearfar.problems.gmml import GMMLProblem, scatters_of_labels, scatters_of_pairs
from nearfar.supervision import class_order
from nearfar.supervision.pairs import pairs_of_labels

D = 4


@pytest.fixture
def data(rng):
    """Correlated features, and classes of 3, 5 and 12 points."""
    X = rng.normal(size=(20, D)) @ rng.normal(size=(D, D))
    return X + 1e3, rng.permutation(np.repeat([0, 1, 2], [3, 5, 12]))


def loops(X, y):
    """(1) and (2), pair by pair."""
    near, far = np.zeros((D, D)), np.zeros((D, D))
    for i in range(len(X)):
        for j in range(i):
            target = near if y[i] == y[j] else far
            target += np.outer(X[i] - X[j], X[i] - X[j])
    return near, far


def distance(P, Q):
    """δ² of (4)."""
    return float((np.log(linalg.eigvals(np.linalg.solve(P, Q)).real) ** 2).sum())


@pytest.fixture
def scatters(data):
    return loops(*data)


@pytest.fixture
def other(rng):
    """A positive definite matrix."""
    root = rng.normal(size=(D, D))
    return root @ root.T + 0.3 * np.eye(D)


def test_scatters_are_those_of_the_loops(data, scatters, backend):
    X, y = data
    labels, moved = class_order(y, "GMML"), backend.asarray(X)
    pairs = pairs_of_labels(moved, labels, None, None, "GMML")
    for found in (
        scatters_of_pairs(kernels_for(moved), pairs),
        scatters_of_labels(kernels_for(moved), moved, labels),
    ):
        np.testing.assert_allclose(found[0], scatters[0], rtol=1e-8)
        np.testing.assert_allclose(found[1], scatters[1], rtol=1e-8)


@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_the_answer_is_the_weighted_geometric_mean(scatters, t):
    """By powers of matrices: S^(−1/2) (S^(1/2) D S^(1/2))^t S^(−1/2)."""
    S, far = scatters
    root = linalg.sqrtm(S).real
    power = linalg.fractional_matrix_power(root @ far @ root, t).real
    expected = np.linalg.inv(root) @ power @ np.linalg.inv(root)
    L = GMMLProblem.of_scatters(S, far, t).solution()
    np.testing.assert_allclose(L.T @ L, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def test_half_way_solves_the_equation_of_riccati_and_minimises_the_first_objective(scatters, rng):
    """A S A = D, and ⟨A, S⟩ + ⟨A⁻¹, D⟩ grows in every direction."""
    S, far = scatters
    L = GMMLProblem.of_scatters(S, far, 0.5).solution()
    A = L.T @ L
    np.testing.assert_allclose(A @ S @ A, far, rtol=1e-7)

    def value(B):
        return np.vdot(B, S) + np.vdot(np.linalg.inv(B), far)

    for _ in range(5):
        step = rng.normal(size=(D, D))
        step = 1e-2 * L.T @ (step + step.T) @ L
        assert value(A + step) > value(A) < value(A - step)


@pytest.mark.parametrize("t", [0.2, 0.9])
def test_near_the_answer_the_excess_is_bounded_without_a_spectrum(scatters, rng, t, monkeypatch):
    """(10) is no less than the excess, of second order as that is, and no more than needed."""
    problem = GMMLProblem.of_scatters(*scatters, t)
    moved = (np.eye(D) + 2e-6 * rng.normal(size=(D, D))) @ problem.solution()
    assert problem._distance_to_answer(moved) < 1e-4
    bounded = problem.objective_and_gap(moved)
    monkeypatch.setattr(gmml, "CLOSE", 0.0)
    assert problem._distance_to_answer(moved) is None
    exact = problem.objective_and_gap(moved)
    assert bounded[0] == pytest.approx(exact[0], rel=1e-9)
    assert 1e-13 < exact[1] < bounded[1] < 30 * exact[1] + 1e-12


@pytest.mark.parametrize("t", [0.2, 0.9])
def test_objective_and_gap_are_those_of_the_definition(scatters, other, t):
    """No metric is below t (1 − t) δ²(S⁻¹, D), which the answer attains."""
    S, far = scatters
    problem = GMMLProblem.of_scatters(S, far, t)
    inverse = np.linalg.inv(S)
    optimum = t * (1 - t) * distance(inverse, far)
    for A in (other, 100 * other, np.eye(D)):
        value = (1 - t) * distance(A, inverse) + t * distance(A, far)
        objective, gap = problem.objective_and_gap(linalg.cholesky(A))
        assert objective == pytest.approx(value, rel=1e-8)
        assert gap == pytest.approx((value - optimum) / value, rel=1e-6)
    objective, gap = problem.objective_and_gap(problem.solution())
    assert objective == pytest.approx(optimum, rel=1e-9)
    assert gap < 1e-12


def test_scatters_are_shrunk_to_the_prior_in_units_of_the_scatters(scatters, other):
    S, far = scatters
    for scale in (1.0, 1e6):  # of the prior, which does not matter
        problem = GMMLProblem.of_scatters(S, far, 0.5).shrunk(0.2, scale * other)
        inverse = np.linalg.inv(other)
        near_part, far_part = np.vdot(S, other) / D, np.vdot(far, inverse) / D
        np.testing.assert_allclose(problem.S, 0.8 * S + 0.2 * near_part * inverse, rtol=1e-9)
        np.testing.assert_allclose(problem.D, 0.8 * far + 0.2 * far_part * other, rtol=1e-9)


def test_much_of_the_prior_gives_a_multiple_of_it(scatters, other):
    problem = GMMLProblem.of_scatters(*scatters, 0.5).shrunk(1 - 1e-9, other)
    L = problem.solution()
    ratio = (L.T @ L) / other
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-6)


def test_badly_scaled_features_are_resolved():
    """Of independent features the answer is diagonal: √(d_i / s_i), whatever their units are."""
    units = np.array([1.0, 1e-3, 1e3, 1e-5])
    S, far = np.diag(units**2 * [1, 2, 3, 4]), np.diag(units**2 * [4, 3, 2, 1])
    problem = GMMLProblem.of_scatters(S, far, 0.5)
    L = problem.solution()
    np.testing.assert_allclose(np.diag(L.T @ L), np.sqrt([4, 1.5, 2 / 3, 0.25]), rtol=1e-9)
    assert problem.objective_and_gap(L)[1] < 1e-9


def test_on_a_span_the_metric_is_that_of_its_coordinates(scatters, rng):
    Q = linalg.qr(rng.normal(size=(7, D)), mode="economic")[0]
    S, far = (Q @ part @ Q.T for part in scatters)
    problem = GMMLProblem.of_scatters(S, far, 0.5)
    assert (problem.rank, problem.ranks) == (D, (D, D))
    L, plain = problem.solution(), GMMLProblem.of_scatters(*scatters, 0.5).solution()
    np.testing.assert_allclose(L.T @ L, Q @ plain.T @ plain @ Q.T, rtol=1e-6, atol=1e-9)
    assert problem.objective_and_gap(L)[1] < 1e-9


def test_ranks_tell_which_pairs_leave_directions_open(rng):
    a, b = rng.normal(size=(2, D)), rng.normal(size=(3, D))
    problem = GMMLProblem.of_scatters(a.T @ a, b.T @ b, 0.5)
    assert (problem.rank, problem.ranks) == (4, (2, 3))
