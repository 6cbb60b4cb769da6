"""The kernels on CSR rows that learners need of sparse inputs; no rows are made dense.

Images of the rows are dense and short: `on_numpy` does the work over pairs of these.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.kernels.numpy_arrays import index, like
from nearfar.limits import check_time

__all__ = [
    "apply",
    "double",
    "first_equal",
    "gram",
    "index",
    "like",
    "nearest",
    "nearest_in_class",
    "single",
    "sq_lengths",
    "weighted_squares",
]

Floats = NDArray[Any]
Index = NDArray[np.intp]
Rows = Any  # a CSR array

TABLE_ENTRIES = 1 << 21  # distances held at a time: 16 MB, and as much again for sparse products
EDGES = 1 << 13  # edges whose differences are held at a time


def double(X: Rows) -> Rows:
    """Return X in float64."""
    return X.astype(np.float64, copy=False)


def single(X: Rows) -> Rows:
    """Return X in float32."""
    return X.astype(np.float32, copy=False)


def apply(X: Rows, L: Floats) -> Floats:
    """X Lᵀ, dense, in the dtype of X."""
    return np.asarray(X @ np.ascontiguousarray(L.T, dtype=X.dtype))


def gram(W: Floats, X: Rows) -> NDArray[np.float64]:
    """Wᵀ X of dense W (n, r), in float64."""
    return np.ascontiguousarray((X.T @ W.astype(np.float64, copy=False)).T)


def first_equal(X: Rows) -> Index:
    """The number of the first row that equals each row."""
    first: dict[bytes, int] = {}
    found = np.empty(X.shape[0], dtype=np.intp)
    for row, (start, end) in enumerate(pairwise(X.indptr.tolist())):
        key = X.indices[start:end].tobytes() + X.data[start:end].tobytes()
        found[row] = first.setdefault(key, row)
    return found


def sq_lengths(X: Rows, heads: Index, tails: Index) -> NDArray[np.float64]:
    """‖x_h − x_t‖² of each edge, by differences in float64."""
    return _exact_squares(X, X, heads, tails)


def weighted_squares(
    X: Rows, heads: Index, tails: Index, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Σ w (x_h − x_t)² over the edges, feature by feature, (d,)."""
    total = np.zeros(X.shape[1])
    for first in range(0, len(heads), EDGES):
        check_time()
        part = slice(first, first + EDGES)
        difference = double(X[heads[part]]) - double(X[tails[part]])
        total += difference.power(2).T @ weights[part]
    return total


def nearest(Q: Rows, Z: Rows, k: int) -> tuple[Index, NDArray[np.float64]]:
    """Rows (m, k) of Z nearest to each row of Q, nearest first, and their squared distances.

    Ties are ordered by row number. A sparse product gives all distances of a block of queries, and
    those that rounding may have put behind the k-th are compared by differences.
    """
    m, n = Q.shape[0], Z.shape[0]
    near, lengths = np.empty((m, k), dtype=np.intp), np.empty((m, k))
    Q, Z = double(Q), double(Z)
    own, other, transposed = _squares(Q), _squares(Z), Z.T.tocsr()
    slack = 64 * np.finfo(np.float64).eps
    step = max(1, TABLE_ENTRIES // max(n, 1))
    for first in range(0, m if k else 0, step):
        check_time()
        rows = slice(first, min(first + step, m))
        table = (Q[rows] @ transposed).toarray()
        table *= -2
        table += own[rows, None]
        table += other
        bar = np.partition(table, k - 1, axis=1)[:, k - 1] + slack * (own[rows] + other.max())
        heads, tails = np.nonzero(table <= bar[:, None])
        squared = _exact_squares(Q, Z, heads + first, tails)
        order = np.lexsort((squared, heads))  # stable: equals stay in the order of their rows
        begin = np.searchsorted(heads, np.arange(len(table)))
        chosen = order[begin[:, None] + np.arange(k)]
        near[rows], lengths[rows] = tails[chosen], squared[chosen]
    return near, lengths


def nearest_in_class(X: Rows, starts: Index, k: int) -> tuple[Index, Index]:
    """Edges from each point to its k nearest others of its class, nearest first.

    A class of m < k + 1 points gives each of its points m − 1 edges.
    """
    heads: list[Index] = [np.empty(0, dtype=np.intp)]
    tails: list[Index] = [np.empty(0, dtype=np.intp)]
    for first, last in pairwise(starts.tolist()):
        count = min(k, last - first - 1)
        if count == 0:
            continue
        mates = X[first:last]
        near = nearest(mates, mates, count + 1)[0]
        others = near != np.arange(last - first)[:, None]
        others[others.all(axis=1), -1] = False  # a point with so many copies does not find itself
        heads.append(np.repeat(np.arange(first, last), count))
        tails.append(first + near[others])
    return np.concatenate(heads), np.concatenate(tails)


def _squares(X: Rows) -> NDArray[np.float64]:
    """‖x‖² of each row."""
    return np.asarray(X.power(2).sum(axis=1), dtype=np.float64).ravel()


def _exact_squares(Q: Rows, Z: Rows, heads: Index, tails: Index) -> NDArray[np.float64]:
    """‖q_h − z_t‖² by differences in float64."""
    out = np.empty(len(heads))
    for first in range(0, len(heads), EDGES):
        part = slice(first, first + EDGES)
        out[part] = _squares(double(Q[heads[part]]) - double(Z[tails[part]]))
    return out
