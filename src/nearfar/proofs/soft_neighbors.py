"""Checks of MCML, KernelMCML and NCA: soft neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.proofs import bounds, claims, sums
from nearfar.proofs.claims import Proof, Space, points_of, tolerance
from nearfar.proofs.found import Found, check_floor, no_variation
from nearfar.proofs.sums import Index, Matrix


def check_mcml(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """MCML and KernelMCML."""
    few = model.reduce == "learn" and model.n_components is not None
    floored = not hasattr(model, "dual_coef_") and (
        not few or model.n_components >= model.n_features_in_
    )
    space, points, codes, claim = _collapse(model, proof, X, y, floored=floored)
    if not points.any():
        return no_variation(bounds.mcml(points, codes, claim, points, [])[0])
    names, shape = ("components", "nearer"), (None, space.operand.shape[1])
    duals = [
        space.image(claims.finite_array(proof, name, shape)) for name in names if name in proof
    ]
    objective, bound = bounds.mcml(points, codes, claim, space.images()[0], duals)
    return Found(objective, bound if duals else None)


def check_nca(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """NCA, of which the objective alone can be checked: how many points get their class."""
    full = model.diagonal or model.n_components in (None, model.n_features_in_)
    space, _points, codes, claim = _collapse(model, proof, X, y, floored=full, nearest=sums.NEAREST)
    objective, m = -claim.ridge * claim.trace, claim.masses
    for rows, _D, p, _logs in sums.soft_neighbors(space.images()[0], m):
        objective += m[rows] @ ((codes[rows][:, None] == codes) * p).sum(axis=1)
    return Found(float(objective), None)


def _collapse(
    model: Any, proof: Proof, X: Any, y: Any, *, floored: bool, nearest: int | None = None
) -> tuple[Space, Matrix, Index, sums.Collapse]:
    """The space of MCML or NCA, its points in the units of the program, and the program."""
    X = points_of(X, model)
    codes, masses = claims.codes_of(y, len(X)), claims.masses_of(proof, len(X))
    rows = np.flatnonzero(masses)
    space, codes, masses = Space.of(model, X, rows), codes[rows], masses[rows]
    points, L, trace = space.points, space.maps[0], space.trace()
    scale, prior = (getattr(model, name, None) for name in ("feature_scale_", "prior_components_"))
    if scale is not None:  # the program is about scaled features, the map about the inputs
        scale = claims.finite_array({"scale": scale}, "scale", (X.shape[1],))
        points, L = points * scale, L / scale
    if prior is not None:  # the program is about the points W x
        W = claims.finite_array({"prior": prior}, "prior", (None, X.shape[1]))
        points, L = points @ W.T, L @ sums.right_inverse(W)
    if scale is not None or prior is not None:
        trace = float((L * L).sum())
    rho = float(getattr(model, "shrinkage_", 0.0))
    rank = len(model.eigenvalues_) if space.gram is not None else None
    claim = sums.Collapse.of(points, codes, masses, rho, trace, floored, rank, nearest)
    cut = hasattr(model, "reduce") and model.n_components is not None  # rows of the whole metric
    if claim.floor.any() and not cut:
        check_floor(L, claim.floor, tolerance(model))
    return space, points, codes, claim
