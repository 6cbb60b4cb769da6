"""The working set of LMNN on rows in blocks: triplets in shards, a placement, and a line.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Engine, Task
from nearfar.problems import lmnn_shards as shards
from nearfar.problems.lmnn_shards import Multipliers
from nearfar.problems.lmnn_triplets import STEP_LIMIT

Matrix = NDArray[np.float64]


class Working:
    """The triplets at hand: shards on the workers, placed at L, or their multipliers here."""

    def __init__(
        self,
        engine: Engine,
        width: float,
        L: Matrix | None,
        tasks: list[Task] | None,
        here: list[Multipliers] | None = None,
    ) -> None:
        self.engine, self.width, self.L = engine, width, L
        self._tasks: list[Task] | None = tasks
        self._here = here
        self._count: int | None = None

    def __len__(self) -> int:
        if self._count is None:
            if self._here is not None:
                self._count = sum(len(part.edge) for part in self._here)
            else:
                counts = self.engine.map(shards.counted, self._tasks or [], name="count")
                self._count = int(self.engine.total(counts))
        return self._count

    @property
    def tasks(self) -> list[Task] | None:
        """The shards; None once they are dropped."""
        return self._tasks

    def collect(self) -> list[Multipliers]:
        """Bring all triplets with their multipliers here, and drop the shards."""
        if self._here is None:
            assert self._tasks is not None
            tasks = self.engine.map(shards.collected, self._tasks, name="multipliers")
            self._here = self.engine.results(tasks)
        self._tasks = None
        return self._here

    def multipliers(self) -> list[Multipliers]:
        """The same, without dropping the shards."""
        tasks = self._tasks
        found = self.collect()
        self._tasks = tasks
        if tasks is not None:
            self._here = None
        return found

    def with_width(self, width: float) -> Working:
        """The same triplets with another width of (4)."""
        return Working(self.engine, width, self.L, self._tasks, self._here)

    def after(self, function: Callable[..., Any], L: Matrix, *shared: Any, name: str) -> Working:
        """The triplets with ``function(shard, *shared)`` for each shard, placed at L."""
        assert self._tasks is not None
        tasks = self.engine.map(function, self._tasks, name=name, shared=shared)
        return Working(self.engine, self.width, L, tasks)


@dataclass(frozen=True)
class Placed:
    """A factor and the triplets at hand; sums over them are taken once, when they are needed."""

    L: Matrix
    triplets: Working
    pull: float  # ⟨P, M⟩ with the constant of (7)

    @property
    def tasks(self) -> list[Task]:
        """The shards."""
        assert self.triplets.tasks is not None
        return self.triplets.tasks

    @cached_property
    def measured(self) -> tuple[Any, ...]:
        """Sums of `nearfar.problems.lmnn_shards.measured`."""
        sums: tuple[Any, ...] = self.total(shards.measured, self.triplets.width, name="gradient")
        return sums

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
                shards.along, self.direction, self.placed.triplets.width, steps, name="line_search"
            )
            self.known.update(zip(steps, found, strict=True))
        p0, p1, p2 = self.pull
        value, slope, curvature = map(float, self.known[t])
        return p0 + t * (p1 + t * p2) + value, p1 + 2 * t * p2 + slope, 2 * p2 + curvature
