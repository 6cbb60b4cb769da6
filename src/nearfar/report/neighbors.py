"""The nearest rows that vote, before and after learning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.kernels.search import Search
from nearfar.report.study import Floats, Index, Study, several_neighbors


class Neighbors(NamedTuple):
    """Of each query the nearest rows (m, k), nearest first, and their distances."""

    rows: Index
    distances: Floats


def neighbors(points: Floats, queries: Index, voters: Index, k: int) -> Neighbors:
    """The k nearest of the rows ``voters`` of each of the rows ``queries``, never itself."""
    k = min(k, len(voters) - 1)
    near, squares = Search.of(points[voters], k=k + 1).nearest(points[queries], k + 1)
    return _without_self(queries, voters, near, np.sqrt(squares))


def neighbors_after(study: Study, queries: Index, k: int) -> Neighbors | None:
    """The same under what was learned; None where that tells no distances."""
    if study.images is not None:
        return neighbors(study.images, queries, study.voters, k)
    k = min(k, len(study.voters) - 1)
    found = several_neighbors(study, queries, k + 1)
    return None if found is None else _without_self(queries, study.voters, *found)


def _without_self(queries: Index, voters: Index, near: Index, distances: Floats) -> Neighbors:
    """One column less: a row is not its own neighbour, and the others lose the farthest."""
    rows = voters[near]
    left_out = rows == queries[:, None]
    left_out[~left_out.any(axis=1), -1] = True
    shape = (len(rows), rows.shape[1] - 1)
    return Neighbors(rows[~left_out].reshape(shape), distances[~left_out].reshape(shape))
