"""RCA for a map of few rows on sparse points: no matrix of d × d numbers is made.

With C, T, C_ρ and λ of `nearfar.problems.rca`, of which C_ρ ≻ 0 for ρ > 0:

(1) relevant  T v = μ C_ρ v  with vᵀC_ρv = 1, μ = 1/λ descending
(2) map       L = V_rᵀ of the r first v, which is (6) there, and has W = L C_ρ Lᵀ = I

Products with C and T are products with the sparse rows: for images z = X v,

(3) products  T v = 1/n Xᵀ(z − mean z),  C v = 1/N Xᵀ(z − mean of z in its chunklet)

(1) is solved by Lanczos' method (ARPACK), in which C_ρ⁻¹ is applied by conjugate gradients; C_ρ has
eigenvalues between ρτ and ρτ + (1 − ρ) max λ(C), so that a large ρ, as many features have, makes
them few. Up to SKETCH features the matrices are small and (1) is solved directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from nearfar.kernels import on_sparse
from nearfar.limits import check_time
from nearfar.linalg import canonical_factor, symmetric
from nearfar.problems.rca import RCAProblem
from nearfar.problems.sparse_points import SKETCH, SparsePoints

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

TOLERANCE = 1e-9  # relative, of the eigenvalues of (1)
INNER = 1e-12  # the same of the conjugate gradients
NOTHING = 1e-10  # μ, relative to the largest, below which points do not vary


@dataclass(frozen=True)
class SparseRCAProblem:
    """(1) for CSR rows, of which ``rows`` (N,) are in the chunklets ``codes`` (N,)."""

    source: SparsePoints
    rows: Index
    codes: Index
    weights: Matrix  # (n,) of all points
    shrinkage: float  # ρ > 0

    @cached_property
    def count(self) -> float:
        """N."""
        return float(self.weights[self.rows].sum())

    @cached_property
    def _members(self) -> Any:
        return on_sparse.double(self.source.X[self.rows])

    @cached_property
    def _points(self) -> Any:
        return on_sparse.double(self.source.X)

    @cached_property
    def trace(self) -> float:
        """tr C, from squares about the means of the chunklets."""
        X, w, codes = self._members, self.weights[self.rows], self.codes
        totals = np.bincount(codes, w)
        sums = on_sparse.gram(np.eye(len(totals))[codes] * w[:, None], X)
        squares = float(w @ X.power(2).sum(axis=1)) - float((sums**2).sum(1) @ (1 / totals))
        return max(squares, 0.0) / self.count

    @cached_property
    def ridge(self) -> float:
        """ρτ."""
        return self.shrinkage * self.trace / max(int((self.source.variances > 0).sum()), 1)

    def within(self, V: Matrix) -> Matrix:
        """C V of (3) for columns V (d, k)."""
        w = self.weights[self.rows][:, None]
        Z = self._members @ V
        totals = np.bincount(self.codes, w[:, 0])[:, None]
        means = np.stack([np.bincount(self.codes, (w * Z)[:, k]) for k in range(Z.shape[1])], 1)
        Z -= (means / totals)[self.codes]
        return np.asarray(self._members.T @ (w * Z)) / self.count

    def total(self, V: Matrix) -> Matrix:
        """T V of (3)."""
        w, Z = self.weights[:, None] / self.weights.sum(), self._points @ V
        Z -= (w * Z).sum(0)
        return np.asarray(self._points.T @ (w * Z))

    def shrunk(self, V: Matrix) -> Matrix:
        """C_ρ V."""
        return (1 - self.shrinkage) * self.within(V) + self.ridge * V

    def solution(self, n_components: int) -> Matrix:
        """The canonical L of (2), (r, d), without rows in which no points vary."""
        n, d = self.source.X.shape
        if d <= SKETCH:
            unit = np.eye(d)
            total, shrunk = symmetric(self.total(unit)), symmetric(self.shrunk(unit))
            values, vectors = linalg.eigh(total, shrunk)
            values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
        else:
            values, vectors = self._leading(min(n_components, n - 1, d - 1))
        kept = values > NOTHING * values.max(initial=0.0)
        return canonical_factor(vectors[:, kept].T)

    def _leading(self, count: int) -> tuple[Matrix, Matrix]:
        """The first eigenpairs of (1) by Lanczos' method."""
        d = self.source.X.shape[1]

        def operator(product: Any) -> LinearOperator:
            return LinearOperator((d, d), lambda v: product(v.reshape(d, 1)).ravel(), dtype=float)

        shrunk = operator(self.shrunk)

        def inverse(v: Matrix) -> Matrix:
            check_time()
            return np.asarray(cg(shrunk, v.ravel(), rtol=INNER, maxiter=10 * d)[0])

        start = np.random.default_rng(0).standard_normal(d)
        values, vectors = eigsh(
            operator(self.total),
            k=count,
            M=shrunk,
            Minv=LinearOperator((d, d), inverse, dtype=float),
            which="LM",
            v0=start,
            tol=TOLERANCE,
        )
        order = np.argsort(-values)
        return values[order], vectors[:, order]

    def objective_and_gap(self, L: Matrix) -> tuple[float, float]:
        """As `RCAProblem.objective_and_gap`, with W from the sparse rows."""
        W = symmetric(L @ self.shrunk(np.ascontiguousarray(L.T)))
        return RCAProblem(np.empty((0, 0)), self.count).objective_and_gap(L, W)
