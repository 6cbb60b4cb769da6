"""Sparse points X (n, d), rows of words, in coordinates U = (X − mean) B that are never computed.

A rectangular map L (r, s) on U needs two products only, and both keep X sparse:

(1) images    Z = U Lᵀ = X (L Bᵀ)ᵀ − 1 (L Bᵀ mean)ᵀ                (n, r)
(2) adjoint   Wᵀ U = (Wᵀ X) B  for W (n, r) with columns of sum 0  (r, s)

B whitens the pull P as `nearfar.problems.whitening` does where X has at most SKETCH features, so
that a fit is that of dense points; with more of them P is too large, and B is diagonal, with
entries (P_ff + FLOOR·Q_ff)^(−1/2), so that XB is sparse. What needs all directions at a time, the
first guess, looks at the *sketch* Y = (X − mean) Vᵀ (n, SKETCH), where the rows of V are about the
leading right singular vectors of X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from nearfar.kernels import on_numpy, on_sparse
from nearfar.problems.whitening import FLOOR, whitened

Matrix = NDArray[np.float64]

SKETCH = 100  # directions in which a first guess is looked for
SPARE = 20  # directions of the sketch beyond the rows of a map, where these are many
POWERS = 2  # iterations of the randomised singular vectors: enough for a start


@dataclass(frozen=True)
class SparsePoints:
    """CSR rows with sorted indices."""

    X: sparse.csr_array
    rows: int  # of the map that is learned

    @property
    def dtype(self) -> Any:
        """The floating type of the rows."""
        return self.X.dtype

    @cached_property
    def mean(self) -> Matrix:
        """(d,)."""
        return np.asarray(self.X.mean(axis=0), dtype=np.float64)

    @cached_property
    def variances(self) -> Matrix:
        """Of the features, (d,), and exactly zero where they are constant."""
        X = on_sparse.double(self.X)
        n, d = X.shape
        counts = np.bincount(X.indices, minlength=d)
        deviations = X.data - self.mean[X.indices]
        stored = np.bincount(X.indices, deviations**2, minlength=d)
        squares = stored + (n - counts) * self.mean**2
        highest, lowest = X.max(axis=0).toarray(), X.min(axis=0).toarray()
        return np.where(highest > lowest, squares / n, 0.0)

    def images(self, components: Matrix, dtype: Any = np.float64) -> NDArray[Any]:
        """(1) for a map L Bᵀ on the features, in this type, or that of X if that is wider."""
        Z = self.X @ np.ascontiguousarray(components.T, dtype=dtype)
        Z -= (components @ self.mean).astype(Z.dtype)
        return np.asarray(Z)

    def adjoint(self, W: NDArray[Any]) -> Matrix:
        """WᵀX of (2), (r, d)."""
        return on_sparse.gram(W, self.X)

    @cached_property
    def sketch(self) -> tuple[Matrix, Matrix]:
        """V (s, d), with orthonormal rows, and Y (n, s) in float64."""
        n, d = self.X.shape
        if d <= SKETCH:
            V = np.eye(d)
        else:
            size = min(max(SKETCH, self.rows + SPARE), n, d)
            X = on_sparse.double(self.X)
            V = randomized_svd(
                X, size, n_iter=POWERS, power_iteration_normalizer="none", random_state=0
            )[2]
        return V, self.images(V)

    def coordinates(
        self,
        pull: Callable[[Matrix], Matrix],
        diagonal: Callable[[], Matrix],
        weight: float,
        ridge: float,
    ) -> Coordinates:
        """The coordinates that whiten P, or its diagonal.

        ``pull`` and ``weight`` are as in `whitened`, ``diagonal`` are the P_ff of all features.
        """
        if self.X.shape[1] <= SKETCH:
            Y = self.sketch[1]
            basis, dual = whitened(on_numpy, Y, pull, weight, ridge)[:2]
            return Coordinates(self, basis, basis, dual)
        varies = self.variances > 0
        squares = diagonal() + ridge + FLOOR * 2 * weight * self.variances
        roots = np.sqrt(np.where(varies & (squares > 0), squares, 1.0))
        basis, dual = (sparse.diags_array(varies * scale) for scale in (1 / roots, roots))
        scaled = sparse.csr_array(self.X @ basis.astype(self.dtype))
        return Coordinates(SparsePoints(scaled, self.rows), None, basis, dual)


@dataclass(frozen=True)
class Coordinates:
    """U = (X − mean) B, as CSR points times a dense matrix or nothing."""

    points: SparsePoints  # X, or XB for a diagonal B
    inner: Matrix | None  # B, or None
    basis: Any  # B (d, s), dense or a diagonal sparse array
    dual: Any  # its dual basis

    def images(self, L: Matrix, dtype: Any) -> NDArray[Any]:
        """(1) in this type, or that of X if that is wider."""
        return self.points.images(L if self.inner is None else L @ self.inner.T, dtype)

    def adjoint(self, W: NDArray[Any]) -> Matrix:
        """(2)."""
        product = self.points.adjoint(W)
        return product if self.inner is None else product @ self.inner

    @cached_property
    def _squares(self) -> Matrix:
        """BᵀB, or its diagonal."""
        if self.inner is None:
            return np.asarray(self.basis.diagonal() ** 2)
        return self.inner.T @ self.inner

    def on_features(self, L: Matrix) -> Matrix:
        """L BᵀB, whose inner product with L is the trace of the metric on the features."""
        return L * self._squares if self.inner is None else L @ self._squares
