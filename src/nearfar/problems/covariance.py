"""The Mahalanobis distance: whitening by the covariance of all points.

For n points x_i (n, d) with mean m:

(1) covariance  C = 1/(n − 1) Σ_i (x_i − m)(x_i − m)ᵀ                    [1936]
(2) minimise    f(A) = ⟨C, A⟩ − log det A  over A ≻ 0 on the span of the x_i − m
(3) answer      A = C⁺ = LᵀL, the pseudo-inverse, where f = s + log det C on the span, of rank s
(4) map         L = λ^(−1/2) Vᵀ B⁻¹  with B⁻¹ C B⁻¹ = V λ Vᵀ, B the standard deviations
(5) bound       f(LᵀL) − min f = tr W − log det W − s  with W = L C Lᵀ

f is twice minus the mean log-likelihood of normal points with the covariance A⁻¹, but for a
constant and for n − 1 in place of n. Determinants are on the span, in an orthonormal basis of it.

If C is well-conditioned, B is the identity, and one eigendecomposition is all. Otherwise the rank
is found in units of the features' deviations, so that a feature in small units is not lost. Where
features depend on each other, these units would change what is orthogonal to the span, and C⁺ is
taken in an orthonormal basis of the span instead. Means that are small beside the deviations are
subtracted from the products, Σ_i x_i x_iᵀ − n m mᵀ, others from the points:

(6) span        x − m = Q u with QᵀQ = I

Costs: O(n d² + d³) time and O(n d + d²) memory; for d > n both d² and d³ become n d and n² d.

[1936] Mahalanobis, On the generalised distance in statistics, 1936.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import canonical_regular_factor, eigh, signed, symmetric

Matrix = NDArray[np.float64]

CONDITION = 1e-7  # smallest over largest eigenvalue of C that need no unit features
NEAR = 0.5  # share of the squares of a feature that are those of its mean, at most
SAMPLE_ROWS = 500  # that tell whether they may be
LARGEST = 1e100  # entry of these, so that no square leaves the range of float64
RANK_TOLERANCE = 1e-13  # variance, relative to the largest of unit features, that is rounding


@dataclass(frozen=True)
class CovarianceProblem:
    """(2), by the eigenvalues and eigenvectors of (4)."""

    scales: Matrix  # (d,) the diagonal of B
    values: Matrix  # (s,) λ, descending
    vectors: Matrix  # (d, s) V

    @classmethod
    def build(
        cls,
        kernels: ModuleType,
        points: Array,
        weights: Matrix | None = None,
        *,
        unit_features: bool = False,
    ) -> CovarianceProblem:
        """The problem of points (n, d) of which some differ; see `of_covariance`.

        With weights of the points, C is about their weighted mean, and their sum stands for n − 1.
        """
        n, d = points.shape
        if weights is None and d <= n and _near_origin(kernels, points):
            exact = kernels.double(points)
            mean = kernels.to_host(exact.mean(0))
            products = symmetric(kernels.gram(exact, exact))
            if (n * mean**2 <= NEAR * np.diag(products)).all():  # no digit is lost
                C = (products - n * np.outer(mean, mean)) / (n - 1)  # (1), without a copy of points
                return cls.of_covariance(C, unit_features=unit_features)
        # Relative to one of the points, features that do not vary are zero, and so is their mean.
        centred, total = kernels.double(points) - kernels.double(points[:1]), n - 1.0
        if weights is None:
            centred -= centred.mean(0)
        else:
            total = float(weights.sum())
            w = kernels.like(weights, centred)[:, None]
            centred = (centred - (w * centred).sum(0) / total) * w**0.5
        if d <= n:
            C = symmetric(kernels.gram(centred, centred)) / total  # (1)
            return cls.of_covariance(C, unit_features=unit_features)
        variances = kernels.to_host((centred * centred).sum(0)) / total
        scales = np.sqrt(np.where(variances > 0, variances, 1.0))
        unit = centred / kernels.like(scales, centred)
        values, vectors = _kept(*eigh(symmetric(kernels.gram(unit.T, unit.T)) / total))
        lift = vectors / np.sqrt(values * total)
        vectors = kernels.gram(unit, kernels.like(lift, unit))  # of unitᵀunit from unit unitᵀ
        return cls(scales, values, np.where((variances > 0)[:, None], vectors, 0.0))

    @classmethod
    def of_covariance(cls, C: Matrix, *, unit_features: bool = False) -> CovarianceProblem:
        """The problem of (1), with unit features where C needs them, or whatever C is.

        With them, λ and V do not depend on the units of features.
        """
        variances = np.diag(C)
        if not unit_features and variances.min() > CONDITION * variances.max():
            values, vectors = eigh(C, driver="evd")
            if values[0] > CONDITION * values[-1]:
                return cls(np.ones(len(C)), values[::-1], vectors[:, ::-1])
        scales = np.sqrt(np.where(variances > 0, variances, 1.0))
        values, vectors = _kept(*eigh(C / scales / scales[:, None], driver="evd"))
        return cls(scales, values, np.where((variances > 0)[:, None], vectors, 0.0))

    @property
    def rank(self) -> int:
        """Directions in which the points vary."""
        return len(self.values)

    @property
    def white(self) -> Matrix:
        """A map (s, d) under which the points have the covariance I."""
        return np.asarray((self.vectors / np.sqrt(self.values)).T / self.scales)

    @property
    def dual(self) -> Matrix:
        """The map (d, s) back to the points, relative to their mean."""
        return np.asarray(self.vectors * np.sqrt(self.values) * self.scales[:, None])

    def solution(self) -> Matrix:
        """The canonical L of (4), (s, d), its rows on the span."""
        if (self.scales == 1).all():  # rows are orthogonal, the longest last
            return signed(self.white[::-1])
        if self.rank == np.count_nonzero(self.vectors.any(axis=1)):  # the span of some features
            return canonical_regular_factor(self.white)  # (4)
        # C⁺ of C = GGᵀ with G (d, s) is KᵀK with K = G⁺; a QR of G by columns of large units.
        G = self.dual
        order = np.argsort(-np.abs(G).max(axis=1), kind="stable")
        Q, R = linalg.qr(G[order], mode="economic")  # (6)
        K = np.zeros((self.rank, len(G)))
        K[:, order] = linalg.solve_triangular(R, Q.T)
        return canonical_regular_factor(K)

    def objective_and_gap(self, L: Matrix) -> tuple[float, float]:
        """(2) at LᵀL, and (5) relative to it, or to 1 if that is larger."""
        rows = L @ self.dual
        trace = float(np.vdot(rows, rows))
        if len(L) == L.shape[1]:
            volume = 2 * np.linalg.slogdet(L)[1]
            spread = volume + np.log(self.values).sum() + 2 * np.log(self.scales).sum()
        else:
            volume = 2 * np.log(np.abs(np.diag(linalg.qr(L.T, mode="r", pivoting=True)[0]))).sum()
            spread = np.linalg.slogdet(symmetric(rows @ rows.T))[1]
        objective, excess = trace - volume, trace - spread - len(L)
        return float(objective), float(max(excess, 0.0) / max(abs(objective), 1.0))


def _near_origin(kernels: ModuleType, points: Array) -> bool:
    """Whether no mean of a feature is large beside its deviation, by some of the points."""
    few = kernels.double(points[:: -(-len(points) // SAMPLE_ROWS)])
    if not float(abs(few).max()) < LARGEST:
        return False
    return bool(((few.mean(0)) ** 2 <= 0.8 * NEAR * (few * few).mean(0)).all())


def _kept(values: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues that are no rounding errors, descending, and their vectors."""
    kept = values > RANK_TOLERANCE * max(values[-1], 0.0)
    return values[kept][::-1], vectors[:, kept][:, ::-1]
