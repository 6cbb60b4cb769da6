"""Near or far by a threshold on learned distances."""

import inspect
import pickle
import re

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from nearfar import LMNN, LSML, MCML, MMC, SCML, PairClassifier, Tuples, load, make_pairs, save
from nearfar.errors import InvalidInputError
from nearfar.evaluation import best_threshold
from nearfar.supervision.thresholds import CRITERIA


@pytest.fixture
def pairs(iris):
    """400 pairs of iris and their kinds."""
    return make_pairs(*iris, 200, random_state=0)


@pytest.fixture
def fitted(pairs):
    tuples, y = pairs
    return PairClassifier().fit(tuples[:200], y[:200])


def as_input(tuples, form, backend):
    if form == "dense":
        return backend.asarray(tuples.dense())
    return Tuples(backend.asarray(tuples.points), tuples.indices)


each_form = pytest.mark.parametrize("form", ["dense", "tuples"])


# -- predictions -------------------------------------------------------------------------------


@each_form
def test_predicts_near_up_to_the_threshold(pairs, form, backend):
    tuples, y = pairs
    train, test = (as_input(part, form, backend) for part in (tuples[:200], tuples[200:]))
    model = PairClassifier().fit(train, backend.asarray(y[:200]))
    distances = backend.to_numpy(model.pair_distance(test))
    margins = backend.to_numpy(model.decision_function(test))
    np.testing.assert_array_equal(margins, model.threshold_ - distances)
    np.testing.assert_array_equal(backend.to_numpy(model.pair_score(test)), -distances)
    predicted = model.predict(test)
    assert isinstance(predicted, np.ndarray)
    np.testing.assert_array_equal(predicted, np.where(distances <= model.threshold_, 1, -1))
    np.testing.assert_array_equal(model.classes_, [-1, 1])
    assert model.score(test, y[200:]) == np.mean(predicted == y[200:]) > 0.9


def test_learns_what_the_metric_alone_learns(pairs):
    tuples, y = pairs
    model, alone = PairClassifier(MMC(diagonal=True)).fit(tuples, y), MMC(diagonal=True)
    alone.fit(tuples, y)
    np.testing.assert_array_equal(model.metric_.components_, alone.components_)
    assert not hasattr(model.metric, "components_")
    default = PairClassifier().fit(tuples, y)
    assert isinstance(default.metric_, MMC)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("beta", "rate"), [(1.0, 0.95), (0.2, 0.4)])
def test_the_threshold_is_the_best_for_the_criterion(pairs, criterion, beta, rate):
    tuples, y = pairs
    metric = MMC().fit(tuples, y)
    distances = metric.pair_distance(tuples)
    model = PairClassifier(metric, calibrate=criterion, beta=beta, rate=rate).fit(tuples, y)
    assert model.threshold_ == best_threshold(y, distances, criterion, beta=beta, rate=rate)
    predicted = model.predict(tuples)
    if criterion == "true_positive_rate":
        found = np.mean(predicted[y == 1] == 1)
        assert rate <= found < rate + 0.05
    if criterion == "equal_error":
        errors = np.mean(predicted[y == 1] == -1), np.mean(predicted[y == -1] == 1)
        assert abs(errors[0] - errors[1]) <= 1 / 200


def test_held_out_pairs_are_not_learned_from(pairs, monkeypatch):
    tuples, y = pairs
    seen = []
    learn = MMC.fit
    monkeypatch.setattr(MMC, "fit", lambda self, X, y: seen.append((X, y)) or learn(self, X, y))
    model = PairClassifier(MMC(), validation_fraction=0.3, random_state=0).fit(tuples, y)
    (learned_from, kinds), *_ = seen
    assert (len(learned_from), np.sum(kinds == 1)) == (280, 140)
    learned = {tuple(row) for row in learned_from.indices.tolist()}
    held_out = np.array([tuple(row) not in learned for row in tuples.indices.tolist()])
    distances = model.pair_distance(tuples[held_out])
    assert model.threshold_ == best_threshold(y[held_out], distances)
    other = PairClassifier(MMC(), validation_fraction=0.3, random_state=1).fit(tuples, y)
    assert other.threshold_ != model.threshold_


def test_a_fitted_metric_is_used_as_it_is(iris, pairs):
    """It may have learned from labels."""
    X, y = iris
    metric = LMNN().fit(X, y)
    before = metric.components_.copy()
    for given in (metric, FrozenEstimator(metric)):
        model = PairClassifier(given).fit(*pairs)
        assert model.metric_ is metric
        np.testing.assert_array_equal(metric.components_, before)
        assert model.score(*pairs) > 0.8


def test_a_frozen_metric_stays_in_cross_validation(iris, pairs):
    metric = FrozenEstimator(LMNN().fit(*iris))
    scores = cross_val_score(PairClassifier(metric), *pairs, cv=3, error_score="raise")
    assert scores.min() > 0.75


