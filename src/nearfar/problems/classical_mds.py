"""Classical scaling: the embedding with inner products nearest to those of the input.

(1) G = −½ H D² H ,   H = I − 11ᵀ/n ,   D² the squared distances (n, n), entry by entry
(2) S'(Y) = ‖G − Y Yᵀ‖²_F                                      [weinberger2007, (3.3) and (3.4)]
(3) Y = (√λ₁ u₁, …, √λ_r u_r)   for the eigenvalues λ₁ >= λ₂ >= … and eigenvectors of G
(4) S'(Y) = Σ λᵢ²   over all other eigenvalues
(5) y = ½ Λ⁻¹ Yᵀ (diag G − d²)   for a new point with squared distances d² to the others [gower1968]

Negative eigenvalues count as 0 in (3) and stay in (4). For points, G = X Xᵀ with centred X, and (3)
are their principal components.

[gower1968] Gower, Adding a point to vector diagrams in multivariate analysis, Biometrika 55, 1968.
[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from nearfar.kernels import Array, gram_kernels_for, is_torch, kernels_for
from nearfar.limits import check_time
from nearfar.linalg import NULL_TOLERANCE, signed

Floats = NDArray[np.float64]

LARGE = 1000  # from this number of points on, a few axes are found by iteration on the host


def gram_of_distances(D: Array) -> Array:
    """(1)"""
    check_time()
    G = D * D
    G -= G.mean(0)
    check_time()
    G -= G.mean(1)[:, None]
    return -0.25 * (G + G.T)


def axes(G: Array, r: int) -> tuple[Floats, Array, Array]:
    """All eigenvalues of G, largest first, on the host; the first r eigenvectors, and their √λ.

    √λ is 0 if λ is not positive, up to rounding. The largest entry of a vector is positive. Time
    O(n³).
    """
    values, vectors = gram_kernels_for(G).eigh(G)
    kernels = kernels_for(G)
    spectrum: Floats = np.asarray(kernels.to_host(values), dtype=np.float64)[::-1].copy()
    return spectrum, *_signed_axes(spectrum, kernels.to_host(vectors[:, -r:]), r, G)


def leading_axes(G: Array, r: int) -> tuple[Array, Array]:
    """The same without the other eigenvalues: on the host in time O(n²) if n is large."""
    if is_torch(G) or len(G) < LARGE:
        return axes(G, r)[1:]
    start = np.random.default_rng(0).normal(size=len(G))  # the answer does not depend on it

    def product(x: Floats) -> Floats:
        check_time()
        found: Floats = G @ x
        return found

    operator = LinearOperator(G.shape, matvec=product, dtype=G.dtype)
    values, vectors = eigsh(operator, r, which="LA", v0=start)
    return _signed_axes(values[::-1], vectors, r, G)


def _signed_axes(spectrum: Floats, vectors: Array, r: int, G: Array) -> tuple[Array, Array]:
    """Vectors (n, r) of ascending eigenvalues in descending order with fixed signs, and √λ."""
    first = signed(np.asarray(vectors, dtype=np.float64).T[::-1]).T
    rounding = NULL_TOLERANCE * float(np.abs(spectrum).max(initial=0.0))
    roots = np.sqrt(np.where(spectrum[:r] > rounding, spectrum[:r], 0.0))
    kernels = kernels_for(G)
    return kernels.like(first, G), kernels.like(roots, G)


def strain(spectrum: Floats, roots: Floats) -> float:
    """(4)"""
    left = spectrum.copy()
    left[: len(roots)] -= roots**2
    return float(left @ left)
