"""Distances of chosen pairs that an unfolding must have, beside the lengths of its graph.

A pair has a least and a largest squared distance. As constraints of `nearfar.problems.mvu`: equal
ones are one constraint that forbids both changes; others are one that forbids growing, one that
forbids shrinking, or both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._graph_layout import Component, Layout
from nearfar.kernels import to_host
from nearfar.problems.mvu import edge_prices

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

FORMS = "pairs must be row numbers of shape (n_pairs, 2), and distances of shape (n_pairs,) or"


@dataclass(frozen=True)
class PairLimits:
    """Pairs of rows of X with limits of their squared distances, one limit each."""

    ends: Index  # (q, 2)
    squares: Matrix  # (q,)
    no_longer: Matrix  # (q,) 1 where growing is forbidden, and 0 elsewhere
    no_shorter: Matrix  # (q,) the same of shrinking

    @classmethod
    def of(cls, pairs: Any, distances: Any, n: int) -> Self:
        """From what ``fit`` is given, for n points."""
        if pairs is None and distances is None:
            return cls(np.empty((0, 2), np.intp), *np.empty((3, 0)))
        ends, low, high = _validated(pairs, distances, n)
        same, finite = low == high, np.isfinite(high)
        parts = [
            (ends[some], limit[some] ** 2, np.full(some.sum(), up), np.full(some.sum(), down))
            for some, limit, up, down in (
                (same, high, 1.0, 1.0),
                (~same & finite, high, 1.0, 0.0),
                (~same & (low > 0), low, 0.0, 1.0),
            )
        ]
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def __len__(self) -> int:
        return len(self.ends)

    def check_nodes(self, layout: Layout) -> None:
        """Raise if a pair is one point, or in different components."""
        distinct, labels = layout.distinct, layout.component_labels
        for what, bad in (
            ("are copies of one point", distinct[self.ends[:, 0]] == distinct[self.ends[:, 1]]),
            ("are in different components", labels[self.ends[:, 0]] != labels[self.ends[:, 1]]),
        ):
            if bad.any():
                i, j = self.ends[bad][0]
                raise InvalidInputError(
                    f"pairs must be different points of one component of the graph; rows {i} and"
                    f" {j} {what} ({bad.sum()} such in all). Leave them out, or set"
                    " on_disconnected='link'.",
                    self.ends[bad],
                )

    def inside(self, component: Component, layout: Layout) -> PairLimits:
        """Those of a component, by its own numbers of nodes."""
        place = np.full(len(layout.first_copies), -1)
        place[component.rows] = np.arange(len(component.rows))
        ends = place[layout.distinct[self.ends]]
        mine = ends[:, 0] >= 0
        arrays = (self.squares, self.no_longer, self.no_shorter)
        return PairLimits(ends[mine], *(array[mine] for array in arrays))


@dataclass(frozen=True)
class Lengths:
    """The constraints of a component: edges of its graph, and after them limits of pairs.

    A pair with a largest distance takes the place of its edge.
    """

    heads: Index
    tails: Index
    squares: Matrix
    prices: tuple[Matrix, Matrix]  # of growing and of shrinking, see `edge_prices`
    n_edges: int  # how many of them are edges of the graph

    @classmethod
    def of(cls, graph: Any, limits: PairLimits, constraints: str, slack_weight: Any) -> Lengths:
        """Of a connected graph, and of limits by its numbers of nodes."""
        prices = edge_prices(constraints, slack_weight, graph.n_edges)
        edges = cls(graph.heads, graph.tails, graph.lengths**2, prices, graph.n_edges)
        return edges.with_limits(limits, graph.n_nodes) if len(limits) else edges

    def with_limits(self, limits: PairLimits, n: int) -> Lengths:
        """These edges, and limits of pairs of n nodes."""
        held = limits.ends[limits.no_longer > 0]
        kept = ~np.isin(codes(self.heads, self.tails, n), codes(held[:, 0], held[:, 1], n))
        forbidden = (np.where(no > 0, np.inf, 0.0) for no in (limits.no_longer, limits.no_shorter))
        up, down = (
            np.concatenate([price[kept], limit])
            for price, limit in zip(self.prices, forbidden, strict=True)
        )
        return replace(
            self,
            heads=np.concatenate([self.heads[kept], limits.ends[:, 0]]),
            tails=np.concatenate([self.tails[kept], limits.ends[:, 1]]),
            squares=np.concatenate([self.squares[kept], limits.squares]),
            prices=(up, down),
            n_edges=int(kept.sum()),
        )


def codes(heads: Index, tails: Index, n: int) -> Index:
    """A number for each pair of n nodes, whatever its order."""
    return np.asarray(np.minimum(heads, tails) * n + np.maximum(heads, tails))


def _validated(pairs: Any, distances: Any, n: int) -> tuple[Index, Matrix, Matrix]:
    """Different pairs (p, 2), and their least and largest distances (p,)."""
    if pairs is None or distances is None:
        raise InvalidInputError(f"{FORMS} (n_pairs, 2); got only one of the two. Pass both.")
    ends, limits = to_host(pairs), to_host(distances)
    if limits.ndim == 1:
        limits = np.stack([limits, limits], axis=1)
    if ends.ndim != 2 or ends.shape[1] != 2 or ends.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{FORMS} (n_pairs, 2); got pairs of {ends.dtype} and shape {ends.shape}. Correct them."
        )
    if limits.shape != ends.shape or limits.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"{FORMS} (n_pairs, 2), the least and the largest; got {limits.dtype} of shape"
            f" {limits.shape} for {len(ends)} pairs. Correct them."
        )
    if len(ends) and not 0 <= ends.min() <= ends.max() < n:
        raise InvalidInputError(
            f"pairs must be row numbers from 0 to {n - 1}; got {ends.min()} to {ends.max()}. Count"
            " rows from 0."
        )
    heads, tails = ends.astype(np.intp).T
    first, place = np.unique(codes(heads, tails, n), return_inverse=True)
    low, high = np.zeros(len(first)), np.full(len(first), np.inf)
    with np.errstate(invalid="ignore"):
        np.maximum.at(low, place, limits[:, 0])  # a pair that is given twice must meet both
        np.minimum.at(high, place, limits[:, 1])
    unique = np.stack(np.divmod(first, n), axis=1)
    bad = ~((low >= 0) & (low <= high) & (high > 0) & ((low > 0) | (high < np.inf)))
    bad |= (low == np.inf) | (unique[:, 0] == unique[:, 1])
    if bad.any():
        i, j = unique[bad][0]
        raise InvalidInputError(
            "the least distance of a pair of different points must not be above the largest, which"
            f" must be above 0, and one of them must limit it; got {low[bad][0]:g} and"
            f" {high[bad][0]:g} for rows {i} and {j} ({bad.sum()} such in all). Correct them.",
            unique[bad],
        )
    return unique, low, high
