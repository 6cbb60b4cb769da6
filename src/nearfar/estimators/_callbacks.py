"""scikit-learn's callbacks, which exist since its version 1.9, and a stand-in before that."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, TypeVar

from nearfar.limits import fit_clock, memory_limit, time_limit
from nearfar.solvers import Iterate, Record, Status
from nearfar.validation import check_number

__all__ = ["CallbackObserver", "CallbackSupportMixin", "with_callbacks"]

Method = TypeVar("Method", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """No callbacks."""

    def _with_callbacks(method: Any) -> Any:
        return method


def with_callbacks(method: Method) -> Method:
    """scikit-learn's decorator of ``fit``, which here also sets the limits of time and memory.

    Type checkers see the method itself.
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
        with time_limit(max_seconds), memory_limit(gigabytes):
            return decorated(self, *args, **kwargs)

    return fit  # type: ignore[return-value]  # of the same signature


ITERATION = "iteration"  # the name of the tasks whose record is the last of estimator.history_


class CallbackObserver:
    """Tells scikit-learn's callbacks of each iterate; a callback may end the run.

    The clock of the fit stands still while they work.

    ``estimator.history_`` is the trace so far, and ``reconstruct`` gives the attributes that turn
    the estimator into a fitted one at that iterate. ``max_iter`` is None where it is not known how
    many iterates there may be.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        max_iter: int | None,
        reconstruct: Callable[[Iterate], dict[str, Any]],
    ) -> None:
        self._estimator, self._X, self._y = estimator, X, y
        self._reconstruct = reconstruct
        self._context = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=max_iter)
            with fit_clock().paused():
                self._context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def __call__(self, iterate: Iterate, trace: list[Record]) -> Status | None:
        """Report an iterate."""
        self._estimator.history_ = trace
        if self._context is None or not getattr(self._estimator, "_skl_callbacks", None):
            return None
        with fit_clock().paused():
            task = self._context.subcontext(task_name=ITERATION)
            task.call_on_fit_task_begin(estimator=self._estimator, X=self._X, y=self._y)
            stop = task.call_on_fit_task_end(
                estimator=self._estimator,
                X=self._X,
                y=self._y,
                reconstruction_attributes=lambda: self._reconstruct(iterate),
            )
        return Status.STOPPED if stop else None

    def finish(self, attributes: Callable[[], dict[str, Any]]) -> None:
        """Report the end of the fit."""
        if self._context is not None:
            with fit_clock().paused():
                self._context.call_on_fit_task_end(
                    estimator=self._estimator,
                    X=self._X,
                    y=self._y,
                    reconstruction_attributes=attributes,
                )
