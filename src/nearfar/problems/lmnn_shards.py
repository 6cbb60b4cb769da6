"""Shards of LMNN: what a worker does for the rows of one block.

A shard is a small LMNN problem: the rows of one block, the target edges and triplets headed by
them, and the rows of their tails. Sums over shards are those over all triplets, since each triplet
has one head. All functions here are tasks: pure functions of their arguments.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Sized
from nearfar.blocks.rows import rows_at_a_time
from nearfar.errors import MemoryLimitError
from nearfar.kernels import (
    Array,
    check_memory,
    is_torch,
    kernels_for,
    take_rows,
    to_device_of,
    to_host,
)
from nearfar.kernels.tiles import PairCount
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_objective import WORKING_BYTES
from nearfar.problems.lmnn_triplets import Line, Placement, Triplets

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

ROW_COPIES = 3  # of the rows of a shard on a device: images, coordinates, their Laplacian
NEAR_EQUAL = 1e-9  # squared length, in margins, up to which rows are compared


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
        """Rows under each of some maps, in float32 if ``single``; few are in float64 at a time."""
        kernels = kernels_for(pieces[0])
        found: list[list[Array]] = [[] for _ in maps]
        for rows in (part for piece in pieces for part in rows_at_a_time(piece)):
            points = kernels.double(rows)
            points = points - kernels.like(self.centre, points)
            for parts, L in zip(found, maps, strict=True):
                part = kernels.apply(points, L)
                parts.append(kernels.single(part) if single else part)
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


# -- search ----------------------------------------------------------------------------------------


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

    def _impostor_pairs(
        self, Z: Array, kept: Array | None, reach: Array, *, screened: bool
    ) -> tuple[Array, Array]:
        del screened
        heads, tails = self.found
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
        limited = replace(self, room=room)
        for part in (margin, margin / 2, margin / 4):
            try:
                return limited._survey(L, Z, kept, part, *args, **options)
            except MemoryLimitError:
                continue
        return self._survey(L, Z, kept, min(margin, 0.0), *args, **options)

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

    heads = np.concatenate([none, *(part.heads for part in found)])
    tails = np.concatenate([none, *(part.tails for part in found)])
    code = kernels.unique(kernels.index(heads, X) * len(ids) + local(tails))
    pairs = code // len(ids), code % len(ids)
    del found, others, heads, tails, code
    used = slice(None) if keep else np.flatnonzero(previous.prox > 0)
    known = {
        "edge": previous.edge[used],
        "tail": to_host(local(previous.tail[used])),
        "prox": previous.prox[used],
    }
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


def taken(pieces: list[Array], rows: Index) -> Array:
    """Rows, in ascending order, of arrays that follow each other."""
    starts = np.cumsum([0, *map(len, pieces)])
    cuts = np.searchsorted(rows, starts)
    found = [
        take_rows(piece, rows[cuts[i] : cuts[i + 1]] - starts[i]) for i, piece in enumerate(pieces)
    ]
    return joined([part for part in found if len(part)] or found[:1])


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


# -- what a shard adds to sums ---------------------------------------------------------------------


def shard_of(*args: Any) -> Shard:
    """The shard of `assembled`, without the pull."""
    shard = assembled(*args)
    return shard.placed_at(replace(shard.at, pull=0.0))


def counted(shard: Shard) -> int:
    """How many triplets there are."""
    return len(shard.at.triplets)


def collected(shard: Shard) -> Multipliers:
    """The triplets with their multipliers, on the host."""
    triplets, kernels = shard.at.triplets, shard.problem.kernels
    tails = triplets.tails[triplets.pair]
    edge, tail, prox = map(kernels.to_host, (triplets.edge, tails, triplets.prox))
    return Multipliers(shard.edges[edge], shard.ids[tail], np.asarray(prox, dtype=np.float64))


def placed(shard: Shard, L: Matrix) -> Shard:
    """The shard at L."""
    return shard.placed_at(replace(shard.problem.place(L, shard.at.triplets), pull=0.0))


def moved(shard: Shard, direction: Matrix, width: float, t: float) -> Shard:
    """The shard after a step t along a direction."""
    line = shard.line(direction, width)
    shard.forget()  # no further round is along this line
    return shard.placed_at(replace(shard.problem.move(shard.at, line, t), pull=0.0))


def advanced(shard: Shard, width: float) -> Shard:
    """The shard with a of (4) replaced by α."""
    return shard.placed_at(shard.problem.advance_multipliers(shard.with_width(width), width))


def measured(shard: Shard, width: float) -> tuple[Any, ...]:
    """Push of (2), second term of (6), number of active triplets, and gradient of the push."""
    problem, at = shard.problem, shard.with_width(width)
    push, n_active = problem.objective(at)
    lap = problem._laplacian(at.triplets, at.alpha, at.Z)
    return push, problem.complementarity(at), n_active, 2 * problem._pulled_back(lap)


def along(shard: Shard, direction: Matrix, width: float, steps: tuple[float, ...]) -> Matrix:
    """Value, slope and curvature of the push of (4) at steps along a direction, (steps, 3)."""
    line = shard.line(direction, width)
    return np.array([line.at(step) for step in steps])


def curved(shard: Shard, rows: Matrix, width: float, Y: Matrix) -> Matrix:
    """The product of `LMNNObjective.curvature` with Y."""
    known = shard._curvature
    if known is None or not np.array_equal(known[0], rows):
        known = rows, shard.problem.curvature(shard.with_width(width), rows)
        shard._curvature = known
    product: Matrix = known[1](Y)
    return product


def bounded(shard: Shard, width: float, null: Matrix) -> dict[str, Any]:
    """What (6) needs of a shard."""
    part = _bounded(shard, shard.with_width(width), null)
    del part["dual"]
    return part | {"pull": 0.0}


def proved(
    X: Array,
    base: Base,
    found: list[Found],
    previous: Multipliers,
    at: Coordinates,
    L: Matrix,
    components: Matrix | None,
    margin: float,
    keep: bool,
    null: Matrix,
    with_dual: bool,
) -> dict[str, Any]:
    """What (6) needs of a shard in float64, at L or at the map that is returned for it."""
    shard = assembled(
        X, base, found, previous, at, L, components, margin, margin, keep, single=False
    )
    part = _bounded(shard, shard.at, null) | {"pull": shard.at.pull}
    if not with_dual:
        del part["dual"]
    return part


def _bounded(shard: Shard, at: Placement, null: Matrix) -> dict[str, Any]:
    """Sums of objective, bound and complementarity; S(α); and α where it is not zero.

    ``null`` spans the null space of P, which S must not reach: α is zero there. Pairs of equal rows
    have C_p = 0, so that their α need not be scaled with the rest.
    """
    problem, triplets = shard.problem, at.triplets
    kernels, mu, slack = problem.kernels, problem.push_weight, at.slack
    push, n_active = problem.objective(replace(at, pull=0.0))
    alpha, free, freed = at.alpha, np.zeros(null.shape), 0.0
    if null.shape[1]:
        reaches = problem._reaches(null, triplets.heads, triplets.tails, problem.U)
        blocked = alpha * reaches[triplets.pair]
        free, freed = _push(problem, triplets, blocked), float(triplets.weighted(blocked).sum())
        alpha = alpha - blocked
    fixed = alpha * shard.equal[triplets.pair]
    margins = problem._margins(triplets, problem.kept)
    sums = (float((triplets.weighted(part) * margins).sum()) for part in (fixed, alpha - fixed))
    lost = triplets.weighted(slack.clip(0, None) - alpha * slack)
    used = kernels.flatnonzero(alpha > 0)
    chosen = triplets.edge[used], triplets.tails[triplets.pair[used]], alpha[used]
    edge, tail, values = map(kernels.to_host, chosen)
    equal = kernels.flatnonzero(shard.equal)
    pairs = (shard.ids[kernels.to_host(end[equal])] for end in (triplets.heads, triplets.tails))
    return {
        "push": push,
        "n_active": n_active,
        "bound": tuple(mu * part for part in sums),  # of equal pairs, and of all others
        "complementarity": mu * float(lost.sum()),
        "S": _push(problem, triplets, alpha),
        "free": (free, freed),
        "equal_pairs": np.sort(np.stack(list(pairs), axis=1), axis=1),
        "dual": (shard.edges[edge], shard.ids[tail], values, kernels.to_host(fixed[used]) > 0),
    }


def _push(problem: ShardProblem, triplets: Triplets, alpha: Array) -> Matrix:
    """S(α)."""
    S: Matrix = -problem.kernels.gram(problem.U, problem._laplacian(triplets, alpha, problem.U))
    return S
