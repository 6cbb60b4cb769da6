"""What a model and its proof claim, checked for type, shape and range before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.proofs.bounds import Index, Matrix

Proof = dict[str, Any]

# How far objectives may be from what the model says, relative, and by what share of its square a
# target neighbour may be farther than another point: a tie. Kernel matrices are ill-conditioned.
SAME = {"float64": 1e-6, "float32": 1e-3, "kernel": 1e-4}
SLACK = 1e-2  # of these: how far the gap may be above what the model says, beside 1 % of it
SOLVED = 1e-6  # relative excess of a constraint that is rounding


@dataclass(frozen=True)
class Found:
    """What was recomputed; ``note`` is to be said with the gap."""

    objective: float
    bound: float | None  # None where there is no dual point
    note: str = ""
    maximises: bool = False
    unit: float | None = None  # the least size of what a gap is relative to, of MVU
    violation: float = 0.0  # of constraints, relative, which counts as gap, too

    def gap(self, objective: float) -> float | None:
        """How far an objective is from the optimum at most, relative as ``duality_gap_`` is."""
        if self.bound is None:
            return None
        if self.unit is not None:
            gap = abs(self.bound - objective) / max(abs(self.bound), self.unit)
        elif self.maximises:
            gap = self.bound / objective - 1 if objective > 0 else np.inf
        else:
            gap = (objective - self.bound) / max(objective, 1.0)
        return float(max(gap, self.violation, 0.0))


class Refuted(Exception):
    """Why a proof cannot hold."""


def to_host(array: Any) -> NDArray[Any]:
    """A tensor of any device, or anything else, as an array."""
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)


def tolerance(model: Any) -> float:
    """How far numbers may be from what a model says, relative, by its precision."""
    if hasattr(model, "dual_coef_"):
        return SAME["kernel"]
    fitted = model.components_ if hasattr(model, "components_") else model.embedding_
    return SAME["float32" if to_host(fitted).dtype.itemsize == 4 else "float64"]


def projected_rows(model: Any) -> int | None:
    """How many rows are left of a metric that was learned as a whole, if rows were cut off."""
    rows = getattr(model, "n_components", None)
    if rows is None or not hasattr(model, "components_") or rows >= model.n_features_in_:
        return None
    return int(rows) if getattr(model, "reduce", "project") == "project" else None


def points_of(X: Any, model: Any) -> Matrix:
    """Points (n, d) in float64."""
    points = np.asarray(to_host(X), dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != model.n_features_in_ or not np.isfinite(points).all():
        raise InvalidInputError(
            f"verify needs the table of the fit: finite numbers of shape (n,"
            f" {model.n_features_in_}); got {points.dtype} of shape {points.shape}."
            " Give the features that the model was fitted to."
        )
    return points


def codes_of(y: Any, n: int) -> Index:
    """Class numbers."""
    labels = to_host(y)
    if labels.shape != (n,):
        raise InvalidInputError(
            f"verify needs the labels of the fit, one for each of the {n} rows; got shape"
            f" {labels.shape}. Pass y."
        )
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def row_numbers(proof: Proof, name: str, columns: int | None, low: int, n: int) -> Index:
    """A table (·, columns) of row numbers from low to n − 1 of a proof."""
    array: Any = proof.get(name)
    good = isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.ndim == 2
    if not good or (columns is not None and array.shape[1] != columns):
        raise Refuted(f"the proof is damaged: {name} is no table of row numbers")
    if array.size and not low <= array.min() <= array.max() < n:
        raise Refuted(
            f"the table is not the training table: the proof names rows up to {array.max()}, and"
            f" there are {n}"
        )
    return np.asarray(array, dtype=np.intp)


def finite_array(proof: Proof, name: str, shape: tuple[int | None, ...]) -> Matrix:
    """An array of a proof of this shape, None for any length, all finite."""
    array: Any = proof.get(name)
    good = isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.ndim == len(shape)
    if not good or any(
        want not in (None, got) for want, got in zip(shape, array.shape, strict=True)
    ):
        raise Refuted(f"the proof is damaged: {name} is no array of numbers of shape {shape}")
    if not np.isfinite(array).all():
        raise Refuted(f"the proof is damaged: {name} has values that are not finite")
    return np.asarray(array, dtype=np.float64)


def centred(X: Matrix) -> Matrix:
    """The points about one amid them, so that a far origin costs no digits."""
    far = np.abs(X - np.median(X, axis=0))
    spread = far.mean(axis=0)
    amid: Matrix = X[(far / np.where(spread > 0, spread, 1)).sum(axis=1).argmin()]
    return X - amid


def no_variation(objective: float) -> Found:
    """All points are equal, and every metric is as good as any other."""
    return Found(objective, objective, note=": all points are equal", unit=1.0)
