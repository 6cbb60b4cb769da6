"""Neighbourhood components analysis: maximise the expected number of correctly classified points.

With the soft neighbours p(j|i), shares pᵢ and spread S of `nearfar.problems.soft_neighbors`:

(1) maximise  f(L) = Σᵢ pᵢ,  pᵢ = Σ p(j|i) over the others of i's class         [GRHS04, eqs. 1-3]
(2) gradient  ∂f/∂L = −2 L S(w) with w_ij = p(j|i) ([yᵢ = yⱼ] − pᵢ)                [GRHS04, eq. 5]
(3) diagonal  L = diag(s):  ∂f/∂s_k = −2 s_k S(w)_kk
(4) shrinkage maximise Σᵢ pᵢ − λ tr A  with p of the metric φI + A, A = LᵀL, and λ and φ of (5) of
              `nearfar.problems.soft_neighbors`, but T = Σᵢ mᵢ times the mean of ‖xᵢ − xⱼ‖² over the
              NEAREST nearest j of i's class that differ: (1) needs near neighbours, not all of them
(5) weights   maximise Σᵢ mᵢ pᵢ  with p(j|i) ∝ m_j exp(−D(i, j)) and mᵢ of mean 1

f is not concave: a descent ends in a local optimum, and there is no bound. It starts with a mean D
of at least APART between random points: if they were nearer, only the means of the classes would
matter, not which points are neighbours. (1) does not depend on the coordinates, so L may act on
whitened points; (3) needs the features themselves, each divided by its standard deviation.

[GRHS04] Goldberger, Roweis, Hinton & Salakhutdinov, Neighbourhood components analysis, NIPS 2004.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for
from nearfar.problems.soft_neighbors import (
    LEAST,
    OPENING,
    Point,
    SoftNeighborsProblem,
    counted_masses,
    within_classes,
)
from nearfar.problems.whitening import returned_weights

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

NEAREST = 3  # of the class, whose distances are the unit of shrinkage
APART = 5.0  # least mean of D between random points under the first guess


def nearest_squares(points: Array, starts: Index, masses: Matrix | None) -> float:
    """T of (4). A repeated point is one point that counts more."""
    kernels, total = kernels_for(points), 0.0
    weights = np.ones(len(points)) if masses is None else masses
    for first, last in pairwise(starts.tolist()):
        mates = kernels.to_host(points[first:last])
        different, which = np.unique(mates, axis=0, return_inverse=True)
        if len(different) > 1:
            there = kernels.like(different, points)
            squares = kernels.nearest(there, there, min(NEAREST + 1, len(different)))[1]
            means = kernels.to_host(squares)[:, 1:].mean(axis=1)  # the first is the point itself
            total += float(weights[first:last] @ means[which])
    return total


class NCAProblem(SoftNeighborsProblem):
    """Equations (1), (2), (4) and (5) for points sorted by class; minus (4) is minimised."""

    def objective(self, components: Matrix) -> float:
        """(4) of a map on the features, that of φI + A, in float64."""
        shares = self.soft_neighbors_of(components)[2]
        trace = self.trace(components) - float(self.floor.sum())
        return float(shares @ self.counted) - self.regularization * trace

    @classmethod
    def near_squares(cls, points: Array, starts: Index, masses: Matrix | None) -> float:
        """T of (4)."""
        return nearest_squares(points, starts, masses)

    def first_guess(self, rows: int | None = None) -> Matrix:
        """The Gaussian guess, lengthened if points are too near each other."""
        return lengthened(self, super().first_guess(rows))

    def evaluate(self, L: Matrix, U: Array | None = None) -> Point:
        """Minus (4), and its gradient."""
        sums, LR = self.sums(L, U, own=True), self._priced(L)
        value = float(np.vdot(LR, L)) - float(sums.shares @ self.counted)  # (4), (5)
        return Point(L, value, 2 * (sums.product + LR))  # (2)

    def _priced(self, L: Matrix) -> Matrix:
        """λ L BᵀB, half the gradient of the price λ tr A."""
        return L @ self.ridge


class DiagonalNCAProblem(NCAProblem):
    """Equations (1) and (3): a weight for each feature, L is the vector s."""

    @classmethod
    def build(
        cls,
        X: Array,
        centre: Array,
        starts: Index,
        regularization: float = 0.0,
        floor: Matrix | None = None,
        masses: Matrix | None = None,
    ) -> Self:
        """Divide the features of X by their standard deviations; constant features become zero.

        A price on the trace adds to the variances, so that a feature that hardly varies, whose
        weight would cost a lot, is not stretched.
        """
        kernels = kernels_for(X)
        points = kernels.double(X) - centre
        variance = kernels.to_host((points * points).mean(0))
        deviation = np.sqrt(variance + (variance > 0) * regularization / len(X))
        inverse = np.divide(1.0, deviation, where=deviation > 0, out=np.zeros(len(deviation)))
        U = points * kernels.like(inverse, points)
        within = within_classes(U, starts, masses)
        total = kernels.to_host(U.sum(0))
        ridge = regularization * np.diag(inverse**2)
        return cls(
            U=kernels.single(U) if str(X.dtype).endswith("float32") else U,
            starts=starts,
            basis=np.diag(inverse),
            dual_basis=np.diag(deviation),
            P=kernels.gram(within, within) + ridge,
            ridge=ridge,
            Q=2
            * float(counted_masses(starts, masses).sum())
            / len(X)
            * (kernels.gram(U, U) - np.outer(total, total) / len(X)),
            regularization=regularization,
            floor=np.zeros(X.shape[1]) if floor is None else floor,
            masses=masses,
            exact=lambda: U,
            images=lambda components: kernels.apply(kernels.double(X) - centre, components),
        )

    def factor(self, components: Matrix) -> Matrix:
        """The weights on U of a metric on the features: its diagonal alone."""
        s: Matrix = np.sqrt((components**2).sum(axis=0)) * np.diag(self.dual_basis)
        return s

    def components(self, L: Matrix) -> Matrix:
        """The map on the features of weights on U."""
        return np.diag(np.abs(L) * np.diag(self.basis))

    def returned(self, L: Matrix) -> Matrix:
        """The map that a fit returns: one row per feature, by decreasing weight, without zeros."""
        weights = np.sqrt((L * np.diag(self.basis)) ** 2 + self.floor)
        return returned_weights(weights, weights * np.diag(self.dual_basis), self.U)

    def above_floor(self, components: Matrix) -> Matrix:
        """A map of A for one of φI + A, of which the diagonals alone count."""
        squares = (components**2).sum(axis=0) - self.floor
        return np.diag(np.sqrt(np.maximum(squares, 0.0)))

    def opened(self, L: Matrix) -> Matrix:
        """Weights near L, none of which is zero: a descent could not change it."""
        return np.where(L == 0, OPENING * self.first_guess(), L)

    def mean_distance(self, L: Matrix) -> float:
        """The mean of D between random points under weights."""
        return super().mean_distance(np.diag(L))

    def first_guess(self, rows: int | None = None) -> Matrix:  # noqa: ARG002 - it has all rows
        """The guess of full metrics, feature by feature."""
        pull, spread = np.diag(self.P), np.diag(self.Q)
        ratio = np.divide(pull, spread, where=spread > 0, out=np.ones(len(pull)))
        floor = np.maximum(pull, spread * LEAST)
        gain = np.maximum(1 - ratio, LEAST) * (spread > 0)
        s = np.sqrt(0.25 * self.counted.sum() * gain / (floor + (spread == 0)))
        return lengthened(self, s)

    def evaluate(self, L: Matrix, U: Array | None = None) -> Point:
        """Minus (4), and its gradient."""
        sums, ridge = self.sums(np.diag(L), U, own=True), np.diag(self.ridge)
        value = float(L**2 @ ridge) - float(sums.shares @ self.counted)
        return Point(L, value, 2 * (np.diag(sums.product) + L * ridge))  # (3)


def lengthened(problem: SoftNeighborsProblem, L: Matrix) -> Matrix:
    """The factor, lengthened until points are far enough apart."""
    distance = problem.mean_distance(L)
    return L * max(1.0, APART / distance) ** 0.5 if distance > 0 else L
