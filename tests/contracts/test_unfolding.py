"""What every unfolding keeps: scikit-learn's rules, and the handling of graphs.

A new estimator joins by its entry in `nearfar.registry`; UNFOLDINGS holds those with several ways
of working. None of scikit-learn's checks is expected to fail; `test_defaults.py` has those of the
defaults. `Shortcut` is a small unfolding that shows what a subclass has to do and lets the contract
be tested by itself.
"""

import inspect
import pickle
import re
import warnings
from contextlib import suppress

import numpy as np
import pandas
import pytest
from scipy import sparse
from scipy.sparse.csgraph import shortest_path
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import pairwise_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import MVU, LandmarkMVU, LocalMDS, NeighborhoodGraph, VariationalMVU
from nearfar.errors import (
    ConvergenceWarning,
    DataWarning,
    DisconnectedGraphError,
    InvalidInputError,
)
from nearfar.estimators._graph_layout import (
    Layout,
    Unfolded,
    check_graph_parameters,
    graph_input,
    max_distortion,
    run_component,
    store_layout,
)
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.solvers import Iterate
from tests.callbacks import Recorder, interrupt_at, needs_callbacks
from tests.documented import documented_attributes, fitted_attributes
from tests.registered import instances
from tests.variants import checks_of_variants


class Shortcut(Unfolding):
    """Classical scaling of the shortest paths along the graph, in two iterations.

    Parameters
    ----------
    n_components : int, default=2
    n_neighbors : int or None, default=4
    angles : bool, default=True
    metric : str, default="euclidean"
    on_disconnected : str, default="link"
    tol : float, default=1e-3
    max_iter : int, default=10
    max_seconds : float or None, default=None
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    embedding_ : ndarray
    eigenvalues_ : ndarray
    graph_ : NeighborhoodGraph
    component_labels_ : ndarray
    max_distortion_ : float
    objective_ : float
    duality_gap_ : float or None
    status_ : str
    n_iter_ : int
    history_ : list
    X_fit_ : ndarray
    n_features_in_ : int
    feature_names_in_ : ndarray
    paths_ : list
    """

    def __init__(
        self,
        n_components=2,
        n_neighbors=4,
        *,
        angles=True,
        metric="euclidean",
        on_disconnected="link",
        tol=1e-3,
        max_iter=10,
        max_seconds=None,
        random_state=None,
    ):
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    @with_callbacks
    def fit(self, X, y=None):
        check_graph_parameters(self)
        check_limits(self)
        given = graph_input(self, X)
        training = Training(self, X, y, bounded=False)
        layout = Layout(given, self.n_components)
        self.paths_ = []
        for component in layout.components():
            graph = component.graph
            paths = shortest_path(graph.adjacency(), directed=False)
            values, Y = scaled_by_paths(paths)
            solution = run_component(
                training,
                layout,
                component,
                in_two_steps(values, Y),
                lambda iterate: iterate.point[:, : self.n_components],
            )
            found = solution.iterate
            unfolded = Unfolded(
                found.point[:, : self.n_components],
                values,
                max_distortion(found.point, graph),
                -found.value,
                found.residual,
                solution.status,
            )
            layout.place(component, unfolded)
            self.paths_.append(paths)
        store_layout(self, layout)
        status = layout.status(self.tol)
        store_ending(self, status, layout.objective, layout.duality_gap, training.history)
        training.finish(status, layout.attributes())
        return self


def scaled_by_paths(paths):
    """Variances and places by classical scaling of path lengths."""
    C = np.eye(len(paths)) - 1 / len(paths)
    values, vectors = np.linalg.eigh(-0.5 * C @ paths**2 @ C)
    values = values[::-1].clip(0, None)
    return values, vectors[:, ::-1] * np.sqrt(values)


def in_two_steps(values, Y):
    yield Iterate(0.5 * Y, -values.sum() / 4, residual=0.75, exact=True)
    yield Iterate(Y, -values.sum(), residual=0.0, exact=True)


# Hints at data that weaken an answer are no matter of the contract.
pytestmark = pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")

