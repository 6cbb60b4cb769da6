"""Coordinates in which the pull of near pairs is near the identity.

With points X (centred), near pairs e of weights w_e, C_e = (x_h − x_t)(x_h − x_t)ᵀ and a ridge ρ:

(1) P = Σ_e w_e C_e + ρI      the pull of the pairs
(2) Q = 2 (Σ w) Cov(X)        what it would be if the pairs joined random points
(3) U = X B                   with Bᵀ P B ≈ I, or Bᵀ(P + FLOOR·Q)B = I where P is near singular
(4) X = U Gᵀ                  on the span of the data, G the dual basis: BᵀG = I
(5) B = G (GᵀG)⁻¹             the B of (4) of least norm, for a ridge where the data do not span all
                              features: else every metric has some trace beyond the span

A descent in these coordinates is well conditioned and does not depend on the units of features.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.kernels import Array
from nearfar.linalg import eigh, symmetric

Matrix = NDArray[np.float64]

FLOOR = 1e-4  # share of the overall scatter that steadies the whitening where P is near singular
RANK_TOLERANCE = 1e-13  # variance, relative to the largest, below which a direction is dropped
FEATURE_TOLERANCE = 1e-12  # size of a feature, relative to the median one, below which it is noise
ROUNDINGS = 16  # of the largest entry of a feature, up to which others are rounding errors
PASSES = 6  # at most; two where the data are not extreme
SAMPLE_ROWS = 10_000  # rows that are enough for a median


def whitened(
    kernels: ModuleType,
    points: Array,
    pull: Callable[[Array], Matrix],
    weight: float,
    ridge: float = 0.0,
) -> tuple[Matrix, Matrix, Array, Matrix, Matrix]:
    """Basis, dual basis, U = points · basis, and P and Q in its coordinates, P being near I.

    ``pull`` gives the first term of P for points in some coordinates, and ``weight`` is the sum of
    its weights. Where the lengths of pairs differ so much that one eigendecomposition cannot
    resolve P (an outlier does that), it is repeated in the coordinates found so far.
    """
    basis, dual = _row_space(kernels, points)
    if ridge and basis.shape[1] < len(basis):  # else ρI would count what no point can see
        basis = _inside(dual)
    for remaining in reversed(range(PASSES)):
        U = kernels.apply(points, basis.T)
        P = symmetric(pull(U)) + ridge * (basis.T @ basis)
        share = 2 * weight / len(points)
        total = kernels.to_host(U.sum(0))
        Q = share * symmetric(kernels.gram(U, U) - np.outer(total, total) / len(points))
        values, vectors = eigh(P)
        spread = ((Q @ vectors) * vectors).sum(axis=0)
        squares = np.maximum(values, 0) + FLOOR * np.maximum(spread, 0)
        lengths = np.sqrt(np.maximum(squares, np.finfo(float).eps * squares.max(initial=0)))
        if not remaining or (lengths.min(initial=1.0) > 0.5 and lengths.max(initial=1.0) < 2):
            break
        basis, dual = basis @ (vectors / lengths), dual @ (vectors * lengths)
    return basis, dual, U, P, Q


def _row_space(kernels: ModuleType, points: Array) -> tuple[Matrix, Matrix]:
    """A basis of the span of the points, and its dual.

    Features are brought to a robust unit scale and rows to unit length first, so that neither a
    feature in other units nor an outlier hides the rest. The scale is the median, or the deviation
    where the median is a rounding error beside the largest entry: most entries may be that, or
    zero, in a feature that tells a few points apart. Directions in which the rows then vary by
    less than RANK_TOLERANCE (a variance, relative to the largest) are rounding errors, and so are
    features of less than FEATURE_TOLERANCE of the usual size.
    """
    n, d = points.shape
    sample = np.abs(kernels.to_host(points[:: -(-n // SAMPLE_ROWS)]))
    scale = np.median(sample, axis=0)
    deviation = np.sqrt(kernels.to_host((points * points).sum(0)) / n)
    dust = ROUNDINGS * np.finfo(float).eps * n**0.5 * deviation  # of the largest entry, at least
    scale = np.where(scale > dust, scale, np.where(deviation > 0, deviation, 1.0))
    usual = np.median(scale[deviation > 0]) if deviation.any() else 0.0
    known = scale > FEATURE_TOLERANCE * usual
    unit = points * kernels.like(known / scale, points)
    norms = (unit * unit).sum(1) ** 0.5
    unit = unit / (norms + (norms == 0))[:, None]
    if d <= n:
        values, vectors = eigh(symmetric(kernels.gram(unit, unit)))
        kept = values > RANK_TOLERANCE * values.max(initial=0.0)
        span = vectors[:, kept]
    else:  # the span is that of at most n rows: eigenvectors of unitᵀunit from those of unit unitᵀ
        values, vectors = eigh(symmetric(kernels.gram(unit.T, unit.T)))
        kept = values > RANK_TOLERANCE * values.max(initial=0.0)
        lift = vectors[:, kept] / np.sqrt(values[kept])
        span = kernels.gram(unit, kernels.like(lift, unit))
    return span / scale[:, None], span * scale[:, None]


def _inside(dual: Matrix) -> Matrix:
    """The basis (5) of a dual basis."""
    Q, R = linalg.qr(dual, mode="economic")
    inside: Matrix = linalg.solve_triangular(R, Q.T).T
    return inside
