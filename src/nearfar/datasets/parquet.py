"""Parquet files, through pyarrow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nearfar.datasets.table import (
    Request,
    Table,
    as_labels,
    as_points,
    missing_label,
    select_columns,
)
from nearfar.errors import InvalidInputError, MissingExtraError


def read_parquet(path: os.PathLike[str], request: Request) -> Table:
    """Read the columns of numbers, and the target of any label type."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError.for_extra("pyarrow", "cli") from None
    with open(path, "rb") as stream:
        try:
            table = pyarrow.parquet.ParquetFile(stream).read()
        except (pyarrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidInputError(
                f"this is not a readable Parquet file: {reason} Write the file again."
            ) from None
    table = _drop_pandas_index(table)
    names = table.column_names
    columns, target_column = select_columns(names, request)
    chosen = [names[i] for i in columns]
    parts = [_numbers(table.column(i), names[i]) for i in columns]
    small = all(part.dtype.itemsize <= 4 and part.dtype.kind == "f" for part in parts)
    X = np.empty((table.num_rows, len(parts)), dtype=np.float32 if small else np.float64)
    for i, part in enumerate(parts):
        X[:, i] = part
    X = as_points(X, chosen)
    target = request.target
    if target is None or not request.labelled:
        return Table(X=X, y=None, feature_names=tuple(chosen), target_name=None)
    y = _labels(table.column(target_column), target)
    return Table(X=X, y=y, feature_names=tuple(chosen), target_name=target)


def _drop_pandas_index(table: Any) -> Any:
    """pandas stores its row index among the columns; it is no feature."""
    described = (table.schema.pandas_metadata or {}).get("index_columns", [])
    stored = [name for name in described if isinstance(name, str) and name in table.column_names]
    return table.drop_columns(stored) if stored else table


def _decode(column: Any) -> Any:
    """A column of categories as a column of their values."""
    import pyarrow

    is_category = pyarrow.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_category else column


def _first_null(column: Any) -> int | None:
    return column.is_null().index(True).as_py() if column.null_count else None


def _numbers(column: Any, name: str) -> np.ndarray:
    import pyarrow

    column = _decode(column)
    row = _first_null(column)
    if row is not None:
        raise InvalidInputError(
            f"the value in row {row + 1} of column {name!r} is missing. Every value must be a "
            "finite number: fill it in, or drop the row or the column.",
            indices=[row],
        )
    kinds = pyarrow.types
    is_number = (kinds.is_floating, kinds.is_integer, kinds.is_boolean, kinds.is_decimal)
    if not any(is_kind(column.type) for is_kind in is_number):
        example = f": {str(column[0])[:40]!r} in row 1" if len(column) else ""
        raise InvalidInputError(
            f"column {name!r} holds {column.type} values{example}. Features must be numbers: drop "
            "the column, encode it as numbers, or make it the target."
        )
    values: np.ndarray = column.to_numpy()
    return values.astype(np.float64) if kinds.is_decimal(column.type) else values


def _labels(column: Any, name: str) -> np.ndarray:
    column = _decode(column)
    row = _first_null(column)
    if row is not None:
        raise missing_label(name, row)
    return as_labels(column.to_numpy(), name)
