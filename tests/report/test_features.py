"""What features add to distances, and how variance is spread: against samples of pairs and SVD."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from nearfar import KernelLMNN, as_metric
from nearfar.analysis.features import learned_axes
from nearfar.analysis.spectrum import spectra
from nearfar.analysis.study import study
from nearfar.analysis.views import views


def diagonal_metric(weights):
    """The metric of a fitted PCA whose directions are replaced."""
    pca = PCA(len(weights)).fit(np.random.default_rng(0).normal(size=(20, len(weights))))
    pca.components_ = np.diag(weights)
    return as_metric(pca)


def test_shares_and_stretch_of_a_diagonal_metric():
    """Variances 1, 4 and weights 3, 1: M = diag(9, 1), shares 1/5, 4/5 and then 9/13, 4/13.

    Stretch is √(9 · 5/13) and √(1 · 5/13).
    """
    X = np.array([[-1.0, -2], [-1, 2], [1, -2], [1, 2]])
    shares = study(diagonal_metric([3.0, 1.0]), X).feature_shares()
    np.testing.assert_allclose(shares.before, [1 / 5, 4 / 5])
    np.testing.assert_allclose(shares.after[0], [9 / 13, 4 / 13])
    np.testing.assert_allclose(shares.stretch[0], np.sqrt([45 / 13, 5 / 13]))
    assert shares.order.tolist() == [0, 1]


def test_before_is_the_share_of_the_mean_squared_distance(wine_report_example):
    given = wine_report_example
    shares = study(given.model, given.X).feature_shares()
    squares = ((given.X[:, None] - given.X[None]) ** 2).mean(axis=(0, 1))
    np.testing.assert_allclose(shares.before, squares / squares.sum(), rtol=1e-8)
    np.testing.assert_allclose(shares.after.sum(), 1)
    np.testing.assert_allclose(shares.after[0], shares.stretch[0] ** 2 * shares.before)


def test_a_linear_kernel_has_features_and_another_has_none(wine_report_example):
    given = wine_report_example
    X = given.X / given.X.std(axis=0)
    linear = KernelLMNN(kernel="linear", max_iter=20, tol=10.0).fit(X, given.y)
    shares = study(linear, X).feature_shares()
    M = linear.get_mahalanobis_matrix()
    expected = M.diagonal() * X.var(axis=0)
    np.testing.assert_allclose(shares.after[0], expected / expected.sum(), rtol=1e-6)
    rbf = KernelLMNN(max_iter=2, tol=10.0).fit(X, given.y)
    assert study(rbf, X).feature_shares() is None


def test_learned_axes_give_the_coordinates_of_the_map(wine_report_example):
    """A row's place along axis 1 is Σ weight_j (x_j − mean_j) / deviation_j, up to its sign."""
    given = wine_report_example
    subject = study(given.model, given.X)
    scores = (given.X - given.X.mean(axis=0)) / given.X.std(axis=0)
    axes = learned_axes(subject.maps[0], given.X) * given.X.std(axis=0)
    places = scores @ axes[:2].T
    drawn = views(subject, np.arange(len(given.X)), 0)[0].places
    np.testing.assert_allclose(np.abs(places), np.abs(drawn), rtol=1e-5, atol=1e-7)


def test_spectra_are_those_of_a_singular_value_decomposition(wine_report_example):
    given = wine_report_example
    before, after = spectra(study(given.model, given.X), 0)
    for found, points in ((before, given.X), (after, given.model.transform(given.X))):
        values = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
        shares = values / values.sum()
        np.testing.assert_allclose(found.shares, shares[:20], atol=1e-9)
        assert found.n_most == np.searchsorted(np.cumsum(shares), 0.95) + 1


def test_points_that_do_not_vary_have_a_flat_spectrum():
    X = np.ones((6, 2))
    metric = diagonal_metric([1.0, 1.0])
    assert [found.n_most for found in spectra(study(metric, X), 0)] == [None, None]
    assert study(metric, X).feature_shares() is None


@pytest.mark.parametrize("r", [1, 2, 3])
def test_views_keep_distances_as_far_as_two_directions_can(rng, r):
    X = rng.normal(size=(30, r))
    metric = diagonal_metric([2.0] * r)
    after, before = views(study(metric, X), np.arange(30), 0)
    assert [after.name, before.name] == ["after learning", "before learning"]
    share = float(before.note.split(", ")[1].split()[0]) / 100
    kept = before.places.var(axis=0).sum() / X.var(axis=0).sum()
    assert kept == pytest.approx(share, abs=0.006)
    np.testing.assert_allclose(after.places, 2 * before.places, atol=1e-9)
