"""A fit in a process of its own that is killed while it works.

The processes are forked from one that has imported nearfar already, since an import takes longer
than such a fit.
"""

import importlib
import multiprocessing
import os
import signal
import time
import warnings

CAN_KILL = os.name == "posix"
LARGE_MARGIN = "nearfar.estimators._large_margin:descend_in_both_precisions"
SECONDS = 60  # until a fit must be ready to be killed


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

    ``solvers`` ("module:name") are the generators of iterates that the fit calls,
    ``pause`` the seconds that it waits after each iterate.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nearfar.estimators.mcml", "nearfar.estimators.lmnn"])
    process = context.Process(target=_fit, args=(estimator, X, y, solvers, pause), daemon=True)
    process.start()
    deadline = time.monotonic() + SECONDS
    while not (estimator.checkpoint.exists() and is_ready()):
        assert process.is_alive(), "the fit ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process.close()
