"""Metrics in the feature space of a kernel: kernels, training points there, and the base class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Metric
from nearfar.estimators._distances import Distance
from nearfar.estimators._feature_space import (
    PRECOMPUTED,
    Expansion,
    Kernel,
)
from nearfar.estimators._input import check_device, validated_points
from nearfar.estimators._pairs import prior_of_rows
from nearfar.estimators._start import robust_centre
from nearfar.kernels import (
    Array,
    as_dtype_of,
    kernels_for,
    single_threaded_blas,
    take_rows,
    to_host,
)
from nearfar.linalg import pad_or_trim_rows
from nearfar.validation import check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

BLOCK_VALUES = 1 << 24  # kernel values of new points at a time, 128 MB


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
