"""Maximum variance unfolding: points as far apart as the lengths of a graph's edges allow.

With K the Gram matrix of n points about their mean, edges e = (i, j) of squared lengths D_e, the
Laplacian Lap(w) = Σ_e w_e (e_i − e_j)(e_i − e_j)ᵀ and P = I − 11ᵀ/n:

(1) length   ℓ_e(K) = (K_ii − 2 K_ij + K_jj) / D_e, which should be 1             [Thesis, eq. 3.8]
(2) maximise σ tr K − Σ_e (u_e x_e⁺ + v_e x_e⁻)  over K ⪰ 0, K1 = 0, x ≥ 0
    with     ℓ_e(K) = 1 + x_e⁺ − x_e⁻                                     [Thesis, 3.1.4 and 3.1.6]
(3) dual     minimise Σ_e y_e  with  S = Lap(y / D) − σP ⪰ 0,  −v ≤ y ≤ u
(4) start    y = 2ηg where 1/η is the second smallest eigenvalue of Lap(g / D), so that S ⪰ P;
             K = μ S⁻¹ with μ such that the mean of ℓ is 1; and x such that (2) holds
(5) thicker  D_e + δ(t_i + t_j) for D_e, with t_i the least D_e at node i

σ is 1, or −1 for the least variance. The programs of the thesis are choices of the prices u and v:

=========  ===================================================================================
equal      u = v large: above every |y_e| of a solution the slack x is zero, and (2) is the
           program with equalities (an exact penalty); g = 1
shrink     u large, v = 0: lengths may shrink, but not grow; g = 1
slack      u = v = D ω / (1 − ω), the thesis' price of a change in a squared length; g = D. It has
           a solution if ω / (1 − ω) > 1 / (second smallest eigenvalue of Lap(1)), else the
           variance grows without bound
=========  ===================================================================================

So every program has points inside both cones, whatever the distances, and (4) is one near the
central path. Distances that no points have are told by a slack that is large in spite of its price.

Cliques that are larger than their dimension, or nearly, leave the program with equalities without
an interior: some |y_e| is infinite, or so large that lengths would have to be exact to the last
digits, and rounding stops the solver too early. (5) gives each point a dimension of its own, in
which it is √(δ t_i) away from all others: K + δ P diag(t) P keeps the new lengths if K keeps the
old ones, and is inside the cone. Squared lengths grow by the share 2δ at most, which counts as gap.

[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, gram_kernels_for, kernels_for

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

FREE = 1e4  # prices that stand for infinite ones, in units of η
DEARER = 100.0  # times as much where lengths are thicker, which need larger prices
THICKNESSES = (1e-5, 1e-4, 1e-3)  # δ, tried in turn


@dataclass(frozen=True)
class State:
    """A point inside the cones: K and x feasible in (2) up to rounding, y in (3)."""

    K: Array
    y: Array
    above: Array  # x⁺
    below: Array  # x⁻


@dataclass(frozen=True)
class MVUProgram:
    """Equations (1) to (4) on the device of the arrays."""

    heads: Array  # (m,)
    tails: Array  # (m,)
    squares: Array  # (m,) D, float64
    upper: Array  # (m,) u
    lower: Array  # (m,) v
    sign: float  # σ
    first: Array  # (m,) y of (4)
    least: Array  # (n,) t
    n: int
    priced: bool = False  # whether slack is sold at its price, rather than forbidden or free
    thickness: float = 0.0  # δ; squares are those of (5)

    @classmethod
    def build(
        cls,
        heads: Index,
        tails: Index,
        squares: Matrix,
        n: int,
        reference: Array,
        constraints: str = "equal",
        slack_weight: float = 0.99,
        maximise: bool = True,
        free: float = FREE,
    ) -> MVUProgram:
        """The program of a connected graph, on the device of the reference (float64).

        ``constraints`` is "equal", "shrink" or "slack", ``slack_weight`` is ω, and ``free`` stands
        for an infinite price, in units of η.
        """
        kernels, gram = kernels_for(reference), gram_kernels_for(reference)
        i, j = kernels.index(heads, reference), kernels.index(tails, reference)
        D = kernels.like(squares, reference)
        shape = D if constraints == "slack" else 0 * D + 1
        unit = float(1 / gram.eigh(gram.laplacian(i, j, shape / D, n))[0][1])
        price = 0 * D + free * unit
        first = 2 * unit
        if constraints == "slack":
            rate = slack_weight / (1 - slack_weight)
            price, first = D * rate, min(first, 0.5 * (unit + rate))
            if rate <= unit:
                raise UnboundedError(unit / (1 + unit))
        return cls(
            heads=i,
            tails=j,
            squares=D,
            upper=price,
            lower=0 * price if constraints == "shrink" else price,
            sign=1.0 if maximise else -1.0,
            first=first * shape if maximise else 0 * D,
            least=kernels.like(_least_at(heads, tails, squares, n), reference),
            n=n,
            priced=constraints == "slack",
        )

    def thicker(self, thickness: float) -> MVUProgram:
        """The program of (5); this one has no thickness. Its first y is inside, too."""
        extra = thickness * (self.least[self.heads] + self.least[self.tails])
        return replace(
            self,
            squares=self.squares + extra,
            upper=DEARER * self.upper,
            lower=DEARER * self.lower,
            thickness=thickness,
        )

    def relaxations(self) -> Iterator[MVUProgram]:
        """Programs that are better posed; only equal lengths leave none inside the cone."""
        if not self.priced and float(self.lower.max()) > 0:
            yield from map(self.thicker, THICKNESSES)

    @property
    def least_gap(self) -> float:
        """What `gap` can be at least, about."""
        return 2 * self.thickness

    @property
    def gram(self) -> ModuleType:
        """The kernels of the device."""
        return gram_kernels_for(self.squares)

    @property
    def size(self) -> int:
        """How many products should become zero: eigenvalues of K and entries of x."""
        return self.n - 1 + 2 * len(self.squares)

    def lengths(self, K: Array) -> Array:
        """ℓ of (1)."""
        lengths: Array = self.gram.gram_lengths(K, self.heads, self.tails) / self.squares
        return lengths

    def changes(self, K: Array) -> Array:
        """Of squared lengths, relative to those that were given, of which (5) knows nothing."""
        extra = self.thickness * (self.least[self.heads] + self.least[self.tails])
        return self.lengths(K) * (self.squares / (self.squares - extra)) - 1

    def projected(self, A: Array) -> Array:
        """PAP of a symmetric matrix."""
        means = A.mean(0)
        return A - means - means[:, None] + means.mean()

    def laplacian(self, y: Array) -> Array:
        """Lap(y / D)."""
        found: Array = self.gram.laplacian(self.heads, self.tails, y / self.squares, self.n)
        return found

    def dual_slack(self, y: Array) -> Array:
        """S of (3)."""
        S = self.laplacian(y) + self.sign / self.n
        return S - self.sign * self.gram.eye(self.n, S)

    def cholesky(self, A: Array) -> Array | None:
        """The lower factor of A + t 11ᵀ, or None where A is not definite on what 1 is normal to.

        t is of the size of A, so that the factor of a large A loses no digits to it.
        """
        factor: Array | None = self.gram.cholesky(A + A.diagonal().mean() / self.n)
        return factor

    def inverse(self, factor: Array) -> Array:
        """The pseudoinverse of A from its `cholesky`."""
        return self.projected(self.gram.cholesky_inverse(factor))

    def schur(self, K: Array, inverse: Array, extra: Array) -> Any:
        """⟨A_e, K A_f S⁻¹⟩ for all pairs of constraints, plus a diagonal, factored; or None."""
        return self.gram.schur(K, inverse, self.heads, self.tails, 1 / self.squares, extra)

    def start(self) -> State:
        """The point (4); for the least variance y = 0 and S = P instead."""
        y = self.first
        factor = self.cholesky(self.dual_slack(y))
        assert factor is not None, "the start is inside"
        inverse = self.inverse(factor)
        mu = float(1 / self.lengths(inverse).mean())
        K = mu * inverse
        excess = self.lengths(K) - 1
        above, below = mu / (self.upper - y), mu / (self.lower + y)
        longer = excess > 0
        return State(
            K,
            y,
            above=above * ~longer + (excess + below) * longer,
            below=below * longer + (above - excess) * ~longer,
        )

    def variance(self, state: State) -> float:
        """σ tr K."""
        return self.sign * float(state.K.diagonal().sum())

    def paid(self, state: State) -> float:
        """What the slacks cost."""
        return float(self.upper @ state.above + self.lower @ state.below)

    def gap(self, state: State) -> float:
        """How far (2) is from the bound, relative to it.

        Where lengths are kept, so that nothing should be paid, the variance alone may count: the
        larger of its distance and the violation.
        """
        bound = float(state.y.sum())
        size = max(1.0, abs(bound))
        priced = abs(bound - self.variance(state) + self.paid(state)) / size
        if self.priced:
            return priced
        kept = max(abs(bound - self.variance(state)) / size, self.violation(state))
        return kept if self.thickness else min(priced, kept)

    def violation(self, state: State) -> float:
        """The largest change of a length that is forbidden, relative to it."""
        if self.priced:
            return 0.0
        excess = self.changes(state.K)
        if float(self.lower.max()) == 0:  # shrinking is free
            excess = excess.clip(0, None)
        return float(abs(excess).max())


def _least_at(heads: Index, tails: Index, squares: Matrix, n: int) -> Matrix:
    """The least squared length at each node."""
    least = np.full(n, np.inf)
    np.minimum.at(least, heads, squares)
    np.minimum.at(least, tails, squares)
    return least


class UnboundedError(ValueError):
    """A slack whose price is too low to keep the variance finite; ``least`` is the least ω."""

    def __init__(self, least: float) -> None:
        super().__init__(f"the slack weight must be above {least}")
        self.least = least
