"""What MCML and NCA share: starts, limits, checkpoints, callbacks, devices and difficult data."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import MCML, NCA
from nearfar.errors import CheckpointError, ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.estimators import mcml, nca
from tests.callbacks import Recorder, interrupt_at, needs_callbacks
from tests.processes import CAN_KILL, kill_fit

PLAIN = [
    MCML(shrinkage=0),
    MCML(solver="projected-gradient", shrinkage=0),
    MCML(n_components=2, reduce="learn", shrinkage=0),
    NCA(shrinkage=0),
    NCA(n_components=2, shrinkage=0),
    NCA(diagonal=True, shrinkage=0),
]
LEARNERS = [*PLAIN, MCML(), NCA(), NCA(n_components=2), NCA(diagonal=True)]
CONVEX = [PLAIN[0], PLAIN[1], LEARNERS[6]]
each = pytest.mark.parametrize("learner", LEARNERS, ids=repr)
# The papers' programs do not depend on the units of features, and fit the points as well as can be.
each_plain = pytest.mark.parametrize("learner", PLAIN, ids=repr)
each_class = pytest.mark.parametrize("cls", [MCML, NCA])


@pytest.fixture
def recomputed(mcml_by_loops, nca_by_loops):
    """The objective of a fitted map, by plain loops."""

    def objective(model, X, y):
        X = np.asarray(X, np.float64)
        scale = getattr(model, "feature_scale_", None)
        W = getattr(model, "prior_components_", None)
        W = np.diag(np.ones(X.shape[1]) if scale is None else scale) if W is None else W
        components = np.asarray(model.components_, np.float64) @ np.linalg.pinv(W)
        nearest = 3 if isinstance(model, NCA) else None
        framed = (X - X[0]) @ W.T
        case = mcml_by_loops.shrunk(framed, y, model.shrinkage_, nearest=nearest)
        if len(components) < len(W):
            case = replace(case, floor=0.0)
        above = components.T @ components - case.floor * np.eye(len(W))
        if isinstance(model, NCA):
            images = framed @ components.T
            return nca_by_loops.objective(images, y) - case.regularization * np.trace(above)
        return case.objective(above)

    return objective


def assert_sound(model, X):
    """Converged to its tolerance, with a finite map."""
    assert model.status_ == "converged"
    assert model.duality_gap_ is None or 0 <= model.duality_gap_ <= model.tol
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.transform(X)).all()


def lengths(model, X):
    """Learned squared distances between all rows of X."""
    Z = model.transform(X)
    return ((Z[:, None] - Z) ** 2).sum(axis=2)


@pytest.fixture(scope="module")
def fits():
    """What was fitted so far, by seed and learner."""
    return {}


@pytest.fixture
def usual(fits, seed, overlapping):
    """The fit of a learner to the points as they are, made once; not to be changed."""

    def fit(learner):
        key = seed, repr(learner)
        if key not in fits:
            fits[key] = clone(learner).fit(*overlapping)
        return fits[key]

    return fit


# -- what a fit leaves behind ----------------------------------------------------------------------


@each
def test_the_objective_is_that_of_the_map(learner, overlapping, recomputed, usual):
    X, y = overlapping
    model = usual(learner)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-9)
    assert (model.duality_gap_ is None) == (learner not in CONVEX)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_iter_ == len(model.history_)
    assert [record["n_iter"] for record in model.history_] == list(range(1, model.n_iter_ + 1))


@each
def test_the_trace_tells_the_papers_objective(learner, overlapping):
    """MCML's falls and NCA's rises; the last is that of the map."""
    model = clone(learner).fit(*overlapping)
    trace = np.array([record["objective"] for record in model.history_])
    steps = np.diff(trace) * (1 if isinstance(model, NCA) else -1)
    assert (steps >= 0).all()
    assert trace[-1] == pytest.approx(model.objective_, rel=1e-9)
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)


@each
def test_float32_is_enough_for_the_tolerance(learner, overlapping, recomputed):
    X, y = overlapping
    X = X.astype(np.float32)
    learner = clone(learner).set_params(tol=1e-3)
    model, double = clone(learner).fit(X, y), clone(learner).fit(X.astype(np.float64), y)
    assert_sound(model, X)
    assert model.components_.dtype == np.float32
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-4)
    if not isinstance(learner, NCA):  # of whose local optima rounding may choose another
        assert model.objective_ == pytest.approx(double.objective_, rel=2e-3)


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@each
def test_tensors_give_the_answer_of_numpy(learner, device, dtype, overlapping, torch):
    X, y = overlapping
    X = X.astype(dtype)
    learner = clone(learner).set_params(tol=1e-3)
    model = clone(learner).fit(torch.tensor(X, device=device), torch.tensor(y, device=device))
    expected = clone(learner).fit(X, y)
    assert model.components_.dtype == getattr(torch, np.dtype(dtype).name)
    assert model.components_.device.type == device
    assert model.transform(torch.tensor(X, device=device)).device.type == device
    assert model.status_ == "converged"
    if dtype == np.float64:
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    elif not isinstance(learner, NCA):
        assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert model.duality_gap_ is None or model.duality_gap_ <= model.tol


# -- where to start --------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("init", ["auto", "identity", "pca", "lda"])
def test_every_word_names_a_start(learner, init, overlapping, usual):
    X, y = overlapping
    if learner.get_params().get("diagonal") and init in ("pca", "lda"):
        with pytest.raises(
            InvalidInputError, match=rf"starts from 'auto', 'identity' or an array; got .*{init}"
        ):
            clone(learner).set_params(init=init).fit(X, y)
        return
    model, expected = clone(learner).set_params(init=init).fit(X, y), usual(learner)
    assert_sound(model, X)
    if learner in CONVEX:
        assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    elif isinstance(learner, NCA):
        gained = model.objective_ - model.history_[0]["objective"]
        assert gained > (0 if init == "auto" else 0.5)  # which takes the best of several
    else:
        assert model.objective_ == pytest.approx(expected.objective_, rel=0.1)


@each_plain
def test_an_array_is_taken_as_it_is(learner, overlapping, rng, recomputed):
    X, y = overlapping
    start = 0.1 * rng.normal(size=(learner.n_components or 5, 5))
    given = start.copy()
    model = clone(learner).set_params(init=start).fit(X, y)
    np.testing.assert_array_equal(start, given)
    if learner.get_params().get("diagonal"):
        start = np.diag(np.sqrt((start**2).sum(axis=0)))
    first = clone(learner).fit(X, y)
    first.components_ = start
    assert model.history_[0]["objective"] == pytest.approx(recomputed(first, X, y), rel=1e-6)


@each
@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("chance", r"init must be one of 'auto', .* or an array; got 'chance'"),
        (None, r"init must be one of .*; got None"),
        (np.ones(5), r"must have shape \(.*, 5\) and hold numbers; it has shape \(5,\)"),
        (np.ones((2, 4)), r"must have shape \(.*, 5\).*; it has shape \(2, 4\)"),
        (np.full((2, 5), "a"), r"hold numbers; .*Correct it, or leave it out"),
        (np.full((2, 5), np.nan), "must be finite and not zero"),
        (np.zeros((2, 5)), "must be finite and not zero"),
    ],
    ids=str,
)
def test_bad_starts_are_errors(learner, init, message, overlapping):
    with pytest.raises(InvalidInputError, match=message):
        clone(learner).set_params(init=init).fit(*overlapping)


@each_class
def test_a_start_of_other_rows_than_are_learned_is_an_error(cls, overlapping):
    learner = cls(n_components=2, **({"reduce": "learn"} if cls is MCML else {}))
    with pytest.raises(
        InvalidInputError, match=r"must have shape \(2, 5\).* it has shape \(3, 5\)"
    ):
        learner.set_params(init=np.ones((3, 5))).fit(*overlapping)


@each
def test_a_warm_start_begins_where_the_last_fit_ended(learner, overlapping):
    X, y = overlapping
    model = clone(learner).set_params(warm_start=True).fit(X, y)
    before = model.objective_
    model.fit(X, y)
    assert_sound(model, X)
    assert model.history_[0]["objective"] == pytest.approx(before, rel=1e-6)
    if learner in CONVEX:
        assert model.n_iter_ <= 3
    assert model.objective_ == pytest.approx(before, rel=0.05)


@each
def test_a_warm_start_on_other_features_is_an_error(learner, overlapping):
    X, y = overlapping
    model = clone(learner).set_params(warm_start=True).fit(X, y)
    with pytest.raises(InvalidInputError, match=r"the map of the last fit must .*warm_start=False"):
        model.fit(X[:, :3], y)


# -- limits, callbacks, interruption ---------------------------------------------------------------


@each
@pytest.mark.parametrize(("limit", "value"), [("max_iter", 2), ("max_seconds", 1e-9)])
def test_limits_are_warned_of(learner, limit, value, overlapping):
    X, y = overlapping
    learner = clone(learner).set_params(tol=1e-12, **{limit: value})
    name = type(learner).__name__
    with pytest.warns(
        ConvergenceWarning, match=rf"{name} stopped before tol=1e-12: reached {limit}.*Raise"
    ):
        model = learner.fit(X, y)
    assert model.status_ == limit
    assert model.n_iter_ == len(model.history_) <= 2
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tol": -1}, r"tol must be a number of at least 0; got -1"),
        ({"max_iter": 0}, r"max_iter must be an integer of at least 1; got 0"),
        ({"max_seconds": "1"}, r"max_seconds must be a number of at least 0; got '1'"),
        ({"n_components": 6}, r"n_components must be an integer from 1 to 5; got 6"),
        ({"n_components": 0}, r"n_components must be an integer from 1 to 5; got 0"),
        ({"n_components": 1.5}, r"n_components must be an integer"),
    ],
    ids=str,
)
@each_class
def test_bad_parameters_are_errors(cls, parameters, message, overlapping):
    with pytest.raises(InvalidInputError, match=message):
        cls(**parameters).fit(*overlapping)


@needs_callbacks
@each
def test_callbacks_see_a_usable_map_at_every_iteration(learner, overlapping, recomputed, usual):
    X, y = overlapping
    recorder = Recorder()
    model = clone(learner).set_callbacks(recorder).fit(X, y)
    assert len(recorder.models) == model.n_iter_
    for record, fitted in zip(recorder.records, recorder.models, strict=True):
        assert record["objective"] == pytest.approx(recomputed(fitted, X, y), rel=1e-6)
    np.testing.assert_array_equal(model.components_, usual(learner).components_)


@needs_callbacks
@each
def test_a_callback_can_stop_a_fit(learner, overlapping, recwarn):
    X, y = overlapping
    learner = clone(learner).set_params(tol=1e-12)
    model = learner.set_callbacks(Recorder(2, lambda: True)).fit(X, y)
    assert (model.status_, model.n_iter_) == ("stopped", 2)
    assert len(recwarn) == 0


@needs_callbacks
@each
def test_an_interrupted_fit_keeps_its_best_map(learner, overlapping, recomputed):
    X, y = overlapping
    learner = clone(learner).set_params(tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="was interrupted; the best map so far is kept"):
        model = learner.set_callbacks(interrupt_at(2)).fit(X, y)
    assert model.status_ == "interrupted"
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-9)
    assert model.objective_ == pytest.approx(model.history_[-1]["objective"], rel=1e-6)


# -- checkpoints -----------------------------------------------------------------------------------

# Slowed down, so that it is still running when it is killed.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def saved_history(path):
    """The records that a checkpoint holds, one for each iteration."""
    with np.load(path) as file:
        return json.loads(str(file["values"]))["history"]


def saved_iterations(path):
    """How many iterations a checkpoint holds."""
    return len(saved_history(path))


@pytest.mark.slow
@pytest.mark.skipif(not CAN_KILL, reason="sends SIGKILL")
@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        (MCML, {"shrinkage": 0.01, "tol": 1e-6}),
        (MCML, {"n_components": 2, "reduce": "learn", "tol": 1e-9}),
        (NCA, {"n_components": 2, "tol": 1e-9}),
    ],
    ids=str,
)
def test_a_killed_fit_resumes_and_reaches_the_same_answer(cls, parameters, path, iris):
    X, y = iris
    y = np.where(np.arange(150) % 10 == 3, (y + 1) % 3, y)  # some wrong: it takes more iterations
    kill_fit(
        cls(**parameters, checkpoint=path),
        X,
        y,
        lambda: saved_iterations(path) >= 4,
        solvers=[f"nearfar.estimators.{cls.__name__.lower()}:descend"],
        pause=0.1,  # few iterations follow
    )
    before = saved_history(path)
    resumed = cls(**parameters, checkpoint=path).fit(X, y)
    whole = cls(**parameters).fit(X, y)
    assert resumed.status_ == whole.status_ == "converged"
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=1e-9)
    np.testing.assert_allclose(resumed.components_, whole.components_, rtol=1e-6, atol=1e-6)
    assert [record["n_iter"] for record in resumed.history_] == list(range(1, resumed.n_iter_ + 1))
    assert resumed.history_[: len(before)] == before
    seconds = [record["seconds"] for record in resumed.history_]
    assert seconds == sorted(seconds)
    assert not path.exists()


@each
def test_a_fit_that_met_its_limit_continues(learner, path, overlapping):
    X, y = overlapping
    learner = clone(learner).set_params(checkpoint=path)
    with pytest.warns(ConvergenceWarning):
        clone(learner).set_params(max_iter=2, tol=1e-12).fit(X, y)
    assert saved_iterations(path) == 2
    model = clone(learner).fit(X, y)
    assert_sound(model, X)
    whole = clone(learner).fit(X, y)
    assert model.n_iter_ > 2
    if learner.get_params().get("solver"):
        assert model.objective_ == pytest.approx(whole.objective_, rel=2e-3)
    assert not path.exists()


@each_class
def test_other_parameters_or_data_are_an_error(cls, path, overlapping):
    X, y = overlapping
    with pytest.warns(ConvergenceWarning):
        cls(max_iter=2, tol=1e-12, checkpoint=path).fit(X, y)
    content = path.read_bytes()
    moved = X.copy()
    moved[0, 0] += 1e-9
    other = {"shrinkage": 0.1} if cls is MCML else {"diagonal": True}
    for model, points, labels in (
        (cls(n_components=2), X, y),
        (cls(**other), X, y),
        (cls(), moved, y),
        (cls(), X, np.roll(y, 1)),
        (cls(), X.astype(np.float32), y),
        ({MCML: NCA, NCA: MCML}[cls](), X, y),
    ):
        with pytest.raises(CheckpointError, match="belongs to other data or other parameters"):
            model.set_params(checkpoint=path).fit(points, labels)
        assert path.read_bytes() == content
    names = np.array(["a", "b", "c"])[y]
    assert cls(checkpoint=path).fit(X, names).status_ == "converged"


# -- difficult data --------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("scale", [1e100, 1e-100])
def test_units_do_not_matter(learner, scale, overlapping, usual):
    X, y = overlapping
    model, other = usual(learner), clone(learner).fit(scale * X, y)
    assert_sound(other, scale * X)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    if not isinstance(learner, NCA):  # whose plateaus are flat, so that rounding moves the map
        np.testing.assert_allclose(
            lengths(other, scale * X), lengths(model, X), rtol=1e-2, atol=1e-2
        )


@each_plain
def test_units_of_single_features_do_not_matter(learner, overlapping, usual):
    X, y = overlapping
    units = np.array([1e-6, 1.0, 1e6, 1e3, 1.0])
    other = clone(learner).fit(X * units, y)
    assert_sound(other, X * units)
    # NCA may start from the inputs as they are, and then end in another of its optima.
    tolerance = 0.05 if isinstance(learner, NCA) else 1e-5
    assert other.objective_ == pytest.approx(usual(learner).objective_, rel=tolerance)


@each
def test_the_origin_does_not_matter(learner, overlapping):
    X, y = overlapping
    X = (X + 1e6) - 1e6  # what is left of the digits, so that both have the same data
    model, other = clone(learner).fit(X, y), clone(learner).fit(X + 1e6, y)
    assert_sound(other, X + 1e6)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-5)


@each
@pytest.mark.parametrize("value", [0.0, 3.7, 1e12])
def test_a_constant_feature_changes_nothing(learner, value, overlapping, usual):
    X, y = overlapping
    padded = np.insert(X, 2, value, axis=1)
    model, other = usual(learner), clone(learner).fit(padded, y)
    assert_sound(other, padded)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    assert np.abs(other.components_[:, 2]).max() <= 1e-9 * np.abs(other.components_).max()


@each_plain
def test_a_repeated_feature_changes_nothing_but_for_weights(
    learner, overlapping, recomputed, usual
):
    X, y = overlapping
    repeated = X[:, [0, 1, 2, 3, 4, 0]]
    other = clone(learner).fit(repeated, y)
    assert_sound(other, repeated)
    assert other.objective_ == pytest.approx(recomputed(other, repeated, y), rel=1e-6)
    if not isinstance(learner, NCA):
        assert other.objective_ == pytest.approx(usual(learner).objective_, rel=1e-5)


@each
def test_repeated_points(learner, overlapping, recomputed):
    """A copy is a neighbour like any other, at no distance."""
    X, y = overlapping
    X, y = np.vstack([X, X[:30]]), np.concatenate([y, y[:30]])
    model = clone(learner).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-9)


@each
def test_equal_points_of_different_classes(learner, overlapping, recomputed):
    X, y = overlapping
    X, y = np.vstack([X, X[:30]]), np.concatenate([y, (y[:30] + 1) % 3])
    with pytest.warns(DataWarning, match="^30 pairs of equal points have different labels"):
        model = clone(learner).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-9)


@each_plain
def test_fewer_points_than_features(learner, rng, recomputed):
    """Twelve points in thirty features can be placed anywhere by a full map: all choices are right,
    and MCML's divergence falls to zero."""
    X, y = rng.normal(size=(12, 30)), np.repeat([0, 1], 6)
    model = clone(learner).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(recomputed(model, X, y), abs=1e-8)
    if not learner.get_params().get("diagonal"):
        assert abs(model.objective_ - (12 if isinstance(model, NCA) else 0)) <= 2e-3