UNFOLDINGS = [
    MVU(),
    Shortcut(),
    Shortcut(n_components=1, n_neighbors=6, angles=False),
    LocalMDS(),
    LocalMDS(n_neighbors=8, repulsion=0.01),
    VariationalMVU(),
    VariationalMVU(n_eigenvectors=5, stretch=0.1),
    LandmarkMVU(random_state=0),
]
# A new class joins by its entry in the registry. SensorLocalization takes distances alone and has
# the checks in its own tests.
UNFOLDINGS += [
    estimator
    for estimator in instances(kind="unfolding", learns_from="neighbours")
    if type(estimator) not in {type(listed) for listed in UNFOLDINGS}
]
CLASSES = sorted({type(estimator) for estimator in UNFOLDINGS}, key=lambda cls: cls.__name__)
MAX_PARAMETERS = 15
# checkpoint, for descents in many columns; in MVU for one of its solvers
MORE = {"MVU": 1, "VariationalMVU": 1, "LandmarkMVU": 1}
SHARED = {
    "n_components": 2,
    "metric": "euclidean",
    "on_disconnected": "link",
    "max_seconds": None,
    "random_state": None,
}

each = pytest.mark.parametrize("estimator", UNFOLDINGS, ids=repr)
each_class = pytest.mark.parametrize("cls", CLASSES)


def bent_strip(n, rng, radius=4.0):
    """Points of a strip of width 5 on a cylinder, in the order of their places along it.

    As in the thesis there are five more features of slight noise. So a point and its neighbours
    are not flat, and exact unfoldings have solutions that can be computed.
    """
    place, height = np.divmod(np.arange(n), 5) + 0.25 * rng.normal(size=(2, n))
    angle = place / radius
    bent = np.stack([radius * np.cos(angle), height, radius * np.sin(angle)], axis=1)
    return np.hstack([bent, 0.1 * rng.normal(size=(n, 5))])


@pytest.fixture
def strip(rng, read_only):
    """60 points of a bent strip, connected for 4 neighbours."""
    return read_only(bent_strip(60, rng))


@pytest.fixture
def pieces(rng, read_only):
    """Two bent strips far from each other, of 40 and 30 points, in mixed order."""
    X = np.concatenate([bent_strip(40, rng), 100 + bent_strip(30, rng)])
    return read_only(X[rng.permutation(70)])


def fitted(estimator, X, **parameters):
    return clone(estimator).set_params(**parameters).fit(X)


FITS = {}


def fitted_once(estimator, X):
    """The estimator fitted to X, by the first test that asks; none may change it."""
    key = repr(estimator), X.tobytes()
    if key not in FITS:
        FITS[key] = fitted(estimator, X)
    return FITS[key]


def squared_lengths(Y, graph):
    return np.sum((Y[graph.heads] - Y[graph.tails]) ** 2, axis=1)


# -- scikit-learn ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@checks_of_variants(UNFOLDINGS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@each_class
def test_few_parameters_with_the_shared_defaults(cls):
    true = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    assert len(true.keys() - {"verbose"}) <= MAX_PARAMETERS + MORE.get(cls.__name__, 0)
    assert {name: true[name] for name in SHARED} == SHARED
    assert {"n_neighbors", "tol", "max_iter"} <= set(true)
    assert true.get("angles", True) is True


@each_class
def test_every_fitted_attribute_is_documented(cls, strip):
    model = cls().fit(pandas.DataFrame(strip, columns=list("abcdefgh")))
    assert fitted_attributes(model) == documented_attributes(cls)


@each
def test_clone_and_repr(estimator):
    twin = eval(repr(estimator), {type(estimator).__name__: type(estimator)})
    assert twin.get_params() == clone(estimator).get_params() == estimator.get_params()


# -- the answer ------------------------------------------------------------------------------


@each
def test_what_a_fit_leaves_behind(estimator, strip):
    model = fitted(estimator, strip, on_disconnected="error")
    Y, r = model.embedding_, model.n_components
    assert Y.shape == (60, r)
    np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-6 * np.abs(Y).max())
    # Those of the whole solution, which a refinement in r dimensions may leave a little.
    np.testing.assert_allclose(np.sum(Y**2, axis=0), model.eigenvalues_[:r], rtol=5e-2)
    assert (np.diff(model.eigenvalues_) <= 1e-9 * model.eigenvalues_[0]).all()
    assert (Y[np.abs(Y).argmax(axis=0), np.arange(r)] > 0).all()
    assert model.status_ == "converged"
    if hasattr(model, "program_gap_"):  # the gap of the embedding has no tolerance
        assert model.program_gap_ <= model.tol
    else:
        assert model.duality_gap_ is None or model.duality_gap_ <= model.tol
    assert model.max_distortion_ >= 0
    assert model.n_iter_ == len(model.history_) >= 1
    assert {"n_iter", "seconds", "objective", "residual", "duality_gap"} <= set(model.history_[0])
    assert model.graph_.n_nodes == 60
    assert not model.component_labels_.any()
    assert model.n_features_in_ == 8


