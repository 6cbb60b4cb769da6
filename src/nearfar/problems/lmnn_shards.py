"""Shards of LMNN: what a worker does for the rows of one block.

A shard is a small LMNN problem: the rows of one block, the target edges and triplets headed by
them, and the rows of their tails. Sums over shards are those over all triplets, since each triplet
has one head. All functions here are tasks: pure functions of their arguments. What a shard
remembers of its last evaluation saves time, and no result depends on it.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_triplets import Line, Placement, Triplets

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

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

    def centred(self, rows: Array) -> Array:
        """Rows in float64, relative to the centre."""
        kernels = kernels_for(rows)
        points = kernels.double(rows)
        return points - kernels.like(self.centre, points)


@dataclass(frozen=True)
class Base:
    """The rows of a block with their target edges, and the rows where these end."""

    X: Array  # (m, features) rows that head edges and triplets
    ids: Index  # (m,) their row numbers, ascending
    codes: Index  # (m,) their class numbers
    ends: Array | None  # (e, features) rows of other blocks where target edges end
    end_ids: Index  # (e,) their row numbers, ascending
    heads: Index  # target edges: rows of X,
    tails: Index  # and rows of X and then of ``ends``

    @property
    def rows(self) -> Array:
        """All rows, as the edges count them."""
        return joined([self.X] if self.ends is None else [self.X, self.ends])


@dataclass(frozen=True)
class Multipliers:
    """Triplets of a shard with their multipliers a of (4), apart from all else."""

    edge: Index  # (t,) edge of the shard
    tail: Index  # (t,) row number of the impostor
    prox: Matrix  # (t,)

    @classmethod
    def none(cls) -> Multipliers:
        """No triplets."""
        return cls(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))


@dataclass(frozen=True)
class Head:
    """The rows of a shard in a search for impostors, and what it has found so far."""

    images: Array  # (m, r)
    reach: Array  # (m,) squared distance up to which others are impostors
    codes: Index
    ids: Index
    known: Index  # ascending row numbers of tails that are needed in any case
    heads: tuple[Index, ...] = ()  # pairs: rows of the shard,
    tails: tuple[Index, ...] = ()  # and row numbers
    tail_ids: tuple[Index, ...] = ()  # row numbers of tails that are not in the shard,
    tail_rows: tuple[Array, ...] = ()  # and these rows, (·, features)


def based(
    block: Array | list[Array],
    ends: list[Array],
    ids: Index,
    codes: Index,
    end_ids: Index,
    heads: Index,
    tails: Index,
) -> Base:
    """A base, from the rows of a block, or pieces of rows, and the pieces of its edges' ends."""
    X = joined(block) if isinstance(block, list) else block
    return Base(X, ids, codes, joined(ends) if ends else None, end_ids, heads, tails)


def joined(pieces: list[Array]) -> Array:
    """Arrays of rows as one."""
    return pieces[0] if len(pieces) == 1 else kernels_for(pieces[0]).concatenate(pieces)


# -- search ----------------------------------------------------------------------------------------


def begun(
    base: Base, previous: Multipliers, at: Coordinates, F: Matrix, margin: float, keep: bool
) -> Head:
    """The head of a search under the map F (r, features), of the metric with its floor."""
    kernels = kernels_for(base.X)
    images = kernels.apply(at.centred(base.rows), F)
    heads, tails = (kernels.index(end, base.X) for end in (base.heads, base.tails))
    lengths = kernels.double(kernels.sq_lengths(images, heads, tails))
    reach = kernels.segment_max(heads, lengths, len(base.X)) + (1 + margin)
    known = previous.tail if keep else previous.tail[previous.prox > 0]
    return Head(images[: len(base.X)], reach, base.codes, base.ids, np.unique(known))


def searched(
    head: Head, block: Array, first: int, at: Coordinates, F: Matrix, starts: Index
) -> Head:
    """The head after it has met a block whose rows are numbered from ``first``."""
    kernels = kernels_for(block)
    others = np.searchsorted(starts, first + np.arange(len(block)), side="right") - 1
    active = np.flatnonzero(to_host(head.reach) > -np.inf)
    heads, tails = (np.empty(0, dtype=np.intp) for _ in range(2))
    if len(active) and not (others[0] == others[-1] == head.codes[0] == head.codes[-1]):
        images, queries = kernels.apply(at.centred(block), F), take_rows(head.images, active)
        codes = (kernels.index(codes, block) for codes in (head.codes[active], others))
        screen = kernels.single(queries), kernels.single(images)
        found = kernels.cross_impostor_pairs(
            queries, take_rows(head.reach, active), images, *codes, screen
        )
        heads, tails = active[to_host(found[0])], first + to_host(found[1])
    low, high = np.searchsorted(head.known, [first, first + len(block)])
    needed = np.union1d(tails, head.known[low:high]).astype(np.intp)
    needed = needed[~np.isin(needed, head.ids)]
    return replace(
        head,
        heads=(*head.heads, heads),
        tails=(*head.tails, tails),
        tail_ids=(*head.tail_ids, needed),
        tail_rows=(*head.tail_rows, take_rows(block, needed - first)),
    )


