"""Coordinates in which the pull of near pairs is near the identity.

With points X (centred), near pairs e of weights w_e, C_e = (x_h − x_t)(x_h − x_t)ᵀ and a ridge ρ:

(1) P = Σ_e w_e C_e + ρI      the pull of the pairs
(2) Q = 2 (Σ w) Cov(X)        what it would be if the pairs joined random points
(3) U = X B                   with Bᵀ P B ≈ I, or Bᵀ(P + FLOOR·Q)B = I where P is near singular
(4) X = U Gᵀ                  on the span of the data, G the dual basis: BᵀG = I
(5) B = V S⁻¹, G = V S        with VᵀV = I and S diagonal, for a ridge: no metric has then a trace
                              beyond the span of the data, and BᵀB is diagonal

A descent in these coordinates is well conditioned and does not depend on the units of features.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, row_blocks
from nearfar.linalg import (
    canonical_factor,
    canonical_rotation,
    eigh,
    is_identity,
    row_signs,
    signed,
    symmetric,
)

Matrix = NDArray[np.float64]

FLOOR = 1e-4  # share of the overall scatter that stabilises the whitening if P is near singular
RANK_TOLERANCE = 1e-13  # variance, relative to the largest, below which a direction is dropped
ORTHOGONAL = 1e-9  # cosine between two features up to which they are principal components
STEADY = 1e-4  # least eigenvalue of P, relative to the largest, that one factor resolves well
LOST = 1e-3  # share of a point's length that the directions of all points may not leave out
ROUNDINGS = 16  # entries up to this many roundings of the largest entry are rounding errors
ROW_TOLERANCE = 1e-12  # rows shorter than this on whitened points, relative to the longest, drop
PASSES = 6  # largest number; two suffice unless the data are extreme
RIDGE_PASSES = 40  # the same with a ridge in other units: a pass resolves some 16 powers of ten
SAMPLE_ROWS = 10_000  # rows that are enough for a median
FEW_POINTS = 100  # points that mostly differ in all features


def whitened(
    kernels: ModuleType,
    points: Array,
    pull: Callable[[Array], Matrix] | Array,
    weight: float,
    ridge: float = 0.0,
) -> tuple[Matrix, Matrix, Array, Matrix, Matrix]:
    """Basis, dual basis, U = points · basis, and P and Q in its coordinates, P being near I.

    ``pull`` gives the first term of P for points in some coordinates, and ``weight`` is the sum of
    its weights. Or ``pull`` holds rows (·, d) whose Gram matrix that term is: digits of differences
    that are much shorter than the points are not lost in U, nor are their directions. Where the
    lengths of pairs differ so much that one eigendecomposition cannot resolve P (an outlier does
    that), it is repeated in the coordinates found so far.
    """
    if ridge and callable(pull):
        found = _whitened_components(kernels, points, pull, weight, ridge)
        if found is not None:
            return found
    basis, dual = _row_space(kernels, points, None if callable(pull) else pull)
    U = points

    def measured(basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        nonlocal U
        U = kernels.apply(points, basis.T)
        P = pull(U) if callable(pull) else gram_under(kernels, pull, basis)
        return P, kernels.gram(U, U), kernels.to_host(U.sum(0))

    basis, dual, P, Q = resolved(basis, dual, measured, len(points), weight, ridge)
    return basis, dual, U, P, Q


def resolved(
    basis: Matrix,
    dual: Matrix,
    measured: Callable[[Matrix], tuple[Matrix, Matrix, Matrix]],
    n: int,
    weight: float,
    ridge: float,
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Basis, dual basis, P and Q of `whitened`, from any basis of the span of n points.

    ``measured`` gives the first term of P, the Gram matrix and the sum of the points in the
    coordinates of a basis.
    """
    if ridge and basis.size:
        # A ridge must not add costs outside the span of the points, nor vanish next to features in
        # larger units.
        basis, dual = _orthogonal(dual, ridge**0.5)
    for remaining in reversed(range(RIDGE_PASSES if ridge else PASSES)):
        pull, gram, total = measured(basis)
        P = symmetric(pull) + ridge * (basis.T @ basis)
        Q = random_pull(gram, total, n, weight)
        values, vectors = eigh(P)
        spread = ((Q @ vectors) * vectors).sum(axis=0)
        squares = np.maximum(values, 0) + FLOOR * np.maximum(spread, 0)
        lengths = np.sqrt(np.maximum(squares, np.finfo(float).eps * squares.max(initial=0)))
        if not remaining or (lengths.min(initial=1.0) > 0.5 and lengths.max(initial=1.0) < 2):
            break
        basis, dual = basis @ (vectors / lengths), dual @ (vectors * lengths)
    return basis, dual, P, Q


