"""A killed fit continues from its checkpoint, and no other fit does."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from nearfar import LMNN
from nearfar.errors import CheckpointError, ConvergenceWarning
from tests.callbacks import interrupt_at, needs_callbacks
from tests.processes import CAN_KILL, kill_fit

TOL = 1e-5
# Slowed down, so that it is still running when it is killed.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


@pytest.fixture
def unfinished(path, wine):
    """The checkpoint of a fit that was stopped early."""
    with pytest.warns(ConvergenceWarning):
        LMNN(tol=TOL, max_iter=20, checkpoint=path).fit(*wine)
    assert path.exists()
    return path


def saved_history(path):
    """The records that a checkpoint holds, one for each iteration."""
    with np.load(path) as file:
        return json.loads(str(file["values"]))["history"]


def saved_iterations(path):
    """How many iterations a checkpoint holds."""
    return len(saved_history(path))


@pytest.mark.slow
@pytest.mark.skipif(not CAN_KILL, reason="sends SIGKILL")
def test_a_killed_fit_resumes_and_reaches_the_same_answer(path, wine):
    X, y = wine
    kill_fit(LMNN(tol=TOL, checkpoint=path), X, y, lambda: saved_iterations(path) > 20)
    before = saved_history(path)

    resumed = LMNN(tol=TOL, checkpoint=path).fit(X, y)
    whole = LMNN(tol=TOL).fit(X, y)
    assert resumed.status_ == whole.status_ == "converged"
    bounds = [model.objective_ * (1 - model.duality_gap_) for model in (resumed, whole)]
    assert max(bounds) <= min(resumed.objective_, whole.objective_)
    assert resumed.objective_ == pytest.approx(whole.objective_, rel=TOL)

    assert [record["n_iter"] for record in resumed.history_] == list(range(1, resumed.n_iter_ + 1))
    assert resumed.history_[: len(before)] == before
    seconds = [record["seconds"] for record in resumed.history_]
    assert seconds == sorted(seconds)
    assert not path.exists()


def test_a_converged_fit_leaves_no_file(path, overlapping):
    model = LMNN(checkpoint=path).fit(*overlapping)
    assert model.status_ == "converged"
    assert list(path.parent.iterdir()) == []


def test_a_fit_that_met_its_limit_continues_from_its_last_iteration(unfinished, wine):
    assert saved_iterations(unfinished) == 20
    model = LMNN(tol=TOL, checkpoint=unfinished).fit(*wine)
    assert model.status_ == "converged"
    assert model.history_[19]["n_iter"] == 20
    assert model.n_iter_ > 20


@needs_callbacks
def test_an_interrupted_fit_continues_from_its_last_iteration(path, wine):
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        LMNN(tol=TOL, checkpoint=path).set_callbacks(interrupt_at(12)).fit(*wine)
    assert saved_iterations(path) in (11, 12)
    assert LMNN(tol=TOL, checkpoint=path).fit(*wine).status_ == "converged"


@pytest.mark.parametrize("parameters", [{"n_components": 2}, {"validation_fraction": 0.2}], ids=str)
def test_other_ways_of_learning_continue_too(parameters, path, wine):
    parameters = {"tol": TOL, "random_state": 0, "checkpoint": path, **parameters}
    with pytest.warns(ConvergenceWarning):
        LMNN(max_iter=7, **parameters).fit(*wine)
    model = LMNN(**parameters).fit(*wine)
    assert model.status_ in ("converged", "early_stopped")
    assert not path.exists()


@pytest.mark.parametrize(
    "parameters",
    [
        {"push_weight": 0.4},
        {"n_neighbors": 2},
        {"n_components": 2},
        {"n_components": 2, "reduce": "project"},
        {"validation_fraction": 0.2, "random_state": 0},
    ],
    ids=str,
)
def test_other_parameters_are_an_error(parameters, unfinished, wine):
    before = unfinished.read_bytes()
    with pytest.raises(
        CheckpointError, match=r"belongs to other data or other parameters.*Delete it or name"
    ):
        LMNN(tol=TOL, checkpoint=unfinished, **parameters).fit(*wine)
    assert unfinished.read_bytes() == before


@pytest.mark.parametrize("change", ["X", "y", "dtype", "rows", "target_neighbors"])
def test_other_data_are_an_error(change, unfinished, wine, nearest_of_class):
    X, y = (array.copy() for array in wine)
    targets = None
    if change == "X":
        X[0, 0] += 1e-9
    elif change == "y":
        y[0] = 1
    elif change == "dtype":
        X = X.astype(np.float32)
    elif change == "rows":
        X, y = X[1:], y[1:]
    else:
        targets = nearest_of_class(X, y, 2)
    with pytest.raises(CheckpointError, match="belongs to other data"):
        LMNN(tol=TOL, checkpoint=unfinished).fit(X, y, targets)


@pytest.mark.parametrize("parameters", [{"tol": 1e-3}, {"max_seconds": 60}, {"max_iter": 900}])
def test_limits_and_tolerance_may_change(parameters, unfinished, wine):
    model = LMNN(**{"tol": TOL, "checkpoint": unfinished, **parameters}).fit(*wine)
    assert model.status_ == "converged"


def test_the_names_of_the_classes_may_change(unfinished, wine):
    X, y = wine
    model = LMNN(tol=TOL, checkpoint=unfinished).fit(X, np.array(["a", "b", "c"])[y])
    assert model.status_ == "converged"


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half a zip"])
def test_a_foreign_file_is_an_error_and_is_left_alone(content, path, overlapping):
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"is not a checkpoint of nearfar\. Delete it or name another"
    ):
        LMNN(checkpoint=path).fit(*overlapping)
    assert path.read_bytes() == content


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_an_error(share, unfinished, wine):
    content = unfinished.read_bytes()
    unfinished.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match="is not a checkpoint of nearfar"):
        LMNN(tol=TOL, checkpoint=unfinished).fit(*wine)


def test_a_flipped_byte_is_an_error(unfinished, wine):
    content = bytearray(unfinished.read_bytes())
    content[len(content) // 2] ^= 0xFF
    unfinished.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint of nearfar"):
        LMNN(tol=TOL, checkpoint=unfinished).fit(*wine)


def test_a_pickle_is_not_opened(path, overlapping):
    """An array of objects is stored as a pickle, which could run code."""

    class Alarm:
        def __reduce__(self):
            return (os.abort, ())

    with open(path, "wb") as stream:
        np.savez(stream, values=np.array([Alarm()], dtype=object), allow_pickle=True)
    with pytest.raises(CheckpointError, match="is not a checkpoint of nearfar"):
        LMNN(checkpoint=path).fit(*overlapping)


def test_a_missing_folder_is_an_error_before_any_work(tmp_path, overlapping):
    with pytest.raises(CheckpointError, match=r"folder of checkpoint .* does not exist\. Create"):
        LMNN(checkpoint=tmp_path / "missing" / "fit").fit(*overlapping)


def test_a_path_may_be_a_string(path, overlapping):
    assert LMNN(checkpoint=str(path)).fit(*overlapping).status_ == "converged"


WITHOUT_ROOM = """
import resource, sys, warnings
import numpy as np
from nearfar import LMNN, MCML, MultiMetricLMNN
from nearfar.errors import CheckpointWarning

data = np.load(sys.argv[1])
X, y = data["X"], data["y"]
learners = LMNN, MCML, MultiMetricLMNN
whole = [learner(max_iter=30).fit(X, y).components_ for learner in learners]
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for learner, expected in zip(learners, whole):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = learner(max_iter=30, checkpoint=sys.argv[2]).fit(X, y)
    assert np.array_equal(model.components_, expected)
    for warning in caught:
        if issubclass(warning.category, CheckpointWarning):
            print(learner.__name__, warning.message)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_fit_without_room_for_its_checkpoint_goes_on_to_the_same_answer(path, tmp_path, wine):
    X, y = wine
    np.savez(tmp_path / "data.npz", X=X[::2], y=y[::2])
    arguments = [str(tmp_path / "data.npz"), str(path)]
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_ROOM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    start = f"checkpoint {str(path)!r} could not be written: File too large. "
    for name, line in zip(
        ("LMNN", "MCML", "MultiMetricLMNN"), done.stdout.splitlines(), strict=True
    ):
        assert line.startswith(f"{name} {start}")
    assert os.listdir(tmp_path) == ["data.npz"]
