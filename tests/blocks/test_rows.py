"""Rows in blocks: the same values, sizes and sums, wherever they are computed."""

from itertools import pairwise

import numpy as np
import pytest

from nearfar.blocks import Blocks, is_dask, rows
from nearfar.blocks.cells import cell_order
from nearfar.blocks.engine import FAN_IN, Cluster, Threads, rounds
from nearfar.blocks.rows import BLOCK_ROWS, BLOCKS, block_starts
from nearfar.errors import InvalidInputError, MemoryLimitError
from nearfar.limits import memory_limit

da = pytest.importorskip("dask.array")


def column_sums(block, offset, L):
    return (block @ L.T).sum(0) + offset


def with_rows(head, block, item, first, scale):
    return [*head, (first, item, scale * float(block.sum()))]


@pytest.fixture(params=["threads", "cluster"])
def engine(request):
    """The kind of engine; the current client decides."""
    if request.param == "cluster":
        request.getfixturevalue("client")
        return Cluster
    return Threads


@pytest.fixture
def X(rng):
    return rng.normal(size=(9 * BLOCK_ROWS, 5))


def test_what_is_dask(X):
    assert is_dask(da.from_array(X))
    assert not is_dask(X)
    assert not is_dask(None)


@pytest.mark.parametrize("chunks", [(700, 2), (4 * BLOCK_ROWS, 5)])
def test_rows_in_any_order_from_any_chunks(engine, X, rng, chunks):
    order = rng.permutation(len(X))[:-3]
    blocks = Blocks.of(da.from_array(X, chunks=chunks), order)
    assert isinstance(blocks.engine, engine)
    assert blocks.shape == (len(order), 5)
    found = blocks.engine.results(blocks.parts)
    np.testing.assert_array_equal(np.concatenate(found), X[order])
    np.testing.assert_array_equal(blocks.take(np.array([9, 4000, 1])), X[order][[9, 4000, 1]])


@pytest.mark.usefixtures("engine")
def test_rows_in_another_order(X, rng):
    order = rng.permutation(len(X))
    blocks = Blocks.of(da.from_array(X, chunks=(1000, 5)))
    found = blocks.engine.results(blocks.reordered(order).parts)
    np.testing.assert_array_equal(np.concatenate(found), X[order])


def test_cells_hold_near_rows_and_are_sorted_by_class(rng):
    """Four groups far apart, of a quarter of the rows each, become the four blocks."""
    group = rng.permutation(np.repeat(np.arange(4), BLOCK_ROWS))
    X = (
        0.1 * rng.normal(size=(len(group), 3))
        + np.array([[0, 0, 0], [9, 0, 0], [0, 5, 0], [9, 5, 0]])[group]
    )
    codes = rng.integers(3, size=len(X))
    order = cell_order(Blocks.of(da.from_array(X, chunks=(1000, 3))), codes, np.eye(3))
    found = group[order].reshape(4, -1)
    assert sorted(order) == list(range(len(X)))
    assert (found == found[:, :1]).all()
    assert (np.diff(codes[order].reshape(4, -1), axis=1) >= 0).all()


def test_sizes_of_blocks_depend_on_shape_and_type_alone():
    assert len(block_starts((BLOCK_ROWS, 3), np.float64)) == 2
    assert len(block_starts((80_000, 3), np.float64)) == BLOCKS + 1
    wide = np.diff(block_starts((10**6, 1000), np.float32))
    assert wide.max() * 4000 <= 2**25
    assert wide.max() - wide.min() <= 1


def test_sums_do_not_depend_on_chunks_or_engine(client, X):
    L = np.arange(15.0).reshape(3, 5) / 7
    found = []
    for chunks in (300, 2000):
        blocks = Blocks.of(da.from_array(X, chunks=(chunks, 5)))
        offsets = list(range(len(blocks)))
        found.append(blocks.total(column_sums, offsets, name="sums", shared=(L,)))
    client.close()
    blocks = Blocks.of(da.from_array(X, chunks=(1000, 5)))
    found.append(blocks.total(column_sums, offsets, name="sums", shared=(L,)))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], (X @ L.T).sum(0) + sum(offsets))


