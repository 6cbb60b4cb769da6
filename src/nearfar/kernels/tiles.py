"""How the square of all pairs is cut into tiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.intp]


def unlike_tiles(starts: Index, size: int) -> Iterator[tuple[slice, slice]]:
    """Pairs of row ranges that together hold each pair of points of different classes.

    Each unordered pair lies in one tile, or in both halves of a tile on the diagonal. Ranges have
    at most ``size`` rows and end at the borders of large classes, so that few pairs of like points
    are visited.
    """
    cuts = [0]
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        large = last - first > size // 2
        if large and first > cuts[-1]:
            cuts.append(first)
        while last - cuts[-1] > size:
            cuts.append(cuts[-1] + size)
        if large:
            cuts.append(last)
    cuts.append(int(starts[-1]))
    pieces = [slice(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True) if b > a]
    labels = labels_of(starts)
    for position, rows in enumerate(pieces):
        for columns in pieces[position:]:
            if labels[rows.start] != labels[columns.stop - 1]:
                yield rows, columns


def labels_of(starts: Index) -> Index:
    """The class number of each row."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
