"""The interface of metric-learn's estimators around a map that nearfar has learned."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.compat.metric_learn._input import (
    ArrayIndexer,
    PeerError,
    check_input,
    validate_vector,
)
from nearfar.errors import CompatibilityWarning, DataWarning, warn
from nearfar.linalg import pad_or_trim_rows
from nearfar.supervision.thresholds import Cuts

STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")
GIVEN_UP = "deprecated"  # the default of parameters that metric-learn has renamed


def papers_program(learner: Any, **parameters: Any) -> Any:
    """A learner of nearfar that keeps nothing of the inputs' distance, as the papers have it."""
    if "shrinkage" in signature(learner).parameters:
        parameters["shrinkage"] = 0.0
    return learner(**parameters)


def has_near_and_far(y: Any) -> bool:
    """Whether some points share a class and some do not; warns that nothing is learned if not."""
    sizes = np.unique(y, return_counts=True)[1]
    if len(sizes) > 1 and sizes.max() > 1:
        return True
    warn(
        "there is nothing to learn, since all points are of one class, or each is of its own;"
        " components_ is the start. Check that y holds class labels.",
        DataWarning,
    )
    return False


def _n_axes(X: Any) -> int:
    """The number of axes of an array, a sparse matrix or anything that becomes an array."""
    return int(X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim)


@dataclass(frozen=True)
class MetricFunction:
    """The distance between two vectors under a map; it can be pickled."""

    components: NDArray[np.float64]

    def __call__(self, u: Any, v: Any, squared: bool = False) -> Any:
        """The distance of two vectors, numbers, or arrays with axes of length one."""
        difference = (validate_vector(u) - validate_vector(v)) @ self.components.T
        square = np.dot(difference, difference)
        return square if squared else np.sqrt(square)


class BaseMetricLearner(BaseEstimator):
    """What all estimators of metric-learn have: a preprocessor and a distance within pairs."""

    _unused: ClassVar[tuple[str, ...]] = ()  # parameters without a meaning in nearfar
    _renamed: ClassVar[dict[str, str]] = {}  # old names of parameters, and the new ones

    def __init__(self, preprocessor: Any = None) -> None:
        self.preprocessor = preprocessor

    def _check_preprocessor(self) -> None:
        given = self.preprocessor
        if given is None or callable(given):
            self.preprocessor_ = given
        elif hasattr(given, "__len__") or hasattr(given, "shape") or hasattr(given, "__array__"):
            self.preprocessor_ = ArrayIndexer(given)
        else:
            raise PeerError(
                f"Invalid type for the preprocessor: {type(given)}. You should provide either None,"
                " an array-like object, or a callable."
            )

    def _prepare_inputs(
        self, X: Any, y: Any = None, type_of_inputs: str = "classic", **checks: Any
    ) -> Any:
        """The input of ``fit``, checked; sets the preprocessor and the number of features."""
        self._check_preprocessor()
        size = getattr(self, "_tuple_size", None) if type_of_inputs == "tuples" else None
        found = check_input(
            X, y, self.preprocessor_, type_of_inputs, size, estimator=self, **checks
        )
        formed = found if y is None else found[0]
        if type_of_inputs == "classic" and _n_axes(X) == 2:
            validate_data(self, X, skip_check_array=True)  # names and number of features
        else:
            self.n_features_in_ = formed.shape[-1]
        return found

    def _tuples(self, tuples: Any, size: int) -> Any:
        """Tuples that are given to a fitted estimator, checked."""
        check_is_fitted(self, "preprocessor_")
        return check_input(
            tuples, None, self.preprocessor_, "tuples", size, estimator=self, dtype=np.float64
        )

    def _value(self, name: str) -> Any:
        """A parameter, under its new or its old name."""
        for old, new in self._renamed.items():
            if (
                new == name
                and getattr(self, old) is not GIVEN_UP
                and getattr(self, old) != GIVEN_UP
            ):
                return getattr(self, old)
        return getattr(self, name)

    def _warn_of_unused(self, *others: str) -> None:
        """One warning about all parameters that are given and have no meaning here."""
        defaults = signature(type(self)).parameters
        given = [
            name
            for name in self._unused
            if name in defaults and not np.array_equal(getattr(self, name), defaults[name].default)
        ]
        old = [name for name in self._renamed if getattr(self, name) != GIVEN_UP]
        if given or others:
            warn(
                f"{type(self).__name__} of nearfar does not use {', '.join([*given, *others])}: its"
                " solver needs no such setting. Leave it out.",
                CompatibilityWarning,
            )
        if old:
            names = ", ".join(f"{name} is now {self._renamed[name]}" for name in old)
            warn(
                f"metric-learn has renamed parameters of {type(self).__name__}: {names}. Change the"
                " name.",
                CompatibilityWarning,
            )


