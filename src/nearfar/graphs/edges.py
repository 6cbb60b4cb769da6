"""Undirected edges from directed ones.

An edge is two node numbers, head < tail. Its ``directions`` are TO_TAIL if the tail is a neighbour
of the head, TO_HEAD if the head is a neighbour of the tail, the sum of both if both hold, and ANGLE
if neither holds but both are neighbours of a third node. Edges are sorted by head, then by tail.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Index = NDArray[np.intp]
Directions = NDArray[np.uint8]

ANGLE, TO_TAIL, TO_HEAD, BOTH = 0, 1, 2, 3


def undirected(n: int, origins: Index, targets: Index) -> tuple[Index, Index, Directions]:
    """Heads, tails and directions of the undirected edges of directed ones. Time O(m log m)."""
    forward = origins < targets
    keys = np.where(forward, origins * n + targets, targets * n + origins)
    keys, place = np.unique(keys, return_inverse=True)
    sums = np.bincount(place, np.where(forward, TO_TAIL, TO_HEAD), len(keys))
    heads, tails = np.divmod(keys, n)
    return heads, tails, sums.astype(np.uint8)


def angle_edges(n: int, heads: Index, tails: Index, directions: Directions) -> tuple[Index, Index]:
    """Pairs of neighbours of the same node that are not joined by an edge.

    With A[i, j] = 1 if j is a neighbour of i, they are the nonzero entries of AᵀA above its
    diagonal. Time and memory O(Σ kᵢ²) for nodes with kᵢ neighbours.
    """
    there, back = (directions & TO_TAIL) > 0, (directions & TO_HEAD) > 0
    origins = np.concatenate([heads[there], tails[back]])
    targets = np.concatenate([tails[there], heads[back]])
    ones = np.ones(len(origins), dtype=np.int32)
    A = sparse.csr_array((ones, (origins, targets)), shape=(n, n))
    pairs = sparse.triu(A.T @ A, 1, format="coo")
    keys = np.sort(pairs.row.astype(np.intp) * n + pairs.col)
    more = np.setdiff1d(keys, heads * n + tails, assume_unique=True)
    first, last = np.divmod(more, n)
    return first, last
