"""What tasks get: arrays as NumPy makes them, wherever they were before."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nearfar.blocks.engine import HELD, Cluster, Sized, Threads, aligned, run_task
from nearfar.kernels import on_numpy


@dataclass(frozen=True)
class Holder:
    array: Any


class Large(Sized):
    def __init__(self, array):
        self.array = array


Pair = namedtuple("Pair", ["array", "number"])


def displaced(x):
    """A copy whose entries lie between multiples of their size."""
    memory = np.empty(x.nbytes + 1, dtype=np.uint8)
    first = 1 if memory.ctypes.data % x.itemsize == 0 else 0
    found = np.ndarray(x.shape, x.dtype, buffer=memory.data, offset=first)
    found[...] = x
    assert not found.flags.aligned
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tasks_on_arrays_that_dask_has_displaced_have_the_same_bits(rng, dtype):
    x = rng.normal(size=(1000, 13)).astype(dtype)
    expected, moved = on_numpy.gram(x, x), displaced(x)
    assert (on_numpy.gram(moved, moved) != expected).any()  # else nothing is tested here
    np.testing.assert_array_equal(run_task(lambda y: on_numpy.gram(y, y), moved), expected)


@pytest.mark.parametrize(
    ("held", "array_of"),
    [
        (lambda x: x, lambda value: value),
        (lambda x: [1, (x, "a")], lambda value: value[1][0]),
        (lambda x: {"x": x}, lambda value: value["x"]),
        (Holder, lambda value: value.array),
        (Large, lambda value: value.array),
        (lambda x: Pair(x, 3), lambda value: value.array),
        (lambda x: Holder([Holder(x)]), lambda value: value.array[0].array),
    ],
)
def test_arrays_are_found_in_what_holds_them(rng, held, array_of):
    x = rng.normal(size=(7, 3))
    value = held(displaced(x))
    found = aligned(value)
    assert type(found) is type(value)
    assert array_of(found).flags.aligned
    np.testing.assert_array_equal(array_of(found), x)


def test_the_order_of_entries_is_kept(rng):
    """Else another routine would multiply them."""
    columns = displaced(rng.normal(size=(7, 3))).T
    assert aligned(columns).flags.f_contiguous
    assert not aligned(columns).flags.c_contiguous


def test_arrays_as_numpy_makes_them_are_not_copied(rng):
    x = rng.normal(size=(7, 3))
    assert aligned([Holder(x)])[0].array is x
    assert aligned(Holder) is Holder


def displaced_rows(seed):
    return displaced(np.random.default_rng(seed).normal(size=(1000, 13)))


def is_aligned(x):
    return x.flags.aligned


def test_tasks_and_results_of_a_cluster_are_aligned(client):
    engine = Cluster(client)
    rows = engine.map(displaced_rows, range(6), name="rows")
    assert all(engine.results(engine.map(is_aligned, rows, name="aligned")))
    assert all(found.flags.aligned for found in engine.results(rows))


def test_results_are_spread_over_workers(client):
    engine = Cluster(client)
    first, *_ = client.nthreads()
    crowded = client.map(displaced_rows, range(8), workers=[first], pure=False)
    spread = engine.spread(crowded)
    for found, expected in zip(engine.results(spread), engine.results(crowded), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len({name for task in spread for name in client.who_has([task])[task.key]}) == 2


def test_results_whose_workers_are_gone_stay_where_dask_makes_them_again(client, monkeypatch):
    engine = Cluster(client)
    tasks = engine.map(displaced_rows, range(18), name="rows")
    monkeypatch.setattr(client, "nthreads", lambda: {"tcp://gone:1": 1, "tcp://gone:2": 8})
    assert engine.spread(tasks) == tasks


def test_results_that_are_spread_on_threads_are_the_same():
    engine = Threads()
    tasks = engine.map(displaced_rows, range(3), name="rows")
    assert engine.spread(tasks) == tasks


def test_small_results_that_were_fetched_are_freed_together(client):
    engine = Cluster(client)
    for _ in range(HELD):
        engine.results(engine.map(is_aligned, [np.ones(3)], name="aligned"))
    assert len(engine._held) == HELD
    engine.results(engine.map(is_aligned, [np.ones(3)], name="aligned"))
    assert not engine._held


def test_nothing_is_sent_for_no_items(client):
    assert Cluster(client).map(is_aligned, [], name="aligned") == []
