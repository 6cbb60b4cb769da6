"""What learners from pairs share, with a learner that only scales features."""

import re

import numpy as np
import pandas
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

import nearfar.estimators._tuples as pairs_module
from nearfar import Tuples, make_pairs
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._tuples import PairLearner, validated_pairs
from nearfar.kernels import kernels_for


class Scaler(PairLearner, MetricLearner):
    """Divides each feature by a power of its spread within near pairs."""

    def __init__(self, power=1.0, n_pairs=None, random_state=None):
        self.power = power
        self.n_pairs = n_pairs
        self.random_state = random_state

    def fit(self, X, y=None):
        self.pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state)
        points = kernels_for(self.pairs.points).to_host(self.pairs.points)
        heads, tails = self.pairs.near_edges()
        spread = np.sqrt(np.mean((points[heads] - points[tails]) ** 2, axis=0))
        components = np.diag(spread**-self.power)
        self.components_ = kernels_for(self.pairs.points).like(components, self.pairs.points)
        return self


@pytest.fixture
def data(rng, read_only):
    """40 points in four classes; the third feature is large and says nothing."""
    y = np.arange(40) % 4
    X = rng.normal(size=(40, 3))
    X[:, 0] += 2 * y
    X[:, 2] *= 20
    return read_only(X), read_only(y)


@pytest.fixture
def pairs(data):
    """60 pairs and their kinds."""
    return make_pairs(*data, 30, random_state=0)


def as_input(pairs, form, backend):
    """The same pairs as an array of all axes, or by row number."""
    if form == "dense":
        return backend.asarray(pairs.dense())
    return Tuples(backend.asarray(pairs.points), pairs.indices)


each_form = pytest.mark.parametrize("form", ["dense", "tuples"])


# -- what was understood -----------------------------------------------------------------------


@each_form
def test_pairs(pairs, form, backend):
    tuples, y = pairs
    found = Scaler().fit(as_input(tuples, form, backend), backend.asarray(y)).pairs
    points = backend.to_numpy(found.points)
    np.testing.assert_array_equal(points[found.heads], tuples.dense()[:, 0])
    np.testing.assert_array_equal(points[found.tails], tuples.dense()[:, 1])
    np.testing.assert_array_equal(found.near, y == 1)
    assert len(points) <= 40  # those of dense pairs are merged
    assert found.labels is None


@each_form
def test_all_forms_give_the_same_metric(pairs, form, backend):
    tuples, y = pairs
    expected = Scaler().fit(tuples, y).components_
    model = Scaler().fit(as_input(tuples, form, backend), y)
    np.testing.assert_allclose(backend.to_numpy(model.components_), expected, rtol=1e-12)


@each_form
def test_keeps_the_dtype(pairs, form, backend, dtype):
    tuples, y = pairs
    X = as_input(Tuples(tuples.points.astype(dtype), tuples.indices), form, backend)
    model = Scaler().fit(X, y)
    assert backend.to_numpy(model.components_).dtype == dtype
    assert backend.to_numpy(model.pair_distance(X)).dtype == dtype


@each_form
def test_triplets(data, form):
    X, _ = data
    triplets = Tuples(X, [[0, 4, 1], [1, 5, 2], [2, 6, 3], [0, 8, 3]])
    found = Scaler().fit(triplets if form == "tuples" else triplets.dense()).pairs
    np.testing.assert_array_equal(found.points[found.near_edges()[1]], X[[4, 5, 6, 8]])
    np.testing.assert_array_equal(found.points[found.far_edges()[1]], X[[1, 2, 3, 3]])


def test_labels(data):
    X, y = data
    model = Scaler().fit(X, y)
    assert len(model.pairs) == 40 * 39 // 2
    assert model.pairs.near.sum() == 4 * (10 * 9 // 2)
    assert model.pairs.labels is not None
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 3])


def test_drawn_pairs_of_labels(data):
    first, twin, other = (
        Scaler(n_pairs=20, random_state=seed).fit(*data).pairs for seed in (1, 1, 2)
    )
    assert (len(first), first.near.sum()) == (40, 20)
    np.testing.assert_array_equal(first.heads, twin.heads)
    assert not np.array_equal(first.heads, other.heads)


