"""Coordinates in which the scatter of the near pairs is the identity.

With x the difference of the points of a pair, d features that vary, and a share r >= 0:

(1) H = Σ_near xxᵀ + r (T / d) I, T = tr Σ_near xxᵀ, or a given total
(2) R, (d, k), with RᵀHR = I, of the k directions in which pairs differ

For r = ρ / (1 − ρ), (1 − ρ) H is the scatter with a shrinkage of ρ. It keeps that share of the
inputs' distance: in problems with a budget b for ⟨(1 − ρ) H, A⟩, A stays above

(3) φI with φ = ρ b / ((1 − ρ) tr Σ_near xxᵀ + ρ T), which takes up the share ρ of the budget

Pairs may have weights, by which their xxᵀ are multiplied. A pair of weight 2 counts as two, and for
labelled points the weight of a pair is the product of those of its points: copies of a point
then form near pairs of no length, and every other pair counts as often as there are copies.

If far pairs differ in a direction in which H is zero, an objective that makes them long is
unbounded, which is an error.

The rows that are whitened are points relative to one of them, or the differences of pairs, which
need less memory if pairs hardly share points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for
from nearfar.linalg import eigh, range_and_null, squared_norm, symmetric
from nearfar.problems.whitening import ROUNDINGS, SAMPLE_ROWS, gram_under, varying, whitened
from nearfar.supervision import Pairs

Matrix = NDArray[np.float64]

STEADY = 1e-6  # eigenvalue, relative to the largest, that one decomposition finds accurately
RIDGE_PASSES = 3  # that bring a direction of only the ridge to the size of the others
MOSTLY_RIDGE = 0.5  # share of H above which the ridge dominates a direction, not the near pairs
REACH = 1e-10  # share of a far pair's length above which it is not a rounding error
CANCELLED = 1e-12  # share of the largest square below which differences of images lose digits
BLOCK_ROWS = 1 << 16  # pairs whose differences are held at a time
BLOCK_ENTRIES = 1 << 22  # entries of differences that are held at a time, 32 MB


class NearAndFar(Protocol):
    """What (2) needs of near and far pairs, wherever they are."""

    def constant(self) -> NDArray[np.bool_]:
        """Which features do not vary, (d,)."""

    def near_scatter(self) -> Matrix:
        """Σ_near xxᵀ."""

    def near_rows(self) -> Array:
        """Rows whose Gram matrix that is."""

    def whitened(self, near: Array, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """Basis, dual basis and P of `nearfar.problems.whitening.whitened`, for the near rows."""

    def refuse_unbounded(self, basis: Matrix, null: Matrix, *, equal: bool) -> None:
        """Raise if far pairs differ along directions ``null`` of the coordinates of a basis.

        ``equal`` is that of `refuse_apart`.
        """


@dataclass(frozen=True)
class PairsInMemory:
    """Pairs, and rows that are points or differences of far pairs, as `NearAndFar`."""

    kernels: ModuleType
    rows: Array
    pairs: Pairs
    squares: Callable[[Array], Array]  # ‖x‖² of each far pair, for rows in some coordinates

    def constant(self) -> NDArray[np.bool_]:
        """As `NearAndFar.constant`."""
        return ~varying(self.kernels, self.pairs.points)

    def near_scatter(self) -> Matrix:
        """As `NearAndFar.near_scatter`."""
        return near_scatter(self.kernels, self.pairs)

    def near_rows(self) -> Array:
        """As `NearAndFar.near_rows`: at most one for each point, or a block for pairs."""
        parts = _near_parts(self.kernels, self.pairs, self.pairs.points)
        if self.pairs.labels is not None:
            return self.kernels.concatenate(list(parts))
        rows = next(parts)
        for part in parts:  # a triangular factor has the same Gram matrix, and keeps small features
            rows = self.kernels.like(triangular(*map(self.kernels.to_host, (rows, part))), part)
        return rows

    def whitened(self, near: Array, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
        """As `NearAndFar.whitened`."""
        basis, dual, _, P, _ = whitened(self.kernels, self.rows, near, self.pairs.near_total, ridge)
        return basis, dual, P

    def refuse_unbounded(self, basis: Matrix, null: Matrix, *, equal: bool) -> None:
        """As `NearAndFar.refuse_unbounded`."""
        U = self.kernels.apply(self.rows, basis.T)
        part, whole = self.squares(self.kernels.apply(U, null.T)), self.squares(U)
        refuse_unbounded(self.kernels, part, whole, equal=equal)


def whitened_by_near_pairs(
    pairs: NearAndFar, regularization: float, total: float | None = None
) -> tuple[Matrix, Matrix, Matrix]:
    """R of (2), its dual G, and directions (k, ·) in which the ridge dominates.

    Directions in which no pair differs and constant features get no weight; apart from them, rows
    are X = X R Gᵀ. ``total`` is T of (1), if it is given.
    """
    constant = pairs.constant()
    H = pairs.near_scatter()
    found = steadily_whitened(H, regularization, total, constant)
    if found is not None:
        return *found, np.empty((len(H), 0))
    ridge = _ridge(H, regularization, total, len(H) - int(constant.sum()))
    if not H.any() and not ridge:  # all near pairs are of equal points, so that nothing is a limit
        pairs.refuse_unbounded(*[np.eye(len(H))] * 2, equal=regularization > 0)
    near = pairs.near_rows()
    kernels = kernels_for(near)
    basis, dual, H = pairs.whitened(near, ridge)
    for _ in range(RIDGE_PASSES if ridge else 0):  # no direction is free, however small the ridge
        values, vectors = eigh(H)
        lengths = np.sqrt(np.maximum(values, np.finfo(float).eps * values.max(initial=0.0)))
        basis, dual = basis @ (vectors / lengths), dual @ (vectors * lengths)
        H = symmetric(gram_under(kernels, near, basis)) + ridge * (basis.T @ basis)
    inner, null = range_and_null(H)
    R = basis @ inner
    if null.shape[1]:
        pairs.refuse_unbounded(basis, null, equal=regularization > 0 and not ridge)
        flat = linalg.orth(basis @ null)
        R -= flat @ (flat.T @ R)
    R[constant] = 0
    shares, vectors = linalg.eigh(ridge * (R.T @ R))
    return R, dual @ (H @ inner), vectors[:, shares > MOSTLY_RIDGE]


def triangular(*parts: Matrix) -> Matrix:
    """A triangular factor of the Gram matrix of all rows; rows of rounding errors are zero."""
    factor = np.asarray(np.linalg.qr(np.vstack(parts), mode="r"))
    dust = ROUNDINGS * np.finfo(float).eps * np.linalg.norm(factor, axis=0)
    factor[(np.abs(factor) <= dust).all(axis=1)] = 0  # else they would be directions
    return factor


def steadily_whitened(
    H: Matrix,
    regularization: float,
    total: float | None = None,
    constant: NDArray[np.bool_] | None = None,
) -> tuple[Matrix, Matrix] | None:
    """R of (2) and its dual, if (1) is well-conditioned up to units and the ridge is small.

    ``H`` is Σ_near xxᵀ, and ``total`` is T of (1), if it is given. One eigendecomposition of
    (1) = S V Λ Vᵀ S, with S the units, gives both: R = S⁻¹ V Λ^(−½) and S V Λ^½. There must be no
    ``constant`` features.
    """
    if constant is not None and constant.any():
        return None
    ridge = _ridge(H, regularization, total, len(H))
    H = H + ridge * np.eye(len(H))
    units = np.sqrt(np.diag(H))
    if not units.min() > 0:
        return None
    H /= units
    H /= units[:, None]
    values, vectors = linalg.eigh(H, driver="evd", overwrite_a=True)
    if values[0] < STEADY * values[-1]:
        return None
    lengths, units = np.sqrt(values), units[:, None]
    R, dual = vectors / lengths, vectors * lengths
    R /= units
    dual *= units
    return (R, dual) if ridge * np.vdot(R, R) <= MOSTLY_RIDGE else None


def _ridge(H: Matrix, regularization: float, total: float | None, d: int) -> float:
    """What (1) adds to the diagonal of Σ_near xxᵀ, for d features that vary."""
    return regularization * (float(np.trace(H)) if total is None else total) / max(d, 1)


@dataclass(frozen=True)
class Floor:
    """(3), and what it keeps of the squared length of each far pair."""

    diagonal: Matrix  # (d,) of φI, zero for features that do not vary
    kept: Array  # (m,) φ‖x‖² / b, float64


def floor_of_pairs(
    pairs: Pairs, points: Array, shrinkage: float, total: float | None
) -> Floor | None:
    """(3) for b = 1; None if the shrinkage is zero. ``points`` are relative to one, in float64."""
    if shrinkage == 0:
        return None
    kernels = kernels_for(points)
    spread = float(near_squares(kernels, pairs, pairs.points).sum())
    whole = (1 - shrinkage) * spread + shrinkage * (spread if total is None else total)
    share = shrinkage / whole if whole > 0 else 0.0
    live = varying(kernels, points).astype(np.float64)
    far = tuple(kernels.index(end, points) for end in pairs.far_edges())
    return Floor(share * live, share * _far_squares(kernels, pairs.points, far, points))


def near_scatter(kernels: ModuleType, pairs: Pairs) -> Matrix:
    """Σ_near xxᵀ, from differences to keep digits."""
    total = np.zeros((pairs.points.shape[1],) * 2)
    for part in _near_parts(kernels, pairs, pairs.points):
        total += kernels.gram(part, part)
    return total


def near_squares(
    kernels: ModuleType, pairs: Pairs, points: Array, components: Matrix | None = None
) -> Matrix:
    """The diagonal of Σ_near xxᵀ, for the points of the pairs in some coordinates.

    If ``components`` are given, they map the differences, whose digits their images would lose.
    """
    total = np.zeros(points.shape[1] if components is None else len(components))
    for part in _near_parts(kernels, pairs, points):
        image = part if components is None else kernels.apply(part, components)
        total += kernels.to_host((image * image).sum(0))
    return total


def _near_parts(kernels: ModuleType, pairs: Pairs, points: Array) -> Iterator[Array]:
    """Blocks of rows whose Gram matrices add up to Σ_near xxᵀ, in float64.

    These are the differences of the pairs, times the roots of their weights. All pairs of a class
    need not be visited: Σ w_i w_j (x_i − x_j)(x_i − x_j)ᵀ is Σ w times Σ w (x − m)(x − m)ᵀ, with m
    the mean.
    """
    labels = pairs.labels
    if labels is not None:
        weights = pairs.given_weights
        order = kernels.index(labels.order, points)
        for first, last in pairwise(labels.starts.tolist()):
            if weights is not None and not weights[labels.order[first:last]].any():
                continue
            part = kernels.double(points[order[first:last]])
            part = part - part[:1]  # exactly zero for equal points, whose mean may be rounded
            if weights is None:
                yield (part - part.mean(0)) * (last - first) ** 0.5
            else:
                own = weights[labels.order[first:last]]
                w = kernels.like(own, part)[:, None]
                yield (part - (w * part).sum(0) / w.sum()) * (w * float(own.sum())) ** 0.5
        return
    heads, tails = (kernels.index(end, points) for end in pairs.near_edges())
    step = max(1, BLOCK_ENTRIES // points.shape[1])
    for first in range(0, len(heads), step):
        rows = slice(first, first + step)
        part = kernels.double(points[heads[rows]]) - kernels.double(points[tails[rows]])
        if pairs.near_weights is not None:
            part = part * kernels.like(np.sqrt(pairs.near_weights[rows]), part)[:, None]
        yield part


def central_origin(kernels: ModuleType, X: Array) -> Array:
    """The point nearest to the median of the points, which is robust to outliers, in float64.

    Relative to one of them, the points span the same space as their differences.
    """
    sample = np.asarray(kernels.to_host(X[:: -(-len(X) // SAMPLE_ROWS)]), dtype=np.float64)
    centre = kernels.like(np.median(sample, axis=0), kernels.double(X[:0]))
    points = kernels.double(X) - centre
    return kernels.double(X[int((points * points).sum(1).argmin())])


def measure_of_pairs(
    pairs: Pairs,
    regularization: float,
    images: Callable[[Matrix], Array] | None = None,
    trace: Callable[[Matrix], float] = squared_norm,
    total: float | None = None,
) -> Callable[[Matrix], tuple[Array, float]]:
    """A function of a map: ‖x‖² of each far pair, and ⟨H, A⟩ of (1), from data in float64.

    A is the metric of the map. If the map is returned in other coordinates, and rounded there,
    ``images`` and ``trace`` give the images of the points and the trace of A. ``total`` is T of
    (1), if it is given.
    """
    X = pairs.points
    kernels = kernels_for(X)
    far = tuple(kernels.index(end, X) for end in pairs.far_edges())
    origin = central_origin(kernels, X)

    @cache
    def ridge() -> float:
        """The share of (1) in each square of a map's entries."""
        spread = near_squares(kernels, pairs, X).sum() if total is None else total
        n_varying = int(varying(kernels, kernels.double(X) - origin).sum())
        return regularization * float(spread) / max(n_varying, 1)

    def measure(components: Matrix) -> tuple[Array, float]:
        points = kernels.double(X) - origin
        mapped = kernels.apply(points, components) if images is None else images(components)
        if images is None:
            constraint = float(near_squares(kernels, pairs, X, components).sum())
        else:
            constraint = float(near_squares(kernels, pairs, mapped).sum())
        if regularization:
            constraint += ridge() * trace(components)
        if images is None:
            return _far_squares(kernels, X, far, mapped, components), constraint
        return kernels.sq_lengths(mapped, *far), constraint

    return measure


