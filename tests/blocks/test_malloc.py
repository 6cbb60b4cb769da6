"""Workers use freed memory again, though Dask asks for its return."""

import sys

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
    """Twenty arrays of 4 MB would be 20 480 pages of 4 KB, or 40 of 2 MB and their borders."""
    if not any(client.run(keep_freed_memory).values()):
        pytest.skip("another C library, or a user's own choice")
    asked = Cluster(client).map(page_faults, [4], name="pages")
    assert Cluster(client).results(asked)[0] < 20
    assert min(client.run(malloc.resident_bytes).values()) > 1e7


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_memory_is_returned_once_a_process_has_grown(monkeypatch):
    """Not at the first look after that, and not before it has grown again."""
    sizes = iter([10, 400, 300, 500, 701, 310])
    monkeypatch.setattr(malloc, "GROWTH_BYTES", 400)
    monkeypatch.setattr(malloc, "resident_bytes", lambda: next(sizes))
    returned = malloc.Returned()
    assert [returned.after_task() for _ in range(4)] == [False, True, False, True]


def test_a_process_that_dask_did_not_start_is_left_alone(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    assert not keep_freed_memory.__wrapped__()


def test_the_choice_of_a_user_stands(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    assert not keep_freed_memory.__wrapped__()
