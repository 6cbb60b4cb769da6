"""The optimum of LMNN against an independent semidefinite solver, to 1e-5."""

import clarabel
import numpy as np
import pytest
from scipy import sparse

from nearfar.solvers import Status, run
from nearfar.solvers.multipliers import descend

TOL = 1e-6  # so that the proved gap is small against the agreement that is asked, 1e-5


@pytest.fixture(params=["iris", "wine"])
def data(request):
    """Every third point of iris; every fourth of wine, with four of its features."""
    X, y = request.getfixturevalue(request.param)
    rows = slice(None, None, 3 if request.param == "iris" else 4)
    X, y = X[rows], y[rows]
    return X[:, [0, 1, 4, 9]] if X.shape[1] > 4 else X, np.bincount(y)


@pytest.fixture(params=[0.3, 0.8], ids=lambda value: f"mu{value}")
def small(request, data, make_case):
    return make_case(*data, request.param)


def svec(A):
    """The upper triangles of symmetric matrices (m, d, d) by columns, off the diagonal times √2, so
    that ⟨A, B⟩ = svec(A)·svec(B)."""
    columns, rows = np.tril_indices(A.shape[-1])
    return A[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))


def by_clarabel(case):
    """min ⟨P, M⟩ + μ Σ ξ over M ⪰ 0, ξ ≥ 0, ξ_t ≥ 1 − ⟨A_t, M⟩ with A_t = C_il − C_ij.

    Clarabel wants b − A x in a cone, here for x = (svec M, ξ): first ξ + ⟨A, M⟩ − 1 ≥ 0, then
    ξ ≥ 0, then M ⪰ 0.
    """
    edge, impostor = case.triplets.T
    far = case.differences(case.heads[edge], impostor)
    near = case.differences(case.heads[edge], case.tails[edge])
    A = svec(far[:, :, None] * far[:, None, :] - near[:, :, None] * near[:, None, :])
    m, size = A.shape
    eye = sparse.eye(m)
    constraints = sparse.bmat([[-A, -eye], [None, -eye], [-sparse.eye(size), None]], format="csc")
    constants = np.concatenate([-np.ones(m), np.zeros(m + size)])
    cost = np.concatenate([svec(case.P[None])[0], np.full(m, case.push_weight)])
    cones = [
        clarabel.NonnegativeConeT(2 * m),
        clarabel.PSDTriangleConeT(case.X.shape[1]),
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix((m + size, m + size)), cost, constraints, constants, cones, settings
    )
    solution = solver.solve()
    assert str(solution.status) == "Solved", str(solution.status)
    triangle = np.array(solution.x[:size])
    d = case.X.shape[1]
    columns, rows = np.tril_indices(d)
    M = np.zeros((d, d))
    M[rows, columns] = triangle / np.where(rows == columns, 1.0, np.sqrt(2))
    return solution.obj_val, M + np.triu(M, 1).T


def test_the_optimum_is_that_of_a_semidefinite_solver(small, build):
    """Their metric is feasible and has the objective that they report; ours agrees with it, and
    their objective, being attained, is above our bound."""
    theirs, M_theirs = by_clarabel(small)
    assert np.linalg.eigvalsh(M_theirs)[0] > -1e-7
    assert small.objective(M_theirs) == pytest.approx(theirs, rel=1e-6)

    problem = build(small)
    iterates = descend(problem, problem.first_guess(), TOL)
    solution = run(iterates, tol=TOL, max_iter=5000)
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    C = problem.components(solution.iterate.point)
    assert small.objective(C.T @ C) == pytest.approx(certificate.objective, rel=1e-10)
    assert certificate.objective == pytest.approx(theirs, rel=1e-5)
    assert certificate.bound <= theirs * (1 + 1e-7)
    assert certificate.gap <= TOL
