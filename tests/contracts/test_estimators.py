"""What every estimator keeps: scikit-learn's rules, and the interface of a metric.

A new estimator joins by its entry in `nearfar.registry`; SPECIAL holds those with more than one way
of working. None of scikit-learn's checks is expected to fail; `test_defaults.py` has those of the
defaults.
"""

import copy
import inspect
import pickle

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from nearfar import Tuples, load, save
from nearfar.errors import InvalidInputError
from nearfar.estimators import (
    GMML,
    ITML,
    LFDA,
    LMNN,
    LSML,
    MCML,
    MLKR,
    MMC,
    NCA,
    POLA,
    RCA,
    SCML,
    SDML,
    DMLEig,
    KernelLMNN,
    KernelMCML,
    KernelMMC,
    KernelPOLA,
)
from nearfar.estimators._base import MetricLearner
from tests.documented import documented_attributes, fitted_attributes
from tests.registered import classes, instances
from tests.variants import checks_of_variants

SPECIAL = [
    LMNN(),
    LMNN(n_components=2),
    LMNN(n_components=1, reduce="project"),
    LMNN(validation_fraction=0.2, random_state=0),
    LMNN(n_passes=2),
    KernelLMNN(rank=20),
    KernelLMNN("linear"),
    KernelLMNN("poly", kernel_params={"degree": 2}, n_components=2),
    DMLEig(),
    DMLEig(n_components=2),
    DMLEig(solver="lecture", tol=0.5),
    LFDA(),
    LFDA(n_components=2, n_neighbors=3, embedding_type="plain", shrinkage=0.1),
    MLKR(),
    MLKR(n_components=2, init="identity"),
    LSML(random_state=0),
    LSML(n_components=2, violation_weight=50.0, random_state=0),
    SCML(random_state=0),
    SCML(n_components=2, sparsity_weight=1e-4, n_bases=50, random_state=0),
    ITML(),
    ITML(n_components=2, violation_weight=0.1, prior="covariance", n_pairs=200, random_state=0),
    SDML(),
    SDML(n_components=2, sparsity_weight=0.1, n_pairs=200, random_state=0),
    GMML(),
    GMML(n_components=2, t=0.3, shrinkage=0.1, prior="covariance"),
    RCA(),
    RCA(n_components=2, shrinkage=0.1),
    RCA(pca_components=0.99),
    POLA(),
    POLA(n_pairs=300, scale=1.0),
    KernelPOLA(max_directions=20, n_pairs=500),
    KernelPOLA("poly", kernel_params={"degree": 2}, n_pairs=500),
    MCML(),
    MCML(n_components=2, shrinkage=0),
    MCML(n_components=2, reduce="learn"),
    MCML(solver="projected-gradient"),
    NCA(),
    NCA(n_components=2),
    NCA(diagonal=True),
    KernelMCML(),
    KernelMCML("linear", n_components=2, reduce="learn"),
    MMC(),
    MMC(n_components=2),
    MMC(diagonal=True, reduce="project"),
    MMC(n_components=2, reduce="project", n_pairs=200, random_state=0),
    KernelMMC(),
    KernelMMC("poly", kernel_params={"degree": 2}, n_components=2),
]
ESTIMATORS = instances(SPECIAL, kind="metric")
LINEAR = [estimator for estimator in ESTIMATORS if isinstance(estimator, MetricLearner)]
CLASSES = classes(kind="metric")
ONE_OF_EACH_CLASS = [next(e for e in ESTIMATORS if type(e) is cls) for cls in CLASSES]
METHODS = [
    "fit",
    "fit_transform",
    "get_feature_names_out",
    "get_metric",
    "pair_distance",
    "pair_score",
    "set_output",
    "transform",
]
# A grid search tries the default and another of the first two of these that a class has.
START = np.diag([1.0, 2.0, 3.0, 4.0])
START.setflags(write=False)
OTHER_VALUES = {
    "push_weight": 0.2,
    "regularization": 0.1,
    "shrinkage": 0.3,
    "init": START,
    "components": START,
    "rank": 10,
    "tol": 1e-2,
    "n_components": 3,
    "t": 0.3,
    "scale": 2.0,
}
MAX_PARAMETERS = 15
MORE = {"LMNN": 3}  # for scikit-learn's class_weight, unlabelled rows, and the certificate

