"""What a worker does for MCML and NCA: sums over the rows of one block, or of a pair of blocks.

All functions here are tasks: pure functions of their arguments. Rows are relative to a centre, and
in float64. Equation numbers are those of `nearfar.problems.soft_neighbors_blocks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Sized
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.kernels.soft_pairs import (
    Side,
    WeightedSide,
    joined_totals,
    soft_products,
    soft_totals,
)

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Labelled(Sized):
    """What a block must know of its rows beside their features."""

    codes: Index  # (m,) class numbers, ascending
    masses: Matrix | None  # (m,) mᵢ; None if all are 1
    counted: Matrix  # (m,) mᵢ, or 0 for a row alone in its class
    shares: Matrix  # (m,) of the row in the mean of its class
    scales: Matrix  # (m,) of the row in the pull P


@dataclass(frozen=True)
class Ends(Sized):
    """What the second visit needs of the first."""

    logs: Matrix  # (m,) log Zᵢ
    shares: Matrix  # (m,) pᵢ
    length: float  # Σᵢ mᵢ² ‖zᵢ‖⁴, for the rounding error


def centred_rows(block: Array, centre: Matrix) -> Array:
    """Rows in float64, relative to the centre."""
    kernels = kernels_for(block)
    points = kernels.double(block)
    return points - kernels.like(centre, points)


def _mapped(points: Array, F: Matrix, single: bool) -> Array:
    """Images of points in float64."""
    kernels = kernels_for(points)
    images = kernels.apply(points, F)
    return kernels.single(images) if single else images


def differing(block: Array, first: Array) -> Index:
    """How many rows differ from the first one in each feature."""
    return np.asarray(to_host((block != kernels_for(block).like(first, block)).sum(0)))


def class_sums(block: Array, labels: Labelled, centre: Matrix) -> Matrix:
    """Sums of rows times their shares in the mean, of the classes from the first to the last."""
    points, codes = centred_rows(block, centre), labels.codes
    kernels = kernels_for(points)
    cuts = np.searchsorted(codes, np.arange(codes[0], codes[-1] + 2)).tolist()
    weighted = points * kernels.like(labels.shares, points)[:, None]
    return np.stack([to_host(weighted[begin:end].sum(0)) for begin, end in pairwise(cuts)])


def squares(block: Array, labels: Labelled, means: Matrix, centre: Matrix) -> Matrix:
    """Sums of squares of each feature."""
    del labels, means
    points = centred_rows(block, centre)
    return to_host((points * points).sum(0))


def _within(points: Array, labels: Labelled, means: Matrix) -> Array:
    """Points minus the mean of their class, scaled so that their Gram matrix is the pull P."""
    kernels = kernels_for(points)
    centred = points - kernels.like(means[labels.codes - labels.codes[0]], points)
    return centred * kernels.like(labels.scales, points)[:, None]


def pull_squares(block: Array, labels: Labelled, means: Matrix, centre: Matrix, F: Matrix) -> float:
    """⟨S(p₀), FᵀF⟩ of the rows of a block."""
    images = kernels_for(block).apply(_within(centred_rows(block, centre), labels, means), F)
    return float((images * images).sum())


def moments(
    block: Array, labels: Labelled, means: Matrix, centre: Matrix, basis: Matrix
) -> tuple[Matrix, Matrix, Matrix]:
    """Pull, Gram matrix and sum of the rows, in the coordinates of a basis."""
    kernels, points = kernels_for(block), centred_rows(block, centre)
    within = kernels.apply(_within(points, labels, means), basis.T)
    U = kernels.apply(points, basis.T)
    return kernels.gram(within, within), kernels.gram(U, U), to_host(U.sum(0))


def largest_square(block: Array, centre: Matrix, F: Matrix) -> float:
    """The largest squared length of an image."""
    images = _mapped(centred_rows(block, centre), F, single=False)
    return float((images * images).sum(1).max())


def pair_totals(
    first: Array,
    second: Array,
    same: bool,
    labels: Labelled,
    other: Labelled,
    centre: Matrix,
    F: Matrix,
    single: bool,
    differences: bool,
) -> tuple[Matrix, Matrix | None]:
    """(1) of two blocks."""

    def side(block: Array, of: Labelled) -> Side:
        return Side(_mapped(centred_rows(block, centre), F, single), of.codes, of.masses)

    return soft_totals(side(first, labels), None if same else side(second, other), differences)


def joined(found: list[tuple[Matrix, ...]], ends: list[int]) -> tuple[Matrix]:
    """Totals of a block over those that it has met, from those of pairs, of which it is one end."""
    return (joined_totals(*(part[end] for part, end in zip(found, ends, strict=True))),)


def ends_of(
    block: Array,
    labels: Labelled,
    found: list[tuple[Matrix, ...]],
    ends: list[int],
    centre: Matrix,
    F: Matrix,
) -> Ends:
    """log Zᵢ and pᵢ of the rows of a block, from their totals over all blocks."""
    images = _mapped(centred_rows(block, centre), F, single=False)
    squares = to_host((images * images).sum(1))
    totals = joined(found, ends)[0]
    logs, shares = totals[0] + np.log(totals[1]), totals[2] / totals[1]
    return Ends(logs, shares, float(((labels.counted * squares) ** 2).sum()))


def pair_spread(
    first: Array,
    second: Array,
    same: bool,
    labels: Labelled,
    other: Labelled,
    ends: Ends,
    other_ends: Ends,
    centre: Matrix,
    F: Matrix,
    basis: Matrix,
    components: Matrix | None,
    single: bool,
    own: bool,
) -> Matrix:
    """(3) of two blocks; with ``components`` of a map of few rows (4)."""
    wide = components is None

    def side(block: Array, of: Labelled, at: Ends) -> tuple[Array, WeightedSide]:
        points = centred_rows(block, centre)
        U = _mapped(points, basis.T, single)
        Y = U if components is None else _mapped(points, components, single)
        inside = outside = of.counted
        if own:
            inside, outside = of.counted * (1 - at.shares), -of.counted * at.shares
        images = _mapped(points, F, single)
        return U, WeightedSide(images, of.codes, of.masses, Y, at.logs, inside, outside)

    U, near = side(first, labels, ends)
    kernels = kernels_for(U)

    def flow(of: WeightedSide, degrees: Matrix, product: Array | None) -> Array:
        found = kernels.like(degrees, of.Y)[:, None] * of.Y
        return found if product is None else found - (2 if wide else 1) * product

    if same:
        degrees, product, *_ = soft_products(near, None, both=not wide)
        found = kernels.gram(U, flow(near, degrees, product))
    else:
        V, far = side(second, other, other_ends)
        degrees, product, other_degrees, back = soft_products(near, far, both=not wide)
        found = kernels.gram(U, flow(near, degrees, product))
        found = found + kernels.gram(V, flow(far, other_degrees, back))
    return np.asarray(found if wide else found.T)
