"""Passes of LMNN: target neighbours chosen anew under the map of the pass before."""

import itertools
import json

import numpy as np
import pytest
from sklearn.base import clone

import nearfar
from nearfar import LMNN, limits
from nearfar.errors import CheckpointError, ConvergenceWarning, InvalidInputError
from nearfar.estimators import _large_margin
from nearfar.estimators._held_out import held_out_rows, votes_under
from nearfar.supervision import class_order
from tests.callbacks import Recorder, interrupt, needs_callbacks
from tests.processes import CAN_KILL, kill_fit

VARIANTS = [
    {},
    {"push_weight": 0.2, "n_neighbors": 2},
    {"n_components": 2},
    {"n_components": 2, "reduce": "project"},
]
each_variant = pytest.mark.parametrize("parameters", VARIANTS, ids=str)


def passes_of(model):
    """The pass of each iteration."""
    return [record["pass"] for record in model.history_]


# -- what a pass learns --------------------------------------------------------------------------


@each_variant
@pytest.mark.parametrize("n_passes", [2, 3])
def test_the_objective_is_that_of_the_last_targets(
    parameters, n_passes, overlapping, nearest_of_class, paper_objective
):
    """They are the nearest of the class among the images under ``target_components_``."""
    X, y = overlapping
    model = LMNN(shrinkage=0, n_passes=n_passes, **parameters).fit(X, y)
    targets = nearest_of_class(X @ model.target_components_.T, y, model.n_neighbors)
    whole = model
    if model.reduce == "project":  # the objective is that of the full metric
        whole = clone(model).set_params(n_components=None).fit(X, y)
    M = whole.get_mahalanobis_matrix()
    expected = paper_objective(M, X, y, targets, model.push_weight)
    assert model.n_passes_ == n_passes
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    if model.duality_gap_ is not None:
        assert model.duality_gap_ <= model.tol


@each_variant
def test_two_passes_are_two_fits(parameters, overlapping, nearest_of_class):
    """By hand: the second with the neighbours under the map of the first, which for "project" is
    the map before the projection, that of a fit without it. A rectangular map is learned from where
    the first ended."""
    X, y = overlapping
    full = {key: value for key, value in parameters.items() if key != "n_components"}
    first = LMNN(shrinkage=0, **(full if "reduce" in parameters else parameters)).fit(X, y)
    model = LMNN(shrinkage=0, n_passes=2, **parameters).fit(X, y)
    targets = nearest_of_class(first.transform(X), y, model.n_neighbors)
    start = {"init": first.components_} if model.duality_gap_ is None else {}
    second = LMNN(shrinkage=0, **parameters, **start).fit(X, y, targets)
    np.testing.assert_allclose(model.target_components_, first.components_, rtol=1e-9, atol=1e-12)
    tolerance = 5e-2 if "n_components" in parameters else 2e-3
    assert model.objective_ == pytest.approx(second.objective_, rel=tolerance)


def test_one_pass_has_no_map_of_the_targets(overlapping):
    model = LMNN(shrinkage=0).fit(*overlapping)
    assert (model.n_passes_, model.target_components_) == (1, None)
    assert set(passes_of(model)) == {1}


def test_every_composed_map_is_among_those_compared(wine, nearest_of_class):
    """The papers learn the second pass on images L₁x, here with the same targets: its map L₂L₁ is a
    map of x, so the optimum over all maps of x is at most as large."""
    X, y = wine
    first, model = LMNN(shrinkage=0).fit(X, y), LMNN(shrinkage=0, n_passes=2).fit(X, y)
    images = first.transform(X)
    composed = LMNN(shrinkage=0).fit(images, y, nearest_of_class(images, y, 3))
    assert model.objective_ * (1 - model.duality_gap_) <= composed.objective_


