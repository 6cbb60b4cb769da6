"""Preconditioned conjugate gradients for many right sides of one positive definite system."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def linear_cg(
    apply: Callable[[Matrix], Matrix],
    right: Matrix,
    precondition: Callable[[Matrix], Matrix],
    tol: float,
    max_iter: int,
) -> Matrix:
    """x with ‖right − A x‖ at most ``tol`` of ‖right‖, in the norm of M⁻¹, for each last index.

    ``apply`` multiplies arrays of the shape of ``right`` by A, ``precondition`` by M⁻¹.
    """
    x, left = np.zeros_like(right), right
    image = precondition(left)
    direction = image
    product = _dots(left, image)
    enough = tol * tol * product
    for _ in range(max_iter):
        open_ones = product > enough
        if not open_ones.any():
            break
        applied = apply(direction)
        curvature = _dots(direction, applied)
        length = np.where(open_ones, product, 0.0) / np.where(open_ones, curvature, 1.0)
        x = x + length * direction
        left = left - length * applied
        image = precondition(left)
        before, product = np.where(open_ones, product, 1.0), _dots(left, image)
        direction = image + product / before * direction
    return x


def _dots(a: Matrix, b: Matrix) -> Matrix:
    """Products of the parts of two arrays with the same last index."""
    dots: Matrix = np.einsum("is,is->s", a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
    return dots
