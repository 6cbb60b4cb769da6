from __future__ import annotations

import numpy as np
import pytest

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.plots import MetricDisplay

L = np.array([[3.0, 0.0, 1.0], [0.0, 2.0, 0.0]])  # M = [[9, 0, 3], [0, 4, 0], [3, 0, 1]]


def test_the_matrix_is_that_of_the_metric():
    display = MetricDisplay.from_predictions(L)
    (image,) = display.ax_.images
    np.testing.assert_allclose(image.get_array(), L.T @ L, atol=1e-12)
    low, high = image.get_clim()
    assert low == -high


def test_points_measure_features_in_deviations(rng):
    X = rng.normal(size=(200, 3)) * [1.0, 10.0, 0.1]
    display = MetricDisplay.from_predictions(L, X)
    s = X.std(axis=0)
    shown = display.ax_.images[0].get_array()
    np.testing.assert_allclose(shown, (L.T @ L) * np.outer(s, s), atol=1e-12)
    weights = np.diag(L.T @ L) * s**2
    np.testing.assert_allclose(display.contributions(), weights / weights.sum())


def test_contributions_without_points_are_the_diagonal():
    """9, 4 and 1 of 14; what Euclidean distances are made of is not known."""
    display = MetricDisplay.from_predictions(L, kind="features", feature_names=["a", "b", "c"])
    np.testing.assert_allclose(display.contributions(), np.array([9, 4, 1]) / 14)
    (after,) = display.ax_.get_lines()
    assert display.ax_.get_xlabel() == "share of the trace of M (%)"
    np.testing.assert_allclose(after.get_xdata(), np.array([9, 4, 1]) * 100 / 14)
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names == ["a", "b", "c"]


def test_with_points_shares_are_compared_with_those_of_standardised_features(rng):
    """Each of three standardised features makes a third of the squared distances."""
    X = rng.normal(size=(200, 3)) * [1.0, 2.0, 0.5]
    display = MetricDisplay.from_predictions(L, X, kind="features", n_shown=2)
    equal, after = display.ax_.get_lines()
    order = np.argsort(-display.contributions())[:2]
    np.testing.assert_allclose(equal.get_xdata(), 100 / 3)
    np.testing.assert_allclose(after.get_xdata(), 100 * display.contributions()[order])
    assert display.ax_.get_xlabel() == "share of squared distances (%)"


def test_the_features_that_weigh_most_come_first():
    display = MetricDisplay.from_predictions(L[:, ::-1], kind="features", n_shown=2)
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names == ["feature 2", "feature 1"]
    assert display.ax_.get_title() == "1 more features: 7%"


def test_pictures_are_the_rows_of_the_map(lmnn, digits):
    display = MetricDisplay.from_estimator(lmnn, image_shape=(8, 8), n_shown=3)
    table = display.ax_.images[0].get_array()
    for number in range(3):
        row = lmnn.components_[number]
        part = table[:8, 9 * number : 9 * number + 8]
        picture = part * np.abs(row).max()
        assert min(np.abs(picture.ravel() - row).max(), np.abs(picture.ravel() + row).max()) < 1e-8
    beside = MetricDisplay.from_estimator(lmnn, digits[0], image_shape=(8, 8), n_shown=3)
    assert [text.get_text() for text in beside.ax_.get_yticklabels()] == ["LMNN", "PCA"]
    assert len(beside.ax_.images[0].get_array()) == 8 + 2 + 8


def test_as_many_principal_directions_are_shown_as_were_learned(digits):
    X, y = digits
    short = nearfar.LMNN(n_components=3, tol=0.5).fit(X, y)
    display = MetricDisplay.from_estimator(short, X, image_shape=(8, 8))
    assert display.ax_.images[0].get_array().shape == (8 + 2 + 8, 3 * 8 + 2)


def test_with_points_directions_are_the_principal_axes_of_the_images(lmnn, digits):
    X, _ = digits
    display = MetricDisplay.from_estimator(lmnn, X, image_shape=(8, 8))
    L = display.components
    np.testing.assert_allclose(L.T @ L, lmnn.get_mahalanobis_matrix(), atol=1e-10)
    covariance = np.cov(X @ L.T, rowvar=False)
    variances = np.diag(covariance)
    np.testing.assert_allclose(covariance, np.diag(variances), atol=1e-9)
    assert (np.diff(variances) <= 1e-12).all()
    row = L[0] * X.std(axis=0)
    picture = display.ax_.images[0].get_array()[:8, :8]
    np.testing.assert_allclose(picture, (row / np.abs(row).max()).reshape(8, 8))


def test_principal_directions_are_those_of_the_points(rng):
    from sklearn.decomposition import PCA

    X = rng.normal(size=(100, 6)) * [6, 5, 4, 3, 2, 1]
    display = MetricDisplay.from_predictions(np.eye(6), X, image_shape=(2, 3))
    expected = PCA().fit(X).components_
    cosines = np.abs((display.baseline * expected).sum(axis=1))
    np.testing.assert_allclose(cosines, 1)


def test_names_come_from_tables(wine):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(wine[0][:, :3], columns=["alcohol", "acid", "ash"])
    model = nearfar.LMNN(tol=0.1).fit(X, wine[1])
    for points in (X, None):
        display = MetricDisplay.from_estimator(model, points)
        assert display.feature_names == ["alcohol", "acid", "ash"]


def test_many_features_have_no_names_in_the_matrix(rng):
    display = MetricDisplay.from_predictions(rng.normal(size=(2, 41)))
    assert display.ax_.get_xlabel() == "feature"


def test_a_linear_kernel_has_a_matrix(iris):
    X, y = iris[0][::3], iris[1][::3]
    model = nearfar.KernelLMNN("linear", tol=0.1).fit(X, y)
    found = MetricDisplay.from_estimator(model).components
    np.testing.assert_allclose(found.T @ found, model.get_mahalanobis_matrix(), atol=1e-9)


def test_what_cannot_be_drawn_is_refused(lmnn, mvu):
    with pytest.raises(InvalidInputError, match="pictures need the shape"):
        MetricDisplay.from_estimator(lmnn, kind="images")
    with pytest.raises(InvalidInputError, match="has 81 pixels, and there are 64 features"):
        MetricDisplay.from_estimator(lmnn, image_shape=(9, 9))
    with pytest.raises(InvalidInputError, match="2 feature_names for 64 features"):
        MetricDisplay.from_estimator(lmnn, feature_names=["a", "b"])
    with pytest.raises(InvalidInputError, match=r"the 64 features of the metric; got shape \(4, 3"):
        MetricDisplay.from_estimator(lmnn, np.zeros((4, 3)))
    with pytest.raises(InvalidInputError, match="a finite map of shape"):
        MetricDisplay.from_predictions(np.zeros((2, 2, 2)))
    with pytest.raises(InvalidInputError, match="kind must be one of 'matrix'"):
        MetricDisplay.from_estimator(lmnn, kind="bars")
    with pytest.raises(InvalidInputError, match="linear"):
        MetricDisplay.from_estimator(mvu)
