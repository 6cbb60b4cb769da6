"""Metric learning for kernel regression: the leave-one-out error of a Gaussian kernel.

Points u_i (n, s) in white coordinates with targets y_i, a map L (r, s), D(i, j) = ‖L(u_i − u_j)‖²:

(1) weights    p_ij = exp(−D(i, j)) / Σ_{l≠i} exp(−D(i, l)),  j ≠ i             [WT07]
(2) estimate   ŷ_i = Σ_j p_ij y_j                                               [WT07]
(3) minimise   f(L) = Σ_i (ŷ_i − y_i)²                                          [WT07]
(4) gradient   ∂f/∂L = 2 L Σ_ij w_ij (u_i − u_j)(u_i − u_j)ᵀ
               with w_ij = 2 (ŷ_i − y_i)(ŷ_i − y_j) p_ij                        [WT07]
(5) sums       ∂f/∂L = 2 L Σ_{i<j} ω_ij (u_i − u_j)(u_i − u_j)ᵀ  with ω_ij = w_ij + w_ji
               = 2 L (Uᵀ diag(c) U − H − Hᵀ)  with c_i = Σ_j ω_ij, H = Σ_{i<j} ω_ij u_i u_jᵀ

exp(−D) is symmetric, so that each pair is visited once for (2) and once for (5). f is not convex: a
descent ends in a local optimum, and there is no bound. Targets are centred and divided by their
deviation, so that f is about n for the mean of all targets; the objective that is reported is in
units of y.

Costs: O(n² (r + s)) time, in blocks, and O(n s) memory.

[WT07] Weinberger & Tesauro, Metric learning for kernel regression, AISTATS 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import canonical_factor, symmetric
from nearfar.problems.covariance import CovarianceProblem
from nearfar.problems.soft_neighbors import Point

Matrix = NDArray[np.float64]

WIDTHS = (1.0, 3.0, 10.0, 30.0, 100.0)  # mean of D between points that a first guess tries
GUESS_ROWS = 600  # points that these are tried on, at most
NARROWER = 3.0  # times the best of these: a descent from narrow kernels ends lower
OUTLYING = 100.0  # standard deviations from the mean, beyond which float32 is too coarse
LIFT = 4.0  # length of the direction of linear regression beside the others


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
        white = CovarianceProblem.build(kernels, points, unit_features=True)
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

    def in_single(self) -> MLKRProblem | None:
        """The same in float32; None if it is that already, or has outliers, which need digits."""
        if str(self.U.dtype).endswith("float32") or float(abs(self.U).max()) > OUTLYING:
            return None
        return replace(self, U=self.kernels.single(self.U))

    def components(self, L: Matrix) -> Matrix:
        """The canonical map on the features."""
        return canonical_factor(L @ self.white)

    def factor(self, components: Matrix) -> Matrix:
        """The map on white coordinates of a map on the features."""
        return np.asarray(components @ self.dual)

    def first_guess(self, rows: int | None) -> Matrix:
        """The direction of linear regression first, then those of largest variance.

        The width is somewhat less than that of the least error among some, on some of the points.
        """
        s = len(self.white)
        column = self.kernels.like(self.targets[:, None], self.U)
        slope = self.kernels.gram(self.U, column)[:, 0]
        turned = linalg.qr(np.column_stack([slope, np.eye(s)]), mode="economic")[0].T[:rows].copy()
        turned[0] *= LIFT
        turned /= np.sqrt(2 * (turned**2).sum())  # random white points have a mean D of 1
        some = slice(None, None, -(-len(self.targets) // GUESS_ROWS))
        U, targets = self.U[some], self.targets[some]
        errors = [(self._residuals(U, targets, np.sqrt(w) * turned) ** 2).sum() for w in WIDTHS]
        width = NARROWER * WIDTHS[int(np.argmin(errors))]
        return np.asarray(np.sqrt(width) * turned)

    def evaluate(self, L: Matrix) -> Point:
        """(3) and (5)."""
        Z = self.kernels.apply(self.U, L)
        estimates, spread = self.kernels.kernel_regression(Z, self.U, self.targets)
        value = float(((estimates - self.targets) ** 2).sum())  # (3)
        return Point(L, value, 2 * L @ symmetric(spread))  # (5)

    def objective(self, components: Matrix) -> float:
        """(3) of a map on the features, in float64 and in units of the targets."""
        residuals = self._residuals(self.exact, self.targets, components)
        return float((residuals**2).sum() * self.unit**2)

    def _residuals(self, points: Array, targets: Matrix, L: Matrix) -> Matrix:
        """ŷ − y under a map of the points."""
        Z = self.kernels.apply(points, L)
        estimates, _ = self.kernels.kernel_regression(Z, Z[:, :0], targets)
        return np.asarray(estimates - targets)
