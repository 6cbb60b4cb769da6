"""The kernels on NumPy arrays: blocked BLAS, sparse products, one thread per core.

Work is cut into blocks by size alone, and sums over blocks are taken in their order, so results do
not depend on the number of threads. Threads run blocks, each with a BLAS of one thread (see
`single_threaded_blas`): BLAS's own threads slow small matrices down, by up to twenty times.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar.kernels.near_blocks import pruned_nearest_others
from nearfar.kernels.search import FEWEST_POINTS, Search
from nearfar.kernels.slabs import leading, lowered_halves, nearer, pruned_impostor_pairs
from nearfar.kernels.threads import n_threads
from nearfar.kernels.tiles import PairCount, classes_of, inexact, labels_of, unlike_tiles
from nearfar.limits import check_time

Floats = NDArray[np.floating]
Index = NDArray[np.intp]
T = TypeVar("T")
R = TypeVar("R")

TILE = 1536  # rows of a tile of the all-pairs search: 9 MB of float32 products, a share of the L3
SMALL_TILE = 128  # the same if there are few points
LEADING_ROWS = 4096  # points from which a screen of fewer directions pays
GATHER_BYTES = 1 << 20  # bytes of gathered rows of one block of edges: an L2 cache
TREE_DIMENSIONS = 15  # up to which a tree finds neighbours in a large class
GEMM_ROWS = 4096  # rows of a block of a tall matrix product, at most
SCATTER_ROWS = 1024  # rows that are gathered for such a product at a time
SCREENED = 16  # columns that are compared first when equal rows are sought
THREADED_BYTES = 1 << 24  # bytes touched below which threads cost more than they gain
TABLE_ENTRIES = 1 << 22  # distances held at a time where each query needs those to all points
GROUP = 32  # distances in a group; the maxima of the groups bound the k-th nearest distance
CENTRE_ROWS = 4096  # rows that are enough for a centre
ROUGH = 1e-8  # a squared distance, relative to the largest, that a matrix product has lost
MIDDLE_ROWS = 32  # whose median is in the middle of a class, unless half of them are outliers
SOFTMAX_BYTES = 1 << 19  # bytes of a block of soft neighbours, which should stay in the cache
# Exponents that are lower than the largest by this much count as it: exp(−60) is lost in any sum of
# probabilities, but smaller ones become subnormal numbers, with which processors compute a hundred
# times slower. Exponents are shifted if their largest is below FAR.
NEGLIGIBLE, FAR = -60, -20
# Exponents below which a weight is negligible unless all are, and totals that tell the latter: the
# smallest normal numbers are about exp(-87) in float32 and exp(-708) in float64.
VANISHING = {np.float32: (-80.0, 1e-25), np.float64: (-700.0, 1e-280)}
SOFTMAX_ROWS = 64  # rows of such a block at least,
ENOUGH_ROWS = 192  # and of products that are as fast as larger ones
SOFTMAX_SHARES = 16  # partial sums over columns; at most this many threads can work


def to_host(x: Any) -> NDArray[Any]:
    """Return x as a NumPy array."""
    return np.asarray(x)


def detached(x: NDArray[Any]) -> NDArray[Any]:
    """Return x: arrays have no gradient."""
    return x


def like(x: Any, reference: Floats) -> Floats:
    """Return host array x with the dtype and device of the reference."""
    return np.asarray(x, dtype=reference.dtype)


def index(x: Any, reference: Floats) -> Index:  # noqa: ARG001 - the device twin needs it
    """Return host integers x as indices on the device of the reference."""
    return np.asarray(x, dtype=np.intp)


def compact(x: Index, size: int) -> Index:  # noqa: ARG001 - the device twin needs it
    """Return indices below ``size`` as they are kept: NumPy is twice as fast with its own type."""
    return x


def double(x: Floats) -> NDArray[np.float64]:
    """Return x in float64."""
    return np.asarray(x, dtype=np.float64)


def single(x: Floats) -> NDArray[np.float32]:
    """Return x in float32."""
    return np.asarray(x, dtype=np.float32)


def sqrt(x: NDArray[Any]) -> NDArray[Any]:
    """√x."""
    root: NDArray[Any] = np.sqrt(x)
    return root


def flatnonzero(mask: NDArray[np.bool_]) -> Index:
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


def arange(size: int, reference: Any) -> Index:  # noqa: ARG001 - the device twin needs it
    """0, 1, … size − 1."""
    return np.arange(size)


def searchsorted(ordered: Index, values: Index) -> Index:
    """Positions at which the values would stand in an ordered array."""
    return np.searchsorted(ordered, values)


def cumsum(values: Any) -> NDArray[Any]:
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


def smallest(values: Floats, count: int) -> Index:
    """Positions of the ``count`` smallest values (or of all), ascending by value. Time O(n)."""
    if count >= len(values):
        return np.argsort(values, kind="stable")
    found = np.sort(np.argpartition(values, count)[:count])
    return found[np.argsort(values[found], kind="stable")]


def first_equal(X: Floats) -> Index:
    """The number of the first row that equals each row; −0 equals 0.

    If there are many columns, rows are compared in a few columns first, and rows that agree there
    in all columns. Time O(n log n), and O(d) for each such row.
    """
    n, d = X.shape
    if d <= 2 * SCREENED:
        return _first_equal(X)
    found = _first_equal(X[:, :: d // SCREENED])
    rows = np.flatnonzero(np.bincount(found, minlength=n)[found] > 1)
    if len(rows):
        found[rows] = rows[_first_equal(X[rows])]
    return found


def _first_equal(X: Floats) -> Index:
    """As `first_equal`, by all columns.

    Rows are grouped by a hash of their bits, and each is compared with the first of its group. If
    two differ, a sort decides instead.
    """
    factors = np.random.default_rng(0).integers(0, 2**64, 2 * X.shape[1], dtype=np.uint64)
    keys, same = np.empty(len(X), np.uint64), True
    for block in _blocks(len(X)):
        words = np.ascontiguousarray(X[block] + 0).view(np.uint32)  # −0 + 0 is 0
        keys[block] = words.astype(np.uint64) @ factors[: words.shape[1]]
    ordered = np.sort(keys)
    if (ordered[1:] != ordered[:-1]).all():  # the usual case, and quicker to test
        return np.arange(len(X))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    for block in _blocks(len(X)):
        same = same and bool((X[block] == X[first[group[block]]]).all())
    if not same:
        _, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    return first[group]


def kth_squares(X: Floats, starts: Index, k: int) -> NDArray[np.float64]:
    """Squared distances to the k-th nearest others of the class (n,), in float64.

    A point of a smaller class has the largest, and one alone has 0. Distances come from a matrix
    product; points for which it may have lost digits are compared with their whole class. Time
    O(Σ m² d), memory O(SOFTMAX_BYTES).
    """
    out = np.zeros(len(X))
    for first, last in pairwise(starts.tolist()):
        near = min(k, last - first - 1)
        if near == 0:
            continue
        points = X[first:last].astype(np.float64)
        # In the middle: an outlier would take digits from the others.
        points -= np.median(points[:: -(-len(points) // MIDDLE_ROWS)], axis=0)
        squares = np.einsum("ij,ij->i", points, points)
        rough = ROUGH * 2 * squares.max()
        step = max(SOFTMAX_ROWS, SOFTMAX_BYTES // (8 * len(points)))
        for begin in range(0, len(points), step):
            check_time()
            rows = slice(begin, min(begin + step, len(points)))
            table = np.matmul(-2 * points[rows], points.T)
            table += squares
            table[np.arange(len(table)), np.arange(rows.start, rows.stop)] = np.inf
            table.partition(near - 1, axis=1)
            found = table[:, near - 1] + squares[rows]
            for row in np.flatnonzero(found < rough):
                exact = ((points - points[begin + row]) ** 2).sum(axis=1)
                found[row] = np.partition(exact, near)[near]  # after the point itself
            out[first + rows.start : first + rows.stop] = found
    return out


def searches_are_cheap(Z: NDArray[Any]) -> bool:  # noqa: ARG001 - the device twin needs it
    """Whether a search costs no more than a few steps: not on the host."""
    return False


def nearest_in_class(X: Floats, starts: Index, k: int) -> tuple[Index, Index]:
    """Edges from each point to its k nearest others of its class, nearest first.

    A class of m < k + 1 points gives each of its points m − 1 edges. Time O(Σ m² d), less for large
    classes: by a tree in few dimensions, otherwise by blocks (see `nearfar.kernels.near_blocks`).
    """
    heads: list[Index] = [np.empty(0, dtype=np.intp)]
    tails: list[Index] = [np.empty(0, dtype=np.intp)]
    for first, last in pairwise(starts.tolist()):
        check_time()
        near = min(k, last - first - 1)
        if near == 0:
            continue
        heads.append(np.repeat(np.arange(first, last), near))
        tails.append(first + _nearest_others(X[first:last], near).ravel())
    return np.concatenate(heads), np.concatenate(tails)


def _nearest_others(points: Floats, k: int) -> Index:
    """The k nearest other points of each point (m, k), nearest first, ties by number."""
    in_tree = len(points) >= FEWEST_POINTS and points.shape[1] <= TREE_DIMENSIONS
    pruned = None if in_tree else pruned_nearest_others(points, k, _in_threads)
    if pruned is not None:
        return pruned
    search = Search.of(points, "kd_tree" if in_tree else "brute")
    found, _ = search.nearest(points, k + 1)
    others = found != np.arange(len(points))[:, None]
    others[others.all(axis=1), -1] = False  # after as many equal points it does not find itself
    chosen: Index = found[others].reshape(len(points), k)
    return chosen


def impostor_pairs(
    Z: Floats, reach: Floats, starts: Index, screen: Floats | None = None
) -> tuple[Index, Index]:
    """All (i, l) of different classes with ‖zᵢ − z_l‖² < reachᵢ, by i and then by l.

    If bounds between blocks of near points exclude most pairs (see `nearfar.kernels.slabs`), only
    the remaining pairs are compared; otherwise all are, in time O(n² r / 2). Memory is O(TILE²), or
    that of the blocks, plus the answer. ``screen`` may be Z rounded to a cheaper type, which saves
    time and does not change the answer.
    """
    n = len(Z)
    code = pruned_impostor_pairs(Z, reach, starts, _in_threads)
    if code is None:
        code = _screened_impostor_pairs(
            Z, reach, starts, _screen(Z, reach) if screen is None else screen
        )
    code.sort()
    heads, tails = np.divmod(code, max(n, 1))
    return heads, tails


def _screened_impostor_pairs(Z: Floats, reach: Floats, starts: Index, S: Floats) -> Index:
    """The impostor pairs as codes i n + l in any order, found among all pairs.

    Screens every pair once by −½‖zᵢ − z_l‖² = zᵢ·z_l − ½‖zᵢ‖² − ½‖z_l‖², computed by a matrix
    product of the rounded points S and corrected by a bound on its rounding error. The few pairs
    that pass are decided by exact differences. Many points in float32 are screened in the
    directions in which they vary most, as in `nearfar.kernels.slabs`.
    """
    n = len(Z)
    # |computed − true| <= (r + 8) eps (‖zᵢ‖² + ‖z_l‖²): shrink the norms by that much.
    half = _lowered_halves(S)
    points = leading(Z, reach) if n >= LEADING_ROWS and S.dtype == np.float32 else None
    if points is not None:
        S, half = points, lowered_halves(points, Z.shape[1])
    ones = np.ones(n, S.dtype)
    left = np.column_stack([S, ones, -half])
    right = np.column_stack([S, -half, ones]).T
    with np.errstate(over="ignore"):
        bar = np.nextafter((-0.5 * reach).astype(S.dtype), -np.inf, dtype=S.dtype)
    labels, count = labels_of(starts), PairCount(Z)

    def codes(tile: tuple[slice, slice]) -> Index:
        rows, columns = tile
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right[:, columns]
        far = product <= bar[rows, None]
        far &= product <= bar[columns]
        place = np.flatnonzero(np.logical_not(far, out=far))
        i, j = np.divmod(place, far.shape[1])
        i, j, score = i + rows.start, j + columns.start, product.ravel()[place]
        unlike = labels[i] != labels[j]
        one = unlike & ~(score <= bar[i])
        heads, tails = i[one], j[one]
        if rows != columns:  # a tile on the diagonal holds each pair both ways
            other = unlike & ~(score <= bar[j])
            heads, tails = np.concatenate([heads, j[other]]), np.concatenate([tails, i[other]])
        near = nearer(Z, reach, heads, tails)
        code: Index = heads[near] * n + tails[near]
        count.add(len(code))
        return code

    tiles = list(unlike_tiles(starts, min(TILE, max(SMALL_TILE, n // 8)), TILE))
    found = _in_threads(codes, tiles, n * n * S.itemsize)
    return np.concatenate([np.empty(0, np.intp), *found])


def _screen(Z: Floats, reach: Floats) -> Floats:
    """Z in float32 if the rounding error is small compared with the reach, else Z."""
    if Z.dtype == np.float32 or len(Z) == 0:
        return Z
    error = 2 * (Z.shape[1] + 8) * np.finfo(np.float32).eps * np.einsum("ij,ij->i", Z, Z).max()
    return (
        Z.astype(np.float32)
        if error < 0.02 * reach.min(where=np.isfinite(reach), initial=np.inf)
        else Z
    )


def cross_impostor_pairs(
    Q: Floats,
    reach: Floats,
    Z: Floats,
    labels: Index,
    others: Index,
    screen: tuple[Floats, Floats] | None = None,
) -> tuple[Index, Index]:
    """All (i, l) with ‖qᵢ − z_l‖² < reachᵢ and different labels, by i and then by l.

    As `impostor_pairs`, for queries that are not among the points: a matrix product screens the
    pairs, exact differences decide, and ``screen`` may be both arrays rounded to a cheaper type.
    Time O(m n r).
    """
    A, B = (Q, Z) if screen is None else screen
    r, width, eps = Q.shape[1], max(len(Z), 1), np.finfo(B.dtype).eps
    half, bar = _lowered_halves(B), _lowered_halves(A)
    with np.errstate(over="ignore"):
        bar -= (0.5 * reach).astype(B.dtype)
    bar[bar == -np.inf] = np.nan  # a reach beyond the type: all pairs pass
    bar = np.nextafter(bar * np.where(bar < 0, 1 + eps, 1 - eps), -np.inf, dtype=B.dtype)
    right = np.column_stack([B, -half]).T
    left = np.column_stack([A, np.ones(len(A), A.dtype)])
    stack = np.concatenate([Q, Z])

    def codes(rows: slice) -> Index:
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right
        heads, tails = np.divmod(np.flatnonzero(~(product <= bar[rows, None])), width)
        heads += rows.start
        unlike = labels[heads] != others[tails]
        heads, tails = heads[unlike], tails[unlike]
        near = sq_lengths(stack, heads, len(Q) + tails) < reach[heads]
        code: Index = heads[near] * width + tails[near]
        return code

    step = max(16, TILE * TILE // width)
    parts = [slice(first, min(first + step, len(Q))) for first in range(0, len(Q), step)]
    found = _in_threads(codes, parts, len(Q) * width * r * B.itemsize)
    heads, tails = np.divmod(np.concatenate([*found, np.empty(0, np.intp)]), width)
    return heads, tails


def mutual_impostor_pairs(
    Q: Floats,
    reach: Floats,
    Z: Floats,
    others_reach: Floats,
    labels: Index,
    others: Index,
    screen: tuple[Floats, Floats] | None = None,
) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
    """`cross_impostor_pairs` of Q among Z, and of Z among Q, by one matrix product.

    Many points in float32 are screened in the directions in which they vary most.
    """
    A, B = (Q, Z) if screen is None else screen
    r, width, stack = Q.shape[1], max(len(Z), 1), np.concatenate([Q, Z])
    halves = _lowered_halves(A), _lowered_halves(B)
    if len(stack) >= LEADING_ROWS and B.dtype == np.float32:
        points = leading(stack, np.concatenate([reach, others_reach]))
        if points is not None:
            lowered = lowered_halves(points, r)
            A, B = points[: len(Q)], points[len(Q) :]
            halves = lowered[: len(Q)], lowered[len(Q) :]
    left = np.column_stack([A, np.ones(len(A), A.dtype), -halves[0]])
    right = np.column_stack([B, -halves[1], np.ones(len(B), B.dtype)]).T
    with np.errstate(over="ignore"):
        bar, others_bar = (
            np.nextafter((-0.5 * values).astype(B.dtype), -np.inf, dtype=B.dtype)
            for values in (reach, others_reach)
        )

    def codes(rows: slice) -> tuple[Index, Index]:
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            product = left[rows] @ right
        far = product <= bar[rows, None]
        far &= product <= others_bar
        i, j = np.divmod(np.flatnonzero(np.logical_not(far, out=far)), width)
        i += rows.start
        unlike = labels[i] != others[j]
        i, j = i[unlike], j[unlike]
        lengths, code = sq_lengths(stack, i, len(Q) + j), i * width + j
        return code[lengths < reach[i]], code[lengths < others_reach[j]]

    step = max(16, TILE * TILE // width)
    parts = [slice(first, min(first + step, len(Q))) for first in range(0, len(Q), step)]
    found = _in_threads(codes, parts, len(Q) * width * r * B.itemsize)
    none = np.empty(0, np.intp)
    forth, back = (np.concatenate([none, *(part[way] for part in found)]) for way in (0, 1))
    i, j = np.divmod(back, width)
    order = np.lexsort((i, j))
    return np.divmod(forth, width), (j[order], i[order])


def _lowered_halves(S: Floats) -> Floats:
    """½‖s‖² of each row minus a bound on the rounding of its products; nan on overflow."""
    shrink = S.dtype.type(0.5 - (S.shape[1] + 8) * np.finfo(S.dtype).eps)
    with np.errstate(over="ignore"):
        half: Floats = np.einsum("ij,ij->i", S, S) * shrink
    half[np.isinf(half)] = np.nan
    return half


def sq_lengths(Z: Floats, heads: Index, tails: Index) -> Floats:
    """‖z_h − z_t‖² along each edge. Time O(m r)."""
    out = np.empty(len(heads), Z.dtype)

    def block(part: slice) -> None:
        difference = _differences(Z, heads[part], tails[part])
        _dots(difference, difference, out[part])

    _over_blocks(block, len(heads), Z.shape[1] * Z.itemsize)
    return out


def edge_products(Z: Floats, D: Floats, heads: Index, tails: Index) -> tuple[Floats, Floats]:
    """(z_h − z_t)·(d_h − d_t) and ‖d_h − d_t‖² along each edge. Time O(m r)."""
    cross = np.empty(len(heads), Z.dtype)
    square = np.empty(len(heads), Z.dtype)

    def block(part: slice) -> None:
        change = _differences(D, heads[part], tails[part])
        _dots(_differences(Z, heads[part], tails[part]), change, cross[part])
        _dots(change, change, square[part])

    _over_blocks(block, len(heads), 2 * Z.shape[1] * Z.itemsize)
    return cross, square


def _dots(A: Floats, B: Floats, out: Floats) -> None:
    """Dot products of the rows of A and B; faster than `vecdot` for short rows."""
    np.einsum("ij,ij->i", A, B, out=out)


def _differences(Z: Floats, heads: Index, tails: Index) -> Floats:
    difference = np.take(Z, heads, axis=0)
    difference -= np.take(Z, tails, axis=0)
    return difference


def _over_blocks(work: Callable[[slice], None], size: int, row_bytes: int) -> None:
    """Do the work on consecutive slices that fit the cache."""
    step = max(64, GATHER_BYTES // row_bytes)

    def share(part: slice) -> None:
        for first in range(part.start, part.stop, step):
            check_time()
            work(slice(first, min(first + step, part.stop)))

    _in_threads(share, _shares(size), size * row_bytes)


def _shares(size: int) -> list[slice]:
    """Consecutive slices, one for each thread."""
    n_shares = n_threads()
    cuts = [size * part // n_shares for part in range(n_shares + 1)]
    return [slice(*ends) for ends in pairwise(cuts)]


def _in_threads(work: Callable[[T], R], parts: list[T], n_bytes: int) -> list[R]:
    """Results of the work on each part, in order; in threads if it reads or writes enough bytes.

    Once the time of the fit is up, no thread starts another part.
    """

    def in_time(part: T) -> R:
        check_time()
        return work(part)

    if len(parts) < 2 or n_threads() == 1 or n_bytes < THREADED_BYTES:
        return [in_time(part) for part in parts]
    context = copy_context()  # the threads of a pool have no context of their own
    with ThreadPoolExecutor(n_threads()) as pool:
        return list(pool.map(lambda part: context.copy().run(in_time, part), parts))


def laplacian_matmul(heads: Index, tails: Index, weights: Floats, Z: Floats) -> Floats:
    """Lap(w) Z, where Lap(w) = Σₑ wₑ (e_h − e_t)(e_h − e_t)ᵀ. Time O(m r)."""
    n = len(Z)
    used = np.flatnonzero(weights)
    heads, tails, weights = heads[used], tails[used], weights[used]
    degree = np.bincount(heads, weights, n) + np.bincount(tails, weights, n)
    out, weights = degree.astype(Z.dtype)[:, None] * Z, weights.astype(Z.dtype)
    if 2 * len(used) * Z.shape[1] * Z.itemsize < THREADED_BYTES:
        order = np.argsort(heads, kind="stable")  # quick, as there are sorted runs
        starts = np.searchsorted(heads, np.arange(n + 1), sorter=order)
        W = sparse.csr_array((weights[order], tails[order], starts), shape=(n, n))
        out -= W @ Z
        out -= W.T @ Z
        return out
    check_time()
    W = sparse.csr_array((weights, (heads, tails)), shape=(n, n))
    check_time()
    transposed = W.T.tocsr()
    check_time()
    symmetric = (W + transposed).tocsr()  # rows that threads can share

    def rows_of(rows: slice) -> None:
        out[rows] -= symmetric[rows] @ Z

    _in_threads(rows_of, _shares(n), symmetric.nnz * Z.shape[1] * Z.itemsize)
    return out


def apply(U: Floats, L: Floats) -> Floats:
    """U Lᵀ in the dtype of U, L on the host."""
    factor = L.astype(U.dtype, copy=False).T
    out = np.empty((len(U), len(L)), U.dtype)

    def rows_of(rows: slice) -> None:
        np.matmul(U[rows], factor, out=out[rows])

    _in_threads(rows_of, _blocks(len(U)), U.nbytes * len(L))
    return out


def apply_centred(X: Floats, centre: Floats, L: Floats) -> NDArray[np.float64]:
    """(X − centre) Lᵀ in float64, L on the host; rows are made float64 a block at a time."""
    out = np.empty((len(X), len(L)))

    def rows_of(rows: slice) -> None:
        np.matmul(double(X[rows]) - centre, L.T, out=out[rows])

    _in_threads(rows_of, _blocks(len(X)), X.nbytes * len(L))
    return out


def gram(A: Floats, B: Floats) -> NDArray[np.float64]:
    """Aᵀ B on the host, its sums over blocks of rows taken in float64."""
    shape = A.shape[1], B.shape[1]
    work = A.nbytes * B.shape[1]
    return _summed(lambda rows: A[rows].T @ B[rows], _blocks(len(A)), shape, work)


def edge_scatter(
    Z: Floats, heads: Index, tails: Index, weights: Floats | None = None
) -> NDArray[np.float64]:
    """Σ w (z_h − z_t)(z_h − z_t)ᵀ over the edges, on the host in float64. Time O(m d²).

    Weights are not negative; None for w = 1.
    """
    d = Z.shape[1]

    def scatter(part: slice) -> NDArray[np.float64]:
        total = np.zeros((d, d))
        for first in range(part.start, part.stop, SCATTER_ROWS):
            edges = slice(first, min(first + SCATTER_ROWS, part.stop))
            difference = double(np.take(Z, heads[edges], axis=0))
            difference -= np.take(Z, tails[edges], axis=0)
            if weights is not None:
                difference *= np.sqrt(weights[edges])[:, None]
            total += difference.T @ difference
        return total

    return _summed(scatter, _blocks(len(heads)), (d, d), 8 * len(heads) * d * d)


def group_scatter(Z: Floats, rows: Index, starts: Index) -> NDArray[np.float64]:
    """Σ (z − m)(z − m)ᵀ over groups of rows, m being the mean of the group of z.

    Group g is ``rows[starts[g]:starts[g + 1]]``, which is not empty. The sum is on the host in
    float64. Time O(m d²), memory O(SCATTER_ROWS d) a thread, or that of the largest group.
    """
    d = Z.shape[1]

    def scatter(part: slice) -> NDArray[np.float64]:
        total = np.zeros((d, d))
        for groups in _whole_groups(starts, part, SCATTER_ROWS):
            cuts = starts[groups.start : groups.stop + 1]
            members = double(np.take(Z, rows[cuts[0] : cuts[-1]], axis=0))
            sizes = np.diff(cuts)
            means = np.add.reduceat(members, cuts[:-1] - cuts[0], axis=0) / sizes[:, None]
            members -= np.repeat(means, sizes, axis=0)
            total += members.T @ members
        return total

    size = -(-len(rows) // max(len(_blocks(len(rows))), 1))
    parts = _whole_groups(starts, slice(0, len(starts) - 1), size)
    return _summed(scatter, parts, (d, d), 8 * len(rows) * d * d)


def _whole_groups(starts: Index, groups: slice, size: int) -> list[slice]:
    """Consecutive slices of some groups, each of about ``size`` rows, or of one larger group."""
    first, last = int(starts[groups.start]), int(starts[groups.stop])
    ends = np.searchsorted(starts, [*range(first + size, last, size), last] if last > first else [])
    return [slice(*pair) for pair in pairwise([groups.start, *unique(ends).tolist()])]


def _summed(
    work: Callable[[slice], Floats], parts: list[slice], shape: tuple[int, int], n_bytes: int
) -> NDArray[np.float64]:
    """The sum of the matrices of all parts, taken in float64."""
    total = np.zeros(shape)
    for product in _in_threads(work, parts, n_bytes):
        total += product
    return total


def _blocks(size: int) -> list[slice]:
    """One slice, or an even number of slices of about equal length: two threads end together."""
    count = -(-size // GEMM_ROWS)
    count += count % 2 if count > 1 else 0
    return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]


def nearest(Q: Floats, Z: Floats, k: int) -> tuple[Index, Floats]:
    """Rows (m, k) of Z nearest to each row of Q, nearest first, and their squared distances.

    Ties are ordered by row number; k is at most n. Distances are computed in float64; the order of
    two that differ only by rounding depends on the order of summation.

    A matrix product gives −½D, raised by a bound on its rounding error. Its k-th largest value
    bounds the k-th distance from above, and all points that may be that near are compared by exact
    differences. Time O(m n r), memory O(TABLE_ENTRIES) plus the answer.
    """
    near = np.empty((len(Q), k), dtype=np.intp)
    lengths = np.empty((len(Q), k))
    if k == 0:
        return near, lengths
    A, B = _centred(Q, Z)
    c = (Z.shape[1] + 8) * float(np.finfo(B.dtype).eps)
    squares = np.einsum("ij,ij->i", A, A)
    shrink = B.dtype.type(0.5 - c)
    ones = np.ones(len(A), A.dtype)
    left = np.column_stack([A, ones, -shrink * squares])
    right = np.column_stack([B, -shrink * np.einsum("ij,ij->i", B, B), np.ones(len(B), B.dtype)]).T

    def search(rows: slice) -> None:
        with np.errstate(all="ignore"):  # an overflow gives nan, which passes
            score = left[rows] @ right
            # Of a point with score s: D <= −2s + 4c(‖q‖² + ‖z‖²), and ‖z‖² <= 2‖q‖² + 2D.
            reach = 12 * c * squares[rows].astype(np.float64) - 2.0 * _kth_largest(score, k)
            bar = (-0.5 / (1 - 8 * c) * reach).astype(score.dtype)
            bar = np.nextafter(bar, -np.inf, dtype=score.dtype)
        heads, tails = np.divmod(np.flatnonzero(~(score < bar[:, None])), len(Z))
        squared = _exact_squares(Q, Z, heads + rows.start, tails)
        order = np.lexsort((squared, heads))  # stable: equals stay in the order of their rows
        first = np.searchsorted(heads, np.arange(len(score)))
        chosen = order[first[:, None] + np.arange(k)]
        near[rows], lengths[rows] = tails[chosen], squared[chosen]

    _in_threads(search, _tables(len(Q), len(Z)), len(Q) * Z.nbytes)
    return near, lengths


def _kth_largest(score: Floats, k: int) -> Floats:
    """A lower bound on the k-th largest entry of each row, from the maxima of small groups."""
    depth = max(1, min(GROUP, score.shape[1] // (4 * k)))
    width = score.shape[1] // depth
    maxima = score[:, : depth * width].reshape(len(score), depth, width).max(axis=1)
    return np.partition(maxima, width - k, axis=1)[:, width - k].astype(np.float64)


def _centred(Q: Floats, Z: Floats) -> tuple[Floats, Floats]:
    """Both sets, centred at the median of a sample of Z to reduce rounding, in the dtype of Z."""
    if len(Z) == 0:
        return Q, Z
    centre = np.median(Z[:: -(-len(Z) // CENTRE_ROWS)].astype(np.float64), axis=0)
    return (Q - centre).astype(Z.dtype), (Z - centre).astype(Z.dtype)


def _exact_squares(Q: Floats, Z: Floats, heads: Index, tails: Index) -> NDArray[np.float64]:
    """‖q_h − z_t‖² by differences in float64."""
    out = np.empty(len(heads))
    step = max(64, GATHER_BYTES // (8 * max(Z.shape[1], 1)))
    for first in range(0, len(heads), step):
        part = slice(first, first + step)
        difference = Q[heads[part]].astype(np.float64)
        difference -= Z[tails[part]]
        np.vecdot(difference, difference, out=out[part])
    return out


def _tables(m: int, n: int) -> list[slice]:
    """Consecutive slices of m queries, so that tables of distances to n points have fixed size."""
    step = max(1, TABLE_ENTRIES // max(n, 1))
    return [slice(first, min(first + step, m)) for first in range(0, m, step)]


def nearest_of_classes(Q: Floats, X: Floats, starts: Index, k: int) -> Index:
    """Rows (m, C, k) of each class of X nearest to each row of Q, −1 where a class has fewer."""
    near = np.full((len(Q), len(starts) - 1, k), -1)
    for c, (first, last) in enumerate(pairwise(starts.tolist())):
        count = min(k, last - first)
        near[:, c, :count] = first + nearest(Q, X[first:last], count)[0]
    return near


def hinge_sums(
    Q: Floats, Z: Floats, starts: Index, reach: Floats, radius: Floats
) -> tuple[Floats, Floats]:
    """Sums of hinges between queries and classes, in float64, with D(t, l) = ‖q_t − z_l‖².

    The first, (m, C), is Σⱼ Σ_l [reach_tcj − D(t, l)]₊ over all l that are not of class c, and the
    second, (m, C), is Σ_l Σⱼ [radius_lj − D(t, l)]₊ over all l of class c. ``reach`` is (m, C, k)
    and ``radius`` (n, k'); −inf adds nothing, and k or k' may be zero.

    Distances come from a matrix product in the dtype of Z, and from differences where its rounding
    error may exceed a hundredth of the distance plus the smallest reach. The first sum is taken
    over all l, from sorted distances, and the terms of class c are subtracted. Time
    O(m n (r + k + log n) + m C k log n), memory O(TABLE_ENTRIES).
    """
    m, n_classes, k = reach.shape
    outside, inside = np.zeros((m, n_classes)), np.zeros((m, n_classes))
    A, B = _centred(Q, Z)
    with np.errstate(over="ignore"):
        left = np.column_stack([-2 * A, np.ones(len(A), A.dtype), np.einsum("ij,ij->i", A, A)])
        right = np.column_stack([B, np.einsum("ij,ij->i", B, B), np.ones(len(B), B.dtype)])
    bars = np.maximum(reach, 0).astype(Z.dtype)  # in the dtype of the distances
    widest = np.nextafter(radius.max(axis=1, initial=0).astype(Z.dtype), np.inf, dtype=Z.dtype)
    values = np.concatenate([reach.ravel(), radius.ravel()])
    least = float(values.min(where=np.isfinite(values), initial=np.inf))
    labels, eps = labels_of(starts), float(np.finfo(Z.dtype).eps)

    def add_sums(rows: slice) -> None:
        with np.errstate(all="ignore"):  # overflows are recomputed below
            table = left[rows] @ right.T
            doubt = inexact(table, left[rows, -1], right[:, -2], least, Z.shape[1], eps)
            if doubt is not None:
                heads, tails = np.divmod(np.flatnonzero(doubt), len(Z))
                table[heads, tails] = _exact_squares(Q, Z, heads + rows.start, tails)
        np.maximum(table, 0, out=table)
        near, place = np.divmod(np.flatnonzero(table < widest), len(Z))
        hinges = np.maximum(radius[place] - table[near, place, None], 0).sum(axis=1)
        code = near * n_classes + labels[place]
        inside[rows] = np.bincount(code, hinges, len(table) * n_classes).reshape(-1, n_classes)
        if k:
            own = [
                _hinges(bars[rows, c], table[:, first:last])
                for c, (first, last) in enumerate(pairwise(starts.tolist()))
            ]
            whole = [_hinges_of_many(bar, row) for bar, row in zip(bars[rows], table, strict=True)]
            outside[rows] = (np.array(whole) - np.column_stack(own)).clip(0)

    _in_threads(add_sums, _tables(m, len(Z)) if len(Z) else [], m * Z.nbytes)
    return outside, inside


def _hinges(bars: Floats, table: Floats) -> NDArray[np.float64]:
    """Σⱼ Σ_l [bars_tj − table_tl]₊ for each t."""
    total = np.zeros(len(table))
    for bar in bars.T:
        total += np.maximum(bar[:, None] - table, 0).sum(axis=1, dtype=np.float64)
    return total


def _hinges_of_many(bars: Floats, row: Floats) -> NDArray[np.float64]:
    """Σⱼ Σ_l [bars_cj − row_l]₊ for each c, from the cumulative sums of the sorted row."""
    below = row[row < bars.max()]
    below.sort()
    running = np.concatenate([[0], np.cumsum(below, dtype=np.float64)])
    count = np.searchsorted(below, bars)
    total: NDArray[np.float64] = (count * bars.astype(np.float64) - running[count]).sum(axis=1)
    return total


def similarities(
    X: Floats, Y: Floats, kernel: str, gamma: float = 1.0, degree: int = 3, coef0: float = 1.0
) -> Floats:
    """k(x, y) for each row x of X and y of Y, (m, n). Time O(m n d).

    In float64, as scikit-learn computes them: its checks would take longer than a small block.
    """
    if kernel in ("laplacian", "cosine"):
        parameters = {"gamma": gamma} if kernel == "laplacian" else {}
        return np.asarray(pairwise_kernels(X, Y, metric=kernel, **parameters), dtype=X.dtype)
    dtype = X.dtype
    X, Y = X.astype(np.float64, copy=False), Y.astype(np.float64, copy=False)
    values = X @ Y.T
    if kernel == "rbf":
        values *= -2
        values += np.einsum("ij,ij->i", X, X)[:, None]
        values += np.einsum("ij,ij->i", Y, Y)
        np.maximum(values, 0, out=values)
        values *= -gamma
        np.exp(values, out=values)
    elif kernel != "linear":
        values *= gamma
        values += coef0
        if kernel == "poly":
            values **= degree
        else:  # sigmoid
            np.tanh(values, out=values)
    return values.astype(dtype, copy=False)


def softmax_neighbors(
    Z: Floats,
    Y: Floats,
    starts: Index,
    own: bool = False,
    both: bool = False,
    masses: NDArray[np.float64] | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats | None]:
    """Sums over the soft neighbours p_ij = exp(−‖zᵢ − zⱼ‖²) / Σ_{l≠i} exp(−‖zᵢ − z_l‖²), j ≠ i.

    Returns the logarithm of the denominator (n,), the share of the own class in it (n,), and for
    the weights w_ij = p_ij, or with ``own`` w_ij = p_ij ([yᵢ = yⱼ] − shareᵢ), the degrees
    Σⱼ (w_ij + w_ji) (n,), the product W Y (n, c), and Wᵀ Y (n, c) if ``both``, else None. A point
    alone in its class has weights of zero. All but the products are in float64; n is at least 2.

    With ``masses`` m (n,), which are positive, point j counts m_j times as a neighbour, so that
    p_ij = m_j exp(−‖zᵢ − zⱼ‖²) / Σ_{l≠i} m_l exp(−‖zᵢ − z_l‖²), and w_ij is multiplied by mᵢ.

    Exponents come from one matrix product in the dtype of Z, so that Z should be centred. Time
    O(n² (r + c)), memory O(SOFTMAX_BYTES) or that of Z a thread, and SOFTMAX_SHARES times the
    column sums.
    """
    (n, columns), dtype = Y.shape, Z.dtype
    squares, one = np.einsum("ij,ij->i", Z, Z)[:, None], np.ones((n, 1), dtype)
    heights = squares if masses is None else squares - np.log(masses)[:, None].astype(dtype)
    # −‖zᵢ − zⱼ‖² + log mⱼ, in one product with a matrix that is laid out for it
    left, right = np.hstack([2 * Z, -one, -squares]), np.vstack([Z.T, heights.T, one.T])
    weights = np.repeat(np.diff(starts) > 1, np.diff(starts)) * (1.0 if masses is None else masses)
    logs, shares = np.empty(n), np.empty(n)
    forward = np.empty((n, columns), Y.dtype)
    # Up to ENOUGH_ROWS rows, blocks may be as large as Z.
    least = max(SOFTMAX_ROWS, min(ENOUGH_ROWS, Z.shape[1]))
    step = min(n, max(least, SOFTMAX_BYTES // (n * Z.itemsize)))
    size = max(step, -(-n // SOFTMAX_SHARES))
    step = -(-size // -(-size // step))  # all blocks of a part have about the same size
    parts = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    # Large buffers are allocated here: memory that threads allocate stays in their heaps.
    buffers = [np.empty((step, n), dtype) for _ in range(min(n_threads(), len(parts)))]

    def sums(part: slice) -> tuple[NDArray[np.float64], Floats | None]:
        degrees = np.zeros(n)
        backward = np.zeros((n, columns), Y.dtype) if both else None
        buffer = buffers.pop()
        for first in range(part.start, part.stop, step):
            check_time()
            rows = slice(first, min(first + step, part.stop))
            W = np.matmul(left[rows], right, out=buffer[: rows.stop - rows.start])
            top, total = _exponentials(W, rows)
            logs[rows] = top + np.log(total)
            scale = weights[rows] / total
            shares[rows] = _shares_of_class(W, rows, starts) / total
            if own:
                _subtract_share(W, rows, starts, shares[rows], scale)
                scale = np.ones(len(W))
            factors = scale.astype(dtype)
            np.matmul(W, Y, out=forward[rows])
            forward[rows] *= factors[:, None]
            degrees += factors @ W
            if not own:
                degrees[rows] += weights[rows]
            if backward is not None:
                backward += W.T @ (factors[:, None] * Y[rows])
        buffers.append(buffer)
        return degrees, backward

    found = _in_threads(sums, parts, n * n * (Z.shape[1] + columns) * Z.itemsize)
    degrees = np.zeros(n)
    backward = np.zeros((n, columns), Y.dtype) if both else None
    for part, products in found:
        degrees += part
        if backward is not None and products is not None:
            backward += products
    return logs, shares, degrees, forward, backward


def _exponentials(table: Floats, rows: slice) -> tuple[Floats, NDArray[np.float64]]:
    """Turn exponents of some rows into their exponentials, in place; zero for the point itself.

    Returns what was subtracted from the exponents of each row first, and the sums of the rows. It
    is the largest exponent if one of them is below FAR, or above -FAR by rounding of points far
    from the centre, and otherwise 0, which saves a pass.
    """
    itself = np.arange(len(table)), np.arange(rows.start, rows.stop)
    table[itself] = -np.inf
    top = table.max(axis=1)
    if top.min(initial=0.0) < FAR or top.max(initial=0.0) > -FAR:
        table -= top[:, None]
        lowest = NEGLIGIBLE
    else:
        top, lowest = np.zeros_like(top), NEGLIGIBLE + FAR
    table[itself] = 0
    if table.min(initial=0.0) < lowest:
        np.maximum(table, lowest, out=table)
    np.exp(table, out=table)
    table[itself] = 0
    return top, table.sum(axis=1).astype(np.float64)


def _softmax(table: Floats, rows: slice) -> None:
    """Turn exponents of some rows into probabilities of all but the point itself, in place."""
    total = _exponentials(table, rows)[1]
    table /= total[:, None].astype(table.dtype)


def _shares_of_class(table: Floats, rows: slice, starts: Index) -> NDArray[np.float64]:
    """The sums of some rows over their class."""
    sums = np.empty(len(table))
    for members, (first, last) in classes_of(rows, starts):
        sums[members] = table[members, first:last].sum(axis=1)
    return sums


def _subtract_share(
    table: Floats,
    rows: slice,
    starts: Index,
    shares: NDArray[np.float64],
    scale: NDArray[np.float64],
) -> None:
    """Multiply entries of the own class by (1 − share) scale, others by −share scale, in place."""
    inside = ((1 - shares) * scale)[:, None].astype(table.dtype)
    outside = (-shares * scale)[:, None].astype(table.dtype)
    for members, (first, last) in classes_of(rows, starts):
        table[members, :first] *= outside[members]
        table[members, first:last] *= inside[members]
        table[members, last:] *= outside[members]


def kernel_regression(
    Z: Floats, U: Floats, y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Leave-one-out estimates from soft neighbours, and the scatter in the gradient of their error.

    Returns ŷᵢ = Σⱼ p_ij yⱼ (n,), with the p_ij of `softmax_neighbors`, and the scatter
    Σᵢⱼ w_ij (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ (s, s) with w_ij = 2 (ŷᵢ − yᵢ)(ŷᵢ − yⱼ) p_ij. These and y (n,) are
    in float64, on the host; n is at least 2.

    Exponents come from one matrix product in the dtype of Z, so that Z should be centred; rows are
    shifted by their largest only where all weights of one would vanish. Time O(n² (r + s)), memory
    O(SOFTMAX_BYTES) a thread and SOFTMAX_SHARES times 2 n numbers.
    """
    (n, s), dtype = U.shape, Z.dtype
    squares, one = np.einsum("ij,ij->i", Z, Z)[:, None], np.ones((n, 1), dtype)
    left, right = np.hstack([2 * Z, -one, -squares]), np.hstack([Z, squares, one])
    column = y[:, None].astype(dtype)
    moments = np.hstack([U, column * U, column, one])
    lowest, least = VANISHING[dtype.type]
    deep = -4 * float(squares.max()) < lowest  # no exponent is below this
    estimates = np.empty(n)
    step = min(n, max(SOFTMAX_ROWS, SOFTMAX_BYTES // (n * Z.itemsize)))
    size = max(step, -(-n // SOFTMAX_SHARES))
    parts = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    buffers = [np.empty((step, n), dtype) for _ in range(min(n_threads(), len(parts)))]

    def sums(part: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        backward, across, buffer = np.zeros((2, n)), np.zeros((s, s)), buffers.pop()
        for first in range(part.start, part.stop, step):
            check_time()
            rows = slice(first, min(first + step, part.stop))
            itself = np.arange(rows.stop - first), np.arange(first, rows.stop)
            W = np.matmul(left[rows], right.T, out=buffer[: rows.stop - first])
            if deep:
                np.maximum(W, lowest, out=W)
            np.exp(W, out=W)
            W[itself] = 0
            found = (W @ moments).astype(np.float64)
            if found[:, -1].min() < least:
                _softmax(np.matmul(left[rows], right.T, out=W), rows)
                found = (W @ moments).astype(np.float64)
            total = found[:, -1]
            estimates[rows] = found[:, -2] / total
            b = 2 * (estimates[rows] - y[rows]) / total
            a = b * estimates[rows]
            inside = a[:, None] * found[:, :s] - b[:, None] * found[:, s : 2 * s]
            across += U[rows].T @ inside
            backward += np.stack([a, b]).astype(dtype) @ W
        buffers.append(buffer)
        return backward, across

    found = _in_threads(sums, parts, n * n * (Z.shape[1] + 2 * s) * Z.itemsize)
    (first, second), across = (np.sum(part, axis=0) for part in zip(*found, strict=True))
    columns = (first - y * second)[:, None]
    return estimates, U.T @ (columns * U) - across - across.T


def local_laplacian(Z: Floats, scales: Floats, starts: Index) -> Floats:
    """Σⱼ aᵢⱼ (zᵢ − zⱼ) over the class of i (n, r), with aᵢⱼ = exp(−‖zᵢ − zⱼ‖² / (sᵢ sⱼ)).

    Distances come from a matrix product in the dtype of Z, of points relative to the mean of their
    class. Time O(Σ m² r) for classes of m points, memory O(SOFTMAX_BYTES) a thread.
    """
    out, inverse = np.empty_like(Z), (1 / scales).astype(Z.dtype)
    parts = []
    for first, last in pairwise(starts.tolist()):
        step = max(SOFTMAX_ROWS, SOFTMAX_BYTES // (max(last - first, 1) * Z.itemsize))
        rows = range(first, last, step)
        parts += [(slice(begin, min(begin + step, last)), (first, last)) for begin in rows]

    def products(part: tuple[slice, tuple[int, int]]) -> None:
        rows, (first, last) = part
        centre = Z[first:last].mean(axis=0)
        one, all_of = Z[rows] - centre, Z[first:last] - centre
        table = np.matmul(2 * one, all_of.T)
        table -= np.einsum("ij,ij->i", all_of, all_of)
        table -= np.einsum("ij,ij->i", one, one)[:, None]
        np.minimum(table, 0, out=table)
        table *= inverse[first:last]
        table *= inverse[rows, None]
        np.maximum(table, NEGLIGIBLE, out=table)
        np.exp(table, out=table)
        out[rows] = table.sum(axis=1)[:, None] * one - table @ all_of

    sizes = np.diff(starts)
    _in_threads(products, parts, int((sizes**2).sum()) * Z.shape[1] * Z.itemsize)
    return out
