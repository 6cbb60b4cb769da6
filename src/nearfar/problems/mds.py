"""Stress: the misfit between the distances of an embedding and given ones.

δᵢⱼ are the given distances, wᵢⱼ >= 0 their weights (0 if a distance is unknown), Y (n, r) the
embedding, dᵢⱼ = ‖yᵢ − yⱼ‖, and sums run over pairs i < j.

(1) stress     σ(Y) = Σ wᵢⱼ (δᵢⱼ − dᵢⱼ)²                                            [deleeuw1977]
(2) s-stress   σ(Y) = Σ wᵢⱼ (δᵢⱼ² − dᵢⱼ²)²                              [weinberger2007, (3.2)]
(3) slopes     ½ ∇σ = Lap(w (1 − δ/d)) Y  of (1),  Lap(2 w (d² − δ²)) Y  of (2)

where Lap(c) = Σ cᵢⱼ (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ, and δ/d counts as 0 where d = 0. With V = Lap(w),

(4) σ(Y) <= σ(Z) + 2 ⟨½∇σ(Z), Y − Z⟩ + ⟨Y − Z, V (Y − Z)⟩  for the stress (1),

since −δ dᵢⱼ <= −δ (yᵢ − yⱼ)·(zᵢ − zⱼ)/‖zᵢ − zⱼ‖. Its minimum over Y is the majorisation step

(5) Y = Z − V⁺ ½∇σ(Z) ,

which never raises the stress. V has the constant vectors as its null space if the pairs with a
positive weight connect all points.

[deleeuw1977] De Leeuw, Applications of convex analysis to multidimensional scaling, 1977.
[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, gram_kernels_for, kernels_for
from nearfar.kernels.all_pairs import pair_forces

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Solve = Callable[[Array], Array]
"""V⁺ G for G (n, r) with columns that sum to 0."""

STRESS, SQUARED_STRESS = "stress", "sstress"
LOST = 1e-15  # pivot of a factor, relative to the largest, that is only rounding
MANY = 0.25  # share of all pairs above which matrices are dense


@dataclass(frozen=True)
class Evaluation:
    """An embedding, its value, its slope and its step."""

    Y: Array  # (n, r), centred
    value: float  # σ
    slope: Array  # ½ ∇σ
    step: Array  # the majorisation step −V⁺ ½∇σ, or one like it


Law = Callable[[Array, Array], tuple[Array, Array]]
"""Maps δ and d² to the value of each pair and to its factor in (3), without the weight."""


def stress_law(lengths: Array, squares: Array) -> tuple[Array, Array]:
    """(1) and (3)."""
    distances = squares**0.5
    residual = distances - lengths
    apart = distances > 0
    return residual * residual, 1 - apart * lengths / (distances + ~apart)


def squared_stress_law(lengths: Array, squares: Array) -> tuple[Array, Array]:
    """(2) and (3)."""
    residual = squares - lengths * lengths
    return residual * residual, 2 * residual


@dataclass(frozen=True)
class AllPairs:
    """Distances as a matrix, on the device of the data. An evaluation takes O(n² r), in blocks."""

    lengths: Array  # δ (n, n), symmetric
    weights: Array | None  # w (n, n), symmetric, zero on the diagonal; None is 1 for all pairs
    solve: Solve

    @classmethod
    def of(cls, lengths: Array, weights: Array | None) -> AllPairs:
        """With the inverse of V: O(n³) if there are weights, immediate if not."""
        n = len(lengths)
        if weights is None:
            return cls(lengths, None, partial(_divided, n))  # V = n H
        return cls(lengths, weights, partial(_product, dense_inverse(weights)))

    def forces(self, Y: Array, law: Law) -> tuple[float, Array]:
        """Σ w·value of a law, and Lap(w·factor) Y."""

        def weigh(rows: slice, squares: Array) -> tuple[Array, Array]:
            values, factors = law(self.lengths[rows], squares)
            if self.weights is not None:
                values, factors = self.weights[rows] * values, self.weights[rows] * factors
            return values.sum(), factors

        return pair_forces(Y, weigh)

    def total(self, power: int) -> float:
        """Σ w δ^power."""
        values = self.lengths**power
        return 0.5 * float((values if self.weights is None else self.weights * values).sum())


@dataclass(frozen=True)
class SomePairs:
    """Distances along edges. An evaluation takes O(m r), plus solving a system with V."""

    heads: Array  # (m,) indices, where the data is
    tails: Array  # (m,)
    lengths: Array  # δ (m,)
    weights: Array  # w (m,)
    solve: Solve

    @classmethod
    def of(
        cls,
        n: int,
        edges: tuple[Index, Index],
        lengths: Matrix,
        weights: Matrix | None,
        reference: Array,
    ) -> SomePairs:
        """From host arrays, which are moved to the device of the reference, in its dtype.

        V is factored as a sparse matrix, or as a dense one if many pairs are known.
        """
        kernels = kernels_for(reference)
        heads, tails = (np.asarray(rows, dtype=np.intp) for rows in edges)
        solve: Solve
        if weights is None and 2 * len(heads) == n * (n - 1):
            solve = partial(_divided, n)
        elif many(n, len(heads)):
            W = np.zeros((n, n))
            W[heads, tails] = W[tails, heads] = 1.0 if weights is None else weights
            solve = partial(_product, dense_inverse(kernels.like(W, reference)))
        else:
            solve = partial(_solved, sparse_factor(n, heads, tails, weights))
        weights = np.ones(len(heads)) if weights is None else weights
        return cls(
            kernels.index(heads, reference),
            kernels.index(tails, reference),
            kernels.like(lengths, reference),
            kernels.like(weights, reference),
            solve,
        )

    def forces(self, Y: Array, law: Law) -> tuple[float, Array]:
        """Σ w·value of a law, and Lap(w·factor) Y."""
        kernels = kernels_for(Y)
        values, factors = law(self.lengths, kernels.sq_lengths(Y, self.heads, self.tails))
        product = kernels.laplacian_matmul(self.heads, self.tails, self.weights * factors, Y)
        return float((self.weights * values).sum()), product

    def total(self, power: int) -> float:
        """Σ w δ^power."""
        return float((self.weights * self.lengths**power).sum())


@dataclass(frozen=True)
class StressProblem:
    """The stress (1) or the s-stress (2) of embeddings."""

    pairs: AllPairs | SomePairs
    law: Law
    scale: float  # the value of an embedding with all points in one place
    caution: float  # by which a step (5) is divided: 1 for the stress, which it majorises

    @classmethod
    def of(cls, pairs: AllPairs | SomePairs, loss: str) -> StressProblem:
        """For the s-stress, steps are scaled by the curvature 4δ² of its terms at d = δ."""
        if loss == STRESS:
            return cls(pairs, stress_law, pairs.total(2), 1.0)
        scale = pairs.total(4)
        return cls(pairs, squared_stress_law, scale, 4 * scale / pairs.total(2))

    def evaluate(self, Y: Array) -> Evaluation:
        """Value, slope (3) and step (5) at an embedding."""
        Y = centred(Y)
        value, slope = self.pairs.forces(Y, self.law)
        return Evaluation(Y, value, slope, self.pairs.solve(slope) / -self.caution)


def centred(Y: Array) -> Array:
    """Y minus its mean, which changes no distance."""
    return Y - Y.mean(0)


def many(n: int, m: int) -> bool:
    """Whether a dense matrix is faster for m edges."""
    return 2 * m > MANY * n * (n - 1)


# -- V⁺ ----------------------------------------------------------------------------------------


def _divided(n: int, G: Array) -> Array:
    return G / n


def _product(P: Array, G: Array) -> Array:
    return P @ G


class Factor(Protocol):
    """A factored matrix."""

    def solve(self, right: Matrix) -> Matrix: ...  # noqa: D102


def dense_inverse(weights: Array) -> Array:
    """(V + c 11ᵀ)⁻¹ for V = Lap(w), which is V⁺ on columns that sum to 0. Time O(n³)."""
    kernels, n = gram_kernels_for(weights), len(weights)
    degrees = weights.sum(0)
    V = kernels.eye(n, weights) * degrees - weights + degrees.mean() / n
    factor = kernels.cholesky(V)
    if factor is None:
        raise _too_different(kernels_for(weights).to_host(weights))
    return kernels.cholesky_inverse(factor)


def sparse_factor(n: int, heads: Index, tails: Index, weights: Matrix | None) -> Factor:
    """A factor of V = Lap(w) without its first row and column, on the host."""
    weights = np.ones(len(heads)) if weights is None else weights
    W = sparse.coo_array((weights, (heads, tails)), shape=(n, n))
    W = (W + W.T).tocsr()
    V = (sparse.diags_array(W.sum(axis=1)) - W).tocsc()[1:, 1:]
    options = {"SymmetricMode": True}
    try:
        factor = splu(V, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    except RuntimeError as error:
        raise _too_different(weights) from error
    pivots = np.abs(factor.U.diagonal())
    if not pivots.min() > LOST * pivots.max():
        raise _too_different(weights)
    solver: Factor = factor
    return solver


def _too_different(weights: NDArray[np.float64]) -> InvalidInputError:
    used = weights[weights > 0]
    return InvalidInputError(
        "weights must not differ so much that small ones are lost in sums; got weights from"
        f" {used.min():g} to {used.max():g}. Bring them closer to each other, or set the small ones"
        " to 0."
    )


def _solved(factor: Factor, G: Array) -> Array:
    """V⁺ G: solved with the first point fixed, and then centred."""
    kernels = kernels_for(G)
    host: NDArray[np.float64] = np.zeros(tuple(G.shape))
    host[1:] = factor.solve(np.ascontiguousarray(kernels.to_host(G)[1:], dtype=np.float64))
    return kernels.like(host - host.mean(axis=0), G)
