"""Shared by MCML and NCA: points in whitened coordinates, and sums over soft neighbours.

With D(i, j) = φ‖xᵢ − xⱼ‖² + ‖L(uᵢ − uⱼ)‖², weights mᵢ of points (of mean 1), and rows sorted by
class:

(1) soft neighbours  p(j|i) = m_j exp(−D(i, j)) / Zᵢ,  Zᵢ = Σ_{l≠i} m_l exp(−D(i, l)),  j ≠ i
(2) share            pᵢ = Σ p(j|i) over the others of i's class
(3) spread           S(w) = Σᵢ mᵢ Σⱼ w_ij (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ  with w_ij = p(j|i), or with the
                     weights w_ij = p(j|i) ([yᵢ = yⱼ] − pᵢ), minus the slope of pᵢ along D(i, j)
(4) Gaussian guess   A = ¼ n (1 − 1/τ) v vᵀ, summed over the directions v in which random points are
                     τ times as far apart as those of a class (squared), vᵀPv = 1
(5) shrinkage        φ = r N / T and a price λ tr A with λ = r T / 8d,  r = ρ / (1 − ρ)

In (5), N is the weight of the points that are not alone in their class, d the number of features
that vary, and T = Σᵢ mᵢ Σⱼ m_j ‖xᵢ − xⱼ‖² / (Nᵢ − mᵢ) over pairs of a class of weight Nᵢ, so that
T / N is the mean squared distance within classes: in other units of X the program is the same. The
metric is φI + A: the distance of the inputs stays in, whatever the labels do not mention. ρ = 0 is
the papers' program, and towards ρ = 1 the metric becomes that of the inputs.

(4) is half of the A that minimises ⟨P, A⟩ + n log E exp(−D) in closed form if differences of random
points are Gaussian: half, since the nearest points dominate Z. If classes are far apart (τ large),
less is enough to separate them: D = ¼ WIDE between random points in all such directions together.

Coordinates: U = (X − centre) B, where B whitens the pull P of `nearfar.problems.whitening` with the
pairs of each class as near pairs, of weights mᵢ m_j/(Nᵢ − mᵢ); L acts on U, and L Bᵀ on X.

A sum (3) costs O(n² (r + d)); its product with a map of few rows, O(n² r).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from types import ModuleType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from nearfar.kernels import Array, kernels_for
from nearfar.linalg import (
    bounded_leading_eigh,
    factor_psd,
    is_identity,
    range_and_null,
    squared_norm,
    symmetric,
)
from nearfar.problems.whitening import FLOOR, map_above, returned_map, whitened

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

TRACE = 0.125  # share of r T/d in λ of (5)
LEAST = 0.02  # least 1 − 1/τ in (4), so that a descent can use every direction
WIDE = 400.0  # τ above which (4) is shortened
OPENING = 0.03  # share of the guess that is added in directions that a start lacks
ROUNDINGS = 4  # error of a sum over images, in roundings of a squared length, about
INEXACT = 1e-9  # error of D between images, above which it is computed from differences
TABLE_ENTRIES = 1 << 22  # of such distances that are held at a time
NARROW = 0.5  # a map with fewer rows than this share of d is narrow: sums over images are cheaper


@dataclass(frozen=True)
class Point:
    """A factor L, the value that is minimised there, and its gradient."""

    L: Matrix
    value: float
    gradient: Matrix


@dataclass(frozen=True)
class Sums:
    """Sums over soft neighbours at a factor L."""

    logs: Matrix  # (n,) log Zᵢ
    shares: Matrix  # (n,) pᵢ
    product: Matrix  # (r, d) L S(w)
    spread: Matrix | None  # (d, d) S(w); None for a map of few rows
    rounding: float  # about the error of the sum of the logarithms


@dataclass(frozen=True)
class SoftNeighborsProblem:
    """Points sorted by class, in whitened coordinates."""

    U: Array  # (n, d)
    starts: Index
    basis: Matrix  # B
    dual_basis: Matrix
    P: Matrix  # the pull of the classes and the ridge, near the identity
    ridge: Matrix  # λBᵀB
    Q: Matrix  # what the pull would be if near pairs joined random points
    regularization: float  # λ
    floor: Matrix  # (features,) the diagonal of φI; zero for features that do not vary
    masses: Matrix | None  # (n,) weights of the points, of mean 1; None if all are 1
    exact: Callable[[], Array]  # U in float64
    images: Callable[[Matrix], Array]  # of the points under a map on the features, in float64
    trace: Callable[[Matrix], float] = squared_norm  # of the metric of such a map

    @classmethod
    def build(
        cls,
        X: Array,
        centre: Array,
        starts: Index,
        regularization: float = 0.0,
        floor: Matrix | None = None,
        masses: Matrix | None = None,
    ) -> Self:
        """Whiten the points X, sorted by class, of any floating type.

        ``centre`` is one of the points or their mean: relative to any other vector, n points span n
        directions instead of n − 1.
        """
        kernels = kernels_for(X)

        def pull(U: Array) -> Matrix:
            within = within_classes(U, starts, masses)
            pulled: Matrix = kernels.gram(within, within)
            return pulled

        points, weight = kernels.double(X) - centre, float(counted_masses(starts, masses).sum())
        basis, dual, U, P, Q = whitened(kernels, points, pull, weight, regularization)
        return cls(
            U=kernels.single(U) if str(X.dtype).endswith("float32") else U,
            starts=starts,
            basis=basis,
            dual_basis=dual,
            P=P,
            ridge=regularization * (basis.T @ basis),
            Q=Q,
            regularization=regularization,
            floor=np.zeros(X.shape[1]) if floor is None else floor,
            masses=masses,
            exact=lambda: kernels.apply(kernels.double(X) - centre, basis.T),
            images=lambda components: kernels.apply(kernels.double(X) - centre, components),
        )

    @classmethod
    def shrunk(
        cls,
        X: Array,
        centre: Array,
        starts: Index,
        shrinkage: float,
        masses: Matrix | None = None,
        *,
        floored: bool = True,
    ) -> Self:
        """As `build`, with λ and φ of (5), whose φ is 0 unless ``floored``."""
        regularization, floor = 0.0, np.zeros(X.shape[1])
        if shrinkage:
            points = kernels_for(X).double(X) - centre
            total = cls.near_squares(points, starts, masses)
            weight = float(counted_masses(starts, masses).sum()) if floored else 0.0
            regularization, floor = price_and_floor(shrinkage, total, varying(X), weight)
        return cls.build(X, centre, starts, regularization, floor, masses)

    @classmethod
    def near_squares(cls, points: Array, starts: Index, masses: Matrix | None) -> float:
        """T of (5)."""
        within = within_classes(points, starts, masses)
        return float((within * within).sum())

    @property
    def kernels(self) -> ModuleType:
        """The kernels of the device that holds the points."""
        return kernels_for(self.U)

    @property
    def is_single(self) -> bool:
        """Whether the points are in float32."""
        return str(self.U.dtype).endswith("float32")

    def in_double(self) -> Self:
        """The same problem in float64."""
        return replace(self, U=self.exact())

    @cached_property
    def counted(self) -> Matrix:
        """The weights of the points that are not alone in their class, else 0, (n,)."""
        return counted_masses(self.starts, self.masses)

    @cached_property
    def kept(self) -> Array:
        """Points (n, k) whose squared distances are those of φI, in float64; k = 0 for φ = 0."""
        return self.images(np.diag(self.floor**0.5)[self.floor > 0])

    def factor(self, components: Matrix) -> Matrix:
        """The factor on U of a factor on the features (exact on the span of the data)."""
        return components @ self.dual_basis

    def components(self, L: Matrix) -> Matrix:
        """The factor on the features of a factor on U."""
        return L @ self.basis.T

    def above_floor(self, components: Matrix) -> Matrix:
        """A map of A for one of φI + A, both on the features."""
        if not self.floor.any():
            return components
        return factor_psd(components.T @ components - np.diag(self.floor))

    def dual_map(self, L: Matrix) -> Matrix:
        """A map on the features with the distances of a factor on U above the floor."""
        live = self.floor > 0
        return np.vstack([self.components(L), np.diag(self.floor**0.5)[live]])

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor on U."""
        if not self.floor.any():
            return returned_map(self.components(L), L, self.U)
        return map_above(self.components(L), self.floor, self.U)

    @property
    def varies(self) -> bool:
        """Whether points differ."""
        return bool(self.basis.any())

    @property
    def coordinates_key(self) -> Matrix:
        """What identifies the coordinates of a problem."""
        return self.basis

    def pull_of(self, L: Matrix) -> float:
        """⟨P, LᵀL⟩."""
        return float(np.vdot(L @ self.P, L))

    def mean_distance(self, L: Matrix) -> float:
        """The mean of D between random points under a factor."""
        return float(np.vdot(L @ self.Q, L)) / float(self.counted.sum())

    def first_guess(self, rows: int | None = None) -> Matrix:
        """The factor of (4), its most important rows first."""
        return gaussian_guess(self.P, self.Q, float(self.counted.sum()), rows)

    def opened(self, L: Matrix) -> Matrix:
        """A factor of full rank near L: a descent in L cannot raise its rank."""
        guess = self.first_guess()
        if np.linalg.matrix_rank(L) >= len(guess):
            return L
        full: Matrix = linalg.qr(np.vstack([L, OPENING * guess]), mode="r")[0]
        return full[: L.shape[1]]

    def sums(self, L: Matrix, U: Array | None = None, own: bool = False) -> Sums:
        """The sums at a factor, over other points U if they are given."""
        U = self.U if U is None else U
        kernels = kernels_for(U)
        whole = Z = kernels.apply(U, L)
        if self.floor.any():  # no more rows than features
            stacked = np.vstack([L @ self.basis.T, np.diag(self.floor**0.5)])
            merged = linalg.qr(stacked, mode="r")[0][: len(self.floor)]
            whole = _as(U, self.images(merged), kernels)
        if len(L) < NARROW * L.shape[1]:
            adjoint = partial(kernels.gram, U)
            return self.sums_of_images(whole, Z, own, lambda W: adjoint(_as(U, W, kernels)).T)
        logs, shares, degrees, forward, _ = kernels.softmax_neighbors(
            whole, U, self.starts, own=own, both=False, masses=self.masses
        )
        flow = _as(U, degrees, kernels)[:, None] * U
        forward *= 2
        flow -= forward
        spread = symmetric(kernels.gram(U, flow))  # (3): w_ij counts for i and for j
        return self._sums(whole, logs, shares, L @ spread, spread)

    def sums_of_images(
        self, whole: Array, Z: Array, own: bool, adjoint: Callable[[Array], Matrix]
    ) -> Sums:
        """The sums of a map of few rows, from images, and those of φI + A in ``whole``.

        ``adjoint`` is what a change (n, r) of the images is for L.
        """
        logs, shares, degrees, forward, backward = kernels_for(Z).softmax_neighbors(
            whole, Z, self.starts, own=own, both=True, masses=self.masses
        )
        product = adjoint(degrees[:, None] * Z - forward - backward)
        return self._sums(whole, logs, shares, product, None)

    def _sums(
        self, whole: Array, logs: Array, shares: Array, product: Matrix, spread: Matrix | None
    ) -> Sums:
        kernels = kernels_for(whole)
        squares = kernels.to_host(kernels.double((whole * whole).sum(1)))
        precision = 2.0**-23 if whole.itemsize == 4 else 2.0**-52
        rounding = ROUNDINGS * precision * float(np.linalg.norm(self.counted * squares))
        return Sums(kernels.to_host(logs), kernels.to_host(shares), product, spread, rounding)

    def soft_neighbors_of(self, components: Matrix) -> tuple[Array, Matrix, Matrix]:
        """Images of the points under a map on the features, log Zᵢ and pᵢ of (2), in float64."""
        kernels, Z = self.kernels, self.images(components)
        largest = float((Z * Z).sum(1).max())
        if ROUNDINGS * np.finfo(np.float64).eps * largest > INEXACT:
            images = np.asarray(kernels.to_host(Z), dtype=np.float64)
            return Z, *_by_differences(images, self.starts, self.masses)
        logs, shares = kernels.softmax_neighbors(Z, Z[:, :0], self.starts, masses=self.masses)[:2]
        return Z, np.asarray(kernels.to_host(logs)), np.asarray(kernels.to_host(shares))


