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

Why (5) solves (3): E holds the coordinates of the points along r orthonormal directions that span
their differences. A metric M gives them the distances of its part on that span, whose trace is not
larger; and a metric LᵀL on E is of the form (1) with the A of (5), of the same trace. So both
problems have the same optimum, and a bound for one is a bound for the other.

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
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array
from nearfar.problems.mmc import MMCProblem
from nearfar.problems.near_pairs import measure_of_pairs, ratio
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]


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

    def returned(self, L: Matrix) -> Matrix:
        """The map on E that a fit returns for a factor: kernel values under it meet (3)."""
        components = super().returned(L)
        _, constraint = self.measure(components)
        scaled: Matrix = components / np.sqrt((1 - self.shrinkage) * constraint)
        return scaled
