"""What every learner from pairs keeps: pairs, triplets and labels in, a metric and its score out.

A new learner joins by its entry in `nearfar.registry`.
"""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.utils import get_tags

from nearfar import PairClassifier, Tuples, make_pairs, make_triplets
from nearfar.errors import DataWarning, InvalidInputError
from tests.registered import classes

OF_BOTH = classes(learns_from="pairs")  # others learn from near pairs only
CLASSES = OF_BOTH + classes(learns_from="chunklets")

each_class = pytest.mark.parametrize("cls", CLASSES)
each_of_both = pytest.mark.parametrize("cls", OF_BOTH)
each_form = pytest.mark.parametrize("form", ["dense", "tuples"])

pytestmark = pytest.mark.filterwarnings("ignore::nearfar.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    """60 points in 3 dimensions and three classes; all are different."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 3)) + np.eye(3)[y] * 3
    X.setflags(write=False)
    return X, y


@pytest.fixture(scope="module")
def pairs(data):
    """120 pairs in which every one of their points occurs, and their kinds."""
    tuples, y = make_pairs(*data, 60, random_state=0)
    used, indices = np.unique(tuples.indices, return_inverse=True)
    points = tuples.points[used]
    points.setflags(write=False)
    return Tuples(points, indices.reshape(-1, 2)), y


@pytest.fixture(scope="module")
def fits():
    """What was fitted so far, by class."""
    return {}


@pytest.fixture
def fitted(cls, pairs, fits):
    """A learner fitted to the pairs, which a test may change."""
    if cls not in fits:
        fits[cls] = learner(cls).fit(*pairs)
    return copy.deepcopy(fits[cls])


def learner(cls):
    parameters = cls().get_params()
    return cls(random_state=0) if "random_state" in parameters else cls()


def as_input(tuples, form, asarray=lambda array: array):
    if form == "dense":
        return asarray(tuples.dense())
    return Tuples(asarray(tuples.points), tuples.indices)


@each_class
@each_form
def test_all_forms_are_learned_from_alike(cls, fitted, pairs, form, backend):
    """The points of dense pairs stand in another order, so that rounding differs."""
    tuples, y = pairs
    X = as_input(tuples, form, backend.asarray)
    model = learner(cls).fit(X, backend.asarray(y))
    distances = backend.to_numpy(model.pair_distance(X))
    expected = fitted.pair_distance(tuples)
    np.testing.assert_allclose(distances, expected, atol=0.02 * expected.max())


@each_class
@each_form
def test_the_score_is_the_area_under_the_curve(fitted, pairs, form):
    tuples, y = pairs
    X = as_input(tuples, form)
    assert fitted.score(X, y) == pytest.approx(roc_auc_score(y, fitted.pair_score(X)), rel=1e-9)
    assert fitted.score(X, y) > 0.75


@each_class
@each_form
def test_in_cross_validation(cls, pairs, form):
    tuples, y = pairs
    scores = cross_val_score(learner(cls), as_input(tuples, form), y, cv=3, error_score="raise")
    assert scores.mean() > 0.7


@each_class
def test_in_cross_validation_on_labels(cls, data):
    scores = cross_val_score(learner(cls), *data, cv=StratifiedKFold(3), error_score="raise")
    assert scores.mean() > 0.7


@each_class
@each_form
def test_keeps_the_dtype(cls, pairs, form, dtype, backend):
    tuples, y = pairs
    X = as_input(tuples, form, lambda array: backend.asarray(array.astype(dtype)))
    model = learner(cls).fit(X, y)
    assert backend.to_numpy(model.pair_distance(X)).dtype == dtype


@each_class
@each_form
def test_triplets(cls, data, form):
    triplets = make_triplets(*data, 60, random_state=0)
    model = learner(cls).fit(as_input(triplets, form))
    assert model.score(as_input(triplets, form)) > 0.75


@each_class
@each_form
def test_in_a_pair_classifier(cls, pairs, form):
    tuples, y = pairs
    model = PairClassifier(learner(cls)).fit(as_input(tuples, form), y)
    assert isinstance(model.metric_, cls)
    assert model.score(as_input(tuples, form), y) > 0.7


@each_class
def test_pairs_after_labels_leave_no_labels(cls, data, pairs):
    model = learner(cls).fit(*data)
    model.fit(*pairs)
    assert not hasattr(model, "classes_")
    assert model.n_features_in_ == 3


@each_class
def test_changes_neither_pairs_nor_parameters(cls, pairs):
    """The points are read-only, so that writing to them would raise."""
    tuples, y = pairs
    indices = tuples.indices.copy()
    model = learner(cls)
    before = repr(model)
    model.fit(tuples, y)
    assert repr(model) == before
    np.testing.assert_array_equal(tuples.indices, indices)


@each_class
def test_tells_scikit_learn_that_it_takes_pairs(cls):
    assert get_tags(cls()).input_tags.three_d_array
    assert get_tags(clone(cls())).input_tags.two_d_array


# -- contradictions ----------------------------------------------------------------------------


@each_of_both
@each_form
def test_pairs_both_near_and_far_count_as_both(cls, pairs, form):
    """They are warned of; a certified fit converges as ever."""
    tuples, y = pairs
    indices = np.concatenate([tuples.indices, tuples.indices[:5, ::-1]])
    both = as_input(Tuples(tuples.points, indices), form)
    with pytest.warns(DataWarning, match="^5 pairs of points are given both as near and as far"):
        model = learner(cls).fit(both, np.concatenate([y, -y[:5]]))
    assert np.isfinite(model.transform(np.array(tuples.points))).all()
    if model.duality_gap_ is not None:
        assert model.status_ == "converged"


@each_of_both
def test_noise_free_triplets_may_contradict_each_other_as_pairs(cls):
    """Of 60 objects a is nearer to b than to c, and c nearer to a than to d: (a, c) is both."""
    rng = np.random.default_rng(0)
    Z, T = rng.normal(size=(60, 3)), np.array([rng.permutation(60)[:3] for _ in range(200)])
    lengths = [np.linalg.norm(Z[T[:, 0]] - Z[T[:, k]], axis=1) for k in (1, 2)]
    T = np.where((lengths[0] > lengths[1])[:, None], T[:, [0, 2, 1]], T)
    message = r"pairs of points are given both as near and as far, such as those of triplet \d+ and"
    with pytest.warns(DataWarning, match=message):
        model = learner(cls).fit(Tuples(Z, T))
    assert model.score(Tuples(Z, T)) > 0.7


# -- what cannot be used -----------------------------------------------------------------------


@each_class
@each_form
@pytest.mark.parametrize(
    ("rows", "y", "message"),
    [
        ([[0, 1], [2, 3], [4, 5]], [1, -1, 0], r"y\[2\] is 0 \(1 in all\)"),
        ([[0, 1], [2, 3], [4, 5]], [1, -1], r"there are 3 pairs, and y has shape \(2,\)"),
        ([[0, 1, 2], [3, 4, 5]], [1, -1], "takes triplets without y"),
    ],
    ids=["y of zeros and ones", "too few y", "triplets with y"],
)
def test_pairs_that_cannot_be_used_are_an_error(cls, data, form, rows, y, message):
    tuples = Tuples(data[0], rows)
    with pytest.raises(InvalidInputError, match=message):
        learner(cls).fit(as_input(tuples, form), y)


@each_of_both
@pytest.mark.parametrize(("kind", "counts"), [(1, "60 near and 0 far"), (-1, "0 near and 60 far")])
def test_only_near_or_only_far_pairs_are_an_error(cls, pairs, kind, counts):
    tuples, y = pairs
    message = f"^near and far pairs are both needed; got {counts} ones. Add pairs of the other"
    with pytest.raises(InvalidInputError, match=message):
        learner(cls).fit(tuples[y == kind], np.full(60, kind))


@each_class
def test_tuples_of_four_are_an_error(cls, rng):
    with pytest.raises(InvalidInputError, match=r"or triplets of shape .*; got \(5, 4, 3\)"):
        learner(cls).fit(rng.normal(size=(5, 4, 3)), [1, 1, -1, -1, -1])


@each_of_both
def test_one_class_is_an_error(cls, data):
    X, y = data
    with pytest.raises(InvalidInputError, match="needs at least two classes; y has 1 class, 0"):
        learner(cls).fit(X, np.zeros(len(y)))
