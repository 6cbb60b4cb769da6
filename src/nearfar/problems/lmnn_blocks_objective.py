"""The objective of LMNN on rows in blocks: `nearfar.problems.lmnn_objective` as sums over shards.

Its points are on the workers, in shards (`nearfar.problems.lmnn_shards`); small matrices, the
target edges and the labels are here. Each evaluation is a round: one task a shard, whose results
are added up in the order of the shards.

State that depends on history are the multipliers a of (4). They lie in the shards. A shard is the
result of a task whose inputs are blocks of rows and the multipliers at the last search, which came
through this machine (`Working.collect`), so that what is needed to compute it again never reaches
back beyond one search; between two searches, steps and new multipliers are links of that chain, and
a link is a few matrix products. Dask follows the chain by itself where a worker is lost.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Engine, Task
from nearfar.blocks.engine import unchanged
from nearfar.blocks.rows import IN_FLIGHT
from nearfar.problems import lmnn_shard_search as search
from nearfar.problems import lmnn_shard_sums as sums
from nearfar.problems.lmnn_blocks_whitening import whitened_blocks
from nearfar.problems.lmnn_blocks_working import BlockLine, Placed, Search, Shards, Working
from nearfar.problems.lmnn_objective import LMNNObjective
from nearfar.problems.lmnn_shard_rows import Coordinates, Multipliers, based, ordered
from nearfar.problems.lmnn_shards import elsewhere

SAMPLED_TAILS = 4096  # rows among which a sample of target edges has its impostors

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Edges = tuple[Index, Index]


@dataclass(frozen=True)
class LMNNBlockObjective(LMNNObjective):
    """f of (2) and (7) on rows in blocks, sorted by class in each, over the triplets at hand.

    Of the fields of `LMNNObjective`, U and ``kept`` have no rows here: they say the type alone.
    """

    blocks: Blocks
    codes: Index  # (n,) class numbers of all rows, ascending in each block
    rows: list[Task]  # those of each shard
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
    ) -> Self:
        """As `LMNNPoints.build`, of rows in blocks and edges that are here."""
        cuts = np.searchsorted(edges[0], blocks.starts)
        bases = _bases(
            blocks,
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
            exact=elsewhere,
            images=elsewhere,
            first=None,
            blocks=blocks,
            codes=codes,
            rows=blocks.parts,
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

    def in_double(self) -> Self:
        """The same problem with shards in float64."""
        return replace(self, U=self.U.astype(np.float64))

    def coarser(self) -> None:
        """None: blocks are not sampled twice."""

    def sampled(self, rows: int) -> Self:
        """As `LMNNPoints.sampled`, but of `SAMPLED_TAILS` rows that may invade, in one block.

        Impostors among all rows would gather these on one worker. The push counts as many times
        as there are rows for each of them.
        """
        n = self.blocks.shape[0]
        kept = np.flatnonzero(self.edges[0] % max(1, n // rows) == 0)
        if len(kept) in (0, len(self.edges[0])):
            return self
        heads, tails = self.edges[0][kept], self.edges[1][kept]
        share = len(kept) / len(self.edges[0])
        if self.masses is not None:
            share = float(self.masses[heads].sum() / self.masses[self.edges[0]].sum())
        ids = np.unique(np.concatenate([heads, tails, np.arange(0, n, -(-n // SAMPLED_TAILS))]))
        order = np.argsort(self.codes[ids], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(ids))  # of ids, in the order of classes
        near, far = (place[np.searchsorted(ids, ends)] for ends in (heads, tails))
        by_head = np.argsort(near, kind="stable")
        edges, codes = (near[by_head], far[by_head]), self.codes[ids[order]]
        gathered = self.engine.map(ordered, self.blocks.fetch([ids]), [order], name="rows")
        starts, shape = np.array([0, len(ids)]), (len(ids), self.blocks.shape[1])
        blocks = Blocks(self.engine, gathered, starts, shape, self.blocks.dtype)
        masses = None if self.masses is None else self.masses[ids[order]]
        push_weight = self.shared.push_weight * n / len(ids)
        return replace(
            self,
            edges=edges,
            masses=masses,
            blocks=blocks,
            codes=codes,
            rows=gathered,
            bases=_bases(blocks, [np.arange(len(ids))], [edges], codes),
            shared=replace(self.shared, push_weight=push_weight, masses=masses),
            offsets=np.zeros(1, dtype=np.intp),
            P=share * self.P,
            ridge=share * self.ridge,
            constant=share * self.constant,
        )

    # -- the working set -----------------------------------------------------------------------

    def _searched(
        self, F: Matrix, margin: float, previous: Working | None, keep: bool, single: bool
    ) -> Search:
        """What a search under a map F finds for each shard, and the multipliers before it.

        Pairs of blocks meet once, and are searched both ways, by images in float32 if ``single``.
        Images move, not rows: in each round those of a block once at most, as a result of its own
        that is freed when its task is over, and few tasks are under way at a time, so that no
        worker gathers those of others. Rows that are needed are then taken where they are. Blocks
        meet themselves last, which takes less time, so that workers end together. All are waited
        for, since Dask would make all shards on the worker that is free first. Triplets whose
        multipliers are zero stay here, unless all are kept.
        """
        engine, blocks = self.engine, self.blocks
        known = [Multipliers.none()] * len(self.bases)
        if previous is not None:
            known = previous.collect(keep=keep)
        if not keep:
            known = [part.used() for part in known]
        # As results of tasks: what a search needs is sent once, and can be sent again.
        before = engine.map(unchanged, known, name="multipliers")
        heads = engine.map(
            search.begun,
            self.rows,
            self.bases,
            before,
            name="impostor_images",
            shared=(self.shared, F, margin, single),
        )
        found: list[list[Task]] = [[] for _ in heads]
        waiting: list[list[Task]] = []
        for met in blocks.meetings(len(heads), both=False, itself_last=True):
            apart = [(a, b) for a, b in met if a != b]
            images = iter(engine.map(unchanged, [heads[b] for _, b in apart], name="send"))
            sent = [heads[b] if a == b else next(images) for a, b in met]
            own = [heads[a] for a, _ in met]
            both = engine.map(search.searched, own, sent, name="impostor_search")
            ways = [(a, b, task, 0) for (a, b), task in zip(met, both, strict=True)]
            ways += [(b, a, task, 1) for a, b, task, _ in ways if a != b]
            shards, others, tasks, which = zip(*ways, strict=True)
            rows = [self.rows[other] for other in others]
            near = engine.map(search.found_in, rows, tasks, which, name="impostors")
            for shard, task in zip(shards, near, strict=True):
                found[shard].append(task)
            waiting.append(both)
            if len(waiting) > IN_FLIGHT:
                engine.finish(waiting.pop(0))
        for some in found:
            engine.finish(some)
        return Search(found, before, heads)

    def _assembled(
        self,
        searched: Search,
        L: Matrix,
        margin: float,
        width: float,
        keep: bool,
    ) -> Working:
        """The shards of what a search has found."""
        tasks = self.engine.map(
            sums.shard_of,
            self.rows,
            self.bases,
            searched.found,
            searched.before,
            name="shard",
            shared=(self.shared, L, None, margin, width, keep, self.is_single),
        )
        return Working(self.engine, width, Shards(L, self.engine.spread(tasks)))

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
        found = self._searched(self._with_floor(L), margin, previous, keep, self.is_single)
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
        parts = [part.used() for part in triplets.multipliers()]
        edges = [first + part.edge for first, part in zip(self.offsets, parts, strict=True)]
        return {
            "edge": np.concatenate(edges),
            "tail": np.concatenate([part.tail for part in parts]),
            "prox": np.concatenate([part.prox for part in parts]),
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
        return Working(self.engine, width, Shards(None, None, parts))

    # -- objective, gradient and line ----------------------------------------------------------

    def place(self, L: Matrix, triplets: Working) -> Placed:  # type: ignore[override]
        """L with the triplets at hand."""
        if triplets.held.tasks is None:  # dropped: fetch the rows of these triplets again
            found = self._searched(self._with_floor(L), -np.inf, triplets, True, self.is_single)
            triplets = self._assembled(found, L, -np.inf, triplets.width, keep=True)
        held = triplets.held
        assert held.tasks is not None
        if held.L is None or not np.array_equal(held.L, L):
            held.tasks = self.engine.map(sums.placed, held.tasks, name="place", shared=(L,))
            held.L = L
        return Placed(L, triplets, self._pull(L, L) + self.constant, held.tasks)

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
        return lambda Y: at.total(sums.curved, rows, width, Y, name="curvature")

    def line(self, at: Placed, direction: Matrix) -> BlockLine:  # type: ignore[override]
        """The smoothed objective along L + t · direction."""
        pull = at.pull, 2 * self._pull(at.L, direction), self._pull(direction, direction)
        return BlockLine(at, direction, pull)

    def rescaling(self, at: Placed, share: float) -> BlockLine:  # type: ignore[override]
        """The smoothed objective along (1 + t · share) L."""
        return self.line(at, share * at.L)

    def move(self, at: Placed, line: BlockLine, t: float) -> Placed:  # type: ignore[override]
        """The placement at L + tΔ."""
        L, held = at.L + t * line.direction, at.triplets.held
        shared = line.direction, at.triplets.width, t
        held.L, held.tasks, held.certified = L, at.after(sums.moved, *shared, name="move"), None
        return self.place(L, at.triplets)

    def advance_multipliers(self, at: Placed, width: float) -> Placed:  # type: ignore[override]
        """Replace a of (4) by α, and set the width."""
        tasks = at.after(sums.advanced, at.triplets.width, name="advance")
        return Placed(at.L, at.triplets.advanced(at.L, tasks, width), at.pull, tasks)

    def narrow(self, at: Placed, width: float) -> Placed:  # type: ignore[override]
        """Set the width of (4) and leave its multipliers."""
        return Placed(at.L, at.triplets.with_width(width), at.pull, at.tasks)


def _bases(blocks: Blocks, ids: list[Index], edges: list[Edges], codes: Index) -> list[Task]:
    """The bases of shards, from the numbers of their rows, and their edges by row numbers."""
    ends, tails = [], []
    for own, (_, far) in zip(ids, edges, strict=True):
        outside = np.setdiff1d(far, own)
        place = np.searchsorted(own, far).clip(0, len(own) - 1)
        beyond = len(own) + np.searchsorted(outside, far)
        ends.append(outside)
        tails.append(np.where(own[place] == far, place, beyond))
    return blocks.engine.map(
        based,
        blocks.fetch(ends),
        ids,
        [codes[own] for own in ids],
        ends,
        [np.searchsorted(own, near) for own, (near, _) in zip(ids, edges, strict=True)],
        tails,
        name="shard",
    )
