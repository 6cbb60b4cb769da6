"""`nearfar.compat.sklearn_nca`: scikit-learn's constructor, nearfar's map."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.neighbors import NeighborhoodComponentsAnalysis as Original

from nearfar.compat.sklearn_nca import NeighborhoodComponentsAnalysis
from nearfar.errors import ConvergenceWarning, DataWarning
from tests.callbacks import needs_callbacks


@pytest.fixture
def iris():
    return load_iris(return_X_y=True)


def test_the_parameters_are_scikit_learns():
    assert NeighborhoodComponentsAnalysis().get_params() == Original().get_params()


def test_the_map_is_nearfars_and_as_good(iris):
    X, y = iris
    ours = NeighborhoodComponentsAnalysis(n_components=2, max_iter=200).fit(X, y)
    theirs = Original(n_components=2, max_iter=200).fit(X, y)
    np.testing.assert_array_equal(ours.components_, ours.learner_.components_)
    assert ours.components_.shape == theirs.components_.shape

    def expected(L):
        squares = (((X[:, None] - X) @ L.T) ** 2).sum(axis=2)
        np.fill_diagonal(squares, np.inf)
        chances = np.exp(squares.min(axis=1, keepdims=True) - squares)
        return (chances * (y[:, None] == y)).sum(axis=1) / chances.sum(axis=1)

    assert expected(ours.components_).sum() >= expected(theirs.components_).sum() - 0.5


@needs_callbacks
def test_a_callback_gets_each_map(iris):
    seen = []

    def callback(flat, n_iter):
        seen.append((flat.shape, n_iter))

    with pytest.warns(ConvergenceWarning):
        NeighborhoodComponentsAnalysis(max_iter=3, callback=callback).fit(*iris)
    assert seen == [((16,), 1), ((16,), 2), ((16,), 3)]


def test_verbose_prints_a_line_for_each_iteration(iris, capsys):
    NeighborhoodComponentsAnalysis(n_components=2, verbose=1).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Finding most discriminative components... done in")
    assert lines[1] == "[NeighborhoodComponentsAnalysis]"
    assert "Training took" in lines[-1]


def test_one_class_leaves_the_start(iris):
    X = iris[0][:50]
    with pytest.warns(DataWarning, match="nothing to learn"):
        model = NeighborhoodComponentsAnalysis(init="identity").fit(X, np.zeros(50, int))
    np.testing.assert_array_equal(model.transform(X), X)
