"""Tiles cover all pairs of different classes, each once."""

from itertools import product

import numpy as np
import pytest

from nearfar.kernels.tiles import cross_tiles, labels_of, unlike_tiles

LAYOUTS = [
    (1,),
    (7,),
    (1, 1),
    (3, 4),
    (20, 1, 1, 20),
    (1, 20, 1),
    (2,) * 9,
    (5, 5, 5),
    (0, 3, 0, 2),
]


@pytest.mark.parametrize("sizes", LAYOUTS, ids=str)
def test_each_unlike_pair_lies_in_one_tile(sizes):
    starts = np.cumsum([0, *sizes])
    labels = labels_of(starts)
    unlike = np.triu(labels[:, None] != labels)
    for size, most in product([1, 2, 3, 8, 100], [0, 7, 100]):
        visits = np.zeros((len(labels), len(labels)), dtype=int)
        for rows, columns in unlike_tiles(starts, size, most):
            assert 0 < rows.stop - rows.start <= size
            widest = size if rows == columns else max(size, most)
            assert 0 < columns.stop - columns.start <= widest
            assert rows == columns or rows.stop <= columns.start
            visits[rows, columns] += 1
        assert (visits[unlike] == 1).all(), (size, most)


def test_pairs_within_large_classes_are_not_visited():
    """Classes of 10, 3 and 9 with tiles of at most 5 rows: each border of a large class is a cut,
    so that 2 + 1 + 2 pieces hold one class each and 5 · 4 / 2 − 1 − 1 = 8 tiles are left."""
    tiles = list(unlike_tiles(np.array([0, 10, 13, 22]), 5))
    assert len(tiles) == 8
    labels = labels_of(np.array([0, 10, 13, 22]))
    for rows, columns in tiles:
        assert set(labels[rows]).isdisjoint(labels[columns])


def test_columns_of_several_pieces():
    """The same classes, 5 rows against 12 at most: each half of the first class meets all others at
    once, and no piece meets one of its own class."""
    tiles = list(unlike_tiles(np.array([0, 10, 13, 22]), 5, 12))
    ranges = [(rows.start, columns.start, columns.stop) for rows, columns in tiles]
    assert ranges == [(0, 10, 22), (5, 10, 22), (10, 13, 22)]


def test_labels_of():
    np.testing.assert_array_equal(labels_of(np.array([0, 2, 2, 3])), [0, 0, 2])


@pytest.mark.parametrize("sizes", LAYOUTS, ids=str)
@pytest.mark.parametrize("others", [(0, 6, 2), (3, 3, 0, 9), (1,)], ids=str)
@pytest.mark.parametrize("ascending", [True, False], ids=["ascending", "mixed"])
def test_each_unlike_pair_of_two_arrays_lies_in_one_tile(rng, sizes, others, ascending):
    labels, codes = (labels_of(np.cumsum([0, *counts])) for counts in (sizes, others))
    if not ascending:
        labels, codes = rng.permutation(labels), rng.permutation(codes)
    for size in (1, 2, 3, 8, 100):
        visits = np.zeros((len(labels), len(codes)), dtype=int)
        for rows, columns in cross_tiles(labels, codes, size):
            assert 0 < rows.stop - rows.start <= size
            assert 0 < columns.stop - columns.start <= size
            visits[rows, columns] += 1
        assert (visits[labels[:, None] != codes] == 1).all(), size
        assert (visits <= 1).all()


def test_pairs_of_two_arrays_within_large_classes_are_not_visited():
    """Pieces of 5, 5 and 4 rows against 5, 3 and 5, of classes 0 0 1 and 0 1 1: 2 + 2 + 1 tiles."""
    labels, others = np.repeat([0, 1], [10, 4]), np.repeat([0, 1], [5, 8])
    tiles = list(cross_tiles(labels, others, 5))
    assert len(tiles) == 5
    for rows, columns in tiles:
        assert set(labels[rows]).isdisjoint(others[columns])
