"""Nearest neighbours in a set of points that is searched many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import BallTree, KDTree

from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.kernels.parallel import in_threads

TREES = {"ball_tree": BallTree, "kd_tree": KDTree}
ALGORITHMS = ("auto", *TREES, "brute")

# When a kd-tree is faster: finding three neighbours among 60000 digits of MNIST in r dimensions
# takes a kd-tree 3 µs for r = 2, 10 µs for 5, 93 µs for 10 and 215 µs for 15. Matrix products take
# 171, 141, 173 and 196 µs in float64, half of that in float32 (docs/algorithms/nearest.md). A ball
# tree is never the fastest.
MOST_DIMENSIONS = 10
FEWEST_POINTS = 1000
QUERIES = 4096  # searched in a tree at a time
READ = 200  # points of a tree that a query meets, about
NEARLY_EQUAL = 1e-9  # relative difference below which two distances may be equal


@dataclass(frozen=True)
class Search:
    """Finds nearest points by matrix products with all points, or by a tree.

    Both give the same answer. Trees need points on the host.
    """

    points: Array  # (n, r)
    algorithm: str = "brute"
    tree: Any = None

    @classmethod
    def of(cls, points: Array, algorithm: str = "auto") -> Search:
        """Prepare a search by the given algorithm; "auto" takes that of `quickest`."""
        if algorithm == "auto":
            algorithm = "brute" if is_torch(points) else quickest(*points.shape)
        return cls(points, algorithm, TREES[algorithm](points) if algorithm in TREES else None)

    def nearest(self, Q: Array, k: int) -> tuple[Array, Array]:
        """Rows (m, k) of the points nearest to each row of Q, and their squared distances.

        Nearest first, ties by row number.
        """
        if self.tree is None:
            return kernels_for(self.points).nearest(Q, self.points, k)  # type: ignore[no-any-return]
        near, squares = np.empty((len(Q), k), dtype=np.intp), np.empty((len(Q), k))

        def search(rows: slice) -> None:
            near[rows], squares[rows] = self._nearest_in_tree(Q[rows], k)

        parts = [slice(first, first + QUERIES) for first in range(0, len(Q), QUERIES)]
        in_threads(search, parts, READ * Q.nbytes)
        return near, squares

    def _nearest_in_tree(self, Q: Array, k: int) -> tuple[Array, Array]:
        n = len(self.points)
        # Trees return ties in any order; one neighbour more than k shows where that matters.
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


def quickest(n: int, r: int) -> str:
    """The algorithm that is usually the fastest for n points in r dimensions."""
    return "kd_tree" if n >= FEWEST_POINTS and r <= MOST_DIMENSIONS else "brute"
