"""The loop that runs every solver: it draws iterates, keeps the history, and decides when to stop.

A solver is a generator of `Iterate`. It knows nothing about limits, clocks, displays or files.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError, TimeLimitError
from nearfar.limits import Stage, fit_clock

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # An `Iterate` without parameters is one of any state and certificate.
    State = TypeVar("State", covariant=True, default=Any)
    Certificate = TypeVar("Certificate", covariant=True, default=Any)
else:
    from typing import TypeVar

    State, Certificate = TypeVar("State"), TypeVar("Certificate")


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
    Status.MAX_ITER: "reached max_iter",
    Status.MAX_SECONDS: "reached max_seconds",
    Status.STOPPED: "a callback asked to stop",
    Status.EARLY_STOPPED: "the validation error no longer fell",
    Status.INTERRUPTED: "it was interrupted",
}


@dataclass(frozen=True)
class Iterate(Generic[State, Certificate]):
    """One step of a solver.

    `run` compares ``residual`` with the tolerance; it is None if it was not computed at this step.
    It is an estimate of the relative gain that is left, unless it is ``certified``: then it is a
    duality gap, proved by a certificate that was computed from the data.
    """

    point: NDArray[np.float64]
    value: float
    residual: float | None = None
    certified: bool = field(default=False, kw_only=True)
    exact: bool = False  # whether value is the objective; otherwise it may be too small
    info: dict[str, Any] = field(default_factory=dict)
    state: State = None  # type: ignore[assignment]  # what the solver needs to continue
    certificate: Certificate = None  # type: ignore[assignment]  # proves the residual of this point
    start: Iterate[State, Any] | None = (
        None  # with the first iterate: where the solver began, if exact
    )


Record = dict[str, Any]
"""The entry of an iterate in the history.

It holds n_iter, seconds, objective, residual, duality_gap (the residual if it is certified, else
None) and the ``info`` of the solver.
"""


@dataclass(frozen=True)
class Solution(Generic[State, Certificate]):
    """The best iterate, why the run ended, and its history.

    ``challenger`` is a later iterate with a lower value that is not exact: it may be better.
    """

    iterate: Iterate[State, Certificate]
    status: Status
    n_iter: int
    seconds: float
    history: list[Record]
    challenger: Iterate[State, Certificate] | None = None


Observer = Callable[[Iterate, list[Record]], Status | None]
"""Called with each iterate and the history up to it; returning a status ends the run."""


def run(
    iterates: Iterator[Iterate[State, Certificate]],
    *,
    tol: float,
    max_iter: int,
    observers: Iterable[Observer] = (),
    history: Iterable[Record] = (),
    start: Iterate[State, Certificate] | None = None,
) -> Solution[State, Certificate]:
    """Draw iterates until the residual is at most ``tol`` or a limit is reached.

    The time limit is that of the fit's clock, which may also end the run between two iterates (see
    `nearfar.limits`). Then, and after a keyboard interrupt, the answer is the best iterate so far.
    If time runs out before the first iterate, the answer is ``start``, if given; otherwise the
    error is raised, and so is an interrupt before the first iterate. ``history`` continues an
    earlier run.
    """
    trace = list(history)
    n_iter = len(trace)
    best: Iterate[State, Certificate] | None = None
    challenger: Iterate[State, Certificate] | None = None
    status = Status.STALLED  # the solver ended without reaching tol
    clock = fit_clock()
    clock.stage = Stage.START
    try:
        for iterate in iterates:
            clock.stage = Stage.RUN
            elapsed = clock.seconds
            n_iter += 1
            trace.append(
                {
                    "n_iter": n_iter,
                    "seconds": elapsed,
                    "objective": iterate.value,
                    "residual": iterate.residual,
                    "duality_gap": iterate.residual if iterate.certified else None,
                    **iterate.info,
                }
            )
            if not np.isfinite(iterate.value):
                break  # keep the last sound iterate
            ended = _final_status(iterate, n_iter, tol, max_iter)
            if ended is None and clock.is_up:
                ended = Status.MAX_SECONDS
            best = best or iterate.start
            if best is None or ended is Status.CONVERGED or _better(iterate, best):
                best, challenger = iterate, None
            elif iterate.exact:
                challenger = None
            elif iterate.value < best.value:
                challenger = iterate
            for observe in observers:
                ended = observe(iterate, trace) or ended
            if ended is not None:
                status = ended
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        status = Status.INTERRUPTED
    except TimeLimitError:
        best = best or start
        if best is None:
            raise
        status = Status.MAX_SECONDS
    clock.stage = Stage.FINISH
    if best is None:
        raise InvalidInputError(
            "the solver found no point with a finite objective. Scale your data, for example with"
            " sklearn.preprocessing.StandardScaler, or give another start."
        )
    return Solution(best, status, n_iter, clock.seconds, trace, challenger)


def _better(new: Iterate, best: Iterate) -> bool:
    """Prefer the newer iterate, unless the older one is exact and may have the lower objective.

    A ``value`` that is not exact may be too small.
    """
    return not best.exact or (new.exact and new.value <= best.value)


def _final_status(iterate: Iterate, n_iter: int, tol: float, max_iter: int) -> Status | None:
    if iterate.residual is not None and iterate.residual <= tol:
        return Status.CONVERGED
    if n_iter >= max_iter:
        return Status.MAX_ITER
    return None
