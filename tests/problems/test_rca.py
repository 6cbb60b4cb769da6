"""RCA: equations (1) to (7), against plain loops and independent formulas."""

import numpy as np
import pytest
from scipy import linalg
from scipy.stats import ortho_group
from sklearn.covariance import shrunk_covariance

from nearfar.kernels import kernels_for
from nearfar.problems.rca import RCAProblem, deviations_of, log_det_of_rows

D = 5


@pytest.fixture
def chunklets(rng):
    """Row numbers and chunklets of uneven sizes, in no order; the other rows are in none."""
    codes = np.repeat([0, 1, 2, 3], [2, 3, 7, 20])
    return rng.permutation(60)[: len(codes)], rng.permutation(codes)


@pytest.fixture
def points(rng):
    """Correlated features in different units, with a mean of zero."""
    X = rng.normal(size=(60, D)) @ rng.normal(size=(D, D)) * [1, 10, 0.1, 3, 1]
    return X - X.mean(axis=0)


def covariances(X, rows, codes):
    """C of (1) and T of (2) in loops."""
    C, T = np.zeros((X.shape[1],) * 2), np.zeros((X.shape[1],) * 2)
    for code in set(codes):
        members = X[rows[codes == code]]
        for x in members:
            C += np.outer(x - members.mean(axis=0), x - members.mean(axis=0)) / len(rows)
    for x in X:
        T += np.outer(x - X.mean(axis=0), x - X.mean(axis=0)) / len(X)
    return C, T


def objective(B, X, rows, codes):
    """(3) with ρ = 0, one point after the other."""
    total = 0.0
    for row, code in zip(rows, codes, strict=True):
        deviation = X[row] - X[rows[codes == code]].mean(axis=0)
        total += deviation @ B @ deviation - np.linalg.slogdet(B)[1]
    return total


def posed(X, chunklets, how="in_features", *options, **named):
    return getattr(RCAProblem, how)(kernels_for(X), X, *chunklets, *options, **named)


def squared(L, X):
    """All squared distances of the images."""
    Z = X @ L.T
    return ((Z[:, None] - Z[None]) ** 2).sum(axis=2)


