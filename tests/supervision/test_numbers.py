"""Numbers as supervision: their validation, and triplets drawn from them."""

import numpy as np
import pytest

from nearfar import LMNN, make_ranked_triplets
from nearfar.errors import InvalidInputError


@pytest.fixture
def data(rng):
    return rng.normal(size=(9, 3)), rng.normal(size=9)


def test_the_second_number_is_nearer_than_the_third(data):
    X, y = data
    found = make_ranked_triplets(X, y, 100, random_state=0)
    a, b, c = y[found.indices].T
    assert found.shape == (100, 3, 3)
    assert (abs(a - b) < abs(a - c)).all()
    assert len(np.unique(found.indices, axis=0)) == 100
    again = make_ranked_triplets(X, y, 100, random_state=0)
    np.testing.assert_array_equal(found.indices, again.indices)


def test_all_of_them(data):
    """Nine points, each with 8 · 7 / 2 pairs of others."""
    found = make_ranked_triplets(*data, random_state=0).indices
    assert len(np.unique(np.column_stack([found[:, 0], np.sort(found[:, 1:])]), axis=0)) == 9 * 28
    assert (found[:, 0] != found[:, 1]).all()
    assert (found[:, 0] != found[:, 2]).all()


def test_ties_and_equal_points_are_left_out(data):
    """At 0, 1, 2 and 3 each end has three triplets, and each inner one two: its neighbours tie."""
    X, _ = data
    assert len(make_ranked_triplets(X[:4], [0, 1, 2, 3])) == 2 * 3 + 2 * 2
    X = np.array(X[:4])
    X[1] = X[0]
    rows = make_ranked_triplets(X, [0, 1, 2, 3]).indices
    assert not np.isin(rows[rows[:, 0] < 2, 1:], [0, 1]).any()


def test_a_metric_is_learned_from_numbers(rng):
    """Only the first of three features tells the number."""
    X = rng.normal(size=(80, 3))
    model = LMNN(push_weight=0.9).fit(make_ranked_triplets(X, 5 * X[:, 0], 1000, random_state=0))
    weights = np.diag(model.get_mahalanobis_matrix())
    assert weights[0] > 10 * weights[1:].max()


def test_tensors(data, backend):
    X, y = data
    found = make_ranked_triplets(backend.asarray(X), backend.asarray(y), 50, random_state=0)
    expected = make_ranked_triplets(X, y, 50, random_state=0)
    np.testing.assert_array_equal(found.indices, expected.indices)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        (np.ones(8), "X has 9 rows and y has 8"),
        (["word"] * 9, "learns from numbers; y holds"),
        ([np.nan] + [1.0] * 8, r"NaN or infinity in row 0 \(1 in all\)"),
    ],
)
def test_what_are_no_numbers(y, message, data):
    with pytest.raises(InvalidInputError, match=message):
        make_ranked_triplets(data[0], y)


def test_two_points_are_too_few(data):
    with pytest.raises(InvalidInputError, match="needs at least three points; got 2"):
        make_ranked_triplets(data[0][:2], data[1][:2])
