"""What each objective is, by its definition alone: nothing here comes from nearfar.

A judge knows the data and the parameters of a convex problem. It says what a map is worth, how much
of that is rounding, whether the map is feasible, what simple maps are worth, and, by a general
solver of conic programs, what the best one is worth. Everything is computed one difference of
points at a time in extended precision: no centring, no whitening, no expanded squares, and a range
in which the square of every float64 is a number.

``sense`` is 1 where the objective is minimised and −1 where it is maximised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import log
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar

from tests.conic import attempt_conic

Wide = np.longdouble

ROUNDINGS = 8  # of each product that is summed up in an image
SURE = 5e-6  # relative error of a general solver, by its residuals, up to which it is believed
TIE = 1e-4  # relative difference of squared distances below which rounding may decide


@dataclass(frozen=True)
class Judged:
    """What a map is worth, and how much of it rounding may have changed."""

    value: float
    rounding: float


@dataclass(frozen=True)
class Lengths:
    """Learned distances of all pairs of points, (n, n): squared, and the error of the root."""

    squares: Any
    errors: Any
    eps: float = 0.0  # of the entries of the map

    @property
    def square_errors(self) -> Any:
        """Of the squares."""
        return 2 * np.sqrt(self.squares) * self.errors + self.errors**2

    @classmethod
    def under(cls, L: Any, differences: Any, sizes: Any = None) -> Lengths:
        """By a map L (r, d) of the differences (n, n, d).

        ``sizes`` are those of what the differences were taken of, if they are inexact, too.
        """
        eps = np.finfo(L.dtype).eps
        L = np.asarray(L, dtype=Wide)
        images = differences @ L.T
        sums = (np.abs(differences) if sizes is None else sizes) @ np.abs(L).T
        errors = ROUNDINGS * eps * np.sqrt((sums**2).sum(-1))
        return cls((images**2).sum(-1), errors, ROUNDINGS * float(eps))


def differences(X: Any) -> Any:
    """x_i − x_j, (n, n, d)."""
    X = np.asarray(X, dtype=Wide)
    return X[:, None] - X[None]


def nearest_of_class(squares: Any, y: Any, k: int) -> tuple[list[tuple[int, int]], bool]:
    """Edges to the k nearest of the class by squared distances (n, n), ties by number.

    And whether rounding or the order of the rows decides: points that are about equally far, and
    not at the same place, of which some are among the k nearest and some are not.
    """
    edges, tied = [], False
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i and y[j] == y[i]]
        others.sort(key=lambda j: squares[i, j])
        edges += [(i, j) for j in others[:k]]
        if len(others) > k:
            last = squares[i, others[k - 1]]
            band = [j for j in others if abs(squares[i, j] - last) <= TIE * last]
            outside = squares[i, others[k]] <= last * (1 + TIE)
            tied |= outside and bool((squares[band[0], band] > 0).any())
    return edges, tied


def all_of_class(y: Any) -> list[tuple[int, int]]:
    """Edges to all others of the class."""
    n = len(y)
    return [(i, j) for i in range(n) for j in range(n) if i != j and y[i] == y[j]]


# -- labels: margins -----------------------------------------------------------------------------


@dataclass(frozen=True)
class LargeMargin:
    """(1 − μ) [Σ_e D(e) + r (T / k) Σ_c p_c tr A_c] + μ Σ_t [1 + D(e) − D(p)]₊  over A_c ⪰ φI.

    e = (i, j) are the target edges, p = (i, l) pairs of different classes, t = (e, p), and D is the
    squared learned distance, by the metric of its second point. With ρ the shrinkage, r = ρ / (1 −
    ρ), T = Σ_e of the squared distance that is kept, which has k directions, and m edges, φ = r m /
    2T. p_c is the share of the edges that metric c measures, or that of one edge if it is of none.
    """

    y: np.ndarray
    edges: list[tuple[int, int]]
    push_weight: float
    kept: Any  # (n, n) squared distances that the shrinkage keeps
    shrinkage: float = 0.0
    directions: int = 1
    metric_of: np.ndarray | None = None  # (n,) None for one metric
    sense = 1

    @cached_property
    def triplets(self) -> np.ndarray:
        """(i, j, l)"""
        y = self.y
        return np.array(
            [(i, j, far) for i, j in self.edges for far in range(len(y)) if y[far] != y[i]]
        ).reshape(-1, 3)

    @cached_property
    def total(self) -> Any:
        """T"""
        heads, tails = np.array(self.edges).T
        return self.kept[heads, tails].sum()

    @property
    def ratio(self) -> float:
        """r, which adds nothing if T is zero."""
        return self.shrinkage / (1 - self.shrinkage) if self.total > 0 else 0.0

    @property
    def price(self) -> Any:
        """(1 − μ) r T / k"""
        return (1 - self.push_weight) * self.ratio * self.total / self.directions

    @property
    def floor(self) -> Any:
        """φ"""
        return self.ratio * len(self.edges) / (2 * self.total) if self.ratio else 0.0

    @property
    def shares(self) -> np.ndarray:
        """p_c"""
        tails = np.array(self.edges)[:, 1]
        if self.metric_of is None:
            return np.ones(1)
        counts = np.bincount(self.metric_of[tails], minlength=self.metric_of.max() + 1)
        return np.maximum(counts, 1) / len(tails)

    def judged(self, lengths: Lengths, traces: list[Judged]) -> Judged:
        """What learned distances are worth, with the traces of the metrics.

        Entry (a, b) of the distances is measured from a to b.
        """
        mu, D, errors = self.push_weight, lengths.squares, lengths.square_errors
        i, j, far = self.triplets.T
        heads, tails = np.array(self.edges).T
        slacks = 1 + D[i, j] - D[i, far]
        doubt = errors[i, j] + errors[i, far]
        value = (1 - mu) * D[heads, tails].sum() + mu * np.maximum(slacks, 0).sum()
        rounding = (1 - mu) * errors[heads, tails].sum() + mu * doubt[slacks > -doubt].sum()
        for share, trace in zip(self.shares, traces, strict=True):
            value += self.price * share * trace.value
            rounding += self.price * share * trace.rounding
        return Judged(float(value), float(rounding))

    def at_zero(self) -> float:
        """The zero map: every triplet costs μ."""
        return self.push_weight * len(self.triplets)

    def at_best_multiple(self, squares: Any, trace: float) -> float:
        """Of distances (n, n): convex and piecewise linear in the multiple of their squares."""
        i, j, far = self.triplets.T
        heads, tails = np.array(self.edges).T
        mu = self.push_weight
        pull = (1 - mu) * squares[heads, tails].sum() + self.price * self.shares.sum() * trace
        slopes = squares[i, far] - squares[i, j]
        corners = np.maximum(np.append(0, 1 / slopes[slopes > 0]), self.floor)
        return float(min(s * pull + mu * np.maximum(1 - s * slopes, 0).sum() for s in corners))

    def optimum(self, points: np.ndarray, unit: float) -> float | None:
        """Over metrics A_c = φI + B_c on the points, which are W x times the root of ``unit``.

        Variables: svec B_c, ξ_t. Constraints: ξ ≥ 0, ξ_t ≥ 1 + D(e) − D(p), B_c ⪰ 0.
        """
        size, shares = points.shape[1], self.shares
        n_metrics, width = len(shares), size * (size + 1) // 2
        metric_of = np.zeros(len(self.y), dtype=int) if self.metric_of is None else self.metric_of
        edges = np.array(self.edges)

        def measured(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            rows = np.zeros((len(a), n_metrics * width))
            for row, (head, tail) in enumerate(zip(a, b, strict=True)):
                c, difference = metric_of[tail], points[head] - points[tail]
                rows[row, c * width : (c + 1) * width] = svec(np.outer(difference, difference))
            return rows

        i, j, far = self.triplets.T
        A = measured(i, far) - measured(i, j)
        m, mu, pull = (
            len(A),
            self.push_weight,
            (1 - self.push_weight) * measured(*edges.T).sum(axis=0),
        )
        pull += float(self.price) * unit * np.kron(shares, svec(np.eye(size)))
        kept = np.asarray(self.floor * self.kept, dtype=np.float64)
        program = ConeProgram(np.concatenate([pull, np.full(m, mu)]))
        program.nonnegative(np.hstack([A, np.eye(m)]), kept[i, far] - kept[i, j] - 1)
        program.nonnegative(np.hstack([np.zeros_like(A), np.eye(m)]), np.zeros(m))
        for c in range(n_metrics):
            program.semidefinite(c * width, size)
        found = program.minimum()
        if found is None:
            return None
        constant = (1 - mu) * kept[edges[:, 0], edges[:, 1]].sum()
        return found + float(constant + self.price * self.floor * self.directions * shares.sum())


# -- labels: collapse ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Collapse:
    """Σ_i KL[p0(·|i) ‖ p(·|i)] + λ tr A, p(j|i) ∝ exp(−D(i, j)), p0 even on the class of i.

    D is φ times the squared distance of the inputs, and that of A.
    """

    y: np.ndarray
    regularization: float = 0.0
    floor: float = 0.0
    inputs: Any = None  # (n, n) squared distances of the inputs; None for φ = 0
    sense = 1

    @classmethod
    def shrunk(cls, y: np.ndarray, squares: Any, rho: float, d: int, floored: bool) -> Collapse:
        """λ = r T / 8d and φ = r n / T, for n points that are not alone and T = Σ p0 D."""
        plain, r = cls(y), rho / (1 - rho)
        total = float((plain.wanted * squares).sum())
        if rho == 0 or total == 0:
            return plain
        weight, counted = r * total / 8 / d, int(plain.wanted.any(axis=1).sum())
        return cls(y, weight, r * counted / total, squares) if floored else cls(y, weight)

    @cached_property
    def kept(self) -> Any:
        """What the floor gives, (n, n)."""
        return 0 * self.wanted if self.inputs is None else self.floor * self.inputs

    @cached_property
    def wanted(self) -> Any:
        """p0, (n, n); zero rows for points that are alone in their class."""
        same = (self.y[:, None] == self.y) & ~np.eye(len(self.y), dtype=bool)
        return same / np.maximum(same.sum(axis=1, keepdims=True), 1).astype(Wide)

    def judged(self, lengths: Lengths, trace: float = 0.0) -> Judged:
        """What learned distances are worth, with the trace of the metric."""
        p0 = self.wanted
        anchors = p0.any(axis=1)
        energies = -lengths.squares[anchors]
        energies[np.eye(len(p0), dtype=bool)[anchors]] = -np.inf
        p0, errors = p0[anchors], lengths.square_errors[anchors]
        top = energies.max(axis=1, keepdims=True)
        log_z = top + np.log(np.exp(energies - top).sum(axis=1, keepdims=True))
        with np.errstate(invalid="ignore"):
            terms = np.where(p0 > 0, p0 * (np.log(np.where(p0 > 0, p0, 1)) - energies + log_z), 0)
        rounding = ((p0 + np.exp(energies - log_z)) * errors).sum()
        return Judged(float(terms.sum() + self.regularization * trace), float(rounding))

    def at_zero(self) -> float:
        """A = 0: without a floor, everybody is chosen equally often."""
        return self.judged(Lengths(self.kept, 0 * self.wanted)).value

    def at_best_multiple(self, squares: Any, trace: float) -> float:
        """Of distances (n, n), in units of the mean."""
        unit = squares.mean()
        none = 0 * squares

        def worth(exponent: float) -> float:
            multiple = Wide(2) ** exponent / unit
            lengths = Lengths(self.kept + multiple * squares, none)
            return self.judged(lengths, float(multiple * trace)).value

        found = minimize_scalar(worth, bounds=(-30, 30), method="bounded")
        return min(float(found.fun), self.at_zero())

    def optimum(self, points: np.ndarray, unit: float = 1.0) -> float | None:
        """Over A ⪰ 0 on the points; λ tr A counts as λ tr A / unit.

        Variables: svec A, t_i, u_ij with exp(−D(i, j) − t_i) ≤ u_ij and Σ_j u_ij ≤ 1, which says
        t_i ≥ log Z_i.
        """
        n, size = points.shape
        p0 = self.wanted.astype(np.float64)
        anchors = np.flatnonzero(p0.any(axis=1))
        pairs = [(a, i, j) for a, i in enumerate(anchors) for j in range(n) if i != j]
        width, m = size * (size + 1) // 2, len(anchors)
        total = width + m + len(pairs)
        squares = {(i, j): _square(points, i, j) for _, i, j in pairs}
        pull = sum(p0[i, j] * row for (i, j), row in squares.items())
        pull = pull + self.regularization / unit * svec(np.eye(size))
        program = ConeProgram(np.concatenate([pull, np.ones(m), np.zeros(len(pairs))]))
        sums = np.zeros((m, total))
        for number, (a, _, _) in enumerate(pairs):
            sums[a, width + m + number] = -1
        program.nonnegative(sums, np.ones(m))
        program.semidefinite(0, size)
        for number, (a, i, j) in enumerate(pairs):
            rows = np.zeros((3, total))
            rows[0, :width] = -squares[i, j]
            rows[0, width + a] = -1
            rows[2, width + m + number] = 1
            program.exponential(rows, np.array([-float(self.kept[i, j]), 1, 0]))
        found = program.minimum()
        if found is None:
            return None
        pull = float((self.wanted * self.kept).sum())
        return float(found + pull + sum(value * log(value) for value in p0[p0 > 0]))


# -- near and far pairs --------------------------------------------------------------------------


@dataclass(frozen=True)
class FarPairs:
    """Pairs of one class are near, of two far; far pairs of equal points are left out.

    With ρ the shrinkage, r a ridge, T the sum of squared distances of the near pairs before
    learning, d the number of directions, and b the ``limit`` of near(A):

    near(A) = (1 − ρ) Σ_near D² + (ρ + r) (T / d) tr A,  and A ⪰ φI with φ = ρ b / T
    """

    y: np.ndarray
    before: Any  # (n, n) squared distances before learning
    directions: int
    shrinkage: float
    limit: float = 1.0
    ridge: float = 0.0
    sense = -1

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Masks (n, n) of near and far pairs, above the diagonal."""
        above = np.triu(np.ones_like(self.before, dtype=bool), 1)
        same = self.y[:, None] == self.y
        return above & same, above & ~same & (self.before > 0)

    @cached_property
    def total(self) -> Any:
        """T"""
        return self.before[self.pairs[0]].sum()

    @property
    def price(self) -> Any:
        """(ρ + r) T / d, of the trace."""
        return (self.shrinkage + self.ridge) * self.total / self.directions

    @property
    def floor(self) -> Any:
        """φ; 0 where all near pairs are of equal points."""
        return self.shrinkage * self.limit / self.total if self.total > 0 else self.total

    def scatter(self, points: np.ndarray) -> np.ndarray:
        """S with near(A) = ⟨S, A⟩, for A on the points."""
        i, j = np.argwhere(self.pairs[0]).T
        near = points[i] - points[j]
        price = float(self.price) * np.eye(points.shape[1])
        return np.asarray((1 - self.shrinkage) * near.T @ near + price)

    def is_steady(self, points: np.ndarray) -> bool:
        """Whether near pairs hold every direction, so that a general solver can be believed."""
        values = np.linalg.eigvalsh(self.scatter(points))
        return bool(values[0] > 1e-5 * values[-1])

    def near_sum(self, lengths: Lengths, trace: Judged) -> Judged:
        """near(A)"""
        errors = self.near_of(lengths.square_errors, trace.rounding)
        return Judged(float(self.near_of(lengths.squares, trace.value)), float(errors))

    def near_of(self, squares: Any, trace: float) -> Any:
        """near(A) from the squared distances (n, n) and the trace of A."""
        return (1 - self.shrinkage) * squares[self.pairs[0]].sum() + self.price * trace

    def above_floor(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, Any]:
        """A program over B = A − φI on the points: (far pairs, svec S, limit of ⟨S, B⟩, kept).

        φI takes up the share ρ of the limit, also where the points do not span all directions, and
        keeps φ times the squared distance of each far pair.
        """
        far = np.argwhere(self.pairs[1])
        kept = (self.floor * self.before[self.pairs[1]]).astype(np.float64)
        return far, svec(self.scatter(points)), (1 - self.shrinkage) * self.limit, kept


