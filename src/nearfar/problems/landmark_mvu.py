"""Maximum variance unfolding with K = Q L Qᵀ: points are reconstructed from landmarks.

The program (4) is that of `nearfar.problems.variational_mvu` on the centred columns of Q.

(1) weights        wᵢ = argmin ‖xᵢ − Σⱼ wᵢⱼ xⱼ‖² over neighbours j with Σⱼ wᵢⱼ = 1    [RS00, eq. 1]
(2) matrix         Φ = (I − W)ᵀ(I − W), or L² with the Laplacian L if there are no points
(3) reconstruction y = Q y_landmarks minimises yᵀΦy:  Q = −Φ_uu⁻¹ Φ_ul on the others, I on the
                   landmarks                                                  [WPS05; SW06, eq. 16]
(4) program        K = Q L Qᵀ over L ⪰ 0

[RS00] Roweis & Saul, Nonlinear dimensionality reduction by locally linear embedding, Science 2000.
[WPS05] Weinberger, Packer & Saul, Nonlinear dimensionality reduction by semidefinite programming
and kernel matrix factorization, AISTATS 2005.
[SW06] Weinberger & Saul, Unsupervised learning of image manifolds by semidefinite programming, IJCV
2006.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import LazyRows, is_lazy
from nearfar.blocks.chosen import on_gathered_rows
from nearfar.graphs.neighborhood import NeighborhoodGraph
from nearfar.graphs.spectrum import symmetric_factor
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.limits import check_time

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

RIDGE = 1e-3  # added to the Gram matrix of differences, relative to its trace
BLOCK_ENTRIES = 1 << 22  # of gathered differences at a time
SHIFT = 1e-12  # added to Φ_uu before it is factored, relative to its diagonal


def lle_weights(graph: NeighborhoodGraph) -> sparse.csr_array:
    """W of (1) with the graph's neighbours, angles among them; the graph has points.

    As usual, a ridge makes the weights unique if a node has more neighbours than dimensions. With c
    neighbours per node, time is O(n c² (c + d)), memory O(n c) besides the points on the host. Rows
    of a Dask array stay where they are; tasks get those that they need.
    """
    pattern = graph.adjacency(np.ones(graph.n_edges))
    starts, neighbors = pattern.indptr, pattern.indices
    weights, counts = np.empty(len(neighbors)), np.diff(starts)
    batches: list[tuple[Index, Index]] = []  # nodes (b,), and where their neighbours stand (b, c)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        step = max(1, BLOCK_ENTRIES // (int(count) * graph.points.shape[1]))
        for first in range(0, len(rows), step):
            nodes = rows[first : first + step]
            batches.append((nodes, starts[nodes][:, None] + np.arange(count)))
    asked = [(nodes, neighbors[places]) for nodes, places in batches]
    for (_, places), found in zip(batches, _weights_of(graph.points, asked), strict=True):
        weights[places] = found
    return sparse.csr_array((weights, neighbors, starts), shape=pattern.shape)


def _weights_of(points: Any, asked: list[tuple[Index, Index]]) -> Iterator[Matrix]:
    """(1) for batches of nodes and their neighbours; of lazy points, where their rows are."""
    if not is_lazy(points):
        points = kernels_for(points).to_host(points)
        for nodes, neighbors in asked:
            check_time()
            yield _weights(points, nodes, neighbors)
        return
    wanted, nodes_of, neighbors_of = [], [], []
    for nodes, neighbors in asked:
        rows = np.unique(np.append(nodes, neighbors))
        wanted.append(rows)
        nodes_of.append(np.searchsorted(rows, nodes))
        neighbors_of.append(np.searchsorted(rows, neighbors))
    blocks = LazyRows.of(points).blocks()
    yield from on_gathered_rows(
        blocks, _weights_at, wanted, nodes_of, neighbors_of, name="lle_weights"
    )


def _weights_at(rows: Array, nodes: Index, neighbors: Index) -> Matrix:
    return _weights(to_host(rows), nodes, neighbors)


def _weights(points: NDArray[Any], nodes: Index, neighbors: Index) -> Matrix:
    """(1) for nodes of equally many neighbours (b, c)."""
    differences = points[neighbors].astype(np.float64) - points[nodes, None]  # (b, c, d)
    gram = differences @ differences.transpose(0, 2, 1)
    diagonal = np.arange(gram.shape[1])
    trace = gram[:, diagonal, diagonal].sum(axis=1)
    gram /= np.where(trace > 0, trace, 1.0)[:, None, None]
    gram[:, diagonal, diagonal] += RIDGE
    solved = np.linalg.solve(gram, np.ones((*neighbors.shape, 1)))[..., 0]
    weights: Matrix = solved / solved.sum(axis=1, keepdims=True)
    return weights


def lle_matrix(W: sparse.csr_array) -> sparse.csr_array:
    """Φ of (2)."""
    B = (sparse.eye_array(W.shape[0]) - W).tocsr()
    return (B.T @ B).tocsr()


def reconstruction(Phi: sparse.csr_array, landmarks: Index) -> Matrix:
    """Q (n, m) of (3); its rows sum to 1 if the constants are in the null space of Φ."""
    n = Phi.shape[0]
    others = np.setdiff1d(np.arange(n), landmarks)
    Q = np.zeros((n, len(landmarks)))
    Q[landmarks, np.arange(len(landmarks))] = 1.0
    if len(others):
        rows = Phi.tocsr()[others]
        inner = rows[:, others]
        shift = SHIFT * float(inner.diagonal().mean())
        check_time()
        solve = symmetric_factor(inner + shift * sparse.eye_array(len(others)))
        check_time()
        Q[others] = -solve(rows[:, landmarks].toarray())
    return Q
