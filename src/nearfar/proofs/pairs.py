"""What learners from near and far pairs say of themselves: MMC, KernelMMC and DMLEig."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.errors import InvalidInputError
from nearfar.proofs import bounds
from nearfar.proofs.bounds import Index, Matrix, Pairs
from nearfar.proofs.claims import (
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


@dataclass(frozen=True)
class PairProblem:
    """Near pairs or classes, far pairs, and the scatter of the near ones with the ridge."""

    space: Space
    C: Matrix  # (n, k), of one size in all directions
    codes: Index | None  # where all pairs of a class are near, and all others far
    near_pairs: Pairs
    far_pairs: Pairs
    N: Matrix  # (d, k): points are C Nᵀ
    weight: float  # how many near pairs there are
    share: float  # of tr M in ⟨S, M⟩
    drawn: bool  # whether the pairs were drawn from labelled points

    @classmethod
    def of(cls, model: Any, proof: Proof, X: Any, y: Any) -> PairProblem:
        """What the model was fitted to."""
        none = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        codes, near, far = None, none, none
        if hasattr(X, "indices") and hasattr(X, "points"):
            points, tuples = points_of(X.points, model), np.asarray(X.indices)
        elif np.ndim(to_host(X)) == 3:
            points = points_of(to_host(X).reshape(-1, np.shape(X)[2]), model)
            tuples = np.arange(len(points)).reshape(np.shape(X)[:2])
        else:
            points, tuples = points_of(X, model), None
            codes = codes_of(y, len(points))
        if tuples is not None and tuples.shape[1] == 3:
            near, far = (tuples[:, 0], tuples[:, 1]), (tuples[:, 0], tuples[:, 2])
        elif tuples is not None:
            kinds = to_host(y)
            if kinds.shape != (len(tuples),):
                raise InvalidInputError(
                    f"verify needs +1 or -1 for each of {len(tuples)} pairs; got shape"
                    f" {kinds.shape}. Pass the y of the fit."
                )
            near, far = (tuple(tuples[kinds == kind].T) for kind in (1, -1))
        elif model.n_pairs is not None:
            near, far = _drawn(proof, codes_of(y, len(points)))
            codes = None
        rows = np.arange(len(points))
        if codes is None and hasattr(model, "dual_coef_"):  # of a kernel, the points of pairs only
            rows = np.unique(np.concatenate([*near, *far]))
            near, far = (
                (np.searchsorted(rows, heads), np.searchsorted(rows, tails))
                for heads, tails in (near, far)
            )
        space = Space.of(model, points, rows)
        C, N = bounds.coordinates(space.points)
        if codes is None:
            total = float(bounds.lengths(space.points, *near).sum())
            weight = float(len(near[0]))
        else:
            total = float(np.trace(bounds.class_scatter(space.points, codes, float)))
            sizes = np.bincount(codes)
            weight = float((sizes * (sizes - 1) / 2).sum())
        share = float(model.regularization) * total / max(space.points.shape[1], 1)
        drawn = tuples is None and codes is None
        return cls(space, C, codes, near, far, N, weight, share, drawn)

    def near(self, T: Matrix) -> Matrix:
        """Tᵀ S T in the coordinates C."""
        S = self.scatter(self.C @ T)
        return S + self.share * bounds.trace_matrix(self.N, T) if self.share else S

    def scatter(self, U: Matrix) -> Matrix:
        """Of the near pairs, without the ridge."""
        if self.codes is not None:
            return bounds.class_scatter(U, self.codes, float)
        return bounds.scatter(U, *self.near_pairs, np.ones(len(self.near_pairs[0])))

    def far(self) -> Iterator[Pairs]:
        """The far pairs, in parts; pairs of equal points, which no metric parts, are left out."""
        if self.codes is None:
            yield self.far_pairs
            return
        for rows in bounds.blocks(len(self.codes), len(self.codes)):
            heads, tails = np.nonzero(self.codes[rows][:, None] < self.codes)
            heads = rows[heads]
            apart = bounds.lengths(self.space.points, heads, tails) > 0
            yield heads[apart], tails[apart]

    @property
    def note(self) -> str:
        """What is to be said with the gap."""
        if not self.drawn:
            return ""
        counts = len(self.near_pairs[0]), len(self.far_pairs[0])
        return f", for the {counts[0]} near and {counts[1]} far pairs that were drawn"

    def size(self, L: Any) -> float:
        """⟨S, LᵀL⟩."""
        near = float(np.trace(self.scatter(self.space.image(L))))
        return near + self.share * self.space.trace(L)


def _drawn(proof: Proof, codes: Index) -> tuple[Pairs, Pairs]:
    """The near and far pairs that were drawn from labelled points."""
    near, far = (row_numbers(proof, kind, 2, 0, len(codes)).T for kind in ("near", "far"))
    if (codes[near[0]] != codes[near[1]]).any() or (codes[far[0]] == codes[far[1]]).any():
        raise Refuted(
            "the table is not the training table: pairs that were drawn are near in different"
            " classes, or far in one"
        )
    return (near[0], near[1]), (far[0], far[1])


def check_mmc(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """MMC and KernelMMC."""
    problem = PairProblem.of(model, proof, X, y)
    L = model.dual_coef_ if hasattr(model, "dual_coef_") else model.components_
    if problem.C.shape[1] == 0:
        return no_variation(0.0)
    space, C, near, diagonal = problem.space, problem.C, problem.near, None
    dual = finite_array(proof, "components", (None, space.operand.shape[1]))
    if getattr(model, "diagonal", False):
        C = space.points
        diagonal = np.where(
            problem.N.any(axis=1), np.diag(problem.scatter(C)) + problem.share, np.inf
        )
    size = problem.size(L)
    if not size <= 1 + tolerance(model):
        raise Refuted(f"infeasible: near pairs have a sum of {size:.6g}, above 1")
    image, lengths = space.image(L), space.image(dual)
    found = bounds.mmc(C, near, problem.weight, problem.far, image, size, lengths, diagonal)
    return Found(*found, problem.note, maximises=True)


def check_dml_eig(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """DMLEig."""
    problem = PairProblem.of(model, proof, X, y)
    heads, tails = row_numbers(proof, "pairs", 2, 0, len(problem.C)).T
    alpha = finite_array(proof, "weights", (len(heads),))
    if not (alpha >= 0).all() or not alpha.sum() > 0:
        raise Refuted("dual point infeasible: weights must not be negative, and not all zero")
    if problem.codes is not None:
        far = problem.codes[heads] != problem.codes[tails]
    else:
        n, ends = len(problem.C), np.sort(np.stack(problem.far_pairs), axis=0)
        far = np.isin(
            np.minimum(heads, tails) * n + np.maximum(heads, tails), ends[0] * n + ends[1]
        )
    if not far.all():
        raise Refuted("dual point infeasible: a weight belongs to a pair that is not far")
    L = model.components_
    found = bounds.dml_eig(
        problem.C,
        problem.near,
        problem.weight,
        problem.far,
        problem.space.image(L),
        problem.size(L),
        problem.space.points.shape[1],
        (heads, tails),
        alpha,
    )
    return Found(*found, problem.note, maximises=True)
