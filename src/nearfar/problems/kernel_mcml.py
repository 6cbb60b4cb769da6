"""Maximally collapsing metric learning in the feature space of a kernel.

With k(x, x') = φ(x)·φ(x'), K the kernel matrix of the n training points, k_x = (k(x_1, x), …,
k(x_n, x)), and p, p₀ and i as for `nearfar.problems.mcml`:

(1) metric    A = Σ_lm Â_lm φ(x_l) φ(x_m)ᵀ  with Â ⪰ 0                            [GR05, section 4]
(2) distance  D(a, b) = (k_a − k_b)ᵀ Â (k_a − k_b)                                [GR05, section 4]
(3) trace     tr A = tr(K Â)                                                      [GR05, section 4]
(4) minimise  f(Â) = Σᵢ KL[p₀(·|i) ‖ p(·|i)] + λ tr(K Â)  over Â ⪰ 0                  [GR05, eq. 6]
(5) answer    Â = CᵀC with C = L Λ^(−1/2) Vᵀ, where L minimises (2) of `nearfar.problems.mcml` with
              the same λ on the features E of `nearfar.problems.kernel_lmnn`, whose (4) has V and Λ
(6) few rows  the first q rows of C, chosen such that C K Cᵀ is diagonal and descending  [section 4]
(7) lacking   directions v with vᵀ(P − S(p))v < 0 outside the rows of L: f falls along vvᵀ

Why (5) solves (4): E holds the coordinates of the training points along orthonormal directions B
that span their differences. A metric A gives them the distances of BABᵀ on E, whose trace is not
larger, and a metric LᵀL on E is BᵀLᵀLB in feature space, of the same trace, and of the form (1).
So both problems have the same optimum, and a bound for one is a bound for the other.

Why (6) is that of the paper: it takes the eigenvectors α of C K Cᵀ for any C with Â = CᵀC, and maps
x to the first entries of α C k_x. The rows of C sum to zero, hence C K Cᵀ = L Lᵀ, and αL is the
factor of LᵀL with orthogonal rows, longest first.

Why (7): the optimum has few rows, fewer than there are classes if λ is not small, but E has up to
n − 1 columns. With few rows an evaluation costs O(n²) per row. All of S(p) is needed only for the
proof, O(n² r), which also shows whether rows are missing, and along which directions.

λ = r T / 8r' with T = ⟨S(p₀), I⟩ on E of r' columns and r = ρ / (1 − ρ): a *shrinkage* ρ does not
depend on the units of the kernel. There is no floor φI, as on points: beyond the span of the
training points it is no function of kernel values, and new points differ there, too.

If the centred K has full rank and λ = 0, f has no minimum: every placement of the points is an
image of E, and f falls to zero as classes collapse and move apart, whatever the labels are.

[GR05] Globerson & Roweis, Metric learning by collapsing classes, NIPS 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import symmetric
from nearfar.problems.mcml import CollapsePoint, MCMLProblem
from nearfar.problems.soft_neighbors import NARROW

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

MORE = 8  # directions that are added at a time


class KernelMCMLProblem(MCMLProblem):
    """(4) in the coordinates of (5): MCML on the features of the points, sorted by class."""

    @classmethod
    def of(
        cls,
        E: Array,
        starts: Index,
        shrinkage: float,
        images: Callable[[Matrix], Array],
        trace: Callable[[Matrix], float],
    ) -> Self:
        """The problem on features E (n, r).

        ``shrinkage`` is that of (5) of `nearfar.problems.soft_neighbors`, without a floor.
        ``images`` are those of the points under C of (5), from kernel values, for a map L on E, and
        ``trace`` is (3).
        """
        built = cls.shrunk(E, E.mean(0), starts, shrinkage, floored=False)
        return replace(built, images=images, trace=trace)

    def whole(self, L: Matrix, U: Array | None = None) -> CollapsePoint:
        """As `evaluate`, with all of S(p) even if L has few rows; rows of zeros are added to L."""
        missing = math.ceil(NARROW * L.shape[1]) - len(L)
        return self.evaluate(np.vstack([L, np.zeros((max(missing, 0), L.shape[1]))]), U)

    def lacking(self, at: CollapsePoint) -> Matrix:
        """(7), (m, d), the steepest first, for a factor with all of S(p).

        A row is v √s with vᵀPv = 1, where s = vᵀ(S(p) − P)v is how steeply f falls along vvᵀ.
        """
        assert at.spread is not None, "a map of few rows does not determine other directions"
        basis, _ = self._range
        rows = linalg.orth(basis.T @ self.P @ at.L.T)
        S = symmetric(basis.T @ at.spread @ basis)
        inside = S @ rows @ rows.T
        outside = symmetric(S - inside - inside.T + rows @ (rows.T @ inside))
        last = len(outside) - 1
        values, vectors = linalg.eigh(outside, subset_by_index=(max(0, last - MORE + 1), last))
        found: Matrix = (basis @ vectors * np.sqrt(np.maximum(values - 1, 0))).T[values > 1]
        return found[::-1]
