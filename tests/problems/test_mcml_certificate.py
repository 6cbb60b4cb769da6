"""The bounds of MCML: every one recomputed from a feasible distribution over pairs of points."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, optimize

from nearfar.problems import mcml
from nearfar.problems.mcml import Certificate, MCMLProblem

SIZES = (9, 8, 1, 6)  # one point is alone in its class
Y = np.repeat(np.arange(len(SIZES)), SIZES)
N, D = len(Y), 3


PROGRAMS = {
    "the paper's": {},
    "trace": {"regularization": 0.4},
    "floor": {"regularization": 0.1, "floor": 0.2},
    "weights": {"regularization": 0.1, "floor": 0.1, "weights": np.geomspace(0.2, 4, N)},
}


@pytest.fixture(params=PROGRAMS)
def case(request, rng, mcml_by_loops):
    X = rng.normal(size=(N, D)) + rng.normal(size=(4, D))[Y]
    return mcml_by_loops(X * [1.0, 3.0, 0.3], Y, **PROGRAMS[request.param])


def build(case):
    sizes = np.unique(case.y, return_counts=True)[1]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    floor = np.full(case.X.shape[1], case.floor)
    masses = None if case.weights is None else case.masses
    centre = case.X.mean(axis=0)
    return MCMLProblem.build(case.X, centre, starts, case.regularization, floor, masses)


def near_optimum(problem, accuracy):
    """A factor by scipy's L-BFGS, stopped early or late."""
    start = problem.first_guess()

    def function(x):
        at = problem.evaluate(x.reshape(start.shape))
        return at.value, at.gradient.ravel()

    found = optimize.minimize(
        function, start.ravel(), jac=True, method="L-BFGS-B", options={"gtol": accuracy, "ftol": 0}
    )
    return found.x.reshape(start.shape)


def widths(case, q):
    """ρ and b with S(q) b = ρ P b, bᵀPb = 1, on the features."""
    P = case.spread(case.target) + case.regularization * np.eye(D)
    return linalg.eigh(case.spread(q), P)


def repaired(case, A):
    """The best bound of (6) from p of A, with p₀ and with the q of (7), by bisection for ε."""
    p = case.chosen(A)
    candidates = [case.target]
    for _ in range(mcml.REPAIRS):
        rho, b = widths(case, case.chosen(A))
        excess = max(rho[-1] - 1, 0)
        A = A + (len(case.anchors) * np.maximum(rho - 1 + excess, 0) * b) @ b.T
        candidates.append(case.chosen(A))
        if widths(case, candidates[-1])[0][-1] <= 1:
            break
    bounds = [0.0]
    for q in candidates:
        if widths(case, q)[0][-1] > 1 + 1e-12:
            continue
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            feasible = widths(case, (1 - middle) * p + middle * q)[0][-1] <= 1
            low, high = (low, middle) if feasible else (middle, high)
        bounds.append(case.bound((1 - high) * p + high * q))
    return max(bounds)


@pytest.mark.parametrize("accuracy", [1.0, 0.1, 1e-3])
def test_the_bound_is_below_that_of_a_feasible_distribution(case, accuracy):
    """Entropy is concave: H[(1 − ε)p + εq] is at least the mean that the certificate takes, and
    little more, since p and q are near each other."""
    problem = build(case)
    L = near_optimum(problem, accuracy)
    at = problem.evaluate(L)
    certificate = problem.certify(at)
    components = problem.components(L)
    exact = repaired(case, components.T @ components)
    assert certificate.objective == pytest.approx(case.objective(components.T @ components))
    assert certificate.bound <= exact + 1e-7
    if accuracy < 1:
        assert certificate.bound >= exact - 0.3 * (certificate.objective - exact) - 1e-6


def test_the_bound_closes_in_on_the_optimum(case):
    problem = build(case)
    gaps = [
        problem.certify(problem.evaluate(near_optimum(problem, accuracy))).gap
        for accuracy in (1.0, 1e-2, 1e-6)
    ]
    assert gaps[0] > gaps[2]
    assert gaps[2] < 1e-5


def test_the_bound_is_below_the_optimum_from_any_factor(case, rng):
    problem = build(case)
    best = problem.evaluate(near_optimum(problem, 1e-7)).value
    for scale in (0.01, 1.0, 10.0):
        for _ in range(5):
            L = scale * problem.first_guess() @ np.diag(rng.uniform(0.1, 2, size=D))
            certificate = problem.certify(problem.evaluate(L))
            assert 0 <= certificate.bound <= best * (1 + 1e-9)
            assert certificate.gap == pytest.approx(
                (certificate.objective - certificate.bound) / max(certificate.objective, 1)
            )


