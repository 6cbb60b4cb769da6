"""The kernels on NumPy arrays: blocked BLAS, sparse products, a thread to a core.

Work is cut into blocks by size alone, and sums over blocks are taken in their order, so results do
not depend on the number of threads. Threads run blocks, each with a BLAS of one thread (see
`one_pool`): BLAS's own threads slow small matrices down, by up to twenty times.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from nearfar.kernels.threads import n_threads
from nearfar.kernels.tiles import SPARE, labels_of, may_hide, unlike_tiles

Floats = NDArray[np.floating]
Index = NDArray[np.intp]
T = TypeVar("T")
R = TypeVar("R")

TILE = 1536  # rows of a tile of the all-pairs search: its float32 products are 9 MB, an L3's share
SMALL_TILE = 128  # and at least, where there are few points
GATHER_BYTES = 1 << 20  # gathered rows of one edge block: an L2
SMALL_CLASS = 512  # points of a class whose distances are computed as one matrix
GEMM_ROWS = 4096  # rows of a block of a tall matrix product
THREADED_BYTES = 1 << 24  # bytes touched below which threads cost more than they gain


def to_host(x: Any) -> NDArray[Any]:
    """Return x as a NumPy array."""
    return np.asarray(x)


def like(x: Any, reference: Floats) -> Floats:
    """Return host array x with the dtype and device of the reference."""
    return np.asarray(x, dtype=reference.dtype)


def index(x: Any, reference: Floats) -> Index:  # noqa: ARG001 - the device twin needs it
    """Return host integers x as indices on the device of the reference."""
    return np.asarray(x, dtype=np.intp)


def double(x: Floats) -> NDArray[np.float64]:
    """Return x in float64."""
    return np.asarray(x, dtype=np.float64)


def single(x: Floats) -> NDArray[np.float32]:
    """Return x in float32."""
    return np.asarray(x, dtype=np.float32)


def where(mask: NDArray[np.bool_]) -> Index:
    """Positions at which a one-dimensional mask is true."""
    return np.flatnonzero(mask)


def concatenate(parts: list[Any]) -> NDArray[Any]:
    """Join one-dimensional arrays."""
    return np.concatenate(parts)


def unique(values: Index) -> Index:
    """The distinct values in ascending order; sorts, since NumPy's own hashes and is slower."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(values) else values


def repeat(values: Any, counts: Any) -> NDArray[Any]:
    """Repeat each value as often as its count says."""
    return np.repeat(values, counts)


def count_up(size: int, reference: Any) -> Index:  # noqa: ARG001 - the device twin needs it
    """0, 1, … size − 1."""
    return np.arange(size)


def find_sorted(ordered: Index, values: Index) -> Index:
    """Positions at which the values would stand in an ordered array."""
    return np.searchsorted(ordered, values)


def cumulative(values: Any) -> NDArray[Any]:
    """Running sums."""
    return np.cumsum(values)


def segment_sum(index: Index, weights: Floats, size: int) -> Floats:
    """Sum of the weights that share an index, for indices 0 … size − 1."""
    return np.asarray(np.bincount(index, weights, minlength=size), dtype=np.float64)


def segment_max(index: Index, values: Floats, size: int) -> Floats:
    """Largest of the values that share an index; −inf where there is none."""
    out = np.full(size, -np.inf)
    np.maximum.at(out, index, values)
    return out


def nearest_in_class(X: Floats, starts: Index, k: int) -> tuple[Index, Index]:
    """Edges from each point to its k nearest others of its class, nearest first.

    A class of m < k + 1 points gives each of its points m − 1 edges. Time O(Σ m² d). The search
    proposes some more than k, and exact differences decide; a point for which rounding may have
    hidden a neighbour is compared with its whole class.
    """
    heads: list[Index] = [np.empty(0, dtype=np.intp)]
    tails: list[Index] = [np.empty(0, dtype=np.intp)]
    for first, last in pairwise(starts.tolist()):
        near = min(k, last - first - 1)
        if near == 0:
            continue
        points = X[first:last].astype(np.float64)
        points -= np.median(points, axis=0)
        squares = np.einsum("ij,ij->i", points, points)
        farthest, candidates = _proposed(points, squares, min(near + SPARE, last - first - 1))
        nearest, lengths = _exact_nearest(points, np.arange(last - first), candidates, near)
        hidden = may_hide(squares, farthest, lengths[:, -1], points.shape[1])
        for row in np.flatnonzero(hidden) if candidates.shape[1] < last - first - 1 else ():
            everyone = np.delete(np.arange(last - first), row)[None]
            nearest[row] = _exact_nearest(points, np.array([row]), everyone, near)[0]
        heads.append(np.repeat(np.arange(first, last), near))
        tails.append(first + nearest.ravel())
    return np.concatenate(heads), np.concatenate(tails)


