"""Shared by MCML and NCA: points in whitened coordinates, and sums over soft neighbours.

With D(i, j) = ‖L(uᵢ − uⱼ)‖² and rows sorted by class:

(1) soft neighbours  p(j|i) = exp(−D(i, j)) / Zᵢ,  Zᵢ = Σ_{l≠i} exp(−D(i, l)),  j ≠ i
(2) share            pᵢ = Σ p(j|i) over the others of i's class
(3) spread           S(w) = Σᵢ Σⱼ w_ij (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ  with w_ij = p(j|i), or with the weights
                     w_ij = p(j|i) ([yᵢ = yⱼ] − pᵢ), minus the slope of pᵢ along D(i, j)
(4) Gaussian guess   A = ¼ n (1 − 1/τ) v vᵀ, summed over the directions v in which random points are
                     τ times as far apart as those of a class (squared), vᵀPv = 1

(4) is half of the A that minimises ⟨P, A⟩ + n log E exp(−D) in closed form if differences of random
points are Gaussian: half, since the nearest points dominate Z. If classes are far apart (τ large),
less is enough to separate them: D = ¼ WIDE between random points in all such directions together.

Coordinates: U = (X − centre) B, where B whitens the pull P of `nearfar.problems.whitening` with the
pairs of each class as near pairs, of weights 1/(n_c − 1); L acts on U, and L Bᵀ on X.

A sum (3) costs O(n² (r + d)); its product with a map of few rows, O(n² r).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array, kernels_for
from nearfar.linalg import range_and_null, squared_norm, symmetric
from nearfar.problems.whitening import FLOOR, returned_map, whitened

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

LEAST = 0.02  # least 1 − 1/τ in (4), so that a descent can use every direction
WIDE = 400.0  # τ above which (4) is shortened
OPENING = 0.03  # share of the guess that is added in directions that a start lacks
ROUNDINGS = 4  # error of a sum over images, in roundings of a squared length, about
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
    exact: Callable[[], Array]  # U in float64
    images: Callable[[Matrix], Array]  # of the points under a map on the features, in float64
    trace: Callable[[Matrix], float] = squared_norm  # of the metric of such a map

    @classmethod
    def build(cls, X: Array, centre: Array, starts: Index, regularization: float = 0.0) -> Self:
        """Whiten the points X, sorted by class, of any floating type.

        ``centre`` is one of the points or their mean: relative to any other vector, n points span n
        directions instead of n − 1.
        """
        kernels = kernels_for(X)
        sizes = np.diff(starts)

        def pull(U: Array) -> Matrix:
            within = within_classes(U, starts)
            pulled: Matrix = kernels.gram(within, within)
            return pulled

        points, weight = kernels.double(X) - centre, float(sizes[sizes > 1].sum())
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
            exact=lambda: kernels.apply(kernels.double(X) - centre, basis.T),
            images=lambda components: kernels.apply(kernels.double(X) - centre, components),
        )

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
    def counted(self) -> NDArray[np.bool_]:
        """The points that are not alone in their class, (n,)."""
        sizes = np.diff(self.starts)
        return np.repeat(sizes > 1, sizes)

    def factor(self, components: Matrix) -> Matrix:
        """The factor on U of a factor on the features (exact on the span of the data)."""
        return components @ self.dual_basis

    def components(self, L: Matrix) -> Matrix:
        """The factor on the features of a factor on U."""
        return L @ self.basis.T

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor on U."""
        return returned_map(self.components(L), L, self.U)

    def mean_distance(self, L: Matrix) -> float:
        """The mean of D between random points under a factor."""
        return float(np.vdot(L @ self.Q, L)) / float(self.counted.sum())

    def first_guess(self, rows: int | None = None) -> Matrix:
        """The factor of (4), its most important rows first."""
        basis, _ = range_and_null(self.P + FLOOR * self.Q)
        tau, rotation = linalg.eigh(symmetric(basis.T @ self.Q @ basis))
        order = np.argsort(-tau)[:rows]
        tau = np.maximum(tau, 1.0)
        gain = np.maximum(1 - 1 / tau, LEAST)
        gain = np.minimum(gain, WIDE / tau / max(1, (tau > WIDE).sum()))
        directions = (basis @ rotation[:, order]).T
        guess: Matrix = np.sqrt(0.25 * self.counted.sum() * gain[order])[:, None] * directions
        return guess

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
        Z = kernels.apply(U, L)
        squares = kernels.to_host(kernels.double((Z * Z).sum(1)))
        narrow = len(L) < NARROW * L.shape[1]
        logs, shares, degrees, forward, backward = kernels.softmax_neighbors(
            Z, Z if narrow else U, self.starts, own=own, both=narrow
        )
        if narrow:
            flow = degrees[:, None] * Z - forward - backward
            product, spread = kernels.gram(U, _as(U, flow, kernels)).T, None
        else:
            flow = _as(U, degrees, kernels)[:, None] * U
            forward *= 2
            flow -= forward
            spread = symmetric(kernels.gram(U, flow))  # (3): w_ij counts for i and for j
            product = L @ spread
        precision = 2.0**-23 if Z.itemsize == 4 else 2.0**-52
        return Sums(
            kernels.to_host(logs),
            kernels.to_host(shares),
            product,
            spread,
            rounding=ROUNDINGS * precision * float(np.linalg.norm(squares)),
        )

    def soft_neighbors_of(self, components: Matrix) -> tuple[Array, Matrix, Matrix]:
        """Images of the points under a map on the features, log Zᵢ and pᵢ of (2), in float64."""
        kernels, Z = self.kernels, self.images(components)
        logs, shares = kernels.softmax_neighbors(Z, Z[:, :0], self.starts)[:2]
        return Z, np.asarray(kernels.to_host(logs)), np.asarray(kernels.to_host(shares))


def within_classes(U: Array, starts: Index) -> Array:
    """Points minus the mean of their class, scaled so that their Gram matrix is the pull P."""
    parts = []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        size = last - first
        scale = (2 * size / (size - 1)) ** 0.5 if size > 1 else 0.0
        parts.append((U[first:last] - U[first:last].mean(0)) * scale)
    return kernels_for(U).concatenate(parts)


def _as(reference: Array, values: Array, kernels: ModuleType) -> Array:
    """Values in the dtype of the reference."""
    return kernels.single(values) if reference.itemsize == 4 else kernels.double(values)
