"""A convex loss of squared distances beside the LogDet divergence from a prior.

In coordinates z (s,) in which the prior is I, with edges e between points, v_e the difference of
the points of e, B ≻ 0 a metric, and a convex differentiable loss ℓ >= 0 of the squared lengths:

(1) lengths    q_e = v_eᵀ B v_e
(2) minimise   P(B) = tr B − log det B − s + ℓ(q)  over B ≻ 0
(3) gradient   ∇P = I − B⁻¹ + Σ_e c_e v_e v_eᵀ  with c = ∇ℓ(q)
(4) dual       P >= log det K(c) − ℓ*(c)  for every c with K(c) = I + Σ_e c_e v_e v_eᵀ ≻ 0
(5) body       G = C ∇P Cᵀ = CCᵀ − I + Σ_e c_e (C v_e)(C v_e)ᵀ  for B = CᵀC
(6) gap        P(B) − (4) = tr G − log det(I + G)  for the c of (3), if I + G ≻ 0
(7) curvature  C ∇²P[CᵀSC] Cᵀ = S + Σ_e (∇²ℓ(q) p)_e (C v_e)(C v_e)ᵀ  with p_e = (C v_e)ᵀ S (C v_e)

The dual follows from inf_B tr(BK) − log det B = s + log det K and from ℓ(q) >= ⟨c, q⟩ − ℓ*(c). For
the slopes of ℓ the latter is an equality, and K = C⁻¹(I + G)C⁻ᵀ, which gives the gap. It is
quadratic in the gradient near the optimum. P >= 0, so that the gap is never more than P itself.

Only edges with a slope enter the gradient and, since ℓ is flat elsewhere, the curvature.

With n points, m edges and s coordinates, a value costs O(min(m, n) s² + m s + s³) time and
O(n s + m) memory, and a gradient or a product (7) with k such edges O(min(k, n) s² + k s) and
O(min(k, n) s). A multiple of the prior costs O(m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import minimize_scalar

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array
from nearfar.linalg import canonical_regular_factor, is_identity, symmetric

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

LOGARITHMS = (-650.0, 50.0)  # of the multiples of a prior that a start may be
FEW_EDGES = 3  # times the points: fewer are held as differences, which need no gathering
START_ACCURACY = 0.05  # of such a logarithm


class Loss(Protocol):
    """A convex loss of squared lengths (m,), on the host."""

    @property
    def homogeneous(self) -> bool:
        """Whether ℓ(cq) = c ℓ(q) for c > 0."""

    def value(self, lengths: Matrix) -> float:
        """ℓ(q)."""

    def slopes(self, lengths: Matrix) -> Matrix:
        """∇ℓ(q)."""

    def curvature(self, lengths: Matrix) -> Callable[[Matrix], Matrix]:
        """p → ∇²ℓ(q) p."""


@dataclass(frozen=True)
class LogDetProblem:
    """(2) for edges between points, and a loss."""

    kernels: ModuleType
    points: Array  # (n, s), float64, in coordinates in which the prior is I
    heads: Array  # (m,)
    tails: Array  # (m,)
    loss: Loss
    prior: Matrix  # (s, d) the map to these coordinates
    inverse: Matrix  # (d, s) its pseudo-inverse
    lengths: Matrix  # (m,) squared, under the prior
    differences: Array | None  # (m, s) of the edges, if they are not many more than the points

    @classmethod
    def build(
        cls,
        kernels: ModuleType,
        points: Array,
        edges: tuple[Index, Index],
        prior: Matrix,
        make_loss: Callable[[Matrix], Loss],
    ) -> LogDetProblem:
        """The problem of points (n, d), relative to any centre, and a prior map (s, d).

        ``make_loss`` makes the loss of the squared lengths under the prior.
        """
        plain = is_identity(prior)
        white = points if plain else kernels.apply(points, prior)
        heads, tails = (kernels.index(rows, points) for rows in edges)
        lengths = np.asarray(kernels.to_host(kernels.sq_lengths(white, heads, tails)))
        differences = None
        if len(heads) <= FEW_EDGES * len(white):
            differences = white[heads]
            differences -= white[tails]
        inverse = prior if plain else np.asarray(linalg.pinv(prior))
        loss = make_loss(lengths)
        return cls(kernels, white, heads, tails, loss, prior, inverse, lengths, differences)

    @property
    def start(self) -> Matrix:
        """The factor of the best multiple of the prior, which may be in other units."""
        s, at = len(self.prior), self.lengths

        def value(t: float) -> float:
            return float(s * (np.exp(t) - t) + self.loss.value(np.exp(t) * at))

        # No length may be so short that it is lost: a loss may be infinite at 0.
        least = np.log(np.finfo(float).tiny) - np.log(at.min(initial=np.inf, where=at > 0))
        bounds = max(LOGARITHMS[0], least), LOGARITHMS[1]
        if self.loss.homogeneous:  # s(eᵗ − t) + eᵗ ℓ(q)
            t = float(np.clip(-np.log1p(self.loss.value(at) / s), *bounds))
        else:
            accuracy = {"xatol": START_ACCURACY}
            t = minimize_scalar(value, bounds=bounds, method="bounded", options=accuracy).x
        better = value(t) < value(0.0)
        return np.asarray(np.exp(0.5 * t if better else 0.0) * np.eye(s))

    def place(self, C: Matrix) -> Place:
        """The problem at a factor C (s, s) of B."""
        return Place(self, C)

    def components(self, C: Matrix) -> Matrix:
        """The canonical map (s, d) on the features."""
        return canonical_regular_factor(C @ self.prior)

    def at_map(self, L: Matrix) -> Place:
        """The problem at a map L (s, d) of the features, as it was rounded."""
        return self.place(L @ self.inverse)

    def objective_and_gap(self, L: Matrix) -> tuple[float, float]:
        """(2) and (6) at a map of the features."""
        at = self.at_map(L)
        if not np.isfinite(at.value):
            raise InvalidInputError(
                "the learned metric is singular to rounding: scales are too different, or leave the"
                " range of the type of X. Standardise the features, give X in float64, or a"
                " prior whose eigenvalues are nearer to each other."
            )
        return at.value, at.gap


@dataclass(frozen=True)
class ActiveEdges:
    """Some edges between the images of points.

    Few edges are held as their differences, so that a sum over them does not visit all points.
    """

    kernels: ModuleType
    edges: Index  # (k,) their numbers
    slopes: Matrix  # (k,)
    heads: Array  # (k,)
    tails: Array  # (k,)
    images: Array  # (n, s) of the points; (0, s) if the differences are known
    differences: Array | None  # (k, s), if all edges are held, or these are fewer than the points

    @classmethod
    def of(cls, at: Place) -> ActiveEdges:
        """Those with a slope."""
        problem, slopes = at.problem, at.problem.loss.slopes(at.lengths)
        kernels, edges = problem.kernels, np.flatnonzero(slopes)
        rows = kernels.index(edges, problem.points)
        heads, tails = problem.heads[rows], problem.tails[rows]
        images, differences = problem.points[:0], None
        if problem.differences is not None:
            differences = kernels.apply(problem.differences[rows], at.C)
        elif len(edges) < len(problem.points):
            differences = at.images[heads] - at.images[tails]
        else:
            images = at.images
        return cls(kernels, edges, slopes[edges], heads, tails, images, differences)

    def scatter(self, weights: Matrix) -> Matrix:
        """Σ_e weights_e (C v_e)(C v_e)ᵀ."""
        given = self.kernels.like(weights, self.images)
        if self.differences is not None:
            weighted = given[:, None] * self.differences
            return symmetric(self.kernels.gram(self.differences, weighted))
        product = self.kernels.laplacian_matmul(self.heads, self.tails, given, self.images)
        return symmetric(self.kernels.gram(self.images, product))

    def crossed(self, S: Matrix) -> Matrix:
        """(C v_e)ᵀ S (C v_e) for each edge."""
        if self.differences is not None:
            moved = self.kernels.apply(self.differences, S)
            found = (moved * self.differences).sum(1)
        else:
            moved = self.kernels.apply(self.images, S)
            found, _ = self.kernels.edge_products(self.images, moved, self.heads, self.tails)
        return np.asarray(self.kernels.to_host(found))


@dataclass(frozen=True)
class Place:
    """The problem at a factor C."""

    problem: LogDetProblem
    C: Matrix  # (s, s)

    @cached_property
    def images(self) -> Array:
        """Those of the points (n, s)."""
        return self.problem.kernels.apply(self.problem.points, self.C)

    @cached_property
    def lengths(self) -> Matrix:
        """(1), (m,)."""
        problem, scale = self.problem, float(self.C[0, 0])
        kernels = problem.kernels
        if np.array_equal(self.C, scale * np.eye(len(self.C))):
            return scale**2 * problem.lengths
        if problem.differences is not None:
            found = kernels.image_squares(problem.differences, self.C)
        else:
            found = kernels.sq_lengths(self.images, problem.heads, problem.tails)
        return np.asarray(kernels.to_host(found))

    @cached_property
    def value(self) -> float:
        """(2)."""
        volume = 2 * np.linalg.slogdet(self.C)[1]
        divergence = np.vdot(self.C, self.C) - volume - len(self.C)
        return float(divergence + self.problem.loss.value(self.lengths))

    @cached_property
    def active(self) -> ActiveEdges:
        """The edges with a slope: no other enters the gradient or the curvature."""
        return ActiveEdges.of(self)

    @cached_property
    def gradient(self) -> Matrix:
        """G of (5)."""
        scatter = self.active.scatter(self.active.slopes)
        return symmetric(self.C @ self.C.T) - np.eye(len(self.C)) + scatter

    def product(self) -> Callable[[Matrix], Matrix]:
        """S → (7)."""
        active, curvature = self.active, self.problem.loss.curvature(self.lengths)

        def apply(S: Matrix) -> Matrix:
            crossed = np.zeros(len(self.lengths))
            crossed[active.edges] = active.crossed(S)
            return S + active.scatter(curvature(crossed)[active.edges])

        return apply

    @cached_property
    def gap(self) -> float:
        """(6), relative to P or to 1 if that is larger."""
        values = linalg.eigvalsh(self.gradient)
        excess = self.value
        if values[0] > -1:
            excess = min(excess, float((values - np.log1p(values)).sum()))
        return max(excess, 0.0) / max(self.value, 1.0)

    def moved(self, S: Matrix) -> Place | None:
        """The problem at CᵀC + CᵀSC, or None if that is not positive definite."""
        try:
            factor = linalg.cholesky(np.eye(len(S)) + S)
        except linalg.LinAlgError:
            return None
        return self.problem.place(factor @ self.C)
