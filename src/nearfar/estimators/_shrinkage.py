"""How much of the inputs' distance a learner keeps: ``shrinkage``, and the scale of features."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from nearfar.errors import InvalidInputError, WorseThanInputsWarning, warn
from nearfar.kernels import Array, kernels_for, to_host
from nearfar.supervision import vote
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

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


def shrinkage_for(shrinkage: float | str, n: float, d: int) -> float:
    """The shrinkage that was given, or the one for n points, or their weights, and d features."""
    return AUTO * d / (AUTO * d + max(n, 0.0)) if shrinkage == "auto" else float(shrinkage)


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


def warn_if_worse(
    votes: Index,
    input_votes: Index,
    truth: Index,
    *,
    n_rows: int,
    n_features: int,
    n_classes: int,
) -> None:
    """Warn if rows that were not learned from err more often under a map than as they are.

    ``votes`` are the class numbers that nearest neighbours give them under the map, and
    ``input_votes`` those under the inputs; ``truth`` are the true ones. The map was learned from
    ``n_rows`` rows of ``n_features`` features in ``n_classes`` classes. A difference of at most one standard error, the root of the
    number of rows on which the two disagree about being right, is chance and not warned of.
    """
    wrong, wrong_before = votes != truth, input_votes != truth
    broken, mended = int((wrong & ~wrong_before).sum()), int((wrong_before & ~wrong).sum())
    if broken - mended <= (broken + mended) ** 0.5:
        return
    cause = ""
    if n_rows - n_classes < n_features:
        cause = (
            f" {n_rows} rows minus {n_classes} classes are fewer than {n_features} features: the"
            " learned distance fits noise."
        )
    warn(
        f"the learned distance is worse than the inputs: of {len(truth)} rows that were not learned"
        f" from, nearest neighbours misclassify {100 * wrong.mean():.1f} % under it, and"
        f" {100 * wrong_before.mean():.1f} % with the inputs as they are.{cause} Use the inputs, a"
        " larger shrinkage, more rows, or fewer features.",
        WorseThanInputsWarning,
    )


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


def scale_of_pairs(points: Array, heads: Index, tails: Index, near: Mask) -> Array | None:
    """As `better_scale`, for near and far pairs: by the area under the ROC curve of distances."""
    scale = one_scale(points)
    few = np.concatenate([np.flatnonzero(kind)[:SCALE_PAIRS] for kind in (near, ~near)])
    if scale is None or near[few].all() or not near[few].any():
        return None
    kernels = kernels_for(points)
    edges = [kernels.index(end[few], points) for end in (heads, tails)]

    def area(X: Array) -> float:
        return float(roc_auc_score(near[few], -to_host(kernels.sq_lengths(X, *edges))))

    return scale if area(points * scale) > area(points) else None
