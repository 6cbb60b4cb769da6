"""The rows of a Dask array in blocks whose sizes depend on its shape and type alone.

Neither the chunks of the array nor the number of workers matters to them, so that sums over blocks
have the same bits on every cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks.engine import (
    Engine,
    Task,
    Threads,
    current_engine,
    import_dask,
    rounds,
    unchanged,
)
from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, check_memory, is_torch, kernels_for, take_rows, to_host

Index = NDArray[np.intp]

BLOCK_BYTES = 1 << 25  # of a block, at most: a task takes seconds, and a worker holds many
BLOCKS = 6  # at least, so that a few workers have equal shares,
BLOCK_ROWS = 512  # unless they would be smaller than this
LANES, BLOCKS_OF_LANE = 4, 8  # of sums of large results: at least so many, of so many blocks
BYTES_AT_A_TIME = 1 << 22  # of rows of a block in float64
IN_FLIGHT = 2  # batches of moved blocks that wait while another one is awaited,
BATCH = 2  # tasks in a batch for each that runs


@dataclass(frozen=True)
class Blocks:
    """Rows (n, d) on the workers of an engine, in blocks."""

    engine: Engine
    parts: list[Task]  # arrays or tensors (·, d) in float32 or float64
    starts: Index  # block b holds the rows starts[b]:starts[b + 1]
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @classmethod
    def of(
        cls, X: Any, order: Index | None = None, *, name: str = "X", most_rows: int | None = None
    ) -> Blocks:
        """The rows of a Dask array, in the given order of rows, kept on the cluster.

        Raises if they have values that are not finite; ``name`` is what the error calls them.
        ``most_rows`` is the largest size of a block, where its bytes do not limit it further.
        """
        X, engine = with_known_rows(X), current_engine()
        dtype = floating(X.dtype)
        n = X.shape[0] if order is None else len(order)
        if isinstance(engine, Threads):
            check_memory(
                float(n) * X.shape[1] * dtype.itemsize,
                f"to hold {n} rows of {X.shape[1]} features",
                "Start a dask.distributed.Client of a cluster, fit to fewer rows",
                np.empty(0),
            )
        starts = block_starts(X.shape, dtype, n, most_rows)
        parts = engine.spread(engine.compute(list(_parts(X, starts, order, dtype))))
        blocks = cls(engine, parts, starts, (int(starts[-1]), X.shape[1]), dtype)
        blocks._check_finite(name, order)
        return blocks

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    @cached_property
    def rows(self) -> list[slice]:
        """The rows of each block."""
        return [slice(first, last) for first, last in pairwise(self.starts.tolist())]

    def split(self, values: Any) -> list[Any]:
        """Values of all rows, those of each block apart."""
        return [values[rows] for rows in self.rows]

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], name: str, shared: Any = ()
    ) -> list[Task]:
        """Tasks ``function(block, *items, *shared)``, with an item of each column for a block."""
        return self.engine.map(function, self.parts, *columns, name=name, shared=shared)

    def results(self, function: Callable[..., Any], *columns: Any, name: str, **more: Any) -> Any:
        """The results of `map`, in the order of the blocks."""
        return self.engine.results(self.map(function, *columns, name=name, **more))

    def total(self, function: Callable[..., Any], *columns: Any, name: str, **more: Any) -> Any:
        """The sum of the results of `map`, in the order of the blocks."""
        return self.engine.total(self.map(function, *columns, name=name, **more))

    def folded(
        self, function: Callable[..., Any], *columns: Any, name: str, shared: Any = ()
    ) -> Any:
        """The sum of the results of `map`, of which few are held at a time: of large ones.

        Sums grow in some `LANES`, or one for `BLOCKS_OF_LANE` blocks, by one block after the other.
        """
        lanes, totals = max(LANES, len(self) // BLOCKS_OF_LANE), list[Task]()
        for first in range(0, len(self), lanes):
            some = slice(first, first + lanes)
            items = [self.parts[some], *(column[some] for column in columns)]
            count = len(items[0])
            if not first:
                totals = self.engine.map(function, *items, name=name, shared=shared)
                continue
            totals[:count] = self.engine.map(
                _plus, totals[:count], [function] * count, *items, name=name, shared=shared
            )
        return self.engine.total(totals)

    def with_parts(self, parts: list[Task], n_features: int, dtype: Any) -> Blocks:
        """Other arrays with the same rows."""
        return replace(self, parts=parts, shape=(self.shape[0], n_features), dtype=np.dtype(dtype))

    def take(self, rows: Index, of: Callable[..., Array] = take_rows) -> Array:
        """These rows, in this order, on this machine or on the device where they are tensors.

        Of parts that are no arrays, ``of(part, numbers)`` has some rows.
        """
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        used = np.unique(owner)
        found = self.engine.results(
            self.engine.map(
                of,
                [self.parts[block] for block in used],
                [rows[owner == block] - self.starts[block] for block in used],
                name="rows",
            )
        )
        place = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        kernels = kernels_for(found[0])
        return take_rows(kernels.concatenate(found), place)

    def reordered(self, order: Index) -> Blocks:
        """The same rows in another order, in blocks of the same sizes."""
        joined: list[Task] = []
        for rows in self.rows:
            ids = np.sort(order[rows])
            place = np.searchsorted(ids, order[rows])
            pieces = self.fetch([ids])
            joined += self.engine.map(_joined, pieces, [place], [self.dtype], name="reorder")
        return self.with_parts(self.engine.spread(joined), self.shape[1], self.dtype)

    def fetch(self, wanted: list[Index]) -> list[list[Task]]:
        """Rows of other blocks: for each ascending list of row numbers, pieces that follow on."""
        found: list[list[Task]] = []
        for rows in wanted:
            cuts = np.searchsorted(rows, self.starts)
            used = np.flatnonzero(np.diff(cuts))
            if not len(used):
                found.append([])
                continue
            found.append(
                self.engine.map(
                    take_rows,
                    [self.parts[block] for block in used],
                    [rows[cuts[b] : cuts[b + 1]] - self.starts[b] for b in used],
                    name="rows",
                )
            )
        return found

    def meet(
        self,
        step: Callable[..., Any],
        heads: list[Task],
        *,
        name: str,
        beside: Sequence[Any] | None = None,
        shared: Any = (),
        skip: Callable[[int, int], bool] | None = None,
        own: Sequence[Any] | None = None,
    ) -> list[Task]:
        """Tasks that fold ``head = step(head, block, item, first_row, *shared)`` over all blocks.

        ``beside`` has an item for each block; without it, steps get none. ``own`` has one for each
        head that does not change, such as its rows: steps get it before all else. So a worker that
        writes results to disk need not write it with each head. ``heads`` holds what each
        fold begins with: one for each block, or fewer. In each round each block moves once at most.
        It moves as a result of its own, which is freed when its task is over, and few tasks are
        under way at a time: no worker gathers the blocks of others.
        """
        heads, waiting = list(heads), []
        for wanted in self.meetings(len(heads), skip):
            moved = self.engine.map(unchanged, [self.parts[b] for _, b in wanted], name="send")
            found = self.engine.map(
                step,
                *([] if own is None else [[own[a] for a, _ in wanted]]),
                [heads[a] for a, _ in wanted],
                moved,
                *([] if beside is None else [[beside[b] for _, b in wanted]]),
                [int(self.starts[b]) for _, b in wanted],
                name=name,
                shared=shared,
            )
            for (a, _), head in zip(wanted, found, strict=True):
                heads[a] = head
            waiting.append(found)
            if len(waiting) > IN_FLIGHT:
                self.engine.finish(waiting.pop(0))
        self.engine.finish(heads)
        return heads

    def meetings(
        self,
        n_heads: int,
        skip: Callable[[int, int], bool] | None = None,
        *,
        both: bool = True,
        itself_last: bool = False,
    ) -> Iterator[list[tuple[int, int]]]:
        """Pairs of heads and blocks in the order of `rounds`, in lists of tasks to submit at once.

        They are so long that no worker is idle while another list waits, and do not grow with the
        number of blocks. Of a head and a block that are the same, the meeting takes less time.
        """
        size = BATCH * self.engine.n_at_a_time()
        others = iter(rounds(len(self), both=both))
        with_itself = [next(others)]
        for pairs in chain(others, with_itself) if itself_last else chain(with_itself, others):
            wanted = [(a, b) for a, b in pairs if a < n_heads and not (skip and skip(a, b))]
            yield from (wanted[i : i + size] for i in range(0, len(wanted), size))

    def _check_finite(self, name: str, order: Index | None) -> None:
        bad = self.results(_rows_not_finite, name="check")
        rows = np.concatenate([start + rows for start, rows in zip(self.starts, bad, strict=False)])
        rows = rows if order is None else np.unique(order[rows])  # as the user numbers them
        if len(rows):
            raise InvalidInputError(
                f"{name} must not contain NaN or infinity; row {rows[0]} does ({len(rows)} rows in"
                " all). Drop or impute these rows.",
                rows,
            )


def _plus(total: Any, function: Callable[..., Any], *args: Any) -> Any:
    """A sum of results, with one more, which is not needed beside the sum."""
    return _added_to(function(*args), total)


def _added_to(value: Any, total: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_added_to, value, total))
    value += total
    return value


def block_starts(
    shape: tuple[int, int], dtype: Any, n: int | None = None, most_rows: int | None = None
) -> Index:
    """Where blocks of n rows begin, for the shape and the type of an array, and n at the end."""
    n = shape[0] if n is None else n
    most = max(BLOCK_BYTES // max(shape[1] * np.dtype(dtype).itemsize, 1), 1)
    size = min(most, max(-(-n // BLOCKS), BLOCK_ROWS), most_rows or most)
    count = max(-(-n // size), 1)
    return np.linspace(0, n, count + 1).astype(np.intp)


def n_rows_at_a_time(block: Array) -> int:
    """How many rows take few megabytes in float64."""
    return max(1, BYTES_AT_A_TIME // (8 * max(int(block.shape[1]), 1)))


def rows_at_a_time(block: Array) -> list[Array]:
    """The rows in such parts; one part if there are none."""
    size = n_rows_at_a_time(block)
    return [block[first : first + size] for first in range(0, max(len(block), 1), size)]


def floating(dtype: Any) -> np.dtype[Any]:
    """The type in which rows are computed: float32 stays, all else is float64."""
    return np.dtype(np.float32 if dtype in (np.float32, np.float16) else np.float64)


def with_known_rows(X: Any) -> Any:
    """X in blocks of whole rows whose numbers are known; they are counted where they are not."""
    import_dask()
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    if np.isnan(sum(X.chunks[0])):
        X = X.copy()  # the user's stays as it is
        X.compute_chunk_sizes()
    return X


def _parts(X: Any, starts: Index, order: Index | None, dtype: Any) -> Iterator[Any]:
    """Lazy blocks: of each chunk the rows that belong to a block, in their order."""
    from dask import delayed

    chunks = X.to_delayed().ravel()
    chunk_starts = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.intp)
    pick, join = delayed(_picked, pure=False), delayed(_joined, pure=False)
    for first, last in pairwise(starts.tolist()):
        rows = np.arange(first, last) if order is None else order[first:last]
        owner = np.searchsorted(chunk_starts, rows, side="right") - 1
        used = np.unique(owner)
        pieces = [pick(chunks[c], _as_slice(rows[owner == c] - chunk_starts[c])) for c in used]
        place = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        yield join(pieces, None if (np.diff(place) == 1).all() else place, dtype)


def _as_slice(rows: Index) -> Index | slice:
    """A slice for rows that follow each other: a task carries three numbers in place of all."""
    if len(rows) == rows[-1] - rows[0] + 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _picked(chunk: Any, rows: Index | slice) -> Array:
    """Rows of a chunk."""
    if not is_torch(chunk):
        chunk = to_host(chunk)
    return chunk[rows] if isinstance(rows, slice) else take_rows(chunk, rows)


def _joined(pieces: list[Array], place: Index | None, dtype: Any) -> Array:
    kernels = kernels_for(pieces[0])
    rows = pieces[0] if len(pieces) == 1 else kernels.concatenate(pieces)
    if place is not None:
        rows = take_rows(rows, place)
    if dtype is None:
        return rows
    return kernels.single(rows) if dtype == np.float32 else kernels.double(rows)


def _rows_not_finite(block: Array) -> Index:
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(to_host((block - block != 0).any(1)))
