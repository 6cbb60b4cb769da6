"""Relevant component analysis: whitening by the covariance within chunklets.

Of n points x_i (n, d), N lie in chunklets of two or more. With m_i the mean of the chunklet of x_i,
m the mean of all points, d features that vary, and 0 <= ρ < 1 the shrinkage:

(1) within    C = 1/N Σ_i (x_i − m_i)(x_i − m_i)ᵀ  over the points in chunklets  [thesis, eq. 2.23]
(2) total     T = 1/n Σ_i (x_i − m)(x_i − m)ᵀ      over all points
(3) minimise  f(B) = N (⟨C_ρ, B⟩ − log det B)  over B ≻ 0,                             [JMLR05]
    with      C_ρ = (1 − ρ) C + ρ τ I,  τ = tr C / d
(4) answer    B = C_ρ⁻¹ = LᵀL, where f = N (d + log det C_ρ)
(5) relevant  C_ρ v = λ T v with vᵀTv = 1, λ ascending: the share of the variance within chunklets
(6) map       L = Λ_r^(−1/2) V_rᵀ  of the r first v; all of them give (4)
(7) bound     f(LᵀL) − min f(LᵀSL) over S ≻ 0 = N (tr W − log det W − r)  with W = L C_ρ Lᵀ

Points may have weights, by which their squares, and they themselves in means and in N and n, are
multiplied: a point of weight 2 counts as two.

Up to constants and a factor 2, f is the negative log-likelihood of chunklets that are normal with a
common covariance B⁻¹ and individual means. For r < d, det B is the determinant on the row space of
L, and so is (7). Without reduction T is not needed: eigenvectors of C give (4) directly.

For ρ = 0 and points that do not vary in every direction, for fewer rows, and on principal
directions, (3) is restricted to metrics on a subspace with the coordinates u = basisᵀ x. Then d is
still the number of features; on principal directions, it is their number. For ρ > 0 and all rows, B
also keeps the inputs' distance in directions in which no point of a chunklet differs.

Costs: O(n d² + d³) time and O(n d + d²) memory; on a subspace, for d > n, n² d and n d.

[thesis] Weinberger, Metric learning with convex optimization, 2007.
[JMLR05] Bar-Hillel, Hertz, Shental & Weinshall, Learning a Mahalanobis metric from equivalence
constraints, JMLR 6 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array, kernels_for
from nearfar.linalg import canonical_factor, null_tolerance, signed, symmetric
from nearfar.problems.whitening import varying

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

RANK_TOLERANCE = 1e-13  # variance, relative to the largest, below which a direction is dropped
SAMPLE_ROWS = 1000  # enough to estimate how far features are from 0
FAR = 2.0**10  # a feature this many times its spread away from 0 is shifted first
RATIO_TOLERANCE = 1e-10  # share of the variance that counts as zero: above the rounding of (5)


@dataclass(frozen=True)
class RCAProblem:
    """(3) in coordinates u = basisᵀ x, x = dual u."""

    C: Matrix  # (s, s) C_ρ
    count: float  # N
    T: Matrix | None = None  # (s, s) of (2), near I; None in the coordinates of the features
    basis: Matrix | None = None  # (d, s); None for the features themselves
    dual: Matrix | None = None  # (d, s)
    shrinkage: float = 0.0  # ρ
    ridge: float = 0.0  # ρ τ of (3)

    @classmethod
    def in_features(
        cls,
        kernels: ModuleType,
        points: Array,
        rows: Index,
        codes: Index,
        weights: Matrix | None = None,
        live: NDArray[np.bool_] | None = None,
    ) -> RCAProblem:
        """The problem with C only, in the coordinates of the features that vary.

        ``rows`` (N,) are the points in chunklets and ``codes`` (N,) their chunklet numbers.
        ``weights`` (n,) are those of all points, or None for ones, and ``live`` the features that
        vary, if they are known.
        """
        C = _within(kernels, points, rows, codes, weights)
        live = varying(kernels, points) if live is None else live
        count = float(len(rows) if weights is None else weights[rows].sum())
        return cls.of_covariance(C, count, live)

    @classmethod
    def of_covariance(cls, C: Matrix, count: float, live: NDArray[np.bool_]) -> RCAProblem:
        """The problem of C of all features, N, and the features that vary."""
        if live.all():
            return cls(C, count)
        basis = np.eye(len(live))[:, live]
        return cls(C[np.ix_(live, live)], count, None, basis, basis)

    @classmethod
    def in_span(
        cls,
        kernels: ModuleType,
        points: Array,
        rows: Index,
        codes: Index,
        principal: float | None = None,
        *,
        orthogonal: bool = False,
        weights: Matrix | None = None,
    ) -> RCAProblem:
        """The problem in whitened coordinates of the span of centred points, in any units.

        ``principal`` restricts it to the leading principal directions: their number or, if it is
        below 1, the least share of the variance that they carry. ``orthogonal`` is for shrinkage:
        metrics have no weight orthogonal to the span, whatever the units of the features.
        """
        plain = principal is not None or orthogonal
        scale = np.ones(points.shape[1]) if plain else _scales(kernels, points)
        heavy = points
        if weights is not None:
            heavy = points * kernels.like(np.sqrt(weights / weights.mean()), points)[:, None]
        basis, dual = _white_coordinates(kernels, heavy, scale, principal)
        U = kernels.apply(points, basis.T)
        if weights is None:
            T = symmetric(kernels.gram(U, U)) / len(points)
            return cls(_within(kernels, U, rows, codes), len(rows), T, basis, dual)
        V = kernels.apply(heavy, basis.T)
        T = symmetric(kernels.gram(V, V)) / len(points)
        C = _within(kernels, U, rows, codes, weights)
        return cls(C, float(weights[rows].sum()), T, basis, dual)

    def shrunk(self, shrinkage: float, d: int) -> RCAProblem:
        """The same with ρ = shrinkage, for the d of (3)."""
        if self.basis is None or self.dual is None:
            total, unit = np.trace(self.C), np.eye(len(self.C))
        else:
            total, unit = np.vdot(self.dual.T @ self.dual, self.C), self.basis.T @ self.basis
        ridge = shrinkage * float(total) / d
        C = (1 - shrinkage) * self.C + ridge * unit
        return replace(self, C=C, shrinkage=shrinkage, ridge=ridge)

    @cached_property
    def _directions(self) -> tuple[Matrix, Matrix]:
        """λ and V of (5); eigenvalues and eigenvectors of C where there is no T."""
        if self.T is None:
            values, vectors = linalg.eigh(self.C, driver="evd")
        else:
            values, vectors = linalg.eigh(self.C, self.T)
        return values, vectors

    @property
    def n_flat(self) -> int:
        """Number of directions in which the points vary, but not within chunklets."""
        values = self._directions[0]
        tolerance = null_tolerance(values) if self.T is None else RATIO_TOLERANCE
        return int((values <= tolerance).sum())

    @property
    def rank(self) -> int:
        """Number of directions in which the points vary."""
        return len(self.C)

    def solution(self, n_components: int | None = None) -> Matrix:
        """The canonical L of (6), (r, d)."""
        values, vectors = self._directions
        rows = (vectors / np.sqrt(values)).T[:n_components]
        found = rows if self.basis is None else rows @ self.basis.T
        # Eigenvectors of C are orthogonal already, and the longest come first.
        return signed(found) if self.T is None else canonical_factor(found)

    def objective_and_gap(self, L: Matrix, W: Matrix | None = None) -> tuple[float, float]:
        """(3) at LᵀL, and (7) relative to it, or to 1 if that is larger.

        ``W`` of (7), (r, r), is L C_ρ Lᵀ, or what `within_images` finds in the data.
        """
        if W is None:
            rows = L if self.dual is None else L @ self.dual
            W = rows @ self.C @ rows.T
        volume = log_det_of_rows(L)
        objective = self.count * (np.trace(W) - volume)
        excess = self.count * (np.trace(W) - np.linalg.slogdet(W)[1] - len(W))
        return float(objective), float(max(excess, 0.0) / max(abs(objective), 1.0))

    def within_images(
        self,
        kernels: ModuleType,
        points: Array,
        rows: Index,
        codes: Index,
        L: Matrix,
        weights: Matrix | None = None,
    ) -> Matrix:
        """W of (7) from the images of centred points under L."""
        return self.shrunk_images(
            _within(kernels, kernels.apply(points, L), rows, codes, weights), L
        )

    def shrunk_images(self, W: Matrix, L: Matrix) -> Matrix:
        """L C_ρ Lᵀ from W = L C Lᵀ."""
        if self.ridge:
            W = (1 - self.shrinkage) * W + self.ridge * (L @ L.T)
        return W


@dataclass(frozen=True)
class ChunkletPoints:
    """Points in memory and their chunklets."""

    points: Array
    rows: Index  # (N,) the points in chunklets
    codes: Index  # (N,) their chunklet numbers
    weights: Matrix | None  # (n,) of all points

    @property
    def count(self) -> float:
        """N, the weight of the points in chunklets."""
        return float(len(self.rows) if self.weights is None else self.weights[self.rows].sum())

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Which features vary."""
        return varying(kernels_for(self.points), self.points)

    @property
    def n_live(self) -> int:
        """Number of features that vary."""
        return int(self.live.sum())

    def in_features(self) -> RCAProblem:
        """As `RCAProblem.in_features`."""
        kernels = kernels_for(self.points)
        return RCAProblem.in_features(
            kernels, self.points, self.rows, self.codes, self.weights, self.live
        )

    def in_span(self, principal: float | None, *, orthogonal: bool) -> RCAProblem:
        """As `RCAProblem.in_span`, of points about their mean."""
        return RCAProblem.in_span(
            kernels_for(self.points),
            self._centred(),
            self.rows,
            self.codes,
            principal,
            orthogonal=orthogonal,
            weights=self.weights,
        )

    def within_images(self, problem: RCAProblem, L: Matrix) -> Matrix:
        """As `RCAProblem.within_images`."""
        return problem.within_images(
            kernels_for(self.points), self._centred(), self.rows, self.codes, L, self.weights
        )

    def _centred(self) -> Array:
        """The points about their mean, in float64."""
        kernels = kernels_for(self.points)
        X = kernels.double(self.points)
        if self.weights is None:
            return X - X.mean(0)
        w = kernels.like(self.weights / self.weights.sum(), X)[:, None]
        return X - (w * X).sum(0)


