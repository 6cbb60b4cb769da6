"""Chunklets: small groups of points that are known to belong together."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError
from nearfar.kernels import kernels_for
from nearfar.supervision.labels import class_order
from nearfar.validation import check_number

Index = NDArray[np.intp]


def make_chunklets(
    y: Any,
    n_chunklets: int | None = None,
    *,
    chunklet_size: int = 2,
    random_state: Any = None,
) -> Index:
    """Draw disjoint chunklets, each of points of one class.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Class labels.
    n_chunklets : int or None, default=None
        Number of chunklets; None makes as many as possible. All chunklets are equally likely.
    chunklet_size : int, default=2
        Number of points in a chunklet, at least two.
    random_state : int, RandomState instance or None, default=None
        Draws the chunklets.

    Returns
    -------
    ndarray of int, of shape (n_samples,)
        The number of the chunklet of each row, from 0; -1 for rows in none.

    Examples
    --------
    >>> from nearfar import make_chunklets
    >>> make_chunklets(["a", "a", "a", "b", "b"], random_state=0)
    array([-1,  0,  0,  1,  1])
    """
    check_number("chunklet_size", chunklet_size, Integral, 2)
    labels = class_order(kernels_for(y).to_host(y), "make_chunklets")
    random = check_random_state(random_state)
    counts = labels.sizes // chunklet_size
    total = int(counts.sum())
    if total == 0 or (n_chunklets is not None and n_chunklets > total):
        raise InvalidInputError(
            f"y has classes for {total} chunklets of {chunklet_size} points;"
            f" got n_chunklets={n_chunklets}. Lower n_chunklets or chunklet_size."
        )
    if n_chunklets is not None:
        check_number("n_chunklets", n_chunklets, Integral, 1)
    members = np.concatenate(
        [
            random.permutation(labels.order[start : start + size])[: count * chunklet_size]
            for start, size, count in zip(labels.starts, labels.sizes, counts, strict=False)
        ]
    ).reshape(total, chunklet_size)
    chosen = members if n_chunklets is None else members[random.permutation(total)[:n_chunklets]]
    numbers = np.full(len(labels.codes), -1)
    numbers[chosen] = np.arange(len(chosen))[:, None]
    return numbers
