"""Metrics in the feature space of a kernel: kernels by name, training points, the base class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import Metric
from nearfar.estimators._deploy import Distance
from nearfar.estimators._input import check_device, validated_points
from nearfar.estimators._start import robust_centre
from nearfar.estimators._tuples import prior_of_rows
from nearfar.kernels import (
    Array,
    as_dtype_of,
    check_memory,
    is_torch,
    kernels_for,
    single_threaded_blas,
    take_rows,
    to_host,
)
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.kernel_lmnn import KernelSpan
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK_VALUES = 1 << 24  # kernel values of new points at a time, 128 MB
INDEFINITE = 1e-6  # share of the largest value by which rounding may spoil a kernel matrix
ROUNDINGS = 4  # of the largest kernel value, that a squared distance may consist of
KERNEL_COPIES = 9  # arrays as large as a kernel matrix while its eigenvectors are found, at most
PRECOMPUTED = "precomputed"
# The parameters of each named kernel.
TAKES: dict[str, tuple[str, ...]] = {
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "cosine": (),
    "laplacian": ("gamma",),
}
DEFAULTS = {"degree": 3, "coef0": 1.0}
# Their distances do not change when all points move by a vector, so that the points may be centred.
SHIFTABLE = ("linear", "rbf", "laplacian")
WIDE = 0.3  # of the usual gamma: among points that labels place, far ones keep different values


@dataclass(frozen=True)
class Kernel:
    """k(x, x') for all pairs of rows, or k(Wx, Wx') with W = ``components``.

    ``gamma`` is None if it is unknown or does not apply.
    """

    kernel: str | Callable[..., float]
    gamma: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    components: Matrix | None = None

    @classmethod
    def of(cls, kernel: Any, gamma: Any, parameters: Any) -> Kernel:
        """The kernel that the parameters name; raises if they are contradictory."""
        if not callable(kernel):
            choices = (*TAKES, PRECOMPUTED)
            check_choice("kernel", kernel, choices, or_else=" or a function of two points")
        parameters = {} if parameters is None else parameters
        if not isinstance(parameters, dict):
            raise InvalidInputError(
                f"kernel_params must be a dict or None; got {parameters!r}. Write it like"
                " {'degree': 2}."
            )
        takes = TAKES.get(kernel, ()) if isinstance(kernel, str) else ()
        if gamma is not None:
            if "gamma" not in takes:
                raise InvalidInputError(
                    f"kernel={kernel!r} takes no gamma; got gamma={gamma!r}. Set it to None; for a"
                    " function of your own, put it into kernel_params."
                )
            check_number("gamma", gamma, Real, 0, None, open_ends=True)
        if isinstance(kernel, str):
            known = [name for name in takes if name != "gamma"]
            unknown = sorted(set(parameters) - set(known))
            if unknown:
                raise InvalidInputError(
                    f"kernel_params for kernel={kernel!r} may hold"
                    f" {' and '.join(known) or 'nothing'}; got {', '.join(map(repr, unknown))}."
                    " Leave the others out."
                )
            parameters = {name: parameters.get(name, DEFAULTS[name]) for name in known}
            if "degree" in parameters:
                check_number("kernel_params['degree']", parameters["degree"], Integral, 1, None)
            if "coef0" in parameters:
                check_number("kernel_params['coef0']", parameters["coef0"], Real, -np.inf, None)
        return cls(kernel, gamma, parameters)

    def scaled_to(self, X: Array) -> Kernel:
        """With a gamma for these points, if it needs one: 1 / (sum of the features' variances).

        Of points Wx it is three tenths of that.
        """
        if self.gamma is not None or "gamma" not in TAKES.get(str(self.kernel), ()):
            return self
        points = kernels_for(X).double(X)
        points = self._inside(points - points[:1])  # far from 0, the mean would be rounded
        variance = float(((points - points.mean(0)) ** 2).mean(0).sum())
        share = 1.0 if self.components is None else WIDE
        return self.with_gamma(share / variance if variance > 0 else 1.0)

    def with_gamma(self, gamma: float | None) -> Kernel:
        """The same kernel with this gamma."""
        return replace(self, gamma=gamma)

    def with_components(self, W: Matrix | None) -> Kernel:
        """The same kernel of points Wx."""
        return replace(self, components=W)

    def sq_lengths(self, points: Array, heads: Array, tails: Array) -> Array:
        """‖Wx − Wx'‖² of pairs of these points, in float64."""
        kernels = kernels_for(points)
        points = kernels.double(points)
        if self.components is not None:  # amid the points a far origin costs no digits
            points = self._inside(points - points.mean(0))
        return kernels.sq_lengths(points, heads, tails)

    def _inside(self, points: Array) -> Array:
        """Wx."""
        if self.components is None:
            return points
        return kernels_for(points).apply(points, self.components)

    def __call__(self, X: Array, Y: Array) -> Array:
        """The values (m, n) in float64, on the device of the points."""
        kernels = kernels_for(X)
        X, Y = kernels.double(X), kernels.double(Y)
        if not isinstance(self.kernel, str):
            if is_torch(X):
                raise InvalidInputError(
                    "a function of your own as kernel works on NumPy arrays; X is a torch tensor."
                    " Pass X.cpu().numpy(), or the kernel matrix with kernel='precomputed'."
                )
            return pairwise_kernels(X, Y, metric=self.kernel, **self.parameters)
        if self.kernel in SHIFTABLE:  # keeps digits where the points are far from the origin
            centre, varies = Y.mean(0), (Y[0] != Y).any(0)
            centre[~varies] = Y[0][~varies]  # the mean of equal numbers may be rounded
            X, Y = self._inside(X - centre), self._inside(Y - centre)
        return kernels.similarities(X, Y, self.kernel, self.gamma or 1.0, **self.parameters)


@dataclass(frozen=True)
class Expansion:
    """The points of X that are learned from, in the feature space of a kernel."""

    kernel: Kernel
    X: Array
    rows: Index  # of X, ascending
    values: Matrix  # (n, n) their kernel matrix, on the host
    span: KernelSpan

    @classmethod
    def of(cls, kernel: Kernel, X: Array, rows: Index, rank: float | None) -> Expansion:
        """Compute the kernel matrix, check that it is one, and find its directions."""
        if kernel.kernel != PRECOMPUTED:
            robust_centre(X)  # refuses what leaves the range of float64
            kernel = kernel.scaled_to(take_rows(X, rows))
        n = len(rows)
        check_memory(
            8 * KERNEL_COPIES * float(n) ** 2,
            f"the kernel matrix of {n} points with its eigenvectors",
            "Fit to fewer rows",
            np.empty(0),
        )
        values = _values(kernel, X, rows, rows)
        _check_matrix(values)
        span = KernelSpan.of(values, rank)
        if span.lowest < -INDEFINITE * max(span.highest, 0.0):
            raise InvalidInputError(
                "the kernel matrix, centred, must have no negative eigenvalue; its smallest is"
                f" {span.lowest:.2g}, its largest {span.highest:.2g}. Take another kernel or other"
                " parameters of it; of a precomputed matrix, set negative eigenvalues to zero."
            )
        found = cls(kernel, X, rows, values, span)
        if kernel.kernel != PRECOMPUTED and len(span.values):  # else all points are equal
            found._warn_of_merged_points()
        return found

    def _warn_of_merged_points(self) -> None:
        """Warn of points that differ, but not in the digits of their kernel values."""
        own = np.diag(self.values)
        squares = own[:, None] + own - 2 * self.values
        merged = squares <= ROUNDINGS * np.finfo(float).eps * np.abs(self.values).max(initial=0.0)
        merged &= self._first[:, None] != self._first
        count = int(merged.any(axis=1).sum())
        if count:
            warn(
                f"{count} of {len(own)} points differ from others, but not in the digits of their"
                " kernel values, so they are treated as equal. Leave out outliers, or take another"
                " kernel or another gamma.",
                DataWarning,
            )

    @cached_property
    def _first(self) -> Index:
        """The first of the points that equal each one, (n,)."""
        first, twins = np.unique(to_host(take_rows(self.X, self.rows)), True, True, axis=0)[1:]
        return first[twins.reshape(-1)]

    @property
    def training_features(self) -> Matrix:
        """E of the problem (n, rank); equal points have equal rows in spite of rounding."""
        return self.span.features[self._first]

    @property
    def coordinates(self) -> Array:
        """E of the problem (n, rank) in float64, where X lives."""
        kernels = kernels_for(self.X)
        return kernels.like(self.training_features, kernels.double(self.X[:0]))

    def features(self, rows: Index) -> Matrix:
        """Coordinates (m, rank) of rows of X; distances between them are those in feature space."""
        values = self.values if rows is self.rows else _values(self.kernel, self.X, rows, self.rows)
        return values @ self.span.coefficients.T

    def images(self, components: Matrix) -> Array:
        """What ``transform`` gives for the points, less their mean, in float64, where X lives.

        ``components`` are a map (r, rank) of the features. Products with small eigenvalues round
        otherwise here than on the features, so that what is said of a map is said of these images.
        """
        kernels = kernels_for(self.X)
        return kernels.like(self._images(components), kernels.double(self.X[:0]))

    def trace(self, components: Matrix) -> float:
        """tr(K CᵀC) of the metric of a map, as ``dual_coef_`` C gives it."""
        return float(np.vdot(self._images(components).T, self._coefficients(components)))

    def _coefficients(self, components: Matrix) -> Matrix:
        """C of a map, the last of which is cached: O(n² r)."""
        if not np.array_equal(self._last.get("components", ()), components):
            self._last.clear()
            self._last["components"] = components.copy()
            self._last["coefficients"] = components @ self.span.coefficients
        return self._last["coefficients"]

    def _images(self, components: Matrix) -> Matrix:
        """K Cᵀ, centred, of a map, the last of which is cached: O(n² r)."""
        coefficients = self._coefficients(components)
        if "images" not in self._last:
            found: Matrix = kernels_for(self.values).apply(self.values, coefficients)
            self._last["images"] = np.asarray((found - found.mean(axis=0))[self._first])
        return self._last["images"]

    @cached_property
    def _last(self) -> dict[str, Matrix]:
        """The last map that was applied, with its coefficients and images."""
        return {}

    def squared_lengths(self, heads: Index, tails: Index) -> Matrix:
        """‖φ(a) − φ(b)‖² of pairs of the points, by their numbers.

        From the points themselves where that is easy: kernel values lose the digits of near pairs.
        """
        kernel, kernels = self.kernel, kernels_for(self.X)
        if kernel.kernel not in ("linear", "rbf"):
            own, values = np.diag(self.values), self.values[heads, tails]
            return np.asarray((own[heads] + own[tails] - 2 * values).clip(0))
        ends = (kernels.index(end, self.X) for end in (heads, tails))
        squares = to_host(kernel.sq_lengths(take_rows(self.X, self.rows), *ends))
        found = squares if kernel.gamma is None else -2 * np.expm1(-kernel.gamma * squares)
        return np.asarray(found)

    def attributes(self, components: Matrix) -> dict[str, Any]:
        """The fitted attributes of a map (r, rank) of the features."""
        coefficients, vectors = self._coefficients(components).copy(), self.span.vectors
        largest = np.abs(coefficients).argmax(axis=1)
        negative = coefficients[np.arange(len(coefficients)), largest] < 0
        coefficients[negative] *= -1
        precomputed = self.kernel.kernel == PRECOMPUTED
        if precomputed:  # new points bring kernel values to all rows of X
            everyone = np.zeros((len(coefficients), len(self.X)))
            everyone[:, self.rows] = coefficients
            coefficients = everyone
            everyone = np.zeros((len(self.X), vectors.shape[1]))
            everyone[self.rows] = vectors
            vectors = everyone
        kernels = kernels_for(self.X)
        return {
            "dual_coef_": kernels.like(coefficients, kernels.double(self.X[:0])),
            "X_fit_": None if precomputed else take_rows(self.X, self.rows),
            "eigenvalues_": self.span.values,
            "eigenvectors_": vectors,
            "gamma_": self.kernel.gamma,
            "kernel_components_": self.kernel.components,
        }


def _values(kernel: Kernel, X: Array, new: Index, old: Index) -> Matrix:
    """Kernel values (m, n) between rows of X, on the host."""
    if kernel.kernel == PRECOMPUTED:
        return np.asarray(to_host(X)[np.ix_(new, old)], dtype=np.float64)
    points = take_rows(X, old)
    return to_host(kernel(points if new is old else take_rows(X, new), points))


def _check_matrix(K: Matrix) -> None:
    """Raise unless the values are finite and symmetric."""
    if not np.isfinite(K).all():
        raise InvalidInputError(
            "kernel values must be finite; some are NaN or infinite. Scale your data, or take"
            " smaller parameters of the kernel."
        )
    uneven = float(np.abs(K - K.T).max(initial=0.0))
    if uneven > INDEFINITE * np.abs(K).max(initial=0.0):
        raise InvalidInputError(
            f"the kernel matrix must be symmetric; entries differ from their mirror images by up to"
            f" {uneven:.2g}. Check the order of the points, and that k(x, y) = k(y, x)."
        )


# -- the base class --------------------------------------------------------------------------------


class KernelMetricLearner(Metric):
    """A metric D(a, b) = ‖C(k_a − k_b)‖ with C = ``dual_coef_``, in the feature space of a kernel.

    k_x = (k(x_1, x), …, k(x_n, x)) are the kernel values of a point to the rows of ``X_fit_``. In
    the feature space φ this is the metric M = Σ (CᵀC)_lm φ(x_l) φ(x_m)ᵀ.

    **How to make the kernel version of a linear method.** A method that depends on the points by
    their differences only, and whose answer lies in the span of these, needs no new mathematics:
    in the coordinates E of the training points along an orthonormal basis of that span (centred
    kernel principal components, (4) and (5) of `nearfar.problems.kernel_lmnn`), distances are
    those of the feature space, the trace of a metric on E is its trace there, and every metric of
    the span is one on E. So solve the linear problem on the rows of E; its objective, its bound
    and its certificate are those of the kernel problem. A learner is then::

        class KernelThing(KernelMetricLearner):
            def __init__(self, kernel="rbf", gamma=None, *, kernel_params=None, rank=None,
                         n_components=None, ...): ...

            @with_callbacks
            def fit(self, X, y):
                X = validated_points(self, X, reset=True)     # or the points of the pairs
                labels = validated_labels(self, X, y)
                check_limits(self)                            # and its own parameters
                points = self._expansion(X)                   # checks the kernel; O(n² d + n³)
                E = points.coordinates                        # (n, r) in float64, beside X
                training = Training(self, X, y)
                solution = training.run(...)                  # the linear problem on E
                attributes = self._map(points, L)             # L (any, r), on the host
                self._store(attributes)
                store_ending(self, ...)
                training.finish(status, attributes)

    ``_map`` also gives what callbacks need to know of an iterate. If all points are equal, E has no
    columns: warn, and store ``_zero_map``. ``points.rows`` are the rows of X that E describes: all
    of them, or those given to ``_expansion(X, rows)``. ``points.features(rows)`` are the
    coordinates of any rows, shifted by a constant. Equal rows of X have equal rows in E but are not
    merged, so give each point once.

    Document the constructor parameters kernel, gamma, kernel_params, rank and n_components, and the
    fitted attributes dual_coef_, X_fit_, eigenvalues_, eigenvectors_, gamma_ and
    kernel_components_, as in `nearfar.KernelLMNN`. A learner may set ``dual_coef_``, ``X_fit_`` and
    ``gamma_`` in another way if the rows of ``dual_coef_`` sum to zero, so that centring the points
    or the kernel changes no distance; if it has no eigenvectors, it overrides ``_axes`` and
    ``_target_space``.
    """

    kernel: str | Callable[..., float]
    gamma: float | None
    kernel_params: dict[str, Any] | None
    rank: int | float | None
    n_components: int | None
    dual_coef_: Array
    X_fit_: Array | None
    eigenvalues_: Matrix
    eigenvectors_: Matrix
    gamma_: float | None
    kernel_components_: Matrix | None
    shrinkage: float | str = 0.0  # of learners that keep some of the kernel's own distance
    _fitted_by = "dual_coef_"
    _axes: ClassVar[dict[str, str]] = {
        "dual_coef_": "rn",
        "eigenvectors_": "nk",
        "eigenvalues_": "k",
    }
    _axes_if_any: ClassVar[dict[str, str]] = {"kernel_components_": "jd"}

    # -- for fit -------------------------------------------------------------------------------

    def _checked_kernel(self, X: Array) -> Kernel:
        """The kernel that the parameters name; raises if they are out of range or contradictory."""
        kernel = Kernel.of(self.kernel, self.gamma, self.kernel_params)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, len(X))
        if isinstance(self.rank, int | np.integer):
            check_number("rank", self.rank, Integral, 1, None)
        elif self.rank is not None:
            check_number("rank, if it is not an integer,", self.rank, Real, 0, 1, open_ends=True)
        if kernel.kernel == PRECOMPUTED and X.shape[0] != X.shape[1]:
            raise InvalidInputError(
                "kernel='precomputed' needs the kernel matrix of the training points, of shape"
                f" (n_samples, n_samples); got {tuple(X.shape)}. Compute it, or name a kernel."
            )
        return kernel

    def _expansion(
        self, X: Array, rows: Index | None = None, codes: Index | None = None
    ) -> Expansion:
        """The points of X, or these rows of it (ascending), in the feature space of the kernel.

        ``codes`` are class numbers of X. If gamma and the shrinkage are left to us, an RBF kernel
        has the distance inside that `chosen_prior` keeps.
        """
        kernel = self._checked_kernel(X)
        rows = np.arange(len(X)) if rows is None else rows
        ours = kernel.kernel == "rbf" and kernel.gamma is None and self.shrinkage == "auto"
        if ours and codes is not None:
            points = take_rows(X, rows)
            robust_centre(points)  # refuses what leaves the range of float64
            prior = prior_of_rows(points, codes[rows])
            kernel = kernel.with_components(None if prior is None else prior[0])
        return Expansion.of(kernel, X, rows, self.rank)

    def _map(self, points: Expansion, L: Matrix) -> dict[str, Any]:
        """The fitted attributes of a map L (any, r) of the coordinates, on the host.

        There are ``n_components`` rows if that is given, orthogonal and longest first.
        """
        return points.attributes(pad_or_trim_rows(L, self.n_components))

    def _zero_map(self, points: Expansion) -> dict[str, Any]:
        """The fitted attributes if all points are equal, so that no map can separate them."""
        return points.attributes(np.zeros((self.n_components or 1, 0)))

    def _store(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    # -- what was learned ----------------------------------------------------------------------

    @single_threaded_blas()
    def transform(self, X: Any) -> Any:
        """Map points so that the Euclidean distance between images is the learned distance.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points, or their kernel values to all training points for a precomputed kernel.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            Kernel values to ``X_fit_``, times ``dual_coef_.T``, of the dtype of X; all images may
            be shifted by a common vector. The gradient of a tensor is kept.
        """
        check_is_fitted(self, "dual_coef_")
        X = validated_points(self, X, reset=False, differentiable=True)
        return as_dtype_of(X, self._mapped(X, self.dual_coef_))

    def get_metric(self) -> Callable[..., float]:
        """The learned distance as a function of two vectors, for scikit-learn's ``metric=``.

        The function takes ``squared=True`` to return the squared distance. It evaluates the kernel
        at every call; to compare many points, ``transform`` them first.
        """
        check_is_fitted(self, "dual_coef_")
        points = None if self.X_fit_ is None else to_host(self.X_fit_).copy()
        return KernelDistance(to_host(self.dual_coef_).copy(), self._fitted_kernel(), points)

    @single_threaded_blas()
    def get_kernel_weights(self) -> Matrix:
        """The matrix A of M = Σ A_lm φ(x_l) φ(x_m)ᵀ over the rows of ``X_fit_``, in float64."""
        check_is_fitted(self, "dual_coef_")
        coefficients = to_host(self.dual_coef_)
        A: Matrix = coefficients.T @ coefficients
        return A

    @single_threaded_blas()
    def get_mahalanobis_matrix(self) -> Matrix:
        """The matrix of the metric in the input space, which only the linear kernel has."""
        check_is_fitted(self, "dual_coef_")
        if self.kernel != "linear":
            raise InvalidInputError(
                "only kernel='linear' gives a matrix in the input space; this is"
                f" kernel={self.kernel!r}. Use get_kernel_weights for the matrix in feature space."
            )
        points = np.asarray(to_host(self.X_fit_), dtype=np.float64)
        components = to_host(self.dual_coef_) @ (points - points.mean(axis=0))
        M: Matrix = components.T @ components
        return M

    @property
    def _n_features_out(self) -> int:
        return int(self.dual_coef_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == PRECOMPUTED
        return tags

    def _fitted_kernel(self) -> Kernel:
        kernel = Kernel.of(self.kernel, self.gamma, self.kernel_params).with_gamma(self.gamma_)
        return kernel.with_components(getattr(self, "kernel_components_", None))

    def _mapped(self, X: Array, coefficients: Array) -> Array:
        """Σ_l c_l k(x_l, x) for each row of X and each row of coefficients, in float64."""
        check_device(self, X, self.dual_coef_)
        kernels = kernels_for(X)
        if self.X_fit_ is None:
            return kernels.apply(kernels.double(X), coefficients)
        kernel, size = self._fitted_kernel(), max(1, BLOCK_VALUES // len(self.X_fit_))
        blocks = [X[first : first + size] for first in range(0, len(X), size)]
        images = [kernels.apply(kernel(x, self.X_fit_), coefficients) for x in blocks]
        return kernels.concatenate(images)

    def _image_differences(self, first: Array, second: Array) -> Array:
        images = [self._mapped(points, self.dual_coef_) for points in (first, second)]
        return as_dtype_of(first, images[0] - images[1])

    @single_threaded_blas()
    def _target_space(self, X: Array) -> Array:
        """Coordinates in feature space, in which target neighbours are the nearest points."""
        coefficients = (self.eigenvectors_ / np.sqrt(self.eigenvalues_)).T
        return self._mapped(X, kernels_for(X).like(coefficients, self.dual_coef_))


@dataclass(frozen=True, eq=False, repr=False)
class KernelDistance(Distance):
    """‖C(k_u − k_v)‖; if ``points`` is None, the vectors are kernel values already."""

    coefficients: Matrix
    kernel: Kernel
    points: NDArray[Any] | None

    @property
    def _n_features(self) -> int:
        return int((self.coefficients if self.points is None else self.points).shape[1])

    @single_threaded_blas()
    def _image_difference(self, u: Matrix, v: Matrix) -> Matrix:
        values = np.stack([u, v])
        if self.points is not None:
            values = self.kernel(values, self.points)
        mapped: Matrix = self.coefficients @ (values[0] - values[1])
        return mapped