def lack_of_floor(L: np.ndarray, floor: Any) -> float:
    """By which share LᵀL is below φI, beyond the rounding of L, for L of as many rows as columns.

    L = DQ with D the lengths of the rows: the least eigenvalue is 1 / ‖Q⁻¹D⁻¹‖². Rows of a learned
    map are orthogonal, so that this is accurate even if their lengths differ enormously.
    """
    eps = float(np.finfo(L.dtype).eps)
    if L.shape[0] < L.shape[1]:
        return 1.0
    L = L.astype(Wide)
    lengths = np.sqrt((L**2).sum(axis=1, keepdims=True))
    unit = (L / lengths).astype(np.float64)
    shares = (np.sqrt(floor) / lengths).astype(np.float64)
    most = np.linalg.norm(np.linalg.inv(unit) * shares.T, 2)
    return max(0.0, 1 - 1 / float(most) ** 2 - ROUNDINGS * eps * len(L))


class SumOfFar(FarPairs):
    """Maximise Σ_far D with near(A) ≤ 1."""

    def judged(self, lengths: Lengths) -> Judged:
        """What learned distances are worth."""
        far = self.pairs[1]
        return Judged(float(np.sqrt(lengths.squares[far]).sum()), float(lengths.errors[far].sum()))

    def at_best_multiple(self, squares: Any, trace: float) -> float:
        """Of distances (n, n): as long as allowed."""
        share = self.limit / self.near_of(squares, trace)
        return float(np.sqrt(squares[self.pairs[1]] * share).sum())

    def optimum(self, points: np.ndarray) -> float | None:
        """Variables: svec B, t_p with t_p² ≤ D²(p), that is |(2 t_p, D² − 1)| ≤ D² + 1."""
        size = points.shape[1]
        width = size * (size + 1) // 2
        far, scatter, limit, kept = self.above_floor(points)
        total = width + len(far)
        program = ConeProgram(np.append(np.zeros(width), -np.ones(len(far))))
        row = np.zeros((1, total))
        row[0, :width] = -scatter
        program.nonnegative(row, np.array([limit]))
        program.semidefinite(0, size)
        for number, (i, j) in enumerate(far):
            rows = np.zeros((3, total))
            rows[:2, :width] = _square(points, i, j)
            rows[2, width + number] = 2
            program.second_order(rows, np.array([kept[number] + 1, kept[number] - 1, 0]))
        found = program.minimum()
        return None if found is None else -found


