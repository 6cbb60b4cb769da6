"""MMC and DML-eig that keep some of the inputs' distance, with weights: against plain loops."""

import numpy as np
import pytest

from nearfar.problems.dml_eig import DMLEigProblem
from nearfar.problems.mmc import DiagonalMMCProblem, MMCProblem
from nearfar.solvers import run
from nearfar.solvers.covering import solve_covering_sdp
from nearfar.solvers.quasi_newton import ascend
from nearfar.supervision import Pairs, class_order
from nearfar.supervision.pairs import pairs_of_labels, weighted_by_points

RHO = 0.3
KINDS = {"full": MMCProblem, "diagonal": DiagonalMMCProblem}


@pytest.fixture
def pairs(rng):
    """40 near and 30 far pairs of 25 points in four features, one of which is constant."""
    X = np.column_stack([rng.normal(size=(25, 3)) * [1, 3, 0.5], np.full(25, 2.0)])
    heads = rng.integers(0, 25, 70)
    tails = (heads + rng.integers(1, 25, 70)) % 25
    return Pairs(X, heads, tails, np.arange(70) < 40, weights=rng.uniform(0.2, 3, 70))


def scatter(pairs):
    """S of (1) of problems/mmc.py, its T, and the far differences with their weights."""
    x = pairs.points[pairs.heads] - pairs.points[pairs.tails]
    S = sum(
        w * np.outer(row, row) for w, row in zip(pairs.near_weights, x[pairs.near], strict=True)
    )
    T = np.trace(S)
    live = np.diag([1.0, 1, 1, 0])
    return (1 - RHO) * S + RHO * T / 3 * live, T, x[~pairs.near], pairs.far_weights


@pytest.fixture(params=KINDS)
def problem(pairs, request):
    return KINDS[request.param].build(pairs, pairs.points.mean(axis=0), RHO)


def factor_of(problem, rng):
    if problem.basis.ndim == 1:
        return rng.uniform(0.5, 1.5, 4) * (problem.basis > 0)
    return rng.normal(size=(3, 3))


def test_the_metric_keeps_its_floor_and_its_budget(pairs, problem, rng):
    S, T, x, w = scatter(pairs)
    L = factor_of(problem, rng)
    for components in (problem.components(L), problem.returned(L)):
        A = components.T @ components
        S = np.diag(np.diag(S)) if problem.basis.ndim == 1 else S
        assert np.sum(S * A) == pytest.approx(1)
        assert np.linalg.eigvalsh(A[:3, :3])[0] >= RHO / T * (1 - 1e-9)
        assert not A[3].any()
    certificate = problem.certify(L)
    assert certificate.constraint == pytest.approx(1)
    assert certificate.objective == pytest.approx(w @ np.sqrt(np.einsum("ij,jk,ik->i", x, A, x)))


def f(problem, pairs, L):
    """½‖L‖² − Σ w ℓ with ℓ² = ‖Lu‖² + c‖L‖², one pair at a time."""
    _, T, x, w = scatter(pairs)
    total = 0.5 * np.sum(L * L)
    for row, weight in zip(x, w, strict=True):
        u = row * problem.basis if problem.basis.ndim == 1 else problem.basis.T @ row
        z = L * u if problem.basis.ndim == 1 else L @ u
        total -= weight * np.sqrt(z @ z + RHO / T * (row @ row) * np.sum(L * L))
    return total


def test_gradient_and_line_are_those_of_finite_differences(pairs, problem, rng):
    at = problem.place(factor_of(problem, rng))
    step, numeric = 1e-5 * np.linalg.norm(at.L), np.zeros_like(at.L)
    for entry in np.ndindex(at.L.shape):
        change = np.zeros_like(at.L)
        change[entry] = step
        ahead, behind = (f(problem, pairs, at.L + sign * change) for sign in (1, -1))
        numeric[entry] = (ahead - behind) / (2 * step)
    size = np.linalg.norm(at.L)
    np.testing.assert_allclose(problem.gradient(at), numeric, atol=1e-7 * size)
    direction = factor_of(problem, rng) * size
    line = problem.line(at, direction)
    for t in (0.0, 0.7):
        assert line.at(t)[0] == pytest.approx(f(problem, pairs, at.L + t * direction), rel=1e-9)


def test_the_optimum_is_proved_and_no_other_metric_is_better(problem, rng):
    solution = run(ascend(problem, problem.start(), 1e-8), tol=1e-8, max_iter=200)
    certificate = problem.certify(solution.iterate.point)
    assert certificate.gap <= 1e-7
    for _ in range(50):
        assert problem.certify(factor_of(problem, rng)).objective <= certificate.bound


def test_dml_eig_keeps_its_floor_and_is_proved(pairs, rng):
    S, T, x, _ = scatter(pairs)
    problem = DMLEigProblem.build(pairs, RHO)
    solution = run(solve_covering_sdp(problem, 1e-8), tol=1e-8, max_iter=200)
    best = solution.iterate
    certificate = problem.certify(best.point, *best.certificate)
    assert certificate.gap <= 1e-7
    A = problem.returned(best.point).T @ problem.returned(best.point)
    assert np.sum(S * A) == pytest.approx(4)
    assert np.linalg.eigvalsh(A[:3, :3])[0] >= 4 * RHO / T * (1 - 1e-9)
    assert certificate.objective == pytest.approx(np.einsum("ij,jk,ik->i", x, A, x).min())
    for _ in range(50):
        L = rng.normal(size=(2, 3))
        other = problem.certify(L, *best.certificate)
        assert other.objective <= certificate.objective * (1 + 1e-6)


@pytest.mark.parametrize("kind", [*KINDS, "dml_eig"])
def test_integer_weights_are_repeated_points(kind, rng):
    """Copies of a point form near pairs of no length, and any other pair occurs as often as the
    product of its points' numbers says."""
    X, y, counts = rng.normal(size=(18, 3)), np.arange(18) % 3, rng.integers(0, 4, 18)

    def posed(X, y, weights):
        pairs = pairs_of_labels(X, class_order(y, "test"), None, None, "test")
        pairs = weighted_by_points(pairs, weights)
        if kind == "dml_eig":
            return DMLEigProblem.build(pairs, RHO)
        return KINDS[kind].build(pairs, np.zeros(3), RHO)

    weighted = posed(X, y, counts.astype(np.float64))
    repeated = posed(np.repeat(X, counts, axis=0), np.repeat(y, counts), None)
    if kind != "diagonal":
        inverses = [part.basis @ part.basis.T for part in (weighted, repeated)]
        np.testing.assert_allclose(*inverses, rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(weighted.floor.diagonal, repeated.floor.diagonal)
    if kind != "dml_eig":
        L = weighted.start()
        assert weighted.certify(L).objective == pytest.approx(repeated.certify(L).objective)
        assert weighted.certify(L).bound == pytest.approx(repeated.certify(L).bound)
