"""How much of the inputs' distance a learner keeps: ``shrinkage``, and the scale of features."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg
from scipy import sparse
from sklearn.metrics import roc_auc_score

from nearfar.blocks import Blocks
from nearfar.errors import InvalidInputError, WorseThanInputsWarning, warn
from nearfar.estimators._start import central_point
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.linalg import canonical_factor
from nearfar.problems.discriminant import Frame, discriminant_frame, local_frame
from nearfar.supervision import vote
from nearfar.supervision.pairs import equal_points
from nearfar.validation import check_choice

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
Prior = tuple[Matrix, Matrix]  # coordinates W, (k, features), and their inverse

FrameOf = Callable[[Matrix, Index, int], Frame | None]
FRAMES: tuple[FrameOf | None, ...] = (None, discriminant_frame, local_frame)

PRIOR_ROWS = 5000  # that are enough for the distance to keep,
VOTE_ROWS = 1000  # that vote on the weights of its parts,
VOTE_SHARE = 12  # or one in so many of all rows, if these are more,
MISTAKES = 4  # more than the best one's that cost a part a factor e of its weight,
LEAST_WEIGHT = 1e-3  # of a part that counts,
SCALE_ROWS = 2000  # and for the scale of features
SCALE_PAIRS = 10_000  # the same of near and of far pairs
FOLDS = 5  # of which each is left out once,
FEW_ROWS = 150  # and twice as many for up to so many rows
MOST_POWERS = 60  # of two by which the scales of features may differ,
SINGLE, DOUBLE = (-120, 120), (-1000, 1000)  # and by which features are scaled in float32, float64
MOST_FEATURES = 5000  # whose full metric is still a small matrix: 0.2 GB
AUTO = 4  # rows for each feature at which "auto" is one half,
AUTO_OF_PRIOR = 16  # where labels have shaped the distance that is kept,
AUTO_OF_PAIRS = 64  # and the program is about all pairs of a class, not neighbours


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


def chosen_shrinkage(
    shrinkage: float | str, points: Array, n_metrics: int = 1, rows: int = AUTO
) -> float:
    """The shrinkage that was given, or the one for so many points and features a metric."""
    n, d = points.shape
    return shrinkage_for(shrinkage, n / n_metrics, d, rows)


def margin_shrinkage(
    shrinkage: float | str, points: Array, n_metrics: int = 1, *, shaped: bool = False
) -> float:
    """As `chosen_shrinkage`, but "auto" is 0 where a metric of full rank would be too large.

    Sparse points have none: a map of few rows is learned. "auto" is larger where labels have
    ``shaped`` the distance to keep (`chosen_prior`): that leaves less to learn from them.
    """
    large = points.shape[1] > MOST_FEATURES and not sparse.issparse(points)
    if shrinkage == "auto" and large:
        return 0.0
    rows = AUTO_OF_PRIOR if shaped else AUTO
    return chosen_shrinkage(shrinkage, points, n_metrics, rows)


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
    powers = np.round(np.log2(np.where(spread > 0, spread, top) / top)).clip(-MOST_POWERS, None)
    powers = (powers + np.round(np.log2(top))).clip(*SINGLE if points.itemsize == 4 else DOUBLE)
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
    """Warn if a map misclassifies more rows that were not learned from than the inputs do.

    ``votes`` are the class numbers that nearest neighbours give them under the map, and
    ``input_votes`` those under the inputs; ``truth`` are the true ones. The map was learned from
    ``n_rows`` rows of ``n_features`` features in ``n_classes`` classes. A difference of at most
    so many standard errors is chance and not warned of.
    """
    wrong, wrong_before = votes != truth, input_votes != truth
    if not is_worse(wrong, wrong_before, standard_errors):
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


def value_keys(points: Array, centre: Array | None = None) -> Matrix:
    """A number for each row, by which rows come into an order that depends on their values alone.

    Exponentials of different algebraic numbers are independent over the rationals (Lindemann and
    Weierstrass), so different rows of few decimals have different numbers.
    """
    weights = np.exp(np.arange(points.shape[1]) / points.shape[1])
    return np.asarray(to_host(_images(points, weights[None], centre))[:, 0])


def drawn_by_class(keys: Matrix, codes: Index) -> Index:
    """Rows by class, in each in an order that is drawn, the same for rows given in any order.

    Classes are ordered by their least keys, and not by their numbers. Rows in the order of their
    keys would not do as a sample: those that follow each other are near.
    """
    least = np.full(int(codes.max()) + 1, np.inf)
    np.minimum.at(least, codes, keys)
    order = np.lexsort((keys, codes, least[codes]))
    drawn = np.random.RandomState(0).permutation(len(order))
    return order[np.lexsort((drawn, codes[order], least[codes[order]]))]


def scale_sample(keys: Matrix, codes: Index) -> Index:
    """Rows of all classes that suffice for the scale of features, drawn in each class."""
    return drawn_by_class(keys, codes)[:: -(-len(codes) // SCALE_ROWS)]


def better_scale(points: Array, codes: Index, n_neighbors: int) -> Array | None:
    """What brings features to one scale, if nearest neighbours then misclassify fewer; else None.

    The scales are powers of two, so that maps of scaled points are maps of the inputs to the last
    digit. Rows of a sample are left out once each, and the gain must be more than chance. The order
    of the rows does not matter.
    """
    rows = scale_sample(value_keys(points), codes)
    sample, truth = take_rows(points, rows), codes[rows]
    scale = one_scale(sample)
    if scale is None or len(sample) < FOLDS:
        return None
    X = np.asarray(to_host(sample), dtype=np.float64)
    wrong = _misclassified(X, truth, n_neighbors)
    found = _misclassified(X * to_host(scale), truth, n_neighbors)
    return scale if is_worse(wrong, found) else None


def scale_of_pairs(
    points: Array,
    heads: Index,
    tails: Index,
    near: Mask,
    weights: Matrix | None = None,
    keys: Matrix | None = None,
) -> Array | None:
    """As `better_scale`, for near and far pairs: by the area under the ROC curve of distances.

    ``keys`` are the `value_keys` of points in blocks.
    """
    same = equal_points(points)
    used, ends = np.unique(same[np.stack([heads, tails])], return_inverse=True)
    order = np.argsort(value_keys(take_rows(points, used)) if keys is None else keys[used])
    scale = one_scale(_rows_of(points, used[order[:: -(-len(used) // SCALE_ROWS)]]))
    places = np.sort(np.argsort(order)[ends.reshape(2, -1)], axis=0)
    few = np.concatenate([_spread_pairs(places, kind) for kind in (near, ~near)])
    if scale is None or near[few].all() or not near[few].any():
        return None
    rows, ends = np.unique([heads[few], tails[few]], return_inverse=True)
    scored = _rows_of(points, rows)
    kernels = kernels_for(scored)
    edges = [kernels.index(end, scored) for end in ends.reshape(2, -1)]
    w = None if weights is None else weights[few]

    def area(X: Array) -> float:
        squares = to_host(kernels.sq_lengths(kernels.double(X), *edges))
        return float(roc_auc_score(near[few], -squares, sample_weight=w))

    return scale if area(scored * scale) > area(scored) else None


def _rows_of(points: Array | Blocks, rows: Index) -> Array:
    """Some rows of points, which may lie in blocks."""
    return points.take(rows) if isinstance(points, Blocks) else take_rows(points, rows)


def _spread_pairs(places: Index, kind: Mask) -> Index:
    """The pairs of a kind, or as many as suffice, evenly spaced in the order of their points.

    ``places`` are those of their lower and upper points among all, (2, pairs).
    """
    rows = np.flatnonzero(kind)
    if len(rows) <= SCALE_PAIRS:
        return rows
    low, high = places[:, rows]
    evenly = np.linspace(0, len(rows) - 1, SCALE_PAIRS).astype(np.intp)
    return rows[np.lexsort((high, low))[evenly]]


def chosen_prior(
    points: Array,
    codes: Index,
    n_neighbors: int,
    varies: Mask | None = None,
    n_rows: int | None = None,
    mapped: Callable[..., list[float]] | None = None,
) -> Prior | None:
    """The distance to keep: W with its inverse on features that vary.

    It is a weighted mean of squared distances with closed forms: of the inputs, of features brought
    to one scale, and of the frames of `nearfar.problems.discriminant` of both, each at the same
    total variance. Training rows are left out once each, and a distance has the less weight the
    more of them it misclassifies. A mean is safer than the best of them alone where few rows vote,
    and costs little beside a fit. None, for the inputs, if the rows are too few or do not vary, or
    have too many features. A sample of the rows suffices, but of many rows more must vote: what
    shrinks noise may help a thousand rows, and harm a hundred times as many. ``varies`` says which
    features vary among all rows, and ``n_rows`` how many these are, if ``points`` are a sample.
    ``mapped`` takes a function, columns and shared values as the map of an engine, and has the
    results; without it they are computed here.
    """
    step = -(-len(points) // PRIOR_ROWS)
    X, truth = np.asarray(to_host(points[::step]), dtype=np.float64), codes[::step]
    if varies is None:
        varies = to_host(abs(points - points[:1]).sum(0)) > 0
    live = np.flatnonzero(varies)
    n_voters = max(VOTE_ROWS, (len(points) if n_rows is None else n_rows) // VOTE_SHARE)
    sample = slice(None, None, -(-len(X) // n_voters))
    if not 0 < len(live) <= X.shape[1] <= MOST_FEATURES or len(X[sample]) < FOLDS:
        return None
    X, d = (X - X.mean(axis=0))[:, live], len(live)
    if not X.any():
        return None
    unit = 2.0 ** np.round(np.log2(np.abs(X).max()))  # shared by all features: no digit changes
    X /= unit
    scaled = one_scale(X)
    scales = [np.ones(d)] if scaled is None else [np.ones(d), scaled]
    kinds = [(scale, frame_of) for scale in scales for frame_of in FRAMES]
    voters = X[sample], truth[sample], n_neighbors
    mistakes = np.array((mapped or _mapped)(_mistakes, *zip(*kinds, strict=True), shared=voters))
    weights = np.exp((mistakes.min() - mistakes) / MISTAKES)
    metric = np.zeros((d, d))
    for weight, (scale, frame_of) in zip(weights, kinds, strict=True):
        if weight < LEAST_WEIGHT:
            continue
        coordinates, basis = _spanned(X * scale)
        frame = _framed(coordinates, truth, d, frame_of)
        variance = float((coordinates @ frame.A.T).var(axis=0).sum())
        metric += weight / variance * (scale[:, None] * frame.metric(basis) * scale)
    root = scipy_linalg.cholesky(metric)  # rounding errors do not depend on the units of features
    W, W_inverse = np.zeros((d, points.shape[1])), np.zeros((points.shape[1], d))
    W[:, live] = root / unit
    W_inverse[live] = unit * scipy_linalg.solve_triangular(root, np.eye(d))
    return W, W_inverse


def framed(points: Array, W: Matrix, centre: Array | None = None) -> Array:
    """The points under W, in their own dtype, relative to a centre: the one amid them, or given."""
    images = _images(points, W, centre)
    return kernels_for(points).single(images) if points.itemsize == 4 else images


def _images(points: Array, W: Matrix, centre: Array | None) -> Array:
    """The points under W in float64, relative to a centre: the one amid them, or given."""
    kernels = kernels_for(points)
    amid = (
        central_point(points)
        if centre is None
        else kernels.like(centre, kernels.double(points[:0]))
    )
    return kernels.apply_centred(points, amid, W)


def in_inputs(components: Matrix, scale: Matrix | None, prior: Prior | None) -> Matrix:
    """The map of the inputs for one of scaled or `framed` points."""
    if prior is not None:
        return canonical_factor(components @ prior[0])
    return components if scale is None else canonical_factor(components * scale)


def of_points(components: Matrix, scale: Matrix | None, prior: Prior | None) -> Matrix:
    """The map of these points for one of the inputs."""
    if prior is not None:
        return components @ prior[1]
    return components if scale is None else components / scale


def _spanned(X: Matrix) -> tuple[Matrix, Matrix | None]:
    """The rows in an orthonormal basis of their span, and the basis; None for all features."""
    if len(X) >= X.shape[1]:
        return X, None
    basis = scipy_linalg.svd(X, full_matrices=False)[2].T
    return X @ basis, basis


def _framed(X: Matrix, codes: Index, n_features: int, frame_of: FrameOf | None) -> Frame:
    """The frame of points in coordinates of their span; without one, that of their distances."""
    frame = None if frame_of is None else frame_of(X, codes, n_features)
    return Frame(np.eye(X.shape[1]), 1.0) if frame is None else frame


def _mapped(function: Callable[..., float], *columns: Any, shared: Any) -> list[float]:
    return [function(*items, *shared) for items in zip(*columns, strict=True)]


def _mistakes(
    scale: Matrix, frame_of: FrameOf | None, X: Matrix, truth: Index, n_neighbors: int
) -> float:
    """How many rows are misclassified under a frame of those that are left, each left out once.

    The frame is of rows times a scale. The mean of the mistakes of the nearest and of the
    ``n_neighbors`` nearest neighbours: the first are more, and the second what counts. Rows are
    sorted by class.
    """
    X = X * scale
    coordinates, _ = _spanned(X)
    kernels, total = kernels_for(X), 0.0
    folds = np.arange(len(X)) % (FOLDS if len(X) > FEW_ROWS else 2 * FOLDS)
    for fold in np.unique(folds):
        known, new = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        A = _framed(coordinates[known], truth[known], X.shape[1], frame_of).A.T
        near = kernels.nearest(
            coordinates[new] @ A, coordinates[known] @ A, min(n_neighbors, len(known))
        )[0]
        voters = truth[known][near]
        votes = vote(voters, int(truth.max()) + 1)
        total += (voters[:, 0] != truth[new]).sum() + (votes != truth[new]).sum()
    return float(total / 2)


def is_worse(wrong: Mask, other: Mask, standard_errors: float = 1.0) -> bool:
    """Whether the first has more mistakes on the same rows, by more than chance."""
    broken, mended = int((wrong & ~other).sum()), int((other & ~wrong).sum())
    return bool(broken - mended > standard_errors * (broken + mended) ** 0.5)


def _misclassified(X: Matrix, truth: Index, n_neighbors: int) -> Mask:
    """Which rows their nearest neighbours misclassify, each fold left out; sorted by class."""
    kernels, folds = kernels_for(X), np.arange(len(X)) % FOLDS
    wrong = np.zeros(len(X), dtype=bool)
    for fold in range(FOLDS):
        known, new = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        near = kernels.nearest(X[new], X[known], min(n_neighbors, len(known)))[0]
        wrong[new] = vote(truth[known][near], int(truth.max()) + 1) != truth[new]
    return wrong
