"""Triplets of LMNN, a factor placed with them, and the objective along a line.

Equation numbers are those of `nearfar.problems.lmnn`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array

Matrix = NDArray[np.float64]

STEP_LIMIT = 4.0  # steps along a direction that a line search may take
TRIPLETS_AT_A_TIME = 1 << 20  # of those along a line


@dataclass(frozen=True)
class DualPoint:
    """α of (3), which is feasible once it is scaled, with all that its bound depends on.

    All of it is linear in α, except that S is None where it is not known.
    """

    alpha: Array  # (t,)
    S: tuple[Matrix, ...] | None = None  # (d, d), of each metric
    total: float = 0.0  # μ Σ_t v_t α_t b_t
    fixed: float = 0.0  # of it, from pairs of equal points: it need not be scaled

    def towards(self, other: DualPoint, share: float) -> DualPoint:
        """The point that is this share of the way to another one; S of both is known."""
        assert self.S is not None
        assert other.S is not None

        def between(here: Any, there: Any) -> Any:
            return here + share * (there - here)

        return DualPoint(
            between(self.alpha, other.alpha),
            tuple(between(*both) for both in zip(self.S, other.S, strict=True)),
            between(self.total, other.total),
            between(self.fixed, other.fixed),
        )


@dataclass(frozen=True)
class Triplets:
    """The triplets at hand, over pairs (head, tail); ``prox`` holds a of (4) and ``width`` w."""

    heads: Array  # (p,) anchors of the pairs
    tails: Array  # (p,) their impostors
    pair: Array  # (t,) pair of each triplet
    edges: Array  # (q,) the edges that occur, ascending
    near: Array  # (t,) place of each triplet's target edge among these
    prox: Array  # (t,) float64
    width: float
    weights: Array | None = None  # (p,) float64, v of (8) of the pairs; None if all are 1
    best: DualPoint | None = None  # the best dual point so far, of these triplets

    def __len__(self) -> int:
        return len(self.pair)

    @property
    def edge(self) -> Array:
        """(t,) target edge of each triplet."""
        return self.edges[self.near]

    def weighted(self, values: Array) -> Array:
        """Values of the triplets, (t,), times v of (8): those to be summed."""
        return values if self.weights is None else values * self.weights[self.pair]


@dataclass(frozen=True)
class Placement:
    """A factor L with all that its objective depends on."""

    L: Matrix  # (r, d) on the host
    Z: Array  # (n, r) = U Lᵀ
    pull: float  # (1−μ) Σ_e D(e)
    edge_lengths: Array  # (q,) float64, of the edges that occur in triplets
    pair_lengths: Array  # (p,) float64
    triplets: Triplets

    def with_best(self, best: DualPoint | None) -> Placement:
        """The same placement, with another dual point beside its triplets."""
        placed = replace(self, triplets=replace(self.triplets, best=best))
        for name in ("slack", "alpha"):  # which do not depend on it
            if name in self.__dict__:
                placed.__dict__[name] = self.__dict__[name]
        return placed

    @cached_property
    def slack(self) -> Array:
        """s of (1), (t,)."""
        return 1 + self.edge_lengths[self.triplets.near] - self.pair_lengths[self.triplets.pair]

    @cached_property
    def alpha(self) -> Array:
        """α of (4), (t,)."""
        return (self.triplets.prox + self.slack / self.triplets.width).clip(0, 1)


@dataclass(frozen=True)
class Line:
    """The smoothed objective along L + tΔ: all lengths are quadratic in t, so it costs O(t)."""

    direction: Matrix
    map: Array  # (n, r) = U Δᵀ
    edge_change: tuple[Array, Array]  # lengths change by 2t·first + t²·second
    pair_change: tuple[Array, Array]
    pull: tuple[float, float, float]  # (1−μ) Σ_e D(e), a polynomial in t
    left_out: float  # to subtract from it: what does not change with t
    slack: tuple[Array, Array, Array]  # s_t as a polynomial in t, where it can matter
    prox: Array
    weights: Array | None  # v of (8) of these triplets; None if all are 1
    width: float
    push_weight: float
    limit: ClassVar[float] = STEP_LIMIT

    def at(self, t: float) -> tuple[float, float, float]:
        """Value, slope and curvature at t, 0 ≤ t ≤ limit."""
        mu, (p0, p1, p2) = self.push_weight, self.pull
        value = slope = curvature = 0.0
        for first in range(0, len(self.prox), TRIPLETS_AT_A_TIME):
            part = slice(first, first + TRIPLETS_AT_A_TIME)
            s0, s1, s2 = (term[part] for term in self.slack)
            prox = self.prox[part]
            slack = s0 + t * (s1 + t * s2)
            rate = s1 + (2 * t) * s2
            alpha = (prox + slack / self.width).clip(0, 1)
            offset = alpha - prox
            curved = rate * rate * ((alpha > 0) & (alpha < 1))
            push, moved = alpha, offset
            if self.weights is not None:
                weights = self.weights[part]
                push, moved, curved = (weights * values for values in (alpha, offset, curved))
            value = value + push @ slack - (self.width / 2) * (moved @ offset)
            slope = slope + push @ rate
            curvature = curvature + 2 * (push @ s2) + curved.sum() / self.width
        return (
            p0 + t * (p1 + t * p2) - self.left_out + mu * float(value),
            p1 + 2 * t * p2 + mu * float(slope),
            2 * p2 + mu * float(curvature),
        )
