"""Early stopping on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array
from nearfar.solvers import Iterate, Record, Solution, Status
from nearfar.supervision import ClassOrder
from nearfar.supervision.neighbors import nearest_under, vote

PATIENCE = 5  # looks without a smaller validation error
CLOSELY = 10  # iterations at first that are all measured: where points are few, the best is there


class EarlyStopping:
    """Follows the error on held-out rows, and ends the run when it no longer falls.

    ``predict`` gives the class numbers of the held-out rows at an iterate, and ``codes`` are the
    true ones; ``began`` is the number of records before the run at hand; ``best`` is the
    iterate with the smallest error so far, ``error`` its error, and ``resting`` how many looks
    there were since the last smaller one.
    """

    def __init__(
        self,
        predict: Callable[[Iterate], NDArray[Any]],
        codes: NDArray[np.intp],
        began: int = 0,
    ) -> None:
        self._predict, self._codes, self._began = predict, codes, began
        self.best: Iterate | None = None
        self.error = np.inf
        self.resting = 0

    def begin(self, start: Iterate) -> None:
        """Measure where the run starts: the iterate to keep if there is no better one."""
        self.best, self.error = start, self.measured(start)

    def measured(self, iterate: Iterate) -> float:
        """The error at an iterate."""
        return float(np.mean(self._predict(iterate) != self._codes))

    def __call__(self, iterate: Iterate, trace: list[Record]) -> Status | None:
        """Measure one of the first iterates, or one at which the solver looked up."""
        looked = trace[-1]["residual"] is not None
        if not looked and len(trace) - self._began > CLOSELY:
            return None
        error = trace[-1]["validation_error"] = self.measured(iterate)
        self.resting = 0 if error < self.error else self.resting + looked
        if error <= self.error:  # of equals the later, which is closer to the optimum
            self.best, self.error = iterate, error
        return Status.EARLY_STOPPED if self.resting >= PATIENCE else None

    def kept(self, solution: Solution) -> Solution:
        """The solution with the iterate of the smallest error, and why the run ended."""
        if self.best is None:
            return solution
        early = solution.status is Status.CONVERGED and self.best is not solution.iterate
        status = Status.EARLY_STOPPED if early else solution.status
        return replace(solution, iterate=self.best, status=status)


def votes_under(
    maps: NDArray[np.float64],
    points: Array,
    codes: NDArray[np.intp],
    new: Array,
    n_neighbors: int,
    metric_of: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """The class numbers that new points get from the points nearest to them under a map.

    If there are several maps, ``metric_of`` is the number of the one that measures the distance to
    each point.
    """
    if metric_of is None:
        maps, metric_of = maps[None], np.zeros(len(codes), dtype=np.intp)
    nearest = nearest_under(new, points, maps, metric_of, min(n_neighbors, len(codes)))
    return vote(codes[nearest], int(codes.max()) + 1)


def held_out_rows(
    labels: ClassOrder, fraction: float, random: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to learn from and rows to validate on: a share of each class, leaving at least two."""
    held = []
    for first, last in zip(labels.starts[:-1], labels.starts[1:], strict=True):
        members = random.permutation(labels.order[first:last])
        held.append(members[: max(0, min(int(fraction * len(members)), len(members) - 2))])
    held_out = np.sort(np.concatenate(held))
    if len(held_out) == 0:
        raise InvalidInputError(
            f"validation_fraction={fraction} leaves no row to validate on: every class is too"
            " small. Raise it, or set it to None."
        )
    return np.setdiff1d(np.arange(len(labels.codes)), held_out), held_out
