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
SMALLEST_PRODUCT = 1e-280  # below, products of steps and changes lose their digits or vanish
CURVATURE_FLOOR = 1e-12  # pairs with less cosine between step and change are not kept


class LBFGS:
    """Memory of the last steps S and gradient changes Y, each (m, N).

    The direction −H g uses the compact form of H, two matrix-vector products instead of 4m
    vector operations: with ρ = diag(s·y), R the upper triangle of S Yᵀ, H₀ a first guess of H up to
    scale and γ = s·y / y·H₀y,
    H = γH₀ + [Sᵀ γH₀Yᵀ] [[R⁻ᵀ(ρ + γ YH₀Yᵀ)R⁻¹, −R⁻ᵀ], [−R⁻¹, 0]] [S; γYH₀].

    References
    ----------
    Byrd, Nocedal & Schnabel, Representations of quasi-Newton matrices, Math. Prog. 63 (1994),
    theorem 2.2.
    """

    _rows: Matrix | None  # H₀ multiplies by it from the left
    _steps: Matrix  # S
    _changes: Matrix  # Y
    _guesses: Matrix  # YH₀
    _products: Matrix  # R
    _squares: Matrix  # YH₀Yᵀ

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._rows = None
        self.forget()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def pairs(self) -> tuple[Matrix, Matrix]:
        """The steps and changes, oldest first."""
        return self._steps, self._changes

    def forget(self) -> None:
        """Start anew."""
        self._hold(np.empty((0, 0)), np.empty((0, 0)))

    def precondition(self, rows: Matrix) -> None:
        """Let H₀ be the product with a positive definite matrix from the left; else it is I.

        Where the variable is a stack of matrices, so is ``rows``.
        """
        self._rows = rows
        self._hold(self._steps, self._changes)

    def direction(self, gradient: Matrix) -> Matrix:
        """−H · gradient."""
        guess = gradient if self._rows is None else self._rows @ gradient
        if not len(self):
            return -guess
        S, HY, g = self._steps, self._guesses, gradient.ravel()
        R, rho = self._products, np.diag(self._products)
        gamma = rho[-1] / self._squares[-1, -1]
        inner = linalg.solve_triangular(R, S @ g)
        left = rho * inner + gamma * (self._squares @ inner - HY @ g)
        left = linalg.solve_triangular(R, left, trans="T")
        product = gamma * guess.ravel() + left @ S - gamma * (inner @ HY)
        direction: Matrix = -product.reshape(gradient.shape)
        return direction

    def remember(self, step: Matrix, change: Matrix) -> bool:
        """Keep a pair if its curvature is positive, and its products are in the range of floats.

        Returns whether it was kept.
        """
        s, y = step.ravel(), change.ravel()
        if not np.vdot(s, y) > CURVATURE_FLOOR * np.linalg.norm(s) * np.linalg.norm(y):
            return False
        if min(np.vdot(s, y), np.vdot(y, y)) < SMALLEST_PRODUCT:
            return False
        if not len(self) or self._steps.shape[1] != s.size:
            self._hold(s[None].copy(), y[None].copy())
            return True
        keep = slice(1, None) if len(self) == self._memory else slice(None)
        guess = y if self._rows is None else (self._rows @ change).ravel()
        self._steps = np.vstack([self._steps[keep], s])
        self._changes = np.vstack([self._changes[keep], y])
        self._guesses = np.vstack([self._guesses[keep], guess])
        self._products = _bordered(self._products[keep, keep], self._steps @ y)
        squares = self._changes @ guess
        self._squares = _bordered(self._squares[keep, keep], squares)
        self._squares[-1] = squares
        return True

    def transform(self, rows: Matrix) -> None:
        """Follow a change of variables L → rows · L with orthonormal rows, some of them new.

        Where L is a stack of matrices, so is ``rows``. H₀ is the identity again.
        """
        self._rows = None
        if not len(self):
            return
        m, shape = len(self), (len(self), *rows.shape[:-2], rows.shape[-1], -1)
        steps = (rows @ self._steps.reshape(shape)).reshape(m, -1)
        changes = (rows @ self._changes.reshape(shape)).reshape(m, -1)
        kept = np.vecdot(steps, changes) > CURVATURE_FLOOR * np.sqrt(
            np.vecdot(steps, steps) * np.vecdot(changes, changes)
        )
        self._hold(steps[kept], changes[kept])

    def _hold(self, steps: Matrix, changes: Matrix) -> None:
        """Take S and Y, and compute H₀Y, the triangle R and YH₀Yᵀ."""
        guesses = changes
        if self._rows is not None and len(changes):
            shape = (len(changes), *self._rows.shape[:-1], -1)
            guesses = (self._rows @ changes.reshape(shape)).reshape(changes.shape)
        self._steps, self._changes, self._guesses = steps, changes, guesses
        self._products = np.triu(steps @ changes.T)
        self._squares = changes @ guesses.T


def _bordered(matrix: Matrix, column: Matrix) -> Matrix:
    """The matrix with one more row, of zeros, and one more column."""
    bordered = np.zeros((len(column), len(column)))
    bordered[:-1, :-1] = matrix
    bordered[:, -1] = column
    return bordered


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
