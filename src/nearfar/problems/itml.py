"""Information-theoretic metric learning: as near to a prior as bounds on distances allow.

Near pairs should have squared distances of at most u, far pairs of at least l. With A₀ ≻ 0 a prior,
γ > 0 a weight, δ = +1 for near pairs with b = u, and δ = −1 for far pairs with b = l:

(1) divergence  D(A, A₀) = tr(AA₀⁻¹) − log det(AA₀⁻¹) − d                     [ICML07]
(2) program     minimise D(A, A₀) + γ D(diag ξ, diag b)
                over A ≻ 0 and ξ with δ (x − x')ᵀA(x − x') <= δ ξ for each pair   [ICML07]
(3) slack       ξ = max(q, u) for near and min(q, l) for far pairs of squared distance q
(4) loss        ℓ(q) = γ Σ φ(ξ / b)  with φ(r) = r − log r − 1
(5) slopes      ∂ℓ/∂q = γ (1/b − 1/ξ) = δλ,  ∂²ℓ/∂q² = γ/q² where ξ = q, else 0
(6) dual        maximise log det(A₀K) + γ Σ log(1 − δλb/γ)  over λ >= 0 with
                K = A₀⁻¹ + Σ δλ (x − x')(x − x')ᵀ ≻ 0 and λ < γ/u for near pairs
(7) bounds      u and l: the 5th and 95th percentiles of (x − x')ᵀA₀(x − x') over pairs of points

For fixed A each ξ of the program is on its own. φ falls up to 1 and grows after it, so that ξ is b
where that is allowed, and else q. What remains, D(A, A₀) + ℓ(q), is smooth, convex and without
constraints: that of `nearfar.problems.logdet`, in coordinates in which A₀ is I. For the dual
minimise the Lagrangian of the program: over A it gives A⁻¹ = K, over ξ it gives 1/ξ = 1/b − δλ/γ.
The slopes of any metric are such λ, so that every iterate proves a bound, by the gap of
`nearfar.problems.logdet`.

[ICML07] Davis, Kulis, Jain, Sra & Dhillon, Information-theoretic metric learning, ICML 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

PERCENTILES = (5, 95)
BOUND_ROWS = 1000  # points whose pairs are enough for percentiles


@dataclass(frozen=True)
class BoundLoss:
    """(4), for each pair."""

    near: Mask  # (m,)
    bounds: Matrix  # (m,) b
    weight: float  # γ
    homogeneous = False

    @classmethod
    def of(cls, near: Mask, upper: float, lower: float, weight: float) -> BoundLoss:
        """With u = upper and l = lower."""
        return cls(near, np.where(near, upper, lower), weight)

    def slacks(self, lengths: Matrix) -> Matrix:
        """ξ of (3)."""
        return np.where(
            self.near, np.maximum(lengths, self.bounds), np.minimum(lengths, self.bounds)
        )

    def value(self, lengths: Matrix) -> float:
        """(4)."""
        ratios = self.slacks(lengths) / self.bounds
        return float(self.weight * (ratios - np.log(ratios) - 1).sum())

    def slopes(self, lengths: Matrix) -> Matrix:
        """(5)."""
        return self.weight * (1 / self.bounds - 1 / self.slacks(lengths))

    def curvature(self, lengths: Matrix) -> Callable[[Matrix], Matrix]:
        """(5), times a vector."""
        active = np.where(self.near, lengths > self.bounds, lengths < self.bounds)
        inverse = np.where(active, 1 / np.where(active, lengths, 1.0), 0.0)
        return lambda vector: self.weight * (inverse * vector) * inverse  # no square may overflow

    def multipliers(self, lengths: Matrix) -> Matrix:
        """λ of (6), from the lengths under any metric."""
        return np.where(self.near, 1.0, -1.0) * self.slopes(lengths)

    def dual_value(self, multipliers: Matrix) -> float:
        """The second term of (6)."""
        signs = np.where(self.near, 1.0, -1.0)
        steps = signs * multipliers * self.bounds / self.weight
        return float(self.weight * np.log1p(-steps).sum())


def default_bounds(kernels: ModuleType, points: Array, prior: Matrix) -> tuple[float, float]:
    """u and l of (7) for a prior map (s, d), by pairs of different points, of at most BOUND_ROWS.

    Both are 1 where no two points differ.
    """
    some = kernels.double(points[:: -(-len(points) // BOUND_ROWS)])
    white = kernels.apply(some - some[:1], prior)
    heads, tails = (kernels.index(rows, white) for rows in np.triu_indices(len(some), 1))
    squares = kernels.to_host(kernels.sq_lengths(white, heads, tails))
    squares = squares[squares > 0]
    if not len(squares):
        return 1.0, 1.0
    upper, lower = np.percentile(squares, PERCENTILES)
    return float(upper), float(lower)
