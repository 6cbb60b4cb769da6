"""One iterative fit: its limits, callbacks, checkpoint and history, and what it stores.

Every iterative ``fit`` has the same four steps. It *validates* its input, *builds* a problem,
*solves* it by one or several runs of a solver, and *stores* what it found::

    training = Training(self, X, y)
    solution = training.run(iterates, attributes)
    ...                                          # certify the answer and set its attributes
    store_ending(self, status, objective, gap, training.history)
    training.finish(status, attributes)

`Training` knows no estimator. scikit-learn's callbacks do, since they are passed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import wraps
from numbers import Integral, Real
from typing import Any, TypeVar

from numpy.typing import NDArray

from nearfar.errors import ConvergenceWarning, warn
from nearfar.estimators._start import outlying_row
from nearfar.limits import fit_clock, memory_limit, time_limit
from nearfar.progress import progress
from nearfar.solvers import Iterate, Observer, Record, Solution, Status, run
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.validation import check_number

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """No callbacks."""

    def _with_callbacks(method: Any) -> Any:
        return method


__all__ = [
    "CallbackSupportMixin",
    "Callbacks",
    "Training",
    "check_limits",
    "settled",
    "store_ending",
    "with_callbacks",
]

Arrays = dict[str, NDArray[Any]]
Attributes = dict[str, Any]
Proof = Arrays
"""A dual point as ``proof_`` keeps it, in the user's rows; docs/verify.md says what keys hold."""

Saved = tuple[Arrays, dict[str, Any]]
"""What a checkpoint holds: arrays, and values that JSON can hold."""

Method = TypeVar("Method", bound=Callable[..., Any])

ITERATION = "iteration"  # the name of the tasks whose record is the last of estimator.history_
UNFINISHED = (Status.MAX_ITER, Status.MAX_SECONDS, Status.STALLED)
MOSTLY = 0.5  # share of a gap from which rounding the map is its cause
COMPLETE = (Status.CONVERGED, Status.EARLY_STOPPED)  # nothing is left to continue


# -- before ------------------------------------------------------------------------------------


def with_callbacks(method: Method) -> Method:
    """scikit-learn's decorator of ``fit``, which here also sets the limits of time and memory.

    ``verbose`` of the estimator shows the iterations (`nearfar.progress`). Type checkers see the
    method itself.
    """
    decorated = _with_callbacks(method)

    @wraps(decorated)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        max_seconds = getattr(self, "max_seconds", None)
        if max_seconds is not None:  # limits hold before `fit` checks its other parameters
            check_number("max_seconds", max_seconds, Real, 0, None)
        gigabytes = getattr(self, "memory_limit", None)
        if gigabytes is not None:
            check_number("memory_limit", gigabytes, Real, 0, None, open_ends=True)
        verbose = getattr(self, "verbose", 0)
        if not isinstance(verbose, bool):
            check_number("verbose", verbose, Integral, 0, None)
        shown = progress(self) if verbose else nullcontext()
        with time_limit(max_seconds), memory_limit(gigabytes), shown:
            return decorated(self, *args, **kwargs)

    return fit  # type: ignore[return-value]  # of the same signature


def check_limits(estimator: Any) -> None:
    """Raise if ``tol`` or ``max_iter`` is out of range; `with_callbacks` has checked the others."""
    check_number("tol", estimator.tol, Real, 0, None)
    check_number("max_iter", estimator.max_iter, Integral, 1, None)


# -- during ------------------------------------------------------------------------------------


