"""Target neighbours: the nearest of the class, or those the user names."""

import numpy as np
import pytest

from nearfar.errors import InvalidInputError
from nearfar.kernels import reference
from nearfar.supervision import class_order, given_targets, nearest_targets, target_table


def test_the_nearest_of_the_same_class(rng, backend, dtype):
    y = rng.integers(3, size=30)
    X = rng.normal(size=(30, 3)).astype(dtype)
    labels = class_order(y, "LMNN")
    X = X[labels.order]
    found = nearest_targets(backend.asarray(X), labels, 2)
    expected = reference.nearest_in_class(X, labels.starts, 2)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(backend.to_numpy(got), wanted)


Y = ["b", "a", "b", "a", "b"]  # in class order: rows 1 3 0 2 4


def test_a_table_of_the_nearest_of_the_class(rng, backend):
    """In the order of the rows, nearest first; the class of two has one neighbour for each."""
    Z, y = rng.normal(size=(32, 3)), np.append(np.arange(30) % 3, [7, 7])
    table = target_table(backend.asarray(Z), class_order(y, "LMNN"), 3)
    for i, found in enumerate(table[:30]):
        others = [j for j in range(30) if j != i and y[j] == y[i]]
        assert list(found) == sorted(others, key=lambda j: np.sum((Z[i] - Z[j]) ** 2))[:3]
    assert table[30:].tolist() == [[31, -1, -1], [30, -1, -1]]


def test_given_targets_are_moved_to_the_class_order(backend):
    """Rows 1 3 0 2 4 stand at 0 1 2 3 4. Row 0 names 4 and 2: edges 2→4, 2→3; row 3 names 1:
    edge 1→0; row 4 names 0: edge 4→2. Sorted by head, in the order given for each."""
    table = np.array([[4, 2], [-1, -1], [-1, -1], [1, -1], [-1, 0]])
    heads, tails = given_targets(table, class_order(Y, "LMNN"), backend.asarray(np.ones((5, 1))))
    np.testing.assert_array_equal(backend.to_numpy(heads), [1, 2, 2, 4])
    np.testing.assert_array_equal(backend.to_numpy(tails), [0, 4, 3, 2])


def test_targets_that_are_the_nearest_give_the_same_edges(rng):
    y = rng.integers(3, size=30)
    X = rng.normal(size=(30, 2))
    labels = class_order(y, "LMNN")
    heads, tails = reference.nearest_in_class(X[labels.order], labels.starts, 2)
    table = np.empty((30, 2), dtype=int)
    table[labels.order] = labels.order[tails].reshape(30, 2)
    for got, wanted in zip(given_targets(table, labels, X), (heads, tails), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64])
def test_any_integer_type_will_do(kind):
    table = np.array([[2], [3], [4], [1], [0]], dtype=kind)
    heads, tails = given_targets(table, class_order(Y, "LMNN"), np.ones((5, 1)))
    np.testing.assert_array_equal(heads, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(tails, [1, 0, 3, 4, 2])


FINE = [[2], [3], [0], [1], [0]]


@pytest.mark.parametrize(
    ("changes", "message", "rows"),
    [
        ({1: [5]}, r"row 1 names row numbers outside 0 … 4 \(1 in all\)", [1]),
        ({1: [-2], 3: [9]}, r"row 1 names row numbers outside 0 … 4 \(2 in all\)", [1, 3]),
        ({2: [2]}, "row 2 names the row itself", [2]),
        ({4: [1], 0: [3]}, r"row 0 names rows of another class \(2 in all\)", [0, 4]),
    ],
)
def test_wrong_rows_are_named(changes, message, rows):
    table = [changes.get(row, names) for row, names in enumerate(FINE)]
    with pytest.raises(InvalidInputError, match=message) as info:
        given_targets(np.array(table), class_order(Y, "LMNN"), np.ones((5, 1)))
    np.testing.assert_array_equal(info.value.indices, rows)
    assert "Correct them or set them to -1" in str(info.value)


def test_a_neighbour_named_twice():
    table = np.array([[2, 4, 2], [3, -1, -1], [0, 4, -1], [-1, -1, -1], [-1, -1, -1]])
    with pytest.raises(InvalidInputError, match="row 0 names the same row twice") as info:
        given_targets(table, class_order(Y, "LMNN"), np.ones((5, 1)))
    np.testing.assert_array_equal(info.value.indices, [0])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1, 2, 3, 4, 0], r"shape \(5, k\).* got shape \(5,\)"),
        ([[1], [2]], r"got shape \(2, 1\)"),
        ([[1.0]] * 5, r"got shape \(5, 1\) of float64\. Fill up with -1"),
        ([[-1]] * 5, "names no neighbour at all. Give at least one, or leave it out"),
    ],
)
def test_tables_that_are_none(table, message):
    with pytest.raises(InvalidInputError, match=message):
        given_targets(np.array(table), class_order(Y, "LMNN"), np.ones((5, 1)))
