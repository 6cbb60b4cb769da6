"""Where learners start: a robust centre, and maps from PCA or LDA."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.kernels import Array, kernels_for
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]

SAMPLE_ROWS = 10_000  # rows that are enough for a centre and for a first guess
ROUNDING = 1e-12  # share of the spread of the data that is no variance of a class
SCALE_LIMIT = 1e140  # beyond it squares leave the range of float64
DEAD = 1e-12  # spread of a feature, relative to the median one, up to which it is dead
NAMED = 5  # dead features that a warning names


def host(x: Any) -> NDArray[Any]:
    """Return x as a NumPy array."""
    found: NDArray[Any] = kernels_for(x).to_host(x)
    return found


def robust_centre(X: Array) -> Array:
    """A point amid the data that one outlier cannot move, in float64."""
    kernels = kernels_for(X)
    step = -(-len(X) // SAMPLE_ROWS)
    sample = np.asarray(host(X[::step]), dtype=np.float64)
    centre = kernels.like(np.median(sample, axis=0), kernels.double(X[:0]))
    check_spread(float(abs(kernels.double(X) - centre).max()))
    return centre


def without_dead_features(X: Array) -> Array:
    """Return X with zeros for the features that vary by almost nothing beside the others.

    What they hold is noise, as in embeddings of which some outputs are never used. A learned metric
    would have to stretch them by many powers of ten to see them at all, so they get no weight.
    """
    kernels, step = kernels_for(X), -(-len(X) // SAMPLE_ROWS)
    spreads = _spreads(kernels, X[::step])
    if (spreads > step * DEAD * _median(spreads)).all():  # of all rows at most so much less
        return X
    spreads = _spreads(kernels, X)
    dead = (spreads > 0) & (spreads <= DEAD * _median(spreads))
    if not dead.any():
        return X
    numbers = np.flatnonzero(dead)
    named = ", ".join(map(str, numbers[:NAMED])) + (", …" if len(numbers) > NAMED else "")
    warn(
        f"{len(numbers)} of {len(spreads)} features vary by less than {DEAD:g} of the median spread"
        f" and get no weight: columns {named}. Drop them; if they matter, bring all features to one"
        " scale, for example with sklearn.preprocessing.StandardScaler.",
        DataWarning,
    )
    return X * kernels.like(~dead, X)


def _spreads(kernels: ModuleType, X: Array) -> Matrix:
    """The mean distance of each feature from its first value."""
    return np.asarray(host(abs(kernels.double(X) - kernels.double(X[:1])).mean(0)))


def _median(spreads: Matrix) -> float:
    """The median of the features that vary."""
    return float(np.median(spreads[spreads > 0])) if spreads.any() else 0.0


def central_point(X: Array) -> Array:
    """The point nearest to a robust centre, in float64; features count relative to their spread.

    From one of its points a set spans what the differences of its points span. From elsewhere it
    may span one direction more, in which all points agree.
    """
    kernels = kernels_for(X)
    far = abs(kernels.double(X) - robust_centre(X))
    spread = far.mean(0)
    return kernels.double(X[(far / (spread + (spread == 0))).sum(1).argmin()])


def check_spread(spread: float) -> None:
    """Refuse points whose largest distance from their centre cannot be squared."""
    check_power(
        spread,
        2,
        "spread of X",
        "Scale your data, for example with sklearn.preprocessing.StandardScaler.",
    )


def check_power(size: float, power: int, what: str, remedy: str) -> None:
    """Refuse data of a size whose second or fourth power is no float64; 0 is allowed."""
    limit = SCALE_LIMIT ** (2 / power)
    if size > limit or 0 < size < 1 / limit:
        powers = {2: "squares", 4: "fourth powers"}[power]
        raise InvalidInputError(
            f"the {what} is {size:.0e}, and its {powers} leave the range of float64. {remedy}"
        )


def projection(points: Array, labels: ClassOrder, init: str, rows: int) -> Matrix:
    """The leading directions of PCA or LDA, from a sample of the rows."""
    step = -(-len(points) // SAMPLE_ROWS)
    sample = np.asarray(host(points[::step]), dtype=np.float64)
    codes = np.sort(labels.codes)[::step]
    means = np.array([sample[codes == code].mean(0) for code in np.unique(codes)])
    within = sample - means[np.searchsorted(np.unique(codes), codes)]
    vary = np.abs(within).max() > ROUNDING * np.abs(sample - sample.mean(0)).max()
    if init == "pca" or not vary:  # without variance in the classes LDA sees the means only
        found = PCA(svd_solver="full").fit(sample).components_
    else:
        model = LinearDiscriminantAnalysis(solver="svd").fit(sample, codes)
        found = model.scalings_.T[: min(len(labels.sizes) - 1, sample.shape[1])]
    if len(found) >= rows:
        return np.asarray(found[:rows])
    # Too few directions: add unit rows that the found ones do not span.
    rest = np.linalg.qr(found.T, mode="complete")[0].T[len(found) :]
    scale = np.linalg.norm(found, axis=1).mean() if len(found) else 1.0
    return np.vstack([found, 0.1 * scale * rest[: rows - len(found)]])


def given_map(given: Any, rows: int | None, d: int, source: str, remedy: str) -> Matrix:
    """A map to start from that the user gave, or that is left from the last fit, checked."""
    start = host(given)
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
