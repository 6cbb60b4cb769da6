"""NCA for a rectangular map on sparse points, with the coordinates of `sparse_points`.

The program is (4) of `nearfar.problems.nca` with φ = 0. Sums over soft neighbours need the images
Z (n, r) alone, and the gradient one product with the sparse rows:

(1) gradient  2 FᵀX B + 2λ L BᵀB,  F = Lap Z (n, r) with the weights of (2) there
(2) guess     that of `nearfar.problems.soft_neighbors` (4), among the directions of the sketch
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, on_numpy, on_sparse
from nearfar.problems.nca import NEAREST, NCAProblem, lengthened
from nearfar.problems.soft_neighbors import (
    TRACE,
    Sums,
    counted_masses,
    gaussian_guess,
    pull_scales,
    within_classes,
)
from nearfar.problems.sparse_points import Coordinates, SparsePoints

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class SparseNCAProblem(NCAProblem):
    """The program on CSR rows sorted by class; ``U`` has no columns, ``P`` and ``Q`` are empty."""

    source: SparsePoints
    coordinates: Coordinates

    @classmethod
    def of(
        cls, source: SparsePoints, starts: Index, shrinkage: float, masses: Matrix | None = None
    ) -> Self:
        """The problem; arguments are those of `SoftNeighborsProblem.shrunk`."""
        n, d = source.X.shape
        varies = source.variances > 0
        price = 0.0
        if shrinkage:
            r = shrinkage / (1 - shrinkage)
            squares = _nearest_squares(source.X, starts, masses)
            price = TRACE * r * squares / max(int(varies.sum()), 1)
        weight = float(counted_masses(starts, masses).sum())

        def pull(U: Matrix) -> Matrix:
            within = within_classes(U, starts, masses)
            return on_numpy.gram(within, within)

        def diagonal() -> Matrix:
            return _within_squares(source.X, starts, masses)

        coordinates = source.coordinates(pull, diagonal, weight, price)
        none = np.empty((0, 0))
        return cls(
            U=np.empty((n, 0), source.dtype),
            starts=starts,
            basis=coordinates.basis,
            dual_basis=coordinates.dual,
            P=none,
            ridge=none,
            Q=none,
            regularization=price,
            floor=np.zeros(d),
            masses=masses,
            exact=lambda: np.empty((n, 0)),
            images=source.images,
            source=source,
            coordinates=coordinates,
        )

    @property
    def varies(self) -> bool:
        """Whether points differ."""
        return bool(self.source.variances.any())

    @property
    def coordinates_key(self) -> Matrix:
        """What identifies the coordinates of a problem."""
        inner = self.coordinates.inner
        return np.asarray(self.basis.diagonal() if inner is None else inner)

    def mean_distance(self, L: Matrix) -> float:
        """The mean of D between random points under a factor."""
        Z = self.coordinates.images(L, np.float64)
        return 2 * float(((Z - Z.mean(0)) ** 2).sum()) / len(Z)

    def pull_of(self, L: Matrix) -> float:
        """⟨P, LᵀL⟩."""
        within = within_classes(self.coordinates.images(L, np.float64), self.starts, self.masses)
        return float((within * within).sum()) + float(np.vdot(self._priced(L), L))

    def first_guess(self, rows: int | None = None) -> Matrix:
        """(2), lengthened if points are too near each other."""
        V, Y = self.source.sketch
        inner = self.coordinates.inner
        Y, frame = (Y, V) if inner is None else (Y @ inner, inner.T)
        within, centred = within_classes(Y, self.starts, self.masses), Y - Y.mean(0)
        P = on_numpy.gram(within, within) + self.regularization * (frame @ frame.T)
        weight = float(self.counted.sum())
        Q = 2 * weight / len(Y) * on_numpy.gram(centred, centred)
        guess = gaussian_guess(P, Q, weight, rows)
        return lengthened(self, guess if inner is not None else self.factor(guess @ V))

    def sums(self, L: Matrix, U: Array | None = None, own: bool = False) -> Sums:
        """The sums at a factor, in float64 if U is given."""
        Z = self.coordinates.images(L, self.U.dtype if U is None else np.float64)
        return self.sums_of_images(Z, Z, own, self.coordinates.adjoint)

    def _priced(self, L: Matrix) -> Matrix:
        return self.regularization * self.coordinates.on_features(L)


def _within_squares(X: Any, starts: Index, masses: Matrix | None) -> Matrix:
    """The diagonal of the pull P of the classes, (d,): those of `within_classes` squared."""
    total = np.zeros(X.shape[1])
    for (first, last), (mean, scales) in zip(
        pairwise(starts.tolist()), pull_scales(starts, masses), strict=True
    ):
        mates, w = on_sparse.double(X[first:last]), scales**2
        centre = mates.T @ mean
        total += mates.power(2).T @ w - 2 * (mates.T @ w) * centre + w.sum() * centre**2
    return np.maximum(total, 0.0)


def _nearest_squares(X: Any, starts: Index, masses: Matrix | None) -> float:
    """T of (4) of `nearfar.problems.nca`, as `nearest_squares` has it for dense points."""
    total, weights = 0.0, np.ones(X.shape[0]) if masses is None else masses
    for first, last in pairwise(starts.tolist()):
        mates = X[first:last]
        distinct, which = np.unique(on_sparse.first_equal(mates), return_inverse=True)
        if len(distinct) > 1:
            there = mates[distinct]
            squares = on_sparse.nearest(there, there, min(NEAREST + 1, len(distinct)))[1]
            total += float(weights[first:last] @ squares[:, 1:].mean(axis=1)[which])
    return total
