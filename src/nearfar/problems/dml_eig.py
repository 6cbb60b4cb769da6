"""Distance metric learning by eigenvalues: the closest far pair as far apart as near pairs allow.

With x the difference of the points of a pair, w the weights of the near pairs, d features, m far
pairs, k ≤ d directions in which the points differ, and a shrinkage ρ:

(1) near scatter  H = (1 − ρ) Σ_near w xxᵀ + ρ (T / d) I, T = tr Σ_near w xxᵀ  [PL15, 15.3: H + δI]
(2) whitened      u = Rᵀx with RᵀHR = (1 − ρ) I, (k,), and c = ρ‖x‖² / T; where k = d and ρ = 0,
                  R is H^(−½) up to a rotation
(3) maximise      f(M) = min_far uᵀMu + c tr M  over M ⪰ 0 with tr M = d                   [PL15]
(4) answer        the metric RMRᵀ + φI of the features, φ = ρ d / T
(5) dual          minimise d λ_max(G(α)) over α ≥ 0 with Σα = 1,  G(α) = Σ_far α (uuᵀ + cI)  [YL12]
(6) gap           f(M) ≤ f* ≤ d λ_max(G(α))  for every M and α that (3) and (5) allow
(7) smoothed      f_σ(M) = −σ log Σ_far exp(−(uᵀMu + c tr M)/σ): its gradient is G(α),
                  α ∝ exp(−(uᵀMu + c tr M)/σ)                                              [PL15]

Why (6) holds: a minimum is at most the mean with weights α, Σ α (uᵀMu + c tr M) = ⟨G(α), M⟩, and
for M ⪰ 0 that is at most λ_max(G(α)) tr M. A rotation of R rotates M and changes no length and no
trace, so R need not be the symmetric root. Since ⟨H, RMRᵀ + φI⟩ = (1 − ρ) tr M + ρ d = d, (3) has
the closest far pair as far apart as possible for a given ⟨H, ·⟩, among the metrics above φI. For
ρ = 0 that is the sum of squares over the near pairs. How often a far pair is given does not matter.

If far pairs differ in a direction in which near pairs do not, (3) is unbounded for ρ = 0.

Costs: all lengths uᵀMu for M of rank r in O(n k r + m r), G in O(n k² + m k); memory O(n k + m), or
O(m k) where there are fewer far pairs than points.

[PL15] Phillips, Data mining: algorithms, geometry, and probability, lecture 15, metric learning.
[YL12] Ying & Li, Distance metric learning with eigenvalue optimization, JMLR 13 (2012).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.kernels import Array, check_memory, kernels_for
from nearfar.linalg import symmetric
from nearfar.problems.near_pairs import (
    CANCELLED,
    Floor,
    PairsInMemory,
    central_origin,
    floor_of_pairs,
    measure_of_pairs,
    ratio,
    whitened_by_near_pairs,
)
from nearfar.problems.whitening import map_above, returned_map
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK_ROWS = 1 << 16  # differences that are mapped at a time
NEGLIGIBLE = 1e-6  # a smaller shrinkage should not matter; if it does, there is a warning
REACH = 1e-6  # share of a far pair's length above which it is not a rounding error


@dataclass(frozen=True)
class Certificate:
    """The objective of a map, and an upper bound on all objectives.

    After rounding, a map has tr M = ``excess`` · d in (3), with an excess near 1. The objective of
    such a metric is at most excess times the bound.
    """

    objective: float
    bound: float
    excess: float = 1.0

    @property
    def gap(self) -> float:
        """Upper bound on the relative gain that is left."""
        if self.objective <= 0:
            return np.inf
        return max(self.bound * self.excess / self.objective - 1, 0.0)


@dataclass(frozen=True)
class DMLEigProblem:
    """The objective (3) on whitened points, or on the whitened differences u themselves."""

    rows: Array  # (n, k) points, or (m, k) differences if these are fewer; float64
    edges: tuple[Array, Array] | None  # far pairs (heads, tails) of points; None for differences
    basis: Matrix  # (d, k) R of (2)
    points: Array  # of the pairs, as they were given
    measure: Callable[[Matrix], tuple[Array, float]]  # see `measure_of_pairs`
    shrinkage: float = 0.0  # ρ of (1)
    floor: Floor | None = None  # φI / d of (4), and c of (2)

    @classmethod
    def build(cls, pairs: Pairs, shrinkage: float = 0.0, *, floored: bool = True) -> DMLEigProblem:
        """Whiten by the near pairs; ``shrinkage`` is ρ of (1).

        Without a floor, c = φ = 0: ρ then only makes the problem well-posed.

        The point nearest to the median becomes the origin, so that the points span the same space
        as their differences.
        """
        X = pairs.points
        kernels = kernels_for(X)
        regularization = ratio(shrinkage)
        edges = None
        if len(pairs) > len(X):
            edges = tuple(kernels.index(end, X) for end in pairs.far_edges())
            rows = kernels.double(X) - central_origin(kernels, X)
        else:
            rows = _differences(kernels, X, pairs.far_edges())
        known = PairsInMemory(
            kernels,
            rows,
            pairs,
            lambda U: kernels.sq_lengths(U, *edges) if edges else (U * U).sum(1),
        )
        basis, _, free = whitened_by_near_pairs(known, regularization)
        measure = measure_of_pairs(pairs, regularization)
        floor = None
        if floored:
            centred = kernels.double(X) - central_origin(kernels, X)
            floor = floor_of_pairs(pairs, centred, shrinkage, None)
        share = shrinkage if floored else 0.0
        problem = cls(kernels.apply(rows, basis.T), edges, basis, X, measure, share, floor)
        U = problem.rows
        shortest, size = problem._own_lengths(np.eye(problem.size)).min(), (U * U).sum(1).max()
        if edges is not None and float(shortest) <= CANCELLED * float(size):
            # The difference of two points loses digits next to outliers, or of all points.
            check_memory(
                8.0 * len(edges[0]) * X.shape[1],
                f"learning from {len(edges[0])} far pairs, some far shorter than others,",
                "Remove outliers, set n_pairs to draw from the pairs",
                X,
            )
            rows = _differences(kernels, X, pairs.far_edges())
            problem = replace(problem, rows=kernels.apply(rows, basis.T), edges=None)
        count = len(pairs.far_edges()[0])
        problem.refuse_lost(int((problem.lengths(np.eye(problem.size)) == 0).sum()), count)
        if shrinkage <= NEGLIGIBLE and free.shape[1]:
            problem.warn_of_ridge(free, n_reaching(problem, free), count)
        return problem

    @staticmethod
    def refuse_lost(lost: int, count: int) -> None:
        """Raise if any of ``count`` far pairs has lost its length to rounding."""
        if lost:
            raise InvalidInputError(
                f"squared distances of {lost} of {count} far pairs, relative to"
                " those of near pairs, are below the range of float64. Bring all features to one"
                " scale, for example with sklearn.preprocessing.StandardScaler, or drop the pairs."
            )

    @property
    def kernels(self) -> ModuleType:
        """The kernels of the device that holds the points."""
        return kernels_for(self.rows)

    @property
    def size(self) -> int:
        """k, the rows of M."""
        return int(self.basis.shape[1])

    @property
    def trace(self) -> float:
        """d, the trace of M."""
        return float(self.basis.shape[0])

    def components(self, L: Matrix) -> Matrix:
        """A factor of RMRᵀ of (4), for a factor L of M."""
        return L @ self.basis.T

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor L of a multiple of M."""
        L = (self.trace / float(np.vdot(L, L))) ** 0.5 * L
        if self.floor is not None:
            return map_above(self.components(L), self.trace * self.floor.diagonal, self.points)
        return returned_map(self.components(L), L, self.points)

    # -- the far pairs -----------------------------------------------------------------------

    def lengths(self, L: Matrix) -> Array:
        """uᵀMu + c tr M of each far pair, (m,) float64, for M = LᵀL."""
        own = self._own_lengths(L)
        return own if self.floor is None else own + float(np.vdot(L, L)) * self.floor.kept

    def _own_lengths(self, L: Matrix) -> Array:
        """‖Lu‖² of each far pair, (m,) float64."""
        kernels = self.kernels
        if self.edges is not None:
            return kernels.sq_lengths(kernels.apply(self.rows, L), *self.edges)
        parts = []
        for first in range(0, len(self.rows), BLOCK_ROWS):
            image = kernels.apply(self.rows[first : first + BLOCK_ROWS], L)
            parts.append((image * image).sum(1))
        return kernels.concatenate(parts)

    def shortest(self, lengths: Array, count: int, below: float = np.inf) -> Index:
        """The numbers of at most ``count`` far pairs with the smallest lengths, all ``below``."""
        kernels = self.kernels
        found = kernels.flatnonzero(lengths < below)
        numbers: Index = kernels.to_host(found[kernels.smallest(lengths[found], count)])
        return numbers

    def differences(self, numbers: Index) -> Matrix:
        """u of some far pairs, (·, k) on the host."""
        kernels = self.kernels
        chosen = kernels.index(numbers, self.rows)
        if self.edges is None:
            found = self.rows[chosen]
        else:
            heads, tails = self.edges
            found = self.rows[heads[chosen]] - self.rows[tails[chosen]]
        differences: Matrix = kernels.to_host(found)
        return differences

    def kept(self, numbers: Index) -> Matrix:
        """c of some far pairs, on the host."""
        if self.floor is None:
            return np.zeros(len(numbers))
        found: Matrix = self.kernels.to_host(
            self.floor.kept[self.kernels.index(numbers, self.rows)]
        )
        return found

    def soft_weights(self, lengths: Array, smoothing: float) -> Array:
        """α of (7), (m,)."""
        weights = np.e ** ((lengths.min() - lengths) / smoothing)
        return weights / weights.sum()

    def scatter(self, weights: Array) -> Matrix:
        """G(α) of (5), for a weight of each far pair."""
        kernels = self.kernels
        if self.edges is not None:
            lap = kernels.laplacian_matmul(*self.edges, weights, self.rows)
            G = symmetric(kernels.gram(self.rows, lap))
        else:
            used = kernels.flatnonzero(weights > 0)
            rows = self.rows[used]
            G = symmetric(kernels.gram(rows, weights[used][:, None] * rows))
        if self.floor is not None:
            G = G + float((weights * self.floor.kept).sum()) * np.eye(len(G))
        return G

    # -- certificate ---------------------------------------------------------------------------

    def certify(self, L: Matrix, weights: Array, numbers: Index | None = None) -> Certificate:
        """(6) of the map that a fit returns for a factor L of M, from the data in float64.

        α are the weights of all far pairs, or of those numbered.
        """
        if numbers is None:
            G = self.scatter(weights)
        else:
            rows = np.sqrt(weights)[:, None] * self.differences(numbers)
            G = rows @ rows.T if len(rows) < self.size else rows.T @ rows  # their λ_max is the same
            G = G + float(weights @ self.kept(numbers)) * np.eye(len(G))
        top = linalg.eigvalsh(G, subset_by_index=(len(G) - 1, len(G) - 1))[0]
        squares, constraint = self.measure(self.returned(L))
        return Certificate(
            objective=float(squares.min()),
            bound=self.trace * float(top) / float(weights.sum()),
            excess=(1 - self.shrinkage) * constraint / self.trace,
        )

    def warn_of_ridge(self, free: Matrix, apart: int, count: int) -> None:
        """Warn if far pairs are ``apart`` in directions in which only the ridge of (1) limits M."""
        if apart:
            warn(
                f"near pairs hardly differ in {free.shape[1]} of {self.size} directions, along"
                f" which {apart} of {count} far pairs differ: hardly anything limits the metric"
                " there. Set shrinkage='auto', standardise the features, or give more near pairs.",
                DataWarning,
            )


def n_reaching(problem: DMLEigProblem, free: Matrix) -> int:
    """How many far pairs differ in these directions of the coordinates."""
    part, whole = problem._own_lengths(free.T), problem._own_lengths(np.eye(problem.size))
    return int((part > REACH**2 * whole).sum())


def _differences(kernels: ModuleType, X: Array, edges: tuple[Index, Index]) -> Array:
    """x of some pairs, in float64."""
    heads, tails = (kernels.index(end, X) for end in edges)
    return kernels.double(X[heads]) - X[tails]
