"""Least squared-residual metric learning: comparisons of distances, near a prior.

Of each quadruplet (x, x', z, z') the first two points should be nearer to each other than the last
two. With a = (x − x')ᵀA(x − x') and c = (z − z')ᵀA(z − z') for each, a prior A₀ ≻ 0, γ > 0, and m
quadruplets:

(1) divergence  D(A, A₀) = tr(AA₀⁻¹) − log det(AA₀⁻¹) − d                       [ICDM12]
(2) residual    h(a, c) = (√a − √c)²  where a > c, else 0                       [ICDM12]
(3) minimise    D(A, A₀) + γ/m Σ h(a, c)  over A ≻ 0                            [ICDM12]
(4) slopes      ∂h/∂a = 1 − √(c/a),  ∂h/∂c = 1 − √(a/c)  where a > c, else 0
(5) curvature   ∇²h = ½ √(ac) e eᵀ  with e = (1/a, −1/c)  where a > c, else 0
(6) dual        maximise log det(A₀K)  over weights α, β of the pairs with
                K = A₀⁻¹ + Σ α (x − x')(x − x')ᵀ + β (z − z')(z − z')ᵀ ≻ 0,
                α <= γ/m, β <= 0 and (γ/m − α)(γ/m − β) >= (γ/m)²

h is convex: where a > c it is a + c − 2√(ac), and the geometric mean is concave; it meets the half
space a <= c, where it is 0, with a slope of 0. It is homogeneous, h = α a + β c with the slopes as
α and β, so that its conjugate is 0 on a convex set, that of the dual, and infinite outside. So the
problem is one of `nearfar.problems.logdet`, whose gap proves a bound at every metric.

[ICDM12] Liu, Guo, Zhang, Jojic & Wang, Metric learning from relative comparisons by minimizing
squared residual, ICDM 2012.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ComparisonLoss:
    """γ/m Σ h of (3); lengths (2m,) are those of all first pairs, then of all last pairs."""

    count: int  # m
    weight: float  # γ
    homogeneous = True

    def value(self, lengths: Matrix) -> float:
        """γ/m Σ h."""
        a, c = np.sqrt(lengths).reshape(2, self.count)
        return float(self.weight / self.count * (np.maximum(a - c, 0) ** 2).sum())  # (2)

    def slopes(self, lengths: Matrix) -> Matrix:
        """(4), times γ/m."""
        a, c = lengths.reshape(2, self.count)
        broken = a > c
        ratio = np.sqrt(np.where(broken, c / np.where(broken, a, 1.0), 1.0))
        found = np.stack([1 - ratio, 1 - 1 / ratio])
        return np.asarray(self.weight / self.count * found.ravel())

    def curvature(self, lengths: Matrix) -> Callable[[Matrix], Matrix]:
        """(5), times γ/m and a vector."""
        a, c = lengths.reshape(2, self.count)
        scale = np.where(a > c, 0.5 * self.weight / self.count * np.sqrt(a) * np.sqrt(c), 0.0)

        def product(vector: Matrix) -> Matrix:
            first, last = vector.reshape(2, self.count)
            change = scale * (first / a - last / c)
            return np.concatenate([change / a, -change / c])

        return product
