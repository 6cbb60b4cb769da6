"""The choice of target neighbours and push weight on held-out rows."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from nearfar import LMNN, NCA
from nearfar.errors import InvalidInputError
from nearfar.evaluation import choose_targets, knn_error, split_points


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_the_errors_are_those_of_separate_fits(iris):
    """Warm starts along the grid change the path, not the optimum."""
    X, y = iris
    learner = LMNN(shrinkage=0, tol=1e-6)
    choice = choose_targets(X, y, learner, (1, 4), (0.3, 0.5), random_state=3)
    seed = np.random.RandomState(3).randint(2**31 - 1)
    rows = split_points(np.arange(len(y)), y, 0.3, seed)
    expected = []
    for k in (1, 4):
        for weight in (0.3, 0.5):
            model = LMNN(k, weight, shrinkage=0, tol=1e-6).fit(X[rows.X_train], rows.y_train)
            parts = X[rows.X_train], rows.y_train, X[rows.X_test], rows.y_test
            expected.append((k, weight, knn_error(model, *parts, n_neighbors=k)))
    assert [(t.n_neighbors, t.push_weight) for t in choice.trials] == [e[:2] for e in expected]
    # To a gap of 1e-2 the maps differ a little, and so may one of the 45 rows.
    np.testing.assert_allclose(
        [t.error for t in choice.trials], [e[2] for e in expected], atol=0.05
    )


def test_the_best_is_fitted_to_all_rows(iris):
    X, y = iris
    choice = choose_targets(X, y, LMNN(shrinkage=0), (1, 3), random_state=0)
    direct = LMNN(choice.best.n_neighbors, choice.best.push_weight, shrinkage=0).fit(X, y)
    assert choice.best.error == min(trial.error for trial in choice.trials)
    assert choice.learner.get_params() == direct.get_params()
    assert choice.learner.duality_gap_ <= choice.learner.tol
    assert choice.learner.objective_ == pytest.approx(direct.objective_, rel=2e-3)


def test_more_targets_where_a_class_is_a_cloud():
    """Balance: each class fills a region of a grid, where one neighbour says little."""
    generator = np.random.default_rng(0)
    X = generator.integers(1, 6, size=(300, 4)).astype(float)
    y = np.sign(X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3])
    choice = choose_targets(X, y, LMNN(shrinkage=0), (1, 10), n_splits=2, random_state=0)
    errors = {trial.n_neighbors: trial.error for trial in choice.trials}
    assert choice.best.n_neighbors == 10
    assert errors[10] < errors[1]


def test_equal_errors_choose_fewer_neighbors_and_a_weight_near_one_half():
    X = np.concatenate([np.zeros((20, 2)), np.full((20, 2), 50.0)])
    X = X + np.random.default_rng(0).normal(size=X.shape)
    y = np.repeat([0, 1], 20)
    choice = choose_targets(X, y, None, (3, 1), (0.2, 0.6, 0.9), random_state=0)
    assert {trial.error for trial in choice.trials} == {0.0}
    assert (choice.best.n_neighbors, choice.best.push_weight) == (1, 0.6)


def test_as_text(iris):
    text = str(choose_targets(*iris, n_neighbors=(1, 3), random_state=0))
    assert text.count("<- best") == 1
    assert text.splitlines()[0].split() == ["n_neighbors", "push_weight", "error"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learner": NCA()}, "learner must be an LMNN; got NCA"),
        ({"learner": LMNN(validation_fraction=0.2)}, "hold rows out twice"),
        ({"n_neighbors": 5}, r"n_neighbors must hold the numbers to try; got 5.*\(5,\)"),
        ({"n_neighbors": ()}, "must each name at least one number"),
        ({"n_neighbors": (0,)}, "n_neighbors must be an integer of at least 1; got 0"),
        ({"push_weight": (1.0,)}, "push_weight must be a number between 0 and 1"),
        ({"validation_fraction": 1.5}, "validation_fraction must be a number between 0 and 1"),
        ({"n_splits": 0}, "n_splits must be an integer of at least 1"),
    ],
)
def test_bad_parameters(iris, options, message):
    with pytest.raises(InvalidInputError, match=message):
        choose_targets(*iris, **options)