@pytest.mark.parametrize("data", ["iris", "wine"])
def test_the_objective_does_not_rise_from_pass_to_pass(data, request):
    """At the map M of a pass, the nearest of the class are at most as far as any other targets,
    each in its place, so pull and push can only fall when they become the targets. The next pass
    then minimises from there."""
    X, y = request.getfixturevalue(data)
    objectives = [LMNN(shrinkage=0, n_passes=n).fit(X, y).objective_ for n in (1, 2, 3, 4)]
    for before, after in itertools.pairwise(objectives):
        assert after <= before * (1 + LMNN(shrinkage=0).tol)
    assert objectives[1] < 0.95 * objectives[0]


def test_given_neighbours_are_those_of_the_first_pass(rng, overlapping, nearest_of_class):
    X, y = overlapping
    given = nearest_of_class(rng.normal(size=X.shape), y, 2)
    first = LMNN(shrinkage=0).fit(X, y, given)
    model = LMNN(shrinkage=0, n_passes=2).fit(X, y, given)
    assert model.history_[first.n_iter_ - 1]["objective"] == pytest.approx(first.objective_)
    second = LMNN(shrinkage=0).fit(X, y, nearest_of_class(first.transform(X), y, 3))
    assert model.objective_ == pytest.approx(second.objective_, rel=2e-3)


def test_a_class_too_small_for_a_later_pass_is_warned_of(overlapping, nearest_of_class):
    X, y = overlapping
    given = nearest_of_class(X, y, 1)
    with pytest.warns(nearfar.errors.DataWarning, match=r"fewer than n_neighbors \+ 1 = 26"):
        LMNN(shrinkage=0, n_neighbors=25, n_passes=2, tol=0.1).fit(X, y, given)
    LMNN(shrinkage=0, n_neighbors=25).fit(X, y, given)  # no later pass, no warning


def test_a_projected_map_chooses_with_all_its_rows(overlapping):
    """The projection is of the last metric only."""
    X, y = overlapping
    model = LMNN(shrinkage=0, n_passes=2, n_components=1, reduce="project").fit(X, y)
    full = LMNN(shrinkage=0, n_passes=2).fit(X, y)
    assert model.components_.shape == (1, 5)
    assert len(model.target_components_) > 1
    np.testing.assert_allclose(model.target_components_, full.target_components_, rtol=1e-6)
    images = full.transform(X) - full.transform(X).mean(0)
    leading = np.linalg.svd(images, full_matrices=False)[2][0] @ full.components_
    np.testing.assert_allclose(np.abs(model.components_[0]), np.abs(leading), rtol=1e-6)


def test_the_space_in_which_targets_are_chosen(overlapping):
    X, y = overlapping
    assert LMNN(shrinkage=0).fit(X, y)._target_space(X) is X
    model = LMNN(shrinkage=0, n_passes=2).fit(X, y)
    np.testing.assert_array_equal(model._target_space(X), X @ model.target_components_.T)


def test_equal_points_need_one_pass(overlapping):
    _, y = overlapping
    with pytest.warns(nearfar.errors.DataWarning, match="all points are equal"):
        model = LMNN(shrinkage=0, n_passes=3).fit(np.ones((60, 2)), y)
    assert (model.n_passes_, model.target_components_) == (1, None)


@pytest.mark.parametrize("n_passes", [0, -1, 1.0, True, None, "2"])
def test_other_numbers_of_passes_are_an_error(n_passes, overlapping):
    with pytest.raises(InvalidInputError, match=r"n_passes must be an integer of at least 1; got"):
        LMNN(shrinkage=0, n_passes=n_passes).fit(*overlapping)


# -- history and limits --------------------------------------------------------------------------


def test_history_goes_on_from_pass_to_pass(overlapping):
    model = LMNN(shrinkage=0, n_passes=3).fit(*overlapping)
    assert [record["n_iter"] for record in model.history_] == list(range(1, model.n_iter_ + 1))
    assert sorted(set(passes_of(model))) == [1, 2, 3]
    assert passes_of(model) == sorted(passes_of(model))
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_)
    assert model.history_[-1]["duality_gap"] == pytest.approx(model.duality_gap_, rel=1e-6)


