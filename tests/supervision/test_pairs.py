"""Pairs from labels and from tuples, by plain loops."""

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from nearfar.errors import DataWarning, InvalidInputError
from nearfar.supervision import class_order, pairs
from nearfar.supervision.pairs import (
    LabelledPairs,
    check_both_kinds,
    drawn,
    labelled_edges,
    n_coinciding,
    near_kinds,
    pairs_of_labels,
    pairs_of_tuples,
)

Y = np.array(list("bacabbac"))


def edge_set(heads, tails):
    return Counter(frozenset(edge) for edge in zip(heads.tolist(), tails.tolist(), strict=True))


def plain_pairs(y, *, near):
    both = combinations(range(len(y)), 2)
    return Counter(frozenset((i, j)) for i, j in both if (y[i] == y[j]) == near)


@pytest.fixture
def points(rng):
    return rng.normal(size=(len(Y), 3))


# -- from labels -----------------------------------------------------------------------------


@pytest.mark.parametrize("y", [Y, Y[:3], np.repeat([0, 1], 7), np.arange(4), np.zeros(3)], ids=str)
def test_all_pairs_are_those_of_two_loops(y):
    heads, tails, near = labelled_edges(class_order(y, "test"), None, None)
    assert edge_set(heads[near], tails[near]) == plain_pairs(y, near=True)
    assert edge_set(heads[~near], tails[~near]) == plain_pairs(y, near=False)
    possible = LabelledPairs(class_order(y, "test"))
    assert possible.n_near == plain_pairs(y, near=True).total()
    assert possible.n_far == plain_pairs(y, near=False).total()


@pytest.mark.parametrize("n_pairs", [1, 3, 7, 100])
def test_drawn_pairs_are_different_and_of_their_kind(n_pairs, seed):
    random = np.random.RandomState(seed)
    heads, tails, near = labelled_edges(class_order(Y, "test"), n_pairs, random)
    for kind in (True, False):
        possible = plain_pairs(Y, near=kind)
        found = edge_set(heads[near == kind], tails[near == kind])
        assert found <= possible
        assert found.total() == min(n_pairs, possible.total())


def test_all_choices_are_as_likely(seed):
    """Of 6000 draws of 2 among 5 numbers each of the 10 choices comes about 600 times.

    Its standard deviation is √(6000 · 0.1 · 0.9) ≈ 23; five of these are allowed.
    """
    random = np.random.RandomState(seed)
    counts = Counter(tuple(drawn(2, 5, random)) for _ in range(6000))
    assert set(counts) == set(combinations(range(5), 2))
    assert all(abs(count - 600) < 116 for count in counts.values())


@pytest.mark.parametrize(("count", "total"), [(0, 5), (5, 5), (4, 5), (1, 10**15), (1000, 2100)])
def test_drawn_numbers_are_different_and_ascending(count, total, seed):
    numbers = drawn(count, total, np.random.RandomState(seed))
    assert len(numbers) == count
    assert (np.diff(numbers) > 0).all()
    assert count == 0 or (numbers[0] >= 0 and numbers[-1] < total)


def test_pairs_of_labels_know_the_labels_if_they_are_all(points, seed):
    labels, random = class_order(Y, "test"), np.random.RandomState(seed)
    every = pairs_of_labels(points, labels, None, random, "test")
    assert every.labels is labels
    assert every.points is points
    assert len(every) == 28
    assert edge_set(*every.near_edges()) == plain_pairs(Y, near=True)
    assert edge_set(*every.far_edges()) == plain_pairs(Y, near=False)
    assert pairs_of_labels(points, labels, 2, random, "test").labels is None


def test_equal_points_of_different_classes_are_left_out_with_a_warning(points):
    """Rows 0 (b), 4 (b) and 1 (a) are equal: (0, 1) and (1, 4) are far, (0, 4) is near."""
    points[[1, 4]] = points[0]
    message = (
        r"^far pairs of equal points are left out, since no metric can separate them: rows 1 and 0"
        r" \(2 in all\)\. Check their labels\.$"
    )
    with pytest.warns(DataWarning, match=message):
        found = pairs_of_labels(points, class_order(Y, "test"), None, None, "test")
    left_out = Counter([frozenset((0, 1)), frozenset((1, 4))])
    assert edge_set(*found.far_edges()) == plain_pairs(Y, near=False) - left_out
    assert edge_set(*found.near_edges()) == plain_pairs(Y, near=True)


