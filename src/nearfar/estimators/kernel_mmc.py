"""Mahalanobis metric for clustering in the feature space of a kernel, as a transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._kernel import PRECOMPUTED, Expansion, KernelMetricLearner
from nearfar.estimators._shrinkage import AUTO, AUTO_OF_PAIRS, check_shrinkage, shrinkage_for
from nearfar.estimators._start import learned_rows
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    map_proof,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators._tuples import (
    PairLearner,
    count_of,
    drawn_pairs,
    holds_tuples,
    validated_pairs,
)
from nearfar.kernels import single_threaded_blas, to_host
from nearfar.limits import fit_clock
from nearfar.problems.kernel_mmc import KernelMMCProblem, RatedFactor
from nearfar.solvers import Iterate, Status
from nearfar.solvers.quasi_newton import ascend
from nearfar.solvers.rank_increasing import Proof as GrowingProof
from nearfar.solvers.rank_increasing import rank_increasing_descent
from nearfar.supervision import Tuples

Matrix = NDArray[np.float64]


class KernelMMC(PairLearner, KernelMetricLearner):
    """Mahalanobis metric for clustering in the feature space of a kernel.

    Learns ``M = Σ A_lm φ(x_l) φ(x_m)ᵀ`` with A ⪰ 0 over the training points: the metric of `MMC`
    after the map φ of a kernel, which is used through kernel values only. The problem is convex,
    and ``duality_gap_`` proves how close the answer is to the optimum. With the linear kernel and
    the same shrinkage it is `MMC`. See ``docs/algorithms/kernel_mmc.md`` for the mathematics.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "linear", "poly", "rbf", "sigmoid", "cosine" or "laplacian", by the formulas of
        scikit-learn; "precomputed" for kernel matrices in place of points, of shape (n, n) in
        ``fit`` and (m, n) afterwards; or a function of two vectors that returns a number.
    gamma : float or None, default=None
        Parameter of the kernels poly, rbf, sigmoid and laplacian. None means 1 over the sum of the
        variances of the features. For labelled points, an RBF kernel and ``shrinkage="auto"`` it
        is three tenths of that for points Wx, with W as ``kernel_components_`` says.
    kernel_params : dict or None, default=None
        Parameters of the kernels poly ("degree", default 3, and "coef0", default 1) and sigmoid
        ("coef0"); for a function, its further arguments.
    rank : int, float or None, default=None
        Number of leading principal directions in feature space to learn on; a number below 1 is the
        share of the variance that they carry. None takes all that are not rounding errors.
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. A smaller number learns a map of so many rows, which is not convex.
    shrinkage : float or "auto", default="auto"
        How much of the distance in feature space to keep, from 0 to below 1. With r directions and
        T the sum of squared distances in feature space over the near pairs, the constraint is
        ``(1 - shrinkage) Σ D²(a, b) + shrinkage (T / r) trace(M) <= 1``, D being the learned
        distance, and M stays above about ``shrinkage / T`` times the identity, unless a map of few
        rows is learned. "auto" is 4 r / (4 r + n) for n points or near pairs, whichever are fewer,
        and 64 r / (64 r + n) where it chose ``kernel_components_``.
        With a kernel matrix of full rank, such as that of an RBF kernel, it must not be zero.
    n_pairs : int or None, default=None
        For class labels: how many near and how many far pairs to draw. None takes all.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned map of few rows, the
        estimated relative gain that is left.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. If more is
        needed, an error is raised before it is allocated.
    random_state : int, RandomState instance or None, default=None
        Draws the pairs.

    Attributes
    ----------
    dual_coef_ : ndarray or torch.Tensor of shape (n_components, n_fit)
        The map: a point x goes to ``dual_coef_ @ k`` with k its kernel values to the rows of
        ``X_fit_``. Rows are orthogonal in feature space, longest first, and sum to zero. Float64.
    X_fit_ : ndarray, torch.Tensor or None, of shape (n_fit, n_features)
        The points of the pairs. None for precomputed kernels, where n_fit is the number of all
        training points.
    eigenvalues_ : ndarray of shape (rank,)
        Of the centred kernel matrix, descending: n_fit times the variances in feature space.
    eigenvectors_ : ndarray of shape (n_fit, rank)
        Their vectors, the principal directions in feature space.
    gamma_ : float or None
        The gamma that was used; None for kernels without one.
    kernel_components_ : ndarray of shape (n_features, n_features) or None
        W, if the kernel is k(Wx, Wx'): the distance inside it is then a mean of those of the
        inputs, of features at one scale, and of discriminant analysis of both, weighted by how
        well each classifies rows that are left out. None for k(x, x').
    shrinkage_ : float
        The shrinkage that was used.
    objective_ : float or None
        The sum of the learned distances over the far pairs.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (optimum − objective) relative to the objective; None for a learned map of
        few rows.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: as for `MMC`, with the map given by
        coefficients like ``dual_coef_``.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (the gap, or for a learned map of
        few rows the estimated relative gain that is left; None where not computed) and
        duality_gap (certified; None where not computed).
    classes_ : ndarray
        The labels, if y held class labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points in pairs and d features, the kernel matrix costs O(n² d) for the named kernels,
    its eigenvectors O(n³), an iteration O(n²) for each of a few rows, and each of a few bounds
    O(n³). Memory is O(n²).
    A new point costs O(n d). Kernel values are always float64; float32 input gives float32 output.
    `fit` refuses sparse input.

    References
    ----------
    Xing, Ng, Jordan & Russell, Distance metric learning with application to clustering with
    side-information, NIPS 15 (2002), which maps points by a basis of functions in section 2.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelMMC
    >>> X, y = make_circles(200, noise=0.05, factor=0.5, random_state=0)
    >>> model = KernelMMC(n_pairs=100, random_state=0).fit(X, y)
    >>> model.status_, model.duality_gap_ <= 1e-3
    ('converged', True)
    >>> model.score(X, y) > 0.99
    True
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | None = None,
        *,
        kernel_params: dict[str, Any] | None = None,
        rank: int | float | None = None,
        n_components: int | None = None,
        shrinkage: float | str = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.rank = rank
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> KernelMMC:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Tuples
            Points of shape (n_samples, n_features), pairs (n_pairs, 2, n_features), triplets
            (n_triplets, 3, n_features) of a point, a near and a far one, or `Tuples`. With
            ``kernel="precomputed"`` the kernel matrix of labelled points, or as the points of
            `Tuples`. Tensors are computed on their device, except for the eigenvectors of the
            kernel matrix.
        y : array-like or None, default=None
            Class labels of points; +1 for near and -1 for far pairs; None for triplets.

        Returns
        -------
        KernelMMC
            The fitted estimator.
        """
        if self.kernel == PRECOMPUTED and holds_tuples(X) and not isinstance(X, Tuples):
            raise InvalidInputError(
                "kernel='precomputed' needs to know which rows of the kernel matrix make up a pair;"
                " X holds the rows themselves. Pass Tuples(K, indices), or K and class labels."
            )
        pairs = validated_pairs(self, X, y, self.n_pairs, self.random_state)
        check_limits(self)
        check_shrinkage(self.shrinkage)
        codes = None if pairs.labels is None else pairs.labels.codes
        points = self._expansion(pairs.points, np.unique([pairs.heads, pairs.tails]), codes)
        rank = len(points.span.values)
        rows = AUTO if points.kernel.components is None else AUTO_OF_PAIRS
        self.shrinkage_ = shrinkage_for(self.shrinkage, count_of(pairs), rank, rows)
        if rank == 0:
            return self._store_without_variation(points)

        learned = learned_rows(self.n_components, "learn", rank)
        total = None
        if self.rank is None:
            near = (np.searchsorted(points.rows, end) for end in pairs.near_edges())
            total = float(points.squared_lengths(*near).sum())
        problem = KernelMMCProblem.of(
            pairs,
            points.rows,
            points.coordinates,
            self.shrinkage_,
            points.images,
            points.trace,
            total,
            floored=learned is None,
        )
        start = problem.leading_rows() if problem.grows else problem.start(learned)

        def attributes(iterate: Iterate) -> dict[str, Any]:
            return self._map(points, problem.returned(iterate.point))

        training = Training(self, X, y)
        if problem.grows:
            iterates = _growing_ascent(problem, start, self.tol)
        else:
            iterates = ascend(problem, start, self.tol, fixed_rank=learned is not None)
        solution = training.run(iterates, attributes, start=Iterate(start, np.inf))

        L = solution.iterate.point
        fitted = attributes(solution.iterate)
        self._store(fitted)
        certificate = solution.iterate.certificate
        if solution.status is not Status.CONVERGED or not solution.iterate.certified:
            certificate = fit_clock().in_time(lambda: problem.certify(L))
        objective, gap = None, None
        self.proof_: Proof | None = None
        if certificate is not None:
            objective, gap = certificate.objective, certificate.gap if learned is None else None
            coefficients = to_host(points.attributes(problem.components(L))["dual_coef_"])
            self.proof_ = map_proof([coefficients]) | drawn_pairs(pairs, self.n_pairs)
        status = settled(solution.status, gap, self.tol)
        store_ending(self, status, objective, gap, training.history)
        training.finish(status, fitted)
        return self

    def _store_without_variation(self, points: Expansion) -> KernelMMC:
        """All points are equal in feature space: no map can separate them, so it is zero."""
        warn(
            "all points are equal in feature space, so that no metric can separate them. Check X"
            " and the kernel.",
            DataWarning,
        )
        self._store(self._zero_map(points))
        self.proof_ = None
        store_ending(self, Status.CONVERGED, 0.0, 0.0, [])
        return self


def _growing_ascent(problem: KernelMMCProblem, start: Matrix, tol: float) -> Iterator[Iterate]:
    """Iterates of an ascent in few rows, to which those that a proof finds lacking are added."""

    def remaining(at: RatedFactor, gain: float) -> float:
        return gain / abs(at.value)

    def prove(L: Matrix) -> GrowingProof:
        at = problem.place(L)
        bound = problem.bound(at)
        if bound.gap > tol:
            return GrowingProof(bound.gap, problem.lacking(at), bound)
        certificate = problem.certify(L)
        return GrowingProof(certificate.gap, L[:0], certificate)

    return rank_increasing_descent(
        problem.evaluate, start, remaining, prove, tol, lambda at: {"objective": -at.value}
    )
