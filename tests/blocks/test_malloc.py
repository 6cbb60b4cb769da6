"""Workers use freed memory again, though Dask asks for its return."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nearfar.blocks import malloc
from nearfar.blocks.engine import Cluster
from nearfar.blocks.malloc import keep_freed_memory


def page_faults(megabytes):
    """Pages that the system gives to this thread for twenty arrays, one after the other."""
    import resource

    np.ones(megabytes << 17)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(20):
        np.ones(megabytes << 17)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_arrays_of_tasks_use_the_same_pages(client):
    """Twenty arrays of 4 MB would be 20 480 pages of 4 KB, or 40 of 2 MB and their borders.

    One of a few tasks may be the first to find no room between arrays of earlier tests.
    """
    if not any(client.run(keep_freed_memory).values()):
        pytest.skip("another C library, or a user's own choice")
    asked = [Cluster(client).map(page_faults, [4], name="pages")[0] for _ in range(3)]
    assert min(Cluster(client).results(asked)) < 20
    assert min(client.run(malloc.resident_bytes).values()) > 1e7


def faults_under_limit(limit):
    """The same for arrays of 30 MB under a memory limit."""
    malloc.keep_freed_memory.__wrapped__(limit)
    return page_faults(30)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_large_arrays_return_at_once_where_memory_is_short():
    """Dask writes results to disk until memory falls: arrays of 2 MB of a limit of 256 MB.

    In a process of its own, since an array takes room that earlier ones have left.
    """
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("another C library")
    code = "from tests.blocks.test_malloc import faults_under_limit as faults; print("
    code += "faults(1 << 28), faults(1 << 34))"
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    environment.pop("MALLOC_MMAP_THRESHOLD_", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    short, enough = map(int, done.stdout.split())
    assert enough < 20
    assert short >= 40


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_memory_is_returned_once_much_is_kept(monkeypatch):
    """Not at the first look after that, and not before it is more than the least since then."""
    sizes = iter([10, 400, 300, 500, 701, 310, 100, 499, 501, 400])
    monkeypatch.setattr(malloc, "GROWTH_BYTES", 400)
    monkeypatch.setattr(malloc, "kept_bytes", lambda: next(sizes))
    returned, looks = malloc.Returned(), [False, True, False, True, False, False, True]
    assert [returned.after_task() for _ in looks] == looks


def test_less_is_kept_where_memory_is_short():
    assert malloc.growth_bytes(None) == malloc.growth_bytes(1e11) == malloc.GROWTH_BYTES
    assert malloc.growth_bytes(1.6e9) == 1e8


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_memory_in_use_is_not_kept():
    """Pages of arrays that are in use count as allocated, not as kept."""
    if not malloc.allocated_bytes():
        pytest.skip("a C library that does not tell")
    before = malloc.allocated_bytes(), malloc.kept_bytes()
    array = np.ones(1 << 23)
    assert malloc.allocated_bytes() >= before[0] + array.nbytes
    assert malloc.kept_bytes() < before[1] + array.nbytes / 2


def test_a_process_that_dask_did_not_start_is_left_alone(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    assert not keep_freed_memory.__wrapped__()


def test_the_choice_of_a_user_stands(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    assert not keep_freed_memory.__wrapped__()