class ClosestFar(FarPairs):
    """Maximise min_far D² with near(A) equal to the limit."""

    def judged(self, lengths: Lengths) -> Judged:
        """What learned distances are worth."""
        far = self.pairs[1]
        return Judged(
            float(lengths.squares[far].min()),
            float(lengths.square_errors[far][lengths.squares[far].argmin()]),
        )

    def at_best_multiple(self, squares: Any, trace: float) -> float:
        """Of distances (n, n): as long as allowed."""
        share = self.limit / self.near_of(squares, trace)
        return float(squares[self.pairs[1]].min() * share)

    def optimum(self, points: np.ndarray) -> float | None:
        """Variables: svec B, t with t ≤ D²(p)."""
        size = points.shape[1]
        width = size * (size + 1) // 2
        far, scatter, limit, kept = self.above_floor(points)
        program = ConeProgram(np.append(np.zeros(width), -1.0))
        program.nonnegative(np.append(-scatter, 0.0)[None], np.array([limit]))
        squares = np.array([_square(points, i, j) for i, j in far])
        program.nonnegative(np.column_stack([squares, -np.ones(len(far))]), kept)
        program.semidefinite(0, size)
        found = program.minimum()
        return None if found is None else -found


# -- chunklets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunklets:
    """N (⟨C_ρ, B⟩ − log det B), C_ρ = (1 − ρ) C + ρ (tr C / d) I: in rational numbers, unrounded.

    C is the covariance about the means of the classes of two or more, of their N points, for the d
    features that are live. The determinant is on the row space of the map.
    """

    X: np.ndarray  # (n, d), live features only
    y: np.ndarray
    shrinkage: float
    sense = 1

    @cached_property
    def covariance(self) -> tuple[list[list[Fraction]], int]:
        """C_ρ and N."""
        X, d = _rational(self.X), self.X.shape[1]
        sizes = {label: int((self.y == label).sum()) for label in self.y.tolist()}
        members = [i for i, label in enumerate(self.y.tolist()) if sizes[label] > 1]
        centred = []
        for i in members:
            mates = [k for k in members if self.y[k] == self.y[i]]
            centred.append([X[i][j] - sum(X[k][j] for k in mates) / len(mates) for j in range(d)])
        count = len(members)
        C = [[sum(row[i] * row[j] for row in centred) / count for j in range(d)] for i in range(d)]
        rho = Fraction(self.shrinkage)
        ridge = rho * sum(C[j][j] for j in range(d)) / d
        C = [[(1 - rho) * C[i][j] + ridge * (i == j) for j in range(d)] for i in range(d)]
        return C, count

    def judged(self, L: np.ndarray) -> Judged:
        """What a map without zero rows is worth."""
        C, count = self.covariance
        rows, d = _rational(L), range(L.shape[1])
        trace = sum(row[i] * C[i][j] * row[j] for row in rows for i in d for j in d)
        sizes = sum(abs(row[i] * C[i][j] * row[j]) for row in rows for i in d for j in d)
        gram = [[sum(a * b for a, b in zip(p, q, strict=True)) for q in rows] for p in rows]
        value = count * (float(trace) - _log(_determinant(gram)))
        return Judged(value, ROUNDINGS * float(np.finfo(L.dtype).eps) * count * float(sizes))

    def optimum(self) -> float | None:
        """N (d + log det C_ρ), or None where C_ρ is singular."""
        C, count = self.covariance
        determinant = _determinant(C)
        return count * (len(C) + _log(determinant)) if determinant > 0 else None


