"""Nearest neighbours where points, queries or both lie in blocks.

Blocks of points are sent to the queries: in each round, each block of queries is compared with one
block of points and keeps the nearest so far. Squared distances are computed from differences in
float64, so the result is that of a search in memory; ties are broken by row number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, Sized, Task, is_dask
from nearfar.kernels import Array, to_host
from nearfar.kernels.search import Search
from nearfar.supervision.neighbors import Found, merged

Index = NDArray[np.intp]

QUERY_ROWS = 1 << 14  # of queries in memory that meet blocks of points at a time
TREE_QUERIES = 256  # that are worth building a tree; it finds the same points


def nearest_in_blocks(points: Any, queries: Any, k: int) -> Found:
    """Rows (m, k) of the points nearest to each query, and their squared distances.

    Points and queries are arrays, Dask arrays or blocks, at least one of them not an array. Time
    O(m n r), or less by trees in few dimensions; a worker holds its share of the points and of the
    queries, and a few blocks that move.
    """
    if not _in_blocks(points):
        blocks = _blocks(queries, "queries")
        return _joined(blocks.results(_nearest, name="nearest", shared=(points, k)))
    blocks = _blocks(points, "X")
    parts = query_parts(blocks, queries, QUERY_ROWS)
    heads = blocks.engine.map(_begun, parts, name="nearest", shared=(k,))
    met = meet_in_turns(blocks, heads, _with_nearer, name="nearest", shared=(k,))
    return _joined(blocks.engine.results(blocks.engine.map(_found, met, name="nearest")))


def _in_blocks(X: Any) -> bool:
    return is_dask(X) or isinstance(X, Blocks)


def _blocks(X: Any, name: str) -> Blocks:
    return X if isinstance(X, Blocks) else Blocks.of(X, name=name)


def query_parts(blocks: Blocks, queries: Any, size: int) -> list[Any]:
    """Queries in parts: the blocks that they have, or so many rows of an array at a time."""
    if _in_blocks(queries):
        return list(_blocks(queries, "queries").parts)
    count = max(1, min(len(blocks), len(queries)), -(-len(queries) // size))
    return np.array_split(queries, count)


def meet_in_turns(
    blocks: Blocks,
    heads: list[Task],
    step: Callable[..., Any],
    *,
    name: str,
    shared: Any = (),
) -> list[Task]:
    """`Blocks.meet` for any number of heads: as many at a time as there are blocks."""
    met: list[Task] = []
    for first in range(0, len(heads), len(blocks)):
        some = heads[first : first + len(blocks)]
        met += blocks.meet(step, some, name=name, shared=shared)
    return met


@dataclass(frozen=True)
class _Nearest(Sized):
    """Queries, and the nearest points that they have met."""

    queries: Array  # (m, r)
    near: Index  # (m, up to k) row numbers, nearest first, ties by number
    squares: NDArray[np.float64]


def _begun(queries: Array, k: int) -> _Nearest:
    del k
    empty = np.empty((len(queries), 0))
    return _Nearest(queries, empty.astype(np.intp), empty)


def _with_nearer(head: _Nearest, block: Array, first: int, k: int) -> _Nearest:
    """The head after it met a block whose first row has this number."""
    queries = (
        head.queries if head.queries.dtype == block.dtype else head.queries.astype(block.dtype)
    )
    near, squares = _nearest(queries, block, min(k, len(block)))
    width = head.near.shape[1]
    own = np.arange(len(queries))[:, None] * width + np.arange(width)
    met = [(head.near.ravel(), (own, head.squares))] if width else []
    near, squares = merged([*met, (np.arange(first, first + len(block)), (near, squares))], k)
    return _Nearest(head.queries, near, squares)


def _nearest(queries: Array, points: Array, k: int) -> Found:
    search = Search.of(points, "auto" if len(queries) >= TREE_QUERIES else "brute")
    near, squares = search.nearest(queries, k)
    return to_host(near), to_host(squares)


def _found(head: _Nearest) -> Found:
    return head.near, head.squares


def _joined(parts: list[Found]) -> Found:
    near, squares = zip(*parts, strict=True)
    return np.concatenate(near), np.concatenate(squares)
