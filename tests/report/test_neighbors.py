"""Neighbours before and after, against plain loops."""

import numpy as np
import pytest

from nearfar import MultiMetricLMNN
from nearfar.analysis.neighbors import nearest_rows
from nearfar.analysis.study import study


def by_loops(points, queries, voters, k):
    found = []
    for q in queries:
        squares = [(((points[q] - points[v]) ** 2).sum(), v) for v in voters if v != q]
        order = sorted(range(len(squares)), key=lambda i: squares[i][0])[:k]
        found.append([squares[i][1] for i in order])
    return np.array(found)


@pytest.mark.parametrize("k", [1, 4])
def test_neighbors_are_the_nearest_voters_but_oneself(rng, k):
    points = rng.normal(size=(40, 3))
    voters = rng.permutation(40)[:25]
    queries = np.array([voters[3], voters[0], *np.setdiff1d(np.arange(40), voters)[:5]])
    found = nearest_rows(points, queries, voters, k)
    np.testing.assert_array_equal(found.rows, by_loops(points, queries, voters, k))
    apart = np.linalg.norm(points[queries][:, None] - points[found.rows], axis=2)
    np.testing.assert_allclose(found.distances, apart, rtol=1e-6)


def test_a_copy_of_a_row_is_its_neighbor_but_it_itself_is_not():
    """Rows 0, 1 and 2 coincide; the farthest, 3, is the only other."""
    points = np.array([[0.0], [0.0], [0.0], [5.0]])
    found = nearest_rows(points, np.array([2, 0]), np.arange(4), 2)
    assert found.rows.tolist() == [[0, 1], [1, 2]]
    assert not found.distances.any()


def test_fewer_voters_than_asked_for_are_all_there_are(rng):
    points = rng.normal(size=(5, 2))
    assert nearest_rows(points, np.arange(5), np.arange(5), 9).rows.shape == (5, 4)


def test_several_metrics_measure_by_that_of_the_neighbor(wine_report_example):
    """D(a, b) = ‖L_c (a − b)‖, c the class of b."""
    given = wine_report_example
    X, y = given.X / given.X.std(axis=0), given.y
    model = MultiMetricLMNN(max_iter=5, tol=10.0).fit(X, y)
    subject = study(model, X, y)
    queries = np.array([0, 70, 177])
    found = subject.neighbors(queries, 3)[1]
    for q, rows, distances in zip(queries, found.rows, found.distances, strict=True):
        apart = [np.linalg.norm(model.components_[y[b]] @ (X[q] - X[b])) for b in range(len(X))]
        apart[q] = np.inf
        np.testing.assert_array_equal(rows, np.argsort(apart)[:3])
        np.testing.assert_allclose(distances, np.sort(apart)[:3], rtol=1e-6)


def test_several_metrics_tell_nothing_without_labels(wine_report_example):
    given = wine_report_example
    X = given.X / given.X.std(axis=0)
    model = MultiMetricLMNN(max_iter=5, tol=10.0).fit(X, given.y)
    assert study(model, X).neighbors(np.arange(3), 3)[1] is None