def log_det_of_rows(L: Matrix) -> float:
    """log det LLᵀ, accurate even if the columns of L, the units of features, differ enormously.

    The errors of a pivoted Householder QR of rows in decreasing order are relative to each row.
    """
    order = np.argsort(-np.abs(L).max(axis=0))
    triangle, _ = linalg.qr(L[:, order].T, mode="r", pivoting=True)
    return float(2 * np.log(np.abs(np.diag(triangle))).sum())


def _white_coordinates(
    kernels: ModuleType, points: Array, scale: Matrix, wanted: float | None
) -> tuple[Matrix, Matrix]:
    """Basis (d, s) of coordinates in which the points are white, and its dual.

    Coordinates are along eigenvectors of the covariance of points / scale, largest variance first:
    all, or the given number, or those that carry a given share (below 1) of the variance.
    """
    n, d = points.shape
    unit = points / kernels.like(scale, points)
    scatter = kernels.gram(unit, unit) if d <= n else kernels.gram(unit.T, unit.T)
    lengths, vectors = leading_directions(symmetric(scatter) / n, wanted)
    if d > n:  # eigenvectors of unitᵀunit from those of unit unitᵀ
        lift = vectors / (lengths * np.sqrt(n))
        vectors = kernels.gram(unit, kernels.like(lift, unit))
    varies = kernels.to_host(abs(points).sum(0)) > 0
    vectors = np.where(varies[:, None], vectors, 0.0)
    return vectors / lengths / scale[:, None], vectors * lengths * scale[:, None]


