"""Local multidimensional scaling: near distances are preserved, all other points are pushed apart.

With N the m edges of a neighbourhood graph of n nodes, δ their lengths, w their weights, and d the
distances of an embedding Y (n, r), sums over unordered pairs [chenbuja2009]:

(1) σ(Y) = Σ_N w (δ − d)² − t Σ_{not N} d
(2) t = τ median_N(δ) m / (n(n − 1)/2 − m)
(3) ½ ∇σ = Lap(w (1 − δ/d) on N, −(t/2)/d elsewhere) Y

−d is concave, so (1) is majorised like the stress (`nearfar.problems.mds`, (4)), with V = Lap(w) of
the graph:

(4) Y − V⁺ ½∇σ(Y)

never raises σ. If the graph is connected, σ is bounded below: the first sum grows with the squares
of the distances, the second with the distances.

[chenbuja2009] Chen & Buja, Local multidimensional scaling for nonlinear dimension reduction, graph
drawing, and proximity analysis, JASA 104, 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearfar.kernels import Array, kernels_for
from nearfar.kernels.all_pairs import pair_forces
from nearfar.problems.mds import Evaluation, SomePairs, centred, stress_law


@dataclass(frozen=True)
class LocalProblem:
    """σ of (1). Time O(n² r) an evaluation, memory O(n r + m) and some blocks."""

    pairs: SomePairs
    push: float  # t

    @classmethod
    def of(cls, n: int, pairs: SomePairs, repulsion: float) -> LocalProblem:
        """With t of (2)."""
        m = len(pairs.heads)
        others = n * (n - 1) // 2 - m
        median = float(np.median(kernels_for(pairs.lengths).to_host(pairs.lengths)))
        return cls(pairs, repulsion * median * m / others if others else 0.0)

    @property
    def scale(self) -> float:
        """The value of an embedding with all points in one place."""
        return self.pairs.total(2)

    def evaluate(self, Y: Array) -> Evaluation:
        """Value (1), slope (3) and step (4) at an embedding."""
        kernels, pairs, t = kernels_for(Y), self.pairs, self.push
        Y = centred(Y)
        squares = kernels.sq_lengths(Y, pairs.heads, pairs.tails)
        values, factors = stress_law(pairs.lengths, squares)
        weights = pairs.weights * factors + 0.5 * t * _inverse(squares)  # less the push below
        value = float((pairs.weights * values).sum()) + t * float((squares**0.5).sum())
        slope = kernels.laplacian_matmul(pairs.heads, pairs.tails, weights, Y)
        if t:
            total, pull = pair_forces(Y, _apart)
            value, slope = value - t * total, slope - 0.5 * t * pull
        return Evaluation(Y, value, slope, -pairs.solve(slope))


def _apart(_: slice, squares: Array) -> tuple[Array, Array]:
    """Σ d and weights 1/d of all pairs."""
    return (squares**0.5).sum(), _inverse(squares)


def _inverse(squares: Array) -> Array:
    """1/d, 0 where d is."""
    apart = squares > 0
    return apart / (squares + ~apart) ** 0.5
