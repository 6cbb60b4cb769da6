"""The passes of a fit of LMNN: what each leaves behind, and how a checkpoint holds it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._proofs import Proof
from nearfar.estimators._training import Arrays, Saved
from nearfar.solvers import Status

Matrix = NDArray[np.float64]

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


def packed(before: Pass | None) -> Saved:
    """A pass as arrays and plain values."""
    if before is None:
        return {}, {}
    values = {field.name: getattr(before, field.name) for field in fields(before)}
    matrices = {f"before_{name}": values.pop(name) for name in MATRICES}
    arrays = {name: matrix for name, matrix in matrices.items() if matrix is not None}
    proof: Proof = values.pop("proof")
    return arrays | {PROOF + name: array for name, array in proof.items()}, {"before": values}


def unpacked(arrays: Arrays, values: dict[str, Any]) -> Pass | None:
    """The pass before, from all that a checkpoint holds."""
    if "before" not in values:
        return None
    parts: dict[str, Any] = dict(values["before"])
    parts["status"] = Status(parts["status"])
    parts |= {name: arrays.get(f"before_{name}") for name in MATRICES}
    proof = {name.removeprefix(PROOF): arrays[name] for name in arrays if name.startswith(PROOF)}
    return Pass(**parts, proof=proof)
