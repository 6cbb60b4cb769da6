"""Nodes that stand for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

Index = NDArray[np.intp]


def farthest_first(adjacency: Any, count: int, random: RandomState) -> Index:
    """A random node, and then always the one farthest from all so far along the graph.

    No path need be longer than the farthest node is away, so that the search from each landmark
    visits fewer nodes than the one before: with n nodes, m edges and r landmarks on a manifold the
    time is about O(m log n log r), and the memory O(n + m).
    """
    chosen = [int(random.randint(adjacency.shape[0]))]
    apart = dijkstra(adjacency, directed=True, indices=chosen[0])
    while len(chosen) < count:
        apart[chosen[-1]] = -1.0  # also where others are at distance 0
        chosen.append(int(apart.argmax()))
        limit = float(apart[chosen[-1]])
        near = dijkstra(adjacency, directed=True, indices=chosen[-1], limit=limit)
        np.minimum(apart, near, out=apart)
    return np.array(chosen)