@dataclass(frozen=True)
class ShardProblem(LMNNProblem):
    """The LMNN problem of a shard, without the pull, whose impostors others have found."""

    found: tuple[Array, Array] = ()  # type: ignore[assignment]

    def _impostor_pairs(
        self, Z: Array, kept: Array | None, reach: Array, *, screened: bool
    ) -> tuple[Array, Array]:
        del Z, kept, reach, screened
        return self.found


@dataclass
class Shard:
    """A small LMNN problem with its triplets; the width of (4) is not its own."""

    problem: ShardProblem
    ids: Index  # row number of each row
    triplets: Triplets
    equal: Array  # (p,) which pairs consist of equal rows
    _placed: Placement | None = field(default=None, repr=False)  # the last one: saves time only
    _line: tuple[Placement, Matrix, Line] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_placed": None, "_line": None}

    def placed(self, L: Matrix, width: float) -> Placement:
        """All lengths at L."""
        last = self._placed
        if last is None or last.L.shape != L.shape or not (last.L == L).all():
            last = self.problem.place(L, self.triplets)
            self._placed, self._line = last, None
        return replace(last, pull=0.0, triplets=replace(self.triplets, width=width))

    def line(self, L: Matrix, direction: Matrix, width: float) -> Line:
        """The push along a direction."""
        known = self._line
        if (
            known is None
            or self._placed is not known[0]
            or not (self._placed.L == L).all()
            or known[2].width != width
            or not (known[1] == direction).all()
        ):
            line = self.problem.line(self.placed(L, width), direction)
            assert self._placed is not None
            self._line = known = self._placed, direction, line
        return known[2]


