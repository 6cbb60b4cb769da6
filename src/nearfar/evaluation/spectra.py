"""How the variance is spread over directions: of points, of distances and of kernel values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA

from nearfar.errors import InvalidInputError
from nearfar.kernels import to_host
from nearfar.linalg import signed

Floats = NDArray[np.float64]


def principal_axes(
    points: Any, count: int | None = None, random_state: int = 0
) -> tuple[Floats, Floats]:
    """Principal directions (r, d) of points, and their shares of the variance, largest first.

    Only the first ``count`` of them may be computed by a randomised method; None is all.
    """
    centred = to_host(points).astype(np.float64)
    centred -= centred.mean(axis=0)
    n, d = centred.shape
    if count is None:
        axes = PCA(svd_solver="covariance_eigh" if d <= n else "full")
    else:
        axes = PCA(min(count, n, d), random_state=random_state)
    with np.errstate(invalid="ignore"):  # points that do not vary have no shares
        axes.fit(centred)
    return signed(axes.components_), np.nan_to_num(axes.explained_variance_ratio_)


def variance_shares(eigenvalues: Any) -> Floats:
    """Eigenvalues as shares of their sum, largest first; negative ones count as 0."""
    values = np.sort(to_host(eigenvalues).astype(np.float64).ravel())[::-1].clip(0, None)
    total = values.sum()
    return values / total if total > 0 else values


def input_spectrum(X: Any, metric: str) -> Floats:
    """Shares of the variance of points, or of points with these distances or kernel values."""
    if metric == "euclidean":
        return principal_axes(X)[1]
    squares = all_distances(X, metric) ** 2
    if not np.isfinite(squares).all():
        raise InvalidInputError(
            "the spectrum of the inputs needs all distances, and some are not known. Leave X out."
        )
    centred = squares - squares.mean(axis=0)
    gram = -(centred - centred.mean(axis=1, keepdims=True)) / 2
    return variance_shares(np.linalg.eigvalsh(gram))


def all_distances(X: Any, held: str) -> Floats:
    """Distances (n, n) from a matrix of distances or of kernel values; NaN where unknown."""
    if sparse.issparse(X):
        whole = np.full(X.shape, np.nan)
        table = sparse.coo_array(X)
        whole[table.coords] = table.data
        np.fill_diagonal(whole, 0.0)
        return whole
    given = to_host(X).astype(np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise InvalidInputError(
            "distances and kernel values must be given for all pairs of rows; got shape"
            f" {given.shape}. Give a square matrix."
        )
    if held == "precomputed":
        return np.where(np.isfinite(given), given, np.nan)
    diagonal = given.diagonal()
    squares = diagonal[:, None] + diagonal[None] - 2 * given
    distances: Floats = np.sqrt(squares.clip(0, None))
    return distances
