"""Distances from which a graph is built: computed between points, or given, perhaps incomplete.

The three classes have the same methods: `neighbors`, and `lengths` of edges, NaN if unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_array

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, is_torch, kernels_for, to_host
from nearfar.kernels.search import MOST_DIMENSIONS
from nearfar.validation import check_in_memory, check_number

Index = NDArray[np.intp]
Lengths = NDArray[np.float64]

MANY = 50000  # points of few dimensions that are searched in a tree on the host, on any device
BLOCK_ENTRIES = 1 << 22  # entries of a given matrix that are checked at a time
SEARCH_SLACK = 1e-6  # by which a squared radius is widened before exact lengths decide
SAFE_EXPONENT = 300  # of 2: squares of such numbers, and of their rounding errors, are in range


def check_neighbors(n_neighbors: Any, radius: Any, n: int, nodes: str = "points") -> None:
    """Raise unless n nodes can have this number of neighbours, and the radius is positive."""
    if n_neighbors is not None:
        check_number("n_neighbors", n_neighbors, Integral, 1)
        if n_neighbors >= n:
            raise InvalidInputError(
                f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} {nodes}; there are"
                f" {n}. Lower n_neighbors or add points."
            )
    if radius is not None:
        check_number("radius", radius, Real, 0, open_ends=True, infinite=True)


def check_size(n: int) -> None:
    """Raise unless there are at least two points."""
    if n < 2:
        raise InvalidInputError(
            f"a neighbourhood graph needs at least 2 points; got n_samples={n}. Add points."
        )


def scale_of(spread: float, n: int) -> float:
    """What n points are divided by so that their squared distances are in range; 1 if they are.

    ``spread`` is their largest difference in a coordinate. Raises if they are all equal.
    """
    if spread == 0:
        raise InvalidInputError(
            f"a neighbourhood graph needs points that differ; all {n} are equal. Check the data."
        )
    exponent = int(np.frexp(spread)[1])
    return 1.0 if abs(exponent) < SAFE_EXPONENT else 2.0**exponent


def edges_with_copies(firsts: Index, origins: Index, targets: Index) -> tuple[Index, Index]:
    """Directed edges, and those between the first of equal points and its copies, both ways."""
    copies = np.flatnonzero(firsts != np.arange(len(firsts)))
    originals = firsts[copies]
    return (
        np.concatenate([origins, copies, originals]),
        np.concatenate([targets, originals, copies]),
    )


# -- between points --------------------------------------------------------------------------


@dataclass(frozen=True)
class PointDistances:
    """Euclidean distances between points, computed on their device."""

    points: Array  # (n, d), float64, divided by the scale
    scale: float  # 1, or a power of two where squares would overflow or vanish
    firsts: Index  # the number of the first point that equals each point

    @classmethod
    def of(cls, X: Array) -> PointDistances:
        """Prepare distances of validated points (n, d)."""
        check_size(len(X))
        kernels = kernels_for(X)
        points = kernels.double(X)
        spread = float(abs(points - points[:1]).max()) if X.shape[1] else 0.0
        scale = scale_of(spread, len(X))
        firsts = kernels.to_host(kernels.first_equal(X))
        return cls(points if scale == 1 else points / scale, scale, firsts)

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.firsts)

    def neighbors(self, n_neighbors: int | None, radius: float | None) -> tuple[Index, Index]:
        """Directed edges from each point to its neighbours.

        Of equal points only the first has neighbours and is one; the others are joined to it.
        """
        distinct = np.flatnonzero(self.firsts == np.arange(self.n))
        check_neighbors(n_neighbors, radius, len(distinct), "different points")
        kernels = kernels_for(self.points)
        points = self.points
        if len(distinct) < self.n:
            points = points[kernels.index(distinct, points)]
        if n_neighbors is not None:
            starts = np.array([0, len(distinct)])
            if len(points) >= MANY and points.shape[1] <= MOST_DIMENSIONS:
                points = to_host(points)  # for a tree
            found = kernels_for(points).nearest_in_class(points, starts, int(n_neighbors))
            origins, targets = (distinct[to_host(rows)] for rows in found)
        else:
            found = _within(kernels.to_host(points), float(radius or 0) / self.scale)
            origins, targets = (distinct[rows] for rows in found)
        if radius is not None:
            near = self.lengths(origins, targets) <= radius
            origins, targets = origins[near], targets[near]
        return edges_with_copies(self.firsts, origins, targets)

    def lengths(self, heads: Index, tails: Index) -> Lengths:
        """Distances along edges. Time O(m d)."""
        kernels = kernels_for(self.points)
        edges = (kernels.index(rows, self.points) for rows in (heads, tails))
        squares = kernels.to_host(kernels.sq_lengths(self.points, *edges))
        lengths: Lengths = np.sqrt(squares) * self.scale
        return lengths


def checked_points(X: Any) -> Array:
    """Validate points (n, d) on their device: real, finite numbers."""
    check_in_memory(X)
    if not is_torch(X):
        return check_array(X, dtype=[np.float64, np.float32])
    X = kernels_for(X).detached(X)
    if X.ndim != 2 or not bool(X.isfinite().all()):
        raise InvalidInputError(
            "points must be a tensor of shape (n_samples, n_features) without NaN or infinity;"
            f" got shape {tuple(X.shape)}. Reshape it, or drop or impute such rows."
        )
    return X if str(X.dtype) == "torch.float32" else X.double()


def _within(points: NDArray[np.float64], radius: float) -> tuple[Index, Index]:
    """Directed edges between all points within the radius, and perhaps some slightly beyond."""
    points = points - points.mean(axis=0)
    # A search by matrix products has errors of some eps ‖x‖² in the squares.
    rounding = (8 + points.shape[1]) * float(np.finfo(float).eps) * float((points**2).sum(1).max())
    wide = float(np.sqrt((1 + SEARCH_SLACK) * radius**2 + 8 * rounding))
    near = NearestNeighbors(radius=wide).fit(points).radius_neighbors_graph().tocoo()
    return near.row.astype(np.intp), near.col.astype(np.intp)


# -- given -----------------------------------------------------------------------------------


def given_distances(D: Any) -> DenseDistances | SparseDistances:
    """Validate distances: an array (n, n), NaN or infinity if unknown, or a sparse array."""
    if sparse.issparse(D):
        return SparseDistances.of(D)
    return DenseDistances.of(D)


@dataclass(frozen=True)
class DenseDistances:
    """A matrix of distances; NaN or infinity means unknown."""

    matrix: NDArray[Any]  # (n, n), symmetric within rounding

    @classmethod
    def of(cls, D: Any) -> DenseDistances:
        """Validate a dense matrix of distances. Time O(n²), without a second matrix."""
        D = np.asarray(kernels_for(D).to_host(D))
        if D.dtype.kind in "biu" or D.dtype.itemsize < 4:
            D = D.astype(np.float64)
        _check_square(D.shape, D.dtype)
        distances = cls(D)
        rounding, own = _rounding(D.dtype, _largest(D)), np.arange(len(D))
        diagonal = np.where(np.isfinite(D.diagonal()), np.abs(D.diagonal()), 0)
        _refuse_entries(np.flatnonzero(diagonal > rounding), own, own, diagonal, _SELF)
        for rows in distances._blocks():
            block, other = D[rows], D[:, rows].T
            _refuse(rows.start, block < 0, block, _NEGATIVE)
            known = np.isfinite(block)
            with np.errstate(invalid="ignore"):
                unequal = (known != np.isfinite(other)) | (np.abs(block - other) > rounding)
            _refuse(rows.start, unequal, block, _ASYMMETRIC, other)
        return distances

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.matrix)

    def _blocks(self) -> Iterator[slice]:
        step = max(1, BLOCK_ENTRIES // max(1, len(self.matrix)))
        for first in range(0, len(self.matrix), step):
            yield slice(first, min(first + step, len(self.matrix)))

    def known(self, rows: slice) -> Lengths:
        """Rows of the matrix, infinite where unknown and on the diagonal; symmetric."""
        block: Lengths = 0.5 * (self.matrix[rows].astype(np.float64) + self.matrix[:, rows].T)
        block[~np.isfinite(block)] = np.inf
        here = np.arange(len(self.matrix))[rows]
        block[here - here[0], here] = np.inf
        return block

    def row(self, node: int) -> Lengths:
        """Distances (n,) from a node, infinite where unknown and to itself."""
        row: Lengths = self.known(slice(node, node + 1))[0]
        return row

    def neighbors(self, n_neighbors: int | None, radius: float | None) -> tuple[Index, Index]:
        """Directed edges from each node to its nearest, to all within the radius, or to all."""
        check_neighbors(n_neighbors, radius, self.n, "nodes")
        parts = []
        for rows in self._blocks():
            block = self.known(rows)
            bar = np.full(len(block), np.inf if radius is None else float(radius))
            if n_neighbors is not None:
                k_th = np.partition(block, n_neighbors - 1, axis=1)[:, n_neighbors - 1]
                bar = np.minimum(bar, k_th)
            near = (block <= bar[:, None]) & (block < np.inf)
            origins, targets = np.nonzero(near)
            chosen = _first_of_each(origins, block[origins, targets], n_neighbors)
            parts.append((origins[chosen] + rows.start, targets[chosen]))
        return _joined(parts)

    def lengths(self, heads: Index, tails: Index) -> Lengths:
        """Distances along edges, NaN where unknown."""
        there, back = self.matrix[heads, tails], self.matrix[tails, heads]
        lengths: Lengths = 0.5 * (there.astype(np.float64) + back)
        lengths[~np.isfinite(lengths)] = np.nan
        return lengths


@dataclass(frozen=True)
class SparseDistances:
    """Only the known distances; a stored zero is a distance of zero."""

    n: int
    origins: Index  # (m,), sorted by origin and then by target, each pair in both directions
    targets: Index  # (m,)
    values: Lengths  # (m,)

    @classmethod
    def of(cls, D: Any) -> SparseDistances:
        """Validate a sparse matrix of distances; one direction suffices. Time O(m log m)."""
        _check_square(D.shape, D.dtype)
        n = D.shape[0]
        entries = D.tocoo(copy=True)
        entries.sum_duplicates()
        origins, targets = entries.row.astype(np.intp), entries.col.astype(np.intp)
        values = entries.data.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        _refuse_entries(bad, origins, targets, values, _NOT_A_NUMBER)
        _refuse_entries(np.flatnonzero(values < 0), origins, targets, values, _NEGATIVE)
        rounding = _rounding(D.dtype, float(values.max(initial=0.0)))
        own = origins == targets
        _refuse_entries(np.flatnonzero(own & (values > rounding)), origins, targets, values, _SELF)
        origins, targets, values = origins[~own], targets[~own], values[~own]
        keys, mirrored = origins * n + targets, targets * n + origins
        order = np.argsort(keys)
        origins, targets, values, keys = origins[order], targets[order], values[order], keys[order]
        place, other = np.searchsorted(keys, mirrored[order]), np.full(len(keys), np.nan)
        there = place < len(keys)
        there[there] = keys[place[there]] == mirrored[order][there]
        other[there] = values[place[there]]
        bad = np.flatnonzero(there & (np.abs(values - other) > rounding))
        _refuse_entries(bad, origins, targets, values, _ASYMMETRIC, other)
        values[there] = 0.5 * (values + other)[there]
        one_way = ~there  # as in a graph of nearest neighbours, which need not be mutual
        origins, targets, values = (
            np.concatenate([origins, targets[one_way]]),
            np.concatenate([targets, origins[one_way]]),
            np.concatenate([values, values[one_way]]),
        )
        order = np.argsort(origins * n + targets)
        return cls(n, origins[order], targets[order], values[order])

    def neighbors(self, n_neighbors: int | None, radius: float | None) -> tuple[Index, Index]:
        """Directed edges from each node to its nearest, to all within the radius, or to all."""
        check_neighbors(n_neighbors, radius, self.n, "nodes")
        near = self.values <= (np.inf if radius is None else radius)
        origins, targets = self.origins[near], self.targets[near]
        chosen = _first_of_each(origins, self.values[near], n_neighbors)
        return origins[chosen], targets[chosen]

    def lengths(self, heads: Index, tails: Index) -> Lengths:
        """Distances along edges, NaN where unknown."""
        lengths: Lengths = np.full(len(heads), np.nan)
        if len(self.values):
            keys, wanted = self.origins * self.n + self.targets, heads * self.n + tails
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            known = keys[place] == wanted
            lengths[known] = self.values[place[known]]
        return lengths

    def row(self, node: int) -> Lengths:
        """Distances (n,) from a node, infinite where unknown and to itself."""
        row: Lengths = np.full(self.n, np.inf)
        first, last = np.searchsorted(self.origins, [node, node + 1])
        row[self.targets[first:last]] = self.values[first:last]
        return row


Distances = PointDistances | DenseDistances | SparseDistances


def _joined(parts: list[tuple[Index, Index]]) -> tuple[Index, Index]:
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _first_of_each(origins: Index, values: Lengths, count: int | None) -> Index:
    """Positions of the smallest values of each origin; ties by position. Time O(m log m)."""
    if count is None:
        return np.arange(len(origins))
    order = np.lexsort((values, origins))
    sorted_origins = origins[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_origins, sorted_origins)
    return order[rank < count]


# -- errors ----------------------------------------------------------------------------------

_NEGATIVE = (
    "distances must not be negative; that between nodes {i} and {j} is {value:g} ({count} in"
    " all). Check how they were computed."
)
_NOT_A_NUMBER = (
    "stored distances must be finite; that between nodes {i} and {j} is {value:g} ({count} in"
    " all). Do not store unknown distances."
)
_SELF = (
    "the distance of a node to itself must be 0; that of node {i} is {value:g} ({count} in"
    " all). Check that these are distances: for similarities or kernel values use"
    " metric='kernel'."
)
_ASYMMETRIC = (
    "distances must be symmetric; from node {i} to {j} it is {value}, and back {other}"
    " ({count} in all). Make them so, for example with D.maximum(D.T) if D is sparse,"
    " (D + D.T) / 2 if not."
)


def _largest(D: NDArray[Any]) -> float:
    return float(np.max(D, where=np.isfinite(D), initial=0.0))


def _rounding(dtype: Any, largest: float) -> float:
    """Largest difference of distances that should be equal: they are roots of rounded squares."""
    single = np.dtype(dtype) == np.float32
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    return largest * float(np.sqrt(eps))


def _check_square(shape: tuple[int, ...], dtype: Any) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or np.dtype(dtype).kind not in "biuf":
        raise InvalidInputError(
            "distances must be a square matrix of real numbers, (n_samples, n_samples); got shape"
            f" {tuple(shape)} of {dtype}. For points use metric='euclidean'."
        )
    check_size(shape[0])


def _refuse(
    start: int, bad: NDArray[np.bool_], values: Any, message: str, others: Any = None
) -> None:
    """Raise if a block of rows has bad entries."""
    if bad.any():
        rows, columns = np.nonzero(bad)
        other = None if others is None else others[rows, columns]
        _refuse_entries(
            np.arange(len(rows)), rows + start, columns, values[rows, columns], message, other
        )


def _refuse_entries(
    bad: Index, origins: Index, targets: Index, values: Any, message: str, others: Any = None
) -> None:
    if len(bad):
        first = bad[0]
        shown = {
            "i": origins[first],
            "j": targets[first],
            "value": values[first],
            "count": len(bad),
            "other": None if others is None else _shown(others[first]),
        }
        if others is not None:
            shown["value"] = _shown(values[first])
        raise InvalidInputError(
            message.format(**shown), np.stack([origins[bad], targets[bad]], axis=1)
        )


def _shown(value: float) -> str:
    return f"{value:.9g}" if np.isfinite(value) else "unknown"
