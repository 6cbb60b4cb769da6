"""Mahalanobis metric for clustering: far pairs as far apart as near pairs allow.

With x the difference of the points of a pair and ‖x‖_A = (xᵀAx)^½:

(1) maximise  g(A) = Σ_far w ‖x‖_A  over A ⪰ φI with ⟨S, A⟩ ≤ 1               [XNJR02, eqs. 6-8]
    with      S = (1 − ρ) Σ_near w xxᵀ + ρ (T / d) I,  T = tr Σ_near w xxᵀ,  φ = ρ / T
(2) whitened  A = R B Rᵀ + φI with RᵀSR = (1 − ρ) I, u = Rᵀx and c = φ‖x‖²:
              maximise g(B) = Σ_far w ‖u‖_B  over B ⪰ 0 with tr B ≤ 1, where ‖u‖²_B = uᵀBu + c
(3) bound     g ≤ Σ_far w/(4v) + λ_max(Σ_far w v (uuᵀ + cI))  for all v > 0, one for each far pair
(4) factor    B = LᵀL/‖L‖², where L minimises f(L) = ½‖L‖² − Σ_far w ℓ,  ℓ² = ‖Lu‖² + c‖L‖²
(5) scale     the best multiple of L has Σ_far w ℓ = ‖L‖² and f = −½ g(B)²; all L below have it
(6) gradient  ∂f/∂L = L − L W,  W = Σ_far w (uuᵀ + cI) / ℓ = Uᵀ Lap(w/ℓ) U + Σ_far (wc/ℓ) I
(7) gap       with v = q/ℓ and the best q, (3) is  g ≤ (Σ_far w ℓ λ_max(W))^½ = ‖L‖ λ_max(W)^½,
              and g(B) = ‖L‖; with q/max(ℓ, s) it is the same of lengths of at least s
(8) diagonal  A, S, R, B and L are diagonal, and λ_max(W) is the largest entry of W's diagonal

In the paper all weights w are 1 and the shrinkage ρ is 0; then φ = c = 0, and ⟨S, A⟩ is the sum of
‖x‖_A² over the near pairs. φI takes up the share ρ of the budget, since ⟨S, I⟩ = T.

Why (3) holds: (uᵀBu + c)^½ is the minimum of v (uᵀBu + c) + 1/(4v) over v > 0, and ⟨C, B⟩ ≤
λ_max(C) for C ⪰ 0. It is tight at the optimum, where ‖u‖_B > 0 for every far pair: the square root
is infinitely steep at zero, so giving such a pair some length would raise the objective.

If far pairs differ in a direction in which near pairs do not, (1) is unbounded for ρ = 0.

Costs, with n points, m far pairs, k dimensions and r rows of L: O(m k + n k² + k³) for W and the
bound, O(m r + n k r) for a line; memory O(n k + k² + m).

[XNJR02] Xing, Ng, Jordan & Russell, Distance metric learning with application to clustering with
side-information, NIPS 15 (2002).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for
from nearfar.linalg import NULL_TOLERANCE, bounded_leading_eigh, symmetric
from nearfar.problems.near_pairs import (
    Floor,
    PairsInMemory,
    floor_of_pairs,
    measure_of_pairs,
    near_squares,
    ratio,
    refuse_unbounded,
    whitened_by_near_pairs,
)
from nearfar.problems.whitening import map_above, returned_map, returned_weights, varying
from nearfar.supervision import Pairs

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

STEP_LIMIT = 100.0  # longest step of a line search along a direction
SHORTEST = 1e-9  # share of the mean length of a far pair: least length in W and in the bound
SHORT = 0.03  # share of the mean length: shorter pairs may still be far from their final length
NARROW = 64  # dimensions up to which products of differences are faster than sums along edges
DIFFERENCE_ENTRIES = 1 << 22  # of differences that are held, 32 MB
FIRST_STEPS = 5  # towards the full metric; its leading directions are the start of few rows
OPEN = 1e-4  # eigenvalues of B for the directions that a start lacks, times their number


@dataclass(frozen=True)
class Placement:
    """A factor L at the scale (5), with everything that its objective depends on."""

    L: Matrix  # (r, k) on the host; (k,) for (8)
    Z: Array  # (n, r) = U Lᵀ
    lengths: Array  # (m,) ℓ, float64
    W: Matrix  # (k, k) of (6); (k,) for (8)
    U: Array  # whose lengths these are, in working precision or float64


@dataclass(frozen=True)
class Line:
    """f along L + tΔ: squared lengths are quadratic in t, so it costs O(m)."""

    direction: Matrix
    norm: tuple[float, float, float]  # ½‖L + tΔ‖², a polynomial in t
    squares: tuple[Array, Array, Array]  # ℓ² at L + tΔ, a polynomial in t
    weights: Array | None  # (m,) w; None for ones
    floor: float  # squared lengths below it are rounding errors
    limit: ClassVar[float] = STEP_LIMIT

    def at(self, t: float) -> tuple[float, float, float]:
        """Value, slope and curvature at t."""
        a, b, c = self.norm
        q0, q1, q2 = self.squares
        lengths = (q0 + t * (q1 + t * q2)).clip(self.floor, None) ** 0.5
        rates = (0.5 * q1 + t * q2) / lengths
        bends = (q2 - rates * rates) / lengths
        return (
            a + t * (b + t * c) - weighted_sum(lengths, self.weights),
            b + 2 * t * c - weighted_sum(rates, self.weights),
            2 * c - weighted_sum(bends, self.weights),
        )


@dataclass(frozen=True)
class Certificate:
    """The objective of a map, and an upper bound on all objectives.

    After rounding, a map has ⟨S, A⟩ = ``constraint`` near 1 in (1). The objective of such a metric
    is at most constraint^½ times the bound.
    """

    objective: float
    bound: float
    constraint: float = 1.0

    @property
    def gap(self) -> float:
        """Upper bound on the relative gain that is left."""
        return max(self.bound * float(np.sqrt(self.constraint)) / self.objective - 1, 0.0)


@dataclass(frozen=True)
class MMCProblem:
    """The objective (4) on whitened points U, or on the whitened differences u themselves.

    Few differences of few dimensions are faster than points, which need less memory.
    """

    U: Array  # (n, k) points, or (m, k) differences
    edges: tuple[Array, Array] | None  # far pairs (heads, tails) of points; None for differences
    basis: Matrix  # (d, k) R of (2): U = (X − origin) R; (d,) for (8)
    exact: Callable[[], Array]  # U recomputed from the data in float64
    measure: Callable[[Matrix], tuple[Array, float]]  # see `measure_of_pairs`
    shrinkage: float = 0.0  # ρ of (1)
    floor: Floor | None = None  # φI of (1), and c of (2)
    weights: Array | None = None  # (m,) w of the far pairs; None for ones

    @classmethod
    def build(
        cls,
        pairs: Pairs,
        centre: Array,
        shrinkage: float = 0.0,
        total: float | None = None,
        *,
        floored: bool = True,
    ) -> Self:
        """Whiten the points by their near pairs; ``shrinkage`` is ρ of (1).

        ``total`` is T of (1), if it is not that of the points. A map of few rows cannot be
        ``floored``: then A ⪰ 0 takes the place of A ⪰ φI.

        The point nearest to ``centre`` becomes the origin, so that the points span the same space
        as their differences.
        """
        X = pairs.points
        kernels = kernels_for(X)
        heads, tails = (kernels.index(end, X) for end in pairs.far_edges())
        points = kernels.double(X) - centre
        nearest = int((points * points).sum(1).argmin())
        origin = kernels.double(X[nearest])
        points = kernels.double(X) - origin
        basis = cls._whitened(kernels, points, pairs, (heads, tails), ratio(shrinkage), total)
        if not floored:
            basis = basis / (1 - shrinkage) ** 0.5
        weights = pairs.far_weights
        few = cls._few(len(heads), basis.shape[-1])

        def exact() -> Array:
            U = cls._apply(kernels, kernels.double(X) - origin, basis.T)
            return U[heads] - U[tails] if few else U

        U, single = exact(), str(X.dtype).endswith("float32")
        return cls(
            U=kernels.single(U) if single else U,
            edges=None if few else (heads, tails),
            basis=basis,
            exact=exact if single else lambda: U,
            measure=measure_of_pairs(pairs, ratio(shrinkage), total=total),
            shrinkage=shrinkage,
            floor=floor_of_pairs(pairs, points, shrinkage, total) if floored else None,
            weights=None if weights is None else kernels.like(weights, points),
        )

    @property
    def kernels(self) -> ModuleType:
        """The kernels of the device that holds the points."""
        return kernels_for(self.U)

    # -- methods that (8) overrides ------------------------------------------------------------

    @staticmethod
    def _whitened(
        kernels: ModuleType,
        points: Array,
        pairs: Pairs,
        far: tuple[Array, Array],
        regularization: float,
        total: float | None,
    ) -> Matrix:
        """R of (2); directions in which no pair differs get no weight."""
        known = PairsInMemory(kernels, points, pairs, lambda U: kernels.sq_lengths(U, *far))
        return whitened_by_near_pairs(known, regularization, total)[0]

    @staticmethod
    def _few(n_far: int, k: int) -> bool:
        """Whether differences are faster than points."""
        return k <= NARROW and n_far * k <= DIFFERENCE_ENTRIES

    @staticmethod
    def _apply(kernels: ModuleType, U: Array, L: Matrix) -> Array:
        """U Lᵀ."""
        return kernels.apply(U, L)

    def _moment(self, weights: Array, U: Array, some: Array | None = None) -> Matrix:
        """Σ w uuᵀ over the far pairs, or some of them."""
        return symmetric(self.kernels.gram(*self._weighted(weights, U, some)))

    def _product(self, L: Matrix, W: Matrix) -> Matrix:
        """L W."""
        return L @ W

    def _identity(self) -> Matrix:
        """I."""
        return np.eye(self.U.shape[1])

    def _largest(self, W: Matrix) -> float:
        """λ_max(W)."""
        return float(bounded_leading_eigh(W, 1)[0][-1])

    def above_floor(self, L: Matrix) -> Matrix:
        """A factor of R B Rᵀ in the coordinates of the features."""
        return (L / np.linalg.norm(L)) @ self.basis.T

    def components(self, L: Matrix) -> Matrix:
        """A factor of A in the coordinates of the features, with ⟨S, A⟩ = 1."""
        factor = self.above_floor(L)
        if self.floor is None:
            return factor
        return np.vstack([factor, np.diag(np.sqrt(self.floor.diagonal))])

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor."""
        if self.floor is None:
            return returned_map(self.above_floor(L), L, self.U)
        return map_above(self.above_floor(L), self.floor.diagonal, self.U)

    def start(self, rows: int | None = None, components: Matrix | None = None) -> Matrix:
        """An initial factor L: a first guess, or the given ``components`` of the features.

        The guess is the whitening of the near pairs. For few ``rows`` it is the leading directions
        after some steps of length 1 from there, which come near the optimum over all metrics. If
        the rank is free, given components gain the directions that they lack.
        """
        k = self.U.shape[1]
        if components is not None:
            L: Matrix = linalg.lstsq(self.basis, components.T)[0].T
            self._check_start(L)
            if rows is not None:
                return L
            values, vectors = linalg.eigh(L.T @ L / float((L * L).sum()))
            opened: Matrix = np.sqrt(values.clip(0) + OPEN / k)[:, None] * vectors.T
            return opened
        if rows is None or rows >= k:
            return np.eye(k)
        L = np.eye(k)
        for _ in range(FIRST_STEPS):
            L = self._product(L, self.place(L).W)
        leading: Matrix = linalg.eigh(L.T @ L)[1][:, : -rows - 1 : -1].T
        return leading

    def _check_start(self, L: Matrix) -> None:
        self._check_separates(float(self._squares(self._apply(self.kernels, self.U, L)).sum()))

    @staticmethod
    def _check_separates(squares: float) -> None:
        """Raise unless some far pair has a length, of which these are the squares."""
        if not squares > 0:
            raise InvalidInputError(
                "the initial map must separate some far pair; it maps each pair to one point."
                " Use another one, or init='auto'."
            )

    # -- objective, gradient and line ------------------------------------------------------------

    def _squares(self, Z: Array) -> Array:
        """‖z‖² of each far pair, float64."""
        kernels = self.kernels
        lengths = kernels.sq_lengths(Z, *self.edges) if self.edges else (Z * Z).sum(1)
        return kernels.double(lengths)

    def _weighted(self, weights: Array, U: Array, some: Array | None) -> tuple[Array, Array]:
        """U and Lap(w) U, or the differences u and w u: their Gram matrix is `_moment`."""
        kernels = self.kernels
        if self.edges:
            edges = self.edges if some is None else tuple(end[some] for end in self.edges)
            return U, kernels.laplacian_matmul(*edges, weights, U)
        if str(U.dtype).endswith("float32"):
            weights = kernels.single(weights)
        U = U if some is None else U[some]
        return U, weights[:, None] * U

    def place(self, L: Matrix) -> Placement:
        """Evaluate L, scaled to (5)."""
        return self._placed(L, self.U)

    def _placed(self, L: Matrix, U: Array) -> Placement:
        L = L / np.linalg.norm(L)
        lengths, Z = self._far_lengths(L, U)
        scale = weighted_sum(lengths, self.weights)
        lengths = lengths * scale
        W = self._weighted_moment(1 / _held(lengths), U)  # (6)
        return Placement(scale * L, scale * Z, lengths, W, U)

    def _far_lengths(self, L: Matrix, U: Array) -> tuple[Array, Array]:
        """ℓ of (4) at a factor of norm 1, (m,) in float64, and U Lᵀ."""
        Z = self._apply(self.kernels, U, L)
        squares = self._squares(Z)
        return (squares if self.floor is None else squares + self.floor.kept) ** 0.5, Z

    def _weighted_moment(self, rates: Array, U: Array, some: Array | None = None) -> Matrix:
        """W of (6) for rates 1/ℓ of the far pairs, or of some of them."""
        if self.weights is not None:
            rates = rates * (self.weights if some is None else self.weights[some])
        W = self._moment(rates, U, some)
        if self.floor is None:
            return W
        kept = self.floor.kept if some is None else self.floor.kept[some]
        return W + float((rates * kept).sum()) * self._identity()

    def gradient(self, at: Placement) -> Matrix:
        """(6)."""
        return at.L - self._product(at.L, at.W)

    def line(self, at: Placement, direction: Matrix) -> Line:
        """f along L + t · direction."""
        kernels = self.kernels
        change = self._apply(kernels, self.U, direction)
        if self.edges:
            cross, square = kernels.edge_products(at.Z, change, *self.edges)
        else:
            cross, square = (at.Z * change).sum(1), (change * change).sum(1)
        L = at.L
        cross, square = kernels.double(cross), kernels.double(square)
        along, across = float((L * direction).sum()), float((direction * direction).sum())
        if self.floor is not None:
            cross, square = cross + along * self.floor.kept, square + across * self.floor.kept
        return Line(
            direction=direction,
            norm=(0.5 * float((L * L).sum()), along, 0.5 * across),
            squares=(at.lengths**2, 2 * cross, square),
            weights=self.weights,
            floor=(SHORTEST * float(at.lengths.mean())) ** 2,
        )

    # -- certificate -----------------------------------------------------------------------------

    def bound(self, at: Placement) -> Certificate:
        """(7) in working precision; in float32 an estimate, not a proof.

        Some far pairs may still be much shorter than at the optimum, and make W large. So the bound
        with lengths of at least SHORT times the mean is tried as well.
        """
        held = _held(at.lengths)
        square = weighted_sum(held, self.weights) * self._largest(at.W)
        some = self.kernels.flatnonzero(at.lengths < SHORT * at.lengths.mean())
        if len(some):
            longer = _held(at.lengths, SHORT)
            less = self._weighted_moment((1 / longer - 1 / held)[some], at.U, some)
            square = min(square, weighted_sum(longer, self.weights) * self._largest(at.W + less))
        return Certificate(float(np.linalg.norm(at.L)), square**0.5)

    def certify(self, L: Matrix) -> Certificate:
        """(7) from the data in float64, of the map that a fit returns for L."""
        squares, constraint = self.measure(self.returned(L))
        bound = self.bound(self._placed(L, self.exact())).bound
        objective = weighted_sum(squares**0.5, self.weights)
        return Certificate(objective, bound, (1 - self.shrinkage) * constraint)


