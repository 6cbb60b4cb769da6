"""Coordinates of shrunk discriminant analysis, against their definition."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearfar import LFDA
from nearfar.kernels import kernels_for
from nearfar.problems.discriminant import KEPT, discriminant_frame, local_frame
from nearfar.problems.lfda import local_scatters


@pytest.fixture
def wine():
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(0)) / X.std(0), y


def within(X, y):
    centred = X - np.array([X[y == c].mean(0) for c in np.unique(y)])[y]
    return centred.T @ centred / len(X)


def test_the_shrunk_scatter_is_white_but_for_the_directions_without_means(wine):
    """A S_rho Aᵀ = D², with rho = d / (d + n)."""
    X, y = wine
    n, d = X.shape
    S, rho = within(X, y), d / (d + n)
    shrunk = (1 - rho) * S + rho * np.trace(S) / d * np.eye(d)
    frame = discriminant_frame(X, y, d)
    expected = np.where(np.arange(d) < 2, 1.0, KEPT**2)
    np.testing.assert_allclose(frame.A @ shrunk @ frame.A.T, np.diag(expected), atol=1e-12)


def test_only_the_leading_directions_part_the_means(wine):
    X, y = wine
    images = X @ discriminant_frame(X, y, X.shape[1]).A.T
    means = np.array([images[y == c].mean(0) for c in range(3)])
    np.testing.assert_allclose(means[:, 2:], np.broadcast_to(means[:1, 2:], (3, 11)), atol=1e-12)


def test_the_leading_directions_are_those_of_shrunk_lda(wine):
    X, y = wine
    n, d = X.shape
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=d / (d + n)).fit(X, y)
    # scikit-learn shrinks standardised classes one by one; here the pooled scatter is shrunk.
    ours, theirs = X @ discriminant_frame(X, y, d).A[:2].T, lda.transform(X)
    correlations = np.linalg.svd(
        np.linalg.qr(ours - ours.mean(0))[0].T @ np.linalg.qr(theirs - theirs.mean(0))[0]
    )[1]
    assert correlations.min() > 0.99


@pytest.mark.parametrize("frame_of", [discriminant_frame, local_frame])
def test_points_that_span_less_than_the_features(frame_of):
    """In coordinates of their span, and lifted: as in all features, where the scatter is zero."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 30)), np.arange(12) % 3
    X -= X.mean(0)
    whole = frame_of(X, y, 30).metric(None)
    basis = np.linalg.svd(X, full_matrices=False)[2].T
    np.testing.assert_allclose(frame_of(X @ basis, y, 30).metric(basis), whole, atol=1e-9)


def test_the_local_frame_is_that_of_lfda(wine):
    """Weighted by its eigenvalues, in any order of the rows, with classes that have no rows."""
    X, y = wine
    n, d = X.shape
    expected = LFDA(shrinkage=4 * d / (4 * d + n)).fit(X, y).get_mahalanobis_matrix()
    rows = np.random.default_rng(0).permutation(n)
    found = local_frame(X[rows], 2 * y[rows] + 1, d).metric(None)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_classes_without_variation_have_no_frame():
    y = np.arange(10) % 2
    assert discriminant_frame(y[:, None] * np.ones(3), y, 3) is None
    assert local_frame(y[:, None] * np.ones(3), y, 3) is None


@pytest.mark.parametrize("size", [1e3, 1e9, 1e12])
def test_an_outlier_hides_no_distances_within_other_classes(rng, size):
    """In a class of its own it changes no scatter within classes: A S_ρ Aᵀ is diagonal."""
    X = rng.normal(size=(10, 30))
    near, rho = X[:9] - X[:9].mean(axis=0), 120 / 130
    S, _, _ = local_scatters(kernels_for(X), near, np.array([0, 9]), 7)
    X[9] = size
    A = local_frame(X, np.repeat([0, 1], [9, 1]), 30).A
    found = A @ ((1 - rho) * S + rho * np.trace(S) / 30 * np.eye(30)) @ A.T
    sizes = np.sqrt(np.diag(found))
    np.testing.assert_allclose(found / sizes / sizes[:, None], np.eye(30), atol=1e-9)


def test_near_points_that_differ_by_rounding_only_have_no_frame(rng):
    """Copies of points in each of two classes, one of them far from all others."""
    points = rng.normal(size=(4, 57))
    points[0] *= 1e3
    X, codes = points[rng.integers(0, 4, size=116)], np.arange(116) % 3
    assert local_frame(X, codes, 57) is None
