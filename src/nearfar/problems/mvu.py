"""Maximum variance unfolding: points as far apart as the lengths of a graph's edges allow.

With K the Gram matrix of n points about their mean, edges e = (i, j) of squared lengths D_e, the
Laplacian Lap(w) = Σ_e w_e (e_i − e_j)(e_i − e_j)ᵀ and P = I − 11ᵀ/n:

(1) length   ℓ_e(K) = (K_ii − 2 K_ij + K_jj) / D_e, which should be 1             [Thesis, eq. 3.8]
(2) maximise σ tr K − Σ_e (u_e x_e⁺ + v_e x_e⁻)  over K ⪰ 0, K1 = 0, x ≥ 0
    with     ℓ_e(K) = 1 + x_e⁺ − x_e⁻                                     [Thesis, 3.1.4 and 3.1.6]
(3) dual     minimise Σ_e y_e  with  S = Lap(y / D) − σP ⪰ 0,  −v ≤ y ≤ u
(4) start    y = s u with a share s that makes S positive; K = μ S⁻¹ and x = μ / (u − y, v + y)
             with μ such that (2) holds on the mean over e, weighted by u; the rest is added to x
(5) thick    D_e + δ(t_i + t_j) for D_e, with t_i the least D_e at node i

σ is 1, or −1 for the least variance. The programs of the thesis are choices of the prices u and v:

=========  ===================================================================================
equal      u = v large: above every |y_e| of a solution the slack x is zero, and (2) is the
           program with equalities (an exact penalty)
shrink     u large, v = 0: lengths may shrink, but not grow
slack      u = v = D ω / (1 − ω), the thesis' price of a change in a squared length, or u and v of
           two ω [Thesis, 1.3.3]. The variance is bounded if ω / (1 − ω) of u is above 1 / (second
           smallest eigenvalue of Lap(1))
=========  ===================================================================================

Prices are those of each e, which need not be an edge of the graph: a pair of points whose distance
is given is one with equal lengths, a largest distance one with v = 0, and a least distance one with
u = 0, for which (4) has y = −s v.

A large price is 10⁴ η, where 1/η is the second smallest eigenvalue of Lap(1 / D), and a hundred
times as much once some |y_e| nearly reaches it (`MVUProgram.raised`): x is divided by as much as
its z = u − y or v + y grows, so that the point stays as near to the central path. So every program
has points inside both cones, whatever the distances, and (4) is one near the central path. If no
points have the given distances, a slack remains large in spite of its price.

A flat clique (one with more points than its dimension needs) leaves the program with equalities
without an interior: some |y_e| is infinite, lengths would have to be exact to the last digits, and
a relative change of 10⁻⁴ in them can multiply the variance. (5) gives each point a dimension of its
own, in which it is √(δ t_i) away from all others: K + δ P diag(t) P keeps the new lengths if K
keeps the old ones, and is inside the cone. Squared lengths grow by at most the share 2δ. Only this
module chooses δ: `MVUProgram.build` starts with (5) if there is such a clique, and
`MVUProgram.successor` continues with (5) if rounding ends the central path before the gap is small.

Near a solution K and S are nearly singular; `nearfar.problems.mvu_scaled` has the program in
coordinates, (6) and (7), in which K is the identity.

The unit of D and K is a power of two near the mean D, so that the path hardly depends on the scale
of the data, and changing units causes no rounding.

K of an iterate keeps lengths only up to rounding, so its objective f may be above the optimum:

(8) interval f − c ≤ optimum ≤ Σ_e y_e ,  with c = Σ_e w_e |ℓ_e − 1| over forbidden changes, where
             w = 2 (|y| + mean |y|); but c = f v / (1 + v) for "shrink" alone, v the largest growth

For "shrink" K / (1 + v) is feasible. For equal lengths f − c is the objective (2) of K at prices w,
and y is feasible in its dual: so (8) holds for (2) at these prices, which is the program with
equalities if they are above the multipliers of a solution. y approximates these; w leaves room.

The error measures of the DIMACS challenge, with b = D and C = σP in these units, so that
max |b| is max D, max |C| is at most 1, ⟨C, K⟩ = f and bᵀy = Σ_e y_e:

(9) errors   err1 = ‖(ℓ − 1) D‖ / (1 + max D), of changes that are neither free nor for sale;
             err2 = max(0, −λ(K)) / (1 + max D); err3 = 0, for S is computed from y;
             err4 = max(0, −λ(S)) / 2; err5 = (Σ_e y_e − f) / (1 + |f| + |Σ_e y_e|);
             err6 = ⟨K, S⟩ / (1 + |f| + |Σ_e y_e|), with λ the least eigenvalue        [Mittelmann]

[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
[Mittelmann] Mittelmann, An independent benchmarking of SDP and SOCP solvers, Mathematical
Programming 95, 2003.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearfar.graphs.cliques import has_flat_clique
from nearfar.kernels import Array, gram_kernels_for, kernels_for

if TYPE_CHECKING:
    from nearfar.problems.mvu_scaled import ScaledMVUProgram

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

FREE = 1e4  # prices that represent infinite ones, in units of η
HIGHER = 100.0  # factor of the higher prices, used if those are too low, and for (5)
PAID = 1e-6  # gap with slack at which (2) counts as solved
EXHAUSTED = 1e-3  # the same, relative to the gap
MARGIN = 2.0  # factor of w in (8)
BOUGHT = 0.9  # share of a price that |y| reaches if slack is worth its price
ROUNDED = 1e-5  # gap that rounding may leave in a well-posed program
FIRST = 0.05  # s of (4), if that is inside
EVEN = 0.1  # times the mean length; its inverse is the largest μ of (4)
THICKNESS = 0.01  # δ of (5)
ROUNDINGS = 4.0  # rounding errors of inner products in a squared length


@dataclass(frozen=True)
class State:
    """A point inside the cones: K and x feasible in (2) up to rounding, y in (3)."""

    K: Array
    y: Array
    above: Array  # x⁺
    below: Array  # x⁻


@dataclass(frozen=True)
class Certificate:
    """Objective, gap and error measures of a point, computed from the matrices themselves."""

    objective: float  # in the units of the data
    gap: float  # (8), and the violation if that is larger
    dimacs: dict[str, float]  # (9)


@dataclass(frozen=True)
class MVUProgram:
    """Equations (1) to (5) on the device of the arrays."""

    heads: Array  # (m,)
    tails: Array  # (m,)
    squares: Array  # (m,) D, or that of (5), float64
    given: Array  # (m,) D
    upper: Array  # (m,) u
    lower: Array  # (m,) v
    no_longer: (
        Array  # (m,) 1 where u is large, that is, where growing is forbidden, and 0 elsewhere
    )
    no_shorter: Array  # (m,) the same of v and shrinking
    sign: float  # σ
    first: Array  # (m,) y of (4)
    least: Array  # (n,) t
    n: int
    scale: float  # the unit of D and K, a power of two, so that rescaling is exact
    thickness: float = 0.0  # δ
    may_thicken: bool = False  # whether (5) may replace this program
    higher_penalty: bool = False  # whether prices are the higher ones

    @classmethod
    def build(
        cls,
        heads: Index,
        tails: Index,
        squares: Matrix,
        n: int,
        reference: Array,
        prices: tuple[Matrix, Matrix],
        maximise: bool = True,
        free: float = FREE,
        may_thicken: bool = False,
    ) -> MVUProgram:
        """The program of a connected graph, on the device of the reference (float64).

        ``prices`` are those of growing and of shrinking by a unit of squared length, as
        `edge_prices` gives them; infinity forbids it, and ``free`` is the price that represents
        this, in units of η. With ``may_thicken`` it is (5) if equal lengths leave no interior.
        """
        kernels, gram = kernels_for(reference), gram_kernels_for(reference)
        i, j = kernels.index(heads, reference), kernels.index(tails, reference)
        scale = 2.0 ** round(np.log2(float(squares.mean())))
        D = squares / scale
        forbidden = [np.isinf(side) for side in prices]

        def second(weights: Matrix) -> float:
            L = gram.laplacian(i, j, kernels.like(weights, reference), n)
            value = float(gram.eigenvalues(L)[1])
            if value <= 0:
                raise IllConditionedError
            return value

        large = free * (1 / second((prices[0] > 0) / D)) if np.any(forbidden) else 0.0
        upper, lower = (
            np.where(no, large, np.where(no, 0.0, side) * D)
            for no, side in zip(forbidden, prices, strict=True)
        )
        sold = not forbidden[0].all()
        needed = (1 / second(upper / D) if sold else 1 / free) if maximise else 0.0
        if needed >= 1:  # S is positive above this share
            rate = needed * float(prices[0][~forbidden[0]].max())
            raise UnboundedError(rate / (1 + rate))
        share = max(FIRST, min(2 * needed, 0.5 * (1 + needed)))
        arrays = {
            "squares": D,
            "given": D,
            "upper": upper,
            "lower": lower,
            "no_longer": 1.0 * forbidden[0],
            "no_shorter": 1.0 * forbidden[1],
            "first": share * np.where(upper > 0, upper, -lower),
            "least": least_at(heads, tails, D, n),
        }
        program = cls(
            heads=i,
            tails=j,
            sign=1.0 if maximise else -1.0,
            n=n,
            scale=scale,
            may_thicken=may_thicken,
            **{name: kernels.like(array, reference) for name, array in arrays.items()},
        )
        kept = forbidden[0] & forbidden[1]
        if may_thicken and has_flat_clique(n, heads[kept], tails[kept], squares[kept]):
            return program.with_thickness()
        return program

    def with_higher_penalty(self) -> MVUProgram:
        """The program at higher prices of what is forbidden."""
        more = HIGHER - 1
        return replace(
            self,
            upper=self.upper * (1 + more * self.no_longer),
            lower=self.lower * (1 + more * self.no_shorter),
            first=self.first * (1 + more * self.no_longer),
            higher_penalty=True,
        )

    def with_thickness(self, thickness: float = THICKNESS) -> MVUProgram:
        """The program of (5), at the higher prices."""
        extra = thickness * (self.least[self.heads] + self.least[self.tails])
        program = self if self.higher_penalty else self.with_higher_penalty()
        return replace(program, squares=self.given + extra, thickness=thickness, may_thicken=False)

    def is_bought(self, state: State) -> bool:
        """Whether a slack that represents what is forbidden is worth its price."""
        grown = self.no_longer * (state.y - BOUGHT * self.upper)
        shrunk = self.no_shorter * (-state.y - BOUGHT * self.lower)
        return not self.higher_penalty and max(float(grown.max()), float(shrunk.max())) > 0

    def raised(self, state: State) -> tuple[MVUProgram, State] | None:
        """The program at higher prices, and a point near its path, once a slack is bought; or None.

        None also if rounding leaves the point inside the cones in scaled coordinates alone.
        """
        if not self.is_bought(state):
            return None
        program, y = self.with_higher_penalty(), state.y
        if self.cholesky(state.K) is None or self.cholesky(self.dual_slack(y)) is None:
            return None
        above = state.above * ((self.upper - y) / (program.upper - y))
        below = state.below * ((self.lower + y) / (program.lower + y))
        return program, replace(state, above=above, below=below)

    def successor(self, state: State) -> MVUProgram | None:
        """The program to solve next, after the central path of this one ended at a state; or None.

        If the gap is still large, it has higher prices if slack was worth its price, and (5) if
        rounding ended the path.
        """
        if self.forbids_nothing or self.gap(state) <= ROUNDED:
            return None
        if self.is_bought(state):
            return self.with_higher_penalty()
        if self.may_thicken and not self.is_exhausted(state):
            return self.with_thickness()
        return None

    @cached_property
    def gram(self) -> ModuleType:
        """The kernels of the device."""
        return gram_kernels_for(self.squares)

    @property
    def size(self) -> int:
        """Number of products that should become zero: eigenvalues of K and entries of x."""
        return self.n - 1 + 2 * len(self.squares)

    def lengths(self, K: Array) -> Array:
        """ℓ of (1)."""
        return self.gram.gram_lengths(K, self.heads, self.tails) / self.squares

    def product_lengths(self, A: Array, B: Array) -> Array:
        """ℓ of ½(AB + (AB)ᵀ), for a symmetric A."""
        return self.gram.product_lengths(A, B, self.heads, self.tails) / self.squares

    def changes(self, K: Array) -> Array:
        """Changes of squared lengths, relative to the given ones."""
        return self.lengths(K) * (self.squares / self.given) - 1

    def projected(self, A: Array) -> Array:
        """PAP of a symmetric matrix."""
        means = A.mean(0)
        return A - means - means[:, None] + means.mean()

    def change(self, y: Array) -> Array:
        """Lap(y / D), the change of S with y."""
        return self.gram.sparse_laplacian(self.heads, self.tails, y / self.squares, self.n)

    def dual_slack(self, y: Array) -> Array:
        """S of (3)."""
        S = self.gram.laplacian(self.heads, self.tails, y / self.squares, self.n)
        return S + self.sign / self.n - self.sign * self.gram.eye(self.n, S)

    def cholesky(self, A: Array) -> Array | None:
        """The lower factor of A + t 11ᵀ, or None if A is not definite orthogonally to 1.

        t has the size of A, so that the factor loses no digits.
        """
        return self.gram.cholesky(A + A.diagonal().mean() / self.n)

    def inverse(self, factor: Array) -> Array:
        """The pseudoinverse of A from its `cholesky`."""
        return self.projected(self.gram.cholesky_inverse(factor))

    def schur(self, K: Array, inverse: Array, extra: Array, single: bool = False) -> Array | None:
        """The factor of ⟨A_e, K A_f S⁻¹⟩ for all pairs of constraints, plus a diagonal, or None.

        With ``single`` it is rounded to single precision.
        """
        scale, edges = 1 / self.squares, (self.heads, self.tails)
        return self.gram.schur(K, inverse, *edges, scale, extra, single)

    def scaled(self, factor: Array) -> ScaledMVUProgram:
        """The program in coordinates in which the matrix with this `cholesky` is the identity."""
        from nearfar.problems.mvu_scaled import ScaledMVUProgram

        return ScaledMVUProgram.build_from(self, factor)

    def plain(self, state: State) -> tuple[MVUProgram, State]:
        """The program itself and the point."""
        return self, state

    def start(self) -> State:
        """The point (4)."""
        y = self.first
        factor = self.cholesky(self.dual_slack(y))
        while factor is None and float(y.min()) < 0 and float(abs(y).min()) > 0:
            y = y.clip(0, None) + y.clip(None, 0) / HIGHER  # least distances pull on S
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

    def point(self, K: Array, y: Array, above: Array, below: Array) -> State:
        """A point of (2) and (3)."""
        return State(K, y, above, below)

    @cached_property
    def mean_square(self) -> float:
        """The mean D, in units of the data: gaps are relative to it, or to the bound if larger."""
        return self.scale * float(self.given.mean())

    def variance(self, state: State) -> float:
        """σ tr K."""
        return self.scale * self.sign * float(state.K.diagonal().sum())

    def slack_cost(self, state: State) -> float:
        """Cost of the slacks that K needs; x itself is larger, or K inexact."""
        return self._cost(self.lengths(state.K) - 1)

    def _cost(self, changes: Array) -> float:
        above, below = changes.clip(0, None), -changes.clip(None, 0)
        return self.scale * float(self.upper @ above + self.lower @ below)

    def objective(self, state: State) -> float:
        """The variance minus the cost of changes that are for sale."""
        changes = self.lengths(state.K) - 1
        return self.variance(state) - self._cost(changes - self.forbidden(changes))

    def bound(self, state: State) -> float:
        """The sum of y, an upper bound on the variance minus the cost of slack."""
        return self.scale * float(state.y.sum())

    def gap(self, state: State) -> float:
        """The width of (8) relative to the bound, or the violation if that is larger."""
        bound = self.bound(state)
        width = max(bound - self.objective(state), 0.0) + self.violation_cost(state)  # (8)
        return max(width / max(self.mean_square, abs(bound)), self.violation(state))

    def violation_cost(self, state: State) -> float:
        """c of (8): the optimum may lie this far below the variance, due to violated lengths."""
        if self.may_shrink:
            most = self.violation(state)
            return self.variance(state) * most / (1 + most)
        prices = MARGIN * (abs(state.y) + abs(state.y).mean())
        return self.scale * float(prices @ abs(self.forbidden(self.lengths(state.K) - 1)))

    def gap_with_slack(self, state: State) -> float:
        """The gap between (2), including the cost of slack, and the bound."""
        bound = self.bound(state)
        return abs(bound - self.variance(state) + self.slack_cost(state)) / max(
            self.mean_square, abs(bound)
        )

    def remaining(self, mu: float, state: State) -> float:
        """The gap that products of this mean leave, apart from rounding and slack."""
        return mu * self.size * self.scale / max(self.mean_square, abs(self.bound(state)))

    def is_exhausted(self, state: State) -> bool:
        """Whether (2) is solved, but with slack that should not be used."""
        if self.forbids_nothing:
            return False
        return self.gap_with_slack(state) <= min(PAID, EXHAUSTED * self.gap(state))

    def value(self, state: State, gap: float) -> float:
        """What is minimised; if lengths cannot be kept, the points with the least cost are best."""
        return min(gap, self.gap_with_slack(state)) if self.higher_penalty else gap

    def violation(self, state: State) -> float:
        """The largest forbidden change of a squared length, relative to that of the program."""
        return float(abs(self.forbidden(self.lengths(state.K) - 1)).max())

    def forbidden(self, changes: Array) -> Array:
        """Changes of lengths that are neither free nor have a price; 0 for all others."""
        return self.no_longer * changes.clip(0, None) + self.no_shorter * changes.clip(None, 0)

    @cached_property
    def forbids_nothing(self) -> bool:
        """Whether every change of a length is free or has a price."""
        return float((self.no_longer + self.no_shorter).max()) == 0

    @cached_property
    def may_shrink(self) -> bool:
        """Whether all lengths may shrink at no price, and none may grow."""
        return float(self.lower.max()) == 0 and float(self.no_longer.min()) == 1

    def rounding(self, state: State) -> Matrix:
        """Relative change of squared lengths by rounding K; (m,) on the host."""
        diagonal = state.K.diagonal()
        sizes = (diagonal[self.heads] + diagonal[self.tails]) / self.squares
        changes: Matrix = ROUNDINGS * np.finfo(float).eps * kernels_for(sizes).to_host(sizes)
        return changes

    def hidden(self, state: State) -> float:
        """What rounding may hide of the least eigenvalue of S: the share by which y must grow."""
        S = self.dual_slack(state.y)
        return float(self.n * np.finfo(float).eps * float((S * S).sum()) ** 0.5)

    def certificate(self, state: State, eigenvalues: Matrix) -> Certificate:
        """Objective, gap and error measures of a point; ``eigenvalues`` are those of K.

        Rounding may leave K or S slightly indefinite. The gap is that of the point after both are
        moved back into their cones, S by what rounding may have hidden of its least eigenvalue,
        too: y of a stiff graph is large, and so is that.
        """
        kernels, gram, unit, n = kernels_for(state.K), self.gram, self.scale, self.n
        objective = self.objective(state)
        S = self.dual_slack(state.y)
        least = float(gram.eigenvalues(S)[:2].min())  # 1 is an eigenvector of eigenvalue 0
        hidden = self.hidden(state)
        bound, below = self.bound(state), max(0.0, -float(eigenvalues.min()) / unit)
        inside = replace(
            state,
            K=state.K + below * (gram.eye(n, state.K) - 1 / n),
            y=state.y / (1 + self.sign * min(least - hidden, 0.0)),
        )
        gap = self.gap(inside) + (n - 1) * below * unit / max(self.mean_square, abs(bound))
        given = kernels.to_host(self.squares)
        lack = kernels.to_host(self.forbidden(self.lengths(state.K) - 1)) * given
        size, total = 1 + float(given.max()), 1 + (abs(objective) + abs(bound)) / unit
        dimacs = {
            "err1": float(np.linalg.norm(lack)) / size,
            "err2": below / size,
            "err3": 0.0,
            "err4": max(0.0, -least) / 2,
            "err5": (bound - objective) / unit / total,
            "err6": float((state.K * S).sum()) / total,
        }
        return Certificate(objective, gap, dimacs)  # (9)

    def dual_point(self, state: State) -> tuple[Index, Matrix]:
        """Ends (m, 2) of the edges, and y in the units of the data beside δ, (m, 2)."""
        to_host = kernels_for(state.y).to_host
        y = self.scale * to_host(state.y)
        edges = np.stack([to_host(self.heads), to_host(self.tails)], axis=1)
        return edges, np.stack([y, np.full(len(y), self.thickness)], axis=1)


def edge_prices(
    constraints: str, slack_weight: float | tuple[float, float], count: int
) -> tuple[Matrix, Matrix]:
    """Prices of growing and of shrinking, (count,) each, for a program of the thesis."""
    if constraints == "slack":
        up, down = (omega / (1 - omega) for omega in np.broadcast_to(slack_weight, 2))
    else:
        up, down = np.inf, 0.0 if constraints == "shrink" else np.inf
    return np.full(count, up), np.full(count, down)


def least_rounding(lengths: Matrix, n: int) -> float:
    """Lower bound on the relative change of the shortest squared length by rounding K.

    K is centred at the mean of n nodes, from which all are at least about longest / n away.
    """
    ratio = float(lengths.max() / lengths.min()) / n
    return float(np.finfo(float).eps) * ratio**2


def least_at(heads: Index, tails: Index, squares: Matrix, n: int) -> Matrix:
    """The least squared length at each node."""
    least = np.full(n, np.inf)
    np.minimum.at(least, heads, squares)
    np.minimum.at(least, tails, squares)
    return least


class IllConditionedError(ValueError):
    """Lengths differ so much that rounding takes (4) out of the cones."""


class UnboundedError(ValueError):
    """The price of slack is too low to keep the variance finite; ``least`` is the least ω."""

    def __init__(self, least: float) -> None:
        super().__init__(f"the slack weight must be above {least}")
        self.least = least
