"""The pseudo-metric online learning algorithm: a metric and a threshold from a stream of pairs.

A pair of points u and v is near (y = 1) or far (y = −1); x = u − v. Pairs (M, b) and (N, c) of a
matrix and a number have the inner product s⁴⟨M, N⟩ + bc, with s the unit of length.

(1) metric      D(u, v) = xᵀMx with M ⪰ 0                                              [S04, W07]
(2) margin      y (b − xᵀMx) ≥ 1, and b ≥ 1                                       [W07, eq. 2.28]
(3) loss        ℓ = [1 − y (b − xᵀMx)]₊
(4) half-space  onto (2): M ← M − y α xxᵀ / s⁴, b ← b + y α with α = ℓ / (‖x‖⁴/s⁴ + 1)
                                                                                  [W07, eq. 2.29]
(5) cone        onto M ⪰ 0, b ≥ 1: M ← M + [−λ]₊ vvᵀ, b ← max(b, 1) with λ the smallest eigenvalue
                of M and v its vector                                             [W07, eq. 2.30]
(6) bound       Σ ℓ² ≤ (R⁴/s⁴ + 1) (s⁴‖M* − M₁‖² + (b* − b₁)²) for a stream with ‖x‖ ≤ R and any
                (M*, b*) that has no loss on it, M* ⪰ 0, b* ≥ 1                  [S04, theorem 1]

Why (5) is the projection: (4) subtracts a matrix of rank one from M ⪰ 0, so at most one eigenvalue
is negative, and the cone is a product of one for M and one for b. After a far pair, where xxᵀ is
added, no eigenvalue is negative. Why (6) holds: a projection onto a convex set moves nearer to each
of its points; (4) reduces the squared distance by at least ℓ²/(‖x‖⁴/s⁴ + 1), and these reductions
together cannot exceed the initial squared distance.

The papers have s = 1. M is a matrix (d, d), X holds differences x as rows (m, d).

[S04] Shalev-Shwartz, Singer & Ng, Online and batch learning of pseudo-metrics, ICML 2004.
[W07] Weinberger, Metric learning with convex optimization, thesis, University of Pennsylvania,
2007, section 2.2, whose equations are cited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for
from nearfar.limits import check_time

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK_ENTRIES = 1 << 20  # of differences on the host at a time, 8 MB


@dataclass(frozen=True)
class POLAProblem:
    """Pairs of rows of shared points, and their losses."""

    points: Array  # (n, d), where the data is
    heads: Index  # (m,), on the host
    tails: Index  # (m,), on the host
    near: NDArray[np.bool_]  # (m,), on the host

    def blocks(self, order: Index | None = None) -> Iterator[tuple[Matrix, Matrix]]:
        """Differences x (block, d) and signs y (block,), in the order of the pairs or a given one.

        They are copied to the host in float64, a few at a time: M is there, and pairs are visited
        one after the other.
        """
        kernels, points = kernels_for(self.points), self.points
        order = np.arange(len(self.heads)) if order is None else order
        size = max(1, BLOCK_ENTRIES // points.shape[1])
        for first in range(0, len(order), size):
            check_time()
            rows = order[first : first + size]
            ends = (points[kernels.index(end[rows], points)] for end in (self.heads, self.tails))
            head, tail = (kernels.double(end) for end in ends)
            yield kernels.to_host(head - tail), np.where(self.near[rows], 1.0, -1.0)

    def losses(self, M: Matrix, b: float) -> Matrix:
        """ℓ (m,) of every pair."""
        parts = [
            np.maximum(1 - signs * (b - ((X @ M) * X).sum(axis=1)), 0)  # (1), (3)
            for X, signs in self.blocks()
        ]
        return np.concatenate(parts)
