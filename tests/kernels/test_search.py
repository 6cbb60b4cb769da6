"""Trees find what products find, and the quickest is taken."""

import numpy as np
import pytest

from nearfar.kernels import search
from nearfar.kernels.search import ALGORITHMS, TREES, Search


@pytest.fixture
def points(rng, dtype):
    """Points on a coarse grid: many coincide, and many distances are equal."""
    return np.round(rng.normal(size=(300, 3))).astype(dtype)


@pytest.mark.parametrize("k", [1, 3, 300])
@pytest.mark.parametrize("name", TREES)
def test_a_tree_finds_the_same_rows(points, rng, name, k, monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 7)
    Q = np.concatenate([points[:20], rng.normal(size=(20, 3)).astype(points.dtype)])
    near, squares = Search.of(points, name).nearest(Q, k)
    expected, distances = Search(points).nearest(Q, k)
    np.testing.assert_array_equal(near, expected)
    np.testing.assert_array_equal(squares, distances)


@pytest.mark.parametrize("name", TREES)
def test_no_queries(points, name):
    near, squares = Search.of(points, name).nearest(points[:0], 3)
    assert near.shape == squares.shape == (0, 3)


@pytest.mark.parametrize("winner", ["brute", *TREES])
def test_the_quickest_on_a_few_points_is_taken(points, monkeypatch, winner):
    """Seconds are made up; the queries are a few of the points."""
    asked = []

    def seconds(self, queries, k):
        asked.append((self.algorithm, len(queries), k))
        return 0.0 if self.algorithm == winner else 1.0

    monkeypatch.setattr(search, "FEWEST_POINTS", 100)
    monkeypatch.setattr(Search, "_seconds", seconds)
    assert Search.of(points, "auto", 5).algorithm == winner
    assert {name for name, _, _ in asked} == {"brute", *TREES} == set(ALGORITHMS) - {"auto"}
    assert all(count <= search.TRIALS + 11 and k == 5 for _, count, k in asked)


def test_time_is_measured(points):
    assert Search(points)._seconds(points, 3) > 0


@pytest.mark.parametrize(("n", "r"), [(search.FEWEST_POINTS - 1, 2), (1200, 41)])
def test_no_tree_is_built_where_it_cannot_pay(monkeypatch, n, r):
    monkeypatch.setattr(search, "TREES", {})
    assert Search.of(np.zeros((n, r))).algorithm == "brute"


@pytest.mark.torch
def test_tensors_are_searched_on_their_device(torch, rng):
    points = torch.tensor(rng.normal(size=(1200, 2)))
    found = Search.of(points)
    assert found.algorithm == "brute"
    near, _ = found.nearest(points[:5], 1)
    assert near.ravel().tolist() == list(range(5))
