"""DML-eig: every formula against plain loops and finite differences; the optimum by Clarabel."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from scipy import linalg

from nearfar.errors import DataWarning, InvalidInputError
from nearfar.problems.dml_eig import DMLEigProblem
from nearfar.solvers import Status, run
from nearfar.solvers.covering import solve_covering_sdp
from nearfar.solvers.frank_wolfe import frank_wolfe
from nearfar.supervision import Pairs, class_order
from nearfar.supervision.pairs import pairs_of_labels
from tests.conic import solve_conic

TOL = 1e-7  # so that the proved gap is small against the agreement that is asked, 1e-5


@dataclass(frozen=True)
class Case:
    """Pairs with the matrices of the lecture, pair by pair."""

    X: np.ndarray
    pairs: Pairs
    regularization: float = 0.0

    def differences(self, near):
        chosen = self.pairs.near == near
        return self.X[self.pairs.heads[chosen]] - self.X[self.pairs.tails[chosen]]

    @cached_property
    def H(self):
        total = np.zeros((self.X.shape[1],) * 2)
        for x in self.differences(True):
            total += np.outer(x, x)
        d = len(total)
        return total + self.regularization * np.trace(total) / d * np.eye(d)

    @cached_property
    def root(self):
        """H^(1/2)."""
        return linalg.sqrtm(self.H).real

    @cached_property
    def X_tilde(self):
        """H^(-1/2) xxᵀ H^(-1/2) of every far pair, (m, d, d)."""
        inverse = np.linalg.inv(self.root)
        return np.array([inverse @ np.outer(x, x) @ inverse for x in self.differences(False)])

    def matrix(self, problem, L):
        """M = LᵀL in the coordinates of the lecture, from its metric of the features."""
        C = problem.components(L)
        return self.root @ C.T @ C @ self.root

    def objective(self, M):
        return min(np.sum(x * M) for x in self.X_tilde)

    def build(self, points=None):
        pairs = self.pairs if points is None else replace(self.pairs, points=points)
        r = self.regularization
        return DMLEigProblem.build(pairs, r / (1 + r), floored=False)


def drawn_pairs(X, rng, n_near, n_far):
    heads, tails = rng.integers(0, len(X), (2, n_near + n_far))
    tails = np.where(heads == tails, (tails + 1) % len(X), tails)
    return Pairs(X, heads, tails, np.arange(len(heads)) < n_near)


def random_factor(rng, rank, trace):
    """L (rank, 5) with tr LᵀL as given."""
    L = rng.normal(size=(rank, 5))
    return np.sqrt(trace / np.sum(L**2)) * L


# Fewer pairs than points are held as differences, more as points.
@pytest.fixture(params=[(15, 30), (60, 200)], ids=["differences", "points"])
def case(rng, request):
    """Pairs of 50 points in five features of very different units, with a ridge."""
    X = rng.normal(size=(50, 5)) @ rng.normal(size=(5, 5)) * [1.0, 30.0, 0.1, 2.0, 1.0] + 50.0
    return Case(X, drawn_pairs(X, rng, *request.param), 0.02)


@pytest.fixture
def problem(case):
    return case.build()


# -- formulas ----------------------------------------------------------------------------------


def test_near_pairs_are_whitened(case, problem):
    np.testing.assert_allclose(problem.basis.T @ case.H @ problem.basis, np.eye(5), atol=1e-9)


def test_the_near_scatter_of_labels_needs_no_pairs(rng):
    """All pairs of a class are n_c times its scatter."""
    X, y = rng.normal(size=(24, 3)), np.repeat([0, 1, 2], [4, 11, 9])
    closed = pairs_of_labels(X, class_order(y, "test"), None, None, "test")
    assert closed.labels is not None
    for pairs in (closed, replace(closed, labels=None)):
        case = Case(X, pairs)
        problem = case.build()
        np.testing.assert_allclose(problem.basis.T @ case.H @ problem.basis, np.eye(3), atol=1e-9)


def test_lengths_are_those_of_the_lecture(case, problem, rng):
    """⟨X̃, M⟩ with M in the coordinates of H^(-1/2), one pair at a time."""
    assert (problem.edges is None) == (len(case.pairs) <= len(case.X))
    L = rng.normal(size=(3, 5))
    M = case.matrix(problem, L)
    expected = [np.sum(x * M) for x in case.X_tilde]
    np.testing.assert_allclose(problem.lengths(L), expected, rtol=1e-9)


def test_the_trace_of_the_metric_is_that_of_the_lecture(case, problem, rng):
    L = random_factor(rng, 3, problem.trace)
    assert np.trace(case.matrix(problem, L)) == pytest.approx(5)


def test_the_trace_is_the_number_of_features_even_if_fewer_directions_are_used(rng):
    X = np.column_stack([rng.normal(size=(30, 3)), np.full(30, 7.0)])
    problem = Case(X, drawn_pairs(X, rng, 20, 25)).build()
    assert (problem.size, problem.trace) == (3, 4.0)
    assert not problem.components(np.eye(3))[:, 3].any()


def test_differences_are_those_of_the_numbers(case, problem):
    numbers = np.array([7, 2, 2])
    expected = case.differences(False)[numbers] @ problem.basis
    np.testing.assert_allclose(problem.differences(numbers), expected, atol=1e-9)


def test_the_shortest_are_sorted_and_below(problem, rng):
    lengths = problem.lengths(rng.normal(size=(2, 5)))
    order = np.argsort(lengths, kind="stable")  # pairs may be drawn twice
    np.testing.assert_array_equal(problem.shortest(lengths, 6), order[:6])
    bar = lengths[order[4]]
    np.testing.assert_array_equal(problem.shortest(lengths, 6, bar), order[:4])


def test_the_gradient_of_the_smoothed_minimum(case, problem, rng):
    """G(α) against central differences of −σ log Σ exp(−⟨X̃, M⟩/σ), in a random direction."""
    L, K = random_factor(rng, 5, 5.0), random_factor(rng, 2, 1.0)
    M, D = L.T @ L, K.T @ K
    rows = case.differences(False) @ problem.basis
    sigma = 0.3 * np.median(np.einsum("ij,jk,ik->i", rows, M, rows))

    def smoothed(t):
        lengths = np.einsum("ij,jk,ik->i", rows, M + t * D, rows)
        return -sigma * np.log(np.sum(np.exp(-lengths / sigma)))

    lengths = problem.lengths(L)
    G = problem.scatter(problem.soft_weights(lengths, sigma))
    step = 1e-5
    slope = (smoothed(step) - smoothed(-step)) / (2 * step)
    assert np.sum(G * D) == pytest.approx(slope, rel=1e-7)


def test_weights_of_a_sharp_minimum_do_not_overflow(problem):
    lengths = problem.lengths(np.eye(5))
    weights = problem.soft_weights(lengths, 1e-12 * float(lengths.min()))
    assert weights[lengths.argmin()] == weights.sum() == 1


def test_the_gap_is_that_of_the_lecture(case, problem, rng):
    """Value and bound from the tensors; weights of all pairs, or of some, of any scale."""
    L = random_factor(rng, 4, 1.7)
    alpha = rng.uniform(size=len(case.X_tilde))
    expected = 5 * np.linalg.eigvalsh(np.tensordot(alpha / alpha.sum(), case.X_tilde, 1))[-1]
    found = problem.certify(L, alpha)
    assert found.objective == pytest.approx(case.objective(5 / 1.7 * case.matrix(problem, L)))
    assert found.bound == pytest.approx(expected)
    assert found.gap == pytest.approx(expected / found.objective - 1)
    numbers = np.array([4, 1, 9])
    sparse_alpha = np.zeros_like(alpha)
    sparse_alpha[numbers] = alpha[numbers]
    some = problem.certify(L, alpha[numbers], numbers)
    assert some.bound == pytest.approx(problem.certify(L, sparse_alpha).bound)


def test_every_bound_is_above_every_value(case, problem, rng):
    bounds = [
        problem.certify(np.eye(5), rng.dirichlet(np.full(len(case.X_tilde), share))).bound
        for share in (0.01, 0.1, 1, 10)
    ]
    factors = [random_factor(rng, rank, 5.0) for rank in (1, 2, 5) * 5]
    values = [case.objective(L.T @ L) for L in factors]
    assert max(values) < min(bounds)


# -- devices and types -------------------------------------------------------------------------


def test_every_backend_gives_the_same(case, backend, rng):
    """Tensors stay tensors where they are; what is small comes to the host in float64."""
    host, there = case.build(), case.build(backend.asarray(case.X))
    np.testing.assert_allclose(there.basis.T @ case.H @ there.basis, np.eye(5), atol=1e-9)
    twist = there.basis.T @ case.H @ host.basis  # from the host's coordinates to the others
    L, alpha = random_factor(rng, 3, 5.0), rng.uniform(size=len(case.X_tilde))
    lengths = there.lengths(L @ twist.T)
    np.testing.assert_allclose(backend.to_numpy(lengths), host.lengths(L), rtol=1e-6)
    weights = there.soft_weights(lengths, 0.1)
    expected = host.soft_weights(host.lengths(L), 0.1)
    np.testing.assert_allclose(backend.to_numpy(weights), expected, rtol=1e-5)
    G = there.scatter(backend.asarray(alpha))
    np.testing.assert_allclose(twist.T @ G @ twist, host.scatter(alpha), rtol=1e-5, atol=1e-8)
    numbers = there.shortest(lengths, 5)
    shortest = np.sort(host.lengths(L))[:5]
    np.testing.assert_allclose(host.lengths(L)[numbers], shortest, rtol=1e-6)
    assert isinstance(there.differences(numbers), np.ndarray)


def test_float32_is_computed_in_float64(case):
    X = case.X.astype(np.float32)
    single, double = case.build(X), case.build(X.astype(np.float64))
    np.testing.assert_array_equal(single.lengths(np.eye(5)), double.lengths(np.eye(5)))


# -- singular near pairs -----------------------------------------------------------------------


@pytest.fixture(params=[(20, 25), (40, 60)], ids=["differences", "points"])
def singular(rng, request):
    """Near pairs that agree in the third of three features, in which far pairs differ."""
    X = rng.normal(size=(50, 3))
    pairs = drawn_pairs(X, rng, *request.param)
    X = np.vstack([X, X[pairs.tails[pairs.near]]])
    tails = pairs.tails.copy()
    tails[pairs.near] = 50 + np.arange(request.param[0])
    X[tails[pairs.near], 2] = X[pairs.heads[pairs.near], 2]
    return Case(X, Pairs(X, pairs.heads, tails, pairs.near))


def test_no_largest_value_is_an_error(singular):
    with pytest.raises(InvalidInputError, match=r"problem is unbounded: .* set shrinkage") as info:
        singular.build()
    np.testing.assert_array_equal(info.value.indices, np.arange(len(singular.differences(False))))


def test_a_ridge_makes_it_solvable_and_is_warned_of(singular):
    case = replace(singular, regularization=1e-9)
    with pytest.warns(DataWarning, match=r"near pairs hardly differ in 1 of 3 directions, along"):
        problem = case.build()
    np.testing.assert_allclose(problem.basis.T @ case.H @ problem.basis, np.eye(3), atol=1e-6)


def test_a_ridge_that_was_asked_for_is_not_warned_of(singular):
    case = replace(singular, regularization=1e-3)
    problem = case.build()
    np.testing.assert_allclose(problem.basis.T @ case.H @ problem.basis, np.eye(3), atol=1e-9)


def test_near_pairs_may_agree_where_far_pairs_do(singular):
    singular.X[:, 2] = 1.0
    problem = replace(singular, regularization=1e-9).build()  # without a warning
    assert problem.size == 2


# -- the optimum -------------------------------------------------------------------------------


def svec(A):
    """The upper triangles of symmetric matrices (m, d, d) by columns, off the diagonal times √2, so
    that ⟨A, B⟩ = svec(A)·svec(B)."""
    columns, rows = np.tril_indices(A.shape[-1])
    return A[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))


def by_clarabel(case):
    """max s over M ⪰ 0, tr M = d and s with ⟨X̃, M⟩ ≥ s for every far pair.

    Clarabel wants b − A z in a cone, here for z = (svec M, s): d − tr M = 0, ⟨X̃, M⟩ − s ≥ 0 and
    M ⪰ 0. The scale of X̃ is brought to 1.
    """
    import clarabel

    scale = np.trace(case.X_tilde, axis1=1, axis2=2).min()
    A = svec(case.X_tilde / scale)
    (m, size), d = A.shape, case.X.shape[1]
    constraints = np.block(
        [
            [svec(np.eye(d)[None]), np.zeros((1, 1))],
            [-A, np.ones((m, 1))],
            [-np.eye(size), np.zeros((size, 1))],
        ]
    )
    solution = solve_conic(
        np.concatenate([np.zeros(size), [-1.0]]),
        constraints,
        np.concatenate([[float(d)], np.zeros(m + size)]),
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(m), clarabel.PSDTriangleConeT(d)],
    )
    return -solution.obj_val * scale


@pytest.fixture(params=["differences", "points", "iris", "wine"])
def small(request, rng):
    """Random pairs, and all pairs of a part of iris and of four features of a part of wine."""
    if request.param in ("iris", "wine"):
        X, y = request.getfixturevalue(request.param)
        X, y = X[::6], y[::6]
        X = X[:, [0, 1, 4, 9]] if X.shape[1] > 4 else X
        return Case(X, pairs_of_labels(X, class_order(y, "test"), None, None, "test"))
    X = rng.normal(size=(40, 4)) * [1.0, 5.0, 0.2, 1.0]
    return Case(X, drawn_pairs(X, rng, *((15, 20) if request.param == "differences" else (30, 80))))


def test_the_optimum_is_that_of_a_semidefinite_solver(small):
    theirs = by_clarabel(small)
    problem = small.build()
    solution = run(solve_covering_sdp(problem, TOL), tol=TOL, max_iter=100)
    assert solution.status is Status.CONVERGED
    found = problem.certify(solution.iterate.point, *solution.iterate.certificate)
    assert small.objective(small.matrix(problem, solution.iterate.point)) == pytest.approx(
        found.objective, rel=1e-9
    )
    assert found.objective == pytest.approx(theirs, rel=1e-5)
    assert found.bound >= theirs * (1 - 1e-7)
    assert found.gap == pytest.approx(solution.iterate.residual, abs=1e-9)
    assert found.gap <= TOL


def test_frank_wolfe_comes_near_the_optimum_of_a_semidefinite_solver(small):
    """Slowly, and with a smoothing that is small against the value."""
    theirs = by_clarabel(small)
    problem = small.build()
    solution = run(frank_wolfe(problem, 3e-3 * theirs), tol=0.1, max_iter=20_000)
    assert solution.status is Status.CONVERGED
    found = problem.certify(solution.iterate.point, *solution.iterate.certificate)
    assert found.objective <= theirs * (1 + 1e-7) <= found.bound * (1 + 2e-7)
    assert found.gap <= 0.1 + 1e-9
