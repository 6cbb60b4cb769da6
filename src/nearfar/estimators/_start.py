"""Where learners start: the centre and scale of the data, and the map to begin with."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from nearfar.blocks import Blocks
from nearfar.blocks.rows import rows_at_a_time
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.kernels import Array, kernels_for, row_blocks, to_host
from nearfar.linalg import eigh, pad_or_trim_rows, signed, symmetric
from nearfar.problems.sparse_points import SparsePoints
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]

SAMPLE_ROWS = 10_000  # rows that are enough for a centre and for a first guess
FEW_ROWS = 1000  # rows among which two mostly differ if any two rows do
ROUNDING = 1e-12  # share of the spread of the data below which a class does not vary
SCALE_LIMIT = 1e140  # beyond it, squares leave the range of float64
DEAD = 1e-12  # spread relative to that of the median feature, up to which a feature is dead
OUTLYING = 1e5  # times as far as others, whose squares keep six of 16 digits beside its own
RIDGE_TOLERANCE = 1e-2  # of the conjugate gradients for discriminants to start from
COINCIDENT = 1e-9  # images of two means of classes, relative to how far these are apart
TURN = 1e-2  # of a map under which two coincide, relative to its length
NAMED = 5  # dead features that a warning names


def robust_centre(X: Array) -> Array:
    """The median of each feature, in float64; raises if squares of the data overflow."""
    kernels = kernels_for(X)
    step = -(-len(X) // SAMPLE_ROWS)
    sample = np.asarray(to_host(X[::step]), dtype=np.float64)
    middle = (len(sample) - 1) // 2, len(sample) // 2
    ordered = np.partition(sample, middle, axis=0)  # in a third of the time of `np.median`
    centre = kernels.like(0.5 * ordered[middle, :].sum(axis=0), kernels.double(X[:0]))
    check_spread(max(float(abs(kernels.double(part) - centre).max()) for part in row_blocks(X)))
    return centre


def without_dead_features(X: Array) -> Array:
    """Return X with zeros in place of the features that hardly vary compared with the others.

    They hold only noise, like outputs of an embedding that are never used. A learned metric would
    have to stretch them by many powers of ten to see them at all, so they get no weight.
    """
    kernels, step = kernels_for(X), -(-X.shape[0] // FEW_ROWS)
    spreads = _spreads(kernels, X[::step])
    if (spreads > step * DEAD * _median(spreads)).all():  # all rows spread 1/step as much at least
        return X
    dead = dead_features(_spreads(kernels, X))
    if not dead.any():
        return X
    if sparse.issparse(X):
        return X @ sparse.diags_array(~dead, dtype=X.dtype)
    return X * kernels.like(~dead, X)


def dead_features(spreads: Matrix) -> NDArray[np.bool_]:
    """Which features hardly vary compared with the others, (d,); a warning names them."""
    dead = (spreads > 0) & (spreads <= DEAD * _median(spreads))
    numbers = np.flatnonzero(dead)
    if not len(numbers):
        return dead
    named = ", ".join(map(str, numbers[:NAMED])) + (", …" if len(numbers) > NAMED else "")
    warn(
        f"{len(numbers)} of {len(spreads)} features vary by less than {DEAD:g} of the median spread"
        f" and get no weight: columns {named}. Drop them; if they matter, bring all features to one"
        " scale, for example with sklearn.preprocessing.StandardScaler.",
        DataWarning,
    )
    return dead


def all_equal(X: Array) -> bool:
    """Whether all points are the same."""
    few = X[:: -(-len(X) // FEW_ROWS)]
    return not bool((few != X[:1]).any()) and not bool((X[:1] != X).any())


def _spreads(kernels: ModuleType, X: Array) -> Matrix:
    """The mean distance of each feature from its first value."""
    if sparse.issparse(X):
        (n, d), first = X.shape, X[[0]].toarray()[0].astype(np.float64)
        stored = np.bincount(X.indices, abs(X.data - first[X.indices]), minlength=d)
        zeros = n - np.bincount(X.indices, minlength=d)
        return np.asarray((stored + zeros * abs(first)) / n)
    first = kernels.double(X[:1])
    total = sum(abs(kernels.double(part) - first).sum(0) for part in row_blocks(X))
    return np.asarray(to_host(total)) / len(X)


def _median(spreads: Matrix) -> float:
    """The median over the features that vary."""
    return float(np.median(spreads[spreads > 0])) if spreads.any() else 0.0


def outlying_row(X: Array) -> tuple[int, float] | None:
    """The row with the farthest outlier, and how many times as far as others it is, or None.

    Distances are from the median of a feature; that of others is the lower quartile of those above
    zero, which a few more outliers do not change.
    """
    kernels, step = kernels_for(X), -(-len(X) // SAMPLE_ROWS)
    sample = np.asarray(to_host(X[::step]), dtype=np.float64)
    centre = np.median(sample, axis=0)
    sizes = np.abs(sample - centre)
    usual = np.array([_lower_quartile(size[size > 0]) for size in sizes.T])
    far = abs(kernels.double(X) - kernels.like(centre, kernels.double(X[:0])))
    times = np.asarray(to_host(far)).max(axis=0) / usual
    feature = int(times.argmax())
    if not times[feature] > OUTLYING:
        return None
    return int(to_host(far[:, feature]).argmax()), float(times[feature])


def _lower_quartile(sizes: Matrix) -> float:
    """One of the sizes, or infinity if there are none."""
    return float(np.quantile(sizes, 0.25, method="lower")) if sizes.size else np.inf


def central_point(X: Array) -> Array:
    """The point nearest to the median, in float64, each feature relative to its spread.

    Relative to one of them, points span the same space as their differences. Relative to any other
    vector they may span one direction more, along which all points agree.
    """
    kernels, centre, blocks = kernels_for(X), robust_centre(X), row_blocks(X)
    spread = sum(abs(kernels.double(part) - centre).sum(0) for part in blocks) / len(X)
    unit = spread + (spread == 0)
    far = [(abs(kernels.double(part) - centre) / unit).sum(1) for part in blocks]
    return kernels.double(X[kernels.concatenate(far).argmin()])


def check_spread(spread: float) -> None:
    """Raise if the square of the largest distance from the centre leaves the range of float64."""
    check_power(
        spread,
        2,
        "spread of X",
        "Scale your data, for example with sklearn.preprocessing.StandardScaler.",
    )


def check_range(X: Array) -> None:
    """`check_spread` of points: a constant feature must not hide that the others hardly vary."""
    if isinstance(X, Blocks):
        first = X.take(np.zeros(1, dtype=np.intp))
        check_spread(max(X.results(_farthest, name="spread", shared=(first,))))
        return
    if sparse.issparse(X):
        check_spread(float(abs(X.data).max(initial=0.0)))
        return
    check_spread(float(X.max()) - float(X.min()))
    kernels, step = kernels_for(X), -(-len(X) // FEW_ROWS)
    first = kernels.double(X[:1])
    if not float(abs(kernels.double(X[::step]) - first).max()) > 1 / SCALE_LIMIT:
        check_spread(float(abs(kernels.double(X) - first).max()))


def _farthest(block: Array, first: Array) -> float:
    """The largest difference of an entry from that of the first row."""
    kernels = kernels_for(block)
    parts = rows_at_a_time(block)
    return max(float(abs(kernels.double(part) - kernels.double(first)).max()) for part in parts)


def check_power(size: float, power: int, what: str, remedy: str) -> None:
    """Raise if the second or fourth power of a size leaves the range of float64; 0 is allowed."""
    limit = SCALE_LIMIT ** (2 / power)
    if size > limit or 0 < size < 1 / limit:
        powers = {2: "squares", 4: "fourth powers"}[power]
        raise InvalidInputError(
            f"the {what} is {size:.0e}, and its {powers} leave the range of float64. {remedy}"
        )


def projection(points: Array, labels: ClassOrder, init: str, rows: int) -> Matrix:
    """The leading directions of PCA or LDA, from a sample of the rows."""
    n = points.shape[0]
    step = -(-n // SAMPLE_ROWS)
    some = points.take(np.arange(0, n, step)) if isinstance(points, Blocks) else points[::step]
    sample = np.asarray(to_host(some), dtype=np.float64)
    codes = labels.codes[labels.order][::step]
    means = np.array([sample[codes == code].mean(0) for code in np.unique(codes)])
    within = sample - means[np.searchsorted(np.unique(codes), codes)]
    vary = np.abs(within).max() > ROUNDING * np.abs(sample - sample.mean(0)).max()
    if init == "pca" or not vary:  # LDA needs variance within classes
        found = PCA(svd_solver="full").fit(sample).components_
    else:
        model = LinearDiscriminantAnalysis(solver="svd").fit(sample, codes)
        found = model.scalings_.T[: min(len(labels.sizes) - 1, sample.shape[1])]
    if len(found) >= rows:
        return _apart(np.asarray(found[:rows]), means)
    # Too few directions: add unit rows that the found ones do not span.
    rest = np.linalg.qr(found.T, mode="complete")[0].T[len(found) :]
    scale = np.linalg.norm(found, axis=1).mean() if len(found) else 1.0
    return np.vstack([found, 0.1 * scale * rest[: rows - len(found)]])


def _apart(L: Matrix, means: Matrix) -> Matrix:
    """L, turned a little towards all differences of the means of classes if it maps two to one.

    Where two classes coincide, objectives of L are stationary in the directions that part them: a
    descent would end where it starts. Data with symmetries have such starts, as one-hot rows.
    """
    images, length = means @ L.T, float(np.linalg.norm(L, 2))
    near = KDTree(images).query(images, 2)[1] % len(means)  # of which one may be the mean itself
    apart = np.linalg.norm(means[:, None] - means[near], axis=2)
    distances = np.linalg.norm(images[:, None] - images[near], axis=2)
    if not ((distances <= COINCIDENT * length * apart) & (apart > 0)).any():
        return L
    turn = np.random.default_rng(0).normal(size=(len(L), len(means))) @ (means - means.mean(axis=0))
    turned: Matrix = L + TURN * length / np.linalg.norm(turn, 2) * turn
    return turned


def sparse_projection(source: SparsePoints, labels: ClassOrder, init: str, rows: int) -> Matrix:
    """As `projection` for sparse points, of all features; it has zero rows if points span fewer.

    With more than SKETCH features, discriminants are the principal components of what ridge
    regression predicts of the classes: those of shrunk LDA, by products with sparse rows.
    Principal directions of the sketch follow where there are more rows than discriminants.
    """
    V, Y = source.sketch
    if init == "pca" or len(V) == source.X.shape[1]:
        return pad_or_trim_rows(projection(Y, labels, init, rows) @ V, rows)
    X, codes = source.X.astype(np.float64), np.sort(labels.codes)
    ridge = Ridge(alpha=float(source.variances.sum()), solver="sparse_cg", tol=RIDGE_TOLERANCE)
    W = np.atleast_2d(ridge.fit(X, np.eye(len(labels.sizes))[codes]).coef_)
    leading = PCA(svd_solver="full").fit(source.images(W)).components_ @ W
    found = leading[: min(rows, len(W) - 1)]
    rest = projection(Y, labels, "pca", min(rows - len(found), len(V))) @ V
    rest *= 0.1 * float(np.linalg.norm(found, axis=1).mean())
    return pad_or_trim_rows(np.vstack([found, rest]), rows)


def given_start(estimator: Any, rows: int | None) -> Matrix | None:
    """The map of the last fit with ``warm_start``, or ``init`` if it is an array; else None.

    It must have so many rows, if that is fixed.
    """
    if estimator.warm_start and hasattr(estimator, "components_"):
        given, source, remedy = estimator.components_, "the last fit", "Set warm_start=False."
    elif not isinstance(estimator.init, str):
        given, source, remedy = estimator.init, "init", "Correct it, or leave it out."
    else:
        return None
    return given_map(given, rows, estimator.n_features_in_, source, remedy)


def learned_rows(n_components: int | None, reduce: str, n_features: int) -> int | None:
    """The number of rows if a map of fewer rows is learned; None if the full metric is."""
    if reduce == "learn" and n_components is not None and n_components < n_features:
        return int(n_components)
    return None


def given_map(given: Any, rows: int | None, d: int, source: str, remedy: str) -> Matrix:
    """A map that the user gave, or that is left from the last fit, validated.

    ``source`` says where it is from, and ``remedy`` what to do if it is wrong.
    """
    start = to_host(given)
    if (
        start.dtype.kind not in "fiu"
        or start.ndim != 2
        or start.shape[1] != d
        or (rows and len(start) != rows)
    ):
        raise InvalidInputError(
            f"the map of {source} must have shape ({rows or 'rows'}, {d}) and hold numbers;"
            f" it has shape {start.shape} and holds {start.dtype}. {remedy}"
        )
    if not np.isfinite(start).all() or not start.any():
        raise InvalidInputError(f"the map of {source} must be finite and not zero. {remedy}")
    return start.astype(np.float64)


def principal_rows(components: Matrix, points: Array) -> Matrix:
    """The map turned to the principal components of the points' images, the largest first."""
    if isinstance(points, Blocks):
        gram, total = points.total(
            _image_sums, name="scatter", shared=(components, points.take(np.zeros(1, np.intp)))
        )
        _, axes = eigh(symmetric(gram - np.outer(total, total) / points.shape[0]))
        return signed(axes.T[::-1] @ components)
    kernels = kernels_for(points)
    images = kernels.apply(kernels.double(points) - kernels.double(points[:1]), components)
    images = images - images.mean(0)
    _, axes = eigh(symmetric(kernels.gram(images, images)))
    return signed(axes.T[::-1] @ components)


def _image_sums(block: Array, components: Matrix, first: Array) -> tuple[Matrix, Matrix]:
    """The Gram matrix and the sum of the images of rows, relative to a first one."""
    kernels = kernels_for(block)
    images = kernels.apply(kernels.double(block) - kernels.double(first), components)
    return kernels.gram(images, images), to_host(images.sum(0))
