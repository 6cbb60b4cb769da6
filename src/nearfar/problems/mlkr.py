"""Metric learning for kernel regression: the leave-one-out error of a Gaussian kernel.

Points u_i (n, s) in white coordinates with targets y_i, a map L (r, s), D(i, j) = ‖L(u_i − u_j)‖²:

(1) weights    p_ij = exp(−D(i, j)) / Σ_{l≠i} exp(−D(i, l)),  j ≠ i             [WT07]
(2) estimate   ŷ_i = Σ_j p_ij y_j                                               [WT07]
(3) minimise   f(L) = Σ_i (ŷ_i − y_i)²                                          [WT07]
(4) gradient   ∂f/∂L = 2 L Σ_ij w_ij (u_i − u_j)(u_i − u_j)ᵀ
               with w_ij = 2 (ŷ_i − y_i)(ŷ_i − y_j) p_ij                        [WT07]
(5) sums       ∂f/∂L = 2 L (Uᵀ diag(c) U − UᵀWU − UᵀWᵀU)  with c_j = Σ_i w_ij
               WU = diag(a) PU − diag(b) P diag(y) U,  c = Pᵀa − y ∘ Pᵀb
               with b = 2 (ŷ − y), a = b ∘ ŷ

The rows of W sum to zero, since Σ_j p_ij (ŷ_i − y_j) = 0. f is not convex: a descent ends in a
local optimum, and there is no bound. Targets are centred and divided by their deviation, so that f
is about n for the mean of all targets; the objective that is reported is in units of y.

Costs: O(n² (r + s)) time, in blocks, and O(n s) memory.

[WT07] Weinberger & Tesauro, Metric learning for kernel regression, AISTATS 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import canonical_factor, symmetric
from nearfar.problems.covariance import CovarianceProblem

Matrix = NDArray[np.float64]

WIDTHS = (1.0, 3.0, 10.0, 30.0, 100.0)  # mean of D between points that a first guess tries
NARROWER = 3.0  # times the best of these: a descent from narrow kernels ends lower
LIFT = 4.0  # length of the direction of linear regression beside the others


@dataclass(frozen=True)
class Point:
    """A map L, the value of (3) there, and its gradient."""

    L: Matrix
    value: float
    gradient: Matrix


@dataclass(frozen=True)
class MLKRProblem:
    """(3) for points in white coordinates and standardised targets."""

    kernels: ModuleType
    U: Array  # (n, s), in the dtype of the points
    targets: Matrix  # (n,), of mean 0 and deviation 1
    unit: float  # the deviation of the targets
    white: Matrix  # (s, d)
    dual: Matrix  # (d, s)
    exact: Array  # (n, d) the centred points, in float64

    @classmethod
    def build(cls, kernels: ModuleType, points: Array, targets: Matrix) -> MLKRProblem:
        """The problem of points (n, d), some of which differ, and targets (n,) that differ."""
        white = CovarianceProblem.build(kernels, points)
        centred = kernels.double(points)
        centred = centred - centred.mean(0)
        U = kernels.apply(centred, white.white)
        single = str(points.dtype).endswith("float32")
        unit = float(targets.std())
        return cls(
            kernels,
            kernels.single(U) if single else U,
            (targets - targets.mean()) / unit,
            unit,
            white.white,
            white.dual,
            centred,
        )

    def components(self, L: Matrix) -> Matrix:
        """The canonical map on the features."""
        return canonical_factor(L @ self.white)

    def factor(self, components: Matrix) -> Matrix:
        """The map on white coordinates of a map on the features."""
        return np.asarray(components @ self.dual)

    def first_guess(self, rows: int | None) -> Matrix:
        """The direction of linear regression first, then those of largest variance.

        The width is somewhat less than that of the least error among some.
        """
        s = len(self.white)
        slope = self.kernels.gram(self.U, self._column(self.targets))[:, 0]
        turned = linalg.qr(np.column_stack([slope, np.eye(s)]), mode="economic")[0].T[:rows].copy()
        turned[0] *= LIFT
        turned /= np.sqrt(2 * (turned**2).sum())  # random white points have a mean D of 1
        errors = [(self._residuals(self.U, np.sqrt(w) * turned) ** 2).sum() for w in WIDTHS]
        width = NARROWER * WIDTHS[int(np.argmin(errors))]
        return np.asarray(np.sqrt(width) * turned)

    def evaluate(self, L: Matrix) -> Point:
        """(3) and (5)."""
        kernels, U, y = self.kernels, self.U, self.targets
        Z, everyone = kernels.apply(U, L), np.array([0, len(y)])
        moments = kernels.concatenate([U.T, (self._column(y) * U).T, self._column(y).T]).T
        products = kernels.softmax_neighbors(Z, moments, everyone)[3]
        s = U.shape[1]
        estimates = self._host(products[:, 2 * s])  # (2)
        b = 2 * (estimates - y)
        a = b * estimates
        columns = self._columns(a, b)
        backward = self._host(kernels.softmax_neighbors(Z, columns, everyone, both=True)[4])
        c = backward[:, 0] - y * backward[:, 1]
        WU = self._column(a) * products[:, :s] - self._column(b) * products[:, s : 2 * s]
        across = kernels.gram(U, WU)
        spread = symmetric(kernels.gram(U, self._column(c) * U)) - across - across.T  # (5)
        return Point(L, float(((estimates - y) ** 2).sum()), 2 * L @ spread)

    def objective(self, components: Matrix) -> float:
        """(3) of a map on the features, in float64 and in units of the targets."""
        residuals = self._residuals(self.exact, components)
        return float((residuals**2).sum() * self.unit**2)

    def _residuals(self, points: Array, L: Matrix) -> Matrix:
        """ŷ − y under a map of the points."""
        kernels = self.kernels
        Z = kernels.apply(points, L)
        column = kernels.like(self.targets[:, None], Z)
        found = kernels.softmax_neighbors(Z, column, np.array([0, len(self.targets)]))[3]
        return self._host(found)[:, 0] - self.targets

    def _columns(self, *vectors: Matrix) -> Array:
        return self.kernels.like(np.column_stack(vectors), self.U)

    def _column(self, vector: Matrix) -> Array:
        return self._columns(vector)

    def _host(self, x: Array) -> Matrix:
        return np.asarray(self.kernels.to_host(x), dtype=np.float64)