@each_plain
def test_classes_far_apart(learner, rng, dtype, recomputed):
    """Their images are points, compared with the distance between them."""
    y = np.repeat([0, 1, 2], 15)
    X = (rng.normal(size=(45, 3)) + 1e4 * np.eye(3)[y]).astype(dtype)
    model = clone(learner).fit(X, y)
    assert_sound(model, X)
    assert abs(model.objective_ - (45 if isinstance(model, NCA) else 0)) <= 1e-3
    assert model.objective_ == pytest.approx(recomputed(model, X, y), abs=1e-2)


@each
def test_every_class_one_repeated_point(learner):
    X, y = np.repeat(np.eye(3), 5, axis=0), np.repeat([0, 1, 2], 5)
    model = clone(learner).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(15 if isinstance(model, NCA) else 0, abs=1e-3)


@each
def test_all_points_equal(learner):
    """Each chooses any of 19 others, 9 of them of its class: Σ KL = 20 log(19/9)."""
    X, y = np.ones((20, 3)), np.arange(20) % 2
    with pytest.warns(DataWarning, match=r"all points are equal.*Check X"):
        model = clone(learner).fit(X, y)
    assert_sound(model, X)
    expected = 20 * 9 / 19 if isinstance(model, NCA) else 20 * np.log(19 / 9)
    assert model.objective_ == pytest.approx(expected)
    assert model.components_.shape == (learner.n_components or 3, 3)
    assert (model.n_iter_, model.history_) == (0, [])


