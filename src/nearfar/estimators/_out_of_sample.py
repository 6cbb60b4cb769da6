"""Places of single points from those of their neighbours [Thesis, 3.1.10].

`place_by_neighbors` places new points in an embedding. With its neighbours in their places the best
place of a node is known exactly (`nearfar.problems.out_of_sample`, eq. 6), however far away it is.
`descend_on_patches` then moves the neighbours, too, and lets the new point follow.
Two functions use this to correct a descent that left nodes on the wrong side of their neighbours:

- `move_single_nodes` moves those nodes that gain more than all their neighbours would, so that no
  two neighbours move at once and the sum of squared misfits falls by the sum of the gains.
- `place_untrusted_nodes` also helps where neighbours are on the wrong side together and hold each
  other there: it keeps the largest part of the network that fits well, and places all others anew.

[Thesis] Weinberger, Metric learning with convex optimization, University of Pennsylvania 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import ConvergenceWarning, InvalidInputError, warn
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.components import component_labels
from nearfar.kernels import Array, kernels_for
from nearfar.kernels.batched import in_blocks
from nearfar.problems.out_of_sample import (
    LocalStress,
    Neighborhoods,
    OutOfSampleProgram,
    reconstruction_weights,
)
from nearfar.problems.sensor_localization import core
from nearfar.problems.stress import Stress
from nearfar.problems.variational_mvu import Edges
from nearfar.solvers import run
from nearfar.solvers.batched import bisect_decreasing
from nearfar.solvers.cone_deviations import least_deviations
from nearfar.solvers.conjugate_gradient import conjugate_gradient

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Solve = Callable[[Array, Array], tuple[Array, Array]]

METHODS = ("sdp", "sdp+cg", "sdp+patch", "lle")

TOLERANCE = 1e-9  # gap of the program, in units of the mean squared distance
SETTLED = 1e-8  # relative gain of ten steps at which a patch has settled
STEPS = 200  # of a patch, at most
TRUSTED = 1e-6  # largest gap without a warning
SAME = 1e-28  # variance of neighbours, relative to their squares, that is a rounding error
WORTHWHILE = 1e-3  # gain of a move, relative to the misfit of the node
ROUNDING = 1e-12  # misfit that counts as 0, relative to that of all points in one place
SUSPECT = 2.0  # times the median misfit: nodes that fit badly
FIRST = 0.5  # a node is placed if it has this share of the largest number of placed neighbours
BLOCK_ENTRIES = 1 << 20  # neighbours of a block of nodes


# -- new points --------------------------------------------------------------------------------


def place_by_neighbors(
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
    method : {"sdp", "sdp+cg", "sdp+patch", "lle"}, default="sdp"
        The semidefinite program; the place of least stress, which the thesis seeks by a descent
        from there, and from which "sdp+patch" goes on; or the weights that reconstruct the new
        point from its neighbours.
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


_METHODS = {"sdp": _by_program, "sdp+cg": _by_stress, "sdp+patch": _by_stress}


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


def descend_on_patches(
    embedding: Matrix, graph: NeighborhoodGraph, near: Index, squares: Matrix, places: Matrix
) -> Matrix:
    """Places (m, r) after conjugate gradients over each new point and its neighbours.

    A patch has the edges of the graph at the neighbours (m, k), whose other ends stay, and those of
    squared length ``squares`` to the new point. All but the new point are where they were again for
    the next patch. Time O(k² r) for each step, some tens for a point.
    """
    D, found = graph.adjacency(graph.lengths**2), places.copy()
    for number, (own, own_squares) in enumerate(zip(near, squares, strict=True)):
        rows = D[own]
        heads, tails, lengths = np.repeat(own, np.diff(rows.indptr)), rows.indices, rows.data
        once = ~np.isin(tails, own) | (heads < tails)
        nodes = np.unique(np.concatenate([own, tails]))
        new, free = len(nodes), np.append(np.isin(nodes, own), True)[:, None] * 1.0
        heads = np.append(np.searchsorted(nodes, heads[once]), np.full(len(own), new))
        tails = np.searchsorted(nodes, np.append(tails[once], own))
        square = np.concatenate([lengths[once], own_squares])
        unit = float(square.mean())
        edges = Edges(heads, tails, square / unit, np.ones(len(square)), new + 1)
        degree = np.bincount(np.append(heads, tails), minlength=new + 1)[:, None]
        start = np.concatenate([embedding[nodes], places[number : number + 1]]) / unit**0.5
        path = conjugate_gradient(Stress(edges, free=free), start, (free / degree).__mul__)
        found[number] = unit**0.5 * run(path, tol=SETTLED, max_iter=STEPS).iterate.point[new]
    return found


# -- nodes of a network ------------------------------------------------------------------------


def move_single_nodes(
    graph: NeighborhoodGraph, squares: Matrix, weights: Matrix, Y: Matrix, fixed: Mask
) -> tuple[Matrix, int]:
    """Points (n, r) after moves that gain, and the number of moves. Time O(e r²)."""
    D, W = graph.adjacency(squares), graph.adjacency(weights)
    places = _best_places(D, Y, ~fixed)
    before, none = _misfits(D, W, Y, Y)
    gains = before - _misfits(D, W, places, Y)[0]
    gains = np.where(gains > WORTHWHILE * before + ROUNDING * none, gains, 0.0)
    moving = (gains > 0) & _ahead_of_neighbors(graph, gains)
    return np.where(moving[:, None], places, Y), int(moving.sum())


def place_untrusted_nodes(
    graph: NeighborhoodGraph, squares: Matrix, weights: Matrix, Y: Matrix, fixed: Mask
) -> tuple[Matrix, int]:
    """Points (n, r) of which the untrusted ones are placed anew by the others, and their number.

    Those with most neighbours in place come first. A node needs r + 1 of them; others stay.
    """
    D, W = graph.adjacency(squares), graph.adjacency(weights)
    misfits, none = _misfits(D, W, Y, Y)
    share = misfits / np.where(none > 0, none, 1.0)
    bad = ~fixed & (share > SUSPECT * np.median(share) + ROUNDING)
    if not bad.any():
        return Y, 0
    joined = graph.adjacency(np.ones(graph.n_edges))
    settled = _trusted(graph, bad, fixed, Y.shape[1])
    Y, n_settled = Y.copy(), int(settled.sum())
    while True:
        counts = np.where(settled, 0, joined @ settled.astype(np.float64))
        ready = (counts > Y.shape[1]) & (counts >= FIRST * counts.max())
        if not ready.any():
            return Y, int(settled.sum()) - n_settled
        Y[ready] = _best_places(D, Y, ready, settled)[ready]
        settled |= ready


def _trusted(graph: NeighborhoodGraph, bad: Mask, fixed: Mask, r: int) -> Mask:
    """The fixed nodes, and the largest part of the network in which nodes fit and hold each other.

    Each has more than r neighbours there: nodes that fit among themselves, but are cut off by some
    that do not, may lie mirrored.
    """
    good = ~bad[graph.heads] & ~bad[graph.tails]
    kept = core(graph.n_nodes, graph.heads[good], graph.tails[good], r + 1, fixed) & ~bad
    inside = kept[graph.heads] & kept[graph.tails]
    labels = component_labels(graph.n_nodes, graph.heads[inside], graph.tails[inside])
    trusted: Mask = fixed | (kept & (labels == np.bincount(labels[kept], minlength=1).argmax()))
    return trusted


def _best_places(D: Any, Y: Matrix, nodes: Mask, by: Mask | None = None) -> Matrix:
    """The best place of each of some nodes with more than r neighbours, the others in theirs.

    D is the sparse matrix of squared lengths; only neighbours in ``by`` count.
    """
    kept = nodes[np.repeat(np.arange(len(Y)), np.diff(D.indptr))]
    if by is not None:
        kept &= by[D.indices]
    sums = np.concatenate([[0], np.cumsum(kept)])[D.indptr]
    starts, counts = sums[:-1], np.diff(sums)
    neighbors, lengths = D.indices[kept], D.data[kept]
    places = Y.copy()
    for count in np.unique(counts[counts > Y.shape[1]]):
        rows = np.flatnonzero(counts == count)
        step = max(1, BLOCK_ENTRIES // int(count))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            at = starts[some][:, None] + np.arange(count)
            places[some] = place_by_neighbors(Y, neighbors[at], lengths[at], "sdp+cg")
    return places


def _misfits(D: Any, W: Any, places: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
    """Σⱼ wⱼ (‖pᵢ − yⱼ‖² − Dᵢⱼ)² of nodes i at other places, and Σⱼ wⱼ Dᵢⱼ²."""
    rows = np.repeat(np.arange(len(Y)), np.diff(D.indptr))
    lengths = ((places[rows] - Y[D.indices]) ** 2).sum(axis=1)
    sums = kernels_for(Y).segment_sum
    return sums(rows, W.data * (lengths - D.data) ** 2, len(Y)), sums(
        rows, W.data * D.data**2, len(Y)
    )


def _ahead_of_neighbors(graph: NeighborhoodGraph, gains: Matrix) -> Mask:
    """Where a gain is larger than all those of neighbours; equals are ordered by number."""
    ranks = np.empty(len(gains))
    ranks[np.argsort(gains, kind="stable")] = np.arange(len(gains))
    ends = np.concatenate([graph.heads, graph.tails])
    others = np.concatenate([graph.tails, graph.heads])
    highest = kernels_for(gains).segment_max(ends, ranks[others], len(gains))
    ahead: Mask = ranks > highest
    return ahead