each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
each_linear = pytest.mark.parametrize("estimator", LINEAR, ids=repr)
each_class = pytest.mark.parametrize("cls", CLASSES)
# For what parameters do not change: the metric as a function, and how its arguments are read.
one_of_each_class = pytest.mark.parametrize("estimator", ONE_OF_EACH_CLASS, ids=repr)


@pytest.fixture(scope="module")
def fit_once(iris):
    """Fits an estimator to iris in some form, or copies what was fitted to it before."""
    fits, labels = {}, iris[1]

    def fit(estimator, X):
        key = repr(estimator), type(X), str(getattr(X, "dtype", "frame"))
        if key not in fits:
            fits[key] = clone(estimator).fit(X, labels)
        return copy.deepcopy(fits[key])

    return fit


@pytest.fixture(scope="module")
def frame(iris):
    """Iris as a frame of pandas."""
    return pandas.DataFrame(iris[0], columns=list("abcd"))


@pytest.fixture
def fitted(estimator, iris, fit_once):
    """A copy of the estimator fitted on iris, which a test may change."""
    return fit_once(estimator, iris[0])


@pytest.fixture
def pairs(iris):
    """70 pairs of different points, (70, 2, 4)."""
    X, _ = iris
    return np.stack([X[:70], X[75:145]], axis=1)


# -- scikit-learn's checks -------------------------------------------------------------------


# Checks that are made below of each estimator: of types, of a fit to read-only data that changes
# no parameter, of transform in batches, and of pickles.
MADE_BELOW = {
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_methods_subset_invariance",
    "check_readonly_memmap_input",
    "check_transformer_preserve_dtypes",
}


# Some of the checks' data are classes of one or two points, which is warned of.
@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@checks_of_variants(ESTIMATORS, but=MADE_BELOW)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# -- parameters and their documentation ------------------------------------------------------


@each_class
def test_few_parameters(cls):
    """Without ``verbose``, which every iterative fit has and which changes no result."""
    most = MAX_PARAMETERS + MORE.get(cls.__name__, 0)
    assert len(inspect.signature(cls).parameters.keys() - {"verbose"}) <= most


@one_of_each_class
def test_every_fitted_attribute_is_documented(estimator, frame, fit_once):
    model = fit_once(estimator, frame)
    assert fitted_attributes(model) == documented_attributes(type(estimator))


@each_class
def test_public_methods_are_documented(cls):
    public = [name for name in METHODS if name != "set_output"]  # scikit-learn documents its own
    assert [name for name in public if not inspect.getdoc(getattr(cls, name))] == []


@each_estimator
def test_clone_keeps_parameters_and_drops_what_was_learned(estimator, fitted):
    twin = clone(fitted)
    assert twin.get_params() == estimator.get_params()
    assert not [name for name in vars(twin) if name.endswith("_")]


@each_estimator
def test_repr_shows_what_differs_from_the_defaults(estimator):
    assert eval(repr(estimator), {type(estimator).__name__: type(estimator)}).get_params() == (
        estimator.get_params()
    )


# -- the metric --------------------------------------------------------------------------------


@one_of_each_class
def test_has_the_methods_of_a_metric(estimator):
    assert [name for name in METHODS if not callable(getattr(estimator, name, None))] == []


@each_class
def test_unfitted_is_an_error(cls, pairs):
    arguments = {"get_feature_names_out": (), "get_metric": (), "pair_distance": (pairs,)}
    arguments["pair_score"] = (pairs,)
    for method, given in arguments.items():
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(cls(), method)(*given)


