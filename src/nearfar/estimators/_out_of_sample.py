"""Places of new points in an embedding, from those of their neighbours [thesis, 3.1.10]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import ConvergenceWarning, InvalidInputError, warn
from nearfar.kernels import Array, kernels_for
from nearfar.kernels.batched import in_blocks
from nearfar.problems.out_of_sample import (
    LocalStress,
    Neighborhoods,
    OutOfSampleProgram,
    reconstruction_weights,
)
from nearfar.solvers.batched import bisect_decreasing
from nearfar.solvers.cone_deviations import least_deviations

Solve = Callable[[Array, Array], tuple[Array, Array]]

METHODS = ("sdp", "sdp+cg", "lle")

TOLERANCE = 1e-9  # gap of the program, in units of the mean squared distance
TRUSTED = 1e-6  # gap that is worth no warning
SAME = 1e-28  # variance of neighbours, relative to their squares, that is a rounding error


def placed(
    embedding: Array,
    near: Any,
    squares: Any,
    method: str = "sdp",
    points: Array | None = None,
) -> Array:
    """Places (m, r) of new points, in float64 where the embedding is.

    Parameters
    ----------
    embedding : array or tensor of shape (n, r)
        The places of the training points.
    near : array of int, of shape (m, k)
        The training points that are nearest to each new point; k is at least 1.
    squares : array of shape (m, k)
        The squared distances to them.
    method : {"sdp", "sdp+cg", "lle"}, default="sdp"
        The semidefinite program; the place of least stress, which the thesis seeks by a descent
        from there; or the weights that reconstruct the new point from its neighbours.
    points : array or tensor of shape (n, d) or None, default=None
        The training points, which "lle" needs.

    Notes
    -----
    All points are placed at once, in blocks. Takes O(k r² + r³) time for each step of "sdp", about
    ten for a point, O(k r² + r³) for "sdp+cg", and O(k³) for "lle" beside the k² distances.
    """
    if method == "lle" and points is None:
        raise InvalidInputError(
            "method='lle' weighs neighbours by their points, and the fit was on distances. Use"
            " method='sdp', or fit on points."
        )
    kernels = kernels_for(embedding)
    E = kernels.double(embedding)
    near, squares = kernels.index(near, E), kernels.like(squares, E)
    (m, k), r = near.shape, E.shape[1]

    def work(rows: slice) -> Array:
        chosen, d = near[rows].T, squares[rows].T
        places = E.T[:, chosen].swapaxes(0, 1)  # (k, r, b)
        if method == "lle":
            return _by_weights(places, d, _among(points, chosen)).T
        return _by_distances(places, d, _METHODS[method]).T

    found = in_blocks(work, m, k * max(k, r + 1), E)
    _warn_of_gaps(kernels.to_host(found[:, r]))
    return found[:, :r]


def _among(points: Array, chosen: Array) -> Array:
    """Squared distances between the neighbours (k, b) of each new point, (k, k, b) in float64."""
    heads, tails = chosen + 0 * chosen[:, None], 0 * chosen + chosen[:, None]
    kernels = kernels_for(points)
    squares = kernels.sq_lengths(points, heads.reshape(-1), tails.reshape(-1))
    return kernels.double(squares).reshape(heads.shape)


def _by_weights(places: Array, squares: Array, among: Array) -> Array:
    """Σωᵢyᵢ, and a gap of 0, (r + 1, b)."""
    weights = reconstruction_weights(squares, among)
    return _with((places * weights[:, None]).sum(0), 0 * squares[0])


def _by_distances(places: Array, squares: Array, solve: Solve) -> Array:
    """Places and gaps (r + 1, b), found about the means, in units of the distances."""
    mean, around = places.mean(0), _mean_square(places)
    places = places - mean
    places = places * (_mean_square(places) > SAME * around)
    square = squares.mean(0).clip(min=_mean_square(places))
    square = square + (square == 0)
    unit = square**0.5
    y, gap = solve(places / unit, squares / square)
    return _with(mean + unit * y, gap)


def _mean_square(places: Array) -> Array:
    """The mean of ‖yᵢ‖² (b,)."""
    return (places * places).sum(1).mean(0)


def _by_program(places: Array, squares: Array) -> tuple[Array, Array]:
    found = least_deviations(OutOfSampleProgram.of(places, squares), TOLERANCE)
    return found.x[:-1], found.gap


def _by_stress(places: Array, squares: Array) -> tuple[Array, Array]:
    stress = LocalStress.of(Neighborhoods.of(places, squares))
    t = bisect_decreasing(stress.surplus, *stress.ends())
    return stress.place(t), 0 * t


_METHODS = {"sdp": _by_program, "sdp+cg": _by_stress}


def _with(places: Array, gap: Array) -> Array:
    return kernels_for(places).concatenate([places, gap[None]])


def _warn_of_gaps(gap: NDArray[np.float64]) -> None:
    unsure = np.flatnonzero(~(gap <= TRUSTED))
    if len(unsure):
        warn(
            f"the places of {len(unsure)} of {len(gap)} new points are not proved to be optimal:"
            f" the largest gap is {gap[unsure].max():.1e} of the mean squared distance, and should"
            f" be at most {TRUSTED:g}. Try another method, or more neighbours.",
            ConvergenceWarning,
        )
