"""The choice of target neighbours and push weight on held-out rows."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from nearfar import LMNN, NCA
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.evaluation import choose_targets, knn_error, split_points, targets


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
    # Trials are rough, so that a few of the 45 rows may differ.
    np.testing.assert_allclose(
        [t.error for t in choice.trials], [e[2] for e in expected], atol=0.07
    )


def test_the_best_is_fitted_to_all_rows(iris):
    X, y = iris
    choice = choose_targets(X, y, LMNN(shrinkage=0), (1, 3), random_state=0)
    direct = LMNN(choice.best.n_neighbors, choice.best.push_weight, shrinkage=0).fit(X, y)
    assert choice.best.error == min(trial.error for trial in choice.trials)
    assert choice.learner.get_params() == direct.get_params()
    np.testing.assert_array_equal(choice.learner.components_, direct.components_)


@pytest.fixture
def fits(monkeypatch):
    """What each fit of LMNN was given: its neighbours, tol, start, rows and targets."""
    made, fit = [], LMNN.fit

    def recorded(self, X, y, target_neighbors=None):
        made.append((self.n_neighbors, self.tol, self.warm_start, len(X), target_neighbors))
        return fit(self, X, y, target_neighbors)

    monkeypatch.setattr(LMNN, "fit", recorded)
    return made


@pytest.mark.parametrize("shrinkage", [0, "auto"])
def test_trials_are_cheap(iris, fits, shrinkage):
    """A trial is rough, starts at the one before, and learns from three targets of each row."""
    X, y = iris
    choice = choose_targets(X, y, LMNN(shrinkage=shrinkage), (2, 5, 9), random_state=0)
    assert [fit[:4] for fit in fits[:3]] == [
        (2, 0.3, False, 105),
        (5, 0.3, True, 105),
        (9, 0.3, True, 105),
    ]
    assert [fit[:4] for fit in fits[3:]] == [(choice.best.n_neighbors, 1e-3, False, 150)]
    first, *drawn, last = [fit[4] for fit in fits]
    assert first is None
    assert last is None
    assert [table.shape for table in drawn] == [(105, 3), (105, 3)]


def test_the_drawn_targets_are_among_the_nearest(iris, fits):
    X, y = iris
    choose_targets(X, y, LMNN(shrinkage=0), (1, 6), random_state=3)
    rows = split_points(np.arange(len(y)), y, 0.3, np.random.RandomState(3).randint(2**31 - 1))
    points, labels = X[rows.X_train], rows.y_train
    for i, drawn in enumerate(fits[1][4]):
        squares = np.sum((points - points[i]) ** 2, axis=1)
        own = np.sort(squares[(labels == labels[i]) & (np.arange(len(labels)) != i)])
        assert len(set(drawn) - {i}) == 3
        assert np.all(labels[drawn] == labels[i])
        assert np.all(squares[drawn] <= own[5])


def test_a_class_with_few_members_draws_what_it_has(fits):
    X = np.random.default_rng(0).normal(size=(43, 2))
    y = np.repeat([0, 1, 2], [20, 20, 3])
    with pytest.warns(DataWarning, match="class 2 has fewer than n_neighbors"):
        choose_targets(X, y, LMNN(shrinkage=0), (1, 8), (0.5,), random_state=0)
    few = [row for row in fits[1][4] if row.min() < 0]
    assert len(few) == 2  # of three members two are left to learn from
    assert all((row >= 0).sum() == 1 for row in few)


def alternating(n_groups):
    """Groups of four points on a line that alternate between two classes."""
    X = np.arange(n_groups)[:, None] + np.array([0.0, 0.1, 0.2, 0.3])
    return X.reshape(-1, 1), np.repeat(np.arange(n_groups) % 2, 4)


@pytest.mark.slow
def test_no_larger_numbers_after_one_that_is_clearly_worse():
    """More than one neighbour is wrong."""
    choice = choose_targets(*alternating(400), LMNN(shrinkage=0), (1, 9, 15, 21), random_state=0)
    assert [trial.n_neighbors for trial in choice.trials] == [1, 9]
    assert choice.best.n_neighbors == 1


def test_what_is_clearly_worse_from_the_start_is_not_learned(fits):
    """Distances on a line differ by a factor only, so that learning cannot help nine neighbours."""
    choice = choose_targets(
        *alternating(100), LMNN(shrinkage=0), (1, 9, 15), (0.3, 0.5), random_state=0
    )
    learned = [(t.n_neighbors, t.push_weight, t.learned) for t in choice.trials]
    assert learned == [(1, 0.3, True), (1, 0.5, True), (9, 0.3, False)]
    assert [fit[0] for fit in fits] == [1, 1, 1]  # two trials, and the fit to all rows
    assert choice.trials[2].error > choice.best.error + 0.5
    assert str(choice).splitlines()[3].endswith("not learned")


def test_of_many_rows_a_part_is_learned_from_and_all_vote(iris, fits, monkeypatch):
    voters, counted = [], targets.knn_mistakes

    def recorded(model, X_train, *others):
        voters.append(len(X_train))
        return counted(model, X_train, *others)

    monkeypatch.setattr(targets, "knn_mistakes", recorded)
    monkeypatch.setattr(targets, "LEARNED_PER_FEATURE", 1)
    monkeypatch.setattr(targets, "LEARNED_ROWS", 42)
    choose_targets(*iris, LMNN(shrinkage=0), (1, 5), random_state=0)
    assert [fit[3] for fit in fits] == [42, 42, 150]
    assert fits[1][4].shape == (42, 3)
    assert fits[1][4].max() < 42
    assert set(voters) == {105}
    fits.clear()
    monkeypatch.setattr(targets, "LEARNED_ROWS", 20)  # less than a third
    choose_targets(*iris, LMNN(shrinkage=0), (1,), random_state=0)
    assert [fit[3] for fit in fits] == [35, 150]
    fits.clear()
    monkeypatch.setattr(targets, "LEARNED_PER_FEATURE", 10)  # of the four features
    choose_targets(*iris, LMNN(shrinkage=0), (1,), random_state=0)
    assert [fit[3] for fit in fits] == [40, 150]


def test_without_a_fit_to_all_rows(iris, fits):
    choice = choose_targets(*iris, LMNN(shrinkage=0), (1, 3), refit=False, random_state=0)
    assert [fit[3] for fit in fits] == [105, 105]
    assert choice.learner.n_neighbors == choice.best.n_neighbors
    assert not hasattr(choice.learner, "components_")


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
        ({"learner": LMNN(unlabeled_weight=0.5)}, "Set it to None and pass the labelled rows"),
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
