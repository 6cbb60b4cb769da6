"""What the learners of the LMNN family share: labels, parameters, rows to learn from, endings."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.errors import DataWarning, warn
from nearfar.estimators._base import validated_labels
from nearfar.estimators._iterative import IterativeLearner
from nearfar.estimators._start import host
from nearfar.estimators._validation import held_out_rows
from nearfar.files import fingerprint
from nearfar.kernels import Array, kernels_for
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.supervision import ClassOrder, class_order
from nearfar.validation import check_number

Index = NDArray[np.intp]


class LargeMarginLearner(IterativeLearner):
    """What does not depend on the form of the map; a mixin beside one that validates points."""

    n_neighbors: int
    push_weight: float
    validation_fraction: float | None
    random_state: Any

    # -- before ------------------------------------------------------------------------------

    def _validated_with_labels(self, X: Any, y: Any) -> tuple[Array, ClassOrder]:
        X = self._validated(X, reset=True)  # type: ignore[attr-defined]  # of the other base
        return X, validated_labels(self, X, y)

    def _check_shared_parameters(self) -> None:
        check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
        check_number("push_weight", self.push_weight, Real, 0, 1, open_ends=True)
        if self.validation_fraction is not None:
            check_number(
                "validation_fraction", self.validation_fraction, Real, 0, 1, open_ends=True
            )
        self._check_limits()

    def _split_rows(self, labels: ClassOrder) -> tuple[Index, ClassOrder, Index | None]:
        """Rows to learn from sorted by class, their labels in row order, and rows held out."""
        if self.validation_fraction is None:
            return labels.order, labels, None
        random = check_random_state(self.random_state)
        rows, held_out = held_out_rows(labels, self.validation_fraction, random)
        part = class_order(labels.codes[rows], type(self).__name__)
        return rows[part.order], part, held_out

    def _opened_checkpoint(
        self, path: Any, points: Array, labels: ClassOrder, *settings: Any
    ) -> Checkpoint | None:
        """The checkpoint of a fit to these points with these settings, arrays or plain values."""
        if path is None:
            return None
        shared = [self.n_neighbors, self.push_weight]
        return Checkpoint(path, fingerprint(host(points), labels.starts, *settings, *shared))

    # -- after -------------------------------------------------------------------------------

    def _objective_without_variation(self, labels: ClassOrder, heads: Array) -> float:
        """All points are equal, so that every triplet has a slack of 1 whatever the metric."""
        warn(
            "all points are equal, so that every metric is as good as any other. Check X.",
            DataWarning,
        )
        others = len(labels.codes) - np.repeat(labels.sizes, labels.sizes)[host(heads)]
        return float(self.push_weight * others.sum())


def warn_of_coinciding(count: int) -> None:
    """Warn of pairs of equal points with different labels, if there are any."""
    if count:
        warn(
            f"{count} pairs of equal points have different labels: no metric can part them."
            " Check these labels.",
            DataWarning,
        )


def taken(X: Array, rows: Index) -> Array:
    """Rows of X, where it lives."""
    return X[kernels_for(X).index(rows, X)]
