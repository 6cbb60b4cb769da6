"""One descent of the LMNN family: its problem, where it starts, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._iterative import settled
from nearfar.estimators._start import projection
from nearfar.estimators._validation import HeldOutError
from nearfar.kernels import Array
from nearfar.limits import fit_clock
from nearfar.problems.lmnn import Certificate, LMNNProblem
from nearfar.solvers import Iterate, Observer, Record, Solution, Status, run
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.multipliers import (
    SEARCH_MARGIN,
    WIDTH,
    at_best_scale,
    descend_in_both_precisions,
)
from nearfar.supervision import ClassOrder

if TYPE_CHECKING:
    from nearfar.estimators._large_margin import LargeMarginLearner

Matrix = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

ROUNDING_SHARE = 1e-3  # of the tolerance, that is left for rounding the map to float32


@dataclass(frozen=True)
class Start:
    """A map to start from, and what `descend` should know of it."""

    components: Matrix
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def near(cls, components: Matrix, width: float, margin: float = SEARCH_MARGIN) -> Start:
        """A map near the optimum, not to be left for that of a hinge smoother than this width.

        Triplets up to ``margin`` outside of their margin are at hand at first.
        """
        return cls(components, {"warm": True, "width": width, "margin": margin})


@dataclass(frozen=True)
class Descent:
    """The problem on points sorted by class, for the estimator that owns it."""

    owner: LargeMarginLearner
    points: Array
    labels: ClassOrder
    problem: LMNNProblem
    rows: int | None = None  # of a map learned with a fixed rank; None for all metrics

    @classmethod
    def build(
        cls,
        owner: LargeMarginLearner,
        points: Array,
        labels: ClassOrder,
        centre: Array,
        edges: tuple[Array, Array],
        rows: int | None = None,
    ) -> Descent:
        """Whiten the points by their target edges."""
        problem = LMNNProblem.build(points, centre, edges, labels.starts, owner.push_weight)
        return cls(owner, points, labels, problem, rows)

    def components(self, iterate: Iterate) -> Matrix:
        """The map on the features that a fit returns for an iterate."""
        return self.problem.returned(iterate.point)

    def proof(self, iterate: Iterate) -> Certificate | None:
        """What is proved of the map that is returned, over all triplets, in float64.

        None if there is no time for that.
        """
        point, known, triplets = iterate.point, iterate.certificate, iterate.state
        return fit_clock().in_time(lambda: self.problem.certify_returned(point, known, triplets))

    def settled(self, status: Status, certificate: Certificate | None) -> Status:
        """Converged if, and only if, the certified gap of a full metric meets tol."""
        if self.rows is not None or certificate is None:
            return status
        return settled(status, certificate.gap, self.owner.tol)

    @property
    def _tol(self) -> float:
        """The tolerance, less what the rounding of the map to float32 may cost."""
        single = str(self.points.dtype).endswith("float32")
        return self.owner.tol * (1 - ROUNDING_SHARE) if single else self.owner.tol

    def first_guess(self, init: str = "auto") -> Start:
        """The map that a word names, at an unknown scale."""
        rows, d = self.rows, self.points.shape[1]
        if init == "auto":
            if rows is None:
                return Start(self.problem.components(self.problem.first_guess()))
            init = "lda" if rows < len(self.labels.sizes) else "pca"
        if init == "identity":
            return Start(np.eye(rows or d, d))
        return Start(projection(self.points, self.labels, init, rows or d))

    def better_guess(self, error: Callable[[Matrix], float]) -> Start:
        """Of the closed form and the inputs as they are, the one with the smaller held-out error.

        The closed form does not depend on units, but it fits the training rows where they are few.
        """
        guesses = (self.first_guess("auto"), self.first_guess("identity"))
        return min(guesses, key=lambda start: error(start.components))

    def solve(self, start: Start, observers: list[Observer], history: list[Record]) -> Solution:
        """Run from the start until the owner's tolerance, limits or observers end it."""
        owner, problem = self.owner, self.problem
        L, fixed_rank = problem.factor(start.components), self.rows is not None
        solution = run(
            descend_in_both_precisions(
                problem, L, self._tol, fixed_rank=fixed_rank, **start.options
            ),
            tol=self._tol,
            max_iter=owner.max_iter,
            observers=observers,
            history=history,
            start=Iterate(L, np.inf),
        )
        challenger = solution.challenger
        if challenger is None or solution.status is Status.EARLY_STOPPED:  # which has its own best
            return solution
        found = fit_clock().in_time(lambda: problem.certify(challenger.point, challenger.state))
        if found is None or found[0].objective >= solution.iterate.value:
            return solution
        proof, triplets = found
        proved = replace(challenger, value=proof.objective, exact=True)
        return replace(solution, iterate=replace(proved, state=triplets, certificate=proof))

    def in_geometry_of(self, start: Start) -> Descent:
        """The same descent along a path that suits a stop before its end."""
        L = self.problem.factor(start.components)
        return replace(self, problem=self.problem.in_geometry_of(L))

    def before(self, start: Start) -> Iterate:
        """The start as an iterate, at its best scale and without multipliers."""
        none = np.empty(0, dtype=np.intp)
        empty = {"edge": none, "tail": none, "prox": np.empty(0)}
        problem, width = self.problem, start.options.get("width", WIDTH)
        warm = start.options.get("warm", False)
        L = at_best_scale(problem, problem.factor(start.components), warm=warm, width=width)
        return Iterate(L, np.inf, state=problem.with_multipliers(empty, width))

    def packed(self, iterate: Iterate) -> tuple[Arrays, float]:
        """An iterate as arrays, its width apart: enough to continue from it."""
        multipliers = self.problem.multipliers(iterate.state)
        components = self.problem.components(iterate.point)
        return {"components": components, **multipliers}, float(iterate.state.width)

    def unpacked(self, arrays: Arrays, width: float) -> Start:
        """Where to continue from an iterate that was `packed`."""
        triplets = self.problem.with_multipliers(arrays, width)
        return Start(arrays["components"], {"triplets": triplets})


