"""How much of the inputs' distance a learner keeps: ``shrinkage``, and the scale of features."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg
from scipy import sparse
from sklearn.metrics import roc_auc_score

from nearfar.errors import InvalidInputError, WorseThanInputsWarning, warn
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.problems.discriminant import discriminant_frame
from nearfar.supervision import vote
from nearfar.supervision.pairs import equal_points
from nearfar.validation import check_choice

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
Prior = tuple[Matrix, Matrix]  # coordinates W, (k, features), and their inverse

PRIOR_ROWS = 10_000  # that are enough for the distance to keep,
SCALE_ROWS = 2000  # and to choose it
SCALE_PAIRS = 10_000  # the same of near and of far pairs
FOLDS = 5  # of which each is left out once
MOST_POWERS = 60  # of two by which a feature is scaled, so that float32 holds its squares
MOST_FEATURES = 5000  # whose full metric is still a small matrix: 0.2 GB
AUTO = 4  # rows for each feature at which "auto" is one half


def check_shrinkage(shrinkage: Any) -> None:
    """Refuse what is neither "auto" nor a number from 0 to below 1."""
    if isinstance(shrinkage, str):
        check_choice("shrinkage", shrinkage, ("auto",), or_else=" or a number from 0 to below 1")
        return
    number = float(shrinkage) if isinstance(shrinkage, Real) else np.nan
    if isinstance(shrinkage, bool) or not 0 <= number <= 1:
        raise InvalidInputError(
            f"shrinkage must be a number from 0 to below 1, or 'auto'; got {shrinkage!r}."
        )
    if shrinkage == 1:
        raise InvalidInputError(
            "shrinkage must be below 1, which would be the distance of the inputs; got 1. To learn"
            " nothing, use the inputs as they are."
        )


def chosen_shrinkage(shrinkage: float | str, points: Array, n_metrics: int = 1) -> float:
    """The shrinkage that was given, or the one for so many points and features a metric."""
    n, d = points.shape
    return shrinkage_for(shrinkage, n / n_metrics, d)


def margin_shrinkage(shrinkage: float | str, points: Array, n_metrics: int = 1) -> float:
    """As `chosen_shrinkage`, but "auto" is 0 where a metric of full rank would be too large.

    Sparse points have none: a map of few rows is learned.
    """
    large = points.shape[1] > MOST_FEATURES and not sparse.issparse(points)
    if shrinkage == "auto" and large:
        return 0.0
    return chosen_shrinkage(shrinkage, points, n_metrics)


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


def warn_if_worse(
    votes: Index,
    input_votes: Index,
    truth: Index,
    *,
    n_rows: int,
    n_features: int,
    n_classes: int,
    standard_errors: float = 1.0,
) -> None:
    """Warn if rows that were not learned from err more often under a map than as they are.

    ``votes`` are the class numbers that nearest neighbours give them under the map, and
    ``input_votes`` those under the inputs; ``truth`` are the true ones. The map was learned from
    ``n_rows`` rows of ``n_features`` features in ``n_classes`` classes. A difference of at most
    so many standard errors is chance and not warned of.
    """
    wrong, wrong_before = votes != truth, input_votes != truth
    if not _more(wrong, wrong_before, standard_errors):
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
    """What brings features to one scale, if nearest neighbours then misclassify fewer; else None.

    The scales are powers of two, so that maps of scaled points are maps of the inputs to the last
    digit. Rows of a sample are left out once each, and the gain must be more than chance.
    """
    step = -(-len(points) // SCALE_ROWS)
    sample, truth = points[::step], codes[::step]
    scale = one_scale(sample)
    if scale is None or len(sample) < FOLDS:
        return None
    X = np.asarray(to_host(sample), dtype=np.float64)
    wrong = _misclassified(X, truth, n_neighbors)
    found = _misclassified(X * to_host(scale), truth, n_neighbors)
    return scale if _more(wrong, found) else None


def scale_of_pairs(
    points: Array, heads: Index, tails: Index, near: Mask, weights: Matrix | None = None
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


def chosen_prior(points: Array, codes: Index, n_neighbors: int) -> Prior | None:
    """The distance to keep: W with its inverse on features that vary, or None for the inputs.

    It begins with the inputs. Features brought to one scale, and then shrunk discriminant analysis,
    take their place if nearest neighbours misclassify fewer of the training rows, each left out
    once, by more than chance. All have closed forms, so that this costs little beside a fit.
    """
    step = -(-len(points) // PRIOR_ROWS)
    X, truth = np.asarray(to_host(points[::step]), dtype=np.float64), codes[::step]
    X = X - X.mean(axis=0)
    live = np.flatnonzero(to_host(abs(points - points[:1]).sum(0)) > 0)
    sample = slice(None, None, -(-len(X) // SCALE_ROWS))
    if not 0 < len(live) <= X.shape[1] <= MOST_FEATURES or len(X[sample]) < FOLDS:
        return None
    scale, scaled = np.ones(len(live)), one_scale(X[:, live])
    wrong = _misclassified(X[sample][:, live], truth[sample], n_neighbors)
    if scaled is not None:
        found = _misclassified(X[sample][:, live] * scaled, truth[sample], n_neighbors)
        if _more(wrong, found):
            scale, wrong = scaled, found
    X, d = X[:, live] * scale, len(live)
    basis = None if len(X) >= d else scipy_linalg.svd(X, full_matrices=False)[2].T
    spanned = X if basis is None else X @ basis
    found = _misclassified(spanned[sample], truth[sample], n_neighbors, discriminant_of=d)
    frame = discriminant_frame(spanned, truth, d) if _more(wrong, found) else None
    if frame is None and (scale == 1).all():
        return None
    A, inverse = np.eye(d), np.eye(d)
    if frame is not None:
        A, inverse = (frame.A, frame.inverse) if basis is None else frame.lifted(basis)
    W, W_inverse = np.zeros((d, points.shape[1])), np.zeros((points.shape[1], d))
    W[:, live], W_inverse[live] = A * scale, inverse / scale[:, None]
    return W, W_inverse


def _more(wrong: Mask, other: Mask, standard_errors: float = 1.0) -> bool:
    """Whether the first has more mistakes on the same rows, by more than chance."""
    broken, mended = int((wrong & ~other).sum()), int((other & ~wrong).sum())
    return bool(broken - mended > standard_errors * (broken + mended) ** 0.5)


def _misclassified(
    X: Matrix, truth: Index, n_neighbors: int, discriminant_of: int | None = None
) -> Mask:
    """Which rows their nearest neighbours misclassify, each fold left out; sorted by class.

    With ``discriminant_of`` so many features, distances are those of the discriminant frame of the
    rows that are left; else of X.
    """
    kernels, folds = kernels_for(X), np.arange(len(X)) % FOLDS
    wrong = np.zeros(len(X), dtype=bool)
    for fold in range(FOLDS):
        known, new = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        images = X
        if discriminant_of is not None:
            frame = discriminant_frame(X[known], truth[known], discriminant_of)
            images = X if frame is None else X @ frame.A.T
        near = kernels.nearest(images[new], images[known], min(n_neighbors, len(known)))[0]
        wrong[new] = vote(truth[known][near], int(truth.max()) + 1) != truth[new]
    return wrong