@each_form
@pytest.mark.torch
def test_in_a_grid_search(pairs, form, torch):
    """The kinds of a classifier are spread evenly over the folds, even if they are sorted."""
    tuples, y = pairs
    order = np.argsort(y)
    tuples, y = tuples[order], y[order]
    grid = {"metric__diagonal": [False, True], "calibrate": ["accuracy", "equal_error"]}
    search = GridSearchCV(PairClassifier(MMC()), grid, cv=3, error_score="raise")
    X = tuples if form == "tuples" else tuples.dense()
    search.fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.9
    same = GridSearchCV(PairClassifier(MMC()), grid, cv=3, error_score="raise")
    X = Tuples(torch.tensor(tuples.points), tuples.indices) if form == "tuples" else torch.tensor(X)
    same.fit(X, y)
    assert same.best_params_ == search.best_params_
    assert same.best_score_ == pytest.approx(search.best_score_, abs=1e-6)


def test_scoring_by_the_area_under_the_curve(pairs):
    scores = cross_val_score(PairClassifier(), *pairs, cv=3, scoring="roc_auc", error_score="raise")
    assert scores.min() > 0.9


def test_keeps_the_dtype(pairs, dtype):
    tuples, y = pairs
    X = tuples.dense().astype(dtype)
    model = PairClassifier().fit(X, y)
    assert model.decision_function(X).dtype == dtype
    assert model.threshold_ == dtype(model.threshold_)  # comparisons are exact in this precision


# -- other thresholds --------------------------------------------------------------------------


def test_calibrate_threshold(pairs, fitted):
    tuples, y = pairs
    components, before = fitted.metric_.components_.copy(), fitted.threshold_
    distances = fitted.pair_distance(tuples[200:])
    assert fitted.calibrate_threshold(tuples[200:], y[200:]) is fitted
    assert fitted.threshold_ == best_threshold(y[200:], distances)
    fitted.calibrate_threshold(tuples[200:], y[200:], calibrate="f_beta", beta=0.3)
    assert fitted.threshold_ == best_threshold(y[200:], distances, "f_beta", beta=0.3)
    fitted.calibrate_threshold(tuples[200:], y[200:], calibrate="true_positive_rate", rate=0.5)
    assert fitted.threshold_ == best_threshold(y[200:], distances, "true_positive_rate", rate=0.5)
    assert fitted.threshold_ != before
    assert fitted.get_params() == PairClassifier().get_params()
    np.testing.assert_array_equal(fitted.metric_.components_, components)


def test_set_threshold(pairs, fitted):
    tuples, _ = pairs
    assert fitted.set_threshold(0) is fitted
    assert set(fitted.predict(tuples)) == {-1}
    fitted.set_threshold(np.inf)
    assert set(fitted.predict(tuples)) == {1}
    with pytest.raises(InvalidInputError, match="threshold must be a number of at least -inf; got"):
        fitted.set_threshold("far")
    with pytest.raises(InvalidInputError, match="threshold must be a number of at least -inf; got"):
        fitted.set_threshold(np.nan)


# -- scikit-learn's rules ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_mixin_order,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_set_params,
        estimator_checks.check_valid_tag_types,
    ],
)
def test_scikit_learn_checks(check):
    """Those that need no points of two axes, which scikit-learn cannot make into pairs."""
    check("PairClassifier", PairClassifier())


def test_parameters_are_documented_with_their_defaults():
    text = inspect.getdoc(PairClassifier)
    section = text.partition("Parameters\n---")[2].partition("\nAttributes\n---")[0]
    documented = re.findall(r"^(\w+) : .*default=(.+)$", section, re.MULTILINE)
    true = {key: p.default for key, p in inspect.signature(PairClassifier).parameters.items()}
    assert {name: eval(default, {}) for name, default in documented} == true


def test_fitted_attributes_are_documented(pairs):
    tuples, y = pairs
    named = Tuples(pandas.DataFrame(tuples.points, columns=list("abcd")), tuples.indices)
    model = PairClassifier().fit(named, y)
    text = inspect.getdoc(PairClassifier)
    section = text.partition("\nAttributes\n---")[2].partition("\nNotes\n---")[0]
    documented = set(re.findall(r"^(\w+_) : ", section, re.MULTILINE))
    assert {name for name in vars(model) if name.endswith("_")} == documented
    assert model.feature_names_in_.tolist() == list("abcd")
    public = [name for name in vars(PairClassifier) if not name.startswith("_")]
    assert all(inspect.getdoc(getattr(PairClassifier, name)) for name in public)


def test_clones_pickles_and_files(pairs, fitted, tmp_path):
    tuples, _ = pairs
    twin = clone(fitted)
    assert repr(twin) == repr(fitted) == "PairClassifier()"
    assert not [name for name in vars(twin) if name.endswith("_")]
    save(fitted, tmp_path / "model.nearfar")
    for twin in (pickle.loads(pickle.dumps(fitted)), load(tmp_path / "model.nearfar")):
        assert twin.threshold_ == fitted.threshold_
        np.testing.assert_array_equal(twin.predict(tuples), fitted.predict(tuples))


@pytest.mark.usefixtures("global_random_state_kept")
def test_fit_changes_nothing_that_is_not_its_own(pairs):
    tuples, y = pairs
    tuples.points.setflags(write=False)
    model = PairClassifier(MMC(), validation_fraction=0.2, random_state=0)
    before = repr(model)
    model.fit(tuples, y)
    assert repr(model) == before