def test_lists(pairs):
    tuples, y = pairs
    expected = Scaler().fit(tuples, y).components_
    model = Scaler().fit(tuples.dense().tolist(), y.tolist())
    np.testing.assert_allclose(model.components_, expected, rtol=1e-12)


def test_names_of_features_come_from_the_points(pairs):
    tuples, y = pairs
    frame = pandas.DataFrame(tuples.points, columns=list("abc"))
    named = Tuples(frame, tuples.indices)
    model = Scaler().fit(named, y)
    assert model.feature_names_in_.tolist() == list("abc")
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(model.pair_distance(named), model.pair_distance(named[:]))
    with pytest.raises(ValueError, match="feature names should match"):
        model.pair_distance(Tuples(frame.rename(columns={"a": "z"}), tuples.indices))


def test_a_fit_forgets_the_labels_and_names_of_the_fit_before(data, pairs):
    X, y = data
    model = Scaler().fit(pandas.DataFrame(X, columns=list("abc")), y)
    model.fit(*pairs)
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "feature_names_in_")


# -- distances and scores ----------------------------------------------------------------------


def test_distances_by_row_number_are_those_of_dense_pairs(pairs, backend, dtype):
    """Also far away from the origin, where differences are taken before the map."""
    tuples, y = pairs
    points = (tuples.points + 1e4).astype(dtype)
    model = Scaler().fit(backend.asarray(tuples.points.astype(dtype))[tuples.indices], y)
    by_number = model.pair_distance(Tuples(backend.asarray(points), tuples.indices))
    dense = model.pair_distance(backend.asarray(points[tuples.indices]))
    np.testing.assert_allclose(
        backend.to_numpy(by_number), backend.to_numpy(dense), rtol=50 * np.finfo(dtype).eps * 20
    )


def test_distances_of_triplets_are_an_error(data, pairs):
    model = Scaler().fit(*pairs)
    message = r"pairs must have shape \(n_pairs, 2, 3\); got \(1, 3, 3\)"
    with pytest.raises(InvalidInputError, match=message):
        model.pair_distance(Tuples(data[0], [[0, 1, 2]]))


@each_form
def test_score_of_pairs_is_the_area_under_the_curve(pairs, form, backend):
    tuples, y = pairs
    model = Scaler().fit(as_input(tuples, form, backend), y)
    distances = backend.to_numpy(model.pair_distance(as_input(tuples, form, backend)))
    near, far = distances[y == 1], distances[y == -1]
    area = np.mean((near[:, None] < far) + 0.5 * (near[:, None] == far))
    assert model.score(as_input(tuples, form, backend), y) == pytest.approx(area, rel=1e-12)


def test_score_of_labels_is_that_of_all_pairs(data):
    X, y = data
    model = Scaler(n_pairs=5, random_state=0).fit(X, y)
    heads, tails = np.triu_indices(len(X), 1)
    distances = np.linalg.norm((X[heads] - X[tails]) @ model.components_.T, axis=1)
    assert model.score(X, y) == pytest.approx(roc_auc_score(y[heads] == y[tails], -distances))


def test_score_of_many_labels_is_that_of_some_pairs_and_repeats(data, monkeypatch):
    X, y = data
    model = Scaler().fit(X, y)
    whole = model.score(X, y)
    monkeypatch.setattr(pairs_module, "SCORED_PAIRS", 100)
    part = model.score(X, y)
    assert part == model.score(X, y)
    assert part != whole
    assert abs(part - whole) < 0.15


def test_score_of_triplets(data):
    X, _ = data
    triplets = Tuples(X, [[0, 4, 1], [1, 5, 2], [2, 6, 3]])
    model = Scaler().fit(triplets)
    pairs = Tuples(X, [[0, 4], [1, 5], [2, 6], [0, 1], [1, 2], [2, 3]])
    kinds = [1, 1, 1, -1, -1, -1]
    assert model.score(triplets) == model.score(triplets.dense()) == model.score(pairs, kinds)


