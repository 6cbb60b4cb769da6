"""Pairs and triplets by row number."""

import copy
import pickle

import numpy as np
import pandas
import pytest
from sklearn.model_selection import KFold, train_test_split

from nearfar import Tuples
from nearfar.errors import InvalidInputError


@pytest.fixture
def points(rng, read_only):
    return read_only(rng.normal(size=(6, 3)))


@pytest.fixture
def pairs(points):
    return Tuples(points, [[0, 1], [2, 3], [4, 5], [5, 0]])


def test_looks_like_the_dense_array(points, pairs, dtype):
    indices = np.array([[0, 1], [2, 3], [4, 5], [5, 0]])
    assert pairs.shape == (4, 2, 3)
    assert pairs.ndim == 3
    assert len(pairs) == 4
    assert Tuples(points.astype(dtype), indices).dtype == dtype
    np.testing.assert_array_equal(pairs.dense(), points[indices])
    np.testing.assert_array_equal(np.asarray(pairs), points[indices])
    assert np.asarray(pairs, dtype=np.float32).dtype == np.float32
    assert repr(pairs) == "<Tuples: 4 pairs of 6 points, 3 features>"


def test_triplets(points):
    triplets = Tuples(points, [[0, 1, 2]])
    assert triplets.shape == (1, 3, 3)
    assert repr(triplets) == "<Tuples: 1 triplets of 6 points, 3 features>"


@pytest.mark.parametrize(
    "key",
    [
        slice(1, 3),
        [2, 0],
        np.array([True, False, False, True]),
        np.array([], dtype=int),
        (np.array([3, 1]), ...),
    ],
    ids=str,
)
def test_parts_share_the_points(points, pairs, key):
    part = pairs[key]
    assert isinstance(part, Tuples)
    assert part.points is points
    np.testing.assert_array_equal(part.dense(), pairs.dense()[key])


def test_one_tuple_by_its_number(pairs):
    np.testing.assert_array_equal(pairs[2].indices, [[4, 5]])
    np.testing.assert_array_equal(pairs[-1].indices, [[5, 0]])
    assert [pair.indices.tolist() for pair in pairs] == [[[0, 1]], [[2, 3]], [[4, 5]], [[5, 0]]]


@pytest.mark.torch
def test_tensors_stay_tensors(points, pairs, torch):
    tensors = Tuples(torch.tensor(points), torch.tensor(pairs.indices))
    assert tensors.dtype == torch.float64
    assert isinstance(tensors.dense(), torch.Tensor)
    np.testing.assert_array_equal(tensors.dense().numpy(), pairs.dense())
    np.testing.assert_array_equal(np.asarray(tensors), pairs.dense())
    np.testing.assert_array_equal(tensors[torch.tensor([1, 3])].indices, [[2, 3], [5, 0]])


def test_lists_and_frames(points):
    assert Tuples(points.tolist(), [[0, 1]]).shape == (1, 2, 3)
    frame = pandas.DataFrame(points, columns=list("abc"))
    tuples = Tuples(frame, pandas.DataFrame([[0, 1]]))
    assert tuples.points is frame
    np.testing.assert_array_equal(tuples.dense(), points[[[0, 1]]])


def test_scikit_learn_splits_them(pairs):
    y = np.array([1, -1, 1, -1])
    train, test = next(KFold(2).split(pairs, y))
    assert (train.tolist(), test.tolist()) == ([2, 3], [0, 1])
    kept, left, *_ = train_test_split(pairs, y, test_size=1, random_state=0)
    assert (kept.shape, left.shape) == ((3, 2, 3), (1, 2, 3))


def test_a_change_of_the_given_indices_changes_nothing(points):
    indices = np.array([[0, 1]])
    tuples = Tuples(points, indices)
    indices[:] = 5
    assert tuples.indices.tolist() == [[0, 1]]


def test_copies_and_pickles(pairs):
    for twin in (copy.deepcopy(pairs), pickle.loads(pickle.dumps(pairs))):
        np.testing.assert_array_equal(twin.dense(), pairs.dense())


@pytest.mark.parametrize(
    ("indices", "shape", "dtype"),
    [
        ([0, 1], r"\(2,\)", "int64"),
        ([[0, 1, 2, 3, 4]], r"\(1, 5\)", "int64"),
        ([[0], [1]], r"\(2, 1\)", "int64"),
        ([[0.0, 1.0]], r"\(1, 2\)", "float64"),
        ([[True, False]], r"\(1, 2\)", "bool"),
    ],
)
def test_what_are_no_row_numbers_is_an_error(points, indices, shape, dtype):
    message = (
        r"^indices must be an integer array of shape \(n_tuples, 2\) for pairs, \(n_tuples, 3\) for"
        rf" triplets or \(n_tuples, 4\) for quadruplets; got shape {shape} of {dtype}\. Stack them"
        r" with numpy\.stack\(\[a, b\], axis=1\)\.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        Tuples(points, indices)


def test_rows_out_of_range_are_an_error_with_their_places(points):
    message = (
        r"^indices must be row numbers from 0 to 5; tuple 1 is \[2, 6\] \(2 in all\)\."
        r" Count rows of points from 0\.$"
    )
    with pytest.raises(InvalidInputError, match=message) as caught:
        Tuples(points, [[0, 1], [2, 6], [3, 4], [-1, 2]])
    assert caught.value.indices.tolist() == [1, 3]


def test_points_that_are_no_table_are_an_error(points):
    message = (
        r"^points must have shape \(n_points, n_features\); got \(3, 2, 3\)\."
        r" Give each point once, and tuples by row number\.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        Tuples(points.reshape(3, 2, 3), [[0, 1]])


def test_other_axes_are_an_error(pairs):
    message = (
        r"^Tuples are indexed along their first axis only; got 2 indices\."
        r" Use \.dense\(\) for an array of all axes\.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        pairs[:, 0]


def test_a_shared_dense_array_is_an_error(pairs):
    with pytest.raises(ValueError, match="no dense array that could be shared"):
        np.asarray(pairs, copy=False)
