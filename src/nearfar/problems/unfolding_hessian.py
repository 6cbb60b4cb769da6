"""Curvature of an unfolding of few columns, and its inverse by a sparse factor.

With edges e = (i, j), points Y (n, r), yₑ = yᵢ − yⱼ, forces m and stiffnesses β of
`nearfar.problems.mvu_low_rank`, F the function that is minimised there, and P (n, r) of mean zero:

(1) curvature   ½ ∇²F[P] = Lap(m) P − c P + Σₑ 2βₑ ⟨yₑ, pₑ⟩ (eᵢ − eⱼ) yₑᵀ, βₑ being 0 where mₑ is
                at a limit
(2) as a matrix each edge couples its ends by the block Bₑ = mₑ I + 2βₑ yₑyₑᵀ (r, r), and −cI is
                added to each node
(3) shifted     Bₑ + t wₑ I with the least t of a geometric sequence for which (2) is positive
                definite on P of mean zero
(4) test        P of constant columns are eigenvectors of (2), of the eigenvalue −c: (3) holds if
                and only if a factor has exactly r negative pivots

Edges resist a change of their length with β, and a turn only with m, which is a thousand times
smaller: Lap(w), which knows neither, is a poor model of (1). A factor of (2) is one. Its blocks
have the sparsity of the graph, so the order of the nodes is found once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.spectrum import sparse_factor
from nearfar.kernels import Array, to_device_of, to_host
from nearfar.limits import check_time
from nearfar.problems.mvu_low_rank import Evaluation, LowRankProgram

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Apply = Callable[[Array], Array]

FIRST, LEAST = 1e-2, 1e-6  # shifts t in units of w: the first, and the least
LOWER, HIGHER = 1 / 9, 3.0  # factors of t: for the next place, and after a failure


@dataclass
class Curvature:
    """Inverses of (3) at one place after another."""

    heads: Index  # (e,)
    tails: Index  # (e,)
    weights: Matrix  # (e,) w
    order: Index  # (n,) of the nodes, in which factors are sparse
    entries: int  # of a factor, for one column
    shift: float = FIRST  # t

    @classmethod
    def of(cls, graph: NeighborhoodGraph, weights: Matrix) -> Curvature:
        """Order the nodes. The time is that of a factor of Lap(w)."""
        unit = sparse.eye_array(graph.n_nodes)
        factor = sparse_factor(graph.laplacian(weights) + float(weights.mean()) * unit)
        order = np.argsort(factor.perm_c)
        return cls(graph.heads, graph.tails, weights, order, int(factor.nnz))

    def matrix(self, program: LowRankProgram, at: Evaluation, shift: float) -> sparse.bsr_array:
        """(3) for a flat P, node by node."""
        Y, m = to_host(at.Y), to_host(at.forces)
        n, r = Y.shape
        inside = (m > to_host(program.lower)) & (m < to_host(program.upper))
        stiffness = 2 * to_host(program.stiffness) * inside
        heads, tails = self.heads, self.tails
        y = Y[heads] - Y[tails]
        blocks = (stiffness[:, None] * y)[:, :, None] * y[:, None, :]  # (e, r, r)
        own = np.arange(r)
        blocks[:, own, own] += (m + shift * self.weights)[:, None]
        nodes = np.arange(n)
        rows = np.concatenate([heads, tails, nodes])
        columns = np.concatenate([tails, heads, nodes])
        ends = sparse.csr_array(
            (np.ones(2 * len(m)), (rows[:-n], np.tile(np.arange(len(m)), 2))), shape=(n, len(m))
        )
        diagonal = np.asarray(ends @ blocks.reshape(len(m), -1)).reshape(n, r, r)
        diagonal[:, own, own] -= program.pull
        order = np.lexsort((columns, rows))
        starts = np.searchsorted(rows[order], np.arange(n + 1))
        data = np.concatenate([-blocks, -blocks, diagonal])[order]
        return sparse.bsr_array((data, columns[order], starts), shape=(n * r, n * r))

    def inverse(self, program: LowRankProgram, at: Evaluation) -> Apply:
        """The product with the inverse of (3), for P of mean zero on any device.

        Time and memory are those of a factor with r² times as many entries as one of Lap(w).
        """
        n, r = at.Y.shape
        order = (self.order[:, None] * r + np.arange(r)).ravel()
        self.shift = max(LOWER * self.shift, LEAST)
        while True:
            check_time()
            A = self.matrix(program, at, self.shift).tocsc()[:, order][order]
            factor = _factor(A)
            if factor is not None and int((factor.U.diagonal() < 0).sum()) <= r:  # (4)
                break
            self.shift *= HIGHER

        def apply(G: Array) -> Array:
            image = np.empty(n * r)
            image[order] = factor.solve(to_host(G).ravel()[order])
            P = image.reshape(n, r)
            return to_device_of(G, P - P.mean(axis=0))

        return apply


def _factor(A: sparse.csr_array) -> Any:
    """SuperLU's factors without exchanges in the given order, or None if a pivot is 0."""
    options = {"SymmetricMode": True}
    try:
        return splu(A.tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0, options=options)
    except RuntimeError:
        return None
