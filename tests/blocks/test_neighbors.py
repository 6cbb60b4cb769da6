"""Neighbours, votes and measures of blocks are those of rows in memory."""

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import RCA, KernelMetric, NearestNeighborClassifier
from nearfar.errors import InvalidInputError
from nearfar.evaluation import knn_error, retrieval_measures
from nearfar.supervision.neighbor_blocks import nearest_in_blocks


@pytest.fixture(scope="module")
def digits():
    """Rows to search among, their labels, queries, and their labels."""
    X, y = load_digits(return_X_y=True)
    return X[:700], y[:700], X[700:900], y[700:900]


@pytest.fixture(scope="module")
def metric(digits):
    return RCA(n_components=5).fit(digits[0], digits[1])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 100)


def lazy(X, size=150):
    return da.from_array(X, chunks=(size, *X.shape[1:]))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, True)])
def test_nearest_rows_ties_by_number(kinds):
    """Equal points in different blocks: the lower number comes first."""
    points = np.repeat(np.arange(40.0), 20)[np.random.default_rng(0).permutation(800)][:, None]
    queries = np.arange(0, 40, 0.5)[:, None]
    near, squares = nearest_in_blocks(
        *(
            lazy(part) if kind else part
            for part, kind in zip((points, queries), kinds, strict=True)
        ),
        7,
    )
    table = (queries - points.T) ** 2
    expected = np.argsort(table, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(near, expected)
    np.testing.assert_array_equal(squares, np.take_along_axis(table, expected, 1))


@pytest.mark.usefixtures("small_blocks")
def test_a_classifier_of_blocks_predicts_as_one_in_memory(digits, metric):
    X, y, queries, truth = digits
    expected = NearestNeighborClassifier(metric).fit(X, y)
    model = NearestNeighborClassifier(metric).fit(lazy(X), lazy(y))
    assert isinstance(model.points_, da.Array)
    assert isinstance(model.labels_, np.ndarray)
    for found in (model.predict(queries), model.predict(lazy(queries, 70))):
        np.testing.assert_array_equal(found, expected.predict(queries))
    np.testing.assert_array_equal(model.predict_proba(queries), expected.predict_proba(queries))
    np.testing.assert_array_equal(model.kneighbors(queries)[1], expected.kneighbors(queries)[1])
    np.testing.assert_allclose(model.kneighbors()[0], expected.kneighbors()[0], rtol=1e-12)
    assert model.score(queries, truth) == expected.score(queries, truth)


def test_predictions_for_blocks_are_lazy_if_training_points_are_in_memory(digits, metric):
    X, y, queries, _ = digits
    model = NearestNeighborClassifier(metric).fit(X, y)
    labels, shares = model.predict(lazy(queries, 70)), model.predict_proba(lazy(queries, 70))
    assert isinstance(labels, da.Array)
    assert labels.dtype == y.dtype
    np.testing.assert_array_equal(labels.compute(), model.predict(queries))
    np.testing.assert_array_equal(shares.compute(), model.predict_proba(queries))
    with pytest.raises(InvalidInputError, match="needs rows in memory here"):
        model.kneighbors(lazy(queries))


def test_the_metric_is_learned_from_the_blocks(digits):
    X, y, queries, truth = digits
    model = NearestNeighborClassifier(RCA()).fit(lazy(X), y)
    assert model.score(queries, truth) == NearestNeighborClassifier(RCA()).fit(X, y).score(
        queries, truth
    )


def test_what_cannot_search_blocks_is_told(digits, metric):
    X, y = digits[:2]
    with pytest.raises(InvalidInputError, match="searches points in memory"):
        NearestNeighborClassifier(metric, algorithm="kd_tree").fit(lazy(X), y)
    kernel = KernelMetric(RCA()).fit(X[:100], y[:100])
    with pytest.raises(InvalidInputError, match="needs a linear metric"):
        NearestNeighborClassifier(kernel).fit(lazy(X), y)


@pytest.mark.usefixtures("small_blocks")
def test_errors_and_measures_are_those_in_memory(digits, metric, monkeypatch):
    monkeypatch.setattr("nearfar.evaluation.retrieval_blocks.TABLE_ENTRIES", 700 * 60)
    X, y, queries, truth = digits
    for model in (None, metric, make_pipeline(StandardScaler(), RCA()).fit(X, y)):
        error = knn_error(model, X, y, queries, truth)
        assert knn_error(model, lazy(X), lazy(y), lazy(queries), lazy(truth)) == error
        assert knn_error(model, X, y, lazy(queries, 90), truth) == error
        assert knn_error(model, lazy(X), y, queries, truth) == error
    expected = retrieval_measures(X, y, queries, truth, metric=metric)
    for documents, asked in ((lazy(X), queries), (X, lazy(queries)), (lazy(X), lazy(queries))):
        assert retrieval_measures(documents, y, asked, truth, metric=metric) == expected
    assert retrieval_measures(lazy(X[:300]), y[:300]) == retrieval_measures(X[:300], y[:300])


def test_a_cluster_finds_the_same_neighbours(client, digits, metric):
    assert client
    X, y, queries, truth = digits
    assert knn_error(metric, lazy(X), y, lazy(queries), truth) == knn_error(
        metric, X, y, queries, truth
    )