@dataclass(frozen=True)
class DiagonalMMCProblem(MMCProblem):
    """The same over diagonal A, as (8): matrices of the features are vectors."""

    @staticmethod
    def _whitened(
        kernels: ModuleType,
        points: Array,
        pairs: Pairs,
        far: tuple[Array, Array],
        regularization: float,
        total: float | None,
    ) -> Matrix:
        live = varying(kernels, points)
        centred = points - points.sum(0) / len(points)
        variance = kernels.to_host((centred * centred).sum(0)) / len(points)

        def refuse(scale: Matrix, null: NDArray[np.bool_], *, equal: bool) -> None:
            unit = points / kernels.like(scale, points)
            along = unit * kernels.like(null, points)
            part, whole = (kernels.sq_lengths(rows, *far) for rows in (along, unit))
            refuse_unbounded(kernels, part, whole, equal=equal)

        scatter = near_squares(kernels, pairs, pairs.points)
        usual = 2 * pairs.near_total * variance  # expected for random pairs
        return whitened_features(scatter, usual, live, regularization, total, refuse)

    @staticmethod
    def _few(n_far: int, k: int) -> bool:
        return n_far * k <= DIFFERENCE_ENTRIES

    @staticmethod
    def _apply(kernels: ModuleType, U: Array, L: Matrix) -> Array:
        return U * kernels.like(L, U)

    def _moment(self, weights: Array, U: Array, some: Array | None = None) -> Matrix:
        kernels = self.kernels
        left, right = (kernels.double(part) for part in self._weighted(weights, U, some))
        moment: Matrix = kernels.to_host((left * right).sum(0))
        return moment

    def _product(self, L: Matrix, W: Matrix) -> Matrix:
        return L * W

    def _identity(self) -> Matrix:
        return np.ones(self.U.shape[1])

    def _largest(self, W: Matrix) -> float:
        return float(W.max())

    def components(self, L: Matrix) -> Matrix:
        """A factor of A, with one row per feature."""
        weights = np.abs(L / np.linalg.norm(L) * self.basis)
        if self.floor is not None:
            weights = np.sqrt(weights**2 + self.floor.diagonal)
        return np.diag(weights)

    def returned(self, L: Matrix) -> Matrix:
        """The map that a fit returns: one row per feature, by decreasing weight, without zeros."""
        weights = np.diag(self.components(L))
        return returned_weights(weights, L if self.floor is None else weights, self.U)

    def start(self, rows: int | None = None, components: Matrix | None = None) -> Matrix:  # noqa: ARG002
        """Equal weights of the whitened features, or those of the given components."""
        used = self.basis > 0
        if components is None:
            return used.astype(np.float64)
        L = np.linalg.norm(components, axis=0) * used / np.where(used, self.basis, 1)
        self._check_start(L)
        opened: Matrix = np.sqrt(L * L / (L @ L) + OPEN / used.sum()) * used
        return opened


def whitened_features(
    scatter: Matrix,
    usual: Matrix,
    live: NDArray[np.bool_],
    regularization: float,
    total: float | None,
    refuse: Callable[..., None],
) -> Matrix:
    """R of (8), from sums of squares of the near pairs, and those that are ``usual``.

    ``refuse(scale, null, equal=...)`` raises if far pairs differ in the features ``null``, which
    are divided by a scale.
    """
    spread = scatter.sum() if total is None else total
    scatter = scatter + regularization * spread / max(int(live.sum()), 1)
    null = (scatter <= NULL_TOLERANCE * usual) | ~live
    if null.any():
        scale = np.sqrt(np.where(usual > 0, usual, 1))
        refuse(scale, null, equal=regularization > 0 and not spread)
    return np.where(null, 0, 1 / np.sqrt(np.where(null, 1, scatter)))


def _held(lengths: Array, share: float = SHORTEST) -> Array:
    """Lengths of far pairs, raised to at least a share of the mean."""
    return lengths.clip(share * float(lengths.mean()), None)


def weighted_sum(lengths: Array, weights: Array | None) -> float:
    """Σ w ℓ over the far pairs."""
    return float(lengths.sum() if weights is None else (weights * lengths).sum())
