"""Rows of a Dask array that are chosen by number, and tasks that get rows from any block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.collections import array_of_known_rows, rows_on_this_machine
from nearfar.blocks.engine import is_dask
from nearfar.blocks.rows import BLOCK_BYTES, Blocks
from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for

Index = NDArray[np.intp]


@dataclass(frozen=True)
class LazyRows:
    """Some rows of a Dask array, in some order; none of them is computed.

    Rows of these rows are rows of the same array, so that data moves once however often they are
    chosen again.
    """

    array: Any  # (n, d), its rows counted
    rows: Index  # (m,)

    @classmethod
    def of(cls, X: Any) -> LazyRows:
        """All rows of a Dask array or table, or rows that are chosen already."""
        if isinstance(X, cls):
            return X
        array = array_of_known_rows(X)
        return cls(array, np.arange(array.shape[0]))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Of an array of these rows."""
        return len(self.rows), int(self.array.shape[1])

    @property
    def dtype(self) -> Any:
        """Of the array."""
        return self.array.dtype

    def __getitem__(self, rows: Index) -> LazyRows:
        return LazyRows(self.array, self.rows[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Raise: an array is made on request only."""
        del dtype, copy
        raise InvalidInputError(
            f"the {len(self)} rows must be in memory here; they are rows of a Dask array. Call"
            " on_this_machine() if they fit."
        )

    def blocks(self, name: str = "X") -> Blocks:
        """The rows on the cluster."""
        return Blocks.of(self.array, self.rows, name=name)

    def on_this_machine(self) -> Array:
        """The rows as an array; raises if there is no memory for them."""
        return rows_on_this_machine(self.array, self.rows)


def is_lazy(X: Any) -> bool:
    """Whether X is a collection of Dask, or rows of one."""
    return is_dask(X) or isinstance(X, LazyRows)


def on_gathered_rows(
    blocks: Blocks,
    function: Callable[..., Any],
    wanted: Sequence[Index],
    *columns: Sequence[Any],
    name: str,
) -> list[Any]:
    """The results of ``function(rows, *items)`` for ascending lists of wanted row numbers.

    There are as many tasks at a time as there are blocks, so that the cluster holds each row about
    twice if no list is longer than `rows_in_task`.
    """
    found: list[Any] = []
    for first in range(0, len(wanted), len(blocks)):
        some = slice(first, first + len(blocks))
        pieces = blocks.fetch(list(wanted[some]))
        tasks = blocks.engine.map(
            _on_rows,
            pieces,
            [function] * len(pieces),
            *(column[some] for column in columns),
            name=name,
        )
        found += blocks.engine.results(tasks)
    return found


def rows_in_task(blocks: Blocks) -> int:
    """How many gathered rows take the memory of the largest block that there may be."""
    return max(1, BLOCK_BYTES // (blocks.shape[1] * blocks.dtype.itemsize))


def _on_rows(pieces: list[Array], function: Callable[..., Any], *items: Any) -> Any:
    rows = pieces[0] if len(pieces) == 1 else kernels_for(pieces[0]).concatenate(pieces)
    return function(rows, *items)
