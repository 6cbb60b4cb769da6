"""What a model, its proof and a table hold, checked for type, shape and range before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar.errors import InvalidInputError
from nearfar.proofs.sums import EPS, NULL, Index, Matrix, varying

Proof = dict[str, Any]

# How far objectives may be from what the model says, relative, and by what share of its square a
# target neighbour may be farther than another point: a tie. Kernel matrices are ill-conditioned.
SAME = {"float64": 1e-6, "float32": 1e-3, "kernel": 1e-4}
MOST_DENSE = 1 << 31  # bytes of a sparse table that is made dense
SHIFTABLE = ("linear", "rbf", "laplacian")  # kernels whose distances do not change with the origin


class Refuted(Exception):
    """Why a proof cannot hold."""


@dataclass(frozen=True)
class Space:
    """Points, or those in the feature space of a kernel, and what maps act on."""

    maps: Matrix  # (c, r, ·), of the model
    points: Matrix  # (n, k)
    operand: Matrix  # (n, ·): the image of all points under a map L is operand Lᵀ
    gram: Matrix | None = None  # of the rows that maps of a kernel act on
    squares: Matrix | None = None  # (n, n) squared distances in feature space

    def image(self, L: Any) -> Matrix:
        """The images of the points under a map."""
        return np.asarray(self.operand @ as_float64(L).T)

    def images(self) -> Matrix:
        """The images (c, n, r) under the maps of the model."""
        return np.asarray(self.operand @ self.maps.swapaxes(1, 2))

    def trace(self) -> float:
        """tr LᵀL of the map of the model."""
        L = self.maps[0]
        return float((L * L).sum() if self.gram is None else (L @ self.gram * L).sum())

    @classmethod
    def of(cls, model: Any, X: Matrix, rows: Index) -> Space:
        """The space of a model, with these rows of the table."""
        kernel = hasattr(model, "dual_coef_")
        maps = as_float64(model.dual_coef_ if kernel else model.components_)
        maps = maps if maps.ndim == 3 else maps[None]
        if not kernel:
            far = np.abs(X[rows] - np.median(X[rows], axis=0))
            spread = far.mean(axis=0)  # about a point amid them a far origin costs no digits
            amid = (far / np.where(spread > 0, spread, 1)).sum(axis=1).argmin()
            points = X[rows] - X[rows[amid]]
            return cls(maps, points * varying(points), points)  # the others hold rounding
        if model.kernel == "precomputed":
            K = X[np.ix_(rows, rows)]
            return cls(maps, _features(K, X[rows], model.rank), X[rows], X, _squares(K))
        origin = np.median(X, axis=0) if model.kernel in SHIFTABLE else 0.0
        options = {} if model.gamma_ is None else {"gamma": model.gamma_}
        options = {"metric": model.kernel, **(model.kernel_params or {}), **options}
        mine, fitted = X[rows] - origin, as_float64(model.X_fit_) - origin
        inside = getattr(model, "kernel_components_", None)
        if inside is not None:  # the kernel is of the points W x
            W = finite_array({"kernel": inside}, "kernel", (None, X.shape[1]))
            mine, fitted = mine @ W.T, fitted @ W.T
        K = pairwise_kernels(mine, **options)
        squares, points = _squares(K), _features(K, X[rows], model.rank)
        if model.kernel in ("linear", "rbf"):  # kernel values lose the digits of near points
            squares = cdist(mine, mine, "sqeuclidean")
            squares = squares if model.gamma_ is None else -2 * np.expm1(-model.gamma_ * squares)
        operand, gram = (pairwise_kernels(rows, fitted, **options) for rows in (mine, fitted))
        return cls(maps, points, operand, gram, squares)


def _squares(K: Matrix) -> Matrix:
    """‖φ(a) − φ(b)‖² by kernel values."""
    own = np.diag(K)
    return np.asarray((own + own[:, None] - K - K.T).clip(0))


def _features(K: Matrix, X: Matrix, rank: float | None) -> Matrix:
    """Coordinates (n, r) of points with these kernel values; of equal points the same."""
    means = K.mean(axis=0)
    values, vectors = np.linalg.eigh(0.5 * (K + K.T) - means - means[:, None] + means.mean())
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = int((values > max(NULL * values[0], len(K) * EPS * np.abs(K).max())).sum())
    if rank is not None and rank < 1 and kept:
        carried = np.cumsum(values[:kept])
        kept = 1 + int(np.searchsorted(carried, rank * carried[-1]))
    elif rank is not None:
        kept = min(int(rank), kept)
    first, twins = np.unique(X, return_index=True, return_inverse=True, axis=0)[1:]
    return np.asarray((vectors[:, :kept] * np.sqrt(values[:kept]))[first[twins.reshape(-1)]])


def to_host(array: Any) -> NDArray[Any]:
    """A tensor of any device, or anything else, as an array."""
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)


def as_float64(array: Any) -> Matrix:
    """The same in float64."""
    return np.asarray(to_host(array), dtype=np.float64)


def tolerance(model: Any) -> float:
    """How far numbers may be from what a model says, relative, by its precision."""
    if hasattr(model, "dual_coef_"):
        return SAME["kernel"]
    fitted = model.components_ if hasattr(model, "components_") else model.embedding_
    return SAME["float32" if to_host(fitted).dtype.itemsize == 4 else "float64"]


def points_of(X: Any, model: Any) -> Matrix:
    """Points (n, d) in float64, dense."""
    points = as_float64(_dense(X) if issparse(X) else X)
    if points.ndim != 2 or points.shape[1] != model.n_features_in_ or not np.isfinite(points).all():
        raise InvalidInputError(
            f"verify needs the table of the fit: finite numbers of shape (n,"
            f" {model.n_features_in_}); got {points.dtype} of shape {points.shape}."
            " Give the features that the model was fitted to."
        )
    return points


def _dense(X: Any) -> Matrix:
    """A sparse table as a dense one, if that is not too large."""
    size = 8 * X.shape[0] * X.shape[1]
    if size > MOST_DENSE:
        raise InvalidInputError(
            f"verify needs a dense table; this sparse one would take {size / 1e9:.1f} GB, and"
            f" verify makes at most {MOST_DENSE / 1e9:.1f} GB dense. Verify a fit of fewer rows."
        )
    return np.asarray(X.toarray())


def codes_of(y: Any, n: int) -> Index:
    """Class numbers."""
    labels = to_host(y)
    if labels.shape != (n,):
        raise InvalidInputError(
            f"verify needs the labels of the fit, one for each of the {n} rows; got shape"
            f" {labels.shape}. Pass y."
        )
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def learned_labels(model: Any, y: Any) -> Any:
    """The labels of the fit, y, and of rows without one the label that the model gave them."""
    if getattr(model, "unlabeled_weight", None) is None:
        return y
    spread, given = to_host(model.transduction_), to_host(y)
    if given.shape != spread.shape:
        return y  # which is refused by its shape, or by the number of rows
    other = np.flatnonzero((given != -1) & (given != spread))
    if len(other):
        raise Refuted(
            f"the labels are not those of the fit: row {other[0]} has {given[other[0]]}, and was"
            f" learned as {spread[other[0]]}"
        )
    return spread


def weights_of(proof: Proof, n: int) -> Matrix:
    """The weights of n rows or tuples; all are 1 if none are given."""
    if "sample_weight" not in proof:
        return np.ones(n)
    weights = finite_array(proof, "sample_weight", (n,))
    if weights.min(initial=0.0) < 0 or not weights.any():
        raise Refuted("the proof is damaged: a weight is negative, or all are zero")
    return weights


def masses_of(proof: Proof, n: int) -> Matrix:
    """The weights of n rows, of mean 1 over those that have any; all are 1 if none are given."""
    return with_mean_one(weights_of(proof, n))


def with_mean_one(weights: Matrix) -> Matrix:
    """Weights scaled to a mean of 1 over those above zero."""
    weights = weights / weights.max()
    return np.asarray(weights / weights[weights > 0].mean())


def row_numbers(proof: Proof, name: str, columns: int | None, low: int, n: int) -> Index:
    """A table (·, columns) of row numbers from low to n − 1 of a proof."""
    array: Any = proof.get(name)
    good = isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.ndim == 2
    if not good or columns not in (None, array.shape[1]):
        raise Refuted(f"the proof is damaged: {name} is not a table of row numbers")
    if array.size and not low <= array.min() <= array.max() < n:
        raise Refuted(
            f"the table is not the training table: the proof names rows up to {array.max()}, and"
            f" there are {n}"
        )
    return np.asarray(array, dtype=np.intp)


def finite_array(proof: Proof, name: str, shape: tuple[int | None, ...]) -> Matrix:
    """An array of a proof of this shape, None for any length, all finite."""
    array: Any = proof.get(name)
    good = isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.ndim == len(shape)
    if not good or any(
        want not in (None, got) for want, got in zip(shape, array.shape, strict=True)
    ):
        raise Refuted(f"the proof is damaged: {name} is not an array of numbers of shape {shape}")
    if not np.isfinite(array).all():
        raise Refuted(f"the proof is damaged: {name} has values that are not finite")
    return np.asarray(array, dtype=np.float64)


def slack_prices(kind: str, slack_weight: Any) -> Matrix:
    """The prices of growing and of shrinking, (2,); infinity forbids it."""
    if kind == "slack":
        omega = np.broadcast_to(np.asarray(slack_weight, dtype=np.float64), 2)
        return np.asarray(omega / (1 - omega))
    return np.array([np.inf, 0.0 if kind == "shrink" else np.inf])


def pair_limits(proof: Proof, n: int) -> tuple[Index, Matrix]:
    """The pairs (2, q) of a proof, and (5, q) squares, which sides are limits, y and thickness."""
    if "pairs" not in proof:
        return np.empty((2, 0), dtype=np.intp), np.empty((5, 0))
    pairs = row_numbers(proof, "pairs", 2, 0, n).T
    limits = finite_array(proof, "limits", (pairs.shape[1], 5)).T
    if not (limits[0] > 0).all():
        raise Refuted("the proof is damaged: a limit of a pair is not above zero")
    return pairs, limits
