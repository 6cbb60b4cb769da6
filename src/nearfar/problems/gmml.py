"""Geometric mean metric learning: a closed form between near and far pairs.

Points x (d,), S near and D far pairs, A ≻ 0 a metric, A₀ ≻ 0 a prior, 0 <= ρ, t <= 1, ρ < 1:

(1) near       S = Σ (x − x')(x − x')ᵀ  over the near pairs                  [ICML16]
(2) far        D = Σ (x − x')(x − x')ᵀ  over the far pairs                   [ICML16]
(3) prior      S_ρ = (1 − ρ) S + ρ (⟨S, A₀⟩ / d) A₀⁻¹,  D_ρ = (1 − ρ) D + ρ (⟨D, A₀⁻¹⟩ / d) A₀
               [ICML16, with other weights]
(4) distance   δ²(P, Q) = Σ log² λ  over the eigenvalues λ of P⁻¹Q            [ICML16]
(5) minimise   h(A) = (1 − t) δ²(A, S_ρ⁻¹) + t δ²(A, D_ρ)                     [ICML16]
(6) answer     A = S_ρ⁻¹ #_t D_ρ = F⁻ᵀ (FᵀD_ρF)^t F⁻¹  with S_ρ = FFᵀ         [ICML16]
(7) optimum    h(A) = t (1 − t) δ²(S_ρ⁻¹, D_ρ)
(8) map        L = σ^t Vᵀ F⁻¹  with RF = UσVᵀ and D_ρ = RᵀR, so that A = LᵀL

For t = ½ the answer is also the minimum of ⟨A, S_ρ⟩ + ⟨A⁻¹, D_ρ⟩, whose gradient
S_ρ − A⁻¹D_ρA⁻¹ vanishes there. No A is below (7): δ is a distance, so that a = δ(A, S_ρ⁻¹) and
b = δ(A, D_ρ) have a + b >= c = δ(S_ρ⁻¹, D_ρ), and (1 − t) a² + t b² >= t (1 − t) c².

Of an A within ε of (6) the excess over (7) follows without the eigenvalues of (5):

(10) excess    h(A) − (7) <= ε² (1 + √2 t (1 − t) c + ε / √2)
(11) distance  δ²(I, P) <= 5/2 (tr P − log det P − d)  if that bracket is at most 1/10

The curvature of the space of metrics under δ is at least −½ [PDM, section 6.1], so that along a
geodesic the second derivative of δ²(·, Q) is at most 2 r coth r with r = δ / √2, and
r coth r <= 1 + r. (11) holds for each eigenvalue eˣ of P, since eˣ − 1 − x >= ½x² (1 − |x| / 3).
With D = F⁻ᵀPF⁻¹ for a P near Vσ²Vᵀ, (6) is within t δ(P, Vσ²Vᵀ) of F⁻ᵀVσ²ᵗVᵀF⁻¹.

Of all pairs of n labelled points, with W_c the scatter of class c about its mean m_c and T that of
all points about m, (1) and (2) need no pairs:

(9) classes    S = Σ_c n_c W_c,  D = n T − S = Σ_c (n − n_c) W_c + n Σ_c n_c (m_c − m)(m_c − m)ᵀ

Where pairs do not differ in all directions and ρ = 0, A is a metric on the span of their
differences; for ρ > 0 on all d features that vary, unless the prior is singular there.

Costs: O(m d²) for m pairs or O(n d²) for labels, then O(d³) time, and O(d²) memory.

[ICML16] Zadeh, Hosseini & Sra, Geometric mean metric learning, ICML 2016.
[PDM] Bhatia, Positive definite matrices, Princeton 2007.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import canonical_regular_factor, eigh, signed, symmetric
from nearfar.supervision import ClassOrder, Pairs

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-10  # squared differences, of features of unit scale, that count as rounding
BLOCK_ROWS = 1 << 16  # pairs whose differences are held at a time
STEADY = 1e-4  # of the eigenvalues of A, which its eigenvectors give with twelve digits
CLOSE = 1e-9  # the bracket of (11) up to which (10) is used
ROUNDINGS = 8  # times d: rounding errors in that bracket, in units of the precision
CONDITION = 1e-8  # smallest over largest eigenvalue that an eigendecomposition resolves well


@dataclass(frozen=True)
class GMMLProblem:
    """(5) on the span of the differences, in coordinates u = basisᵀ x."""

    S: Matrix  # (s, s) of (1), or (3)
    D: Matrix  # (s, s) of (2), or (3)
    t: float
    basis: Matrix | None = None  # (d, s), orthonormal; None for the features themselves

    @classmethod
    def of_scatters(cls, S: Matrix, D: Matrix, t: float, *, whole: bool = False) -> GMMLProblem:
        """The problem of the scatters of near and far pairs, (d, d).

        It is one of metrics on the span of the differences, or if ``whole`` on all features that
        vary.
        """
        total = S + D
        live = np.diag(total) > 0
        if _rank(total, total) == len(total) or (whole and live.all()):
            return cls(S, D, t)
        basis = np.eye(len(live))[:, live] if whole else _span(total)
        return cls(symmetric(basis.T @ S @ basis), symmetric(basis.T @ D @ basis), t, basis)

    def shrunk(self, shrinkage: float, prior: Matrix) -> GMMLProblem:
        """The same with ρ = shrinkage; the prior is (d, d)."""
        A = prior if self.basis is None else symmetric(self.basis.T @ prior @ self.basis)
        inverse = symmetric(linalg.inv(A))
        S = (1 - shrinkage) * self.S + shrinkage * np.vdot(self.S, A) / len(A) * inverse  # (3)
        D = (1 - shrinkage) * self.D + shrinkage * np.vdot(self.D, inverse) / len(A) * A  # (3)
        return replace(self, S=S, D=D)

    @property
    def rank(self) -> int:
        """Directions in which any pairs differ."""
        return len(self.S)

    @cached_property
    def ranks(self) -> tuple[int, int]:
        """Of these, the directions in which near pairs do, and those in which far pairs do."""
        total = self.S + self.D
        return _rank(self.S, total), _rank(self.D, total)

    @cached_property
    def _factors(self) -> tuple[Matrix, Matrix, Matrix, Matrix, Matrix, Matrix]:
        """σ, Vᵀ, F and R of (8), the scales that S and D were divided by, and (RF)ᵀ."""
        scales = np.array([np.trace(self.S), np.trace(self.D)]) / len(self.S)
        F = linalg.cholesky(self.S / scales[0], lower=True)
        R = linalg.cholesky(self.D / scales[1])
        half = linalg.blas.dtrmm(1.0, F, R.T, lower=1, trans_a=1)  # (RF)ᵀ
        square = half @ half.T
        if _may_be_regular(square):
            squares, V = eigh(square, driver="evd")
            if squares[0] > CONDITION * squares[-1]:
                return np.sqrt(squares), V.T, F, R, scales, half
        # Squaring halves the digits; the product of the factors has them all.
        _, values, turn = linalg.svd(half.T)
        return values, turn, F, R, scales, half

    def solution(self) -> Matrix:
        """The canonical L of (8), (s, d)."""
        values, turn, F, _, scales, _ = self._factors
        size = scales[0] ** (self.t - 1) * scales[1] ** self.t  # of A
        L = linalg.solve_triangular(F, turn.T * values**self.t, trans="T", lower=True).T  # (8)
        L = np.sqrt(size) * L
        if self.basis is not None:
            return canonical_regular_factor(L @ self.basis.T)
        squares, vectors = eigh(L.T @ L, driver="evd")
        if squares[0] > STEADY * squares[-1]:  # a rotation of L would cost two more products
            return signed(np.sqrt(squares[::-1, None]) * vectors.T[::-1])
        return canonical_regular_factor(L)

    def objective_and_gap(self, L: Matrix) -> tuple[float, float]:
        """(5) at LᵀL, and what it exceeds (7) by, relative to it or to 1 if that is larger."""
        values, _, F, R, scales, _ = self._factors
        rows = L if self.basis is None else L @ self.basis
        logs = 2 * np.log(values) + np.log(scales).sum()
        optimum = float(self.t * (1 - self.t) * (logs**2).sum())  # (7)
        distance = self._distance_to_answer(rows)
        if distance is not None:
            spread = np.sqrt(2) * self.t * (1 - self.t) * np.linalg.norm(logs)
            excess = float(distance**2 * (1 + spread + distance / np.sqrt(2)))  # (10)
            return optimum + excess, excess / max(optimum + excess, 1.0)
        near = _singular_values(rows @ F) * np.sqrt(scales[0])
        far = np.sqrt(scales[1]) / _singular_values(linalg.solve_triangular(R, rows.T, trans="T"))
        to_near, to_far = ((4 * np.log(part) ** 2).sum() for part in (near, far))  # (4)
        objective = (1 - self.t) * to_near + self.t * to_far  # (5)
        return float(objective), float(max(objective - optimum, 0.0) / max(objective, 1.0))

    def _distance_to_answer(self, rows: Matrix) -> float | None:
        """At least δ of a metric from (6), by (11); None if it is not near that."""
        values, turn, F, R, scales, half = self._factors
        t, d = self.t, len(values)
        logs, triangles = np.log(values).sum(), np.log(np.diag(F) * np.diag(R)).sum()
        eigen = half.T @ (turn.T / values)  # RFVσ⁻¹
        powers = scales[0] ** (0.5 * (1 - t)) * scales[1] ** (-0.5 * t) * values**-t
        mean = linalg.blas.dtrmm(1.0, F, rows.T, lower=1, trans_a=1).T @ (turn.T * powers)
        brackets = np.array(
            [
                np.vdot(mean, mean) - 2 * np.linalg.slogdet(mean)[1],
                np.vdot(eigen, eigen) - 2 * (triangles - logs),
            ]
        )
        brackets = np.maximum(brackets - d, 0.0) + ROUNDINGS * d * np.finfo(float).eps
        if not brackets.max() <= CLOSE:
            return None
        to_mean, to_data = np.sqrt(2.5 * brackets)
        return float(to_mean + t * to_data)


def _may_be_regular(A: Matrix) -> bool:
    """Whether A ⪰ 0 may be better conditioned than CONDITION, in a tenth of the time of `eigh`."""
    factor, info = linalg.lapack.dpotrf(A, lower=1)
    if info:
        return False
    return bool(
        linalg.lapack.dpocon(factor, np.abs(A).sum(axis=0).max(), uplo="L")[0] > CONDITION / 10
    )


def _singular_values(A: Matrix) -> Matrix:
    """Of a square matrix, from its square where that resolves them."""
    squares = linalg.eigvalsh(A @ A.T, driver="evd")
    if squares[0] > CONDITION * squares[-1]:
        return np.asarray(np.sqrt(squares))
    return np.asarray(linalg.svd(A, compute_uv=False))


def scatters_of_pairs(kernels: ModuleType, pairs: Pairs) -> tuple[Matrix, Matrix]:
    """(1) and (2)."""
    if pairs.weights is not None:
        kinds = pairs.near, ~pairs.near
        near, far = (_weighted_scatter(kernels, pairs, kind, pairs.weights[kind]) for kind in kinds)
        return near, far
    near, far = (
        kernels.edge_scatter(pairs.points, *(kernels.index(e, pairs.points) for e in edges))
        for edges in (pairs.near_edges(), pairs.far_edges())
    )
    return symmetric(near), symmetric(far)


def _weighted_scatter(kernels: ModuleType, pairs: Pairs, kind: Mask, weights: Matrix) -> Matrix:
    """Σ w (x − x')(x − x')ᵀ over the pairs of a kind."""
    X, heads, tails = pairs.points, pairs.heads[kind], pairs.tails[kind]
    total = np.zeros((X.shape[1],) * 2)
    for first in range(0, len(heads), BLOCK_ROWS):
        part = slice(first, first + BLOCK_ROWS)
        head, tail = (kernels.double(X[kernels.index(end[part], X)]) for end in (heads, tails))
        rows = (head - tail) * kernels.like(np.sqrt(weights[part]), head)[:, None]
        total += kernels.gram(rows, rows)
    return symmetric(total)


def scatters_of_labels(
    kernels: ModuleType, points: Array, labels: ClassOrder, weights: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """(9): S and D of all pairs, in the time of one covariance.

    With weights of the points, n and n_c are their sums, and scatters are about weighted means.
    """
    n = len(points)
    if weights is not None:
        X = kernels.double(points)
        X = X - X[:1]
        total, near = weights.sum(), np.zeros((X.shape[1],) * 2)
        classes = [np.flatnonzero(labels.codes == code) for code in range(len(labels.classes))]
        for rows in classes:
            near += weights[rows].sum() * _about_mean(kernels, X, rows, weights)
        S = symmetric(near)
        return S, symmetric(total * _about_mean(kernels, X, np.arange(n), weights)) - S
    means, sizes = [], []
    d = points.shape[1]
    S, D = np.zeros((d, d)), np.zeros((d, d))
    for size, rows in classes_by_size(labels):
        # Relative to a point, features that do not vary are zero, and so are their means.
        X = kernels.double(points[kernels.index(rows, points)])
        X -= kernels.double(points[:1])
        X = X.reshape(-1, size, d)
        means.append(X.mean(1))
        sizes += [size] * len(X)
        if size > 1:
            X -= means[-1][:, None]
            X = X.reshape(-1, d)
            scatter = kernels.gram(X, X)
            S += size * scatter
            D += (n - size) * scatter
    means = kernels.concatenate(means)
    w = kernels.like(np.array(sizes, dtype=np.float64), means)[:, None]
    about = (means - (w * means).sum(0) / n) * w**0.5
    return symmetric(S), symmetric(D + n * kernels.gram(about, about))


def classes_by_size(labels: ClassOrder) -> Iterator[tuple[int, Index]]:
    """For each size that classes have, the rows of all classes of it, class by class.

    What is multiplied by sizes of classes, in a sum over rows, then needs few products.
    """
    for size in np.unique(labels.sizes).tolist():
        starts = labels.starts[:-1][labels.sizes == size]
        yield size, labels.order[(starts[:, None] + np.arange(size)).ravel()]


def _about_mean(kernels: ModuleType, X: Array, rows: Index, weights: Matrix) -> Matrix:
    """Σ w (x − m)(x − m)ᵀ of some rows, m being their weighted mean."""
    part, w = X[kernels.index(rows, X)], kernels.like(weights[rows], X)[:, None]
    part = (part - (w * part).sum(0) / w.sum().clip(1e-300, None)) * w**0.5
    scatter: Matrix = kernels.gram(part, part)
    return scatter


def _rank(A: Matrix, total: Matrix) -> int:
    """The rank of A ⪰ 0 by Cholesky's method with pivots, in units of the features' differences."""
    size = np.sqrt(np.diag(total))
    size = np.where(size > 0, size, 1.0)
    scaled = A / size / size[:, None]
    return int(linalg.lapack.dpstrf(scaled, tol=RANK_TOLERANCE, lower=1)[2])


def _span(total: Matrix) -> Matrix:
    """An orthonormal basis (d, s) of the range of a scatter matrix."""
    size = np.sqrt(np.diag(total))
    size = np.where(size > 0, size, 1.0)
    values, vectors = eigh(total / size / size[:, None])
    kept = values > RANK_TOLERANCE * max(values[-1], 0.0)
    rows = size[:, None] * vectors[:, kept]
    order = np.argsort(-np.abs(rows).max(axis=1, initial=0.0), kind="stable")
    basis = np.zeros_like(rows)
    basis[order] = linalg.qr(rows[order], mode="economic", pivoting=True)[0]
    return basis
