"""Kruskal's stress: the misfit between the distances of an embedding and the order of given ones.

With the given dissimilarities δ, weights w, and d the distances of an embedding Y (n, r):

(1) d̂ = argmin Σ w (d − d̂)²  over all d̂ that do not fall where δ rises     (isotonic regression)
(2) F(Y) = Σ w (d − d̂)² / Σ w d² ,   stress-1 = √F                                 [kruskal1964]

Ties of δ leave their d̂ free (the primary approach) or make them equal (the secondary one). F does
not depend on the scale of Y, which is chosen so that Σ w d² = Σ w = c. Where d̂ is best for d, its
own change adds nothing to the gradient, and Σ w d̂ d = Σ w d̂² = (1 − F) c, so that

(3) ½ c ∇F = Lap(w (1 − F − d̂/d)) Y ,
(4) Y − V⁺ ½ c ∇F ,  V = Lap(w) ,

of which (4) lies on the way from Y to the majorisation step V⁺ Lap(w d̂/d) Y of the stress with d̂ in
place of δ, rescaled. F falls all along this way, first with d̂ held fast, and then by (1).

[kruskal1964] Kruskal, Multidimensional scaling by optimizing goodness of fit to a nonmetric
hypothesis, Psychometrika 29, 1964.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from nearfar.kernels import kernels_for
from nearfar.limits import check_time
from nearfar.problems.mds import Evaluation, SomePairs, centred

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

PRIMARY, SECONDARY = "primary", "secondary"


@dataclass(frozen=True)
class Order:
    """The order of dissimilarities, and the regression (1) on it."""

    order: Index  # (m,) pairs by rising δ
    group: Index  # (m,) number of each pair's δ among the different ones
    weights: Floats  # (m,)
    ties: str

    @classmethod
    def of(cls, lengths: Floats, weights: Floats, ties: str) -> Order:
        """Time O(m log m)."""
        check_time()
        _, group = np.unique(lengths, return_inverse=True)
        check_time()
        return cls(np.argsort(group, kind="stable"), group, weights, ties)

    def fitted(self, distances: Floats) -> Floats:
        """d̂ of (1). Time O(m), or O(m log m) where ties have to be ordered anew."""
        n_groups = int(self.group[self.order[-1]]) + 1
        if self.ties == SECONDARY:
            weights = np.bincount(self.group, self.weights, n_groups)
            means = np.bincount(self.group, self.weights * distances, n_groups) / weights
            tied: Floats = isotonic_regression(means, weights=weights).x[self.group]
            return tied
        order = self.order
        if n_groups < len(order):
            # By δ and then by d: one key is sorted five times as fast as two, and what it rounds,
            # distances that differ by 1e-16 of the number of groups, the regression makes equal.
            order = np.argsort(self.group + distances / (2 * distances.max()))
        out = np.empty(len(order))
        out[order] = isotonic_regression(distances[order], weights=self.weights[order]).x
        return out


@dataclass(frozen=True)
class NonmetricProblem:
    """F of (2), on the host."""

    pairs: SomePairs
    order: Order
    scale: ClassVar[float] = 1.0  # the order of magnitude of F of a random embedding

    @classmethod
    def of(cls, pairs: SomePairs, ties: str) -> NonmetricProblem:
        """From pairs on the host."""
        return cls(pairs, Order.of(pairs.lengths, pairs.weights, ties))

    def evaluate(self, Y: Floats) -> Evaluation:
        """F, slope (3) and step (4) at an embedding, which is rescaled."""
        kernels, pairs = kernels_for(Y), self.pairs
        Y, w, c = centred(Y), pairs.weights, pairs.weights.sum()
        distances = np.sqrt(kernels.sq_lengths(Y, pairs.heads, pairs.tails))
        scale = np.sqrt(c / (w @ distances**2))
        Y, distances = scale * Y, scale * distances
        fitted = self.order.fitted(distances)  # (1)
        F = float(w @ (distances - fitted) ** 2 / c)  # (2)
        ratios = np.divide(fitted, distances, out=np.zeros_like(fitted), where=distances > 0)
        slope = kernels.laplacian_matmul(pairs.heads, pairs.tails, w * (1 - F - ratios), Y)  # (3)
        return Evaluation(Y, F, slope / c, -pairs.solve(slope))  # (4)
