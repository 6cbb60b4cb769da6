"""Trees find what products find, and are built where they pay."""

import numpy as np
import pytest

from nearfar.kernels import search
from nearfar.kernels.search import TREES, Search


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


@pytest.mark.parametrize(
    ("n", "r", "expected"),
    [(1000, 10, "kd_tree"), (1000, 1, "kd_tree"), (999, 2, "brute"), (1200, 11, "brute")],
)
def test_a_tree_is_built_where_it_pays(n, r, expected):
    found = Search.of(np.zeros((n, r)))
    assert found.algorithm == expected
    assert isinstance(found.tree, TREES["kd_tree"]) == (expected == "kd_tree")


@pytest.mark.torch
def test_tensors_are_searched_on_their_device(torch, rng):
    points = torch.tensor(rng.normal(size=(1200, 2)))
    found = Search.of(points)
    assert found.algorithm == "brute"
    near, _ = found.nearest(points[:5], 1)
    assert near.ravel().tolist() == list(range(5))
