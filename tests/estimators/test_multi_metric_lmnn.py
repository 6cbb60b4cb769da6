"""MultiMetricLMNN: the joint program, its partitions, what it predicts, and how a fit ends."""

import copy
import json
import pickle
import signal

import numpy as np
import pandas
import pytest
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV

from nearfar import LMNN, TRUSTED_TYPES, EnergyClassifier, MultiMetricLMNN, load, save
from nearfar.errors import CheckpointError, ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.estimators import _held_out
from nearfar.estimators._held_out import held_out_rows
from nearfar.supervision import class_order
from tests.callbacks import Recorder, needs_callbacks
from tests.processes import CAN_KILL, kill_fit

VARIANTS = [
    {},
    {"push_weight": 0.2, "n_neighbors": 2},
    {"partition": "kmeans", "n_metrics": 2, "random_state": 0, "push_weight": 0.9},
    {"partition": "spectral", "random_state": 0},
    {"partition": "given"},
]
each_variant = pytest.mark.parametrize("parameters", VARIANTS, ids=str)


LASTING = {"partition", "n_metrics", "n_neighbors", "push_weight", "tol", "random_state"}


@pytest.fixture(scope="module")
def fits():
    """What was fitted so far, by seed and parameters."""
    return {}


@pytest.fixture
def learn(overlapping, seed, fits):
    """Fits to the overlapping classes; clusters, where they are given, cut across the classes."""

    def fit(data, parameters):
        clusters = np.arange(len(data[0])) % 2 if parameters.get("partition") == "given" else None
        return MultiMetricLMNN(shrinkage=0, **parameters).fit(*data, clusters)

    def learn(data=None, **parameters):
        if data is not None or not set(parameters) <= LASTING:
            return fit(data or overlapping, parameters)
        key = seed, repr(sorted(parameters.items()))
        if key not in fits:
            fits[key] = fit(overlapping, parameters)
        return copy.deepcopy(fits[key])

    return learn


@pytest.fixture(scope="module")
def objective():
    """(1-mu) Σ D(i, j) + mu Σ [1 + D(i, j) - D(i, l)]₊, D by the metric of the second point."""

    def objective(M, metric_of, X, y, targets, push_weight):
        X = np.asarray(X, dtype=np.float64)

        def squared(a, b):
            return (X[a] - X[b]) @ M[metric_of[b]] @ (X[a] - X[b])

        total = 0.0
        for i in range(len(X)):
            far = np.array([squared(i, other) for other in np.flatnonzero(y != y[i])])
            for j in targets[i][targets[i] >= 0]:
                near = squared(i, j)
                total += (1 - push_weight) * near
                total += push_weight * np.maximum(0.0, 1 + near - far).sum()
        return total

    return objective


def by_vote(components, metric_of, X, y, new, k):
    """The label of the most among the k nearest of X, k shrinking until no labels tie."""
    answers = []
    for point in new:
        lengths = [
            np.sum((components[metric] @ (point - x)) ** 2)
            for x, metric in zip(X, metric_of, strict=True)
        ]
        order = np.argsort(lengths, kind="stable")
        for size in range(k, 0, -1):
            names, votes = np.unique(y[order[:size]], return_counts=True)
            if (votes == votes.max()).sum() == 1:
                break
        answers.append(names[votes.argmax()])
    return np.array(answers)


# -- the program ---


@each_variant
def test_objective_is_that_of_the_paper(
    parameters, dtype, learn, overlapping, nearest_of_class, objective
):
    """Computed in float64; float32 maps are rounded after that, which costs their last digits."""
    X, y = overlapping
    model = learn(None if dtype == X.dtype else (X.astype(dtype), y), **parameters)
    X = X.astype(dtype).astype(np.float64)
    M, targets = model.get_mahalanobis_matrix(), nearest_of_class(X, y, model.n_neighbors)
    expected = objective(M, model.metric_of_, X, y, targets, model.push_weight)
    assert model.objective_ == pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= model.tol
    assert model.components_.dtype == dtype
    n_metrics = 2 if parameters.get("partition") in ("kmeans", "given") else 3
    assert model.components_.shape[::2] == (n_metrics, 5)


@pytest.mark.parametrize("partition", ["class", "kmeans", "given"])
@pytest.mark.parametrize("push_weight", [0.3, 0.8])
def test_on_a_line_the_optimum_is_that_of_a_linear_program(
    partition, push_weight, rng, learn, nearest_of_class
):
    """With one feature a metric is a number m >= 0, so that lengths are linear in m, and
    f = min (1-mu) Σ_e d_e² m_c(j) + mu Σ ξ over ξ_t >= 1 + d_e² m_c(j) - d_p² m_c(l) and 0."""
    y = np.repeat([0, 1], 15)
    X = rng.normal(size=(30, 1)) + y[:, None]
    model = learn((X, y), partition=partition, push_weight=push_weight, tol=1e-4, random_state=0)
    edges = [(i, j) for i, row in enumerate(nearest_of_class(X, y, 3)) for j in row]
    one_hot = np.eye(len(model.components_))[model.metric_of_]
    pull, rows = np.zeros(one_hot.shape[1]), []
    for i, j in edges:
        near = (X[i] - X[j]) ** 2 * one_hot[j]
        pull += (1 - push_weight) * near
        rows += [
            near - (X[i] - X[other]) ** 2 * one_hot[other] for other in np.flatnonzero(y != y[i])
        ]
    slack = np.hstack([rows, -np.eye(len(rows))])
    cost = np.concatenate([pull, np.full(len(rows), push_weight)])
    optimum = linprog(cost, A_ub=slack, b_ub=-np.ones(len(rows))).fun
    assert model.objective_ * (1 - model.duality_gap_) <= optimum * (1 + 1e-9)
    assert optimum <= model.objective_ * (1 + 1e-9)
    assert model.objective_ == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize("parameters", VARIANTS[:3], ids=str)
