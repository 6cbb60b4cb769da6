"""Nodes that a descent left on the wrong side of their neighbours, put where they fit best.

With its neighbours in their places the best place of one node is known exactly (see
`nearfar.problems.out_of_sample`, eq. 6), however far it is. `relocated` moves those that gain most
among their neighbours, so that no two neighbours move at once and the sum of squared misfits falls
by the sum of the gains. Neighbours that are on the wrong side together hold each other there;
`resettled` therefore places all nodes anew but the largest part of the network that fits well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from nearfar.estimators._out_of_sample import placed
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import kernels_for
from nearfar.problems.sensor_localization import core

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

WORTHWHILE = 1e-3  # gain of a move, relative to the misfit of the node
ROUNDING = 1e-12  # misfit that is none, relative to that of no points at all
SUSPECT = 2.0  # times the median misfit: nodes that fit badly
FIRST = 0.5  # share of the most neighbours in place from which on a node is placed
BLOCK_ENTRIES = 1 << 20  # neighbours of a block of nodes


def relocated(
    graph: NeighborhoodGraph, squares: Matrix, weights: Matrix, Y: Matrix, fixed: Mask
) -> tuple[Matrix, int]:
    """Points (n, r) after moves that gain, and how many there were. Time O(e r²)."""
    D, W = graph.adjacency(squares), graph.adjacency(weights)
    places = _best_places(D, Y, ~fixed)
    before, none = _misfits(D, W, Y, Y)
    gains = before - _misfits(D, W, places, Y)[0]
    gains = np.where(gains > WORTHWHILE * before + ROUNDING * none, gains, 0.0)
    moving = (gains > 0) & _ahead_of_neighbors(graph, gains)
    return np.where(moving[:, None], places, Y), int(moving.sum())


def resettled(
    graph: NeighborhoodGraph, squares: Matrix, weights: Matrix, Y: Matrix, fixed: Mask
) -> tuple[Matrix, int]:
    """Points (n, r) with those that are not trusted placed anew by the others, and how many.

    Those with most neighbours in place come first. A node needs r + 1 of them; others stay.
    """
    D, W = graph.adjacency(squares), graph.adjacency(weights)
    misfits, none = _misfits(D, W, Y, Y)
    share = misfits / np.where(none > 0, none, 1.0)
    bad = ~fixed & (share > SUSPECT * np.median(share) + ROUNDING)
    if not bad.any():
        return Y, 0
    joined = graph.adjacency(np.ones(graph.n_edges))
    settled = _trusted(graph, bad, fixed, Y.shape[1])
    Y, n_settled = Y.copy(), int(settled.sum())
    while True:
        counts = np.where(settled, 0, joined @ settled.astype(np.float64))
        ready = (counts > Y.shape[1]) & (counts >= FIRST * counts.max())
        if not ready.any():
            return Y, int(settled.sum()) - n_settled
        Y[ready] = _best_places(D, Y, ready, settled)[ready]
        settled |= ready


def _trusted(graph: NeighborhoodGraph, bad: Mask, fixed: Mask, r: int) -> Mask:
    """The fixed nodes, and the largest part of the network in which nodes fit and hold each other.

    Each has more than r neighbours there: nodes that fit among themselves, but are cut off by some
    that do not, may lie mirrored.
    """
    good = ~bad[graph.heads] & ~bad[graph.tails]
    kept = core(graph.n_nodes, graph.heads[good], graph.tails[good], r + 1, fixed) & ~bad
    inside = kept[graph.heads] & kept[graph.tails]
    shape = graph.n_nodes, graph.n_nodes
    ends = graph.heads[inside], graph.tails[inside]
    joined = sparse.coo_array((np.ones(len(ends[0])), ends), shape=shape)
    labels = connected_components(joined, directed=False)[1]
    trusted: Mask = fixed | (kept & (labels == np.bincount(labels[kept], minlength=1).argmax()))
    return trusted


def _best_places(D: Any, Y: Matrix, nodes: Mask, by: Mask | None = None) -> Matrix:
    """The best place of each of some nodes with more than r neighbours, the others in theirs.

    D is the sparse matrix of squared lengths; only neighbours in ``by`` count.
    """
    kept = nodes[np.repeat(np.arange(len(Y)), np.diff(D.indptr))]
    if by is not None:
        kept &= by[D.indices]
    sums = np.concatenate([[0], np.cumsum(kept)])[D.indptr]
    starts, counts = sums[:-1], np.diff(sums)
    neighbors, lengths = D.indices[kept], D.data[kept]
    places = Y.copy()
    for count in np.unique(counts[counts > Y.shape[1]]):
        rows = np.flatnonzero(counts == count)
        step = max(1, BLOCK_ENTRIES // int(count))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            at = starts[some][:, None] + np.arange(count)
            places[some] = placed(Y, neighbors[at], lengths[at], "sdp+cg")
    return places


def _misfits(D: Any, W: Any, places: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
    """Σⱼ wⱼ (‖pᵢ − yⱼ‖² − Dᵢⱼ)² of nodes i at other places, and Σⱼ wⱼ Dᵢⱼ²."""
    rows = np.repeat(np.arange(len(Y)), np.diff(D.indptr))
    lengths = ((places[rows] - Y[D.indices]) ** 2).sum(axis=1)
    sums = kernels_for(Y).segment_sum
    return sums(rows, W.data * (lengths - D.data) ** 2, len(Y)), sums(
        rows, W.data * D.data**2, len(Y)
    )


def _ahead_of_neighbors(graph: NeighborhoodGraph, gains: Matrix) -> Mask:
    """Where a gain is larger than all those of neighbours; equals are ordered by number."""
    ranks = np.empty(len(gains))
    ranks[np.argsort(gains, kind="stable")] = np.arange(len(gains))
    ends = np.concatenate([graph.heads, graph.tails])
    others = np.concatenate([graph.tails, graph.heads])
    highest = kernels_for(gains).segment_max(ends, ranks[others], len(gains))
    ahead: Mask = ranks > highest
    return ahead
