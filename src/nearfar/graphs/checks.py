"""Validate user-supplied edges, weights and positions of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.errors import InvalidInputError
from nearfar.kernels import kernels_for

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

SAME = 1e-6  # relative difference of lengths that should be equal


def checked_edges(
    n: int, heads: Any, tails: Any, lengths: Any, weights: Any
) -> tuple[Index, Index, Floats, Floats | None]:
    """Edges with head < tail, sorted, each once. Time O(m log m)."""
    heads, tails = _numbers("heads", "node", heads, n), _numbers("tails", "node", tails, n)
    lengths = _column("lengths", lengths, len(heads))
    _column("tails", tails, len(heads))
    _refuse(heads == tails, heads, tails, "joins a node with itself", "Leave it out.")
    _refuse(
        ~np.isfinite(lengths), heads, tails, "has no finite length", "Leave out unknown distances."
    )
    _refuse(lengths < 0, heads, tails, "has a negative length", "Check how it was computed.")
    if weights is not None:
        weights = _column("weights", weights, len(heads))
        _refuse_weights(weights, heads, tails)
    low, high = np.minimum(heads, tails), np.maximum(heads, tails)
    keys, place, counts = np.unique(low * n + high, return_inverse=True, return_counts=True)
    mean: Floats = np.bincount(place, lengths, len(keys)) / counts
    apart = np.abs(lengths - mean[place]) > SAME * mean[place]
    _refuse(apart, heads, tails, "is given twice, with different lengths", "Keep one of them.")
    if weights is not None:
        weights = np.bincount(place, weights, len(keys)) / counts
    return *np.divmod(keys, n), mean, weights


def edge_numbers(edges: Any, m: int) -> NDArray[Any]:
    """Validate edges given by their numbers or as a mask of all m edges."""
    found = _host(edges)
    if found.dtype != bool:
        return _numbers("edges", "edge", found, m)
    if found.shape != (m,):
        raise InvalidInputError(
            f"a mask of edges must have an entry for each of the {m}; got shape {found.shape}."
        )
    return found


def weights_of(W: Any, n: int, heads: Index, tails: Index) -> Floats:
    """The entries of a matrix of weights at the edges."""
    W = W.tocsr() if sparse.issparse(W) else _host(W)
    if W.shape != (n, n):
        raise InvalidInputError(
            f"weights must have the shape of the distances, {(n, n)}; got {W.shape}."
        )
    there = np.asarray(W[heads, tails], dtype=np.float64)
    back = np.asarray(W[tails, heads], dtype=np.float64)
    _refuse_weights(there, heads, tails)
    unequal = ~(np.abs(there - back) <= SAME * there)
    _refuse(unequal, heads, tails, "has another weight in the other direction", "Make both equal.")
    return 0.5 * (there + back)


def checked_anchors(anchors: Any, n: int, r: int) -> tuple[NDArray[np.bool_], Floats]:
    """Which of n nodes are fixed, and their positions (n, r), NaN for the others."""
    positions = np.full((n, r), np.nan)
    if anchors is None:
        return np.zeros(n, dtype=bool), positions
    if isinstance(anchors, Mapping):
        for node, position in anchors.items():
            if not isinstance(node, int | np.integer) or not 0 <= node < n:
                raise InvalidInputError(
                    f"anchors must be a dict from node numbers, from 0 to {n - 1}, to positions;"
                    f" got the node {node!r}. Count nodes from 0."
                )
            place = np.asarray(kernels_for(position).to_host(position), dtype=np.float64)
            if place.shape != (r,) or not np.isfinite(place).all():
                raise InvalidInputError(
                    f"the position of an anchor must be n_components={r} finite numbers; node"
                    f" {node} has {position!r}.",
                    [node],
                )
            positions[node] = place
    else:
        given = np.asarray(kernels_for(anchors).to_host(anchors), dtype=np.float64)
        if given.shape != (n, r):
            raise InvalidInputError(
                f"anchors must be a dict, or an array of shape ({n}, {r}) with rows of NaN for"
                f" nodes of unknown position; got shape {given.shape}."
            )
        positions = given
    unknown = np.isnan(positions)
    bad = np.flatnonzero((unknown.any(axis=1) & ~unknown.all(axis=1)) | np.isinf(positions).any(1))
    if len(bad):
        raise InvalidInputError(
            f"a position must be known in all its {r} coordinates or not at all; node {bad[0]} has"
            f" {positions[bad[0]]} ({len(bad)} in all). Fill in the row, or make it NaN.",
            bad,
        )
    return ~unknown.any(axis=1), positions


def merged_edges(
    labels: Index,
    heads: Index,
    tails: Index,
    lengths: Floats,
    weights: Floats | None,
    directions: NDArray[np.uint8],
) -> tuple[Index, Index, Floats, Floats | None, NDArray[np.uint8]]:
    """Edges between groups of nodes; ``labels`` numbers the groups. Time O(m log m).

    Nodes at distance 0 from each other form a group.
    """
    n = int(labels.max()) + 1
    within = labels[heads] == labels[tails]
    _refuse(within, heads, tails, "joins nodes that are also joined by edges of length 0", _REMEDY)
    swap = labels[heads] > labels[tails]
    first, last = np.where(swap, tails, heads), np.where(swap, heads, tails)
    keys, place, counts = np.unique(
        labels[first] * n + labels[last], return_inverse=True, return_counts=True
    )
    mean: Floats = np.bincount(place, lengths, len(keys)) / counts
    apart = np.abs(lengths - mean[place]) > SAME * lengths.max(initial=0.0)
    _refuse(
        apart, heads, tails, "differs in length from an edge between copies of its nodes", _REMEDY
    )
    if weights is not None:
        weights = np.bincount(place, weights, len(keys)).astype(np.float64)
    swapped = np.where(swap, directions >> 1 | (directions & 1) << 1, directions)
    merged = np.zeros(len(keys), dtype=np.uint8)
    np.bitwise_or.at(merged, place, swapped.astype(np.uint8))
    return *np.divmod(keys, n), mean, weights, merged


_REMEDY = "Correct the distances, or merge the nodes that are the same."


def _host(values: Any) -> NDArray[Any]:
    return np.asarray(kernels_for(values).to_host(values))


def _numbers(name: str, what: str, values: Any, n: int) -> Index:
    """Numbers of nodes or edges, from 0 to n − 1."""
    values = _host(values)
    if values.ndim != 1 or (values.dtype.kind not in "iu" and values.size):
        raise InvalidInputError(
            f"{name} must be {what} numbers, integers of shape (n_edges,); got shape"
            f" {values.shape} of {values.dtype}."
        )
    bad = np.flatnonzero((values < 0) | (values >= n))
    if len(bad):
        raise InvalidInputError(
            f"{name} must be {what} numbers from 0 to {n - 1}; entry {bad[0]} is {values[bad[0]]}"
            f" ({len(bad)} in all). Count {what}s from 0.",
            bad,
        )
    numbers: Index = values.astype(np.intp)
    return numbers


def _column(name: str, values: Any, m: int) -> Floats:
    column: Floats = np.asarray(_host(values), dtype=np.float64)
    if column.shape != (m,):
        raise InvalidInputError(
            f"{name} must have an entry for each of the {m} heads; got shape {column.shape}."
        )
    return column


def _refuse_weights(weights: Floats, heads: Index, tails: Index) -> None:
    bad = ~((weights > 0) & np.isfinite(weights))
    _refuse(bad, heads, tails, "has no positive weight", "Leave out edges that do not count.")


def _refuse(bad: NDArray[np.bool_], heads: Index, tails: Index, what: str, remedy: str) -> None:
    """Raise if edges are bad; the error names the first of them and carries the numbers of all."""
    found = np.flatnonzero(bad)
    if len(found):
        first = found[0]
        raise InvalidInputError(
            f"edge {first}, of nodes {heads[first]} and {tails[first]}, {what}"
            f" ({len(found)} in all). {remedy}",
            found,
        )
