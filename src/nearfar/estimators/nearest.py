"""Nearest-neighbour classification under a learned metric."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.blocks import is_dask
from nearfar.blocks.collections import array_of_known_rows, on_this_machine
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._blocks import lazy_rows, validated_dask
from nearfar.estimators._input import validated_labels, validated_points
from nearfar.estimators._metric_classifier import MetricClassifier, check_count
from nearfar.kernels import Array, as_dtype_of, is_torch, kernels_for, single_threaded_blas
from nearfar.kernels.search import ALGORITHMS, TREES, Search
from nearfar.supervision.neighbor_blocks import nearest_in_blocks
from nearfar.supervision.neighbors import (
    Found,
    Index,
    merged,
    metric_groups,
    vote,
    votes_of,
    without_own_rows,
)
from nearfar.validation import check_choice, check_number


class _Part(NamedTuple):
    """The points of one metric."""

    map: NDArray[np.float64] | None  # None if there is one metric, whose images are given
    rows: Index
    search: Search  # among their images


class NearestNeighborClassifier(MetricClassifier):
    """k-nearest-neighbour classification under a learned metric, with the papers' rule for ties.

    A point gets the majority label of the k nearest training points. When classes tie, k is reduced
    by one until the tie breaks. With several metrics, the distance to a training point is measured
    by that point's metric.

    Parameters
    ----------
    metric : estimator or None, default=None
        A metric learner. None is ``LMNN()``. One that is not fitted is copied and fitted with the
        classifier; a fitted one is used as it is, and ``fit`` only stores the training points.
        ``sklearn.frozen.FrozenEstimator`` keeps it fitted even if the classifier is cloned, as in
        cross-validation.
    n_neighbors : int, default=3
        Number of neighbours that vote.
    algorithm : {"auto", "ball_tree", "kd_tree", "brute"}, default="auto"
        How neighbours are found: in a tree, or by blocked matrix products with all points. "auto"
        is "kd_tree" for at least 1000 points in at most 10 dimensions, and "brute" otherwise. All
        find the same neighbours. Tensors are searched on their device, by "brute".

    Attributes
    ----------
    metric_ : estimator
        The fitted metric learner.
    algorithm_ : str
        How neighbours are found.
    points_ : ndarray, torch.Tensor or Dask array of shape (n_samples, n_features)
        The training points. A Dask array is the one of ``fit``, and not computed.
    labels_ : ndarray of shape (n_samples,)
        Their labels.
    classes_ : ndarray
        The distinct labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    For m new points, n training points and a map of r rows the search costs O(m n r) by matrix
    products, and less in a tree where r is small. Memory is O(n r + m k) and blocks of fixed size.
    See ``docs/algorithms/nearest.md``.

    Training points may be a Dask array or table, if the metric is linear. Each prediction then
    searches them, block by block, where they are: ``X.persist()`` keeps them there. Predictions for
    a Dask array are lazy if the training points are in memory, and computed otherwise.

    References
    ----------
    Weinberger & Saul, Distance metric learning for large margin nearest neighbor classification,
    JMLR 10 (2009).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LMNN, NearestNeighborClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = NearestNeighborClassifier(LMNN(n_components=2)).fit(X[::2], y[::2])
    >>> classifier.score(X[1::2], y[1::2]) > 0.9
    True
    """

    def __init__(
        self,
        metric: Any = None,
        *,
        n_neighbors: int = 3,
        algorithm: str = "auto",
    ) -> None:
        self.metric = metric
        self.n_neighbors = n_neighbors
        self.algorithm = algorithm

    def fit(self, X: Any, y: Any) -> NearestNeighborClassifier:
        """Learn the metric, unless it is fitted already, and store the training points.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.

        Returns
        -------
        NearestNeighborClassifier
            The fitted estimator.
        """
        check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        if is_dask(X):
            return self._fit_blocks(X, y)
        points = validated_points(self, X, reset=True)
        labels = validated_labels(self, points, y)
        self._store_metric(X, points, labels)
        check_count(self.n_neighbors, len(points))  # now: the metric's own message comes first
        with single_threaded_blas():
            self._prepared = self._searches(self.algorithm)
        self.algorithm_ = self._prepared[0].search.algorithm
        return self

    def _fit_blocks(self, X: Any, y: Any) -> NearestNeighborClassifier:
        """Learn the metric from a Dask array, or take a fitted one, and keep the array."""
        if self.algorithm in TREES:
            raise InvalidInputError(
                f"algorithm={self.algorithm!r} searches points in memory, and X is a Dask array."
                ' Set algorithm="brute" or "auto".'
            )
        metric = getattr(self.metric, "estimator", self.metric)  # of a FrozenEstimator
        if metric is not None and not isinstance(metric, MetricLearner):
            raise InvalidInputError(
                "a search among blocks needs a linear metric, such as LMNN(); got"
                f" {metric!r}. Take another one, or pass X.compute() if it fits into memory."
            )
        points = array_of_known_rows(validated_dask(self, X, reset=True))
        labels = validated_labels(self, points, on_this_machine(y))
        self._store_metric(X, points, labels)
        check_count(self.n_neighbors, len(points))
        self.algorithm_ = "brute"
        return self

    def predict(self, X: Any) -> Any:
        """The label of each point, as an array on the host.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (m, n_features)
            The points.

        Returns
        -------
        ndarray or Dask array of shape (m,)
            The labels; see the notes of the class for Dask arrays.
        """
        if self._is_lazy(X):
            return lazy_rows(self, X, _predicted, self, width=None, dtype=self.classes_.dtype)
        return self._predicted(self._queries(X))

    def _predicted(self, queries: Array) -> NDArray[Any]:
        nearest = self._nearest_codes(queries)
        return self.classes_[vote(nearest, len(self.classes_))]

    def predict_proba(self, X: Any) -> Any:
        """The share of the k neighbours that have each label, (m, n_classes).

        Where labels tie, the one that ``predict`` chooses counts half a vote more.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (m, n_features)
            The points.

        Returns
        -------
        ndarray, torch.Tensor or Dask array of shape (m, n_classes)
            The shares; see the notes of the class for Dask arrays.
        """
        if self._is_lazy(X):
            return lazy_rows(
                self, X, _shares, self, width=len(self.classes_), dtype=self.points_.dtype
            )
        return self._shares(self._queries(X))

    def _shares(self, queries: Array) -> Array:
        nearest = self._nearest_codes(queries)
        votes = votes_of(nearest, len(self.classes_)).astype(np.float64)
        tied = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) > 1
        votes[tied, vote(nearest[tied], len(self.classes_))] += 0.5
        shares = votes / votes.sum(axis=1, keepdims=True)
        return kernels_for(queries).like(shares, self.points_)

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """The nearest training points, nearest first, ties by row number.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (m, n_features) or None, default=None
            The points. None means the training points; none of them is its own neighbour.
        n_neighbors : int or None, default=None
            Number of neighbours; None means the parameter of the classifier.
        return_distance : bool, default=True
            Whether to return distances too.

        Returns
        -------
        distances : ndarray or torch.Tensor of shape (m, n_neighbors)
            Learned distances, not squared; only if asked for.
        rows : ndarray or torch.Tensor of shape (m, n_neighbors)
            Row numbers of the training points, in the order of ``fit``.
        """
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        check_number("n_neighbors", k, Integral, 1, None)
        check_is_fitted(self, "metric_")
        if X is None:
            queries = self.points_
            near, squares = self._nearest(queries, k + 1)
            others = without_own_rows(near)
            near, squares = near[others].reshape(-1, k), squares[others].reshape(-1, k)
        else:
            queries = self._queries(X)
            near, squares = self._nearest(queries, k)
        kernels = kernels_for(queries)
        rows = kernels.index(near, queries)
        return (kernels.like(np.sqrt(squares), self.points_), rows) if return_distance else rows

    # -- inside ----------------------------------------------------------------------------------

    def _queries(self, X: Any) -> Array:
        """New points; a Dask array stays one where the training points are one, too."""
        if is_dask(X) and is_dask(self.points_):
            return validated_dask(self, X, reset=False)
        return super()._queries(X)

    def _prepare(self) -> list[_Part]:
        return self._searches(self.algorithm_)

    def _searches(self, algorithm: str) -> list[_Part]:
        """A search among the points of each metric, the largest first, all by one algorithm."""
        if is_torch(self.points_) and algorithm in TREES:
            raise InvalidInputError(
                f"algorithm={algorithm!r} searches arrays on the host, and X is a tensor."
                ' Set algorithm="brute" or "auto", or pass X.cpu().numpy().'
            )
        maps, kernels = self._maps, kernels_for(self.points_)
        metric_of = self._metric_of_points(self._order)
        if maps is None or metric_of is None:
            search = Search.of(self._images(self.points_), algorithm)
            return [_Part(None, np.arange(len(self.points_)), search)]
        parts: list[_Part] = []
        groups = sorted(metric_groups(metric_of), key=lambda group: -len(group[1]))
        for metric, rows in groups:
            images = kernels.apply(self.points_[kernels.index(rows, self.points_)], maps[metric])
            search = Search.of(images, algorithm)
            algorithm = search.algorithm
            parts.append(_Part(maps[metric], rows, search))
        return parts

    def _nearest(self, queries: Array, k: int) -> Found:
        """Rows (m, k) on the host and squared distances."""
        check_count(k, len(self.points_))
        if is_dask(self.points_):
            images, queries = (self._images(part) for part in (self.points_, queries))
            return nearest_in_blocks(images, queries, k)
        kernels = kernels_for(queries)
        with single_threaded_blas():
            images = self._images(queries)
            found = []
            for part in self._ready:
                placed = images if part.map is None else kernels.apply(images, part.map)
                near, squares = part.search.nearest(placed, min(k, len(part.rows)))
                found.append((part.rows, (kernels.to_host(near), kernels.to_host(squares))))
            return merged(found, k)

    def _nearest_codes(self, queries: Array) -> Index:
        """The class numbers of the neighbours, (m, k)."""
        near, _ = self._nearest(queries, self.n_neighbors)
        return self._order.codes[near]

    def _is_lazy(self, X: Any) -> bool:
        """Whether predictions for X are, because the training points are in memory."""
        check_is_fitted(self, "metric_")
        return is_dask(X) and not is_dask(self.points_)


def _predicted(queries: Array, model: NearestNeighborClassifier) -> NDArray[Any]:
    return model._predicted(as_dtype_of(model.points_, queries))


def _shares(queries: Array, model: NearestNeighborClassifier) -> Array:
    return model._shares(as_dtype_of(model.points_, queries))
