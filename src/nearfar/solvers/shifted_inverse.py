"""Projections of M − w xxᵀ onto the cone in O(d²), by the inverse of a shifted M ⪰ 0 that is kept.

(1) inverse      H = (M + σI)⁻¹ with σ > 0
(2) change       (M + w xxᵀ + σI)⁻¹ = H − w yyᵀ / (1 + w xᵀy) with y = Hx    (Sherman and Morrison)
(3) operator     K = (M − w xxᵀ + σI)⁻¹ = H + c yyᵀ with c = w / (1 − w xᵀy), by (2)
(4) eigenpair    Kv = θv is (M − w xxᵀ) v = λv with λ = 1/θ − σ: of the negative λ the θ is the
                 only negative one (λ < −σ) or the largest one (−σ < λ < 0)
(5) projection   with Q = I − vvᵀ, the inverse for M − w xxᵀ − λvvᵀ, in which v is a null vector:
                 QKQ + vvᵀ/σ = QHQ + c (Qy)(Qy)ᵀ + vvᵀ/σ

Lanczos' method on K, started from y, finds (4) in some 10 to 20 products with H, since K brings the
eigenvalue far from the others. The sign of c says which θ it is. In (5) nothing cancels where λ is
near −σ and c is large. Rounding errors in H delay the steps, but not the answer: a pair counts only
if M itself confirms it, by a residual near rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from nearfar.linalg import is_positive_definite
from nearfar.solvers.projections import onto_psd_cone_less, smallest_eigenpair

Matrix = NDArray[np.float64]

FIRST_SHIFT, LEAST_SHIFT = 1e-2, 1e-4  # σ as a share of the largest diagonal entry of M
ABOVE = 2.0  # later σ, over the geometric mean of recent |λ|: large ones take most steps
MEMORY = 0.95  # share of the past in the mean of log |λ|
PERIOD = 256  # changes of H after which it is computed anew from M, in O(d³)
STEPS = 40  # of Lanczos' method, before LAPACK takes over
FIRST_STEPS = 10  # before the residual is first looked at, which costs as much as some steps
DIGITS_PER_STEP = 1.0  # that a step gains, about
RESIDUAL = 1e-14  # accuracy of an eigenpair, relative to M
LAPACK_ROWS = 128  # below which LAPACK's eigenpair is as fast


@dataclass
class ShiftedInverse:
    """H of a matrix M that the caller keeps and changes by the methods below.

    M is in Fortran order, of M and H only the lower triangles count, and all is done in place.
    """

    H: Matrix | None = None  # (d, d); None where it has to be computed from M
    shift: float = 0.0  # σ
    n_changes: int = 0  # since H was computed
    level: float | None = None  # a mean of log |λ|

    def add(self, M: Matrix, weight: float, x: Matrix) -> Matrix:
        """M + weight · xxᵀ. O(d²)."""
        if self.H is not None:
            y = blas.dsymv(1.0, self.H, x, lower=1)
            self._change(-weight / (1 + weight * blas.ddot(x, y)), y)  # (2)
        more: Matrix = blas.dsyr(weight, x, a=M, lower=1, overwrite_a=1)
        return more

    def subtract_and_project(self, M: Matrix, weight: float, x: Matrix) -> Matrix:
        """The nearest matrix of the cone to M − weight · xxᵀ. O(d²), and O(d³) once in a while.

        By interlacing at most one eigenvalue is negative, so the smallest eigenpair suffices.
        """
        if len(M) < LAPACK_ROWS or not self._is_ready(M):
            return onto_psd_cone_less(M, weight, x)
        y = blas.dsymv(1.0, self.H, x, lower=1)
        rest = 1 - weight * blas.ddot(x, y)
        if rest == 0:  # −σ is an eigenvalue
            self.H = None
            return onto_psd_cone_less(M, weight, x)
        c = weight / rest  # (3)
        less: Matrix = blas.dsyr(-weight, x, a=M, lower=1, overwrite_a=1)
        value, v = self._smallest_eigenpair(less, c, y)
        if value < 0:
            level = math.log(-value)
            self.level = level if self.level is None else MEMORY * self.level + (1 - MEMORY) * level
            less = blas.dsyr(-value, v, a=less, lower=1, overwrite_a=1)
            self._project_out(v)  # (5)
            y = blas.daxpy(v, y, a=-blas.ddot(v, y))
        self._change(c, y)  # (3), (5)
        return less

    def grow(self) -> None:
        """M has a row and a column of zeros more."""
        if self.H is not None:
            r = len(self.H)
            H = np.zeros((r + 1, r + 1), order="F")
            H[:r, :r], H[r, r] = self.H, 1 / self.shift
            self.H = H

    def _is_ready(self, M: Matrix) -> bool:
        """Compute H where it is missing or old; whether that was possible."""
        if self.H is None or self.n_changes >= PERIOD:
            size = float(M.diagonal().max())
            usual = FIRST_SHIFT * size if self.level is None else ABOVE * math.exp(self.level)
            self.shift, self.n_changes, self.H = max(LEAST_SHIFT * size, usual), 0, None
            shifted = M.copy(order="F")
            shifted.flat[:: len(M) + 1] += self.shift
            factor, failed = lapack.dpotrf(shifted, lower=1, overwrite_a=1)
            if not failed:
                inverse, failed = lapack.dpotri(factor, lower=1, overwrite_c=1)
            if not failed and np.isfinite(inverse).all():
                self.H = inverse
        return self.H is not None

    def _change(self, weight: float, y: Matrix) -> None:
        self.H = blas.dsyr(weight, y, a=self.H, lower=1, overwrite_a=1)
        self.n_changes += 1

    def _project_out(self, v: Matrix) -> None:
        """H becomes QHQ + vvᵀ/σ: H − (avᵀ + vaᵀ) with a = Hv − ½(vᵀHv + 1/σ) v."""
        a = blas.dsymv(1.0, self.H, v, lower=1)
        a = blas.daxpy(v, a, a=-0.5 * (blas.ddot(v, a) + 1 / self.shift))
        self.H = blas.dsyr2(-1.0, v, a, a=self.H, lower=1, overwrite_a=1)

    def _smallest_eigenpair(self, less: Matrix, c: float, y: Matrix) -> tuple[float, Matrix]:
        """λ and v of ``less`` = M − w xxᵀ; (0, 0) if λ is not negative."""
        size, previous, beta, check = float(less.diagonal().max()), None, 0.0, FIRST_STEPS
        basis, alphas, betas, tried = [y / blas.dnrm2(y)], list[float](), list[float](), False
        for k in range(1, STEPS + 1):
            q = basis[-1]
            u = blas.dsymv(1.0, self.H, q, lower=1)
            u = blas.daxpy(y, u, a=c * blas.ddot(y, q))  # (3): Kq
            if previous is not None:
                u = blas.daxpy(previous, u, a=-beta)
            alphas.append(blas.ddot(u, q))
            u = blas.daxpy(q, u, a=-alphas[-1])
            beta = blas.dnrm2(u)
            if k >= check or beta == 0:
                values, vectors, _ = lapack.dstev(alphas, betas or [0.0])
                end = 0 if c < 0 else k - 1  # (4)
                theta = values[end]
                if 1 / theta >= self.shift and not tried:  # λ >= 0 so far
                    if is_positive_definite(less.T):  # which reads the upper triangle
                        return 0.0, 0 * y
                    tried = True
                estimate = abs(beta * vectors[-1, end] / theta)
                if estimate <= RESIDUAL:
                    v = vectors[:, end] @ np.array(basis)
                    v /= blas.dnrm2(v)
                    product = blas.dsymv(1.0, less, v, lower=1)
                    value = blas.ddot(v, product)
                    residual = blas.dnrm2(blas.daxpy(v, product, a=-value))
                    # An eigenvalue is within the residual of this value, and only one is negative.
                    if residual <= 10 * RESIDUAL * size and value < -residual:
                        return value, v
                    break
                if not beta > 0:
                    break
                check = k + 1 + int(math.log10(estimate / RESIDUAL) / DIGITS_PER_STEP)
            betas.append(beta)
            previous = q
            basis.append(u / beta)
        self.n_changes = PERIOD
        return smallest_eigenpair(less)
