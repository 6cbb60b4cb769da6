"""The optimum of LMNN against an independent semidefinite solver, to 1e-5."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.solvers import Status, run
from nearfar.solvers.multipliers import proximal_factor_descent

TOL = 1e-6  # so that the proved gap is small against the agreement that is asked, 1e-5


@pytest.fixture
def data(request, name):
    """Every third point of iris; every fourth of wine, with four of its features."""
    X, y = request.getfixturevalue(name)
    rows = slice(None, None, 3 if name == "iris" else 4)
    X, y = X[rows], y[rows]
    return X[:, [0, 1, 4, 9]] if X.shape[1] > 4 else X, np.bincount(y)


@pytest.fixture
def small(push_weight, weighted, data, make_case, rng):
    """If ``weighted``, points have weights from a tenth to three, of mean 1."""
    case = make_case(*data, push_weight)
    masses = rng.uniform(0.1, 3, len(case.X))
    return replace(case, masses=masses / masses.mean()) if weighted else case


@pytest.mark.parametrize(
    ("name", "push_weight", "weighted"),
    [("iris", 0.3, False), ("iris", 0.8, True), ("wine", 0.8, False), ("wine", 0.3, True)],
)
def test_the_optimum_is_that_of_a_semidefinite_solver(small, build, by_clarabel):
    """Their metric is feasible and has the objective that they report; ours agrees with it, and
    their objective, being attained, is above our bound."""
    theirs, M_theirs = by_clarabel(small)
    assert np.linalg.eigvalsh(M_theirs)[0] > -1e-7
    assert small.objective(M_theirs) == pytest.approx(theirs, rel=1e-6)

    problem = build(small)
    iterates = proximal_factor_descent(problem, problem.first_guess(), TOL)
    solution = run(iterates, tol=TOL, max_iter=5000)
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    C = problem.components(solution.iterate.point)
    assert small.objective(C.T @ C) == pytest.approx(certificate.objective, rel=1e-10)
    assert certificate.objective == pytest.approx(theirs, rel=1e-5)
    assert certificate.bound <= theirs * (1 + 1e-7)
    assert certificate.gap <= TOL
