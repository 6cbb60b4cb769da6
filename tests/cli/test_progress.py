"""What a fit shows while it runs."""

import io
import math
from types import SimpleNamespace

import pytest

from nearfar.cli import progress
from nearfar.cli.progress import Bar, Lines, ShowIterations, describe, share_done
from nearfar.datasets import load_builtin
from nearfar.estimators.lmnn import LMNN

needs_callbacks = pytest.mark.skipif(
    not hasattr(LMNN, "set_callbacks"), reason="needs scikit-learn 1.9"
)
RECORD = {"n_iter": 7, "objective": 12.345678, "active_triplets": 90, "duality_gap": None}


def fit():
    iris = load_builtin("iris")
    model = LMNN()
    with progress.progress(model):
        model.fit(iris.X, iris.y)
    return model


def test_an_iteration_in_words():
    assert describe(RECORD, None) == "#7 objective 12.3457, 90 active triplets"
    assert describe(RECORD, 0.0123) == "#7 objective 12.3457, 90 active triplets, gap ~1.2e-02"
    assert describe({"n_iter": 2, "objective": -0.5, "duality_gap": None}, None) == (
        "#2 objective -0.5"
    )
    certified = RECORD | {"duality_gap": 0.01}
    assert describe(certified, 0.01) == "#7 objective 12.3457, 90 active triplets, gap 1.0e-02"


def test_the_gap_is_the_certified_one_else_the_estimate_else_the_last():
    shown = []

    class Recorder:
        def show(self, text, _):
            shown.append(text.rpartition(" ")[2])

    callback, model = ShowIterations(Recorder()), LMNN()
    for gaps in (
        {"duality_gap": None},
        {"duality_gap": None, "gap_estimate": 0.5},
        {"duality_gap": None},
        {"duality_gap": 0.2, "gap_estimate": 0.3},
        {"duality_gap": None},
    ):
        model.history_ = [RECORD, RECORD | gaps]
        callback.on_fit_task_end(model, SimpleNamespace(task_name="iteration"))
    assert shown == ["triplets", "~5.0e-01", "~5.0e-01", "2.0e-01", "~2.0e-01"]


def test_without_a_gap_the_share_done_is_that_of_the_iterations():
    shown = []
    display = SimpleNamespace(show=lambda text, done: shown.append((text, done)))
    model = SimpleNamespace(
        history_=[{"n_iter": 2, "objective": 3.5, "duality_gap": None, "n_updates": 7}], max_iter=8
    )
    ShowIterations(display).on_fit_task_end(model, SimpleNamespace(task_name="iteration"))
    assert shown == [("#2 objective 3.5, 7 updates", 0.25)]


def test_other_tasks_show_nothing():
    ShowIterations(None).on_fit_task_end(LMNN(), SimpleNamespace(task_name="fit"))


@pytest.mark.parametrize(
    ("gap", "tol", "share"),
    [
        (None, 1e-3, 0),
        (math.inf, 1e-3, 0),
        (2.0, 1e-3, 0),
        (1e-1, 1e-3, 1 / 3),
        (1e-2, 1e-3, 2 / 3),
        (1e-3, 1e-3, 1),
        (0.0, 1e-3, 1),
        (-1e-17, 1e-3, 1),
        (1e-2, 0.0, 0),
        (0.5, 2.0, 0),
    ],
)
def test_the_share_done_is_logarithmic_in_the_gap(gap, tol, share):
    assert share_done(gap, tol) == pytest.approx(share)


def test_elsewhere_than_on_a_terminal_it_keeps_quiet_for_ten_seconds(capsys):
    fit()
    assert capsys.readouterr().err == ""


@needs_callbacks
def test_then_it_writes_a_line(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    model = fit()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == model.n_iter_
    assert lines[0].startswith("#1 objective ")
    assert lines[-1].endswith(f"gap {model.duality_gap_:.1e}")


@needs_callbacks
def test_a_terminal_gets_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    model = fit()
    shown = terminal.getvalue()
    assert "active triplets" in shown
    assert "gap" in shown
    assert "_skl_callbacks" not in vars(model)


def test_callbacks_are_removed_also_after_an_error():
    model = LMNN()
    with pytest.raises(ValueError, match="x"), progress.progress(model):
        model.fit("x", "y")
    assert "_skl_callbacks" not in vars(model)


def test_an_estimator_without_callbacks_is_left_alone():
    with progress.progress(object()):
        pass


@pytest.mark.parametrize("display", [Bar(), Lines()])
def test_the_protocol_is_followed(display):
    callback = pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    assert isinstance(ShowIterations(display), callback.FitCallback)