class Training:
    """Runs the solvers of one fit within its limits, with its callbacks and its checkpoint.

    ``history`` is the trace of all runs so far, and ``saved`` what a checkpoint of an earlier fit
    holds: arrays and plain values, or None. ``bounded`` says that ``max_iter`` limits all runs
    together, so that callbacks know how many iterations there may be.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        checkpoint: Checkpoint | None = None,
        bounded: bool = True,
    ) -> None:
        self.tol: float = estimator.tol
        self.max_iter: int = estimator.max_iter
        self._checkpoint = checkpoint
        self.saved: Saved | None = None
        self.history: list[Record] = []
        if checkpoint is not None:
            self.saved = checkpoint.load()
        if self.saved is not None:
            self.history = self.saved[1].pop("history")
            fit_clock().continue_from(self.history[-1]["seconds"])
        self._callbacks = Callbacks(estimator, X, y, self.max_iter if bounded else None)

    def run(
        self,
        iterates: Iterator[Iterate],
        attributes: Callable[[Iterate], Attributes],
        *,
        start: Iterate | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        marks: dict[str, Any] | None = None,
        observers: Iterable[Observer] = (),
        save: Callable[[Iterate], None] | None = None,
    ) -> Solution:
        """Run a solver until its residual is at most ``tol``, and answer with the best iterate.

        ``attributes`` gives what turns the estimator into a fitted one at an iterate, for
        callbacks. ``start`` is the answer if there is no time for an iterate. ``tol`` is that of
        the fit, unless given, and ``max_iter`` counts the iterations of all runs. ``marks`` are
        put into the records. ``observers`` are called after the callbacks; then ``save`` is, if
        the checkpoint was not written for a while.
        """

        def mark_and_report(iterate: Iterate, trace: list[Record]) -> Status | None:
            trace[-1].update(marks or {})
            self.history = trace
            return self._callbacks.report(trace, lambda: attributes(iterate))

        def save_now_and_then(iterate: Iterate, _: list[Record]) -> None:
            if save is not None and self._checkpoint is not None and self._checkpoint.due:
                save(iterate)

        solution = run(
            iterates,
            tol=self.tol if tol is None else tol,
            max_iter=self.max_iter if max_iter is None else max_iter,
            observers=[mark_and_report, *observers, save_now_and_then],
            history=self.history,
            start=start,
        )
        self.history = solution.history
        return solution

    def save(self, arrays: Arrays, values: dict[str, Any]) -> None:
        """Write a state with the history so far to the checkpoint, if there is one."""
        if self._checkpoint is not None:
            self._checkpoint.save(arrays, {"history": self.history, **values})

    def finish(self, status: str, attributes: Attributes) -> None:
        """Delete the checkpoint of a fit that is complete, and call the callbacks of its end."""
        if self._checkpoint is not None and status in COMPLETE:
            self._checkpoint.remove()
        self._callbacks.finish(attributes)


class Callbacks:
    """Tells scikit-learn's callbacks of a fit, of its iterates, and of its end.

    ``estimator.history_`` is the trace so far. The clock of the fit stands still while they work.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, n_iterations: int | None = 1) -> None:
        self._estimator, self._data = estimator, {"X": X, "y": y}
        self._context = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=n_iterations)
            with fit_clock().paused():
                self._context.call_on_fit_task_begin(estimator=estimator, **self._data)

    def report(self, trace: list[Record], attributes: Callable[[], Attributes]) -> Status | None:
        """Report an iterate, which ``attributes`` describe; a callback may end the run."""
        self._estimator.history_ = trace
        if self._context is None or not getattr(self._estimator, "_skl_callbacks", None):
            return None
        with fit_clock().paused():
            task = self._context.subcontext(task_name=ITERATION)
            task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
            stop = task.call_on_fit_task_end(
                estimator=self._estimator, **self._data, reconstruction_attributes=attributes
            )
        return Status.STOPPED if stop else None

    def finish(self, attributes: Attributes) -> None:
        """Report the end of the fit."""
        if self._context is not None:
            with fit_clock().paused():
                self._context.call_on_fit_task_end(
                    estimator=self._estimator,
                    **self._data,
                    reconstruction_attributes=lambda: attributes,
                )


# -- after -------------------------------------------------------------------------------------