def price_and_floor(
    shrinkage: float, total: float, varies: NDArray[np.bool_], weight: float
) -> tuple[float, Matrix]:
    """λ and the diagonal of φI of (5), from T = ``total`` and N = ``weight``, 0 for no floor."""
    floor, r = np.zeros(len(varies)), shrinkage / (1 - shrinkage)
    if total > 0:
        floor[varies] = r * weight / total
    return TRACE * r * total / max(int(varies.sum()), 1), floor


def gaussian_guess(P: Matrix, Q: Matrix, weight: float, rows: int | None) -> Matrix:
    """The factor of (4), its most important rows first; ``weight`` is N of (5)."""
    tau, directions = _ratios(P, Q, rows)
    tau = np.maximum(tau, 1.0)
    gain = np.maximum(1 - 1 / tau, LEAST)
    gain = np.minimum(gain, WIDE / tau / max(1, (tau > WIDE).sum()))[:rows]
    guess: Matrix = np.sqrt(0.25 * weight * gain)[:, None] * directions[:, :rows].T
    return guess


def _ratios(P: Matrix, Q: Matrix, rows: int | None) -> tuple[Matrix, Matrix]:
    """τ of (4), descending, and directions v; at least ``rows`` of them and all with τ > WIDE."""
    if is_identity(P):  # whose directions are those of Q
        values, vectors = bounded_leading_eigh(symmetric(Q), len(Q) if rows is None else rows + 1)
        steadied = 1 + FLOOR * values
        if len(values) == len(Q) or values[0] <= WIDE * steadied[0]:
            return (values / steadied)[::-1], (vectors / np.sqrt(steadied))[:, ::-1]
    basis, _ = range_and_null(P + FLOOR * Q)
    tau, rotation = linalg.eigh(symmetric(basis.T @ Q @ basis))
    return tau[::-1], (basis @ rotation)[:, ::-1]


