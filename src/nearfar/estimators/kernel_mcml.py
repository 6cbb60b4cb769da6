"""Maximally collapsing metric learning in the feature space of a kernel, as a transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.estimators._input import warn_of_no_variation
from nearfar.estimators._kernel import Expansion, KernelMetricLearner
from nearfar.estimators._soft_neighbors import (
    expected_gain,
    open_checkpoint,
    run_descent,
    validated_labelled_points,
)
from nearfar.estimators._start import learned_rows
from nearfar.estimators._training import (
    Proof,
    Training,
    map_proof,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.estimators.mcml import (
    Ending,
    certified_ending,
    check_parameters,
    collapse,
    remedy_of_stalling,
)
from nearfar.kernels import single_threaded_blas, take_rows, to_host
from nearfar.problems.kernel_mcml import KernelMCMLProblem
from nearfar.problems.mcml import CollapsePoint
from nearfar.problems.soft_neighbors import NARROW
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.quasi_newton import Memory
from nearfar.solvers.rank_increasing import Proof as GrowingProof
from nearfar.solvers.rank_increasing import rank_increasing_descent
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]

SPARE_ROWS = 4  # rows of the first factor beyond the number of classes: mostly enough


class KernelMCML(KernelMetricLearner):
    """Maximally collapsing metric learning in the feature space of a kernel.

    Learns ``A = Σ W_lm φ(x_l) φ(x_m)ᵀ`` with W ⪰ 0 over the training points: the metric of `MCML`
    after the map φ of a kernel, which is used through kernel values only. It is the minimum of
    ``Σ KL[p0(·|i) ‖ p(·|i)] + λ · trace(A)``, with λ as ``shrinkage`` says. The problem is convex,
    and ``duality_gap_`` proves how close the answer is to the optimum. With the linear kernel and
    without shrinkage it is `MCML`. See ``docs/algorithms/kernel_mcml.md`` for the mathematics.

    With a kernel matrix of full rank, such as that of an RBF kernel, some metrics map every class
    to one point, whatever the labels are, and without shrinkage there is no optimum. The trace
    keeps the metric small; choose ``shrinkage`` and ``gamma`` by cross-validation.

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
    shrinkage : float or "auto", default="auto"
        From 0 to below 1: how much the trace of the metric in feature space weighs (the paper's
        lambda, here in units of the squared distances within classes). "auto" is d / (d + n) for n
        points and d directions, one half for most RBF kernels. With 0 there is no price on it, as
        in the paper's first program.
    n_components : int or None, default=None
        Rows of the map. None keeps the full metric; its map then has as many rows as the metric
        has rank. If the rank of the metric is lower, the last rows are zero.
    reduce : {"learn", "project"}, default="project"
        How to get fewer rows: "project" the full metric on its leading directions, as the paper
        does, or "learn" a map of so many rows (not convex).
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned map of few rows, the
        estimated relative decrease that is left.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. If more is
        needed, an error is raised before it is allocated.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit has converged.

    Attributes
    ----------
    dual_coef_ : ndarray or torch.Tensor of shape (n_components, n_fit)
        The map: a point x goes to ``dual_coef_ @ k`` with k its kernel values to the rows of
        ``X_fit_``. Rows are orthogonal in feature space, longest first, and sum to zero. Float64.
    X_fit_ : ndarray, torch.Tensor or None, of shape (n_fit, n_features)
        The points that were learned from; None for precomputed kernels.
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
        The paper's objective with the trace, computed in float64; with ``reduce="project"`` that
        of the full metric.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned map of few rows.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: as for `MCML`, with maps given by
        coefficients like ``dual_coef_``.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (an estimate of the gap, or for a
        map of few rows of the relative decrease that is left; None where not computed) and
        duality_gap (certified; None where not computed).
    classes_ : ndarray
        The labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and d features, the kernel matrix costs O(n² d) for the named kernels, its
    eigenvectors O(n³), and an iteration O(n² rank). Memory is O(n²). A new point costs O(n d).
    Kernel values are always float64, since small eigenvalues need the digits; float32 input gives
    float32 output. `fit` refuses sparse input.

    References
    ----------
    Globerson & Roweis, Metric learning by collapsing classes, NIPS 2005, section 4.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelMCML
    >>> X, y = make_circles(200, noise=0.05, factor=0.8, random_state=0)
    >>> model = KernelMCML(n_components=2).fit(X, y)
    >>> model.status_, model.duality_gap_ <= 1e-3
    ('converged', True)
    >>> model.transform(X).shape
    (200, 2)
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | None = None,
        *,
        kernel_params: dict[str, Any] | None = None,
        rank: int | float | None = None,
        shrinkage: float | str = "auto",
        n_components: int | None = None,
        reduce: str = "project",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        checkpoint: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.rank = rank
        self.shrinkage = shrinkage
        self.n_components = n_components
        self.reduce = reduce
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any) -> KernelMCML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points, or with ``kernel="precomputed"`` their kernel matrix. Tensors are computed
            on their device, except for the eigenvectors of the kernel matrix.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.

        Returns
        -------
        KernelMCML
            The fitted estimator.
        """
        given_rows = validated_labelled_points(self, X, y)
        X, labels = given_rows.X, given_rows.labels
        check_parameters(self, len(X))
        points = self._expansion(X, codes=labels.codes)
        E = take_rows(points.coordinates, labels.order)
        rank = E.shape[1]
        auto = rank / (rank + len(X))
        self.shrinkage_ = auto if self.shrinkage == "auto" else float(self.shrinkage)
        if rank == 0:
            return self._store_without_variation(points, labels)

        problem = KernelMCMLProblem.of(
            E,
            labels.starts,
            self.shrinkage_,
            lambda components: take_rows(points.images(components), labels.order),
            points.trace,
        )
        rows = learned_rows(self.n_components, self.reduce, rank)
        convex = rows is None
        few = len(labels.sizes) + SPARE_ROWS
        grows = convex and few < NARROW * len(problem.P)

        def descent(L: Matrix, memory: Memory | None) -> Iterator[Iterate]:
            if grows:
                return _growing_collapse(problem, L, self.tol)
            return collapse(problem, L, memory, self.tol, convex)

        def attributes(components: Matrix) -> dict[str, Any]:
            return self._map(points, components)

        settings = [self.n_components, self.reduce, self.shrinkage_]
        checkpoint = open_checkpoint(
            self.checkpoint, E, labels.starts, type(self).__name__, *settings
        )
        training = Training(self, X, y, checkpoint=checkpoint)
        start = problem.first_guess(few if grows else rows)
        solution = run_descent(training, problem, start, descent, attributes)

        fitted = attributes(problem.returned(solution.iterate.point))
        self._store(fitted)
        ending = _ending(problem, solution, self.tol, convex)
        self.proof_: Proof | None = None
        if ending.dual_factors is not None:
            maps = (points.attributes(problem.components(L)) for L in ending.dual_factors)
            self.proof_ = map_proof(to_host(each["dual_coef_"]) for each in maps)
        store_ending(
            self,
            ending.status,
            ending.objective,
            ending.gap,
            training.history,
            if_stalled=remedy_of_stalling(self),
        )
        training.finish(ending.status, fitted)
        return self

    def _store_without_variation(self, points: Expansion, labels: ClassOrder) -> KernelMCML:
        """All points are equal, so that p(j|i) = 1 / (n − 1) whatever the metric."""
        warn_of_no_variation()
        sizes = labels.sizes[labels.sizes > 1]
        objective = float(np.sum(sizes * np.log((len(labels.codes) - 1) / (sizes - 1))))
        self._store(self._zero_map(points))
        self.proof_ = None
        store_ending(self, Status.CONVERGED, objective, 0.0, [])
        return self


def _growing_collapse(problem: KernelMCMLProblem, start: Matrix, tol: float) -> Iterator[Iterate]:
    """Iterates of a descent in few rows, to which those that a proof finds lacking are added."""

    def remaining(at: CollapsePoint, gain: float) -> float:
        return expected_gain(gain, at.value, least=0.0)

    def prove(L: Matrix) -> GrowingProof:
        at = problem.whole(L)
        certificate = problem.certify(at)
        lacking = L[:0] if certificate.gap <= tol else problem.lacking(at)
        return GrowingProof(certificate.gap, lacking, certificate)

    return rank_increasing_descent(problem.evaluate, start, remaining, prove, tol)


def _ending(problem: KernelMCMLProblem, solution: Solution, tol: float, convex: bool) -> Ending:
    """As `certified_ending`, but a bound of the run holds, since the features are float64."""
    L, proved = solution.iterate.point, solution.iterate.certificate
    if proved is not None and solution.status is Status.CONVERGED:
        objective = problem.objective(problem.returned(L))
        gap = replace(proved, objective=objective).gap
        return Ending(settled(solution.status, gap, tol), objective, gap, proved.factors)
    L = problem.whole(L).L if convex else L
    return certified_ending(problem, L, solution.status, tol, convex)
