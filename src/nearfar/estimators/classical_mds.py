"""Classical multidimensional scaling as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.blocks import is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.estimators._blocks import lazy_places
from nearfar.estimators._input import check_device, validated_points
from nearfar.estimators._mds import (
    METRICS,
    check_components,
    check_not_negative,
    validated_distances,
)
from nearfar.estimators._start import check_power
from nearfar.estimators._training import Callbacks, CallbackSupportMixin, with_callbacks
from nearfar.graphs.distances import DenseDistances
from nearfar.kernels import Array, as_dtype_of, kernels_for, single_threaded_blas
from nearfar.linalg import signed
from nearfar.problems.classical_mds import axes, gram_of_distances, strain
from nearfar.solvers import Record, Status
from nearfar.validation import check_choice

Floats = NDArray[np.float64]


class ClassicalMDS(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator
):
    """Classical multidimensional scaling: the principal axes of given distances.

    Finds the points whose inner products are nearest to those of the input, in the sum of squares.
    For points these are the principal components, computed without any n × n matrix; for distances
    they are the leading eigenvectors of −½ H D² H. The minimum is global. See
    ``docs/algorithms/mds.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding. Where the input has fewer, the last columns are zero.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        Whether X holds points or distances.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        Positions of the points, centred and along their principal axes.
    eigenvalues_ : ndarray
        The squared lengths of the columns of a full embedding, largest first: for distances all
        n_samples, where negative ones show how far the distances are from Euclidean ones; for
        points min(n_samples, n_features) of them.
    objective_ : float
        The strain ``‖G - Y Yᵀ‖²``, with G the inner products of the input, in float64.
    duality_gap_ : float
        0.0: eigenvectors give the minimum.
    status_ : str
        "converged".
    n_iter_ : int
        0, since there is a closed form.
    history_ : list
        Empty.
    components_ : ndarray or torch.Tensor of shape (n_components, n_features), or None
        The map of points. None for distances.
    mean_ : ndarray or torch.Tensor of shape (n_features,), or None
        The mean of the points. None for distances.
    norms_ : ndarray or torch.Tensor of shape (n_samples,), or None
        Squared distances from the mean, the diagonal of G. None for points.
    n_features_in_ : int
        Number of features, or of points if X holds distances.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    For n points of d features the time is O(n d²) with d² numbers of memory, or O(n² d + n³) and n²
    where d > n; for distances O(n³) and n². Distances have to lie between 1e-70 and 1e70, since the
    strain is of their fourth power. Weights and missing distances have no closed form: see
    `MetricMDS`.

    References
    ----------
    Torgerson, Multidimensional scaling: I. Theory and method, Psychometrika 17 (1952).
    Gower, Adding a point to vector diagrams in multivariate analysis, Biometrika 55 (1968).

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import ClassicalMDS
    >>> D = np.array([[0, 3, 5], [3, 0, 4], [5, 4, 0]])
    >>> mds = ClassicalMDS(metric="precomputed").fit(D)
    >>> np.round(np.linalg.norm(mds.embedding_[0] - mds.embedding_[1:], axis=1), 6)
    array([3., 5.])
    >>> mds.objective_ < 1e-20
    True
    """

    _axes: ClassVar[dict[str, str]] = {"embedding_": "nr"}
    components_: Array
    mean_: Array
    norms_: Array

    def __init__(
        self,
        n_components: int = 2,
        *,
        metric: str = "euclidean",
    ) -> None:
        self.n_components = n_components
        self.metric = metric

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Place the points.

        Parameters
        ----------
        X : array-like or torch.Tensor
            Points (n_samples, n_features), or with ``metric="precomputed"`` all distances
            (n_samples, n_samples). Tensors are computed on their device.
        y : None
            Not used.

        Returns
        -------
        ClassicalMDS
            The fitted estimator.
        """
        check_choice("metric", self.metric, METRICS)
        callbacks = Callbacks(self, X, y)
        self.components_ = self.mean_ = self.norms_ = None
        if self.metric == "euclidean":
            X = validated_points(self, X, reset=True)
            check_components(self, len(X))
            self._fit_points(X)
        else:
            _refuse_missing(X)
            D = validated_distances(self, X, missing=False)
            DenseDistances.of(D)  # raises unless these are distances
            check_components(self, len(D))
            self._fit_distances(D)
        self.duality_gap_, self.status_, self.n_iter_ = 0.0, str(Status.CONVERGED), 0
        self.history_: list[Record] = []
        callbacks.finish({"embedding_": self.embedding_})
        return self

    def _fit_points(self, X: Array) -> None:
        """The principal components, by the smaller of the two matrices of inner products."""
        kernels, (n, d), r = kernels_for(X), X.shape, self.n_components
        points = kernels.double(X)
        _check_size(float(abs(points - points[:1]).max()))
        mean = points.mean(0)
        points = points - mean
        if d <= n:
            spectrum, vectors, roots = axes(kernels.gram(points, points), min(r, d))
            rows = vectors.T * (roots > 0)[:, None]
        else:
            spectrum, vectors, roots = axes(points @ points.T, r)
            roots = np.asarray(kernels.to_host(roots))
            inverses = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
            rows = inverses[:, None] * kernels.gram(vectors, points)
        components = np.zeros((r, d))
        components[: len(rows)] = rows
        places = np.asarray(kernels.to_host(kernels.apply(points, components)))
        components *= np.where((signed(places.T) == places.T).all(axis=1), 1.0, -1.0)[:, None]
        self.eigenvalues_, self.objective_ = spectrum, strain(spectrum, roots)
        self.components_ = kernels.like(components, X)
        self.mean_ = as_dtype_of(X, mean)
        self.embedding_ = as_dtype_of(X, kernels.apply(points, components))

    def _fit_distances(self, D: Array) -> None:
        """The leading eigenvectors of the inner products that belong to the distances."""
        kernels = kernels_for(D)
        _check_size(float(D.max()))
        G = gram_of_distances(kernels.double(D))
        spectrum, vectors, roots = axes(G, self.n_components)
        self.eigenvalues_, self.objective_ = spectrum, strain(spectrum, kernels.to_host(roots))
        self.embedding_ = as_dtype_of(D, vectors * roots)
        self.norms_ = as_dtype_of(D, G.diagonal() + 0.0)

    @single_threaded_blas()
    def transform(self, X: Any) -> Any:
        """Place new points beside those of `fit`, by Gower's formula.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array
            Points (n_samples, n_features), or with ``metric="precomputed"`` their distances
            (n_samples, n_fit) to all points of `fit`.

        Returns
        -------
        ndarray, torch.Tensor or Dask array of shape (n_samples, n_components)
            Their places, of the dtype of X; lazy if X is. A point of `fit` goes where it was.
        """
        check_is_fitted(self, "embedding_")
        if is_dask(X):
            check_device(self, X._meta, self.embedding_)
            return lazy_places(self, X)
        if self.components_ is not None:
            X = validated_points(self, X, reset=False)
            check_device(self, X, self.components_)
            return kernels_for(X).apply(X - as_dtype_of(X, self.mean_), self.components_)
        return self._transform_distances(X)

    def _transform_distances(self, X: Any) -> Array:
        D = validated_points(self, X, reset=False)
        check_device(self, D, self.embedding_)
        kernels = kernels_for(D)
        check_not_negative(D)
        squares, Y = kernels.double(D) ** 2, kernels.double(self.embedding_)
        lengths = (Y * Y).sum(0)
        inverses = (lengths > 0) / (lengths + (lengths == 0))
        places = 0.5 * ((kernels.double(self.norms_) - squares) @ Y) * inverses
        return as_dtype_of(D, places)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and return the embedding.

        Parameters
        ----------
        X, y
            As in `fit`.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            ``embedding_``.
        """
        return self.fit(X, y).embedding_

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = self.metric == "precomputed"
        tags.input_tags.pairwise = tags.input_tags.positive_only = given
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_size(largest: float) -> None:
    """Raise unless the strain of distances of this size is in the range of float64."""
    check_power(largest, 4, "largest distance", "Divide your data by it.")


def _refuse_missing(X: Any) -> None:
    """Raise if distances are missing, and name the class that can do without them."""
    if sparse.issparse(X):
        raise InvalidInputError(
            "ClassicalMDS needs all distances, and a sparse array holds some of them. Use"
            " X.toarray() if it holds all, MetricMDS if not."
        )
    matrix = np.asarray(kernels_for(X).to_host(X))
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or np.isfinite(matrix.sum(dtype=np.float64)):
        return
    bad = np.argwhere(~np.isfinite(matrix))
    raise InvalidInputError(
        f"ClassicalMDS needs all distances; that of points {bad[0][0]} and {bad[0][1]} is NaN or"
        f" infinite ({len(bad)} in all). Use MetricMDS, which can do without.",
        bad,
    )
