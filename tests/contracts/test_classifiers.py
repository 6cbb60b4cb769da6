"""What every classifier keeps: scikit-learn's rules, and labels that come back as they were.

A new classifier joins by its entry in `nearfar.registry`; SPECIAL holds those with several ways of
working. None of scikit-learn's checks is expected to fail; `test_defaults.py` has those of the
defaults.
"""

import copy
import inspect
import pickle

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from nearfar.estimators import (
    LMNN,
    EnergyClassifier,
    MultiMetricLMNN,
    NearestNeighborClassifier,
    PairClassifier,
)
from tests.documented import documented_attributes, fitted_attributes
from tests.registered import instances
from tests.variants import checks_of_variants

SPECIAL = [
    EnergyClassifier(),
    EnergyClassifier(
        LMNN(n_components=1, shrinkage=0),
        n_neighbors=2,
        targets="input",
        probability=True,
        random_state=0,
    ),
    EnergyClassifier(targets="learned"),
    MultiMetricLMNN(),
    MultiMetricLMNN("kmeans", 2, decision="energy", random_state=0),
    NearestNeighborClassifier(),
    NearestNeighborClassifier(LMNN(n_components=1), n_neighbors=2, algorithm="kd_tree"),
]
CLASSIFIERS = [
    classifier
    for classifier in instances(SPECIAL, kind="classifier")
    if not isinstance(classifier, PairClassifier)  # see test_pair_learners
]
CLASSES = sorted({type(classifier) for classifier in CLASSIFIERS}, key=lambda cls: cls.__name__)
MAX_PARAMETERS = 13

each_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
each_class = pytest.mark.parametrize("cls", CLASSES)


@pytest.fixture(scope="module")
def fits():
    """What was fitted so far, by parameters."""
    return {}


@pytest.fixture
def fitted(classifier, iris, fits):
    """A copy of the classifier fitted on every other row of iris, which a test may change."""
    if repr(classifier) not in fits:
        X, y = iris
        fits[repr(classifier)] = clone(classifier).fit(X[::2], y[::2])
    return copy.deepcopy(fits[repr(classifier)])


# -- scikit-learn's checks -------------------------------------------------------------------


# Some of the checks' data are classes of one or two points, which is warned of.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@checks_of_variants(CLASSIFIERS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# -- parameters and their documentation ------------------------------------------------------


@each_class
def test_few_parameters(cls):
    assert len(inspect.signature(cls).parameters.keys() - {"verbose"}) <= MAX_PARAMETERS


@each_class
def test_every_fitted_attribute_is_documented(cls, iris):
    X, y = iris
    model = cls().fit(pandas.DataFrame(X, columns=list("abcd")), y)
    assert fitted_attributes(model) == documented_attributes(cls)


@each_class
def test_public_methods_are_documented(cls):
    public = {name for name in vars(cls) if not name.startswith("_")}
    public -= inspect.signature(cls).parameters.keys()  # documented in the docstring of the class
    assert {"fit", "predict"} <= public
    assert [name for name in public if not inspect.getdoc(getattr(cls, name))] == []


@each_classifier
def test_clone_keeps_parameters_and_drops_what_was_learned(classifier, fitted):
    twin = clone(fitted)
    assert repr(twin) == repr(classifier)
    assert not [name for name in vars(twin) if name.endswith("_")]


@each_classifier
def test_repr_shows_what_differs_from_the_defaults(classifier):
    names = {"LMNN": LMNN, type(classifier).__name__: type(classifier)}
    assert repr(eval(repr(classifier), names)) == repr(classifier)


# -- labels, dtypes, frames and composition --------------------------------------------------


@each_classifier
def test_classifies(fitted, iris):
    X, y = iris
    assert fitted.score(X[1::2], y[1::2]) > 0.9


@each_classifier
@pytest.mark.parametrize(
    ("names", "kind"),
    [(["u", "v", "w"], np.asarray), ([-5, 0, 7], pandas.Categorical)],
    ids=["text in an array", "categories of numbers"],
)
def test_labels_come_back_as_they_were(classifier, names, kind, iris):
    (X, y), names = iris, np.array(names)
    model = clone(classifier).fit(X[::2], kind(names[y[::2]]))
    predicted = model.predict(X[1::2])
    assert set(predicted) <= set(names)
    assert np.mean(predicted == names[y[1::2]]) > 0.9
    np.testing.assert_array_equal(model.labels_, names[y[::2]])


@pytest.mark.usefixtures("global_random_state_kept")
@each_classifier
def test_fit_and_predict_change_nothing_that_is_not_theirs(classifier, iris):
    """The fixture's arrays are read-only, so that writing to them would raise."""
    X, y = iris
    model = clone(classifier)
    model.fit(X, y).predict(X)
    assert repr(model) == repr(classifier)


@each_classifier
def test_pickle_round_trip(fitted, iris):
    X, _ = iris
    twin = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(twin.predict(X), fitted.predict(X))
    assert repr(twin) == repr(fitted)


@each_classifier
def test_predict_in_batches_is_the_prediction_of_the_whole(fitted, iris):
    X, _ = iris
    batches = [fitted.predict(X[first : first + 40]) for first in range(0, 150, 40)]
    np.testing.assert_array_equal(np.concatenate(batches), fitted.predict(X))


@each_classifier
def test_prints_nothing(classifier, iris, capfd):
    X, y = iris
    clone(classifier).fit(X, y).predict(X)
    assert capfd.readouterr() == ("", "")


@each_classifier
def test_in_cross_validation(classifier, iris):
    assert cross_val_score(classifier, *iris, cv=3, error_score="raise").mean() > 0.9
