"""The rows of the table."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar.datasets import load_builtin
from nearfar.errors import InvalidInputError
from nearfar.estimators.linear_metric import LinearMetric
from nearfar.estimators.lmnn import LMNN
from nearfar.estimators.nearest import NearestNeighborClassifier
from nearfar.estimators.rca import RCA
from nearfar.evaluation import (
    Split,
    baselines,
    compare,
    compare_fitted,
    knn_error,
    measure,
    split_points,
)
from nearfar.evaluation.compare import companion_of

METHODS = ["Euclidean", "standardised", "LDA", "shrunk LDA", "LMNN", "LMNN, standardised"]


@pytest.fixture
def split():
    wine = load_builtin("wine")
    return split_points(wine.X / wine.X.std(axis=0), wine.y, 0.3, seed=0)


def test_rows_are_what_the_methods_give_alone(split):
    model = LMNN()
    rows = compare(model, split, n_neighbors=3).rows
    assert [row.method for row in rows] == METHODS
    alone = [
        None,
        StandardScaler(),
        LinearDiscriminantAnalysis(),
        LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        LMNN(),
        make_pipeline(StandardScaler(), LMNN()),
    ]
    for row, transformer in zip(rows, alone, strict=True):
        if transformer is not None:
            transformer.fit(split.X_train, split.y_train)
        error = knn_error(transformer, split.X_train, split.y_train, split.X_test, split.y_test, 3)
        assert row.error == error
        assert row.standard_error == pytest.approx(np.sqrt(error * (1 - error) / 53))
    assert [row.dimensions for row in rows[:5]] == [13, 13, 2, 2, len(model.components_)]
    assert [row.seconds is None for row in rows] == [True, *[False] * 5]
    assert all(row.seconds > 0 for row in rows[1:])
    assert [row.duality_gap is None for row in rows] == [*[True] * 4, False, False]
    assert all(row.duality_gap <= 1e-3 for row in rows[4:])


def test_the_rows_are_the_same_whichever_variant_is_the_model(split):
    found = [compare(model, split) for model in (LMNN(), make_pipeline(StandardScaler(), LMNN()))]
    bare, standardised = (comparison.rows for comparison in found)
    assert [row.method for row in bare] == [row.method for row in standardised] == METHODS
    assert [row.error for row in bare] == [row.error for row in standardised]
    assert [comparison.model.method for comparison in found] == ["LMNN", "LMNN, standardised"]


def test_a_fit_that_took_long_is_not_repeated(split):
    model = LMNN().fit(split.X_train, split.y_train)
    rows = compare_fitted(model, split, seconds=31.4).rows
    assert rows[-1].reason == "the fit of LMNN took 31 s"
    model.history_[-1]["seconds"] = 99.0
    assert compare_fitted(model, split).rows[-1].reason == "the fit of LMNN took 99 s"


def test_the_copy_leaves_the_checkpoint_alone(tmp_path):
    model = LMNN(checkpoint=tmp_path / "checkpoint", max_seconds=100)
    copy = companion_of(model)
    assert (copy[-1].checkpoint, copy[-1].max_seconds) == (None, 30)
    assert companion_of(LMNN(max_seconds=2))[-1].max_seconds == 2


def test_a_map_that_is_given_has_no_copy(split):
    rows = compare(LinearMetric(), split).rows
    assert [row.method for row in rows] == [*METHODS[:4], "LinearMetric"]
    frozen = NearestNeighborClassifier(FrozenEstimator(LMNN().fit(split.X_train, split.y_train)))
    assert companion_of(frozen) is None
    assert companion_of(StandardScaler()) is None


def test_chunklets_are_classes(split):
    """A class called -1 is not "no chunklet"."""
    renamed = replace(split, y_train=split.y_train - 1, y_test=split.y_test - 1)
    expected, found = (compare(RCA(), one).rows for one in (split, renamed))
    assert [row.error for row in found] == [row.error for row in expected]


def test_chunklets_have_the_weights_of_their_classes(split):
    renamed = replace(split, y_train=3 * split.y_train - 1, y_test=3 * split.y_test - 1)
    model = RCA(class_weight={2: 30.0})
    compare(model, renamed)
    expected = RCA(class_weight={1: 30.0}).fit(split.X_train, split.y_train)
    np.testing.assert_allclose(model.components_, expected.components_)


def test_a_copy_that_cannot_be_fitted_says_why(split):
    model = LMNN().fit(split.X_train, split.y_train)
    model.n_neighbors = 0
    row = compare_fitted(model, split).rows[-1]
    assert row.error is None
    assert "n_neighbors" in row.reason


@pytest.mark.parametrize(("n_components", "dimensions"), [(1, [1, 1]), (5, [2, 2])])
def test_n_components_bounds_lda(split, n_components, dimensions):
    rows = compare(StandardScaler(), split, n_components=n_components).rows
    assert [row.dimensions for row in rows[2:4]] == dimensions


def test_lda_needs_more_points_than_classes():
    X = np.arange(4.0)[:, None]
    rows = compare(LinearMetric(), Split(X[:2], np.array([0, 1]), X[2:], np.array([0, 1])), 1).rows
    reason = "it needs two classes, and more training rows than classes"
    assert [row.reason for row in rows] == [None, None, reason, reason, None]


def test_shrinking_many_features_takes_too_long():
    X = np.random.default_rng(0).standard_normal((20, 5001))
    lda = baselines(split_points(X, np.arange(20) % 2, 0.5, seed=0))[3]
    assert lda.reason == "covariances of 5,001 features take too long to shrink"


def test_measure_fits_nothing(split):
    scaler = StandardScaler().fit(split.X_train)
    row = measure(scaler, split)
    assert row.method == "StandardScaler"
    assert row.seconds is None
    assert row.duality_gap is None


def test_a_classifier_without_a_map_predicts_by_itself(split):
    """Whatever the labels of the points that vote for the others."""
    model = DummyClassifier().fit(split.X_train, split.y_train)
    row = measure(model, replace(split, y_train=split.y_train[::-1]), 5, 0.25)
    assert row.method == "DummyClassifier"
    assert row.dimensions == 13
    assert row.error == np.mean(split.y_test != np.bincount(split.y_train).argmax())
    assert row.seconds == 0.25


@pytest.mark.parametrize(
    ("points", "errors"), [("constant", 2 / 3), ("the class", 0.0)], ids=["constant", "the class"]
)
def test_a_baseline_that_cannot_be_computed_says_why(points, errors):
    """LDA divides by the variance within the classes, and here there is none."""
    y = np.arange(60) % 3
    X = np.ones((60, 2)) if points == "constant" else np.column_stack([y, y]).astype(float)
    *others, lda, shrunk = baselines(split_points(X, y, 0.3, seed=0))
    assert [row.error for row in others] == [pytest.approx(errors)] * 2
    assert [row.reason for row in others] == [None] * 2
    for row, name in ((lda, "LDA"), (shrunk, "shrunk LDA")):
        assert (row.method, row.error, row.standard_error, row.dimensions) == (name, *[None] * 3)
        assert row.reason == "no class has two different training rows"


@pytest.mark.parametrize("arguments", [(LMNN(), np.eye(4)), (np.eye(4), LMNN())])
def test_points_that_are_not_split_are_refused(arguments):
    with pytest.raises(InvalidInputError, match="takes a model first and the split points second"):
        compare(*arguments)
