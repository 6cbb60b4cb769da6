"""What a report accepts, and what it refuses with words."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from nearfar import (
    LMNN,
    MetricMDS,
    MultiMetricLMNN,
    NearestNeighborClassifier,
    NeighborhoodGraph,
    VariationalMVU,
)
from nearfar.analysis import study as module
from nearfar.analysis.models import sample_rows
from nearfar.analysis.study import study
from nearfar.errors import InvalidInputError

ROLL = np.random.default_rng(0).normal(size=(60, 3))


@pytest.fixture
def given(wine_report_example):
    return wine_report_example


def test_rows_are_split_as_asked(given):
    subject = study(given.model, given.X, given.y, test=given.test)
    assert subject.voters.tolist() == np.flatnonzero(~given.test).tolist()
    assert subject.tested.tolist() == np.flatnonzero(given.test).tolist()
    assert subject.held_out
    train = np.array([9, 4, 100])  # their order decides ties, so that it is kept
    subject = study(given.model, given.X, given.y, train=train, test=[0, 1], n_neighbors=2)
    assert subject.voters.tolist() == [9, 4, 100]
    assert (subject.tested.tolist(), subject.n_test) == ([0, 1], 2)


def test_many_rows_are_tested_in_part(given, monkeypatch):
    monkeypatch.setattr(module, "TESTED", 20)
    subject = study(given.model, given.X, given.y, test=given.test, random_state=3)
    assert (len(subject.tested), subject.n_test) == (20, given.test.sum())
    assert set(subject.tested) <= set(np.flatnonzero(given.test))
    monkeypatch.setattr(module, "PAIRS", 119 * 5)
    monkeypatch.setattr(module, "FEWEST_TESTED", 2)
    assert len(study(given.model, given.X, given.y, test=given.test).tested) == 5


def test_drawn_rows_are_distinct_and_in_order():
    rows = np.arange(100, 200)
    few = sample_rows(rows, 30, 0)
    assert len(set(few)) == 30
    assert (np.diff(few) > 0).all()
    assert sample_rows(rows, 30, 0).tolist() == few.tolist() != sample_rows(rows, 30, 1).tolist()
    assert sample_rows(rows, 100, 0) is rows


def test_a_model_that_keeps_its_points_needs_no_others(given):
    X = given.X / given.X.std(axis=0)
    model = NearestNeighborClassifier(given.model).fit(given.X, given.y)
    subject = study(model)
    np.testing.assert_array_equal(subject.X, given.X)
    np.testing.assert_array_equal(subject.y, given.y)
    assert subject.metric is model.metric_
    several = MultiMetricLMNN(max_iter=2, tol=10.0).fit(X, given.y)
    assert study(several).images is None
    with pytest.raises(InvalidInputError, match="a LMNN does not keep the points"):
        study(given.model)


def test_an_unfolding_shows_its_own_places_and_places_others():
    model = VariationalMVU(n_neighbors=8, random_state=0).fit(ROLL)
    for X in (None, ROLL, ROLL.copy()):
        np.testing.assert_array_equal(study(model, X).images, model.embedding_)
    new = ROLL[:7] + 0.01
    np.testing.assert_array_equal(study(model, new).images, model.transform(new))
    scaled = MetricMDS(max_iter=5, tol=10.0).fit(ROLL)
    with pytest.raises(InvalidInputError, match="places the 60 points of its fit only; X has 7"):
        study(scaled, new)


def test_a_frozen_model_is_the_model_in_it(given):
    assert study(FrozenEstimator(given.model), given.X).model is given.model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.ones((9, 5))}, "was fitted to 13 features, and X has 5"),
        ({"y": [1, 2]}, "a label for each of the 178 rows; got y of shape"),
        ({"test": [0, 178]}, "from 0 to 177; got 178"),
        ({"test": [3, 3]}, "distinct row numbers from 0 to 177; got one of them twice"),
        ({"test": [0.5]}, "test must be row numbers or a mask of the 178 rows"),
        ({"test": [1], "train": [0, 1, 2]}, "row 1 stands in train and in test"),
        ({"test": []}, "at least two training rows and one to test; got 178 and 0"),
        ({"test": np.arange(177)}, "at least two training rows and one to test; got 1 and 177"),
        (
            {"n_neighbors": 178},
            "n_neighbors=178 must be at least 1 and below the 178 training rows",
        ),
        ({"feature_names": ["a"]}, "a name for each of the 13 features; got 1"),
    ],
)
def test_what_does_not_fit_is_refused(given, changes, message):
    arguments = {"X": given.X, "y": given.y, **changes}
    with pytest.raises(InvalidInputError, match=message):
        study(given.model, **arguments)


def test_voters_of_a_classifier_are_its_own(given):
    X = given.X / given.X.std(axis=0)
    model = MultiMetricLMNN(max_iter=2, tol=10.0).fit(X, given.y)
    with pytest.raises(InvalidInputError, match="n_neighbors=5 does not go with a MultiMetricLMNN"):
        study(model, X, given.y, n_neighbors=5)


def test_labels_of_a_classifier_are_written_as_for_its_fit(given):
    X = given.X / given.X.std(axis=0)
    model = MultiMetricLMNN(max_iter=2, tol=10.0).fit(X, given.y)
    words = np.array(["a", "b", "c"])[given.y]
    with pytest.raises(InvalidInputError, match="labels are <U1, and the MultiMetricLMNN predicts"):
        study(model, X, words)


def test_an_unfolding_of_distances_or_a_graph_shows_its_places():
    D = pairwise_distances(ROLL)
    model = MetricMDS(metric="precomputed", max_iter=5, tol=10.0).fit(D)
    for X in (None, D, sparse.csr_array(D)):
        subject = study(model, X)
        np.testing.assert_array_equal(subject.images, model.embedding_)
        assert subject.X is None
    graph = NeighborhoodGraph.from_points(ROLL, 8)
    model = VariationalMVU(random_state=0).fit(graph)
    np.testing.assert_array_equal(study(model, graph).X, ROLL)


def test_a_pipeline_is_shown_among_the_features_that_come_to_it(given):
    """L diag(1 / scale) is the map of the features, and images are those of the pipeline."""
    pipeline = make_pipeline(StandardScaler(), LMNN(max_iter=2, tol=10.0)).fit(given.X, given.y)
    for model in (pipeline, FrozenEstimator(pipeline)):
        shown = study(model, given.X, given.y)
        np.testing.assert_array_equal(shown.images, pipeline.transform(given.X))
        np.testing.assert_array_equal(shown.X, given.X)
        expected = pipeline[-1].components_ / pipeline[0].scale_
        np.testing.assert_allclose(shown.maps[0], expected, rtol=1e-6)
        assert shown.learner is pipeline[-1]


def test_a_pipeline_with_a_step_that_is_not_linear_has_no_map(given):
    pipeline = make_pipeline(Normalizer(), LMNN(max_iter=2, tol=10.0)).fit(given.X, given.y)
    shown = study(pipeline, given.X, given.y)
    assert shown.maps is None
    assert shown.feature_shares() is None
    np.testing.assert_array_equal(shown.images, pipeline.transform(given.X))


def test_a_pipeline_must_end_in_an_estimator_of_nearfar(given):
    pipeline = make_pipeline(LMNN(max_iter=2, tol=10.0), KNeighborsClassifier())
    pipeline.fit(given.X, given.y)
    with pytest.raises(
        NotFittedError, match=r"ends in a KNeighborsClassifier\. Give pipeline\[:-1"
    ):
        study(pipeline, given.X)
    with pytest.raises(InvalidInputError, match="a pipeline does not keep the points"):
        study(pipeline[:-1])


def test_of_a_search_the_best_model_is_shown(given):
    search = GridSearchCV(
        NearestNeighborClassifier(LMNN(max_iter=2, tol=10.0)), {"n_neighbors": [1, 3]}, cv=2
    ).fit(given.X, given.y)
    shown = study(search, given.X, given.y)
    best = search.best_estimator_.metric_
    np.testing.assert_array_equal(shown.images, best.transform(given.X))


def test_a_model_must_be_fitted(given):
    with pytest.raises(NotFittedError, match="this LMNN is not fitted"):
        study(LMNN(), given.X)


@pytest.mark.torch
def test_tensors_come_to_the_host(given, torch):
    X = torch.tensor(given.X)
    model = LMNN(max_iter=5, tol=10.0).fit(X, given.y)
    subject = study(model, X, torch.tensor(given.y))
    assert isinstance(subject.images, np.ndarray)
    np.testing.assert_allclose(subject.images, model.transform(X).numpy())
    assert subject.y.tolist() == given.y.tolist()
