"""Distances of labelled points with closed forms, which keep all directions.

With n points of d features in C classes, S their scatter about the means of their classes divided
by n, and B that of these means about the mean of all points, each counted for its points:

(1) shrunk    S_ρ = (1−ρ) S + ρ (tr S / d) I,  ρ = d / (d + n)
(2) whitened  S_ρ^(−1/2) B S_ρ^(−1/2) = V Λ Vᵀ,  Λ descending
(3) frame     A = D Vᵀ S_ρ^(−1/2),  D = 1 for the C − 1 leading directions and KEPT for the rest

The leading directions alone are those of LDA. The others are shorter, but new points may differ
along them, too: with few labels the means of the classes are not all that matters. Since S_ρ is at
least ρ (tr S / d) I, A is well conditioned for features of one scale.

Classes that are no single clouds have a frame from scatters of near points instead:

(4) local     S, B of equation (8) of `nearfar.problems.lfda`, both shrunk as in (1) with
              ρ = 4d / (4d + n), S_ρ^(−1/2) B_ρ S_ρ^(−1/2) = V Λ Vᵀ and A = Λ^(1/2) Vᵀ S_ρ^(−1/2)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg

from nearfar.kernels import kernels_for
from nearfar.linalg import check_eigh, eigh
from nearfar.problems.lfda import by_size, local_scatters
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

KEPT = 0.3  # length of the directions that do not part the means of the classes
LOCAL_NEIGHBORS = 7  # the k-th nearest of its class is the scale of a point in (4)
LOCAL_ROWS = 4  # for each feature at which ρ of (4) is one half


class Frame(NamedTuple):
    """A of (3) or (4) in r coordinates that the points span, of d features."""

    A: Matrix  # (r, r)
    outside: float  # length of A along what the points do not span

    def metric(self, basis: Matrix | None) -> Matrix:
        """AᵀA on all features, (d, d), for coordinates in an orthonormal basis; None is for I."""
        M = self.A.T @ self.A
        if basis is None:
            return M
        outside = np.eye(len(basis)) - basis @ basis.T
        return basis @ M @ basis.T + self.outside**2 * outside


def discriminant_frame(X: Matrix, codes: Index, n_features: int) -> Frame | None:
    """(3) of points in coordinates (n, r) of all that they span; None if no class varies.

    ``n_features`` is d, which may be larger than r: S is zero along what the points do not span.
    """
    n, counts = len(X), np.bincount(codes)
    means = np.zeros((len(counts), X.shape[1]))
    np.add.at(means, codes, X)
    means /= np.maximum(counts, 1)[:, None]
    within, between = X - means[codes], (means - X.mean(axis=0)) * np.sqrt(counts / n)[:, None]
    S = within.T @ within / n
    rho, level = n_features / (n_features + n), float(np.trace(S)) / n_features
    if not level > 0:
        return None
    values, vectors = eigh((1 - rho) * S)
    roots = np.sqrt(np.maximum(values, 0) + rho * level)  # (1)
    whitened = between @ (vectors / roots)
    _, turns = eigh(whitened.T @ whitened)  # (2)
    turns, leading = turns[:, ::-1], int((counts > 0).sum()) - 1
    sizes = np.where(np.arange(len(roots)) < leading, 1.0, KEPT)
    A = sizes[:, None] * turns.T / roots @ vectors.T  # (3)
    return Frame(A, KEPT / (rho * level) ** 0.5)


def local_frame(X: Matrix, codes: Index, n_features: int) -> Frame | None:
    """(4), otherwise as `discriminant_frame`.

    None, too, if the classes do not differ, or near points of a class by no more than rounding.
    """
    n, d = len(X), n_features
    order, classes = np.argsort(codes, kind="stable"), np.unique(codes)
    starts = np.append(np.searchsorted(codes[order], classes), n)
    rows, starts = by_size(ClassOrder(classes, np.searchsorted(classes, codes), order, starts))
    centred = (X - np.median(X, axis=0))[rows]  # one outlier moves the mean away from all others
    S, B, _ = local_scatters(kernels_for(X), centred, starts, LOCAL_NEIGHBORS)
    rho = LOCAL_ROWS * d / (LOCAL_ROWS * d + n)
    within, between = float(np.trace(S)) / d, float(np.trace(B)) / d
    if not (within > 0 and between > 0):
        return None
    identity = np.eye(len(S))
    S, B = (1 - rho) * S + rho * within * identity, (1 - rho) * B + rho * between * identity
    check_eigh(len(S))
    try:
        values, vectors = scipy_linalg.eigh(B, S)
    except scipy_linalg.LinAlgError:  # S has no Cholesky factor: its trace is of rounding errors
        return None
    A = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T  # (4)
    return Frame(A, (between / within / (rho * within)) ** 0.5)
