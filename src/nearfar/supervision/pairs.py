"""Pairs of points that should be near or far, from class labels or from tuples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks
from nearfar.blocks.pairs import first_equal_rows
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.kernels import Array, check_memory, kernels_for, to_host
from nearfar.limits import check_time
from nearfar.supervision.labels import ClassOrder, shown

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Edges = tuple[Index, Index]

PAIR_BYTES = 150  # memory that learning needs for a pair
MAX_PAIRS = 1 << 26  # pairs held at a time: 1 GB of row numbers


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows of shared points, each near or far.

    A pair that occurs several times counts several times. Pairs keep the order in which they were
    given; pairs from labels are sorted, near pairs first.
    """

    points: Array  # (n, d), where the data is, in its dtype
    heads: Index  # (m,), on the host
    tails: Index  # (m,), on the host
    near: Mask  # (m,), on the host
    labels: ClassOrder | None = None  # of the points, if all pairs within classes are near pairs
    weights: Floats | None = None  # (m,), on the host; None for ones
    given_weights: Floats | None = (
        None  # of labelled points, whose products are these, or of tuples
    )
    tuples: Index | None = (
        None  # (m,) numbers of the tuples that they come from, if these are given
    )
    rows: Index | None = None  # (n,) numbers of the points among all, if these are some of them

    def __len__(self) -> int:
        return len(self.heads)

    def numbers(self, ends: Index) -> Index:
        """The numbers of these points among all."""
        return ends if self.rows is None else self.rows[ends]

    @property
    def near_weights(self) -> Floats | None:
        """Weights of the near pairs."""
        return None if self.weights is None else self.weights[self.near]

    @property
    def near_total(self) -> float:
        """The sum of the weights of the near pairs."""
        weights = self.near_weights
        return float(np.count_nonzero(self.near) if weights is None else weights.sum())

    @property
    def far_weights(self) -> Floats | None:
        """Weights of the far pairs."""
        return None if self.weights is None else self.weights[~self.near]

    def near_edges(self) -> Edges:
        """Heads and tails of the near pairs."""
        return self.heads[self.near], self.tails[self.near]

    def far_edges(self) -> Edges:
        """Heads and tails of the far pairs."""
        return self.heads[~self.near], self.tails[~self.near]


# -- from labels -----------------------------------------------------------------------------


class LabelledPairs:
    """Numbers the pairs of labelled points, so that some can be drawn without making them all.

    With points sorted by class, the near partners of a point are the points after it in its class,
    and its far partners are all points of later classes: both are ranges.
    """

    def __init__(self, labels: ClassOrder) -> None:
        self._order = labels.order
        places = np.arange(len(labels.order))
        ends = np.repeat(labels.starts[1:], labels.sizes)  # (n,) where the class of a place ends
        self._near = places + 1, np.cumsum(ends - places - 1)
        self._far = ends, np.cumsum(len(places) - ends)

    @property
    def n_near(self) -> int:
        """Number of near pairs."""
        return int(self._near[1][-1])

    @property
    def n_far(self) -> int:
        """Number of far pairs."""
        return int(self._far[1][-1])

    def edges(self, near: Index, far: Index) -> tuple[Index, Index, Mask]:
        """Heads, tails and kinds of the pairs with these ascending numbers, near pairs first."""
        parts = self._edges(near, *self._near), self._edges(far, *self._far)
        check_time()
        heads, tails = (np.concatenate(part) for part in zip(*parts, strict=True))
        check_time()
        return heads, tails, np.repeat([True, False], [len(near), len(far)])

    def _edges(self, numbers: Index, first: Index, reached: Index) -> Edges:
        """Pairs of one kind; ``reached`` is the cumulative number of pairs by head."""
        before = np.concatenate([[0], reached[:-1]])
        if len(numbers) == reached[-1]:  # all of them
            places = np.repeat(np.arange(len(first)), reached - before)
        else:
            places = np.searchsorted(reached, numbers, side="right")
        check_time()
        partners = (first - before)[places]
        partners += numbers
        check_time()
        return self._order[places], self._order[partners]


def labelled_edges(
    labels: ClassOrder, n_pairs: int | None, random: Any
) -> tuple[Index, Index, Mask]:
    """Heads, tails and kinds of all pairs, or of ``n_pairs`` of each kind; near pairs first.

    If a kind has fewer pairs, all of them are taken. Time and memory O(n + m).
    """
    possible = LabelledPairs(labels)
    counts = [possible.n_near, possible.n_far]
    if n_pairs is not None:
        counts = [min(n_pairs, count) for count in counts]
    check_count(sum(counts), len(labels.codes), "pairs")
    check_memory(
        PAIR_BYTES * float(sum(counts)),
        f"learning from {sum(counts)} pairs",
        "Set n_pairs to draw from them",
        labels.codes,
    )
    return possible.edges(
        drawn(counts[0], possible.n_near, random), drawn(counts[1], possible.n_far, random)
    )


