"""Nearest neighbours in a set of points that is searched again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import BallTree, KDTree

from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.limits import check_time

TREES = {"ball_tree": BallTree, "kd_tree": KDTree}
ALGORITHMS = ("auto", *TREES, "brute")

MOST_DIMENSIONS = 40  # in which a tree may pay; beyond, it visits nearly all points
FEWEST_POINTS = 1000  # for which a tree may pay
TRIALS = 64  # queries that tell which algorithm is quicker
QUERIES = 4096  # searched in a tree at a time
NEARLY_EQUAL = 1e-9  # relative difference below which two distances may be equal


@dataclass(frozen=True)
class Search:
    """Points with what finds the nearest of them: products with all, or a tree.

    Both give the same answer. A tree lives on the host.
    """

    points: Array  # (n, r)
    algorithm: str = "brute"
    tree: Any = None

    @classmethod
    def of(cls, points: Array, algorithm: str = "auto", k: int = 3) -> Search:
        """A search by the algorithm, or by whichever is the quickest on a few of the points."""
        if algorithm == "brute":
            return cls(points)
        if algorithm != "auto":
            return cls(points, algorithm, TREES[algorithm](points))
        n, r = points.shape
        if is_torch(points) or n < FEWEST_POINTS or r > MOST_DIMENSIONS:
            return cls(points)
        few = points[:: n // TRIALS]
        searches = [cls(points), *(cls.of(points, name) for name in TREES)]
        return min(searches, key=lambda search: search._seconds(few, k))

    def _seconds(self, queries: Array, k: int) -> float:
        began = time.perf_counter()
        self.nearest(queries, k)
        return time.perf_counter() - began

    def nearest(self, Q: Array, k: int) -> tuple[Array, Array]:
        """Rows (m, k) of the points nearest to each row of Q, and their squared distances.

        Nearest first, ties by row number.
        """
        if self.tree is None:
            return kernels_for(self.points).nearest(Q, self.points, k)  # type: ignore[no-any-return]
        near, squares = np.empty((len(Q), k), dtype=np.intp), np.empty((len(Q), k))
        for first in range(0, len(Q), QUERIES):
            check_time()
            rows = slice(first, first + QUERIES)
            near[rows], squares[rows] = self._nearest_in_tree(Q[rows], k)
        return near, squares

    def _nearest_in_tree(self, Q: Array, k: int) -> tuple[Array, Array]:
        n = len(self.points)
        # One more than k shows whether these are sure; the tree leaves ties in any order.
        apart, near = self.tree.query(Q, min(k + 1, n))
        near = np.sort(near, axis=1)
        difference = Q[:, None].astype(np.float64) - self.points[near]
        squares = np.vecdot(difference, difference)
        order = np.argsort(squares, axis=1, kind="stable")[:, :k]
        near, squares = np.take_along_axis(near, order, 1), np.take_along_axis(squares, order, 1)
        if k < n:
            unsure = np.flatnonzero(apart[:, k - 1] >= (1 - NEARLY_EQUAL) * apart[:, k])
            near[unsure], squares[unsure] = Search(self.points).nearest(Q[unsure], k)
        return near, squares