def test_equal_points_of_different_classes_are_counted(rng, backend):
    """Among 40 points at 9 places, by two loops."""
    X, codes = rng.integers(3, size=(40, 2)).astype(float), rng.integers(3, size=40)
    unlike = [(i, j) for i, j in combinations(range(40), 2) if codes[i] != codes[j]]
    expected = sum((X[i] == X[j]).all() for i, j in unlike)
    assert n_coinciding(backend.asarray(X), codes) == expected > 0
    assert n_coinciding(backend.asarray(rng.normal(size=(40, 2))), codes) == 0


def test_only_equal_points_are_an_error(points):
    points[:] = 1
    message = "test needs points of different classes that differ; all pairs of different classes"
    with (
        pytest.warns(DataWarning, match="far pairs of equal points"),
        pytest.raises(InvalidInputError, match=message),
    ):
        pairs_of_labels(points, class_order(Y, "test"), None, None, "test")


def test_too_many_pairs_are_an_error_with_the_remedy(monkeypatch):
    monkeypatch.setattr(pairs, "MAX_PAIRS", 27)
    message = (
        r"^8 labelled points have 28 pairs; at most 27 can be held at a time\."
        r" Set n_pairs, for example n_pairs=100000, to draw from them\.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        labelled_edges(class_order(Y, "test"), None, None)
    assert len(labelled_edges(class_order(Y, "test"), 5, np.random.RandomState(0))[0]) == 10


def test_numbers_of_pairs_do_not_overflow():
    """A million points of two classes have 5e11 pairs, of which a few are drawn at once."""
    labels = class_order(np.arange(1_000_000) % 2, "test")
    heads, tails, near = labelled_edges(labels, 1000, np.random.RandomState(0))
    assert ((heads + tails) % 2 == np.where(near, 0, 1)).all()
    assert (heads != tails).all()


# -- from tuples -----------------------------------------------------------------------------


def test_pairs_keep_their_order(points):
    indices, near = np.array([[3, 1], [0, 2], [3, 1], [5, 4]]), np.array([True, False, True, False])
    found = pairs_of_tuples(points, indices, near, both=True, merge=False)
    assert found.points is points
    assert found.heads.tolist() == [3, 0, 3, 5]
    assert found.tails.tolist() == [1, 2, 1, 4]
    assert found.near.tolist() == near.tolist()
    assert [edges.tolist() for edges in found.far_edges()] == [[0, 5], [2, 4]]


def test_triplets_are_a_near_and_a_far_pair_each(points):
    found = pairs_of_tuples(points, np.array([[0, 1, 2], [3, 4, 5]]), None, True, merge=False)
    assert [edges.tolist() for edges in found.near_edges()] == [[0, 3], [1, 4]]
    assert [edges.tolist() for edges in found.far_edges()] == [[0, 3], [2, 5]]


def test_equal_points_are_merged(points, backend):
    points[4] = points[1]
    indices, near = np.array([[0, 1], [4, 2], [3, 5]]), np.array([True, False, True])
    found = pairs_of_tuples(backend.asarray(points), indices, near, both=True, merge=True)
    merged = backend.to_numpy(found.points)
    assert len(merged) == len(points) - 1
    np.testing.assert_array_equal(merged[found.heads], points[indices[:, 0]])
    np.testing.assert_array_equal(merged[found.tails], points[indices[:, 1]])


@pytest.mark.parametrize("merge", [True, False])
def test_a_near_pair_of_a_point_with_itself_is_left_out_with_a_warning(points, merge):
    points[4] = points[1]
    indices, near = np.array([[0, 1], [4, 1], [2, 2], [3, 5]]), np.array([True, True, True, False])
    message = (
        r"^near pairs of a point with itself say nothing and are left out: pair 1 \(2 in all\)\."
        r" Drop them\.$"
    )
    with pytest.warns(DataWarning, match=message):
        found = pairs_of_tuples(points, indices, near, both=True, merge=merge)
    assert len(found) == 2
    assert found.near.tolist() == [True, False]


@pytest.mark.parametrize("merge", [True, False])
def test_a_far_pair_of_a_point_with_itself_is_left_out_with_a_warning(points, merge):
    points[4] = points[1]
    indices = np.array([[0, 1], [3, 3], [4, 1], [0, 2]])
    message = (
        r"^far pairs of equal points are left out, since no metric can separate them: pair 1"
        r" \(2 in all\)\. Drop them\.$"
    )
    with pytest.warns(DataWarning, match=message):
        found = pairs_of_tuples(points, indices, np.arange(4) < 1, both=True, merge=merge)
    assert found.near.tolist() == [True, False]


def test_a_triplet_with_a_point_far_from_itself_is_a_near_pair(points):
    triplets = np.array([[0, 1, 2], [3, 4, 3]])
    with pytest.warns(DataWarning, match=r"^far pairs of .*: triplet 1 \(1 in all\)\."):
        found = pairs_of_tuples(points, triplets, None, both=True, merge=False)
    assert [edges.tolist() for edges in found.near_edges()] == [[0, 3], [1, 4]]
    assert [edges.tolist() for edges in found.far_edges()] == [[0], [2]]


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("again", [[1, 0], [0, 1], [1, 6]], ids=["turned", "same", "equal"])
@pytest.mark.parametrize(("near", "far"), [(1, 3), (3, 1)])
def test_contradictory_pairs_are_kept_with_a_warning(points, merge, again, near, far):
    """The same two points near and far: in either order, and also by equal features."""
    points[6] = points[0]
    indices = np.array([[2, 3], [0, 1], [4, 5], again])
    kinds = np.isin(np.arange(4), [0, near])
    message = (
        "^1 pair of points is given both as near and as far, such as those of"
        rf" pair {near} and pair {far}: no metric can satisfy both\. They are learned from as they"
        r" are\. Check them\.$"
    )
    with pytest.warns(DataWarning, match=message):
        found = pairs_of_tuples(points, indices, kinds, both=True, merge=merge)
    assert found.near.tolist() == kinds.tolist()


def test_contradictory_triplets_are_kept_with_a_warning(points):
    triplets = np.array([[0, 1, 2], [1, 3, 0], [4, 5, 6]])
    message = r"^1 pair .* triplet 0 and triplet 1: .* Take LMNN, SCML or LSML, which compare"
    with pytest.warns(DataWarning, match=message):
        found = pairs_of_tuples(points, triplets, None, both=True, merge=False)
    assert len(found) == 6


@pytest.mark.parametrize(("kind", "counts"), [(True, "2 near and 0 far"), (False, "0 near and 2")])
def test_only_near_or_only_far_pairs_are_an_error(points, kind, counts):
    indices, near = np.array([[0, 1], [2, 3]]), np.array([kind, kind])
    message = f"^near and far pairs are both needed; got {counts}.*ones. Add pairs of the other"
    with pytest.raises(InvalidInputError, match=message):
        pairs_of_tuples(points, indices, near, both=True, merge=False)
    assert len(pairs_of_tuples(points, indices, near, both=False, merge=False)) == 2


# -- kinds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [[1, -1, 1], [1.0, -1.0, 1.0], np.array([1, -1, 1], object)])
def test_kinds(y):
    assert near_kinds(np.asarray(y)).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([1, 0, -1], "y[1] is 0 (1 in all)"),
        ([1, 2, 3], "y[1] is 2 (2 in all)"),
        ([np.nan, 1.0, -1.0], "y[0] is nan (1 in all)"),
        ([True, False], "y[1] is False (1 in all)"),
        (["near", "far"], "y[0] is 'near' (2 in all)"),
        (np.array([1, None], object), "y[1] is None (1 in all)"),
    ],
)
def test_other_kinds_are_an_error(y, said):
    message = (
        f"y must be +1 for near pairs and -1 for far ones; {said}."
        " Convert it with numpy.where(near, 1, -1)."
    )
    with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$") as caught:
        near_kinds(np.asarray(y))
    assert len(caught.value.indices) == int(said.split("(")[1].split()[0])


def test_no_pairs_are_of_one_kind_too():
    with pytest.raises(InvalidInputError, match=r"got 0 near and 0 far ones\. Do this\.$"):
        check_both_kinds(np.empty(0, bool), "Do this.")