def _far_squares(
    kernels: ModuleType,
    X: Array,
    far: tuple[Array, ...],
    images: Array,
    components: Matrix | None = None,
) -> Array:
    """‖x‖² of each far pair from the images of X under a map, or X about some origin.

    Where these would lose digits, it is from the differences.
    """
    squares = kernels.sq_lengths(images, *far)
    lost = kernels.flatnonzero(squares < CANCELLED * float((images * images).sum(1).max()))
    for first in range(0, len(lost), BLOCK_ROWS):
        part = lost[first : first + BLOCK_ROWS]
        x = kernels.double(X[far[0][part]]) - kernels.double(X[far[1][part]])
        squares[part] = ((x if components is None else kernels.apply(x, components)) ** 2).sum(1)
    return squares


def ratio(shrinkage: float) -> float:
    """The r of (1) for a shrinkage ρ."""
    return shrinkage / (1 - shrinkage)


def refuse_unbounded(
    kernels: ModuleType, part: Array, whole: Array, *, equal: bool = False
) -> None:
    """Raise if far pairs differ in directions in which near pairs agree.

    ``part`` (m,) are the squared lengths in these directions.
    """
    refuse_apart(kernels.to_host(reaching(kernels, part, whole)), len(part), equal=equal)


def reaching(kernels: ModuleType, part: Array, whole: Array) -> Array:
    """The numbers of the pairs of which a ``part`` of the squared length is no rounding error."""
    return kernels.flatnonzero(part > REACH**2 * whole)


def refuse_apart(apart: NDArray[np.intp], count: int, *, equal: bool) -> None:
    """Raise if any of ``count`` far pairs differs where near pairs agree.

    ``equal`` means that a ridge adds nothing, since all near pairs consist of equal points.
    """
    remedy = (
        "Give more near pairs, project with sklearn.decomposition.PCA first, or set"
        " shrinkage='auto'."
    )
    if equal:
        remedy = (
            "Give near pairs of points that differ: all of these are pairs of equal points, so that"
            " shrinkage, which is relative to their differences, adds nothing."
        )
    if len(apart):
        raise InvalidInputError(
            "the problem is unbounded: near pairs must differ in every direction in"
            f" which far pairs do; {len(apart)} of {count} far pairs differ where no near"
            f" pair does. {remedy}",
            apart,
        )
