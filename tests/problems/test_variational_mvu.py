"""The small program: its sums by loops, its bound for any Z, its optimum by another solver."""

import clarabel
import numpy as np
import pytest
from scipy import linalg

from nearfar.problems.variational_mvu import Edges, VariationalProgram
from nearfar.solvers import Status, run
from nearfar.solvers.quadratic_cone import quadratic_cone
from tests.conic import solve_conic


@pytest.fixture
def network(rng):
    """Edges of a connected graph of 30 nodes, a path among them; lengths that no points have."""
    n = 30
    pairs = {(i, i + 1) for i in range(n - 1)}
    pairs |= {tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(60)}
    heads, tails = np.array(sorted(pairs)).T
    lengths, weights = rng.uniform(0.5, 2, len(heads)), rng.uniform(0.5, 3, len(heads))
    return n, heads, tails, lengths, weights


@pytest.fixture
def program(network, rng):
    edges, _ = Edges.build(*network, np.empty(0))
    return VariationalProgram.build(edges, rng.normal(size=(30, 5)), 0.3)


def objective_by_loops(edges, K, pull):
    total = pull * np.trace(K)
    for i, j, D, w in zip(edges.heads, edges.tails, edges.squares, edges.weights, strict=True):
        total -= w * (K[i, i] - 2 * K[i, j] + K[j, j] - D) ** 2
    return total


def some_matrix(rng, m):
    L = rng.normal(size=(m, m))
    return 0.3 * L @ L.T


def by_clarabel(program):
    """Minimise ½z'(2G)z − 2g'z over svec matrices, which Clarabel scales alike."""
    p, m = len(program.g), program.size
    # Clarabel stacks the columns of the upper triangle; ours are its rows.
    i, j = np.triu_indices(m)
    order = np.lexsort((i, j))
    cone = clarabel.PSDTriangleConeT(m)
    solution = solve_conic(-2 * program.g, -np.eye(p)[order], np.zeros(p), [cone], 2 * program.G)
    return -(solution.obj_val + program.sums[1])


def test_the_unit_makes_the_weighted_mean_of_squares_one(network):
    n, heads, tails, lengths, weights = network
    edges, unit = Edges.build(*network, np.empty(0))
    np.testing.assert_allclose(unit**2, weights @ lengths**2 / weights.sum(), rtol=1e-14)
    np.testing.assert_allclose(edges.weights @ edges.squares, edges.weights.sum(), rtol=1e-14)
    assert edges.weights.mean() == pytest.approx(1)
    alike, _ = Edges.build(n, heads, tails, 1e-170 * lengths, None, np.empty(0))
    plain, _ = Edges.build(n, heads, tails, lengths, None, np.empty(0))
    np.testing.assert_allclose(alike.squares, plain.squares, rtol=1e-12)


