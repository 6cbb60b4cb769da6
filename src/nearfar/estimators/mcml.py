"""Maximally collapsing metric learning as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.estimators._base import MetricLearner
from nearfar.estimators._callbacks import with_callbacks
from nearfar.estimators._iterative import settled
from nearfar.estimators._large_margin import taken
from nearfar.estimators._parameters import check_choice, check_number
from nearfar.estimators._proofs import Proof, map_proof
from nearfar.estimators._soft_neighbors import (
    SoftNeighborsLearner,
    expected_gain,
    identity_without_variation,
    placed,
)
from nearfar.estimators._start import central_point, without_dead_features
from nearfar.kernels import Array, one_pool
from nearfar.limits import fit_clock
from nearfar.problems.mcml import CollapsePoint, MCMLProblem
from nearfar.solvers import Iterate, Status
from nearfar.solvers.projected_gradient import projected_descent
from nearfar.solvers.quasi_newton import Memory, descend
from nearfar.supervision import ClassOrder

Matrix = NDArray[np.float64]

SOLVERS = ("quasi-newton", "projected-gradient")
WORTHWHILE = 3  # times the tolerance of an expected gap at which a certificate is computed


class MCMLLearner(SoftNeighborsLearner):
    """The collapse of classes on points of any space; a mixin beside a form of metric."""

    n_components: int | None
    reduce: str
    regularization: float

    def _check_collapse(self, n_features: int | None) -> None:
        """Refuse parameters; ``n_features`` limits the rows of the map, if it is known."""
        self._check_limits()
        check_number("regularization", self.regularization, Real, 0, None)
        if self.n_components is not None:
            check_number("n_components", self.n_components, Integral, 1, n_features)
        check_choice("reduce", self.reduce, ("learn", "project"))

    def _learns_rows(self, d: int) -> int | None:
        """The rows of a map that is learned with a fixed rank, or None for the full metric."""
        if self.reduce == "learn" and self.n_components is not None and self.n_components < d:
            return int(self.n_components)
        return None

    def _remedy_of_stalling(self) -> str:
        if self.regularization > 0:
            return super()._remedy_of_stalling()
        return (
            "Set regularization, for example to 0.01: without it the best metric may be infinite,"
            " or the bound too weak to prove that it was found."
        )

    def _iterates(
        self,
        problem: MCMLProblem,
        start: Matrix,
        memory: Memory | None,
        solver: str,
        convex: bool,
    ) -> Iterator[Iterate]:
        """Iterates of a descent, which goes on in float64 where float32 sees no further step.

        Near the optimum a step gains less than the sums of float32 resolve, long before the
        certificate, to which the gradient matters, is as good as it can be.
        """

        def residual(at: CollapsePoint, gain: float = 0.0) -> float | None:
            if not convex:
                return expected_gain(gain, at.value, least=0.0)
            if problem.expected_gap(at) > WORTHWHILE * self.tol:
                return None
            return problem.certify(at).gap  # in working precision

        if solver == "projected-gradient":
            iterates = projected_descent(problem.evaluate, problem.slope, start, residual)
        else:
            iterates = descend(problem.evaluate, start, residual, memory=memory)
        for iterate in iterates:
            small = iterate.residual is not None and iterate.residual <= self.tol
            if convex and small:
                gap = problem.prove(iterate.point).gap
                iterate = replace(iterate, residual=gap, certified=True)
            yield iterate
        if problem.is_single:
            yield from self._iterates(problem.in_double(), iterate.point, None, solver, convex)

    def _finished(
        self,
        problem: MCMLProblem,
        L: Matrix,
        status: Status,
        convex: bool,
        mapped: Callable[[Matrix], Matrix],
    ) -> tuple[Status, float | None, float | None]:
        """Status, objective and gap of the map returned for a factor, if there is time.

        They are computed from the data in float64. Stores the proof, by the maps that ``mapped``
        gives of factors.
        """
        clock = fit_clock()
        self.proof_: Proof | None = None
        if not convex:
            return status, clock.in_time(lambda: problem.objective(problem.returned(L))), None
        certificate = clock.in_time(lambda: problem.prove(L))
        if certificate is None:
            return status, None, None
        status = settled(status, certificate.gap, self.tol)
        self.proof_ = map_proof(map(mapped, certificate.factors))
        return status, certificate.objective, certificate.gap


class MCML(MCMLLearner, MetricLearner):
    """Maximally collapsing metric learning: each class to one place, far from the others.

    Every point chooses a neighbour at random, near ones more likely:
    ``p(j|i) ∝ exp(-D(i, j))`` with D the squared learned distance. The metric is the one under
    which this choice is as near as can be to a uniform one among the others of the point's class:
    the minimum of ``Σ KL[p0(·|i) ‖ p(·|i)] + regularization · trace(M)`` over M = LᵀL.

    For a square metric the problem is convex, and ``duality_gap_`` proves how close the answer is
    to the optimum. See ``docs/algorithms/mcml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. If the metric has less rank than asked for, the last rows are zero.
    reduce : {"learn", "project"}, default="project"
        How to get fewer rows: "project" the full metric on its leading directions, as the paper
        does, or "learn" a rectangular map (not convex).
    regularization : float, default=0.0
        Weight of the trace of the metric (the paper's lambda). It keeps the metric finite where
        classes can be told apart perfectly.
    init : {"auto", "identity", "pca", "lda"} or array of shape (rows, n_features), default="auto"
        Where to start. It decides the speed for a full metric, and the answer for a learned
        rectangular map. "auto" is the optimum in closed form if differences were Gaussian; the
        other words are brought to its scale, an array is taken as it is.
    solver : {"quasi-newton", "projected-gradient"}, default="quasi-newton"
        How the full metric is found: L-BFGS on its factor, or the paper's projected gradient with
        Armijo steps, which is slower. Both reach the same optimum.
    tol : float, default=1e-3
        Certified relative duality gap at which to stop; for a learned rectangular map, the
        estimated relative decrease that is left.
    max_iter : int, default=1000
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    warm_start : bool, default=False
        Start from the map of the last fit.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit has converged.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    objective_ : float or None
        The paper's objective, computed from the data in float64; with ``reduce="project"`` that
        of the full metric.
        None, as the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned rectangular map.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the maps whose soft neighbours
        are the dual point, two at most. None for a learned rectangular map, and where all points
        are equal.
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
    With n points, d features and r rows an iteration costs O(n² (r + d)), or O(n² r) for a learned
    rectangular map. Memory is O(n d) and some blocks of a megabyte: no n × n array is made. Float32
    is computed in float32, and in float64 where that sees no further step before the tolerance.
    Classes should be in one piece, since each is collapsed to one place. Sparse input is refused.

    References
    ----------
    Globerson & Roweis, Metric learning by collapsing classes, NIPS 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import MCML
    >>> X, y = load_iris(return_X_y=True)
    >>> mcml = MCML(n_components=2).fit(X, y)
    >>> mcml.status_, mcml.duality_gap_ <= 1e-3
    ('converged', True)
    >>> mcml.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reduce: str = "project",
        regularization: float = 0.0,
        init: str | ArrayLike = "auto",
        solver: str = "quasi-newton",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.reduce = reduce
        self.regularization = regularization
        self.init = init
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.warm_start = warm_start
        self.checkpoint = checkpoint

    @with_callbacks
    def fit(self, X: Any, y: Any) -> MCML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.

        Returns
        -------
        MCML
            The fitted estimator.
        """
        X, labels = self._validated_with_labels(X, y)
        self._check_collapse(self.n_features_in_)
        self._check_start()
        check_choice("solver", self.solver, SOLVERS)
        with one_pool():
            return self._fit(X, y, labels)

    def _fit(self, X: Array, y: Any, labels: ClassOrder) -> MCML:
        d = self.n_features_in_
        rows = self._learns_rows(d)
        given = self._given_start(rows)
        points = taken(without_dead_features(X), labels.order)
        problem = MCMLProblem.build(
            points, central_point(points), labels.starts, float(self.regularization)
        )

        def attributes(components: Matrix) -> dict[str, Any]:
            return {"components_": placed(components, self.n_components, points)}

        convex = rows is None
        if problem.P.size == 0:
            free = self.regularization == 0  # else the zero map is the only optimum
            identity = identity_without_variation(d, rows)
            self.components_ = placed(free * identity, self.n_components, X)
            self.proof_ = None
            objective = problem.in_double().evaluate(np.zeros((0, 0))).value
            self._store_ending(Status.CONVERGED, objective, 0.0 if convex else None, [])
            return self
        if given is None:
            start = self._named_start(problem, points, labels, rows)
        else:
            start = problem.factor(given) if convex else self._start_from(problem, given)
        if convex:
            start = problem.opened(start)
        solver = self.solver if convex else "quasi-newton"
        solution = self._descended(
            problem,
            points,
            start,
            lambda L, memory: self._iterates(problem, L, memory, solver, convex),
            X,
            y,
            attributes,
            [self.n_components, self.reduce, self.regularization, solver],
        )
        L = solution.iterate.point
        self.components_ = attributes(problem.returned(L))["components_"]
        ending = self._finished(problem, L, solution.status, convex, problem.components)
        self._store_ending(*ending, solution.history)
        return self