@each_linear
def test_euclidean_distance_of_images_is_the_mahalanobis_distance(fitted, pairs):
    """‖La - Lb‖² = (a-b)ᵀ M (a-b)."""
    M = fitted.get_mahalanobis_matrix()
    a, b = pairs[:, 0], pairs[:, 1]
    squared = np.sum((fitted.transform(a) - fitted.transform(b)) ** 2, axis=1)
    explicit = [(u - v) @ M @ (u - v) for u, v in zip(a, b, strict=True)]
    np.testing.assert_allclose(squared, explicit, rtol=1e-9)


@each_estimator
def test_pair_distance_is_the_metric_and_the_distance_of_the_images(fitted, pairs):
    distance, metric = fitted.pair_distance(pairs), fitted.get_metric()
    assert distance.shape == (len(pairs),)
    np.testing.assert_allclose(distance, [metric(a, b) for a, b in pairs], rtol=1e-9)
    images = fitted.transform(pairs.reshape(-1, 4)).reshape(len(pairs), 2, -1)
    np.testing.assert_allclose(
        distance, np.linalg.norm(images[:, 0] - images[:, 1], axis=1), rtol=1e-9
    )
    np.testing.assert_allclose([metric(a, b, squared=True) for a, b in pairs], distance**2)
    np.testing.assert_array_equal(fitted.pair_score(pairs), -distance)


@one_of_each_class
def test_the_metric_works_as_a_metric_of_scikit_learn(fitted, iris):
    X, y = iris
    by_metric = KNeighborsClassifier(3, metric=fitted.get_metric()).fit(X[::10], y[::10])
    by_map = KNeighborsClassifier(3).fit(fitted.transform(X[::10]), y[::10])
    np.testing.assert_array_equal(
        by_metric.predict(X[1::14]), by_map.predict(fitted.transform(X[1::14]))
    )


@one_of_each_class
def test_numbers_of_any_type_have_the_distances_of_floats(fitted):
    """Types that cannot hold a difference, such as 0 - 1 of unsigned integers, are cast before."""
    metric = fitted.get_metric()
    for dtype in ("uint8", "int64", "float16", "bool"):
        a, b = np.array([0, 1, 0, 1], dtype), np.array([1, 0, 0, 0], dtype)
        expected = metric(a.astype(float), b.astype(float))
        assert expected > 0
        assert metric(a, b) == metric(a.tolist(), b.tolist()) == expected
        assert metric(pandas.Series(a), pandas.Series(b)) == expected
        distance = fitted.pair_distance(np.stack([a, b])[None])
        np.testing.assert_allclose(distance, expected, rtol=1e-9)


@one_of_each_class
def test_the_metric_can_be_pickled(fitted, iris):
    X, _ = iris
    metric = fitted.get_metric()
    assert pickle.loads(pickle.dumps(metric))(X[0], X[100]) == metric(X[0], X[100])


@one_of_each_class
def test_the_metric_is_hashable_like_a_function(fitted):
    metric = fitted.get_metric()
    assert metric in {metric: 0}
    assert metric == metric
    assert metric != fitted.get_metric()
    assert repr(metric).endswith("between vectors of 4 features>")


@one_of_each_class
def test_the_metric_refuses_vectors_of_another_length(fitted):
    metric = fitted.get_metric()
    for length in (1, 3, 5):
        with pytest.raises(InvalidInputError, match="two vectors of 4 features; got shapes"):
            metric(np.zeros(4), np.zeros(length))


@one_of_each_class
def test_the_metric_keeps_its_values_when_the_estimator_is_refitted(fitted, iris):
    X, y = iris
    metric = fitted.get_metric()
    before = metric(X[0], X[100])
    fitted.fit(3 * X[::3], y[::3])
    assert metric(X[0], X[100]) == before


@each_estimator
def test_is_a_pseudometric(fitted, iris):
    X, _ = iris
    metric = fitted.get_metric()
    a, b, c = X[0], X[60], X[120]
    assert metric(a, a) == 0
    assert metric(a, b) == metric(b, a) > 0
    assert metric(a, c) <= (metric(a, b) + metric(b, c)) * (1 + 1e-12)


