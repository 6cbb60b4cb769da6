"""Sparse distance metric learning as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from nearfar.blocks import is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._held_out import warn_if_trials_are_worse
from nearfar.estimators._prior import check_prior, map_near_prior
from nearfar.estimators._start import check_range
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import PairLearner, drawn_pairs, validated_pairs
from nearfar.kernels import kernels_for, single_threaded_blas
from nearfar.limits import fit_clock
from nearfar.linalg import pad_or_trim_rows, symmetric
from nearfar.problems.gmml import scatters_of_pairs
from nearfar.problems.sdml import SDMLProblem, largest_balance
from nearfar.problems.whitening import rounded_like
from nearfar.solvers import Iterate
from nearfar.solvers.graphical_lasso import graphical_lasso
from nearfar.supervision import Pairs
from nearfar.validation import check_number

Matrix = NDArray[np.float64]

SHARE = 0.5  # of the largest balance that is possible, if none is given


class SDML(PairLearner, MetricLearner):
    """Sparse distance metric learning: a metric with few entries, near a prior, from pairs.

    Near pairs should have small and far pairs large squared distances. Among all metrics A the
    learned one has the least ``D(A, A₀) + balance (Σ q - r Σ q') + sparsity_weight Σ |A_ij|``. D is
    the LogDet divergence from the prior A₀, q are the squared distances of near pairs and q' those
    of far pairs, r is the weight of a far pair, and the last sum is over the entries off the
    diagonal. Features that say little about each other have an entry of 0.

    The problem is convex, and ``duality_gap_`` proves how close the answer is to the optimum. See
    ``docs/algorithms/sdml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map: the longest. None keeps all.
    balance : float or None, default=None
        The weight of the pairs, relative to the divergence; η of the paper, where r = 1. Far pairs
        limit it: above ``largest_balance_`` the objective has no minimum in general, and ``fit``
        raises an error. None is half of that limit, and then r is the number of near pairs for
        each far one: of labelled points most pairs are far, and would decide alone.
    sparsity_weight : float, default=0.01
        The weight of the entries off the diagonal; λ of the paper.
    prior : {"auto", "identity", "covariance"} or array of shape (n_features, n_features), \
            default="auto"
        The metric A₀: the Euclidean one, the inverse covariance of the points, or a positive
        definite matrix. "auto" is the Euclidean one for pairs, triplets and labelled points of
        which ``n_pairs`` are drawn. For all pairs of labelled points it is a mean of the distances
        of the inputs, of features at one scale, and of discriminant analysis of both, weighted by
        how well each classifies rows that are left out (see ``prior_components_``).
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of iterations, each a hundred times as accurate as the previous one.
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
    sparse_metric_ : ndarray of shape (n_features, n_features)
        The sparse metric A itself, in float64: ``get_mahalanobis_matrix()`` has rounding in place
        of its zeros.
    prior_components_ : ndarray of shape (n_features, n_features) or None
        The map whose metric ``prior="auto"`` is, in float64; None for the Euclidean one.
    balance_ : float
        The balance that was used.
    far_weight_ : float
        The weight r of a far pair, relative to that of a near one.
    largest_balance_ : float
        The balance at which far pairs outweigh the prior: below it ``A₀⁻¹ + balance Q`` is positive
        definite, with Q the scatter of the near minus r times that of the far pairs. Infinite if it
        always is.
    objective_ : float or None
        The minimum, computed from the data in float64, before rows were cut off.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the absolute objective, or to 1 if that is
        larger.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the dual matrix, and the pairs if they
        were drawn.
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
    With m pairs and d features the scatter takes O(m d²), and a sweep of the graphical lasso O(d³),
    less if features fall into groups that are not linked. Memory is O(n d + d² + m). The metric
    depends on the units of the features: standardise them. `fit` refuses sparse input.

    References
    ----------
    Qi, Tang, Zha, Chua & Zhang, An efficient sparse metric learning in high-dimensional space via
    l1-penalized log-determinant regularization, ICML (2009).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearfar import SDML
    >>> X, y = load_wine(return_X_y=True)
    >>> sdml = SDML(sparsity_weight=0.1).fit(StandardScaler().fit_transform(X), y)
    >>> sdml.status_, int((sdml.sparse_metric_ == 0).sum()) > 0
    ('converged', True)
    """

    _axes: ClassVar[dict[str, str]] = {**MetricLearner._axes, "sparse_metric_": "dd"}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        balance: float | None = None,
        sparsity_weight: float = 0.01,
        prior: str | ArrayLike = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.balance = balance
        self.sparsity_weight = sparsity_weight
        self.prior = prior
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> SDML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), pairs (n_pairs, 2, n_features), triplets
            (n_triplets, 3, n_features) of a point, a near and a far one, or `Tuples`. Float32 stays
            float32; the scatter of tensors is computed on their device.
        y : array-like or None, default=None
            Class labels of points; +1 for near and -1 for far pairs; None for triplets.

        Returns
        -------
        SDML
            The fitted estimator.
        """
        pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state, drop_dead=True)
        self._check_parameters()
        points, kernels = pairs.points, kernels_for(pairs.points)
        check_range(points)
        with single_threaded_blas():
            near, far = scatters_of_pairs(kernels, pairs)
            prior, self.prior_components_ = map_near_prior(self.prior, points, pairs.labels)
            self.far_weight_ = self._far_weight(pairs)
            problem = self._posed(near - self.far_weight_ * far, _regular(prior, len(points)))

            def attributes(iterate: Iterate) -> dict[str, Any]:
                L = pad_or_trim_rows(problem.components(iterate.point), self.n_components)
                return {"components_": kernels.like(L, points), "sparse_metric_": iterate.point}

            start = np.diag(1 / np.diag(problem.S))
            training = Training(self, X, y)
            solution = training.run(
                graphical_lasso(problem), attributes, start=Iterate(start, np.inf)
            )
            found = solution.iterate
            fitted = attributes(found)
            self.components_, self.sparse_metric_ = fitted["components_"], fitted["sparse_metric_"]
            L = rounded_like(problem.components(found.point), points)
            objective = fit_clock().in_time(lambda: problem.value(symmetric(L.T @ L)))
        gap = None
        self.proof_: Proof | None = None
        if objective is not None:
            dual = problem.S if found.certificate is None else found.certificate
            gap = problem.gap(objective, dual)
            self.proof_ = {"dual": dual} | drawn_pairs(pairs, self.n_pairs)
        status = settled(solution.status, gap, self.tol)
        store_ending(self, status, objective, gap, training.history)
        training.finish(status, fitted)
        if self.balance is None and not is_dask(X):
            warn_if_trials_are_worse(self, points, pairs.labels)
        return self

    def _far_weight(self, pairs: Pairs) -> float:
        """1 for a balance that was given, or if there are no far or no near pairs."""
        n_far = len(pairs) - pairs.near_total
        return (
            pairs.near_total / n_far if self.balance is None and n_far and pairs.near_total else 1.0
        )

    def _posed(self, Q: Matrix, L: Matrix) -> SDMLProblem:
        """The problem with the prior map L (d, d); sets ``balance_`` and ``largest_balance_``."""
        self.largest_balance_ = largest_balance(Q, L)
        if self.balance is None:
            size = float(np.abs(L @ Q @ L.T).max())
            limit = self.largest_balance_
            self.balance_ = SHARE * (limit if np.isfinite(limit) else 1 / size if size else 1.0)
        else:
            self.balance_ = float(self.balance)
        inverse = linalg.inv(L)
        S = symmetric(inverse @ inverse.T + self.balance_ * Q)
        smallest = float(linalg.eigvalsh(S, subset_by_index=[0, 0])[0])
        if self.balance_ >= self.largest_balance_ or smallest <= 0:
            raise InvalidInputError(
                "the inverse prior plus balance times the scatter of near less far pairs must be"
                f" positive definite; with balance={self.balance_:g} its smallest eigenvalue is"
                f" {smallest:.2g}, and the metric would grow without bound. Set balance below"
                f" {self.largest_balance_:.3g}, or leave it out."
            )
        return SDMLProblem(S, float(self.sparsity_weight), 2 * float(np.linalg.slogdet(L)[1]))

    def _check_parameters(self) -> None:
        check_limits(self)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, self.n_features_in_)
        if self.balance is not None:
            check_number("balance", self.balance, Real, 0, None, open_ends=True)
        check_number("sparsity_weight", self.sparsity_weight, Real, 0, None)
        check_prior(self.prior, self.n_features_in_, "auto")


def _regular(prior: Matrix, n: int) -> Matrix:
    """The map of a prior, of n points; raise if it is not regular."""
    rows, d = prior.shape
    if rows < d:
        raise InvalidInputError(
            f"SDML needs a prior of full rank; the covariance of the points has rank {rows} for"
            f" {d} features, with n_samples={n}. Take prior='identity', or reduce the"
            " features with sklearn.decomposition.PCA."
        )
    return prior
