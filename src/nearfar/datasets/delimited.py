"""CSV files: a line of names, then a line for each point.

Where pyarrow is installed it reads the lines, in a tenth of the time. What it refuses is read again
line by line: that reads more (spaces around cells), and names the cell that is wrong.
"""

from __future__ import annotations

import csv
import os
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import TextIO

import numpy as np

from nearfar.datasets.table import (
    Request,
    Table,
    as_labels,
    as_points,
    as_text,
    missing_label,
    select_columns,
)
from nearfar.errors import InvalidInputError

_DELIMITERS = ",;\t"
_MISSING = {"", "?", "na", "n/a", "nan", "none", "null"}


def read_delimited(path: os.PathLike[str], request: Request) -> Table:
    """Read UTF-8 text, with or without a byte order mark, split by commas, semicolons or tabs."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            X, names, labels = _read(stream, request)
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"this is not UTF-8 text (byte {error.start}). Save the table as CSV in UTF-8."
        ) from None
    except csv.Error as error:
        raise InvalidInputError(
            f"this is not a CSV file: {error}. Save the table as CSV in UTF-8."
        ) from None
    target = request.target
    if target is None or not request.labelled:
        return Table(X=X, y=None, feature_names=names, target_name=None)
    return Table(X=X, y=_parse_labels(labels, target), feature_names=names, target_name=target)


def _read(stream: TextIO, request: Request) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """The points, the names of the features, and the cells of the target column."""
    first_line = re.sub(r'"[^"]*"', "", stream.readline())
    stream.seek(0)
    delimiter = max(_DELIMITERS, key=first_line.count)
    lines = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
    rows = (row for row in lines if row)  # blank lines are no rows
    names = [name.strip() for name in next(rows, [])]
    if not names:
        raise InvalidInputError("the file is empty. Expected a line of column names, then rows.")
    _check_header(names)
    columns, target_column = select_columns(names, request)
    chosen = [names[i] for i in columns]
    read = _read_by_pyarrow(stream.name, delimiter, len(names), columns, target_column)
    if read is not None:
        return as_points(read[0], chosen), tuple(chosen), read[1]
    values = array("d")
    labels = []
    for number, row in enumerate(_full_rows(rows, len(names)), start=1):
        cells = [row[i] for i in columns]
        try:
            if "_" in "".join(cells):  # float("1_0") is 10, but a cell like that is an identifier
                raise ValueError
            values.extend(map(float, cells))
        except ValueError:
            raise _not_a_number(cells, chosen, number) from None
        if target_column is not None:
            labels.append(row[target_column].strip())
    if not values:
        raise InvalidInputError("there is a line of column names but no rows below it. Add rows.")
    X = as_points(np.frombuffer(values, dtype=np.float64).reshape(-1, len(columns)), chosen)
    return X, tuple(chosen), labels


def _read_by_pyarrow(
    path: str, delimiter: str, width: int, columns: Sequence[int], target: int | None
) -> tuple[np.ndarray, list[str]] | None:
    """The points and the cells of the target column; None if pyarrow cannot read all of them."""
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    names = [str(i) for i in range(width)]
    types = {names[i]: pyarrow.float64() for i in columns}
    used = [names[i] for i in columns]
    if target is not None:
        types[names[target]] = pyarrow.string()
        used.append(names[target])
    try:
        table = arrow_csv.read_csv(
            path,
            arrow_csv.ReadOptions(column_names=names, skip_rows=1),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=types, include_columns=used, null_values=[], strings_can_be_null=False
            ),
        )
    except (pyarrow.ArrowException, OSError):
        return None
    if not len(table):
        return None
    X = np.empty((len(table), len(columns)))
    for place, column in enumerate(columns):
        X[:, place] = table.column(names[column]).to_numpy()
    labels = [] if target is None else table.column(names[target]).to_pylist()
    return X, [label.strip() for label in labels]


def _check_header(names: Sequence[str]) -> None:
    """Names may be plain integers, as pandas writes them; decimals are a row without a header."""
    if all(_is_number(name) for name in names) and not all(name.isdigit() for name in names):
        raise InvalidInputError(
            f"the first line holds numbers only ({names[0]}, ...). Expected column names: put a "
            "line of names on top."
        )


def _full_rows(rows: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise InvalidInputError(
                f"row {number} has {len(row)} cells; the line of names has {width}. Add or remove "
                "cells, and quote those that contain the delimiter.",
                indices=[number - 1],
            )
        yield row


def _not_a_number(cells: Sequence[str], names: Sequence[str], number: int) -> InvalidInputError:
    column = next(i for i, cell in enumerate(cells) if not _is_number(cell))
    cell = cells[column].strip()
    if cell.lower() in _MISSING:
        return InvalidInputError(
            f"the value in row {number} of column {names[column]!r} is missing. Every value must "
            "be a finite number: fill it in, or drop the row or the column.",
            indices=[number - 1],
        )
    return InvalidInputError(
        f"column {names[column]!r} holds text: {cell[:40]!r} in row {number}. Features must be "
        "numbers: drop the column, encode it as numbers, or make it the target.",
        indices=[number - 1],
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parse_labels(cells: list[str], name: str) -> np.ndarray:
    """Integers if all cells are, else booleans, else whole floats, else strings."""
    if "" in cells:
        raise missing_label(name, cells.index(""))
    if set(cells) <= {"True", "False", "true", "false"}:
        return np.array([cell.lower() == "true" for cell in cells])
    if not all(map(_is_number, set(cells))):
        return as_text(cells, name)
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except ValueError:
        return as_labels(np.array([float(cell) for cell in cells]), name)
    except OverflowError:  # an identifier with more digits than int64 holds
        return as_text(cells, name)
