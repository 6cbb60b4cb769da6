"""The nearest others by blocks: they equal those of plain loops, whatever the blocks."""

import numpy as np
import pytest

from nearfar.kernels import near_blocks, numpy_neighbors, on_numpy, parallel, reference, slabs


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Few points make several blocks, and several parts of the work on them."""
    monkeypatch.setattr(near_blocks, "FEWEST_POINTS", 1)
    monkeypatch.setattr(near_blocks, "WORTHWHILE", 1.0)
    monkeypatch.setattr(near_blocks, "BLOCK_SIZE", 0.7)
    monkeypatch.setattr(near_blocks, "SAMPLE", 7)
    monkeypatch.setattr(near_blocks, "MOST_FOUND", 40)
    monkeypatch.setattr(near_blocks, "GATHER_BYTES", 0)  # the least, 64 rows
    monkeypatch.setattr(slabs, "MASK_BYTES", 500)
    monkeypatch.setattr(slabs, "PRODUCT_ENTRIES", 50)


def nearest_others(X, k):
    return near_blocks.pruned_nearest_others(X, k, parallel.in_threads)


def by_loops(X, k):
    return reference.nearest_in_class(X, np.array([0, len(X)]), k)[1].reshape(len(X), k)


def clumps(rng, n, d):
    """Points around a few centres, so that whole blocks can be left out."""
    return 10 * rng.normal(size=(5, d))[rng.integers(5, size=n)] + rng.normal(size=(n, d))


@pytest.mark.parametrize("k", [1, 4, 59])
@pytest.mark.parametrize("d", [1, 6, 20])
def test_equals_loops(rng, dtype, k, d):
    X = clumps(rng, 60, d).astype(dtype)
    np.testing.assert_array_equal(nearest_others(X, k), by_loops(X, k))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: np.round(X, 2) + 1e6,
        lambda X: np.where(np.arange(len(X))[:, None] % 3, X, X[0]),
        lambda X: np.where(np.arange(len(X))[:, None] == 7, 1e6, X),
        lambda X: np.round(X),
        lambda X: 1e-18 * X,
        np.zeros_like,
    ],
    ids=["far away", "copies", "outlier", "ties", "tiny", "all equal"],
)
def test_equals_loops_on_odd_points(rng, dtype, spoil):
    X = spoil(clumps(rng, 60, 4)).astype(dtype)
    found, expected = nearest_others(X, 3), by_loops(X, 3)
    np.testing.assert_array_equal(found, expected)


def test_points_of_small_blocks(rng):
    """Outliers far from each other are alone in their blocks, some with fewer than k + 1 points."""
    X = np.vstack([rng.normal(size=(50, 3)), 100 * rng.normal(size=(12, 3))])
    found = nearest_others(X, 3)
    np.testing.assert_array_equal(found, by_loops(X, 3))


def test_whole_blocks_are_left_out(rng, monkeypatch):
    """Of five clumps far from each other, only pairs of the same one are compared."""
    X, compared = clumps(rng, 200, 4), []
    X[:, 0] += 1000 * (np.arange(200) % 5)
    near = slabs.Pairs.near

    def counted(self, b, mask):
        compared.append(int(mask.sum()) * (self.blocks.rows(b).stop - self.blocks.rows(b).start))
        return near(self, b, mask)

    monkeypatch.setattr(slabs.Pairs, "near", counted)
    np.testing.assert_array_equal(nearest_others(X, 3), by_loops(X, 3))
    assert sum(compared) < 200**2 / 5


def test_comparing_all_is_left_to_others(rng, monkeypatch):
    """In many dimensions without structure, blocks exclude nothing."""
    monkeypatch.setattr(near_blocks, "WORTHWHILE", 0.4)
    assert nearest_others(rng.normal(size=(300, 40)), 3) is None
    assert nearest_others(np.full((60, 2), 1e200) * rng.normal(size=(60, 2)), 3) is None


def test_classes_of_the_kernel(rng, dtype, monkeypatch):
    """`nearest_in_class` uses blocks for large classes, and equals the loops in all."""
    X, starts = clumps(rng, 100, 20).astype(dtype), np.array([0, 2, 60, 100])
    used = []

    def counted(points, k, in_threads):
        used.append(len(points))
        return near_blocks.pruned_nearest_others(points, k, in_threads)

    monkeypatch.setattr(numpy_neighbors, "pruned_nearest_others", counted)
    for found, expected in zip(
        on_numpy.nearest_in_class(X, starts, 3),
        reference.nearest_in_class(X, starts, 3),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    assert used == [2, 58, 40]
