"""Limits on the time and the memory of a fit, checked wherever much is computed.

There is one clock, started where a fit begins.

A fit opens its clock with `time_limit`, and whatever may take long calls `check_time` between two
blocks of its work, in any thread. Once the time of the stage is spent this raises `TimeLimitError`,
which ends the work as an interruption by the keyboard does. With T = ``max_seconds`` the stages are

* ``START``, before there is an answer: until 1.5 T + 0.5 s, so that a limit that is met is no
  reason to have none. If it is not enough, the error reaches the user;
* ``RUN``, from the first iterate on: until T. The run keeps its best iterate;
* ``FINISH``, while the objective and the proof of the answer are computed: until 2 T + 0.75 s. What
  is not known by then is None.

So a fit ends within 2 T + 1 s if no block takes more than a quarter of a second. A call of LAPACK
on a large matrix cannot be left; `check_cost` raises before one that would take too long.
"""

from __future__ import annotations

import ctypes
import enum
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from nearfar.errors import TimeLimitError

R = TypeVar("R")

CHEAP = 1e9  # operations that are not worth an estimate: some tens of milliseconds
ASSUMED_MEMORY = 8.0 * 2**30  # bytes of memory, where the system does not report it
PROBE, PROBES = 320, 20  # rows of the matrix whose products tell how fast this machine is


def now() -> float:
    """Seconds on the one clock that all limits go by."""
    return time.perf_counter()


class Stage(enum.Enum):
    """What a fit is doing, which decides how long it may go on."""

    START = (1.5, 0.5)
    RUN = (1.0, 0.0)
    FINISH = (2.0, 0.75)

    def seconds(self, max_seconds: float) -> float:
        """When this stage must end."""
        share, extra = self.value
        return float(share * max_seconds + extra)


class Clock:
    """The time that a fit has taken, without that of callbacks; time of earlier runs is apart."""

    def __init__(self, max_seconds: float | None = None) -> None:
        self.max_seconds = max_seconds
        self.stage = Stage.START
        self._began = now()
        self._earlier = 0.0
        self._stopped: float | None = None  # when the clock was stopped, while it is

    @property
    def seconds(self) -> float:
        """Of this fit and of the earlier ones that it continues."""
        return self._earlier + self._here

    @property
    def _here(self) -> float:
        """Of this fit alone."""
        return (now() if self._stopped is None else self._stopped) - self._began

    @property
    def is_up(self) -> bool:
        """Whether max_seconds have passed."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds

    @property
    def seconds_left(self) -> float:
        """Of this stage; infinite without a limit."""
        if self.max_seconds is None:
            return np.inf
        # An earlier run counts against the limit, but this one must have time for an answer, too.
        passed = self.seconds if self.stage is Stage.RUN else self._here
        return self.stage.seconds(self.max_seconds) - passed

    def continue_from(self, seconds: float) -> None:
        """Count the seconds of an earlier run."""
        self._earlier = seconds

    def check(self) -> None:
        """Raise if the time of this stage is spent."""
        if self.max_seconds is not None and self.seconds_left <= 0:
            raise TimeLimitError(self._sentence())

    def check_cost(self, operations: float, what: str) -> None:
        """Raise if a computation that cannot be left would end too late."""
        if self.max_seconds is None or operations < CHEAP:
            return
        seconds = operations / operations_per_second()
        if seconds > self.seconds_left:
            raise TimeLimitError(f"{what} would take about {seconds:.1f} s: {self._sentence()}")

    def _sentence(self) -> str:
        return (
            f"max_seconds={self.max_seconds:g} is too short for a first answer on these data."
            " Raise max_seconds, or fit to fewer rows."
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still inside."""
        self._stopped = stopped = now()
        try:
            yield
        finally:
            self._stopped = None
            self._began += now() - stopped

    def in_time(self, compute: Callable[[], R]) -> R | None:
        """The result of the computation, or None if it takes too long."""
        self.stage = Stage.FINISH
        try:
            return compute()
        except TimeLimitError:
            return None


_clock: ContextVar[Clock | None] = ContextVar("_clock", default=None)


@contextmanager
def time_limit(max_seconds: float | None) -> Iterator[Clock]:
    """Start the clock of a fit."""
    clock = Clock(max_seconds)
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)


_memory: ContextVar[float | None] = ContextVar("_memory", default=None)


@contextmanager
def memory_limit(gigabytes: float | None) -> Iterator[None]:
    """Inside, `allowed_gigabytes` returns this limit."""
    token = _memory.set(gigabytes)
    try:
        yield
    finally:
        _memory.reset(token)


def allowed_gigabytes() -> float | None:
    """The ``memory_limit`` of the current fit; None if it has none."""
    return _memory.get()


def machine_memory() -> float | None:
    """Bytes of memory of this machine; None if the system does not report it."""
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):  # Linux and macOS
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    if hasattr(ctypes, "windll"):
        return _windows_memory(ctypes.windll.kernel32)
    return None


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_: ClassVar = [
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    ]


def _windows_memory(kernel32: Any) -> float | None:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    succeeded = kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return float(status.total_physical) if succeeded else None


def fit_clock() -> Clock:
    """The clock of the current fit; outside of a fit, a new clock without a limit."""
    return _clock.get() or Clock()


def check_time() -> None:
    """Raise `TimeLimitError` if the time of the current fit is used up."""
    clock = _clock.get()
    if clock is not None:
        clock.check()


def check_cost(operations: float, what: str) -> None:
    """Raise `TimeLimitError` if this many floating-point operations would end too late."""
    clock = _clock.get()
    if clock is not None:
        clock.check_cost(operations, what)


@cache
def operations_per_second() -> float:
    """About how many operations a second a matrix product does here: the best of a few runs."""
    A = np.ones((PROBE, PROBE))
    seconds = np.inf
    for _ in range(PROBES):
        began = now()
        A @ A
        seconds = min(seconds, now() - began)
    return 2 * PROBE**3 / max(seconds, 1e-9)
