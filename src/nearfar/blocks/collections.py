"""Dask arrays and tables as rows: what is known of them without computing them, and lazy maps."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.engine import Engine, current_engine, import_dask, run_task
from nearfar.blocks.rows import Blocks, _parts, block_starts, floating, with_known_rows
from nearfar.blocks.scatter import Scatter, scatter_of_rows, sum_of_scatters
from nearfar.errors import InvalidInputError
from nearfar.kernels import check_memory

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


def is_table(X: Any) -> bool:
    """Whether a collection of Dask is a table or one of its columns."""
    return hasattr(X, "map_partitions")


def as_array(X: Any, name: str = "X", ndim: int = 2) -> Any:
    """A collection of Dask as an array of so many axes, of numbers if it has two; still lazy.

    The rows of a table are its partitions, of unknown sizes. The rows of the result are whole.
    """
    import_dask()
    array = _table_as_array(X) if is_table(X) else X
    if not hasattr(array, "chunks") or array.ndim != ndim:
        kind = "a Dask array or table of rows" if ndim == 2 else "a Dask array or column"
        shape = getattr(array, "shape", None)
        got = type(X).__name__ if shape is None else f"a Dask {type(X).__name__} of shape {shape}"
        raise InvalidInputError(f"{name} must be {kind}, with {ndim} axes; got {got}. Reshape it.")
    if ndim == 2 and array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must hold numbers; got a {type(X).__name__} of {array.dtype}. Drop or encode"
            " the columns that hold something else."
        )
    return array.rechunk({1: -1}) if ndim == 2 and array.numblocks[1] > 1 else array


def _table_as_array(X: Any) -> Any:
    with warnings.catch_warnings():
        # Text becomes an array of objects, which is as good.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return X.to_dask_array()


def feature_template(X: Any) -> Any:
    """An empty array or table with the columns of X, for checks of their number and names."""
    return X._meta if is_table(X) else np.empty((0, X.shape[1]))


def array_of_known_rows(X: Any) -> Any:
    """An array or a table as an array whose rows are counted where their number is not known."""
    return with_known_rows(as_array(X))


def rows_on_this_machine(array: Any, rows: Index) -> Any:
    """Some rows of an array whose rows are counted, in this order; raises if they do not fit."""
    check_memory(
        float(len(rows)) * array.shape[1] * floating(array.dtype).itemsize,
        f"to hold the {len(rows)} rows that are named",
        "Name fewer rows",
        np.empty(0),
    )
    blocks = Blocks.of(array, rows)
    return np.concatenate(blocks.engine.results(blocks.parts))


def on_this_machine(values: Any) -> Any:
    """Labels or weights, computed if they are lazy."""
    if not hasattr(values, "__dask_graph__"):
        return values
    return np.asarray(values.compute())


def map_rows(
    X: Any, function: Callable[..., Any], *args: Any, width: int | None, dtype: Any
) -> Any:
    """A lazy array ``function(block, *args)`` of width columns, or without columns for None."""
    array = as_array(X)
    columns = {"drop_axis": 1} if width is None else {"chunks": (array.chunks[0], (width,))}
    meta = np.empty((0,) if width is None else (0, 0), dtype=dtype)
    return array.map_blocks(function, *args, dtype=dtype, meta=meta, **columns)


@dataclass(frozen=True)
class Stream:
    """Rows in blocks that are read when they are needed, summed up and forgotten.

    Blocks are those of `Blocks`, whose sizes depend on the shape alone. A pass over them takes the
    memory of the blocks that are in work; another pass reads them again.
    """

    engine: Engine
    parts: list[Any]  # lazy arrays
    starts: Index
    n_features: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, X: Any) -> Stream:
        """The rows of an array or a table; sizes of its chunks are counted if they are unknown."""
        array = array_of_known_rows(X)
        dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)
        if array.shape[0] == 0:
            raise InvalidInputError("X has no rows. Give at least one.")
        starts = block_starts(array.shape, dtype)
        parts = list(_parts(array, starts, None, dtype))
        return cls(current_engine(), parts, starts, int(array.shape[1]), dtype)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def n_rows(self) -> int:
        """Of all blocks."""
        return int(self.starts[-1])

    def column(self, values: Any, name: str) -> list[Any]:
        """Values of the rows, those of each block apart; lazy ones stay so."""
        if not hasattr(values, "__dask_graph__"):
            values = np.asarray(values)
            if values.shape != (self.n_rows,):
                raise self._wrong_length(name, values.shape)
            return np.split(values, self.starts[1:-1])
        array = as_array(values, name, 1)[:, None]
        array = with_known_rows(array)
        if array.shape[0] != self.n_rows:
            raise self._wrong_length(name, array.shape[:1])
        return list(_parts(array, self.starts, None, None))

    def _wrong_length(self, name: str, shape: Any) -> InvalidInputError:
        return InvalidInputError(
            f"{name} must have a value for each of the {self.n_rows} rows of X; it has shape"
            f" {tuple(shape)}. Check that they belong together."
        )

    def results(self, function: Callable[..., Any], *columns: Sequence[Any], name: str) -> Any:
        """``function(block, *items)`` with an item of each column, in the order of the blocks."""
        return _results(self.engine, function, [self.parts, *columns], name)

    def of_columns(self, function: Callable[..., Any], *columns: Sequence[Any], name: str) -> Any:
        """``function(*items)`` with an item of each column; the rows are not read."""
        return _results(self.engine, function, columns, name)

    def scatter(self) -> tuple[Scatter, Matrix]:
        """The sums of all rows about their mean, in one pass, and what the mean is relative to."""
        centre = self.first_row()
        parts = self.results(
            scatter_of_rows,
            *([value] * len(self) for value in (centre, None, None, None, None)),
            self.starts[:-1].tolist(),
            name="scatter",
        )
        return sum_of_scatters(parts), centre

    def first_row(self) -> Matrix:
        """The first row of all, in float64."""
        row = replace(self, parts=self.parts[:1]).results(_first_row, name="first_row")[0]
        return np.asarray(row)


def _results(
    engine: Engine, function: Callable[..., Any], columns: Sequence[Sequence[Any]], name: str
) -> Any:
    from dask import delayed

    task = delayed(run_task, pure=False, traverse=False)
    lazy = [
        task(function, *items, dask_key_name=f"{name}-{uuid.uuid4().hex}")
        for items in zip(*columns, strict=True)
    ]
    return engine.results(engine.compute(lazy))


def _first_row(block: Any) -> Matrix:
    return np.asarray(block[0], dtype=np.float64)