def test_a_later_pass_starts_near_its_optimum(wine):
    """A fit from the first guess has 17 times the optimum after its first iteration."""
    model = LMNN(shrinkage=0, n_passes=2).fit(*wine)
    first = model.history_[passes_of(model).index(2)]
    assert first["objective"] < 3 * model.objective_


def test_max_iter_counts_the_iterations_of_all_passes(overlapping):
    one = LMNN(shrinkage=0).fit(*overlapping)
    with pytest.warns(
        ConvergenceWarning,
        match=r"LMNN stopped in pass 2 of 3, before tol=0\.001: reached max_iter, "
        r"with a duality gap of .*\. Raise max_iter or tol",
    ):
        model = LMNN(shrinkage=0, n_passes=3, max_iter=one.n_iter_ + 3).fit(*overlapping)
    assert (model.status_, model.n_iter_, model.n_passes_) == ("max_iter", one.n_iter_ + 3, 2)


def test_a_limit_that_is_met_between_passes(overlapping):
    """The map of the first pass is optimal for its targets, but there should have been two."""
    one = LMNN(shrinkage=0).fit(*overlapping)
    with pytest.warns(ConvergenceWarning, match=r"stopped before pass 2 of 2: reached max_iter"):
        model = LMNN(shrinkage=0, n_passes=2, max_iter=one.n_iter_).fit(*overlapping)
    assert (model.status_, model.n_iter_, model.n_passes_) == ("max_iter", one.n_iter_, 1)
    assert model.target_components_ is None
    np.testing.assert_array_equal(model.components_, one.components_)


def test_max_seconds_is_for_all_passes(overlapping, monkeypatch):
    """With a clock that moves by one at each look, the second pass ends on its share."""
    ticks = itertools.count()
    monkeypatch.setattr(limits, "now", lambda: float(next(ticks)))
    limit = 1.3 * LMNN(shrinkage=0, max_seconds=1e9).fit(*overlapping).history_[-1]["seconds"]
    with pytest.warns(ConvergenceWarning, match=r"in pass 2 of 3, before tol.*max_seconds"):
        model = LMNN(shrinkage=0, n_passes=3, max_seconds=limit).fit(*overlapping)
    assert (model.status_, model.n_passes_) == ("max_seconds", 2)
    assert model.history_[-1]["seconds"] <= limit + 1


# -- validation ----------------------------------------------------------------------------------


def held_out_error(model, X, y):
    """Of the rows that a model with this seed and a share of 0.3 does not learn from."""
    random = np.random.RandomState(model.random_state)
    train, held_out = held_out_rows(class_order(y, "LMNN"), 0.3, random)
    images = model.transform(X)
    votes = votes_under(np.eye(images.shape[1]), images[train], y[train], images[held_out], 3)
    return np.mean(votes != y[held_out])


@pytest.mark.parametrize("data", ["iris", "wine"])
@pytest.mark.parametrize("random_state", range(6))
def test_passes_end_when_one_does_not_lower_the_error(data, random_state, request):
    """The map that is kept has the smallest error of all, and there is at most one pass after it,
    which is not made where the limit or an error of zero is reached."""
    X, y = request.getfixturevalue(data)
    model = LMNN(shrinkage=0, n_passes=3, validation_fraction=0.3, random_state=random_state).fit(
        X, y
    )
    errors = [r["validation_error"] for r in model.history_ if "validation_error" in r]
    kept, made = held_out_error(model, X, y), max(passes_of(model))
    assert kept <= min(errors)
    assert made in (model.n_passes_, model.n_passes_ + 1)
    assert made > model.n_passes_ or made == 3 or kept == 0
    assert model.status_ in ("converged", "early_stopped")


