"""Sparse compositional metric learning: a few of many rank-one metrics, from triplets.

Of each of m triplets (x, y, z) the point x should be nearer to y than to z, by a margin of 1. Given
K unit vectors b_k (d,), weights w (K,), and β > 0:

(1) metric     M = Σ_k w_k b_k b_kᵀ  with w >= 0                                      [AAAI14]
(2) margins    F_tk = (b_kᵀ(x − z))² − (b_kᵀ(x − y))²  for triplet t
(3) minimise   f(w) = 1/m Σ_t [1 − (Fw)_t]₊ + β τ Σ_k w_k  over w >= 0                [AAAI14]
(4) dual       maximise Σ_t α_t  over 0 <= α <= 1/m with Fᵀα <= β τ
(5) bound      f >= θ Σ α  for every 0 <= α <= 1/m, with θ = min(1, β τ / max_k (Fᵀα)_k)
(6) map        f = 1/m Σ_t [1 + ‖L(x − y)‖² − ‖L(x − z)‖²]₊ + β τ tr(LᵀL)  for LᵀL = M
(7) bases      Q v = λ (P + ε I) v, the first v: P the scatter of x − y, Q that of x − z over the
               triplets of a region
(8) shrinkage  M = φI + Σ_k w_k b_k b_kᵀ,  0 <= ρ < 1,  with I of features that vary
               and φ = ρ / ((1 − ρ) max(mean ‖x − y‖², 10⁻⁴ τ))

τ is the mean of ‖x − z‖², so that β does not depend on the units of the points; it is 1 in the
paper. The problem is a linear program; the bound scales what is not quite feasible for its dual.
With vectors of unit length Σ w is the trace of M, so that the objective can be computed from the
map alone. Regions are those of a tree: all points x, then halves by the median along the direction
in which the points of a region vary most.

With (8) a triplet needs c = 1 − φ (‖x − z‖² − ‖x − y‖²) of w instead of 1: [c − Fw]₊ is the hinge
of (3), Σ cα the sum in (4) and (5), and tr(LᵀL − φI) the trace in (6). 0 is a bound, too. The
rounding of tr LᵀL costs β τ φ: where near points hardly differ, 10⁻⁴ τ keeps it small.

Costs: O(n d K + m K) time and memory for F.

[AAAI14] Shi, Bellet & Sha, Sparse compositional metric learning, AAAI 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import canonical_factor, eigh, signed, symmetric

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

LEAST_TRIPLETS = 10  # of a region that has vectors of its own
MOST_VECTORS = 10  # of a region
RIDGE = 0.01  # ε, as a share of the mean eigenvalue of P + Q
LEAST_NEAR = 1e-4  # of τ, in place of a smaller mean of ‖x − y‖²
NEGLIGIBLE = 1e-12  # squared length of a row of the map, relative to the longest


@dataclass(frozen=True)
class SCMLProblem:
    """(3), in units in which τ is 1."""

    F: Matrix  # (m, K), of points divided by √τ
    penalty: float  # β
    bases: Matrix  # (K, d)
    size: float  # τ
    needed: Matrix  # (m,) cₜ; ones without shrinkage
    kept: Matrix  # (d,) the diagonal of φI

    @classmethod
    def build(
        cls,
        kernels: ModuleType,
        points: Array,
        triplets: Index,
        n_bases: int,
        penalty: float,
        shrinkage: float = 0.0,
    ) -> SCMLProblem:
        """The problem of centred points (n, d) in float64 and triplets (m, 3) of their rows."""
        anchors, near, far = (kernels.index(rows, points) for rows in triplets.T)
        near_lengths, far_lengths = (
            kernels.to_host(kernels.sq_lengths(points, anchors, ends)) for ends in (near, far)
        )
        size = float(far_lengths.mean())
        near_size = max(float(near_lengths.mean()), LEAST_NEAR * size)
        floor = shrinkage / ((1 - shrinkage) * near_size)  # (8)
        kept = floor * kernels.to_host((points != points[:1]).any(0))
        bases = _bases(kernels, points, triplets, n_bases)
        Z = kernels.apply(points, bases)
        F = (Z[anchors] - Z[far]) ** 2 - (Z[anchors] - Z[near]) ** 2  # (2)
        needed = 1 - floor * (far_lengths - near_lengths)
        return cls(np.asarray(kernels.to_host(F)) / size, penalty, bases, size, needed, kept)

    @property
    def first_prices(self) -> Matrix:
        """Fᵀα for equal α of the triplets that need more: what each vector alone gains at first."""
        return np.asarray((self.needed > 0) @ self.F / len(self.F))

    def value(self, w: Matrix) -> float:
        """(3)."""
        return float(np.maximum(self.needed - self.F @ w, 0).mean() + self.penalty * w.sum())

    def prices(self, alpha: Matrix) -> Matrix:
        """Fᵀα of (4)."""
        return np.asarray(self.F.T @ alpha)

    def bound(self, alpha: Matrix) -> float:
        """(5), for any α, which is clipped to its range; zero is a bound, too."""
        alpha = np.clip(alpha, 0, 1 / len(self.F))
        dearest = float(self.prices(alpha).max(initial=0.0))
        scale = 1.0 if dearest <= self.penalty else self.penalty / dearest
        return max(scale * float(self.needed @ alpha), 0.0)

    def components(self, w: Matrix) -> Matrix:
        """The canonical map of (1) or (8) on the features."""
        used, d = w > 0, self.bases.shape[1]
        if not used.any() and not self.kept.any():
            return np.zeros((1, d))
        rows = np.sqrt(w[used] / self.size)[:, None] * self.bases[used]
        floor = np.diag(self.kept**0.5)[self.kept > 0]
        L = canonical_factor(np.vstack([rows, floor]))
        squares = (L * L).sum(axis=1)
        return np.asarray(L[squares > NEGLIGIBLE * squares.max()])

    def objective(self, kernels: ModuleType, points: Array, triplets: Index, L: Matrix) -> float:
        """(6)."""
        images = kernels.apply(points, L)
        anchors, near, far = (kernels.index(rows, points) for rows in triplets.T)
        margins = kernels.sq_lengths(images, anchors, far) - kernels.sq_lengths(
            images, anchors, near
        )
        hinges = np.maximum(1 - np.asarray(kernels.to_host(margins)), 0)
        trace = max(float(np.vdot(L, L) - self.kept.sum()), 0.0)  # 0 but for rounding
        return float(hinges.mean() + self.penalty * self.size * trace)


def _bases(kernels: ModuleType, points: Array, triplets: Index, count: int) -> Matrix:
    """Unit vectors (K, d) of (7), region by region from the whole to ever smaller ones."""
    regions, found, total = [triplets], [], 0
    while regions and total < count:
        region = regions.pop(0)
        vectors = _directions(kernels, points, region)[: count - total]
        found.append(vectors)
        total += len(vectors)
        parts = _halves(kernels, points, region)
        regions += [part for part in parts if LEAST_TRIPLETS <= len(part) < len(region)]
    return np.vstack(found)


def _directions(kernels: ModuleType, points: Array, triplets: Index) -> Matrix:
    """The first vectors of (7) of a region."""
    anchors, near, far = (kernels.index(rows, points) for rows in triplets.T)
    P, Q = (symmetric(kernels.edge_scatter(points, anchors, tails)) for tails in (near, far))
    d = len(P)
    ridge = RIDGE * np.trace(P + Q) / d
    if ridge == 0:
        return np.eye(1, d)
    _, vectors = linalg.eigh(Q, P + ridge * np.eye(d))
    rows = vectors[:, ::-1].T[:MOST_VECTORS]
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def _halves(kernels: ModuleType, points: Array, triplets: Index) -> tuple[Index, Index]:
    """The triplets of a region, by their first points along the direction of largest variance."""
    anchors, number = np.unique(triplets[:, 0], return_inverse=True)
    some = points[kernels.index(anchors, points)]
    some = some - some.mean(0)
    _, vectors = eigh(symmetric(kernels.gram(some, some)))
    first = signed(vectors[:, -1:].T)
    places = np.asarray(kernels.to_host(kernels.apply(some, first)))[:, 0]
    low = (places < np.median(places))[number]
    return triplets[low], triplets[~low]