@each
def test_fit_transform_returns_the_embedding_and_transform_keeps_it(estimator, strip):
    model = clone(estimator)
    np.testing.assert_array_equal(model.fit_transform(strip), model.embedding_)
    np.testing.assert_array_equal(model.transform(strip), model.embedding_)


@each
def test_the_strip_is_laid_out_along_its_bend(estimator, strip):
    first = fitted_once(estimator, strip).embedding_[:, 0]
    assert abs(np.corrcoef(first, np.arange(60))[0, 1]) > 0.95


@each
def test_points_graph_distances_and_kernel_give_the_same(estimator, strip):
    model = fitted_once(estimator, strip)
    k, angles = model.n_neighbors, model.angles
    graph = NeighborhoodGraph.from_points(strip, k, angles=angles)
    centred = strip - strip.mean(axis=0)
    D = pairwise_distances(strip)
    others = {
        "graph": fitted(estimator, graph),
        "distances": fitted(estimator, D, metric="precomputed"),
        "sparse": fitted(estimator, sparse.csr_array(D), metric="precomputed"),
        "kernel": fitted(estimator, centred @ centred.T, metric="kernel"),
        "edges": fitted(
            estimator,
            NeighborhoodGraph.from_edges(graph.heads, graph.tails, graph.lengths, 60),
        ),
    }
    scale = np.abs(model.embedding_).max()
    for name, other in others.items():
        np.testing.assert_allclose(
            other.embedding_, model.embedding_, atol=1e-3 * scale, err_msg=name
        )
        assert other.objective_ == pytest.approx(model.objective_, rel=1e-3)


@each
def test_new_points_go_near_their_neighbours(estimator, strip, rng):
    model = fitted_once(estimator, strip)
    moved = strip + 1e-6 * rng.normal(size=strip.shape)
    scale = np.abs(model.embedding_).max()
    np.testing.assert_allclose(model.transform(moved), model.embedding_, atol=0.25 * scale)


@each
def test_new_points_by_their_distances(estimator, strip, rng):
    new = strip[::7] + 0.01 * rng.normal(size=strip[::7].shape)
    by_points = fitted_once(estimator, strip).transform(new)
    model = fitted(estimator, pairwise_distances(strip), metric="precomputed")
    D = pairwise_distances(new, strip)
    np.testing.assert_allclose(model.transform(D), by_points, atol=1e-3 * np.abs(by_points).max())
    with pytest.raises(InvalidInputError, match=r"distances of 60 points .* got 59"):
        model.transform(D[:, 1:])
    D[2, 5] = -1
    with pytest.raises(InvalidInputError, match=r"row 2 has one in column 5 \(1 in all\)"):
        model.transform(D)


# -- components ------------------------------------------------------------------------------


@each
def test_a_disconnected_graph_is_an_error_that_names_sizes_and_remedies(estimator, pieces):
    with pytest.raises(DisconnectedGraphError) as caught:
        fitted(estimator, pieces, on_disconnected="error")
    text = str(caught.value)
    assert f"{type(estimator).__name__} needs a connected neighbourhood graph" in text
    assert "2 components, of 40 and 30 nodes" in text
    for remedy in ("Raise n_neighbors", "on_disconnected='link'", "on_disconnected='separate'"):
        assert remedy in text
    assert caught.value.component_sizes == (40, 30)
    assert len(caught.value.indices) == 30


@each
def test_components_are_linked_by_default_with_a_warning(estimator, pieces):
    with pytest.warns(DataWarning) as caught:
        model = fitted(estimator, pieces, random_state=0)
    assert str(caught[0].message) == (
        "the neighbourhood graph has 2 components, of 40 and 30 points;"
        f" {type(estimator).__name__} linked them by 1 edge between near points. Raise n_neighbors,"
        " or set on_disconnected='separate' or 'error'."
    )
    assert caught[0].filename == __file__
    assert model.graph_.report().component_sizes == (70,)
    ends = pieces[:, 0] > 50
    first = model.embedding_[:, 0]
    assert first[ends].min() > first[~ends].max() or first[ends].max() < first[~ends].min()


