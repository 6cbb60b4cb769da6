"""POLA and its kernel version: streams, epochs, thresholds, and what is refused."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_circles
from sklearn.model_selection import GridSearchCV
from sklearn.utils._testing import assert_allclose

import nearfar
from nearfar import POLA, KernelPOLA, Tuples
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.solvers import shifted_inverse
from nearfar.solvers.pola import MarginProjections

LEARNERS = [POLA(), KernelPOLA("rbf", 0.2), KernelPOLA("poly", 0.3, kernel_params={"degree": 2})]
STATE = [
    "matrix_",
    "squared_threshold_",
    "threshold_",
    "n_pairs_seen_",
    "n_updates_",
    "squared_loss_",
    "total_length_",
]
OF_FIT = ["objective_", "duality_gap_", "status_", "n_iter_", "history_"]

each = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: f"{learner!r:.30}")


@pytest.fixture
def stream(rng, read_only):
    """150 pairs in 4 dimensions; near are those of close first features, a tenth is wrong."""
    pairs = rng.normal(size=(150, 2, 4))
    near = abs(pairs[:, 0, 0] - pairs[:, 1, 0]) < 1
    near ^= rng.random(150) < 0.1
    return read_only(pairs), read_only(np.where(near, 1, -1))


@pytest.fixture
def separable(rng, read_only):
    """120 pairs whose margins a metric keeps, which is returned with its threshold."""
    A = rng.normal(size=(2, 4))
    M, b = A.T @ A, 3.0
    pairs = rng.normal(size=(3000, 2, 4)) * rng.uniform(0.2, 1, size=(3000, 1, 1))
    x = pairs[:, 0] - pairs[:, 1]
    margins = b - np.vecdot(x @ M, x)
    rows = rng.permutation(
        np.concatenate([np.flatnonzero(margins >= 1)[:60], np.flatnonzero(margins <= -1)[:60]])
    )
    assert len(rows) == 120
    return read_only(pairs[rows]), read_only(np.sign(margins[rows]).astype(int)), M, b


def assert_same(one, other, rtol=0.0):
    for name in STATE:
        assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=rtol)


def losses(model, pairs, y):
    """[1 − y (b − D²)]₊ from the distances that the model tells."""
    squares = model.pair_distance(pairs) ** 2
    return np.maximum(0, 1 - y * (model.squared_threshold_ - squares))


# -- the stream ---


@pytest.mark.parametrize("sizes", [[1] * 150, [100, 50], [1, 148, 1]], ids=len)
@each
def test_one_by_one_is_the_same_as_in_batches(learner, sizes, stream):
    """For POLA to the last bit; a kernel's matrix products round in another way."""
    pairs, y = stream
    whole = clone(learner).partial_fit(pairs, y)
    parts = clone(learner)
    for first, last in zip(np.cumsum([0, *sizes]), np.cumsum(sizes), strict=False):
        parts.partial_fit(pairs[first:last], y[first:last])
    assert_same(parts, whole, rtol=0.0 if isinstance(learner, POLA) else 1e-9)
    assert_allclose(parts.pair_distance(pairs), whole.pair_distance(pairs), rtol=1e-7)
    assert whole.n_pairs_seen_ == 150


def test_one_by_one_is_the_same_up_to_rounding_with_a_kept_inverse(stream, monkeypatch):
    monkeypatch.setattr(shifted_inverse, "LAPACK_ROWS", 2)  # 128 features, without the time
    pairs, y = stream
    whole, parts = POLA().partial_fit(pairs, y), POLA()
    for pair, sign in zip(pairs, y, strict=True):
        parts.partial_fit(pair[None], [sign])
    assert_same(parts, whole, rtol=1e-10)
    monkeypatch.undo()
    assert_same(POLA().partial_fit(pairs, y), whole, rtol=1e-10)


@each
def test_an_epoch_in_the_given_order_is_the_stream(learner, stream):
    pairs, y = stream
    fitted = clone(learner).set_params(max_iter=1, shuffle=False).fit(pairs, y)
    assert_same(fitted, clone(learner).partial_fit(pairs, y), rtol=1e-9)