def test_no_metrics_are_below_the_certified_bound(parameters, learn):
    rough, better = learn(tol=0.1, **parameters), learn(tol=1e-3, **parameters)
    assert rough.duality_gap_ <= 0.1
    assert better.duality_gap_ <= 1e-3
    assert rough.objective_ * (1 - rough.duality_gap_) <= better.objective_
    assert better.objective_ * (1 - better.duality_gap_) <= rough.objective_


def test_several_metrics_reach_a_smaller_objective_than_one(learn, overlapping):
    """One metric is several equal ones; and several that nothing tells apart are one."""
    one = LMNN(shrinkage=0).fit(*overlapping)
    assert learn().objective_ < one.objective_ * (1 - one.duality_gap_)
    alone = learn(partition="kmeans", n_metrics=1, tol=1e-3)
    assert alone.objective_ == pytest.approx(one.objective_, rel=2e-3)


def test_maps_are_canonical_and_end_in_zeros_where_the_rank_is_less(learn):
    model = learn(tol=1e-3)
    for L in model.components_:
        gram = L @ L.T
        lengths = np.sqrt(np.diag(gram))
        np.testing.assert_allclose(gram, np.diag(lengths**2), atol=1e-9 * lengths[0] ** 2)
        assert (np.diff(lengths) <= 0).all()
    assert (np.abs(model.components_).max(axis=2) > 0).any(axis=0).all()
    M = model.get_mahalanobis_matrix()
    np.testing.assert_allclose(M, [L.T @ L for L in model.components_])


@pytest.mark.parametrize("parameters", [VARIANTS[1], VARIANTS[-1]], ids=str)
def test_neither_order_nor_names_matter(parameters, rng, overlapping):
    """Nor the order of the clusters' names."""
    X, y = overlapping
    clusters = np.arange(60) % 2 if parameters.get("partition") == "given" else None
    model = MultiMetricLMNN(shrinkage=0, **parameters).fit(X, y, clusters)
    order = rng.permutation(60)
    given = None if clusters is None else np.array(["v", "u"])[clusters[order]]
    other = MultiMetricLMNN(shrinkage=0, **parameters).fit(
        X[order], np.array(["p", "q", "r"])[y[order]], given
    )
    np.testing.assert_array_equal(other.points_, X[order])
    np.testing.assert_array_equal(other.labels_, np.array(["p", "q", "r"])[y[order]])
    metric_of = model.metric_of_ if clusters is None else 1 - clusters
    np.testing.assert_array_equal(other.metric_of_, metric_of[order])
    assert other.objective_ == pytest.approx(model.objective_, rel=model.tol)


def test_history_tells_of_both_phases(learn):
    model = learn()
    assert [record["n_iter"] for record in model.history_] == list(range(1, model.n_iter_ + 1))
    metrics = [record["metrics"] for record in model.history_]
    assert metrics == sorted(metrics)
    assert set(metrics) == {1, 3}
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)
    assert model.history_[-1]["duality_gap"] == model.duality_gap_
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_)


# -- partitions ---


def test_the_metric_of_a_row_is_that_of_its_class(learn, overlapping):
    X, y = overlapping
    model = learn((X, np.array([7, -1, 3])[y]))
    np.testing.assert_array_equal(model.metric_of_, np.array([2, 0, 1])[y])
    np.testing.assert_array_equal(model._metric_of_new(X[:2]), [[0, 1, 2]] * 2)
    assert model.centers_ is None


def test_clusters_by_k_means(learn, overlapping):
    X, _ = overlapping
    model = learn(partition="kmeans", n_metrics=4, random_state=1)
    seed = np.random.RandomState(1).randint(2**31 - 1)
    expected = KMeans(4, n_init=10, random_state=seed).fit(X)
    np.testing.assert_array_equal(model.metric_of_, expected.labels_)
    np.testing.assert_allclose(model.centers_, expected.cluster_centers_)
    new = X + 0.3
    np.testing.assert_array_equal(
        model._metric_of_new(new), np.repeat(expected.predict(new)[:, None], 3, axis=1)
    )


