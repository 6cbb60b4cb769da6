"""A linear method in the feature space of a kernel, as a metric: kernel PCA, LDA or RCA.

In the coordinates E of the training points along their kernel principal components, distances are
those of the feature space (`nearfar.problems.kernel_lmnn`, (4) and (5)). A linear method whose map
lies in the span of the points is there what it is on points: fitted to E, its map L is that of the
feature space, and ``dual_coef_`` expresses it by kernel values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from nearfar.errors import InvalidInputError
from nearfar.estimators._input import validated_points, warn_of_no_variation
from nearfar.estimators._kernel import KernelMetricLearner
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.estimators.linear_metric import as_metric
from nearfar.kernels import single_threaded_blas, to_host
from nearfar.solvers import Status


class KernelMetric(KernelMetricLearner):
    """The metric of a linear method in the feature space of a kernel.

    ``KernelMetric(PCA(whiten=True))`` is kernel PCA, ``KernelMetric(LinearDiscriminantAnalysis())``
    kernel LDA and ``KernelMetric(RCA())`` kernel RCA, with the methods of metric learners:
    ``pair_distance``, ``get_metric``, classifiers, files.

    See ``docs/algorithms/linear_metric.md`` for the mathematics.

    Parameters
    ----------
    learner : transformer or None, default=None
        An unfitted transformer that is linear up to a shift; a copy of it is fitted. None is the
        distance of the feature space itself.
    kernel : str or callable, default="rbf"
        "linear", "poly", "rbf", "sigmoid", "cosine", "laplacian", "precomputed", or a function of
        two points.
    gamma : float or None, default=None
        The parameter of "rbf", "poly", "sigmoid" and "laplacian"; None is 1 / (sum of the variances
        of the features).
    kernel_params : dict or None, default=None
        Other parameters of the kernel, such as {"degree": 2}.
    rank : int, float or None, default=None
        How many kernel principal components the learner sees: a number, the share of the variance
        that they hold, or all. Methods that invert a covariance need few.
    n_components : int or None, default=None
        Rows of the map, at most; None is as many as the learner has.

    Attributes
    ----------
    dual_coef_ : ndarray or torch.Tensor of shape (n_components, n_samples)
        The map: the image of a point is its kernel values with ``X_fit_``, times ``dual_coef_.T``.
    X_fit_ : ndarray, torch.Tensor or None
        The points of `fit`; None for a precomputed kernel.
    eigenvalues_ : ndarray
        Eigenvalues of the centred kernel matrix, largest first, ``rank`` of them.
    eigenvectors_ : ndarray of shape (n_samples, rank)
        Their eigenvectors.
    gamma_ : float or None
        The gamma that was used.
    kernel_components_ : None
        No map of the points precedes the kernel.
    objective_ : None
        Nothing is minimised here.
    duality_gap_ : None
        Nothing is minimised here.
    status_ : str
        "converged".
    n_iter_ : int
        0.
    history_ : list
        Empty.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points in d features it takes O(n² d + n³) time for the kernel matrix and its
    eigenvectors, and 8 n² bytes for each of some matrices, beside what the learner takes.

    References
    ----------
    Schölkopf, Smola & Müller, Nonlinear component analysis as a kernel eigenvalue problem, Neural
    Computation 10 (1998); Tsang, Cheung & Kwok, Kernel relevant component analysis for distance
    metric learning, IJCNN 2005; named in section 2.2 of Weinberger & Saul, Distance metric learning
    for large margin nearest neighbor classification, JMLR 10 (2009).

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> from nearfar import KernelMetric
    >>> X, y = make_circles(200, noise=0.05, factor=0.8, random_state=0)
    >>> model = KernelMetric(LinearDiscriminantAnalysis(), rank=10).fit(X, y)
    >>> model.transform(X).shape
    (200, 1)
    """

    def __init__(
        self,
        learner: Any = None,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | None = None,
        *,
        kernel_params: dict[str, Any] | None = None,
        rank: int | float | None = None,
        n_components: int | None = None,
    ) -> None:
        self.learner = learner
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.rank = rank
        self.n_components = n_components

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a copy of the learner to the points in feature space.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points, or with ``kernel="precomputed"`` their kernel matrix.
        y : array-like or None, default=None
            Passed to the learner: labels, chunklets, or None.

        Returns
        -------
        KernelMetric
            The fitted estimator.
        """
        X = validated_points(self, X, reset=True)
        if self.learner is not None and not hasattr(self.learner, "transform"):
            raise InvalidInputError(
                "learner must be a transformer that is linear up to a shift, such as PCA(); got"
                f" {self.learner!r}. Give one with transform, or None."
            )
        points = self._expansion(X)
        callbacks = Callbacks(self, X, y)
        E = points.training_features
        if E.shape[1] == 0:
            warn_of_no_variation()
            attributes = self._zero_map(points)
        else:
            L = np.eye(E.shape[1])
            if self.learner is not None:
                learner = clone(self.learner)
                learner.fit(E) if y is None else learner.fit(E, y)
                L = to_host(as_metric(learner).components_)
            attributes = self._map(points, L)
        self._store(attributes)
        store_ending(self, Status.CONVERGED, None, None, [])
        callbacks.finish(attributes)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags
