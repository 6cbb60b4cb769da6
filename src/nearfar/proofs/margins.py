"""Checks of LMNN, KernelLMNN and MultiMetricLMNN: targets, triplets and their dual weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from nearfar.proofs import bounds, claims, sums
from nearfar.proofs.claims import Proof, Refuted, Space, points_of, tolerance
from nearfar.proofs.found import OTHER, SOLVED, Found, check_floor, no_variation
from nearfar.proofs.sums import Index, Matrix


def check_lmnn(model: Any, proof: Proof, X: Any, y: Any, given: Any) -> Found:
    """LMNN, KernelLMNN and MultiMetricLMNN."""
    X = points_of(X, model)
    codes = claims.codes_of(claims.learned_labels(model, y), len(X))
    weights = claims.weights_of(proof, len(X))
    rows = counted = np.flatnonzero(weights)
    mu = float(model.push_weight)
    if "rows" in proof:
        rows = claims.row_numbers({"rows": np.atleast_2d(proof["rows"])}, "rows", None, 0, len(X))[
            0
        ]
        if len(np.unique(rows)) < len(rows):
            raise Refuted("the proof is damaged: it names a row twice")
        if not weights[rows].all():
            raise Refuted("the proof is damaged: it names a row without weight")
    masses = claims.with_mean_one(weights[rows])
    space, n = Space.of(model, X, rows), len(rows)
    inputs, framed = space.points, space.maps
    prior = getattr(model, "prior_components_", None)
    if prior is not None:  # the program is about the points W x, the map about the inputs
        W = claims.finite_array({"prior": prior}, "prior", (None, X.shape[1]))
        framed = space.maps @ sums.right_inverse(W)
        space = Space(space.maps, space.points @ W.T, space.operand)
    codes = codes[rows]
    if "targets" not in proof and not space.points.any():
        near = np.minimum(np.bincount(codes) - 1, int(model.n_neighbors))
        mass = np.bincount(codes, masses)
        return no_variation(float(mu * (mass * near * (mass.sum() - mass)).sum()))
    targets, images = (
        claims.row_numbers(proof, "targets", None, -1, n),
        space.images(),
    )
    own = np.asarray(getattr(model, "metric_of_", np.zeros(len(counted), dtype=np.intp)))
    known = own.shape == (len(counted),) and np.isin(own, np.arange(len(images))).all()
    if len(targets) != n or not known:
        raise Refuted(f"{OTHER}it has {len(X)} rows, the proof is about {len(targets)}")
    metric = own[np.searchsorted(counted, rows)]  # rows without weight have none
    if given is None:
        chose = getattr(model, "target_components_", None)
        where = inputs if chose is None else space.image(chose)
        noise = 0.0 if space.gram is None else n * sums.EPS * np.abs(where).max(initial=0.0)
        ties = tolerance(model), noise**2  # eigenvectors of a kernel matrix are rounded
        for row in _not_nearest(where, codes, targets, int(model.n_neighbors), ties):
            what = f"the target neighbours of row {rows[row]} are not the nearest of its class"
            raise Refuted(OTHER + what)
    elif not _same_targets(targets, claims.to_host(given), rows, len(X)):
        raise Refuted("the target neighbours of the proof are not those that were given")
    dual, proves = (np.empty((0, 3), dtype=np.intp), np.empty(0)), "triplets" in proof
    if proves:
        triplets = claims.row_numbers(proof, "triplets", 3, 0, n)
        dual = triplets, claims.finite_array(proof, "weights", (len(triplets),))
        _check_triplets(*dual, codes, targets)
    rho = float(getattr(model, "shrinkage_", 0.0))
    ridge, floor = sums.shrunk(space.points, masses, targets, rho, framed=prior is not None)
    if ridge and space.gram is not None:  # the map in the coordinates of the points
        framed = np.linalg.lstsq(space.points, images[0] - images[0].mean(axis=0))[0].T[None]
    if ridge and proves and getattr(model, "n_components", None) is None:  # else it is projected
        for L in framed:
            check_floor(L, floor, tolerance(model))
    traces = (framed * framed).sum(axis=(1, 2))
    shares = _shares(metric, masses, targets, len(framed))
    claim = sums.Claim(masses, targets, dual, ridge * shares, floor, traces)
    objective, bound, least = bounds.lmnn(space.points, images, metric, codes, mu, claim)
    note = f" (dual point infeasible: smallest eigenvalue {least:.0e})" if least < -SOLVED else ""
    note += f", of the {n} rows that were learned from" if n < len(X) else ""
    return Found(objective, bound if proves else None, note)


def _shares(metric: Index, masses: Matrix, targets: Index, n_metrics: int) -> Matrix:
    """Of each metric the share of the edges that end at its points; that of one if of none."""
    heads, slot = np.nonzero(targets >= 0)
    if len(heads) == 0:
        return np.ones(n_metrics)
    tails, weights = metric[targets[heads, slot]], masses[heads]
    count = np.bincount(tails, minlength=n_metrics)
    shares = np.bincount(tails, weights, minlength=n_metrics) / weights.sum()
    return np.where(count > 0, shares, 1 / len(heads))


def _same_targets(targets: Index, given: Any, rows: Index, n: int) -> bool:
    """Whether targets, numbered among the rows, are those of a table of n rows between them."""
    if given.ndim != 2 or len(given) != n or given.dtype.kind not in "iu":
        return False
    if given.min(initial=-1) < -1 or given.max(initial=-1) >= n:
        return False
    place = np.full(n + 1, -1)  # the last is of -1: none
    place[rows] = np.arange(len(rows))
    return np.array_equal(_edge_codes(targets), _edge_codes(place[given[rows]]))


def _edge_codes(targets: Index) -> Index:
    """A number for each edge of a table of targets, ascending."""
    heads, slot = np.nonzero(targets >= 0)
    return np.sort(heads * len(targets) + targets[heads, slot])


def _not_nearest(
    T: Matrix, codes: Index, targets: Index, k: int, ties: tuple[float, float]
) -> Iterator[np.intp]:
    """Rows whose targets are not the k nearest of their class in T; of equals any will do."""
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        for part in sums.blocks(len(members), len(codes)):
            rows = members[part]
            chosen = np.zeros((len(rows), len(codes) + 1), dtype=bool)  # the last is of -1: none
            np.put_along_axis(chosen, targets[rows], True, axis=1)
            chosen[np.arange(len(rows)), rows] = False
            count, chosen = chosen[:, :-1].sum(axis=1), chosen[:, members]
            table = cdist(T[rows], T[members], "sqeuclidean")
            farthest = np.where(chosen, table, 0).max(axis=1)
            table[chosen | (rows[:, None] == members)] = np.inf
            wrong = farthest > table.min(axis=1) * (1 + ties[0]) + ties[1]
            wrong |= (count != min(k, len(members) - 1)) | (count != chosen.sum(axis=1))
            yield from rows[wrong]


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