def test_soft_neighbours_that_are_feasible_need_no_repair(case, monkeypatch):
    """Those of the optimum for a smaller pull, which asks that points are nearer."""
    problem = build(case)
    L = near_optimum(replace(problem, P=0.9 * problem.P), 1e-6)
    at = problem.evaluate(L)
    monkeypatch.setattr(MCMLProblem, "_nearer", None)
    components = problem.components(L)
    p = case.chosen(components.T @ components)
    assert widths(case, p)[0][-1] < 1
    assert problem.certify(at).bound == pytest.approx(max(case.bound(p), 0), abs=1e-8)


def test_the_expected_gap_is_about_the_gap(case):
    problem = build(case)
    for accuracy in (1.0, 1e-2):
        at = problem.evaluate(near_optimum(problem, accuracy))
        expected, gap = problem.expected_gap(at), problem.certify(at).gap
        assert 0.05 * gap - 1e-6 <= expected
        if not case.floor:  # there soft neighbours that are too wide have hardly any weight
            assert expected <= 20 * gap + 1e-6


def test_a_map_of_few_rows_proves_nothing_but_that_no_objective_is_below_zero(case):
    problem = build(case)
    at = problem.evaluate(problem.first_guess(1))
    assert at.spread is None
    assert problem.certify(at) == Certificate(at.value, 0.0)
    assert problem.expected_gap(at) == problem.certify(at).gap


def test_the_gap_is_relative_to_the_objective_or_to_one():
    assert Certificate(10.0, 9.0).gap == pytest.approx(0.1)
    assert Certificate(0.5, 0.4).gap == pytest.approx(0.1)
    assert Certificate(-5.0, 0.0).gap == 5.0  # what is below zero is rounding, and proves nothing


# -- directions without pull -----------------------------------------------------------------------


@pytest.fixture
def marked(rng, mcml_by_loops):
    """Feature 0 is the same for all of a class, and parts class 0 from two that overlap: all that
    is left is the problem of these two in the other features."""
    y = np.repeat([0, 1, 2], 8)
    X = np.column_stack([np.where(y == 0, 1.0, 0.0), rng.normal(size=(24, 2))])
    X[y == 0, 1:] *= 1e-3
    return mcml_by_loops(X, y)


def test_a_direction_without_pull_costs_nothing(marked, mcml_by_loops):
    """The optimum is at an infinite weight of feature 0; the bound is that of the rest, where class
    0 adds next to nothing because it is almost one point."""
    problem = build(marked)
    assert np.linalg.eigvalsh(problem.P)[0] == pytest.approx(0, abs=1e-12)
    L = np.vstack([near_optimum(problem, 1e-6), 30 * problem.factor(np.eye(1, 3))])
    certificate = problem.certify(problem.evaluate(L))
    rest = mcml_by_loops(marked.X[8:, 1:], marked.y[8:])
    assert certificate.gap < 1e-3
    assert certificate.bound == pytest.approx(rest.by_clarabel()[0], rel=1e-3)


def test_neighbours_that_differ_without_pull_are_not_chosen_in_the_dual(marked):
    """At a small weight of feature 0 all points are chosen, and the dual asks that none of another
    place along it is. Those of the same place prove a bound (8), the better the nearer they are to
    the best."""
    problem = build(marked)
    optimum = marked.by_clarabel()[0]
    far = problem.certify(problem.evaluate(problem.factor(0.1 * np.eye(3))))
    assert far.objective > optimum
    assert 0 < far.bound <= optimum * (1 + 1e-6)


def test_classes_that_are_points_are_solved_by_any_large_metric(mcml_by_loops):
    """P = 0: the dual asks for neighbours at the same place, and p₀ gives the optimum, zero."""
    case = mcml_by_loops(np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4))
    problem = build(case)
    certificate = problem.certify(problem.evaluate(problem.first_guess()))
    assert certificate.objective == pytest.approx(0, abs=1e-6)
    assert certificate.bound == pytest.approx(0, abs=1e-6)


# -- rounding --------------------------------------------------------------------------------------


def test_no_value_falls_below_zero_as_the_metric_grows(rng, mcml_by_loops):
    """Twelve points in 30 features can collapse, so that f is 0 from some scale on. There distances
    by products err by far more, and what they may have lost is added."""
    case = mcml_by_loops(rng.normal(size=(12, 30)), np.repeat([0, 1], 6))
    problem = build(case)
    guess = problem.first_guess()
    values = [problem.evaluate(scale * guess).value for scale in np.geomspace(1, 1e9, 25)]
    assert min(values) > -1e-6
    assert values[-1] > 1e-3 > values[0]
