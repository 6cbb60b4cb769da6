from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.plots import EllipsesDisplay


@pytest.fixture
def planar(rng):
    """Three classes of points in the plane, and a metric for each."""
    y = np.arange(150) % 3
    X = rng.normal(size=(150, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[y]
    return X, y, nearfar.MultiMetricLMNN(tol=0.1).fit(X, y)


def rims(display):
    """The ellipses, each drawn with a white rim under it and a line in it."""
    return [line.get_xydata() for line in display.ax_.get_lines()[1::3]]


def test_every_ellipse_lies_at_one_distance_under_its_own_metric(planar):
    X, y, model = planar
    display = EllipsesDisplay.from_estimator(model, radius=0.7)
    for label, rim in enumerate(rims(display)):
        middle = X[y == label].mean(axis=0)
        distances = np.linalg.norm((rim - middle) @ model.components_[label].T, axis=1)
        np.testing.assert_allclose(distances, 0.7)


def test_the_line_is_the_direction_that_is_stretched_most(planar):
    _, _, model = planar
    display = EllipsesDisplay.from_estimator(model)
    for label, line in enumerate(display.ax_.get_lines()[2::3]):
        first, last = line.get_xydata()
        leading = np.linalg.svd(model.components_[label])[2][0]
        cosine = (last - first) @ leading / np.linalg.norm(last - first)
        assert abs(cosine) == pytest.approx(1)


def test_more_features_are_cut_by_the_principal_plane(iris, monkeypatch):
    monkeypatch.setattr("nearfar.plots.ellipses.FARTHEST", 1e6)  # flat ones are not cut
    X, y = iris
    model = nearfar.MultiMetricLMNN(tol=0.1).fit(X, y)
    display = EllipsesDisplay.from_estimator(model)
    plane = np.linalg.svd(X - X.mean(axis=0))[2][:2]
    for label, rim in enumerate(rims(display)):
        middle = (X[y == label] @ plane.T).mean(axis=0)
        signs = np.sign((display.points * (X @ plane.T)).sum(axis=0))
        inside = (rim - middle * signs) * signs @ plane  # back among the features
        distances = np.linalg.norm(inside @ model.components_[label].T, axis=1)
        np.testing.assert_allclose(distances, display.radius_, rtol=1e-6)
    assert display.ax_.get_xlabel().startswith("axis 1 (")


def test_one_metric_is_drawn_around_every_class(planar):
    X, y, _ = planar
    model = nearfar.LMNN(tol=0.1).fit(X, y)
    display = EllipsesDisplay.from_estimator(model, X, y)
    shapes = [rim - rim.mean(axis=0) for rim in rims(display)]
    assert len(shapes) == 3
    np.testing.assert_allclose(shapes[1], shapes[0], atol=1e-9)


@pytest.mark.parametrize("partition", ["kmeans", "given"])
def test_clusters_have_their_own_metric(partition, iris):
    X, y = iris
    clusters = np.arange(150) % 11 if partition == "given" else None
    count = {"n_metrics": 11} if partition == "kmeans" else {}
    model = nearfar.MultiMetricLMNN(partition, tol=0.5, random_state=0, **count)
    model.fit(X, y, clusters)
    display = EllipsesDisplay.from_estimator(model)
    names = sorted({f"cluster {number}" for number in model.metric_of_})  # 10 after 1
    assert np.unique(display.groups).tolist() == names
    plane = np.linalg.svd(X - X.mean(axis=0))[2][:2]
    for name, matrix in zip(names, display.matrices, strict=True):
        seen = model.components_[int(name.split()[1])] @ plane.T
        np.testing.assert_allclose(np.linalg.eigvalsh(matrix), np.linalg.eigvalsh(seen.T @ seen))
    if partition == "kmeans":
        assert len(EllipsesDisplay.from_estimator(model, X[:20], y[:20]).points) == 20


def test_a_direction_without_length_is_cut_off(rng):
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    model = nearfar.LinearMetric([[1.0, 0.0]]).fit(X)
    display = EllipsesDisplay.from_estimator(model, X, y)
    assert all(np.isfinite(rim).all() for rim in rims(display))
    display.figure_.canvas.draw()


def test_a_pipeline_of_linear_steps_is_one_metric(iris):
    X, y = iris
    pipeline = make_pipeline(PCA(2), nearfar.LinearMetric(), KNeighborsClassifier()).fit(X, y)
    expected = EllipsesDisplay.from_estimator(nearfar.as_metric(pipeline[:-1]), X, y)
    for model in (pipeline, pipeline[:-1]):
        display = EllipsesDisplay.from_estimator(model, X, y)
        np.testing.assert_allclose(display.matrices, expected.matrices)


def test_of_a_pipeline_with_several_metrics_the_step_is_asked_for(iris):
    X, y = iris
    pipeline = make_pipeline(PCA(2), nearfar.MultiMetricLMNN(max_iter=2, tol=9.0)).fit(X, y)
    with pytest.raises(InvalidInputError, match=r"Give pipeline\[-1\] with X=pipeline\[:-1\]"):
        EllipsesDisplay.from_estimator(pipeline, X, y)
    EllipsesDisplay.from_estimator(pipeline[-1], pipeline[:-1].transform(X), y)


def test_what_cannot_be_drawn_is_refused(iris):
    X, y = iris
    with pytest.raises(InvalidInputError, match="at least two features; there is one"):
        EllipsesDisplay.from_estimator(nearfar.LinearMetric().fit(X[:, :1]), X[:, :1], y)
    with pytest.raises(InvalidInputError, match="Give points and labels"):
        EllipsesDisplay.from_estimator(nearfar.LinearMetric().fit(X), X)
    with pytest.raises(InvalidInputError, match="radius must be a number above 0; got 0"):
        EllipsesDisplay.from_estimator(nearfar.LinearMetric().fit(X), X, y, radius=0)
