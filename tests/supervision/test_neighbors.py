"""Neighbours under several metrics against plain loops, and the vote."""

import numpy as np
import pytest

from nearfar.supervision import neighbors
from nearfar.supervision.neighbors import merged, nearest_under, vote, votes_of


def nearest_by_loops(X, points, components, metric_of, k):
    """D(a, b) = ‖L_c (a − b)‖², c the metric of b; equal distances in the order of the rows."""
    table = []
    for x in X.astype(np.float64):
        squares = [
            float(np.sum((components[metric_of[j]] @ (x - points[j])) ** 2))
            for j in range(len(points))
        ]
        table.append(sorted(range(len(points)), key=lambda j: squares[j])[:k])
    return np.array(table)


@pytest.fixture
def several(rng, dtype):
    """Queries, points and three metrics of two rows on three features."""
    X, points = rng.normal(size=(17, 3)).astype(dtype), rng.normal(size=(40, 3)).astype(dtype)
    return X, points, rng.normal(size=(3, 2, 3)), rng.integers(3, size=40)


@pytest.mark.parametrize("k", [1, 4, 40])
def test_each_point_is_measured_by_its_own_metric(several, backend, k):
    X, points, components, metric_of = several
    found = nearest_under(
        backend.asarray(X), backend.asarray(points), components, backend.asarray(metric_of), k
    )
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, nearest_by_loops(X, points, components, metric_of, k))


def test_the_metric_of_the_neighbour_counts_not_that_of_the_query():
    """From 0 to the points 3 and −4: 3 under the metric 1, and 4 · ½ = 2 under the metric ½."""
    found = nearest_under(
        np.array([[0.0]]), np.array([[3.0], [-4.0]]), np.array([[[1.0]], [[0.5]]]), [0, 1], 2
    )
    assert found.tolist() == [[1, 0]]


def test_a_metric_without_points_is_left_out(several):
    X, points, components, metric_of = several
    metric_of = np.where(metric_of == 1, 0, metric_of)
    np.testing.assert_array_equal(
        nearest_under(X, points, components, metric_of, 5),
        nearest_by_loops(X, points, components, metric_of, 5),
    )


def test_parts_merge_by_distance_and_equals_by_row():
    """Rows 4 and 1 are as near as each other, and row 1 comes first though its part is second."""
    first = (np.array([4, 6]), (np.array([[0, 1]]), np.array([[2.0, 5.0]])))
    second = (np.array([1, 3]), (np.array([[1, 0]]), np.array([[1.0, 2.0]])))
    near, squares = merged([first, second], 3)
    assert near.tolist() == [[3, 1, 4]]
    assert squares.tolist() == [[1.0, 2.0, 2.0]]


# -- the vote ---


def test_votes_are_counted():
    assert votes_of(np.array([[2, 0, 2], [1, 1, 1]]), 4).tolist() == [[1, 0, 2, 0], [0, 3, 0, 0]]


def test_the_farthest_votes_are_dropped_until_the_tie_breaks():
    """b c c a a b: all tie, then c and a, then c leads."""
    nearest = np.array([1, 2, 2, 0, 0, 1])
    winners = [vote(nearest[None, :k], 3)[0] for k in range(1, 7)]
    assert winners == [1, 1, 2, 2, 2, 2]


def test_blocks_give_the_same_as_the_whole(monkeypatch, rng):
    nearest = rng.integers(4, size=(101, 6))
    whole = vote(nearest, 4)
    monkeypatch.setattr(neighbors, "BLOCK_ENTRIES", 4 * 10)
    np.testing.assert_array_equal(vote(nearest, 4), whole)


def test_nobody_votes():
    assert vote(np.empty((0, 3), dtype=np.intp), 2).shape == (0,)
