"""Edges that a random walk along the graph rarely takes [weinberger2007, 3.1.12].

With η the edges and x their lengths, a walk goes from node i to node j with probability

    pᵢⱼ = wᵢⱼ / rᵢ,    wᵢⱼ = ηᵢⱼ exp(−xᵢⱼ / σ),    rᵢ = Σₗ wᵢₗ                                (1)

(the thesis omits rᵢ, without which these are not probabilities). qᵢⱼ is the probability of reaching
j from i within t steps: the sum over s of the probabilities of reaching it first at step s,

    qᵢⱼ = Σₛ fᵢⱼ(s),    fᵢⱼ(s) = (Pˢ)ᵢⱼ − Σ_{v<s} fᵢⱼ(v) (Pˢ⁻ᵛ)ⱼⱼ.                            (2)

Of Pˢ only the entries on edges and on the diagonal are needed. S = (wᵢⱼ / √(rᵢ rⱼ)) is symmetric,
(Pˢ)ᵢⱼ = (Sˢ)ᵢⱼ √(rⱼ / rᵢ), and

    (Sᵃ⁺ᵇ)ᵢⱼ = ⟨row i of Sᵃ, row j of Sᵇ⟩                                                   (3)

needs powers only up to half of t.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree, reverse_cuthill_mckee

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

BLOCK_ENTRIES = 1 << 22  # of rows of powers held at a time
SAMPLE = 64  # rows from which the number of entries per row is estimated
FARTHEST = 300.0  # longer edges, in units of sigma, count as this long in exp(−x/σ)


def walk_probabilities(
    n: int, heads: Index, tails: Index, lengths: Floats, t: int, sigma: float
) -> Floats:
    """qᵢⱼ + qⱼᵢ (m,) of each edge.

    Time and memory grow with the number of nodes within t/2 steps of a node, and linearly with n.
    """
    w = np.exp(-np.minimum(lengths / sigma, FARTHEST))
    r = np.bincount(heads, w, n) + np.bincount(tails, w, n)  # (1)
    values = w / np.sqrt(r[heads]) / np.sqrt(r[tails])
    ends = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    S = sparse.csr_array((np.concatenate([values, values]), ends), shape=(n, n))
    along, around = np.empty((len(heads), t)), np.zeros((n, t))
    along[:, 0] = values
    for rows, edges in _blocks(S, heads, (t + 1) // 2):
        nodes, place = np.unique(
            np.concatenate([rows, heads[edges], tails[edges]]), return_inverse=True
        )
        own, left, right = np.split(place, [len(rows), len(rows) + len(edges)])
        powers = [S[nodes]]
        for s in range(2, t + 1):
            if len(powers) < (s + 1) // 2:
                powers.append(powers[-1] @ S)
            A, B = powers[(s + 1) // 2 - 1], powers[s // 2 - 1]
            around[rows, s - 1] = _row_products(A, B, own, own)  # (3)
            along[edges, s - 1] = _row_products(A, B, left, right)
    ratio = np.sqrt(r[tails] / r[heads])[:, None]
    return _reached(along * ratio, around[tails]) + _reached(along / ratio, around[heads])


def _reached(along: Floats, around: Floats) -> Floats:
    """(2), from (Pˢ)ᵢⱼ (m, t) and (Pˢ)ⱼⱼ (m, t) for s = 1, ..., t."""
    first = along.copy()
    for s in range(1, along.shape[1]):
        first[:, s] -= np.vecdot(first[:, :s], around[:, s - 1 :: -1])
    total: Floats = first.sum(axis=1)
    return total


def _row_products(A: sparse.csr_array, B: sparse.csr_array, i: Index, j: Index) -> Floats:
    """⟨row i of A, row j of B⟩ for each i and j."""
    products: Floats = A[i].multiply(B[j]).sum(axis=1)
    return products


def _blocks(S: sparse.csr_array, heads: Index, power: int) -> Iterator[tuple[Index, Index]]:
    """Yield blocks of nodes that are close to each other, and the edges that start at them.

    An edge needs the rows of both its ends; with blocks of scattered nodes, most rows would be
    computed many times.
    """
    n = S.shape[0]
    order = reverse_cuthill_mckee(S, symmetric_mode=True).astype(np.intp)
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    by_rank = np.argsort(rank[heads], kind="stable")
    sample = S[order[:: max(1, n // SAMPLE)]]
    for _ in range(power - 1):
        sample = sample @ S
    each = 1 + sample.nnz / sample.shape[0] * (1 + S.nnz / n)
    step = max(1, int(BLOCK_ENTRIES / each))
    cuts = np.searchsorted(rank[heads][by_rank], np.arange(0, n + step, step))
    for number, first in enumerate(range(0, n, step)):
        yield order[first : first + step], by_rank[cuts[number] : cuts[number + 1]]


def low_outliers(q: Floats, threshold: float) -> NDArray[np.bool_]:
    """Where log q is more than ``threshold`` interquartile ranges below its lower quartile.

    Infinite q are ignored, and are never outliers.
    """
    logs = np.log(q)
    low, high = np.percentile(logs[np.isfinite(logs)], [25, 75])
    outliers: NDArray[np.bool_] = logs < low - threshold * (high - low)
    return outliers


def connecting_edges(
    n: int, heads: Index, tails: Index, q: Floats, doubtful: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Doubtful edges that are needed to connect the graph: the most likely of those that do."""
    sure = ~doubtful
    kept = sparse.coo_array((np.ones(sure.sum()), (heads[sure], tails[sure])), (n, n))
    count, labels = connected_components(kept, directed=False)
    edges = np.flatnonzero(doubtful & (labels[heads] != labels[tails]))
    edges = edges[np.argsort(-q[edges], kind="stable")]
    low, high = np.sort([labels[heads[edges]], labels[tails[edges]]], axis=0)
    _, likeliest = np.unique(low.astype(np.intp) * count + high, return_index=True)
    ranks = 1.0 + likeliest
    between = sparse.csr_array((ranks, (low[likeliest], high[likeliest])), (count, count))
    tree = minimum_spanning_tree(between)
    held = np.zeros(len(heads), dtype=bool)
    held[edges[tree.data.astype(np.intp) - 1]] = True
    return held
