"""LMNN on all rows or on a part of them: coarser levels give finer ones a first guess."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._start import projection
from nearfar.kernels import Array, kernels_for
from nearfar.linalg import canonical_factor
from nearfar.problems.lmnn import LMNNProblem, Triplets
from nearfar.solvers import Iterate, Observer, Record, Solution, Status, run
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.multipliers import FIRST_WIDTH, descend
from nearfar.supervision import ClassOrder, class_order, given_targets, nearest_targets

if TYPE_CHECKING:
    from nearfar.estimators.lmnn import LMNN

Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-12  # rows of the map shorter than this share of the longest are dropped
WARM_WIDTH = 0.02  # of the smoothed hinge, in margins, near an optimum
COARSE_FACTOR, COARSE_ROWS, COARSE_TOL = 8, 1000, 0.2  # a first guess from every eighth row


@dataclass(frozen=True)
class Level:
    """The problem on some of the rows, sorted by class; coarser levels give a first guess."""

    owner: LMNN
    points: Array
    labels: ClassOrder
    centre: Array
    targets: Any
    problem: LMNNProblem

    @classmethod
    def build(
        cls, owner: LMNN, points: Array, labels: ClassOrder, centre: Array, targets: Any
    ) -> Level:
        if targets is None:
            edges = nearest_targets(points, labels, owner.n_neighbors)
        else:
            edges = given_targets(targets, labels, points)
        problem = LMNNProblem.build(points, centre, edges, labels.starts, owner.push_weight)
        return cls(owner, points, labels, centre, targets, problem)

    def attributes(self, iterate: Iterate) -> dict[str, Any]:
        """The fitted attributes that ``transform`` needs."""
        components = canonical_factor(self.problem.components(iterate.point))
        lengths = np.linalg.norm(components, axis=1)
        rank = max(1, int((lengths > RANK_TOLERANCE * lengths.max(initial=0.0)).sum()))
        wanted = self.owner.n_components or rank
        rows = np.zeros((wanted, components.shape[1]))
        rows[: min(rank, wanted)] = components[: min(rank, wanted)]
        return {"components_": kernels_for(self.points).like(rows, self.points)}

    def solve(
        self,
        start: Matrix | None,
        checkpoint: Checkpoint | None,
        observers: list[Observer],
        random: np.random.RandomState,
        began: float,
    ) -> Solution:
        """Run the descent from a checkpoint, from a given start, or from a first guess."""
        saved = None if checkpoint is None else checkpoint.load()
        if checkpoint is not None:
            observers = [*observers, self._writer(checkpoint)]
        if saved is not None:
            arrays, values = saved
            start, history = arrays.pop("components"), values["history"]
            triplets = self.problem.with_multipliers(arrays, values["width"])
            began -= history[-1]["seconds"]
            return self._run(start, self.owner.tol, began, observers, history, triplets=triplets)
        if self.owner._continues and start is not None:
            return self._run(start, self.owner.tol, began, observers, warm=True, width=WARM_WIDTH)
        warm = False
        if start is None:
            start, guess = self._first_guess(random, began)
            warm = guess is not None
            if guess is not None and guess.status in (Status.INTERRUPTED, Status.MAX_SECONDS):
                return replace(guess, iterate=Iterate(self.problem.factor(start), np.nan))
        return self._run(start, self.owner.tol, began, observers, warm=warm)

    def _run(
        self,
        start: Matrix,
        tol: float,
        began: float,
        observers: Sequence[Observer] = (),
        history: Sequence[Record] = (),
        *,
        warm: bool = False,
        width: float = FIRST_WIDTH,
        triplets: Triplets | None = None,
    ) -> Solution:
        iterates = descend(
            self.problem,
            self.problem.factor(start),
            tol,
            warm=warm,
            width=width,
            triplets=triplets,
            fixed_rank=self.owner._learns_rows is not None,
        )
        return run(
            iterates,
            tol=tol,
            max_iter=self.owner.max_iter,
            max_seconds=self.owner.max_seconds,
            observers=observers,
            seconds=time.perf_counter() - began,
            history=history,
        )

    def _first_guess(
        self, random: np.random.RandomState, began: float
    ) -> tuple[Matrix, Solution | None]:
        """A map to start from, and the solution on fewer rows if it comes from one."""
        owner, rows = self.owner, self.owner._learns_rows
        n, d = self.points.shape
        if owner.init == "identity":
            return np.eye(rows or d, d), None
        if owner.init != "auto":
            return projection(self.points, self.labels, str(owner.init), rows or d), None
        if rows is not None:
            kind = "lda" if rows < len(self.labels.sizes) else "pca"
            return projection(self.points, self.labels, kind, rows), None
        if n <= 2 * max(COARSE_ROWS, 5 * d) or self.targets is not None:
            return self.problem.components(self.problem.first_guess()), None
        coarse = self._coarser(random)
        start, guess = coarse._first_guess(random, began)
        solution = coarse._run(start, COARSE_TOL, began, warm=guess is not None)
        return coarse.problem.components(solution.iterate.point), solution

    def _coarser(self, random: np.random.RandomState) -> Level:
        """The level of every eighth row."""
        kept = [
            np.sort(first + random.permutation(size)[: self._coarse_size(size)])
            for first, size in zip(self.labels.starts, self.labels.sizes, strict=False)
        ]
        labels = class_order(np.repeat(np.arange(len(kept)), list(map(len, kept))), "LMNN")
        rows = kernels_for(self.points).index(np.concatenate(kept), self.points)
        return Level.build(self.owner, self.points[rows], labels, self.centre, None)

    def _coarse_size(self, size: int) -> int:
        return max(size // COARSE_FACTOR, self.owner.n_neighbors + 1)

    def write(self, checkpoint: Checkpoint, iterate: Iterate, trace: list[Record]) -> None:
        """Save what a later fit needs to continue from here."""
        if iterate.state is not None:
            arrays = self.problem.multipliers(iterate.state)
            arrays["components"] = self.problem.components(iterate.point)
            checkpoint.save(arrays, {"history": trace, "width": iterate.state.width})

    def _writer(self, checkpoint: Checkpoint) -> Observer:
        def observe(iterate: Iterate, trace: list[Record]) -> None:
            if checkpoint.due:
                self.write(checkpoint, iterate, trace)

        return observe
