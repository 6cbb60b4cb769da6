"""Passes of LMNN: each chooses the target neighbours anew, under the map of the one before."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import TimeLimitError
from nearfar.estimators._lmnn_descent import Arrays, Descent, Saver, Start, marked, resumed
from nearfar.estimators._proofs import Proof, margin_proof
from nearfar.estimators._start import central_point
from nearfar.estimators._validation import HeldOutError, votes_under
from nearfar.kernels import Array, kernels_for
from nearfar.limits import Stage, fit_clock
from nearfar.solvers import Observer, Record, Solution, Status
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.supervision import ClassOrder, given_targets, nearest_targets

if TYPE_CHECKING:
    from nearfar.estimators.lmnn import LMNN

Matrix = NDArray[np.float64]

PASS_WIDTH = 0.1  # of the smoothed hinge at the start of a later pass, some of its targets new
COMPLETE = (Status.CONVERGED, Status.EARLY_STOPPED, Status.STALLED)
MATRICES = ("components", "target_components")  # of a pass, in a checkpoint
PROOF = "before_proof_"  # begins the names of the arrays of its proof there


@dataclass(frozen=True)
class Pass:
    """What a pass leaves behind."""

    components: Matrix  # (rows, features), longest first
    target_components: Matrix | None  # the map that chose the targets; None for the inputs
    number: int
    status: Status
    objective: float | None  # None if there was no time to compute it
    duality_gap: float | None
    n_coinciding: int
    error: float  # on the held-out rows; infinite if there are none
    proof: Proof


@dataclass(frozen=True)
class Ending:
    """How the passes ended: the one that is kept, and why there is no other."""

    kept: Pass
    status: Status
    before: str | None  # what was not reached, in words, if it is not just the tolerance
    history: list[Record]


class Passes:
    """The passes of one fit; ``descent`` is that of the pass at hand.

    Under validation the pass before is the best so far, since the first that is not better is the
    last. So a checkpoint needs to hold no other.
    """

    def __init__(
        self,
        owner: LMNN,
        points: Array,
        labels: ClassOrder,
        targets: Any,
        held_out: tuple[Array, NDArray[np.intp]] | None,
        checkpoint: Checkpoint | None,
        order: NDArray[np.intp],
    ) -> None:
        self._order = order
        self._owner, self._points, self._labels, self._targets = owner, points, labels, targets
        self._held_out, self._checkpoint = held_out, checkpoint
        self._centre = central_point(points)
        self._saved = None if checkpoint is None else checkpoint.load()
        self._before = None if self._saved is None else _unpacked(*self._saved)
        self.descent = self._built()

    def run(self, start: Start | None, observers: list[Observer]) -> Ending:
        """Make the passes; the first begins at the start, or where the owner's ``init`` says.

        An interruption keeps the pass at hand, or the one before while there is no iterate, and so
        does the end of the time.
        """
        history: list[Record] = []
        if self._saved is not None:
            history = self._saved[1]["history"]
            fit_clock().continue_from(history[-1]["seconds"])
        while True:
            try:
                done, solution = self._made(start, observers, history)
                ending = self._ending(done, solution)
                if ending is not None:
                    return ending
                self._before, history = done, solution.history
                fit_clock().stage = Stage.RUN
                self.descent = self._built()
            except (KeyboardInterrupt, TimeLimitError) as reason:
                if self._before is None:
                    raise
                if isinstance(reason, KeyboardInterrupt):
                    return Ending(self._before, Status.INTERRUPTED, None, history)
                number = self._before.number + 1
                unreached = f"before pass {number} of {self._owner.n_passes}"
                return Ending(self._before, Status.MAX_SECONDS, unreached, history)

    @property
    def _number(self) -> int:
        """The number of the pass at hand."""
        return 1 if self._before is None else self._before.number + 1

    def _built(self) -> Descent:
        """The descent of the pass at hand."""
        points, labels, owner = self._points, self._labels, self._owner
        if self._before is not None:
            kernels = kernels_for(points)
            mapped = kernels.apply(kernels.double(points) - self._centre, self._before.components)
            edges = nearest_targets(mapped, labels, owner.n_neighbors)
        elif self._targets is None:
            edges = nearest_targets(points, labels, owner.n_neighbors)
        else:
            edges = given_targets(self._targets, labels, points)
        return Descent.build(owner, points, labels, self._centre, edges, owner._learns_rows)

    def _made(
        self, start: Start | None, observers: list[Observer], history: list[Record]
    ) -> tuple[Pass, Solution]:
        """Make the pass at hand: from a checkpoint, from the start, or from a first guess."""
        number, validation = self._number, None
        if self._before is not None:
            start = Start.near(self._before.components, PASS_WIDTH)
        elif start is None:
            start = self._first_guess(str(self._owner.init))
        if self._held_out is not None:
            self.descent = self.descent.in_geometry_of(start)
            done = sum(record["pass"] < number for record in history)
            validation = self._validation(*self._held_out, done)
            validation.begin(self.descent.before(start))
        descent = self.descent
        if self._saved is not None:
            start, self._saved = resumed(descent, self._saved, validation), None

        observers = [marked(**{"pass": number}), *observers]
        if validation is not None:
            observers.append(validation)
        if self._checkpoint is None:
            solution = descent.solve(start, observers, history)
        else:
            saver = Saver(self._checkpoint, descent, validation, _packed(self._before))
            solution = descent.solve(start, [*observers, saver], history)
            saver.write(solution.iterate, solution.history)
        return self._left_behind(solution, validation), solution

    def _first_guess(self, init: str) -> Start:
        """The map that a word names; with held-out rows, "auto" is what serves them better."""
        if self._held_out is None or init != "auto" or self._owner._learns_rows is not None:
            return self.descent.first_guess(init)
        new, truth = self._held_out
        codes, k = self._labels.codes[self._labels.order], self._owner.n_neighbors
        return self.descent.better_guess(
            lambda L: float(np.mean(votes_under(L, self._points, codes, new, k) != truth))
        )

    def _validation(self, new: Array, truth: NDArray[np.intp], done: int) -> HeldOutError:
        """The error on the held-out rows in the pass at hand, after so many iterations."""
        descent, points, k = self.descent, self._points, self._owner.n_neighbors
        codes = self._labels.codes[self._labels.order]
        return HeldOutError(
            lambda iterate: votes_under(descent.components(iterate), points, codes, new, k),
            truth,
            done,
        )

    def _left_behind(self, solution: Solution, validation: HeldOutError | None) -> Pass:
        descent, kept, status = self.descent, solution.iterate, solution.status
        if validation is not None:
            kept, status = validation.kept(solution)
        certificate = descent.proof(kept)
        n_rows = len(self._points) + (0 if self._held_out is None else len(self._held_out[1]))
        proved = certificate if descent.rows is None else None
        return Pass(
            descent.components(kept),
            None if self._before is None else self._before.components,
            self._number,
            descent.settled(status, certificate),
            None if certificate is None else certificate.objective,
            None if certificate is None or descent.rows else certificate.gap,
            0 if certificate is None else certificate.n_coinciding,
            np.inf if validation is None else validation.error,
            margin_proof(descent.problem, proved, self._order, n_rows),
        )

    def _ending(self, done: Pass, solution: Solution) -> Ending | None:
        """How the fit ends with the pass that is done, or None if another one follows."""
        owner, before, history = self._owner, self._before, solution.history
        validated = self._held_out is not None
        better = before is None or not validated or done.error < before.error
        kept = done if better or before is None else before
        here = f"in pass {done.number} of {owner.n_passes}, before tol={owner.tol:g}"
        if done.status not in COMPLETE:
            return Ending(kept, done.status, here if owner.n_passes > 1 else None, history)
        if not better or done.error == 0 or done.number == owner.n_passes:
            return Ending(kept, kept.status, None, history)
        limit = None
        if solution.n_iter >= owner.max_iter:
            limit = Status.MAX_ITER
        elif fit_clock().is_up:
            limit = Status.MAX_SECONDS
        if limit is None:
            return None
        return Ending(kept, limit, f"before pass {done.number + 1} of {owner.n_passes}", history)


def _packed(before: Pass | None) -> tuple[Arrays, dict[str, Any]]:
    """A pass as arrays and plain values."""
    if before is None:
        return {}, {}
    values = {field.name: getattr(before, field.name) for field in fields(before)}
    matrices = {f"before_{name}": values.pop(name) for name in MATRICES}
    arrays = {name: matrix for name, matrix in matrices.items() if matrix is not None}
    proof: Proof = values.pop("proof")
    return arrays | {PROOF + name: array for name, array in proof.items()}, {"before": values}


def _unpacked(arrays: Arrays, values: dict[str, Any]) -> Pass | None:
    """The pass before, from all that a checkpoint holds."""
    if "before" not in values:
        return None
    parts: dict[str, Any] = dict(values["before"])
    parts["status"] = Status(parts["status"])
    parts |= {name: arrays.get(f"before_{name}") for name in MATRICES}
    proof = {name.removeprefix(PROOF): arrays[name] for name in arrays if name.startswith(PROOF)}
    return Pass(**parts, proof=proof)
