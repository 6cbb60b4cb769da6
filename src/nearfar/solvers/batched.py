"""Textbook methods for many small problems at once; SciPy's take one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any
Matrix = NDArray[np.float64]

HALVINGS = 64  # more than float64 has digits: a root may be much nearer to low than to high


def conjugate_gradients(
    apply: Callable[[Matrix], Matrix],
    right: Matrix,
    precondition: Callable[[Matrix], Matrix],
    tol: float,
    max_iter: int,
) -> Matrix:
    """Solve A x = right for each index of the last axis, to a relative residual of ``tol``.

    Residuals are measured in the norm of M⁻¹. ``apply`` multiplies arrays of the shape of ``right``
    by A, ``precondition`` by M⁻¹; both are positive definite. All right-hand sides share each
    product, which is faster than one by one.
    """
    x, residual = np.zeros_like(right), right
    image = precondition(residual)
    direction = image
    product = _dots(residual, image)
    enough = tol * tol * product
    for _ in range(max_iter):
        unsolved = product > enough
        if not unsolved.any():
            break
        applied = apply(direction)
        curvature = _dots(direction, applied)
        length = np.where(unsolved, product, 0.0) / np.where(unsolved, curvature, 1.0)
        x = x + length * direction
        residual = residual - length * applied
        image = precondition(residual)
        previous, product = np.where(unsolved, product, 1.0), _dots(residual, image)
        direction = image + product / previous * direction
    return x


def _dots(a: Matrix, b: Matrix) -> Matrix:
    """Inner products of two arrays over all axes but the last."""
    dots: Matrix = np.einsum("is,is->s", a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
    return dots


def bisect_decreasing(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The roots (m,) of decreasing functions between low and high, on any device.

    ``function`` gives the values (m,) at the points (m,). For a function that is negative on the
    whole interval the result is low, for one that is positive it is high.
    """
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = function(middle) > 0
        low, high = low + above * (middle - low), high - ~above * (high - middle)
    return 0.5 * (low + high)
