"""What multidimensional scaling keeps: scikit-learn's rules, forms of input, limits, files.

A new estimator joins by its entry in `nearfar.registry`; SPECIAL holds those with several ways of
working. Of scikit-learn's checks only those named by `expected_failures` fail; `test_defaults.py`
has those of the defaults. `LocalMDS` is an unfolding and stands in `test_unfolding.py`.
"""

import pickle

import numpy as np
import pandas
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import pairwise_distances
from sklearn.utils.estimator_checks import parametrize_with_checks

import nearfar
from nearfar import ClassicalMDS, MetricMDS, NeighborhoodGraph, NonmetricMDS
from nearfar.errors import (
    ConvergenceWarning,
    DisconnectedGraphError,
    InvalidInputError,
    ModelFileError,
)
from nearfar.estimators._mds import IterativeMDS
from tests.callbacks import Recorder, needs_callbacks
from tests.documented import documented_attributes, fitted_attributes
from tests.registered import classes, instances

SPECIAL = [
    ClassicalMDS(),
    ClassicalMDS(n_components=1),
    ClassicalMDS(metric="precomputed"),
    MetricMDS(),
    MetricMDS(loss="sstress", init="random", random_state=0),
    MetricMDS(metric="precomputed"),
    NonmetricMDS(),
    NonmetricMDS(ties="secondary", init="random", random_state=0),
    NonmetricMDS(metric="precomputed"),
]
SCALINGS = instances(SPECIAL, kind="scaling")
POINTS = [estimator for estimator in SCALINGS if estimator.metric == "euclidean"]
DESCENTS = [estimator for estimator in POINTS if isinstance(estimator, IterativeMDS)]
CLASSES = classes(kind="scaling")
ATTRIBUTES = [
    "embedding_",
    "objective_",
    "duality_gap_",
    "status_",
    "n_iter_",
    "history_",
    "n_features_in_",
]

each = pytest.mark.parametrize("estimator", SCALINGS, ids=repr)
each_of_points = pytest.mark.parametrize("estimator", POINTS, ids=repr)
each_descent = pytest.mark.parametrize("estimator", DESCENTS, ids=repr)
each_class = pytest.mark.parametrize("cls", CLASSES)


def expected_failures(estimator):
    """The one check that gives distances that are not known from one point, but known back."""
    if isinstance(estimator, IterativeMDS) and estimator.metric == "precomputed":
        return {"check_estimators_pickle": "it makes distances missing in one direction only"}
    return {}


@pytest.fixture
def points(rng, read_only):
    return read_only(rng.normal(size=(30, 4)) * [4, 3, 1, 0.5])


def given(estimator, X):
    """Points, or the distances that an estimator wants."""
    return X if estimator.metric == "euclidean" else pairwise_distances(X)


# -- scikit-learn's checks and documentation ---------------------------------------------------


@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@parametrize_with_checks(
    [e for e in SCALINGS if repr(e) != repr(type(e)())], expected_failed_checks=expected_failures
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@each_class
def test_every_fitted_attribute_is_documented(cls, points):
    model = cls().fit(pandas.DataFrame(points, columns=list("abcd")))
    assert fitted_attributes(model) == documented_attributes(cls)


# -- what a fit leaves behind ------------------------------------------------------------------


@each
def test_a_fit_leaves_its_answer_and_how_it_came_about(estimator, points):
    model = clone(estimator).fit(given(estimator, points))
    assert all(hasattr(model, name) for name in ATTRIBUTES)
    assert model.embedding_.shape == (30, estimator.n_components)
    assert model.status_ == "converged"
    assert model.n_iter_ == len(model.history_)
    np.testing.assert_array_equal(
        clone(estimator).fit_transform(given(estimator, points)), model.embedding_
    )


@each
def test_places_are_centred_along_principal_axes_with_fixed_signs(estimator, points):
    Y = clone(estimator).fit(given(estimator, points)).embedding_
    size = np.linalg.norm(Y)
    np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-10 * size)
    gram = Y.T @ Y
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10 * size**2)
    assert (np.diff(np.diag(gram)) <= 0).all()
    assert (Y[np.abs(Y).argmax(axis=0), np.arange(Y.shape[1])] > 0).all()


@each_descent
def test_the_trace_falls_to_the_objective(estimator, points):
    model = clone(estimator).fit(points)
    values = [record["objective"] for record in model.history_]
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] == pytest.approx(model.objective_, rel=1e-12)
    assert model.history_[-1]["residual"] <= model.tol
    assert model.duality_gap_ is None