def _by_differences(Z: Matrix, starts: Index, masses: Matrix | None) -> tuple[Matrix, Matrix]:
    """log Zᵢ and pᵢ of (2) from differences, for images too far apart for a matrix product."""
    logs, shares = np.empty(len(Z)), np.empty(len(Z))
    codes = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    weights = np.ones(len(Z)) if masses is None else masses
    for rows in np.array_split(np.arange(len(Z)), 1 + len(Z) ** 2 // TABLE_ENTRIES):
        exponents = np.log(weights) - cdist(Z[rows], Z, "sqeuclidean")
        exponents[np.arange(len(rows)), rows] = -np.inf
        logs[rows] = logsumexp(exponents, axis=1)
        parts = np.exp(exponents - logs[rows, None])
        shares[rows] = (parts * (codes[rows, None] == codes)).sum(axis=1)
    return logs, shares


def varying(X: Array) -> NDArray[np.bool_]:
    """The features in which points differ, (d,)."""
    return np.asarray(kernels_for(X).to_host((X[:1] != X).any(0)))


def counted_masses(starts: Index, masses: Matrix | None) -> Matrix:
    """The weights of the points that are not alone in their class, else 0, (n,)."""
    sizes = np.diff(starts)
    counted = np.repeat(sizes > 1, sizes).astype(np.float64)
    return counted if masses is None else counted * masses


def masses_of_others(starts: Index, masses: Matrix | None) -> Matrix:
    """The weight of the others of each point's class, (n,)."""
    sizes = np.diff(starts)
    if masses is None:
        return np.repeat(sizes - 1.0, sizes)
    parts = []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        padded = np.concatenate([[0.0], masses[first:last], [0.0]])
        parts.append(np.cumsum(padded)[:-2] + np.cumsum(padded[::-1])[::-1][2:])  # W - m rounds
    return np.concatenate(parts)


def pull_scales(starts: Index, masses: Matrix | None) -> Iterator[tuple[Matrix, Matrix]]:
    """For each class the weights of its points in the mean, and what scales them in the pull P."""
    others = masses_of_others(starts, masses)
    for first, last in pairwise(starts.tolist()):
        own = np.ones(last - first) if masses is None else masses[first:last]
        shares = np.divide(own, others[first:last], where=last - first > 1, out=np.zeros(len(own)))
        yield own / own.sum(), np.sqrt(own.sum() * shares + shares.sum() * own)


def within_classes(U: Array, starts: Index, masses: Matrix | None = None) -> Array:
    """Points minus the mean of their class, scaled so that their Gram matrix is the pull P."""
    kernels, parts = kernels_for(U), []
    for (first, last), (mean, scales) in zip(
        pairwise(starts.tolist()), pull_scales(starts, masses), strict=True
    ):
        own = U[first:last] - U[first : first + 1]  # zero where they agree, as is their mean
        centre = own.mean(0) if masses is None else (own * kernels.like(mean, U)[:, None]).sum(0)
        parts.append((own - centre) * kernels.like(scales, U)[:, None])
    return kernels.concatenate(parts)


def _as(reference: Array, values: Array, kernels: ModuleType) -> Array:
    """Values in the dtype of the reference."""
    return kernels.single(values) if reference.itemsize == 4 else kernels.double(values)