@each
def test_fit_forgets_and_partial_fit_goes_on(learner, stream):
    pairs, y = stream
    model = clone(learner).fit(pairs, y)
    seen = model.n_pairs_seen_
    assert {name for name in OF_FIT if hasattr(model, name)} == set(OF_FIT)
    before = pickle.loads(pickle.dumps(model))
    model.partial_fit(pairs[:10], -y[:10])
    assert model.n_pairs_seen_ == seen + 10
    assert not np.array_equal(model.matrix_, before.matrix_)
    assert [name for name in OF_FIT if hasattr(model, name)] == []
    assert_same(model.fit(pairs, y), before)


@each
def test_the_order_matters(learner, stream):
    """On pairs that contradict each other the last ones have more to say."""
    pairs, y = stream
    one, other = (clone(learner).partial_fit(pairs[::s], y[::s]) for s in (1, -1))
    distances = [model.pair_distance(pairs) for model in (one, other)]
    assert abs(distances[0] - distances[1]).max() > 0.1


@each
def test_only_near_or_only_far_pairs_may_arrive(learner, stream):
    pairs, y = stream
    model = clone(learner)
    for kind in (1, -1):
        model.partial_fit(pairs[y == kind][:20], y[y == kind][:20])
    assert model.n_pairs_seen_ == 40
    with pytest.raises(InvalidInputError, match="near and far pairs are both needed"):
        clone(learner).fit(pairs[y == 1], y[y == 1])


@each
def test_near_pairs_teach_nothing_at_first(learner, stream):
    """M = 0 and b = 1 keep the margin of every near pair."""
    pairs, y = stream
    model = clone(learner).partial_fit(pairs[y == 1], y[y == 1])
    assert (model.n_updates_, model.squared_threshold_) == (0, 1.0)
    np.testing.assert_array_equal(model.pair_distance(pairs), 0)
    assert (model.predict(pairs) == 1).all()
    assert model.transform(pairs[:, 0]).shape == (150, 1)
    later = clone(model).partial_fit(pairs[y == 1], y[y == 1]).partial_fit(pairs, y)
    assert_same(model.partial_fit(pairs, y), later)
    assert model.n_updates_ > 0


@each
def test_a_near_pair_of_a_point_with_itself_changes_nothing(learner, stream):
    pairs, y = stream
    model = clone(learner).partial_fit(pairs, y)
    before = model.matrix_
    model.partial_fit(np.ones((1, 2, 4)), [1])
    np.testing.assert_array_equal(model.matrix_, before)
    assert model.n_pairs_seen_ == 151


@each
def test_no_pairs_are_no_news(learner, stream):
    """Of one labelled point, or of tuples that are all filtered out."""
    pairs, y = stream
    model = clone(learner).partial_fit(pairs, y)
    before = pickle.loads(pickle.dumps(model))
    assert_same(model.partial_fit(pairs[0, :1], [0]), before)
    assert_same(model.partial_fit(Tuples(pairs[0], np.zeros((0, 2), dtype=int)), []), before)


@each
def test_triplets_are_a_near_and_then_a_far_pair(learner, rng):
    triplets = rng.normal(size=(40, 3, 4))
    pairs = np.stack([triplets[:, [0, 1]], triplets[:, [0, 2]]], axis=1).reshape(80, 2, 4)
    expected = clone(learner).partial_fit(pairs, np.tile([1, -1], 40))
    assert_same(clone(learner).partial_fit(triplets), expected)
    fitted = clone(learner).fit(triplets)
    assert fitted.n_pairs_seen_ == 80 * fitted.n_iter_


@each
def test_tuples_are_the_dense_pairs(learner, rng):
    points, indices = rng.normal(size=(20, 4)), rng.permutation(20)[:18].reshape(9, 2)
    y = np.array([1, -1] * 4 + [1])
    tuples = Tuples(points, indices)
    for method in ("fit", "partial_fit"):
        one, other = (getattr(clone(learner), method)(X, y) for X in (tuples, points[indices]))
        assert_same(one, other, rtol=1e-9)
        np.testing.assert_array_equal(one.predict(tuples), other.predict(points[indices]))


