"""Limited-memory BFGS directions and an exact step, for matrices on the host.

scipy's L-BFGS-B is not used because a step here knows the whole objective along its line for the
price of one evaluation (see `nearfar.problems.lmnn.Line`), so the step is exact, and because the
memory survives a rotation or a change of the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Matrix = NDArray[np.float64]

ROUNDING = 1e-14  # relative rise of a value that rounding may cause
CURVATURE_FLOOR = 1e-12  # pairs with less cosine between step and change are not kept


class LBFGS:
    """Memory of the last steps S and gradient changes Y, each (m, N).

    The direction −H g uses the compact form of H, two matrix-vector products instead of 4m
    vector operations: with ρ = diag(s·y), R the upper triangle of S Yᵀ and γ = s·y / y·y,
    H = γI + [Sᵀ γYᵀ] [[R⁻ᵀ(ρ + γ YYᵀ)R⁻¹, −R⁻ᵀ], [−R⁻¹, 0]] [S; γY].

    References
    ----------
    Byrd, Nocedal & Schnabel, Representations of quasi-Newton matrices, Math. Prog. 63 (1994),
    theorem 2.2.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self.forget()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def pairs(self) -> tuple[Matrix, Matrix]:
        """The steps and changes, oldest first."""
        return self._steps, self._changes

    def forget(self) -> None:
        """Start anew."""
        self._steps: Matrix = np.empty((0, 0))
        self._changes: Matrix = np.empty((0, 0))

    def direction(self, gradient: Matrix) -> Matrix:
        """−H · gradient."""
        if not len(self):
            return -gradient
        S, Y, g = self._steps, self._changes, gradient.ravel()
        gamma = self._products[-1, -1] / self._squares[-1, -1]
        R = np.triu(self._products)
        rho = np.diag(self._products)
        sg, yg = S @ g, gamma * (Y @ g)
        inner = linalg.solve_triangular(R, sg)
        left = rho * inner + gamma * (self._squares @ inner) - yg
        left = linalg.solve_triangular(R, left, trans="T")
        product = gamma * g + left @ S - gamma * (inner @ Y)
        direction: Matrix = -product.reshape(gradient.shape)
        return direction

    def remember(self, step: Matrix, change: Matrix) -> None:
        """Keep a pair if its curvature is positive."""
        s, y = step.ravel(), change.ravel()
        if not np.vdot(s, y) > CURVATURE_FLOOR * np.linalg.norm(s) * np.linalg.norm(y):
            return
        if len(self) and self._steps.shape[1] == s.size:
            keep = slice(1, None) if len(self) == self._memory else slice(None)
            self._steps = np.vstack([self._steps[keep], s])
            self._changes = np.vstack([self._changes[keep], y])
        else:
            self._steps, self._changes = s[None].copy(), y[None].copy()
        self._products = self._steps @ self._changes.T
        self._squares = self._changes @ self._changes.T

    def transform(self, rows: Matrix) -> None:
        """Follow a change of variables L → rows · L with orthonormal rows, some of them new.

        Where L is a stack of matrices, so is ``rows``.
        """
        if not len(self):
            return
        m, shape = len(self), (len(self), *rows.shape[:-2], rows.shape[-1], -1)
        self._steps = (rows @ self._steps.reshape(shape)).reshape(m, -1)
        self._changes = (rows @ self._changes.reshape(shape)).reshape(m, -1)
        products = np.vecdot(self._steps, self._changes)
        kept = products > CURVATURE_FLOOR * np.sqrt(
            np.vecdot(self._steps, self._steps) * np.vecdot(self._changes, self._changes)
        )
        self._steps, self._changes = self._steps[kept], self._changes[kept]
        self._products = self._steps @ self._changes.T
        self._squares = self._changes @ self._changes.T


Line = Callable[[float], tuple[float, float, float]]
"""A function of one number that returns its value, slope and curvature."""


def exact_step(along: Line, limit: float, first: float = 1.0) -> float:
    """A local minimiser t in (0, limit] of a function given with slope and curvature.

    Newton's method on the slope, kept inside a bracket; ends when the slope has fallen to a
    twentieth. Returns 0 when the slope at 0 is not negative.
    """
    start, slope0, _ = along(0.0)
    if slope0 >= 0:
        return 0.0
    start += ROUNDING * abs(start)
    low, high, t = 0.0, np.inf, min(first, limit)
    for _ in range(20):
        value, slope, curvature = along(t)
        if abs(slope) <= 0.05 * -slope0 and value <= start:
            return t
        if slope > 0 or value > start:
            high = t
        else:
            low = t
            if t >= limit:
                return t
        newton = t - slope / curvature if curvature > 0 else np.inf
        if not low < newton < high:
            newton = 0.5 * (low + high) if np.isfinite(high) else 2 * t
        t = min(newton, limit)
    return low