def leading_directions(covariance: Matrix, wanted: float | None) -> tuple[Matrix, Matrix]:
    """Deviations (k,), largest first, along eigenvectors (d, k): all, so many, or of a share."""
    values, vectors = linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = int((values > RANK_TOLERANCE * values.max(initial=0.0)).sum())
    if wanted is not None and wanted < 1:
        carried = np.cumsum(values[:kept])
        wanted = 1 + int(np.searchsorted(carried, wanted * carried[-1])) if kept else 0
    kept = kept if wanted is None else min(kept, int(wanted))
    return np.sqrt(values[:kept]), vectors[:, :kept]


def near_origin(kernels: ModuleType, X: Array) -> Array:
    """X, or X minus its first point in float64 if a feature is far from 0 relative to its spread.

    A mean m has a rounding error of ε|m|; its square would add to the variances of (1) and (2).
    """
    few = X[:: -(-len(X) // SAMPLE_ROWS)]
    spread = abs(few - X[:1]).mean(0)
    if not bool(((abs(X[0]) / FAR > spread) & (spread > 0)).any()):
        return X
    return kernels.double(X) - kernels.double(X[:1])


def _scales(kernels: ModuleType, points: Array) -> Matrix:
    """Standard deviations of the features of centred points, 1 where they are constant."""
    deviations = deviations_of(kernels, points)
    return np.where(deviations > 0, deviations, 1.0)


def deviations_of(kernels: ModuleType, points: Array) -> Matrix:
    """Roots of the diagonal of (2), for centred points.

    In units of each feature: squares of 1e-160 have lost all but a few bits, or are zero.
    """
    units = abs(points).mean(0)
    scaled = points / (units + (units == 0))
    deviations: Matrix = kernels.to_host(units * (scaled * scaled).mean(0) ** 0.5)
    return deviations


def _within(
    kernels: ModuleType,
    points: Array,
    rows: Index,
    codes: Index,
    weights: Matrix | None = None,
) -> Matrix:
    """C of (1)."""
    order = np.argsort(codes, kind="stable")
    by_chunklet = kernels.index(rows[order], points)
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))])
    if weights is None:
        return symmetric(kernels.group_scatter(points, by_chunklet, starts)) / len(rows)
    # Relative to a point of their chunklet, equal points have no spread; nor do sums of zeros.
    w, sizes = weights[rows[order]], np.diff(starts)
    first = by_chunklet[kernels.index(np.repeat(starts[:-1], sizes), points)]
    members = kernels.double(points[by_chunklet]) - kernels.double(points[first])
    reached = (members * kernels.like(w, members)[:, None]).cumsum(0)
    ends, total = kernels.index(starts[1:] - 1, points), np.add.reduceat(w, starts[:-1])
    sums = reached[ends]
    sums[1:] = sums[1:] - reached[ends[:-1]]
    means = sums / kernels.like(total, members)[:, None]
    members = members - means[kernels.index(np.repeat(np.arange(len(sizes)), sizes), points)]
    members = members * kernels.like(np.sqrt(w), members)[:, None]
    return symmetric(kernels.gram(members, members)) / float(w.sum())
