"""Work on the host in blocks, shared by threads.

Work is cut into blocks by size alone, and sums over blocks are taken in their order, so results do
not depend on the number of threads. Threads run blocks, each with a BLAS of one thread (see
`single_threaded_blas`): BLAS's own threads slow small matrices down, by up to twenty times.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.threads import n_threads
from nearfar.limits import check_time

Floats = NDArray[np.floating]
T = TypeVar("T")
R = TypeVar("R")

GATHER_BYTES = 1 << 20  # bytes of gathered rows of one block of edges: an L2 cache
GEMM_ROWS = 4096  # rows of a block of a tall matrix product, at most
THREADED_BYTES = 1 << 24  # bytes touched below which threads cost more than they gain
TABLE_ENTRIES = 1 << 22  # distances held at a time where each query needs those to all points


def in_threads(work: Callable[[T], R], parts: list[T], n_bytes: int) -> list[R]:
    """Results of the work on each part, in order; in threads if it reads or writes enough bytes.

    Once the time of the fit is up, no thread starts another part.
    """

    def in_time(part: T) -> R:
        check_time()
        return work(part)

    if len(parts) < 2 or n_threads() == 1 or not is_worth_threads(n_bytes):
        return [in_time(part) for part in parts]
    context = copy_context()  # the threads of a pool have no context of their own
    with ThreadPoolExecutor(n_threads()) as pool:
        return list(pool.map(lambda part: context.copy().run(in_time, part), parts))


def is_worth_threads(n_bytes: int) -> bool:
    """Whether work that reads or writes so many bytes gains by threads."""
    return n_bytes >= THREADED_BYTES


def over_blocks(work: Callable[[slice], None], size: int, row_bytes: int) -> None:
    """Do the work on consecutive slices that fit the cache."""
    step = rows_in_cache(row_bytes)

    def share(part: slice) -> None:
        for first in range(part.start, part.stop, step):
            check_time()
            work(slice(first, min(first + step, part.stop)))

    in_threads(share, shares(size), size * row_bytes)


def rows_in_cache(row_bytes: int) -> int:
    """How many rows of so many bytes fit the cache, at least 64."""
    return max(64, GATHER_BYTES // max(row_bytes, 1))


def shares(size: int) -> list[slice]:
    """Consecutive slices, one for each thread."""
    n_shares = n_threads()
    cuts = [size * part // n_shares for part in range(n_shares + 1)]
    return [slice(*ends) for ends in pairwise(cuts)]


def row_slices(size: int) -> list[slice]:
    """One slice, or an even number of slices of about equal length: two threads end together."""
    count = -(-size // GEMM_ROWS)
    count += count % 2 if count > 1 else 0
    return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]


def query_slices(m: int, n: int) -> list[slice]:
    """Consecutive slices of m queries, so that tables of distances to n points have fixed size."""
    step = max(1, TABLE_ENTRIES // max(n, 1))
    return [slice(first, min(first + step, m)) for first in range(0, m, step)]


def summed(
    work: Callable[[slice], Floats], parts: list[slice], shape: tuple[int, int], n_bytes: int
) -> NDArray[np.float64]:
    """The sum of the matrices of all parts, taken in float64."""
    products = in_threads(work, parts, n_bytes)
    if len(products) == 1:  # no second matrix
        return np.asarray(products[0], dtype=np.float64)
    total = np.zeros(shape)
    for product in products:
        total += product
    return total
