"""Target neighbours: the points that should be nearest to each point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.supervision.labels import ClassOrder

Edges = tuple[Array, Array]


def nearest_targets(X: Array, labels: ClassOrder, n_neighbors: int) -> Edges:
    """Edges to the nearest points of the same class; rows of X are sorted by class."""
    edges: Edges = kernels_for(X).nearest_in_class(X, labels.starts, n_neighbors)
    return edges


def target_table(X: Array, labels: ClassOrder, n_neighbors: int) -> NDArray[np.intp]:
    """Row numbers of the nearest points of the same class, (n, n_neighbors); -1 for none.

    Rows are in the user's order, and the nearest come first.
    """
    order = labels.order
    heads, tails = map(to_host, nearest_targets(take_rows(X, order), labels, n_neighbors))
    table = np.full((len(order), n_neighbors), -1, dtype=np.intp)
    table[order[heads], np.arange(len(heads)) - np.searchsorted(heads, heads)] = order[tails]
    return table


def given_targets(targets: Any, labels: ClassOrder, X: Array) -> Edges:
    """Edges from an array (n, k) of row numbers in the user's order, −1 for none.

    Returned in the class order, sorted by head.
    """
    table: NDArray[Any] = np.asarray(targets)
    n = len(labels.codes)
    if table.ndim != 2 or len(table) != n or table.dtype.kind not in "iu":
        raise InvalidInputError(
            f"target_neighbors must be an integer array of shape ({n}, k), a row of neighbours for"
            f" each row of X; got shape {table.shape} of {table.dtype}. Fill up with -1."
        )
    heads = np.repeat(np.arange(n), table.shape[1])
    tails = table.ravel().astype(np.intp)
    heads, tails = heads[tails != -1], tails[tails != -1]
    _refuse((tails < -1) | (tails >= n), heads, f"row numbers outside 0 … {n - 1}")
    _refuse(heads == tails, heads, "the row itself")
    _refuse(labels.codes[heads] != labels.codes[tails], heads, "rows of another class")
    code = heads * n + tails
    repeated = np.ones(len(code), dtype=bool)
    repeated[np.unique(code, return_index=True)[1]] = False
    _refuse(repeated, heads, "the same row twice")
    if len(heads) == 0:
        raise InvalidInputError(
            "target_neighbors names no neighbour at all. Give at least one, or leave it out"
            " to use the nearest of each class."
        )
    place = np.empty(n, dtype=np.intp)
    place[labels.order] = np.arange(n)
    heads, tails = place[heads], place[tails]
    by_head = np.argsort(heads, kind="stable")
    kernels = kernels_for(X)
    return kernels.index(heads[by_head], X), kernels.index(tails[by_head], X)


def _refuse(bad: NDArray[np.bool_], heads: NDArray[np.intp], what: str) -> None:
    if bad.any():
        rows = np.unique(heads[bad])
        raise InvalidInputError(
            f"target_neighbors must name other rows of the same class; row {rows[0]} names {what}"
            f" ({len(rows)} in all). Correct them or set them to -1.",
            rows,
        )
