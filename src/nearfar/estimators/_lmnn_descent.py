"""One fit of LMNN: the problem, where the descent starts, and its checkpoints."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._start import projection
from nearfar.kernels import Array, kernels_for
from nearfar.linalg import canonical_factor
from nearfar.problems.lmnn import LMNNProblem
from nearfar.solvers import Iterate, Observer, Record, Solution, run
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.multipliers import descend
from nearfar.supervision import ClassOrder, given_targets, nearest_targets

if TYPE_CHECKING:
    from nearfar.estimators.lmnn import LMNN

Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-12  # rows of the map shorter than this share of the longest are dropped
WARM_WIDTH = 0.02  # of the smoothed hinge, in margins, near an optimum


@dataclass(frozen=True)
class Descent:
    """The problem on points sorted by class, for the estimator that owns it."""

    owner: LMNN
    points: Array
    labels: ClassOrder
    problem: LMNNProblem

    @classmethod
    def build(
        cls, owner: LMNN, points: Array, labels: ClassOrder, centre: Array, targets: Any
    ) -> Descent:
        """Choose the target neighbours, unless they are given, and whiten the points."""
        if targets is None:
            edges = nearest_targets(points, labels, owner.n_neighbors)
        else:
            edges = given_targets(targets, labels, points)
        problem = LMNNProblem.build(points, centre, edges, labels.starts, owner.push_weight)
        return cls(owner, points, labels, problem)

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
        began: float,
    ) -> Solution:
        """Run the descent from a checkpoint, from a given start, or from a first guess."""
        owner, problem = self.owner, self.problem
        saved = None if checkpoint is None else checkpoint.load()
        history: list[Record] = []
        options: dict[str, Any] = {}
        if saved is not None:
            arrays, values = saved
            start, history = arrays.pop("components"), values["history"]
            options["triplets"] = problem.with_multipliers(arrays, values["width"])
            began -= history[-1]["seconds"]
        elif start is None:
            start = self._first_guess()
        elif owner._continues:
            options |= {"warm": True, "width": WARM_WIDTH}
        if checkpoint is not None:
            observers = [*observers, self._writer(checkpoint)]
        fixed_rank = owner._learns_rows is not None
        return run(
            descend(problem, problem.factor(start), owner.tol, fixed_rank=fixed_rank, **options),
            tol=owner.tol,
            max_iter=owner.max_iter,
            max_seconds=owner.max_seconds,
            observers=observers,
            seconds=time.perf_counter() - began,
            history=history,
        )

    def _first_guess(self) -> Matrix:
        """The map that ``init`` names."""
        rows, d = self.owner._learns_rows, self.points.shape[1]
        init = str(self.owner.init)
        if init == "auto":
            if rows is None:
                return self.problem.components(self.problem.first_guess())
            init = "lda" if rows < len(self.labels.sizes) else "pca"
        if init == "identity":
            return np.eye(rows or d, d)
        return projection(self.points, self.labels, init, rows or d)

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
