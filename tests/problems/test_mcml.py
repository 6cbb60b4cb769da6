"""MCML: values, gradients and entropies against plain loops over the original features."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for
from nearfar.problems import mcml
from nearfar.problems.mcml import MCMLProblem

SIZES = (5, 4, 1, 2)  # one point is alone in its class


PROGRAMS = {
    "the paper's": {},
    "trace": {"regularization": 0.7},
    "floor": {"regularization": 0.2, "floor": 0.3},
    "weights": {"weights": True},
    "all": {"regularization": 0.2, "floor": 0.3, "weights": True},
}


@pytest.fixture(params=PROGRAMS)
def case(request, rng, mcml_by_loops):
    """Points sorted by class, in three features of different units and far from the origin."""
    y = np.repeat(np.arange(len(SIZES)), SIZES)
    X = rng.normal(size=(12, 3)) + 0.5 * rng.normal(size=(4, 3))[y]
    program = dict(PROGRAMS[request.param])
    if "weights" in program:
        program["weights"] = rng.uniform(0.2, 4, 12)
    return mcml_by_loops(X * [1.0, 3.0, 0.3] + [5.0, -20.0, 0.0], y, **program)


@pytest.fixture(params=[1, 2, 3], ids=lambda rows: f"rows{rows}")
def factor(request, rng, case):
    """A random factor on the features, such that distances are of the order of 1."""
    return 0.5 * rng.normal(size=(request.param, 3)) / case.X.std(axis=0)


def build(case, X=None):
    X = case.X if X is None else X
    starts = np.cumsum([0, *SIZES])
    centre, masses = kernels_for(X).double(X).mean(0), None
    if case.weights is not None:
        masses = case.masses
    floor = np.full(3, case.floor)
    return MCMLProblem.build(X, centre, starts, case.regularization, floor, masses)


def test_the_value_is_that_of_the_paper(case, factor, backend):
    problem = build(case, backend.asarray(case.X))
    point = problem.evaluate(problem.factor(factor))
    assert point.value == pytest.approx(case.objective(factor.T @ factor), rel=1e-9)


def test_the_gradient_is_that_of_the_paper(case, factor, backend):
    """∂f/∂L = 2 L ∂f/∂A, on the features: ⟨∂f/∂L, D⟩ for a change D of the factor on U."""
    problem = build(case, backend.asarray(case.X))
    point = problem.evaluate(problem.factor(factor))
    expected = 2 * factor @ case.gradient(factor.T @ factor)
    np.testing.assert_allclose(
        point.gradient, expected @ problem.basis, rtol=1e-7, atol=1e-8 * abs(expected).max()
    )


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_the_preconditioner_inverts_the_curvature(case, rng, rows, monkeypatch):
    """Of (11), whose derivative along D is 2 D G + (4/n) L (LᵀD + DᵀL), for slack G = P − S(p) with
    the eigenvectors of LᵀL, and without the regularisation of turning."""
    monkeypatch.setattr(mcml, "TURNING", 0.0)
    problem = build(case)
    L, n = rng.normal(size=(rows, 3)), problem.counted.sum()
    Vt = np.linalg.svd(L)[2]
    G = Vt.T @ np.diag([0.1, 0.5, 2.0]) @ Vt
    at = mcml.CollapsePoint(L, 0.0, L, 0.0, spread=problem.P - G)
    D = rng.normal(size=(rows, 3))
    change = 2 * D @ G + 4 / n * L @ (L.T @ D + D.T @ L)
    np.testing.assert_allclose(problem.preconditioner(at)(change), D, rtol=1e-8, atol=1e-10)


def test_a_map_of_few_rows_has_no_preconditioner(case):
    problem = build(case)
    at = problem.evaluate(problem.factor(np.ones((1, 3))))
    assert at.spread is None
    assert problem.preconditioner(at) is None


def test_the_entropy_is_that_of_the_soft_neighbours(case, factor, backend):
    """Of (5), which is a bound if p is feasible: Σ H[p] − Σ log(n − 1)."""
    problem = build(case, backend.asarray(case.X))
    entropy = problem.evaluate(problem.factor(factor)).entropy
    assert entropy == pytest.approx(case.entropy(case.chosen(factor.T @ factor)), rel=1e-8)


def test_the_objective_of_the_map_that_is_returned(case, rng, backend):
    """Its metric is A above the floor, of full rank, and of any rank without one."""
    problem = build(case, backend.asarray(case.X))
    factor = 0.5 * rng.normal(size=(3, 3)) / case.X.std(axis=0)
    returned = problem.returned(problem.factor(factor))
    M = factor.T @ factor + case.floor * np.eye(3)
    np.testing.assert_allclose(returned.T @ returned, M, rtol=1e-7, atol=1e-9)
    expected = case.objective(factor.T @ factor)
    assert problem.objective(returned) == pytest.approx(expected, rel=1e-9)
    above = problem.above_floor(returned)
    np.testing.assert_allclose(above.T @ above, factor.T @ factor, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rho", [0.1, 0.8])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_shrinkage_is_a_trace_and_a_floor_in_units_of_the_pull(rho, weighted, rng, mcml_by_loops):
    """In other units of all features, the program is the same."""
    y = np.repeat(np.arange(len(SIZES)), SIZES)
    X, weights = rng.normal(size=(12, 3)), rng.uniform(0.2, 4, 12) if weighted else None
    case, starts = mcml_by_loops.shrunk(X, y, rho, weights), np.cumsum([0, *SIZES])
    masses = case.masses if weighted else None
    problem = MCMLProblem.shrunk(X, X.mean(axis=0), starts, rho, masses)
    assert problem.regularization == pytest.approx(case.regularization)
    np.testing.assert_allclose(problem.floor, case.floor)
    scaled = MCMLProblem.shrunk(1000 * X, 1000 * X.mean(axis=0), starts, rho, masses)
    C = rng.normal(size=(3, 3))
    values = [p.evaluate(p.factor(L)).value for p, L in ((problem, C), (scaled, C / 1000))]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    rough = MCMLProblem.shrunk(X, X.mean(axis=0), starts, rho, masses, floored=False)
    assert rough.regularization == problem.regularization
    assert not rough.floor.any()


def test_a_proof_in_float32_is_about_the_points_as_they_are(rng, mcml_by_loops):
    """Points far from the origin, of which float32 rounds the distances that the floor keeps."""
    y = np.repeat(np.arange(len(SIZES)), SIZES)
    X = (rng.normal(size=(12, 3)) + np.array([3e3, 0, 0])).astype(np.float32)
    case = mcml_by_loops.shrunk(X, y, 0.5)
    starts = np.cumsum([0, *SIZES])
    problem = MCMLProblem.shrunk(X, np.zeros(3), starts, 0.5)
    L = problem.factor(0.5 * rng.normal(size=(3, 3)))
    at = problem.evaluate(L, problem.exact())
    C = problem.components(L)
    assert at.value == pytest.approx(case.objective(C.T @ C), rel=1e-9)
    assert at.entropy == pytest.approx(case.entropy(case.chosen(C.T @ C)), rel=1e-9)