def check_count(count: int, n_points: int, what: str) -> None:
    """Raise if there are more pairs or triplets than memory should hold."""
    if count > MAX_PAIRS:
        raise InvalidInputError(
            f"{n_points} labelled points have {count} {what}; at most {MAX_PAIRS} can be held at a"
            f" time. Set n_{what}, for example n_{what}=100000, to draw from them."
        )


def pairs_of_labels(
    points: Array, labels: ClassOrder, n_pairs: int | None, random: Any, name: str
) -> Pairs:
    """All pairs of labelled points, or ``n_pairs`` of each kind.

    Far pairs of equal points, which no metric can separate, are left out with a warning.

    Parameters
    ----------
    points : array of shape (n, d)
        The points.
    labels : ClassOrder
        Their labels.
    n_pairs : int or None
        Number of pairs of each kind, or all if there are fewer; None for all.
    random : RandomState
        Draws the pairs.
    name : str
        Name of the estimator, for messages.
    """
    edges = labelled_edges(labels, n_pairs, random)
    return pairs_of_edges(Pairs(points, *edges, labels if n_pairs is None else None), name)


def pairs_of_edges(pairs: Pairs, name: str) -> Pairs:
    """The pairs without far ones of equal points; warn if there are such."""
    points, heads, tails, near = pairs.points, pairs.heads, pairs.tails, pairs.near
    same = equal_points(points)
    coincide = np.zeros(len(near), dtype=bool)
    if (same != np.arange(len(same))).any():
        coincide = ~near & (same[heads] == same[tails])
    if coincide.any():
        first = np.flatnonzero(coincide)[0]
        warn(
            "far pairs of equal points are left out, since no metric can separate them: rows"
            f" {pairs.numbers(heads)[first]} and {pairs.numbers(tails)[first]} ({coincide.sum()} in"
            " all). Check their labels.",
            DataWarning,
        )
        heads, tails, near = heads[~coincide], tails[~coincide], near[~coincide]
    if near.all():
        raise InvalidInputError(
            f"{name} needs points of different classes that differ; all pairs of different classes"
            " are of equal points. Check the features."
        )
    return replace(pairs, heads=heads, tails=tails, near=near)


def drawn(count: int, total: int, random: Any) -> Index:
    """Draw ``count`` distinct numbers below ``total``, ascending, uniformly; memory O(count)."""
    if count == total:
        return np.arange(total)
    if 2 * count > total:
        return np.sort(random.permutation(total)[:count])
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < count:  # more than half of each draw is new
        more = random.randint(total, size=count - len(numbers), dtype=np.int64)
        numbers = np.unique(np.concatenate([numbers, more]))
    return numbers.astype(np.intp)


# -- from tuples -----------------------------------------------------------------------------


def pairs_of_tuples(
    points: Array,
    indices: Index,
    near: Mask | None,
    both: bool,
    merge: bool,
    weights: Floats | None = None,
) -> Pairs:
    """Validate pairs (m, 2) with their kinds, or triplets (m, 3), each a near and a far pair.

    Points with equal features are the same point. Pairs of a point with itself are left out with a
    warning: they say nothing if they are near, and ask for the impossible if they are far. Pairs
    that are given both as near and as far are kept, with a warning that counts them.

    Parameters
    ----------
    points : array of shape (n, d)
        The points.
    indices : integers of shape (m, 2) or (m, 3)
        Their rows.
    near : mask of shape (m,) or None
        Which pairs are near; None for triplets.
    both : bool
        Whether near and far pairs must both occur.
    merge : bool
        Whether equal points become one; the order of the points is kept.
    weights : array of shape (m,) or None, default=None
        Weights of the tuples; those without weight are left out.
    """
    one = "pair" if near is not None else "triplet"
    rows = np.arange(len(indices)) if weights is None else np.flatnonzero(weights)
    indices, near = indices[rows], near if near is None else near[rows]
    if merge and weights is not None:  # points of no tuple with weight
        points = points[kernels_for(points).index(indices.ravel(), points)]
        indices = np.arange(indices.size).reshape(indices.shape)
    same = equal_points(points)
    if merge:
        first, group = np.unique(same, return_inverse=True)
        if len(first) < len(points):
            points = points[kernels_for(points).index(first, points)]
            indices, same = group[indices], np.arange(len(first))
    heads, tails = np.ascontiguousarray(indices[:, 0]), np.ascontiguousarray(indices[:, 1])
    if near is None:  # (a, b, c): a and b are near, a and c are far
        near = np.arange(2 * len(rows)) < len(rows)
        heads, rows = np.tile(heads, 2), np.tile(rows, 2)
        tails = np.concatenate([tails, indices[:, 2]])
    low, high = np.minimum(same[heads], same[tails]), np.maximum(same[heads], same[tails])
    itself = low == high
    if itself.any():
        warn_of_far_and_equal(rows[itself & ~near], one)
        _warn_of_near_and_equal(rows[itself & near], one)
        heads, tails, near, rows = heads[~itself], tails[~itself], near[~itself], rows[~itself]
    _warn_of_contradictions((low * len(same) + high)[~itself], near, rows, one)
    if both:
        check_both_kinds(near, "Add pairs of the other kind.")
    kept = None if weights is None else weights[rows]
    return Pairs(points, heads, tails, near, weights=kept, given_weights=weights, tuples=rows)