def test_the_basis_is_centred_and_orthonormal_under_the_laplacian(program):
    U, edges = program.basis, program.edges
    L = np.zeros((30, 30))
    for i, j, w in zip(edges.heads, edges.tails, edges.weights, strict=True):
        L[[i, j], [i, j]] += w
        L[[i, j], [j, i]] -= w
    np.testing.assert_allclose(U.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(U.T @ L @ U, np.eye(5), atol=1e-12)


def test_functions_that_depend_on_each_other_are_left_out(network, rng):
    """Five functions, among them a constant and the sum of two others: rank three."""
    edges, _ = Edges.build(*network, np.empty(0))
    basis = rng.normal(size=(30, 3))
    basis = np.column_stack([basis, np.ones(30), basis[:, 0] - basis[:, 1]])
    assert VariationalProgram.build(edges, basis, 0.1).size == 3


def test_the_objective_is_recomputed_by_loops(program, rng):
    Z = some_matrix(rng, 5)
    K = program.basis @ Z @ program.basis.T
    expected = objective_by_loops(program.edges, K, program.pull)
    assert program.certificate(Z).objective == pytest.approx(expected, rel=1e-10)
    assert program.exact_certificate(Z).objective == pytest.approx(expected, rel=1e-10)


def test_the_sums_and_the_edges_prove_the_same(program, rng):
    Z = some_matrix(rng, 5)
    sums, exact = program.certificate(Z), program.exact_certificate(Z)
    assert sums.bound == pytest.approx(exact.bound, rel=1e-10)
    assert sums.gap == pytest.approx(exact.gap, rel=1e-8)


def test_the_slope_is_minus_half_the_gradient(program, rng):
    Z, step = some_matrix(rng, 5), rng.normal(size=(5, 5))
    step = 1e-5 * (step + step.T)
    rise = program.certificate(Z + step).objective - program.certificate(Z - step).objective
    assert rise == pytest.approx(-4 * np.vdot(program.slope(Z), step), rel=1e-7)


def test_every_bound_is_above_every_objective(program, rng):
    """Weak duality, for random matrices that have nothing to do with each other."""
    found = [program.certificate(scale * some_matrix(rng, 5)) for scale in np.geomspace(0.01, 3, 9)]
    assert min(one.bound for one in found) >= max(one.objective for one in found)
    assert all(0 <= one.gap <= 1 + 1e-12 or one.objective < -program.sums[1] for one in found)


def test_the_embedding_has_the_gram_matrix_and_its_axes(program, rng):
    Z = some_matrix(rng, 5)
    Y = program.embedding(Z)
    np.testing.assert_allclose(Y @ Y.T, program.basis @ Z @ program.basis.T, atol=1e-10)
    scatter = Y.T @ Y
    np.testing.assert_allclose(scatter, np.diag(np.diag(scatter)), atol=1e-10)
    assert (np.diff(np.diag(scatter)) <= 1e-12).all()


@pytest.mark.parametrize("pull", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("m", [1, 3, 6])
def test_the_optimum_is_that_of_a_semidefinite_solver(network, rng, m, pull):
    edges, _ = Edges.build(*network, np.empty(0))
    program = VariationalProgram.build(edges, rng.normal(size=(30, m)), pull)
    solution = run(quadratic_cone(program), tol=1e-8, max_iter=60)
    assert solution.status is Status.CONVERGED
    Z = solution.iterate.point
    certificate = program.exact_certificate(Z)
    assert linalg.eigvalsh(Z)[0] >= 0
    assert certificate.gap <= 1e-7
    theirs = by_clarabel(program)
    scale = certificate.bound + program.sums[1]
    assert abs(certificate.objective - theirs) <= 1e-6 * scale
    assert theirs <= certificate.bound + 1e-7 * scale


def test_the_stretch_bounds_the_excess_of_squared_lengths(network):
    """At the optimum Σwℓ(ℓ − D) = ρλ tr K, and λ tr K ≤ Σwℓ."""
    edges, _ = Edges.build(*network, np.empty(0))
    L = np.zeros((30, 30))
    for i, j, w in zip(edges.heads, edges.tails, edges.weights, strict=True):
        L[[i, j], [i, j]] += w
        L[[i, j], [j, i]] -= w
    values, vectors = np.linalg.eigh(L)
    rho = 0.2
    program = VariationalProgram.build(edges, vectors[:, 1:7], 2 * rho * values[1])
    Z = run(quadratic_cone(program), tol=1e-10, max_iter=60).iterate.point
    Y = program.embedding(Z)
    lengths = np.sum((Y[edges.heads] - Y[edges.tails]) ** 2, axis=1)
    excess = edges.weights @ (lengths * (lengths - edges.squares))
    assert excess == pytest.approx(rho * values[1] * np.sum(Y**2), rel=1e-4)
    assert 0 < excess <= rho * (edges.weights @ lengths)


def test_on_any_device(network, rng, backend):
    basis, Z = rng.normal(size=(30, 4)), some_matrix(rng, 4)
    reference = backend.asarray(np.empty(0))
    edges, _ = Edges.build(*network, reference)
    program = VariationalProgram.build(edges, basis, 0.2)
    backend.to_numpy(program.basis)
    host = VariationalProgram.build(Edges.build(*network, np.empty(0))[0], basis, 0.2)
    np.testing.assert_allclose(program.G, host.G, atol=1e-12)
    np.testing.assert_allclose(program.g, host.g, atol=1e-12)
    assert program.exact_certificate(Z).bound == pytest.approx(host.exact_certificate(Z).bound)
    found = np.abs(backend.to_numpy(program.embedding(Z)))
    np.testing.assert_allclose(found, np.abs(host.embedding(Z)), atol=1e-9)
