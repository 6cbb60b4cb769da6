"""The base class of classifiers with a learned metric."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from nearfar.blocks import is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.estimators._input import check_device, validated_points
from nearfar.estimators._unlabeled import UNLABELED
from nearfar.estimators.lmnn import LMNN
from nearfar.kernels import Array, as_dtype_of, is_torch, to_host
from nearfar.supervision import ClassOrder, class_order

Index = NDArray[np.intp]


class MetricClassifier(ClassifierMixin, Estimator):
    """A classifier that compares new points with those of ``fit`` by a metric.

    ``_prepared`` is what predictions need, computed from the fitted attributes. Files and pickles
    do not contain it; it is computed again when it is needed.
    """

    metric: Any
    metric_: Any
    points_: Array
    labels_: NDArray[Any]
    classes_: NDArray[Any]
    _axes: ClassVar[dict[str, str]] = {"points_": "nd", "labels_": "n"}  # see `Metric`

    def _store_metric(self, X: Any, points: Array, labels: ClassOrder) -> None:
        """Learn the metric, or take the one that was given, and keep the points.

        ``points`` are X validated.
        """
        y = labels.classes[labels.codes]
        self.__dict__.pop("_prepared", None)
        self.metric_ = self._fitted_metric(X, points, y)
        self.points_, self.labels_ = points, y

    def _fitted_metric(self, X: Any, points: Array, y: NDArray[Any]) -> Any:
        """The metric that was given, or a copy of it that is fitted here."""
        metric = LMNN() if self.metric is None else self.metric
        learns = hasattr(metric, "transform") or self._has_several_metrics(metric)
        if isinstance(metric, type) or not learns:
            raise InvalidInputError(
                "metric must be a metric learner such as LMNN(), fitted or not, or None; got"
                f" {metric!r}."
            )
        if not is_fitted(metric):
            if getattr(metric, "unlabeled_weight", None) is not None and (y == UNLABELED).any():
                raise InvalidInputError(
                    f"{type(self).__name__} needs a label for every row, but its metric has an"
                    f" unlabeled_weight, so that {UNLABELED} is none. Fit the metric to all rows"
                    " first, and the classifier with it to the labelled ones."
                )
            return clone(metric).fit(points, y)
        if isinstance(metric, FrozenEstimator):
            metric = metric.estimator
        if self._has_several_metrics(metric):
            check_device(metric, points, metric.components_)
            unknown = np.setdiff1d(self.classes_, metric.classes_)
            if len(unknown):
                raise InvalidInputError(
                    f"metric was fitted to other classes: it has none called {unknown[0]!r}."
                    " Fit it to all classes first, or leave it unfitted."
                )
        else:
            metric.transform(X[:1])  # its own checks of features, names and device
        return metric

    def _prepare(self) -> Any:
        """What predictions need, computed from the fitted attributes."""
        raise NotImplementedError

    @property
    def _ready(self) -> Any:
        if "_prepared" not in vars(self):
            self._prepared = self._prepare()
        return self._prepared

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_prepared", None)
        return state

    def _queries(self, X: Any) -> Array:
        """New points, validated, in the dtype of the points of ``fit``."""
        check_is_fitted(self, "metric_")
        X = validated_points(self, X, reset=False)
        check_device(self, X, self.points_)
        return as_dtype_of(self.points_, X)

    # -- the metric ----------------------------------------------------------------------------

    @staticmethod
    def _has_several_metrics(metric: Any) -> bool:
        return hasattr(metric, "_metric_of_new")

    @property
    def _maps(self) -> NDArray[np.float64] | None:
        """The maps of several metrics, (M, r, d) on the host; None if there is one metric."""
        if not self._has_several_metrics(self.metric_):
            return None
        return np.asarray(to_host(self.metric_.components_), dtype=np.float64)

    def _images(self, X: Array) -> Array:
        """The images of points under the metric; with several metrics, the points themselves."""
        if self._has_several_metrics(self.metric_):
            return X
        with warnings.catch_warnings():
            if hasattr(self.metric_, "feature_names_in_"):  # this estimator checked the names
                warnings.filterwarnings("ignore", "X does not have valid feature names")
            images = self.metric_.transform(X)
        return images if is_torch(images) or is_dask(images) else np.asarray(images)

    def _target_space(self, X: Array) -> Array:
        """Points whose Euclidean distances determine target neighbours."""
        return self.metric_._target_space(X) if hasattr(self.metric_, "_target_space") else X

    def _metric_of_points(self, labels: ClassOrder) -> Index | None:
        """The number of each training point's metric; None if there is one metric."""
        metric = self.metric_
        if not self._has_several_metrics(metric):
            return None
        same = metric.points_.shape == self.points_.shape and bool(
            (metric.points_ == self.points_).all()
        )
        if same and np.array_equal(metric.labels_, self.labels_):
            return np.asarray(to_host(metric.metric_of_))
        return self._metric_of_new(self.points_)[np.arange(len(labels.codes)), labels.codes]

    def _metric_of_new(self, X: Array) -> Index:
        """The number of each new point's metric under each of ``classes_``, (m, n_classes)."""
        table = np.asarray(to_host(self.metric_._metric_of_new(X)))
        return table[:, np.searchsorted(self.metric_.classes_, self.classes_)]

    @property
    def _order(self) -> ClassOrder:
        """The training points, sorted by class."""
        return class_order(self.labels_, type(self).__name__)


def check_count(n_neighbors: int, n_points: int) -> None:
    """Raise if there are fewer points than neighbours."""
    if n_neighbors > n_points:
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} is more than the number of training points, {n_points}."
            " Lower n_neighbors or add rows."
        )


def is_fitted(estimator: Any) -> bool:
    """Whether an estimator has learned already."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
