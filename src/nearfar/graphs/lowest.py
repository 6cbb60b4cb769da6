"""The lowest eigenpairs of A x = θ B x by products with A, B and about B⁻¹, on any device.

Locally optimal block preconditioned conjugate gradients: from vectors X, their preconditioned
residuals W and the last steps P, the best of the space [X W P] are the next X. Everything is kept
as multiples of these, so that a step takes one product of W with A and one with B. Directions of
the space that are nearly dependent are left out. [Knyazev, Toward the optimal preconditioned
eigensolver, SIAM J. Sci. Comput. 23, 2001]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array, kernels_for
from nearfar.limits import check_time

Matrix = NDArray[np.float64]
Product = Callable[[Array], Array]

DEPENDENT = 1e-12  # squared share of a direction in a space that counts as none


def lowest_pairs(
    A: Product, B: Product, inverse: Product, start: Array, steps: int, accuracy: float
) -> tuple[Matrix, Array]:
    """Estimates from above of the lowest values (k,), ascending, and vectors (n, k) with XᵀBX = I.

    It ends after ``steps`` steps, or when all residuals are below ``accuracy``. k is at most the
    number of columns of ``start``.
    """
    space = (start, A(start), B(start))
    values, shares = _best(space, start.shape[1])
    X, AX, BX = (_combined(part, shares) for part in space)
    last: tuple[Array, Array, Array] | None = None
    for _ in range(steps):
        check_time()
        count = len(values)
        residual = AX - BX * kernels_for(X).like(values, X)
        if float((residual * residual).sum(0).max()) ** 0.5 <= accuracy:
            break
        W = inverse(residual)
        fresh = (W, A(W), B(W))
        space = tuple(map(_beside, (X, AX, BX), fresh, last or (None,) * 3))
        values, shares = _best(space, count)
        steps_only = shares.copy()
        steps_only[:count] = 0.0
        last = tuple(_combined(part, steps_only) for part in space)
        X, AX, BX = (_combined(part, shares) for part in space)
    return values, X


def _best(space: tuple[Array, Array, Array], count: int) -> tuple[Matrix, Matrix]:
    """The lowest values in a space S with AS and BS, and the shares of its columns, (s, count)."""
    S, AS, BS = space
    gram = kernels_for(S).gram
    a, b = gram(S, AS), gram(S, BS)
    unit = 1 / np.sqrt(np.maximum(b.diagonal(), np.finfo(float).tiny))
    a, b = (0.5 * unit[:, None] * (part + part.T) * unit for part in (a, b))
    sizes, axes = linalg.eigh(b)
    kept = sizes > DEPENDENT * sizes[-1]
    axes = axes[:, kept] / np.sqrt(sizes[kept])
    values, vectors = linalg.eigh(axes.T @ a @ axes)
    return values[:count], unit[:, None] * (axes @ vectors[:, :count])


def _combined(S: Array, shares: Matrix) -> Array:
    return kernels_for(S).apply(S, shares.T)


def _beside(*parts: Array | None) -> Array:
    """Arrays (n, k) side by side."""
    present = [part.T for part in parts if part is not None]
    return kernels_for(present[0]).concatenate(present).T
