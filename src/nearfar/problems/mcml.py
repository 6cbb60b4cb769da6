"""Maximally collapsing metric learning: each class becomes one point, far from the others.

With D_A(i, j) = (xᵢ − xⱼ)ᵀ A (xᵢ − xⱼ), A = LᵀL, soft neighbours p, their denominators Z and
spread S of `nearfar.problems.soft_neighbors`, nᵢ the size of the class of i, and i running over the
points that are not alone in their class:

(1) wanted    p₀(j|i) = 1 / (nᵢ − 1) for the others of the class, else 0               [GR05, eq. 3]
(2) minimise  f(A) = Σᵢ KL[p₀(·|i) ‖ p(·|i)] + λ tr A  over A ⪰ 0                  [GR05, eqs. 4, 6]
                   = ⟨P, A⟩ + Σᵢ log Zᵢ − Σᵢ log(nᵢ − 1),  P = S(p₀) + λI
(3) gradient  ∂f/∂A = P − S(p),  ∂f/∂L = 2 L (P − S(p))
(4) dual      maximise Σᵢ H[p(·|i)] − Σᵢ log(nᵢ − 1)  over p with P − S(p) ⪰ 0         [GR05, eq. 5]
(5) entropy   Σᵢ H[p(·|i)] = ⟨A, S(p)⟩ + Σᵢ log Zᵢ  for the soft neighbours p of A
(6) repair    p' = (1 − ε) p + ε q, feasible, where q is so with room:
              Σ H[p'] ≥ (1 − ε) Σ H[p] + ε Σ H[q]
(7) nearer    q are the soft neighbours of A + Σ_k n (ρ_k − 1 + η)₊ b_k b_kᵀ, where S(p) b = ρ P b,
              bᵀPb = 1 and 1 + η is the largest ρ: nearer along the directions that are too wide;
              or q = p₀, whose room is λI
(8) limit     p keeps to the pairs that agree in the null space N of P, as the soft neighbours of
              A + t NNᵀ do for a large t: A may grow there for free, but S(p) must vanish

(9) shrinkage minimise Σᵢ KL[p₀(·|i) ‖ p(·|i)] + λ tr(M − φI)  over M ⪰ φI, with p of D_M, and λ
              and φ of (5) of `nearfar.problems.soft_neighbors`
(10) weights  mᵢ of mean 1: p(j|i) ∝ m_j exp(−D(i, j)), p₀(j|i) = m_j / (Nᵢ − mᵢ) in a class of
              weight Nᵢ, sums over i count mᵢ times, H[p] = −Σⱼ p(j) log(p(j) / m_j)

With A = M − φI ⪰ 0, (9) is (2) with φ‖xᵢ − xⱼ‖² added to D_A and the constant φT = φ tr S(p₀) to f.
The bound (4) becomes Σ H[p] − Σ log(nᵢ − 1) + φ tr(S(p₀) − S(p)). By (5), whose right side gains
φ tr S(p), it is again ⟨A, S(p)⟩ + Σ log Zᵢ − Σ log(nᵢ − 1), and φT; p₀ proves 0, and (6) to (8)
stay. With (10), integer weights are points that are repeated so often, whose copies do not choose
each other: log m_j cancels in the divergence, and log(nᵢ − 1) becomes log(Nᵢ − mᵢ).

The paper assumes classes of equal size for simplicity; here p₀ depends on the size. The soft
neighbours of the optimum are feasible in (4), and those of a metric near it almost feasible. The
repair (6) costs at most about η⟨P, A⟩, and less if the directions that are too wide have little
weight in A, the usual case. The constant in (7) is twice Newton's step for Gaussian differences.
q = p₀ is needed if classes almost collapse: then p is almost p₀, and all ρ are almost 1. p₀ is
feasible, so the bound is never below zero.

In whitened coordinates P is near the identity, and λI has become λBᵀB; the value does not change.

(11) curvature  about 2⟨P − S(p), DᵀD⟩ + (2/n)‖LᵀD + DᵀL‖²  along L + tD

For Gaussian differences with S(p) = P = I, (11) is exact. With L = diag(s)Vᵀ it couples no entries
of DV but the pairs (k, j) and (j, k), so that its inverse costs O(d³).

[GR05] Globerson & Roweis, Metric learning by collapsing classes, NIPS 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import is_identity, range_and_null, symmetric
from nearfar.problems.soft_neighbors import (
    Point,
    SoftNeighborsProblem,
    masses_of_others,
    within_classes,
)

Matrix = NDArray[np.float64]

NULL = 1e-9  # share of a spread in the null space of P that is rounding
CHORDS = 4  # steps that look for a smaller ε of (6)
REPAIRS = 5  # largest number of times that (7) is applied in turn until q is feasible
FARTHER = 4.0  # each of them goes this many times as far as the one before
LEAST_EXCESS = 1e-12  # least η in (7), above rounding
LEAST_SLACK = 0.02  # least eigenvalue of P − S(p) in (11), so that it is positive definite
TURNING = 0.1  # share of the curvature of lengthening L that counts for turning it, which has none


@dataclass(frozen=True)
class CollapsePoint(Point):
    """A factor, its objective, and the value of the dual (4) at its soft neighbours."""

    entropy: float  # the objective of (4), a bound where p is feasible
    spread: Matrix | None  # S(p); None for a map of few rows


@dataclass(frozen=True)
class Certificate:
    """The objective of a factor, and a lower bound on all objectives."""

    objective: float
    bound: float
    factors: tuple[Matrix, ...] = field(default=(), compare=False)  # of p, and of q of (7)

    @property
    def gap(self) -> float:
        """Their difference, relative to the objective, or to 1 if that is larger."""
        return abs(self.objective - self.bound) / max(self.objective, 1.0)


class MCMLProblem(SoftNeighborsProblem):
    """Equations (1) to (10) for points sorted by class; L is a factor of A."""

    def with_less_pull(self, share: float) -> MCMLProblem:
        """The problem with (1 − share) P for P.

        The soft neighbours of its optimum are feasible in (4) with room: S(p) ⪯ (1 − share) P. They
        prove a bound that is lower than the best one by about share · ⟨P, A⟩.
        """
        return replace(self, P=(1 - share) * self.P, ridge=(1 - share) * self.ridge)

    @cached_property
    def _constant(self) -> float:
        """Σᵢ mᵢ log(Nᵢ − mᵢ), less the pull of φI."""
        counted = self.counted > 0
        others = masses_of_others(self.starts, self.masses)[counted]
        return float(self.counted[counted] @ np.log(others)) - self._pull_of_floor

    @cached_property
    def _pull_of_floor(self) -> float:
        """⟨S(p₀), φI⟩."""
        return self._pull(self.kept) if self.floor.any() else 0.0

    def _pull(self, Z: Array) -> float:
        """Σᵢⱼ mᵢ p₀(j|i) D(i, j) of images."""
        within = within_classes(Z, self.starts, self.masses)
        return float((within * within).sum())

    @cached_property
    def _range(self) -> tuple[Matrix, Matrix]:
        """A basis R of the range of P with RᵀPR = I, and one of its null space."""
        return range_and_null(self.P)

    @cached_property
    def _is_white(self) -> bool:
        """Whether P = I, as of the features of a kernel."""
        return is_identity(self.P)

    def evaluate(self, L: Matrix, U: Array | None = None) -> CollapsePoint:
        """Objective and gradient at a factor, over the points U if they are given.

        An estimate of its rounding error is added to the value. Otherwise a descent could find
        smaller values that are only rounding errors of a very large metric. The same is taken off
        the entropy, so that such a metric proves no bound.
        """
        sums = self.sums(L, U)
        LP = L if self._is_white else L @ self.P
        normaliser = float(sums.logs @ self.counted) - self._constant
        return CollapsePoint(
            L,
            value=float(np.vdot(LP, L)) + normaliser + sums.rounding,  # (2)
            gradient=2 * (LP - sums.product),  # (3)
            entropy=float(np.vdot(sums.product, L)) + normaliser - sums.rounding,  # (5)
            spread=sums.spread,
        )

    def slope(self, at: CollapsePoint) -> Matrix:
        """∂f/∂A of (3) at a factor of a full metric."""
        assert at.spread is not None, "a map of few rows has no full gradient"
        return self.P - at.spread

    def preconditioner(self, at: CollapsePoint) -> Callable[[Matrix], Matrix] | None:
        """The product with about the inverse of (11); None for a map of few rows."""
        if at.spread is None:
            return None
        turn, lengths, Vt = np.linalg.svd(at.L)
        r, d, m = *at.L.shape, len(lengths)
        slack = np.maximum(np.vecdot(Vt @ self.slope(at), Vt), LEAST_SLACK)
        stiff = np.zeros(max(r, d))
        stiff[:m] = 4 / float(self.counted.sum()) * lengths**2
        own = 2 * slack + (1 + TURNING) * stiff[:r, None] + TURNING * stiff[:d]
        own[np.arange(m), np.arange(m)] += stiff[:m]
        coupled = np.sqrt(np.outer(stiff[:m], stiff[:m])) * (1 - np.eye(m))  # of (k, j) and (j, k)
        opposite = own[:m, :m].T
        determinants = own[:m, :m] * opposite - coupled**2

        def apply(gradient: Matrix) -> Matrix:
            D = turn.T @ gradient @ Vt.T
            found, square = D / own, D[:m, :m]
            found[:m, :m] = (opposite * square - coupled * square.T) / determinants
            product: Matrix = turn @ found @ Vt
            return product

        return apply

    def certify(self, at: CollapsePoint, U: Array | None = None) -> Certificate:
        """A dual bound from the soft neighbours of a factor, made feasible by (6) if necessary.

        That takes one more evaluation, over the points U if given, or a few if classes have hardly
        more points than directions.
        """
        value, at = at.value, self._within_null(at, U)
        if at.spread is None or not self._within_range(at.spread):
            return Certificate(value, 0.0)
        ratios, frame = self._widths(at.spread)
        if ratios.max(initial=0.0) <= 1 - rounding_of_largest(ratios):
            return Certificate(value, max(0.0, at.entropy), (at.L,))

        def mixed(spread: Matrix, entropy: float) -> float:
            share = _least_share(np.diag(ratios), frame.T @ spread @ frame)
            if share > 1 or not self._within_range(spread):
                return 0.0
            return (1 - share) * at.entropy + share * entropy  # (6)

        bound, nearer = mixed(self.P - self.ridge, 0.0), at
        for number in range(REPAIRS):
            nearer = self._nearer(nearer, U, FARTHER**number)
            repaired = mixed(self.P - self.slope(nearer), nearer.entropy)
            if repaired > 0:
                return Certificate(value, max(bound, repaired), (at.L, nearer.L))
        return Certificate(value, max(0.0, bound), (at.L,))

    def objective(self, components: Matrix) -> float:
        """(2) of a map on the features, in float64."""
        Z, logs, _ = self.soft_neighbors_of(components)
        trace = self.trace(components) - float(self.floor.sum())
        normaliser = float(logs @ self.counted) - self._constant
        pull = self._pull(Z) - self._pull_of_floor
        return pull + self.regularization * trace + normaliser

    def prove(self, L: Matrix) -> Certificate:
        """The certificate of the map that a fit returns for a factor, from the data in float64.

        The last certificate is cached.
        """
        key = L.tobytes()
        if key not in self._proved:
            U = self.exact()
            self._proved.clear()
            proved = self.certify(self.evaluate(L, U), U)
            self._proved[key] = replace(proved, objective=self.objective(self.returned(L)))
        return self._proved[key]

    @cached_property
    def _proved(self) -> dict[bytes, Certificate]:
        return {}

    def _within_null(self, at: CollapsePoint, U: Array | None) -> CollapsePoint:
        """The factor of (8), or this one if its soft neighbours are such already, or none are."""
        _, null = self._range
        if at.spread is None or self._within_range(at.spread):
            return at
        for number in range(REPAIRS):
            steep = self.counted.sum() ** 0.5 * FARTHER**number * null.T
            farther = self.evaluate(linalg.qr(np.vstack([at.L, steep]), mode="r")[0], U)
            if farther.spread is not None and self._within_range(farther.spread):
                return farther
        return at

    def _nearer(self, at: CollapsePoint, U: Array | None, times: float = 1.0) -> CollapsePoint:
        """The factor of (7), or one that goes ``times`` as far."""
        ratios, frame = self._widths(self.P - self.slope(at))
        excess = max(ratios[-1] - 1, LEAST_EXCESS)
        weights = times * self.counted.sum() * np.maximum(ratios - 1 + excess, 0)
        tilt = np.sqrt(weights)[:, None] * frame.T
        return self.evaluate(linalg.qr(np.vstack([at.L, tilt[weights > 0]]), mode="r")[0], U)

    def _widths(self, spread: Matrix) -> tuple[Matrix, Matrix]:
        """The ratios ρ of (7), ascending, and the directions b, on the range of P."""
        basis, _ = self._range
        ratios, rotation = np.linalg.eigh(symmetric(basis.T @ spread @ basis))
        return ratios, basis @ rotation

    def _within_range(self, spread: Matrix) -> bool:
        """Whether a spread vanishes in the null space of P, as (4) requires."""
        _, null = self._range
        return bool(np.trace(null.T @ spread @ null) <= NULL * np.trace(spread))

    def expected_gap(self, at: CollapsePoint) -> float:
        """An estimate of the gap that `certify` would prove, at no cost."""
        if at.spread is None or not self._within_range(at.spread):
            return Certificate(at.value, 0.0).gap
        excess = max(float(self._widths(at.spread)[0].max(initial=0.0)) - 1, 0.0)
        cost = excess * float(np.vdot(at.L @ self.P, at.L))
        return (abs(at.value - at.entropy) + cost) / max(at.value, 1.0)


def _least_share(S: Matrix, T: Matrix) -> float:
    """A small ε with I − (1 − ε) S − ε T ⪰ 0, or infinity if it is above 1.

    The smallest eigenvalue is a concave function of ε. So where its chord from 0 to a positive
    value crosses zero, it is positive too. Its rounding error is subtracted.
    """
    unit, rounding = np.eye(len(S)), max(rounding_of_largest(S), rounding_of_largest(T))

    def room(share: float) -> float:
        matrix = symmetric(unit - (1 - share) * S - share * T)
        least = linalg.eigh(matrix, eigvals_only=True, subset_by_index=(0, 0))[0]
        return float(least) - rounding

    lack, share, left = -room(0.0), 1.0, room(1.0)
    if left < 0:
        return np.inf
    for _ in range(CHORDS):
        share *= lack / (lack + left)
        left = max(room(share), 0.0)
    return share


def rounding_of_largest(S: Matrix) -> float:
    """What rounding may have taken from the largest eigenvalue of S; its eigenvalues do, too."""
    return len(S) * float(np.finfo(float).eps) * float(np.linalg.norm(S))