def test_clusters_by_cutting_a_graph(read_only, recwarn):
    """Two circles around each other, which k-means would cut through. They are far apart, of
    which scikit-learn warns and we do not."""
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    X = read_only(np.vstack([circle, 5 * circle]))
    y = np.tile([0, 1], 60)
    model = MultiMetricLMNN("spectral", tol=0.5, random_state=0, shrinkage=0).fit(X, y)
    assert len(np.unique(model.metric_of_[:60])) == len(np.unique(model.metric_of_[60:])) == 1
    assert model.metric_of_[0] != model.metric_of_[60]
    new = np.array([[1.1, 0.0], [4.9, 0.1]])
    np.testing.assert_array_equal(model._metric_of_new(new)[:, 1], model.metric_of_[[0, 60]])
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    "kind",
    [np.asarray, list, pandas.Series, pandas.Categorical, lambda names: names.astype(object)],
    ids=["array", "list", "series", "categories", "objects"],
)
def test_clusters_that_are_given(kind, overlapping):
    """New points have the metric of the nearest row."""
    X, y = overlapping
    names = np.array(["north", "south", "east"])[np.arange(60) % 3]
    model = MultiMetricLMNN("given", tol=0.5, shrinkage=0).fit(X, y, clusters=kind(names))
    np.testing.assert_array_equal(model.metric_of_, np.array([1, 2, 0])[np.arange(60) % 3])
    np.testing.assert_array_equal(model._metric_of_new(X + 1e-9)[:, 0], model.metric_of_)


def test_held_out_rows_have_no_say_in_the_clusters(learn, overlapping):
    X, y = overlapping
    model = learn(partition="kmeans", validation_fraction=0.3, random_state=2)
    random = np.random.RandomState(2)
    train, _ = held_out_rows(class_order(y, ""), 0.3, random)
    order = train[np.argsort(y[train], kind="stable")]
    seed = np.random.RandomState(2).randint(2**31 - 1)
    expected = KMeans(3, n_init=10, random_state=seed).fit(X[order])
    np.testing.assert_allclose(model.centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(model.metric_of_, expected.predict(X))


def test_a_cluster_that_is_held_out_as_a_whole_keeps_the_metric_of_the_start(overlapping):
    """Nothing that is learned from has it."""
    X, y = overlapping
    _, held_out = held_out_rows(class_order(y, ""), 0.3, np.random.RandomState(0))
    clusters = np.zeros(60, dtype=int)
    clusters[held_out] = 1
    init = np.eye(2, 5)
    model = MultiMetricLMNN(
        "given", init=init, validation_fraction=0.3, random_state=0, shrinkage=0
    )
    model.fit(X, y, clusters)
    M = model.get_mahalanobis_matrix()[1]
    np.testing.assert_allclose(M / M[0, 0], init.T @ init, atol=1e-9)
    assert model.predict(X).shape == (60,)


# -- predictions ---


@each_variant
def test_neighbours_vote_by_their_own_metrics(parameters, learn, overlapping, rng):
    X, y = overlapping
    names = np.array(["a", "b", "c"])[y]
    model = learn((X, names), **{**parameters, "n_neighbors": 4})
    new = X[::2] + rng.normal(size=(30, 5))
    expected = by_vote(model.components_, model.metric_of_, X, names, new, 4)
    np.testing.assert_array_equal(model.predict(new), expected)
    assert model.score(new, expected) == 1
    shares = model.predict_proba(new)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], expected)
    assert not hasattr(model, "decision_function")


@each_variant
def test_energy_is_that_of_the_classifier_around_it(parameters, learn, overlapping, rng):
    X, y = overlapping
    model = learn(**parameters).set_params(decision="energy")
    classifier = EnergyClassifier(model).fit(X, y)
    new = X[::2] + rng.normal(size=(30, 5))
    np.testing.assert_array_equal(model.predict(new), classifier.predict(new))
    np.testing.assert_allclose(model.decision_function(new), classifier.decision_function(new))
    assert not hasattr(model, "predict_proba")


def test_a_decision_may_be_changed_after_the_fit(learn, overlapping):
    X, _ = overlapping
    model = learn()
    votes = model.predict(X)
    model.set_params(decision="energy")
    assert model.decision_function(X).shape == (60, 3)
    model.set_params(decision="knn")
    np.testing.assert_array_equal(model.predict(X), votes)


def test_a_second_fit_forgets_the_first(learn, overlapping):
    X, y = overlapping
    model = learn()
    model.predict(X)
    model.fit(X[:, :3], y)
    assert model.predict(X[:, :3]).shape == (60,)
    assert model.components_.shape[2] == 3


def test_more_neighbours_than_points():
    X, y = np.array([[0.0], [0.1], [1.0], [1.3]]), np.array([0, 0, 1, 1])
    with pytest.warns(DataWarning, match="fewer than n_neighbors"):
        model = MultiMetricLMNN(shrinkage=0, n_neighbors=9).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), y)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "get_mahalanobis_matrix"])
def test_unfitted_is_an_error(method, overlapping):
    arguments = () if method.startswith("get") else (overlapping[0],)
    with pytest.raises(NotFittedError, match="MultiMetricLMNN instance is not fitted yet"):
        getattr(MultiMetricLMNN(shrinkage=0), method)(*arguments)


