"""Maximum variance unfolding: points as far apart as the lengths of a graph's edges allow.

With K the Gram matrix of n points about their mean, edges e = (i, j) of squared lengths D_e, the
Laplacian Lap(w) = Σ_e w_e (e_i − e_j)(e_i − e_j)ᵀ and P = I − 11ᵀ/n:

(1) length   ℓ_e(K) = (K_ii − 2 K_ij + K_jj) / D_e, which should be 1             [Thesis, eq. 3.8]
(2) maximise σ tr K − Σ_e (u_e x_e⁺ + v_e x_e⁻)  over K ⪰ 0, K1 = 0, x ≥ 0
    with     ℓ_e(K) = 1 + x_e⁺ − x_e⁻                                     [Thesis, 3.1.4 and 3.1.6]
(3) dual     minimise Σ_e y_e  with  S = Lap(y / D) − σP ⪰ 0,  −v ≤ y ≤ u
(4) start    y = s u with a share s that makes S positive; K = μ S⁻¹ and x = μ / (u − y, v + y)
             with μ such that (2) holds on the mean over e, weighted by u; the rest is added to x
(5) thicker  D_e + δ(t_i + t_j) for D_e, with t_i the least D_e at node i

σ is 1, or −1 for the least variance. The programs of the thesis are choices of the prices u and v:

=========  ===================================================================================
equal      u = v large: above every |y_e| of a solution the slack x is zero, and (2) is the
           program with equalities (an exact penalty)
shrink     u large, v = 0: lengths may shrink, but not grow
slack      u = v = D ω / (1 − ω), the thesis' price of a change in a squared length. The variance
           is bounded if ω / (1 − ω) > 1 / (second smallest eigenvalue of Lap(1))
=========  ===================================================================================

A large price is 10⁴ η, where 1/η is the second smallest eigenvalue of Lap(1 / D), and a hundred
times as much where some |y_e| reaches it. So every program has points inside both cones, whatever
the distances, and (4) is one near the central path. Distances that no points have are told by a
slack that is large in spite of its price.

Cliques of more points than their dimension needs leave the program with equalities without an
interior: some |y_e| is infinite, lengths would have to be exact to the last digits, and a relative
change of 10⁻⁴ in them can multiply the variance. (5) gives each point a dimension of its own, in
which it is √(δ t_i) away from all others: K + δ P diag(t) P keeps the new lengths if K keeps the
old ones, and is inside the cone. Squared lengths grow by the share 2δ at most.

Near a solution K has eigenvalues from 10⁵ down to 10⁻¹², and those of S are the other way round:
rounding the largest entries spoils the smallest eigenvalues. In coordinates in which K is the unit
matrix all is of one size. With K + t 11ᵀ = F Fᵀ and the rows c_e = Fᵀ(e_i − e_j) / √D_e of C:

(6) lengths  ℓ_e = c_eᵀ K' c_e  of  F K' Fᵀ, now with K' = I
(7) dual     S' = FᵀSF = Cᵀ diag(y) C − σFᵀPF, which is μI on the central path

D and K are in units of a power of two near the mean D, so that data of any scale has much the same
path, and units are changed without rounding.

K of an iterate keeps lengths up to rounding only, and its objective f may be above the optimum:

(8) interval f − c ≤ optimum ≤ Σ_e y_e ,  with c = Σ_e w_e |ℓ_e − 1| for equal lengths, where
             w = 2 (|y| + mean |y|); c = f v / (1 + v) for "shrink", v the largest growth of an ℓ_e;
             and c = 0 for "slack"

For "shrink" K / (1 + v) is feasible. For equal lengths f − c is the objective (2) of K at prices w,
and y is feasible in its dual: so (8) holds for (2) at these prices, which is the program with
equalities if they are above the multipliers of a solution. y approximates these; w leaves room.

[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, gram_kernels_for, kernels_for

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

FREE = 1e4  # prices that stand for infinite ones, in units of η
DEARER = 100.0  # times as much, where that is too cheap, and for (5)
PAID = 1e-6  # what is left of the gap when slack is paid for
EXHAUSTED = 1e-3  # the same, relative to the gap
MARGIN = 2.0  # of w in (8)
BOUGHT = 0.9  # of a price, at which slack is worth it
ROUNDED = 1e-5  # a gap that rounding may leave in a program that is well posed
FIRST = 0.05  # s of (4), if that is inside
EVEN = 0.1  # times the mean length: μ of (4) is at most the inverse of that
THICKNESS = 0.01  # δ of lengths that leave no interior


@dataclass(frozen=True)
class State:
    """A point inside the cones: K and x feasible in (2) up to rounding, y in (3)."""

    K: Array
    y: Array
    above: Array  # x⁺
    below: Array  # x⁻


@dataclass(frozen=True)
class MVUProgram:
    """Equations (1) to (5) on the device of the arrays."""

    heads: Array  # (m,)
    tails: Array  # (m,)
    squares: Array  # (m,) D, or that of (5), float64
    given: Array  # (m,) D
    upper: Array  # (m,) u
    lower: Array  # (m,) v
    sign: float  # σ
    first: Array  # (m,) y of (4)
    least: Array  # (n,) t
    n: int
    scale: float  # the unit of D and K, a power of two: what is judged is what is returned
    priced: bool = False  # whether slack is sold at its price, rather than forbidden or free
    thickness: float = 0.0  # δ
    may_relax: bool = False
    dear: bool = False  # whether prices are the higher ones

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
        may_relax: bool = False,
    ) -> MVUProgram:
        """The program of a connected graph, on the device of the reference (float64).

        ``constraints`` is "equal", "shrink" or "slack", ``slack_weight`` is ω, ``free`` stands for
        an infinite price, in units of η, and ``may_relax`` tells whether (5) may replace lengths
        that rounding does not allow to keep.
        """
        kernels, gram = kernels_for(reference), gram_kernels_for(reference)
        i, j = kernels.index(heads, reference), kernels.index(tails, reference)
        scale = 2.0 ** round(np.log2(float(squares.mean())))
        squares = squares / scale
        D = kernels.like(squares, reference)
        shape = D if constraints == "slack" else 0 * D + 1
        second = float(gram.eigh(gram.laplacian(i, j, shape / D, n))[0][1])
        if second <= 0:
            raise IllConditionedError
        unit = 1 / second
        rate = slack_weight / (1 - slack_weight) if constraints == "slack" else free * unit
        needed = unit / rate if maximise else 0.0  # S is positive above this share
        if needed >= 1:
            raise UnboundedError(unit / (1 + unit))
        price = rate * shape
        return cls(
            heads=i,
            tails=j,
            squares=D,
            given=D,
            upper=price,
            lower=0 * price if constraints == "shrink" else price,
            sign=1.0 if maximise else -1.0,
            first=max(FIRST, min(2 * needed, 0.5 * (1 + needed))) * price,
            least=kernels.like(_least_at(heads, tails, squares, n), reference),
            n=n,
            scale=scale,
            priced=constraints == "slack",
            may_relax=may_relax,
        )

    def dearer(self) -> MVUProgram:
        """The program at higher prices."""
        upper, lower, first = (DEARER * part for part in (self.upper, self.lower, self.first))
        return replace(self, upper=upper, lower=lower, first=first, dear=True)

    def thicker(self, thickness: float = THICKNESS) -> MVUProgram:
        """The program of (5)."""
        extra = thickness * (self.least[self.heads] + self.least[self.tails])
        dear = self if self.dear else self.dearer()
        return replace(dear, squares=self.given + extra, thickness=thickness, may_relax=False)

    def relaxed(self, state: State) -> MVUProgram | None:
        """What to solve next, where this one ended at a state before its gap was small."""
        if self.priced or self.gap(state) <= ROUNDED:
            return None
        if not self.dear and float(abs(state.y / self.upper).max()) > BOUGHT:
            return self.dearer()
        return self.thicker() if self.may_relax and not self.is_exhausted(state) else None

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
        """Of squared lengths, relative to those that were given."""
        return self.lengths(K) * (self.squares / self.given) - 1

    def projected(self, A: Array) -> Array:
        """PAP of a symmetric matrix."""
        means = A.mean(0)
        return A - means - means[:, None] + means.mean()

    def change(self, y: Array) -> Any:
        """Lap(y / D), by which S changes with y: a matrix to multiply with."""
        return self.gram.sparse_laplacian(self.heads, self.tails, y / self.squares, self.n)

    def dual_slack(self, y: Array) -> Array:
        """S of (3)."""
        S = self.gram.laplacian(self.heads, self.tails, y / self.squares, self.n)
        return S + self.sign / self.n - self.sign * self.gram.eye(self.n, S)

    def cholesky(self, A: Array) -> Array | None:
        """The lower factor of A + t 11ᵀ, or None where A is not definite on what 1 is normal to.

        t is of the size of A, so that the factor of a large A loses no digits to it.
        """
        factor: Array | None = self.gram.cholesky(A + A.diagonal().mean() / self.n)
        return factor

    def inverse(self, factor: Array) -> Array:
        """The pseudoinverse of A from its `cholesky`."""
        return self.projected(self.gram.cholesky_inverse(factor))

    def schur(self, K: Array, inverse: Array, extra: Array) -> Array | None:
        """The factor of ⟨A_e, K A_f S⁻¹⟩ for all pairs of constraints, plus a diagonal, or None."""
        scale, edges = 1 / self.squares, (self.heads, self.tails)
        factor: Array | None = self.gram.schur(K, inverse, *edges, scale, extra)
        return factor

    def scaled(self, factor: Array) -> ScaledMVUProgram:
        """The program in coordinates in which the matrix of this `cholesky` is the unit matrix."""
        return ScaledMVUProgram.build_from(self, factor)

    def plain(self, state: State) -> tuple[MVUProgram, State]:
        """The program (2) and its point, which are these."""
        return self, state

    def start(self) -> State:
        """The point (4)."""
        y = self.first
        factor = self.cholesky(self.dual_slack(y))
        if factor is None:
            raise IllConditionedError
        inverse = self.inverse(factor)
        if self.cholesky(inverse) is None:
            raise IllConditionedError
        lengths, above, below = self.lengths(inverse), 1 / (self.upper - y), 1 / (self.lower + y)
        weights = self.upper / self.upper.sum()
        even = float(weights @ (lengths - above + below))
        mu = 1 / max(even, EVEN * float(weights @ lengths))
        above, below = mu * above, mu * below
        excess = mu * lengths - 1 - above + below
        return State(
            mu * inverse, y, above=above + excess.clip(0, None), below=below - excess.clip(None, 0)
        )

    @property
    def mean_square(self) -> float:
        """The mean D, in units of the data: gaps are relative to it, or to a larger bound."""
        return self.scale * float(self.given.mean())

    def variance(self, state: State) -> float:
        """σ tr K."""
        return self.scale * self.sign * float(state.K.diagonal().sum())

    def paid(self, state: State) -> float:
        """What the slacks cost that K needs; x itself is larger, or K inexact."""
        excess = self.lengths(state.K) - 1
        above, below = excess.clip(0, None), -excess.clip(None, 0)
        return self.scale * float(self.upper @ above + self.lower @ below)

    def bound(self, state: State) -> float:
        """The sum of y, which no variance less what is paid exceeds."""
        return self.scale * float(state.y.sum())

    def gap(self, state: State) -> float:
        """The width of (8) relative to the bound, or the violation if that is larger."""
        bound, value = self.bound(state), self.variance(state)
        value -= self.paid(state) if self.priced else 0.0
        width = max(bound - value, 0.0) + self.owed(state)  # (8)
        return max(width / max(self.mean_square, abs(bound)), self.violation(state))

    def owed(self, state: State) -> float:
        """c of (8): how far the optimum may lie below the variance, for lengths are not kept."""
        if self.priced:
            return 0.0
        if self.may_shrink:
            most = self.violation(state)
            return self.variance(state) * most / (1 + most)
        prices = MARGIN * (abs(state.y) + abs(state.y).mean())
        return self.scale * float(prices @ abs(self.lengths(state.K) - 1))

    def gap_with_slack(self, state: State) -> float:
        """How far (2) is from the bound, with what is paid."""
        bound = self.bound(state)
        return abs(bound - self.variance(state) + self.paid(state)) / max(
            self.mean_square, abs(bound)
        )

    def remaining(self, mu: float, state: State) -> float:
        """What products of this mean leave of the gap, but for rounding and for slack."""
        return mu * self.size * self.scale / max(self.mean_square, abs(self.bound(state)))

    def is_exhausted(self, state: State) -> bool:
        """Whether (2) is solved, but slack bought that should not be."""
        if self.priced:
            return False
        return self.gap_with_slack(state) <= min(PAID, EXHAUSTED * self.gap(state))

    def value(self, state: State) -> float:
        """The least is best: of points whose lengths cannot be kept, those that pay least."""
        gap = self.gap(state)
        return min(gap, self.gap_with_slack(state)) if self.dear else gap

    def violation(self, state: State) -> float:
        """The largest change of a length that is forbidden, relative to that of the program."""
        return float(abs(self.forbidden(self.lengths(state.K) - 1)).max())

    def forbidden(self, changes: Array) -> Array:
        """The part of changes of lengths that is neither free nor for sale."""
        if self.priced:
            return 0 * changes
        return changes.clip(0, None) if self.may_shrink else changes

    @property
    def may_shrink(self) -> bool:
        """Whether lengths may shrink at no price."""
        return float(self.lower.max()) == 0


@dataclass(frozen=True, kw_only=True)
class ScaledMVUProgram(MVUProgram):
    """The program in the coordinates of (6) and (7), exact where S and K are nearly singular.

    K' and S' are definite: F has the direction of 1, in which S' is given an eigenvalue.
    """

    original: MVUProgram
    basis: Array  # (n, n) F
    rows: Array  # (m, n) C
    spread: Array  # (n, n) FᵀPF
    mean: Array  # (n,) Fᵀ1, of length 1

    @classmethod
    def build_from(cls, program: MVUProgram, basis: Array) -> ScaledMVUProgram:
        """The program in the coordinates of a basis F."""
        ones = basis.sum(0)
        spread = basis.T @ basis - ones[:, None] * (ones / program.n)
        rows = program.gram.edge_rows(basis, program.heads, program.tails, 1 / program.squares**0.5)
        values = {field.name: getattr(program, field.name) for field in fields(MVUProgram)}
        mean = ones / float(ones @ ones) ** 0.5
        return cls(**values, original=program, basis=basis, rows=rows, spread=spread, mean=mean)

    def scaled(self, factor: Array) -> ScaledMVUProgram:
        """The program in coordinates in which the matrix of this factor is the unit matrix."""
        return ScaledMVUProgram.build_from(self.original, self.basis @ factor)

    def plain(self, state: State) -> tuple[MVUProgram, State]:
        """The program (2), and this point of it."""
        K = self.original.projected(self.basis @ (state.K @ self.basis.T))
        return self.original, replace(state, K=0.5 * (K + K.T))

    @property
    def size(self) -> int:
        """How many products should become zero, and the one of 1, which should not."""
        return self.n + 2 * len(self.squares)

    def lengths(self, K: Array) -> Array:
        """ℓ of (6)."""
        return ((self.rows @ K) * self.rows).sum(1)

    def projected(self, A: Array) -> Array:
        """The matrix itself: 1 has its direction."""
        return A

    def change(self, y: Array) -> Array:
        """Cᵀ diag(y) C, by which S' changes with y."""
        return (self.rows.T * y) @ self.rows

    def dual_slack(self, y: Array) -> Array:
        """S' of (7), with the mean of its eigenvalues in the direction of 1."""
        S = self.change(y) - self.sign * self.spread
        S = 0.5 * (S + S.T)
        return S + S.diagonal().mean() * self.mean[:, None] * self.mean

    def cholesky(self, A: Array) -> Array | None:
        """The lower factor, or None if the matrix is not definite."""
        factor: Array | None = self.gram.cholesky(A)
        return factor

    def inverse(self, factor: Array) -> Array:
        """The inverse of A from its `cholesky`."""
        inverse: Array = self.gram.cholesky_inverse(factor)
        return inverse

    def schur(self, K: Array, inverse: Array, extra: Array) -> Array | None:  # noqa: ARG002
        """As in plain coordinates, for K' = I."""
        factor: Array | None = self.gram.schur_of_rows(self.rows, self.rows @ inverse, extra)
        return factor


def _least_at(heads: Index, tails: Index, squares: Matrix, n: int) -> Matrix:
    """The least squared length at each node."""
    least = np.full(n, np.inf)
    np.minimum.at(least, heads, squares)
    np.minimum.at(least, tails, squares)
    return least


class IllConditionedError(ValueError):
    """Lengths so different that rounding takes (4) out of the cones."""


class UnboundedError(ValueError):
    """A slack whose price is too low to keep the variance finite; ``least`` is the least ω."""

    def __init__(self, least: float) -> None:
        super().__init__(f"the slack weight must be above {least}")
        self.least = least
