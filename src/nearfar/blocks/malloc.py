"""How the C library of a worker treats memory that was freed.

Dask starts workers with ``MALLOC_TRIM_THRESHOLD_=65536``, so that freed memory returns to the
system at once. With it, glibc no longer adapts the size from which an array has pages of its own,
128 KB. Tasks make and drop arrays of megabytes all the time, and the system would map and zero each
of them anew: half of a worker's time in fits of LMNN.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MMAP_BYTES = 1 << 25  # the most that glibc takes: larger arrays still return at once
TRIM_BYTES = 1 << 25  # of freed memory at the end of a heap that a worker may keep
GROWTH_BYTES = 1 << 26  # of all memory, after which what is freed between arrays is returned


@cache
def keep_freed_memory() -> bool:
    """Let this process use freed memory again; tell whether it does.

    Only where Dask has set the threshold, and the user has not set the other one.
    """
    environment = os.environ
    if "MALLOC_TRIM_THRESHOLD_" not in environment or "MALLOC_MMAP_THRESHOLD_" in environment:
        return False
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # a C library that has no such choice
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))


class Returned:
    """Returns freed memory to the system whenever the process has grown by `GROWTH_BYTES`."""

    def __init__(self) -> None:
        self._resident = 0

    def after_task(self) -> bool:
        """Look at the memory of this process; tell whether freed memory was returned."""
        if resident_bytes() < self._resident + GROWTH_BYTES:
            return False
        ctypes.CDLL(None).malloc_trim(0)
        self._resident = resident_bytes()
        return True


def resident_bytes() -> int:
    """Memory of this process, as Linux counts it."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


returned = Returned()
