"""LMNN for a rectangular map on sparse points, with the coordinates of `sparse_points`.

It is the program (7) of `nearfar.problems.lmnn` with φ = 0 and W = I on features that vary. P has
the square of the number of features as its size and is never made: its terms come from images and
target edges,

(1) pull      ⟨P, LᵀL'⟩ = (1−μ) Σ_e m_e (z_i − z_j)ᵀ(z'_i − z'_j) + λ ⟨LBᵀ, L'Bᵀ⟩
(2) gradient  2 [Lap(ω) Z]ᵀ X B + 2λ L BᵀB,  with ω of all target edges and pairs at hand
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels import Array, kernels_for, on_numpy, on_sparse
from nearfar.problems.lmnn import Certificate, LMNNProblem
from nearfar.problems.lmnn_triplets import Placement
from nearfar.problems.sparse_points import Coordinates, SparsePoints

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

LEAST_SAMPLED, SAMPLED_PAIRS = 30, 1_000_000  # rows, and pairs of these and others, for a scale


@dataclass(frozen=True)
class SparseLMNNProblem(LMNNProblem):
    """The program on CSR rows sorted by class.

    ``U``, in the base class the points themselves, has no columns: it tells the number of points
    and their type. ``P`` is one number, the share of the pull that `sampled` leaves.
    """

    source: SparsePoints
    coordinates: Coordinates
    pulled: tuple[Index, Index, Matrix]  # all target edges, and their weights (1−μ) m_i

    @classmethod
    def of(
        cls,
        source: SparsePoints,
        edges: tuple[Index, Index],
        starts: Index,
        push_weight: float,
        shrinkage: float = 0.0,
        masses: Matrix | None = None,
    ) -> Self:
        """The problem; arguments are those of `LMNNPoints.build`."""
        X, n = source.X, source.X.shape[0]
        varies = source.variances > 0
        weight = 1 - float(push_weight)
        edge_masses = np.ones(len(edges[0])) if masses is None else masses[edges[0]]
        total = float(edge_masses @ on_sparse.sq_lengths(X, *edges))
        r = shrinkage / (1 - shrinkage)
        ridge = weight * r * total / max(int(varies.sum()), 1)
        weights = weight * edge_masses

        def pull(U: Matrix) -> Matrix:
            return on_numpy.gram(U, on_numpy.laplacian_matmul(*edges, weights, U))

        def diagonal() -> Matrix:
            return on_sparse.weighted_squares(X, *edges, weights)

        coordinates = source.coordinates(pull, diagonal, float(weights.sum()), ridge)
        first = kernels_for(X).first_equal(X)
        counts = np.bincount(edges[0], minlength=n)
        none = np.zeros((0, X.shape[1]))
        return cls(
            U=np.empty((n, 0), X.dtype),
            edges=edges,
            first_edge=np.concatenate([[0], np.cumsum(counts)]),
            starts=starts,
            masses=masses,
            push_weight=float(push_weight),
            ridge=ridge,
            floor=0.0,
            prior=none,
            prior_inverse=none.T,
            kept=None,
            basis=coordinates.basis,
            dual_basis=coordinates.dual,
            P=np.ones(int(varies.any())),
            Q=np.empty((0, 0)),
            exact=lambda: np.empty((n, 0)),
            images=source.images,
            first=first if len(np.unique(first)) < n else None,
            source=source,
            coordinates=coordinates,
            pulled=(*edges, weights),
        )

    def in_geometry_of(self, L: Matrix) -> Self:  # noqa: ARG002 - as the base class
        """The same problem: other coordinates would not be sparse."""
        return self

    def sampled(self, rows: int) -> Self:
        """As the base class, with fewer rows if points are many: of words all may be impostors."""
        n = len(self.U)
        return super().sampled(max(LEAST_SAMPLED, min(rows, SAMPLED_PAIRS // n)))

    def normalised(self, L: Matrix) -> Matrix:
        """L scaled so that target edges have a mean squared length of 1."""
        Z = self._map(L, self.U)
        pull = self._pull(L, L, Z, Z) / (float(self.P[0]) * float(self.pulled[2].sum()))
        return L / np.sqrt(pull) if pull > 0 else L

    def gradient(self, at: Placement) -> Matrix:
        """(2)."""
        lap = self._laplacian(at.triplets, at.alpha, at.Z)
        lap = lap + float(self.P[0]) * self.kernels.laplacian_matmul(*self.pulled, at.Z)
        ridge = self.ridge * self.coordinates.on_features(at.L)
        return 2 * (self._pulled_back(lap) + ridge)

    def _pull(self, L: Matrix, other: Matrix, Z: Array, W: Array) -> float:
        """(1)."""
        heads, tails, weights = self.pulled
        cross = self.kernels.double(self.kernels.edge_products(Z, W, heads, tails)[0])
        pull = float(self.P[0]) * float(weights @ cross)
        if not self.ridge:
            return pull
        return pull + self.ridge * float(np.vdot(self.coordinates.on_features(L), other))

    def _ridge_of(self, components: Matrix) -> float:
        return self.ridge * float(np.vdot(components, components))

    def _map(self, L: Matrix, U: Array) -> Array:
        return self.coordinates.images(L, U.dtype)

    def _pulled_back(self, W: Array) -> Matrix:
        return self.coordinates.adjoint(W)

    def _certificate(self, at: Placement, U: Array, kept: Array | None) -> Certificate:  # noqa: ARG002
        """The objective of a map of fixed rank, of which nothing else can be proved."""
        objective, n_active = self.objective(at)
        return Certificate(
            objective=objective,
            bound=0.0,
            complementarity=self.complementarity(at),
            n_active=n_active,
            n_coinciding=self._n_different(at.triplets, self._equal_pairs(at.triplets)),
            ratios=(),
            directions=(),
            triplets=at.triplets,
            dual=0 * at.alpha,
            free=(),
        )
