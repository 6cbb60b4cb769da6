"""Measures of a search where documents or queries lie in blocks.

A few queries at a time are compared with all blocks of documents and keep all distances, since mean
average precision and R-precision need the ranking of all documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import Blocks, is_dask
from nearfar.evaluation.rankings import Ranked, joined
from nearfar.kernels.all_pairs import sq_distances
from nearfar.supervision.neighbor_blocks import meet_in_turns, query_parts

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

TABLE_ENTRIES = 1 << 22  # distances of some queries to all documents: 32 MB


def searched_in_blocks(
    documents: Any,
    codes: Index,
    queries: Any,
    query_codes: Index,
    k: int,
    among_themselves: bool = False,
) -> dict[str, Floats]:
    """The measures of each query; documents, queries or both are Dask arrays."""
    size = max(1, TABLE_ENTRIES // len(codes))
    if not is_dask(documents):
        blocks = Blocks.of(queries, name="queries")
        wanted = blocks.split(query_codes)
        found = blocks.results(
            _searched_among, wanted, name="ranking", shared=(documents, codes, k, size)
        )
        return joined(found)
    blocks = Blocks.of(documents)
    engine, heads, parts = blocks.engine, [], query_parts(blocks, queries, size)
    starts = np.cumsum([0, *engine.results(engine.map(len, parts, name="ranking"))])
    for part, first, last in zip(parts, starts, starts[1:], strict=False):
        rows = [slice(row, min(row + size, last)) for row in range(first, last, size)]
        heads += engine.map(
            _begun,
            [part] * len(rows),
            [row.start - int(first) for row in rows],
            [row.stop - int(first) for row in rows],
            [query_codes[row] for row in rows],
            [np.arange(row.start, row.stop) if among_themselves else None for row in rows],
            name="ranking",
        )
    values: list[dict[str, Floats]] = []
    for first in range(0, len(heads), len(blocks)):  # tables of distances are freed in between
        met = meet_in_turns(blocks, heads[first : first + len(blocks)], _met, name="ranking")
        values += engine.results(engine.map(_measured, met, name="ranking", shared=(codes, k)))
    return joined(values)


@dataclass(frozen=True)
class _Head:
    """Some queries, and their distances to the documents that they have met."""

    queries: Floats  # (m, d)
    codes: Index  # (m,) labels
    own: Index | None  # (m,) row numbers of the queries among the documents
    squares: tuple[tuple[int, Floats], ...] = ()  # by number of the first document


def _begun(part: Any, first: int, last: int, codes: Index, own: Index | None) -> _Head:
    return _Head(np.asarray(part[first:last], dtype=np.float64), codes, own)


def _met(head: _Head, block: Any, first: int) -> _Head:
    squares = sq_distances(head.queries, np.asarray(block, dtype=np.float64))
    return _Head(head.queries, head.codes, head.own, (*head.squares, (first, squares)))


def _measured(head: _Head, codes: Index, k: int) -> dict[str, Floats]:
    """The measures of the queries of a head that has met all documents."""
    table = np.hstack([squares for _, squares in sorted(head.squares, key=lambda part: part[0])])
    if head.own is not None:
        table[np.arange(len(table)), head.own] = np.inf
    order = np.argsort(table, axis=1, kind="stable")
    order = order if head.own is None else order[:, :-1]
    return Ranked.complete(codes[order] == head.codes[:, None]).values(k)


def _searched_among(
    queries: Any, wanted: Index, documents: Any, codes: Index, k: int, size: int
) -> dict[str, Floats]:
    """The measures of a block of queries among documents that are in memory."""
    values = []
    for first in range(0, len(queries), size):
        rows = slice(first, first + size)
        head = _met(_begun(queries, rows.start, rows.stop, wanted[rows], None), documents, 0)
        values.append(_measured(head, codes, k))
    return joined(values)
