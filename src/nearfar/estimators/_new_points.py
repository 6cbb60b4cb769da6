"""The fitted points that are nearest to new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import check_device, validated_points
from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.kernels.search import Search

Index = NDArray[np.intp]

TREE_QUERIES = 256  # that are worth building a tree; it finds the same points
TREE_DIMENSIONS = 8  # in which a tree is quicker


@dataclass(frozen=True)
class NewPoints:
    """New points (m, d) and fitted ones (n, d), or the distances (m, n) between them."""

    new: Array
    fitted: Array | None  # None: ``new`` are distances

    @classmethod
    def of(cls, estimator: Any, X: Any, fitted: Array | None, n_fitted: int) -> NewPoints:
        """Check what an estimator is given; without fitted points these must be distances."""
        if fitted is not None:
            X = validated_points(estimator, X, reset=False)
            check_device(estimator, X, fitted)
            return cls(X, fitted)
        X = check_array(kernels_for(X).to_host(X), dtype=[np.float64, np.float32])
        if X.shape[1] != n_fitted:
            raise InvalidInputError(
                f"{type(estimator).__name__} was fitted on distances of {n_fitted} points and needs"
                f" those of each new point to all of them; got {X.shape[1]}."
            )
        bad = np.argwhere(X < 0)
        if len(bad):
            raise InvalidInputError(
                f"distances must not be negative; row {bad[0][0]} has one in column {bad[0][1]}"
                f" ({len(bad)} in all). Check how they were computed.",
                bad,
            )
        return cls(X, None)

    def __len__(self) -> int:
        return len(self.new)

    def nearest(self, rows: Index, nodes: Index, k: int) -> tuple[Index, NDArray[np.float64]]:
        """Of some new points the k nearest of some fitted ones, and squared distances.

        Both (len(rows), k), on the host, nearest first, ties by number.
        """
        if self.fitted is None:
            block = self.new[np.ix_(rows, nodes)].astype(np.float64)
            order = np.argsort(block, axis=1, kind="stable")[:, :k]
            return nodes[order], np.take_along_axis(block, order, axis=1) ** 2
        kernels = kernels_for(self.fitted)
        new = self.new[kernels.index(rows, self.new)]
        fitted = self.fitted[kernels.index(nodes, new)]
        few = len(new) < TREE_QUERIES or new.shape[1] > TREE_DIMENSIONS or is_torch(new)
        near, squares = Search.of(fitted, "brute" if few else "kd_tree").nearest(new, k)
        return nodes[kernels.to_host(near)], kernels.to_host(squares).astype(np.float64)
