"""`verify`: recompute what a model says of itself, and say what holds.

The mathematics is in `bounds`, over `sums`; `checks` and `claims` read models and tables, and trust
neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.errors import InvalidInputError
from nearfar.io import load
from nearfar.proofs.checks import CHECKS
from nearfar.proofs.claims import Refuted, tolerance
from nearfar.proofs.found import Found

SLACK = 1e-2  # of the tolerance: how far the gap may be above what the model says, beside 1 % of it
LEAST = 1e-2  # objectives are compared relative to it if they are smaller: terms have cancelled
# What attributes of a wrong type or shape raise in the course of a check.
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    proved : bool
        Whether objective, feasibility and gap are what the model says.
    objective : float or None
        Of the model's map on the table.
    bound : float or None
        The optimum is no better than this.
    gap : float or None
        How far the objective is from the optimum at most, relative as ``duality_gap_``.
    violations : tuple of str
        What does not hold.
    sentence : str
        All that in words.
    """

    proved: bool
    objective: float | None
    bound: float | None
    gap: float | None
    violations: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        """The sentence."""
        return self.sentence


def verify(model: Any, X: Any, y: Any = None, *, target_neighbors: Any = None) -> Verification:
    """Check what a model says of itself, by its proof and the table that it was fitted to.

    Objective, feasibility and bound are computed from the table and the dual point in ``proof_``,
    by code that shares nothing with the solvers (docs/verify.md).

    Parameters
    ----------
    model : estimator or path
        A fitted LMNN, MultiMetricLMNN, MCML, NCA, MMC, DMLEig, ITML, SDML, SCML, MVU, a kernel
        version of these, a pipeline that ends in one, or a model file of any of them.
    X : array-like, torch.Tensor, Tuples or NeighborhoodGraph
        What the model was fitted to, with the rows in that order.
    y : array-like or None, default=None
        The labels or kinds of the fit.
    target_neighbors : array-like of int of shape (n_samples, k) or None, default=None
        For an LMNN that was given them. By default they must be the nearest of each class.

    Returns
    -------
    Verification
        ``proved`` tells whether all holds, and the ``sentence`` what, or what does not.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import nearfar
    >>> X, y = load_iris(return_X_y=True)
    >>> print(nearfar.verify(nearfar.LMNN().fit(X, y), X, y))
    proved: within 1.8e-04 of the optimum
    """
    if isinstance(model, str | os.PathLike):
        model = load(model)
    if hasattr(model, "steps"):  # a pipeline: its last step learned from the images of the others
        X, model = (model[:-1].transform(X) if len(model.steps) > 1 else X), model.steps[-1][1]
    model = getattr(model, "metric_", model)  # of a classifier around a metric
    name = type(model).__name__
    if name not in CHECKS:
        return _verdict(f"no proof: verify cannot check {name}, only {', '.join(CHECKS)}")
    if not hasattr(model, "objective_"):
        return _verdict(f"no proof: this {name} is not fitted. Call fit first")
    if model.objective_ is None:
        return _verdict("no certificate: the fit had no time to compute its objective")
    sampled = getattr(model, "sampled_gap_", None)
    if not hasattr(model, "proof_") and (model.duality_gap_ is not None or sampled is not None):
        return _verdict("no proof: the model was saved without it, or by an older version")
    proof = getattr(model, "proof_", None) or {}
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return _compare_with_model(model, CHECKS[name](model, proof, X, y, target_neighbors))
    except InvalidInputError:
        raise
    except Refuted as error:
        said = str(error)
    except DAMAGE as error:
        said = f"the model is damaged: {type(error).__name__} ({error})"
    return _verdict(f"not proved: {said}", violations=(said,))


def _compare_with_model(model: Any, found: Found) -> Verification:
    """Compare what was found with what the model says."""
    objective, said, claim = found.objective, float(model.objective_), model.duality_gap_
    rows, same, violations = _projected_rows(model), tolerance(model), []
    sampled, excess = getattr(model, "sampled_gap_", None), objective - said
    if sampled is not None:  # its objective is over what a sample has seen, and may be too small
        claim, excess = sampled, min(excess, 0.0)
    if rows is None and not abs(excess) <= same * max(abs(said), LEAST):
        violations.append(
            f"the objective of this model on this table is {objective:.8g}, the model says"
            f" {said:.8g}: the table is not the training table, or the model was changed"
        )
    if claim is None:
        reason = (
            "the problem is not convex" if _learns_rows(model) else "the fit had no time for it"
        )
        checked = "the objective is of the metric before its projection, which is not known"
        if rows is None:
            right = f"wrong: {violations[0]}" if violations else f"right: {objective:.6g}"
            checked = f"the objective is {right}"
        return _verdict(f"no certificate: {reason}; {checked}", found, violations)
    gap = found.gap(objective if rows is None else said)
    if gap is None:
        return _verdict("no proof: the model holds no dual point", found, violations)
    if not gap <= 1.01 * float(claim) + SLACK * same:
        violations.append(
            f"the dual point proves a gap of {gap:.1e}{found.note}, the model says {claim:.1e}"
            + ("" if sampled is None else f" with {model.gap_confidence_:.1%} confidence")
        )
    sign, bound = -1 if found.maximises else 1, float(found.bound or 0.0)
    proved = f"the dual point proves that the optimum is {_side(found)} {bound:.8g}"
    room = same * max(abs(said), LEAST)
    if rows is not None and sign * (bound - said) > room:
        violations.append(
            f"{proved}, the model says {said:.8g}: the table is not the training table, or the"
            " model was changed"
        )
    if rows is None and found.own_gap is None and sign * (bound - objective) > room:
        violations.append(f"{proved}, and the map reaches {objective:.8g}: rounding hides both")
    if violations:
        return _verdict(f"not proved: {'; '.join(violations)}", found, violations)
    if rows is None:
        return _verdict(f"proved: within {gap:.1e} of the optimum{found.note}", found)
    reached = f"this projection on {rows} rows has {objective:.6g}"
    if sign * (objective - bound) < 0:
        reached += ", since it does not keep what the shrinkage keeps"
    optimum = f"the optimum over all metrics is {_side(found)} {bound:.6g}"
    return _verdict(f"proved: {optimum}; {reached}", found)


def _side(found: Found) -> str:
    return "at most" if found.maximises else "at least"


def _learns_rows(model: Any) -> bool:
    """Whether a map of few rows is learned as such, which is not convex."""
    if type(model).__name__ == "NCA":
        return True
    usual = "project" if hasattr(model, "components_") else "learn"  # of kernels
    return getattr(model, "n_components", None) is not None and (
        getattr(model, "reduce", usual) == "learn"
    )


def _projected_rows(model: Any) -> int | None:
    """How many rows are left of a metric that was learned as a whole, if rows were cut off."""
    rows = getattr(model, "n_components", None)
    if rows is None or not hasattr(model, "components_") or rows >= model.n_features_in_:
        return None
    return None if _learns_rows(model) else int(rows)


def _verdict(
    sentence: str, found: Found | None = None, violations: Iterable[str] = ()
) -> Verification:
    proved, violations = sentence.startswith("proved"), tuple(violations)
    if found is None:
        return Verification(proved, None, None, None, violations, sentence)
    gap = found.gap(found.objective)
    return Verification(proved, found.objective, found.bound, gap, violations, sentence)