@pytest.mark.slow
def test_a_pass_that_lowers_the_error_is_followed_by_another(wine):
    """Among these splits there are some where a second pass helps."""
    X, y = wine
    found = 0
    for seed in range(12):
        one = LMNN(shrinkage=0, validation_fraction=0.3, random_state=seed).fit(X, y)
        two = LMNN(shrinkage=0, n_passes=2, validation_fraction=0.3, random_state=seed).fit(X, y)
        errors = [held_out_error(model, X, y) for model in (one, two)]
        assert (two.n_passes_ == 2) == (errors[1] < errors[0])
        found += two.n_passes_ == 2
    assert 0 < found < 12


def test_objective_and_gap_belong_to_the_pass_that_is_kept(wine, nearest_of_class, paper_objective):
    """Among these splits the first pass is kept for some and a later one for others."""
    X, y = wine
    X, seen = X[:, :5], set()
    for seed in range(3):
        model = LMNN(shrinkage=0, n_passes=3, validation_fraction=0.3, random_state=seed).fit(X, y)
        train, _ = held_out_rows(class_order(y, "LMNN"), 0.3, np.random.RandomState(seed))
        targets = nearest_of_class(model._target_space(X[train]), y[train], 3)
        M = model.get_mahalanobis_matrix()
        expected = paper_objective(M, X[train], y[train], targets, 0.5)
        assert model.objective_ == pytest.approx(expected, rel=1e-9)
        best = LMNN(shrinkage=0, tol=1e-5).fit(X[train], y[train], targets)
        assert model.objective_ * (1 - model.duality_gap_) <= best.objective_
        seen.add(model.n_passes_)
    assert len(seen) > 1


def test_a_limit_in_a_later_pass_keeps_the_better_pass(wine):
    model = LMNN(shrinkage=0, n_passes=4, validation_fraction=0.3, random_state=0).fit(*wine)
    first = passes_of(model).count(1)
    assert model.n_passes_ == 1
    cut = LMNN(shrinkage=0, n_passes=4, max_iter=first + 3, validation_fraction=0.3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="in pass 2 of 4, before tol"):
        cut.fit(*wine)
    assert (cut.status_, cut.n_passes_, cut.n_iter_) == ("max_iter", 1, first + 3)
    np.testing.assert_array_equal(cut.components_, model.components_)


# -- interruption, callbacks, warm starts ----------------------------------------------------------


@needs_callbacks
def test_callbacks_see_all_passes(overlapping):
    X, y = overlapping
    recorder = Recorder()
    model = LMNN(shrinkage=0, n_passes=2).set_callbacks(recorder).fit(X, y)
    assert recorder.records == model.history_
    assert {record["pass"] for record in recorder.records} == {1, 2}
    np.testing.assert_allclose(recorder.models[-1].transform(X), model.transform(X), rtol=1e-9)


