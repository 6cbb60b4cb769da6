"""Near or far: a threshold on learned distances."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.estimators._blocks import refuse_dask
from nearfar.estimators._metric_classifier import is_fitted
from nearfar.estimators._tuples import holds_tuples, validated_kinds, validated_tuples
from nearfar.estimators.mmc import MMC
from nearfar.kernels import Array, kernels_for
from nearfar.registry import ENTRIES
from nearfar.supervision.pairs import check_both_kinds
from nearfar.supervision.thresholds import CRITERIA, Cuts
from nearfar.validation import check_choice, check_number

Mask = NDArray[np.bool_]


class PairClassifier(ClassifierMixin, Estimator):
    """Classifies pairs: near if the learned distance is at most a threshold, far otherwise.

    Learns a metric from pairs, or takes a fitted one, and then finds the threshold on its distance
    that is best by a criterion.

    Parameters
    ----------
    metric : estimator or None, default=None
        A metric learner. None is ``MMC()``. One that is not fitted is copied and fitted to the
        pairs; a fitted one, which may have learned from labels, is used as it is, and ``fit`` only
        finds the threshold. ``sklearn.frozen.FrozenEstimator`` keeps it fitted even if the
        classifier is cloned, as in cross-validation.
    calibrate : {"accuracy", "f_beta", "true_positive_rate", "equal_error"}, default="accuracy"
        What the threshold is chosen for. "accuracy" is the largest share of right answers, which
        depends on how many of the pairs are near, and "f_beta" the largest F-score.
        "true_positive_rate" is the smallest threshold that finds a share ``rate`` of the near
        pairs. "equal_error" makes the shares of errors among near and far pairs as equal as
        possible.
    beta : float, default=1.0
        How much more recall counts than precision in the F-score.
    rate : float, default=0.95
        The wanted true-positive rate, from 0 to 1.
    validation_fraction : float or None, default=None
        Share of the near and of the far pairs to hold out from learning and to find the threshold
        on. None uses all pairs for both, which makes the threshold too small for new pairs if
        the metric has overfitted.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out pairs.

    Attributes
    ----------
    metric_ : estimator
        The fitted metric learner.
    threshold_ : float
        Pairs up to this distance are near.
    classes_ : ndarray
        -1 and +1.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if the points of `Tuples` had any.

    Notes
    -----
    Beside the learning, m pairs of d features cost O(m d r) for a map of r rows and O(m log m). See
    ``docs/pairs.md``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import PairClassifier, make_pairs
    >>> pairs, y = make_pairs(*load_iris(return_X_y=True), 300, random_state=0)
    >>> classifier = PairClassifier().fit(pairs[:300], y[:300])
    >>> classifier.score(pairs[300:], y[300:]) > 0.9
    True
    """

    _axes: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        metric: Any = None,
        *,
        calibrate: str = "accuracy",
        beta: float = 1.0,
        rate: float = 0.95,
        validation_fraction: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.calibrate = calibrate
        self.beta = beta
        self.rate = rate
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PairClassifier:
        """Learn the metric, unless it is fitted already, and the threshold.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs.
        y : array-like of shape (n_pairs,)
            +1 for near and -1 for far pairs.

        Returns
        -------
        PairClassifier
            The fitted estimator.
        """
        self._check_parameters()
        near = self._validated_pairs(X, y, reset=True)
        X = X if hasattr(X, "shape") else np.asarray(X)
        metric, held_out = self._checked_metric(), slice(None)
        if is_fitted(metric):
            metric = metric.estimator if isinstance(metric, FrozenEstimator) else metric
        else:
            kept, held_out = self._split(near)
            metric = clone(metric).fit(X[kept], np.where(near[kept], 1, -1))
        self.metric_, self.classes_ = metric, np.array([-1, 1])
        return self._calibrated(X[held_out], near[held_out], self.calibrate, self.beta, self.rate)

    def calibrate_threshold(
        self,
        X: Any,
        y: Any,
        *,
        calibrate: str | None = None,
        beta: float | None = None,
        rate: float | None = None,
    ) -> PairClassifier:
        """Find the threshold anew, on other pairs or for another criterion; the metric stays.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs.
        y : array-like of shape (n_pairs,)
            +1 for near and -1 for far pairs.
        calibrate : str or None, default=None
            As in the constructor, whose value is used for None.
        beta : float or None, default=None
            As in the constructor, whose value is used for None.
        rate : float or None, default=None
            As in the constructor, whose value is used for None.

        Returns
        -------
        PairClassifier
            The estimator with the new ``threshold_``.
        """
        check_is_fitted(self, "metric_")
        calibrate = self.calibrate if calibrate is None else calibrate
        beta = self.beta if beta is None else beta
        rate = self.rate if rate is None else rate
        _check_criterion(calibrate, beta, rate)
        near = self._validated_pairs(X, y, reset=False)
        return self._calibrated(X, near, calibrate, beta, rate)

    def set_threshold(self, threshold: float) -> PairClassifier:
        """Take this distance as the threshold.

        Parameters
        ----------
        threshold : float
            Pairs up to this distance are near.

        Returns
        -------
        PairClassifier
            The estimator with the new ``threshold_``.
        """
        check_is_fitted(self, "metric_")
        check_number("threshold", threshold, Real, -np.inf, None, infinite=True)
        self.threshold_ = float(threshold)
        return self

    def decision_function(self, X: Any) -> Any:
        """How much smaller than the threshold each distance is: positive for near pairs.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_pairs,)
            ``threshold_ - pair_distance(X)``.
        """
        check_is_fitted(self, "metric_")
        return self.threshold_ - self.metric_.pair_distance(X)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Whether each pair is near (+1) or far (-1), as an array on the host.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs.

        Returns
        -------
        ndarray of int, of shape (n_pairs,)
            +1 where the distance is at most ``threshold_``, else -1.
        """
        margins = self.decision_function(X)
        return np.where(kernels_for(margins).to_host(margins) >= 0, 1, -1)

    def pair_distance(self, X: Any) -> Any:
        """Learned distance within each pair, by the metric."""
        check_is_fitted(self, "metric_")
        return self.metric_.pair_distance(X)

    def pair_score(self, X: Any) -> Any:
        """Minus the learned distance within each pair: larger means more alike."""
        return -self.pair_distance(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.classifier_tags.multi_class = False
        return tags

    # -- before ----------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        _check_criterion(self.calibrate, self.beta, self.rate)
        if self.validation_fraction is not None:
            check_number(
                "validation_fraction", self.validation_fraction, Real, 0, 1, open_ends=True
            )

    def _checked_metric(self) -> Any:
        """The metric; raises unless it measures pairs, and is fitted or learns from them."""
        metric = MMC() if self.metric is None else self.metric
        if isinstance(metric, type) or not hasattr(metric, "pair_distance"):
            raise InvalidInputError(
                "metric must be a metric learner such as MMC(), fitted or not, or None; got"
                f" {metric!r}."
            )
        fitted = is_fitted(metric)
        if fitted and self.validation_fraction is not None:
            raise InvalidInputError(
                f"validation_fraction={self.validation_fraction} holds pairs out from learning, but"
                " metric is fitted already. Set validation_fraction=None."
            )
        if not fitted and not _learns_from_pairs(metric):
            raise InvalidInputError(
                f"metric={metric!r} does not learn from pairs. Fit it to labelled points first, or"
                " take a learner that does, such as MMC()."
            )
        return metric

    def _validated_pairs(self, X: Any, y: Any, reset: bool) -> Mask:
        """Which pairs are near."""
        refuse_dask(self, X)
        if not holds_tuples(X) or np.shape(X)[1] != 2:
            raise InvalidInputError(
                "PairClassifier takes pairs of shape (n_pairs, 2, n_features); got"
                f" {np.shape(X)}. Make pairs of labelled points with make_pairs(X, y)."
            )
        _, indices = validated_tuples(self, X, reset)
        near = validated_kinds(self, indices, y)
        assert near is not None  # these are not triplets
        check_both_kinds(near, "Add pairs of the other kind.")
        return near

    def _split(self, near: Mask) -> tuple[Any, Any]:
        """Pairs to learn from and pairs to find the threshold on, each with both kinds."""
        if self.validation_fraction is None:
            return slice(None), slice(None)
        random, held = check_random_state(self.random_state), []
        for kind in (near, ~near):
            members = random.permutation(np.flatnonzero(kind))
            held.append(members[: int(self.validation_fraction * len(members))])
            if not 0 < len(held[-1]) < len(members):
                raise InvalidInputError(
                    f"validation_fraction={self.validation_fraction} holds {len(held[-1])} of"
                    f" {len(members)} {'near' if kind is near else 'far'} pairs out; at least one"
                    " must be held out and one be left. Change it, set it to None, or add pairs."
                )
        held_out = np.sort(np.concatenate(held))
        return np.setdiff1d(np.arange(len(near)), held_out), held_out

    def _calibrated(
        self, X: Any, near: Mask, calibrate: str, beta: float, rate: float
    ) -> PairClassifier:
        distances: Array = self.metric_.pair_distance(X)
        host = kernels_for(distances).to_host(distances)
        self.threshold_ = Cuts.of(host, near).best(calibrate, beta, rate)
        return self


def _learns_from_pairs(metric: Any) -> bool:
    """Whether ``fit`` takes pairs; some of our learners take other tuples only."""
    known = {entry.name: entry.learns_from for entry in ENTRIES}
    others = known.get(type(metric).__name__, "pairs") not in ("pairs", "chunklets")
    return bool(get_tags(metric).input_tags.three_d_array) and not others


def _check_criterion(calibrate: Any, beta: Any, rate: Any) -> None:
    check_choice("calibrate", calibrate, CRITERIA)
    check_number("beta", beta, Real, 0, None)
    check_number("rate", rate, Real, 0, 1)
