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
class Seeker(Sized):
    """What others need to know of the rows of a shard in a search for impostors."""

    reach: Array  # (m,) squared distance up to which others are impostors
    codes: Index  # (m,) classes, ascending
    ids: Index  # (m,) row numbers, ascending
    known: Index  # ascending row numbers of tails that are needed in any case


@dataclass(frozen=True)
class Head(Sized):
    """The rows of a shard in a search for impostors."""

    images: Array  # (m, r)
    seeker: Seeker
    longest: float  # squared length of target edges


@dataclass(frozen=True)
class Found(Sized):
    """Impostors of the rows of a shard among those of a block."""

    heads: Index  # pairs: rows of the shard,
    tails: Index  # and row numbers
    ids: Index  # row numbers of tails that are not in the shard,
    rows: Array  # and these rows, (·, features)


def begun(
    X: Array,
    base: Base,
    previous: Multipliers,
    at: Coordinates,
    F: Matrix,
    margin: float,
    keep: bool,
) -> Head:
    """The head of a search under the map F (r, features), of the metric with its floor."""
    kernels = kernels_for(X)
    (images,) = at.images(base.pieces(X), [F], single=False)
    heads, tails = (kernels.index(end, X) for end in (base.heads, base.tails))
    lengths = kernels.double(kernels.sq_lengths(images, heads, tails))
    reach = kernels.segment_max(heads, lengths, len(X)) + (1 + margin)
    known = previous.tail if keep else previous.tail[previous.prox > 0]
    known = to_host(kernels.unique(kernels.index(known, X)))
    seeker = Seeker(reach, base.codes, base.ids, known)
    own = images if base.ends is None else 1 * images[: len(X)]  # a view would keep all
    return Head(own, seeker, float(lengths.max()) if len(lengths) else 0.0)


def seeker_of(head: Head) -> Seeker:
    """What others need to know."""
    return head.seeker


def longest_edge(head: Head) -> float:
    """The squared length of the longest target edge."""
    return head.longest


def searched(
    X: Array, head: Head, block: Array, other: Seeker, at: Coordinates, F: Matrix
) -> tuple[Found, Found]:
    """Impostors of the rows X of a shard among those of a block, and of these among X."""
    kernels, own = kernels_for(block), head.seeker
    if own.ids[0] == other.ids[0] and len(own.ids) == len(other.ids):
        starts = np.searchsorted(own.codes, np.arange(own.codes[-1] + 2))
        heads, tails = map(to_host, kernels.impostor_pairs(head.images, own.reach, starts))
        found = _found(own, block, other, heads, tails)
        return found, found
    if own.codes[0] == own.codes[-1] == other.codes[0] == other.codes[-1]:
        forth = back = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    else:
        (images,) = at.images([block], [F], single=False)
        forth, back = kernels.mutual_impostor_pairs(
            head.images,
            own.reach,
            images,
            to_device_of(own.reach, other.reach),
            kernels.index(own.codes, block),
            kernels.index(other.codes, block),
            (kernels.single(head.images), kernels.single(images)),
        )
    return (
        _found(own, block, other, *map(to_host, forth)),
        _found(other, X, own, *map(to_host, back)),
    )


def _found(own: Seeker, block: Array, other: Seeker, heads: Index, tails: Index) -> Found:
    """Pairs with the rows of a block, and these rows, together with those that are known."""
    needed = np.isin(other.ids, own.known, assume_unique=True)
    needed[tails] = True
    needed &= ~np.isin(other.ids, own.ids, assume_unique=True)
    places = np.flatnonzero(needed)
    return Found(heads, other.ids[tails], other.ids[places], take_rows(block, places))


def half(found: tuple[Found, Found], which: int) -> Found:
    """One way of a search."""
    return found[which]