# -- what cannot be used -----------------------------------------------------------------------


def test_unfitted_is_an_error(pairs):
    tuples, y = pairs
    for ask in ("predict", "decision_function", "pair_distance", "pair_score"):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(PairClassifier(), ask)(tuples)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        PairClassifier().set_threshold(1)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        PairClassifier().calibrate_threshold(tuples, y)


def refused(model, X, y, message):
    with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$"):
        model.fit(X, y)


def test_points_and_triplets_are_an_error(iris):
    X, y = iris
    message = (
        "PairClassifier takes pairs of shape (n_pairs, 2, n_features); got {}."
        " Make pairs of labelled points with make_pairs(X, y)."
    )
    refused(PairClassifier(), X, y, message.format("(150, 4)"))
    refused(PairClassifier(), Tuples(X, [[0, 1, 2]]), None, message.format("(1, 3, 4)"))


def test_other_kinds_are_an_error(pairs):
    tuples, y = pairs
    message = (
        "y must be +1 for near pairs and -1 for far ones; y[0] is {} (200 in all)."
        " Convert it with numpy.where(near, 1, -1)."
    )
    first = 0 if y[0] == -1 else 2
    kinds = np.where(y == y[0], first, -1)
    refused(PairClassifier(), tuples, kinds, message.format(first))


def test_one_kind_is_an_error(pairs, fitted):
    tuples, y = pairs
    near = tuples[y == 1]
    message = (
        "near and far pairs are both needed; got 200 near and 0 far ones."
        " Add pairs of the other kind."
    )
    refused(PairClassifier(), near, np.ones(200), message)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        fitted.calibrate_threshold(near, np.ones(200))


def test_no_y_is_an_error(pairs):
    message = (
        "PairClassifier requires y to be passed, but the target y is None."
        " Pass +1 for each near and -1 for each far pair."
    )
    refused(PairClassifier(), pairs[0], None, message)


@pytest.mark.parametrize(
    "metric", [MMC, StandardScaler(), "euclidean", make_pipeline(StandardScaler(), MMC())]
)
def test_what_is_no_metric_is_an_error(pairs, metric):
    message = (
        f"metric must be a metric learner such as MMC(), fitted or not, or None; got {metric!r}."
    )
    refused(PairClassifier(metric), *pairs, message)


@pytest.mark.parametrize("learner", [LMNN(), SCML(), LSML(), MCML()], ids=repr)
def test_a_learner_from_others_than_pairs_must_be_fitted(learner, pairs):
    message = (
        f"metric={learner!r} does not learn from pairs. Fit it to labelled points first, or take a"
        " learner that does, such as MMC()."
    )
    refused(PairClassifier(learner), *pairs, message)


def test_holding_out_from_a_fitted_metric_is_an_error(pairs):
    message = (
        "validation_fraction=0.2 holds pairs out from learning, but metric is fitted already."
        " Set validation_fraction=None."
    )
    metric = MMC().fit(*pairs)
    refused(PairClassifier(metric, validation_fraction=0.2), *pairs, message)


def test_holding_out_none_of_a_kind_is_an_error(pairs):
    tuples, y = pairs
    few = np.concatenate([np.flatnonzero(y == 1), np.flatnonzero(y == -1)[:3]])
    message = (
        "validation_fraction=0.1 holds 0 of 3 far pairs out; at least one must be held out and one"
        " be left. Change it, set it to None, or add pairs."
    )
    refused(PairClassifier(validation_fraction=0.1), tuples[few], y[few], message)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"calibrate": "best"},
            "calibrate must be one of 'accuracy', 'f_beta', 'true_positive_rate', 'equal_error';"
            " got 'best'.",
        ),
        ({"beta": -1.0}, "beta must be a number of at least 0; got -1.0."),
        ({"rate": 1.1}, "rate must be a number from 0 to 1; got 1.1."),
        (
            {"validation_fraction": 1.0},
            "validation_fraction must be a number between 0 and 1; got 1.0.",
        ),
    ],
)
def test_parameters_out_of_range_are_an_error(pairs, fitted, parameters, message):
    refused(PairClassifier(**parameters), *pairs, message)
    if "validation_fraction" not in parameters:
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            fitted.calibrate_threshold(*pairs, **parameters)


def test_another_number_of_features_is_an_error(pairs, fitted):
    tuples, y = pairs
    fewer = Tuples(tuples.points[:, :3], tuples.indices)
    with pytest.raises(ValueError, match="X has 3 features, but PairClassifier is expecting 4"):
        fitted.calibrate_threshold(fewer, y)
    with pytest.raises(InvalidInputError, match=r"shape \(n_pairs, 2, 4\); got \(400, 2, 3\)"):
        fitted.predict(fewer)
    with pytest.raises(InvalidInputError, match=r"shape \(n_pairs, 2, 4\); got \(400, 2, 3\)"):
        PairClassifier(fitted.metric_).fit(fewer, y)
