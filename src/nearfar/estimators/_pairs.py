"""The mixin of learners from near and far pairs: four forms of input, and a score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from nearfar.blocks import Blocks
from nearfar.estimators._block_rows import block_keys, scaled_blocks, varying_in_blocks
from nearfar.estimators._input import checked_labels, validated_points
from nearfar.estimators._shrinkage import (
    AUTO,
    Prior,
    better_scale,
    chosen_prior,
    framed,
    scale_of_pairs,
    shrinkage_for,
)
from nearfar.estimators._start import check_range
from nearfar.estimators._tuples import holds_tuples, validated_kinds, validated_tuples
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.problems.whitening import varying
from nearfar.supervision import ClassOrder, Pairs
from nearfar.supervision.pairs import check_both_kinds, equal_points, labelled_edges

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

VOTERS = 3  # neighbours whose errors choose the distance to keep
SCORED_PAIRS = 1 << 21  # largest number of near and of far pairs in a score of labelled points


class PairLearner:
    """A mixin that scores a metric learner on pairs.

    X and y of ``fit(X, y=None)`` and of ``score`` are one of

    - X (n_samples, n_features) and class labels y: all pairs, or ``n_pairs`` near and far ones;
    - X (n_pairs, 2, n_features) and y of +1 (near) and −1 (far);
    - X (n_triplets, 3, n_features), y None: the first two points are near, the outer two far;
    - X = Tuples(points, indices): pairs with y, or triplets, by row number.
    """

    def score(self, X: Any, y: Any = None) -> float:
        """Area under the ROC curve of ``pair_score``: how well it separates near and far pairs.

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


def shrunk_pairs(
    estimator: Any, pairs: Pairs, rows: int, *, diagonal: bool = False
) -> tuple[Pairs, Prior | None]:
    """The pairs in coordinates of the distance that ``shrinkage`` keeps, and W of these, if any.

    "auto" keeps that of `chosen_prior` for labels, and otherwise, or for a ``diagonal`` metric,
    that of the inputs or of features at one scale, whichever is better. It is one half at so many
    ``rows`` of labelled points for each feature, and at 4 of pairs. Sets ``shrinkage_``,
    ``feature_scale_`` and ``prior_components_`` of the estimator.
    """
    points, labels, scale, prior = pairs.points, pairs.labels, None, None
    in_blocks = isinstance(points, Blocks)
    varies = varying_in_blocks(points) if in_blocks else varying(kernels_for(points), points)
    d = int(np.count_nonzero(varies))
    if isinstance(estimator.shrinkage, str):
        check_range(points)
        if labels is None:
            edges = pairs.heads, pairs.tails, pairs.near, pairs.weights
            scale = scale_of_pairs(points, *edges, keys=block_keys(points) if in_blocks else None)
        elif diagonal:
            scale = scale_of_rows(points, labels.codes, pairs.given_weights)
        else:
            prior = prior_of_rows(points, labels.codes, pairs.given_weights)
    rows = AUTO if labels is None else rows  # pairs are classified by distances, not by neighbours
    estimator.shrinkage_ = shrinkage_for(estimator.shrinkage, count_of(pairs), d, rows)
    estimator.feature_scale_ = None if scale is None else to_host(scale)
    estimator.prior_components_ = None if prior is None else prior[0]
    if scale is not None:
        scaled = scaled_blocks(points, to_host(scale)) if in_blocks else points * scale
        pairs = replace(pairs, points=scaled)
    elif prior is not None:
        pairs = replace(pairs, points=framed(points, prior[0]))
    return pairs, prior


def different_ends(pairs: Pairs) -> Index:
    """The different points that occur in pairs."""
    return np.unique(equal_points(pairs.points)[np.concatenate([pairs.heads, pairs.tails])])


def count_of(pairs: Pairs) -> float:
    """The n of "auto": labelled points, or the fewer of near pairs and points, by their weights."""
    weights = pairs.given_weights
    if pairs.labels is None:
        return min(float(len(different_ends(pairs))), pairs.near_total)
    return float(len(pairs.points) if weights is None else weights.sum())


def prior_of_rows(points: Array, codes: Index, weights: Matrix | None = None) -> Prior | None:
    """`chosen_prior` with as many coordinates as features, of which the last may be zero."""
    points, codes = _different_rows(points, codes, weights)
    order = np.argsort(codes, kind="stable")
    prior = chosen_prior(take_rows(points, order), codes[order], VOTERS)
    if prior is None:
        return None
    none = np.zeros((points.shape[1] - len(prior[0]), points.shape[1]))
    return np.vstack([prior[0], none]), np.hstack([prior[1], none.T])


def scale_of_rows(points: Array, codes: Index, weights: Matrix | None) -> Array | None:
    """`better_scale` by the different rows of positive weight."""
    return better_scale(*_different_rows(points, codes, weights), VOTERS)


def _different_rows(points: Array, codes: Index, weights: Matrix | None) -> tuple[Array, Index]:
    """The different rows of positive weight: a copy is its own neighbour."""
    rows = np.arange(len(points)) if weights is None else np.flatnonzero(weights)
    points = take_rows(points, rows)
    kept = np.flatnonzero(equal_points(points) == np.arange(len(points)))
    return take_rows(points, kept), codes[rows][kept]
