"""Points and target edges of LMNN, in coordinates in which its descent is well conditioned.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg

from nearfar.kernels import Array, kernels_for
from nearfar.linalg import factor_psd, null_tolerance, symmetric
from nearfar.problems.whitening import floored_map, returned_map, rotated_map, whitened

Matrix = NDArray[np.float64]

FEWEST = 8  # directions of a first guess, where there are as many
OPEN = 0.1  # of the mean eigenvalue of a start's metric, for the directions that it lacks
FLOOR = 0.5  # F of (7)


@dataclass(frozen=True)
class LMNNPoints:
    """Whitened points U, with rows sorted by class, their target edges and the pull of these."""

    U: Array  # (n, d)
    edges: tuple[Array, Array]  # target edges (heads, tails), sorted by head
    first_edge: Array  # (n + 1,) the edges of row i are first_edge[i]:first_edge[i + 1]
    starts: NDArray[np.intp]
    push_weight: float
    ridge: float  # (1−μ) r T/d of (7)
    floor: Matrix  # (features,) the diagonal of φI in (7); zero for features that do not vary
    kept: Array | None  # (n, features) points whose squared lengths are φ‖·‖²; None for φ = 0
    basis: Matrix  # (features, d): U = (X − centre) basis
    dual_basis: Matrix  # (features, d): X − centre = U dual_basisᵀ
    P: Matrix  # (d, d) in the coordinates of U
    Q: Matrix  # (d, d) what P would be if target neighbours were random points
    exact: Callable[[], Array]  # U recomputed from the data in float64
    images: Callable[[Matrix], Array]  # of the points under a map on the features, in float64
    first: Array | None  # (n,) the first of the points that equal each one; None if all differ

    @classmethod
    def build(
        cls,
        X: Array,
        centre: Array,
        edges: tuple[Array, Array],
        starts: NDArray[np.intp],
        push_weight: float,
        shrinkage: float = 0.0,
        *,
        floored: bool = True,
    ) -> Self:
        """Whiten the points X (sorted by class, any floating type) by their target edges.

        ``shrinkage`` is ρ of (7), whose φ is 0 unless ``floored``.

        ``centre`` is one of the points or their mean: from elsewhere, n points would seem to differ
        in n directions instead of n − 1.
        """
        kernels = kernels_for(X)
        points = kernels.double(X) - centre
        weight = 1 - float(push_weight)
        ones = kernels.double(edges[0]) * 0 + 1
        unit, floor = _ridge_and_floor(points, edges, shrinkage)
        ridge = weight * unit
        if not floored:
            floor = np.zeros(X.shape[1])

        def pull(U: Array) -> Matrix:
            pulled: Matrix = kernels.gram(U, kernels.laplacian_matmul(*edges, ones, U))
            return weight * pulled

        first = kernels.first_equal(X)
        if len(kernels.unique(first)) == len(X):
            first = None

        def images(components: Matrix) -> Array:
            return _with_equal_rows(kernels.apply(kernels.double(X) - centre, components), first)

        basis, dual, U, P, Q = whitened(kernels, points, pull, weight * len(ones), ridge)
        U = _with_equal_rows(U, first)
        single = str(X.dtype).endswith("float32")
        kept = images(np.diag(floor**0.5)) if floor.any() else None
        counts = np.bincount(kernels.to_host(edges[0]), minlength=len(X))
        return cls(
            U=kernels.single(U) if single else U,
            edges=edges,
            first_edge=kernels.index(np.concatenate([[0], np.cumsum(counts)]), X),
            starts=starts,
            push_weight=float(push_weight),
            ridge=ridge,
            floor=floor,
            kept=kernels.single(kept) if single and kept is not None else kept,
            basis=basis,
            dual_basis=dual,
            P=P,
            Q=Q,
            exact=lambda: images(basis.T),
            images=images,
            first=first,
        )

    def in_geometry_of(self, L: Matrix) -> Self:
        """The same problem in coordinates in which the metric of L is the identity.

        Directions that L lacks stay open, at a tenth of the mean of the others.
        A descent from L then stays longer in the directions that L finds good. It is the way to go
        where it will be stopped early; to the optimum it is longer than that of whitened points.
        """
        values, vectors = scipy_linalg.eigh(L.T @ L)
        missing = values <= null_tolerance(values)
        roots = np.sqrt(np.where(missing, OPEN * values[~missing].mean(), values))
        frame, inverse = vectors.T * roots[:, None], vectors / roots
        kernels, exact = self.kernels, self.exact
        return replace(
            self,
            U=_with_equal_rows(kernels.apply(self.U, frame), self.first),
            basis=self.basis @ frame.T,
            dual_basis=self.dual_basis @ inverse,
            P=symmetric(frame @ self.P @ frame.T),
            Q=symmetric(frame @ self.Q @ frame.T),
            exact=lambda: _with_equal_rows(kernels.apply(exact(), frame), self.first),
        )

    def sampled(self, rows: int) -> Self:
        """The problem with the target edges of about so many rows, evenly spread; all may invade.

        P is a share of that of all edges.
        """
        kernels, n = self.kernels, len(self.U)
        kept = kernels.flatnonzero(self.edges[0] % max(1, n // rows) == 0)
        if len(kept) in (0, len(self.edges[0])):
            return self
        heads, tails = self.edges[0][kept], self.edges[1][kept]
        share = len(kept) / len(self.edges[0])
        return replace(
            self,
            edges=(heads, tails),
            first_edge=kernels.searchsorted(heads, kernels.arange(n + 1, heads)),
            P=share * self.P,
            ridge=share * self.ridge,
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
        kept = None if self.kept is None else self._whole(self.U[:, :0], exact=True)
        return replace(self, U=self.exact(), kept=kept)

    def factor(self, components: Matrix) -> Matrix:
        """The factor on U of a factor on the features (exact on the span of the data)."""
        L: Matrix = components @ self.dual_basis
        return L

    def components(self, L: Matrix) -> Matrix:
        """The factor on the features of a factor on U."""
        components: Matrix = L @ self.basis.T
        return components

    def above_floor(self, components: Matrix) -> Matrix:
        """A map of M' for one of M = φI + M', both on the features."""
        if self.kept is None:
            return components
        return factor_psd(components.T @ components - np.diag(self.floor))

    def returned(self, L: Matrix) -> Matrix:
        """The map on the features that a fit returns for a factor on U."""
        if self.kept is None:
            return returned_map(self.components(L), L, self.U)
        return floored_map(self.components(L), self.floor, self.U)

    def first_guess(self) -> Matrix:
        """Whitened directions, each by how much farther apart random points are than targets.

        M = Σ (1 − 1/τ) v vᵀ over the eigenpairs (τ, v) of Q with τ ≥ 2, or the largest few. Noise,
        along which a target is as far as any point, is left out; the descent adds a direction if
        it is needed after all. It does not depend on the units of the features.
        """
        tau, vectors = scipy_linalg.eigh(self.Q)
        kept = tau >= min(2.0, np.sort(tau)[-FEWEST:][0])
        weights = np.sqrt(np.maximum(1 - 1 / np.maximum(tau[kept], 1.0), 0.01))
        L: Matrix = weights[:, None] * vectors[:, kept].T
        return L

    def normalised(self, L: Matrix) -> Matrix:
        """L scaled so that target edges have a mean squared length of 1."""
        pull = np.vdot(L @ self.P, L) / ((1 - self.push_weight) * len(self.edges[0]))
        return L / np.sqrt(pull) if pull > 0 else L

    # -- what several metrics do otherwise (`nearfar.problems.multi_metric_lmnn`) ----------------

    def _map(self, L: Matrix, U: Array) -> Array:
        """The images of the points."""
        return self.kernels.apply(U, L)

    def _whole(self, Z: Array, *, exact: bool = False) -> Array:
        """Images whose squared lengths are those of M: of M' with those of φI beside them."""
        if self.kept is None:
            return Z
        kept = self.images(np.diag(self.floor**0.5)) if exact else self.kept
        return self.kernels.concatenate([Z.T, kept.T]).T

    @property
    def _constant(self) -> float:
        """The pull of φI, φ tr P in (7)."""
        if self.kept is None:
            return 0.0
        kept = self.kernels.double(self.kept)
        lengths = self.kernels.sq_lengths(kept, *self._nodes(*self.edges))
        pull = (1 - self.push_weight) * float(lengths.sum())
        return pull + self.ridge * float(self.floor.sum())

    def _returned_images(self, L: Matrix, U: Array) -> tuple[Array, Array]:
        """Images of the points in float64 under L, rotated, and under the map that is returned."""
        components, rotation = rotated_map(self.components(L), L, self.U)
        return self._map(rotation @ L, U), self.images(components)

    def _nodes(self, heads: Array, tails: Array) -> tuple[Array, Array]:
        """The rows of the images between which the lengths of pairs of points are measured."""
        return heads, tails

    def _pulled_back(self, W: Array) -> Matrix:
        """The adjoint of `_map`: what a change W of the images is for L."""
        product: Matrix = self.kernels.gram(W, self.U)
        return product

    def _lengths(self, Z: Array, heads: Array, tails: Array) -> Array:
        kernels = self.kernels
        return kernels.double(kernels.sq_lengths(Z, *self._nodes(heads, tails)))

    def _products(self, Z: Array, D: Array, heads: Array, tails: Array) -> tuple[Array, Array]:
        kernels = self.kernels
        cross, square = kernels.edge_products(Z, D, *self._nodes(heads, tails))
        return kernels.double(cross), kernels.double(square)


def _ridge_and_floor(
    points: Array, edges: tuple[Array, Array], shrinkage: float
) -> tuple[float, Matrix]:
    """r T/d of (7), and the diagonal of φI there: zero for features that do not vary."""
    kernels, floor = kernels_for(points), np.zeros(points.shape[1])
    total = float(kernels.sq_lengths(points, *edges).sum()) if shrinkage else 0.0
    if not total > 0:
        return 0.0, floor
    varies = kernels.to_host(abs(points).sum(0)) > 0
    r = shrinkage / (1 - shrinkage)
    floor[varies] = FLOOR * r * len(edges[0]) / total
    return r * total / int(varies.sum()), floor


def _with_equal_rows(U: Array, first: Array | None) -> Array:
    """U with exactly equal rows where ``first`` says so: a matrix product may round them apart."""
    return U if first is None else U[first]