def test_score_changes_nothing(data, pairs):
    model = Scaler().fit(*pairs)
    before = dict(vars(model))
    model.score(*data)
    assert vars(model).keys() == before.keys()


def test_score_of_one_kind_is_an_error_that_says_how_to_split(pairs):
    tuples, y = pairs
    model = Scaler().fit(tuples, y)
    message = (
        r"^near and far pairs are both needed; got 30 near and 0 far ones\."
        r" Shuffle them, or split them with StratifiedKFold\(shuffle=True\)\.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        model.score(tuples[y == 1], y[y == 1])


@each_form
def test_in_a_grid_search(pairs, form, backend):
    tuples, y = pairs
    search = GridSearchCV(Scaler(), {"power": [0.0, 1.0, 2.0]}, cv=3, error_score="raise")
    search.fit(as_input(tuples, form, backend), y)
    assert search.best_params_["power"] > 0  # the third feature has to shrink
    assert search.best_score_ > 0.6
    expected = cross_val_score(
        Scaler(search.best_params_["power"]), tuples.dense(), y, cv=3, error_score="raise"
    )
    assert search.best_score_ == pytest.approx(expected.mean(), rel=1e-12)


def test_in_a_grid_search_on_labels(data):
    search = GridSearchCV(
        Scaler(), {"power": [0.0, 1.0]}, cv=StratifiedKFold(2), error_score="raise"
    ).fit(*data)
    assert search.best_params_ == {"power": 1.0}


# -- what cannot be used -----------------------------------------------------------------------


def refused(X, y, message, indices=(), model=None):
    with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$") as caught:
        (model or Scaler()).fit(X, y)
    assert caught.value.indices.tolist() == list(indices)


@each_form
def test_contradictory_pairs_are_learned_from_with_a_warning(data, form):
    pairs = Tuples(data[0], [[0, 1], [2, 3], [1, 0]])
    message = (
        "1 pair of points is given both as near and as far, such as those of pair 0 and pair 2"
    )
    with pytest.warns(DataWarning, match=message):
        model = Scaler().fit(pairs if form == "tuples" else pairs.dense(), [1, 1, -1])
    assert len(model.pairs) == 3


@each_form
def test_a_far_pair_of_a_point_with_itself_is_left_out_with_a_warning(data, form):
    pairs = Tuples(data[0], [[0, 1], [2, 2], [3, 4]])
    message = "far pairs of equal points are left out, .* separate them: pair 1 .1 in all"
    with pytest.warns(DataWarning, match=message):
        model = Scaler().fit(pairs if form == "tuples" else pairs.dense(), [1, -1, -1])
    assert len(model.pairs) == 2


@each_form
def test_a_near_pair_of_a_point_with_itself_is_left_out_with_a_warning(data, form):
    pairs = Tuples(data[0], [[0, 1], [2, 2], [3, 4]])
    message = (
        r"^near pairs of a point with itself say nothing and are left out: pair 1 \(1 in all\)\."
        r" Drop them\.$"
    )
    with pytest.warns(DataWarning, match=message):
        model = Scaler().fit(pairs if form == "tuples" else pairs.dense(), [1, 1, -1])
    assert len(model.pairs) == 2


@each_form
@pytest.mark.parametrize(("kind", "counts"), [(1, "2 near and 0 far"), (-1, "0 near and 2 far")])
def test_only_near_or_only_far_pairs_are_an_error(data, form, kind, counts):
    pairs = Tuples(data[0], [[0, 1], [2, 3]])
    refused(
        pairs if form == "tuples" else pairs.dense(),
        [kind, kind],
        f"near and far pairs are both needed; got {counts} ones. Add pairs of the other kind.",
    )


@pytest.mark.parametrize(
    ("y", "value", "bad"),
    [([1, 0, 1], "0", [1]), ([2.0, 1.0, -1.0], "2.0", [0]), (list("abc"), "'a'", [0, 1, 2])],
)
def test_other_y_than_plus_and_minus_one_are_an_error(data, y, value, bad):
    refused(
        Tuples(data[0], [[0, 1], [2, 3], [4, 5]]),
        y,
        f"y must be +1 for near pairs and -1 for far ones; y[{bad[0]}] is {value} ({len(bad)} in"
        " all). Convert it with numpy.where(near, 1, -1).",
        bad,
    )


def test_pairs_without_y_are_an_error(pairs):
    refused(
        pairs[0],
        None,
        "Scaler requires y to be passed, but the target y is None. Pass +1 for each near and -1 for"
        " each far pair.",
    )


@pytest.mark.parametrize("y", [[1, -1, 1], [[1], [-1]], 1])
def test_a_y_of_another_length_is_an_error(data, y):
    refused(
        Tuples(data[0], [[0, 1], [2, 3]]),
        y,
        "Scaler needs +1 or -1 for each pair; there are 2 pairs, and y has shape"
        f" {np.shape(y)}. Check that they belong together.",
    )


def test_triplets_with_y_are_an_error(data):
    refused(
        Tuples(data[0], [[0, 4, 1]]),
        [1],
        "Scaler takes triplets without y: the first two points are near, the outer two far."
        " Pass y=None.",
    )


@pytest.mark.parametrize("size", [1, 4])
def test_tuples_of_another_size_are_an_error(rng, size):
    refused(
        rng.normal(size=(5, size, 3)),
        [1, 1, 1, -1, -1],
        "Scaler takes pairs of shape (n_pairs, 2, n_features) or triplets of shape"
        f" (n_triplets, 3, n_features); got (5, {size}, 3). Stack pairs with"
        " numpy.stack([a, b], axis=1).",
    )


def test_a_number_of_pairs_with_tuples_is_an_error(pairs):
    refused(
        *pairs,
        "n_pairs=5 chooses pairs of labelled points, but X holds tuples. Set n_pairs=None, or give"
        " points of shape (n_samples, n_features) and labels.",
        model=Scaler(n_pairs=5),
    )


@pytest.mark.parametrize("n_pairs", [0, 1.5, True])
def test_a_number_of_pairs_below_one_is_an_error(data, n_pairs):
    message = f"n_pairs must be an integer of at least 1; got {n_pairs}."
    refused(*data, message, model=Scaler(n_pairs=n_pairs))


def test_one_class_is_an_error(data):
    refused(
        data[0],
        np.zeros(40),
        "Scaler needs at least two classes; y has 1 class, 0.0. Add rows of another class.",
    )


def test_classes_of_one_point_only_are_an_error(data):
    refused(
        data[0][:15],
        np.arange(15),
        "Scaler needs a class with two or more members; every class has 1 member, so that no point"
        " has a neighbour of its class. Check that y holds class labels.",
    )


def test_a_class_of_one_is_warned_of(data):
    X, y = data
    y = np.where(np.arange(40) == 7, 9, y)
    message = r"^class 9 has 1 member: it is in no near pair, only in far ones\. Add rows or drop"
    with pytest.warns(DataWarning, match=message):
        model = Scaler().fit(X, y)
    assert 7 not in np.concatenate(model.pairs.near_edges())
    assert 7 in np.concatenate(model.pairs.far_edges())


def test_too_many_pairs_of_labels_are_an_error_with_the_remedy(data, monkeypatch):
    monkeypatch.setattr("nearfar.supervision.pairs.MAX_PAIRS", 700)
    refused(
        *data,
        "40 labelled points have 780 pairs; at most 700 can be held at a time. Set n_pairs, for"
        " example n_pairs=100000, to draw from them.",
    )


@each_form
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_an_error(pairs, form, bad, backend):
    tuples, y = pairs
    points = tuples.points.copy()
    points[:] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        Scaler().fit(as_input(Tuples(points, tuples.indices), form, backend), y)


def test_no_pairs_are_an_error():
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        Scaler().fit(np.empty((0, 2, 3)), [])
    refused(
        Tuples(np.ones((2, 3)), np.empty((0, 2), int)),
        np.empty(0),
        "near and far pairs are both needed; got 0 near and 0 far ones. Add pairs of the other"
        " kind.",
    )