@each_linear
def test_the_matrix_of_the_metric_is_positive_semidefinite(fitted):
    M = fitted.get_mahalanobis_matrix()
    assert M.dtype == np.float64
    assert np.linalg.eigvalsh(M).min() > -1e-9


@one_of_each_class
def test_pairs_by_row_number_are_as_far_apart_as_dense_ones(fitted, iris, pairs):
    X, _ = iris
    by_number = Tuples(X, np.stack([np.arange(70), np.arange(75, 145)], axis=1))
    np.testing.assert_allclose(
        fitted.pair_distance(by_number), fitted.pair_distance(pairs), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_array_equal(fitted.pair_score(by_number), -fitted.pair_distance(by_number))
    with pytest.raises(InvalidInputError, match=r"shape \(n_pairs, 2, 4\); got \(1, 3, 4\)"):
        fitted.pair_distance(Tuples(X, [[0, 1, 2]]))


@one_of_each_class
def test_pairs_of_the_wrong_shape_are_an_error(fitted, iris):
    X, _ = iris
    with pytest.raises(InvalidInputError, match=r"shape \(n_pairs, 2, 4\); got \(150, 4\)"):
        fitted.pair_distance(X)


@one_of_each_class
def test_pairs_with_nan_are_an_error(fitted, pairs):
    pairs = pairs.copy()
    pairs[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fitted.pair_distance(pairs)


@each_linear
def test_rows_of_the_map_are_orthogonal_sorted_by_length_and_of_fixed_sign(fitted):
    """The canonical factor of M: what a rotation of the rows could change is fixed."""
    L = fitted.components_
    gram = L @ L.T
    lengths = np.sqrt(np.diag(gram))
    np.testing.assert_allclose(gram, np.diag(lengths**2), atol=1e-9 * lengths[0] ** 2)
    assert (np.diff(lengths) <= 0).all()
    assert (L[np.arange(len(L)), np.abs(L).argmax(axis=1)] > 0).all()


@each_estimator
def test_the_map_has_the_rows_that_were_asked_for(fitted, iris):
    X, _ = iris
    images = fitted.transform(X)
    assert images.shape == (150, getattr(fitted, "n_components", None) or images.shape[1])
    assert len(fitted.get_feature_names_out()) == images.shape[1]
    assert fitted.n_features_in_ == 4


# -- dtypes, frames, files and composition -----------------------------------------------------


@each_estimator
def test_keeps_the_dtype(estimator, dtype, iris, pairs, fit_once):
    X, _ = iris
    model = fit_once(estimator, X.astype(dtype))
    assert model.transform(X.astype(dtype)).dtype == dtype
    assert model.pair_distance(pairs.astype(dtype)).dtype == dtype
    if estimator in LINEAR:
        assert model.components_.dtype == dtype


@each_estimator
def test_float32_and_float64_agree(estimator, iris, fit_once):
    """The objective, since the map of a small gap is less well determined than its value."""
    X, y = iris
    X = X.astype(np.float32)  # the same values in both, hence the same neighbours
    single = fit_once(estimator, X)
    double = clone(estimator).fit(X.astype(np.float64), y)
    if double.objective_ is None:  # a map that is given: nothing is minimised
        pairs = np.stack([X[:-1], X[1:]], axis=1)
        found = single.pair_distance(pairs), double.pair_distance(pairs)
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    else:
        # MLKR's error falls to nothing on classes that can be told apart.
        assert single.objective_ == pytest.approx(double.objective_, rel=1e-2, abs=1e-3)


def check_frames(model, images, data):
    """What was fitted on a frame gives a frame of that library, with names and the same images."""
    out = model.transform(data)
    assert isinstance(out, type(data))
    assert list(out.columns) == list(model.get_feature_names_out())
    assert list(out.columns) == [
        f"{type(model).__name__.lower()}{i}" for i in range(images.shape[1])
    ]
    assert list(model.feature_names_in_) == list("abcd")
    np.testing.assert_allclose(out.to_numpy(), images, rtol=1e-6, atol=1e-6)


@one_of_each_class
def test_frames_in_frames_out(estimator, fitted, iris, frame, fit_once):
    model = fit_once(estimator, frame).set_output(transform="pandas")
    check_frames(model, fitted.transform(iris[0]), frame)


@one_of_each_class
def test_frames_of_polars(estimator, fitted, iris):
    data = polars.DataFrame(dict(zip("abcd", iris[0].T, strict=True)))
    model = clone(estimator).set_output(transform="polars").fit(data, iris[1])
    check_frames(model, fitted.transform(iris[0]), data)


@one_of_each_class
def test_other_feature_names_are_an_error(estimator, frame, fit_once):
    data, model = frame, fit_once(estimator, frame)
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time:\n- z.*now missing:\n- a"):
        model.transform(data.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="must be in the same order"):
        model.transform(data[list("badc")])


@one_of_each_class
def test_another_number_of_features_is_an_error(fitted, iris):
    X, _ = iris
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4 features"):
        fitted.transform(X[:, :3])


@each_estimator
def test_pickles_and_model_files_hold_all_of_it(fitted, iris, tmp_path):
    X, _ = iris
    save(fitted, tmp_path / "model.nearfar")
    for twin in (pickle.loads(pickle.dumps(fitted)), load(tmp_path / "model.nearfar")):
        np.testing.assert_array_equal(twin.transform(X), fitted.transform(X))
        assert twin.get_params() == fitted.get_params()
        assert set(vars(twin)) == set(vars(fitted))
        assert twin.history_ == fitted.history_


@pytest.mark.usefixtures("global_random_state_kept")
@each_estimator
def test_fit_prints_nothing_and_changes_neither_data_nor_parameters_nor_the_global_random_state(
    estimator, iris, capfd
):
    """The fixture's arrays are read-only, so that writing to them would raise."""
    model = clone(estimator)
    model.fit(*iris)
    assert model.get_params() == estimator.get_params()
    assert capfd.readouterr() == ("", "")


@each_estimator
def test_transform_in_batches_is_the_transform_of_the_whole(fitted, iris):
    X, _ = iris
    batches = [fitted.transform(X[first : first + 40]) for first in range(0, 150, 40)]
    np.testing.assert_allclose(np.vstack(batches), fitted.transform(X), rtol=1e-12, atol=1e-12)


@each_estimator
def test_in_a_pipeline(estimator, iris):
    X, y = iris
    pipeline = make_pipeline(clone(estimator), KNeighborsClassifier(3)).fit(X[::2], y[::2])
    assert pipeline.score(X[1::2], y[1::2]) > 0.85


@one_of_each_class
def test_in_a_grid_search_over_numbers_and_arrays(estimator):
    X, y = load_iris(return_X_y=True)
    X, y = X[np.arange(150) % 3 > 0], y[np.arange(150) % 3 > 0]
    parameters, name = estimator.get_params(), type(estimator).__name__.lower()
    tried = [key for key in OTHER_VALUES if key in parameters][:2]
    grid = {f"{name}__{key}": [parameters[key], OTHER_VALUES[key]] for key in tried}
    split = [(np.arange(1, 100, 2), np.arange(0, 100, 2))]  # into halves, one of them to learn from
    search = GridSearchCV(
        make_pipeline(estimator, KNeighborsClassifier(3)), grid, cv=split, error_score="raise"
    ).fit(X, y)
    assert len(search.cv_results_["params"]) == 2 ** len(tried) > 1
    unsupervised = type(estimator) in classes(learns_from="points")
    assert search.best_score_ > (0.85 if unsupervised else 0.9)
    best = search.best_estimator_[0].get_params()
    assert all(np.array_equal(best[key], search.best_params_[f"{name}__{key}"]) for key in tried)