def weighted_by_points(pairs: Pairs, weights: Floats | None) -> Pairs:
    """Pairs of labelled points with the product of the points' weights, without those of none."""
    if weights is None:
        return pairs
    products = weights[pairs.numbers(pairs.heads)] * weights[pairs.numbers(pairs.tails)]
    kept = products > 0
    near = pairs.near[kept]
    check_both_kinds(near, "Give weight to two points of a class, and to points of two classes.")
    return replace(
        pairs,
        heads=pairs.heads[kept],
        tails=pairs.tails[kept],
        near=near,
        weights=products[kept],
        given_weights=weights,
    )


def warn_of_far_and_equal(rows: Index, one: str) -> None:
    """Warn of the far pairs of equal points in these rows, if there are any."""
    if len(rows):
        warn(
            "far pairs of equal points are left out, since no metric can separate them:"
            f" {one} {rows[0]} ({len(rows)} in all). Drop them.",
            DataWarning,
        )


def _warn_of_near_and_equal(rows: Index, one: str) -> None:
    if len(rows):
        warn(
            "near pairs of a point with itself say nothing and are left out:"
            f" {one} {rows[0]} ({len(rows)} in all). Drop them.",
            DataWarning,
        )


def _warn_of_contradictions(codes: Index, near: Mask, rows: Index, one: str) -> None:
    """Warn of pairs, numbered by ``codes``, that are given both as near and as far."""
    both = np.intersect1d(codes[near], codes[~near])
    if len(both) == 0:
        return
    is_near, is_far = near & (codes == both[0]), ~near & (codes == both[0])
    remedy = "Check them."
    if one == "triplet":
        remedy = "Take LMNN, SCML or LSML, which compare distances within a triplet."
    are_given = "pair of points is given" if len(both) == 1 else "pairs of points are given"
    warn(
        f"{len(both)} {are_given} both as near and as far, such as those of"
        f" {one} {rows[is_near][0]} and {one} {rows[is_far][0]}: no metric can satisfy both."
        f" They are learned from as they are. {remedy}",
        DataWarning,
    )


def near_kinds(y: NDArray[Any]) -> Mask:
    """Which pairs are near, from +1 and −1."""
    bad = np.flatnonzero((y != 1) & (y != -1))
    if len(bad):
        raise InvalidInputError(
            f"y must be +1 for near pairs and -1 for far ones; y[{bad[0]}] is {shown(y[bad[0]])}"
            f" ({len(bad)} in all). Convert it with numpy.where(near, 1, -1).",
            bad,
        )
    near: Mask = y == 1
    return near


def check_both_kinds(near: Mask, remedy: str) -> None:
    """Raise unless there are both near and far pairs."""
    n_near = int(np.count_nonzero(near))
    if n_near in (0, len(near)):
        raise InvalidInputError(
            f"near and far pairs are both needed; got {n_near} near and {len(near) - n_near} far"
            f" ones. {remedy}"
        )


def n_coinciding(points: Array, codes: Index) -> int:
    """Number of pairs of equal points with different labels, given as numbers."""
    same = equal_points(points)
    return _n_pairs(same) - _n_pairs(same * (int(codes.max()) + 1) + codes)


def _n_pairs(groups: Index) -> int:
    """Number of pairs with equal entries."""
    counts = np.unique(groups, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def equal_points(points: Array) -> Index:
    """For each point the first point with the same features, on the host."""
    if isinstance(points, Blocks):
        return first_equal_rows(points)
    return np.asarray(to_host(kernels_for(points).first_equal(points)), dtype=np.intp)
