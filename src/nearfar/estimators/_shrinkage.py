"""How much of the inputs' distance a learner keeps: ``shrinkage``, and the scale of features."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from nearfar.errors import InvalidInputError
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.supervision import vote
from nearfar.supervision.pairs import equal_points
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

SCALE_ROWS = 2000  # that are enough to tell whether features should be scaled
SCALE_PAIRS = 10_000  # the same of near and of far pairs
MOST_POWERS = 60  # of two by which a feature is scaled, so that float32 holds its squares
AUTO = 4  # rows for each feature at which "auto" is one half


def check_shrinkage(shrinkage: Any) -> None:
    """Refuse what is neither "auto" nor a number from 0 to below 1."""
    if isinstance(shrinkage, str):
        check_choice("shrinkage", shrinkage, ("auto",), or_else=" or a number from 0 to below 1")
        return
    check_number("shrinkage", shrinkage, Real, 0, 1)
    if shrinkage == 1:
        raise InvalidInputError(
            "shrinkage must be below 1, which would be the distance of the inputs; got 1. To learn"
            " nothing, use the inputs as they are."
        )


def chosen_shrinkage(shrinkage: float | str, points: Array) -> float:
    """The shrinkage that was given, or the one for so many points and features."""
    return shrinkage_for(shrinkage, *points.shape)


def shrinkage_for(shrinkage: float | str, n: float, d: int, rows: int = AUTO) -> float:
    """The shrinkage that was given, or the one for n points, or their weights, and d features.

    "auto" is one half at so many ``rows`` for each feature.
    """
    return rows * d / (rows * d + max(n, 0.0)) if shrinkage == "auto" else float(shrinkage)


def one_scale(points: Array) -> Array | None:
    """Powers of two that bring features to about one scale; None if they are at one."""
    sample = np.asarray(to_host(points[:: -(-len(points) // SCALE_ROWS)]), dtype=np.float64)
    spread = (sample - sample[:1]).std(axis=0)  # exactly zero of constants, whose mean is rounded
    top = spread.max(initial=0.0)
    if not top > 0:
        return None
    # Units that all features share change all powers alike.
    powers = np.round(np.log2(np.where(spread > 0, spread, top) / top)) + np.round(np.log2(top))
    powers = powers.clip(-MOST_POWERS, MOST_POWERS)
    if len(np.unique(powers[spread > 0])) < 2 or len(sample) < 2:
        return None
    return kernels_for(points).like(2.0**-powers, points)


def better_scale(points: Array, codes: Index, n_neighbors: int) -> Array | None:
    """What brings features to about one scale, if nearest neighbours then err less; else None.

    The scales are powers of two, so that maps of scaled points are maps of the inputs to the last
    digit. The error is that of leaving one row out, in a sample.
    """
    kernels, step = kernels_for(points), -(-len(points) // SCALE_ROWS)
    sample, truth = points[::step], codes[::step]
    scale = one_scale(sample)
    if scale is None:
        return None
    k = min(n_neighbors, len(sample) - 1)

    def error(X: Array) -> float:
        near = to_host(kernels.nearest(X, X, k + 1)[0])
        others = near != np.arange(len(X))[:, None]
        others[others.all(axis=1), -1] = False  # of many equal points the row itself may be missing
        voters = near[others].reshape(len(X), k)
        return float(np.mean(vote(truth[voters], int(codes.max()) + 1) != truth))

    return scale if error(sample * scale) < error(sample) else None


def scale_of_pairs(
    points: Array, heads: Index, tails: Index, near: Mask, weights: Floats | None = None
) -> Array | None:
    """As `better_scale`, for near and far pairs: by the area under the ROC curve of distances."""
    used = np.unique(equal_points(points)[np.concatenate([heads, tails])])
    scale = one_scale(take_rows(points, used))
    few = np.concatenate([np.flatnonzero(kind)[:SCALE_PAIRS] for kind in (near, ~near)])
    if scale is None or near[few].all() or not near[few].any():
        return None
    kernels = kernels_for(points)
    edges = [kernels.index(end[few], points) for end in (heads, tails)]
    w = None if weights is None else weights[few]

    def area(X: Array) -> float:
        squares = to_host(kernels.sq_lengths(X, *edges))
        return float(roc_auc_score(near[few], -squares, sample_weight=w))

    return scale if area(points * scale) > area(points) else None
