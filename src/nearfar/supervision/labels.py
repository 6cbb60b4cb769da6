"""Class labels as a sorted order of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from nearfar.errors import DataWarning, InvalidInputError, warn

Index = NDArray[np.intp]


@dataclass(frozen=True)
class ClassOrder:
    """Rows sorted by class: class c holds the rows ``order[starts[c]:starts[c + 1]]``."""

    classes: NDArray[Any]
    codes: Index  # (n,) class number of each row, in the given order
    order: Index  # (n,)
    starts: Index  # (number of classes + 1,)

    @property
    def sizes(self) -> Index:
        """How many rows each class has."""
        return np.diff(self.starts)


def class_order(y: Any, name: str, first_row: int = 0) -> ClassOrder:
    """Sort rows by label; labels may be numbers, strings, booleans or categories.

    ``first_row`` is the number of the first row in messages.
    """
    labels = column_or_1d(np.asarray(y), warn=True)
    if labels.dtype.kind == "f":
        missing = np.flatnonzero(~np.isfinite(labels))
    else:
        values = labels if labels.dtype == object else labels[:0]
        missing = np.array([row for row, value in enumerate(values) if _is_missing(value)], int)
    if len(missing):
        missing += first_row
        raise InvalidInputError(
            f"{name} needs a label for every row; y has NaN, infinity or no value in row"
            f" {missing[0]} ({len(missing)} in all). Drop these rows or give them a label.",
            missing,
        )
    if labels.dtype == object:
        kinds = sorted({type(value).__name__ for value in labels})
        if len(kinds) > 1:
            raise InvalidInputError(
                f"{name} needs labels of one kind; y mixes {' and '.join(kinds)}."
                " Convert them all, for example with y.astype(str)."
            )
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.intp)
    return ClassOrder(classes, codes.astype(np.intp), order, starts)


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, infinity or pandas' NA (which cannot be compared)."""
    try:
        return value is None or bool(value != value) or value in (np.inf, -np.inf)
    except TypeError:
        return True


def check_near_and_far(labels: ClassOrder, name: str) -> NDArray[Any]:
    """Raise if labels leave nothing to learn; return the classes with one member."""
    sizes = labels.sizes
    if len(sizes) < 2:
        raise InvalidInputError(
            f"{name} needs at least two classes; y has 1 class, {shown(labels.classes[0])}."
            " Add rows of another class."
        )
    if sizes.max() == 1:
        raise InvalidInputError(
            f"{name} needs a class with two or more members; every class has 1 member,"
            " so that no point has a neighbour of its class. Check that y holds class labels."
        )
    single: NDArray[Any] = labels.classes[sizes == 1]
    return single


def check_class_pairs(labels: ClassOrder, name: str) -> None:
    """Raise if labels give no near or no far pairs; warn of classes with one member."""
    single = check_near_and_far(labels, name)
    if len(single):
        warn(
            f"{_named(single)} 1 member: it is in no near pair, only in far ones."
            " Add rows or drop the class.",
            DataWarning,
        )


def check_class_sizes(labels: ClassOrder, n_neighbors: int | None, name: str) -> None:
    """Raise if labels leave nothing to learn; warn of classes too small for n_neighbors.

    ``n_neighbors`` is None if the target neighbours are given.
    """
    sizes, single = labels.sizes, check_near_and_far(labels, name)
    if len(single):
        warn(
            f"{_named(single)} 1 member: it has no target neighbour and serves as an impostor only."
            " Add rows or drop the class.",
            DataWarning,
        )
    if n_neighbors is None:
        return
    small = labels.classes[(sizes > 1) & (sizes <= n_neighbors)]
    if len(small):
        fewest = sizes[(sizes > 1) & (sizes <= n_neighbors)].min()
        which = "its points" if len(small) == 1 else "points of such a class"
        warn(
            f"{_named(small)} fewer than n_neighbors + 1 = {n_neighbors + 1} members: {which}"
            f" get fewer target neighbours, as few as {fewest - 1}. Lower n_neighbors or add rows.",
            DataWarning,
        )


def _named(classes: NDArray[Any]) -> str:
    """Names of classes, with the verb "has" or "have"."""
    if len(classes) == 1:
        return f"class {shown(classes[0])} has"
    first = ", ".join(map(shown, classes[:5]))
    return f"classes {first}{', …' if len(classes) > 5 else ''} have"


def shown(value: Any) -> str:
    """A label as the user wrote it."""
    return repr(value.item() if isinstance(value, np.generic) else value)
