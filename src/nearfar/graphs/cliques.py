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
    by_size: dict[int, list[list[int]]] = {}
    for node in range(n):
        clique = _clique(node, around)
        by_size.setdefault(len(clique), []).append(clique)
    return any(_any_flat(cliques, around) for size, cliques in by_size.items() if size > 2)


def _clique(node: int, around: list[dict[int, float]]) -> list[int]:
    chosen = [node]
    for other in sorted(around[node], key=around[node].__getitem__):
        if all(other in around[one] for one in chosen):
            chosen.append(other)
    return chosen


def _any_flat(cliques: list[list[int]], around: list[dict[int, float]]) -> bool:
    """Whether a centred Gram matrix has a zero eigenvalue besides that of the vector of ones.

    All cliques have the same size, so that LAPACK is called once.
    """
    size = len(cliques[0])
    first, second = np.triu_indices(size, 1)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    D = np.zeros((len(cliques), size, size))
    D[:, first, second] = [[around[nodes[i]][nodes[j]] for i, j in pairs] for nodes in cliques]
    D += D.transpose(0, 2, 1)
    means = D.mean(axis=1)
    centred = D - means[:, :, None] - means[:, None, :] + means.mean(axis=1)[:, None, None]
    values = np.linalg.eigvalsh(-0.5 * centred)
    return bool((values[:, 1] <= FLAT * values[:, -1]).any())
