"""Soft neighbours between the points of two blocks: each pair is visited once and counts both ways.

With images a of one block and b of the other, and E_ij = −‖aᵢ − bⱼ‖²:

(1) totals    tᵢ = maxⱼ E_ij,  Σⱼ mⱼ exp(E_ij − tᵢ), and the part of it from i's class; so of j
(2) weights   ω_ij = w_ij + w_ji,  w_ij = cᵢ mⱼ exp(E_ij − log Zᵢ) with c for a class or others
(3) products  Σⱼ ω_ij, Σᵢ ω_ij, Σⱼ ω_ij y_j, and Σᵢ ω_ij yᵢ

Totals of several blocks are joined by `joined_totals`, so that no exponential overflows or is lost,
however far apart points are. E is symmetric, so that one table of exponentials serves both blocks.
The pairs of one block are those of a point and a later one. Tables are tiles of some hundred
kilobytes, or of megabytes on a GPU.

The same code runs on NumPy arrays and on torch tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from nearfar.kernels import Array, is_torch, kernels_for, to_host
from nearfar.kernels.numpy_similarities import FAR, NEGLIGIBLE
from nearfar.limits import check_time

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

HOST_TILE = 256, 512  # rows and columns of a table, which then stays in the cache
DEVICE_TILE = 8192, 8192  # the same on a GPU: 512 MB in float64
NOTHING = -1e37  # the largest exponent of no pairs; float32 holds it


@dataclass(frozen=True)
class Side:
    """The points of a block."""

    Z: Array  # (m, r) images, near the origin
    codes: Index  # (m,) classes, ascending
    masses: Matrix | None  # (m,) weights; None if all are 1


@dataclass(frozen=True)
class WeightedSide(Side):
    """The points of a block with what (2) and (3) need of them."""

    Y: Array  # (m, c)
    logs: Matrix  # (m,) log Zᵢ
    inside: Matrix  # (m,) c of (2) for the own class,
    outside: Matrix  # (m,) and for others


# -- totals ----------------------------------------------------------------------------------------


def soft_totals(
    first: Side, second: Side | None, differences: bool = False
) -> tuple[Matrix, Matrix | None]:
    """(1) of the first block over the second, and of the second over the first, (3, m) each.

    ``second`` is None for the pairs of one block, and so is then its result. Squared distances are
    those of ``differences``, or come from one matrix product, for which images should be near the
    origin. Time O(m l r), memory O(m + l) and one tile.
    """
    same, other = second is None, first if second is None else second
    forth = _no_totals(len(first.Z))
    back = forth if same else _no_totals(len(other.Z))
    exponents = _exponents(first.Z, other.Z, differences)
    for rows, columns in _tiles(first.Z, other.Z, same):
        table = exponents(rows, columns)
        if same:
            _exclude(table, rows, columns, -np.inf)
        shared = list(_shared(first.codes[rows], other.codes[columns]))
        tops = _largest(table, 1), _largest(table, 0)
        # Rounding can make an exponent positive, even large for points far from the origin.
        near = FAR <= min(float(top.min()) for top in tops) <= float(tops[0].max()) <= -FAR
        if near:
            _exponentiate(table, NEGLIGIBLE + FAR)
            if same:
                _exclude(table, rows, columns, 0.0)
        for axis, (totals, side, here, there) in enumerate(
            ((forth, other, rows, columns), (back, first, columns, rows))
        ):
            top, part = tops[axis].clip(NOTHING, None), table
            if near:
                top = 0 * top
            else:
                part = table - (top[:, None] if axis == 0 else top)
                _exponentiate(part, NEGLIGIBLE)
                if same:
                    _exclude(part, rows, columns, 0.0)
            part = part if axis == 0 else part.T
            found = _class_sums(part, side.masses, there, shared, axis)
            met = np.stack([np.asarray(to_host(top), dtype=np.float64), *found])
            totals[:, here] = joined_totals(totals[:, here], met)
    return forth, None if same else back


def joined_totals(*totals: Matrix) -> Matrix:
    """(1) over several blocks, from those over each."""
    top = np.max([part[0] for part in totals], axis=0)
    sums = sum(np.exp(np.maximum(part[0] - top, NEGLIGIBLE * 10)) * part[1:] for part in totals)
    return np.vstack([top[None], np.asarray(sums)])


def _no_totals(m: int) -> Matrix:
    totals = np.zeros((3, m))
    totals[0] = NOTHING
    return totals


def _class_sums(
    table: Array,
    masses: Matrix | None,
    columns: slice,
    shared: list[tuple[slice, slice]],
    axis: int,
) -> tuple[Matrix, Matrix]:
    """The sums of the rows of a table, and those over their class, each column so often."""
    weights = None
    if masses is not None:
        weights = kernels_for(table).like(masses[columns], table)

    def summed(part: Array, some: slice) -> Matrix:
        sums = part.sum(1) if weights is None else part @ weights[some]
        return np.asarray(to_host(sums), dtype=np.float64)

    total, own = summed(table, slice(None)), np.zeros(len(table))
    for places in shared:
        near, far = places if axis == 0 else places[::-1]
        own[near] = summed(table[near, far], far)
    return total, own


# -- products --------------------------------------------------------------------------------------


def soft_products(
    first: WeightedSide, second: WeightedSide | None, both: bool
) -> tuple[Matrix, Array, Matrix, Array | None]:
    """(3): the degrees (m,) and products (m, c) of the first block, and those of the second.

    Unless ``both`` are wanted the product is that of the first over the second, and the other one
    None. For ``second`` None, of the pairs (i, j) with i < j of one block, the results of the first
    and of the second are one array each. Time O(m l (r + c)), memory O((m + l) c) and one tile.
    """
    same, other = second is None, first if second is None else second
    kernels = kernels_for(first.Z)
    degrees, forward = np.zeros(len(first.Z)), 0 * first.Y
    other_degrees, backward = degrees, forward if both else None
    if not same:
        other_degrees, backward = np.zeros(len(other.Z)), 0 * other.Y if both else None
    far = min(first.logs.min(), other.logs.min()) < FAR
    uniform = first.inside is first.outside
    exponents = _exponents(first.Z, other.Z)
    for rows, columns in _tiles(first.Z, other.Z, same):
        table = exponents(rows, columns)
        of_rows, of_columns = _Factors(first, rows, table), _Factors(other, columns, table)
        table = _weights(table, of_rows, of_columns, far)
        omega = table.of(slice(None), slice(None), of_rows.outside, of_columns.outside)
        if not uniform:
            for near, distant in _shared(first.codes[rows], other.codes[columns]):
                omega[near, distant] = table.of(near, distant, of_rows.inside, of_columns.inside)
        if same:
            _exclude(omega, rows, columns, 0.0)
        degrees[rows] += kernels.to_host(omega.sum(1))
        forward[rows] += omega @ other.Y[columns]
        other_degrees[columns] += kernels.to_host(omega.sum(0))
        if backward is not None:
            backward[columns] += omega.T @ first.Y[rows]
    return degrees, forward, other_degrees, backward


class _Factors:
    """What rows bring to (2), on the device and in the type of a table."""

    def __init__(self, side: WeightedSide, rows: slice, table: Array) -> None:
        like, logs = kernels_for(table).like, side.logs[rows]
        self.inside, self.outside = like(side.inside[rows], table), like(side.outside[rows], table)
        self.logs, self.inverse = like(logs, table), like(np.exp(-logs.clip(FAR, None)), table)
        self.masses = None if side.masses is None else like(side.masses[rows], table)


@dataclass(frozen=True)
class _Weights:
    """Exponentials of a tile: of E alone, or relative to log Z of the rows and of the columns."""

    forth: Array  # (t, c)
    back: Array | None  # None: ``forth`` is exp(E), and 1 / Z is a factor
    rows: _Factors
    columns: _Factors

    def of(self, near: slice, far: slice, of_rows: Array, of_columns: Array) -> Array:
        """(2) for some rows and columns, with c of the rows and of the columns."""
        left, right = of_rows[near], of_columns[far]
        if self.back is None:
            left, right = left * self.rows.inverse[near], right * self.columns.inverse[far]
        first, second = left[:, None], right[None]
        if self.rows.masses is not None and self.columns.masses is not None:
            first = first * self.columns.masses[far]
            second = second * self.rows.masses[near][:, None]
        if self.back is None:
            return self.forth[near, far] * (first + second)
        return self.forth[near, far] * first + self.back[near, far] * second


def _weights(table: Array, rows: _Factors, columns: _Factors, far: bool) -> _Weights:
    """Exponentials of a tile of exponents, which is overwritten."""
    if not far:
        _exponentiate(table, NEGLIGIBLE + FAR)
        return _Weights(table, None, rows, columns)
    forth, back = table - rows.logs[:, None], table - columns.logs
    _exponentiate(forth, NEGLIGIBLE)
    _exponentiate(back, NEGLIGIBLE)
    return _Weights(forth, back, rows, columns)


# -- tiles -----------------------------------------------------------------------------------------


def _tiles(A: Array, B: Array, upper: bool) -> Iterator[tuple[slice, slice]]:
    """Ranges of rows and of columns of tables; with ``upper`` those of columns beyond the row."""
    height, width = DEVICE_TILE if is_torch(A) and A.is_cuda else HOST_TILE
    for top in range(0, len(A), height):
        check_time()
        for left in range(top // width * width if upper else 0, len(B), width):
            yield slice(top, min(top + height, len(A))), slice(left, min(left + width, len(B)))


def _exponents(A: Array, B: Array, differences: bool = False) -> Callable[[slice, slice], Array]:
    """A function that gives E of some rows and columns."""
    kernels = kernels_for(A)
    if differences:
        near, far = to_host(A), to_host(B)
        return lambda rows, columns: kernels.like(
            -cdist(near[rows], far[columns], "sqeuclidean"), A
        )
    squares, others = (A * A).sum(1)[None], (B * B).sum(1)[None]
    one, other = 0 * squares + 1, 0 * others + 1
    # −‖a‖² + 2 a·b − ‖b‖² in one product
    left = kernels.concatenate([2 * A.T, -one, -squares])
    right = kernels.concatenate([B.T, others, other])
    return lambda rows, columns: left[:, rows].T @ right[:, columns]


def _largest(table: Array, axis: int) -> Array:
    found: Any = table.max(axis)
    return found.values if is_torch(table) else found


def _exponentiate(table: Array, lowest: float) -> None:
    """Exponents to exponentials, in place; what is below the lowest counts as it.

    What is above −NEGLIGIBLE is a rounding error that must not overflow.
    """
    if is_torch(table):
        table.clamp_(lowest, -NEGLIGIBLE).exp_()
        return
    np.clip(table, lowest, -NEGLIGIBLE, out=table)
    np.exp(table, out=table)


def _exclude(table: Array, rows: slice, columns: slice, value: float) -> None:
    """Set the entries of points with themselves and with those before them."""
    if columns.start < rows.stop:
        arange, (height, width) = kernels_for(table).arange, table.shape
        later = arange(width, table) + (columns.start - rows.start) > arange(height, table)[:, None]
        table[~later] = value


def _shared(rows: Index, columns: Index) -> Iterator[tuple[slice, slice]]:
    """Where the rows and the columns of a class are, for each that has both; codes ascend."""
    if rows[0] > columns[-1] or columns[0] > rows[-1]:
        return
    for code in np.intersect1d(rows, columns):
        near, far = (np.searchsorted(codes, [code, code + 1]) for codes in (rows, columns))
        yield slice(int(near[0]), int(near[1])), slice(int(far[0]), int(far[1]))
