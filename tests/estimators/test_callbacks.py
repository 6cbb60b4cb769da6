"""scikit-learn's callbacks see every iteration, can end a fit, and are always torn down."""

# ruff: noqa: ARG002 (the callback protocol of scikit-learn fixes the signatures)

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar.estimators._large_margin
from nearfar import LMNN
from nearfar.errors import ConvergenceWarning
from tests.callbacks import Recorder, interrupt

callback = pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")

# KNeighborsClassifier does not support callbacks, which scikit-learn says each time.
ignore_unsupported = pytest.mark.filterwarnings("ignore:.*does not support callbacks:UserWarning")


# -- what a callback sees ----------------------------------------------------------------------


def test_every_iteration_is_reported(overlapping):
    recorder = Recorder()
    model = LMNN().set_callbacks(recorder).fit(*overlapping)
    iterations = ["begin iteration", "end iteration"] * model.n_iter_
    assert recorder.calls == ["setup", "begin fit", *iterations, "end fit", "teardown"]
    assert recorder.records == model.history_
    assert set(recorder.records[0]) >= {
        "n_iter",
        "seconds",
        "objective",
        "residual",
        "duality_gap",
        "active_triplets",
    }


def test_callbacks_do_not_change_the_answer(overlapping):
    watched = LMNN().set_callbacks(Recorder()).fit(*overlapping)
    np.testing.assert_array_equal(watched.components_, LMNN().fit(*overlapping).components_)


def test_a_callback_gets_a_usable_transformer_at_every_iteration(overlapping):
    X, y = overlapping
    recorder = Recorder()
    model = LMNN().set_callbacks(recorder).fit(X, y)
    for fitted in recorder.models:
        assert np.isfinite(fitted.transform(X)).all()
    np.testing.assert_allclose(recorder.models[-1].transform(X), model.transform(X), rtol=1e-9)
    assert (
        KNeighborsClassifier(3)
        .fit(recorder.models[-1].transform(X), y)
        .score(model.transform(X), y)
    )


def test_scoring_monitor(overlapping):
    X, y = overlapping

    def score(estimator, X, y):
        Z = estimator.transform(X)
        return KNeighborsClassifier(3).fit(Z, y).score(Z, y)

    monitor = callback.ScoringMonitor(scoring={"neighbours": score})
    model = LMNN().set_callbacks(monitor).fit(X, y)
    log = monitor.get_logs()
    scores = [row["neighbours"] for row in log.data if row["task_name"] == "iteration"]
    assert len(scores) == model.n_iter_
    assert all(0 <= value <= 1 for value in scores)


def test_a_fitted_estimator_can_be_cloned_and_has_no_traces_of_callbacks(overlapping):
    model = LMNN().set_callbacks(Recorder()).fit(*overlapping)
    assert not hasattr(model, "_callback_fit_ctx")
    assert clone(model).get_params() == model.get_params()


# -- a callback that ends the fit ----------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"n_components": 2}], ids=str)
def test_a_callback_can_stop_the_fit(parameters, overlapping, recwarn):
    X, y = overlapping
    recorder = Recorder(3, lambda: True)
    model = LMNN(**parameters).set_callbacks(recorder).fit(X, y)
    assert (model.status_, model.n_iter_, len(model.history_)) == ("stopped", 3, 3)
    assert np.isfinite(model.transform(X)).all()
    assert recorder.calls[-2:] == ["end fit", "teardown"]
    assert len(recwarn) == 0


@pytest.mark.parametrize("parameters", [{}, {"n_components": 2}], ids=str)
def test_an_interruption_keeps_the_best_map(parameters, overlapping):
    X, y = overlapping
    recorder = Recorder(4, interrupt)
    model = LMNN(**parameters).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="LMNN was interrupted; the best map so far is"):
        model.fit(X, y)
    assert model.status_ == "interrupted"
    assert model.n_iter_ == 4
    assert np.isfinite(model.transform(X)).all()
    assert recorder.calls[-1] == "teardown"


def test_an_interrupted_map_is_certified_too(overlapping):
    with pytest.warns(ConvergenceWarning):
        model = LMNN().set_callbacks(Recorder(4, interrupt)).fit(*overlapping)
    best = LMNN().fit(*overlapping)
    assert model.objective_ * (1 - model.duality_gap_) <= best.objective_ <= model.objective_


