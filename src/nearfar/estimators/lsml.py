"""Least squared-residual metric learning as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.estimators._base import MetricLearner
from nearfar.estimators._input import holds_tuples
from nearfar.estimators._pairs import ComparisonLearner
from nearfar.estimators._prior import check_prior, prior_map
from nearfar.estimators._start import robust_centre, without_dead_features
from nearfar.estimators._training import (
    Training,
    check_limits,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.limits import fit_clock
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.logdet import LogDetProblem
from nearfar.problems.lsml import ComparisonLoss
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Iterate
from nearfar.solvers.newton_cg import newton_cg
from nearfar.supervision.quadruplets import comparisons, make_quadruplets
from nearfar.validation import check_number

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]


class LSML(ComparisonLearner, MetricLearner):
    """Least squared-residual metric learning: comparisons of distances, near a prior.

    Of each quadruplet the first two points should be nearer to each other than the last two. Among
    all metrics A the learned one has the least ``D(A, A₀) + violation_weight mean(h)``, with D the
    LogDet divergence from the prior A₀, and h the square of what the first distance exceeds the
    last by, 0 if it does not.

    The problem is convex, and ``duality_gap_`` proves how close the answer is to the optimum. See
    ``docs/algorithms/lsml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest. None keeps all.
    violation_weight : float, default=1.0
        The weight of the mean squared residual beside the divergence from the prior.
    prior : "identity", "covariance" or array of shape (n_features, n_features), default="identity"
        The metric A₀: the Euclidean one, the inverse covariance of the points, or a positive
        definite matrix.
    n_quadruplets : int, default=10000
        For class labels: how many quadruplets to draw, or all if there are fewer.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    random_state : int, RandomState instance or None, default=None
        Draws the quadruplets.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
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
    O(n d + d² + m). Sparse input is refused.

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

    _draw = staticmethod(make_quadruplets)
    _sizes = (4, 3)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        violation_weight: float = 1.0,
        prior: str | ArrayLike = "identity",
        n_quadruplets: int = 10_000,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.violation_weight = violation_weight
        self.prior = prior
        self.n_quadruplets = n_quadruplets
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
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
        points, indices = self._validated_quadruplets(X, y)
        self._check_parameters()
        edges = comparisons(points, indices, type(self).__name__)
        kernels = kernels_for(points)
        with single_threaded_blas():
            problem = LogDetProblem.build(
                kernels,
                kernels.double(points) - robust_centre(points),
                edges,
                prior_map(self.prior, points),
                lambda lengths: ComparisonLoss(len(lengths) // 2, self.violation_weight),
            )

            def attributes(iterate: Iterate) -> dict[str, Any]:
                L = pad_or_trim_rows(problem.components(iterate.point), self.n_components)
                return {"components_": kernels.like(L, points)}

            training = Training(self, X, y)
            solution = training.run(
                newton_cg(problem, problem.start),
                attributes,
                start=Iterate(problem.start, np.inf),
            )
            self.components_ = attributes(solution.iterate)["components_"]
            L = rounded_like(problem.components(solution.iterate.point), points)
            found = fit_clock().in_time(lambda: problem.objective_and_gap(L))
        objective, gap = found or (None, None)
        status = settled(solution.status, gap, self.tol)
        store_ending(self, status, objective, gap, training.history)
        training.finish(status, {"components_": self.components_})
        return self

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_limits(self)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_number("violation_weight", self.violation_weight, Real, 0, None, open_ends=True)
        check_prior(self.prior, self.n_features_in_)

    def _validated_quadruplets(self, X: Any, y: Any) -> tuple[Array, Index]:
        """What X and y say, checked; sets ``n_features_in_``, names, and of labels ``classes_``."""
        self.__dict__.pop("classes_", None)
        if not holds_tuples(X):
            check_number("n_quadruplets", self.n_quadruplets, Integral, 1, None)
        points, indices = self._comparisons(
            X, y, reset=True, count=self.n_quadruplets, random_state=self.random_state
        )
        return without_dead_features(points), indices
