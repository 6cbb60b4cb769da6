"""Information-theoretic metric learning as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.blocks import is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._held_out import warn_if_trials_are_worse
from nearfar.estimators._prior import (
    check_prior,
    check_violation_weight,
    map_near_prior,
    solve_near_prior,
    weight_beside_prior,
)
from nearfar.estimators._start import robust_centre
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    map_proof,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import PairLearner, drawn_pairs, validated_pairs
from nearfar.kernels import kernels_for, single_threaded_blas
from nearfar.problems.itml import BoundLoss, default_bounds
from nearfar.problems.logdet import LogDetProblem
from nearfar.supervision import Pairs
from nearfar.validation import check_number

Matrix = NDArray[np.float64]


class ITML(PairLearner, MetricLearner):
    """Information-theoretic metric learning: as near to a prior as bounds on distances allow.

    Near pairs should have squared distances of at most u, far pairs of at least l. Among all
    metrics A the learned one has the least ``D(A, A₀) + violation_weight Σ φ(q / b)``. D is the
    LogDet divergence from the prior A₀, ``φ(r) = r - log r - 1``, and the sum is over the pairs
    whose squared distance q breaks its bound b.

    The problem is convex, and ``duality_gap_`` proves how close the answer is to the optimum. See
    ``docs/algorithms/itml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest. None keeps all.
    violation_weight : float or "auto", default="auto"
        The weight of broken bounds beside the divergence from the prior; γ of the paper. "auto" is
        1, or where labels chose the prior so much that near pairs pull n / 16d times as strongly
        as the prior, for n points of d features.
    bounds : (float, float) or None, default=None
        u and l, as squared distances. None takes the 5th and the 95th percentile of the squared
        distances between points under the prior.
    prior : {"auto", "identity", "covariance"} or array of shape (n_features, n_features), \
            default="auto"
        The metric A₀: the Euclidean one, the inverse covariance of the points, or a positive
        definite matrix. "auto" is the Euclidean one for pairs and triplets, and
        where ``n_pairs`` are drawn. For all pairs of labelled points it is a
        mean of the distances of the inputs, of features at one scale, and of discriminant
        analysis of both, weighted by how well each classifies rows that are left out (see
        ``prior_components_``).
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws the pairs.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    prior_components_ : ndarray of shape (n_features, n_features) or None
        The map whose metric ``prior="auto"`` is, in float64; None for the Euclidean one.
    violation_weight_ : float
        The weight that was used.
    bounds_ : tuple of float
        u and l.
    objective_ : float or None
        The minimum, computed from the data in float64, before rows were cut off.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger.
    proof_ : dict
        What proves ``duality_gap_``, for `nearfar.verify`: the whole map, whose slopes are the dual
        point, and the pairs if they were drawn.
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
    With n points, d features and m pairs a product with the Hessian costs O(n d² + m d + d³) in
    float64, an iteration takes some ten to a hundred of these, and a fit some twenty iterations.
    Memory is O(n d + d² + m). `fit` refuses sparse input.

    References
    ----------
    Davis, Kulis, Jain, Sra & Dhillon, Information-theoretic metric learning, ICML (2007).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import ITML, make_pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> pairs, kinds = make_pairs(X, y, 50, random_state=0)
    >>> itml = ITML().fit(pairs, kinds)
    >>> itml.status_, itml.duality_gap_ <= 1e-3
    ('converged', True)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        violation_weight: float | str = "auto",
        bounds: ArrayLike | None = None,
        prior: str | ArrayLike = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.violation_weight = violation_weight
        self.bounds = bounds
        self.prior = prior
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> ITML:
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
        ITML
            The fitted estimator.
        """
        pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state, drop_dead=True)
        self._check_parameters()
        points, kernels, edges = pairs.points, kernels_for(pairs.points), (pairs.heads, pairs.tails)
        with single_threaded_blas():
            centred = kernels.double(points) - robust_centre(points)
            prior, self.prior_components_ = map_near_prior(self.prior, points, pairs.labels)
            self.bounds_ = self._given_bounds() or default_bounds(kernels, centred, prior)
            problem = LogDetProblem.build(
                kernels, centred, edges, prior, lambda lengths: self._loss(pairs, lengths)
            )
            training = Training(self, X, y)
            fitted, whole, status, objective, gap = solve_near_prior(
                problem, points, training, self.n_components
            )
        self.components_ = fitted["components_"]
        self.proof_: Proof | None = map_proof([whole]) | drawn_pairs(pairs, self.n_pairs)
        status = settled(status, gap, self.tol)
        store_ending(self, status, objective, gap, training.history)
        training.finish(status, fitted)
        if not is_dask(X):
            warn_if_trials_are_worse(self, points, pairs.labels)
        return self

    def _loss(self, pairs: Pairs, lengths: Matrix) -> BoundLoss:
        """That of the pairs with these squared lengths; sets ``violation_weight_``."""
        upper, lower = self.bounds_
        flat = np.flatnonzero(~pairs.near & (lengths == 0))
        if len(flat):
            rows = [pairs.numbers(ends)[flat[0]] for ends in (pairs.heads, pairs.tails)]
            raise InvalidInputError(
                f"ITML needs far pairs whose squared distances are above 0; that of rows {rows[0]}"
                f" and {rows[1]} is below the range of float64 ({len(flat)} such pairs). Make these"
                " points equal, or leave the pairs out.",
                flat,
            )
        weight = 1.0 if self.violation_weight == "auto" else float(self.violation_weight)
        if self.violation_weight == "auto" and self.prior_components_ is not None:
            pull = float(np.maximum(lengths[pairs.near] / upper - 1, 0).sum())
            weight = weight_beside_prior(len(pairs.points), pull)
        self.violation_weight_ = weight
        return BoundLoss.of(pairs.near, upper, lower, weight)

    def _check_parameters(self) -> None:
        check_limits(self)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        check_violation_weight(self.violation_weight)
        check_prior(self.prior, self.n_features_in_, "auto")
        self._given_bounds()

    def _given_bounds(self) -> tuple[float, float] | None:
        """u and l that the user gave, checked."""
        if self.bounds is None:
            return None
        bounds = np.asarray(self.bounds, dtype=np.float64).ravel()
        if bounds.shape != (2,) or not (np.isfinite(bounds).all() and (bounds > 0).all()):
            raise InvalidInputError(
                "bounds must be two positive numbers, the largest squared distance of near pairs"
                f" and the smallest of far pairs; got {self.bounds!r}. Leave them out to take"
                " percentiles of the data."
            )
        return float(bounds[0]), float(bounds[1])
