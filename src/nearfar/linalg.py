"""Dense linear algebra of small symmetric matrices, on the host in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Matrix = NDArray[np.float64]

NULL_TOLERANCE = 1e-10  # of the largest eigenvalue; above the rounding of a sum over many rows


def symmetric(A: Matrix) -> Matrix:
    """½(A + Aᵀ)."""
    return 0.5 * (A + A.T)


def canonical_factor(L: Matrix) -> Matrix:
    """The factor of LᵀL with orthogonal rows, longest first, each with a positive largest entry.

    It gives the same distances as L and does not depend on a rotation of L's rows.
    """
    try:
        _, lengths, directions = linalg.svd(L, full_matrices=False)
    except linalg.LinAlgError:  # LAPACK's divide and conquer fails on some multiples of I
        _, lengths, directions = linalg.svd(L, full_matrices=False, lapack_driver="gesvd")
    largest = np.abs(directions).argmax(axis=1)
    signs = np.where(directions[np.arange(len(directions)), largest] < 0, -1.0, 1.0)
    factor: Matrix = (lengths * signs)[:, None] * directions
    return factor


def range_and_null(P: Matrix) -> tuple[Matrix, Matrix]:
    """For P ⪰ 0 a basis R of its range with RᵀPR = I, and an orthonormal one of its null space."""
    values, vectors = linalg.eigh(P)
    kept = values > null_tolerance(values)
    return vectors[:, kept] / np.sqrt(values[kept]), vectors[:, ~kept]


def largest_scale(basis: Matrix, S: Matrix) -> tuple[float, Matrix, Matrix]:
    """The largest θ <= 1 with P − θS ⪰ 0, for P ⪰ 0 whose null space S annihilates.

    P is given by a ``basis`` R of its range with RᵀPR = I. Also returns the eigenvalues λ
    (descending) and vectors b of S b = λ P b on the range of P, scaled to bᵀPb = 1;
    θ = 1 / max(1, λ₁).
    """
    ratios, rotation = linalg.eigh(symmetric(basis.T @ S @ basis))
    top = ratios[-1] if len(ratios) else 0.0
    return float(1.0 / max(1.0, top)), ratios[::-1], (basis @ rotation)[:, ::-1]


def null_tolerance(values: Matrix) -> float:
    """The size below which eigenvalues of a positive semidefinite matrix count as zero."""
    return NULL_TOLERANCE * float(values.max(initial=0.0))
