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
(8) repair    q of (6) of `nearfar.problems.mcml` are the soft neighbours of A + Σ_k w_k b_k b_kᵀ,
              for P = I, with b_k the eigenvectors of S(p) whose eigenvalues ρ_k are too large,
              w_k = 2 t_k / r_k, t_k = ρ_k − 1 + 0.02 η, and r_k how much ρ_k falls for each unit of
              w_k: so each ρ_k falls by what is asked, at the least loss of entropy

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

Why (8): along directions in which the metric is large a small change of w moves S(p) much, and the
entropy, too; along others it takes a hundred times as much. r is found by a first q with w = N t.

λ = r T / 8r' with T = ⟨S(p₀), I⟩ on E of r' columns and r = ρ / (1 − ρ): a *shrinkage* ρ does not
depend on the units of the kernel. There is no floor φI, as on points: beyond the span of the
training points it is no function of kernel values, and new points differ there, too.

If the centred K has full rank and λ = 0, f has no minimum: every placement of the points is an
image of E, and f falls to zero as classes collapse and move apart, whatever the labels are.

[GR05] Globerson & Roweis, Metric learning by collapsing classes, NIPS 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import bounded_leading_eigh, is_identity, leading_eigh, symmetric
from nearfar.problems.mcml import (
    FARTHER,
    LEAST_EXCESS,
    REPAIRS,
    Certificate,
    CollapsePoint,
    MCMLProblem,
    rounding_of_largest,
)
from nearfar.problems.soft_neighbors import NARROW

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

MORE = 8  # directions that are added at a time
WIDEST = 32  # directions that may be too wide, at first; more are found if all of these are
ROOM = 0.02  # t of (8) for the largest ρ − 1
LEAST_RESPONSE = 0.1  # least r of (8), times N
BEYOND = 2.0  # how many times as far as (8) asks q goes, so that it is feasible itself


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

    def certify(self, at: CollapsePoint, U: Array | None = None) -> Certificate:
        """As `MCMLProblem.certify`; where P = I, by (8) and with the least ε of (6) there.

        p' is feasible if μ = ε / (1 − ε) is at least the largest eigenvalue of S(p) − I relative to
        I − S(q).
        """
        if not is_identity(self.P) or at.spread is None:
            return super().certify(at, U)
        S, L = at.spread, at.L[at.L.any(axis=1)]
        ratios, frame = self._widest(S)
        rounding = rounding_of_largest(S)
        if ratios[-1] <= 1 - rounding:
            return Certificate(at.value, max(0.0, at.entropy), (L,))

        def mixed(spread: Matrix, entropy: float) -> float:
            share = _least_share(S, spread, rounding)
            return 0.0 if share is None else (1 - share) * at.entropy + share * entropy

        found = Certificate(at.value, 0.0, (L,))
        for q in self._repairs(L, ratios, frame, U):
            assert q.spread is not None, "`whole` has all of it"
            bound = mixed(q.spread, q.entropy)
            if bound > 0:
                found = Certificate(at.value, bound, (L, q.L[q.L.any(axis=1)]))
                break
        excess, top = ratios[-1] - 1, frame[:, -1]
        least = excess / (excess + float(top @ self.ridge @ top))
        if found.bound < (1 - least) * at.entropy:  # what p₀ proves may be more
            bound = mixed(self.P - self.ridge, 0.0)
            if bound > found.bound:
                return Certificate(at.value, bound, (L,))
        return found

    def _repairs(
        self, L: Matrix, ratios: Matrix, frame: Matrix, U: Array | None
    ) -> Iterator[CollapsePoint]:
        """The q of (8) and those with w = N t, each with larger t, until one is feasible."""
        excess = max(ratios[-1] - 1, LEAST_EXCESS)
        wanted = np.maximum(ratios - 1 + ROOM * excess, 0)
        ratios, frame, wanted = (part[..., wanted > 0] for part in (ratios, frame, wanted))
        N = float(self.counted.sum())

        def tilted(weights: Matrix) -> CollapsePoint:
            return self.whole(np.vstack([L, np.sqrt(weights)[:, None] * frame.T]), U)

        for number in range(REPAIRS):
            weights = FARTHER**number * N * wanted
            first = tilted(weights)
            assert first.spread is not None, "`whole` has all of it"
            widths = (frame * (first.spread @ frame)).sum(axis=0)
            response = np.maximum((ratios - widths) / weights, LEAST_RESPONSE / N)
            yield tilted(BEYOND * wanted / response)
            yield first

    def _widths(self, spread: Matrix) -> tuple[Matrix, Matrix]:
        return self._widest(spread) if is_identity(self.P) else super()._widths(spread)

    def _widest(self, spread: Matrix) -> tuple[Matrix, Matrix]:
        """The largest ratios ρ of (7) of `nearfar.problems.mcml` for P = I, and their directions.

        They are all that may exceed 1 − η, where 1 + η is the largest.
        """
        count = WIDEST
        while True:
            ratios, frame = leading_eigh(spread, count)
            if count >= len(spread) or ratios[0] <= 2 - ratios[-1]:
                return ratios, frame
            count *= 4

    def lacking(self, at: CollapsePoint) -> Matrix:
        """(7), (m, d), the steepest first, for a factor with all of S(p).

        A row is v √s with vᵀPv = 1, where s = vᵀ(S(p) − P)v is how steeply f falls along vvᵀ.
        """
        assert at.spread is not None, "a map of few rows does not determine other directions"
        basis, _ = self._range
        white = is_identity(basis)
        rows = linalg.orth(at.L.T if white else basis.T @ self.P @ at.L.T)
        S = at.spread if white else symmetric(basis.T @ at.spread @ basis)
        inside = (S @ rows) @ rows.T
        outside = symmetric(S - inside - inside.T + rows @ (rows.T @ inside))
        values, vectors = bounded_leading_eigh(outside, MORE)
        if not white:
            vectors = basis @ vectors
        found: Matrix = (vectors * np.sqrt(np.maximum(values - 1, 0))).T[values > 1]
        return found[::-1]


def _least_share(S: Matrix, T: Matrix, rounding: float) -> float | None:
    """The least ε with I − (1 − ε) S − ε T ⪰ 0, where S is not feasible, or None if T is not."""
    room = (1 - rounding) * np.eye(len(S)) - T
    excess, last = S - (1 - rounding) * np.eye(len(S)), len(S) - 1
    try:
        most = linalg.eigh(excess, room, eigvals_only=True, subset_by_index=(last, last))[0]
    except linalg.LinAlgError:  # I − T is not positive definite
        return None
    return float(most / (1 + most))