def test_the_sizes_of_several_linked_components_are_told():
    line = np.stack([np.arange(5.0), np.zeros(5)], axis=1)
    X = np.concatenate([line, line[:4] + 50, line[:3] + 200])
    with pytest.warns(
        DataWarning, match="3 components, of 5, 4 and 3 points; LocalMDS linked them"
    ):
        model = LocalMDS(n_neighbors=2, random_state=0).fit(X)
    assert model.graph_.component_sizes() == (12,)
    for remedy in ("separate", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with suppress(DisconnectedGraphError):
                LocalMDS(n_neighbors=2, on_disconnected=remedy).fit(X)


@each
def test_a_connected_graph_is_not_warned_of(estimator, strip):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(estimator, strip)
    assert model.graph_.component_sizes() == (60,)
    assert not any("components" in str(w.message) for w in caught)


@each
def test_separate_components_are_unfolded_each_by_itself(estimator, pieces):
    model = fitted(estimator, pieces, on_disconnected="separate")
    labels = model.component_labels_
    assert sorted(np.bincount(labels)) == [30, 40]
    alone = [fitted(estimator, pieces[labels == c]) for c in (0, 1)]
    for c in (0, 1):
        scale = np.abs(alone[c].embedding_).max()
        np.testing.assert_allclose(
            model.embedding_[labels == c], alone[c].embedding_, atol=1e-3 * scale
        )
    assert model.objective_ == pytest.approx(sum(a.objective_ for a in alone), rel=1e-3)
    assert model.max_distortion_ == pytest.approx(
        max(a.max_distortion_ for a in alone), rel=1e-3, abs=1e-4
    )
    variance = np.sum(model.embedding_**2, axis=0)
    np.testing.assert_allclose(model.eigenvalues_[: len(variance)], variance, rtol=5e-2)
    assert {record["component"] for record in model.history_} == {0, 1}
    assert model.n_iter_ == len(model.history_)
    moved = pieces + 1e-6
    scale = np.abs(model.embedding_).max()
    np.testing.assert_allclose(model.transform(moved), model.embedding_, atol=0.25 * scale)


@each
def test_a_component_of_one_node_stays_at_the_origin(estimator, strip):
    D = pairwise_distances(np.vstack([strip, strip[:1] + 1e3]))
    D[-1, :-1] = D[:-1, -1] = np.nan
    model = fitted(estimator, D, metric="precomputed", on_disconnected="separate")
    np.testing.assert_array_equal(model.embedding_[-1], 0)
    assert np.abs(model.embedding_[:-1]).max() > 1
    with pytest.raises(DisconnectedGraphError, match="no known distance joins the 2 components"):
        fitted(estimator, D, metric="precomputed")


@each
def test_a_graph_without_points_cannot_be_linked_by_itself(estimator):
    graph = NeighborhoodGraph.from_edges([0, 2], [1, 3], [1.0, 1.0], 4)
    with pytest.raises(DisconnectedGraphError) as caught:
        fitted(estimator, graph)
    assert str(caught.value) == (
        f"{type(estimator).__name__} needs a connected neighbourhood graph; this one has 2"
        " components, of 2 and 2 nodes. It has no distances by which to link them: fit on"
        " graph.linked(distances), or set on_disconnected='separate' to unfold each by itself."
    )


# -- copies ----------------------------------------------------------------------------------


@each
def test_copies_of_a_point_lie_together_and_change_nothing(estimator, strip, rng):
    twice = np.concatenate([strip, strip[[3, 3, 3, 3, 3, 3, 17]]])
    order = rng.permutation(len(twice))
    model, plain = fitted(estimator, twice[order]), fitted_once(estimator, strip)
    places = np.empty_like(model.embedding_)
    places[order] = model.embedding_
    scale = np.abs(plain.embedding_).max()
    np.testing.assert_array_equal(places[60:66], np.repeat(places[[3]], 6, axis=0))
    np.testing.assert_array_equal(places[66], places[17])
    signs = np.sign(np.sum(places[:60] * plain.embedding_, axis=0))
    np.testing.assert_allclose(places[:60] * signs, plain.embedding_, atol=1e-3 * scale)
    assert model.graph_.report().n_duplicates == 7
    new = strip[:5] + 0.01
    np.testing.assert_allclose(
        model.transform(new) * signs, plain.transform(new), atol=1e-2 * scale
    )


@each
def test_equal_points_only_are_an_error(estimator):
    with pytest.raises(InvalidInputError, match="needs points that differ; all 10 are equal"):
        fitted(estimator, np.ones((10, 3)))


# -- what is refused -------------------------------------------------------------------------


@each
@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_components": 0}, "n_components must be an integer of at least 1; got 0"),
        ({"n_neighbors": 60}, "n_neighbors=60 needs at least 61 different points; there are 60"),
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1; got 0"),
        ({"metric": "cosine"}, "metric must be one of 'euclidean', 'precomputed', 'kernel'"),
        (
            {"on_disconnected": "raise"},
            "on_disconnected must be one of 'link', 'error', 'separate'; got 'raise'",
        ),
        ({"angles": 2}, "angles must be True or False; got 2"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1; got 0"),
        ({"max_seconds": -1}, "max_seconds must be a number of at least 0; got -1"),
    ],
)
def test_bad_parameters(estimator, strip, parameters, text):
    if not set(parameters) <= set(estimator.get_params()):
        pytest.skip("has no such parameter")
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        fitted(estimator, strip, **parameters)