class MahalanobisMixin(BaseMetricLearner):
    """A map ``components_``, and the distance between the images of points."""

    components_: NDArray[Any]

    def _keep(self, learner: Any, n_components: int | None = None, scale: float = 1.0) -> Any:
        """Take the map of a fitted learner of nearfar; square, or with n_components rows."""
        self.learner_ = learner
        L = np.asarray(learner.components_) * np.sqrt(scale)
        self.components_ = pad_or_trim_rows(L, n_components or L.shape[1]).astype(L.dtype)
        self.n_iter_ = learner.n_iter_
        return self

    def pair_distance(self, pairs: Any) -> NDArray[np.float64]:
        """The learned distance within each pair."""
        pairs = self._tuples(pairs, 2)
        return np.asarray(np.linalg.norm((pairs[:, 1] - pairs[:, 0]) @ self.components_.T, axis=1))

    def pair_score(self, pairs: Any) -> NDArray[np.float64]:
        """Minus the learned distance within each pair."""
        return -self.pair_distance(pairs)

    def score_pairs(self, pairs: Any) -> NDArray[np.float64]:
        """The learned distance within each pair, by metric-learn's old name."""
        warnings.warn(
            "score_pairs will be deprecated in release 0.7.0. Use pair_score to compute similarity"
            " scores, or pair_distances to compute distances.",
            FutureWarning,
            stacklevel=2,
        )
        return self.pair_distance(pairs)

    def transform(self, X: Any) -> Any:
        """The images of points, whose Euclidean distance is the learned one."""
        check_is_fitted(self, ["preprocessor_", "components_"])
        points = check_input(X, None, self.preprocessor_, estimator=self, accept_sparse=True)
        if _n_axes(X) == 2:
            validate_data(self, X, skip_check_array=True, reset=False)
        return points @ self.components_.T

    def get_metric(self) -> MetricFunction:
        """The learned distance as a function of two vectors."""
        check_is_fitted(self, "components_")
        return MetricFunction(np.array(self.components_))

    def get_mahalanobis_matrix(self) -> NDArray[Any]:
        """M = LᵀL."""
        check_is_fitted(self, "components_")
        return np.asarray(self.components_.T @ self.components_)


class SupervisedLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MahalanobisMixin):
    """A learner from points with labels or numbers."""

    def _points_and_targets(self, X: Any, y: Any, **checks: Any) -> tuple[Any, Any]:
        """The input of ``fit``: at least two points in float64, and their targets."""
        if y is None:
            raise PeerError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Pass a"
                " target for each row."
            )
        X, y = self._prepare_inputs(X, y, ensure_min_samples=2, dtype=np.float64, **checks)
        return X, y

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        return tags


# -- learners from tuples ------------------------------------------------------------------------


