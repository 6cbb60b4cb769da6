"""Pairs of blocks that meet once, with few of them in flight, and rows that are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.engine import Task, rounds, unchanged
from nearfar.blocks.rows import IN_FLIGHT, Blocks
from nearfar.kernels import Array, to_host

Index = NDArray[np.intp]
Pairs = list[tuple[int, int]]


def met_once(
    blocks: Blocks,
    step: Callable[..., Any],
    *beside: Sequence[Any],
    name: str,
    shared: Any = (),
) -> Iterator[tuple[Pairs, list[Task]]]:
    """In each round its pairs (a, b) of blocks, and their tasks; all pairs, each in one order.

    A task is ``step(block_a, block_b, same, *items, *shared)``, with items of a and of b of each
    column ``beside`` in turn. ``same`` marks pairs of a block with itself. In each round a block
    moves once at most, as a result of its own that is freed when its round is over, and the next
    rounds wait for it: no worker gathers the blocks of others.
    """
    engine, waiting = blocks.engine, list[list[Task]]()
    for pairs in rounds(len(blocks), both=False):
        moved = [blocks.parts[b] for _, b in pairs]
        if pairs[0][0] != pairs[0][1]:
            moved = engine.map(unchanged, moved, name="send")
        items = [[column[pair[end]] for pair in pairs] for column in beside for end in (0, 1)]
        tasks = engine.map(
            step,
            [blocks.parts[a] for a, _ in pairs],
            moved,
            [a == b for a, b in pairs],
            *items,
            name=name,
            shared=shared,
        )
        yield pairs, tasks
        waiting.append(tasks)
        if len(waiting) > IN_FLIGHT:
            engine.finish(waiting.pop(0))


def first_equal_rows(blocks: Blocks) -> Index:
    """For each row the number of the first row that equals it, (n,).

    Rows are compared by digests of 64 bits, which is all that leaves their blocks. That two of n
    different rows share one has a probability of n² 2⁻⁶⁵: 3e-6 for 1e7 rows.
    """
    digests = np.concatenate(blocks.results(_digests, name="equal_rows"))
    _, first, which = np.unique(digests, return_index=True, return_inverse=True)
    return np.asarray(first[which], dtype=np.intp)


def _digests(block: Array) -> NDArray[np.uint64]:
    rows = np.ascontiguousarray(to_host(block) + 0.0)  # −0 equals 0
    return np.frombuffer(
        b"".join(blake2b(row.data, digest_size=8).digest() for row in rows), dtype=np.uint64
    )
