"""SCML: equations (1) to (7), against plain loops and the linear program as a whole."""

import numpy as np
import pytest
from scipy.optimize import linprog

from nearfar.kernels import kernels_for
from nearfar.problems.scml import SCMLProblem
from nearfar.solvers.column_generation import column_generation

D, M = 4, 60


@pytest.fixture
def data(rng):
    """Points, and triplets of which most can hold."""
    X = rng.normal(size=(30, D)) * [3, 1, 1, 0.5]
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] *= 0.3
    rows = [
        (i, rng.choice(np.flatnonzero(y == y[i])), rng.choice(np.flatnonzero(y != y[i])))
        for i in rng.integers(0, 30, M)
    ]
    return X, np.array(rows)


def posed(X, triplets, penalty=0.01, n_bases=25):
    return SCMLProblem.build(kernels_for(X), X, triplets, n_bases, penalty)


def test_margins_and_value_are_those_of_the_loops(data, backend, rng):
    X, triplets = data
    problem = posed(backend.asarray(X), triplets)
    size = np.mean([np.sum((X[a] - X[c]) ** 2) for a, _, c in triplets])
    assert problem.size == pytest.approx(size)
    w = rng.uniform(0, 1, size=len(problem.bases))
    weights = w / size
    matrix = sum(v * np.outer(b, b) for v, b in zip(weights, problem.bases, strict=True))
    total = 0.0
    for a, b, c in triplets:
        near, far = ((X[a] - X[k]) @ matrix @ (X[a] - X[k]) for k in (b, c))
        total += max(1 + near - far, 0) / M
    total += 0.01 * size * weights.sum()
    assert problem.value(w) == pytest.approx(total, rel=1e-9)
    L = problem.components(w)
    np.testing.assert_allclose(L.T @ L, matrix, atol=1e-9)
    moved = backend.asarray(X)
    objective = problem.objective(kernels_for(moved), moved, triplets, L)
    assert objective == pytest.approx(total, rel=1e-9)


def test_the_optimum_is_that_of_the_whole_program(data):
    """HiGHS on (3) with all vectors at once: variables w and hinges."""
    problem = posed(*data)
    m, count = problem.F.shape
    whole = linprog(
        np.concatenate([np.full(count, problem.penalty), np.full(m, 1 / m)]),
        A_ub=np.hstack([-problem.F, -np.eye(m)]),
        b_ub=-np.ones(m),
        method="highs-ipm",
    )
    *_, last = column_generation(problem)
    assert last.value == pytest.approx(whole.fun, rel=1e-7)
    assert last.residual < 1e-9


def test_the_optimum_with_a_kept_distance_is_that_of_the_whole_program(data):
    """The same of (8): each triplet needs what the kept distance leaves."""
    X, triplets = data
    problem = SCMLProblem.build(kernels_for(X), X, triplets, 25, 0.01, 0.4)
    near, far = (np.sum((X[triplets[:, 0]] - X[triplets[:, k]]) ** 2, axis=1) for k in (1, 2))
    np.testing.assert_allclose(problem.needed, 1 - 0.4 / 0.6 / near.mean() * (far - near))
    assert problem.needed.min() < 0 < problem.needed.max()
    m, count = problem.F.shape
    whole = linprog(
        np.concatenate([np.full(count, problem.penalty), np.full(m, 1 / m)]),
        A_ub=np.hstack([-problem.F, -np.eye(m)]),
        b_ub=-problem.needed,
        method="highs-ipm",
    )
    iterates = list(column_generation(problem))
    assert iterates[-1].value == pytest.approx(whole.fun, rel=1e-7)
    assert iterates[-1].residual < 1e-9
    assert all(problem.bound(i.certificate) <= whole.fun + 1e-9 for i in iterates)


def test_every_iterate_proves_a_bound_on_the_optimum(data):
    problem = posed(*data, penalty=1e-4, n_bases=60)
    iterates = list(column_generation(problem))
    for iterate in iterates:
        alpha = iterate.certificate
        assert (alpha >= 0).all()
        assert (alpha <= 1 / M + 1e-12).all()
        assert problem.bound(alpha) <= iterates[-1].value + 1e-9
        gap = iterate.value - iterate.residual * max(iterate.value, 1.0)
        assert gap == pytest.approx(problem.bound(alpha), abs=1e-9)
    assert (np.diff([iterate.value for iterate in iterates]) <= 1e-12).all()


def test_any_alpha_gives_a_bound(data, rng):
    problem = posed(*data)
    *_, last = column_generation(problem)
    for scale in (0.1, 1.0, 10.0):
        assert problem.bound(scale / M * rng.uniform(size=M)) <= last.value + 1e-9


def test_bases_are_unit_vectors_that_separate_near_from_far(data):
    """The first one has the largest ratio of far to near scatter, but for the ridge."""
    X, triplets = data
    problem = posed(X, triplets, n_bases=12)
    assert problem.bases.shape == (12, D)
    np.testing.assert_allclose(np.linalg.norm(problem.bases, axis=1), 1)
    near, far = (X[triplets[:, 0]] - X[triplets[:, k]] for k in (1, 2))

    def ratio(v):
        return np.sum((far @ v) ** 2) / np.sum((near @ v) ** 2)

    assert ratio(problem.bases[0]) > 0.95 * max(ratio(v) for v in np.eye(D))


def test_no_weight_is_no_map(data):
    problem = posed(*data, penalty=1e6)
    *_, last = column_generation(problem)
    assert (last.value, last.residual) == (1.0, pytest.approx(0.0, abs=1e-12))
    np.testing.assert_array_equal(problem.components(last.point), np.zeros((1, D)))