class PairsClassifierMixin(ClassifierMixin, BaseMetricLearner):
    """Pairs are near up to a threshold on their distance."""

    classes_ = np.array([-1, 1])
    _tuple_size = 2

    def predict(self, pairs: Any) -> NDArray[np.int64]:
        """+1 for pairs up to the threshold, and -1 for others."""
        check_is_fitted(self, "preprocessor_")
        if "threshold_" not in vars(self):
            raise AttributeError(
                "A threshold for this estimator has not been set, call its set_threshold or"
                " calibrate_threshold method."
            )
        return np.where(-self.decision_function(pairs) <= self.threshold_, 1, -1)

    def decision_function(self, pairs: Any) -> NDArray[np.float64]:
        """Minus the learned distance within each pair."""
        return np.asarray(self.pair_score(self._tuples(pairs, 2)))

    def score(self, pairs: Any, y: Any) -> float:
        """The area under the ROC curve."""
        return float(roc_auc_score(y, self.decision_function(pairs)))

    def set_threshold(self, threshold: Any) -> Any:
        """Take this distance as the threshold."""
        check_is_fitted(self, "preprocessor_")
        try:
            self.threshold_ = float(threshold)
        except (TypeError, ValueError) as error:
            raise PeerError(
                f"Parameter threshold must be a real number. Got {type(threshold)} instead."
            ) from error
        return self

    def calibrate_threshold(
        self,
        pairs_valid: Any,
        y_valid: Any,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> Any:
        """Find the threshold that is best on pairs of known kind.

        Parameters
        ----------
        pairs_valid : array-like of shape (n_pairs, 2, n_features), or indicators
            The pairs.
        y_valid : array-like of shape (n_pairs,)
            +1 for near and -1 for far pairs.
        strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}, default="accuracy"
            The largest share of right answers, the largest F-score, the largest share of near pairs
            that are found while at least ``min_rate`` of the far ones are, or the other way round.
        min_rate : float or None, default=None
            A share, from 0 to 1.
        beta : float, default=1.0
            How much more recall counts than precision in the F-score.

        Returns
        -------
        estimator
            With the new ``threshold_``.
        """
        check_is_fitted(self, "preprocessor_")
        self._validate_calibration_params(strategy, min_rate, beta)
        pairs, y = check_input(
            pairs_valid, y_valid, self.preprocessor_, "tuples", 2, estimator=self
        )
        near = np.asarray(y) == 1
        cuts = Cuts.of(-self.decision_function(pairs), near)
        if strategy == "max_tpr":  # the last cut that leaves enough far pairs beyond it
            most = (1 - float(min_rate or 0)) * np.count_nonzero(~near)
            place = np.flatnonzero(cuts.false_positives <= most * (1 + 1e-12))[-1]
            self.threshold_ = float(cuts.thresholds[place])
        else:
            criterion = "true_positive_rate" if strategy == "max_tnr" else strategy
            self.threshold_ = cuts.best(criterion, beta, float(min_rate or 0))
        return self

    @staticmethod
    def _validate_calibration_params(
        strategy: Any = "accuracy", min_rate: Any = None, beta: Any = 1.0
    ) -> None:
        if strategy not in STRATEGIES:
            raise PeerError(
                'Strategy can either be "accuracy", "f_beta" or "max_tpr" or "max_tnr". Got'
                f' "{strategy}" instead.'
            )
        if strategy in ("max_tpr", "max_tnr") and not (
            isinstance(min_rate, int | float) and 0 <= min_rate <= 1
        ):
            raise PeerError(
                f"Parameter min_rate must be a number in[0, 1]. Got {min_rate} instead."
            )
        if strategy == "f_beta" and not isinstance(beta, int | float):
            raise PeerError(f"Parameter beta must be a real number. Got {type(beta)} instead.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


class PairsLearner(MahalanobisMixin, PairsClassifierMixin):
    """A learner from pairs, which finds a threshold after each fit."""

    _fit: Any  # learns from pairs and their kinds

    def fit(
        self, pairs: Any, y: Any, calibration_params: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        """Learn from pairs with +1 (near) and -1 (far), and find a threshold on the distance."""
        calibration = calibration_params or {}
        self._validate_calibration_params(**calibration)
        formed, kinds = self._prepare_inputs(pairs, y, type_of_inputs="tuples", dtype=np.float64)
        self._fit(formed, kinds, **options)
        return self.calibrate_threshold(formed, kinds, **calibration)


class TripletsClassifierMixin(ClassifierMixin, BaseMetricLearner):
    """Whether the first point of each triplet is nearer to the second than to the third."""

    classes_ = np.array([-1, 1])
    _tuple_size = 3
    _order = ((0, 1), (0, 2))  # the pair that should be near, and the one that should be far

    def predict(self, tuples: Any) -> NDArray[Any]:
        """+1 where the order is right, and -1 where it is not."""
        return np.where(self.decision_function(tuples) > 0, 1, -1)

    def decision_function(self, tuples: Any) -> NDArray[np.float64]:
        """The distance that should be large minus the one that should be small."""
        tuples = self._tuples(tuples, self._tuple_size)
        near, far = (self.pair_score(tuples[:, pair]) for pair in map(list, self._order))
        return np.asarray(near - far)

    def score(self, tuples: Any) -> float:
        """The share of tuples that are in the right order."""
        return float(self.predict(tuples).mean() / 2 + 0.5)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


class QuadrupletsClassifierMixin(TripletsClassifierMixin):
    """Whether the first two points of each quadruplet are nearer to each other than the others."""

    _tuple_size = 4
    _order = ((0, 1), (2, 3))

    def predict(self, tuples: Any) -> NDArray[Any]:
        """+1 where the order is right, -1 where it is not, and 0 for ties."""
        return np.asarray(np.sign(self.decision_function(tuples)))


# -- progress ------------------------------------------------------------------------------------


def print_history(estimator: Any, learner: Any, algorithm: str) -> None:
    """What ``verbose`` prints: a line for each iteration, after the fit."""
    name = f"[{type(estimator).__name__}]"
    header = f"{'Iteration':>10} {'Objective Value':>20} {'Time(s)':>10}"
    lines = [name, f"{name} {header}", f"{name} {'-' * len(header)}"]
    seconds = 0.0
    for record in learner.history_:
        took, seconds = record["seconds"] - seconds, record["seconds"]
        lines.append(f"{name} {record['n_iter']:>10} {record['objective']:>20.6e} {took:>10.2f}")
    lines.append(f"{name} Training took {seconds:8.2f}s.")
    sys.stdout.write("\n".join(lines) + "\n")
    if learner.status_ != "converged":
        warnings.warn(
            f"{name} {algorithm} did not converge: {learner.status_}",
            ConvergenceWarning,
            stacklevel=4,
        )
