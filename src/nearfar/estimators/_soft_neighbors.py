"""What MCML and NCA share: where they start, and a descent that can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import validated_labels
from nearfar.estimators._iterative import IterativeLearner
from nearfar.estimators._large_margin import warn_of_coinciding
from nearfar.estimators._start import given_map, host, projection
from nearfar.files import fingerprint
from nearfar.kernels import Array, kernels_for
from nearfar.limits import fit_clock
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.soft_neighbors import SoftNeighborsProblem
from nearfar.solvers import Iterate, Record, Solution, Status
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.quasi_newton import Memory
from nearfar.supervision import ClassOrder
from nearfar.supervision.labels import check_class_pairs
from nearfar.supervision.pairs import n_coinciding
from nearfar.validation import check_choice

Matrix = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

INITS = ("auto", "identity", "pca", "lda")
LEAST_DISTANCE = 1e-12  # squared; below it, rounding hides what a descent could gain
REMAINS = 10  # a step of a descent gains about a tenth of what remains to be gained


class SoftNeighborsLearner(IterativeLearner):
    """A map that is learned from the soft neighbours of labelled points."""

    init: str | ArrayLike
    warm_start: bool
    checkpoint: Any
    n_features_in_: int

    # -- before ------------------------------------------------------------------------------

    def _validated_with_labels(self, X: Any, y: Any) -> tuple[Array, ClassOrder]:
        X = self._validated(X, reset=True)  # type: ignore[attr-defined]  # of the other base
        labels = validated_labels(self, X, y)
        check_class_pairs(labels, type(self).__name__)
        if bool((X[:1] != X).any()):  # else it is told later that all points are equal
            warn_of_coinciding(n_coinciding(X, labels.codes))
        return X, labels

    def _check_start(self) -> None:
        if isinstance(self.init, str) or self.init is None:
            check_choice("init", self.init, INITS, or_else=" or an array")

    def _given_start(self, rows: int | None) -> Matrix | None:
        """The map that the user gave, of so many rows if that is fixed, or that of the last fit."""
        if self.warm_start and hasattr(self, "components_"):
            given, source, remedy = self.components_, "the last fit", "Set warm_start=False."
        elif not isinstance(self.init, str):
            given, source, remedy = self.init, "init", "Correct it, or leave it out."
        else:
            return None
        return given_map(given, rows, self.n_features_in_, source, remedy)

    def _start_from(self, problem: SoftNeighborsProblem, given: Matrix) -> Matrix:
        """The factor of a map, unless that brings all points together, as no descent could undo."""
        L = problem.factor(given)
        distance = problem.mean_distance(L)
        if distance < LEAST_DISTANCE:
            raise InvalidInputError(
                f"the map to start from leaves points at a squared distance of {distance:.0e} on"
                " average, and they cannot be told apart. Scale it up, or use another init."
            )
        return L

    def _named_start(
        self, problem: SoftNeighborsProblem, points: Array, labels: ClassOrder, rows: int | None
    ) -> Matrix:
        """The factor that ``init`` names, as long as the closed form is."""
        guess = problem.first_guess(rows)
        if self.init == "auto":
            return guess
        d = points.shape[1]
        if self.init == "identity":
            components = np.eye(rows or d, d)
        else:
            components = projection(points, labels, str(self.init), rows or d)
        L = problem.factor(components)
        length = float(np.vdot(L @ problem.P, L))
        return L * (float(np.vdot(guess @ problem.P, guess)) / length) ** 0.5 if length > 0 else L

    # -- the descent -------------------------------------------------------------------------

    def _descended(
        self,
        problem: SoftNeighborsProblem,
        points: Array,
        start: Matrix,
        iterates: Callable[[Matrix, Memory | None], Iterator[Iterate]],
        X: Array,
        y: Any,
        place: Callable[[Matrix], dict[str, Any]],
        settings: list[Any],
    ) -> Solution:
        """Run from a factor, or from where the checkpoint's run was; ``place`` gives attributes.

        A checkpoint belongs to the points, sorted by class, and to the settings.
        """
        checkpoint, history, observers, memory = None, [], [], None
        if self.checkpoint is not None:
            parts = [host(points), problem.starts, type(self).__name__, *settings]
            checkpoint = Checkpoint(self.checkpoint, fingerprint(*parts))
            saved = checkpoint.load()
            if saved is not None:
                start, memory = _unpacked(problem, saved[0])
                history = saved[1]["history"]
                fit_clock().continue_from(history[-1]["seconds"])

            def write(iterate: Iterate, trace: list[Record]) -> None:
                checkpoint.save(_packed(problem, iterate), {"history": trace})

            def save(iterate: Iterate, trace: list[Record]) -> None:
                if checkpoint.due:
                    write(iterate, trace)

            observers.append(save)
        solution = self._run(
            iterates(start, memory),
            X,
            y,
            lambda iterate: place(problem.returned(iterate.point)),
            observers=observers,
            history=history,
            start=Iterate(start, np.inf),
        )
        if checkpoint is not None:
            if solution.status is Status.CONVERGED:
                checkpoint.remove()
            elif solution.history:
                write(solution.iterate, solution.history)
        # without the memory of the descent, which takes as much as many points
        return replace(solution, iterate=replace(solution.iterate, state=None))


def _packed(problem: SoftNeighborsProblem, iterate: Iterate) -> Arrays:
    """An iterate as arrays: enough to continue from it."""
    arrays = {"components": problem.components(iterate.point)}
    if isinstance(iterate.state, Memory):
        memory, basis = iterate.state, problem.basis
        arrays |= {"basis": basis, "factor": iterate.point, "gain": np.array(memory.gain)}
        arrays |= {"steps": memory.steps, "changes": memory.changes}
    return arrays


def _unpacked(problem: SoftNeighborsProblem, arrays: Arrays) -> tuple[Matrix, Memory | None]:
    """Where to continue from an iterate that was packed.

    On another machine the coordinates of the problem may differ by rounding and more. Then the map
    on the features is what remains, and a descent follows another path from there.
    """
    if "basis" not in arrays or not np.array_equal(arrays["basis"], problem.basis):
        return problem.factor(arrays["components"]), None
    memory = Memory(arrays["steps"], arrays["changes"], float(arrays["gain"]))
    return arrays["factor"], memory


def placed(components: Matrix, rows: int | None, points: Array) -> Array:
    """A map with the rows that were asked for, where the points live."""
    return kernels_for(points).like(pad_or_trim_rows(components, rows), points)


def identity_without_variation(d: int, rows: int | None) -> Matrix:
    """The map where all points are equal."""
    warn(
        "all points are equal, so that every metric is as good as any other. Check X.", DataWarning
    )
    return np.eye(rows or d, d)


def expected_gain(gain: float, value: float, least: float) -> float:
    """What a descent may still gain, relative to the objective, from its next step's gain.

    No value is below ``least``.
    """
    return min(REMAINS * gain, abs(value - least)) / max(abs(value), 1.0)