@needs_callbacks
@pytest.mark.parametrize(("act", "status"), [(lambda: True, "stopped"), (interrupt, "interrupted")])
@pytest.mark.filterwarnings("ignore:LMNN was interrupted")
def test_the_second_pass_can_be_left(act, status, overlapping, nearest_of_class, paper_objective):
    X, y = overlapping
    first = LMNN(shrinkage=0).fit(X, y).n_iter_
    model = LMNN(shrinkage=0, n_passes=3).set_callbacks(Recorder(first + 4, act)).fit(X, y)
    assert (model.status_, model.n_iter_, model.n_passes_) == (status, first + 4, 2)
    targets = nearest_of_class(X @ model.target_components_.T, y, 3)
    expected = paper_objective(model.get_mahalanobis_matrix(), X, y, targets, 0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


def test_an_interruption_between_passes_keeps_the_pass_before(overlapping, monkeypatch):
    one = LMNN(shrinkage=0).fit(*overlapping)
    choose = _large_margin.nearest_targets

    def interrupted(points, *arguments):
        if calls:
            raise KeyboardInterrupt
        calls.append(points)
        return choose(points, *arguments)

    calls = []
    monkeypatch.setattr(_large_margin, "nearest_targets", interrupted)
    with pytest.warns(ConvergenceWarning, match="LMNN was interrupted"):
        model = LMNN(shrinkage=0, n_passes=2).fit(*overlapping)
    assert len(calls) == 1
    assert (model.status_, model.n_passes_, model.n_iter_) == ("interrupted", 1, one.n_iter_)
    np.testing.assert_array_equal(model.components_, one.components_)


def test_warm_start_begins_its_passes_anew(wine):
    model = LMNN(shrinkage=0, n_passes=2, warm_start=True).fit(*wine)
    iterations, objective = passes_of(model).count(1), model.objective_
    model.fit(*wine)
    assert sorted(set(passes_of(model))) == [1, 2]
    assert passes_of(model).count(1) <= iterations
    assert model.objective_ == pytest.approx(objective, rel=2e-2)


# -- dtypes, tensors, files ----------------------------------------------------------------------


def test_the_map_of_the_targets_has_the_dtype_of_the_points(dtype, overlapping):
    X, y = overlapping
    model = LMNN(shrinkage=0, n_passes=2).fit(X.astype(dtype), y)
    assert model.target_components_.dtype == dtype
    assert model.objective_ == pytest.approx(
        LMNN(shrinkage=0, n_passes=2).fit(X, y).objective_, rel=1e-2
    )


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("parameters", [{}, {"validation_fraction": 0.3, "random_state": 1}])
def test_tensors(device, parameters, overlapping, torch):
    X, y = overlapping
    tensor = torch.tensor(X, device=device)
    model = LMNN(shrinkage=0, n_passes=2, **parameters).fit(tensor, y)
    expected = LMNN(shrinkage=0, n_passes=2, **parameters).fit(X, y)
    assert model.n_passes_ == expected.n_passes_
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    if model.n_passes_ == 2:
        assert model.target_components_.device.type == device
        np.testing.assert_allclose(
            model._target_space(tensor).cpu(), expected._target_space(X), rtol=1e-3, atol=1e-3
        )


def test_a_model_file_holds_the_passes(overlapping, tmp_path):
    model = LMNN(shrinkage=0, n_passes=2).fit(*overlapping)
    nearfar.save(model, tmp_path / "model.nearfar")
    twin = nearfar.load(tmp_path / "model.nearfar")
    assert (twin.n_passes, twin.n_passes_) == (2, 2)
    np.testing.assert_array_equal(twin.target_components_, model.target_components_)


# -- checkpoints -----------------------------------------------------------------------------------

TOL = 1e-5
# Slowed down, so that it is still in its second pass when it is killed.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def saved(path):
    """The plain values of a checkpoint."""
    with np.load(path) as file:
        return json.loads(str(file["values"]))


@pytest.mark.slow
@pytest.mark.skipif(not CAN_KILL, reason="sends SIGKILL")
@pytest.mark.parametrize("reduce", [{}, {"n_components": 3, "reduce": "project"}], ids=str)
def test_a_fit_killed_in_its_second_pass_reaches_the_same_answer(reduce, path, wine):
    X, y = wine
    parameters = {"n_passes": 2, "tol": TOL, **reduce}
    learner = LMNN(shrinkage=0, checkpoint=path, **parameters)
    kill_fit(learner, X, y, lambda: saved(path)["history"][-1]["pass"] == 2)
    history = saved(path)["history"]
    resumed = learner.fit(X, y)
    whole = LMNN(shrinkage=0, **parameters).fit(X, y)
    assert (resumed.status_, resumed.n_passes_) == ("converged", 2)
    np.testing.assert_array_equal(resumed.target_components_, whole.target_components_)
    if not reduce:
        assert resumed.objective_ == pytest.approx(whole.objective_, rel=TOL)
    np.testing.assert_allclose(
        resumed.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), atol=0.02
    )
    assert resumed.history_[: len(history)] == history
    assert [record["n_iter"] for record in resumed.history_] == list(range(1, resumed.n_iter_ + 1))
    assert not path.exists()


