"""Checks of MMC, KernelMMC and DMLEig: near and far pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nearfar.errors import InvalidInputError
from nearfar.proofs import bounds, claims, sums
from nearfar.proofs.claims import Proof, Refuted, Space, points_of, tolerance
from nearfar.proofs.found import OTHER, Found, edge_codes, no_variation
from nearfar.proofs.sums import Index, Matrix, Pairs

Weights = tuple[Matrix, Matrix, Matrix]
RIDGE = {"DMLEig": 1e-9}  # of shrinkage=0, which only makes the problem well-posed


class PairProblem:
    """Near and far pairs (2, m), or classes: all pairs of one are near, and all others far."""

    def __init__(self, model: Any, proof: Proof, X: Any, y: Any) -> None:
        points, self.codes, near, far, self.note, weights = read_pairs(model, proof, X, y)
        rows = np.arange(len(points))
        self.masses, self.near_weights, self.far_weights = weights
        if self.codes is None and hasattr(model, "dual_coef_"):  # the points of pairs only
            rows = np.unique(np.concatenate([near, far]))
            near, far = np.searchsorted(rows, near), np.searchsorted(rows, far)
        self.near_pairs, self.far_pairs = near.T, far.T
        self.space = Space.of(model, points, rows)
        scale = getattr(model, "feature_scale_", None)
        if scale is not None:  # the program is about scaled features, the map about the inputs
            scale = claims.finite_array({"scale": scale}, "scale", (points.shape[1],))
            scaled, operand = self.space.points * scale, self.space.operand * scale
            self.space = Space(self.space.maps / scale, scaled, operand)
        prior = getattr(model, "prior_components_", None)
        if prior is not None:  # the program is about points W x
            W = claims.finite_array({"prior": prior}, "prior", (None, points.shape[1]))
            moved = self.space.points @ W.T
            self.space = Space(self.space.maps @ sums.right_inverse(W), moved, moved)
        self.points = self.space.points
        if self.codes is None:  # as in `far`
            apart = sums.lengths(self.points, *self.far_pairs) > 0
            self.far_pairs, self.far_weights = self.far_pairs[:, apart], self.far_weights[apart]
        B = self.near(self.points)
        spread = total = float((B * B).sum())
        if self.space.squares is not None and model.rank is None:  # also along what is not in B
            total = self.near_total(self.space.squares)
        rho = float(model.shrinkage_)
        if not 0 <= rho < 1:
            raise Refuted(f"the shrinkage of the model is {rho:g}, not from 0 to below 1")
        live = sums.differing(self.points)
        ridge = (rho or RIDGE.get(type(model).__name__, 0.0)) / (1 - rho)
        share = ridge * total / max(int(np.count_nonzero(live)), 1)
        self.B = sums.with_ridge(B, share)  # BᵀB = S' of (3.1), H' of (4.1)
        self.Z = self.space.images()[0]
        size = float((self.near(self.Z) ** 2).sum()) + share * self.space.trace()
        rows_learned = getattr(model, "duality_gap_", None) is None
        kept = (1 - rho) * spread + rho * total
        root = np.sqrt(rho / kept) * live if rho and kept > 0 else np.zeros(len(live))
        self.limits = sums.Limits((1 - rho) * size, root * (not rows_learned))

    def check_floor(self, model: Any, d: float) -> None:
        """Refute a metric below φI, where d is the budget of near pairs."""
        if self.limits.root.any() and getattr(model, "n_components", None) is None:
            kept = np.sqrt(d) * self.points * self.limits.root
            if self.space.squares is None and len(kept) > kept.shape[1]:  # as much, on the span
                L = self.space.maps[0][:, self.limits.root > 0]
                above = L.T @ L - d * np.diag(self.limits.root[self.limits.root > 0] ** 2)
            else:  # between the points
                Z, kept = self.Z - self.Z.mean(axis=0), kept - kept.mean(axis=0)
                above = Z @ Z.T - kept @ kept.T
            least = float(np.linalg.eigvalsh(above)[0])
            if least < -tolerance(model) * max(float(np.trace(above)), 0.0):
                raise Refuted(f"the metric is below its floor: smallest eigenvalue {least:.0e}")

    def near(self, U: Matrix) -> Matrix:
        """Rows whose squares add up to the scatter of the near pairs."""
        if self.codes is None:
            rows = U[self.near_pairs[0]] - U[self.near_pairs[1]]
            return np.asarray(np.sqrt(self.near_weights)[:, None] * rows)
        rows, m = np.zeros_like(U), self.masses
        for code in np.unique(self.codes):
            mine = np.flatnonzero((self.codes == code) & (m > 0))
            if len(mine):
                about = U[mine] - np.average(U[mine], axis=0, weights=m[mine])
                rows[mine] = np.sqrt(m[mine].sum() * m[mine])[:, None] * about
        return rows

    def near_total(self, squares: Matrix) -> float:
        """The sum over the near pairs of a table (n, n)."""
        if self.codes is None:
            return float(self.near_weights @ squares[self.near_pairs[0], self.near_pairs[1]])
        same = np.where(self.codes[:, None] == self.codes, squares, 0.0)
        return float(self.masses @ same @ self.masses) / 2

    def far(self) -> Iterator[tuple[Pairs, Matrix]]:
        """The far pairs and their weights, in parts.

        Pairs of equal points, which no metric parts, and pairs without weight are left out.
        """
        if self.codes is None:
            yield (self.far_pairs[0], self.far_pairs[1]), self.far_weights
            return
        for rows in sums.blocks(len(self.codes), len(self.codes)):
            heads, tails = np.nonzero(self.codes[rows][:, None] < self.codes)
            weights = self.masses[rows[heads]] * self.masses[tails]
            apart = (sums.lengths(self.points, rows[heads], tails) > 0) & (weights > 0)
            yield (rows[heads][apart], tails[apart]), weights[apart]


def read_pairs(
    model: Any, proof: Proof, X: Any, y: Any
) -> tuple[Matrix, Index | None, Index, Index, str, Weights]:
    """Points, their classes or near and far pairs (m, 2), what is to be said of these, and weights.

    Weights are those of points, of near and of far pairs.
    """
    none, ones = np.empty((0, 2), dtype=np.intp), np.empty(0)
    if hasattr(X, "indices") and hasattr(X, "points"):
        points, tuples = points_of(X.points, model), np.asarray(X.indices)
    elif claims.to_host(X).ndim == 3:
        points = points_of(claims.to_host(X).reshape(-1, np.shape(X)[2]), model)
        tuples = np.arange(len(points)).reshape(np.shape(X)[:2])
    else:
        points, codes = points_of(X, model), claims.codes_of(y, len(X))
        masses = claims.weights_of(proof, len(X))
        if model.n_pairs is None:
            return points, codes, none, none, "", (masses, ones, ones)
        near, far = (claims.row_numbers(proof, kind, 2, 0, len(X)) for kind in ("near", "far"))
        if np.ptp(codes[near], axis=1).any() or not np.ptp(codes[far], axis=1).all():
            what = "pairs that were drawn are near in different classes, or far in one"
            raise Refuted(OTHER + what)
        note = f", for the {len(near)} near and {len(far)} far pairs that were drawn"
        weights = masses, *(masses[pairs].prod(axis=1) for pairs in (near, far))
        return points, None, near, far, note, weights
    masses = claims.weights_of(proof, len(tuples))
    used = masses > 0
    if tuples.shape[1] == 3:
        near, far = tuples[used][:, :2], tuples[used][:, ::2]
        return points, None, near, far, "", (ones, masses[used], masses[used])
    kinds = claims.to_host(y)
    if kinds.shape != (len(tuples),):
        raise InvalidInputError(
            f"verify needs +1 or -1 for each of {len(tuples)} pairs; got shape {kinds.shape}."
            " Pass the y of the fit."
        )
    near, far = (used & (kinds == kind) for kind in (1, -1))
    return points, None, tuples[near], tuples[far], "", (ones, masses[near], masses[far])


def check_mmc(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """MMC and KernelMMC."""
    problem, diagonal = PairProblem(model, proof, X, y), bool(getattr(model, "diagonal", False))
    if not problem.points.any():
        return no_variation(0.0)
    dual = claims.finite_array(proof, "components", (None, problem.space.operand.shape[1]))
    if not problem.limits.size <= 1 + tolerance(model):
        raise Refuted(f"infeasible: near pairs have a sum of {problem.limits.size:.6g}, above 1")
    problem.check_floor(model, 1.0)
    images = problem.space.image(dual)
    found = bounds.mmc(
        problem.points, problem.B, problem.far, problem.Z, problem.limits, images, diagonal
    )
    return Found(*found, problem.note, maximises=True)


def check_dml_eig(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """DMLEig."""
    problem = PairProblem(model, proof, X, y)
    n, codes = len(problem.points), problem.codes
    pairs = claims.row_numbers(proof, "pairs", 2, 0, n).T
    alpha = claims.finite_array(proof, "weights", (pairs.shape[1],))
    if not (alpha >= 0).all() or not alpha.sum() > 0:
        raise Refuted("dual point infeasible: weights must not be negative, and not all zero")
    if codes is None:
        far = np.isin(edge_codes(pairs, n), edge_codes(problem.far_pairs, n))
    else:
        far = (codes[pairs[0]] != codes[pairs[1]]) & (problem.masses[pairs] > 0).all(axis=0)
    if not far.all():
        raise Refuted("dual point infeasible: a weight belongs to a pair that is not far")
    problem.check_floor(model, problem.limits.size)
    ends = pairs[0], pairs[1]
    found = bounds.dml_eig(
        problem.points, problem.B, problem.far, problem.Z, problem.limits, ends, alpha
    )
    return Found(*found, problem.note, maximises=True)