def _rational(A: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(value) for value in row] for row in A.tolist()]


def _log(value: Fraction) -> float:
    return log(value.numerator) - log(value.denominator) if value > 0 else -np.inf


def _determinant(A: list[list[Fraction]]) -> Fraction:
    """By elimination."""
    A, found = [row[:] for row in A], Fraction(1)
    for k in range(len(A)):
        pivot = next((row for row in range(k, len(A)) if A[row][k] != 0), None)
        if pivot is None:
            return Fraction(0)
        if pivot != k:
            A[k], A[pivot], found = A[pivot], A[k], -found
        found *= A[k][k]
        for row in range(k + 1, len(A)):
            factor = A[row][k] / A[k][k]
            A[row] = [a - factor * b for a, b in zip(A[row], A[k], strict=True)]
    return found


# -- unfolding -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unfolding:
    """Maximise tr K over K ⪰ 0, K1 = 0 that keeps the squared lengths D of edges.

    equal    K_ii − 2 K_ij + K_jj = D + δ (t_i + t_j), t_i the least D at i, δ the thickness
    shrink   at most D
    slack    any, at a price: tr K − ω / (1 − ω) Σ |change of a squared length|
    """

    edges: np.ndarray  # (m, 2)
    squares: np.ndarray  # (m,)
    constraints: str
    slack_weight: float = 0.0
    thickness: float = 0.0
    sense = -1

    @cached_property
    def wanted(self) -> np.ndarray:
        """D + δ (t_i + t_j)"""
        least = np.full(self.edges.max() + 1, np.inf)
        for nodes in self.edges.T:
            np.minimum.at(least, nodes, self.squares)
        return self.squares + self.thickness * least[self.edges].sum(axis=1)

    def lengths(self, K: np.ndarray) -> np.ndarray:
        """K_ii − 2 K_ij + K_jj of the edges."""
        i, j = self.edges.T
        return K[i, i] - 2 * K[i, j] + K[j, j]

    def judged(self, K: np.ndarray) -> Judged:
        """What a Gram matrix is worth."""
        value, trace = float(np.trace(K)), float(np.trace(K))
        if self.constraints == "slack":
            price = self.slack_weight / (1 - self.slack_weight)
            value -= price * float(np.abs(self.lengths(K) - self.squares).sum())
            trace *= 1 + price * len(self.edges)
        return Judged(value, ROUNDINGS * np.finfo(float).eps * len(K) * trace)

    def violation(self, K: np.ndarray) -> float:
        """The largest forbidden change of a squared length, relative to it."""
        if self.constraints == "slack":
            return 0.0
        changes = self.lengths(K) / self.wanted - 1
        if self.constraints != "shrink":
            changes = np.abs(changes)
        return float(changes.max(initial=0.0))

    def optimum(self, n: int, unit: float) -> float | None:
        """Variables: svec of K in coordinates without 1, and x⁺, x⁻ ≥ 0 for the changes."""
        basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
        i, j = self.edges.T
        rows = np.array([svec(np.outer(row, row)) for row in basis[i] - basis[j]])
        wanted = self.wanted / unit
        m, width = len(wanted), n * (n - 1) // 2
        trace = svec(np.eye(n - 1))
        if self.constraints == "slack":
            price = self.slack_weight / (1 - self.slack_weight)
            program = ConeProgram(np.concatenate([-trace, np.full(2 * m, price)]))
            slacks = np.hstack([-np.eye(m), np.eye(m)])
            program.zero(np.hstack([rows, slacks]), -wanted)
            program.nonnegative(
                np.hstack([np.zeros((2 * m, width)), np.eye(2 * m)]), np.zeros(2 * m)
            )
        else:
            program = ConeProgram(-trace)
            (program.nonnegative if self.constraints == "shrink" else program.zero)(-rows, wanted)
        program.semidefinite(0, n - 1)
        found = program.minimum()
        return None if found is None else -found * unit