def assembled(
    base: Base,
    head: Head,
    previous: Multipliers,
    at: Coordinates,
    L: Matrix,
    components: Matrix | None,
    margin: float,
    width: float,
    keep: bool,
    single: bool,
) -> tuple[Shard, Placement]:
    """The shard with the triplets of a search, placed at L, or at the map that is returned for it.

    ``components`` are that map, with the kept distance; None for L with it.
    """
    kernels = kernels_for(base.X)
    tail_ids = np.concatenate([np.empty(0, dtype=np.intp), *head.tail_ids])
    order = np.argsort(tail_ids, kind="stable")
    pieces = [rows for rows in head.tail_rows if len(rows)]
    rows = [base.rows, take_rows(joined(pieces), order)] if pieces else [base.rows]
    X, tail_ids = joined(rows), tail_ids[order]
    ids = np.concatenate([base.ids, base.end_ids, tail_ids])
    problem = _problem(base, X, ids, at, single)

    def local(numbers: Index) -> Array:
        """Rows of the shard for row numbers: its own, or tails."""
        own = np.searchsorted(base.ids, numbers).clip(0, len(base.ids) - 1)
        other = len(ids) - len(tail_ids) + np.searchsorted(tail_ids, numbers)
        return kernels.index(np.where(base.ids[own] == numbers, own, other), X)

    none = np.empty(0, dtype=np.intp)
    heads, tails = (np.concatenate([none, *found]) for found in (head.heads, head.tails))
    code = kernels.unique(kernels.index(heads, X) * len(X) + local(tails))
    problem = replace(problem, found=(code // len(X), code % len(X)))
    used = slice(None) if keep else np.flatnonzero(previous.prox > 0)
    known = {
        "edge": previous.edge[used],
        "tail": to_host(local(previous.tail[used])),
        "prox": previous.prox[used],
    }
    Z, kept = problem._map(L, problem.U), problem.kept
    if components is not None:
        Z, kept = kernels.apply(at.centred(X), components), None
    triplets = problem.with_multipliers(known, width)
    place = problem._survey(L, Z, kept, margin, width, triplets, keep=keep, components=components)
    found = place.triplets
    close = kernels.flatnonzero(place.pair_lengths <= NEAR_EQUAL)
    same = (X[found.heads[close]] == X[found.tails[close]]).all(1)
    equal = place.pair_lengths < 0
    equal[close[kernels.flatnonzero(same)]] = True
    return Shard(replace(problem, found=()), ids, found, equal), place  # type: ignore[arg-type]


def _problem(base: Base, X: Array, ids: Index, at: Coordinates, single: bool) -> ShardProblem:
    """The LMNN problem on these rows, with the edges of the base and no pull."""
    kernels, d = kernels_for(X), at.basis.shape[1]
    points = at.centred(X)
    U = kernels.apply(points, at.basis.T)
    kept = kernels.apply(points, at.floor**0.5 * at.prior) if at.floor else None
    masses = None if at.masses is None else kernels.like(at.masses[ids], points)
    counts = np.bincount(base.heads, minlength=len(X))
    nothing = np.zeros((d, d))
    return ShardProblem(
        U=kernels.single(U) if single else U,
        edges=(kernels.index(base.heads, X), kernels.index(base.tails, X)),
        first_edge=kernels.index(np.concatenate([[0], np.cumsum(counts)]), X),
        starts=np.empty(0, dtype=np.intp),
        masses=masses,
        push_weight=at.push_weight,
        ridge=0.0,
        floor=at.floor,
        prior=at.prior,
        prior_inverse=at.prior.T[:, :0],
        kept=kernels.single(kept) if single and kept is not None else kept,
        basis=at.basis,
        dual_basis=at.basis,
        P=nothing,
        Q=nothing,
        exact=_elsewhere,
        images=_elsewhere,
        first=None,
    )


def _elsewhere(*_: Any) -> NoReturn:
    raise AssertionError("a shard has no other points than its own")


# -- what a shard adds to sums ---------------------------------------------------------------------


def shard_of(*args: Any) -> Shard:
    """The shard of `assembled`."""
    return assembled(*args)[0]


def counted(shard: Shard) -> int:
    """How many triplets there are."""
    return len(shard.triplets)


def collected(shard: Shard) -> Multipliers:
    """The triplets with their multipliers, on the host."""
    triplets, kernels = shard.triplets, shard.problem.kernels
    tails = triplets.tails[triplets.pair]
    edge, tail, prox = map(kernels.to_host, (triplets.edge, tails, triplets.prox))
    return Multipliers(edge, shard.ids[tail], np.asarray(prox, dtype=np.float64))


def advanced(shard: Shard, L: Matrix, width: float) -> Shard:
    """The shard with a of (4) replaced by α."""
    alpha = shard.placed(L, width).alpha
    return replace(shard, triplets=replace(shard.triplets, prox=alpha), _placed=None, _line=None)


def measured(shard: Shard, L: Matrix, width: float) -> tuple[Any, ...]:
    """Push of (2) and of (4), second term of (6), active triplets, and gradient of the push."""
    problem, at = shard.problem, shard.placed(L, width)
    push, n_active = problem.objective(at)
    lost = problem.complementarity(at)
    offset = at.alpha - at.triplets.prox
    smooth = at.alpha * at.slack - (width / 2) * offset * offset
    smoothed = problem.push_weight * float(at.triplets.weighted(smooth).sum())
    lap = problem._laplacian(at.triplets, at.alpha, at.Z)
    return push, smoothed, lost, n_active, 2 * problem._pulled_back(lap)


def along(
    shard: Shard, L: Matrix, direction: Matrix, width: float, steps: tuple[float, ...]
) -> Matrix:
    """Value, slope and curvature of the push of (4) at steps along a direction, (steps, 3)."""
    line = shard.line(L, direction, width)
    return np.array([line.at(step) for step in steps])


def curved(shard: Shard, L: Matrix, rows: Matrix, width: float, Y: Matrix) -> Matrix:
    """The product of `LMNNObjective.curvature` with Y."""
    return shard.problem.curvature(shard.placed(L, width), rows)(Y)


def bounded(shard: Shard, L: Matrix, width: float, null: Matrix) -> dict[str, Any]:
    """What (6) needs of a shard, at L."""
    part = _bounded(shard, shard.placed(L, width), shard.problem.kept, null)
    del part["dual"]
    return part


def proved(
    base: Base,
    head: Head,
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
    shard, place = assembled(
        base, head, previous, at, L, components, margin, margin, keep, single=False
    )
    kept = shard.problem.kept if components is None else None
    part = _bounded(shard, place, kept, null)
    if not with_dual:
        del part["dual"]
    return part


def _bounded(shard: Shard, at: Placement, kept: Array | None, null: Matrix) -> dict[str, Any]:
    """Sums of objective, bound and complementarity; S(α); and α where it is not zero.

    ``kept`` holds points for φWᵀW, or is None where the images are those of M.

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
        "pull": problem._edge_pull(problem._lengths(at.Z, *problem.edges, kept)),
        "push": push,
        "n_active": n_active,
        "bound": tuple(mu * part for part in sums),  # of equal pairs, and of all others
        "complementarity": mu * float(lost.sum()),
        "S": _push(problem, triplets, alpha),
        "free": (free, freed),
        "equal_pairs": np.sort(np.stack(list(pairs), axis=1), axis=1),
        "dual": (edge, shard.ids[tail], values, kernels.to_host(fixed[used]) > 0),
    }


def _push(problem: ShardProblem, triplets: Triplets, alpha: Array) -> Matrix:
    """S(α)."""
    S: Matrix = -problem.kernels.gram(problem.U, problem._laplacian(triplets, alpha, problem.U))
    return S
