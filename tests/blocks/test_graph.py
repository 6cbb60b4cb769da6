"""The neighbourhood graph of a Dask array is that of the rows in memory."""

import os
import signal

import dask.array as da
import numpy as np
import pytest

from nearfar import NeighborhoodGraph
from nearfar.blocks import LazyRows
from nearfar.errors import InvalidInputError, MemoryLimitError
from nearfar.graphs import block_distances
from nearfar.graphs.block_distances import BlockDistances
from nearfar.limits import memory_limit
from tests.blocks.arrays import untouchable

FIELDS = ("heads", "tails", "lengths", "directions")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 100)


def lazy(X, size=130):
    return da.from_array(X, chunks=(size, 2))


def assert_same(found, expected):
    assert found.n_nodes == expected.n_nodes
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))


@pytest.mark.parametrize(
    ("n", "d", "dtype", "options"),
    [
        (600, 3, np.float64, {}),
        (4100, 3, np.float32, {"n_neighbors": 6, "angles": False}),  # blocks large enough for trees
        (600, 20, np.float32, {"n_neighbors": 3}),
        (600, 3, np.int64, {"n_neighbors": 5, "radius": 3.0}),
    ],
)
def test_edges_and_lengths_are_those_in_memory(rng, n, d, dtype, options):
    X = (7 * rng.normal(size=(n, d))).astype(dtype)
    if dtype == np.int64:  # distances without ties, which are searched in another order
        X = 1000 * X + rng.integers(1000, size=X.shape)
        options = options | {"radius": 1000 * options["radius"]}
    found = NeighborhoodGraph.from_points(lazy(X), **options)
    assert_same(found, NeighborhoodGraph.from_points(X, **options))
    assert isinstance(found.points, da.Array)


@pytest.mark.parametrize("scale", [1.0, 2.0**-400, 2.0**400])
def test_copies_of_a_point_are_joined_to_the_first(rng, scale):
    """In other blocks, more than there are neighbours, and a block of nothing else."""
    X = rng.normal(size=(800, 3))
    X[100:130] = X[:30]
    X[200:300] = X[17]
    X[400:405], X[700] = 0.0, -0.0
    expected = NeighborhoodGraph.from_points(scale * X, 5)
    found = NeighborhoodGraph.from_points(lazy(scale * X), 5)
    assert_same(found, expected)
    assert found.report().n_duplicates == 30 + 100 + 5
    rows, merged = found.merged()
    np.testing.assert_array_equal(rows, expected.merged()[0])
    np.testing.assert_array_equal(merged.points.on_this_machine(), expected.merged()[1].points)


def test_rows_with_equal_hashes_are_compared(rng, monkeypatch):
    monkeypatch.setattr(block_distances, "_keys", lambda block: np.zeros(len(block), np.uint64))
    X = rng.integers(3, size=(300, 2)).astype(float)
    firsts = [int((row == X).all(axis=1).argmax()) for row in X]
    np.testing.assert_array_equal(BlockDistances.of(lazy(X)).firsts, firsts)


@pytest.mark.parametrize("seed", [0, 1])
def test_components_are_linked_by_the_same_edges(rng, seed):
    X = rng.normal(size=(600, 4))
    X[:90] += 50
    X[300:340] -= 50
    X[340:347] += 20
    expected = NeighborhoodGraph.from_points(X, 5)
    found = NeighborhoodGraph.from_points(lazy(X), 5)
    assert len(found.component_sizes()) == 4
    assert_same(found.linked(random_state=seed), expected.linked(random_state=seed))


def test_angles_and_parts_of_a_graph_know_their_rows(rng):
    X = rng.normal(size=(600, 3))
    X[::2] += 50
    found = NeighborhoodGraph.from_points(lazy(X), 4, angles=False)
    assert_same(found.with_angles(), NeighborhoodGraph.from_points(X, 4))
    for rows, part in found.separated():
        assert isinstance(part.points, LazyRows)
        assert part.points.shape == (300, 3)
        np.testing.assert_array_equal(part.points.on_this_machine(), X[rows])
        with pytest.raises(InvalidInputError, match="must be in memory here"):
            np.asarray(part.points)
        assert_same(NeighborhoodGraph.from_points(part.points, 4, angles=False), part)


def test_what_cannot_be_is_refused_before_anything_is_computed():
    X = untouchable((4000, 3))
    with pytest.raises(InvalidInputError, match="n_neighbors=4000 needs at least 4001 points"):
        NeighborhoodGraph.from_points(X, 4000)
    with pytest.raises(InvalidInputError, match="Give n_neighbors, too"):
        NeighborhoodGraph.from_points(X, radius=1.0)
    with memory_limit(0.005), pytest.raises(MemoryLimitError, match="up to 15 edges each"):
        NeighborhoodGraph.from_points(X, 5)
    with pytest.raises(InvalidInputError, match="at least 2 points; got n_samples=1"):
        NeighborhoodGraph.from_points(untouchable((1, 3)))
    with pytest.raises(AssertionError, match="a block was computed"):
        NeighborhoodGraph.from_points(X, 5)


def test_what_is_wrong_with_the_rows_is_told(rng):
    X = np.repeat(rng.normal(size=(4, 2)), 90, axis=0)
    with pytest.raises(InvalidInputError, match="n_neighbors=4 needs at least 5 different points"):
        NeighborhoodGraph.from_points(lazy(X), 4)
    with pytest.raises(InvalidInputError, match="points that differ; all 360 are equal"):
        NeighborhoodGraph.from_points(lazy(0 * X), 4)
    X[200, 1] = np.nan
    with pytest.raises(InvalidInputError, match="NaN or infinity; row 200 does") as caught:
        NeighborhoodGraph.from_points(lazy(X), 2)
    assert caught.value.indices.tolist() == [200]


def test_a_killed_worker_changes_nothing(client_to_lose, rng, monkeypatch):
    """One of two is killed between the search of neighbours and the lengths of edges."""
    X = rng.normal(size=(900, 3))
    expected = NeighborhoodGraph.from_points(lazy(X), 5)
    before, lengths = set(client_to_lose.run(os.getpid).values()), BlockDistances.lengths

    def killing(self, heads, tails):
        monkeypatch.undo()
        os.kill(min(before), signal.SIGKILL)
        return lengths(self, heads, tails)

    monkeypatch.setattr(BlockDistances, "lengths", killing)
    monkeypatch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 100)
    assert_same(NeighborhoodGraph.from_points(lazy(X), 5), expected)
    client_to_lose.wait_for_workers(2)
    assert set(client_to_lose.run(os.getpid).values()) != before


@pytest.mark.torch
def test_blocks_of_tensors(rng):
    torch = pytest.importorskip("torch")
    X = rng.normal(size=(500, 3))
    X[300:310] = X[:10]
    X[400:] += 50
    tensors = lazy(X).rechunk({1: -1}).map_blocks(torch.as_tensor, meta=np.empty((0, 0)))
    found = NeighborhoodGraph.from_points(tensors, 5).linked(random_state=0)
    expected = NeighborhoodGraph.from_points(torch.as_tensor(X), 5)
    assert_same(found, expected.linked(random_state=0))
