"""Geometric mean metric learning as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import (
    holds_tuples,
    validated_labels,
    validated_pairs,
    validated_points,
)
from nearfar.estimators._pairs import PairLearner
from nearfar.estimators._prior import check_prior, prior_matrix
from nearfar.estimators._start import check_spread, without_dead_features
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.gmml import GMMLProblem, scatters_of_labels, scatters_of_pairs
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Status
from nearfar.supervision.labels import check_class_pairs
from nearfar.validation import check_number

Matrix = NDArray[np.float64]

LARGEST_GAP = 1e-3  # of an answer whose digits are not lost
STEADYING = 0.1  # regularization where near or far pairs leave directions open


class GMML(PairLearner, MetricLearner):
    """Geometric mean metric learning: a closed form from near and far pairs.

    With S and D the sums of ``(a - b)(a - b)ᵀ`` over near and far pairs, the metric is the point
    ``t`` of the way from S⁻¹, which makes near pairs small, to D, which makes far pairs large, on
    the shortest curve of positive definite matrices. For ``t=0.5`` it is the minimum over A of
    ``tr(A S) + tr(A⁻¹ D)``. See ``docs/algorithms/gmml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest. None keeps all directions in which pairs differ. If there are
        fewer than asked for, the last rows are zero.
    t : float, default=0.5
        From 0, where the metric is S⁻¹, to 1, where it is D.
    regularization : float, default=0.0
        How much of the prior is added: with d directions, S gets ``regularization tr(S A₀) / d``
        times A₀⁻¹, and D gets ``regularization tr(D A₀⁻¹) / d`` times A₀. Where it is 0 and near or
        far pairs do not differ in all directions in which others do, 0.1 is used, with a warning.
    prior : "identity", "covariance" or array of shape (n_features, n_features), default="identity"
        The metric A₀ that is drawn to: the Euclidean one, the inverse covariance of the points, or
        a positive definite matrix. Its scale does not matter.
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all, which is
        faster, since no pairs have to be made.
    random_state : int, RandomState instance or None, default=None
        Draws the pairs.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    regularization_ : float
        The regularization that was used.
    objective_ : float
        ``(1 - t) δ²(A, S⁻¹) + t δ²(A, D)`` with δ the distance of the geometry of positive definite
        matrices, computed from the data in float64, before rows were cut off.
    duality_gap_ : float
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger.
        It is rounding, and tells how much.
    status_ : str
        "converged".
    n_iter_ : int
        0, since there is a closed form.
    history_ : list
        Empty.
    classes_ : ndarray
        The labels, if y were class labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With m pairs, or n labelled points, and d features the time is O(m d² + d³) or O(n d² + d³), and
    the memory O(n d + d² + m). The metric depends on the units of the features: standardise them.
    Sparse input is refused.

    References
    ----------
    Zadeh, Hosseini & Sra, Geometric mean metric learning, ICML (2016).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import GMML, make_pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> GMML().fit(X, y).transform(X).shape
    (150, 4)

    From pairs, +1 near and -1 far:

    >>> pairs, kinds = make_pairs(X, y, 50, random_state=0)
    >>> GMML(t=0.7).fit(pairs, kinds).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        t: float = 0.5,
        *,
        regularization: float = 0.0,
        prior: str | ArrayLike = "identity",
        n_pairs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.t = t
        self.regularization = regularization
        self.prior = prior
        self.n_pairs = n_pairs
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> GMML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), pairs (n_pairs, 2, n_features), triplets
            (n_triplets, 3, n_features) of a point, a near and a far one, or `Tuples`. Float32 stays
            float32; tensors are computed on their device.
        y : array-like or None, default=None
            Class labels of points; +1 for near and -1 for far pairs; None for triplets.

        Returns
        -------
        GMML
            The fitted estimator.
        """
        points, scatters = self._validated_scatters(X, y)
        self._check_parameters()
        callbacks = Callbacks(self, X, y)
        with single_threaded_blas():
            problem = self._steadied(GMMLProblem.of_scatters(*scatters, self.t), points)
            L = rounded_like(problem.solution(), points)
            components = pad_or_trim_rows(L, self.n_components)
            self.components_ = kernels_for(points).like(components, points)
            objective, gap = problem.objective_and_gap(L)
        if not gap <= LARGEST_GAP:
            raise InvalidInputError(
                "the features differ so much in their units that the geometric mean is lost in"
                f" rounding: it is proved to be optimal up to {gap:.0e} only, where {LARGEST_GAP:g}"
                " is needed. Standardise them, for example with"
                " sklearn.preprocessing.StandardScaler."
            )
        store_ending(self, Status.CONVERGED, objective, gap, [])
        callbacks.finish({"components_": self.components_})
        return self

    def _steadied(self, problem: GMMLProblem, points: Array) -> GMMLProblem:
        """The problem with its prior; sets ``regularization_``."""
        self.regularization_ = float(self.regularization)
        (near, far), rank = problem.ranks, problem.rank
        if not (near and far):
            kind = "far" if near else "near"
            raise InvalidInputError(
                f"GMML needs {kind} pairs of points that differ; those of every {kind} pair are"
                " equal. Check the features, or drop repeated points."
            )
        if min(near, far) < rank and not self.regularization:
            self.regularization_ = STEADYING
            warn(
                f"near pairs differ in {near} and far pairs in {far} of the {rank} directions in"
                f" which pairs differ: the geometric mean needs all, and regularization"
                f"={STEADYING:g} is used. Set it, or add pairs.",
                DataWarning,
            )
        if self.regularization_ == 0:
            return problem
        problem = problem.regularized(self.regularization_, prior_matrix(self.prior, points))
        if min(problem.ranks) < rank:
            raise InvalidInputError(
                f"regularization={self.regularization:g} is lost in the rounding of the scatter of"
                " the pairs. Raise it, for example to 0.1, or standardise the features."
            )
        return problem

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_number("t", self.t, Real, 0, 1)
        check_number("regularization", self.regularization, Real, 0, None)
        check_prior(self.prior, self.n_features_in_)

    def _validated_scatters(self, X: Any, y: Any) -> tuple[Array, tuple[Matrix, Matrix]]:
        """The points, and the sums over near and far pairs."""
        if not holds_tuples(X) and self.n_pairs is None:
            points = validated_points(self, X, reset=True)
            labels = validated_labels(self, points, y)
            check_class_pairs(labels, type(self).__name__)
            check_spread(float(points.max()) - float(points.min()))
            points = without_dead_features(points)
            with single_threaded_blas():
                return points, scatters_of_labels(kernels_for(points), points, labels)
        pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state, drop_dead=True)
        points = pairs.points
        check_spread(float(points.max()) - float(points.min()))
        with single_threaded_blas():
            return points, scatters_of_pairs(kernels_for(points), pairs)
