"""A table of points, and the checks that every file format shares."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.errors import InvalidInputError
from nearfar.files import MIB, Limit

# What a table may need in memory: tables compress well, but a small file must not fill a machine.
LIMIT = Limit(256 * MIB, 100)
_NAMES_SHOWN = 12  # half of them from the end, where the target often stands
_NO_FEATURES = "there are no feature columns. Give at least one besides the target."


@dataclass(frozen=True)
class Table:
    """Points with or without labels.

    Attributes
    ----------
    X : array of shape (n, d), float32 or float64; a CSR array, if that was asked for
    y : array of shape (n,) of integers, booleans or strings, or None if no labels were read
    feature_names : d names, or None where the file has none
    target_name : the name of the column of labels, or None with y
    """

    X: Any
    y: np.ndarray | None
    feature_names: tuple[str, ...] | None
    target_name: str | None


def suggest(name: str, choices: Sequence[str]) -> str:
    """The names that exist, and the one that was perhaps meant."""
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"Choose from: {_format_names(choices)}{hint}"


def _format_names(names: Sequence[str]) -> str:
    if len(names) <= _NAMES_SHOWN:
        return ", ".join(names)
    half = _NAMES_SHOWN // 2
    return f"{', '.join(names[:half])}, ..., {', '.join(names[-half:])} ({len(names)} columns)"


@dataclass(frozen=True)
class Request:
    """What to read from a table; the parameters of `load_table`."""

    target: str | None = None
    features: Sequence[str] | None = None
    labelled: bool = True
    drop: Sequence[str] = ()
    sparse: bool = False


def select_columns(names: Sequence[str], request: Request) -> tuple[list[int], int | None]:
    """The positions of the feature columns, and of the target column if there is one."""
    target, features = request.target, request.features
    if target is None and request.labelled:
        raise InvalidInputError(
            "no target is named, and one column must hold the class labels. Choose the target "
            f"from: {_format_names(names)}"
        )
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise InvalidInputError(
                f"column {number} has no name. Name it, or leave it out if it only numbers the "
                "rows (pandas: to_csv(index=False))."
            )
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InvalidInputError(
            f"{count} columns are named {name!r}. Column names must be distinct: rename them, or "
            "put a line of names on top if there is none."
        )
    position = {name: i for i, name in enumerate(names)}
    for wanted in [target, *(features or []), *request.drop]:
        if wanted is not None and wanted not in position:
            raise InvalidInputError(f"there is no column {wanted!r}. {suggest(wanted, names)}")
    if features is None:
        features = [name for name in names if name != target and name not in request.drop]
    if not features:
        raise InvalidInputError(_NO_FEATURES)
    return [position[name] for name in features], None if target is None else position[target]


def as_points(values: np.ndarray, names: Sequence[str] | None = None) -> np.ndarray:
    """A finite float matrix: float32 stays, integers and booleans become float64."""
    kind = values.dtype.kind
    if values.ndim != 2 or kind not in "fiub":
        raise InvalidInputError(
            f"the points must be a matrix of numbers, one row for each point; found an array of "
            f"shape {values.shape} and dtype {values.dtype}. Reshape it, or encode text as numbers."
        )
    if values.shape[0] == 0:
        raise InvalidInputError("there are no rows. Give at least one row of numbers.")
    if values.shape[1] == 0:
        raise InvalidInputError(_NO_FEATURES)
    small = kind == "f" and values.dtype.itemsize <= 4
    points = np.ascontiguousarray(values, dtype=np.float32 if small else np.float64)
    finite = np.isfinite(points)
    if not finite.all():
        row, column = divmod(int(np.argmin(finite)), finite.shape[1])
        label = str(column + 1) if names is None else repr(names[column])
        what = "missing" if np.isnan(points[row, column]) else "infinite"
        raise InvalidInputError(
            f"the value in row {row + 1} of column {label} is {what}. Every value must be a finite "
            "number: fill it in, or drop the row or the column.",
            indices=[row],
        )
    return points


def as_labels(values: np.ndarray, name: str) -> np.ndarray:
    """Labels as integers, booleans or strings; whole floats become integers."""
    kind = values.dtype.kind
    if values.ndim == 1 and kind in "biuU":
        return values
    if values.ndim == 1 and kind == "S":
        return _decoded(values, name)
    if values.ndim == 1 and kind == "O" and all(isinstance(value, str) for value in values):
        return as_text(values.tolist(), name)
    if values.ndim != 1 or kind != "f":
        raise InvalidInputError(
            f"target {name!r} must be a column of class labels: integers, booleans or strings; "
            f"found an array of shape {values.shape} and dtype {values.dtype}. Choose another one."
        )
    missing = np.isnan(values)
    if missing.any():
        raise missing_label(name, int(np.argmax(missing)))
    fractional = (values != np.rint(values)) | (np.abs(values) > 2**53)
    if fractional.any():
        row = int(np.argmax(fractional))
        raise InvalidInputError(
            f"target {name!r} holds measurements, not class labels: {values[row]:g} in row "
            f"{row + 1}. Expected whole numbers, booleans or strings. Choose another column, or "
            "bin the values.",
            indices=[row],
        )
    return values.astype(np.int64)


def as_text(labels: Sequence[str], name: str, stored: int | None = None) -> np.ndarray:
    """Labels as an array of strings, in which each takes as much memory as the longest.

    ``stored`` is how many characters the file has for them, by default all of all labels.
    """
    longest = max(map(len, labels), default=0)
    stored = sum(map(len, labels)) if stored is None else stored
    if 4 * longest * len(labels) > LIMIT.of(stored):
        row = next(i for i, label in enumerate(labels) if len(label) == longest)
        raise InvalidInputError(
            f"the label in row {row + 1} of target {name!r} has {longest:,} characters, and "
            f"{len(labels):,} labels of that length need too much memory. Shorten it, or choose "
            "another column.",
            indices=[row],
        )
    return np.array(labels, dtype=str)


def _decoded(values: np.ndarray, name: str) -> np.ndarray:
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"target {name!r} holds bytes that are not UTF-8 text. Save the labels as strings."
        ) from None


def missing_label(name: str, row: int) -> InvalidInputError:
    """The error for a label that is not there; `row` counts from 0."""
    return InvalidInputError(
        f"the label in row {row + 1} of target {name!r} is missing. Every row needs a label: fill "
        "it in, or drop the row.",
        indices=[row],
    )
