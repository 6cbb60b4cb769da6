"""`nearfar.compat.metric_learn`: old programs run, and their metrics are nearfar's."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import nearfar
import nearfar.compat.metric_learn as metric_learn
from nearfar.errors import CompatibilityWarning, NearfarError

NAMES = [name for name in metric_learn.__all__ if name not in ("Constraints", "__version__")]
SUPERVISED = ["Covariance", "LFDA", "LMNN", "MLKR", "NCA"] + [
    name for name in NAMES if name.endswith("_Supervised")
]
OPTIONS = {
    "RCA_Supervised": {"n_chunks": 30},
    "SDML_Supervised": {"balance_param": 1e-5},
    "SDML": {"balance_param": 1e-5},
    "SCML": {"n_basis": 40},
    "SCML_Supervised": {"n_basis": 40},
}
PAIRS = ["ITML", "MMC", "SDML"]


def made(name, **options):
    return getattr(metric_learn, name)(**OPTIONS.get(name, {}), **options)


@pytest.fixture
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture
def pairs(iris):
    X, y = iris
    indices, kinds = nearfar.make_pairs(X, y, 40, random_state=0)
    return indices.indices, kinds


def test_all_names_of_metric_learn_are_there():
    assert len(NAMES) == 17  # and Constraints
    assert metric_learn.__version__ == "0.7.0"


@pytest.mark.parametrize("name", SUPERVISED)
def test_maps_are_square_and_those_of_the_learner(name, iris):
    X, y = iris
    model = made(name)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    model.fit(X, y)
    assert model.components_.shape == (4, 4)
    assert isinstance(model.learner_, nearfar.estimators._base.MetricLearner)
    L = model.learner_.components_
    ratio = np.vdot(model.components_[: len(L)], L) / np.vdot(L, L)
    np.testing.assert_allclose(model.components_[: len(L)], ratio * L, atol=1e-12 * abs(L).max())
    np.testing.assert_allclose(model.transform(X), X @ model.components_.T)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("LMNN", "ITML_Supervised")]


@pytest.mark.parametrize("name", ["NCA", "LFDA", "RCA_Supervised", *SLOW])
def test_scikit_learns_checks(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"n_chunks": 2} if name == "RCA_Supervised" else {}
        results = check_estimator(
            getattr(metric_learn, name)(**options), on_fail=None, on_skip=None
        )
    failed = [result["check_name"] for result in results if result["status"] == "failed"]
    assert failed == []


def test_labels_without_a_word_are_asked_for(iris):
    with pytest.raises(NearfarError, match="LMNN requires y to be passed"):
        metric_learn.LMNN().fit(iris[0], None)


# -- parameters ------------------------------------------------------------------------------------


def test_parameters_without_a_meaning_warn_once(iris):
    model = metric_learn.LMNN(learn_rate=1e-6, min_iter=10, verbose=True)
    with pytest.warns(CompatibilityWarning) as found:
        model.fit(*iris)
    assert [str(warning.message) for warning in found] == [
        "LMNN of nearfar does not use learn_rate, min_iter, verbose: its solver needs no such"
        " setting. Leave it out."
    ]


def test_old_names_are_taken(iris):
    with pytest.warns(CompatibilityWarning, match="k is now n_neighbors. Change the name."):
        old = metric_learn.LMNN(k=5).fit(*iris)
    np.testing.assert_array_equal(
        old.components_, metric_learn.LMNN(n_neighbors=5).fit(*iris).components_
    )


def test_regularization_is_the_weight_of_the_pull(iris):
    model = metric_learn.LMNN(regularization=0.3).fit(*iris)
    assert model.learner_.push_weight == 0.7
    assert model.learner_.duality_gap_ <= 1e-3


def test_a_clone_has_the_parameters():
    model = clone(metric_learn.ITML(gamma=0.5, prior=np.eye(3)))
    assert model.gamma == 0.5
    assert str(metric_learn.ITML(gamma=0.5)) == "ITML(gamma=0.5)"


def test_mmc_has_metric_learns_scale(iris, pairs):
    """The near pairs sum to a hundredth of what they do under init, or to diagonal_c / 2."""
    X, (indices, kinds) = iris[0], pairs
    near = X[indices[kinds == 1]]
    v = near[:, 0] - near[:, 1]
    full = metric_learn.MMC(init=np.eye(4) / 10).fit(X[indices], kinds)
    M = full.get_mahalanobis_matrix()
    assert np.einsum("ij,jk,ik", v, M, v) == pytest.approx((v**2).sum() / 1000)
    diagonal = metric_learn.MMC(diagonal=True, diagonal_c=3.0).fit(X[indices], kinds)
    M = diagonal.get_mahalanobis_matrix()
    assert np.einsum("ij,jk,ik", v, M, v) == pytest.approx(1.5)


@pytest.mark.parametrize("name", sorted(set(SUPERVISED) - {"ITML_Supervised"}))
def test_others_have_no_option_of_fit(name, iris):
    with pytest.raises(TypeError, match="unexpected keyword argument 'bounds'"):
        made(name).fit(*iris, bounds=(1.0, 2.0))


def test_itml_takes_bounds_in_fit(iris, pairs):
    X, (indices, kinds) = iris[0], pairs
    model = metric_learn.ITML().fit(X[indices], kinds, bounds=[1.0, 9.0])
    np.testing.assert_array_equal(model.bounds_, [1.0, 9.0])
    reference = nearfar.ITML(bounds=[1.0, 9.0]).fit(X[indices], kinds)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), reference.get_mahalanobis_matrix(), rtol=1e-10
    )


# -- preprocessors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_indicators_are_looked_up(name, iris, pairs):
    X, (indices, kinds) = iris[0], pairs
    formed, looked_up = made(name), made(name, preprocessor=X)
    formed.fit(X[indices], kinds)
    looked_up.fit(indices, kinds)
    np.testing.assert_array_equal(formed.components_, looked_up.components_)
    np.testing.assert_array_equal(formed.predict(X[indices]), looked_up.predict(indices))
    np.testing.assert_array_equal(looked_up.transform([3, 5]), formed.transform(X[[3, 5]]))


def test_a_preprocessor_may_be_a_function_and_fail(iris):
    X, y = iris
    model = metric_learn.Covariance(preprocessor=lambda rows: X[rows]).fit(np.arange(100))
    assert model.transform(np.array([1])).shape == (1, 4)
    broken = metric_learn.NCA(preprocessor=lambda rows: X[rows + 1000])
    with pytest.raises(NearfarError, match="An error occurred when trying to use the preproc"):
        broken.fit(np.arange(150), y)


def test_wrong_shapes_are_refused_in_metric_learns_words(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"2D array of formed points expected by LMNN. Found 1D"):
        metric_learn.LMNN().fit(X[:, 0], y)
    with pytest.raises(ValueError, match=r"Tuples of 2 element\(s\) expected by MMC. Got tuples"):
        metric_learn.MMC().fit(np.ones((4, 3, 2)), [1, 1, -1, -1])


# -- thresholds and scores -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def itml():
    X, y = load_iris(return_X_y=True)
    indices, kinds = nearfar.make_pairs(X, y, 200, random_state=1)
    return metric_learn.ITML().fit(X[indices.indices], kinds), X[indices.indices], kinds


def test_the_decision_function_is_minus_the_distance(itml):
    model, tuples, kinds = itml
    distances = model.pair_distance(tuples)
    np.testing.assert_array_equal(model.decision_function(tuples), -distances)
    np.testing.assert_array_equal(model.pair_score(tuples), -distances)
    with pytest.warns(FutureWarning, match="score_pairs will be deprecated"):
        np.testing.assert_array_equal(model.score_pairs(tuples), distances)
    predicted = np.where(distances <= model.threshold_, 1, -1)
    np.testing.assert_array_equal(model.predict(tuples), predicted)
    assert 0.9 < model.score(tuples, kinds) <= 1


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9, 1.0])
def test_rates_are_kept_and_the_other_is_the_best(itml, rate):
    model, tuples, kinds = itml

    def rates(threshold):
        near = model.pair_distance(tuples) <= threshold
        return near[kinds == 1].mean(), (~near)[kinds == -1].mean()

    thresholds = [-1.0, *model.pair_distance(tuples)]
    found = (
        clone(model)
        .fit(tuples, kinds)
        .calibrate_threshold(tuples, kinds, strategy="max_tpr", min_rate=rate)
    )
    positive, negative = rates(found.threshold_)
    assert negative >= rate
    assert positive == max(p for p, n in map(rates, thresholds) if n >= rate)
    found.calibrate_threshold(tuples, kinds, strategy="max_tnr", min_rate=rate)
    positive, negative = rates(found.threshold_)
    assert positive >= rate
    assert negative == max(n for p, n in map(rates, thresholds) if p >= rate)


def test_thresholds_can_be_set_and_are_checked(itml):
    model, tuples, kinds = itml
    other = pickle.loads(pickle.dumps(model)).set_threshold(0.25)
    assert other.threshold_ == 0.25
    with pytest.raises(ValueError, match="Parameter threshold must be a real number"):
        other.set_threshold("far")
    with pytest.raises(ValueError, match='Strategy can either be "accuracy"'):
        other.calibrate_threshold(tuples, kinds, strategy="best")
    with pytest.raises(ValueError, match=r"Parameter min_rate must be a number in\[0, 1\]"):
        metric_learn.MMC().fit(tuples, kinds, calibration_params={"strategy": "max_tpr"})


def test_triplets_and_quadruplets_are_scored_by_their_order(iris):
    X, y = iris
    triplets = metric_learn.Constraints(y).generate_knntriplets(X, 2, 2)
    scml = metric_learn.SCML(n_basis=40).fit(X[triplets])
    distances = [scml.pair_distance(X[triplets[:, [0, k]]]) for k in (1, 2)]
    np.testing.assert_allclose(
        scml.decision_function(X[triplets]), distances[1] - distances[0], atol=1e-12
    )
    right = (scml.predict(X[triplets]) == 1).mean()
    assert scml.score(X[triplets]) == pytest.approx(right)
    drawn = metric_learn.Constraints(y).positive_negative_pairs(30, True, random_state=0)
    quadruplets = np.stack(drawn, axis=1)
    lsml = metric_learn.LSML(preprocessor=X).fit(quadruplets)
    assert lsml.score(quadruplets) > 0.8
    assert cross_val_score(lsml, quadruplets, cv=3).shape == (3,)


def test_a_metric_function_squeezes_and_pickles(iris):
    X, y = iris
    model = metric_learn.NCA().fit(X, y)
    metric = pickle.loads(pickle.dumps(model.get_metric()))
    assert metric(X[:1], X[1:2]) == metric(X[0], X[1])
    assert metric(X[0], X[1], squared=True) == pytest.approx(metric(X[0], X[1]) ** 2)
    with pytest.raises(ValueError, match="should be 1-D"):
        metric(X[:2], X[1:3])
    neighbours = KNeighborsClassifier(1, metric=metric).fit(X[:30], y[:30])
    assert neighbours.score(X[:30], y[:30]) == 1
    assert make_pipeline(clone(model), KNeighborsClassifier(3)).fit(X, y).score(X, y) > 0.9


# -- constraints -----------------------------------------------------------------------------------


def test_pairs_are_of_known_labels():
    y = np.array([0, 0, -1, 1, 1, -1, 0])
    a, b, c, d = metric_learn.Constraints(y).positive_negative_pairs(3, random_state=0)
    assert len(a) == len(c) == 3
    assert (y[a] == y[b]).all()
    assert (y[c] != y[d]).all()
    assert (y[np.concatenate([a, b, c, d])] >= 0).all()
    assert (a != b).all()
    with pytest.warns(UserWarning, match="Only generated 4 positive constraints"):
        metric_learn.Constraints(y).positive_negative_pairs(5)


def test_nearest_triplets_name_rows_of_all_points():
    """Rows 0 and 2 are unknown: the numbers of the others must not shift."""
    X, y = np.array([[9.0], [0.0], [9.0], [1.0], [4.0], [5.0]]), np.array([-1, 0, -1, 0, 1, 1])
    found = metric_learn.Constraints(y).generate_knntriplets(X, 1, 1)
    assert sorted(found.tolist()) == [[1, 3, 4], [3, 1, 4], [4, 5, 3], [5, 4, 3]]


def test_chunks_are_of_one_class():
    y = np.array([0, 0, 0, 1, 1, -1])
    chunks = metric_learn.Constraints(y).chunks(2, 2, random_state=0)
    assert chunks[5] == -1
    for number in (0, 1):
        assert len(set(y[chunks == number])) == 1
    with pytest.raises(ValueError, match="maximum number of chunks is 2"):
        metric_learn.Constraints(y).chunks(3, 2)