@each_of_points
def test_rotation_and_offset_change_nothing(estimator, points, rng):
    """For random starts too: what is drawn does not depend on X."""
    Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    model = clone(estimator).fit(points)
    moved = clone(estimator).fit(points @ Q + 100)
    assert moved.objective_ == pytest.approx(model.objective_, rel=1e-3)


@each_of_points
@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_the_unit_changes_the_unit_only(estimator, points, factor):
    model = clone(estimator).fit(points)
    scaled = clone(estimator).fit(factor * points)
    unit = 1.0 if isinstance(estimator, NonmetricMDS) else factor
    size = np.abs(model.embedding_).max()
    np.testing.assert_allclose(scaled.embedding_ / unit, model.embedding_, atol=1e-3 * size)


@each_of_points
def test_points_and_their_distances_give_the_same(estimator, points):
    by_points = clone(estimator).fit(points)
    by_distances = clone(estimator).set_params(metric="precomputed").fit(pairwise_distances(points))
    assert by_distances.objective_ == pytest.approx(by_points.objective_, rel=1e-4, abs=1e-9)
    size = np.abs(by_points.embedding_).max()
    np.testing.assert_allclose(by_distances.embedding_, by_points.embedding_, atol=0.01 * size)
    assert by_distances.n_features_in_ == 30


@each
def test_every_backend_gives_the_same(estimator, points, backend):
    X = given(estimator, points)
    expected = clone(estimator).fit(X)
    model = clone(estimator).fit(backend.asarray(X))
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-4)
    found = backend.to_numpy(model.embedding_)
    np.testing.assert_allclose(found, expected.embedding_, atol=0.02 * np.abs(found).max())


@each
def test_keeps_the_dtype(estimator, points, dtype):
    X = given(estimator, points).astype(dtype)
    assert clone(estimator).fit(X).embedding_.dtype == dtype


@each
def test_copies_lie_together(estimator, points):
    """Points 3 and 20 are the same: their distance is 0, and so is that of their places, nearly."""
    X = points.copy()
    X[20] = X[3]
    Y = clone(estimator).fit(given(estimator, X)).embedding_
    typical = np.median(pairwise_distances(Y))
    assert np.linalg.norm(Y[20] - Y[3]) < 0.05 * typical


@pytest.mark.usefixtures("global_random_state_kept")
@each
def test_fit_changes_neither_data_nor_parameters_nor_the_global_random_state(estimator, points):
    X = given(estimator, points)
    X.setflags(write=False)
    model = clone(estimator)
    model.fit(X)
    assert model.get_params() == estimator.get_params()


@each
def test_prints_nothing(estimator, points, capfd):
    clone(estimator).fit(given(estimator, points))
    assert capfd.readouterr() == ("", "")


@each_of_points
def test_frames_in_frames_out(estimator, points):
    data = pandas.DataFrame(points, columns=list("abcd"))
    model = clone(estimator).set_output(transform="pandas")
    out = model.fit_transform(data)
    names = [f"{type(estimator).__name__.lower()}{i}" for i in range(estimator.n_components)]
    assert list(out.columns) == names
    assert list(model.feature_names_in_) == list("abcd")


@each
def test_pickle_and_file_round_trips(estimator, points, tmp_path):
    model = clone(estimator).fit(given(estimator, points))
    nearfar.save(model, tmp_path / "model.nearfar")
    for twin in (pickle.loads(pickle.dumps(model)), nearfar.load(tmp_path / "model.nearfar")):
        np.testing.assert_array_equal(twin.embedding_, model.embedding_)
        assert twin.get_params() == model.get_params()
        assert twin.history_ == model.history_
        if isinstance(model, ClassicalMDS):
            X = given(estimator, points)
            np.testing.assert_array_equal(twin.transform(X), model.transform(X))


def test_a_file_with_an_embedding_of_another_shape_is_refused(points, tmp_path):
    model = MetricMDS().fit(points)
    model.embedding_ = model.embedding_.ravel()
    nearfar.save(model, tmp_path / "model.nearfar")
    with pytest.raises(ModelFileError, match="embedding_ of shape"):
        nearfar.load(tmp_path / "model.nearfar")


# -- limits ------------------------------------------------------------------------------------


