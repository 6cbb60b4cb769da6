"""Chunklets: their numbers, and what rows that are held out of them choose."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.estimators._input import (
    checked_labels,
)
from nearfar.estimators._shrinkage import (
    better_scale,
    drawn_by_class,
    scale_of_pairs,
    value_keys,
)
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.problems.rca import RCAProblem
from nearfar.supervision import ClassOrder
from nearfar.supervision.pairs import equal_points

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

NONE = -1  # the number of points that are in no chunklet
PATH = (1.0, 0.5, 0.25, 0.1, 0.01)  # shares of 1 − ρ among which held-out rows choose
FOLDS = 5  # of held-out rows
SHIFTS = 20  # far pairs of a row that compare scales
COMPARED = 1 << 21  # pairs of held-out and other rows that are enough for a choice
FEWEST_HELD_OUT = 200  # rows of a fold, however many others there are


def scale_of_chunklets(points: Array, codes: Index) -> Array | None:
    """What brings features to one scale, if neighbours are then more often of one chunklet.

    Chunklets too small for a vote of three neighbours are compared by pairs: of points that follow
    each other in a chunklet, and of points of different ones.
    """
    if _neighbors(codes) == 3:
        return better_scale(points, codes, 3)
    order = drawn_by_class(value_keys(points), codes)
    n = len(order)
    shifts = np.unique(np.linspace(1, n - 1, min(n - 1, SHIFTS)).astype(np.intp))
    heads = np.tile(order, len(shifts))
    tails = np.concatenate([np.roll(order, -shift) for shift in shifts])
    near = codes[heads] == codes[tails]
    used = np.flatnonzero(~near | (np.arange(len(heads)) < n))
    return scale_of_pairs(points, heads[used], tails[used], near[used])


def _neighbors(codes: Index, most: int = 3) -> int:
    """How many neighbours vote: three, or fewer where chunklets are smaller."""
    return int(np.clip(np.median(np.bincount(codes)) - 1, 1, most))


def chosen_by_held_out_rows(points: Array, codes: Index, least: float) -> float:
    """The shrinkage between ``least`` and 1 by which neighbours of held-out rows are right most.

    Rows of each chunklet are held out in turn; neighbours are right if they are of their chunklet.
    Copies of a row are one row. An order of the rows by their values makes the
    choice independent of the order in which they were given.
    """
    kernels = kernels_for(points)
    kept = np.flatnonzero(equal_points(points) == np.arange(len(points)))
    points, codes = kernels.double(take_rows(points, kept)), codes[kept]
    points = points - points.mean(0)
    fold = np.empty(len(codes), dtype=np.intp)
    fold[drawn_by_class(value_keys(points), codes)] = np.arange(len(codes)) % FOLDS
    k, path = _neighbors(codes, 10), 1 - (1 - least) * np.array(PATH)
    wrong = np.zeros(len(path))
    for number in range(FOLDS):
        held_out, others = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        most = max(COMPARED // max(len(others), 1), FEWEST_HELD_OUT)
        held_out = held_out[:: max(1, -(-len(held_out) // most))]
        known_codes = np.unique(codes[others], return_inverse=True)[1]
        problem = RCAProblem.in_features(kernels, points, others, known_codes)
        if not problem.C.any():
            return float(path[-1])
        live = problem.rank
        ordered, seen = codes[others], min(k, len(others))
        for place, shrinkage in enumerate(path):
            L = problem.shrunk(shrinkage, live).solution()
            known, new = (kernels.apply(take_rows(points, part), L) for part in (others, held_out))
            near = to_host(kernels.nearest(new, known, seen)[0])
            wrong[place] += np.count_nonzero(ordered[near] != codes[held_out][:, None])
    return float(path[wrong.argmin()])


def are_chunklets(labels: NDArray[Any], counts: NDArray[Any], weights: Matrix) -> Mask:
    """Which labels are of chunklets: of two rows or more, or of one that stands for as many."""
    several: Mask = (counts > 1) | (weights >= 2)
    return several & (labels != NONE) if labels.dtype.kind in "if" else several


def chunklet_numbers(estimator: Any, points: Array, y: Any) -> Index:
    """Numbers from 0 for the labels of chunklets, NONE for the label −1."""
    labels = chunklet_labels(estimator, points, y)
    numbers = labels.codes.copy()
    if labels.classes.dtype.kind in "if":
        numbers[labels.classes[numbers] == NONE] = NONE
    return numbers


def chunklet_labels(estimator: Any, points: Array, y: Any) -> ClassOrder:
    """Validated labels, which may be as many as half of the points, or more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return checked_labels(estimator, points, y)


def components_of_pairs(n_points: int, heads: Index, tails: Index) -> Index:
    """The number of each point's connected component in the graph of the pairs."""
    graph = coo_array((np.ones(len(heads)), (heads, tails)), shape=(n_points, n_points))
    numbers: Index = connected_components(graph, directed=False)[1].astype(np.intp)
    return numbers
