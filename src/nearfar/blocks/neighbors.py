"""The nearest points of the same class, over pairs of blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.engine import Sized
from nearfar.blocks.rows import Blocks
from nearfar.kernels import Array, kernels_for, to_host

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Nearest(Sized):
    """For the rows of a block, the nearest others of their classes that were met so far."""

    codes: Index  # (m,) classes, ascending
    first: int  # row number of the first
    near: Index  # (m, k) row numbers, nearest first, ties by number
    squares: Matrix  # (m, k) squared distances; infinite where fewer than k were met


def nearest_in_class(
    blocks: Blocks, codes: Index, k: int, components: Matrix | None, centre: Matrix
) -> tuple[Index, Index]:
    """Edges from each row to its k nearest others of its class, as the kernel of that name.

    The rows of each block are sorted by class; ``codes`` are the classes of all rows. Distances are
    those under a map of the rows, or of the rows as they are for None. Blocks that share no class
    do not meet.
    """
    of_blocks = blocks.split(codes)
    classes = [set(some.tolist()) for some in of_blocks]
    heads = blocks.map(
        _begun,
        of_blocks,
        blocks.starts[:-1].tolist(),
        name="nearest_targets",
        shared=(k,),
    )
    own = blocks.parts
    if components is not None:
        own = blocks.map(_images, name="nearest_targets", shared=(components, centre))
    met = blocks.meet(
        _with_nearer,
        heads,
        name="nearest_targets",
        beside=of_blocks,
        shared=(components, centre, k),
        skip=lambda a, b: classes[a].isdisjoint(classes[b]),
        own=own,
    )
    near = np.concatenate(blocks.engine.results(blocks.engine.map(_found, met, name="targets")))
    rows, places = np.nonzero(near >= 0)
    return rows, near[rows, places]


def _begun(block: Array, codes: Index, first: int, k: int) -> Nearest:
    shape = len(block), k
    return Nearest(codes, first, np.full(shape, -1, dtype=np.intp), np.full(shape, np.inf))


def _with_nearer(
    rows: Array,
    head: Nearest,
    block: Array,
    codes: Index,
    first: int,
    components: Matrix | None,
    centre: Matrix,
    k: int,
) -> Nearest:
    """The head of rows, or of their images, after it has met a block."""
    images = _images(block, components, centre)
    near, squares = head.near.copy(), head.squares.copy()
    kernels = kernels_for(images)
    for code in np.intersect1d(head.codes, codes):
        own, others = _rows_of(head.codes, code), _rows_of(codes, code)
        # A row may meet itself, and is then not its own neighbour.
        count = min(k + (first == head.first), others.stop - others.start)
        places, lengths = map(to_host, kernels.nearest(rows[own], images[others], count))
        numbers = places + first + others.start
        itself = numbers == (head.first + np.arange(own.start, own.stop))[:, None]
        lengths = np.where(itself, np.inf, lengths)
        numbers = np.where(itself, -1, numbers)
        numbers = np.concatenate([near[own], numbers], axis=1)
        lengths = np.concatenate([squares[own], lengths], axis=1)
        order = np.lexsort((numbers, lengths), axis=1)[:, :k]
        near[own] = np.take_along_axis(numbers, order, 1)
        squares[own] = np.take_along_axis(lengths, order, 1)
    return replace(head, near=near, squares=squares)


def _images(block: Array, components: Matrix | None, centre: Any) -> Array:
    if components is None:
        return block
    kernels = kernels_for(block)
    few = kernels.double(block[:0])  # to tell the device and the type
    return kernels.apply_centred(block, kernels.like(centre, few), components)


def _rows_of(codes: Index, code: int) -> slice:
    """Where a class is."""
    return slice(*map(int, np.searchsorted(codes, [code, code + 1])))


def _found(head: Nearest) -> Index:
    return head.near
