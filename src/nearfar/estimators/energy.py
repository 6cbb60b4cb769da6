"""Classification by the energy that a point with each label would add to the objective of LMNN."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from nearfar.errors import InvalidInputError
from nearfar.estimators._held_out import held_out_rows
from nearfar.estimators._input import validated_labels, validated_points
from nearfar.estimators._metric_classifier import MetricClassifier, check_count
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.problems.energy import Energy
from nearfar.supervision import ClassOrder
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]

N_NEIGHBORS, PUSH_WEIGHT = 3, 0.5  # if the metric has no such parameter
HELD_OUT = 0.2  # share of the rows of each class that calibrates the probabilities
SHARPEST = 1e6  # inverse temperature, in units of the usual difference between energies
BLUNTEST = 1e-6


def _has_probability(estimator: Any) -> bool:
    if not estimator.probability:
        raise AttributeError("predict_proba is available with probability=True. Set it before fit.")
    return True


class EnergyClassifier(MetricClassifier):
    """Assigns the label with the least increase of LMNN's objective.

    A new point is added to the training points, with each label in turn. Its energy is the increase
    of the objective, the sum of three parts: the pull to its target neighbours of that label, the
    hinges of points of other classes inside its perimeter, and the hinges of points of other
    classes that have it inside theirs. By default the new point's own perimeter has no margin, as
    in the program of the paper's authors; ``targets="input", query_margin=1`` is the paper's
    equation. See ``docs/algorithms/energy.md`` for the mathematics.

    Parameters
    ----------
    metric : estimator or None, default=None
        A metric learner, with one metric or several. None is ``LMNN()``. One that is not fitted is
        copied and fitted with the classifier; a fitted one is used as it is, and ``fit`` only
        stores the training points. ``sklearn.frozen.FrozenEstimator`` keeps it fitted even if the
        classifier is cloned, as in cross-validation.
    n_neighbors : int or None, default=None
        Target neighbours of each point. None is that of the metric, or 3 if it has none.
    push_weight : float or None, default=None
        Weight of the hinges, between 0 and 1 (the papers' mu). None is that of the metric, or 0.5
        if it has none.
    targets : {"learned", "input"}, default="learned"
        The distance that chooses the target neighbours of a new point, the nearest of each class:
        "learned" is that of the metric, "input" the one that chose those of the training points, as
        in the paper's equation.
    query_margin : float, default=0.0
        How much farther from a new point than its own targets a point of another class has to be
        to cost nothing. The paper's equation has 1; the program that its authors published has 0,
        with the targets of new points under the metric, and makes fewer errors.
    probability : bool, default=False
        Whether to calibrate probabilities, for ``predict_proba``. A fifth of each class is held out
        for it; a metric that is not fitted is then fitted twice.
    random_state : int, RandomState instance or None, default=None
        Chooses the rows that are held out.

    Attributes
    ----------
    metric_ : estimator
        The fitted metric learner.
    n_neighbors_ : int
        Target neighbours of each point.
    push_weight_ : float
        Weight of the hinges.
    inverse_temperature_ : float or None
        The factor of the energies in the probabilities; None without ``probability``.
    points_ : ndarray or torch.Tensor of shape (n_samples, n_features)
        The training points.
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
    For m new points and n training points in d features, and a map of r rows, energies cost
    O(m n (d + r + log n)), and O(m n (d + M r)) for M metrics. Memory is O(n d) and blocks of fixed
    size.

    References
    ----------
    Weinberger & Saul, Distance metric learning for large margin nearest neighbor classification,
    JMLR 10 (2009), section 3.5.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import EnergyClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = EnergyClassifier().fit(X[::2], y[::2])
    >>> classifier.score(X[1::2], y[1::2]) > 0.9
    True
    >>> classifier.decision_function(X[1::2]).shape
    (75, 3)
    """

    def __init__(
        self,
        metric: Any = None,
        *,
        n_neighbors: int | None = None,
        push_weight: float | None = None,
        targets: str = "learned",
        query_margin: float = 0.0,
        probability: bool = False,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.targets = targets
        self.query_margin = query_margin
        self.probability = probability
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> EnergyClassifier:
        """Learn the metric, unless it is fitted already, and store the training points.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.

        Returns
        -------
        EnergyClassifier
            The fitted estimator.
        """
        points = validated_points(self, X, reset=True)
        labels = validated_labels(self, points, y)
        self._check_parameters(len(points))
        self._store_metric(X, points, labels)
        # A metric that was learned from more points may have more neighbours than there are here.
        n_neighbors = self._given_or_learned("n_neighbors", N_NEIGHBORS)
        self.n_neighbors_ = min(n_neighbors, len(points))
        self.push_weight_ = self._given_or_learned("push_weight", PUSH_WEIGHT)
        self.inverse_temperature_ = self._calibrated(labels) if self.probability else None
        self._prepared = self._prepare()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The label with the least energy for each point, as an array on the host.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (m, n_features)
            The points.
        """
        energy = self._energy(X)
        labels: NDArray[Any] = self.classes_[kernels_for(energy).to_host(energy).argmin(axis=1)]
        return labels

    def decision_function(self, X: Any) -> Any:
        """Minus the energy of each label, in float64.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (m, n_features)
            The points.

        Returns
        -------
        ndarray or torch.Tensor of shape (m, n_classes), or (m,) for two classes
            The larger, the better the label fits. For two classes it is the energy of the first
            minus that of the second, so that positive numbers mean the second.
        """
        energy = self._energy(X)
        return -energy if len(self.classes_) > 2 else energy[:, 0] - energy[:, 1]

    @available_if(_has_probability)
    def predict_proba(self, X: Any) -> Any:
        """The probability of each label, (m, n_classes): softmax of minus the scaled energies.

        The scale, ``inverse_temperature_``, is the one with the least log loss on held-out rows.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (m, n_features)
            The points.
        """
        energy = self._energy(X)
        if self.inverse_temperature_ is None:
            raise InvalidInputError(
                "predict_proba needs what fit learns with probability=True, and it was set later."
                " Fit again."
            )
        kernels = kernels_for(energy)
        shares = softmax(-self.inverse_temperature_ * kernels.to_host(energy), axis=1)
        return kernels.like(shares, energy)

    # -- inside ----------------------------------------------------------------------------------

    def _check_parameters(self, n_points: int) -> None:
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"{type(self).__name__} needs at least two classes; y has 1 class."
                " Add rows of another class."
            )
        if self.n_neighbors is not None:
            check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
            check_count(self.n_neighbors, n_points)
        if self.push_weight is not None:
            check_number("push_weight", self.push_weight, Real, 0, 1, open_ends=True)
        check_choice("targets", self.targets, ("input", "learned"))
        check_number("query_margin", self.query_margin, Real, 0, None)

    def _given_or_learned(self, name: str, default: Any) -> Any:
        """A parameter, or that of the metric if it is None, or the default."""
        given = getattr(self, name)
        return getattr(self.metric_, name, default) if given is None else given

    def _prepare(self) -> Energy:
        labels = self._order
        kernels = kernels_for(self.points_)
        points = self.points_[kernels.index(labels.order, self.points_)]
        metric_of = self._metric_of_points(labels)
        with single_threaded_blas():
            return Energy.build(
                self._images(points),
                self._target_space(points),
                labels.starts,
                self.n_neighbors_,
                self.push_weight_,
                self._maps,
                None if metric_of is None else metric_of[labels.order],
                self.query_margin,
            )

    @single_threaded_blas()
    def _energy(self, X: Any) -> Array:
        X = self._queries(X)
        metric_of = self._metric_of_new(X) if self._has_several_metrics(self.metric_) else None
        space = self._target_space(X) if self.targets == "input" else None
        return self._ready.of(self._images(X), space, metric_of)

    def _calibrated(self, labels: ClassOrder) -> float:
        """The inverse temperature with the least log loss on rows that are held out."""
        if labels.sizes.max() * HELD_OUT < 1:
            raise InvalidInputError(
                "probability=True holds out a fifth of each class, and the largest class has"
                f" {labels.sizes.max()} members. Add rows, or set probability=False."
            )
        random = check_random_state(self.random_state)
        rows, held_out = held_out_rows(labels, HELD_OUT, random)
        kernels = kernels_for(self.points_)
        part = EnergyClassifier(
            self.metric,
            n_neighbors=self.n_neighbors_,
            push_weight=self.push_weight_,
            targets=self.targets,
            query_margin=self.query_margin,
        ).fit(self.points_[kernels.index(rows, self.points_)], self.labels_[rows])
        energy = part._energy(self.points_[kernels.index(held_out, self.points_)])
        return inverse_temperature(kernels.to_host(energy), labels.codes[held_out])


def inverse_temperature(energy: Matrix, codes: NDArray[np.intp]) -> float:
    """The β with the least log loss of softmax(−β energy), for energies (m, C) and true classes.

    The true class counts as (m + 1) / (m + 2) of a point and the others share the rest, so that β
    stays finite where no point is wrong [Platt, Probabilistic outputs for SVMs, 1999].
    """
    m, n_classes = energy.shape
    target = np.full((m, n_classes), 1 / ((m + 2) * (n_classes - 1)))
    target[np.arange(m), codes] = (m + 1) / (m + 2)
    apart = np.abs(energy - energy.min(axis=1, keepdims=True))
    usual = float(np.median(apart[apart > 0])) if apart.any() else 1.0

    def loss(exponent: float) -> float:
        logarithms = log_softmax(-np.exp(exponent) / usual * energy, axis=1)
        return -float((target * logarithms).sum())

    best = minimize_scalar(loss, bounds=np.log([BLUNTEST, SHARPEST]), method="bounded")
    return float(np.exp(best.x) / usual)
