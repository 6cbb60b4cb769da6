"""The one loop: it draws iterates, keeps the clock and the trace, and says why it stops.

A solver is a generator of `Iterate`. It knows nothing of limits, clocks, displays or files.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError


class Status(enum.StrEnum):
    """Why a run ended."""

    CONVERGED = "converged"
    STALLED = "stalled"
    MAX_ITER = "max_iter"
    MAX_SECONDS = "max_seconds"
    STOPPED = "stopped"
    EARLY_STOPPED = "early_stopped"
    INTERRUPTED = "interrupted"

    @property
    def sentence(self) -> str:
        """The status in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.CONVERGED: "the residual fell to the tolerance",
    Status.STALLED: "rounding errors allow no further decrease",
    Status.MAX_ITER: "max_iter iterations were done",
    Status.MAX_SECONDS: "max_seconds had passed",
    Status.STOPPED: "a callback asked to stop",
    Status.EARLY_STOPPED: "the validation error no longer fell",
    Status.INTERRUPTED: "it was interrupted",
}


@dataclass(frozen=True)
class Iterate:
    """One step of a solver; ``residual`` is None where it was not computed at this step."""

    point: NDArray[np.float64]
    value: float
    residual: float | None = None
    exact: bool = False  # whether value is the objective itself; else it may be too small
    info: dict[str, Any] = field(default_factory=dict)
    state: Any = None  # what the solver needs to go on from here
    certificate: Any = None  # what was proved of this very point
    start: Iterate | None = None  # with the first iterate: where the solver began, if exact


Record = dict[str, Any]
"""What the trace keeps of an iterate: its number, seconds, objective, gap and more."""


@dataclass(frozen=True)
class Solution:
    """The best iterate, why the run ended, and its trace.

    ``challenger`` is a later iterate whose value is lower but not exact: perhaps it is better.
    """

    iterate: Iterate
    status: Status
    n_iter: int
    seconds: float
    history: list[Record]
    challenger: Iterate | None = None


Observer = Callable[[Iterate, list[Record]], Status | None]
"""Called with each iterate and the trace up to it; a status ends the run."""


def run(
    iterates: Iterator[Iterate],
    *,
    tol: float,
    max_iter: int,
    max_seconds: float | None = None,
    observers: Iterable[Observer] = (),
    seconds: float = 0.0,
    history: Iterable[Record] = (),
) -> Solution:
    """Draw iterates until the residual is at most ``tol`` or a limit is met.

    ``seconds`` and ``history`` continue an earlier run. The clock stands still while
    observers work. An interruption by the keyboard ends the run with the best iterate so far; with
    no iterate yet it is passed on.
    """
    trace = list(history)
    n_iter = len(trace)
    best: Iterate | None = None
    challenger: Iterate | None = None
    status = Status.STALLED  # a solver that ends by itself can do no more
    resumed = time.perf_counter() - seconds
    try:
        for iterate in iterates:
            elapsed = time.perf_counter() - resumed
            n_iter += 1
            trace.append(
                {
                    "n_iter": n_iter,
                    "seconds": elapsed,
                    "objective": iterate.value,
                    "duality_gap": iterate.residual,
                    **iterate.info,
                }
            )
            if not np.isfinite(iterate.value):
                break  # keep the last sound iterate
            ended = _ended(iterate, n_iter, elapsed, tol, max_iter, max_seconds)
            best = best or iterate.start
            if best is None or ended is Status.CONVERGED or _better(iterate, best):
                best, challenger = iterate, None
            elif iterate.exact:
                challenger = None
            elif iterate.value < best.value:
                challenger = iterate
            for observe in observers:
                ended = observe(iterate, trace) or ended
            resumed = time.perf_counter() - elapsed
            if ended is not None:
                status = ended
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        status = Status.INTERRUPTED
    if best is None:
        raise InvalidInputError(
            "the solver found no point with a finite objective. Scale your data, for example with"
            " sklearn.preprocessing.StandardScaler, or give another start."
        )
    return Solution(best, status, n_iter, time.perf_counter() - resumed, trace, challenger)


def _better(new: Iterate, best: Iterate) -> bool:
    """Prefer the newer, unless the older is exact and the newer is not surely as low.

    ``value`` is exact or too small.
    """
    return not best.exact or (new.exact and new.value <= best.value)


def _ended(
    iterate: Iterate,
    n_iter: int,
    elapsed: float,
    tol: float,
    max_iter: int,
    max_seconds: float | None,
) -> Status | None:
    if iterate.residual is not None and iterate.residual <= tol:
        return Status.CONVERGED
    if n_iter >= max_iter:
        return Status.MAX_ITER
    if max_seconds is not None and elapsed >= max_seconds:
        return Status.MAX_SECONDS
    return None
