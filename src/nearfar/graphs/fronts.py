"""The dense blocks of which the factor of a sparse symmetric matrix is made: its fronts.

Nodes are eliminated part by part of a nested dissection [`nearfar.graphs.dissection`]. A part has
own nodes and a border, the nodes of parts above it that are adjacent once all below are eliminated.
Its front is a dense matrix of both: its share of the matrix A, plus what the parts below leave of
their borders. Parts of a level do not know of each other, so those of about the same size are one
stack of matrices.

The separators of the first levels are one part, the root: of the Laplacian of a connected graph,
less a multiple of the unit matrix, only the root's front may be indefinite.
[`nearfar.graphs.multifrontal` and `nearfar.graphs.inertia` eliminate.]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.graphs.dissection import dissect
from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.kernels.batched import zeros
from nearfar.kernels.numpy_arrays import unique
from nearfar.limits import check_time

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

LEAF = 64  # nodes of a part that is not halved
ROOT_LEVELS = 2  # of separators that are one part
ALIKE = 0.8  # size of the smallest front of a stack, relative to the largest
HOST_BYTES, DEVICE_BYTES = 1 << 22, 1 << 30  # of the fronts that are made at a time


@dataclass(frozen=True)
class Stack:
    """Parts of one level in fronts of s + b rows, as many as the largest needs."""

    own: Index  # (m, s) nodes in the order of elimination; n where a part has fewer
    border: Index  # (m, b) likewise
    below: Index | None  # (parts below each, m, s + b) rows that they left, or the row of zeros
    first: int  # of its rows among those that its level leaves, b for each part
    entries: tuple[Index, Index, Index]  # of A: place in the flat fronts, mirrored, and in A.data


@dataclass(frozen=True)
class Level:
    """The parts of a level, and the rows that they leave; the last one is zero."""

    stacks: list[Stack]
    starts: Index  # of the rows in a vector of all entries that are left
    columns: Index  # the column of the row's own node


@dataclass(frozen=True)
class Structure:
    """An order of elimination and its fronts; they depend on the graph only."""

    order: Index  # (n,)
    levels: list[Level]  # leaves first, the root last
    pattern: tuple[Index, Index]  # row pointers and sorted columns of A

    @property
    def factor_entries(self) -> int:
        """Numbers that a factor holds, and those that two levels leave while it is made."""
        shapes = [
            [(*stack.own.shape, stack.border.shape[1]) for stack in level.stacks]
            for level in self.levels
        ]
        held = sum(m * (s + b) * s for level in shapes for m, s, b in level)
        left = [sum(m * b * b for m, _, b in level) for level in shapes]
        return int(held + max(sum(two) for two in zip(left, [*left[1:], 0], strict=True)))

    def data_of(self, A: Any) -> Matrix:
        """The entries of a matrix on the graph, in the order of the pattern."""
        A = A.tocsr()
        A.sort_indices()
        pointers, columns = self.pattern
        if np.array_equal(A.indptr, pointers) and np.array_equal(A.indices, columns):
            return np.asarray(A.data)
        n, data = len(self.order), np.zeros(len(columns))  # some entries of A are zero
        known, given = (
            np.repeat(np.arange(n), np.diff(ends)) * n + nodes
            for ends, nodes in (self.pattern, (A.indptr, A.indices))
        )
        data[np.searchsorted(known, given)] = A.data
        return data


@dataclass(frozen=True)
class _Borders:
    """The borders of all parts of a level."""

    codes: Index  # part · n + node, sorted
    lowest: Index  # (parts + 1,) first row of a part among those that the level leaves; their count


def analyse(A: Any, leaf: int = LEAF) -> Structure:
    """The structure of the factor of a sparse symmetric matrix. Time O(e log n), memory O(e).

    All entries of the diagonal are there.
    """
    A = A.tocsr()
    A.sort_indices()
    n, cut = A.shape[0], dissect(A, leaf)
    top = min(ROOT_LEVELS, cut.depth)
    cut_part = np.where(cut.level < top, 0, cut.part)
    cut_level = np.maximum(cut.level, top - 1)
    order = np.lexsort((cut_part, -cut_level))
    place = np.empty_like(order)
    place[order] = np.arange(n)
    rows, columns = np.repeat(place, np.diff(A.indptr)), place[A.indices]
    kept = np.flatnonzero(rows <= columns)  # a row is eliminated first
    kept = kept[np.argsort(rows[kept], kind="stable")]
    rows, columns = rows[kept], columns[kept]
    part, falling = cut_part[order], -cut_level[order]
    levels: list[Level] = []
    below: _Borders | None = None
    end = 0
    for number in range(cut.depth, max(top - 2, -1), -1):
        check_time()
        first, end = end, int(np.searchsorted(falling, -number, side="right"))
        mine = slice(*np.searchsorted(rows, [first, end]))
        is_root = number == max(top - 1, 0)
        count, halvings = (1, top) if is_root else (1 << number, 1)
        starts = first + np.searchsorted(part[first:end], np.arange(count + 1))
        entries = rows[mine], columns[mine], kept[mine]
        level, below = _level(n, part[first:end], starts, entries, below, halvings)
        levels.append(level)
    return Structure(order, levels, (A.indptr, A.indices))


def _level(
    n: int,
    part: Index,
    starts: Index,
    entries: tuple[Index, Index, Index],
    below: _Borders | None,
    halvings: int,
) -> tuple[Level, _Borders]:
    """The fronts of the parts with nodes from ``starts`` on, which are of the parts ``part``.

    ``halvings`` lead from a part to those below it.
    """
    rows, columns, where = entries
    first, end, count = int(starts[0]), int(starts[-1]), len(starts) - 1
    parts = part[rows - first]
    codes = [(parts * n + columns)[columns >= end]]
    if below is not None:
        child, node = below.codes // n, below.codes % n
        codes.append(((child >> halvings) * n + node)[node >= end])
    borders = unique(np.concatenate(codes))
    bounds = np.searchsorted(borders, np.arange(count + 1) * n)
    sizes, widths = np.diff(starts), np.diff(bounds)
    groups = _alike(sizes + widths)
    stack, row, top = (np.empty(count, np.intp) for _ in range(3))
    for number, group in enumerate(groups):
        stack[group], row[group] = number, np.arange(len(group))
        top[group] = sizes[group].max()

    def place(parts: Index, nodes: Index) -> Index:
        """The rows of nodes in the fronts of parts."""
        outside = np.searchsorted(borders, parts * n + nodes) - bounds[parts]
        return np.where(nodes < end, nodes - starts[parts], top[parts] + outside)

    at_row, at_column = rows - starts[parts], place(parts, columns)
    if below is not None:
        source = below.lowest[child] + _within(child)
        parent, at = child >> halvings, place(child >> halvings, node)
    lowest = np.zeros(count + 1, np.intp)
    total, filled, stacks, firsts, lines = 0, 0, [], [], []
    for number, group in enumerate(groups):
        m, s, b = len(group), int(top[group[0]]), int(widths[group].max())
        own = starts[group][:, None] + np.arange(s)
        own[np.arange(s) >= sizes[group][:, None]] = n
        border = np.full((m, b), n)
        inside = np.arange(b) < widths[group][:, None]
        border[inside] = borders[(bounds[group][:, None] + np.arange(b))[inside]] % n
        left = None
        if below is not None:
            left = np.full((1 << halvings, m, s + b), below.lowest[-1])
            mine = stack[parent] == number
            left[child[mine] % (1 << halvings), row[parent[mine]], at[mine]] = source[mine]
        mine = stack[parts] == number
        base, r, c = row[parts[mine]] * (s + b) ** 2, at_row[mine], at_column[mine]
        straight, mirrored = base + r * (s + b) + c, base + c * (s + b) + r
        sorted_ = np.argsort(straight, kind="stable")
        found = straight[sorted_], mirrored[sorted_], where[mine][sorted_]
        stacks.append(Stack(own, border, left, total, found))
        lowest[group] = total + b * np.arange(m)
        firsts.append(filled + b * np.arange(m * b))
        lines.append(np.tile(np.arange(b), m))
        total, filled = total + m * b, filled + m * b * b
    lowest[-1] = total
    level = Level(
        stacks, np.append(np.concatenate(firsts), filled), np.append(np.concatenate(lines), 0)
    )
    return level, _Borders(borders, lowest)


def _alike(sizes: Index) -> list[Index]:
    """The numbers of parts in groups of about the same size, the largest first."""
    order, groups = np.argsort(-sizes, kind="stable"), []
    while len(order):
        count = int(np.searchsorted(-sizes[order], -ALIKE * sizes[order[0]], side="right"))
        groups.append(order[:count])
        order = order[count:]
    return groups


def _within(sorted_numbers: Index) -> Index:
    """How many equal numbers stand before each one."""
    return np.arange(len(sorted_numbers)) - np.searchsorted(sorted_numbers, sorted_numbers)


# -- assembly ------------------------------------------------------------------------------------


class Assembly:
    """The fronts of a matrix, level after level, on the device of the reference."""

    def __init__(self, structure: Structure, A: Any, reference: Array) -> None:
        self.structure, self._data = structure, structure.data_of(A)
        self._kernels, self._reference = kernels_for(reference), reference[:0]
        self._left = zeros((1,), self._reference)  # entries that the level below left, and a 0
        self._rows: tuple[Array, Array] | None = None  # starts and columns of its rows

    def index(self, values: Index) -> Array:
        """Indices on the device."""
        return self._kernels.index(values, self._reference)

    def fronts(
        self, stack: Stack, *, measured: bool = False
    ) -> Iterator[tuple[slice, Array, Array]]:
        """Some parts of a stack at a time, and their fronts (m, s + b, s + b).

        With ``measured`` the third is the sum over rows of the sizes of all terms, (m, s + b).
        """
        (m, s), b = stack.own.shape, stack.border.shape[1]
        below = None if stack.below is None else self.index(stack.below)
        on_card = is_torch(self._reference) and self._reference.is_cuda
        step = max(1, (DEVICE_BYTES if on_card else HOST_BYTES) // (8 * (s + b) ** 2))
        for first in range(0, m, step):
            check_time()
            part = slice(first, min(first + step, m))
            F = self._own_share(stack, part)
            sizes = abs(F).sum(2) if measured else None
            for rows in () if below is None else below[:, part]:
                left = self._left_by(rows)
                F += left
                sizes = sizes + abs(left).sum(2) if measured else None
            yield part, F, sizes

    def finish_level(self, level: Level, left: list[Array]) -> None:
        """Keep the entries that a level leaves, (m b b,) of each stack, for the next one."""
        self._left = self._kernels.concatenate([*left, zeros((1,), self._reference)])
        self._rows = self.index(level.starts), self.index(level.columns)

    def _own_share(self, stack: Stack, part: slice) -> Array:
        """Entries of A; rows that a part has not are those of the unit matrix."""
        s, b = stack.own.shape[1], stack.border.shape[1]
        F, area = zeros((part.stop - part.start, s + b, s + b), self._reference), (s + b) ** 2
        straight, mirrored, where = stack.entries
        mine = slice(*np.searchsorted(straight, [part.start * area, part.stop * area]))
        values = self._kernels.like(self._data[where[mine]], self._reference)
        flat = F.reshape(-1)
        for places in (straight[mine], mirrored[mine]):
            flat[self.index(places - part.start * area)] = values
        missing = np.argwhere(stack.own[part] == len(self.structure.order))
        flat[self.index(missing[:, 0] * area + missing[:, 1] * (s + b + 1))] = 1.0
        return F

    def _left_by(self, rows: Array) -> Array:
        """The rows (m, s + b) that one of the parts below each left, (m, s + b, s + b)."""
        assert self._rows is not None
        starts, columns = self._rows
        nothing = len(self._left) - 1
        known = 1 * (rows != len(starts) - 1)
        places = starts[rows][:, :, None] + columns[rows][:, None, :] - nothing
        return self._left[nothing + places * known[:, :, None] * known[:, None, :]]


def transposed(A: Array) -> Array:
    """Matrices (m, r, s) as (m, s, r)."""
    return A.swapaxes(-1, -2)
