"""Sparse distance metric learning: a sparse metric near a prior, by the graphical lasso.

Pairs with differences v and y = 1 for near and −r for far ones, r > 0 (1 in the paper), a prior
A₀ ≻ 0, η > 0 and λ >= 0:

(1) pairs      Q = Σ y v vᵀ                                                        [ICML09]
(2) matrix     S = A₀⁻¹ + η Q                                                      [ICML09]
(3) minimise   P(A) = tr(AS) − log det A + λ Σ_{i≠j} |A_ij|  over A ≻ 0            [ICML09]
(4) objective  D(A, A₀) + η Σ y vᵀAv + λ Σ_{i≠j} |A_ij| = P(A) + log det A₀ − d
(5) dual       maximise log det W + d  over W ≻ 0 with W_ii = S_ii, |W_ij − S_ij| <= λ
(6) gap        P(A) − log det W − d >= 0
(7) largest η  S ≻ 0 if and only if η < −1 / μ, with μ < 0 the smallest eigenvalue of L₀QL₀ᵀ for
               A₀ = L₀ᵀL₀; any η if there is no such μ
(8) blocks     with G the graph of the pairs of features with |S_ij| > λ, the optimal A has no
               entries between the components of G                                  [JMLR12]

D is the LogDet divergence of `nearfar.problems.logdet`. The dual follows from
λ |A_ij| = max u A_ij over |u| <= λ and inf_A tr(AW) − log det A = d + log det W. S itself is
feasible for it, so that every A has a bound. Far pairs make S smaller; if it is not positive
definite, A can grow without bound in a direction in which it gains, unless λ is large enough to
prevent it.

Costs: O(m d²) for Q; then O(d³) for each sweep of a solver, less if there are blocks; O(d²) memory.

[ICML09] Qi, Tang, Zha, Chua & Zhang, An efficient sparse metric learning in high-dimensional space
via l1-penalized log-determinant regularization, ICML 2009.
[JMLR12] Mazumder & Hastie, Exact covariance thresholding into connected components for large-scale
graphical lasso, JMLR 13, 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.csgraph import connected_components

from nearfar.linalg import canonical_regular_factor, symmetric

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class SDMLProblem:
    """(3)."""

    S: Matrix  # (d, d) of (2)
    penalty: float  # λ
    log_volume: float = 0.0  # log det A₀

    @cached_property
    def blocks(self) -> list[Index]:
        """The features of each component of (8)."""
        linked = np.abs(self.S) > self.penalty
        count, numbers = connected_components(linked, directed=False)
        return [np.flatnonzero(numbers == k) for k in range(count)]

    def value(self, A: Matrix) -> float:
        """(4); infinite if A is not positive definite."""
        sign, volume = np.linalg.slogdet(A)
        if sign <= 0 or linalg.eigvalsh(A, subset_by_index=[0, 0])[0] <= 0:
            return np.inf
        off_diagonal = np.abs(A).sum() - np.abs(np.diag(A)).sum()
        P = np.vdot(A, self.S) - volume + self.penalty * off_diagonal  # (3)
        return float(P + self.log_volume - len(A))

    def dual_point(self, W: Matrix) -> Matrix:
        """The nearest matrix within the bounds of (5), or S if that is not positive definite."""
        found = np.clip(symmetric(W), self.S - self.penalty, self.S + self.penalty)
        np.fill_diagonal(found, np.diag(self.S))
        try:
            linalg.cholesky(found)
        except linalg.LinAlgError:
            return self.S
        return found

    def bound(self, W: Matrix) -> float:
        """(5) at a dual point, in units of (4)."""
        return float(np.linalg.slogdet(W)[1] + self.log_volume)

    def gap(self, value: float, W: Matrix) -> float:
        """(6), relative to the size of the objective, or to 1 if that is larger."""
        return max(value - self.bound(W), 0.0) / max(abs(value), 1.0)

    def components(self, A: Matrix) -> Matrix:
        """The canonical map (d, d)."""
        return canonical_regular_factor(linalg.cholesky(symmetric(A)))


def largest_balance(Q: Matrix, prior: Matrix) -> float:
    """(7), for a prior map L₀ (d, d); infinite if every η leaves S positive definite."""
    inside = symmetric(prior @ Q @ prior.T)
    smallest = float(linalg.eigvalsh(inside, subset_by_index=[0, 0])[0])
    return -1 / smallest if smallest < -np.finfo(float).eps * np.abs(inside).max() else np.inf