@each
def test_labels_are_pairs_in_a_shuffled_order(learner, overlapping):
    X, y = overlapping
    model = clone(learner).set_params(n_pairs=50)
    model.partial_fit(X, y)
    assert model.n_pairs_seen_ == 100
    assert_same(model, clone(model).partial_fit(X, y))
    other = clone(model).set_params(random_state=1).partial_fit(X, y)
    assert not np.array_equal(other.matrix_, model.matrix_)
    model.partial_fit(X[:3], [7, 7, 7])  # one class: near pairs only
    assert model.n_pairs_seen_ == 103


# -- exactly POLA ---


def test_the_paper_by_plain_loops(stream):
    """M₁ = 0, b₁ = 1; α = ℓ / (‖x‖⁴ + 1); all eigenvectors of every matrix."""
    pairs, y = stream
    M, b, total = np.zeros((4, 4)), 1.0, 0.0
    for (u, v), sign in zip(pairs, y, strict=True):
        x = u - v
        loss = max(0.0, 1 - sign * (b - x @ M @ x))
        total += loss**2
        alpha = loss / (np.linalg.norm(x) ** 4 + 1)
        values, vectors = np.linalg.eigh(M - sign * alpha * np.outer(x, x))
        M = (vectors * values.clip(0)) @ vectors.T
        b = max(1.0, b + sign * alpha)
    model = POLA(scale=1.0).partial_fit(pairs, y)
    np.testing.assert_allclose(model.matrix_, M, atol=1e-10)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), M, atol=1e-9)
    assert model.squared_threshold_ == pytest.approx(b)
    assert model.threshold_ == pytest.approx(np.sqrt(b))
    assert model.squared_loss_ == pytest.approx(total)


@pytest.mark.parametrize("scale", [0.7, 1.0, 2.0])
def test_the_mistake_bound_on_separable_pairs(separable, scale):
    """However often they come: Σ ℓ² ≤ (R⁴/s⁴ + 1) (s⁴‖M*‖² + (b* − 1)²), mistakes included."""
    pairs, y, M, b = separable
    x = pairs[:, 0] - pairs[:, 1]
    limit = (np.vecdot(x, x).max() ** 2 / scale**4 + 1) * (scale**4 * np.sum(M**2) + (b - 1) ** 2)
    model, mistakes = POLA(scale=scale).partial_fit(pairs[:1], y[:1]), 0
    for _ in range(5):
        for pair, sign in zip(pairs, y, strict=True):
            mistakes += model.predict(pair[None])[0] != sign
            model.partial_fit(pair[None], [sign])
    assert 0 < mistakes <= model.squared_loss_ <= limit


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_linear_kernel_is_pola(stream, sign):
    pairs, y = stream
    linear, plain = (model.partial_fit(pairs, sign * y) for model in (KernelPOLA("linear"), POLA()))
    np.testing.assert_allclose(
        linear.get_mahalanobis_matrix(), plain.get_mahalanobis_matrix(), atol=1e-8
    )
    for name in STATE[1:]:
        assert getattr(linear, name) == pytest.approx(getattr(plain, name))
    assert len(linear.basis_) == 4


@each
@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_the_unit_of_the_features_does_not_matter(learner, unit, stream):
    pairs, y = stream
    scaled = clone(learner)
    if not isinstance(learner, POLA):
        scaled.set_params(gamma=learner.gamma / unit**2)
    for method in ("fit", "partial_fit"):
        one = getattr(clone(learner), method)(pairs, y)
        other = getattr(clone(scaled), method)(unit * pairs, y)
        assert_allclose(other.pair_distance(unit * pairs), one.pair_distance(pairs), rtol=1e-5)
        assert other.threshold_ == pytest.approx(one.threshold_)


# -- epochs and their end ---


