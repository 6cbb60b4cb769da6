"""Kernel LMNN: feature space from kernel values alone, and its optimum."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar.problems.kernel_lmnn import KernelSpan
from nearfar.problems.lmnn import LMNNProblem
from nearfar.solvers import Status, run
from nearfar.solvers.multipliers import proximal_factor_descent

KERNELS = {
    "linear": {},
    "poly": {"degree": 2, "gamma": 0.5, "coef0": 1.0},
    "rbf": {"gamma": 0.3},
    "laplacian": {"gamma": 0.2},
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


@pytest.fixture
def X(rng):
    """Twelve points of four features."""
    return rng.normal(size=(12, 4)) * [1.0, 2.0, 0.5, 1.0] + 3


def matrix(kernel, X, Y=None):
    return pairwise_kernels(X, Y, metric=kernel, **KERNELS[kernel])


@each_kernel
def test_features_have_the_distances_of_the_feature_space(kernel, X):
    """‖φ_i − φ_j‖² = k_ii + k_jj − 2 k_ij."""
    K = matrix(kernel, X)
    span = KernelSpan.of(K)
    expected = np.diag(K)[:, None] + np.diag(K) - 2 * K
    found = pairwise_distances(span.features, metric="sqeuclidean")
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * expected.max())
    assert len(span.values) == {"linear": 4, "poly": 11, "rbf": 11, "laplacian": 11}[kernel]
    assert (np.diff(span.values) <= 0).all()
    assert span.lowest > -1e-10 * span.highest


@each_kernel
def test_kernel_values_give_the_features_less_a_constant(kernel, X):
    K = matrix(kernel, X)
    span = KernelSpan.of(K)
    shifted = K @ span.coefficients.T - span.features
    np.testing.assert_allclose(shifted, np.tile(shifted[0], (12, 1)), atol=1e-6)
    np.testing.assert_allclose(span.vectors.sum(axis=0), 0, atol=1e-14)


def test_a_new_point_is_projected_on_the_span_of_the_differences(rng):
    """The linear kernel of 5 points in 9 dimensions: their differences span 4 of them, and a new
    point keeps its part along these."""
    X, new = rng.normal(size=(5, 9)), rng.normal(size=(3, 9))
    span = KernelSpan.of(X @ X.T)
    images = new @ X.T @ span.coefficients.T
    basis = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:4]
    assert span.features.shape == (5, 4)
    np.testing.assert_allclose(
        pairwise_distances(images), pairwise_distances(new @ basis.T), rtol=1e-8
    )


def test_leading_directions_are_the_principal_components(rng):
    """For the linear kernel the features are the scores of the points, whose squares sum up to the
    eigenvalues."""
    X = rng.normal(size=(30, 4)) * [8.0, 4.0, 2.0, 1.0]
    centred = X - X.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False) ** 2
    share = np.cumsum(values) / values.sum()
    K = X @ X.T
    np.testing.assert_allclose(KernelSpan.of(K, 2).values, values[:2])
    for rank, expected in [(3, 3), (1, 1), (99, 4), (share[1] - 1e-6, 2), (share[1] + 1e-6, 3)]:
        span = KernelSpan.of(K, rank)
        assert span.features.shape == (30, expected)
        assert span.lowest == pytest.approx(0, abs=1e-9 * values[0])


def test_a_negative_eigenvalue_is_reported():
    """diag(1, 1, -5), centred, is positive on (1, -1, 0) and -3 on (1, 1, -2)/√6."""
    span = KernelSpan.of(np.diag([1.0, 1.0, -5.0]))
    assert span.lowest == pytest.approx(-3)
    assert span.highest == pytest.approx(1)
    np.testing.assert_allclose(span.values, [1])


def test_a_kernel_may_be_positive_on_differences_only(X):
    """-‖x - y‖²/2 is no inner product of anything, but its centred matrix is that of X centred."""
    K = -0.5 * pairwise_distances(X, metric="sqeuclidean")
    assert np.linalg.eigvalsh(K)[0] < -1
    span = KernelSpan.of(K)
    np.testing.assert_allclose(pairwise_distances(span.features), pairwise_distances(X), atol=1e-8)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e9])
@pytest.mark.parametrize("rank", [None, 2, 0.5])
def test_equal_points_have_no_directions(value, rank):
    span = KernelSpan.of(np.full((4, 4), value), rank)
    assert span.features.shape == (4, 0)


@pytest.mark.parametrize("push_weight", [0.3, 0.8])
def test_the_optimum_is_that_of_a_semidefinite_solver(push_weight, iris, make_case, by_clarabel):
    """Over all A = VBVᵀ, B ⪰ 0, of an RBF kernel, with V its five leading directions. Theirs is (3)
    in B: D_A(a, b) = (Vᵀk_a − Vᵀk_b)ᵀ B (Vᵀk_a − Vᵀk_b). Ours is (6), whose A has that form, and
    the same value by (2)."""
    X, y = (array[::3] for array in iris)
    K = pairwise_kernels(X, metric="rbf", gamma=0.25)
    span = KernelSpan.of(K, 5)
    ours = make_case(span.features, np.bincount(y), push_weight)
    theirs = replace(ours, X=K @ span.vectors)
    optimum, B = by_clarabel(theirs)
    assert np.linalg.eigvalsh(B)[0] > -1e-7
    assert theirs.objective(B) == pytest.approx(optimum, rel=1e-6)

    edges = ours.heads, ours.tails
    problem = LMNNProblem.build(span.features, np.zeros(5), edges, ours.starts, push_weight)
    solution = run(
        proximal_factor_descent(problem, problem.first_guess(), 1e-6), tol=1e-6, max_iter=5000
    )
    assert solution.status is Status.CONVERGED
    certificate = solution.iterate.certificate
    assert certificate.objective == pytest.approx(optimum, rel=1e-5)
    assert certificate.bound <= optimum * (1 + 1e-7)
    C = problem.components(solution.iterate.point) @ span.coefficients
    assert replace(ours, X=K).objective(C.T @ C) == pytest.approx(certificate.objective, rel=1e-8)


def test_a_full_rank_kernel_reaches_zero_for_any_labels(rng, make_case):
    """Every configuration of the points is a linear image of E: map each class to a corner of a
    simplex with sides of length 1, so that targets coincide and impostors are at the margin."""
    X = rng.normal(size=(15, 2))
    span = KernelSpan.of(pairwise_kernels(X, metric="rbf", gamma=3.0))
    case = make_case(span.features, (5, 4, 6), 0.4, k=2)
    corners = np.eye(3)[case.labels] / np.sqrt(2)
    L = np.linalg.lstsq(span.features, corners - corners.mean(axis=0), rcond=None)[0].T
    assert case.objective(L.T @ L) == pytest.approx(0, abs=1e-9)
