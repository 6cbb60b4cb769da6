"""What metric learners share: a learned map, and the distances that it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from nearfar.errors import InvalidInputError
from nearfar.estimators._callbacks import CallbackSupportMixin
from nearfar.estimators._deploy import DeployMixin
from nearfar.estimators._notebook import Estimator
from nearfar.kernels import Array, is_torch, kernels_for, one_pool
from nearfar.registry import entries
from nearfar.supervision import ClassOrder, Tuples, class_order

Index = NDArray[np.intp]
Vector = NDArray[np.float64]


class Metric(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """The Euclidean distance between the images of points under a learned map of any form."""

    _fitted_by: str  # the attribute whose presence tells a fitted estimator
    # Fitted arrays and their axes, which model files are checked for: equal letters are equal
    # lengths, d is the number of features.
    _axes: ClassVar[dict[str, str]] = {}

    def _image_differences(self, first: Array, second: Array) -> Array:
        """The images of the first points minus those of the second."""
        raise NotImplementedError

    @one_pool()
    def pair_distance(self, pairs: Any) -> Any:
        """Learned distance within each pair.

        Parameters
        ----------
        pairs : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs; those of `Tuples` map each point once.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_pairs,)
            The length of the difference of the images, not squared.
        """
        check_is_fitted(self, self._fitted_by)
        if is_torch(pairs):
            pairs = _floating_tensor(pairs, type(self).__name__)
        elif not isinstance(pairs, Tuples):
            pairs = check_array(pairs, dtype=[np.float64, np.float32], allow_nd=True)
        if pairs.ndim != 3 or tuple(pairs.shape[1:]) != (2, self.n_features_in_):
            raise InvalidInputError(
                f"pairs must have shape (n_pairs, 2, {self.n_features_in_}); got"
                f" {tuple(pairs.shape)}. Stack them with numpy.stack([a, b], axis=1)."
            )
        if isinstance(pairs, Tuples):
            points = self._validated(pairs.points, reset=False)
            return self._edge_distances(points, *pairs.indices.T)
        difference = self._image_differences(pairs[:, 0], pairs[:, 1])
        return (difference * difference).sum(1) ** 0.5

    def _edge_distances(self, points: Array, heads: Index, tails: Index) -> Array:
        """Learned distances between rows of points; relative to the first, far offsets cancel."""
        kernels, images = kernels_for(points), self._image_differences(points, points[:1])
        edges = (kernels.index(rows, points) for rows in (heads, tails))
        return kernels.sq_lengths(images, *edges) ** 0.5

    def pair_score(self, pairs: Any) -> Any:
        """Minus the learned distance within each pair: larger means more alike."""
        return -self.pair_distance(pairs)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: Any, reset: bool) -> Array:
        return validated_points(self, X, reset)


class MetricLearner(DeployMixin, Metric):
    """A metric D(a, b) = ‖L(a − b)‖ with L = ``components_``.

    Computation follows the data: NumPy arrays in, NumPy arrays out; torch tensors in, tensors out
    on their device.
    """

    components_: Array
    _fitted_by = "components_"
    _axes: ClassVar[dict[str, str]] = {"components_": "rd"}

    @one_pool()
    def transform(self, X: Any) -> Any:
        """Map points so that the Euclidean distance between images is the learned distance.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            ``X @ components_.T``, of the dtype of X.
        """
        check_is_fitted(self, "components_")
        return self._images(self._validated(X, reset=False))

    def get_metric(self) -> Callable[..., float]:
        """The learned distance as a function of two vectors, for scikit-learn's ``metric=``.

        The function takes ``squared=True`` to return the squared distance.
        """
        check_is_fitted(self, "components_")
        components = kernels_for(self.components_).to_host(self.components_)
        return LinearDistance(components.astype(np.float64))

    @one_pool()
    def get_mahalanobis_matrix(self) -> NDArray[np.float64]:
        """M = LᵀL, on the host in float64."""
        check_is_fitted(self, "components_")
        components = kernels_for(self.components_).to_host(self.components_).astype(np.float64)
        M: NDArray[np.float64] = components.T @ components
        return M

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _image_differences(self, first: Array, second: Array) -> Array:
        return self._images(first - second)

    def _images(self, X: Array) -> Array:
        """X Lᵀ in the dtype of X, refused where X lives on another device."""
        check_device(self, X, self.components_)
        return kernels_for(X).apply(X, self.components_)


class Distance:
    """A learned distance as a function of two vectors; it can be pickled."""

    def __call__(self, u: Any, v: Any, squared: bool = False) -> float:
        """The distance between two vectors of numbers of any type, or its square."""
        first, second = (np.asarray(x, dtype=np.float64) for x in (u, v))
        expected = (self._n_features,)
        if first.shape != expected or second.shape != expected:
            raise InvalidInputError(
                f"the metric compares two vectors of {expected[0]} features; got shapes"
                f" {first.shape} and {second.shape}. For many points, take pair_distance."
            )
        difference = self._image_difference(first, second)
        square = float(np.vecdot(difference, difference))
        return square if squared else square**0.5

    @property
    def _n_features(self) -> int:
        raise NotImplementedError

    def _image_difference(self, u: Vector, v: Vector) -> Vector:
        """The image of u minus that of v."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearDistance(Distance):
    """‖L(u − v)‖."""

    components: NDArray[np.float64]

    @property
    def _n_features(self) -> int:
        return int(self.components.shape[1])

    def _image_difference(self, u: Vector, v: Vector) -> Vector:
        # Row by row: the digits of a matrix product depend on the threads of BLAS.
        images: Vector = np.vecdot(self.components, u - v)
        return images


