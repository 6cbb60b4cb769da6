"""Nested dissection: separators that halve a graph again and again, an order for sparse factors.

A separator is a set of nodes without which a part of the graph falls into two halves without edges
between them; the halves are parts of the next level. Eliminating leaves first and the first
separator last, a matrix on a graph of two dimensions has a factor of O(n log n) entries [George].

A part is cut where nodes are about as far from one end as from the other: ends are the last nodes
that a breadth-first search meets. One search serves all parts of a level.

[George] George, Nested dissection of a regular finite element mesh, SIAM Journal on Numerical
Analysis 10, 1973.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching

from nearfar.limits import check_time

Index = NDArray[np.intp]

SMOOTHED = 4  # times, so that cuts are less jagged


@dataclass(frozen=True)
class Dissection:
    """A binary tree of separators; part p of a level has the parts 2p and 2p + 1 of the next one.

    Nodes of level l < ``depth`` belong to the separator of their part, those of level ``depth`` to
    a leaf.
    """

    level: Index  # (n,)
    part: Index  # (n,) number within the level
    depth: int


def dissect(A: Any, leaf: int) -> Dissection:
    """Halve the graph of a sparse symmetric matrix until parts have at most about ``leaf`` nodes.

    Time O(e log(n / leaf)), memory O(e).
    """
    A = A.tocsr()
    n = A.shape[0]
    depth = max(0, int(np.ceil(np.log2(max(n, 1) / leaf))))
    heads = np.repeat(np.arange(n, dtype=A.indices.dtype), np.diff(A.indptr))
    tails = A.indices
    part, level = np.zeros(n, np.intp), np.full(n, depth, np.intp)
    free = np.ones(n, bool)  # in no separator yet
    nodes, place = np.arange(n), np.arange(n) * 1.0  # by parts, and where they are in theirs
    for number in range(depth):
        check_time()
        inside = free[heads] & free[tails] & (heads != tails)
        heads, tails = heads[inside], tails[inside]  # sorted by heads
        place = _between_ends(nodes, heads, tails, part, place)
        nodes, side = _halves(nodes, part, place)
        cut = side[heads] != side[tails]
        separator = _cover(heads[cut], tails[cut], side)
        level[separator], free[separator] = number, False
        part = np.where(free, 2 * part + side, part)
        nodes = nodes[free[nodes]]
    return Dissection(level, part, depth)


def _between_ends(nodes: Index, heads: Index, tails: Index, part: Index, place: Any) -> Any:
    """How much later a node is met from one end of its part than from the other, (n,)."""
    n = len(part)
    starts = np.concatenate([[0], np.cumsum(np.bincount(heads, minlength=n))])
    first = _last_of_parts(nodes, part, place)
    there = _search(starts, tails, first)
    other = _last_of_parts(nodes, part, there)
    place = there - _search(starts, tails, other)
    average = sparse.csr_array((np.ones(len(tails)), tails, starts), shape=(n, n))
    degree = np.maximum(np.diff(starts), 1)
    for _ in range(SMOOTHED):
        place = 0.5 * place + 0.5 * (average @ place) / degree
    return place


def _last_of_parts(nodes: Index, part: Index, place: Any) -> Index:
    """A node with the largest place of each part; the nodes are sorted by part."""
    parts, places = part[nodes], place[nodes]
    starts = np.flatnonzero(np.append(True, np.diff(parts) != 0))
    largest = np.repeat(np.maximum.reduceat(places, starts), np.diff([*starts, len(nodes)]))
    candidates = np.flatnonzero(places == largest)
    first = np.append(True, np.diff(parts[candidates]) != 0)
    return np.asarray(nodes[candidates[first]])


def _search(starts: Index, tails: Index, first: Index) -> Any:
    """The numbers of the nodes in a search from the first nodes at once; n for those not met."""
    n = len(starts) - 1
    targets = np.concatenate([tails, first]).astype(np.int32)
    ends = np.append(starts, len(targets)).astype(np.int32)
    graph = sparse.csr_array((np.ones(len(targets)), targets, ends), shape=(n + 1, n + 1))
    order = breadth_first_order(graph, n, directed=True, return_predecessors=False)[1:]
    met = np.full(n, float(n))
    met[order] = np.arange(len(order))
    return met


def _cover(heads: Index, tails: Index, side: Any) -> Any:
    """The fewest nodes that touch all edges between two sides, (n,): Kőnig's theorem."""
    n = len(side)
    crossing = side[heads] == 0
    heads, tails = heads[crossing], tails[crossing]
    left, right = (np.unique(ends, return_inverse=True) for ends in (heads, tails))
    shape = len(left[0]), len(right[0])
    table = sparse.csr_array((np.ones(len(heads), np.int8), (left[1], right[1])), shape=shape)
    partner = maximum_bipartite_matching(table, perm_type="column")  # of left nodes, or −1
    matched = np.flatnonzero(partner >= 0)
    # Paths from left nodes without a partner: along any edge to the right, along matches back.
    single, last = np.flatnonzero(partner < 0), sum(shape)
    rows = np.concatenate([left[1], shape[0] + partner[matched], np.full(len(single), last)])
    columns = np.concatenate([shape[0] + right[1], matched, single])
    paths = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(last + 1, last + 1))
    met = np.zeros(last + 1, bool)
    met[breadth_first_order(paths, last, directed=True, return_predecessors=False)] = True
    cover = np.zeros(n, bool)
    cover[left[0][~met[: shape[0]]]] = True
    cover[right[0][met[shape[0] : last]]] = True
    return cover


def _halves(nodes: Index, part: Index, place: Any) -> tuple[Index, Any]:
    """The nodes by part and place, and 0 for the first half of a part, 1 for the second, (n,)."""
    order = nodes[np.lexsort((place[nodes], part[nodes]))]
    parts = part[order]
    starts = np.searchsorted(parts, parts)
    counts = np.bincount(parts)
    side = np.zeros(len(part), np.int8)
    side[order] = 2 * (np.arange(len(order)) - starts) >= counts[parts]
    return order, side
