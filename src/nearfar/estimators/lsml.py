"""Least squared-residual metric learning as a scikit-learn transformer."""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import checked_labels
from nearfar.estimators._prior import (
    check_prior,
    check_violation_weight,
    map_near_prior,
    solve_near_prior,
    weight_beside_prior,
)
from nearfar.estimators._start import robust_centre, without_dead_features
from nearfar.estimators._training import (
    Training,
    check_limits,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import drawn_tuples, holds_tuples, validated_quadruplets
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.problems.logdet import LogDetProblem
from nearfar.problems.lsml import ComparisonLoss
from nearfar.supervision import ClassOrder
from nearfar.supervision.quadruplets import comparisons, make_quadruplets
from nearfar.validation import check_number

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

NEEDS = (
    "points that differ, within a class and between classes; of every quadruplet the points of a"
    " pair are equal"
)
SCORED = 1 << 16  # quadruplets of labelled points in a score


class LSML(MetricLearner):
    """Least squared-residual metric learning: comparisons of distances, near a prior.

    Of each quadruplet the first two points should be nearer to each other than the last two. Among
    all metrics A the learned one has the least ``D(A, A₀) + violation_weight mean(h)``, with D the
    LogDet divergence from the prior A₀, and h the square of the excess of the first distance over
    the last, or 0 if there is none.

    The problem is convex, and ``duality_gap_`` proves how close the answer is to the optimum. See
    ``docs/algorithms/lsml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest. None keeps all.
    violation_weight : float or "auto", default="auto"
        The weight of the mean squared residual, relative to the divergence from the prior. "auto"
        is 1, or where labels chose the prior so much that near pairs pull n / 16d times as strongly
        as the prior, for n points of d features.
    prior : {"auto", "identity", "covariance"} or array of shape (n_features, n_features), \
            default="auto"
        The metric A₀: the Euclidean one, the inverse covariance of the points, or a positive
        definite matrix. "auto" is the Euclidean one for quadruplets and triplets. For labelled
        points it is a mean of the distances of the inputs, of features at one scale, and of
        discriminant analysis of both, weighted by how well each classifies rows that are left out
        (see ``prior_components_``).
    n_quadruplets : int, default=10000
        For class labels: how many quadruplets to draw, or all if there are fewer.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws the quadruplets.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    prior_components_ : ndarray of shape (n_features, n_features) or None
        The map whose metric ``prior="auto"`` is, in float64; None for the Euclidean one.
    violation_weight_ : float
        The weight that was used.
    objective_ : float or None
        The minimum, computed from the data in float64, before rows were cut off.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the gap) and duality_gap (the
        same, since every iterate is certified).
    classes_ : ndarray
        The labels, if y were class labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, d features and m quadruplets a product with the Hessian costs
    O(n d² + m d + d³) in float64, and a fit takes some hundred of these. Memory is
    O(n d + d² + m). `fit` refuses sparse input.

    References
    ----------
    Liu, Guo, Zhang, Jojic & Wang, Metric learning from relative comparisons by minimizing squared
    residual, ICDM (2012).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LSML, make_quadruplets
    >>> X, y = load_iris(return_X_y=True)
    >>> quadruplets = make_quadruplets(X, y, 100, random_state=0)
    >>> lsml = LSML(violation_weight=100).fit(quadruplets)
    >>> lsml.status_, lsml.duality_gap_ <= 1e-3
    ('converged', True)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        violation_weight: float | str = "auto",
        prior: str | ArrayLike = "auto",
        n_quadruplets: int = 10_000,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.violation_weight = violation_weight
        self.prior = prior
        self.n_quadruplets = n_quadruplets
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> LSML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Quadruplets of shape (n_quadruplets, 4, n_features), triplets (n_triplets, 3,
            n_features) of a point, a near and a far one, points (n_samples, n_features), or
            `Tuples`. Float32 stays float32; tensors are computed on their device.
        y : array-like or None, default=None
            Class labels of points; None for quadruplets and triplets.

        Returns
        -------
        LSML
            The fitted estimator.
        """
        points, indices, labels = self._validated_quadruplets(X, y)
        self._check_parameters()
        edges = comparisons(points, indices, type(self).__name__)
        kernels = kernels_for(points)
        with single_threaded_blas():
            centred = kernels.double(points) - robust_centre(points)
            prior, self.prior_components_ = map_near_prior(self.prior, points, labels)
            problem = LogDetProblem.build(
                kernels, centred, edges, prior, lambda lengths: self._loss(len(points), lengths)
            )
            training = Training(self, X, y)
            fitted, _, status, objective, gap = solve_near_prior(
                problem, points, training, self.n_components
            )
        self.components_ = fitted["components_"]
        status = settled(status, gap, self.tol)
        store_ending(self, status, objective, gap, training.history)
        training.finish(status, fitted)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """The share of comparisons that hold under the learned metric; ties count half.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Quadruplets, triplets or points, as in ``fit``.
        y : array-like or None, default=None
            Class labels of points, of which 65536 quadruplets are drawn, the same in every call;
            None for quadruplets and triplets.

        Returns
        -------
        float
            From 0 to 1, 0.5 for a guess.
        """
        points, indices = self._tuples(X, y, reset=False, drawn=SCORED, random_state=0)
        heads, tails = comparisons(points, indices, type(self).__name__)
        distances = kernels_for(points).to_host(self._edge_distances(points, heads, tails))
        near, far = distances.reshape(2, -1)
        return float(np.mean((near < far) + 0.5 * (near == far)))

    # -- before ------------------------------------------------------------------------------

    def _loss(self, n: int, lengths: Matrix) -> ComparisonLoss:
        """That of n points and comparisons of these squared lengths; sets ``violation_weight_``."""
        weight = 1.0 if self.violation_weight == "auto" else float(self.violation_weight)
        if self.violation_weight == "auto" and self.prior_components_ is not None:
            near, far = np.sqrt(lengths).reshape(2, -1)
            weight = weight_beside_prior(n, float((near * np.maximum(near - far, 0)).mean()))
        self.violation_weight_ = weight
        return ComparisonLoss(len(lengths) // 2, weight)

    def _check_parameters(self) -> None:
        check_limits(self)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_violation_weight(self.violation_weight)
        check_prior(self.prior, self.n_features_in_, "auto")

    def _validated_quadruplets(self, X: Any, y: Any) -> tuple[Array, Index, ClassOrder | None]:
        """What X and y say, checked; sets ``n_features_in_``, names, and of labels ``classes_``."""
        self.__dict__.pop("classes_", None)
        if not holds_tuples(X):
            check_number("n_quadruplets", self.n_quadruplets, Integral, 1, None)
        points, indices = self._tuples(X, y, True, self.n_quadruplets, self.random_state)
        labels = None if holds_tuples(X) else checked_labels(self, points, y)
        return without_dead_features(points), indices, labels

    def _tuples(
        self, X: Any, y: Any, reset: bool, drawn: int, random_state: Any
    ) -> tuple[Array, Index]:
        """Points, and the rows (m, 4) or (m, 3) of quadruplets or triplets."""
        if holds_tuples(X):
            return validated_quadruplets(self, X, y, reset)
        make = partial(make_quadruplets, n_quadruplets=drawn, random_state=random_state)
        return drawn_tuples(self, X, y, make, NEEDS, reset=reset)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
