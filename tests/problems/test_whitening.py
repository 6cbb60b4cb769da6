"""The coordinates of LMNN: equations (1) to (5), on ordinary and on extreme data."""

import numpy as np
import pytest

from nearfar.kernels import kernels_for, reference
from nearfar.problems.whitening import FLOOR, floored_map, whitened

WEIGHT = 0.3
N, D, K = 30, 4, 3


def spoiled(kind, rng):
    """Points, and the dimension of their span."""
    X = rng.normal(size=(N, 60 if kind == "wide" else D))
    rank = min(X.shape) if kind != "wide" else N - 1
    if kind == "units":
        X *= [1e-8, 1.0, 1e8, 1e3]
    if kind == "outlier":
        X[7] = 1e12 * rng.normal(size=D)
    if kind == "outlier in one feature":
        X[7, 0] = 1e12
    if kind == "constant feature":
        X[:, 1], rank = 5.0, D - 1
    if kind == "mostly rounding errors":
        X[:, 1] = np.where(np.arange(N) < 6, X[:, 1], 1e-17 * X[:, 1])
    if kind == "mostly noise":  # the others are 1e9 times as long, and differ in other features
        X[2:, :3], X[2:, 3] = 0, 1e-9 * X[2:, 3]
        X[1], rank = [0, X[0, 1], 0, 1], 3
        X[0] = [X[0, 0], 0, 0, 1]
    if kind == "repeated feature":
        X[:, 1], rank = -30 * X[:, 0], D - 1
    robust = "outlier" in kind or "mostly" in kind
    return X - (np.median if robust else np.mean)(X, axis=0), rank


@pytest.fixture(
    params=[
        "ordinary",
        "wide",
        "units",
        "outlier",
        "outlier in one feature",
        "constant feature",
        "repeated feature",
        "mostly rounding errors",
        "mostly noise",
    ]
)
def points(request, rng):
    return spoiled(request.param, rng)


def coordinates(X, edges=None, backend=None):
    edges = reference.nearest_in_class(X, np.array([0, len(X)]), K) if edges is None else edges
    points = X if backend is None else backend.asarray(X)
    kernels = kernels_for(points)
    given = tuple(kernels.index(part, points) for part in edges)
    weights = kernels.double(given[0]) * 0 + WEIGHT

    def pull(U):
        return kernels.gram(U, kernels.laplacian_matmul(*given, weights, U))

    basis, dual, U, P, Q = whitened(kernels, points, pull, WEIGHT * len(weights))
    return basis, dual, kernels.to_host(U), P, Q, edges


def assert_product(got, left, right):
    """Equal to left · right up to the rounding of each row."""
    lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=0)
    lengths = lengths + np.linalg.norm(got, axis=1)[:, None]
    assert (np.abs(got - left @ right) <= 1e-12 * lengths + 1e-12).all()


def test_bases_are_dual_and_span_the_data(points, backend):
    """BᵀG = I, U = XB and X = UGᵀ."""
    X, rank = points
    basis, dual, U, *_ = coordinates(X, backend=backend)
    assert basis.shape == dual.shape == (X.shape[1], rank)
    assert_product(np.eye(rank), basis.T, dual)
    assert_product(U, X, basis)
    assert_product(X, U, dual.T)


def test_pull_and_its_expectation(points):
    """P = w Σ u uᵀ over the edges, Q = 2wm Cov(U)."""
    X, _ = points
    *_, U, P, Q, (heads, tails) = coordinates(X)
    difference = U[heads] - U[tails]
    np.testing.assert_allclose(P, WEIGHT * difference.T @ difference, atol=1e-9 * np.abs(P).max())
    covariance = np.cov(U.T, bias=True)
    expected = 2 * WEIGHT * len(heads) * covariance
    np.testing.assert_allclose(Q, expected, atol=1e-9 * np.abs(expected).max())


def test_the_pull_is_near_the_identity(points):
    """P + FLOOR·Q is, within the factor of two in length at which the passes end."""
    X, _ = points
    *_, P, Q, _ = coordinates(X)
    values = np.linalg.eigvalsh(P + FLOOR * Q)
    assert values.min() > 0.2
    assert values.max() < 5


@pytest.mark.parametrize("kind", ["outlier", "outlier in one feature"])
def test_an_outlier_does_not_hide_the_other_points(rng, kind):
    """Differences of 1 beside one of 1e12 come back from U to six digits."""
    X, _ = spoiled(kind, rng)
    _, dual, U, *_ = coordinates(X)
    others = np.delete(np.arange(N), 7)
    np.testing.assert_allclose(U[others] @ dual.T, X[others], atol=1e-6)


