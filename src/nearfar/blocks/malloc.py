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
from typing import ClassVar

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MMAP_BYTES = 1 << 25  # the most that glibc takes: larger arrays still return at once
MMAP_SHARE = 128  # and so do those of this part of a worker's memory limit: Dask writes results to
# disk until memory falls, and would write all of them if theirs were kept
TRIM_BYTES = 1 << 25  # of freed memory at the end of a heap that a worker may keep
GROWTH_BYTES = 1 << 28  # of freed memory, after which what lies between arrays is returned; pages
# that tasks need again soon take a tenth of their time,
GROWTH_SHARE = 16  # or this part of the limit, if that is less


@cache
def keep_freed_memory(limit: float | None = None) -> bool:
    """Let this process use freed memory again; return whether it does.

    ``limit`` is how many bytes the process may use. Only where Dask has set the threshold, and the
    user has not set the other one.
    """
    environment = os.environ
    if "MALLOC_TRIM_THRESHOLD_" not in environment or "MALLOC_MMAP_THRESHOLD_" in environment:
        return False
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # a C library that has no such choice
        return False
    own_pages = MMAP_BYTES if limit is None else min(MMAP_BYTES, int(limit) // MMAP_SHARE)
    return bool(mallopt(M_MMAP_THRESHOLD, own_pages) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))


def growth_bytes(limit: float | None) -> int:
    """How much more freed memory a process may keep that may use so many bytes."""
    return GROWTH_BYTES if limit is None else min(GROWTH_BYTES, int(limit) // GROWTH_SHARE)


class Returned:
    """Returns freed memory to the system whenever `growth_bytes` more of it are kept."""

    def __init__(self) -> None:
        self._kept = 0

    def after_task(self, limit: float | None = None) -> bool:
        """Check the memory of this process; return whether freed memory was given back."""
        kept = kept_bytes()
        if kept < self._kept + growth_bytes(limit):
            self._kept = min(self._kept, kept)
            return False
        ctypes.CDLL(None).malloc_trim(0)
        self._kept = kept_bytes()
        return True


def resident_bytes() -> int:
    """Memory of this process, as Linux counts it."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kept_bytes() -> int:
    """Memory of this process that is not in use, and some that is, such as of programs."""
    return resident_bytes() - allocated_bytes()


MALLINFO = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class Mallinfo2(ctypes.Structure):
    """glibc's counts of its heaps in bytes: hblkhd in pages of their own, uordblks in heaps."""

    _fields_: ClassVar = [(name, ctypes.c_size_t) for name in MALLINFO.split()]


def allocated_bytes() -> int:
    """Memory that the C library has given out and that was not freed; 0 if unknown."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)  # since glibc 2.33
    if mallinfo is None:
        return 0
    mallinfo.restype = Mallinfo2
    info = mallinfo()
    return int(info.hblkhd + info.uordblks)


returned = Returned()
