"""Quadruplets: drawn from labels, and their pairs."""

import numpy as np
import pytest

from nearfar import Tuples, make_quadruplets
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.supervision.quadruplets import comparisons


@pytest.fixture
def data(rng):
    return rng.normal(size=(12, 3)), np.repeat([0, 1, 2], 4)


def test_a_pair_of_a_class_and_a_pair_of_two(data):
    X, y = data
    found = make_quadruplets(X, y, 200, random_state=0)
    assert found.shape == (200, 4, 3)
    assert repr(found) == "<Tuples: 200 quadruplets of 12 points, 3 features>"
    a, b, c, d = y[found.indices].T
    assert (a == b).all()
    assert (c != d).all()
    assert (found.indices[:, 0] != found.indices[:, 1]).all()
    assert len(np.unique(found.indices, axis=0)) == 200
    again = make_quadruplets(X, y, 200, random_state=0)
    np.testing.assert_array_equal(found.indices, again.indices)


def test_all_of_them(data):
    """Three classes of four have 3 · 6 near and 3 · 16 far pairs."""
    assert len(make_quadruplets(*data, random_state=0)) == 18 * 48


def test_equal_points_are_left_out(data):
    X, y = data
    X[1] = X[0]
    assert len(make_quadruplets(X, y, random_state=0)) == 17 * 48


def test_a_number_that_is_none_is_an_error(data):
    with pytest.raises(InvalidInputError, match="n_quadruplets must be an integer of at least 1"):
        make_quadruplets(*data, 0)


def test_near_pairs_come_first(data):
    X, _ = data
    heads, tails = comparisons(X, np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), "LSML")
    np.testing.assert_array_equal(heads, [0, 4, 2, 6])
    np.testing.assert_array_equal(tails, [1, 5, 3, 7])
    heads, tails = comparisons(X, np.array([[0, 1, 2]]), "LSML")
    np.testing.assert_array_equal(heads, [0, 0])
    np.testing.assert_array_equal(tails, [1, 2])


def test_pairs_of_equal_points_are_left_out_with_a_warning(data):
    X, _ = data
    X[1] = X[0]
    rows = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [2, 3, 1, 0]])
    with pytest.warns(DataWarning, match=r"a pair of equal points are left out.*: number 0 \(2 in"):
        heads, _ = comparisons(X, rows, "LSML")
    np.testing.assert_array_equal(heads, [4, 6])
    with pytest.raises(InvalidInputError, match="LSML needs quadruplets of two pairs of different"):
        comparisons(X, rows[:1], "LSML")


def test_tuples_of_four_are_taken_apart(data):
    X, _ = data
    tuples = Tuples(X, [[0, 1, 2, 3], [4, 5, 6, 7]])
    np.testing.assert_array_equal(tuples.dense(), X[tuples.indices])
    assert tuples[1:].shape == (1, 4, 3)
