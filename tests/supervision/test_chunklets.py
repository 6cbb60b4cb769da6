"""Chunklets drawn from labels."""

from collections import Counter

import numpy as np
import pytest

from nearfar import make_chunklets
from nearfar.errors import InvalidInputError

Y = np.repeat(list("abc"), [7, 5, 1])


@pytest.mark.parametrize(
    ("n_chunklets", "size", "expected"),
    [(None, 2, 5), (3, 2, 3), (None, 3, 3), (1, 7, 1)],
)
def test_chunklets_are_of_one_class_and_of_their_size(n_chunklets, size, expected, seed):
    numbers = make_chunklets(Y, n_chunklets, chunklet_size=size, random_state=seed)
    assert numbers.shape == Y.shape
    counts = Counter(numbers.tolist())
    assert counts.pop(-1, 0) == len(Y) - expected * size
    assert counts == dict.fromkeys(range(expected), size)
    for number in range(expected):
        assert len(set(Y[numbers == number])) == 1


def test_a_seed_repeats_the_draw():
    first, twin, other = (make_chunklets(Y, 2, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, twin)
    assert not np.array_equal(first, other)


def test_every_possible_chunklet_is_as_likely(seed):
    """aaab: one of 3 pairs of a, and no other; of 1200 draws 400 each, ± 16."""
    random = np.random.RandomState(seed)
    drawn = [make_chunklets(list("aaab"), 1, random_state=random) for _ in range(1200)]
    counts = Counter(tuple(np.flatnonzero(numbers == 0)) for numbers in drawn)
    assert set(counts) == {(0, 1), (0, 2), (1, 2)}
    assert all(abs(count - 400) < 82 for count in counts.values())


@pytest.mark.torch
def test_tensors(torch):
    assert make_chunklets(torch.tensor([0, 1, 0, 1])).tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_more_than_there_can_be_is_an_error():
    message = (
        r"^y has classes for 5 chunklets of 2 points; got n_chunklets=6\."
        r" Lower n_chunklets or chunklet_size\.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        make_chunklets(Y, 6)
    with pytest.raises(InvalidInputError, match="for 0 chunklets of 8 points; got n_chunklets=Non"):
        make_chunklets(Y, chunklet_size=8)


@pytest.mark.parametrize("size", [1, 2.5, True])
def test_a_size_below_two_is_an_error(size):
    message = f"^chunklet_size must be an integer of at least 2; got {size}.$"
    with pytest.raises(InvalidInputError, match=message):
        make_chunklets(Y, chunklet_size=size)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_a_count_below_one_is_an_error(count):
    message = f"^n_chunklets must be an integer of at least 1; got {count}.$"
    with pytest.raises(InvalidInputError, match=message):
        make_chunklets(Y, count)


def test_missing_labels_are_an_error():
    with pytest.raises(InvalidInputError, match="make_chunklets needs a label for every row"):
        make_chunklets([1.0, np.nan, 1.0])
