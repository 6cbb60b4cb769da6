"""The checks of ITML and SDML, divergences from a prior with pairs, and of SCML, with triplets.

Equation numbers are those of docs/verify.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.proofs import claims, sums
from nearfar.proofs.claims import Proof, Refuted, points_of, tolerance
from nearfar.proofs.found import OTHER, Found, check_floor
from nearfar.proofs.pairs import read_pairs
from nearfar.proofs.sums import Index, Matrix

NEAR = 1e-4  # of the mean square of far pairs of SCML, in place of a smaller one of near pairs
SINGULAR = 1e-12  # eigenvalue of a covariance, relative to the largest, of a direction without any


def check_itml(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """ITML."""
    points, heads, tails, below, note = _read_edges(model, proof, X, y)
    u, v = (float(bound) for bound in model.bounds_)
    gamma = float(getattr(model, "violation_weight_", model.violation_weight))
    if not (u > 0 and v > 0 and gamma > 0 and np.isfinite([u, v, gamma]).all()):
        raise Refuted("the bounds and the weight of the model must be positive numbers")
    b, W = np.where(below, u, v), _prior_map(model, X, points)

    def slacks(L: Matrix) -> Matrix:
        lengths = sums.lengths(points @ L.T, heads, tails)
        return np.asarray(np.where(below, np.maximum(lengths, b), np.minimum(lengths, b)))

    L = claims.as_float64(model.components_)
    ratios = slacks(L) / b
    loss = gamma * float((ratios - np.log(ratios) - 1).sum())
    xi = slacks(claims.finite_array(proof, "components", (None, points.shape[1])))
    U, weights = points @ W.T, gamma * (1 / b - 1 / xi)
    pushed = sums.scatter(U, heads, tails, weights)
    rounded = 1 + sums.scatter_size(U, heads, tails, weights)
    logdet = sums.log_det(np.eye(len(W)) + pushed, rounded)
    bound = logdet + gamma * np.log(b / xi).sum()  # (6.3)
    return Found(_divergence(L, W) + loss, max(float(bound), 0.0), note)  # (6.2)


def check_sdml(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """SDML."""
    points, heads, tails, below, note = _read_edges(model, proof, X, y)
    eta, penalty = float(model.balance_), float(model.sparsity_weight)
    far_weight = float(model.far_weight_)
    if not (
        eta > 0 <= penalty and far_weight > 0 and np.isfinite([eta, penalty, far_weight]).all()
    ):
        raise Refuted("the balance and the weight of the model must not be negative")
    W0, d = _prior_map(model, X, points), points.shape[1]
    inverse, L = sums.right_inverse(W0), claims.as_float64(model.components_)
    Q = sums.scatter(points, heads, tails, np.where(below, 1.0, -far_weight))
    S, A = inverse @ inverse.T + eta * Q, L.T @ L
    entries = np.abs(A).sum() - np.abs(np.diag(A)).sum()
    objective = _divergence(L, W0) + eta * float(np.vdot(Q, A)) + penalty * float(entries)  # (6.4)
    W = claims.finite_array(proof, "dual", (d, d))
    W = np.clip(0.5 * (W + W.T), S - penalty, S + penalty)
    np.fill_diagonal(W, np.diag(S))
    if np.linalg.eigvalsh(W)[0] <= 0:
        raise Refuted("dual point infeasible: it is not positive definite")
    bound = float(np.linalg.slogdet(W)[1] + 2 * np.linalg.slogdet(W0)[1])  # (6.5)
    return Found(objective, bound, note)


def _read_edges(
    model: Any, proof: Proof, X: Any, y: Any
) -> tuple[Matrix, Index, Index, NDArray[np.bool_], str]:
    """Points, the ends of all pairs, which are near, and what is to be said of the pairs."""
    points, codes, near, far, note, _ = read_pairs(model, proof, X, y)
    if codes is not None:
        heads, tails = np.triu_indices(len(points), 1)
        same = codes[heads] == codes[tails]
        near, far = (np.stack([heads[kind], tails[kind]], axis=1) for kind in (same, ~same))
    far = far[sums.lengths(points, far[:, 0], far[:, 1]) > 0]  # no metric parts the others
    heads, tails = np.concatenate([near, far]).T
    points = points - np.median(points, axis=0)  # a far origin costs digits
    return points, heads, tails, np.arange(len(heads)) < len(near), note


def _divergence(L: Matrix, W: Matrix) -> float:
    """(6.1) of LᵀL from WᵀW; infinite for a map of fewer rows."""
    C = L @ sums.right_inverse(W)
    volume = 2 * np.linalg.slogdet(C)[1] if len(C) == len(W) else -np.inf
    return float(np.vdot(C, C) - volume - len(W))


def _prior_map(model: Any, X: Any, points: Matrix) -> Matrix:
    """W (s, d) with WᵀW the prior, or its part on the span of the points."""
    prior, d = model.prior, points.shape[1]
    if np.ndim(X) == 3:  # equal points of dense tuples are one
        points = np.unique(points, axis=0)
    if not isinstance(prior, str):
        return np.asarray(np.linalg.cholesky(claims.as_float64(prior)).T)
    chosen = getattr(model, "prior_components_", None)
    if prior == "auto" and chosen is not None:
        return claims.finite_array({"prior": chosen}, "prior", (d, d))
    if prior in ("auto", "identity"):
        return np.eye(d)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(points.T)))
    kept = values > SINGULAR * values[-1]
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])).T)


def check_scml(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """SCML."""
    points, triplets, note = _read_triplets(model, proof, X, y)
    points = points - np.median(points, axis=0)  # a far origin costs digits
    rho, prior = float(model.shrinkage_), model.prior_components_
    framed = L = claims.as_float64(model.components_)
    if prior is not None:  # the program is about points W x, the map about the inputs
        W = claims.finite_array({"prior": prior}, "prior", (None, points.shape[1]))
        points, framed = points @ W.T, L @ sums.right_inverse(W)
    m, d = len(triplets), points.shape[1]
    bases = claims.finite_array({"bases": model.bases_}, "bases", (None, d))
    if not np.allclose((bases * bases).sum(axis=1), 1, rtol=1e-9):
        raise Refuted("the bases of the model are not unit vectors")
    near, far = (float(sums.lengths(points, triplets[:, 0], triplets[:, k]).mean()) for k in (1, 2))
    price, kept = float(model.sparsity_weight) * far, rho / ((1 - rho) * max(near, NEAR * far))
    floor = np.where(sums.varying(points) | (prior is not None), kept, 0.0)
    if kept and model.n_components is None:  # else it is projected
        check_floor(framed, floor, tolerance(model))
    margins = _margins(points @ framed.T, triplets).sum(axis=1)
    trace = max(float((framed * framed).sum() - floor.sum()), 0.0)  # 0 but for rounding
    objective = float(np.maximum(1 - margins, 0).mean()) + price * trace  # (7.1)
    alpha = claims.finite_array(proof, "weights", (m,))
    if not (alpha >= 0).all() or not (alpha <= (1 + 1e-9) / m).all():
        raise Refuted(
            "dual point infeasible: weights must lie between 0 and 1 / number of triplets"
        )
    dearest = float((alpha @ _margins(points @ bases.T, triplets)).max(initial=0.0))
    needed = 1 - kept * _margins(points, triplets).sum(axis=1)
    bound = float(needed @ alpha) * min(1.0, price / max(dearest, price))  # (7.2)
    return Found(objective, max(bound, 0.0), note)


def _margins(Z: Matrix, triplets: Index) -> Matrix:
    """(z − z_far)² − (z − z_near)² of each triplet, entry by entry."""
    anchors, near, far = triplets.T
    return np.asarray((Z[anchors] - Z[far]) ** 2 - (Z[anchors] - Z[near]) ** 2)


def _read_triplets(model: Any, proof: Proof, X: Any, y: Any) -> tuple[Matrix, Index, str]:
    """Points, triplets (m, 3) of their rows, and what is to be said of these."""
    if hasattr(X, "indices") and hasattr(X, "points"):
        points, triplets, note = points_of(X.points, model), np.asarray(X.indices), ""
    elif np.ndim(claims.to_host(X)) == 3:
        table = claims.to_host(X)
        points, note = points_of(table.reshape(-1, table.shape[2]), model), ""
        triplets = np.arange(len(points)).reshape(table.shape[:2])
    else:
        points, codes = points_of(X, model), claims.codes_of(y, len(X))
        triplets = claims.row_numbers(proof, "triplets", 3, 0, len(X))
        first, near, far = codes[triplets].T
        if (first != near).any() or (first == far).any():
            raise Refuted(OTHER + "triplets that were drawn are not of one class and another")
        note = f", for the {len(triplets)} triplets that were drawn"
    if triplets.ndim != 2 or triplets.shape[1] != 3:
        raise InvalidInputError(
            f"verify needs the triplets of the fit, (m, 3); got shape {triplets.shape}."
        )
    return points, triplets, note