def _proposed(points: Floats, squares: Floats, count: int) -> tuple[Floats, Index]:
    """About the nearest others of each point, and the squared distance of the farthest of them.

    Below SMALL_CLASS points one matrix is quicker than scikit-learn's search, whose threads cost
    some milliseconds a call.
    """
    if len(points) > SMALL_CLASS:
        distances, found = NearestNeighbors(n_neighbors=count).fit(points).kneighbors()
        return distances[:, -1] ** 2, found
    table = squares[:, None] + squares - 2 * (points @ points.T)
    np.fill_diagonal(table, np.inf)
    found = np.argpartition(table, count - 1, axis=1)[:, :count]
    return np.take_along_axis(table, found, 1).max(axis=1), found


def _exact_nearest(
    points: Floats, rows: Index, candidates: Index, near: int
) -> tuple[Index, Floats]:
    """The nearest of the candidates of each row, and their squared distances; ties by number."""
    candidates, count = np.sort(candidates, axis=1), candidates.shape[1]
    lengths = sq_lengths(points, np.repeat(rows, count), candidates.ravel()).reshape(-1, count)
    order = np.argsort(lengths, axis=1, kind="stable")[:, :near]
    return np.take_along_axis(candidates, order, 1), np.take_along_axis(lengths, order, 1)


def invaders(
    Z: Floats, reach: Floats, starts: Index, screen: Floats | None = None
) -> tuple[Index, Index]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l.

    Screens every pair once by the product −½‖zᵢ − z_l‖² = zᵢ·z_l − ½‖zᵢ‖² − ½‖z_l‖², lowered by a
    bound on its rounding error, and decides the few that pass by their exact difference.
    ``screen`` may give Z rounded to a cheaper type for the first step; the answer is the same.
    Time O(n² r / 2) of matrix products, memory O(TILE²) and the answer.
    """
    n, r = Z.shape
    S = _screen(Z, reach) if screen is None else screen
    # |computed − true| <= (r + 8) eps (‖zᵢ‖² + ‖z_l‖²): shrink the norms by that much.
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", S, S)
    half = squares * S.dtype.type(0.5 - (r + 8) * np.finfo(S.dtype).eps)
    ones = np.ones(n, S.dtype)
    left = np.column_stack([S, ones, -half])
    right = np.column_stack([S, -half, ones])
    bar = np.nextafter((-0.5 * reach).astype(S.dtype), -np.inf, dtype=S.dtype)
    labels = labels_of(starts)

    def codes(tile: tuple[slice, slice]) -> Index:  # i n + l of the pairs that pass
        rows, columns = tile
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right[columns].T
        first, width = columns.start, columns.stop - columns.start
        i, j = np.divmod(np.flatnonzero(~(product <= bar[rows, None])), width)
        k, m = np.divmod(np.flatnonzero(~(product <= bar[columns])), width)
        return np.concatenate([(i + rows.start) * n + j + first, (m + first) * n + k + rows.start])

    tiles = list(unlike_tiles(starts, min(TILE, max(SMALL_TILE, n // 8))))
    found = _in_threads(codes, tiles, n * n * r * S.itemsize)
    heads, tails = np.divmod(np.concatenate([*found, np.empty(0, np.intp)]), max(n, 1))
    exact = (labels[heads] != labels[tails]) & (sq_lengths(Z, heads, tails) < reach[heads])
    code = unique(heads[exact] * n + tails[exact])  # a tile on the diagonal finds pairs twice
    heads, tails = np.divmod(code, max(n, 1))
    return heads, tails


def _screen(Z: Floats, reach: Floats) -> Floats:
    """Z in float32 where its rounding is small against the reach, else Z."""
    if Z.dtype == np.float32 or len(Z) == 0:
        return Z
    error = 2 * (Z.shape[1] + 8) * np.finfo(np.float32).eps * np.einsum("ij,ij->i", Z, Z).max()
    return (
        Z.astype(np.float32)
        if error < 0.02 * reach.min(where=np.isfinite(reach), initial=np.inf)
        else Z
    )


def sq_lengths(Z: Floats, heads: Index, tails: Index) -> Floats:
    """‖z_h − z_t‖² along each edge. Time O(m r)."""
    out = np.empty(len(heads), Z.dtype)

    def block(part: slice) -> None:
        difference = _differences(Z, heads[part], tails[part])
        np.vecdot(difference, difference, out=out[part])

    _over_blocks(block, len(heads), Z.shape[1] * Z.itemsize)
    return out


def edge_products(Z: Floats, D: Floats, heads: Index, tails: Index) -> tuple[Floats, Floats]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge. Time O(m r)."""
    cross = np.empty(len(heads), Z.dtype)
    square = np.empty(len(heads), Z.dtype)

    def block(part: slice) -> None:
        change = _differences(D, heads[part], tails[part])
        np.vecdot(_differences(Z, heads[part], tails[part]), change, out=cross[part])
        np.vecdot(change, change, out=square[part])

    _over_blocks(block, len(heads), 2 * Z.shape[1] * Z.itemsize)
    return cross, square