def validated_points(estimator: Any, X: Any, reset: bool) -> Array:
    """Points of shape (n, d) in float32 or float64, all finite."""
    if reset and getattr(X, "ndim", None) == 3 and get_tags(estimator).target_tags.required:
        *others, last = (entry.name for entry in entries(learns_from="pairs", kernel=False))
        raise InvalidInputError(
            f"{type(estimator).__name__} learns from points with labels, of shape (n, d); got"
            f" {tuple(X.shape)}. For pairs take {', '.join(others)} or {last}."
        )
    if not is_torch(X):
        return validate_data(
            estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=1
        )
    return _validated_tensor(estimator, X, reset)


def validated_labels(estimator: Any, X: Array, y: Any) -> ClassOrder:
    """A label for each row of X; ``classes_`` is set."""
    labels = checked_labels(estimator, X, y)
    estimator.classes_ = labels.classes
    return labels


def checked_labels(estimator: Any, X: Array, y: Any) -> ClassOrder:
    """A label for each row of X."""
    name = type(estimator).__name__
    y = kernels_for(y).to_host(y)
    if y.ndim == 0:
        raise InvalidInputError(
            f"{name} requires y to be passed, but the target y is {y.item()!r}."
            " Pass a label for each row."
        )
    if len(y) != len(X):
        raise InvalidInputError(
            f"{name} needs a label for each row; X has {len(X)} rows and y has {len(y)}."
            " Check that they belong together."
        )
    return class_order(y, name)


def check_device(estimator: Any, X: Array, fitted: Array) -> None:
    """Refuse X where it does not live beside what was fitted."""
    here, there = _device(X), _device(fitted)
    if here != there:
        raise InvalidInputError(
            f"{type(estimator).__name__} was fitted on {there} and X is on {here};"
            f" both must be in one place. Move X to {there}, or fit on {here}."
        )


def as_dtype_of(reference: Array, X: Array) -> Array:
    """X in the dtype of the reference, float32 or float64, where it lives."""
    kernels = kernels_for(X)
    return kernels.single(X) if str(reference.dtype).endswith("float32") else kernels.double(X)


def _device(X: Array) -> str:
    return f"torch device {X.device}" if is_torch(X) else "NumPy"


def _validated_tensor(estimator: Any, X: Any, reset: bool) -> Array:
    """What ``validate_data`` does, for a tensor, without moving it."""
    name = type(estimator).__name__
    X = _floating_tensor(X, name)
    if X.ndim != 2 or X.shape[0] < 1 or X.shape[1] < 1:
        raise InvalidInputError(
            f"{name} expects a tensor of shape (n_samples, n_features), each at least 1;"
            f" got {tuple(X.shape)}. Reshape your data."
        )
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif X.shape[1] != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {X.shape[1]} features, but {name} is expecting"
            f" {estimator.n_features_in_} features as input. Give the features used in fit."
        )
    return X


def _floating_tensor(X: Any, name: str) -> Array:
    """A dense real tensor in float32 or float64, all finite."""
    if str(X.layout) != "torch.strided" or X.is_complex():
        raise InvalidInputError(
            f"{name} needs a dense tensor of real numbers; got {X.layout} of {X.dtype}."
            " Convert it, for example with X.to_dense() or X.real."
        )
    X = X.detach()
    if not X.is_floating_point():
        X = X.double()
    if X.element_size() < 4:
        X = X.float()
    if not bool(X.isfinite().all()):
        raise InvalidInputError(
            f"{name} does not accept NaN or infinity in X; the tensor contains such values."
            " Drop or impute these rows."
        )
    return X