# -- a general solver ----------------------------------------------------------------------------


def svec(A: np.ndarray) -> np.ndarray:
    """The upper triangle by columns, off the diagonal times √2: ⟨A, B⟩ = svec A · svec B."""
    columns, rows = np.tril_indices(len(A))
    return A[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))


def _square(points: np.ndarray, i: int, j: int) -> np.ndarray:
    """svec of xxᵀ, x the difference of two points."""
    difference = points[i] - points[j]
    return svec(np.outer(difference, difference))


@dataclass
class ConeProgram:
    """Minimise cost · v with rows · v + constants in cones, by Clarabel."""

    cost: np.ndarray
    rows: list[Any] = field(default_factory=list)
    constants: list[np.ndarray] = field(default_factory=list)
    cones: list[Any] = field(default_factory=list)

    def _add(self, cone: Any, rows: np.ndarray, constants: np.ndarray) -> None:
        self.rows.append(sparse.csc_matrix(-rows))
        self.constants.append(constants)
        self.cones.append(cone)

    def nonnegative(self, rows: np.ndarray, constants: np.ndarray) -> None:
        """Rows · v + constants ≥ 0."""
        import clarabel

        self._add(clarabel.NonnegativeConeT(len(rows)), rows, constants)

    def zero(self, rows: np.ndarray, constants: np.ndarray) -> None:
        """Rows · v + constants = 0."""
        import clarabel

        self._add(clarabel.ZeroConeT(len(rows)), rows, constants)

    def second_order(self, rows: np.ndarray, constants: np.ndarray) -> None:
        """The first is at least the length of the others."""
        import clarabel

        self._add(clarabel.SecondOrderConeT(len(rows)), rows, constants)

    def exponential(self, rows: np.ndarray, constants: np.ndarray) -> None:
        """(x, y, z) with y exp(x / y) ≤ z."""
        import clarabel

        self._add(clarabel.ExponentialConeT(), rows, constants)

    def semidefinite(self, first: int, size: int) -> None:
        """The variables from ``first`` on are svec of a matrix ⪰ 0."""
        import clarabel

        width = size * (size + 1) // 2
        rows = np.zeros((width, len(self.cost)))
        rows[np.arange(width), first + np.arange(width)] = 1
        self._add(clarabel.PSDTriangleConeT(size), rows, np.zeros(width))

    def minimum(self) -> float | None:
        """The least cost, or None where the solver is not sure of it."""
        A, b = sparse.vstack(self.rows, format="csc"), np.concatenate(self.constants)
        solution, error = attempt_conic(self.cost, A, b, self.cones)
        return float(solution.obj_val) if error <= SURE else None