@pytest.mark.parametrize("decision", ["knn", "energy"])
def test_names_of_features(decision, learn, overlapping):
    X, y = overlapping
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = learn((frame, y), decision=decision, tol=0.5)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.predict(frame).shape == (60,)
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="X has 4 features, but MultiMetricLMNN is expecting 5"):
        learn(decision=decision, tol=0.5).predict(X[:, :4])


# -- early stopping ---


def validation_errors(model, overlapping, maps):
    """The share of the held-out rows that the vote of the others gets wrong, with given maps."""
    X, y = overlapping
    fraction, seed = model.validation_fraction, model.random_state
    train, held_out = held_out_rows(class_order(y, ""), fraction, np.random.RandomState(seed))
    predicted = by_vote(maps, model.metric_of_[train], X[train], y[train], X[held_out], 3)
    return np.mean(predicted != y[held_out])


@pytest.mark.parametrize("partition", ["class", "kmeans"])
@pytest.mark.parametrize("random_state", [0, 3])
def test_the_metrics_with_the_smallest_validation_error_are_kept(
    partition, random_state, learn, overlapping
):
    """Of the start, here the identity for all, and of all looks."""
    model = learn(
        partition=partition,
        init=np.eye(5),
        validation_fraction=0.3,
        random_state=random_state,
    )
    errors = [
        record["validation_error"] for record in model.history_ if "validation_error" in record
    ]
    start = validation_errors(model, overlapping, [np.eye(5)] * len(model.components_))
    kept = validation_errors(model, overlapping, model.components_)
    assert len(errors) > 1
    assert kept == min(start, *errors)
    assert model.status_ in ("early_stopped", "converged")


def test_the_start_is_kept_where_learning_only_does_harm(learn, monkeypatch):
    looks = iter(range(1000))
    monkeypatch.setattr(_held_out.EarlyStopping, "measured", lambda *_: float(next(looks)))
    model = learn(init=np.eye(5), validation_fraction=0.3, random_state=0)
    assert model.status_ == "early_stopped"
    for L in model.components_:
        np.testing.assert_allclose(L, model.components_[0])
        np.testing.assert_allclose(L.T @ L, (L.T @ L)[0, 0] * np.eye(5), atol=1e-12)


def test_the_objective_is_that_of_the_rows_that_were_not_held_out(
    learn, overlapping, nearest_of_class, objective
):
    model = learn(validation_fraction=0.3, random_state=3)
    X, y = overlapping
    train, _ = held_out_rows(class_order(y, ""), 0.3, np.random.RandomState(3))
    M, targets = model.get_mahalanobis_matrix(), nearest_of_class(X[train], y[train], 3)
    expected = objective(M, model.metric_of_[train], X[train], y[train], targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.points_ is X  # all rows vote
    best = learn(validation_fraction=0.3, random_state=3, tol=1e-3, init=model)
    assert model.objective_ * (1 - model.duality_gap_) <= best.objective_


def test_a_seed_fixes_everything(learn):
    parameters = {"partition": "kmeans", "validation_fraction": 0.3, "random_state": 5}
    first, second = learn(**parameters), learn(**parameters)
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.metric_of_, second.metric_of_)


# -- where to start ---


STARTS = {
    "learner": lambda X, y: LMNN(shrinkage=0, tol=0.1).fit(X, y),
    "frozen learner": lambda X, y: FrozenEstimator(LMNN(shrinkage=0, tol=0.1).fit(X, y)),
    "one map": lambda *_: np.eye(2, 5),
    "whole numbers": lambda *_: np.eye(5, dtype=int).tolist(),
    "tiny": lambda *_: 1e-200 * np.eye(5),
    "huge": lambda *_: 1e200 * np.eye(5),
    "a map each": lambda *_: np.arange(1.0, 31.0).reshape(3, 2, 5) ** 2,
    "one map of zeros": lambda *_: np.eye(5) * np.array([1.0, 0, 2])[:, None, None],
    "several metrics": lambda X, y: MultiMetricLMNN(shrinkage=0, tol=0.1).fit(X, y),
}


@pytest.mark.parametrize("name", STARTS)
def test_every_start_leads_to_the_optimum(name, learn, overlapping):
    model, best = learn(init=STARTS[name](*overlapping)), learn(tol=1e-3)
    assert model.status_ == "converged"
    assert (
        model.objective_ * (1 - model.duality_gap_) <= best.objective_ <= model.objective_ * 1.001
    )
    assert {record["metrics"] for record in model.history_} == {3}


def test_a_start_at_the_optimum_takes_few_iterations(learn):
    best = learn(tol=1e-3)
    assert learn(init=best).n_iter_ < learn().n_iter_


@pytest.mark.parametrize(
    "init",
    [
        "pca",
        LMNN(shrinkage=0),
        np.eye(4),
        np.ones(5),
        np.ones((2, 3, 5)),
        np.zeros((2, 5)),
        np.full((1, 5), np.nan),
        np.ones((3, 1, 1, 5)),
    ],
    ids=["word", "unfitted", "features", "vector", "two maps", "zeros", "nan", "too many axes"],
)
def test_an_unusable_start_is_an_error(init, learn):
    with pytest.raises(
        InvalidInputError,
        match=r"init must be a fitted LMNN, .* here \(rows, 5\) or \(3, rows, 5\); got .* of shape",
    ):
        learn(init=init)


