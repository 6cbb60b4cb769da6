"""What learners share whose answer comes from a run of a solver: limits, callbacks, endings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from typing import Any

from nearfar.errors import ConvergenceWarning, warn
from nearfar.estimators._callbacks import CallbackObserver
from nearfar.estimators._parameters import check_number
from nearfar.solvers import Iterate, Observer, Record, Solution, Status, run

UNFINISHED = (Status.MAX_ITER, Status.MAX_SECONDS, Status.STALLED)


def settled(status: Status, gap: float, tol: float) -> Status:
    """Converged if, and only if, the certified gap meets tol, even when a limit was reached.

    The gap is that of the map as it is returned, which rounding may have moved from the last
    iterate.
    """
    if gap <= tol:
        return Status.CONVERGED if status in UNFINISHED else status
    return Status.STALLED if status is Status.CONVERGED else status


class IterativeLearner:
    """Limits and endings; a mixin beside a form of metric."""

    tol: float
    max_iter: int
    max_seconds: float | None

    def _check_limits(self) -> None:
        check_number("tol", self.tol, Real, 0, None)
        check_number("max_iter", self.max_iter, Integral, 1, None)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, Real, 0, None)

    def _run(
        self,
        iterates: Iterator[Iterate],
        X: Any,
        y: Any,
        attributes: Callable[[Iterate], dict[str, Any]],
        *,
        observers: Iterable[Observer] = (),
        history: Iterable[Record] = (),
        start: Iterate | None = None,
    ) -> Solution:
        """Run a solver within the limits, tell callbacks, and answer with the best iterate.

        ``attributes`` gives what turns the estimator into a fitted one at an iterate; ``observers``
        are called before the callbacks, ``history`` continues an earlier run, and ``start`` is the
        answer if there is no time for an iterate.
        """
        callbacks = CallbackObserver(self, X, y, self.max_iter, attributes)
        solution = run(
            iterates,
            tol=self.tol,
            max_iter=self.max_iter,
            observers=[*observers, callbacks],
            history=history,
            start=start,
        )
        callbacks.finish(lambda: attributes(solution.iterate))
        return solution

    def _remedy_of_stalling(self) -> str:
        """What to do where rounding errors end a fit."""
        fitted = getattr(self, getattr(self, "_fitted_by", ""), None)
        if str(getattr(fitted, "dtype", "")).endswith("float32"):
            return "Raise tol, or pass X as float64."
        return "Raise tol, or look for outliers in X: rounding errors are in units of the largest."

    def _store_ending(
        self,
        status: Status,
        objective: float | None,
        duality_gap: float | None,
        history: list[Record],
        before: str | None = None,
    ) -> None:
        """Store what every fit leaves behind, and warn if it did not get where it should.

        ``before`` is what the fit did not reach, by default its tolerance. The objective is None if
        there was no time to compute it.
        """
        self.objective_ = None if objective is None else float(objective)
        self.duality_gap_ = duality_gap
        self.status_ = str(status)
        self.n_iter_ = len(history)
        self.history_ = history
        name = type(self).__name__
        if status is Status.INTERRUPTED:
            warn(
                f"{name} was interrupted; the best map so far is kept. Fit again to finish.",
                ConvergenceWarning,
            )
        elif status in UNFINISHED:
            reached = "" if duality_gap is None else f", with a duality gap of {duality_gap:.1e}"
            remedy = f"Raise {status} or tol."
            if status is Status.STALLED:
                remedy = self._remedy_of_stalling()
            if objective is None:
                reached = ", too soon to know objective_ and duality_gap_, which are None"
            if not history:
                before = "before its first iteration and returned its initial map"
            before = before or f"before tol={self.tol:g}"
            warn(
                f"{name} stopped {before}: {status.sentence}{reached}. {remedy}",
                ConvergenceWarning,
            )
