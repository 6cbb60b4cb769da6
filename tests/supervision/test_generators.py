"""Pairs and triplets drawn from labels."""

from collections import Counter

import numpy as np
import pandas
import pytest

from nearfar import Tuples, make_pairs, make_triplets
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.supervision import pairs as pairs_module

# Near pairs 3 + 3 + 1 = 7, far pairs 28 - 7 = 21, triplets 3 · 2 · 5 + 3 · 2 · 5 + 2 · 1 · 6 = 72.
Y = np.array(list("bacabbac"))


@pytest.fixture
def X(rng, read_only):
    return read_only(rng.normal(size=(len(Y), 3)))


def edges(indices):
    return Counter(frozenset(pair) for pair in indices.tolist())


@pytest.mark.parametrize(
    ("n_pairs", "balanced", "n_near", "n_far"),
    [
        (None, True, 7, 7),
        (3, True, 3, 3),
        (10, True, 7, 7),
        (None, False, 7, 21),
        (100, False, 7, 21),
    ],
)
def test_how_many_pairs(X, n_pairs, balanced, n_near, n_far, seed):
    pairs, kinds = make_pairs(X, Y, n_pairs, balanced=balanced, random_state=seed)
    assert isinstance(pairs, Tuples)
    assert pairs.points is X
    assert Counter(kinds.tolist()) == {1: n_near, -1: n_far}
    same = Y[pairs.indices[:, 0]] == Y[pairs.indices[:, 1]]
    np.testing.assert_array_equal(kinds, np.where(same, 1, -1))
    assert max(edges(pairs.indices).values()) == 1


def test_unbalanced_pairs_have_the_share_of_all(rng):
    """Of 2000 pairs of 4 even classes a quarter is near, with a deviation of about 19."""
    y = np.arange(400) % 4
    pairs, kinds = make_pairs(rng.normal(size=(400, 2)), y, 1000, balanced=False, random_state=0)
    assert len(pairs) == 2000
    assert abs(np.sum(kinds == 1) - 500) < 95


def test_a_seed_repeats_the_draw(X):
    (first, _), (twin, _), (other, _) = (make_pairs(X, Y, 3, random_state=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.indices, twin.indices)
    assert not np.array_equal(first.indices, other.indices)
    first, twin, other = (make_triplets(X, Y, 9, random_state=s).indices for s in (1, 1, 2))
    np.testing.assert_array_equal(first, twin)
    assert not np.array_equal(first, other)


def test_pairs_are_shuffled(rng):
    """So that consecutive folds hold both kinds."""
    y = np.arange(100) % 3
    _, kinds = make_pairs(rng.normal(size=(100, 2)), y, 200, random_state=0)
    assert all(np.sum(fold == 1) > 40 for fold in np.split(kinds, 4))


def test_all_triplets_are_those_of_three_loops(X):
    triplets = make_triplets(X, Y, random_state=0)
    n = range(len(Y))
    assert len(triplets) == 72
    expected = {
        (i, j, k) for i in n for j in n for k in n if i != j and Y[i] == Y[j] and Y[i] != Y[k]
    }
    found = [tuple(row) for row in triplets.indices.tolist()]
    assert len(found) == len(expected)
    assert set(found) == expected


@pytest.mark.parametrize("n_triplets", [1, 20, 1000])
def test_drawn_triplets_are_different(X, n_triplets, seed):
    indices = make_triplets(X, Y, n_triplets, random_state=seed).indices
    labels = Y[indices]
    assert (labels[:, 0] == labels[:, 1]).all()
    assert (labels[:, 0] != labels[:, 2]).all()
    assert (indices[:, 0] != indices[:, 1]).all()
    every = len(make_triplets(X, Y))
    assert len(np.unique(indices, axis=0)) == min(n_triplets, every)


def test_every_triplet_is_as_likely(seed):
    """a, a, b, c has (a, a, b), (a, a, c) twice each: 4 triplets, of 1000 draws 250 each ± 14."""
    random = np.random.RandomState(seed)
    X, y = np.arange(4.0)[:, None], list("aabc")
    rows = [tuple(make_triplets(X, y, 1, random_state=random).indices[0]) for _ in range(1000)]
    counts = Counter(rows)
    assert set(counts) == {(0, 1, 2), (0, 1, 3), (1, 0, 2), (1, 0, 3)}
    assert all(abs(count - 250) < 69 for count in counts.values())


def test_equal_points_are_not_paired(X):
    """Rows 0 and 4 are of class b, row 1 of class a; only far pairs are warned of."""
    X = X.copy()
    X[4] = X[0]
    pairs, kinds = make_pairs(X, Y, balanced=False)
    assert frozenset((0, 4)) not in edges(pairs.indices)
    assert Counter(kinds.tolist()) == {1: 6, -1: 21}
    assert not any(set(row[:2]) == {0, 4} for row in make_triplets(X, Y).indices.tolist())
    X[1] = X[0]
    message = (
        r"^equal points with different labels are not paired, since no metric can separate them:"
        r" rows \d and \d \(2 pairs in all\)\. Check their labels\.$"
    )
    with pytest.warns(DataWarning, match=message):
        pairs, kinds = make_pairs(X, Y, balanced=False)
    assert Counter(kinds.tolist()) == {1: 6, -1: 19}
    with pytest.warns(DataWarning, match="equal points with different labels are not paired"):
        triplets = make_triplets(X, Y).indices
    assert not any({row[0], row[2]} in ({0, 1}, {1, 4}) for row in triplets.tolist())


def test_frames_lists_and_tensors(X, backend):
    frame = pandas.DataFrame(X, columns=list("abc"))
    assert make_pairs(frame, pandas.Series(Y), 3)[0].points is frame
    assert make_pairs(X.tolist(), Y.tolist(), 3)[0].shape == (6, 2, 3)
    tensor = backend.asarray(X)
    pairs, _ = make_pairs(tensor, backend.asarray(np.arange(len(Y)) % 2), 3, random_state=0)
    assert pairs.points is tensor
    whole = backend.asarray(np.arange(16).reshape(8, 2))
    assert make_triplets(whole, Y, 3, random_state=0).points is whole


@pytest.mark.parametrize("make", [make_pairs, make_triplets])
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(8), "needs at least two classes; y has 1 class, 0.0"),
        (np.arange(8), "needs a class with two or more members; every class has 1 member"),
        (np.zeros(7), "needs a label for each row; X has 8 rows and y has 7"),
        ([None] * 8, "needs a label for every row"),
    ],
)
def test_labels_that_cannot_be_used_are_an_error(X, make, y, message):
    with pytest.raises(InvalidInputError, match=f"{make.__name__} {message}"):
        make(X, y)


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "5"])
def test_counts_that_cannot_be_used_are_an_error(X, count):
    for make, name in ((make_pairs, "n_pairs"), (make_triplets, "n_triplets")):
        message = f"^{name} must be an integer of at least 1; got {count!r}.$"
        with pytest.raises(InvalidInputError, match=message):
            make(X, Y, count)


def test_too_many_are_an_error_with_the_remedy(X, monkeypatch):
    monkeypatch.setattr(pairs_module, "MAX_PAIRS", 13)
    with pytest.raises(InvalidInputError, match=r"have 14 pairs; at most 13 .* Set n_pairs, for"):
        make_pairs(X, Y)
    with pytest.raises(InvalidInputError, match=r"have 72 triplets; .* Set n_triplets, for"):
        make_triplets(X, Y)


def test_nan_is_an_error(X):
    X = X.copy()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="Input contains NaN"):
        make_pairs(X, Y)
