"""Conversions and one-dimensional operations of `on_numpy`, and equal rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.parallel import row_slices

Floats = NDArray[np.floating]
Index = NDArray[np.intp]

SCREENED = 16  # columns that are compared first when equal rows are sought


def to_host(x: Any) -> NDArray[Any]:
    """Return x as a NumPy array."""
    return np.asarray(x)


def detached(x: NDArray[Any]) -> NDArray[Any]:
    """Return x: arrays have no gradient."""
    return x


def like(x: Any, reference: Floats) -> Floats:
    """Return host array x with the dtype and device of the reference."""
    return np.asarray(x, dtype=reference.dtype)


def index(x: Any, reference: Floats) -> Index:  # noqa: ARG001 - the device twin needs it
    """Return host integers x as indices on the device of the reference."""
    return np.asarray(x, dtype=np.intp)


def compact(x: Index, size: int) -> Index:  # noqa: ARG001 - the device twin needs it
    """Return indices below ``size`` as they are kept: NumPy is twice as fast with its own type."""
    return x


def double(x: Floats) -> NDArray[np.float64]:
    """Return x in float64."""
    return np.asarray(x, dtype=np.float64)


def single(x: Floats) -> NDArray[np.float32]:
    """Return x in float32."""
    return np.asarray(x, dtype=np.float32)


def sqrt(x: NDArray[Any]) -> NDArray[Any]:
    """√x."""
    root: NDArray[Any] = np.sqrt(x)
    return root


def flatnonzero(mask: NDArray[np.bool_]) -> Index:
    """Positions at which a one-dimensional mask is true."""
    return np.flatnonzero(mask)


def concatenate(parts: list[Any]) -> NDArray[Any]:
    """Join one-dimensional arrays."""
    return np.concatenate(parts)


def unique(values: Index) -> Index:
    """The distinct values in ascending order; sorts, since NumPy's own hashes and is slower."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(values) else values


def repeat(values: Any, counts: Any) -> NDArray[Any]:
    """Repeat each value as often as its count says."""
    return np.repeat(values, counts)


def arange(size: int, reference: Any) -> Index:  # noqa: ARG001 - the device twin needs it
    """0, 1, … size − 1."""
    return np.arange(size)


def searchsorted(ordered: Index, values: Index) -> Index:
    """Positions at which the values would stand in an ordered array."""
    return np.searchsorted(ordered, values)


def cumsum(values: Any) -> NDArray[Any]:
    """Running sums."""
    return np.cumsum(values)


def segment_sum(index: Index, weights: Floats, size: int) -> Floats:
    """Sum of the weights that share an index, for indices 0 … size − 1."""
    return np.asarray(np.bincount(index, weights, minlength=size), dtype=np.float64)


def segment_max(index: Index, values: Floats, size: int) -> Floats:
    """Largest of the values that share an index; −inf where there is none."""
    out = np.full(size, -np.inf)
    np.maximum.at(out, index, values)
    return out


def smallest(values: Floats, count: int) -> Index:
    """Positions of the ``count`` smallest values (or of all), ascending by value. Time O(n)."""
    if count >= len(values):
        return np.argsort(values, kind="stable")
    found = np.sort(np.argpartition(values, count)[:count])
    return found[np.argsort(values[found], kind="stable")]


def first_equal(X: Floats) -> Index:
    """The number of the first row that equals each row; −0 equals 0.

    If there are many columns, rows are compared in a few columns first, and rows that agree there
    in all columns. Time O(n log n), and O(d) for each such row.
    """
    n, d = X.shape
    if d <= 2 * SCREENED:
        return _first_equal(X)
    found = _first_equal(X[:, :: d // SCREENED])
    rows = np.flatnonzero(np.bincount(found, minlength=n)[found] > 1)
    if len(rows):
        found[rows] = rows[_first_equal(X[rows])]
    return found


def _first_equal(X: Floats) -> Index:
    """As `first_equal`, by all columns.

    Rows are grouped by a hash of their bits, and each is compared with the first of its group. If
    two differ, a sort decides instead.
    """
    factors = np.random.default_rng(0).integers(0, 2**64, 2 * X.shape[1], dtype=np.uint64)
    keys, same = np.empty(len(X), np.uint64), True
    for block in row_slices(len(X)):
        words = np.ascontiguousarray(X[block] + 0).view(np.uint32)  # −0 + 0 is 0
        keys[block] = words.astype(np.uint64) @ factors[: words.shape[1]]
    ordered = np.sort(keys)
    if (ordered[1:] != ordered[:-1]).all():  # the usual case, and quicker to test
        return np.arange(len(X))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    for block in row_slices(len(X)):
        same = same and bool((X[block] == X[first[group[block]]]).all())
    if not same:
        _, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    return first[group]
