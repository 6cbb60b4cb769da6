"""Edges that join the components of a graph [weinberger2007, 3.1.12].

For a random node x of a component C, let x' be the node outside C nearest to x, and x'' the node of
C nearest to x'; the link is the edge x' x''. The thesis states this for two components. If there
are more, every component except the largest gets such a link, and this is repeated with the new
components. About log₂ of their number of rounds suffice, since a round about halves it.
"""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

from nearfar.errors import DisconnectedGraphError
from nearfar.graphs.block_distances import AnyDistances, BlockDistances
from nearfar.graphs.distances import DenseDistances, PointDistances, SparseDistances
from nearfar.graphs.report import format_sizes
from nearfar.kernels import kernels_for

Index = NDArray[np.intp]


def links(labels: Index, distances: AnyDistances, random: RandomState) -> tuple[Index, Index]:
    """Heads and tails of edges that join all components, each edge once, head < tail.

    ``labels`` (n,) numbers the components. Memory O(n). For points, a round takes the time of a
    search for the nearest neighbours of n points; for given distances, a link takes O(n).
    """
    linker: _PointLinker | _BlockLinker | _KnownLinker
    if isinstance(distances, PointDistances):
        linker = _PointLinker(distances)
    elif isinstance(distances, BlockDistances):
        linker = _BlockLinker(distances)
    else:
        linker = _KnownLinker(distances)
    found = np.empty((0, 2), dtype=np.intp)
    while (count := int(labels.max()) + 1) > 1:
        members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
        members.sort(key=len)
        new = linker.links(members[:-1], labels, random)
        if len(new) == 0:
            _refuse(members, labels)
        found = np.unique(np.concatenate([found, np.sort(new, axis=1)]), axis=0)
        edges = coo_array((np.ones(len(new)), tuple(labels[new].T)), (count, count))
        labels = connected_components(edges, directed=False)[1].astype(np.intp)[labels]
    return found[:, 0], found[:, 1]


class _PointLinker:
    """Links between points, found on the host by scikit-learn's search."""

    def __init__(self, distances: PointDistances) -> None:
        self._points = kernels_for(distances.points).to_host(distances.points)
        self._search = NearestNeighbors().fit(self._points)

    def links(self, small: list[Index], labels: Index, random: RandomState) -> Index:
        """An edge x' x'' for each component, (len(small), 2)."""
        starts = np.array([random.choice(nodes) for nodes in small])
        outside = np.empty(len(small), dtype=np.intp)
        # Of the |C| + 1 nearest to x at least one is not in C; search by components of equal size.
        sizes = np.array([len(nodes) for nodes in small])
        bucket = np.frexp(sizes)[1]
        for b in np.unique(bucket):
            rows = np.flatnonzero(bucket == b)
            near = self._search.kneighbors(
                self._points[starts[rows]], int(sizes[rows].max()) + 1, return_distance=False
            )
            other = labels[near] != labels[starts[rows], None]
            outside[rows] = near[np.arange(len(rows)), other.argmax(axis=1)]
        back = [self._nearest(int(x), nodes) for x, nodes in zip(outside, small, strict=True)]
        return np.stack([outside, np.array(back)], axis=1)

    def _nearest(self, x: int, nodes: Index) -> int:
        difference = self._points[nodes] - self._points[x]
        return int(nodes[np.vecdot(difference, difference).argmin()])


class _BlockLinker:
    """Links between points in blocks, found where they are."""

    def __init__(self, distances: BlockDistances) -> None:
        self._nearest = distances.nearest_labelled

    def links(self, small: list[Index], labels: Index, random: RandomState) -> Index:
        """An edge x' x'' for each component, (len(small), 2)."""
        starts = np.array([random.choice(nodes) for nodes in small])
        outside = self._nearest(starts, labels[starts], labels, same=False)
        back = self._nearest(outside, labels[starts], labels, same=True)
        return np.stack([outside, back], axis=1)


class _KnownLinker:
    """Links by given distances."""

    def __init__(self, distances: DenseDistances | SparseDistances) -> None:
        self._row = distances.row

    def links(self, small: list[Index], labels: Index, random: RandomState) -> Index:
        """An edge x' x'' for each component with a known distance to another one."""
        found = (self._link(nodes, labels, random) for nodes in small)
        return np.array([link for link in found if link is not None], dtype=np.intp).reshape(-1, 2)

    def _link(self, nodes: Index, labels: Index, random: RandomState) -> tuple[int, int] | None:
        for x in random.permutation(nodes):
            row = np.where(labels == labels[x], np.inf, self._row(x))
            if row.min() < np.inf:
                outside = int(row.argmin())
                return outside, int(nodes[self._row(outside)[nodes].argmin()])
        return None


def _refuse(members: list[Index], labels: Index) -> None:
    sizes = sorted(map(len, members), reverse=True)
    raise DisconnectedGraphError(
        f"no known distance joins the {len(members)} components of the graph, of"
        f" {format_sizes(sizes)} nodes. Give more distances, or set on_disconnected='separate' to"
        " unfold each by itself.",
        np.flatnonzero(labels != labels[members[-1][0]]),
        sizes,
    )
