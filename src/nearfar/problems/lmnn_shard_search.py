"""The search for impostors of LMNN between blocks: tasks for a block, and for two that meet.

All functions here are tasks: pure functions of their arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Sized
from nearfar.kernels import Array, kernels_for, take_rows, to_device_of, to_host
from nearfar.problems.lmnn_shard_rows import Base, Coordinates, Multipliers

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Head(Sized):
    """The rows of a shard in a search for impostors: all that others need to know of them."""

    images: Array  # (m, r)
    reach: Array  # (m,) squared distance up to which others are impostors
    codes: Index  # (m,) classes, ascending
    ids: Index  # (m,) row numbers, ascending
    known: Index  # ascending row numbers of tails that are needed in any case
    longest: float  # squared length of target edges


@dataclass(frozen=True)
class Near(Sized):
    """Impostors of the rows of a shard among those of a block, by their places."""

    heads: Index  # pairs: rows of the shard,
    tails: Index  # and places among ``ids``, or rows of the shard where the block is its own
    ids: Index  # row numbers that the shard needs of another block, ascending,
    places: Index  # and which rows of the block these are


@dataclass(frozen=True)
class Found(Sized):
    """The same, with the rows that the shard needs in place of their places in the block."""

    heads: Index
    tails: Index
    ids: Index
    rows: Array  # (ids, features)


def begun(
    X: Array,
    base: Base,
    previous: Multipliers,
    at: Coordinates,
    F: Matrix,
    margin: float,
    single: bool,
) -> Head:
    """The head of a search under the map F (r, features), of the metric with its floor.

    Its images are in float32 if ``single``, which is no proof.
    """
    kernels = kernels_for(X)
    (images,) = at.images(base.pieces(X), [F], single)
    heads, tails = (kernels.index(end, X) for end in (base.heads, base.tails))
    lengths = kernels.double(kernels.sq_lengths(images, heads, tails))
    reach = kernels.segment_max(heads, lengths, len(X)) + (1 + margin)
    known = to_host(kernels.unique(kernels.index(previous.tail, X)))
    own = images if base.ends is None else 1 * images[: len(X)]  # a view would keep all
    longest = float(lengths.max()) if len(lengths) else 0.0
    return Head(own, reach, base.codes, base.ids, known, longest)


def longest_edge(head: Head) -> float:
    """The squared length of the longest target edge."""
    return head.longest


def searched(head: Head, other: Head) -> tuple[Near, Near]:
    """Impostors of the rows of a shard among those of another, and of these among the first."""
    kernels = kernels_for(head.images)
    if head.ids[0] == other.ids[0] and len(head.ids) == len(other.ids):
        starts = np.searchsorted(head.codes, np.arange(head.codes[-1] + 2))
        heads, tails = map(to_host, kernels.impostor_pairs(head.images, head.reach, starts))
        found = Near(heads, tails, heads[:0], heads[:0])
        return found, found
    if head.codes[0] == head.codes[-1] == other.codes[0] == other.codes[-1]:
        forth = back = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    else:
        images = to_device_of(head.images, other.images)
        forth, back = kernels.mutual_impostor_pairs(
            head.images,
            head.reach,
            images,
            to_device_of(head.reach, other.reach),
            kernels.index(head.codes, images),
            kernels.index(other.codes, images),
            (kernels.single(head.images), kernels.single(images)),
        )
    return _near(head, other, *map(to_host, forth)), _near(other, head, *map(to_host, back))


def _near(own: Head, other: Head, heads: Index, tails: Index) -> Near:
    """Pairs with rows of another shard, which are needed, and with them those that are known."""
    needed = np.isin(other.ids, own.known, assume_unique=True)
    needed[tails] = True
    place, places = np.cumsum(needed) - 1, np.flatnonzero(needed)
    return Near(heads, place[tails], other.ids[places], places)


def found_in(block: Array, both: tuple[Near, Near], which: int) -> Found:
    """One way of a search, with the rows of the block that it needs."""
    near = both[which]
    return Found(near.heads, near.tails, near.ids, take_rows(block, near.places))
