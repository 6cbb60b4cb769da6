"""Pairs, triplets and quadruplets of shared points, by row number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import is_dask
from nearfar.blocks.collections import array_of_known_rows, rows_on_this_machine
from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.validation import check_in_memory

Index = NDArray[np.intp]


class Tuples:
    """Pairs, triplets or quadruplets of shared points, by row number.

    Replaces the array ``points[indices]`` of shape (n_tuples, 2 to 4, n_features), but takes only
    the memory of the points and the indices. scikit-learn's splitters, ``cross_val_score`` and
    ``GridSearchCV`` can split it; all parts share the points.

    Parameters
    ----------
    points : array-like, DataFrame, torch.Tensor or Dask array of shape (n_points, n_features)
        The points. Of a Dask array or table, `MMC` and `DMLEig` leave the rows that tuples name in
        blocks, and other learners gather them.
    indices : array-like of int, of shape (n_tuples, 2), (n_tuples, 3) or (n_tuples, 4)
        Rows of ``points``: pairs; triplets of a point, one that should be near and one that should
        be far; or quadruplets of two points that should be nearer to each other than two others.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import Tuples
    >>> pairs = Tuples(np.eye(4), [[0, 1], [2, 3], [0, 3]])
    >>> pairs.shape
    (3, 2, 4)
    >>> pairs[[0, 2]].indices
    array([[0, 1],
           [0, 3]])
    """

    ndim = 3

    def __init__(self, points: Any, indices: Any) -> None:
        if is_dask(points):
            points = array_of_known_rows(points)
        else:
            check_in_memory(points, "points")
        self.points = points if hasattr(points, "shape") else np.asarray(points)
        if len(self.points.shape) != 2:
            raise InvalidInputError(
                "points must have shape (n_points, n_features); got"
                f" {tuple(self.points.shape)}. Give each point once, and tuples by row number."
            )
        self.indices = _checked(indices, len(self.points))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the dense array: (n_tuples, 2 to 4, n_features)."""
        n_tuples, size = self.indices.shape
        return n_tuples, size, int(self.points.shape[1])

    @property
    def dtype(self) -> Any:
        """The dtype of the points."""
        return self.points.dtype if is_dask(self.points) else self._array.dtype

    @property
    def named_rows(self) -> Index | None:
        """The rows of a Dask array that tuples name, ascending; None for points in memory."""
        return np.unique(self.indices) if is_dask(self.points) else None

    def in_memory(self) -> Tuples:
        """The same tuples of points in memory: of a Dask array, of the rows that they name."""
        rows = self.named_rows
        if rows is None:
            return self
        points = rows_on_this_machine(self.points, rows)
        return Tuples(points, np.searchsorted(rows, self.indices))

    def dense(self) -> Array:
        """The array ``points[indices]`` of shape (n_tuples, 2 to 4, n_features), made anew."""
        if is_dask(self.points):
            return self.in_memory().dense()
        points = self._array
        return points[kernels_for(points).index(self.indices, points)]

    @property
    def _array(self) -> Array:
        """The points as an array, without column names."""
        return self.points if is_torch(self.points) else np.asarray(self.points)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, key: Any) -> Tuples:
        """Some of the tuples, by a slice, row numbers or a mask, or one by its number."""
        if isinstance(key, tuple):  # scikit-learn's spelling: tuples[rows, ...]
            if len(key) != 2 or key[1] is not Ellipsis:
                raise InvalidInputError(
                    "Tuples are indexed along their first axis only; got"
                    f" {len(key)} indices. Use .dense() for an array of all axes."
                )
            key = key[0]
        if isinstance(key, int | np.integer):
            key = [key]
        elif is_torch(key):
            key = kernels_for(key).to_host(key)
        part = object.__new__(type(self))
        part.points, part.indices = self.points, self.indices[key]
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The dense array on the host; raises for tensors on another device, as torch does."""
        if copy is False:
            raise ValueError("Tuples have no dense array that could be shared; pass copy=None.")
        return np.asarray(self.dense(), dtype=dtype)

    def __repr__(self) -> str:
        n_tuples, size, n_features = self.shape
        what = {2: "pairs", 3: "triplets", 4: "quadruplets"}[size]
        return f"<Tuples: {n_tuples} {what} of {len(self.points)} points, {n_features} features>"


def _checked(indices: Any, n_points: int) -> Index:
    """Validate row numbers."""
    rows = np.asarray(kernels_for(indices).to_host(indices))
    if rows.ndim != 2 or rows.shape[1] not in (2, 3, 4) or rows.dtype.kind not in "iu":
        raise InvalidInputError(
            "indices must be an integer array of shape (n_tuples, 2) for pairs, (n_tuples, 3) for"
            f" triplets or (n_tuples, 4) for quadruplets; got shape {rows.shape} of {rows.dtype}."
            " Stack them with numpy.stack([a, b], axis=1)."
        )
    bad = np.flatnonzero(((rows < 0) | (rows >= n_points)).any(axis=1))
    if len(bad):
        raise InvalidInputError(
            f"indices must be row numbers from 0 to {n_points - 1}; tuple {bad[0]} is"
            f" {rows[bad[0]].tolist()} ({len(bad)} in all). Count rows of points from 0.",
            bad,
        )
    return rows.astype(np.intp)