@pytest.mark.parametrize("validation_fraction", [None, 0.3])
def test_a_start_that_sees_nothing_is_an_error(validation_fraction, overlapping):
    X, y = overlapping
    X = np.column_stack([X, np.ones(60)])
    model = MultiMetricLMNN(
        shrinkage=0, init=np.eye(6)[5:], validation_fraction=validation_fraction
    )
    with pytest.raises(InvalidInputError, match="init maps all points to one: along its rows X"):
        model.fit(X, y)


# -- how a fit ends ---


FIRST, SECOND = 3, -3  # iterations of the two phases; the second is counted from the end
each_phase = pytest.mark.parametrize("number", [FIRST, SECOND], ids=["one metric", "several"])


@pytest.fixture
def whole(learn):
    return learn()


@needs_callbacks
def test_a_callback_gets_a_classifier_at_every_iteration(overlapping, whole):
    X, y = overlapping
    watcher = Recorder()
    model = MultiMetricLMNN(shrinkage=0).set_callbacks(watcher).fit(X, y)
    assert len(watcher.records) == model.n_iter_
    assert watcher.calls[-3:] == ["end iteration", "end fit", "teardown"]
    for fitted in (watcher.models[0], watcher.models[-1]):
        assert fitted.components_.shape[0] == 3
        assert fitted.predict(X).shape == (60,)
    np.testing.assert_array_equal(watcher.models[-1].predict(X), model.predict(X))
    np.testing.assert_array_equal(model.components_, whole.components_)
    assert clone(model).get_params() == model.get_params()


@needs_callbacks
@each_phase
@pytest.mark.parametrize("validation_fraction", [None, 0.3])
def test_a_callback_can_stop_the_fit(number, validation_fraction, overlapping, learn, recwarn):
    X, y = overlapping
    parameters = {"validation_fraction": validation_fraction, "random_state": 0}
    number = number % learn(**parameters).n_iter_
    watcher = Recorder(number, lambda: True)
    model = MultiMetricLMNN(shrinkage=0, **parameters).set_callbacks(watcher).fit(X, y)
    assert (model.status_, model.n_iter_, len(model.history_)) == ("stopped", number, number)
    assert model.components_.shape[0] == 3
    assert model.predict(X).shape == (60,)
    assert len(recwarn) == 0


@needs_callbacks
@each_phase
def test_ctrl_c_keeps_the_best_metrics(number, overlapping, whole):
    X, y = overlapping
    number %= whole.n_iter_
    # What Ctrl-C calls; a signal itself is ignored where the tests run in the background.
    watcher = Recorder(number, lambda: signal.default_int_handler(signal.SIGINT, None))
    model = MultiMetricLMNN(shrinkage=0).set_callbacks(watcher)
    with pytest.warns(ConvergenceWarning, match="MultiMetricLMNN was interrupted; the best map so"):
        model.fit(X, y)
    assert (model.status_, model.n_iter_) == ("interrupted", number)
    assert watcher.calls[-1] == "teardown"
    assert model.objective_ * (1 - model.duality_gap_) <= whole.objective_
    assert model.predict(X).shape == (60,)


@needs_callbacks
def test_a_fit_that_failed_is_no_fit(overlapping, whole):
    def fail():
        raise OSError("no space left")

    model = copy.copy(whole).set_callbacks(Recorder(2, fail))
    with pytest.raises(OSError, match="no space left"):
        model.fit(*overlapping)
    with pytest.raises(NotFittedError):
        model.predict(overlapping[0])


@each_phase
@pytest.mark.parametrize("validation_fraction", [None, 0.3])
def test_max_iter_counts_both_phases(number, validation_fraction, learn):
    parameters = {"validation_fraction": validation_fraction, "random_state": 0}
    number %= learn(**parameters).n_iter_
    with pytest.warns(
        ConvergenceWarning, match=r"MultiMetricLMNN stopped before tol=1e-09: reached max_iter"
    ):
        model = learn(max_iter=number, tol=1e-9, **parameters)
    assert (model.status_, model.n_iter_, len(model.history_)) == ("max_iter", number, number)


def test_max_iter_where_the_one_metric_has_just_been_learned(learn, whole):
    number = [record["metrics"] for record in whole.history_].count(1)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or tol"):
        model = learn(max_iter=number)
    assert (model.status_, model.n_iter_) == ("max_iter", number)
    assert {record["metrics"] for record in model.history_} == {1}
    for L in model.components_:
        np.testing.assert_allclose(L, model.components_[0])


@pytest.mark.parametrize("init", [None, np.eye(5)], ids=["one metric", "several"])
def test_max_seconds(init, learn):
    with pytest.warns(ConvergenceWarning, match="reached max_seconds"):
        model = learn(max_seconds=1e-9, init=init)
    assert (model.status_, model.n_iter_) == ("max_seconds", 1)


