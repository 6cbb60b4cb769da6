"""What a fit shows while it runs."""

import inspect
import io
import math
from types import SimpleNamespace

import pytest
from sklearn.base import clone

import nearfar
from nearfar import progress
from nearfar.datasets import load_builtin
from nearfar.estimators.lmnn import LMNN
from nearfar.estimators.metric_mds import MetricMDS
from nearfar.estimators.mlkr import MLKR
from nearfar.estimators.nca import NCA
from nearfar.io import load, save
from nearfar.progress import Bar, Lines, ShowIterations, describe, share_done
from nearfar.registry import ENTRIES
from tests.callbacks import Recorder

needs_callbacks = pytest.mark.skipif(
    not hasattr(LMNN, "set_callbacks"), reason="needs scikit-learn 1.9"
)
RECORD = {
    "n_iter": 7,
    "objective": 12.345678,
    "active_triplets": 90,
    "residual": None,
    "duality_gap": None,
}


def fit():
    iris = load_builtin("iris")
    model = LMNN()
    with progress.progress(model):
        model.fit(iris.X, iris.y)
    return model


def test_an_iteration_in_words():
    assert describe(RECORD, None) == "#7 objective 12.3457, 90 active triplets"
    assert describe(RECORD, 0.0123) == (
        "#7 objective 12.3457, estimated gain left 1.2e-02, 90 active triplets"
    )
    assert describe({"n_iter": 2, "objective": -0.5, "duality_gap": None}, None) == (
        "#2 objective -0.5"
    )
    assert describe(RECORD, math.inf) == describe(RECORD, None)
    certified = RECORD | {"residual": 0.01, "duality_gap": 0.01}
    assert describe(certified, 0.01) == (
        "#7 objective 12.3457, certified gap 1.0e-02, 90 active triplets"
    )


def test_a_certified_gap_is_shown_else_the_estimate_else_the_last_residual():
    shown = []

    class Recorder:
        def show(self, text, _):
            shown.append(text.split(", ")[1])

    callback, model = ShowIterations(Recorder()), LMNN()
    for gaps in (
        {},
        {"residual": 0.5},
        {},
        {"residual": 0.2, "duality_gap": 0.2},
        {},
    ):
        model.history_ = [RECORD, RECORD | gaps]
        callback.on_fit_task_end(model, SimpleNamespace(task_name="iteration"))
    assert shown == [
        "90 active triplets",
        "estimated gain left 5.0e-01",
        "estimated gain left 5.0e-01",
        "certified gap 2.0e-01",
        "estimated gain left 2.0e-01",
    ]


def test_without_a_gap_the_share_done_is_that_of_the_iterations():
    shown = []
    display = SimpleNamespace(show=lambda text, done: shown.append((text, done)))
    record = {"n_iter": 2, "objective": 3.5, "residual": None, "duality_gap": None, "n_updates": 7}
    model = SimpleNamespace(history_=[record], max_iter=8)
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
    assert f", certified gap {model.duality_gap_:.1e}, " in lines[-1]


@needs_callbacks
def test_a_fit_without_a_certificate_shows_estimates(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    iris, model = load_builtin("iris"), NCA(max_iter=3, tol=0.5)
    with progress.progress(model):
        model.fit(iris.X, iris.y)
    text = capsys.readouterr().err
    assert text.splitlines()[-1].endswith(
        f", estimated gain left {model.history_[-1]['residual']:.1e}"
    )
    assert "certified" not in text


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
    assert "certified gap" in shown
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


@needs_callbacks
@pytest.mark.usefixtures("folder")
def test_the_second_fit_of_a_comparison_is_shown_too(run, monkeypatch):
    """Lines of two fits, each of which begins with its first iteration."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    for option in ("--standardise", "--no-standardise"):
        done = run("fit", "train.csv", "-t", "species", option, "--force")
        assert sum(line.startswith("#1 ") for line in done.err.splitlines()) == 2
    done = run("evaluate", "model.nearfar", "train.csv", "test.csv", "-t", "species")
    firsts = [line for line in done.err.splitlines() if line.startswith("#1 ")]
    assert len(firsts) == 1


@pytest.mark.usefixtures("folder")
def test_a_report_announces_a_second_fit_that_takes_long(run):
    assert run("fit", "iris").code == 0
    assert "for comparison" not in run("report", "model.nearfar", "iris").err
    model = load("model.nearfar")
    for seconds, said in ((7.0, True), (70.0, False)):
        model.history_[-1]["seconds"] = seconds
        save(model, "long.nearfar")
        done = run("report", "long.nearfar", "iris", "--force")
        line = "fitting LMNN, standardised for comparison, which may take 7 s or more\n"
        assert (done.err == line) == said, done.err


# -- verbose -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_every_iterative_fit_can_be_watched(name):
    parameters = inspect.signature(getattr(nearfar, name)).parameters
    assert ("verbose" in parameters) == ("max_iter" in parameters)
    if "verbose" in parameters:
        assert parameters["verbose"].default == 0


@needs_callbacks
@pytest.mark.parametrize("model", [LMNN(), MetricMDS(), MLKR()], ids=repr)
def test_verbose_shows_each_iteration_beside_the_callbacks_of_the_user(model, capsys, monkeypatch):
    iris = load_builtin("iris")
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    seen = Recorder()
    model = clone(model).set_params(verbose=1).set_callbacks(seen)
    model.fit(iris.X[30:80], iris.y[30:80])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("objective") == len(model.history_) == len(seen.records) > 0
    model.set_params(verbose=0).fit(iris.X[30:80], iris.y[30:80])
    assert capsys.readouterr() == ("", "")
    assert len(seen.records) == 2 * len(model.history_)
