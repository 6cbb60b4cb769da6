"""Training and test points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from nearfar.errors import InvalidInputError


@dataclass(frozen=True)
class Split:
    """Training and test points."""

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any


def with_fewer_tests(split: Split, most_pairs: int, least: int) -> Split:
    """The same with the first of the test points, which are in random order.

    So many that their pairs with training points are at most ``most_pairs``, but ``least`` of them.
    """
    count = max(least, most_pairs // max(1, len(split.X_train)))
    return replace(split, X_test=split.X_test[:count], y_test=split.y_test[:count])


def split_points(X: Any, y: Any, test_share: float, seed: int) -> Split:
    """Draw `test_share` of the points for testing, and that share of each class.

    If a class has a single point, or the test set has fewer points than classes, points are drawn
    without regard to classes. A share of 0 leaves the test set empty.
    """
    if test_share == 0:
        return Split(X, y, X[:0], y[:0])
    n = len(y)
    n_test = round(n * test_share)
    if not 1 <= n_test < n:
        raise InvalidInputError(
            f"test_share={test_share} of {n} points is {n_test} test points; both sides need one. "
            "Change the share or give more points."
        )
    _, counts = np.unique(y, return_counts=True)
    balanced = counts.min() > 1 and len(counts) <= min(n_test, n - n_test)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=n_test, random_state=seed, stratify=y if balanced else None
    )
    return Split(X_train, y_train, X_test, y_test)