@each
def test_as_many_dimensions_as_points_are_an_error(estimator, strip):
    with pytest.raises(InvalidInputError, match=r"n_components.*60"):
        fitted(estimator, strip, n_components=60)


@each
def test_one_point_is_an_error(estimator):
    with pytest.raises(InvalidInputError, match="at least 2 points; got n_samples=1"):
        fitted(estimator, [[1.0, 2.0]])


@each
@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ({(2, 5): -1.0, (5, 2): -1.0}, "must not be negative; that between nodes 2 and 5 is -1"),
        ({(2, 5): 7.0}, "must be symmetric; from node 2 to 5 it is 7, and back"),
        ({(2, 5): np.nan}, "must be symmetric; from node 2 to 5 it is unknown, and back"),
        ({(4, 4): 1.0}, "distance of a node to itself must be 0; that of node 4 is 1"),
    ],
)
def test_what_are_no_distances(estimator, strip, spoil, text):
    D = pairwise_distances(strip)
    for entry, value in spoil.items():
        D[entry] = value
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        fitted(estimator, D, metric="precomputed")


@each
def test_distances_that_cannot_be_squared(estimator, strip):
    D = pairwise_distances(strip)
    for scale in (1e200, 1e-200):
        with pytest.raises(
            InvalidInputError, match=r"between 1e-140 and 1e\+140, .* squared; it is .* Divide"
        ):
            fitted(estimator, scale * D, metric="precomputed")
    D[3, 7] = D[7, 3] = 1e-150
    with pytest.raises(
        InvalidInputError, match=r"at least 1e-70 of the longest, .* nodes 3 and 7 is 1e-150 \(1 "
    ):
        fitted(estimator, D, metric="precomputed")


@each
def test_what_is_no_kernel(estimator, strip):
    with pytest.raises(InvalidInputError, match=r"positive semidefinite; the squared distance"):
        fitted(estimator, -strip @ strip.T, metric="kernel")
    with pytest.raises(InvalidInputError, match=r"square and finite, .* got shape \(60, 8\)"):
        fitted(estimator, strip, metric="kernel")
    with pytest.raises(InvalidInputError, match="must be dense; got a sparse one"):
        fitted(estimator, sparse.csr_array(strip @ strip.T), metric="kernel")


@each
def test_unfitted_is_an_error(estimator, strip):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        clone(estimator).transform(strip)


# -- dtypes, devices, files, composition -------------------------------------------------------


@each
def test_keeps_the_dtype(estimator, strip, dtype):
    model = fitted(estimator, strip.astype(dtype))
    assert model.embedding_.dtype == dtype
    assert model.transform(strip[:5].astype(dtype) + dtype(0.01)).dtype == dtype
    assert model.graph_.lengths.dtype == np.float64


@each
def test_every_backend_gives_the_same(estimator, strip, backend):
    model, plain = fitted(estimator, backend.asarray(strip)), fitted_once(estimator, strip)
    Y = backend.to_numpy(model.embedding_)
    np.testing.assert_allclose(Y, plain.embedding_, atol=1e-3 * np.abs(Y).max())
    new = strip[:9] + 0.01
    placed = backend.to_numpy(model.transform(backend.asarray(new)))
    np.testing.assert_allclose(placed, plain.transform(new), atol=1e-3 * np.abs(Y).max())