def _whitened_components(
    kernels: ModuleType,
    points: Array,
    pull: Callable[[Array], Matrix],
    weight: float,
    ridge: float,
) -> tuple[Matrix, Matrix, Array, Matrix, Matrix] | None:
    """`whitened` for principal components, whose features are orthogonal, by one factor P = CCᵀ.

    They span what they are given in, so that no direction has to be found, and B = C⁻ᵀ, G = C make
    P the identity. None for other points, and where the ridge is too small for that.
    """
    n, d = points.shape
    if n <= d:
        return None
    scatter = kernels.gram(points, points)
    lengths = np.sqrt(np.diag(scatter))
    if not lengths.min(initial=np.inf) > 0:
        return None
    cosines = scatter / lengths / lengths[:, None]
    if np.abs(cosines - np.eye(d)).max() > ORTHOGONAL:
        return None
    P = symmetric(pull(points)) + ridge * np.eye(d)
    if ridge < STEADY * np.abs(P).sum(axis=0).max():
        return None
    C = linalg.cholesky(P, lower=True)
    basis = linalg.solve_triangular(C, np.eye(d), lower=True).T
    U = kernels.apply(points, basis.T)
    Q = random_pull(kernels.gram(U, U), kernels.to_host(U.sum(0)), n, weight)
    return basis, C, U, np.eye(d), Q


def random_pull(gram: Matrix, total: Matrix, n: int, weight: float) -> Matrix:
    """Q of (2), from the Gram matrix and the sum of n points."""
    return 2 * weight / n * symmetric(gram - np.outer(total, total) / n)


def gram_under(kernels: ModuleType, rows: Array, basis: Matrix) -> Matrix:
    """The Gram matrix of rows in the coordinates of a basis."""
    image = kernels.apply(rows, basis.T)
    gram: Matrix = kernels.gram(image, image)
    return gram


