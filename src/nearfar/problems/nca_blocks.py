"""NCA on rows in blocks: `nearfar.problems.nca` with the sums of `soft_neighbors_blocks`.

T of its (4), the mean squared distance to the nearest of a class that differ, is found over pairs
of blocks that share a class. Rows that are equal have one number, so that copies of a row, of which
some may lie in other blocks, are one point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Sized
from nearfar.blocks.pairs import first_equal_rows
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.kernels.tiles import labels_of
from nearfar.problems.nca import NEAREST, DiagonalNCAProblem, NCAProblem
from nearfar.problems.soft_neighbors_blocks import BlockRows, SoftNeighborBlocks
from nearfar.problems.soft_neighbors_tasks import centred_rows
from nearfar.problems.whitening import random_pull

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


class NCABlocks(SoftNeighborBlocks, NCAProblem):
    """The program of NCA on rows in blocks, sorted by class."""

    @classmethod
    def near_squares_of(cls, rows: BlockRows) -> float:
        """T of (4) of `nearfar.problems.nca`."""
        return nearest_squares_of(rows)


class DiagonalNCABlocks(SoftNeighborBlocks, DiagonalNCAProblem):
    """The same for a weight of each feature."""

    @classmethod
    def near_squares_of(cls, rows: BlockRows) -> float:
        """T of (4) of `nearfar.problems.nca`."""
        return nearest_squares_of(rows)

    @classmethod
    def whitened(cls, rows: BlockRows, ridge: float) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """As `DiagonalNCAProblem.build`: features divided by their standard deviations."""
        n = rows.blocks.shape[0]
        _, gram, _ = rows.moments(np.eye(rows.blocks.shape[1]))
        variance = np.diag(gram) / n
        deviation = np.sqrt(variance + (variance > 0) * ridge / n)
        inverse = np.divide(1.0, deviation, where=deviation > 0, out=np.zeros(len(deviation)))
        pull, gram, total = rows.moments(np.diag(inverse))
        P = pull + ridge * np.diag(inverse**2)
        return np.diag(inverse), np.diag(deviation), P, random_pull(gram, total, n, rows.weight)


# -- the nearest of a class ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Near(Sized):
    """Rows of a block, and the nearest different ones of their classes that were met so far."""

    rows: Array  # (m, features) in float64
    codes: Index  # (m,) ascending
    groups: Index  # (m,) the same number for equal rows
    near: Index  # (m, NEAREST) numbers of such groups, or -1
    squares: Matrix  # (m, NEAREST) ascending; infinite where there is none


def nearest_squares_of(rows: BlockRows) -> float:
    """T of (4) of `nearfar.problems.nca`, as `nearest_squares` has it for rows in memory."""
    blocks, codes = rows.blocks, labels_of(rows.starts)
    of_blocks, groups = blocks.split(codes), blocks.split(first_equal_rows(blocks))
    beside = list(zip(of_blocks, groups, strict=True))
    classes = [set(some.tolist()) for some in of_blocks]
    met = blocks.meet(
        _with_nearer,
        blocks.map(_begun, beside, name="nearest_mates", shared=(rows.centre,)),
        name="nearest_mates",
        beside=beside,
        shared=(rows.centre,),
        skip=lambda a, b: classes[a].isdisjoint(classes[b]),
    )
    masses = [None] * len(blocks) if rows.masses is None else blocks.split(rows.masses)
    return float(blocks.engine.total(blocks.engine.map(_total, met, masses, name="nearest_mates")))


def _begun(block: Array, labels: tuple[Index, Index], centre: Matrix) -> _Near:
    none = np.full((len(block), NEAREST), -1)
    return _Near(centred_rows(block, centre), *labels, none, np.full(none.shape, np.inf))


def _with_nearer(
    head: _Near, block: Array, labels: tuple[Index, Index], first: int, centre: Matrix
) -> _Near:
    """The head after it has met a block."""
    del first
    codes, groups = labels
    points, kernels = centred_rows(block, centre), kernels_for(block)
    near, squares = head.near.copy(), head.squares.copy()
    for code in np.intersect1d(head.codes, codes):
        own = np.flatnonzero(head.codes == code)
        mates = np.flatnonzero(codes == code)
        mates = mates[np.unique(groups[mates], return_index=True)[1]]  # each different row once
        count = min(NEAREST + 1, len(mates))
        queries, others = take_rows(head.rows, own), take_rows(points, mates)
        places, lengths = map(to_host, kernels.nearest(queries, others, count))
        found = groups[mates][places]
        itself = found == head.groups[own][:, None]
        found = np.concatenate([near[own], found], axis=1)
        lengths = np.concatenate([squares[own], np.where(itself, np.inf, lengths)], axis=1)
        near[own], squares[own] = _different(found, lengths)
    return replace(head, near=near, squares=squares)


def _different(groups: Index, squares: Matrix) -> tuple[Index, Matrix]:
    """The nearest in each row, of which copies count once."""
    order = np.lexsort((squares, groups), axis=1)
    groups = np.take_along_axis(groups, order, 1)
    squares = np.take_along_axis(squares, order, 1)
    again = np.zeros(groups.shape, dtype=bool)
    again[:, 1:] = groups[:, 1:] == groups[:, :-1]
    squares = np.where(again, np.inf, squares)
    order = np.argsort(squares, axis=1, kind="stable")[:, :NEAREST]
    return np.take_along_axis(groups, order, 1), np.take_along_axis(squares, order, 1)


def _total(head: _Near, masses: Matrix | None) -> float:
    met = np.isfinite(head.squares)
    sums, counts = np.where(met, head.squares, 0.0).sum(axis=1), met.sum(axis=1)
    means = sums / np.maximum(counts, 1)
    return float(means.sum() if masses is None else masses @ means)