def test_a_limit_met_at_the_tolerance_is_none(learn, recwarn):
    """One iteration in the first phase, and a tolerance that any metric meets."""
    model = learn(max_iter=1, tol=1.0)
    assert (model.status_, model.n_iter_) == ("converged", 1)
    assert len(recwarn) == 0


# -- checkpoints ---


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def saved_records(path):
    with np.load(path) as file:
        return json.loads(str(file["values"]))["history"]


@pytest.mark.skipif(not CAN_KILL, reason="sends SIGKILL")
def test_a_killed_fit_resumes_and_reaches_the_same_answer(path, wine):
    X, y = wine
    kill_fit(
        MultiMetricLMNN(shrinkage=0, tol=1e-3, checkpoint=path),
        X,
        y,
        lambda: [record["metrics"] for record in saved_records(path)].count(3) >= 10,
    )
    before = saved_records(path)
    resumed = MultiMetricLMNN(shrinkage=0, tol=1e-3, checkpoint=path).fit(X, y)
    whole = MultiMetricLMNN(shrinkage=0, tol=1e-3).fit(X, y)
    assert resumed.status_ == whole.status_ == "converged"
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=1e-3)
    assert resumed.history_[: len(before)] == before
    assert [record["n_iter"] for record in resumed.history_] == list(range(1, resumed.n_iter_ + 1))
    seconds = [record["seconds"] for record in resumed.history_]
    assert seconds == sorted(seconds)
    assert not path.exists()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"partition": "kmeans", "n_metrics": 2},
        {"validation_fraction": 0.3},
        {"init": np.eye(5)},
    ],
    ids=["class", "clusters", "validation", "given start"],
)
def test_a_fit_that_met_its_limit_continues(parameters, path, learn):
    parameters = {"random_state": 0, "checkpoint": path, **parameters}
    whole = learn(**{**parameters, "checkpoint": None})
    number = whole.n_iter_ // 2
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        learn(max_iter=number, **parameters)
    assert len(saved_records(path)) == number
    model = learn(**parameters)
    assert model.status_ == whole.status_
    assert model.n_iter_ > number
    assert not path.exists()
    if whole.status_ == "converged":
        assert model.objective_ == pytest.approx(whole.objective_, rel=2 * model.tol)


def test_a_fit_that_ended_before_the_second_phase_continues(path, learn, whole):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        learn(max_iter=2, checkpoint=path)
    model = learn(checkpoint=path)
    assert model.status_ == "converged"
    assert [record["metrics"] for record in model.history_[:3]] == [1, 1, 3]
    assert model.objective_ == pytest.approx(whole.objective_, rel=2 * model.tol)
    assert not path.exists()


def test_other_metrics_are_an_error(path, learn, overlapping):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        learn(max_iter=20, checkpoint=path)
    for parameters in ({"partition": "given"}, {"n_neighbors": 2}, {"push_weight": 0.4}):
        with pytest.raises(CheckpointError, match="belongs to other data or other parameters"):
            learn(checkpoint=path, **parameters)
    X, y = overlapping
    same = MultiMetricLMNN("given", checkpoint=path, shrinkage=0).fit(X, y, y)  # are the classes
    assert same.status_ == "converged"


# -- bad input and difficult data ---


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"partition": "label"}, "partition must be one of 'class', 'kmeans', 'spectral', 'given'"),
        ({"decision": "vote"}, "decision must be one of 'knn', 'energy'; got 'vote'"),
        ({"n_metrics": 2}, "n_metrics=2 cannot be used with partition='class'.*Leave it out"),
        ({"partition": "kmeans", "n_metrics": 0}, "n_metrics must be an integer of at least 1"),
        ({"partition": "kmeans", "n_metrics": 2.0}, "n_metrics must be an integer"),
        ({"partition": "kmeans", "n_metrics": 61}, "'kmeans' makes at most 60 clusters of 60 rows"),
        ({"partition": "spectral", "n_metrics": 60}, "makes at most 59 clusters .*Lower n_metrics"),
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1; got 0"),
        ({"push_weight": 1.0}, "push_weight must be .*between 0 and 1"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"validation_fraction": 1.5}, "validation_fraction must be"),
    ],
    ids=str,
)
def test_bad_parameters(parameters, message, learn):
    with pytest.raises(InvalidInputError, match=message):
        learn(**parameters)


@pytest.mark.parametrize(
    "clusters",
    [
        np.zeros(59),
        np.zeros((60, 1)),
        np.r_[np.nan, np.zeros(59)],
        np.array(["a"] * 59 + [None], dtype=object),
        7,
    ],
    ids=["too few", "a column", "nan", "none", "a number"],
)
def test_bad_clusters(clusters, overlapping):
    with pytest.raises(
        InvalidInputError, match=r"clusters must have a value for each of the 60 rows of X.*got"
    ):
        MultiMetricLMNN("given", shrinkage=0).fit(*overlapping, clusters)


@pytest.mark.parametrize(("partition", "clusters"), [("class", np.zeros(60)), ("given", None)])
def test_clusters_belong_to_a_partition(partition, clusters, overlapping):
    with pytest.raises(InvalidInputError, match=r"clusters belong to partition='given', and only"):
        MultiMetricLMNN(partition).fit(*overlapping, clusters)