@each_descent
@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(
    ("limit", "status"), [({"max_iter": 3}, "max_iter"), ({"max_seconds": 0.0}, "max_seconds")]
)
def test_limits_keep_the_best_and_warn(estimator, points, limit, status):
    model = clone(estimator).set_params(**limit, tol=0.0)
    with pytest.warns(ConvergenceWarning, match=f"stopped before tol=0: .* Raise {status} or tol"):
        model.fit(points)
    assert model.status_ == status
    assert model.n_iter_ == limit.get("max_iter", 1)
    assert model.objective_ == pytest.approx(model.history_[-1]["objective"], rel=1e-12)


@each_descent
def test_an_interruption_keeps_the_best_so_far(estimator, points, monkeypatch):
    from nearfar.solvers import majorization

    stepped, calls = majorization._backtrack, []

    def interrupt(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return stepped(*arguments)

    monkeypatch.setattr(majorization, "_backtrack", interrupt)
    with pytest.warns(ConvergenceWarning, match="was interrupted; the best map so far is kept"):
        model = clone(estimator).fit(points)
    assert model.status_ == "interrupted"
    assert model.n_iter_ == 3
    least = min(record["objective"] for record in model.history_)
    assert model.objective_ == pytest.approx(least, rel=1e-12)
    assert model.embedding_.shape == (30, 2)


@needs_callbacks
@each_descent
def test_callbacks_get_the_places_at_every_iteration_and_may_stop(estimator, points):
    watch = Recorder(4, lambda: True)
    model = clone(estimator).set_callbacks(watch).fit(points)
    assert model.status_ == "stopped"
    assert [step.embedding_.shape for step in watch.models] == [(30, 2)] * 4
    np.testing.assert_array_equal(watch.models[-1].embedding_, model.embedding_)


# -- bad input ---------------------------------------------------------------------------------


def spoiled(**entries):
    """A good matrix of distances with some entries replaced."""
    D = pairwise_distances(np.random.default_rng(0).normal(size=(8, 3)))
    for name, value in entries.items():
        D[int(name[1]), int(name[2])] = value
    return D


BAD_DISTANCES = [
    (spoiled(d12=9.0), r"distances must be symmetric; from node 1 to 2 it is 9"),
    (
        spoiled(d12=-1.0, d21=-1.0),
        r"Negative values in data: distances must not be neg",
    ),
    (spoiled(d33=1.0), r"the distance of a node to itself must be 0; that of node 3 is 1"),
    (np.ones((4, 3)), r"distances must be a square matrix .*; got shape \(4, 3\)"),
    (np.ones((4, 4, 2)), "dim 3"),
    (np.array([["a", "b"], ["c", "d"]]), "could not convert"),
    (np.zeros((1, 1)), "n_samples=1|at least 2"),
]


@each_class
@pytest.mark.parametrize(("D", "message"), BAD_DISTANCES)
def test_what_are_no_distances(cls, D, message):
    with pytest.raises(ValueError, match=message):
        cls(metric="precomputed").fit(D)


@each_class
def test_bad_points_and_parameters(cls, points):
    with pytest.raises(ValueError, match="NaN"):
        cls().fit(np.full((5, 2), np.nan))
    with pytest.raises(ValueError, match="Expected 2D array"):
        cls().fit(points[0])
    with pytest.raises(InvalidInputError, match="at least 2 points; got n_samples=1"):
        cls().fit(points[:1])
    with pytest.raises(InvalidInputError, match="metric must be one of 'euclidean', 'precomputed'"):
        cls(metric="cosine").fit(points)
    for n_components in (0, 30, 1.5, True):
        with pytest.raises(InvalidInputError, match="n_components must be an integer from 1 to 29"):
            cls(n_components=n_components).fit(points)


@each_class
def test_unfitted_is_an_error(cls):
    with pytest.raises((NotFittedError, AttributeError)):
        cls().get_feature_names_out()


DESCENT_CLASSES = [cls for cls in CLASSES if issubclass(cls, IterativeMDS)]
each_descent_class = pytest.mark.parametrize("cls", DESCENT_CLASSES)


@each_descent_class
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": "pca"}, "init must be one of 'classical', 'random' or an array; got 'pca'"),
        (
            {"init": np.ones((3, 2))},
            r"finite numbers of shape \(30, 2\); got an array",
        ),
        ({"init": np.full((30, 2), np.nan)}, "init must be"),
        ({"tol": -1}, "tol must be a number of at least 0"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
        ({"max_seconds": -1}, "max_seconds must be"),
    ],
)
def test_bad_parameters_of_a_descent(cls, points, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        cls(**parameters).fit(points)


def test_bad_words(points):
    with pytest.raises(InvalidInputError, match="loss must be one of 'stress', 'sstress'"):
        MetricMDS(loss="strain").fit(points)
    with pytest.raises(InvalidInputError, match="ties must be one of 'primary', 'secondary'"):
        NonmetricMDS(ties="none").fit(points)


@each_descent_class
def test_bad_weights(cls, points):
    W = np.ones((30, 30))
    with pytest.raises(InvalidInputError, match=r"shape of the distances, \(30, 30\); got \(29"):
        cls().fit(points, weights=W[1:, 1:])
    W[2, 3] = 5
    with pytest.raises(InvalidInputError, match="symmetric; from point 2 to 3 it is 5, and back 1"):
        cls().fit(points, weights=W)
    W[2, 3] = W[3, 2] = -1
    with pytest.raises(
        InvalidInputError, match="not negative; that of points 2 and 3 is -1"
    ) as bad:
        cls().fit(points, weights=W)
    np.testing.assert_array_equal(bad.value.indices, [[2, 3], [3, 2]])
    W[2, 3] = W[3, 2] = np.nan
    with pytest.raises(InvalidInputError, match="finite"):
        cls().fit(points, weights=W)
    graph = NeighborhoodGraph.from_points(points, 6)
    with pytest.raises(InvalidInputError, match="has weights of its own"):
        cls().fit(graph, weights=np.ones((30, 30)))


@each_descent_class
@pytest.mark.parametrize("n_known", [30, 3], ids=["dense", "sparse"])
def test_weights_of_too_different_sizes_are_an_error(cls, points, n_known):
    """Two halves whose only link is lost in the sums of their weights."""
    D, numbers = pairwise_distances(points), np.arange(30)
    near = np.abs(numbers[:, None] - numbers) <= n_known
    half = numbers < 15
    W = np.where(half[:, None] == half, 1.0, 1e-40)
    with pytest.raises(InvalidInputError, match=r"weights must not differ so much .* 1e-40"):
        cls(metric="precomputed").fit(np.where(near, D, np.nan), weights=W)


@each_descent_class
@pytest.mark.parametrize("form", ["dense", "sparse", "graph", "weights"])
def test_known_distances_that_leave_parts_are_an_error(cls, points, form):
    """Distances are known within the first 18 points and within the other 12."""
    D = pairwise_distances(points)
    W = np.zeros((30, 30))
    W[:18, :18] = W[18:, 18:] = 1
    heads, tails = np.nonzero(np.triu(W, 1))
    X, weights = np.where(W > 0, D, np.nan), None
    if form == "sparse":
        X = sparse.csr_array(W * D)
    elif form == "graph":
        X = NeighborhoodGraph.from_edges(heads, tails, D[heads, tails], 30)
    elif form == "weights":
        X, weights = D, W
    with pytest.raises(DisconnectedGraphError, match="leave 2 parts, of 18, 12 points") as caught:
        cls(metric="precomputed").fit(X, weights=weights)
    assert caught.value.component_sizes == (18, 12)
    np.testing.assert_array_equal(caught.value.indices, np.arange(18, 30))


def test_equal_points_or_distances_are_an_error():
    with pytest.raises(InvalidInputError, match="points that differ; all distances of the 5 are 0"):
        MetricMDS().fit(np.ones((5, 3)))
    with pytest.raises(InvalidInputError, match="all known ones are 1, which have no order"):
        NonmetricMDS(metric="precomputed").fit(1 - np.eye(5))
    assert not ClassicalMDS().fit(np.ones((5, 3))).embedding_.any()


def test_classical_scaling_wants_all_distances(points):
    D = pairwise_distances(points)
    with pytest.raises(InvalidInputError, match="a sparse array holds some of them"):
        ClassicalMDS(metric="precomputed").fit(sparse.csr_array(D))
    D[4, 2] = D[2, 4] = np.nan
    with pytest.raises(InvalidInputError, match="that of points 2 and 4 is NaN") as caught:
        ClassicalMDS(metric="precomputed").fit(D)
    np.testing.assert_array_equal(caught.value.indices, [[2, 4], [4, 2]])
