"""Quadruplets: two points that should be nearer to each other than two others."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.kernels import Array
from nearfar.supervision.generators import labelled_points
from nearfar.supervision.pairs import LabelledPairs, drawn, equal_points
from nearfar.supervision.tuples import Tuples
from nearfar.validation import check_number

Index = NDArray[np.intp]


def make_quadruplets(
    X: Any, y: Any, n_quadruplets: int = 10_000, *, random_state: Any = None
) -> Tuples:
    """Draw quadruplets of labelled points: a pair of one class, and a pair of two classes.

    Parameters
    ----------
    X : array-like, DataFrame or torch.Tensor of shape (n_samples, n_features)
        The points.
    y : array-like of shape (n_samples,)
        Their class labels.
    n_quadruplets : int, default=10000
        How many, or all if there are fewer.
    random_state : int, RandomState instance or None, default=None
        Draws the quadruplets and their order.

    Returns
    -------
    Tuples of shape (n_quadruplets, 4, n_features)
        Different quadruplets of rows of X, in random order: two points of a class, and two of
        different classes. Quadruplets in which the points of a pair are equal are left out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import make_quadruplets
    >>> make_quadruplets(*load_iris(return_X_y=True), 100, random_state=0).shape
    (100, 4, 4)
    """
    labels, same = labelled_points(X, y, "make_quadruplets")
    check_number("n_quadruplets", n_quadruplets, Integral, 1)
    random, possible = check_random_state(random_state), LabelledPairs(labels)
    total = possible.n_near * possible.n_far
    numbers = random.permutation(drawn(min(n_quadruplets, total), total, random))
    near, far = np.divmod(numbers, possible.n_far)
    sorted_near, back_near = np.unique(near, return_inverse=True)
    sorted_far, back_far = np.unique(far, return_inverse=True)
    heads, tails, is_near = possible.edges(sorted_near, sorted_far)
    pairs = np.stack([heads, tails], axis=1)
    indices = np.hstack([pairs[is_near][back_near], pairs[~is_near][back_far]])
    first, second, third, fourth = same[indices].T
    return Tuples(X, indices[(first != second) & (third != fourth)])


def comparisons(points: Array, indices: Index, name: str) -> tuple[Index, Index]:
    """Heads and tails (2m,) of the pairs of quadruplets (m, 4), or of triplets (m, 3), checked.

    First come all pairs that should be near, then all that should be far. A comparison in which
    the points of a pair are equal says nothing about the metric: it is left out, with a warning.
    """
    if indices.shape[1] == 3:  # (a, b, c): a is nearer to b than to c
        indices = indices[:, [0, 1, 0, 2]]
    same = equal_points(points)[indices]
    idle = (same[:, 0] == same[:, 1]) | (same[:, 2] == same[:, 3])
    if idle.all():
        raise InvalidInputError(
            f"{name} needs quadruplets of two pairs of different points; of all {len(indices)} the"
            " points of a pair are equal. Check the row numbers and the features."
        )
    if idle.any():
        warn(
            "comparisons with a pair of equal points are left out, since no metric changes them:"
            f" number {np.flatnonzero(idle)[0]} ({idle.sum()} in all). Drop them.",
            DataWarning,
        )
    kept = indices[~idle]
    return np.concatenate([kept[:, 0], kept[:, 2]]), np.concatenate([kept[:, 1], kept[:, 3]])
