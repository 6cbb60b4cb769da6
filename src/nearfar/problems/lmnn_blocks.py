"""LMNN on rows that lie in blocks: the problem of `nearfar.problems.lmnn` as a sum over shards.

The solver sees one problem. Its points are on the workers, in shards (`nearfar.problems.
lmnn_shards`); small matrices, the target edges and the labels are here. Each evaluation is a round:
one task a shard, whose results are added up in the order of the shards.

State that depends on history are the multipliers a of (4). They lie in the shards. A shard is the
result of a task whose inputs are blocks of rows and the multipliers at the last search, which came
through this machine (`Working.collect`), so that what is needed to compute it again never reaches
back beyond one search; between two searches, steps and new multipliers are links of that chain, and
a link is a few matrix products. Dask follows the chain by itself where a worker is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Engine, Task
from nearfar.blocks.engine import rounds, unchanged
from nearfar.blocks.rows import IN_FLIGHT
from nearfar.linalg import largest_scale, range_and_null, symmetric
from nearfar.problems import lmnn_shards as shards
from nearfar.problems.lmnn import CERTIFY_WIDTH, Certificate, LMNNProblem
from nearfar.problems.lmnn_blocks_whitening import whitened_blocks
from nearfar.problems.lmnn_blocks_working import BlockLine, Placed, Working
from nearfar.problems.lmnn_shards import Coordinates, Multipliers, Seeker
from nearfar.problems.lmnn_triplets import Triplets

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Edges = tuple[Index, Index]
Search = tuple[list[list[Task]], list[Task]]


@dataclass(frozen=True)
class LMNNBlocks(LMNNProblem):
    """The program (7) on rows in blocks, sorted by class, with what is proved of its answers.

    Of the fields of `LMNNProblem`, U and ``kept`` have no rows here: they say the type alone.
    """

    blocks: Blocks
    codes: Index  # (n,) class numbers of all rows, ascending in each block
    bases: list[Task]
    shared: Coordinates
    offsets: Index  # number of the first edge of each shard
    constant: float  # the pull of φWᵀW in (7)

    @classmethod
    def of(
        cls,
        blocks: Blocks,
        centre: Matrix,
        edges: Edges,
        codes: Index,
        push_weight: float,
        shrinkage: float = 0.0,
        *,
        floored: bool = True,
        prior: tuple[Matrix, Matrix] | None = None,
        masses: Matrix | None = None,
    ) -> LMNNBlocks:
        """As `LMNNPoints.build`, of rows in blocks and edges that are here."""
        cuts = np.searchsorted(edges[0], blocks.starts)
        bases = _bases(
            blocks,
            blocks.parts,
            [np.arange(first, last) for first, last in pairwise(blocks.starts.tolist())],
            [(edges[0][a:b], edges[1][a:b]) for a, b in pairwise(cuts)],
            codes,
        )
        found = whitened_blocks(
            blocks,
            bases,
            centre,
            edges,
            1 - float(push_weight),
            shrinkage if shrinkage else 0.0,
            prior=prior if shrinkage else None,
            masses=masses,
        )
        floor = found.floor if floored else 0.0
        k, single = len(found.prior), blocks.dtype == np.float32
        shared = Coordinates(centre, found.basis, floor, found.prior, float(push_weight), masses)
        constant = floor * (found.edge_pull + found.ridge * k)
        kept = np.empty((0, k), dtype=blocks.dtype) if floor else None
        counts = np.bincount(edges[0], minlength=blocks.shape[0])
        return cls(
            U=np.empty((0, found.basis.shape[1]), dtype=np.float32 if single else np.float64),
            edges=edges,
            first_edge=np.concatenate([[0], np.cumsum(counts)]),
            starts=np.empty(0, dtype=np.intp),
            masses=masses,
            push_weight=float(push_weight),
            ridge=found.ridge,
            floor=floor,
            prior=found.prior,
            prior_inverse=found.prior_inverse,
            kept=kept,
            basis=found.basis,
            dual_basis=found.dual_basis,
            P=found.P,
            Q=found.Q,
            exact=shards.elsewhere,
            images=shards.elsewhere,
            first=None,
            blocks=blocks,
            codes=codes,
            bases=bases,
            shared=shared,
            offsets=cuts[:-1],
            constant=constant,
        )

    @property
    def engine(self) -> Engine:
        """Where the shards are."""
        return self.blocks.engine

    @property
    def _constant(self) -> float:
        return self.constant

    def in_double(self) -> LMNNBlocks:
        """The same problem with shards in float64."""
        return replace(self, U=self.U.astype(np.float64))

    def sampled(self, rows: int) -> LMNNBlocks:
        """As `LMNNPoints.sampled`: one shard, whose rows meet those of all blocks."""
        step = max(1, self.blocks.shape[0] // rows)
        kept = np.flatnonzero(self.edges[0] % step == 0)
        if len(kept) in (0, len(self.edges[0])):
            return self
        edges = self.edges[0][kept], self.edges[1][kept]
        ids = np.unique(edges[0])
        share = len(kept) / len(self.edges[0])
        if self.masses is not None:
            share = float(self.masses[edges[0]].sum() / self.masses[self.edges[0]].sum())
        bases = _bases(self.blocks, self.blocks.fetch([ids]), [ids], [edges], self.codes)
        return replace(
            self,
            edges=edges,
            bases=bases,
            offsets=np.zeros(1, dtype=np.intp),
            P=share * self.P,
            ridge=share * self.ridge,
            constant=share * self.constant,
        )

    # -- the working set -----------------------------------------------------------------------

    def _searched(self, F: Matrix, margin: float, previous: Working | None, keep: bool) -> Search:
        """What a search under a map F finds for each shard, and the multipliers before it.

        Shards are the rows of all blocks, or of one sample: pairs of blocks meet once, and are
        searched both ways. In each round a block moves once at most, as a result of its own that is
        freed when its round is over, and the next rounds wait for it: no worker gathers the blocks
        of others.
        """
        engine, blocks = self.engine, self.blocks
        known = [Multipliers.none()] * len(self.bases) if previous is None else previous.collect()
        # As results of tasks: what a search needs is sent once, and can be sent again.
        before = engine.map(unchanged, known, name="multipliers")
        heads = engine.map(
            shards.begun,
            self.bases,
            before,
            name="impostor_search",
            shared=(self.shared, F, margin, keep),
        )
        mutual = len(heads) == len(blocks)
        if mutual:
            seekers = engine.map(shards.seeker_of, heads, name="seeker")
        else:
            classes = zip(blocks.split(self.codes), blocks.starts.tolist(), strict=False)
            seekers = [Seeker.of_none(codes, first) for codes, first in classes]
        found: list[list[Task]] = [[] for _ in heads]
        waiting: list[list[Task]] = []
        for pairs in rounds(len(blocks), both=not mutual):
            met = [(a, b) for a, b in pairs if a < len(heads)]
            if not met:
                continue
            sent = engine.map(unchanged, [blocks.parts[b] for _, b in met], name="send")
            both = engine.map(
                shards.searched,
                [heads[a] for a, _ in met],
                sent,
                [seekers[b] for _, b in met],
                name="impostor_search",
                shared=(self.shared, F),
            )
            for which in range(2 if mutual else 1):
                halves = engine.map(shards.half, both, [which] * len(both), name="impostors")
                for (a, b), task in zip(met, halves, strict=True):
                    if which == 0 or a != b:
                        found[b if which else a].append(task)
            waiting.append(both)
            if len(waiting) > IN_FLIGHT:
                engine.finish(waiting.pop(0))
        for some in found:
            engine.finish(some)
        return found, before

    def _assembled(
        self,
        searched: Search,
        L: Matrix,
        margin: float,
        width: float,
        keep: bool,
    ) -> Working:
        """The shards of what a search has found."""
        found, before = searched
        tasks = self.engine.map(
            shards.shard_of,
            self.bases,
            found,
            before,
            name="shard",
            shared=(self.shared, L, None, margin, width, keep, self.is_single),
        )
        self.engine.finish(tasks)
        return Working(self.engine, width, L, tasks)

    def survey(  # type: ignore[override]
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Working | None = None,
        *,
        keep: bool = False,
        insist: bool = False,  # noqa: ARG002 - searches are dear here
    ) -> Placed:
        """As `LMNNObjective.survey`."""
        found = self._searched(self._with_floor(L), margin, previous, keep)
        return self.place(L, self._assembled(found, L, margin, width, keep))

    def _with_floor(self, L: Matrix) -> Matrix:
        """A map on the features of M = φWᵀW + M' for a factor L of M'."""
        components = self.components(L)
        if self.kept is None:
            return components
        stacked = np.vstack([components, self.floor**0.5 * self.prior])
        return np.asarray(np.linalg.qr(stacked, mode="r"))

    def multipliers(self, triplets: Working) -> dict[str, NDArray[Any]]:  # type: ignore[override]
        """The multipliers that are not zero: enough to continue from them."""
        parts = triplets.multipliers()
        used = [np.flatnonzero(part.prox > 0) for part in parts]
        found = list(zip(self.offsets, parts, used, strict=True))
        return {
            "edge": np.concatenate(
                [first + part.edge[u].astype(np.intp) for first, part, u in found]
            ),
            "tail": np.concatenate([part.tail[u] for _, part, u in found]),
            "prox": np.concatenate([part.prox[u] for _, part, u in found]),
        }

    def with_multipliers(  # type: ignore[override]
        self, found: dict[str, NDArray[Any]], width: float
    ) -> Working:
        """Triplets that hold the given multipliers, and no others."""
        owner = np.searchsorted(self.offsets, found["edge"], side="right") - 1
        parts = []
        for shard, first in enumerate(self.offsets):
            own = np.flatnonzero(owner == shard)
            parts.append(
                Multipliers(found["edge"][own] - first, found["tail"][own], found["prox"][own])
            )
        return Working(self.engine, width, None, None, parts)

    # -- objective, gradient and line ----------------------------------------------------------

    def place(self, L: Matrix, triplets: Working) -> Placed:  # type: ignore[override]
        """L with the triplets at hand."""
        if triplets.tasks is None:  # dropped: fetch the rows of these triplets again
            found = self._searched(self._with_floor(L), -np.inf, triplets, keep=True)
            triplets = self._assembled(found, L, -np.inf, triplets.width, keep=True)
        elif triplets.L is None or not np.array_equal(triplets.L, L):
            triplets = triplets.after(shards.placed, L, L, name="place")
        return Placed(L, triplets, self._pull(L, L) + self.constant)

    def _pull(self, L: Matrix, other: Matrix, *_: Any) -> float:
        return float(np.vdot(L @ self._root, other @ self._root))

    def objective(self, at: Placed) -> tuple[float, int]:  # type: ignore[override]
        """f of (2) over the triplets at hand, and how many of them are active."""
        return at.pull + at.measured[0], int(at.measured[2])

    def complementarity(self, at: Placed) -> float:  # type: ignore[override]
        """The second term of (6) with α of (4)."""
        return float(at.measured[1])

    def gradient(self, at: Placed) -> Matrix:  # type: ignore[override]
        """(5) with α of (4)."""
        gradient: Matrix = 2 * at.L @ self._root @ self._root.T + at.measured[3]
        return gradient

    def curvature(self, at: Placed, rows: Matrix) -> Callable[[Matrix], Matrix]:  # type: ignore[override]
        """As `LMNNObjective.curvature`; each product is a round."""
        width = at.triplets.width
        return lambda Y: at.total(shards.curved, rows, width, Y, name="curvature")

    def line(self, at: Placed, direction: Matrix) -> BlockLine:  # type: ignore[override]
        """The smoothed objective along L + t · direction."""
        pull = at.pull, 2 * self._pull(at.L, direction), self._pull(direction, direction)
        return BlockLine(at, direction, pull)

    def move(self, at: Placed, line: BlockLine, t: float) -> Placed:  # type: ignore[override]
        """The placement at L + tΔ."""
        L, width = at.L + t * line.direction, at.triplets.width
        triplets = at.triplets.after(shards.moved, L, line.direction, width, t, name="move")
        return self.place(L, triplets)

    def advance_multipliers(self, at: Placed, width: float) -> Placed:  # type: ignore[override]
        """Replace a of (4) by α, and set the width."""
        advanced = at.triplets.after(shards.advanced, at.L, at.triplets.width, name="advance")
        return Placed(at.L, advanced.with_width(width), at.pull)

    def narrow(self, at: Placed, width: float) -> Placed:  # type: ignore[override]
        """Set the width of (4) and leave its multipliers."""
        return Placed(at.L, at.triplets.with_width(width), at.pull)

    # -- what is proved ------------------------------------------------------------------------

    def bound(self, at: Placed) -> tuple[Certificate, Placed]:  # type: ignore[override]
        """The gap of (6) over the triplets at hand, in working precision: a guide, no proof."""
        shared = at.triplets.width, self._ranges[0][1]
        parts = self.engine.map(shards.bounded, at.tasks, name="bound", shared=shared)
        return self._certificate_of(parts, at.pull), at

    def certify(  # type: ignore[override]
        self, L: Matrix, previous: Working | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Working]:
        """The gap of (6) from the data in float64, over all triplets; previous gives α."""
        width = CERTIFY_WIDTH if previous is None else previous.width
        found = self._searched(self._with_floor(L), width, previous, keep)
        working = self._assembled(found, L, width, width, keep)
        parts = self._proved(found, L, None, width, keep)
        return self._certificate_of(parts, self._ridge_pull(L)), working

    def certify_returned(  # type: ignore[override]
        self, L: Matrix, certificate: Certificate | None, triplets: Working
    ) -> Certificate:
        """The gap of (6) for the map that a fit returns for L, after rotation and rounding.

        It is proved anew, so that the dual point is brought here once.
        """
        del certificate
        components = self.returned(L)
        found = self._searched(components, triplets.width, triplets, False)
        parts = self._proved(found, L, components, triplets.width, False, with_dual=True)
        return self._certificate_of(parts, self._ridge_of(components), with_dual=True)

    def _proved(
        self,
        searched: Search,
        L: Matrix,
        components: Matrix | None,
        width: float,
        keep: bool,
        with_dual: bool = False,
    ) -> list[Task]:
        """What (6) needs of each shard, in float64."""
        found, before = searched
        return self.engine.map(
            shards.proved,
            self.bases,
            found,
            before,
            name="prove",
            shared=(self.shared, L, components, width, keep, self._ranges[0][1], with_dual),
        )

    def _ridge_pull(self, L: Matrix) -> float:
        """The second term of the pull in (7), of φWᵀW and of a factor L."""
        return self._ridge_of_floor + self._ridge_of(self.components(L)) if self.ridge else 0.0

    def _certificate_of(
        self, tasks: list[Task], pull: float, with_dual: bool = False
    ) -> Certificate:
        """The certificate from the parts of the shards, in their order.

        ``pull`` is what they do not know of it.
        """
        parts = self.engine.results(tasks)

        def total(key: str, place: int | None = None) -> Any:
            values = [part[key] if place is None else part[key][place] for part in parts]
            return sum(values[1:], values[0])

        basis, null = self._ranges[0]
        theta, ratios, directions = largest_scale(basis, total("S"), basis.shape[1])
        fixed, scaled = total("bound", 0), total("bound", 1)
        bound = fixed + theta * scaled
        bound = max(bound, 0.0)  # α = 0 proves that
        free, weight = total("free", 0), self.push_weight * total("free", 1)
        if null.shape[1] and weight > 0:
            free = weight**0.5 * null @ range_and_null(symmetric(null.T @ free @ null))[0]
        else:
            free = null[:, :0]
        triplets, dual = _global_triplets(parts, self.offsets, self.edges, theta, with_dual)
        pairs = np.concatenate([part["equal_pairs"] for part in parts])
        return Certificate(
            objective=total("pull") + pull + total("push"),
            bound=self.constant + bound,
            complementarity=total("complementarity"),
            n_active=total("n_active"),
            n_coinciding=len(np.unique(pairs, axis=0)),
            ratios=(ratios,),
            directions=(directions,),
            triplets=triplets,
            dual=dual if bound > 0 else 0 * dual,
            free=(free,),
        )


def _bases(
    blocks: Blocks, rows: list[Any], ids: list[Index], edges: list[Edges], codes: Index
) -> list[Task]:
    """The bases of shards: their rows, the numbers of these, their edges by row numbers."""
    ends, tails = [], []
    for own, (_, far) in zip(ids, edges, strict=True):
        outside = np.setdiff1d(far, own)
        place = np.searchsorted(own, far).clip(0, len(own) - 1)
        beyond = len(own) + np.searchsorted(outside, far)
        ends.append(outside)
        tails.append(np.where(own[place] == far, place, beyond))
    return blocks.engine.map(
        shards.based,
        rows,
        blocks.fetch(ends),
        ids,
        [codes[own] for own in ids],
        ends,
        [np.searchsorted(own, near) for own, (near, _) in zip(ids, edges, strict=True)],
        tails,
        name="shard",
    )


def _global_triplets(
    parts: list[dict[str, Any]], offsets: Index, edges: Edges, theta: float, with_dual: bool
) -> tuple[Triplets, Matrix]:
    """The triplets with α above zero, by row numbers, and the feasible α; none unless wanted."""
    none = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0), np.empty(0, bool)
    found = [none]
    if with_dual:
        found = [
            (first + edge, tail, alpha, fixed)
            for first, (edge, tail, alpha, fixed) in zip(
                offsets, (part["dual"] for part in parts), strict=True
            )
        ]
    edge, tails, alpha, fixed = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.arange(len(edge))
    triplets = Triplets(edges[0][edge], tails, order, edge, order, alpha, 1.0)
    return triplets, np.where(fixed, alpha, theta * alpha)
