"""Thread limits for BLAS and the NumPy kernels."""

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
    """How many threads BLAS may use now.

    A BLAS with OpenMP's threads, such as that of faiss, has a limit of its own in each thread, and
    does not show what holds elsewhere. It counts only if there is no other.
    """
    pools = _blas().info()
    others = [pool for pool in pools if pool.get("threading_layer") != "openmp"]
    counts = (int(pool["num_threads"]) for pool in others or pools)
    return max(counts, default=0) or int(joblib.cpu_count())


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread, and give the kernels as many threads as BLAS had.

    The last digits of BLAS results depend on the number of its threads, and for small matrices its
    threads make it slower, by a factor of twenty and more. Nested calls change nothing. Also usable
    as a decorator, ``@single_threaded_blas()``. If a user runs several fits at once in threads, the
    limit ends with the first fit that ends; set OMP_NUM_THREADS=1 in that case.
    """
    token = _allowed.set(_allowed.get() or _blas_threads())
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _allowed.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and the kernels to one thread: of a task, where other tasks run beside it."""
    token = _allowed.set(1)
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _allowed.reset(token)
