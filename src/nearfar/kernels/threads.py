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


@contextmanager
def one_pool() -> Iterator[None]:
    """Inside, the kernels' threads are the only ones: as many as BLAS had, which now has one.

    BLAS's own threads slow small matrices down, by twenty times and more.
    """
    controller = _blas()
    before = max((pool["num_threads"] for pool in controller.info()), default=joblib.cpu_count())
    token = _allowed.set(before)
    try:
        with controller.limit(limits=1):
            yield
    finally:
        _allowed.reset(token)


@contextmanager
def blas_pool() -> Iterator[None]:
    """Inside `one_pool`, BLAS has its threads again: for matrices of hundreds of rows and more."""
    with _blas().limit(limits=n_threads()):
        yield
