"""Geometric mean metric learning as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.blocks import is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import validated_labels, validated_points, validated_weights
from nearfar.estimators._prior import check_prior, prior_matrix
from nearfar.estimators._shrinkage import (
    check_shrinkage,
    scale_of_pairs,
    shrinkage_for,
)
from nearfar.estimators._start import check_range, without_dead_features
from nearfar.estimators._training import Callbacks, store_ending, with_callbacks
from nearfar.estimators._tuples import (
    PairLearner,
    count_of,
    holds_tuples,
    scale_of_rows,
    validated_pairs,
)
from nearfar.kernels import Array, kernels_for, single_threaded_blas, to_host
from nearfar.linalg import canonical_factor, pad_or_trim_rows
from nearfar.problems.gmml import GMMLProblem, scatters_of_labels, scatters_of_pairs
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Status
from nearfar.supervision.labels import check_class_pairs
from nearfar.validation import check_number

Matrix = NDArray[np.float64]

LARGEST_GAP = 1e-3  # of an answer whose digits are not lost


class GMML(PairLearner, MetricLearner):
    """Geometric mean metric learning: a closed form from near and far pairs.

    Let S and D be the sums of ``(a - b)(a - b)ᵀ`` over near and far pairs. S⁻¹ makes near pairs
    small, and D makes far pairs large. The metric lies on the shortest curve of positive definite
    matrices from S⁻¹ to D, the share ``t`` of the way. For ``t=0.5`` it is the minimum over A of
    ``tr(A S) + tr(A⁻¹ D)``. See ``docs/algorithms/gmml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest. None keeps all directions in which pairs differ. If there are
        fewer than asked for, the last rows are zero.
    t : float, default=0.5
        From 0, where the metric is S⁻¹, to 1, where it is D.
    shrinkage : float or "auto", default="auto"
        How much of the prior to keep, from 0 to below 1: for d features S becomes
        ``(1 - shrinkage) S + shrinkage (tr(S A₀) / d) A₀⁻¹``, and D
        ``(1 - shrinkage) D + shrinkage (tr(D A₀⁻¹) / d) A₀``. 0 is the paper's program, which needs
        near and far pairs that differ in every direction in which pairs differ. "auto" is
        4 d / (4 d + n) for n labelled points, or for the number of near pairs or of points, if that
        is smaller; with the identity as prior it also brings features to one scale where that
        separates near from far better (see ``feature_scale_``).
    prior : "identity", "covariance" or array of shape (n_features, n_features), default="identity"
        The metric A₀ that is drawn to: the Euclidean one, the inverse covariance of the points, or
        a positive definite matrix. Its scale does not matter.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes of labelled points, by which ``sample_weight`` is multiplied:
        "balanced" gives all classes the same weight, and classes that a dict does not name have
        the weight 1.
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all, which is
        faster, since no pairs have to be made.
    random_state : int, RandomState instance or None, default=None
        Draws the pairs.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    shrinkage_ : float
        The shrinkage that was used.
    feature_scale_ : ndarray of shape (n_features,) or None
        What ``shrinkage="auto"`` multiplied features by, powers of two; None for ones.
        ``components_`` are for the features as they were given.
    objective_ : float
        ``(1 - t) δ²(A, S⁻¹) + t δ²(A, D)`` with δ the distance of the geometry of positive definite
        matrices, computed from the data in float64, before rows were cut off; of features that are
        multiplied by ``feature_scale_``.
    duality_gap_ : float
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger.
        It shows the rounding error.
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
    `fit` refuses sparse input.

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
        shrinkage: float | str = "auto",
        prior: str | ArrayLike = "identity",
        class_weight: str | dict[Any, float] | None = None,
        n_pairs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.t = t
        self.shrinkage = shrinkage
        self.prior = prior
        self.class_weight = class_weight
        self.n_pairs = n_pairs
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GMML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), pairs (n_pairs, 2, n_features), triplets
            (n_triplets, 3, n_features) of a point, a near and a far one, or `Tuples`. Float32 stays
            float32; tensors are computed on their device.
        y : array-like or None, default=None
            Class labels of points; +1 for near and -1 for far pairs; None for triplets.
        sample_weight : array-like or None, default=None
            Weights of labelled points, or of pairs or triplets. The weight of a pair of labelled
            points is the product of theirs, so that integers count as repeated points.

        Returns
        -------
        GMML
            The fitted estimator.
        """
        points, weights, scatters, n = self._validated_scatters(X, y, sample_weight)
        callbacks = Callbacks(self, X, y)
        scale, kernels = self.feature_scale_, kernels_for(points)
        self.shrinkage_ = shrinkage_for(self.shrinkage, n, _n_varying(*scatters))
        with single_threaded_blas():
            problem = self._posed(scatters, points, weights)
            L = rounded_like(problem.solution(), points)
            components = pad_or_trim_rows(
                L if scale is None else canonical_factor(L * scale), self.n_components
            )
            self.components_ = kernels.like(components, points)
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

    def _posed(
        self, scatters: tuple[Matrix, Matrix], points: Array, weights: Matrix | None
    ) -> GMMLProblem:
        """The problem with its prior."""
        problem = GMMLProblem.of_scatters(*scatters, self.t)
        (near, far), rank = problem.ranks, problem.rank
        if not (near and far):
            kind = "far" if near else "near"
            raise InvalidInputError(
                f"GMML needs {kind} pairs of points that differ; those of every {kind} pair are"
                " equal. Check the features, or drop repeated points."
            )
        if self.shrinkage_ == 0:
            if min(near, far) < rank:
                raise InvalidInputError(
                    "shrinkage=0 needs near pairs and far pairs that differ in all"
                    f" {rank} directions in which pairs differ; near pairs differ in {near}, far"
                    f" pairs in {far}. Set shrinkage='auto' or a number, or add pairs."
                )
            return problem
        if not isinstance(self.prior, str) or self.prior == "identity":  # regular everywhere
            problem = GMMLProblem.of_scatters(*scatters, self.t, whole=True)
        problem = problem.shrunk(self.shrinkage_, prior_matrix(self.prior, points, weights))
        if min(problem.ranks) < problem.rank:
            raise InvalidInputError(
                f"shrinkage={self.shrinkage_:g} is lost in the rounding of the scatter of the"
                " pairs. Raise it, for example to 0.1, or standardise the features."
            )
        return problem

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_number("t", self.t, Real, 0, 1)
        check_shrinkage(self.shrinkage)
        check_prior(self.prior, self.n_features_in_)

    def _validated_scatters(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Array, Matrix | None, tuple[Matrix, Matrix], float]:
        """Points as they were given, their weights, sums over pairs, and n of the shrinkage.

        Sets ``feature_scale_``, by which the points of the sums are multiplied.
        """
        scale = weights = None
        if not holds_tuples(X) and self.n_pairs is None and not is_dask(X):
            points = validated_points(self, X, reset=True)
            labels = validated_labels(self, points, y)
            self._check_parameters()
            weights = validated_weights(self, len(points), sample_weight, labels)
            check_class_pairs(labels, type(self).__name__)
            check_range(points)
            points, kernels = without_dead_features(points), kernels_for(points)
            if self._scales:
                scale = scale_of_rows(points, labels.codes, weights)
            with single_threaded_blas():
                scatters = scatters_of_labels(kernels, _times(points, scale), labels, weights)
            n = float(len(points) if weights is None else weights.sum())
        else:
            pairs = validated_pairs(
                self,
                X,
                y,
                self.n_pairs,
                self.random_state,
                sample_weight=sample_weight,
                drop_dead=True,
            )
            self._check_parameters()
            points = pairs.points
            check_range(points)
            if self._scales:
                scale = scale_of_pairs(points, pairs.heads, pairs.tails, pairs.near, pairs.weights)
            scaled = replace(pairs, points=_times(points, scale))
            with single_threaded_blas():
                scatters = scatters_of_pairs(kernels_for(points), scaled)
            n = count_of(pairs)
        self.feature_scale_ = None if scale is None else to_host(scale)
        return points, weights, scatters, n

    @property
    def _scales(self) -> bool:
        """Whether features may be scaled: a prior is about features as they were given."""
        identity = isinstance(self.prior, str) and self.prior == "identity"
        return identity and isinstance(self.shrinkage, str)


def _times(points: Array, scale: Array | None) -> Array:
    return points if scale is None else points * scale


def _n_varying(S: Matrix, D: Matrix) -> int:
    """Number of features in which pairs differ."""
    return int(np.count_nonzero(np.diag(S + D)))