@each
def test_an_outlier(learner, overlapping, recomputed):
    X, y = overlapping
    X = X.copy()
    X[7] *= 1e6
    model = clone(learner).fit(X, y)
    assert np.isfinite(model.components_).all()
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-3)


@each
def test_a_class_of_one_is_chosen_and_chooses_nobody(learner, overlapping, recomputed):
    X, y = overlapping
    X, y = np.vstack([X, X[y == 0].mean(axis=0)]), np.append(y, 7)
    with pytest.warns(
        DataWarning, match=r"class 7 has 1 member: it is in no near pair, only in far ones"
    ):
        model = clone(learner).fit(X, y)
    assert_sound(model, X)
    assert model.objective_ == pytest.approx(recomputed(model, X, y), rel=1e-9)


@each_class
def test_one_class_is_an_error(cls, overlapping):
    X, _ = overlapping
    with pytest.raises(
        InvalidInputError, match=rf"{cls.__name__} needs at least two classes; y has 1 class, 'a'\."
    ):
        cls().fit(X, ["a"] * len(X))


@each_class
def test_classes_of_one_alone_are_an_error(cls, overlapping):
    X, _ = overlapping
    with pytest.raises(
        InvalidInputError, match="class with two or more members; every class has 1"
    ):
        cls().fit(X[:10], np.arange(10))


@each_class
def test_the_fewest_points_that_can_be_learned_from(cls):
    with pytest.warns(DataWarning, match="class 1 has 1 member"):
        model = cls().fit([[0.0, 0], [1, 0], [0, 5]], [0, 0, 1])
    assert_sound(model, [[0.0, 0]])
    assert model.objective_ == pytest.approx(2 if cls is NCA else 0, abs=1e-3)


@each_class
@pytest.mark.parametrize("spread", [1e-145, 1e145])
def test_data_whose_squares_leave_the_range_are_an_error(cls, spread, overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match=r"squares leave the range of float64\. Scale"):
        cls().fit(spread * X, y)


def test_the_solvers_are_those_that_are_slowed_down_above():
    """The program of the killed fit replaces them by name."""
    assert callable(mcml.descend)
    assert callable(mcml.projected_descent)
    assert callable(nca.descend)
