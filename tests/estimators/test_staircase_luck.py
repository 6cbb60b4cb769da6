"""Bad input and bad luck of the descents in many columns: `gap_tol`, and low-rank MVU."""

import json
from functools import cache

import numpy as np
import pytest

import nearfar
from nearfar import MVU, LandmarkMVU, NeighborhoodGraph, VariationalMVU
from nearfar.errors import (
    CheckpointError,
    ConvergenceWarning,
    DataWarning,
    DisconnectedGraphError,
    InvalidInputError,
    MemoryLimitError,
)
from nearfar.problems import unfolding_bound
from tests.callbacks import interrupt_at, needs_callbacks
from tests.processes import CAN_KILL, kill_fit


def low_rank(**parameters):
    """MVU by the low-rank solver to a gap that it reaches within a second."""
    given = {"constraints": "shrink", "n_neighbors": 4, "tol": 0.05, "random_state": 0}
    return MVU(solver="low_rank", **given | parameters)


def certified(cls=VariationalMVU, **parameters):
    """A variational unfolding down to a gap over all points."""
    return cls(**{"n_neighbors": 4, "gap_tol": 5e-3, "random_state": 0} | parameters)


def certified_landmarks(**parameters):
    return certified(LandmarkMVU, **parameters)


DESCENTS = {"low_rank": low_rank, "gap_tol": certified, "landmarks": certified_landmarks}
SOLVERS = {
    "low_rank": "nearfar.estimators._mvu:staircase",
    "gap_tol": "nearfar.estimators._small_program:staircase",
}
TIGHT = {"low_rank": {"tol": 0.01}, "gap_tol": {"gap_tol": 5e-4}, "landmarks": {"gap_tol": 5e-4}}
pytestmark = pytest.mark.slow
each_descent = pytest.mark.parametrize("name", DESCENTS)
# Landmarks only change where the descent of VariationalMVU begins.
each_path = pytest.mark.parametrize("name", SOLVERS)


@pytest.fixture(scope="module")
def strip():
    """Points near a bent strip, in five dimensions."""
    random = np.random.RandomState(0)
    t = np.sort(random.uniform(0, 3, 90))
    X = np.column_stack([np.cos(t), np.sin(t), random.uniform(0, 0.7, 90)])
    X = np.hstack([4 * X, 0.05 * random.normal(size=(90, 2))])
    X.setflags(write=False)
    return X


@pytest.fixture(scope="module")
def whole_fit(strip):
    """The fit of a descent down to its tight gap, made once."""
    return cache(lambda name: DESCENTS[name](**TIGHT[name]).fit(strip))


def gap_of(model):
    """The gap that was asked for."""
    return model.duality_gap_ if isinstance(model, MVU) else model.whole_gap_


def goal_of(model):
    return model.tol if isinstance(model, MVU) else model.gap_tol


# -- bad input ---------------------------------------------------------------------------------


@each_path
def test_a_disconnected_graph_is_linked_or_refused_or_unfolded_in_parts(name, strip):
    X = np.vstack([strip[:60], strip[60:] + 50])
    loose = {"tol": 0.1} if name == "low_rank" else {}
    with pytest.warns(DataWarning, match="2 components"):
        linked = DESCENTS[name](**loose).fit(X)
    assert linked.status_ == "converged"
    assert gap_of(linked) <= goal_of(linked)
    with pytest.raises(DisconnectedGraphError, match="2 components"):
        DESCENTS[name](on_disconnected="error").fit(X)
    parts = DESCENTS[name](on_disconnected="separate").fit(X)
    assert gap_of(parts) <= goal_of(parts)
    np.testing.assert_array_equal(parts.component_labels_, np.repeat([0, 1], [60, 30]))
    for rows in (slice(60), slice(60, None)):
        np.testing.assert_allclose(parts.embedding_[rows].mean(axis=0), 0, atol=1e-9)


@each_path
def test_copies_of_a_point_stay_together(name, strip):
    model = DESCENTS[name]().fit(np.vstack([strip, strip[:20]]))
    assert gap_of(model) <= goal_of(model)
    np.testing.assert_array_equal(model.embedding_[:20], model.embedding_[90:])


def contradictory():
    """A triangle of sides 1, 1 and 10, which no points have, on a chain of triangles."""
    heads = [i for i in range(30) for _ in range(2)]
    tails = [i + step for i in range(30) for step in (1, 2)]
    lengths = np.where(np.subtract(tails, heads) == 1, 1.0, 1.5)
    lengths[1] = 10.0
    return NeighborhoodGraph.from_edges(heads, tails, lengths, 32)


def test_contradictory_distances_have_a_best_compromise_where_lengths_may_change():
    """The certificate is that of the program, whatever the distances; the change is reported."""
    for model in (certified(), low_rank(), low_rank(constraints="slack", slack_weight=0.9999)):
        model.fit(contradictory())
        assert model.status_ == "converged"
        assert gap_of(model) <= goal_of(model)
        assert model.max_distortion_ > 0.5


def test_contradictory_distances_that_must_be_kept_do_not_converge():
    model = low_rank(constraints="equal", max_iter=20)
    with pytest.warns(ConvergenceWarning, match="stopped before tol"):
        model.fit(contradictory())
    assert model.status_ != "converged"
    assert model.duality_gap_ > 0.5


# -- memory ------------------------------------------------------------------------------------


def test_more_memory_than_the_limit_is_refused_before_the_work(strip):
    with pytest.raises(
        MemoryLimitError, match=r"low-rank unfolding of 90 points .* VariationalMVU"
    ):
        low_rank(memory_limit=1e-5).fit(strip)


