"""Coordinates of shrunk linear discriminant analysis that keep all directions.

With n points of d features in C classes, S their scatter about the means of their classes divided
by n, and B that of these means about the mean of all points, each counted for its points:

(1) shrunk    S_ρ = (1−ρ) S + ρ (tr S / d) I,  ρ = d / (d + n)
(2) whitened  S_ρ^(−1/2) B S_ρ^(−1/2) = V Λ Vᵀ,  Λ descending
(3) frame     A = D Vᵀ S_ρ^(−1/2),  D = 1 for the C − 1 leading directions and KEPT for the rest

The leading directions alone are those of LDA. The others are shorter, but new points may differ
along them, too: with few labels the means of the classes are not all that matters. Since S_ρ is at
least ρ (tr S / d) I, A is well conditioned for features of one scale.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.linalg import eigh

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

KEPT = 0.3  # length of the directions that do not part the means of the classes


class Frame(NamedTuple):
    """A of (3) in r coordinates that the points span, of d features."""

    A: Matrix  # (r, r)
    inverse: Matrix
    outside: float  # length of A along what the points do not span

    def lifted(self, basis: Matrix) -> tuple[Matrix, Matrix]:
        """A and its inverse on all features, (d, d), for coordinates in an orthonormal basis."""
        outside = np.eye(len(basis)) - basis @ basis.T
        return (
            basis @ self.A @ basis.T + self.outside * outside,
            basis @ self.inverse @ basis.T + outside / self.outside,
        )


def discriminant_frame(X: Matrix, codes: Index, n_features: int) -> Frame | None:
    """The frame of points in coordinates (n, r) of all that they span; None if no class varies.

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
    frame = sizes[:, None] * turns.T / roots @ vectors.T  # (3)
    return Frame(frame, vectors * roots @ turns / sizes, KEPT / (rho * level) ** 0.5)
