"""Programs in processes of their own, and fits that are killed while they work.

Where the system can, they are forked from a process that has imported scikit-learn, and nothing of
nearfar: that import takes longer than most of the programs.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

CAN_KILL = os.name == "posix"
FORKS = "forkserver" in multiprocessing.get_all_start_methods()
LARGE_MARGIN = "nearfar.estimators._large_margin:descend_in_both_precisions"
SECONDS = 120  # a program that takes longer hangs


def _start(function, *arguments):
    context = multiprocessing.get_context("forkserver" if FORKS else "spawn")
    if FORKS:
        context.set_forkserver_preload(["sklearn.neighbors", "sklearn.datasets"])
    process = context.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


# -- programs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def _run(program, arguments, folder, output, errors):
    sys.argv = ["-c", *arguments]
    if folder is not None:
        os.chdir(folder)
    with (
        open(output, "w") as out,
        open(errors, "w") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None


def run_program(program, *arguments, cwd=None):
    """Run a program like ``python -c``: its exit code, and what it wrote.

    Modules of scikit-learn, SciPy and NumPy may be loaded already, and the environment has been
    read: what a program asks of these needs a new interpreter.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = [Path(folder) / name for name in ("stdout", "stderr")]
        process = _start(_run, program, arguments, cwd, *written)
        process.join(SECONDS)
        assert process.exitcode is not None, "the program hangs"
        done = Done(process.exitcode, *(path.read_text(encoding="utf-8") for path in written))
    process.close()
    return done


# -- killed fits -----------------------------------------------------------------------------


def _slowly(descend, pause):
    """A solver that pauses after each iterate, so that there is time to kill it."""

    def pausing(*arguments, **options):
        for iterate in descend(*arguments, **options):
            time.sleep(pause)
            yield iterate

    return pausing


def _fit(estimator, X, y, solvers, pause):
    warnings.simplefilter("ignore")
    for solver in solvers:
        module, name = solver.split(":")
        module = importlib.import_module(module)
        setattr(module, name, _slowly(getattr(module, name), pause))
    estimator.fit(X, y)


def kill_fit(estimator, X, y, is_ready, *, solvers=(LARGE_MARGIN,), pause=0.02):
    """Fit in another process, and kill it once there is a checkpoint and is_ready() is true.

    ``solvers`` ("module:name") are the generators of iterates that the fit calls, ``pause`` the
    seconds that it waits after each iterate.
    """
    process = _start(_fit, estimator, X, y, solvers, pause)
    while not (estimator.checkpoint.exists() and is_ready()):
        assert process.is_alive(), "the fit ended before it could be killed"
        time.sleep(0.02)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process.close()
