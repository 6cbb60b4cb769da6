"""Labels of all kinds as an order of the rows, and what is said of those that cannot be used."""

import numpy as np
import pandas as pd
import pytest

from nearfar.errors import DataWarning, InvalidInputError
from nearfar.supervision import class_order
from nearfar.supervision.labels import check_class_sizes


@pytest.mark.parametrize(
    "y",
    [
        ["b", "a", "b", "c", "a"],
        [2, 1, 2, 7, 1],
        [-1.0, -2.0, -1.0, 0.0, -2.0],
        np.array([b"b"]).astype(str).repeat(5) + np.array(["1", "0", "1", "2", "0"]),
        np.array(["b", "a", "b", "c", "a"], dtype=object),
        pd.Series(["b", "a", "b", "c", "a"], dtype="category"),
        pd.Series(["b", "a", "b", "c", "a"], dtype="string"),
        pd.Series([2, 1, 2, 7, 1], dtype="Int64"),
    ],
    ids=["list", "int", "whole float", "str", "object", "category", "string", "Int64"],
)
def test_rows_are_sorted_by_class_and_then_by_position(y):
    """The smaller label is at rows 1 and 4, the next at 0 and 2, the largest at 3."""
    labels = class_order(y, "LMNN")
    np.testing.assert_array_equal(labels.codes, [1, 0, 1, 2, 0])
    np.testing.assert_array_equal(labels.order, [1, 4, 0, 2, 3])
    np.testing.assert_array_equal(labels.starts, [0, 2, 4, 5])
    np.testing.assert_array_equal(labels.sizes, [2, 2, 1])
    np.testing.assert_array_equal(labels.classes[labels.codes], np.asarray(y))


def test_booleans():
    labels = class_order([True, False, True], "LMNN")
    assert labels.classes.tolist() == [False, True]
    np.testing.assert_array_equal(labels.order, [1, 0, 2])


def test_random_labels(rng):
    y = rng.integers(7, size=100)
    labels = class_order(y, "LMNN")
    sorted_labels = y[labels.order]
    assert (np.diff(sorted_labels) >= 0).all()
    for number, value in enumerate(labels.classes):
        rows = labels.order[labels.starts[number] : labels.starts[number + 1]]
        np.testing.assert_array_equal(rows, np.flatnonzero(y == value))


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", None, "b", None], dtype=object),
        np.array(["a", np.nan, "b", np.nan], dtype=object),
        pd.Series(["a", None, "b", None], dtype="category"),
        pd.Series(["a", None, "b", None], dtype="string"),
        [1.0, np.nan, 2.0, np.inf],
    ],
    ids=["none", "nan", "category", "string", "float"],
)
def test_missing_labels_are_named(y):
    with pytest.raises(
        InvalidInputError, match=r"label for every row.* row 1 \(2 in all\)"
    ) as info:
        class_order(y, "LMNN")
    np.testing.assert_array_equal(info.value.indices, [1, 3])


@pytest.mark.parametrize("y", [[1, "a", 2], ["a", 1, "b"]], ids=str)
def test_labels_of_two_kinds_are_refused(y):
    with pytest.raises(InvalidInputError, match=r"one kind; y mixes int and str\. Convert"):
        class_order(np.array(y, dtype=object), "LMNN")


def test_continuous_labels_are_refused():
    with pytest.raises(ValueError, match="continuous"):
        class_order([0.5, 1.5, 0.5], "LMNN")


# -- sizes ---


def sized(*sizes):
    return class_order(np.repeat(list("abcdefgh")[: len(sizes)], sizes), "LMNN")


def test_classes_of_more_than_n_neighbors_are_fine():
    check_class_sizes(sized(4, 5), 3, "LMNN")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((5,), r"LMNN needs at least two classes; y has 1 class, 'a'\. Add rows"),
        ((1, 1, 1), r"LMNN needs a class with two or more members; every class has 1 member"),
    ],
)
def test_nothing_to_learn(sizes, message):
    with pytest.raises(InvalidInputError, match=message):
        check_class_sizes(sized(*sizes), 3, "LMNN")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((5, 1), r"class 'b' has 1 member: .* impostor only\. Add rows or drop"),
        ((1, 5, 1), r"classes 'a', 'c' have 1 member"),
        ((5, 1, 1, 1, 1, 1, 1), r"classes 'b', 'c', 'd', 'e', 'f', … have 1 member"),
        (
            (5, 3),
            r"class 'b' has fewer than n_neighbors \+ 1 = 4 members: its points .* as few as 2\W",
        ),
        ((2, 3, 9), r"classes 'a', 'b' have fewer than n_neighbors \+ 1 = 4.* as few as 1\W"),
        ((2, 3, 9), r"members: points of such a class get fewer target neighbours"),
    ],
)
def test_small_classes_are_named(sizes, message):
    with pytest.warns(DataWarning, match=message) as caught:
        check_class_sizes(sized(*sizes), 3, "LMNN")
    assert len(caught) == 1


def test_a_single_and_a_small_class_are_two_warnings():
    with pytest.warns(DataWarning) as caught:
        check_class_sizes(sized(5, 1, 3), 3, "LMNN")
    assert len(caught) == 2


def test_given_targets_need_no_class_size():
    check_class_sizes(sized(2, 3), None, "LMNN")
