"""Rows in host memory that are computed on a device, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.engine import _done, is_dask
from nearfar.blocks.rows import Blocks, floating
from nearfar.blocks.streaming import Streaming
from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, check_memory, is_torch, take_rows, to_host, transfer_to

Index = NDArray[np.intp]

BLOCK_SHARE = 40  # blocks of float32 that memory must hold: copies, images in float64, products
TRIPLET_BYTES = 30_000  # of each row besides: three times what LMNN's triplets of it may take
LARGEST_BLOCK = 1 << 28  # bytes
FEWEST_ROWS = 256  # of a block


def in_blocks(X: Any) -> bool:
    """Whether learners take the rows of X in blocks: of Dask collections, and streamed rows."""
    return is_dask(X) or isinstance(X, Streamed)


def _are_numbers(rows: Array) -> bool:
    """Whether NumPy has their type, and it is one of numbers; of bfloat16 it has none."""
    try:
        return to_host(rows[:1]).dtype.kind in "fiub"
    except TypeError:
        return False


class Streamed:
    """Rows in host memory, to be computed on a device that need not have memory for all of them.

    `LMNN` learns from them, and ``transform`` of metrics with one linear map maps them, a block at
    a time. Results are NumPy arrays in host memory. ``memory_limit`` of an estimator is that of the
    device; host memory holds the rows once more, sorted, and the triplets.

    Parameters
    ----------
    rows : ndarray or torch.Tensor of shape (n_samples, n_features)
        The rows, in host memory: an array, one that is mapped from a file (`numpy.memmap`), or
        a tensor of the device "cpu".
    device : str, default="cuda"
        The device, as ``tensor.to`` takes it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LMNN, Streamed
    >>> X, y = load_iris(return_X_y=True)
    >>> rows = Streamed(X, device="cpu")  # doctest: +SKIP
    >>> LMNN().fit(rows, y).transform(rows).shape  # doctest: +SKIP
    (150, 2)
    """

    ndim = 2

    def __init__(self, rows: Any, device: str = "cuda") -> None:
        if is_dask(rows) or isinstance(rows, Streamed):
            raise InvalidInputError(
                f"rows must be an array or a tensor in host memory; got {type(rows).__name__}."
                " Fit to it as it is."
            )
        if is_torch(rows) and rows.device.type != "cpu":
            raise InvalidInputError(
                f"rows must be in host memory; got a tensor on {rows.device}. Fit to it as it is,"
                " or move it with rows.cpu()."
            )
        self.rows: Array = rows if is_torch(rows) else np.asanyarray(rows)
        if self.rows.ndim != 2 or 0 in self.rows.shape or not _are_numbers(self.rows):
            raise InvalidInputError(
                "rows must be numbers of shape (n_samples, n_features), at least one of each; got"
                f" {self.rows.dtype} of shape {tuple(self.rows.shape)}. Reshape or convert them."
            )
        self.device = device
        self._chosen: Index | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of the array."""
        n = len(self.rows) if self._chosen is None else len(self._chosen)
        return n, int(self.rows.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """In which they are computed: float32 stays, all else is float64."""
        return floating(to_host(self.rows[:1]).dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Streamed:
        """Some of the rows; nothing is copied."""
        found = Streamed(self.rows, self.device)
        own = np.arange(len(self.rows)) if self._chosen is None else self._chosen
        found._chosen = own[rows]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Raise: they are to be computed elsewhere."""
        del dtype, copy
        raise InvalidInputError(
            "rows that stream through a device are for LMNN, and for transform of metrics with one"
            " linear map. Pass the array itself, or a tensor on the device."
        )

    @property
    def reference(self) -> Array:
        """An empty tensor on the device."""
        return transfer_to(self.device).reference

    def _copied(self, rows: Index | slice) -> Array:
        own = rows if self._chosen is None else self._chosen[rows]
        if is_torch(self.rows):
            part = self.rows[own] if isinstance(own, slice) else take_rows(self.rows, own)
            part = to_host(part)
        else:
            part = np.asarray(self.rows[own])
        if not np.isfinite(part).all():
            raise InvalidInputError(
                "rows must not contain NaN or infinity. Drop or impute such rows."
            )
        return np.array(part, dtype=self.dtype, order="C")

    def blocks(self, order: Index | None = None, most_rows: int | None = None) -> Blocks:
        """The rows in an order, copied in blocks of which the device holds some at a time."""
        n, d = self.shape
        engine = Streaming(self.device)
        starts = self._starts(engine.memory, len(order) if order is not None else n, most_rows)
        parts = [
            _done(engine.transfer.host_rows(self._copied(rows)))
            for rows in (
                slice(first, last) if order is None else order[first:last]
                for first, last in pairwise(starts.tolist())
            )
        ]
        return Blocks(engine, parts, starts, (int(starts[-1]), d), self.dtype)

    def _starts(self, memory: float, n: int, most_rows: int | None = None) -> Index:
        row = self.shape[1] * self.dtype.itemsize
        check_memory(
            float((BLOCK_SHARE * row + TRIPLET_BYTES) * min(FEWEST_ROWS, n)),
            f"computing {n} rows of {self.shape[1]} features in blocks",
            "Reduce the features",
            self.reference,
        )
        size = min(LARGEST_BLOCK // row, int(memory // (BLOCK_SHARE * row + TRIPLET_BYTES)))
        count = -(-n // min(size, most_rows or size))
        return np.linspace(0, n, count + 1).astype(np.intp)

    def pieces(self) -> Iterator[tuple[slice, Array]]:
        """Blocks of rows on the device, one after another."""
        transfer, n = transfer_to(self.device), len(self)
        memory = Streaming(self.device).memory
        for first, last in pairwise(self._starts(memory, n).tolist()):
            rows = slice(first, last)
            yield rows, transfer.load(transfer.host_rows(self._copied(rows)))