@pytest.mark.parametrize("partition", ["class", "kmeans", "spectral", "given"])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # scikit-learn's
def test_equal_points(partition, learn):
    """Every triplet has a slack of 1: 8 points with 3 targets each and 4 impostors."""
    X, y = np.ones((8, 3)), np.repeat([0, 1], 4)
    with pytest.warns(DataWarning, match="all points are equal"):
        model = learn((X, y), partition=partition, random_state=0)
    assert model.objective_ == pytest.approx(0.5 * 8 * 3 * 4)
    assert (model.status_, model.duality_gap_) == ("converged", 0.0)
    assert model.components_.shape[1:] == (3, 3)
    assert set(model.predict(X)) <= {0, 1}


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_fewer_distinct_points_than_clusters(rng):
    """Each distinct point is a cluster, with a metric, and new points find one of these."""
    X = np.repeat(rng.normal(size=(3, 2)), 4, axis=0)
    with pytest.warns(DataWarning, match="48 pairs of equal points have different labels|pairs of"):
        model = MultiMetricLMNN("kmeans", 5, random_state=0, shrinkage=0).fit(
            X, np.tile([0, 0, 1, 1], 3)
        )
    assert model.metric_of_.max() == 2
    assert len(model.components_) == len(model.centers_) == 3
    assert model._metric_of_new(rng.normal(size=(50, 2))).max() <= 2


def test_a_class_of_one_member(overlapping, nearest_of_class, objective):
    """Nobody's target, so that its metric costs nothing and pushes its impostor away."""
    X, y = overlapping
    X, y = np.vstack([X, X[y == 0].mean(axis=0)]), np.append(y, 7)
    with pytest.warns(DataWarning, match="class 7 has 1 member"):
        model = MultiMetricLMNN(shrinkage=0, tol=1e-3).fit(X, y)
    assert model.status_ == "converged"
    assert len(model.components_) == 4
    M, targets = model.get_mahalanobis_matrix(), nearest_of_class(X, y, 3)
    expected = objective(M, model.metric_of_, X, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.predict(X[-1:]).shape == (1,)


def test_equal_points_of_different_classes(overlapping):
    X, y = overlapping
    X = X.copy()
    X[0] = X[-1]
    with pytest.warns(DataWarning, match="1 pairs of equal points have different labels"):
        model = MultiMetricLMNN(shrinkage=0).fit(X, y)
    assert model.status_ == "converged"


@pytest.mark.parametrize("scale", [1e8, 1e-8])
def test_units_do_not_matter(scale, learn, overlapping):
    X, y = overlapping
    model, other = learn(), learn((scale * X, y))
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    np.testing.assert_array_equal(other.predict(scale * X), model.predict(X))


@pytest.mark.parametrize("y", [np.zeros(9), np.arange(9)], ids=["one class", "no pair"])
def test_labels_that_leave_nothing_to_learn(y, overlapping):
    with pytest.raises(InvalidInputError, match="MultiMetricLMNN needs"):
        MultiMetricLMNN(shrinkage=0).fit(overlapping[0][:9], y)


# -- tensors, files, copies and searches ---


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("parameters", "dtype"),
    [
        (VARIANTS[0], np.float32),
        (VARIANTS[0], np.float64),
        (VARIANTS[2], np.float32),
        (VARIANTS[4], np.float64),
    ],
)
def test_tensors(parameters, device, dtype, torch, learn, overlapping):
    X, y = overlapping
    expected = learn(**parameters)
    tensor = torch.tensor(X.astype(dtype), device=device)
    model = learn((tensor, y), **parameters)
    assert model.components_.device == tensor.device
    assert model.components_.dtype == tensor.dtype
    assert model.objective_ == pytest.approx(expected.objective_, rel=model.tol)
    np.testing.assert_array_equal(model.metric_of_, expected.metric_of_)
    for decision, scores in (("knn", "predict_proba"), ("energy", "decision_function")):
        model.set_params(decision=decision)
        predicted = model.predict(tensor)
        assert isinstance(predicted, np.ndarray)
        assert np.mean(predicted == expected.set_params(decision=decision).predict(X)) > 0.9
        best = getattr(model, scores)(tensor).argmax(1)
        np.testing.assert_array_equal(model.classes_[best.cpu().numpy()], predicted)


@pytest.mark.torch
def test_tensors_elsewhere_are_an_error(torch, learn, overlapping):
    X, y = overlapping
    with pytest.raises(
        InvalidInputError, match="MultiMetricLMNN was fitted on torch device cpu and X is on NumPy"
    ):
        learn((torch.tensor(X), y), tol=0.5).predict(X)
    with pytest.raises(InvalidInputError, match="fitted on NumPy and X is on torch device cpu"):
        learn(tol=0.5).predict(torch.tensor(X))