@each
def test_with_beta_every_margin_is_kept_up_to_it(learner, separable):
    pairs, y, _, _ = separable
    model = clone(learner).set_params(beta=0.1, max_iter=3000).fit(pairs, y)
    assert model.status_ == "converged"
    found = losses(model, pairs, y)
    assert found.max() <= 0.1 + 1e-6
    assert model.objective_ == pytest.approx(found.sum(), abs=1e-6)
    assert model.objective_ > 0
    assert model.duality_gap_ is None  # losses up to beta are let be, and nothing is proved
    assert model.n_iter_ == len(model.history_) < 3000
    last = model.history_[-1]
    assert (last["n_updates"], last["duality_gap"]) == (0, None)
    assert last["objective"] == pytest.approx(model.objective_)
    assert model.n_updates_ == sum(record["n_updates"] for record in model.history_)


@each
def test_no_loss_at_all_is_proved_to_be_the_least(learner):
    pairs = np.array([[[0.0, 0.0], [0.0, 0.1]], [[0.0, 0.0], [2.0, 0.0]]])
    model = clone(learner).set_params(max_iter=100).fit(pairs, [1, -1])
    assert (model.objective_, model.duality_gap_) == (0.0, 0.0)


@each
def test_beta_that_is_not_reached_is_warned_of(learner, stream):
    pairs, y = stream
    message = (
        r"stopped before every loss was at most beta=0.01: reached max_iter, with a"
        r" largest loss of \d.*Raise max_iter or beta; pairs that no metric separates"
    )
    with pytest.warns(ConvergenceWarning, match=message):
        model = clone(learner).set_params(beta=0.01, max_iter=2).fit(pairs, y)
    assert model.status_ == "max_iter"
    assert losses(model, pairs, y).max() > 0.01


@each
def test_without_beta_all_epochs_are_made(learner, stream):
    pairs, y = stream
    model = clone(learner).set_params(max_iter=3).fit(pairs, y)
    assert (model.status_, model.n_iter_, model.n_pairs_seen_) == ("max_iter", 3, 450)
    expected = losses(model, pairs, y).sum()
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert expected > 1
    assert model.duality_gap_ is None
    assert [record["squared_threshold"] for record in model.history_][-1] == (
        model.squared_threshold_
    )


@pytest.mark.usefixtures("stopped_clock")
def test_max_seconds(stream):
    with pytest.warns(ConvergenceWarning, match=r"max_seconds.* Raise max_seconds\.") as record:
        model = POLA(max_seconds=0).fit(*stream)
    assert record[0].filename == __file__
    assert (model.status_, model.n_iter_) == ("max_seconds", 1)


