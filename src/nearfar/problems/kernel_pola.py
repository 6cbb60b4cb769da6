"""The pseudo-metric online learning algorithm in the feature space of a kernel.

With k(x, x') = φ(x)·φ(x'), a pair of points u and v is the vector δ = φ(u) − φ(v), and POLA needs
only inner products of such vectors. Its metric lies in the span of the pairs δ₁, …, δᵣ that had a
loss and were not in the span of earlier ones:

(1) products     δᵢ·δⱼ = k(uᵢ, uⱼ) − k(uᵢ, vⱼ) − k(vᵢ, uⱼ) + k(vᵢ, vⱼ)
(2) basis        G = L Lᵀ, lower triangular, for the matrix G of their products: the vectors
                 L⁻¹ (δ₁, …, δᵣ)ᵀ are orthonormal
(3) coordinates  c = L⁻¹ g of a pair δ with g = (δ₁·δ, …, δᵣ·δ)
(4) growth       ρ² = δ·δ − ‖c‖² is what the span lacks; if it is not zero, δ becomes δᵣ₊₁, (cᵀ, ρ)
                 the next row of L, and its own coordinates
(5) metric       M = Σ Nᵢⱼ bᵢ bⱼᵀ with the basis bᵢ; N is what POLA (`nearfar.problems.pola`) learns
                 in these coordinates, with a row and a column of zeros more when they grow
(6) map          C = F L⁻¹ (I, −I) on the kernel values to (u₁, …, uᵣ, v₁, …, vᵣ), N = FᵀF

This is POLA in feature space, up to rounding: M never leaves the span, so pairs without a loss need
no coordinates beyond (3). Once the basis may not grow any more, M is projected onto the metrics of
its span after (4) of POLA: xxᵀ becomes ccᵀ, while ‖x‖² stays δ·δ. This is also a projection onto a
convex set, so the bound (6) of POLA holds for all M* of this span.

[S04] Shalev-Shwartz, Singer & Ng, Online and batch learning of pseudo-metrics, ICML 2004, speaks of
kernels by a dual form of the matrix; (2) to (6) are ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for

Matrix = NDArray[np.float64]
Ends = tuple[Array, Array]
"""The points u (m, d) and v (m, d) of m pairs."""


def products(kernel: Callable[[Array, Array], Array], pairs: Ends, others: Ends) -> Matrix:
    """(1) between pairs (m) and others (r): (m, r), on the host."""
    kernels, m, r = kernels_for(pairs[0]), len(pairs[0]), len(others[0])
    values = kernel(kernels.concatenate([*pairs]), kernels.concatenate([*others]))
    by_end = kernels.to_host(values).reshape(2, m, 2, r)
    if not np.isfinite(by_end).all():
        raise InvalidInputError(
            "kernel values must be finite; some are NaN or infinite. Scale your data, or take"
            " smaller parameters of the kernel."
        )
    difference: Matrix = by_end[0, :, 0] - by_end[0, :, 1] - by_end[1, :, 0] + by_end[1, :, 1]
    return difference


def coefficients(F: Matrix, L: Matrix) -> Matrix:
    """(6) C (rows, 2r) of a map F (rows, r) of the coordinates."""
    half = linalg.solve_triangular(L, F.T, trans="T", lower=True).T
    return np.hstack([half, -half])