def test_units_do_not_matter(rng):
    """U of rescaled features is a rotation of U: the products of all points are the same."""
    X = rng.normal(size=(N, D))
    X -= X.mean(axis=0)
    edges = reference.nearest_in_class(X, np.array([0, N]), K)
    one, other = (coordinates(X * units, edges)[2] for units in (1.0, [1e-8, 1.0, 1e8, 1e3]))
    np.testing.assert_allclose(other @ other.T, one @ one.T, atol=1e-8)


def test_targets_that_coincide_in_a_direction_leave_it_finite(rng):
    """In feature 0 targets never differ: P is singular, and the share of Q bounds its length."""
    X = rng.normal(size=(N, D))
    X[:, 0] = np.repeat([-1.0, 1.0], N // 2)
    heads, tails = reference.nearest_in_class(X[:, 1:], np.array([0, N // 2, N]), K)
    basis, _, U, P, Q, _ = coordinates(X - X.mean(axis=0), (heads, tails))
    assert np.isfinite(basis).all()
    values = np.linalg.eigvalsh(P)
    assert values[0] == pytest.approx(0, abs=1e-9)
    assert np.linalg.eigvalsh(P + FLOOR * Q)[0] > 0.2
    assert np.abs(U).max() < 1e3


def test_all_points_equal():
    basis, dual, U, P, Q, _ = coordinates(np.zeros((5, 3)), (np.arange(4), np.arange(1, 5)))
    assert basis.shape == dual.shape == (3, 0)
    assert U.shape == (5, 0)
    assert P.shape == Q.shape == (0, 0)


# -- principal components ------------------------------------------------------------------------


def components_of(rng, smallest=1.0):
    """Principal components of points: orthogonal features, of which one may hardly vary."""
    X = rng.normal(size=(N, D))
    left, _, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return left * [5.0, 3.0, 2.0, smallest]


def ridged(X, ridge, edges):
    kernels = kernels_for(X)
    weights = np.full(len(edges[0]), WEIGHT)

    def pull(U):
        return kernels.gram(U, kernels.laplacian_matmul(*edges, weights, U))

    return whitened(kernels, X, pull, WEIGHT * len(weights), ridge), pull(X)


@pytest.mark.parametrize("smallest", [1.0, 1e-5])
def test_principal_components_are_whitened_by_one_factor(rng, smallest, monkeypatch):
    """(1) to (4) hold without an eigenvector, with P = I exactly."""
    monkeypatch.setattr("nearfar.problems.whitening.eigh", None)
    X, ridge = components_of(rng, smallest), 0.5
    edges = reference.nearest_in_class(X, np.array([0, N]), K)
    (basis, dual, U, P, Q), pull = ridged(X, ridge, edges)
    np.testing.assert_array_equal(P, np.eye(D))
    np.testing.assert_allclose(basis.T @ (pull + ridge * np.eye(D)) @ basis, P, atol=1e-12)
    np.testing.assert_allclose(basis.T @ dual, np.eye(D), atol=1e-12)
    np.testing.assert_allclose(U, X @ basis, atol=1e-12)
    weight = WEIGHT * len(edges[0])
    np.testing.assert_allclose(Q, 2 * weight * np.cov(U.T, bias=True), atol=1e-12)


@pytest.mark.parametrize("kind", ["small ridge", "correlated", "constant", "few rows"])
def test_one_factor_is_not_enough_for_other_points(rng, kind):
    """A small ridge, correlated or constant features and too few rows go the long way."""
    X, ridge = components_of(rng), 1e-9 if kind == "small ridge" else 0.5
    if kind == "correlated":
        X[:, 0] += X[:, 1]
    if kind == "constant":
        X[:, 2] = 0.0
    if kind == "few rows":
        X = X[:D] - X[:D].mean(axis=0)
    edges = reference.nearest_in_class(X, np.array([0, len(X)]), K)
    (basis, dual, U, P, _), _ = ridged(X, ridge, edges)
    assert not np.array_equal(P, np.eye(len(P)))
    np.testing.assert_allclose(U @ dual.T, X, atol=1e-9)
    np.testing.assert_allclose(basis.T @ dual, np.eye(len(P)), atol=1e-9)


@pytest.mark.parametrize("rows", [0, 2, 5, 8])
def test_the_map_above_a_floor(rng, rows):
    """Its metric is φI + AᵀA, its rows are orthogonal, longest first, largest entry positive."""
    A = rng.normal(size=(rows, 8))
    found = floored_map(A, 0.3, np.eye(8), np.empty((1, 8)))
    np.testing.assert_allclose(found.T @ found, 0.3 * np.eye(8) + A.T @ A, atol=1e-12)
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(found @ found.T, np.diag(lengths**2), atol=1e-12)
    assert (np.diff(lengths) <= 1e-12).all()
    assert (found[np.arange(8), np.abs(found).argmax(axis=1)] > 0).all()
