"""Large margin nearest neighbours in the feature space of a kernel.

With k(x, x') = φ(x)·φ(x'), K the kernel matrix of the n training points, k_x = (k(x_1, x), …,
k(x_n, x)), H = I − 11ᵀ/n, and metrics on differences φ(a) − φ(b):

(1) metric    M = Σ_lm A_lm φ(x_l) φ(x_m)ᵀ  with A ⪰ 0                      [JMLR09, section 5.3]
(2) distance  D_A(a, b) = (k_a − k_b)ᵀ A (k_a − k_b)
(3) minimise  f(A) = (1−μ) Σ_e D_A(e) + μ Σ_t [1 + D_A(e) − D_A(p)]₊  over A ⪰ 0, with target edges
              e, pairs p and triplets t as for `nearfar.problems.lmnn`
(4) span      H K H = V Λ Vᵀ,  Λ > 0 of r values, descending
(5) features  e(x) = Λ^(−1/2) Vᵀ k_x, so that E = V Λ^(1/2) for the training points, less a constant
(6) answer    A = CᵀC with C = L Λ^(−1/2) Vᵀ, where L minimises (2) of `nearfar.problems.lmnn` on E

Why (6) solves (3): the directions Λ^(−1/2) Vᵀ H (φ_1, …, φ_n)ᵀ are orthonormal and span all
differences of training points, and E holds the coordinates along them. So every M has the distances
of some LᵀL on E and the reverse, and both problems have the same values and the same bounds. The
rows of C sum to zero; hence the constant by which (5) differs from centred features is the same for
all points, and no distance depends on it.

With fewer directions (r < rank of HKH) the problem is restricted to the leading principal
directions of φ.

Costs: K takes O(n² d), (4) O(n³), and a new point O(n d + n r').

[JMLR09] Weinberger & Saul, Distance metric learning for large margin nearest neighbor
classification, JMLR 10 (2009), after Torresani & Lee, Large margin component analysis, NIPS 2006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.linalg import check_eigh, null_tolerance

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class KernelSpan:
    """The directions (4) in which the training points differ, in feature space."""

    values: Matrix  # (r,) Λ
    vectors: Matrix  # (n, r) V
    lowest: float  # smallest eigenvalue of HKH; clearly negative if K is not a kernel matrix
    highest: float

    @classmethod
    def of(cls, K: Matrix, rank: float | None = None) -> KernelSpan:
        """All directions of a kernel matrix (n, n), or the leading ones.

        ``rank`` is how many, or, below 1, the share of the variance that they carry at least.
        """
        n = len(K)
        check_eigh(n)
        means = K.mean(axis=0)
        centred = K - means - means[:, None] + means.mean()
        values, vectors = linalg.eigh(0.5 * (centred + centred.T), driver="evd")
        lowest, highest = float(values[0]), float(values[-1])
        values, vectors = values[::-1], vectors[:, ::-1]
        rounding = n * np.finfo(float).eps * np.abs(K).max()  # rounding error of centring
        available = int((values > max(null_tolerance(values), rounding)).sum())
        if rank is not None and rank < 1:
            carried = np.cumsum(values[:available])
            rank = 1 + int(np.searchsorted(carried, rank * carried[-1])) if available else 0
        kept = available if rank is None else min(int(rank), available)
        vectors = vectors[:, :kept] - vectors[:, :kept].mean(axis=0)  # 1ᵀV = 0 up to rounding
        return cls(values[:kept].copy(), vectors, lowest, highest)

    @property
    def coefficients(self) -> Matrix:
        """Λ^(−1/2) Vᵀ of (5), (r, n)."""
        return (self.vectors / np.sqrt(self.values)).T

    @property
    def features(self) -> Matrix:
        """E of (5), (n, r), with a mean of zero."""
        return self.vectors * np.sqrt(self.values)