def test_an_interruption_before_the_first_iteration_is_passed_on(overlapping):
    class AtOnce(Recorder):
        def on_fit_task_begin(self, estimator, context):
            interrupt()

    recorder = AtOnce()
    model = LMNN().set_callbacks(recorder)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*overlapping)
    assert not hasattr(model, "components_")
    assert recorder.calls == ["setup", "teardown"]


@pytest.mark.filterwarnings("ignore:LMNN was interrupted")
def test_an_interruption_of_the_first_guess_ends_the_fit(monkeypatch):
    """On many rows the first guess is a fit of its own, on some of them; no other may follow."""
    descend = nearfar.estimators._large_margin.descend_in_both_precisions
    runs = []

    def interrupted(*arguments, **options):
        runs.append(arguments)
        for iterate in descend(*arguments, **options):
            yield iterate
            interrupt()

    monkeypatch.setattr(nearfar.estimators._large_margin, "descend_in_both_precisions", interrupted)
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 1500)
    X = rng.normal(size=(3000, 2)) + [3, 0] * y[:, None]
    with contextlib.suppress(KeyboardInterrupt):
        LMNN(random_state=0).fit(X, y)
    assert len(runs) == 1


def test_an_exception_is_passed_on_after_teardown(overlapping):
    def fail():
        raise OSError("no space left")

    recorder = Recorder(2, fail)
    model = LMNN().set_callbacks(recorder)
    with pytest.raises(OSError, match="no space left"):
        model.fit(*overlapping)
    assert recorder.calls[-1] == "teardown"
    assert not hasattr(model, "components_")
    assert not hasattr(model, "_callback_fit_ctx")


def test_bad_data_tear_down_what_was_set_up(overlapping):
    X, _ = overlapping
    recorder = Recorder()
    with pytest.raises(ValueError, match="two classes"):
        LMNN().set_callbacks(recorder).fit(X, np.zeros(60))
    assert recorder.calls.count("setup") == recorder.calls.count("teardown")


PROGRAM = """
import sys, warnings
from sklearn.datasets import load_digits
from nearfar import LMNN

class Ready:
    def setup(self, estimator, context): pass
    def teardown(self, estimator, context): print("teardown", flush=True)
    def on_fit_task_begin(self, estimator, context): pass
    def on_fit_task_end(self, estimator, context):
        if context.task_name == "iteration" and context.task_id == 4:
            print("ready", flush=True)

warnings.simplefilter("ignore")
X, y = load_digits(return_X_y=True)
model = LMNN(tol=0, max_iter=10**6, max_seconds=30).set_callbacks(Ready()).fit(X, y)
print(model.status_, model.n_iter_ >= 5, model.transform(X).shape[0], flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_the_best_map():
    """The signal comes while the solver works, not at a place of our choosing."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert output.splitlines() == ["teardown", "interrupted True 1797"], errors


# -- progress bars -------------------------------------------------------------------------------


@pytest.fixture
def progress_bar():
    pytest.importorskip("rich")
    return callback.ProgressBar


def test_progress_bar_alone(progress_bar, overlapping, capsys):
    model = LMNN().set_callbacks(progress_bar()).fit(*overlapping)
    shown = capsys.readouterr().out
    assert "LMNN - fit" in shown
    assert "100%" in shown
    assert model.status_ == "converged"


@ignore_unsupported
def test_progress_bar_in_a_pipeline(progress_bar, overlapping, capsys):
    pipeline = make_pipeline(LMNN(), KNeighborsClassifier(3)).set_callbacks(progress_bar())
    pipeline.fit(*overlapping)
    shown = capsys.readouterr().out
    assert "Pipeline - fit" in shown
    assert "LMNN - fit" in shown


@ignore_unsupported
def test_progress_bar_in_a_grid_search(progress_bar, overlapping, capsys):
    pipeline = make_pipeline(LMNN(), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"lmnn__push_weight": [0.2, 0.8]}, cv=2, error_score="raise")
    search.set_callbacks(progress_bar(max_propagation_depth=None)).fit(*overlapping)
    assert capsys.readouterr().out.count("LMNN - fit") >= 5
    assert not hasattr(search.best_estimator_[0], "_skl_callbacks")


def test_progress_bar_after_an_interruption(progress_bar, overlapping, capsys):
    """The bar is closed: a second fit can open its own."""
    stop = Recorder(2, interrupt)
    model = LMNN().set_callbacks(progress_bar(), stop)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(*overlapping)
    assert model.set_callbacks(progress_bar()).fit(*overlapping).status_ == "converged"
    assert "LMNN - fit" in capsys.readouterr().out
