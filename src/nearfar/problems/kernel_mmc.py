"""Mahalanobis metric for clustering in the feature space of a kernel.

With k(x, x') = φ(x)·φ(x'), K the kernel matrix of the n points of the pairs, k_x = (k(x_1, x), …,
k(x_n, x)), H = I − 11ᵀ/n, and near and far pairs (a, b):

(1) metric    M = Σ_lm A_lm φ(x_l) φ(x_m)ᵀ  with A ⪰ 0                         [XNJR02, section 2]
(2) distance  D_A(a, b)² = (k_a − k_b)ᵀ A (k_a − k_b),  and  tr M = ⟨K, A⟩
(3) maximise  g(A) = Σ_far D_A  over M ⪰ φI with  (1 − ρ) Σ_near D_A² + ρ (T/r) tr M ≤ 1,
              T = Σ_near ‖φ(a) − φ(b)‖² and r the number of directions of (4), on whose span φI
              takes up the share ρ of the left-hand side
(4) features  E = V Λ^½  with  HKH = V Λ Vᵀ,  as (4) and (5) of `nearfar.problems.kernel_lmnn`
(5) answer    A = CᵀC with C = L Λ^(−½) Vᵀ, where LᵀL solves (1) of `nearfar.problems.mmc` on E
              with the same ρ
(6) lacking   directions v with vᵀWv > 1, W of (6) there, at a stationary factor: g grows along vvᵀ

Why (5) solves (3): E holds the coordinates of the points along r orthonormal directions that span
their differences. A metric M gives them the distances of its part on that span, whose trace is not
larger; and a metric LᵀL on E is of the form (1) with the A of (5), of the same trace. So both
problems have the same optimum, and a bound for one is a bound for the other.

Why (6): the optimum has few rows, but E has up to n − 1 columns. With r rows an evaluation costs
O(n² r). All of W is needed only for the bound, O(n³), which also shows which rows are missing.

Directions with so little variance that kernel values hardly resolve them are left out of E, but
count in T: near pairs that differ only in such directions still have a ridge. If the user asks for
fewer directions, T is computed on these.

If HKH has full rank n − 1, consider the indicator function of a set that no near pair leaves (for
labels: of a class). Near pairs agree in it and far pairs differ, so (3) is unbounded for ρ = 0.

[XNJR02] Xing, Ng, Jordan & Russell, Distance metric learning with application to clustering with
side-information, NIPS 15 (2002), speaks of a map φ; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import bounded_leading_eigh, symmetric
from nearfar.problems.mmc import MMCProblem, Placement
from nearfar.problems.near_pairs import measure_of_pairs, near_scatter, near_squares, ratio
from nearfar.problems.whitening import STEADY
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

FIRST_ROWS = 24  # of a factor that may grow
MORE = 8  # directions that are added at a time
CANCELLED = 1e-9  # share of the ridge that rounding may add to sums over near pairs


@dataclass(frozen=True)
class RatedFactor:
    """A factor of few rows, the negative objective, and its gradient."""

    L: Matrix
    value: float
    gradient: Matrix


class KernelMMCProblem(MMCProblem):
    """(3) in the coordinates of (5): MMC on the features of the points of the pairs."""

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        rows: Index,
        E: Array,
        shrinkage: float,
        images: Callable[[Matrix], Array],
        trace: Callable[[Matrix], float],
        total: float | None = None,
        *,
        floored: bool = True,
    ) -> Self:
        """The problem on features E (m, r) of the given rows of the points, ascending.

        ``images`` are those of these points under C of (5), from kernel values, for a map L on E,
        and ``trace`` gives ⟨K, A⟩ of (2). ``total`` is T of (3); None takes that of E.
        """
        heads, tails = (np.searchsorted(rows, end) for end in (pairs.heads, pairs.tails))
        labels = pairs.labels if len(rows) == len(pairs.points) else None
        pairs = Pairs(E, heads, tails, pairs.near, labels)
        measure = measure_of_pairs(pairs, ratio(shrinkage), images, trace, total)
        problem = cls.build(pairs, E[0] * 0, shrinkage, total, floored=floored)
        return replace(problem, measure=measure)

    @staticmethod
    def _whitened(
        kernels: ModuleType,
        points: Array,
        pairs: Pairs,
        far: tuple[Array, Array],
        regularization: float,
        total: float | None,
    ) -> Matrix:
        """R of (2) of `nearfar.problems.mmc`, by one Cholesky factor where the ridge allows it.

        E has independent columns, so that no direction has to be found. Where near pairs are so
        short that sums over points lose their digits, or the ridge is small, it takes the long way.
        """
        E = pairs.points
        squares = near_squares(kernels, pairs, E)
        spread = float(squares.sum()) if total is None else total
        ridge = regularization * spread / max(len(squares), 1)
        if pairs.labels is None:
            edges = tuple(kernels.index(end, E) for end in pairs.near_edges())
            ones = kernels.double(edges[0]) * 0 + 1
            H = symmetric(kernels.gram(E, kernels.laplacian_matmul(*edges, ones, E)))
        else:
            H = near_scatter(kernels, pairs)
        exact = np.abs(np.diag(H) - squares).max() <= CANCELLED * ridge
        H[np.diag_indices(len(H))] = squares + ridge
        if not (exact and ridge > STEADY * np.abs(H).sum(axis=0).max()):
            return MMCProblem._whitened(kernels, points, pairs, far, regularization, total)
        C = linalg.cholesky(H, lower=True)
        R: Matrix = linalg.solve_triangular(C, np.eye(len(H)), lower=True).T
        return R

    @property
    def grows(self) -> bool:
        """Whether to learn in few rows, to which those that are lacking are added."""
        wide = self.edges is not None and self.U.shape[1] > 2 * FIRST_ROWS
        return wide and self.floor is not None

    def leading_rows(self) -> Matrix:
        """A start of few rows: the leading directions after a step of length 1 from W = I."""
        W = self.place(self._identity()).W
        values, vectors = bounded_leading_eigh(W, FIRST_ROWS)
        return values[:, None] * vectors.T

    def evaluate(self, L: Matrix) -> RatedFactor:
        """−g and its gradient at a factor of few rows and any length, without W."""
        assert self.edges is not None, "only such problems grow"
        assert self.floor is not None, "only such problems grow"
        kernels, length = self.kernels, float(np.linalg.norm(L))
        rows = L / length
        lengths, Z = self._far_lengths(rows, self.U)
        rates = 1 / lengths
        lap = kernels.laplacian_matmul(*self.edges, rates, Z)
        kept = float((rates * self.floor.kept).sum())
        slope = kernels.gram(lap, self.U) + kept * rows  # rows · W
        objective = float(lengths.sum())
        return RatedFactor(L, -objective, (objective * rows - slope) / length)

    def lacking(self, at: Placement) -> Matrix:
        """(6), (m, k), the steepest first: v √s with s = vᵀWv − 1."""
        values, vectors = bounded_leading_eigh(at.W, MORE)
        found: Matrix = (vectors * np.sqrt(np.maximum(values - 1, 0))).T[values > 1]
        return found[::-1]

    def returned(self, L: Matrix) -> Matrix:
        """The map on E that a fit returns for a factor: kernel values under it meet (3).

        The last one is cached.
        """
        key = L.tobytes()
        if key not in self._returned:
            components = super().returned(L)
            _, constraint = self.measure(components)
            self._returned.clear()
            self._returned[key] = components / np.sqrt((1 - self.shrinkage) * constraint)
        return self._returned[key]

    @cached_property
    def _returned(self) -> dict[bytes, Matrix]:
        return {}