def _differences(Z: Floats, heads: Index, tails: Index) -> Floats:
    difference = np.take(Z, heads, axis=0)
    difference -= np.take(Z, tails, axis=0)
    return difference


def _over_blocks(work: Callable[[slice], None], size: int, row_bytes: int) -> None:
    """Do the work on consecutive slices that fit the cache."""
    step = max(64, GATHER_BYTES // row_bytes)

    def share(part: slice) -> None:
        for first in range(part.start, part.stop, step):
            work(slice(first, min(first + step, part.stop)))

    _in_threads(share, _shares(size), size * row_bytes)


def _shares(size: int) -> list[slice]:
    """Consecutive slices, one for each thread."""
    n_shares = n_threads()
    cuts = [size * part // n_shares for part in range(n_shares + 1)]
    return [slice(*ends) for ends in pairwise(cuts)]


def _in_threads(work: Callable[[T], R], parts: list[T], n_bytes: int) -> list[R]:
    """The results of the work on each part, in order; in threads if it touches enough bytes."""
    if n_threads() == 1 or n_bytes < THREADED_BYTES:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(n_threads()) as pool:
        return list(pool.map(work, parts))


def laplacian_matmul(heads: Index, tails: Index, weights: Floats, Z: Floats) -> Floats:
    """Lap(w) Z, where Lap(w) = Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ. Time O(m r)."""
    n = len(Z)
    used = weights != 0
    heads, tails, weights = heads[used], tails[used], weights[used]
    degree = np.bincount(heads, weights, n) + np.bincount(tails, weights, n)
    W = sparse.csr_array((weights.astype(Z.dtype), (heads, tails)), shape=(n, n))
    out = degree.astype(Z.dtype)[:, None] * Z
    if 2 * W.nnz * Z.shape[1] * Z.itemsize < THREADED_BYTES:
        out -= W @ Z
        out -= W.T @ Z
        return out
    symmetric = (W + W.T.tocsr()).tocsr()  # rows that threads can share

    def rows_of(rows: slice) -> None:
        out[rows] -= symmetric[rows] @ Z

    _in_threads(rows_of, _shares(n), symmetric.nnz * Z.shape[1] * Z.itemsize)
    return out


def apply(U: Floats, L: NDArray[np.float64]) -> Floats:
    """U Lᵀ in the dtype of U, L on the host."""
    factor = L.astype(U.dtype).T
    out = np.empty((len(U), len(L)), U.dtype)

    def rows_of(rows: slice) -> None:
        np.matmul(U[rows], factor, out=out[rows])

    _in_threads(rows_of, _blocks(len(U)), U.nbytes * len(L))
    return out


def gram(A: Floats, B: Floats) -> NDArray[np.float64]:
    """Aᵀ B on the host, its sums over blocks of rows taken in float64."""
    total = np.zeros((A.shape[1], B.shape[1]))
    for product in _in_threads(
        lambda rows: A[rows].T @ B[rows], _blocks(len(A)), A.nbytes * B.shape[1]
    ):
        total += product
    return total


def _blocks(size: int) -> list[slice]:
    """Consecutive slices of a fixed length."""
    return [slice(first, first + GEMM_ROWS) for first in range(0, size, GEMM_ROWS)]
