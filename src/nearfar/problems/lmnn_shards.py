"""Shards of LMNN: small LMNN problems, each with the rows of one block.

A shard is a small LMNN problem: the rows of one block, the target edges and triplets headed by
them, and the rows of their tails. Sums over shards are those over all triplets, since each triplet
has one head (`nearfar.problems.lmnn_shard_sums`).

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Sized
from nearfar.errors import MemoryLimitError
from nearfar.kernels import Array, check_memory, is_torch, kernels_for, to_host
from nearfar.kernels.tiles import PairCount
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_objective import WORKING_BYTES
from nearfar.problems.lmnn_shard_rows import Base, Coordinates, Multipliers, taken
from nearfar.problems.lmnn_shard_search import Found
from nearfar.problems.lmnn_triplets import Line, Placement, Triplets

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

ROW_COPIES = 3  # of the rows of a shard on a device: images, coordinates, their Laplacian
NEAR_EQUAL = 1e-9  # squared length, in margins, up to which rows are compared


@dataclass(frozen=True)
class ShardProblem(LMNNProblem):
    """The LMNN problem of a shard, without the pull, whose impostors others have found.

    A shard may hold the triplets of a narrower margin than others, where it has more of them. Once
    its triplets are settled, the lengths of their edges and pairs under φWᵀW, which no step
    changes, take the place of the points ``kept``.
    """

    found: tuple[Array, Array] = ()  # type: ignore[assignment]
    kept_lengths: tuple[Array, Array] | None = None  # (q,) and (p,)
    room: float = np.inf  # bytes that triplets may take, where memory has more
    is_narrower: bool = False  # whether the margin is narrower than that of ``found``

    def _impostor_pairs(
        self, Z: Array, kept: Array | None, reach: Array, *, screened: bool
    ) -> tuple[Array, Array]:
        del screened
        heads, tails = self.found
        if not self.is_narrower:
            return heads, tails
        near = self.kernels.flatnonzero(self._lengths(Z, heads, tails, kept) < reach[heads])
        return heads[near], tails[near]

    def _check_memory(self, n_pairs: int, n_triplets: int, room: float) -> None:
        super()._check_memory(n_pairs, n_triplets, min(room, self.room))

    def widest(
        self, L: Matrix, Z: Array, kept: Array | None, margin: float, *args: Any, **options: Any
    ) -> Placement:
        """As `_survey`, with the triplets up to this margin, or those that there is room for.

        Where searches are cheap, those beyond the active ones have as much room as in memory.
        """
        room = np.inf
        if self.kernels.searches_are_cheap(Z):
            room = float(WORKING_BYTES * (len(self.first_edge) - 1))
        for part in (margin, margin / 2, margin / 4):
            limited = replace(self, room=room, is_narrower=part < margin)
            with suppress(MemoryLimitError):
                return limited._survey(L, Z, kept, part, *args, **options)
        active = replace(self, is_narrower=margin > 0)
        return active._survey(L, Z, kept, min(margin, 0.0), *args, **options)

    def place(self, L: Matrix, triplets: Triplets) -> Placement:
        """As `LMNNObjective.place`."""
        at = super().place(L, triplets)
        if self.kept_lengths is None:
            return at
        near, far = self.kept_lengths
        return replace(at, edge_lengths=at.edge_lengths + near, pair_lengths=at.pair_lengths + far)

    def _margins(self, triplets: Triplets, kept: Array | None) -> Array | float:
        if self.kept_lengths is None:
            return super()._margins(triplets, kept)
        near, far = self.kept_lengths
        margins: Array = 1 + near[triplets.near] - far[triplets.pair]
        return margins


@dataclass
class Shard(Sized):
    """A small LMNN problem with its triplets, placed at a factor.

    The width of (4) is not its own. It remembers the last line, and the last curvature, since a
    round is followed by others along the same ones; no result depends on that.
    """

    problem: ShardProblem
    ids: Index  # row number of each row
    edges: Index  # number of each target edge in the base
    at: Placement
    equal: Array  # (p,) which pairs consist of equal rows
    _line: Line | None = field(default=None, repr=False)
    _curvature: tuple[Matrix, Any] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_line": None, "_curvature": None}

    def with_width(self, width: float) -> Placement:
        """The placement, with the width of (4)."""
        if self.at.triplets.width == width:
            return self.at
        return replace(self.at, triplets=replace(self.at.triplets, width=width))

    def line(self, direction: Matrix, width: float) -> Line:
        """The push along a direction."""
        known = self._line
        if known is None or known.width != width or not np.array_equal(known.direction, direction):
            self._line = known = self.problem.line(self.with_width(width), direction)
        return known

    def forget(self) -> None:
        """Free what is remembered."""
        self._line = self._curvature = None

    def placed_at(self, at: Placement) -> Shard:
        """The same shard at another placement."""
        return Shard(self.problem, self.ids, self.edges, at, self.equal)


def assembled(
    X: Array,
    base: Base,
    found: list[Found],
    previous: Multipliers,
    at: Coordinates,
    L: Matrix,
    components: Matrix | None,
    margin: float,
    width: float,
    keep: bool,
    single: bool,
) -> Shard:
    """The shard with the triplets of a search, placed at L, or at the map that is returned for it.

    ``components`` are that map, with the kept distance; None for L with it. Of the rows of the
    search, only images are made. Those that triplets need are then chosen.
    """
    kernels, none = kernels_for(X), np.empty(0, dtype=np.intp)
    if is_torch(X):  # each search counts its own
        PairCount(X).add(sum(len(part.heads) for part in found))
    others = sorted((part for part in found if len(part.ids)), key=lambda part: int(part.ids[0]))
    tail_ids = np.concatenate([none, *(part.ids for part in others)])  # ascending, as blocks are
    rows = [*base.pieces(X), *(part.rows for part in others)]
    ids = np.concatenate([base.ids, base.end_ids, tail_ids])
    if is_torch(X):  # the host does not count the rows of other tasks
        entry = 4 if single else 8
        check_memory(
            float(len(ids)) * X.shape[1] * (ROW_COPIES * entry + X.itemsize),
            f"a shard of {len(base.ids)} rows with the {len(ids)} rows near them",
            "Fit to fewer rows or features",
            X,
        )

    numbers, own_ids = kernels.index(tail_ids, X), kernels.index(base.ids, X)

    def local(wanted: Index) -> Array:
        """Rows of the shard for row numbers: its own, or tails."""
        wanted = kernels.index(wanted, X)
        own = kernels.searchsorted(own_ids, wanted).clip(0, len(own_ids) - 1)
        other = len(ids) - len(tail_ids) + kernels.searchsorted(numbers, wanted)
        is_own = own_ids[own] == wanted
        return own * is_own + other * ~is_own

    heads, tails, first = [none], [none], len(ids) - len(tail_ids)
    for part in (*(part for part in found if not len(part.ids)), *others):
        heads.append(part.heads)
        tails.append(part.tails + first if len(part.ids) else part.tails)
        first += len(part.ids)
    code = np.concatenate(heads) * len(ids)
    code += np.concatenate(tails)
    code = kernels.unique(kernels.index(code, X))
    pairs = code // len(ids), code % len(ids)
    del found, others, heads, tails, code
    known = {"edge": previous.edge, "tail": to_host(local(previous.tail)), "prox": previous.prox}
    kept: list[Array] = []
    if components is None:
        Z, *kept = at.images(rows, [L @ at.basis.T, *at.kept_maps], single)
    else:
        (Z,) = at.images(rows, [components], single=False)
    problem = replace(_problem(base, Z, ids, at, single), found=pairs)
    triplets = problem.with_multipliers(known, width)
    place = problem.widest(
        L, Z, kept[0] if kept else None, margin, width, triplets, keep=keep, components=components
    )
    del Z, triplets, pairs
    return _with_rows(replace(problem, found=()), ids, place, rows, kept, at, single)  # type: ignore[arg-type]


def _with_rows(
    problem: ShardProblem,
    ids: Index,
    at: Placement,
    rows: list[Array],
    kept: list[Array],
    shared: Coordinates,
    single: bool,
) -> Shard:
    """The shard with the coordinates of the rows that its triplets need, and of no others."""
    kernels, triplets = problem.kernels, at.triplets
    ends = [*problem._near_edges(triplets), triplets.heads, triplets.tails]
    used = kernels.unique(kernels.concatenate(ends))
    near = tuple(kernels.searchsorted(used, end) for end in ends[:2])
    heads, tails = (kernels.searchsorted(used, end) for end in ends[2:])
    edges, numbers = kernels.to_host(triplets.edges), kernels.to_host(used)
    X = taken(rows, numbers)
    close = kernels.flatnonzero(at.pair_lengths <= NEAR_EQUAL)
    same = (X[heads[close]] == X[tails[close]]).all(1)
    equal = at.pair_lengths < 0
    equal[close[kernels.flatnonzero(same)]] = True
    maps = [shared.basis.T, *([] if kept else shared.kept_maps)]
    U, *more = shared.images([X], maps, single)
    del X
    lengths = None
    if kept or more:  # of edges and of pairs, in the rows of the search or in those that are used
        points, ends = (kept[0], ends) if kept else (more[0], [*near, heads, tails])
        lengths = tuple(
            kernels.double(kernels.sq_lengths(points, *pairs)) for pairs in (ends[:2], ends[2:])
        )
    fewer = replace(
        problem,
        U=U,
        edges=near,
        first_edge=near[0][:0],
        masses=None if problem.masses is None else problem.masses[used],
        kept_lengths=lengths,
    )
    order = kernels.arange(len(edges), heads)
    triplets = replace(triplets, heads=heads, tails=tails, edges=order)
    at = replace(at, Z=at.Z[used], triplets=triplets)
    return Shard(fewer, ids[numbers], edges, at, equal)


def _problem(base: Base, Z: Array, ids: Index, at: Coordinates, single: bool) -> ShardProblem:
    """The LMNN problem of rows with these images, edges of the base, no coordinates and no pull."""
    kernels, d = kernels_for(Z), at.basis.shape[1]
    masses = None if at.masses is None else kernels.like(at.masses[ids], kernels.double(Z[:0]))
    counts = np.bincount(base.heads, minlength=len(Z))
    nothing, none = np.zeros((d, d)), Z[:, :0]
    return ShardProblem(
        U=kernels.single(none) if single else kernels.double(none),
        edges=(kernels.index(base.heads, Z), kernels.index(base.tails, Z)),
        first_edge=kernels.index(np.concatenate([[0], np.cumsum(counts)]), Z),
        starts=np.empty(0, dtype=np.intp),
        masses=masses,
        push_weight=at.push_weight,
        ridge=0.0,
        floor=at.floor,
        prior=at.prior,
        prior_inverse=at.prior.T[:, :0],
        kept=None,
        basis=at.basis,
        dual_basis=at.basis,
        P=nothing,
        Q=nothing,
        exact=elsewhere,
        images=elsewhere,
        first=None,
    )


def elsewhere(*_: Any) -> NoReturn:
    """In place of functions of all points, which no place has."""
    raise AssertionError("the points are in blocks")
