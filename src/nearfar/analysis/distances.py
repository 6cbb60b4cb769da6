"""Distances of pairs before and after learning: ROC curves and Shepard diagrams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import Floats, Index, images_of
from nearfar.evaluation.spectra import all_distances
from nearfar.evaluation.verification import equal_error_rate, roc
from nearfar.kernels import is_torch, to_host
from nearfar.supervision import Tuples, make_pairs


@dataclass(frozen=True, eq=False)
class RocCurve:
    """How well distances separate near pairs from far ones.

    Attributes
    ----------
    false_positive_rates, true_positive_rates : ndarray
        The ROC curve, ascending from (0, 0) to (1, 1).
    area : float
        The area under it.
    equal_error_rate : float
        The error at the threshold where near and far pairs are taken wrongly equally often.
    """

    false_positive_rates: NDArray[np.floating]
    true_positive_rates: NDArray[np.floating]
    area: float
    equal_error_rate: float

    @classmethod
    def of(cls, kinds: Any, distances: Floats) -> RocCurve:
        """The curve of distances of pairs, whose kinds are +1 for near and −1 for far."""
        false_positives, true_positives, _ = roc(kinds, distances)
        area = float(np.trapezoid(true_positives, false_positives))
        return cls(false_positives, true_positives, area, equal_error_rate(kinds, distances))


def labelled_pairs(X: Any, y: Any, n_pairs: int, random_state: Any) -> tuple[Any, NDArray[Any]]:
    """Pairs as `Tuples` or an array (m, 2, d), and their kinds."""
    if isinstance(X, Tuples):
        return X, to_host(y)
    points = X if is_torch(X) or hasattr(X, "columns") else to_host(X)  # columns have names
    if getattr(points, "ndim", 2) == 3:
        return points, to_host(y)
    pairs, kinds = make_pairs(points, y, n_pairs, random_state=random_state)
    return pairs, kinds


def pair_lengths(pairs: Any) -> Floats:
    """Euclidean distances within pairs, given as `Tuples` or as an array (m, 2, d)."""
    if isinstance(pairs, Tuples):
        return edge_lengths(pairs.points, *pairs.indices.T)
    dense = to_host(pairs).astype(np.float64)
    difference = dense[:, 0] - dense[:, 1]
    lengths: Floats = np.sqrt(np.vecdot(difference, difference))
    return lengths


def edge_lengths(points: Any, heads: Index, tails: Index) -> Floats:
    """Euclidean distances between the rows ``heads`` and ``tails`` of the points."""
    rows = to_host(points).astype(np.float64)
    return pair_lengths(np.stack([rows[heads], rows[tails]], axis=1))


def learned_lengths(estimator: Any, model: Any, pairs: Any) -> Floats:
    """Distances under a model."""
    if hasattr(model, "pair_distance"):
        return to_host(model.pair_distance(pairs)).astype(np.float64)
    if isinstance(pairs, Tuples):
        return pair_lengths(Tuples(images_of(estimator, pairs.points), pairs.indices))
    m, _, d = pairs.shape
    return pair_lengths(images_of(estimator, pairs.reshape(2 * m, d)).reshape(m, 2, -1))


def random_pairs(n: int, count: int, random_state: int | None) -> tuple[Index, Index]:
    """Draw pairs of two different points of n, or take all pairs if these are fewer."""
    if n * (n - 1) // 2 <= count:
        return np.triu_indices(n, 1)
    random = np.random.default_rng(random_state)
    heads = random.integers(n, size=count)
    return heads, (heads + random.integers(1, n, size=count)) % n


def given_lengths(X: Any, heads: Index, tails: Index, metric: str) -> Floats:
    """Distances between rows as given by X; NaN where they are not known."""
    if metric == "euclidean":
        return edge_lengths(X, heads, tails)
    return all_distances(X, metric)[heads, tails]


def best_factor(before: Floats, after: Floats) -> float:
    """The factor c for which c times the distances before are nearest to those after."""
    squares = float(before @ before)
    return float(before @ after) / squares if squares > 0 else 1.0
