"""The Mahalanobis distance of the points' own covariance as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from nearfar.blocks import is_dask
from nearfar.blocks.collections import Stream
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._blocks import validated_dask
from nearfar.estimators._input import validated_points
from nearfar.estimators._start import (
    all_equal,
    check_range,
    check_spread,
    dead_features,
    without_dead_features,
)
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.covariance import CovarianceProblem
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Status
from nearfar.validation import check_number


class Covariance(MetricLearner):
    """The Mahalanobis distance: whiten by the covariance of all points.

    M is the inverse of the sample covariance, and its pseudo-inverse where the points do not vary
    in all directions: the minimum over M of ``tr(C M) - log det M``, found in closed form. It needs
    no labels, and is what a learned metric has to beat. See ``docs/algorithms/covariance.md`` for
    the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest, those of the directions of least variance. None keeps all in
        which the points vary. If there are fewer than asked for, the last rows are zero.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    objective_ : float
        The minimum, computed from the data in float64, before rows were cut off.
    duality_gap_ : float
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger.
        It shows the rounding error.
    status_ : str
        "converged".
    n_iter_ : int
        0, since there is a closed form.
    history_ : list
        Empty.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and d features the time is O(n d² + d³), most of it one eigendecomposition and one
    singular value decomposition, and the memory O(n d + d²). For d > n the squares of d become n d.
    `fit` refuses sparse input.

    References
    ----------
    Mahalanobis, On the generalised distance in statistics, Proceedings of the National Institute of
    Sciences of India 2 (1936).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import Covariance
    >>> X, _ = load_iris(return_X_y=True)
    >>> metric = Covariance().fit(X)
    >>> bool(np.allclose(np.cov(metric.transform(X).T), np.eye(4)))
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
    ) -> None:
        self.n_components = n_components

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> Covariance:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device, and a Dask
            array or table where its blocks are, in one pass over them.
        y : None
            Not used.

        Returns
        -------
        Covariance
            The fitted estimator.
        """
        lazy = is_dask(X)
        points = (validated_dask if lazy else validated_points)(self, X, reset=True)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        callbacks = Callbacks(self, X, y)
        with single_threaded_blas():
            problem, given = (_problem_of_blocks if lazy else _problem_of_points)(points)
            L = rounded_like(problem.solution(), given)
            components = pad_or_trim_rows(L, self.n_components)
            self.components_ = kernels_for(given).like(components, given)
            objective, gap = problem.objective_and_gap(np.asarray(L))
        store_ending(self, Status.CONVERGED, objective, gap, [])
        callbacks.finish({"components_": self.components_})
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def _problem_of_points(points: Array) -> tuple[CovarianceProblem, Array]:
    """The problem of points in memory, and one of its points."""
    check_range(points)
    if all_equal(points):
        raise _equal(len(points))
    points = without_dead_features(points)
    return CovarianceProblem.build(kernels_for(points), points), points[:1]


def _problem_of_blocks(array: Any) -> tuple[CovarianceProblem, Array]:
    """The problem of a Dask array, and an array of the type that the map is to have."""
    rows = Stream.of(array)
    scatter, _ = rows.scatter()
    check_spread(float(np.sqrt(scatter.squares.max())))
    if not scatter.squares.any():
        raise _equal(scatter.n_rows)
    live = ~dead_features(np.sqrt(scatter.squares / scatter.n_rows)) & (scatter.squares > 0)
    C = np.where(live & live[:, None], scatter.within, 0.0) / (scatter.n_rows - 1)
    return CovarianceProblem.of_covariance(C), np.empty(0, dtype=rows.dtype)


def _equal(n: int) -> InvalidInputError:
    return InvalidInputError(
        f"Covariance needs points that differ; all n_samples={n} are equal. Check X, or add points."
    )