@each
def test_an_interrupted_fit_keeps_the_last_whole_epoch(learner, stream, monkeypatch):
    pairs, y = stream
    expected = clone(learner).set_params(max_iter=2).fit(pairs, y)
    learn, visits = MarginProjections._loss, []

    def interrupted(self, *given):
        visits.append(1)
        if len(visits) == 370:
            raise KeyboardInterrupt
        return learn(self, *given)

    monkeypatch.setattr(MarginProjections, "_loss", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted; the last whole epoch is kept"):
        model = clone(learner).fit(pairs, y)
    assert (model.status_, model.n_iter_) == ("interrupted", 2)
    assert_same(model, expected)


@each
def test_an_interrupted_partial_fit_changes_nothing(learner, stream, monkeypatch):
    pairs, y = stream
    model = clone(learner).partial_fit(pairs[:50], y[:50])
    before = pickle.loads(pickle.dumps(model))

    def interrupted(self, *given):  # noqa: ARG001
        raise KeyboardInterrupt

    monkeypatch.setattr(MarginProjections, "_correct", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(pairs, y)
    monkeypatch.undo()
    assert_same(model, before)
    assert_same(model.partial_fit(pairs, y), before.partial_fit(pairs, y))


@each
def test_shuffling_is_seeded(learner, stream):
    fits = [
        clone(learner).set_params(random_state=seed, shuffle=shuffle, max_iter=2).fit(*stream)
        for seed, shuffle in [(0, True), (0, True), (1, True), (0, False), (1, False)]
    ]
    assert_same(fits[0], fits[1])
    assert_same(fits[3], fits[4])
    for one, other in [(0, 2), (0, 3)]:
        assert not np.array_equal(fits[one].matrix_, fits[other].matrix_)


# -- dtypes, devices, files ---


@each
def test_float32_learns_what_float64_learns(learner, stream):
    pairs, y = stream
    single = pairs.astype(np.float32)
    one = clone(learner).partial_fit(single, y)
    assert_same(one, clone(learner).partial_fit(single.astype(np.float64), y), rtol=1e-12)
    assert one.transform(single[:, 0]).dtype == np.float32
    assert one.matrix_.dtype == np.float64
    one.partial_fit(pairs, y)  # a stream may change its mind
    assert one.transform(pairs[:, 0]).dtype == np.float64


@pytest.mark.torch
@each
def test_tensors_learn_what_arrays_learn(learner, stream, torch, dtype):
    pairs, y = (torch.tensor(np.array(part)) for part in stream)
    pairs = pairs.to(getattr(torch, np.dtype(dtype).name))
    for method in ("partial_fit", "fit"):
        tensor = getattr(clone(learner), method)(pairs, y)
        array = getattr(clone(learner), method)(pairs.numpy(), y.numpy())
        assert_same(tensor, array, rtol=1e-9)
        distances = tensor.pair_distance(pairs)
        assert isinstance(distances, torch.Tensor)
        assert distances.dtype == pairs.dtype
        assert_allclose(distances.numpy(), array.pair_distance(pairs.numpy()), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(tensor.predict(pairs), array.predict(pairs.numpy()))
    tensor.partial_fit(pairs, y)
    assert tensor.n_pairs_seen_ == 150 * (array.n_iter_ + 1)


@pytest.mark.torch
def test_the_points_of_a_kernel_stay_where_they_are(stream, torch):
    pairs, y = stream
    model = KernelPOLA(gamma=0.3).partial_fit(torch.tensor(pairs.copy()), y)
    assert isinstance(model.X_fit_, torch.Tensor)
    with pytest.raises(InvalidInputError, match="was fitted on torch device cpu and X is on NumPy"):
        model.partial_fit(pairs, y)


@each
def test_a_loaded_model_goes_on(learner, stream, tmp_path):
    pairs, y = stream
    model = clone(learner).partial_fit(pairs[:100], y[:100])
    nearfar.save(model, tmp_path / "model.nearfar")
    loaded = nearfar.load(tmp_path / "model.nearfar")
    assert_same(loaded, model)
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(pairs), model.predict(pairs))
    assert_same(loaded.partial_fit(pairs[100:], y[100:]), model.partial_fit(pairs[100:], y[100:]))


@each
def test_the_callers_arrays_and_the_state_of_others_are_left_alone(learner, stream):
    """The pairs are read-only; a shallow copy keeps the matrix that it shares."""
    pairs, y = stream
    model = clone(learner).partial_fit(pairs[:50], y[:50])
    matrix, kept = model.matrix_, model.matrix_.copy()
    model.partial_fit(pairs, y)
    np.testing.assert_array_equal(matrix, kept)


# -- predictions ---


@each
def test_predict_compares_with_the_threshold(learner, stream):
    pairs, y = stream
    model = clone(learner).partial_fit(pairs, y)
    near = model.pair_distance(pairs) ** 2 <= model.squared_threshold_
    np.testing.assert_array_equal(model.predict(pairs), np.where(near, 1, -1))
    assert 0 < near.sum() < 150


@each
def test_predict_is_hidden_after_labels(learner, overlapping, stream):
    model = clone(learner).set_params(n_pairs=30).fit(*overlapping)
    assert not hasattr(model, "predict")
    with pytest.raises(AttributeError, match="has no attribute 'predict'") as caught:
        _ = model.predict
    assert "Compare pair_distance with threshold_" in str(caught.value.__cause__)
    pairs, y = stream
    assert hasattr(clone(learner).fit(pairs, y), "predict")
    points = np.pad(pairs, [(0, 0), (0, 0), (0, 1)])  # as many features as the labelled points
    assert hasattr(model.partial_fit(points, y), "predict")


def test_a_grid_search_on_pairs(stream):
    pairs, y = stream
    search = GridSearchCV(POLA(), {"scale": [0.1, 1.0, None]}, cv=3).fit(pairs, y)
    assert search.best_score_ > 0.7
    assert search.best_estimator_.score(pairs, y) > 0.7


# -- what is refused ---

BAD = [
    ("beta", -0.1, "beta must be a number of at least 0; got -0.1"),
    ("beta", np.nan, "beta must be a number of at least 0; got nan"),
    ("scale", 0, "scale must be a number above 0; got 0"),
    ("scale", "auto", "scale must be a number above 0; got 'auto'"),
    ("shuffle", "yes", "shuffle must be True or False; got 'yes'"),
    ("n_pairs", 0, "n_pairs must be an integer of at least 1; got 0"),
    ("max_iter", 0, "max_iter must be an integer of at least 1; got 0"),
    ("max_seconds", -1, "max_seconds must be a number of at least 0; got -1"),
]
BAD_OF_KERNEL = [
    ("max_directions", 0, "max_directions must be an integer of at least 1; got 0"),
    ("kernel", "precomputed", "kernel='precomputed' cannot be used. Name a kernel"),
    ("kernel", "gauss", "kernel must be one of"),
]


UNUSABLE = [(cls, *case) for cls in (POLA, KernelPOLA) for case in BAD]
UNUSABLE += [(KernelPOLA, *case) for case in BAD_OF_KERNEL]


@pytest.mark.parametrize(("cls", "name", "value", "message"), UNUSABLE)
def test_unusable_parameters_are_an_error(cls, name, value, message, stream):
    for method in ("fit", "partial_fit"):
        model = cls(**{name: value})
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            getattr(model, method)(*stream)
        assert not hasattr(model, "matrix_")


REFUSED = {
    "a label other than +1 and -1": (lambda X, y: (X, y * 2), r"y must be \+1 for near pairs"),
    "no labels": (lambda X, y: (X, None), r"requires y to be passed"),  # noqa: ARG005
    "too few labels": (lambda X, y: (X, y[:-1]), r"needs \+1 or -1 for each pair"),
    "four points": (lambda X, y: (np.tile(X, (1, 2, 1)), y), r"takes pairs of shape"),
    "other features": (lambda X, y: (X[:, :, :3], y), r"X has 3 features, but \w+ is expecting 4"),
    "nan": (lambda X, y: (np.where(X > 1, np.nan, X), y), r"NaN"),
    "a spread beyond float64": (lambda X, y: (1e150 * X, y), r"leave the range of float64"),
}


@pytest.mark.parametrize("case", REFUSED)
@each
def test_a_refused_batch_changes_nothing(learner, case, stream):
    change, message = REFUSED[case]
    model = clone(learner).partial_fit(*stream)
    before = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*change(*stream))
    assert_same(model, before)
    assert model.n_features_in_ == 4


@each
def test_far_pairs_of_equal_points_are_left_out_of_a_stream_with_a_warning(learner, stream):
    pairs, y = np.array(stream[0]), np.full(150, -1)
    pairs[[3, 77], 1] = pairs[[3, 77], 0]
    others = np.setdiff1d(np.arange(150), [3, 77])
    expected = clone(learner).partial_fit(pairs[others], y[others])
    message = r"far pairs of equal points are left out, .*: tuple 3 \(2 in all\)\. Drop them\.$"
    with pytest.warns(DataWarning, match=message):
        model = clone(learner).partial_fit(pairs, y)
    assert model.n_pairs_seen_ == 148
    np.testing.assert_array_equal(model.transform(pairs[:, 0]), expected.transform(pairs[:, 0]))
    with pytest.warns(DataWarning, match=message):
        POLA().partial_fit(np.stack([pairs[:, 0], pairs[::-1, 0], pairs[:, 1]], axis=1))


def test_contradictions_are_data_in_a_fit_and_in_a_stream(stream):
    pairs, y = stream
    both, signs = np.concatenate([pairs, pairs]), np.concatenate([y, -y])
    with pytest.warns(DataWarning, match="150 pairs of points are given both as near and as far"):
        assert POLA().fit(both, signs).status_ == "max_iter"
    assert POLA().partial_fit(both, signs).n_pairs_seen_ == 300


def test_equal_points_with_different_labels_are_left_out(overlapping):
    X, y = overlapping
    X, y = np.vstack([X, X[:1]]), np.append(y, 2)
    with pytest.warns(DataWarning, match="far pairs of equal points are left out"):
        POLA().partial_fit(X, y)


# -- the kernel ---


def test_a_kernel_parts_what_no_linear_metric_does():
    X, y = make_circles(80, factor=0.5, random_state=0)
    new = make_circles(60, factor=0.5, random_state=1)
    quadratic = KernelPOLA("poly", kernel_params={"degree": 2}, n_pairs=300).fit(X, y)
    assert quadratic.score(*new) == 1.0
    assert POLA(n_pairs=300).fit(X, y).score(*new) < 0.9


@pytest.mark.parametrize("limit", [1, 7, None])
def test_directions_are_limited(limit, stream):
    pairs, y = stream
    model = KernelPOLA(gamma=2.0, max_directions=limit).partial_fit(pairs, y)
    r = len(model.basis_)
    assert r == limit if limit else 50 < r <= 150
    assert model.matrix_.shape == model.basis_.shape == (r, r)
    assert len(model.X_fit_) == model.dual_coef_.shape[1] == 2 * r
    np.testing.assert_allclose(np.triu(model.basis_, 1), 0)
    np.testing.assert_allclose(model.dual_coef_.sum(axis=1), 0, atol=1e-9)
    more = clone(model).partial_fit(pairs[:75], y[:75]).partial_fit(pairs[75:], y[75:])
    assert_allclose(more.pair_distance(pairs), model.pair_distance(pairs), rtol=1e-6)


def test_gamma_is_that_of_the_first_call(stream):
    pairs, y = stream
    model = KernelPOLA().partial_fit(pairs[:50], y[:50])
    points = pairs[:50].reshape(100, 4)
    assert model.gamma_ == pytest.approx(1 / points.var(axis=0).sum())
    assert model.partial_fit(100 * pairs, y).gamma_ == pytest.approx(1 / points.var(axis=0).sum())


def test_a_function_as_kernel(stream):
    pairs, y = stream

    def rbf(a, b, width):
        return np.exp(-np.sum((a - b) ** 2) / width)

    own = KernelPOLA(rbf, kernel_params={"width": 5.0}).partial_fit(pairs[:40], y[:40])
    named = KernelPOLA("rbf", 1 / 5).partial_fit(pairs[:40], y[:40])
    assert_same(own, named, rtol=1e-9)


def test_what_is_no_kernel_is_an_error(stream):
    pairs, y = stream
    with pytest.raises(InvalidInputError, match="must not give a negative squared length"):
        KernelPOLA(lambda a, b: np.sum((a - b) ** 2)).partial_fit(pairs, y)
    with pytest.raises(InvalidInputError, match="kernel values must be finite"):
        KernelPOLA(lambda a, b: np.inf).partial_fit(pairs, y)  # noqa: ARG005


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_an_outlier_beside_which_a_kernel_cannot_tell_points_apart(rng, kernel):
    """The widths of the kernels grow with it, and all other points get the same kernel values."""
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    X[0] = 1e12
    model = KernelPOLA(kernel, n_pairs=200, max_iter=3, random_state=0)
    assert np.isfinite(model.fit(X, y).dual_coef_).all()


def test_a_dead_feature_is_named_and_gets_no_weight(rng):
    """It holds the class, in units of 1e-20, about 1e-3: what a metric would have to stretch by
    many powers of ten. In the feature space of a kernel no feature is stretched."""
    X, y = rng.normal(size=(30, 3)), np.arange(30) % 2
    X[:, 1] = 1e-3 + 1e-16 * y
    with pytest.warns(DataWarning, match=r"1 of 3 features .* get no weight: columns 1\. Drop"):
        model = POLA().fit(X, y)
    assert np.abs(model.matrix_[1]).max() <= 1e-14 * np.abs(model.matrix_).max()
    without = POLA().fit(X[:, [0, 2]], y)
    assert_allclose(model.matrix_[np.ix_([0, 2], [0, 2])], without.matrix_)
    assert KernelPOLA("linear").fit(X, y).status_ == "max_iter"