def test_a_limit_in_the_second_pass_is_continued_there(path, wine):
    one = LMNN(shrinkage=0, tol=TOL).fit(*wine)
    with pytest.warns(ConvergenceWarning):
        LMNN(shrinkage=0, n_passes=2, tol=TOL, max_iter=one.n_iter_ + 10, checkpoint=path).fit(
            *wine
        )
    assert saved(path)["before"]["number"] == 1
    model = LMNN(shrinkage=0, n_passes=2, tol=TOL, checkpoint=path).fit(*wine)
    assert passes_of(model).count(1) == one.n_iter_
    assert (model.status_, model.n_passes_) == ("converged", 2)
    np.testing.assert_array_equal(model.target_components_, one.components_)
    assert not path.exists()


def test_a_limit_between_passes_is_continued_with_the_next(path, wine):
    one = LMNN(shrinkage=0).fit(*wine)
    with pytest.warns(ConvergenceWarning, match="before pass 2 of 2"):
        LMNN(shrinkage=0, n_passes=2, max_iter=one.n_iter_, checkpoint=path).fit(*wine)
    model = LMNN(shrinkage=0, n_passes=2, checkpoint=path).fit(*wine)
    assert (model.status_, model.n_passes_) == ("converged", 2)
    assert model.objective_ == pytest.approx(
        LMNN(shrinkage=0, n_passes=2).fit(*wine).objective_, rel=2e-2
    )


def test_the_better_pass_before_survives_an_interruption(path, wine):
    """On this split the first pass is kept; its errors stand in no later record of the history."""
    parameters = {"n_passes": 4, "validation_fraction": 0.3, "random_state": 0}
    whole = LMNN(shrinkage=0, **parameters).fit(*wine)
    assert whole.n_passes_ == 1
    first = passes_of(whole).count(1)
    with pytest.warns(ConvergenceWarning):
        LMNN(shrinkage=0, max_iter=first + 3, checkpoint=path, **parameters).fit(*wine)
    resumed = LMNN(shrinkage=0, checkpoint=path, **parameters).fit(*wine)
    assert resumed.n_passes_ == 1
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert resumed.objective_ == whole.objective_
    assert resumed.duality_gap_ == whole.duality_gap_
    assert not path.exists()


@pytest.mark.slow
def test_the_best_map_within_a_pass_survives_an_interruption(path, wine):
    """On a split where an early map is better than all later ones; the fit is cut after it."""
    for seed in range(50):
        parameters = {"validation_fraction": 0.3, "random_state": seed, "tol": 1e-8}
        whole = LMNN(shrinkage=0, **parameters).fit(*wine)
        looks = [
            (record["n_iter"], record["validation_error"])
            for record in whole.history_
            if "validation_error" in record
        ]
        best, smallest = min(looks, key=lambda look: look[1])
        if looks[0][0] < best < whole.n_iter_ - 1 and looks[-1][1] > smallest:
            break
    else:
        pytest.fail("no such split")
    with pytest.warns(ConvergenceWarning):
        LMNN(shrinkage=0, max_iter=best + 1, checkpoint=path, **parameters).fit(*wine)
    assert saved(path)["best"][1] == smallest
    resumed = LMNN(shrinkage=0, checkpoint=path, **parameters).fit(*wine)
    assert resumed.status_ == "early_stopped"
    assert held_out_error(resumed, *wine) <= smallest


def test_another_number_of_passes_is_an_error(path, wine):
    with pytest.warns(ConvergenceWarning):
        LMNN(shrinkage=0, max_iter=5, checkpoint=path).fit(*wine)
    with pytest.raises(CheckpointError, match="belongs to other data or other parameters"):
        LMNN(shrinkage=0, n_passes=2, checkpoint=path).fit(*wine)