def test_the_covariances_are_those_of_the_loops(points, chunklets, backend):
    C, T = covariances(points, *chunklets)
    moved = backend.asarray(points)
    plain, span = posed(moved, chunklets), posed(moved, chunklets, "in_span")
    np.testing.assert_allclose(plain.C, C, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(span.C, span.basis.T @ C @ span.basis, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(span.T, span.basis.T @ T @ span.basis, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(span.T, np.eye(D), atol=1e-9)
    np.testing.assert_allclose(span.basis.T @ span.dual, np.eye(D), atol=1e-9)
    assert plain.count == span.count == 32


@pytest.mark.parametrize("how", ["in_features", "in_span"])
def test_the_map_whitens_the_chunklets(points, chunklets, how):
    C, _ = covariances(points, *chunklets)
    problem = posed(points, chunklets, how)
    L = problem.solution()
    np.testing.assert_allclose(L.T @ L, np.linalg.inv(C), rtol=1e-7)
    np.testing.assert_allclose(L @ C @ L.T, np.eye(D), atol=1e-9)
    assert problem.n_flat == 0
    assert problem.rank == D


@pytest.mark.parametrize("how", ["in_features", "in_span"])
def test_the_objective_is_that_of_the_loops(points, chunklets, how, rng):
    problem = posed(points, chunklets, how)
    L = linalg.svd(rng.normal(size=(D, D)))[2] * rng.uniform(0.5, 2, size=(D, 1))
    value = objective(L.T @ L, points, *chunklets)
    assert problem.objective_and_gap(L)[0] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("how", ["in_features", "in_span"])
def test_the_gap_is_the_distance_from_the_minimum(points, chunklets, how, rng):
    """f* = N (d + log det C) by (4), so that the gap can be computed without (7)."""
    C, _ = covariances(points, *chunklets)
    problem = posed(points, chunklets, how)
    minimum = problem.count * (D + np.linalg.slogdet(C)[1])
    best = problem.solution()
    assert problem.objective_and_gap(best)[0] == pytest.approx(minimum, rel=1e-9)
    assert problem.objective_and_gap(best)[1] < 1e-12
    for _ in range(5):
        other = linalg.svd(best + 0.2 * rng.normal(size=(D, D)))
        other = other[1][:, None] * other[2]
        value = problem.objective_and_gap(other)[0]
        assert value > minimum
        gap = (value - minimum) / max(abs(value), 1)
        assert problem.objective_and_gap(other)[1] == pytest.approx(gap, rel=1e-6)


def test_fewer_rows_are_the_directions_with_the_smallest_share_within(points, chunklets, rng):
    """By (5): of all maps to r dimensions these have the largest det(LTLᵀ) / det(LCLᵀ)."""
    C, T = covariances(points, *chunklets)
    shares = linalg.eigh(C, T, eigvals_only=True)
    for r in (1, 2, 4):
        problem = posed(points, chunklets, "in_span")
        L = problem.solution(r)
        assert L.shape == (r, D)
        np.testing.assert_allclose(L @ C @ L.T, np.eye(r), atol=1e-9)
        best = np.linalg.det(L @ T @ L.T)
        assert best == pytest.approx(np.prod(1 / shares[:r]), rel=1e-8)
        for other in rng.normal(size=(20, r, D)):
            assert np.linalg.det(other @ T @ other.T) < best * np.linalg.det(other @ C @ other.T)
        assert problem.objective_and_gap(L)[1] < 1e-12
        lengths = np.linalg.norm(L, axis=1)
        value = problem.count * (r - 2 * np.log(lengths).sum())
        assert problem.objective_and_gap(L)[0] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("wanted", [1, 3, 0.9])
def test_on_principal_directions_it_is_the_problem_of_the_projected_points(
    points, chunklets, wanted
):
    """[thesis, eq. 2.24]: the map is (A C Aᵀ)^(-1/2) A with A the leading eigenvectors of T."""
    C, T = covariances(points, *chunklets)
    values, vectors = linalg.eigh(T)
    share = np.cumsum(values[::-1]) / values.sum()
    kept = wanted if wanted >= 1 else 1 + int(np.sum(share < wanted))
    A = vectors[:, ::-1][:, :kept].T
    L = posed(points, chunklets, "in_span", wanted).solution()
    expected = A.T @ np.linalg.inv(A @ C @ A.T) @ A
    np.testing.assert_allclose(L.T @ L, expected, atol=1e-9 * np.abs(expected).max())


def test_a_share_of_the_variance_is_reached(points, chunklets):
    """Up to the point where rounding could ask for more directions than there are."""
    _, T = covariances(points, *chunklets)
    values = linalg.eigvalsh(T)[::-1]
    for share in (1e-9, 0.5, 0.99, 1 - 1e-16, np.nextafter(1, 0)):
        kept = posed(points, chunklets, "in_span", share).rank
        carried = np.cumsum(values) / values.sum()
        assert carried[kept - 1] >= share - 1e-12
        assert kept == 1 or carried[kept - 2] < share


@pytest.mark.parametrize("shrinkage", [1e-3, 0.1, 0.9])
def test_shrinkage_is_that_of_a_covariance(points, chunklets, shrinkage):
    """C becomes (1 − ρ) C + ρ (tr C / d) I, as scikit-learn's shrunk_covariance says."""
    C, _ = covariances(points, *chunklets)
    expected = np.linalg.inv(shrunk_covariance(C, shrinkage))
    for how in ("in_features", "in_span"):
        problem = posed(points, chunklets, how).shrunk(shrinkage, D)
        L = problem.solution()
        np.testing.assert_allclose(L.T @ L, expected, rtol=1e-7, atol=1e-12)
        assert problem.objective_and_gap(L)[1] < 1e-12


def test_deviations(points, chunklets):
    _, T = covariances(points, *chunklets)
    deviations = deviations_of(kernels_for(points), points)
    np.testing.assert_allclose(deviations**2, np.diag(T), rtol=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_more_features_than_points(chunklets, rng, weight):
    """Distances between data are those of C_ρ⁻¹, of C's pseudo-inverse for ρ = 0."""
    low = rng.normal(size=(60, 3))
    X = low @ rng.normal(size=(3, 80))
    X -= X.mean(axis=0)
    C, _ = covariances(X, *chunklets)
    problem = posed(X, chunklets, "in_span", orthogonal=weight > 0)
    assert problem.rank == 3
    if weight:
        problem = problem.shrunk(weight, 80)
    L = problem.solution()
    assert L.shape == (3, 80)
    inverse = np.linalg.pinv(shrunk_covariance(C, weight), hermitian=True)
    differences = X[:, None] - X[None]
    expected = np.einsum("ijk,kl,ijl->ij", differences, inverse, differences)
    np.testing.assert_allclose(squared(L, X), expected, rtol=1e-6, atol=1e-9)
    assert problem.objective_and_gap(L)[1] < 1e-9


@pytest.mark.parametrize("repeated", [0, 4])
def test_directions_without_variation_within_are_counted(points, chunklets, repeated):
    """Feature 1 is constant in each chunklet, but not elsewhere; others may repeat feature 0."""
    rows, codes = chunklets
    X = np.hstack([points, points[:, :1].repeat(repeated, axis=1)])
    X[rows, 1] = 10.0 * codes
    X -= X.mean(axis=0)
    problem = posed(X, chunklets, "in_span")
    assert (problem.rank, problem.n_flat) == (D, 1)
    if repeated == 0:
        assert posed(X, chunklets).n_flat == 1


@pytest.mark.parametrize("how", ["in_features", "in_span"])
def test_distances_do_not_depend_on_coordinates(points, chunklets, how, seed):
    """A map A of the points turns C into ACAᵀ, and C⁻¹ gives the same distances."""
    A = ortho_group.rvs(D, random_state=seed) * np.geomspace(0.2, 5, D)[:, None]
    before, after = (posed(X, chunklets, how).solution() for X in (points, points @ A.T))
    np.testing.assert_allclose(squared(after, points @ A.T), squared(before, points), rtol=1e-6)


def test_units_that_hide_one_another_do_not_matter_in_the_span(points, chunklets):
    units = np.array([1e-8, 1, 1e8, 1, 1e3])
    before = posed(points, chunklets, "in_span").solution()
    after = posed(points * units, chunklets, "in_span").solution()
    np.testing.assert_allclose(squared(after, points * units), squared(before, points), rtol=1e-6)


@pytest.mark.parametrize("units", [(1, 1), (1e-33, 1e12), (1e12, 1e-33), (1e-150, 1e150)])
def test_the_determinant_does_not_depend_on_units(units):
    """det (L diag(u)) = det L Π u; a feature without weight changes nothing."""
    L = np.array([[2.0, 1.0, 0.0], [-1.0, 3.0, 0.0]])
    expected = 2 * (np.log(7) + np.log(units).sum())
    assert log_det_of_rows(L * [*units, 1]) == pytest.approx(expected, rel=1e-12, abs=1e-9)