def test_more_memory_than_the_machine_has_is_refused_before_the_proof(strip, monkeypatch):
    from nearfar import limits

    monkeypatch.setattr(limits, "machine_memory", lambda: 1e4)
    monkeypatch.setattr(unfolding_bound, "lowest_pairs", None)
    with pytest.raises(MemoryLimitError, match=r"low-rank unfolding of 90 .* Set gap_tol=None"):
        certified().fit(strip)


# -- interruption ------------------------------------------------------------------------------


@needs_callbacks
@each_path
@pytest.mark.parametrize("rounds", [0, 2])
def test_an_interrupted_descent_keeps_its_points_and_their_gap(name, rounds, strip, whole_fit):
    """Before the first proof, and after it."""
    whole = whole_fit(name)
    stage = "low rank" if name == "low_rank" else "whole"
    first = [record.get("stage") for record in whole.history_].index(stage) + 1
    model = DESCENTS[name](**TIGHT[name]).set_callbacks(interrupt_at(first + rounds))
    with pytest.warns(ConvergenceWarning, match="interrupted; the best map so far is kept"):
        model.fit(strip)
    assert model.status_ == "interrupted"
    assert model.embedding_.shape == (90, 2)
    assert 0 < gap_of(whole) < gap_of(model) < np.inf
    if name == "low_rank":
        assert nearfar.verify(model, strip).proved


# -- checkpoints -------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def saved_history(path):
    with np.load(path) as file:
        return json.loads(str(file["values"]))["history"]


@each_descent
def test_a_fit_that_met_its_limit_continues(name, strip, path, whole_fit):
    """To the same gap, in fewer rounds than from the beginning, with one history."""
    parameters = TIGHT[name] | {"checkpoint": path}
    whole = whole_fit(name)
    stage = "low rank" if name == "low_rank" else "whole"
    rounds = sum(record.get("stage") == stage for record in whole.history_)
    earlier = [record.get("stage") for record in whole.history_].index(stage)
    limit = max(earlier, 3)
    with pytest.warns(ConvergenceWarning, match="reached max_iter"):
        DESCENTS[name](max_iter=limit, **parameters).fit(strip)
    before = saved_history(path)
    assert before == before[: earlier + limit]
    resumed = DESCENTS[name](**parameters).fit(strip)
    assert resumed.status_ == "converged"
    assert gap_of(resumed) <= goal_of(resumed)
    assert resumed.history_[: len(before)] == before
    assert [record["n_iter"] for record in resumed.history_] == list(range(1, resumed.n_iter_ + 1))
    after = resumed.history_[len(before) :]
    assert sum(record.get("stage") == stage for record in after) < rounds
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=2 * goal_of(whole))
    assert not path.exists()


@pytest.mark.skipif(not CAN_KILL, reason="sends SIGKILL")
@each_path
def test_a_killed_fit_continues(name, strip, path):
    parameters = TIGHT[name] | {"checkpoint": path}

    def is_ready():
        return any(record["duality_gap"] for record in saved_history(path)[-2:])

    kill_fit(
        DESCENTS[name](**parameters), strip, None, is_ready, solvers=[SOLVERS[name]], pause=0.5
    )
    before = saved_history(path)
    resumed = DESCENTS[name](**parameters).fit(strip)
    assert resumed.status_ == "converged"
    assert gap_of(resumed) <= goal_of(resumed)
    assert resumed.history_[: len(before)] == before
    assert not path.exists()


def test_components_continue_each_from_its_own_place(strip, path):
    X = np.vstack([strip[:60], strip[60:] + 50])
    model = low_rank(on_disconnected="separate", checkpoint=path, max_iter=12, tol=1e-4)
    with pytest.warns(ConvergenceWarning):
        model.fit(X)
    with np.load(path) as file:
        assert {"Y_0", "Y_1", "feasible_0", "feasible_1"} <= set(file)
        assert file["Y_0"].shape[0] == 60
    model.set_params(tol=0.05, max_iter=40).fit(X)
    assert model.status_ == "converged"
    assert nearfar.verify(model, X).proved


@each_path
def test_a_checkpoint_of_other_data_or_parameters_is_an_error(name, strip, path):
    parameters = TIGHT[name] | {"checkpoint": path, "max_iter": 12}
    with pytest.warns(ConvergenceWarning):
        DESCENTS[name](**parameters).fit(strip)
    for X, others in ((strip[1:], {}), (strip, {"n_neighbors": 5})):
        with pytest.raises(CheckpointError, match="belongs to other data or other parameters"):
            DESCENTS[name](**parameters | others).fit(X)


def test_a_checkpoint_that_would_hold_nothing_is_refused(strip, path):
    with pytest.raises(InvalidInputError, match=r"gap_tol=None. Set gap_tol, or checkpoint=None"):
        VariationalMVU(checkpoint=path).fit(strip)
    with pytest.raises(InvalidInputError, match="Set solver='low_rank', or checkpoint=None"):
        MVU(solver="interior_point", checkpoint=path).fit(strip)


# -- tensors -----------------------------------------------------------------------------------


@pytest.mark.torch
@each_path
def test_tensors_give_what_arrays_give(name, strip, whole_fit):
    """The same steps on the device of the data: the gap is reached there, with the same points."""
    torch = pytest.importorskip("torch")
    model, arrays = DESCENTS[name](**TIGHT[name]).fit(torch.tensor(strip)), whole_fit(name)
    assert isinstance(model.embedding_, torch.Tensor)
    assert model.embedding_.dtype == torch.float64
    assert model.status_ == "converged"
    assert gap_of(model) <= goal_of(model)
    assert model.objective_ == pytest.approx(arrays.objective_, rel=2 * goal_of(model))
    single = DESCENTS[name]().fit(torch.tensor(strip, dtype=torch.float32))
    assert single.embedding_.dtype == torch.float32
    assert gap_of(single) <= goal_of(single)
