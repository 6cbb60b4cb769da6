"""The kernels as plain loops: what the fast versions must equal."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Index = NDArray[np.intp]


def nearest_in_class(X: Floats, starts: Index, k: int) -> tuple[Index, Index]:
    """Edges from each point to its k nearest others of its class, nearest first, ties by number.

    A class of m < k + 1 points gives each of its points m − 1 edges.
    """
    heads, tails = [], []
    for first, last in pairwise(starts):
        for i in range(first, last):
            others = [j for j in range(first, last) if j != i]
            others.sort(key=lambda j: float(np.sum((X[i] - X[j]) ** 2)))
            for j in others[:k]:
                heads.append(i)
                tails.append(j)
    return np.array(heads, dtype=np.intp), np.array(tails, dtype=np.intp)


def invaders(Z: Floats, reach: Floats, starts: Index) -> tuple[Index, Index]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l."""
    labels = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    heads, tails = [], []
    for i in range(len(Z)):
        for j in range(len(Z)):
            if labels[i] != labels[j] and np.sum((Z[i] - Z[j]) ** 2) < reach[i]:
                heads.append(i)
                tails.append(j)
    return np.array(heads, dtype=np.intp), np.array(tails, dtype=np.intp)


def sq_lengths(Z: Floats, heads: Index, tails: Index) -> Floats:
    """‖z_h − z_t‖² along each edge."""
    return np.array([np.sum((Z[h] - Z[t]) ** 2) for h, t in zip(heads, tails, strict=True)])


def edge_products(Z: Floats, D: Floats, heads: Index, tails: Index) -> tuple[Floats, Floats]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge."""
    pairs = list(zip(heads, tails, strict=True))
    return (
        np.array([(Z[h] - Z[t]) @ (D[h] - D[t]) for h, t in pairs]),
        np.array([(D[h] - D[t]) @ (D[h] - D[t]) for h, t in pairs]),
    )


def laplacian_matmul(heads: Index, tails: Index, weights: Floats, Z: Floats) -> Floats:
    """Lap(w) Z, where Lap(w) = Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ."""
    out = np.zeros_like(Z)
    for h, t, w in zip(heads, tails, weights, strict=True):
        out[h] += w * (Z[h] - Z[t])
        out[t] -= w * (Z[h] - Z[t])
    return out


def segment_sum(index: Index, weights: Floats, size: int) -> Floats:
    """Sum of the weights that share an index, for indices 0 … size − 1."""
    out = np.zeros(size)
    for position, weight in zip(index, weights, strict=True):
        out[position] += weight
    return out
