"""Parquet files, through pyarrow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearfar.datasets.table import (
    LIMIT,
    Request,
    Table,
    as_labels,
    as_points,
    as_text,
    missing_label,
    select_columns,
)
from nearfar.errors import InvalidInputError, MissingExtraError
from nearfar.files import DAMAGE


def read_parquet(path: os.PathLike[str], request: Request) -> Table:
    """Read the columns of numbers, and the target of any label type."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError.for_extra("pyarrow", "cli") from None
    with open(path, "rb") as stream:
        try:
            file = pyarrow.parquet.ParquetFile(stream)
            names = _names(file.schema_arrow)
            columns, target_column = select_columns(names, request)
            chosen = [names[i] for i in columns]
            wanted = chosen if target_column is None else [*chosen, names[target_column]]
            _check_size(file, os.fstat(stream.fileno()).st_size, wanted)
            _check_types(file, chosen, request.target)
            # Text as codes and a dictionary, which is how the file holds it: written out it may
            # take any multiple of that.
            text = [] if request.target is None else [request.target]
            file = pyarrow.parquet.ParquetFile(stream, metadata=file.metadata, read_dictionary=text)
            table = file.read(columns=wanted)
            table.validate(full=True)
        except InvalidInputError:
            raise
        except (pyarrow.ArrowException, *DAMAGE) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(
                f"this is not a readable Parquet file: {reason} Write the file again."
            ) from None
    parts = [_numbers(table.column(name), name) for name in chosen]
    small = all(part.dtype.itemsize <= 4 and part.dtype.kind == "f" for part in parts)
    X = np.empty((table.num_rows, len(parts)), dtype=np.float32 if small else np.float64)
    for i, part in enumerate(parts):
        X[:, i] = part
    X = as_points(X, chosen)
    target = request.target
    if target is None or not request.labelled:
        return Table(X=X, y=None, feature_names=tuple(chosen), target_name=None)
    y = _labels(table.column(target), target)
    return Table(X=X, y=y, feature_names=tuple(chosen), target_name=target)


def _names(schema: Any) -> list[str]:
    """The columns; pandas stores its row index among them, which is no feature."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name not in index]


def _check_size(file: Any, size: int, wanted: Sequence[str]) -> None:
    """Raise if the file declares columns that need much more memory than its size."""
    roots = {name.split(".")[0] for name in wanted}
    needed = stored = 0
    for i in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(i)
        needed += 8 * group.num_rows * len(wanted)
        for j in range(group.num_columns):
            if group.column(j).path_in_schema.split(".")[0] in roots:
                stored += group.column(j).total_uncompressed_size
    if max(needed, stored) > LIMIT.of(size):
        raise InvalidInputError(
            f"the table needs {max(needed, stored):,} bytes: expected at most {LIMIT.of(size):,} in"
            f" a file of {size:,}. Write it uncompressed and without dictionaries, or in parts."
        )


def _check_types(file: Any, features: Sequence[str], target: str | None) -> None:
    """Raise unless features are numbers and the target has single values."""
    import pyarrow

    kinds = pyarrow.types
    is_number = (kinds.is_floating, kinds.is_integer, kinds.is_boolean, kinds.is_decimal)
    for name in features:
        kind = _value_type(file.schema_arrow.field(name).type)
        if not any(is_kind(kind) for is_kind in is_number):
            first = next(file.iter_batches(1, columns=[name]), None)
            example = "" if first is None else f": {str(first.column(name)[0])[:40]!r} in row 1"
            raise InvalidInputError(
                f"column {name!r} holds {kind} values{example}. Features must be numbers: drop the "
                "column, encode it as numbers, or make it the target."
            )
    if target is None:
        return
    kind = _value_type(file.schema_arrow.field(target).type)
    if kinds.is_nested(kind):
        raise InvalidInputError(
            f"target {target!r} must be a column of class labels: integers, booleans or strings; "
            f"found {kind} values. Choose another one."
        )


def _value_type(kind: Any) -> Any:
    """The type of a column; of one of categories, that of its values."""
    import pyarrow

    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def _first_null(column: Any) -> int | None:
    return column.is_null().index(True).as_py() if column.null_count else None


def _numbers(column: Any, name: str) -> np.ndarray:
    import pyarrow

    column = column.cast(_value_type(column.type))
    row = _first_null(column)
    if row is not None:
        raise InvalidInputError(
            f"the value in row {row + 1} of column {name!r} is missing. Every value must be a "
            "finite number: fill it in, or drop the row or the column.",
            indices=[row],
        )
    values: np.ndarray = column.to_numpy()
    return values.astype(np.float64) if pyarrow.types.is_decimal(column.type) else values


def _labels(column: Any, name: str) -> np.ndarray:
    import pyarrow

    row = _first_null(column)
    if row is not None:
        raise missing_label(name, row)
    if not pyarrow.types.is_dictionary(column.type):
        return as_labels(column.to_numpy(), name)
    chunks = column.unify_dictionaries().chunks
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    values: np.ndarray = chunks[0].dictionary.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values):
        stored = sum(map(len, values)) + len(codes)
        return as_text([values[code] for code in codes], name, stored)
    labels: np.ndarray = as_labels(values, name)[codes]
    return labels
