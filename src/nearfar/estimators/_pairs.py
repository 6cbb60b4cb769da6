"""What learners share that learn from near and far pairs: their input, and its score."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import checked_labels, validated_labels, validated_points
from nearfar.estimators._parameters import check_number
from nearfar.estimators._start import without_dead_features
from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.supervision import Pairs, Tuples
from nearfar.supervision.labels import check_class_pairs
from nearfar.supervision.pairs import (
    Edges,
    check_both_kinds,
    labelled_edges,
    near_kinds,
    pairs_of_labels,
    pairs_of_tuples,
)

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

SCORED_PAIRS = 1 << 21  # near and far pairs each, of labelled points, that a score looks at


class PairLearner:
    """Input of four forms, and its score; a mixin beside a form of metric.

    ``fit(X, y=None)`` of a learner takes

    - X (n_samples, n_features) and class labels y: all pairs, or ``n_pairs`` near and far ones;
    - X (n_pairs, 2, n_features) and y of +1 (near) and −1 (far);
    - X (n_triplets, 3, n_features), y None: the first two points are near, the outer two far;
    - X = Tuples(points, indices): pairs with y, or triplets, by row number.
    """

    n_pairs: int | None = None
    random_state: Any = None

    def _validated_pairs(self, X: Any, y: Any, *, both: bool = True, live: bool = False) -> Pairs:
        """What X and y say, checked; sets ``n_features_in_``, names, and of labels ``classes_``.

        ``both`` is whether near and far pairs must both occur, and ``live`` whether features that
        vary by almost nothing are set to zero first, so that points that differ in no other one
        count as equal. The points of dense pairs and
        triplets are those that differ; for labels and `Tuples` they are the user's, in his order.
        """
        self.__dict__.pop("classes_", None)
        name = type(self).__name__
        if not holds_tuples(X):
            if self.n_pairs is not None:
                check_number("n_pairs", self.n_pairs, Integral, 1, None)
            points = validated_points(self, X, reset=True)
            labels = validated_labels(self, points, y)
            check_class_pairs(labels, name)
            points = without_dead_features(points) if live else points
            random = check_random_state(self.random_state)
            return pairs_of_labels(points, labels, self.n_pairs, random, name)
        if self.n_pairs is not None:
            raise InvalidInputError(
                f"n_pairs={self.n_pairs} chooses pairs of labelled points, but X holds tuples."
                " Set n_pairs=None, or give points of shape (n_samples, n_features) and labels."
            )
        points, indices = validated_tuples(self, X, reset=True)
        near = validated_kinds(self, indices, y)
        points = without_dead_features(points) if live else points
        return pairs_of_tuples(points, indices, near, both, merge=not isinstance(X, Tuples))

    def score(self, X: Any, y: Any = None) -> float:
        """Area under the ROC curve of ``pair_score``: how surely near pairs are told from far ones.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Pairs, triplets or points, as in ``fit``.
        y : array-like or None, default=None
            +1 and −1 for pairs, None for triplets, class labels for points. Labelled points are
            scored on all their pairs, or on two million near and far ones each, the same in every
            call, if there are more.

        Returns
        -------
        float
            From 0 to 1, 0.5 for a guess. It does not depend on how many pairs are near.
        """
        points, edges, near = self._scored_pairs(X, y)
        check_both_kinds(near, "Shuffle them, or split them with StratifiedKFold(shuffle=True).")
        distances = self._edge_distances(points, *edges)  # type: ignore[attr-defined]
        return float(roc_auc_score(near, -kernels_for(distances).to_host(distances)))

    def _scored_pairs(self, X: Any, y: Any) -> tuple[Array, Edges, Mask]:
        """Points, edges and kinds; odd pairs are taken as they are."""
        if not holds_tuples(X):
            points = validated_points(self, X, reset=False)
            labels = checked_labels(self, points, y)
            heads, tails, near = labelled_edges(labels, SCORED_PAIRS, np.random.RandomState(0))
            return points, (heads, tails), near
        points, indices = validated_tuples(self, X, reset=False)
        kinds = validated_kinds(self, indices, y)
        if kinds is None:
            kinds = np.repeat([True, False], len(indices))
            indices = np.concatenate([indices[:, :2], indices[:, ::2]])
        return points, (indices[:, 0], indices[:, 1]), kinds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        return tags


def holds_tuples(X: Any) -> bool:
    """Whether X is of pairs or triplets rather than of points."""
    if isinstance(X, Tuples):
        return True
    try:
        return len(X.shape if hasattr(X, "shape") else np.asarray(X).shape) == 3
    except ValueError:  # rows of different lengths, which the check of points refuses in words
        return False


def validated_tuples(estimator: Any, X: Any, reset: bool) -> tuple[Array, Index]:
    """Points, all finite, and the rows (m, 2) or (m, 3) that make up the tuples."""
    X = X if is_torch(X) or isinstance(X, Tuples) else np.asarray(X)
    m, size, d = X.shape
    if size not in (2, 3):
        raise InvalidInputError(
            f"{type(estimator).__name__} takes pairs of shape (n_pairs, 2, n_features) or triplets"
            f" of shape (n_triplets, 3, n_features); got {tuple(X.shape)}."
            " Stack pairs with numpy.stack([a, b], axis=1)."
        )
    if isinstance(X, Tuples):
        return validated_points(estimator, X.points, reset), X.indices
    points = validated_points(estimator, X.reshape((m * size, d)), reset)
    return points, np.arange(m * size).reshape(m, size)


def validated_kinds(estimator: Any, indices: Index, y: Any) -> Mask | None:
    """Which pairs are near, from y of +1 and −1; None for triplets, which have no y."""
    name = type(estimator).__name__
    if indices.shape[1] == 3:
        if y is not None:
            raise InvalidInputError(
                f"{name} takes triplets without y: the first two points are near, the outer two"
                " far. Pass y=None."
            )
        return None
    if y is None:
        raise InvalidInputError(
            f"{name} requires y to be passed, but the target y is None."
            " Pass +1 for each near and -1 for each far pair."
        )
    kinds = np.asarray(kernels_for(y).to_host(y))
    if kinds.shape != (len(indices),):
        raise InvalidInputError(
            f"{name} needs +1 or -1 for each pair; there are {len(indices)} pairs, and y has shape"
            f" {kinds.shape}. Check that they belong together."
        )
    return near_kinds(kinds)
