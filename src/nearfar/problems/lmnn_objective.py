"""The objective of LMNN over a working set of triplets: search, value, gradient and lines.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import MemoryLimitError
from nearfar.kernels import Array, as_dtype_of, free_memory, kernels_for, memory_error
from nearfar.kernels.tiles import labels_of
from nearfar.linalg import is_identity
from nearfar.problems.lmnn_points import LMNNPoints
from nearfar.problems.lmnn_triplets import (
    STEP_LIMIT,
    TRIPLETS_AT_A_TIME,
    DualPoint,
    Line,
    Placement,
    Triplets,
)

Matrix = NDArray[np.float64]

PAIR_BYTES, TRIPLET_BYTES = 120, 110  # of all arrays that hold pairs and triplets at a time
PAIRS_AT_A_TIME = 1 << 18  # whose triplets are made, before those that are wanted are kept
ESTIMATE_ROWS = 1000  # whose triplets tell how many there are,
ESTIMATE_LEAST = 20 * ESTIMATE_ROWS  # where there are more target edges than this,
ESTIMATE_SHARE = 0.8  # if they are to fill this share of the memory
WORKING_BYTES = 10_000  # of triplets for each point, where searches are cheap,
WORKING_GROWTH = 1.5  # or this multiple of those at hand, if that is more
HOST_BYTES = 1e9  # of triplets on the host, if those that are active need no more
MANY_POINTS = 10_000  # among which those of FEW_ROWS rows, one in so many, are searched alone
FEW_ROWS = 32
NEGLIGIBLE = 1e-4  # α of an earlier dual point that is not worth a place in a proof
WEIGHT_BYTES = 16  # more of each where rows have weights


@dataclass(frozen=True)
class LMNNObjective(LMNNPoints):
    """f of (2) and (7), smoothed as in (4), over the triplets at hand."""

    # -- the working set ---------------------------------------------------------------------

    def search(
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Triplets | None = None,
        *,
        keep: bool = False,
    ) -> Triplets:
        """All triplets with slack above −margin at L, and those of ``previous`` in use.

        ``keep`` also keeps the triplets of all pairs of ``previous``.
        """
        return self.survey(L, margin, width, previous, keep=keep).triplets

    def survey(
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Triplets | None = None,
        *,
        keep: bool = False,
        insist: bool = False,
    ) -> Placement:
        """L placed with the triplets that `search` finds; with a narrower margin to save memory.

        Where searches are cheap, triplets take only so much memory that a step is not dearer than a
        search, unless the caller insists: then the limit is what memory holds. On the host those
        outside the margin are left out where all would take more than HOST_BYTES.
        """
        Z = self._map(L, self.U)
        room, wanted = free_memory(Z), HOST_BYTES
        if kernels_for(Z).searches_are_cheap(Z):
            wanted = np.inf
            if not insist:
                known = 0 if previous is None else self._bytes(len(previous.heads), len(previous))
                room = min(room, max(WORKING_BYTES * len(self.U), WORKING_GROWTH * known))
        margin, keep = self._affordable(L, Z, margin, width, previous, room, wanted, keep=keep)
        return self._survey(L, Z, self.kept, margin, width, previous, keep=keep)

    def _affordable(
        self,
        L: Matrix,
        Z: Array,
        margin: float,
        width: float,
        previous: Triplets | None,
        room: float,
        wanted: float,
        *,
        keep: bool,
    ) -> tuple[float, bool]:
        """The widest margin up to this one whose triplets fit into so many bytes; and ``keep``.

        Their number is estimated from the triplets of some rows, where the edges are many. Raises
        if there is not even room for those that are active; these may need more than is wanted.
        """
        many = len(self.edges[0]) > ESTIMATE_LEAST
        some = self.sampled(ESTIMATE_ROWS) if many else self
        if some is self:
            return margin, keep
        kernels, share = self.kernels, len(some.edges[0]) / len(self.edges[0])
        at = some._survey(L, Z, self.kept, margin, width, None)
        nearest = kernels.segment_max(at.triplets.pair, at.slack, len(at.pair_lengths))
        outside = -np.concatenate([kernels.to_host(at.slack), kernels.to_host(nearest)])
        sizes = np.repeat([self._bytes(0, 1), self._bytes(1, 0)], [len(at.slack), len(nearest)])
        order = np.argsort(outside)
        outside, needed = outside[order], np.cumsum(sizes[order]) / share
        active = float(needed[outside < 0][-1:].sum())
        if active > room:
            raise self._too_many(round(active / self._bytes(1, 1)), active)
        room = min(room, wanted)
        if keep and previous is not None:
            pairs = len(previous.heads)
            kept = self._bytes(pairs, round(pairs * len(self.edges[0]) / len(self.U)))
            keep = bool(kept + needed[-1:].sum() < ESTIMATE_SHARE * room)
        within = int(np.searchsorted(needed, ESTIMATE_SHARE * room))
        return (margin if within == len(needed) else max(float(outside[within]), 0.0)), keep

    def _survey(
        self,
        L: Matrix,
        Z: Array,
        kept: Array | None,
        margin: float,
        width: float,
        previous: Triplets | None,
        *,
        keep: bool = False,
        screened: bool = False,
        components: Matrix | None = None,
    ) -> Placement:
        """L placed at images under M', with points for φWᵀW; or under M, whose ``components`` are.

        ``screened`` searches in float32 first.
        """
        kernels, n, room = self.kernels, len(self.U), free_memory(Z)
        edge_lengths = self._lengths(Z, *self.edges, kept)
        reach = kernels.segment_max(self.edges[0], edge_lengths, n) + (1 + margin)
        heads, tails = self._impostor_pairs(Z, kept, reach, screened=screened)
        known = heads[:0]
        if previous is not None:
            known = previous.heads * n + previous.tails
            if not keep:  # only pairs whose multipliers are not zero
                known = known[previous.pair[kernels.flatnonzero(previous.prox > 0)]]
            code = kernels.unique(kernels.concatenate([heads * n + tails, known]))
            heads, tails = code // n, code % n
        count = self.first_edge[heads + 1] - self.first_edge[heads]
        pair_lengths = self._lengths(Z, heads, tails, kept)
        old = None if previous is None else self._places(previous, heads, tails)
        all_kept = None
        if keep and len(known):
            known, code = kernels.unique(known), heads * n + tails
            at = kernels.searchsorted(known, code).clip(0, len(known) - 1)
            all_kept = known[at] == code
        found: list[tuple[Array, ...]] = []
        n_found = 0
        for first in range(0, max(len(heads), 1), PAIRS_AT_A_TIME):
            pairs = slice(first, first + PAIRS_AT_A_TIME)
            pair = kernels.repeat(kernels.arange(len(heads[pairs]), heads), count[pairs])
            offset = kernels.cumsum(count[pairs]) - count[pairs] - self.first_edge[heads[pairs]]
            edge, pair = kernels.arange(len(pair), heads) - offset[pair], pair + first
            slack = 1 + edge_lengths[edge] - pair_lengths[pair]
            wanted = slack > -margin
            if previous is not None and old is not None:
                prox, best = self._carried(previous, old, pair, edge)
                wanted = wanted | (prox > 0)
            if all_kept is not None:
                wanted = wanted | all_kept[pair]
            at = kernels.flatnonzero(wanted)
            n_found += len(at)
            self._check_memory(len(heads), n_found, room)
            parts = [
                kernels.compact(pair[at], len(heads)),
                kernels.compact(edge[at], len(edge_lengths)),
            ]
            if previous is None:
                parts.append(0 * slack[at])
            else:
                parts += [prox[at]] if best is None else [prox[at], self._kept_alpha(best[at])]
            found.append(tuple(parts))
        columns = list(zip(*found, strict=True))
        del found, old
        joined = (kernels.concatenate(list(columns.pop(0))) for _ in range(len(columns)))
        pair, edge, prox, *more = joined
        best = DualPoint(more[0]) if more else None
        triplets = self._triplets(heads, tails, pair, edge, prox, width, best)
        pull = self._pull_of(edge_lengths, L, components)
        return Placement(L, Z, pull, edge_lengths[triplets.edges], pair_lengths, triplets)

    def _impostor_pairs(
        self, Z: Array, kept: Array | None, reach: Array, *, screened: bool
    ) -> tuple[Array, Array]:
        """All pairs of points of different classes that are closer than the first one's reach."""
        kernels = self.kernels
        images = self._with_kept(Z, kept)
        screen = kernels.single(images) if screened else None
        rows = kernels.flatnonzero(reach > -np.inf)
        # Many points on the host are searched in blocks, which also leave out rows without reach.
        in_blocks = len(reach) >= MANY_POINTS and not kernels.searches_are_cheap(Z)
        if (FEW_ROWS if in_blocks else 2) * len(rows) > len(reach):
            pairs: tuple[Array, Array] = kernels.impostor_pairs(images, reach, self.starts, screen)
            return pairs
        labels = kernels.index(labels_of(self.starts), Z)
        rounded = None if screen is None else (screen[rows], screen)
        heads, tails = kernels.cross_impostor_pairs(
            images[rows], reach[rows], images, labels[rows], labels, rounded
        )
        return rows[heads], tails

    def _pull_of(self, edge_lengths: Array, L: Matrix, components: Matrix | None = None) -> float:
        """The pull of (7) from the lengths of all target edges; components are those of M."""
        pull = self._edge_pull(edge_lengths)
        if not self.ridge:
            return pull
        if components is None:
            return pull + self._ridge_of_floor + self._ridge_of(self.components(L))
        return pull + self._ridge_of(components)

    def _check_memory(self, n_pairs: int, n_triplets: int, room: float) -> None:
        """Refuse more pairs and triplets than there is room for."""
        needed = self._bytes(n_pairs, n_triplets)
        if needed > room:
            raise self._too_many(n_triplets, needed)

    def _too_many(self, n_triplets: int, needed: float) -> MemoryLimitError:
        return memory_error(
            needed,
            f"learning from {len(self.U)} points with {n_triplets} triplets at a time",
            "Fit to fewer rows, lower n_neighbors",
            self.U,
        )

    def _bytes(self, n_pairs: int, n_triplets: int) -> int:
        """Memory that learning from pairs and triplets takes."""
        more = 0 if self.masses is None else WEIGHT_BYTES
        return (PAIR_BYTES + more) * n_pairs + (TRIPLET_BYTES + more) * n_triplets

    def _triplets(
        self,
        heads: Array,
        tails: Array,
        pair: Array,
        edge: Array,
        prox: Array,
        width: float,
        best: DualPoint | None = None,
    ) -> Triplets:
        """Triplets with the edges that occur in them."""
        kernels = self.kernels
        occurs = self.edges[0] < 0
        occurs[edge] = True
        near = kernels.compact(kernels.cumsum(occurs) - 1, len(occurs))[edge]
        edges, masses = kernels.flatnonzero(occurs), self.masses
        weights = None if masses is None else masses[heads] * masses[tails]
        return Triplets(heads, tails, pair, edges, near, prox, width, weights, best)

    def _kept_alpha(self, alpha: Array) -> Array:
        """α of a dual point as it is kept: in the floating type of the points."""
        return self.kernels.single(alpha) if self.is_single else alpha

    def _places(self, previous: Triplets, heads: Array, tails: Array) -> tuple[Array, Array, Array]:
        """Where triplets of ``previous`` are to be found from other pairs.

        A table with a place for every target edge of each pair of ``previous``, which holds the
        number of its triplet plus 1, or 0 if there is none; for each other pair, where the places
        of its edges are, less the number of the edge; and whether ``previous`` has that pair.
        """
        kernels, n, first = self.kernels, len(self.U), self.first_edge
        begins = first[previous.heads]
        count = first[previous.heads + 1] - begins
        offset = kernels.cumsum(count) - count - begins + 1
        table = kernels.compact(kernels.arange(1 + int(count.sum()), heads) * 0, len(previous))
        number = kernels.arange(len(previous), heads) + 1
        table[offset[previous.pair] + previous.edge] = kernels.compact(number, len(previous))
        known, code = previous.heads * n + previous.tails, heads * n + tails
        if not len(known):
            return table, 0 * heads, heads < 0
        at = kernels.searchsorted(known, code).clip(0, len(known) - 1)
        return table, offset[at], known[at] == code

    def _carried(
        self, previous: Triplets, places: tuple[Array, Array, Array], pair: Array, edge: Array
    ) -> tuple[Array, Array | None]:
        """The multipliers and the best dual point of ``previous`` at triplets, zero at new ones."""
        kernels, (table, offset, is_known) = self.kernels, places
        number = table[(offset[pair] + edge) * is_known[pair]]
        old = kernels.flatnonzero(number > 0)
        source = number[old] - 1

        def carried(values: Array) -> Array:
            out = 0 * kernels.double(pair)
            out[old] = kernels.double(values[source])
            return out

        if previous.best is None:
            return carried(previous.prox), None
        best = carried(previous.best.alpha)
        return carried(previous.prox), best * (best > NEGLIGIBLE)

    def multipliers(self, triplets: Triplets) -> dict[str, NDArray[Any]]:
        """The multipliers that are not zero, on the host: enough to continue from them."""
        kernels = self.kernels
        used = kernels.flatnonzero(triplets.prox > 0)
        found = {
            "edge": triplets.edge[used],
            "tail": triplets.tails[triplets.pair[used]],
            "prox": triplets.prox[used],
        }
        return {name: kernels.to_host(values) for name, values in found.items()}

    def with_multipliers(self, found: dict[str, NDArray[Any]], width: float) -> Triplets:
        """Triplets that hold the given multipliers, and no others."""
        kernels = self.kernels
        edge, tails = (kernels.index(found[name], self.U) for name in ("edge", "tail"))
        prox = kernels.like(found["prox"], kernels.double(self.U[:0]))
        return self._of_edges(edge, tails, prox, width)

    def _of_edges(self, edge: Array, tails: Array, prox: Array, width: float) -> Triplets:
        """Triplets by their edges and impostors, in this order; their pairs are sorted."""
        kernels, n = self.kernels, len(self.U)
        code = self.edges[0][edge] * n + tails
        pairs = kernels.unique(code)
        pair = kernels.searchsorted(pairs, code)
        return self._triplets(pairs // n, pairs % n, pair, edge, prox, width)

    # -- objective, gradient and line ----------------------------------------------------------

    def place(self, L: Matrix, triplets: Triplets) -> Placement:
        """Compute all lengths at L."""
        Z, kept = self._map(L, self.U), self.kept
        edge_lengths = self._lengths(Z, *self._near_edges(triplets), kept)
        pair_lengths = self._lengths(Z, triplets.heads, triplets.tails, kept)
        pull = self._pull(L, L, Z, Z) + self._constant
        return Placement(L, Z, pull, edge_lengths, pair_lengths, triplets)

    def _near_edges(self, triplets: Triplets) -> tuple[Array, Array]:
        """The target edges that occur in triplets."""
        return self.edges[0][triplets.edges], self.edges[1][triplets.edges]

    @cached_property
    def _root(self) -> Matrix:
        """F with FFᵀ = P: where targets hardly differ, rounding must not make ⟨P, M⟩ negative."""
        values, vectors = np.linalg.eigh(self.P)
        root: Matrix = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
        return root

    @cached_property
    def _unit(self) -> float | None:
        """c where P = cI, as of whitened principal components and samples of them, else None."""
        unit = float(self.P.flat[0]) if self.P.size else 0.0
        return unit if unit and is_identity(self.P / unit) else None

    def _pull(self, L: Matrix, other: Matrix, Z: Array, W: Array) -> float:  # noqa: ARG002
        """⟨P, LᵀL'⟩, where Z and W are the images of the points; sparse points need these."""
        if self._unit is not None:
            return self._unit * float(np.vdot(L, other))
        rooted = L @ self._root
        return float(np.vdot(rooted, rooted if other is L else other @ self._root))

    def _pulled(self, L: Matrix) -> Matrix:
        """L P."""
        if self._unit is not None:
            return self._unit * L
        pulled: Matrix = L @ self._root @ np.swapaxes(self._root, -1, -2)
        return pulled

    def objective(self, at: Placement) -> tuple[float, int]:
        """f of (2) over the triplets at hand, and how many of them are active."""
        slack = at.slack
        push = float(at.triplets.weighted(slack.clip(0, None)).sum())
        value = at.pull + self.push_weight * push
        return value, int((slack > 0).sum())

    def complementarity(self, at: Placement) -> float:
        """The second term of (6) with α of (4)."""
        slack = at.slack
        lost = at.triplets.weighted(slack.clip(0, None) - at.alpha * slack)
        return self.push_weight * float(lost.sum())

    def gradient(self, at: Placement) -> Matrix:
        """(5) with α of (4)."""
        lap = self._laplacian(at.triplets, at.alpha, at.Z)
        return 2 * (self._pulled(at.L) + self._pulled_back(lap))

    def _weights(self, triplets: Triplets, alpha: Array) -> tuple[Array, Array]:
        """Multiples of C_e and C_p in −S(α)."""
        kernels, mu, alpha = self.kernels, self.push_weight, triplets.weighted(alpha)
        return (
            mu * kernels.segment_sum(triplets.near, alpha, len(triplets.edges)),
            -mu * kernels.segment_sum(triplets.pair, alpha, len(triplets.heads)),
        )

    def _links(self, triplets: Triplets, alpha: Array) -> tuple[Array, Array, Array]:
        """Heads and tails of the edges and pairs in triplets, and their weights in −S(α)."""
        kernels, near = self.kernels, self._near_edges(triplets)
        heads = kernels.concatenate([near[0], triplets.heads])
        tails = kernels.concatenate([near[1], triplets.tails])
        return heads, tails, kernels.concatenate(list(self._weights(triplets, alpha)))

    def _laplacian(self, triplets: Triplets, alpha: Array, Z: Array) -> Array:
        """Lap(ω) Z with the weights of −S(α)."""
        heads, tails, weights = self._links(triplets, alpha)
        return self.kernels.laplacian_matmul(*self._nodes(heads, tails), weights, Z)

    def curvature(self, at: Placement, rows: Matrix) -> Callable[[Matrix], Matrix]:
        """The Hessian of the smoothed objective in Y at Y = 0, for M + RᵀYR with R = rows · L.

        Y is mapped to μ/w Σ_t v_t ⟨A_t, Y⟩ A_t over the triplets with 0 < α < 1, where
        A_t = R(C_p − C_e)Rᵀ. With c of these and k rows it costs O(c k²), and O(n k r) before.
        """
        kernels, triplets = self.kernels, at.triplets
        curved = kernels.flatnonzero((at.alpha > 0) & (at.alpha < 1))
        pair, edge = triplets.pair[curved], triplets.edge[curved]
        images = kernels.apply(at.Z, rows)
        far = images[triplets.heads[pair]] - images[triplets.tails[pair]]
        near = images[self.edges[0][edge]] - images[self.edges[1][edge]]
        weight = self.push_weight / triplets.width
        weights = None if triplets.weights is None else as_dtype_of(far, triplets.weights[pair])

        def product(Y: Matrix) -> Matrix:
            placed = kernels.like(Y, images)
            change = (far @ placed * far).sum(1) - (near @ placed * near).sum(1)
            change = (change if weights is None else change * weights)[:, None]
            total: Matrix = kernels.gram(far, change * far) - kernels.gram(near, change * near)
            return weight * total

        return product

    def line(self, at: Placement, direction: Matrix) -> Line:
        """The smoothed objective along L + t · direction."""
        return self._line(at, direction, self._map(direction, self.U))

    def rescaling(self, at: Placement, share: float) -> Line:
        """The smoothed objective along (1 + t · share) L, without touching the points again."""
        return self._line(at, share * at.L, share * at.Z)

    def _line(self, at: Placement, direction: Matrix, map_: Array) -> Line:
        triplets, mu = at.triplets, self.push_weight
        e1, e2 = self._products(at.Z, map_, *self._near_edges(triplets))
        p1, p2 = self._products(at.Z, map_, triplets.heads, triplets.tails)
        slack, prox, weights = self._that_matter(at, (e1, e2), (p1, p2))
        left_out = float(triplets.weighted(triplets.prox) @ triplets.prox)  # their α stays 0
        left_out -= float((prox if weights is None else weights * prox) @ prox)
        return Line(
            direction=direction,
            map=map_,
            edge_change=(e1, e2),
            pair_change=(p1, p2),
            pull=(
                at.pull,
                2 * self._pull(at.L, direction, at.Z, map_),
                self._pull(direction, direction, map_, map_),
            ),
            left_out=mu * triplets.width / 2 * left_out,
            slack=slack,
            prox=prox,
            weights=weights,
            width=triplets.width,
            push_weight=mu,
        )

    def _that_matter(
        self, at: Placement, edge_change: tuple[Array, Array], pair_change: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array, Array | None]:
        """Of the triplets whose α may change along a line: s as a polynomial, a of (4) and v.

        A block of triplets at a time, since most of them do not matter.
        """
        kernels, triplets = self.kernels, at.triplets
        (e1, e2), (p1, p2) = edge_change, pair_change
        found: list[tuple[Array, ...]] = []
        for first in range(0, max(len(triplets), 1), TRIPLETS_AT_A_TIME):
            part = slice(first, first + TRIPLETS_AT_A_TIME)
            near, pair, prox = triplets.near[part], triplets.pair[part], triplets.prox[part]
            s0, s1, s2 = at.slack[part], 2 * (e1[near] - p1[pair]), e2[near] - p2[pair]
            highest = s0 + STEP_LIMIT * (s1.clip(0, None) + STEP_LIMIT * s2.clip(0, None))
            matter = kernels.flatnonzero(highest > -triplets.width * prox)
            parts = (s0[matter], s1[matter], s2[matter], prox[matter])
            weights = triplets.weights
            found.append(parts if weights is None else (*parts, weights[pair[matter]]))
        columns = list(zip(*found, strict=True))
        del found
        joined = (kernels.concatenate(list(columns.pop(0))) for _ in range(len(columns)))
        s0, s1, s2, prox, *more = joined
        return (s0, s1, s2), prox, more[0] if more else None

    def move(self, at: Placement, line: Line, t: float) -> Placement:
        """The placement at L + tΔ; lengths follow without touching the points again.

        This uses the line up: the new images take the memory of its map.
        """
        (e1, e2), (p1, p2) = line.edge_change, line.pair_change
        pull, pull1, pull2 = line.pull
        Z = line.map
        Z *= t  # in place: new pages of large arrays cost more than their sums
        Z += at.Z
        return Placement(
            at.L + t * line.direction,
            Z,
            pull + t * (pull1 + t * pull2),
            at.edge_lengths + t * (2 * e1 + t * e2),
            at.pair_lengths + t * (2 * p1 + t * p2),
            at.triplets,
        )

    def advance_multipliers(self, at: Placement, width: float) -> Placement:
        """Replace a of (4) by α, and set the width."""
        return replace(at, triplets=replace(at.triplets, prox=at.alpha, width=width))

    def narrow(self, at: Placement, width: float) -> Placement:
        """Set the width of (4) and leave its multipliers."""
        return replace(at, triplets=replace(at.triplets, width=width))
