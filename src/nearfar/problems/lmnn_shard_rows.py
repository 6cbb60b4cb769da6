"""Rows of a shard of LMNN: the target edges of a block, and images of rows in few pieces.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Sized
from nearfar.blocks.rows import rows_at_a_time
from nearfar.kernels import Array, kernels_for, take_rows

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Coordinates:
    """Whitened coordinates and the distance that is kept: what all shards share."""

    centre: Matrix  # (features,)
    basis: Matrix  # (features, d)
    floor: float  # φ of (7)
    prior: Matrix  # (k, features) W of (7)
    push_weight: float
    masses: Matrix | None  # (n,) m of (8), of all rows

    @property
    def kept_maps(self) -> list[Matrix]:
        """√φ W of (7), under which lengths are those of φWᵀW; none for φ = 0."""
        return [self.floor**0.5 * self.prior] if self.floor else []

    def images(self, pieces: list[Array], maps: list[Matrix], single: bool) -> list[Array]:
        """Rows under each of some maps, in float32 if ``single``; few are in float64 at a time.

        Their differences from the centre are always taken in float64.
        """
        kernels = kernels_for(pieces[0])
        found: list[list[Array]] = [[] for _ in maps]
        for rows in (part for piece in pieces for part in rows_at_a_time(piece)):
            points = kernels.double(rows)
            points = points - kernels.like(self.centre, points)
            if single:
                points = kernels.single(points)
            for parts, L in zip(found, maps, strict=True):
                parts.append(kernels.apply(points, L))
        return [joined(parts) for parts in found]


@dataclass(frozen=True)
class Base(Sized):
    """The target edges of the rows X of a block, or of other rows, and the rows where these end.

    X itself (m, features) is not part of it, so that a worker holds it once.
    """

    ids: Index  # (m,) row numbers of X, ascending
    codes: Index  # (m,) class numbers of X
    ends: Array | None  # (e, features) rows of other blocks where target edges end
    end_ids: Index  # (e,) their row numbers, ascending
    heads: Index  # target edges: rows of X,
    tails: Index  # and rows of X and then of ``ends``

    def pieces(self, X: Array) -> list[Array]:
        """All rows, as the edges count them."""
        return [X] if self.ends is None else [X, self.ends]


@dataclass(frozen=True)
class Multipliers(Sized):
    """Triplets of a shard with their multipliers a of (4), apart from all else."""

    edge: Index  # (t,) edge of the shard
    tail: Index  # (t,) row number of the impostor
    prox: Matrix  # (t,)

    @classmethod
    def none(cls) -> Multipliers:
        """No triplets."""
        return cls(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))

    def used(self) -> Multipliers:
        """Those that are not zero."""
        own = np.flatnonzero(self.prox > 0)
        return Multipliers(self.edge[own], self.tail[own], self.prox[own])


def based(
    ends: list[Array], ids: Index, codes: Index, end_ids: Index, heads: Index, tails: Index
) -> Base:
    """A base, from pieces of the rows where edges end."""
    return Base(ids, codes, joined(ends) if ends else None, end_ids, heads, tails)


def joined(pieces: list[Array]) -> Array:
    """Arrays of rows as one."""
    return pieces[0] if len(pieces) == 1 else kernels_for(pieces[0]).concatenate(pieces)


def ordered(pieces: list[Array], order: Index) -> Array:
    """Rows of arrays that follow each other, in an order."""
    return take_rows(joined(pieces), order)


def taken(pieces: list[Array], rows: Index) -> Array:
    """Rows, in ascending order, of arrays that follow each other."""
    starts = np.cumsum([0, *map(len, pieces)])
    cuts = np.searchsorted(rows, starts)
    found = [
        take_rows(piece, rows[cuts[i] : cuts[i + 1]] - starts[i]) for i, piece in enumerate(pieces)
    ]
    return joined([part for part in found if len(part)] or found[:1])
