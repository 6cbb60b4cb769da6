"""The working set of LMNN on rows in blocks: triplets in shards, a placement, and a line.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Engine, Task
from nearfar.problems import lmnn_shard_sums as sums
from nearfar.problems.lmnn_shard_rows import Multipliers
from nearfar.problems.lmnn_shard_search import longest_edge
from nearfar.problems.lmnn_triplets import STEP_LIMIT

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Search:
    """What a search for impostors has found, for each shard."""

    found: list[list[Task]]  # `nearfar.problems.lmnn_shard_search.Found`, of each block
    before: list[Task]  # the multipliers before it
    heads: list[Task]  # `nearfar.problems.lmnn_shard_search.Head`

    def longest_edge(self, engine: Engine) -> float:
        """The squared length of the longest target edge."""
        tasks = engine.map(longest_edge, self.heads, name="longest_edge")
        return float(max(engine.results(tasks)))

    def without_heads(self) -> Search:
        """The same, so that workers do not keep the heads."""
        return replace(self, heads=[])


@dataclass(frozen=True)
class Certified:
    """A search in whose triplets a factor was certified, so that its map can be without another."""

    L: Matrix
    longest: float  # squared length of target edges
    found: Search


@dataclass
class Shards:
    """Triplets with the same multipliers: in shards that are placed at L, or here.

    Only those of the last placement are kept. A shard at another factor is made from them.
    """

    L: Matrix | None
    tasks: list[Task] | None
    here: list[Multipliers] | None = None  # None until needed,
    is_whole: bool = True  # and then whether also those that are zero
    certified: Certified | None = None  # until shards move, or are dropped


class Working:
    """The triplets at hand, with their multipliers and the width of (4).

    Those that were found by one search are relatives. A new search drops the shards of all of
    them: the best iterate so far, which has triplets, too, would keep its own on the workers.
    """

    def __init__(self, engine: Engine, width: float, held: Shards) -> None:
        self.engine, self.width, self.held = engine, width, held
        self._count: int | None = None
        self._relatives: WeakSet[Working] = WeakSet([self])

    def __len__(self) -> int:
        if self._count is None:
            here, tasks = self.held.here, self.held.tasks
            if tasks is None:
                self._count = sum(len(part.edge) for part in here or [])
            else:
                counts = self.engine.map(sums.counted, tasks, name="count")
                self._count = int(self.engine.total(counts))
        return self._count

    def collect(self, *, keep: bool) -> list[Multipliers]:
        """Bring the multipliers here, and drop the shards of all relatives.

        Of triplets whose multipliers are zero only if ``keep``: these are most, and any search
        finds them again where they count.
        """
        found = self.multipliers(keep=keep)
        for one in list(self._relatives):
            one.multipliers()
            if one.held.tasks is not None:
                one.held.tasks.clear()  # also for who holds a placement, and needs its factor only
                one.held.tasks = None
            one.held.certified = None
        return found

    def multipliers(self, *, keep: bool = False) -> list[Multipliers]:
        """The multipliers that are not zero, without dropping the shards.

        With ``keep`` all multipliers, if the shards were not dropped before.
        """
        held = self.held
        if held.tasks is not None and (held.here is None or (keep and not held.is_whole)):
            tasks = self.engine.map(sums.collected, held.tasks, name="multipliers", shared=(keep,))
            held.here, held.is_whole = self.engine.results(tasks), keep
        assert held.here is not None
        return held.here

    def with_width(self, width: float) -> Working:
        """The same triplets with another width of (4)."""
        return self._relative(width, self.held)

    def advanced(self, L: Matrix, tasks: list[Task], width: float) -> Working:
        """The triplets with other multipliers, in shards that are placed at L."""
        return self._relative(width, Shards(L, tasks))

    def _relative(self, width: float, held: Shards) -> Working:
        found = Working(self.engine, width, held)
        found._relatives = self._relatives
        self._relatives.add(found)
        return found


@dataclass(frozen=True)
class Placed:
    """A factor and the triplets at hand; sums over them are taken once, when they are needed."""

    L: Matrix
    triplets: Working
    pull: float  # ⟨P, M⟩ with the constant of (7)
    tasks: list[Task]  # the shards at L

    def after(self, function: Callable[..., Any], *shared: Any, name: str) -> list[Task]:
        """Shards ``function(shard, *shared)``."""
        return self.triplets.engine.map(function, self.tasks, name=name, shared=shared)

    @cached_property
    def measured(self) -> tuple[Any, ...]:
        """Sums of `nearfar.problems.lmnn_shard_sums.measured`."""
        found: tuple[Any, ...] = self.total(sums.measured, self.triplets.width, name="gradient")
        return found

    def total(self, function: Callable[..., Any], *shared: Any, name: str) -> Any:
        """The sum of ``function(shard, *shared)`` over the shards."""
        engine = self.triplets.engine
        return engine.total(engine.map(function, self.tasks, name=name, shared=shared))


@dataclass(frozen=True)
class BlockLine:
    """The smoothed objective along L + tΔ."""

    placed: Placed
    direction: Matrix
    pull: tuple[float, float, float]
    known: dict[float, Matrix] = field(default_factory=dict)
    limit: ClassVar[float] = STEP_LIMIT

    def at(self, t: float) -> tuple[float, float, float]:
        """Value, slope and curvature at t: a round, but for t = 0 and 1 together."""
        if t not in self.known:
            steps = (t,) if self.known else (*{0.0: 0, 1.0: 0, t: 0},)
            found = self.placed.total(
                sums.along, self.direction, self.placed.triplets.width, steps, name="line_search"
            )
            self.known.update(zip(steps, found, strict=True))
        p0, p1, p2 = self.pull
        value, slope, curvature = map(float, self.known[t])
        return p0 + t * (p1 + t * p2) + value, p1 + 2 * t * p2 + slope, 2 * p2 + curvature