@pytest.mark.usefixtures("engine")
def test_a_sum_of_many_is_a_sum_of_sums(X):
    blocks = Blocks.of(da.from_array(X, chunks=(1000, 5)))
    tasks = blocks.engine.map(float, range(2 * FAN_IN + 3), name="numbers")
    assert blocks.engine.total(tasks) == sum(range(2 * FAN_IN + 3))


@pytest.mark.usefixtures("engine")
def test_each_block_meets_all_others(X):
    blocks = Blocks.of(da.from_array(X, chunks=(1000, 5)))
    heads = blocks.engine.map(list, [()] * len(blocks), name="start")
    items = [7 * block for block in range(len(blocks))]
    folds = blocks.meet(with_rows, heads, name="meet", beside=items, shared=(2.0,))
    met = blocks.engine.results(folds)
    sums = [
        (int(a), item, 2 * float(X[a:b].sum()))
        for item, (a, b) in zip(items, pairwise(blocks.starts), strict=True)
    ]
    for head in met:
        assert sorted(head) == sums


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_rounds_hold_every_pair_once(n):
    every = [pair for some in rounds(n) for pair in some]
    assert sorted(every) == [(a, b) for a in range(n) for b in range(n)]
    halves = [tuple(sorted(pair)) for some in rounds(n, both=False) for pair in some]
    assert sorted(halves) == [(a, b) for a in range(n) for b in range(a, n)]
    for some in rounds(n):
        assert len({b for _, b in some}) == len(some)


@pytest.mark.usefixtures("engine")
def test_values_that_are_not_finite_are_an_error(X):
    X[[70, 3000], 1] = np.nan, np.inf
    with pytest.raises(InvalidInputError, match=r"row 70 does \(2 rows in all\)") as caught:
        Blocks.of(da.from_array(X, chunks=(1000, 5)))
    assert caught.value.indices.tolist() == [70, 3000]


def test_rows_that_are_not_finite_have_the_numbers_of_the_user():
    """Also if blocks are in another order, such as that of the classes."""
    X = np.zeros((90, 2))
    X[[60, 7], 1] = np.nan
    order = np.argsort(np.arange(90) % 3, kind="stable")
    with pytest.raises(InvalidInputError, match=r"row 7 does \(2 rows in all\)") as caught:
        Blocks.of(da.from_array(X, chunks=(40, 2)), order)
    np.testing.assert_array_equal(caught.value.indices, [7, 60])


def test_threads_need_memory_for_the_rows_that_are_asked_for(X):
    array, some = da.from_array(X, chunks=(1000, 5)), np.arange(0, len(X), 100)
    with memory_limit(40e-9 * len(some)):
        assert Blocks.of(array, some).shape == (len(some), 5)
        with pytest.raises(MemoryLimitError, match="to hold 4608 rows of 5 features"):
            Blocks.of(array)


def outer_sums(block, item):
    return block.T @ block, item


def test_sums_of_large_results_grow_block_by_block(engine, rng, monkeypatch):
    """Of 14 blocks in four lanes; sums of small integers are exact in any order."""
    monkeypatch.setattr(rows, "BLOCK_BYTES", 8 * 5 * 20)
    X = rng.integers(-9, 9, size=(280, 5)).astype(float)
    blocks = Blocks.of(da.from_array(X, chunks=(90, 5)))
    assert isinstance(blocks.engine, engine)
    assert len(blocks) == 14 > rows.LANES
    products, count = blocks.folded(outer_sums, list(range(14)), name="sums")
    np.testing.assert_array_equal(products, X.T @ X)
    assert count == 13 * 14 // 2
