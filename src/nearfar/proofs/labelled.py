"""What learners from labelled points say of themselves: LMNN, MCML, their relatives, and NCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.proofs import bounds
from nearfar.proofs.bounds import Index, Matrix
from nearfar.proofs.claims import (
    SOLVED,
    Found,
    Proof,
    Refuted,
    codes_of,
    finite_array,
    no_variation,
    points_of,
    row_numbers,
    to_host,
    tolerance,
)
from nearfar.proofs.spaces import Space


def check_lmnn(model: Any, proof: Proof, X: Any, y: Any, given: Any) -> Found:
    """LMNN, KernelLMNN and MultiMetricLMNN."""
    X = points_of(X, model)
    codes, rows = codes_of(y, len(X)), np.arange(len(X))
    if "rows" in proof:
        rows = row_numbers({"rows": np.atleast_2d(proof["rows"])}, "rows", None, 0, len(X))[0]
        if len(np.unique(rows)) < len(rows):
            raise Refuted("the proof is damaged: it names a row twice")
    metric = np.asarray(getattr(model, "metric_of_", np.zeros(len(X), dtype=np.intp)))
    maps = model.dual_coef_[None] if hasattr(model, "dual_coef_") else to_host(model.components_)
    maps = maps if maps.ndim == 3 else maps[None]
    if not proof and not Space.of(model, X, rows).points.any():
        sizes, mu = np.bincount(codes), float(model.push_weight)
        near = np.minimum(sizes - 1, int(model.n_neighbors))
        return no_variation(float(mu * (sizes * near * (len(X) - sizes)).sum()))
    codes, n = codes[rows], len(rows)
    targets = row_numbers(proof, "targets", None, -1, n)
    if (
        len(targets) != n
        or metric.shape != (len(X),)
        or not ((metric >= 0) & (metric < len(maps))).all()
    ):
        raise Refuted(
            f"the table is not the training table: it has {len(X)} rows, the proof is about"
            f" {len(targets)}"
        )
    space = Space.of(model, X, rows)
    if given is None:
        chose = getattr(model, "target_components_", None)
        where = space.points if chose is None else space.image(chose)
        _check_nearest(where, codes, targets, int(model.n_neighbors), tolerance(model), rows)
    elif not np.array_equal(np.sort(targets, axis=1), np.sort(to_host(given), axis=1)):
        raise Refuted("the target neighbours of the proof are not those that were given")
    triplets, weights, proves = np.empty((0, 3), dtype=np.intp), np.empty(0), "triplets" in proof
    if proves:
        triplets = row_numbers(proof, "triplets", 3, 0, n)
        weights = finite_array(proof, "weights", (len(triplets),))
        _check_triplets(triplets, weights, codes, targets)
    objective, bound, least = bounds.lmnn(
        bounds.coordinates(space.points)[0],
        [space.image(L) for L in maps],
        metric[rows],
        codes,
        float(model.push_weight),
        targets,
        triplets,
        weights,
    )
    note = f" (dual point infeasible: smallest eigenvalue {least:.0e})" if least < -SOLVED else ""
    if n < len(X):
        note += f", of the {n} rows that were not held out"
    return Found(objective, bound if proves else None, note)


def _check_nearest(
    T: Matrix, codes: Index, targets: Index, k: int, tie: float, rows: Index
) -> None:
    """Refute targets that are not the k nearest of their class in T; of equals any will do."""
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        place = np.full(len(codes) + 1, -1)  # the last is of -1, for no target
        place[members], place[-1] = np.arange(len(members)), len(members)
        for part in bounds.blocks(len(members), len(members)):
            near, itself = place[targets[members[part]]], (np.arange(len(part)), part)
            table = bounds.squares(T[members[part]], T[members])
            chosen = np.zeros((len(part), len(members) + 1), dtype=bool)
            np.put_along_axis(chosen, near, True, axis=1)
            chosen = chosen[:, :-1]
            wrong = chosen[itself] | (near < 0).any(axis=1)
            wrong |= chosen.sum(axis=1) != min(k, len(members) - 1)
            farthest = np.where(chosen, table, 0).max(axis=1)
            table[itself] = table[chosen] = np.inf
            wrong |= farthest > table.min(axis=1) * (1 + tie)
            if wrong.any():
                raise Refuted(
                    "the table is not the training table: the target neighbours of row"
                    f" {rows[members[part][wrong][0]]} are not the nearest of its class"
                )


def _check_triplets(triplets: Index, weights: Matrix, codes: Index, targets: Index) -> None:
    """Refute a dual point that is none of this problem."""
    n, (i, j, far) = len(codes), triplets.T
    if not ((weights >= 0) & (weights <= 1)).all():
        worst = weights[np.abs(weights - 0.5).argmax()]
        raise Refuted(f"dual point infeasible: a weight is {worst:.3g}, not between 0 and 1")
    if len(np.unique((i * n + j) * n + far)) < len(i):
        raise Refuted("dual point infeasible: a triplet occurs twice")
    if not (targets[i] == j[:, None]).any(axis=1).all() or (codes[i] == codes[far]).any():
        raise Refuted("dual point infeasible: a triplet is not of a target and an impostor")


def check_mcml(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """MCML and KernelMCML."""
    X = points_of(X, model)
    codes, space = codes_of(y, len(X)), Space.of(model, X, np.arange(len(X)))
    C, N = bounds.coordinates(space.points)
    L = getattr(model, "dual_coef_", None)
    L = model.components_ if L is None else L
    ridge = float(model.regularization)
    if C.shape[1] == 0:
        return no_variation(bounds.mcml(C, N, 0 * C, 0.0, codes, 0.0, [])[0])
    names = [name for name in ("components", "nearer") if name in proof]
    maps = [finite_array(proof, name, (None, space.operand.shape[1])) for name in names]
    duals = [space.image(dual) for dual in maps]
    objective, bound = bounds.mcml(C, N, space.image(L), space.trace(L), codes, ridge, duals)
    return Found(objective, bound if duals else None)


def check_nca(model: Any, _: Proof, X: Any, y: Any, __: Any) -> Found:
    """NCA, whose objective can be checked alone."""
    X = points_of(X, model)
    image = Space.of(model, X, np.arange(len(X))).image(model.components_)
    return Found(bounds.nca(image, codes_of(y, len(X))), None)
