"""What all displays keep: scikit-learn's convention, every fitted class, tensors, no matplotlib."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar
import nearfar.plots
from nearfar.errors import InvalidInputError
from nearfar.plots import (
    ConvergenceDisplay,
    DistancesDisplay,
    EllipsesDisplay,
    EmbeddingDisplay,
    MetricDisplay,
    NeighborsDisplay,
    ShepardDisplay,
    SpectrumDisplay,
)
from nearfar.registry import entries
from tests.processes import run_program

METRICS = [entry.name for entry in entries(kind="metric")]
EMBEDDINGS = [entry.name for kind in ("unfolding", "scaling") for entry in entries(kind=kind)]


def several_axes(display):
    return hasattr(display, "axes_")


DRAWN = [
    (EmbeddingDisplay, True),
    (NeighborsDisplay, True),
    (DistancesDisplay, True),
    (EllipsesDisplay, True),
    (SpectrumDisplay, False),
    (MetricDisplay, False),
    (ShepardDisplay, False),
    (ConvergenceDisplay, None),
]


def draw(kind, labels, model, X, y, **options):
    if labels is None:
        return kind.from_estimator(model, **options)
    if labels:
        return kind.from_estimator(model, X, y, **options)
    return kind.from_estimator(model, X, **options)


@pytest.mark.parametrize(
    ("kind", "labels"), DRAWN, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_convention_of_displays(kind, labels, lmnn, digits, plt, monkeypatch):
    """plot draws into given axes, keeps what it drew, and asks nothing of the model again."""
    display = draw(kind, labels, lmnn, *digits)
    for method in ("transform", "pair_distance", "get_mahalanobis_matrix"):
        monkeypatch.setattr(type(lmnn), method, None)
    if several_axes(display):
        figure, axes = plt.subplots(1, len(display.axes_))
        again = display.plot(axes)
        assert list(display.axes_) == list(np.atleast_1d(axes))
    else:
        figure, axes = plt.subplots()
        again = display.plot(axes)
        assert display.ax_ is axes
    assert again is display
    assert display.figure_ is figure
    assert all(part.has_data() for part in np.atleast_1d(axes))
    figure.canvas.draw()


@pytest.mark.parametrize(
    ("kind", "labels"), DRAWN, ids=lambda value: getattr(value, "__name__", "")
)
def test_an_unfitted_model_or_a_class_is_refused(kind, labels, digits):
    with pytest.raises(InvalidInputError, match="got the class LMNN"):
        draw(kind, labels, nearfar.LMNN, *digits)
    with pytest.raises(ValueError, match="not fitted yet"):
        draw(kind, labels, nearfar.LMNN(), *digits)


@pytest.mark.parametrize("name", METRICS)
def test_metric_learners(name, metric_learners, iris, plt):
    model, X, y = metric_learners[name], iris[0][::3], iris[1][::3]
    images = model.transform(X)
    shown = EmbeddingDisplay.from_estimator(model, X, y).embedding
    assert np.ptp(shown, axis=0).max() <= 1.0001 * np.linalg.norm(np.ptp(images, axis=0))
    pairs = np.stack([X[:40], X[10:]], axis=1)
    drawn = DistancesDisplay.from_estimator(model, pairs, np.where(y[:40] == y[10:], 1, -1))
    np.testing.assert_allclose(drawn.distances[name], model.pair_distance(pairs))
    before, after = NeighborsDisplay.from_estimator(model, X, y).agreement()
    assert 0.5 < before <= 1
    assert 0.5 < after <= 1
    assert list(SpectrumDisplay.from_estimator(model, X).spectra) == ["PCA of the inputs", name]
    assert ShepardDisplay.from_estimator(model, X).edges is None
    if "max_iter" not in model.get_params():
        with pytest.raises(InvalidInputError, match="was not iterated"):
            ConvergenceDisplay.from_estimator(model)
    else:
        assert "objective" in ConvergenceDisplay.from_estimator(model).panels_
    if name in {entry.name for entry in entries(kernel=True)}:
        with pytest.raises(InvalidInputError, match="only kernel='linear'"):
            MetricDisplay.from_estimator(model)
        with pytest.raises(InvalidInputError, match="linear metrics"):
            EllipsesDisplay.from_estimator(model, X, y)
    else:
        L = MetricDisplay.from_estimator(model).components
        np.testing.assert_allclose(L.T @ L, model.get_mahalanobis_matrix(), atol=1e-10)
        EllipsesDisplay.from_estimator(model, X, y)
    plt.close("all")


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings(name, embeddings, roll):
    model = embeddings[name]
    keeps = getattr(model, "X_fit_", None) is not None
    X = None if keeps else roll
    labels = np.arange(100) // 25
    np.testing.assert_array_equal(
        EmbeddingDisplay.from_estimator(model).embedding, model.embedding_
    )
    assert name in SpectrumDisplay.from_estimator(model, X).spectra
    shepard = ShepardDisplay.from_estimator(model, X)
    assert (shepard.edges is not None) == hasattr(model, "graph_")
    DistancesDisplay.from_estimator(model, y=labels)
    if keeps:
        NeighborsDisplay.from_estimator(model, y=labels)
    else:
        with pytest.raises(InvalidInputError, match="does not keep the points"):
            NeighborsDisplay.from_estimator(model, y=labels)
    if "max_iter" not in model.get_params():
        with pytest.raises(InvalidInputError, match="was not iterated"):
            ConvergenceDisplay.from_estimator(model)
    else:
        assert "objective" in ConvergenceDisplay.from_estimator(model).panels_
    with pytest.raises(InvalidInputError, match="linear metrics"):
        EllipsesDisplay.from_estimator(model, roll, labels)


@pytest.mark.parametrize("kind", [EmbeddingDisplay, DistancesDisplay, EllipsesDisplay])
def test_classifiers_know_their_points_and_labels(kind, iris):
    X, y = iris[0][::3], iris[1][::3]
    metric = nearfar.LMNN(tol=0.1).fit(X, y)
    for model in (
        nearfar.NearestNeighborClassifier(metric).fit(X, y),
        FrozenEstimator(nearfar.EnergyClassifier(metric).fit(X, y)),
    ):
        display = kind.from_estimator(model)
        direct = kind.from_estimator(metric, X, y)
        kept = "distances" if kind is DistancesDisplay else None
        if kept:
            first, second = (list(shown.distances.values())[1] for shown in (display, direct))
        else:
            attribute = "embedding" if kind is EmbeddingDisplay else "matrices"
            first, second = (getattr(shown, attribute) for shown in (display, direct))
        np.testing.assert_array_equal(first, second)


def test_pipelines_and_foreign_transformers(digits):
    X, y = digits
    pipeline = make_pipeline(PCA(10), nearfar.LMNN(tol=0.1)).fit(X, y)
    images = pipeline.transform(X)
    display = EmbeddingDisplay.from_estimator(pipeline, X, y)
    assert display.name == "LMNN"
    expected = PCA(2).fit_transform(images)
    np.testing.assert_allclose(np.abs(display.embedding), np.abs(expected), atol=1e-8)
    assert "objective" in ConvergenceDisplay.from_estimator(pipeline).panels_
    L = MetricDisplay.from_estimator(pipeline, image_shape=(8, 8)).components
    difference = X[0] - X[1]
    expected = np.linalg.norm(images[0] - images[1])
    np.testing.assert_allclose(np.linalg.norm(L @ difference), expected)
    distances = DistancesDisplay.from_estimator(PCA(2).fit(X), X, y).distances
    assert list(distances) == ["Euclidean distance", "PCA"]


def test_a_search_and_a_classifier_after_the_metric_are_looked_through(digits):
    X, y = digits
    pipeline = make_pipeline(PCA(10), nearfar.LMNN(tol=0.1), KNeighborsClassifier())
    search = GridSearchCV(pipeline, {"kneighborsclassifier__n_neighbors": [1, 3]}, cv=2).fit(X, y)
    before = search.best_estimator_[:-1]
    places = EmbeddingDisplay.from_estimator(before, X, y).embedding
    components = MetricDisplay.from_estimator(before).components
    for model in (search.best_estimator_, search, FrozenEstimator(search)):
        display = EmbeddingDisplay.from_estimator(model, X, y)
        np.testing.assert_array_equal(display.embedding, places)
        assert display.name == "LMNN"
        L = MetricDisplay.from_estimator(model).components
        np.testing.assert_array_equal(L, components)
        assert ConvergenceDisplay.from_estimator(model).history is before[-1].history_
        NeighborsDisplay.from_estimator(model, X, y)
        assert list(DistancesDisplay.from_estimator(model, X, y).distances)[1] == "LMNN"


def test_a_search_keeps_what_its_best_model_keeps(iris):
    X, y = iris[0][::3], iris[1][::3]
    classifier = nearfar.NearestNeighborClassifier(nearfar.LMNN(tol=0.1))
    search = GridSearchCV(classifier, {"n_neighbors": [1, 3]}, cv=2).fit(X, y)
    for kind, attribute in ((EmbeddingDisplay, "embedding"), (EllipsesDisplay, "matrices")):
        shown, direct = (kind.from_estimator(m) for m in (search, search.best_estimator_))
        np.testing.assert_array_equal(getattr(shown, attribute), getattr(direct, attribute))
    with pytest.raises(NotFittedError):
        EmbeddingDisplay.from_estimator(GridSearchCV(classifier, {"n_neighbors": [1]}), X, y)


def test_a_pipeline_that_ends_in_a_classifier_of_nearfar_is_given_in_parts(iris):
    X, y = iris[0][::3], iris[1][::3]
    metric = nearfar.LMNN(tol=0.1)
    remedy = r"Give pipeline\[-1\] with X=pipeline\[:-1\]\.transform\(X\)\.$"
    for last in (nearfar.NearestNeighborClassifier(metric), nearfar.MultiMetricLMNN(tol=0.1)):
        pipeline, name = make_pipeline(PCA(2), last).fit(X, y), type(last).__name__
        for kind in (EmbeddingDisplay, NeighborsDisplay, DistancesDisplay):
            with pytest.raises(InvalidInputError, match=f"{name} measures.*{remedy}"):
                kind.from_estimator(pipeline, X, y)
        with pytest.raises(InvalidInputError, match=remedy):
            MetricDisplay.from_estimator(pipeline)
        NeighborsDisplay.from_estimator(pipeline[-1], pipeline[:-1].transform(X), y)
        assert "objective" in ConvergenceDisplay.from_estimator(pipeline).panels_


def test_several_metrics(iris):
    X, y = iris[0][::3], iris[1][::3]
    model = nearfar.MultiMetricLMNN(tol=0.1).fit(X, y)
    for kind in (EmbeddingDisplay, DistancesDisplay):
        with pytest.raises(InvalidInputError, match="several metrics"):
            kind.from_estimator(model, X, y)
    with pytest.raises(InvalidInputError, match=r"3 metrics.*metric=0 to metric=2"):
        MetricDisplay.from_estimator(model)
    M = model.get_mahalanobis_matrix()[1]
    L = MetricDisplay.from_estimator(model, metric=1).components
    np.testing.assert_allclose(L.T @ L, M, atol=1e-10)
    with pytest.raises(InvalidInputError, match="Leave metric=1 out"):
        MetricDisplay.from_estimator(nearfar.LinearMetric().fit(X), metric=1)
    assert "active_triplets" in ConvergenceDisplay.from_estimator(model).panels_


@pytest.mark.torch
def test_tensors_are_drawn_like_arrays(torch, iris):
    X, y = iris[0][::3], iris[1][::3]
    tensor, labels = torch.tensor(X), torch.tensor(y)
    models = {
        "arrays": (nearfar.LMNN(tol=0.1).fit(X, y), X, y),
        "tensors": (nearfar.LMNN(tol=0.1).fit(tensor, labels), tensor, labels),
    }
    found = {}
    for name, (model, points, classes) in models.items():
        found[name] = [
            EmbeddingDisplay.from_estimator(model, points, classes).embedding,
            NeighborsDisplay.from_estimator(model, points, classes).after,
            DistancesDisplay.from_estimator(model, points, classes).distances["LMNN"],
            SpectrumDisplay.from_estimator(model, points).spectra["LMNN"],
            MetricDisplay.from_estimator(model, points, kind="features").contributions(),
            ShepardDisplay.from_estimator(model, points).embedded,
            EllipsesDisplay.from_estimator(model, points, classes).matrices,
        ]
    for array, other in zip(found["arrays"], found["tensors"], strict=True):
        assert isinstance(other, np.ndarray)
        np.testing.assert_allclose(other, array, atol=1e-6)


@pytest.mark.torch
def test_an_embedding_of_tensors(torch, roll):
    model = nearfar.ClassicalMDS().fit(torch.tensor(roll))
    display = EmbeddingDisplay.from_estimator(model, y=torch.arange(100) // 25)
    np.testing.assert_array_equal(display.embedding, model.embedding_.numpy())
    assert ShepardDisplay.from_estimator(model, torch.tensor(roll)).slope == 1.0


def test_names_are_loaded_when_used():
    program = (
        "import sys, nearfar.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "for name in plots.__all__: getattr(plots, name)\n"
        "assert 'matplotlib' not in sys.modules\n"
        "assert set(plots.__all__) <= set(dir(plots))"
    )
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = nearfar.plots.Nothing


def test_the_error_without_matplotlib_names_the_command():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from nearfar.plots import EmbeddingDisplay\n"
        "EmbeddingDisplay.from_predictions([[0.0, 1.0], [1.0, 0.0]])"
    )
    done = run_program(program)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'nearfar[plot]'" in done.stderr


def test_distances_that_were_given_are_not_taken_for_points(roll):
    D = np.linalg.norm(roll[:, None] - roll[None], axis=2)
    model = nearfar.MetricMDS(metric="precomputed", random_state=0).fit(D)
    heads, tails = np.triu_indices(100, 1)
    np.testing.assert_array_equal(ShepardDisplay.from_estimator(model, D).given, D[heads, tails])
    points = nearfar.LinearMetric().fit(roll)
    labels = np.arange(100) // 25
    expected = NeighborsDisplay.from_estimator(points, roll, labels).before
    np.testing.assert_array_equal(
        NeighborsDisplay.from_estimator(model, D, labels).before, expected
    )
    name = "PCA of the inputs"
    expected = SpectrumDisplay.from_estimator(points, roll).spectra[name]
    found = SpectrumDisplay.from_estimator(model, D).spectra[name]
    np.testing.assert_allclose(found[:3], expected, atol=1e-9)
    shown = DistancesDisplay.from_estimator(model, D, labels)
    expected = DistancesDisplay.from_estimator(points, roll, labels)
    np.testing.assert_allclose(
        shown.distances["distance given"], expected.distances["Euclidean distance"]
    )


def test_kernel_values_that_were_given_are_not_taken_for_points(rng):
    X, y = rng.normal(size=(50, 4)), np.arange(50) % 3
    K = (X - X.mean(axis=0)) @ (X - X.mean(axis=0)).T
    model = nearfar.KernelLMNN("precomputed", tol=0.1).fit(K, y)
    by_points = NeighborsDisplay.from_estimator(nearfar.LinearMetric().fit(X), X, y)
    np.testing.assert_array_equal(
        NeighborsDisplay.from_estimator(model, K, y).before, by_points.before
    )
    shown = ShepardDisplay.from_estimator(model, K)
    heads, tails = np.triu_indices(50, 1)
    expected = np.linalg.norm(X[heads] - X[tails], axis=1)
    np.testing.assert_allclose(shown.given, expected, atol=1e-7)
    with pytest.raises(InvalidInputError, match="Give a square matrix"):
        ShepardDisplay.from_estimator(model, K[:5])


def test_models_that_place_no_new_points_say_so(embeddings, roll):
    with pytest.raises(InvalidInputError, match="the points of fit only, which were 100; X has 3"):
        EmbeddingDisplay.from_estimator(embeddings["MetricMDS"], roll[:3])


def test_sparse_points_of_a_pipeline(digits):
    from scipy import sparse
    from sklearn.decomposition import TruncatedSVD

    X, y = digits
    pipeline = make_pipeline(TruncatedSVD(8, random_state=0), nearfar.LMNN(tol=0.1))
    pipeline.fit(sparse.csr_array(X), y)
    for kind in (EmbeddingDisplay, NeighborsDisplay, DistancesDisplay):
        kind.from_estimator(pipeline, sparse.csr_array(X), y)
    shown = NeighborsDisplay.from_estimator(pipeline, sparse.csr_array(X), y)
    dense = NeighborsDisplay.from_estimator(pipeline, X, y)
    np.testing.assert_array_equal(shown.before, dense.before)
    np.testing.assert_array_equal(shown.after, dense.after)
