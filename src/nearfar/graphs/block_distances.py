"""Distances between points that lie in blocks, as rows of a Dask array.

Neighbours are searched over pairs of blocks, and lengths of edges are computed by tasks that gather
the rows at their ends. What comes to this machine are numbers of nodes, lengths, and eight bytes
for each point by which copies are found. No row does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, LazyRows
from nearfar.blocks.chosen import on_gathered_rows, rows_in_task
from nearfar.graphs.distances import (
    Distances,
    Index,
    Lengths,
    check_neighbors,
    check_size,
    edges_with_copies,
    scale_of,
)
from nearfar.kernels import Array, check_memory, kernels_for, take_rows, to_host
from nearfar.supervision.neighbor_blocks import nearest_in_blocks

Keys = NDArray[np.uint64]

POINT_BYTES = 100  # that a graph takes on this machine while it is built, for each point,
EDGE_BYTES = 110  # and for each edge that there may be; 25 of them stay. Measured by tracemalloc.


def check_graph_size(n: int, n_neighbors: int, *, angles: bool) -> None:
    """Raise if there is no memory on this machine for the graph of so many points."""
    most = n_neighbors * (n_neighbors + 1) / 2 if angles else n_neighbors
    fewer = "Lower n_neighbors, set angles=False" if angles else "Lower n_neighbors"
    check_memory(
        n * (POINT_BYTES + EDGE_BYTES * most),
        f"a neighbourhood graph of {n} points with up to {most:.0f} edges each",
        f"{fewer}, take fewer points",
        np.empty(0),
    )


@dataclass(frozen=True)
class BlockDistances:
    """Euclidean distances between points in blocks; see `PointDistances`."""

    blocks: Blocks
    scale: float  # 1, or a power of two where squares would overflow or vanish

    @classmethod
    def of(cls, points: Any) -> BlockDistances:
        """Prepare distances of the rows of a Dask array, or of rows chosen from one."""
        rows = LazyRows.of(points)
        check_size(len(rows))
        blocks = rows.blocks()
        first = blocks.take(np.zeros(1, dtype=np.intp))
        spread = max(blocks.results(_spread, name="spread", shared=(first,)))
        return cls(blocks, scale_of(spread, len(rows)))

    @property
    def n(self) -> int:
        """Number of points."""
        return self.blocks.shape[0]

    @cached_property
    def firsts(self) -> Index:
        """The number of the first point that equals each point.

        Points are grouped by a hash of their bits, and each is compared with the first of its
        group; those that differ from it are compared with the first of them, and so on.
        """
        keys: Keys = np.concatenate(self.blocks.results(_keys, name="copies"))
        firsts = np.arange(self.n)
        _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
        left = np.flatnonzero(counts[group] > 1)
        while len(left):
            _, first, group = np.unique(keys[left], return_index=True, return_inverse=True)
            origins = left[first[group]]
            same = self._along(_are_equal, origins, left, name="copies").astype(bool)
            firsts[left[same]] = origins[same]
            left = left[~same]
        return firsts

    def neighbors(self, n_neighbors: int | None, radius: float | None) -> tuple[Index, Index]:
        """Directed edges from each point to its neighbours; copies as in `PointDistances`."""
        assert n_neighbors is not None, "`NeighborhoodGraph.from_points` requires it"
        k, distinct = int(n_neighbors), np.flatnonzero(self.firsts == np.arange(self.n))
        check_neighbors(k, radius, len(distinct), "different points")
        points = self._scaled(distinct)
        near, _ = nearest_in_blocks(points, points, k + 1)
        others = near != np.arange(len(distinct))[:, None]
        others[others.all(axis=1), -1] = False  # of points too near to tell apart
        origins, targets = distinct.repeat(k), distinct[near[others]]
        if radius is not None:
            inside = self.lengths(origins, targets) <= radius
            origins, targets = origins[inside], targets[inside]
        return edges_with_copies(self.firsts, origins, targets)

    def lengths(self, heads: Index, tails: Index) -> Lengths:
        """Distances along edges. Tasks get the rows at the ends of some edges each."""
        squares = self._along(_sq_lengths, heads, tails, [self.scale], name="lengths")
        lengths: Lengths = np.sqrt(squares) * self.scale
        return lengths

    def nearest_labelled(self, nodes: Index, wanted: Index, labels: Index, *, same: bool) -> Index:
        """For each of some nodes the nearest that has the wanted label, or that has not.

        ``labels`` (n,) are those of all points. Rows of the nodes come to this machine. Time O(n d)
        for each of them.
        """
        blocks = self._scaled(np.arange(self.n))
        found = blocks.results(
            _nearest_labelled,
            blocks.split(labels),
            blocks.starts[:-1].tolist(),
            name="links",
            shared=(blocks.take(nodes), wanted, same),
        )
        squares, numbers = map(np.array, zip(*found, strict=True))  # (number of blocks, m) each
        nearest: Index = numbers[squares.argmin(axis=0), np.arange(len(nodes))]
        return nearest

    def _along(
        self, function: Callable[..., Any], heads: Index, tails: Index, more: Any = (), *, name: str
    ) -> NDArray[Any]:
        """``function(rows, heads, tails, *more)`` of all edges, with heads and tails among rows."""
        size = max(1, rows_in_task(self.blocks) // 2)
        wanted, firsts, lasts = [], [], []
        for first in range(0, len(heads), size):
            edges = slice(first, first + size)
            rows, places = np.unique([heads[edges], tails[edges]], return_inverse=True)
            wanted.append(rows)
            firsts.append(places.reshape(2, -1)[0])
            lasts.append(places.reshape(2, -1)[1])
        columns = [firsts, lasts, *([value] * len(wanted) for value in more)]
        found = on_gathered_rows(self.blocks, function, wanted, *columns, name=name)
        return np.concatenate(found) if found else np.empty(0)

    def _scaled(self, nodes: Index) -> Blocks:
        """Some points, in ascending order, divided by the scale; in blocks that are not empty."""
        if len(nodes) == self.n and self.scale == 1:
            return self.blocks
        blocks = self.blocks
        cuts = np.searchsorted(nodes, blocks.starts)
        used = np.flatnonzero(np.diff(cuts))
        rows = [nodes[cuts[b] : cuts[b + 1]] - blocks.starts[b] for b in used]
        parts = blocks.engine.map(
            _divided, [blocks.parts[b] for b in used], rows, name="distinct", shared=(self.scale,)
        )
        starts = np.append(cuts[used], len(nodes))
        return replace(blocks, parts=parts, starts=starts, shape=(len(nodes), blocks.shape[1]))


AnyDistances = Distances | BlockDistances


# -- tasks -----------------------------------------------------------------------------------


def _spread(block: Array, first: Array) -> float:
    """The largest difference of a coordinate from that of the first point of all."""
    if block.shape[1] == 0:
        return 0.0
    kernels = kernels_for(block)
    return float(abs(kernels.double(block) - kernels.double(first)).max())


def _keys(block: Array) -> Keys:
    """A hash of the bits of each row; equal rows have equal ones, and −0 equals 0."""
    words = np.ascontiguousarray(to_host(block) + 0).view(np.uint32)
    factors = np.random.default_rng(0).integers(0, 2**64, words.shape[1], dtype=np.uint64)
    keys: Keys = words.astype(np.uint64) @ factors
    return keys


def _are_equal(rows: Array, heads: Index, tails: Index) -> NDArray[np.bool_]:
    return to_host((take_rows(rows, heads) == take_rows(rows, tails)).all(1))


def _sq_lengths(rows: Array, heads: Index, tails: Index, scale: float) -> Lengths:
    kernels, points = kernels_for(rows), _scaled_rows(rows, scale)
    edges = (kernels.index(ends, points) for ends in (heads, tails))
    return to_host(kernels.sq_lengths(points, *edges))


def _divided(block: Array, rows: Index, scale: float) -> Array:
    kept = take_rows(block, rows)
    return kept if scale == 1 else _scaled_rows(kept, scale)


def _scaled_rows(rows: Array, scale: float) -> Array:
    """In float64."""
    points = kernels_for(rows).double(rows)
    return points if scale == 1 else points / scale


def _nearest_labelled(
    block: Array, labels: Index, first: int, queries: Array, wanted: Index, same: bool
) -> tuple[Lengths, Index]:
    """Squared distances to, and numbers of, the nearest in a block; infinite if there is none."""
    squares, numbers = np.full(len(queries), np.inf), np.full(len(queries), -1)
    kernels = kernels_for(block)
    for query, label in enumerate(wanted.tolist()):
        rows = np.flatnonzero((labels == label) == same)
        if len(rows):
            found = kernels.nearest(queries[query : query + 1], take_rows(block, rows), 1)
            near, square = map(to_host, found)
            squares[query], numbers[query] = square[0, 0], first + rows[near[0, 0]]
    return squares, numbers
