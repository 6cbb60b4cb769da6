"""Who may use how many threads on the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import joblib
from threadpoolctl import ThreadpoolController

_allowed: ContextVar[int | None] = ContextVar("_allowed", default=None)


def n_threads() -> int:
    """How many threads the kernels may use."""
    return _allowed.get() or int(joblib.cpu_count())


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; looking for them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    """How many threads BLAS may use now."""
    counts = (int(pool["num_threads"]) for pool in _blas().info())
    return max(counts, default=int(joblib.cpu_count()))


@contextmanager
def one_pool() -> Iterator[None]:
    """Inside, the kernels' threads are the only ones: as many as BLAS had, which now has one.

    What BLAS computes depends in its last digits on the number of its threads, and these slow small
    matrices down, by twenty times and more. Inside another `one_pool` nothing changes. Also a
    decorator, ``@one_pool()``. Of fits that run at once in threads of the user only the first can
    hold BLAS to one thread, and the others lose that when it ends: give BLAS one thread before.
    """
    token = _allowed.set(_allowed.get() or _blas_threads())
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _allowed.reset(token)