def _row_space(
    kernels: ModuleType, points: Array, more: Array | None = None
) -> tuple[Matrix, Matrix]:
    """A basis of the span of the points and ``more`` rows, and its dual.

    Features are scaled to robust unit scale and rows to unit length, so that neither a feature in
    other units nor an outlier hides the rest. The scale is the median, or the standard deviation
    if the median is a rounding error of the largest entry: a feature that separates a few points
    may be zero, or rounding, for most others. Directions in which the rows then have a variance
    below RANK_TOLERANCE, relative to the largest, are rounding errors. Constant features are zero
    in the basis.

    Where a feature is noise for most points, and its median that of the noise, a few points may be
    other multiples of other features, and lose these. Then the directions of what they lose, in
    units of the standard deviations, are added.
    """
    n = len(points)
    sample = np.abs(kernels.to_host(points[:: -(-n // SAMPLE_ROWS)]))
    squares = sum(kernels.to_host((part * part).sum(0)) for part in row_blocks(points))
    deviation = np.sqrt(squares / n)
    scale, varies = feature_scales(sample, deviation, n)
    blocks = [*row_blocks(points), *([] if more is None else row_blocks(more))]
    span = np.where(
        varies[:, None], _span(kernels, blocks, kernels.like(varies / scale, points)), 0.0
    )
    basis, dual = span / scale[:, None], span * scale[:, None]
    n_rows = sum(int((part != 0).any(1).sum()) for part in blocks)
    if span.shape[1] == min(int(varies.sum()), n_rows):
        return basis, dual
    inverse = kernels.like(varies / np.where(varies, deviation, 1.0), points)
    lost = [_lost(kernels, part, basis, dual, inverse) for part in blocks]
    if not sum(map(len, lost)):
        return basis, dual
    found = np.where(varies[:, None], _span(kernels, lost), 0.0)
    read, added = found / np.where(varies, deviation, 1.0)[:, None], found * deviation[:, None]
    return np.hstack([basis, read - basis @ (dual.T @ read)]), np.hstack([dual, added])


def feature_scales(sample: Matrix, deviation: Matrix, n: int) -> tuple[Matrix, NDArray[np.bool_]]:
    """The scale of each feature, and whether it varies: from sizes of a sample and deviations."""
    scale = np.median(sample, axis=0)
    dust = ROUNDINGS * np.finfo(float).eps * n**0.5 * deviation  # of the largest entry, at least
    scale = np.where(scale > dust, scale, np.where(deviation > 0, deviation, 1.0))
    return scale, deviation > 0


def _lost(kernels: ModuleType, points: Array, basis: Matrix, dual: Matrix, inverse: Array) -> Array:
    """What points lose outside the span of a basis, in other units, where that is much of them."""
    lost = (points - kernels.apply(kernels.apply(points, basis.T), dual)) * inverse
    whole = ((points * inverse) ** 2).sum(1)
    return lost[kernels.flatnonzero((lost * lost).sum(1) > LOST**2 * whole)]


def _span(kernels: ModuleType, blocks: list[Array], units: Array | float = 1.0) -> Matrix:
    """Orthonormal directions (d, k) of rows in units that count equally, whatever their length."""
    if blocks[0].shape[1] <= sum(map(len, blocks)):
        rows = (unit_rows(part * units) for part in blocks)
        return span_of_gram(sum(kernels.gram(unit, unit) for unit in rows))
    # The span is that of few rows: eigenvectors of unitᵀunit from those of unit unitᵀ.
    unit = unit_rows(kernels.concatenate(blocks) * units)
    values, vectors = eigh(symmetric(kernels.gram(unit.T, unit.T)))
    kept = values > RANK_TOLERANCE * values.max(initial=0.0)
    lift = vectors[:, kept] / np.sqrt(values[kept])
    span: Matrix = kernels.gram(unit, kernels.like(lift, unit))
    return span


def unit_rows(rows: Array) -> Array:
    """Rows of length 1, and those of zeros as they are."""
    norms = (rows * rows).sum(1) ** 0.5
    return rows / (norms + (norms == 0))[:, None]


def span_of_gram(gram: Matrix) -> Matrix:
    """Orthonormal directions (d, k) of rows with this Gram matrix (d, d)."""
    values, vectors = eigh(symmetric(gram))
    return np.asarray(vectors[:, values > RANK_TOLERANCE * values.max(initial=0.0)])


def _orthogonal(dual: Matrix, least: float) -> tuple[Matrix, Matrix]:
    """The basis and dual basis of (5), of the span of another dual basis.

    Features in the largest units come first, so that rounding in their rows does not spoil others,
    and each direction is in units of the points along it, or in the ``least`` unit: BᵀB is
    diagonal, however much units differ, and ρBᵀB stays in range for ``least`` = √ρ.
    """
    rows = np.flatnonzero(dual.any(axis=1))
    rows = rows[np.argsort(-np.abs(dual[rows]).max(axis=1), kind="stable")]
    Q, R, _ = linalg.qr(dual[rows], mode="economic", pivoting=True)
    lengths = np.abs(np.diag(R))
    known = lengths > 0
    directions = np.zeros((len(dual), int(known.sum())))
    directions[rows] = Q[:, known]
    units = np.maximum(lengths[known], least)
    return directions / units, directions * units


def varying(kernels: ModuleType, points: Array) -> NDArray[np.bool_]:
    """Which features differ between points; mostly all do, which few points show."""
    for some in (points[:FEW_POINTS], points):
        found: NDArray[np.bool_] = kernels.to_host((some != points[:1]).any(0))
        if found.all():
            break
    return found


def returned_map(components: Matrix, L: Matrix, points: Array) -> Matrix:
    """The map on the features that a fit returns for a factor L of whitened points, in float64.

    Its rows are orthogonal, longest first, and rounded to the floating type of the points. Rows
    that are negligible on whitened points are dropped, except one: whitened points show the effect
    of a row on the data in any units of the features. ``components`` are L on the features.
    """
    found, _ = rotated_map(components, L, points)
    kept = np.abs(found).max(axis=1) > 0
    kept[:1] = True
    return np.asarray(found[kept])


def floored_map(above: Matrix, floor: float, prior: Matrix, points: Array) -> Matrix:
    """As `returned_map`, of the metric Wᵀ(φI + AᵀA)W with A = ``above`` and W = ``prior``."""
    lengths, directions = _row_frame(above)
    found = np.sqrt(floor + lengths**2)[:, None] * directions
    if is_identity(prior):  # the rows are orthogonal, longest first
        return rounded_like(signed(found), points)
    rows = canonical_factor(found @ prior)
    return rounded_like(rows[np.argsort(-np.linalg.norm(rows, axis=1), kind="stable")], points)


def _row_frame(A: Matrix) -> tuple[Matrix, Matrix]:
    """All d singular values of A (r, d), zeros included, and an orthonormal row for each.

    Of few rows the directions of the zeros are the rest of a QR decomposition: O(d² r).
    """
    r, d = A.shape
    if 2 * r > d:
        _, lengths, directions = linalg.svd(A, full_matrices=True)
        return np.concatenate([lengths, np.zeros(d - len(lengths))]), directions
    Q, R = linalg.qr(A.T)
    _, lengths, rotation = linalg.svd(R[:r].T)
    return np.concatenate([lengths, np.zeros(d - r)]), np.vstack(
        [rotation @ Q[:, :r].T, Q[:, r:].T]
    )


def map_above(components: Matrix, diagonal: Matrix, points: Array) -> Matrix:
    """The map of diag(φ) + AᵀA with A = ``components``, where φ is one number or zero, likewise."""
    live = diagonal > 0
    return floored_map(components[:, live], diagonal.max(), np.eye(len(diagonal))[live], points)


def rotated_map(components: Matrix, L: Matrix, points: Array) -> tuple[Matrix, Matrix]:
    """The map of `returned_map` with zeros in place of dropped rows, and its rotation.

    Before rounding, it is the rotation times the ``components``.
    """
    if len(L) > L.shape[1]:  # no more rows than directions, whatever rounding says of their units
        turn = linalg.qr(L, mode="economic")[0].T
        found, rotation = rotated_map(turn @ components, turn @ L, points)
        return found, rotation @ turn
    rotation = canonical_rotation(components)
    rotation *= row_signs(rotation @ components)
    lengths = np.linalg.norm(rotation @ L, axis=1)[:, None]
    kept = lengths > ROW_TOLERANCE * lengths.max(initial=0.0)
    return rounded_like(kept * (rotation @ components), points), rotation


def returned_weights(weights: Matrix, L: Matrix, points: Array) -> Matrix:
    """As `returned_map` for a diagonal metric: weights of the features, and L of whitened ones."""
    order = np.argsort(-weights, kind="stable")
    sizes = np.abs(L[order])
    kept = sizes > ROW_TOLERANCE * sizes.max(initial=0.0)
    kept[:1] = True
    return rounded_like(np.diag(weights)[order[kept]], points)


def rounded_like(components: Matrix, points: Array) -> Matrix:
    """A map rounded to the floating type of the points, as a fit returns it, in float64."""
    if not str(points.dtype).endswith("float32"):
        return components
    limit = np.finfo(np.float32).max
    if np.abs(components).max(initial=0.0) > limit:
        raise InvalidInputError(
            f"the learned map has entries above {limit:.0e}, the largest number of float32, because"
            " X varies by very little. Scale X up, or pass it as float64."
        )
    return components.astype(np.float32).astype(np.float64)