def settled(status: Status, gap: float | None, tol: float) -> Status:
    """Converged if, and only if, the certified gap meets tol, even when a limit was reached.

    The gap is that of the map as it is returned, which rounding may have moved from the last
    iterate. Without a gap the status stays.
    """
    if gap is None:
        return status
    if gap <= tol:
        return Status.CONVERGED if status in UNFINISHED else status
    return Status.STALLED if status is Status.CONVERGED else status


def store_ending(
    estimator: Any,
    status: Status,
    objective: float | None,
    duality_gap: float | None,
    history: list[Record],
    unreached: str | None = None,
    if_stalled: str | None = None,
    unrounded: float | None = None,
    points: Any = None,
    sampled_gap: float | None = None,
) -> None:
    """Store what every fit leaves behind, and warn if it did not get where it should.

    ``unreached`` says where the fit stopped, by default "before tol=…", and ``if_stalled`` what to
    do if rounding errors ended it. The objective is None if there was no time to compute it.
    ``unrounded`` is what it was before the map was rounded, if that is known, of an objective that
    is minimised, and ``points`` are the rows of X, among which an outlier is looked for.
    ``sampled_gap`` is the gap if it holds with a confidence of ``estimator.gap_confidence_`` only.
    """
    estimator.objective_ = None if objective is None else float(objective)
    estimator.duality_gap_ = duality_gap
    estimator.status_ = str(status)
    estimator.n_iter_ = len(history)
    estimator.history_ = history
    name = type(estimator).__name__
    if status is Status.INTERRUPTED:
        warn(
            f"{name} was interrupted; the best map so far is kept. Fit again to finish.",
            ConvergenceWarning,
        )
    elif status in UNFINISHED:
        reached = "" if duality_gap is None else f", with a duality gap of {duality_gap:.1e}"
        if sampled_gap is not None:
            confidence = f"{estimator.gap_confidence_:.1%} confidence"
            reached = f", with a duality gap of at most {sampled_gap:.1e} ({confidence})"
        remedy = f"Raise {status} or tol."
        if status is not Status.MAX_SECONDS:
            single = _is_single(estimator, points)
            if _is_lost_by_rounding(objective, duality_gap, unrounded):
                reached += (
                    f", since rounding the map to {'float32' if single else 'float64'} raised the"
                    f" objective from {unrounded:.6g} to {objective:.6g}"
                )
                remedy = "Pass X as float64." if single else "Bring all features to one scale."
            elif status is Status.STALLED:
                remedy = if_stalled or f"Raise tol{', or pass X as float64' if single else ''}."
            outlier = None if points is None else outlying_row(points)
            if outlier is not None:
                row, times = outlier
                remedy += (
                    f" Row {row} of X is an outlier, {times:.0e} times as far from the median as"
                    " others, and rounding errors are in units of the largest entry: check it."
                )
        if objective is None:
            reached = ", too soon to know objective_ and duality_gap_, which are None"
        if not history:
            unreached = "before its first iteration and returned its initial map"
        unreached = unreached or f"before tol={estimator.tol:g}"
        warn(
            f"{name} stopped {unreached}: {status.sentence}{reached}. {remedy}",
            ConvergenceWarning,
        )


def _is_lost_by_rounding(
    objective: float | None, gap: float | None, unrounded: float | None
) -> bool:
    """Whether most of the gap comes from rounding the map, which raised the objective."""
    if objective is None or gap is None or unrounded is None:
        return False
    return objective - unrounded > MOSTLY * gap * max(objective, 1.0) > 0


def _is_single(estimator: Any, points: Any) -> bool:
    """Whether the fit was to float32."""
    fitted = getattr(estimator, getattr(estimator, "_fitted_by", ""), points)
    return str(getattr(fitted, "dtype", "")).endswith("float32")


def map_proof(maps: Iterable[NDArray[Any]]) -> Proof:
    """The maps whose soft neighbours (MCML), or whose lengths of far pairs (MMC), are a dual point.

    MCML has one or two of them.
    """
    return dict(zip(("components", "nearer"), maps, strict=False))
