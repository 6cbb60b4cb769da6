"""Pairs and triplets drawn from labelled points."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.kernels import is_torch, kernels_for
from nearfar.supervision.labels import ClassOrder, check_near_and_far, class_order
from nearfar.supervision.pairs import LabelledPairs, check_count, drawn, equal_points
from nearfar.supervision.tuples import Tuples
from nearfar.validation import check_in_memory, check_number

Index = NDArray[np.intp]


def make_pairs(
    X: Any,
    y: Any,
    n_pairs: int | None = None,
    *,
    balanced: bool = True,
    random_state: Any = None,
) -> tuple[Tuples, NDArray[np.int64]]:
    """Draw distinct pairs of labelled points: near within a class, far between classes.

    Parameters
    ----------
    X : array-like, DataFrame or torch.Tensor of shape (n_samples, n_features)
        The points.
    y : array-like of shape (n_samples,)
        Their class labels.
    n_pairs : int or None, default=None
        Number of near and of far pairs; all if there are fewer, or for None.
    balanced : bool, default=True
        Whether to draw as many near as far pairs. False draws ``2 n_pairs`` from all pairs alike,
        most of them far if there are many classes.
    random_state : int, RandomState instance or None, default=None
        Draws the pairs and their order.

    Returns
    -------
    pairs : Tuples of shape (m, 2, n_features)
        Rows of X, in random order. Pairs of equal points are left out; if they are far, with a
        warning.
    y : ndarray of int, of shape (m,)
        +1 for near and -1 for far pairs.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import make_pairs
    >>> pairs, near = make_pairs(*load_iris(return_X_y=True), 100, random_state=0)
    >>> pairs.shape, int(near.sum())
    ((200, 2, 4), 0)
    """
    labels, same = labelled_points(X, y, "make_pairs")
    if n_pairs is not None:
        check_number("n_pairs", n_pairs, Integral, 1)
    random, possible = check_random_state(random_state), LabelledPairs(labels)
    n_near, n_far = possible.n_near, possible.n_far
    if balanced:
        count = min(n_near, n_far, n_far if n_pairs is None else n_pairs)
        check_count(2 * count, len(same), "pairs")
        near, far = drawn(count, n_near, random), drawn(count, n_far, random)
    else:
        total = n_near + n_far
        count = total if n_pairs is None else min(2 * n_pairs, total)
        check_count(count, len(same), "pairs")
        numbers = drawn(count, total, random)
        near, far = numbers[numbers < n_near], numbers[numbers >= n_near] - n_near
    heads, tails, is_near = possible.edges(near, far)
    indices, kinds = np.stack([heads, tails], axis=1), np.where(is_near, 1, -1)
    order = random.permutation(len(indices))
    indices, kinds = indices[order], kinds[order]
    differ = same[indices[:, 0]] != same[indices[:, 1]]
    _warn_of_equal(indices[~differ & (kinds < 0)])
    return Tuples(X, indices[differ]), kinds[differ]


def make_triplets(
    X: Any, y: Any, n_triplets: int | None = None, *, random_state: Any = None
) -> Tuples:
    """Draw distinct triplets of labelled points: a point, one of its class, one of another class.

    Parameters
    ----------
    X : array-like, DataFrame or torch.Tensor of shape (n_samples, n_features)
        The points.
    y : array-like of shape (n_samples,)
        Their class labels.
    n_triplets : int or None, default=None
        Number of triplets; all if there are fewer, or for None.
    random_state : int, RandomState instance or None, default=None
        Draws the triplets and their order.

    Returns
    -------
    Tuples of shape (n_triplets, 3, n_features)
        Rows of X, in random order: a point, one that should be near, one that should be far.
        Triplets are left out if their first point equals one of the others; if it equals the last,
        with a warning.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import make_triplets
    >>> make_triplets(*load_iris(return_X_y=True), 100, random_state=0).shape
    (100, 3, 4)
    """
    labels, same = labelled_points(X, y, "make_triplets")
    if n_triplets is not None:
        check_number("n_triplets", n_triplets, Integral, 1)
    random, n = check_random_state(random_state), len(same)
    sizes = np.repeat(labels.sizes, labels.sizes).astype(np.int64)  # of each point, in class order
    starts = np.repeat(labels.starts[:-1], labels.sizes)
    reached = np.cumsum((sizes - 1) * (n - sizes))  # cumulative number of triplets
    total = int(reached[-1])
    count = total if n_triplets is None else min(n_triplets, total)
    check_count(count, n, "triplets")
    numbers = random.permutation(drawn(count, total, random))
    places = np.searchsorted(reached, numbers, side="right")
    within = numbers - np.concatenate([[0], reached])[places]
    near, far = np.divmod(within, n - sizes[places])  # within the class, and outside
    near += starts[places]
    near += near >= places
    far += np.where(far >= starts[places], sizes[places], 0)
    indices = labels.order[np.stack([places, near, far], axis=1)]
    first, second, third = same[indices].T
    _warn_of_equal(indices[first == third][:, ::2])
    return Tuples(X, indices[(first != second) & (first != third)])


def labelled_points(X: Any, y: Any, name: str) -> tuple[ClassOrder, Index]:
    """The labels in order, and for each point the first one with the same features."""
    check_in_memory(X)
    if is_torch(X):
        points = kernels_for(X).double(kernels_for(X).detached(X))
    else:
        points = check_array(X, dtype=[np.float64, np.float32])
    labels = class_order(kernels_for(y).to_host(y), name)
    if len(labels.codes) != len(points):
        raise InvalidInputError(
            f"{name} needs a label for each row; X has {len(points)} rows and y has"
            f" {len(labels.codes)}. Check that they belong together."
        )
    check_near_and_far(labels, name)
    return labels, equal_points(points)


def _warn_of_equal(far: Index) -> None:
    """Warn of equal points (m, 2) with different labels."""
    if len(far):
        warn(
            "equal points with different labels are not paired, since no metric can separate them:"
            f" rows {far[0, 0]} and {far[0, 1]} ({len(far)} pairs in all). Check their labels.",
            DataWarning,
        )
