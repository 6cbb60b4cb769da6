"""Labels of rows in blocks, and the scatter of the rows of each label, in one pass over the rows.

Labels are first counted, block by block. If all rows of a group lie in one block, only their
scatter leaves the block. For other groups, the mean of their rows in each block leaves it, too.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.collections import Stream
from nearfar.blocks.scatter import NONE, Scatter, scatter_of_rows, sum_of_scatters
from nearfar.errors import InvalidInputError
from nearfar.kernels import check_memory
from nearfar.supervision.labels import class_order

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

SAMPLE_ROWS = 20_000  # rows on this machine from which choices are made,
SAMPLE_BYTES = 1 << 26  # unless they are larger


class _Groups(NamedTuple):
    """The labels that occur in a block, ascending, and what is to be done with them."""

    values: NDArray[Any]
    numbers: Index  # of the groups among all
    used: Mask  # whether their rows are a group
    factors: Matrix  # by which the weights of their rows are multiplied
    is_open: Mask  # whether a group goes on in other blocks
    sampled: Mask  # whether rows of the group go into the sample


@dataclass(frozen=True)
class LabelledStream:
    """Rows in blocks with labels, all of which are known, and weights."""

    rows: Stream
    y: list[Any]  # labels of each block, lazy or not
    sample_weight: list[Any]  # the same, or None for each block
    found: list[NDArray[Any]]  # distinct labels in each block
    classes: NDArray[Any]  # distinct labels of all rows
    counts: Index  # rows of positive weight of each class
    weights: Matrix  # their weight

    @classmethod
    def of(cls, rows: Stream, y: Any, sample_weight: Any, name: str) -> LabelledStream:
        """Count the labels; ``name`` is the estimator's."""
        labels = rows.column(y, "y")
        weights: list[Any] = [None] * len(rows)
        if sample_weight is not None:
            weights = rows.column(sample_weight, "sample_weight")
        starts = rows.starts[:-1].tolist()
        counted = rows.of_columns(
            _counted, labels, weights, starts, [name] * len(rows), name="count_labels"
        )
        found, counts, masses = zip(*counted, strict=True)
        kinds = sorted({values.dtype.kind for values in found})
        if len({kind in "biuf" for kind in kinds}) > 1:
            raise InvalidInputError(
                f"{name} needs labels of one kind; y mixes numbers and text. Convert them all, for"
                " example with y.astype(str)."
            )
        classes = np.unique(np.concatenate(found))
        total, weight = np.zeros(len(classes), dtype=np.intp), np.zeros(len(classes))
        for values, count, mass in zip(found, counts, masses, strict=True):
            places = np.searchsorted(classes, values)
            total[places] += count
            weight[places] += mass
        return cls(rows, labels, weights, list(found), classes, total, weight)

    def with_groups(self, used: Mask, factors: Matrix, *, all_means: bool = False) -> GroupedStream:
        """Some of the classes as groups; weights of rows are multiplied by the classes' factors.

        With ``all_means`` scatters have the means of all groups, not only of those in many blocks.
        """
        blocks_of = np.zeros(len(self.classes), dtype=np.intp)
        places = [np.searchsorted(self.classes, values) for values in self.found]
        for place in places:
            blocks_of[place] += 1
        n_rows = int(self.counts[used].sum())
        is_open = used if all_means else (blocks_of > 1) & used
        d = self.rows.n_features
        parts = sum(int(is_open[place].sum()) for place in places)
        check_memory(
            8.0 * d * parts,
            f"to join {int(is_open.sum())} groups whose rows lie in several blocks",
            "Sort the rows by group, so that the rows of a group lie together",
            np.empty(0),
        )
        most = max(1000, min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * d)))
        step, n_groups = max(1, -(-n_rows // most)), int(used.sum())
        whole = n_groups > most // 10  # groups are small, and taken whole or not at all
        sampled = used.copy()
        if whole:
            sampled[np.flatnonzero(used)] = np.arange(n_groups) % step == 0
        items = [
            _Groups(values, place, used[place], factors[place], is_open[place], sampled[place])
            for values, place in zip(self.found, places, strict=True)
        ]
        return GroupedStream(self, items, 1 if whole else step)


@dataclass(frozen=True)
class GroupedStream:
    """Rows in blocks of which some are in groups."""

    labels: LabelledStream
    items: list[_Groups]
    step: int  # every so many rows in a group go into the sample

    def scatters(
        self, centre: Matrix, L: Matrix | None = None, *, total: bool = False, sample: bool = False
    ) -> tuple[Scatter, Scatter | None, Matrix, Index]:
        """The scatter within groups, of all rows, and a sample of rows with the groups' numbers.

        What is not asked for is None, or empty.
        """
        labels, rows = self.labels, self.labels.rows
        starts = rows.starts[:-1].tolist()
        task = _Task(centre, L, total, self.step if sample else 0)
        found = rows.results(
            task, labels.y, labels.sample_weight, self.items, starts, name="scatter"
        )
        within, all_rows, points, codes = zip(*found, strict=True)
        whole = sum_of_scatters([part for part in all_rows if part is not None]) if total else None
        return (
            sum_of_scatters([part for part in within if part is not None]),
            whole,
            np.concatenate(points),
            np.concatenate(codes),
        )


@dataclass(frozen=True)
class _Task:
    """What is done with a block."""

    centre: Matrix
    L: Matrix | None
    total: bool
    step: int  # every so many rows go into the sample; 0 for none

    def __call__(
        self, X: Any, y: Any, sample_weight: Any, groups: _Groups, first_row: int
    ) -> tuple[Scatter | None, Scatter | None, Any, Index]:
        codes = np.searchsorted(groups.values, _as_labels(y))
        weights = None if (groups.factors == 1).all() else groups.factors[codes]
        if sample_weight is not None:
            given = np.asarray(sample_weight, dtype=np.float64).ravel()
            weights = given if weights is None else weights * given
        if weights is not None and not (weights > 0).all():
            kept = weights > 0
            X, codes, weights = X[kept], codes[kept], weights[kept]
        if not len(X):
            return None, None, X, codes
        taken = np.empty(0, dtype=np.intp)
        if self.step:
            rows = np.flatnonzero(groups.sampled[codes])
            taken = rows[(rows + first_row) % self.step == 0]
        whole = None
        if self.total:
            whole = scatter_of_rows(X, self.centre, None, None, weights, self.L, first_row)
        member = np.where(groups.used[codes], codes, NONE)
        within = scatter_of_rows(X, self.centre, member, groups.numbers, weights, self.L, first_row)
        is_open = groups.is_open[np.searchsorted(groups.numbers, within.groups)]
        return within.with_means_of(is_open), whole, X[taken], groups.numbers[codes[taken]]


def _as_labels(y: Any) -> NDArray[Any]:
    """Labels (n,), text of any type as an array of text."""
    labels = np.asarray(y).ravel()
    text = labels.dtype.kind in ("O", "T") and all(isinstance(value, str) for value in labels)
    return labels.astype(str) if text else labels


def _counted(
    y: Any, sample_weight: Any, first_row: int, name: str
) -> tuple[NDArray[Any], Index, Matrix]:
    """Distinct labels of a block, and the number and the weight of their rows."""
    labels = _as_labels(y)
    if sample_weight is None and labels.dtype.kind in "iu" and len(labels):
        low, high = int(labels.min()), int(labels.max())
        if high - low < len(labels):  # counted without being sorted
            counts = np.bincount(labels.astype(np.intp) - low)
            found = np.flatnonzero(counts)
            return (found + low).astype(labels.dtype), counts[found], counts[found].astype(float)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        order = class_order(labels, name, first_row)
    weights = np.ones(len(order.codes))
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=np.float64).ravel()
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise InvalidInputError(
            f"{name} needs finite weights of at least 0; sample_weight is {weights[wrong[0]]:g} in"
            f" row {wrong[0] + first_row}. Correct them, or give 0 to drop a row.",
            wrong + first_row,
        )
    size = len(order.classes)
    counts = np.bincount(order.codes[weights > 0], minlength=size)
    masses = np.bincount(order.codes, weights, minlength=size).astype(np.float64)
    return order.classes, counts, masses
