"""From the old distance to the learned one, in steps.

With z a row as the learner saw it (p), f(z) its image (r), and t from 0 to 1,

(1) d_t²(a, b) = (1 − t) ‖z_a − z_b‖² + t c ‖f(z_a) − f(z_b)‖²
(2) c = Σ var z / Σ var f(z),  so that the mean squared distance is the same for all t
(3) e_t = [√(1 − t) z, √(t c) f(z)],  whose Euclidean distances are d_t.

For a linear map f(z) = L z, (1) is the distance of M_t = (1 − t) I + t c LᵀL. Nothing is
interpolated: neighbours, errors and principal directions at t are those of the rows e_t.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import Floats, Index, sample_rows
from nearfar.analysis.neighbors import Neighbors
from nearfar.analysis.study import Study
from nearfar.analysis.views import AXES_FROM
from nearfar.evaluation.spectra import principal_axes
from nearfar.limits import check_time
from nearfar.supervision.neighbors import vote

STEPS = np.linspace(0, 1, 11)  # of t; at most 16, for the outcomes of a row are 16 bits
PAIRS = 50_000_000  # of a query and a training row, at most, that are compared between the ends
PRODUCTS = 10_000_000_000  # of coordinates, at most, for these
AXES_NUMBERS = 10_000_000  # of the sample whose principal directions are the axes
BLOCK = 2**22  # numbers at a time: 32 MB
ROUNDING = 1e-7  # of distances by products, relative to the largest among the nearest


class Between(NamedTuple):
    """Training rows that are near to some rows at one of the steps, as lists one after another.

    ``starts`` (m + 1,) says where the list of each of the m rows begins; then come the near rows
    with their squared distances before and after learning, the latter times c. ``exact`` (m,) says
    whether all steps were searched, or only both ends.
    """

    starts: Index
    rows: Index
    before: Floats
    after: Floats
    exact: NDArray[np.bool_]


class Transition(NamedTuple):
    """What the slider shows.

    Attributes
    ----------
    c : the factor (2)
    places : where the shown rows are at each step (T, n, 2)
    shares : the share of the variance that the plane holds at each step (T,)
    near : the nearest training rows (T, m, k) of the first m queries at each step
    wrong : whether the tested rows among them are wrong at each step (T, m'); None without labels
    """

    c: float
    places: Floats
    shares: Floats
    near: Index
    wrong: NDArray[np.bool_] | None


def transition(
    study: Study,
    shown: Index,
    queries: Index,
    before: Neighbors,
    after: Neighbors,
    random_state: int,
) -> Transition | None:
    """The steps from old to learned; None for an unfolding, and where nothing varies.

    ``queries`` begin with the tested rows, and ``before`` and ``after`` are their neighbours. Of
    many, the first ones are searched between the ends.
    """
    if study.unfolds or study.old is None or study.images is None:
        return None
    voters = study.voters
    spreads = [_variance(points, voters) for points in (study.old, study.images)]
    if not all(0 < spread < np.inf for spread in spreads):
        return None
    c = spreads[0] / spreads[1]  # (2)
    places, shares = _planes(study, c, shown, random_state)
    width = study.old.shape[1] + study.images.shape[1]
    count = max(1, min(PAIRS, PRODUCTS // width) // len(voters))
    near = np.array(
        [
            before.rows[:count],
            *_nearest_between(study, c, queries[:count], before.rows, after.rows),
            after.rows[:count],
        ]
    )
    wrong = None
    if study.classes is not None and len(study.tested):
        codes = study.classes[1]
        truth = codes[study.tested[:count]]
        classes = codes[near[:, : len(truth), : study.n_neighbors]]
        wrong = np.array([_voted(step) for step in classes]) != truth
    return Transition(c, places, shares, near, wrong)


def between(
    study: Study, found: Transition, rows: Index, at: Index, ends: tuple[Neighbors, Neighbors]
) -> Between:
    """All that is near to some rows, which are the queries ``at``, at one of the steps."""
    assert study.old is not None
    assert study.images is not None
    table = np.hstack([near.rows[at] for near in ends])
    exact = at < found.near.shape[1]
    steps = np.hstack(list(found.near[:, at.clip(None, found.near.shape[1] - 1)]))
    table = np.sort(np.hstack([table, np.where(exact[:, None], steps, table[:, :1])]), axis=1)
    first = np.ones(table.shape, dtype=bool)
    first[:, 1:] = table[:, 1:] != table[:, :-1]
    counts = first.sum(axis=1)
    near, heads = table[first], np.repeat(rows, counts)
    size = max(1, BLOCK // max(study.old.shape[1], study.images.shape[1]))
    blocks = [slice(start, start + size) for start in range(0, len(heads), size)]
    before, after = (
        np.concatenate([_squares(points, heads[block], near[block]) for block in blocks])
        for points in (study.old, study.images)
    )
    return Between(np.append(0, np.cumsum(counts)), near, before, found.c * after, exact)


def _voted(classes: Index) -> Index:
    """The `vote` of class numbers (m, k), with classes counted anew in each row: at most k."""
    first = (classes[:, :, None] == classes[:, None]).argmax(axis=2)
    winners = vote(first, classes.shape[1])
    return np.asarray(classes[np.arange(len(classes)), winners])


def _variance(points: Floats, rows: Index) -> float:
    return float(np.var(points[rows], axis=0, dtype=np.float64).sum())


def _nearest_between(
    study: Study, c: float, queries: Index, before: Index, after: Index
) -> list[Index]:
    """The k nearest training rows (m, k) at each step but the first and the last.

    All steps share the distances before and after, computed once. The k nearest at t are no farther
    than the farthest of the k that are nearest before, nor than that of those after.
    """
    assert study.old is not None
    assert study.images is not None
    voters, steps, k = study.voters, STEPS[1:-1].tolist(), before.shape[1]
    place = np.empty(len(study), dtype=np.intp)
    place[voters] = np.arange(len(voters))
    found = np.empty((len(steps), len(queries), k), dtype=np.intp)
    size = max(1, BLOCK // len(voters))
    for start in range(0, len(queries), size):
        check_time()
        block = slice(start, start + size)
        old, new = (_products(p, queries[block], voters) for p in (study.old, study.images))
        for i, query in enumerate(queries[block].tolist(), start):
            ends = [place[rows[i]] for rows in (before, after)]
            own = np.flatnonzero(voters == query)
            for number, t in enumerate(steps):
                squares = (1 - t) * old[i - start] + t * c * new[i - start]  # (1)
                squares[own] = np.inf
                most = min(squares[end].max() for end in ends)
                near = voters[squares <= most + ROUNDING * squares[ends[0]].max()]
                exact = (1 - t) * _squares(study.old, query, near)
                exact += t * c * _squares(study.images, query, near)
                found[number, i] = near[np.argsort(exact, kind="stable")[:k]]
    return list(found)


def _products(points: Floats, queries: Index, voters: Index) -> Floats:
    """Squared distances (m, n) by a product of matrices, up to rounding."""
    middle = points[voters[:1]].astype(np.float64)
    Q, V = (points[rows] - middle for rows in (queries, voters))
    squares = np.vecdot(Q, Q)[:, None] + np.vecdot(V, V)[None] - 2 * (Q @ V.T)
    return np.asarray(squares)


def _squares(points: Floats, a: Any, b: Index) -> Floats:
    """Squared distances of pairs of rows, or of one row and others."""
    difference = points[a].astype(np.float64) - points[b]
    squares: Floats = np.vecdot(difference, difference)
    return squares


def _planes(study: Study, c: float, shown: Index, random_state: int) -> tuple[Floats, Floats]:
    """The rows (3) along their two principal directions at each step, turned to fit the last."""
    assert study.old is not None
    assert study.images is not None
    both = (study.old, study.images)
    width = sum(points.shape[1] for points in both)
    count = min(AXES_FROM, max(1000, AXES_NUMBERS // width))
    sample = sample_rows(np.arange(len(study)), count, random_state)
    means = [points[sample].mean(axis=0, dtype=np.float64) for points in both]
    sampled, drawn = [], []
    for points, mean in zip(both, means, strict=True):
        rows, others = points[sample] - mean, points[shown] - mean
        if rows.shape[1] > len(rows):  # principal directions lie in the span of the sample
            span = np.linalg.svd(rows, full_matrices=False)[2].T
            rows, others = rows @ span, others @ span
        sampled.append(rows)
        drawn.append(others)
    places, shares = [], []
    for t in STEPS.tolist():
        scales = np.sqrt([1 - t, t * c])
        rows = np.hstack([scale * part for scale, part in zip(scales, sampled, strict=True)])
        axes, found = principal_axes(rows, 2, random_state)
        parts = np.split(axes, [sampled[0].shape[1]], axis=1)
        flat = np.zeros((len(shown), 2))
        for scale, part, directions in zip(scales, drawn, parts, strict=True):
            flat[:, : len(axes)] += scale * part @ directions.T
        places.append(flat)
        shares.append(float(found.sum()))
    return np.array([_turned(flat, places[-1]) for flat in places]), np.array(shares)


def _turned(places: Floats, last: Floats) -> Floats:
    """Turned and mirrored in the plane to be as near as possible to the last places."""
    left, _, right = np.linalg.svd(places.T @ last)
    turned: Floats = places @ (left @ right)
    return turned
