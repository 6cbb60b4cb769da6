"""Cliques of a graph, and whether they are flat.

All distances between the nodes of a clique are known, so it is rigid. A clique is flat if its
points span fewer dimensions than so many independent points would: four points in a plane, five in
space. Then its distances determine each other, and no distance can change alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

FLAT = 1e-9  # least eigenvalue of a clique's Gram matrix, relative to its largest


def has_flat_clique(n: int, heads: Index, tails: Index, squares: Matrix) -> bool:
    """Whether the greedy clique of some node, nearest neighbours first, is flat.

    Time O(n k³) for nodes with k neighbours.
    """
    around: list[dict[int, float]] = [{} for _ in range(n)]
    for i, j, square in zip(heads.tolist(), tails.tolist(), squares.tolist(), strict=True):
        around[i][j] = around[j][i] = square
    return any(_is_flat(_clique(node, around), around) for node in range(n))


def _clique(node: int, around: list[dict[int, float]]) -> list[int]:
    chosen = [node]
    for other in sorted(around[node], key=around[node].__getitem__):
        if all(other in around[one] for one in chosen):
            chosen.append(other)
    return chosen


def _is_flat(nodes: list[int], around: list[dict[int, float]]) -> bool:
    """Whether the centred Gram matrix has a zero eigenvalue besides that of the vector of ones."""
    if len(nodes) < 3:
        return False
    D = np.array([[around[i].get(j, 0.0) for j in nodes] for i in nodes])
    means = D.mean(axis=0)
    values = np.linalg.eigvalsh(-0.5 * (D - means - means[:, None] + means.mean()))
    return bool(values[1] <= FLAT * values[-1])
