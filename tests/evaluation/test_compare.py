"""The rows of the table."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.preprocessing import StandardScaler

from nearfar.datasets import load_builtin
from nearfar.estimators.lmnn import LMNN
from nearfar.evaluation import Split, baselines, compare, knn_error, measure, split_points


@pytest.fixture
def split():
    wine = load_builtin("wine")
    return split_points(wine.X / wine.X.std(axis=0), wine.y, 0.3, seed=0)


def test_rows_are_what_the_methods_give_alone(split):
    model = LMNN()
    rows = compare(model, split, n_neighbors=3)
    assert [row.method for row in rows] == ["Euclidean", "standardised", "PCA", "LDA", "LMNN"]
    alone = [None, StandardScaler(), PCA(0.95), LinearDiscriminantAnalysis(), LMNN()]
    for row, transformer in zip(rows, alone, strict=True):
        if transformer is not None:
            transformer.fit(split.X_train, split.y_train)
        error = knn_error(transformer, split.X_train, split.y_train, split.X_test, split.y_test, 3)
        assert row.error == error
        assert row.standard_error == pytest.approx(np.sqrt(error * (1 - error) / 53))
    assert [row.dimensions for row in rows] == [13, 13, 10, 2, len(model.components_)]
    assert [row.seconds is None for row in rows] == [True, False, False, False, False]
    assert all(row.seconds > 0 for row in rows[1:])
    assert [row.duality_gap is None for row in rows] == [True, True, True, True, False]
    assert rows[-1].duality_gap <= 1e-3


@pytest.mark.parametrize(("n_components", "dimensions"), [(1, [13, 13, 1, 1]), (5, [13, 13, 5, 2])])
def test_n_components_bounds_pca_and_lda(split, n_components, dimensions):
    rows = compare(StandardScaler(), split, n_components=n_components)
    assert [row.dimensions for row in rows[:-1]] == dimensions


def test_lda_needs_more_points_than_classes():
    X = np.arange(4.0)[:, None]
    rows = compare(StandardScaler(), Split(X[:2], np.array([0, 1]), X[2:], np.array([0, 1])), 1)
    assert [row.method for row in rows] == ["Euclidean", "standardised", "PCA", "StandardScaler"]


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PCA divides by a variance of zero
        *others, lda = baselines(split_points(X, y, 0.3, seed=0))
    assert [row.error for row in others] == [pytest.approx(errors)] * 3
    assert [row.reason for row in others] == [None] * 3
    assert (lda.method, lda.error, lda.standard_error, lda.dimensions) == ("LDA", None, None, None)
    assert lda.reason == "no class has two different training rows"
