"""The choice of target neighbours and push weight on held-out rows."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris

from nearfar import LMNN, NCA
from nearfar.errors import InvalidInputError
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
    expected, learned = [], [trial for trial in choice.trials if trial.learned]
    assert choice.best in learned
    for k in (1, 4):
        for weight in (0.3, 0.5):
            model = LMNN(k, weight, shrinkage=0, tol=1e-6).fit(X[rows.X_train], rows.y_train)
            parts = X[rows.X_train], rows.y_train, X[rows.X_test], rows.y_test
            expected.append((k, weight, knn_error(model, *parts, n_neighbors=k)))
    assert [(t.n_neighbors, t.push_weight) for t in choice.trials] == [e[:2] for e in expected]
    # Trials are rough, so that a few of the 45 rows may differ.
    errors = {e[:2]: e[2] for e in expected}
    for trial in learned:
        assert trial.error == pytest.approx(
            errors[trial.n_neighbors, trial.push_weight], rel=0, abs=0.07
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
def test_trials_are_cheap(fits, shrinkage):
    """One rough metric, and one of the number with the best votes from three targets a row."""
    X, y = noisy()
    choose_targets(X, y, LMNN(shrinkage=shrinkage), (2, 25), random_state=0)
    assert [fit[:4] for fit in fits] == [
        (2, 0.3, False, 210),
        (25, 0.3, True, 210),
        (25, 1e-3, False, 300),
    ]
    first, drawn, last = [fit[4] for fit in fits]
    assert first is None
    assert last is None
    assert drawn.shape == (210, 3)


def test_only_what_is_learned_wins(iris, fits):
    """The best by the votes under the metric of three targets is learned itself."""
    X, y = iris
    choice = choose_targets(X, y, LMNN(shrinkage=0), (1, 3, 5, 9), refit=False, random_state=0)
    numbers = [fit[0] for fit in fits]
    assert numbers[0] == 3
    assert len(set(numbers)) == len(numbers)
    assert {trial.n_neighbors for trial in choice.trials if trial.learned} == set(numbers)
    assert choice.best.learned
    for trial in choice.trials:
        assert (trial.error, trial.n_neighbors) >= (choice.best.error, choice.best.n_neighbors)
        assert str(choice).count("not learned") == 4 - len(numbers)


def test_the_distance_that_is_kept_is_chosen_once():
    """Later trials take the points where it is Euclidean, and have the same shrinkage."""
    X, y = cloud()
    X = X * [1, 10, 100, 1000]  # so that the inputs are not the distance to keep
    rows = split_points(np.arange(300), y, 0.3, 5)
    path = targets._Path(X, rows, LMNN(), 9, np.random.RandomState(0))
    path.learn(2, 0.5)
    before, squares = path.model, pdist(path.model.transform(X))
    shrinkage, prior = before.shrinkage_, before.prior_components_
    assert prior is not None
    path._in_prior()
    np.testing.assert_allclose(pdist(path.X_train), pdist(X[rows.X_train] @ prior.T), rtol=1e-9)
    path.model.n_features_in_ = 4
    np.testing.assert_allclose(pdist(path.model.transform(X @ prior.T)), squares, rtol=1e-9)
    path.learn(9, 0.5)
    assert path.model.shrinkage_ == shrinkage
    assert path.model.prior_components_ is None


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_integers_are_tried_as_the_numbers_that_are_learned_from(kind):
    """The distance that is kept was rounded to integers."""
    X, y = cloud()
    X, grid = X * [1, 4, 16, 50], {"n_neighbors": (1, 6), "push_weight": (0.3, 0.5)}
    expected = choose_targets(X, y, **grid, random_state=0, refit=False)
    found = choose_targets(X.astype(kind), y, **grid, random_state=0, refit=False)
    assert found.trials == expected.trials


def test_later_trials_keep_the_digits_of_points_far_from_the_origin():
    """In float32 the images of points at 1e4 are right to the digits that the points have."""
    X, y = cloud()
    far = (np.rint(1e3 * X) / 1e3 * [1, 10, 100, 1000] + 3e4).astype(np.float32)
    path = targets._Path(far, split_points(np.arange(300), y, 0.3, 5), LMNN(), 9, None)
    path.learn(2, 0.5)
    prior, points = path.model.prior_components_, np.asarray(path.X_train, dtype=np.float64)
    path._in_prior()
    assert path.X_train.dtype == np.float32
    np.testing.assert_allclose(pdist(path.X_train), pdist(points @ prior.T), rtol=1e-4, atol=1e-5)


def test_a_class_without_a_row_to_learn_from_may_have_a_weight(iris):
    X, y = np.vstack([iris[0], iris[0][:1] - 9]), np.append(iris[1], 7)
    rows = split_points(np.arange(151), y, 0.3, np.random.RandomState(5).randint(2**31 - 1))
    assert 7 in rows.y_test
    weighted, plain = (
        choose_targets(X, y, LMNN(class_weight=given), (3,), random_state=5, refit=False)
        for given in ({7: 3}, None)
    )
    assert weighted.trials == plain.trials


def test_the_drawn_targets_are_among_the_nearest(iris, fits):
    X, y = iris
    X = X + 0.5 * np.random.default_rng(0).normal(size=X.shape)  # more votes are better
    choose_targets(X, y, LMNN(shrinkage=0), (2, 6), random_state=3)
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
    rows = split_points(np.arange(43), y, 0.3, 0)
    path = targets._Path(X, rows, LMNN(shrinkage=0), 8, np.random.RandomState(0))
    path.learn(1, 0.5)
    path.learn(8, 0.5)
    few = [row for row in fits[1][4] if row.min() < 0]
    assert len(few) == 2  # of three members two are left to learn from
    assert all((row >= 0).sum() == 1 for row in few)


def noisy():
    """A third of the labels are wrong, so that many votes are better than few."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 2))
    return X, (X[:, 0] > 0) ^ (generator.uniform(size=300) < 1 / 3)


def cloud():
    """Balance: each class fills a region of a grid, where one neighbour says little."""
    X = np.random.default_rng(0).integers(1, 6, size=(300, 4)).astype(float)
    return X, np.sign(X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3])


def test_of_many_rows_a_part_is_learned_from_and_all_vote(iris, fits, monkeypatch):
    voters, counted = [], targets.mistakes_of_counts

    def recorded(X_train, *others):
        voters.append(len(X_train))
        return counted(X_train, *others)

    monkeypatch.setattr(targets, "mistakes_of_counts", recorded)
    monkeypatch.setattr(targets, "LEARNED_PER_FEATURE", 1)
    for rows, share, each, expected in ((42, 0, 1, 42), (20, 1 / 3, 1, 35), (20, 0, 10, 40)):
        fits.clear()
        monkeypatch.setattr(targets, "LEARNED_ROWS", rows)
        monkeypatch.setattr(targets, "LEARNED_SHARE", share)
        monkeypatch.setattr(targets, "LEARNED_PER_FEATURE", each)
        choose_targets(*iris, LMNN(shrinkage=0), (3,), random_state=0)
        assert [fit[3] for fit in fits] == [expected, 150]
    assert set(voters) == {105}


def test_without_a_fit_to_all_rows(iris, fits):
    choice = choose_targets(*iris, LMNN(shrinkage=0), (1, 3), refit=False, random_state=0)
    assert {fit[3] for fit in fits} == {105}
    assert choice.learner.n_neighbors == choice.best.n_neighbors
    assert not hasattr(choice.learner, "components_")


def test_more_targets_where_a_class_is_a_cloud():
    X, y = cloud()
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
