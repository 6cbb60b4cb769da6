"""The passes of a fit of LMNN: what each leaves behind, which is kept, and checkpoints of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._proofs import Proof
from nearfar.estimators._training import Arrays, Saved
from nearfar.limits import fit_clock
from nearfar.solvers import Status

Matrix = NDArray[np.float64]

PASS_DONE = (Status.CONVERGED, Status.EARLY_STOPPED, Status.STALLED)  # another one may follow
MATRICES = ("components", "target_components")
PROOF = "before_proof_"  # begins the names of the arrays of a proof in a checkpoint


@dataclass(frozen=True)
class Pass:
    """What a pass leaves behind."""

    components: Matrix  # (rows, features), longest first
    target_components: Matrix | None  # the map that chose the targets; None for the inputs
    number: int
    status: Status
    objective: float | None  # None if there was no time to compute it
    duality_gap: float | None
    sampled_gap: float | None
    n_coinciding: int
    error: float  # on the held-out rows; infinite if there are none
    proof: Proof
    unrounded: float | None = None  # objective before the map was rounded, if it is known


@dataclass(frozen=True)
class Ending:
    """The pass that is kept, why there is no other, and what was not reached, in words."""

    kept: Pass
    status: Status
    unreached: str | None = None  # None if it is just the tolerance


def ending_after(
    done: Pass, previous: Pass | None, n_passes: int, tol: float, *, max_iter_reached: bool
) -> Ending | None:
    """How the fit ends with the pass that is done, or None if another one follows.

    Under validation the previous pass is the best so far, since the first that is not better is
    the last. So a checkpoint needs to hold no other.
    """
    better = previous is None or done.error < previous.error or np.isinf(done.error)
    kept = done if better or previous is None else previous
    if done.status not in PASS_DONE:
        here = f"in pass {done.number} of {n_passes}, before tol={tol:g}"
        return Ending(kept, done.status, here if n_passes > 1 else None)
    if not better or done.error == 0 or done.number == n_passes:
        return Ending(kept, kept.status)
    if max_iter_reached:
        return Ending(kept, Status.MAX_ITER, before_next(done, n_passes))
    if fit_clock().is_up:
        return Ending(kept, Status.MAX_SECONDS, before_next(done, n_passes))
    return None


def before_next(done: Pass, n_passes: int) -> str:
    """Where a fit stops that makes no further pass, in words."""
    return f"before pass {done.number + 1} of {n_passes}"


def packed(previous: Pass | None) -> Saved:
    """A pass as arrays and plain values."""
    if previous is None:
        return {}, {}
    values = {field.name: getattr(previous, field.name) for field in fields(previous)}
    matrices = {f"before_{name}": values.pop(name) for name in MATRICES}
    arrays = {name: matrix for name, matrix in matrices.items() if matrix is not None}
    proof: Proof = values.pop("proof")
    return arrays | {PROOF + name: array for name, array in proof.items()}, {"before": values}


def unpacked(arrays: Arrays, values: dict[str, Any]) -> Pass | None:
    """The previous pass, from all that a checkpoint holds."""
    if "before" not in values:
        return None
    parts: dict[str, Any] = dict(values["before"])
    parts["status"] = Status(parts["status"])
    parts |= {name: arrays.get(f"before_{name}") for name in MATRICES}
    proof = {name.removeprefix(PROOF): arrays[name] for name in arrays if name.startswith(PROOF)}
    return Pass(**parts, proof=proof)
