"""Training and test points."""

import numpy as np
import pytest

from nearfar.errors import InvalidInputError
from nearfar.evaluation import split_points


def draw(n, labels, share, seed=0):
    X = np.arange(n, dtype=float)[:, None]
    return split_points(X, np.array(labels), share, seed)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_point_is_on_one_side_and_classes_keep_their_shares(seed):
    split = draw(40, [0] * 30 + [1] * 10, 0.3, seed)
    np.testing.assert_array_equal(
        np.sort(np.r_[split.X_train, split.X_test], axis=0)[:, 0], range(40)
    )
    np.testing.assert_array_equal(np.bincount(split.y_test), [9, 3])
    np.testing.assert_array_equal(split.y_train, split.X_train[:, 0] >= 30)


def test_the_seed_decides():
    same, again, other = (draw(40, [0, 1] * 20, 0.5, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(same.X_test, again.X_test)
    assert not np.array_equal(same.X_test, other.X_test)


@pytest.mark.parametrize("labels", [[0] * 9 + [1], list(range(5)) * 2])
def test_small_classes_do_not_prevent_a_split(labels):
    split = draw(10, labels, 0.2)
    assert (len(split.X_train), len(split.X_test)) == (8, 2)


def test_no_test_points():
    split = draw(10, [0, 1] * 5, 0)
    assert len(split.X_train) == 10
    assert split.X_test.shape == (0, 1)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_that_leaves_a_side_empty(share):
    with pytest.raises(InvalidInputError, match="both sides need one"):
        draw(10, [0, 1] * 5, share)
