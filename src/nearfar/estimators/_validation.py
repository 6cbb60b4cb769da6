"""Early stopping on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from nearfar.errors import InvalidInputError
from nearfar.solvers import Iterate, Record, Status
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]

PATIENCE = 5  # looks without a smaller validation error


class HeldOutError:
    """Follows the nearest-neighbour error on held-out rows, and ends the run when it rests.

    ``components`` turns an iterate into a map of the features; ``best`` is the iterate with the
    smallest error so far, and ``error`` its error.
    """

    def __init__(
        self,
        train: tuple[NDArray[Any], NDArray[Any]],
        held_out: tuple[NDArray[Any], NDArray[Any]],
        n_neighbors: int,
        components: Callable[[Iterate], Matrix],
    ) -> None:
        self._train, self._held_out = train, held_out
        self._n_neighbors, self._components = n_neighbors, components
        self.best: Iterate | None = None
        self.error = np.inf
        self._resting = 0

    def __call__(self, iterate: Iterate, trace: list[Record]) -> Status | None:
        """Measure an iterate at which the solver looked up."""
        if "gap_estimate" not in trace[-1]:
            return None
        L = self._components(iterate)
        points, labels = self._train
        classifier = KNeighborsClassifier(min(self._n_neighbors, len(labels)))
        classifier.fit(points @ L.T, labels)
        points, labels = self._held_out
        error = 1 - classifier.score(points @ L.T, labels)
        trace[-1]["validation_error"] = error
        self._resting = 0 if error < self.error else self._resting + 1
        if error <= self.error:  # of equals the later, which is closer to the optimum
            self.best, self.error = iterate, error
        return Status.EARLY_STOPPED if self._resting >= PATIENCE else None


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
