"""An order of rows in which near rows share a block, so that blocks need few rows of others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.rows import Blocks, rows_at_a_time
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.linalg import leading_eigh

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

SAMPLE_ROWS = 5000  # that are enough to find the cells


@dataclass(frozen=True)
class Cut:
    """A half-space, and the cells on both sides: further cuts, or numbers."""

    direction: Matrix
    bar: float
    below: Cut | int
    above: Cut | int

    def of(self, rows: Matrix) -> Index:
        """The cell of each row."""
        high = rows @ self.direction > self.bar
        sides = (
            np.full(len(rows), side) if isinstance(side, int) else side.of(rows)
            for side in (self.below, self.above)
        )
        below, above = sides
        return np.where(high, above, below)


def cell_order(blocks: Blocks, codes: Index, components: Matrix | None) -> Index:
    """Row numbers in an order of cells, one for each block, by class inside a block.

    Cells are half-spaces, halved again, each across the direction in which the images of a sample
    of its rows vary most, or the rows themselves for None. ``codes`` are the classes of the rows.
    """
    n, count = blocks.shape[0], len(blocks)
    if count == 1:
        return np.argsort(codes, kind="stable")
    first = blocks.take(np.zeros(1, dtype=np.intp))
    sample = blocks.take(np.arange(0, n, -(-n // SAMPLE_ROWS)))
    cuts = _cut(_images(sample, components, first), 0, count)
    cells = np.concatenate(blocks.results(_cells, name="cells", shared=(components, first, cuts)))
    block = np.empty(n, dtype=np.intp)
    block[np.argsort(cells, kind="stable")] = np.repeat(np.arange(count), np.diff(blocks.starts))
    return np.lexsort((np.arange(n), codes, block))


def _cut(rows: Matrix, first: int, count: int) -> Cut | int:
    """Cells number first, …, first + count − 1, of about equal shares of the rows."""
    if count == 1 or len(rows) < 2:
        return first
    direction, half = _direction(rows), count // 2
    heights = rows @ direction
    bar = float(np.quantile(heights, half / count))
    high = heights > bar
    below, above = _cut(rows[~high], first, half), _cut(rows[high], first + half, count - half)
    return Cut(direction, bar, below, above)


def _direction(rows: Matrix) -> Matrix:
    """The direction in which rows vary most."""
    centred = rows - rows.mean(axis=0)
    if len(rows) >= rows.shape[1]:
        found: Matrix = leading_eigh(centred.T @ centred, 1)[1][:, -1]
        return found
    found = leading_eigh(centred @ centred.T, 1)[1][:, -1] @ centred
    return found / max(float(np.linalg.norm(found)), np.finfo(float).tiny)


def _images(rows: Array, components: Matrix | None, first: Array) -> Matrix:
    kernels = kernels_for(rows)
    points = kernels.double(rows) - kernels.double(first)
    return to_host(points if components is None else kernels.apply(points, components))


def _cells(block: Array, components: Matrix | None, first: Array, cuts: Cut | int) -> Index:
    if isinstance(cuts, int):
        return np.full(len(block), cuts)
    parts = rows_at_a_time(block)
    return np.concatenate([cuts.of(_images(rows, components, first)) for rows in parts])