@each
def test_frames_in_frames_out(estimator, strip):
    data = pandas.DataFrame(strip, columns=list("abcdefgh"))
    model = clone(estimator).set_output(transform="pandas")
    out = model.fit_transform(data)
    names = [f"{type(estimator).__name__.lower()}{i}" for i in range(estimator.n_components)]
    assert list(out.columns) == names == list(model.get_feature_names_out())
    assert list(model.feature_names_in_) == list("abcdefgh")
    model.fit(NeighborhoodGraph.from_edges([0, 1], [1, 2], [1.0, 1.0], 3))
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 3


@each
def test_pickle_round_trip(estimator, strip):
    model = fitted_once(estimator, strip)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.transform(strip + 0.01), model.transform(strip + 0.01))
    assert twin.history_ == model.history_


@each
def test_in_a_pipeline(estimator, strip):
    pipeline = make_pipeline(StandardScaler(), clone(estimator))
    assert pipeline.fit_transform(strip).shape == (60, estimator.n_components)
    assert pipeline.transform(strip[:7] + 0.01).shape == (7, estimator.n_components)


@pytest.mark.usefixtures("global_random_state_kept")
@each
def test_fit_changes_neither_data_nor_parameters_nor_the_global_random_state(estimator, pieces):
    """The fixture's arrays are read-only, so that writing to them would raise."""
    model = fitted(estimator, pieces, random_state=0)
    assert model.get_params() == {**estimator.get_params(), "random_state": 0}


@each
def test_a_seed_fixes_everything(estimator, pieces):
    first, again = (fitted(estimator, pieces, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(first.embedding_, again.embedding_)


@each
def test_prints_nothing(estimator, strip, capfd):
    fitted(estimator, strip)
    assert capfd.readouterr() == ("", "")


# -- limits, interruption, callbacks -----------------------------------------------------------


@pytest.mark.usefixtures("stopped_clock")
@each
def test_limits_keep_the_best_and_warn(estimator, strip):
    name = type(estimator).__name__
    with pytest.warns(ConvergenceWarning, match=f"{name} stopped before tol=.* Raise max_iter"):
        model = fitted(estimator, strip, max_iter=1, tol=1e-12)
    assert model.status_ == "max_iter"
    assert np.isfinite(model.embedding_).all()
    with pytest.warns(ConvergenceWarning, match=f"{name} stopped before tol=.* Raise max_seconds"):
        model = fitted(estimator, strip, max_seconds=0, tol=1e-12)
    assert model.status_ == "max_seconds"
    assert np.isfinite(model.embedding_).all()


@needs_callbacks
@each
def test_callbacks_get_a_transformer_at_every_iteration(estimator, pieces):
    recorder = Recorder()
    model = clone(estimator).set_params(on_disconnected="separate")
    model.set_callbacks(recorder).fit(pieces)
    assert recorder.records == model.history_
    for step in recorder.models:
        np.testing.assert_array_equal(step.transform(pieces), step.embedding_)
    scale = np.abs(model.embedding_).max()
    np.testing.assert_allclose(recorder.models[-1].embedding_, model.embedding_, atol=1e-2 * scale)


@needs_callbacks
@each
def test_an_interruption_keeps_the_best_so_far(estimator, pieces):
    """Of two components the second is never begun, and stays at the origin."""
    recorder = interrupt_at(1)
    model = clone(estimator).set_params(on_disconnected="separate", tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="was interrupted; the best"):
        model.set_callbacks(recorder).fit(pieces)
    assert (model.status_, model.n_iter_) == ("interrupted", 1)
    labels = model.component_labels_
    reached = labels == np.bincount(labels).argmax()
    assert np.abs(model.embedding_[reached]).max() > 0
    np.testing.assert_array_equal(model.embedding_[~reached], 0)


# -- the stub ---------------------------------------------------------------------------------


def test_the_stub_measures_its_distortion(strip):
    """A path between neighbours is their edge, so what is distorted is what the scaling loses."""
    model = Shortcut().fit(strip)
    Y, graph = model.embedding_, model.graph_
    squares, D = squared_lengths(Y, graph), graph.lengths**2
    assert max_distortion(Y, graph) == pytest.approx(np.max(np.abs(squares - D) / D))
