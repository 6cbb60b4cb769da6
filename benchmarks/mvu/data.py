"""The Swiss rolls: ``python -m benchmarks.mvu.data roll400k4 FOLDER``.

A roll has three coordinates and five dimensions of Gaussian noise, deviation 0.05. Its graph joins
each point, its k nearest neighbours, and these among each other; the seed is the first for which it
is connected, from 0 on. FOLDER receives ``program.npz``
with the points ``X``, the rows ``heads`` and ``tails`` of the edges and their squared lengths
``squares``, and ``shape.json`` with the numbers of points and edges.
"""

import json
import sys
from itertools import count
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from benchmarks.mvu.programs import size_of

SEED, NOISE = 0, 0.05


def swiss_roll(n, seed=SEED, noise=NOISE):
    """Points (n, 8)."""
    random = np.random.RandomState(seed)
    angle, height = 1.5 * np.pi * (1 + 2 * random.rand(n)), 21 * random.rand(n)
    roll = angle * np.cos(angle), height, angle * np.sin(angle)
    return np.column_stack([*roll, noise * random.randn(n, 5)])


def edges(X, k):
    """Heads and tails of the graph, sorted, each edge once."""
    near = cKDTree(X).query(X, k + 1, workers=-1)[1]  # with the point itself
    first, second = np.triu_indices(k + 1, 1)
    pairs = np.stack([near[:, first].ravel(), near[:, second].ravel()], axis=1)
    return np.unique(np.sort(pairs, axis=1), axis=0).T


def is_connected(n, heads, tails):
    graph = coo_array((np.ones(len(heads)), (heads, tails)), shape=(n, n))
    return connected_components(graph, directed=False)[0] == 1


def connected_roll(n, k):
    """The points and the graph of the first seed for which it is in one piece."""
    for seed in count(SEED):
        X = swiss_roll(n, seed)
        heads, tails = edges(X, k)
        if is_connected(n, heads, tails):
            return X, heads, tails


def main(name, folder):
    folder = Path(folder)
    n, k = size_of(name)
    X, heads, tails = connected_roll(n, k)
    squares = ((X[heads] - X[tails]) ** 2).sum(1)
    np.savez(folder / "program.npz", X=X, heads=heads, tails=tails, squares=squares)
    (folder / "shape.json").write_text(json.dumps([n, len(heads)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