@pytest.mark.torch
def test_tensors_for_clusters_and_starts(torch, overlapping):
    X, y = overlapping
    start = torch.eye(5)
    model = MultiMetricLMNN(
        "given", init=start, validation_fraction=0.2, random_state=0, shrinkage=0
    )
    model.fit(torch.tensor(X), torch.tensor(y), torch.tensor(y))
    twin = MultiMetricLMNN(
        shrinkage=0, init=np.eye(5), validation_fraction=0.2, random_state=0
    ).fit(X, y)
    assert model.objective_ == pytest.approx(twin.objective_, rel=1e-6)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"partition": "kmeans", "decision": "energy", "random_state": 0},
        {"partition": "given", "init": np.eye(5)},
    ],
    ids=["class", "clusters", "given"],
)
def test_a_model_comes_back_from_a_file_whole(parameters, learn, overlapping, tmp_path):
    X, y = overlapping
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = learn((frame, np.array(["u", "v", "w"])[y]), **parameters)
    expected = model.predict(frame)
    save(model, tmp_path / "model.nearfar")
    for twin in (load(tmp_path / "model.nearfar"), pickle.loads(pickle.dumps(model))):
        assert set(vars(twin)) == set(vars(model)) - {"_classifiers"}
        np.testing.assert_array_equal(twin.predict(frame), expected)
        np.testing.assert_array_equal(twin.components_, model.components_)
        np.testing.assert_array_equal(twin.metric_of_, model.metric_of_)
        assert twin.history_ == model.history_
        assert repr(twin) == repr(model)


def test_skops_holds_it(learn, overlapping, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs the skops extra")
    model, file = learn(), tmp_path / "model.skops"
    expected = model.predict(overlapping[0])
    skops.dump(model, file)
    twin = skops.load(file, trusted=TRUSTED_TYPES)
    np.testing.assert_array_equal(twin.predict(overlapping[0]), expected)


def test_a_model_with_a_learner_as_start_comes_back(learn, overlapping, tmp_path):
    model = learn(init=LMNN(shrinkage=0, tol=0.1).fit(*overlapping))
    save(model, tmp_path / "model.nearfar")
    twin = load(tmp_path / "model.nearfar")
    np.testing.assert_array_equal(twin.init.components_, model.init.components_)
    np.testing.assert_array_equal(twin.fit(*overlapping).components_, model.components_)


def test_in_a_grid_search_with_clusters(iris):
    X, y = (array[::2] for array in iris)
    grid = {"decision": ["knn", "energy"], "init": [None, np.eye(4)]}
    search = GridSearchCV(
        MultiMetricLMNN("given", tol=0.1, shrinkage=0), grid, cv=2, error_score="raise"
    )
    search.fit(X, y, clusters=np.arange(75) % 2)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.9
    assert search.predict(X).shape == (75,)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"partition": "kmeans", "n_metrics": 2, "random_state": 0}],
    ids=str,
)
def test_target_neighbours_that_coincide(rng, parameters):
    """Every point is there four times: nothing is pulled, and no impostor need be near."""
    X, y = np.repeat(rng.normal(size=(10, 3)), 4, axis=0), np.repeat(np.arange(10) % 2, 4)
    model = MultiMetricLMNN(shrinkage=0, **parameters).fit(X, y)
    assert (model.status_, model.objective_, model.duality_gap_) == ("converged", 0.0, 0.0)
    np.testing.assert_array_equal(model.predict(X), y)


def test_classes_of_one_place_each():
    y = np.arange(12) % 2
    model = MultiMetricLMNN(shrinkage=0, max_iter=50).fit(np.array([[0.0, 0.0], [1.0, 2.0]])[y], y)
    assert (model.status_, model.objective_) == ("converged", 0.0)


@pytest.mark.parametrize("number", [67, 70, 75])
@pytest.mark.filterwarnings("ignore:.*have different labels:nearfar.errors.DataWarning")
def test_contradictory_copies_in_float32_converge(number):
    """Fewer places than features: a metric grows for free where float32 sees rounding errors."""
    random = np.random.default_rng(number)
    d, places = int(random.integers(1, 30)), int(random.integers(2, 20))
    X = random.normal(size=(places, d))[random.integers(0, places, 40)].astype(np.float32)
    model = MultiMetricLMNN(shrinkage=0).fit(X, random.integers(0, random.integers(2, 4), 40))
    assert (model.status_, model.components_.dtype) == ("converged", np.float32)
    assert model.duality_gap_ <= model.tol


@pytest.mark.filterwarnings("ignore::nearfar.errors.DataWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1e4, 1e5, 1e6])
def test_a_metric_grows_where_nothing_is_pulled_beside_an_outlier(size, dtype):
    """The pull of class 1 is along (1, 1) alone, and (1, −1) parts its impostors for free, however
    small their part of it is in units of the outlier. Left are three triplets: of the equal points
    0 and 2, and of point 4, which differs from 0 and 3 only where their own edge is pulled."""
    X = np.array([[0, 1], [0, 0], [0, 1], [size, 1], [1, 1]], dtype=dtype)
    model = MultiMetricLMNN(shrinkage=0, push_weight=0.2, max_iter=300).fit(X, [0, 1, 2, 0, 1])
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(3 * 0.2, abs=1e-2)
