"""Landmarks: nodes that represent all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

Index = NDArray[np.intp]


def farthest_first(adjacency: Any, count: int, random: RandomState) -> Index:
    """Choose a random node, then repeatedly the node farthest along the graph from all chosen.

    Paths longer than the current largest distance need not be followed, so each search visits fewer
    nodes than the one before. With n nodes, m edges and r landmarks on a manifold the time is about
    O(m log n log r), and the memory O(n + m).
    """
    chosen = [int(random.randint(adjacency.shape[0]))]
    apart = dijkstra(adjacency, directed=True, indices=chosen[0])
    while len(chosen) < count:
        apart[chosen[-1]] = -1.0  # below 0, the distance of copies
        chosen.append(int(apart.argmax()))
        limit = float(apart[chosen[-1]])
        near = dijkstra(adjacency, directed=True, indices=chosen[-1], limit=limit)
        np.minimum(apart, near, out=apart)
    return np.array(chosen)