class Saver:
    """Writes a descent, the best of its validation and a context to a checkpoint; an observer."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        descent: Descent,
        validation: HeldOutError | None = None,
        context: tuple[Arrays, dict[str, Any]] = ({}, {}),
    ) -> None:
        self._checkpoint, self._descent = checkpoint, descent
        self._validation, self._context = validation, context

    def __call__(self, iterate: Iterate, trace: list[Record]) -> None:
        """Write if the last time is long enough ago."""
        if self._checkpoint.due:
            self.write(iterate, trace)

    def write(self, iterate: Iterate, trace: list[Record]) -> None:
        """Replace the file by what a later fit needs to continue from here."""
        if iterate.state is None:
            return
        arrays, width = self._descent.packed(iterate)
        values = {"history": trace, "width": width, **self._context[1]}
        arrays |= self._context[0]
        validation = self._validation
        if validation is not None and validation.best is not None:
            best, width = self._descent.packed(validation.best)
            arrays |= {f"best_{name}": array for name, array in best.items()}
            values["best"] = [width, validation.error, validation.resting]
        self._checkpoint.save(arrays, values)


def resumed(
    descent: Descent, saved: tuple[Arrays, dict[str, Any]], validation: HeldOutError | None
) -> Start:
    """Where to continue from what a `Saver` wrote; the validation continues, too."""
    arrays, values = saved
    if validation is not None and "best" in values:
        width, validation.error, validation.resting = values["best"]
        names = ("components", "edge", "tail", "prox")
        best = descent.unpacked({name: arrays[f"best_{name}"] for name in names}, width)
        point = descent.problem.factor(best.components)
        validation.best = Iterate(point, np.nan, state=best.options["triplets"])
    return descent.unpacked(arrays, values["width"])


def marked(**values: Any) -> Observer:
    """An observer that writes values into each record."""

    def mark(_: Iterate, trace: list[Record]) -> None:
        trace[-1].update(values)

    return mark
