"""The points of a table as a model sees them: as they are, or in the feature space of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar.proofs import bounds
from nearfar.proofs.bounds import Index, Matrix
from nearfar.proofs.claims import centred, to_host

SHIFTABLE = ("linear", "rbf", "laplacian")  # kernels whose distances do not change with the origin


@dataclass(frozen=True)
class Space:
    """Points, or those in the feature space of a kernel, and what maps act on."""

    points: Matrix  # (n, k)
    operand: Matrix  # (n, ·): the image of all points under a map L is operand Lᵀ
    gram: Matrix | None  # of the rows that maps of a kernel act on

    def image(self, L: Any) -> Matrix:
        """The images of the points under a map."""
        image: Matrix = self.operand @ np.asarray(to_host(L), dtype=np.float64).T
        return image

    def trace(self, L: Any) -> float:
        """tr LᵀL."""
        L = np.asarray(to_host(L), dtype=np.float64)
        return float((L * L).sum() if self.gram is None else (L @ self.gram * L).sum())

    @classmethod
    def of(cls, model: Any, X: Matrix, rows: Index) -> Space:
        """The space of a model, with these rows of the table."""
        if not hasattr(model, "dual_coef_"):
            points = centred(X[rows])
            return cls(points, points, None)
        if model.kernel == "precomputed":
            values, operand, gram = X[np.ix_(rows, rows)], X[rows], X
        else:
            fitted = np.asarray(to_host(model.X_fit_), dtype=np.float64)
            origin = np.median(X, axis=0) if model.kernel in SHIFTABLE else 0.0
            options = dict(model.kernel_params or {})
            if model.gamma_ is not None:
                options["gamma"] = model.gamma_
            both = X[rows] - origin, fitted - origin
            values = pairwise_kernels(both[0], metric=model.kernel, **options)
            operand = pairwise_kernels(*both, metric=model.kernel, **options)
            gram = pairwise_kernels(both[1], metric=model.kernel, **options)
        return cls(kernel_features(values, X[rows], model.rank), operand, gram)


def kernel_features(K: Matrix, X: Matrix, rank: float | None) -> Matrix:
    """Coordinates (n, r) of points with these kernel values; of equal points the same."""
    means = K.mean(axis=0)
    values, vectors = np.linalg.eigh(0.5 * (K + K.T) - means - means[:, None] + means.mean())
    values, vectors = values[::-1], vectors[:, ::-1]
    rounding = max(bounds.NULL * values[0], len(K) * bounds.EPS * np.abs(K).max())
    kept = int((values > rounding).sum())
    if rank is not None and rank < 1:
        carried = np.cumsum(values[:kept])
        kept = 1 + int(np.searchsorted(carried, rank * carried[-1])) if kept else 0
    elif rank is not None:
        kept = min(int(rank), kept)
    first, twins = np.unique(X, return_index=True, return_inverse=True, axis=0)[1:]
    features: Matrix = (vectors[:, :kept] * np.sqrt(values[:kept]))[first[twins.reshape(-1)]]
    return features
