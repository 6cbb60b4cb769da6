"""Numbering of nodes that keeps neighbours close in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee

from nearfar.graphs.neighborhood import NeighborhoodGraph, rows_of

Index = NDArray[np.intp]


def in_near_order(graph: NeighborhoodGraph) -> tuple[Index, NeighborhoodGraph]:
    """The nodes in the new order, and the renumbered graph. Time O(e log e).

    In a random order, sums over the edges of a graph of 100000 nodes take three times as long.
    """
    ones = np.ones(graph.n_edges, dtype=np.int8)
    order = reverse_cuthill_mckee(graph.adjacency(ones), symmetric_mode=True).astype(np.intp)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ends = place[graph.heads], place[graph.tails]
    heads, tails = np.minimum(*ends), np.maximum(*ends)
    edges = np.lexsort((tails, heads))
    directions = graph.directions
    if directions is not None:
        mirrored = directions >> 1 | (directions & 1) << 1
        directions = np.where(ends[0] > ends[1], mirrored, directions).astype(np.uint8)[edges]
    return order, replace(
        graph,
        heads=heads[edges],
        tails=tails[edges],
        lengths=graph.lengths[edges],
        weights=None if graph.weights is None else graph.weights[edges],
        directions=directions,
        points=rows_of(graph.points, order),
    )
