"""Kernel MCML: the problem on features, and the rows that a factor of few rows lacks."""

from itertools import islice

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar.linalg import is_identity
from nearfar.problems.kernel_lmnn import KernelSpan
from nearfar.problems.kernel_mcml import KernelMCMLProblem, _least_share
from nearfar.problems.mcml import MCMLProblem
from nearfar.solvers import run
from nearfar.solvers.quasi_newton import descend

STARTS = np.array([0, 7, 12, 18])
LABELS = np.repeat([0, 1, 2], np.diff(STARTS))


@pytest.fixture
def span(rng):
    X = rng.normal(size=(18, 3)) + 0.5 * rng.normal(size=(3, 3))[LABELS]
    return KernelSpan.of(pairwise_kernels(X, metric="rbf", gamma=0.3)), X


@pytest.fixture
def problem(span, backend):
    E = backend.asarray(span[0].features)

    def images(components):
        return E @ backend.asarray(components).T

    return KernelMCMLProblem.of(E, STARTS, 0.4, images, lambda components: np.sum(components**2))


def test_the_objective_is_the_papers_with_kernel_values(span, problem, rng, mcml_by_loops):
    """With Â = CᵀC and C = LΛ^(−1/2)Vᵀ for a map L of the features: distances
    (k_i − k_j)ᵀÂ(k_i − k_j) and a trace of tr(KÂ)."""
    span, X = span
    K = pairwise_kernels(X, metric="rbf", gamma=0.3)
    L = 2 * rng.normal(size=(3, span.features.shape[1]))
    C = L @ span.coefficients
    expected = mcml_by_loops(K, LABELS, problem.regularization * K).objective(C.T @ C)
    assert problem.evaluate(problem.factor(L)).value == pytest.approx(expected, rel=1e-8)
    case = mcml_by_loops.shrunk(span.features, LABELS, 0.4)
    assert problem.regularization == pytest.approx(case.regularization)


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_few_rows_have_a_whole_spread(problem, rows, rng, mcml_by_loops):
    U = problem.kernels.to_host(problem.U)
    L = rng.normal(size=(rows, U.shape[1]))
    few, whole = problem.evaluate(L), problem.whole(L)
    assert whole.value == pytest.approx(few.value, rel=1e-10)
    assert whole.entropy == pytest.approx(few.entropy, rel=1e-10)
    np.testing.assert_array_equal(whole.L[:rows], L)
    assert not whole.L[rows:].any()
    case = mcml_by_loops(U, LABELS)
    np.testing.assert_allclose(whole.spread, case.spread(case.chosen(L.T @ L)), atol=1e-10)


def test_the_objective_falls_along_what_is_lacking(problem, rng):
    """Along A + t vvᵀ the slope at t = 0 is vᵀ(P − S(p))v, the steepest first, with vᵀPv = 1 before
    v was scaled by the root of it. Rows are orthogonal, in the sense of P, to those of L and to one
    another."""
    at = problem.whole(rng.normal(size=(2, len(problem.P))))
    lacking = problem.lacking(at)
    assert len(lacking)
    gram = np.vstack([at.L[:2], lacking]) @ problem.P @ lacking.T
    steepness = np.diag(gram[2:])
    np.testing.assert_allclose(gram[:2], 0, atol=1e-8)
    np.testing.assert_allclose(gram[2:], np.diag(steepness), atol=1e-8)
    assert (np.diff(steepness) <= 0).all()
    step = 1e-6
    for row, steep in zip(lacking, steepness, strict=True):
        direction = row / np.sqrt(steep)
        grown = problem.whole(np.vstack([at.L[:2], np.sqrt(step) * direction]))
        assert (grown.value - at.value) / step == pytest.approx(-steep, rel=1e-3, abs=1e-4)
        assert direction @ problem.slope(at) @ direction == pytest.approx(-steep, rel=1e-6)


def test_nothing_is_lacking_at_the_optimum(problem):
    """P − S(p) ⪰ 0 there, but for what the descent has left."""

    def residual(at, _):
        return problem.certify(at).gap

    solution = run(
        descend(problem.evaluate, problem.first_guess(), residual), tol=1e-8, max_iter=500
    )
    found = problem.whole(solution.iterate.point)
    lacking = problem.lacking(found)
    assert np.einsum("ij,jk,ik->i", lacking, problem.P, lacking).max(initial=0) < 1e-4


# -- the repaired bound ----------------------------------------------------------------------------


def optimum(problem):
    """The best lower and upper bound on the optimum that a long descent proves."""

    def residual(at, _):
        return problem.certify(at).gap

    start = problem.first_guess()
    solution = run(descend(problem.evaluate, start, residual), tol=1e-9, max_iter=500)
    certificate = problem.certify(problem.whole(solution.iterate.point))
    return certificate.bound, certificate.objective


@pytest.mark.parametrize("iterations", [5, 15, 30])
def test_the_bound_on_the_way(problem, iterations):
    """It is below the optimum, and near the optimum it proves more than that of `MCML`, which tilts
    all wide directions alike."""
    assert is_identity(problem.P)
    lower, upper = optimum(problem)
    assert upper - lower < 1e-6 * upper
    start = problem.first_guess(5)
    iterates = islice(descend(problem.evaluate, start, lambda _, gain: gain), iterations)
    at = problem.whole(list(iterates)[-1].point)
    certificate, usual = problem.certify(at), MCMLProblem.certify(problem, at)
    assert 0 <= certificate.bound <= upper
    assert at.value - certificate.bound <= 1.001 * (at.value - usual.bound)


def test_the_bound_is_that_of_its_factors(problem):
    """p' = (1 − ε) p + ε q of the factors has P − S(p') ⪰ 0 for the ε that the bound tells."""
    iterates = islice(descend(problem.evaluate, problem.first_guess(5), lambda _, gain: gain), 12)
    at = problem.whole(list(iterates)[-1].point)
    certificate = problem.certify(at)
    p, q = (problem.whole(L) for L in certificate.factors)
    share = (p.entropy - certificate.bound) / (p.entropy - q.entropy)
    assert 0 < share < 1
    assert np.linalg.eigvalsh(problem.P - (1 - share) * p.spread - share * q.spread)[0] > -1e-9


def test_the_least_share_of_a_feasible_point(rng):
    """I − (1 − ε) S − ε T is singular there; an infeasible T has none."""
    S, T = (A @ A.T / 6 for A in rng.normal(size=(2, 6, 6)))
    S, T = 1.3 * S / np.linalg.eigvalsh(S)[-1], 0.6 * T / np.linalg.eigvalsh(T)[-1]
    share = _least_share(S, T, 0.0)
    assert 0 < share < 1
    assert np.linalg.eigvalsh(np.eye(6) - (1 - share) * S - share * T)[0] == pytest.approx(
        0, abs=1e-9
    )
    assert _least_share(S, 2 * T, 0.0) is None


def test_all_wide_directions_are_found(problem, rng, monkeypatch):
    """Those with ρ > 1 − η, however few are looked for at first."""
    S = problem.whole(rng.normal(size=(2, len(problem.P)))).spread
    S = S / np.linalg.eigvalsh(S)[-3]  # two directions above 1, and so η is not small
    monkeypatch.setattr("nearfar.problems.kernel_mcml.WIDEST", 1)
    ratios, _ = problem._widths(S)
    values = np.linalg.eigvalsh(S)
    np.testing.assert_allclose(ratios, values[-len(ratios) :], atol=1e-12)
    assert len(ratios) == len(S) or ratios[0] <= 2 - ratios[-1]
