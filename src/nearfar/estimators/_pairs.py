"""Mixins of learners from pairs and from comparisons: their forms of input, and a score."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from nearfar.errors import InvalidInputError
from nearfar.estimators._input import (
    checked_labels,
    holds_tuples,
    validated_kinds,
    validated_labels,
    validated_points,
    validated_tuples,
)
from nearfar.kernels import Array, is_torch, to_host
from nearfar.supervision import ClassOrder, Tuples
from nearfar.supervision.labels import check_near_and_far
from nearfar.supervision.pairs import check_both_kinds, labelled_edges
from nearfar.supervision.quadruplets import comparisons

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

SCORED_PAIRS = 1 << 21  # largest number of near and of far pairs in a score of labelled points
SCORED_TUPLES = 1 << 16  # triplets or quadruplets of labelled points in a score


class PairLearner:
    """A mixin that scores a metric learner on pairs.

    X and y of ``fit(X, y=None)`` and of ``score`` are one of

    - X (n_samples, n_features) and class labels y: all pairs, or ``n_pairs`` near and far ones;
    - X (n_pairs, 2, n_features) and y of +1 (near) and −1 (far);
    - X (n_triplets, 3, n_features), y None: the first two points are near, the outer two far;
    - X = Tuples(points, indices): pairs with y, or triplets, by row number.
    """

    def score(self, X: Any, y: Any = None) -> float:
        """Area under the ROC curve of ``pair_score``: how well it tells near pairs from far ones.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Pairs, triplets or points, as in ``fit``.
        y : array-like or None, default=None
            +1 and −1 for pairs, None for triplets, class labels for points. Labelled points are
            scored on all their pairs; if there are more than two million near or far ones, on so
            many of each, the same in every call.

        Returns
        -------
        float
            From 0 to 1; 0.5 is a guess. It does not depend on the share of near pairs.
        """
        if not holds_tuples(X):
            points = validated_points(self, X, reset=False)
            return score_of_labels(self, points, checked_labels(self, points, y))
        points, indices = validated_tuples(self, X, reset=False)
        near = validated_kinds(self, indices, y)
        if near is None:  # (a, b, c): a and b are near, a and c are far
            near = np.repeat([True, False], len(indices))
            indices = np.concatenate([indices[:, :2], indices[:, ::2]])
        return _area_under_roc(self, points, indices[:, 0], indices[:, 1], near)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        return tags


def score_of_labels(learner: Any, points: Array, labels: ClassOrder) -> float:
    """The score on the pairs of labelled points."""
    pairs = labelled_edges(labels, SCORED_PAIRS, np.random.RandomState(0))
    return _area_under_roc(learner, points, *pairs)


def _area_under_roc(learner: Any, points: Array, heads: Index, tails: Index, near: Mask) -> float:
    check_both_kinds(near, "Shuffle them, or split them with StratifiedKFold(shuffle=True).")
    distances = learner._edge_distances(points, heads, tails)
    return float(roc_auc_score(near, -to_host(distances)))


class ComparisonLearner:
    """A mixin for learners from comparisons: triplets, or also quadruplets.

    X and y of ``fit(X, y=None)`` and of ``score`` are one of

    - X (n_samples, n_features) and class labels y, from which comparisons are drawn;
    - X (n_triplets, 3, n_features), y None: the first point is nearer to the second than the third;
    - X (n_quadruplets, 4, n_features), y None: the first two points are nearer than the last two;
    - X = Tuples(points, indices): triplets or quadruplets by row number.

    ``_draw`` makes comparisons from labelled points.
    """

    _draw: ClassVar[Any]
    _sizes: ClassVar[tuple[int, ...]] = (3,)

    def score(self, X: Any, y: Any = None) -> float:
        """The share of comparisons that hold under the learned metric; ties count half.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Comparisons or points, as in ``fit``. Comparisons with a pair of equal points are left
            out, with a warning.
        y : array-like or None, default=None
            Class labels of points, of which 65536 comparisons are drawn, the same in every call;
            None for comparisons.

        Returns
        -------
        float
            From 0 to 1, 0.5 for a guess.
        """
        points, indices = self._comparisons(X, y, reset=False, count=SCORED_TUPLES, random_state=0)
        heads, tails = comparisons(points, indices, type(self).__name__)
        distances = to_host(self._edge_distances(points, heads, tails))  # type: ignore[attr-defined]
        near, far = distances.reshape(2, -1)
        return float(np.mean((near < far) + 0.5 * (near == far)))

    def _comparisons(
        self, X: Any, y: Any, *, reset: bool, count: int, random_state: Any
    ) -> tuple[Array, Index]:
        """Points, and the rows (m, 3) or (m, 4) of the comparisons."""
        name, kind = type(self).__name__, "quadruplet" if 4 in self._sizes else "triplet"
        if not holds_tuples(X):
            points = validated_points(self, X, reset)
            labels = validated_labels(self, points, y)
            check_near_and_far(labels, name)
            found = type(self)._draw(points, labels.codes, count, random_state=random_state)
            if not len(found):
                raise InvalidInputError(
                    f"{name} needs points that differ, within a class and between classes; two"
                    f" points of every {kind} are equal. Check the features."
                )
            return points, found.indices
        if y is not None:
            raise InvalidInputError(
                f"{name} takes {kind}s without y: the order of their points says which are nearer."
                " Pass y=None."
            )
        X = X if is_torch(X) or isinstance(X, Tuples) else np.asarray(X)
        m, size, d = X.shape
        if size not in self._sizes:
            or_triplets = " or triplets of shape (n_triplets, 3, n_features)"
            raise InvalidInputError(
                f"{name} takes {kind}s of shape (n_{kind}s, {self._sizes[0]}, n_features)"
                f"{or_triplets * (4 in self._sizes)}; got {tuple(X.shape)}. For pairs use ITML"
                f"{', for quadruplets LSML' * (4 not in self._sizes)}."
            )
        if isinstance(X, Tuples):
            return validated_points(self, X.points, reset), X.indices
        points = validated_points(self, X.reshape((m * size, d)), reset)
        return points, np.arange(m * size).reshape(m, size)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        return tags
