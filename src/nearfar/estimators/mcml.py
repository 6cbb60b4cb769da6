"""Maximally collapsing metric learning as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.blocks import Blocks
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._blocks import centre_of
from nearfar.estimators._input import warn_of_no_variation
from nearfar.estimators._shrinkage import AUTO_OF_PAIRS, check_shrinkage, in_inputs, of_points
from nearfar.estimators._soft_neighbors import (
    LabelledPoints,
    as_components,
    check_init,
    check_start,
    expected_gain,
    framed_points,
    named_start,
    open_checkpoint,
    run_descent,
    start_from,
    validated_labelled_points,
)
from nearfar.estimators._start import given_start, learned_rows, principal_rows
from nearfar.estimators._training import (
    Proof,
    Training,
    check_limits,
    map_proof,
    settled,
    store_ending,
    with_callbacks,
)
from nearfar.kernels import Array, single_threaded_blas
from nearfar.limits import fit_clock
from nearfar.problems.mcml import Certificate, CollapsePoint, MCMLProblem
from nearfar.problems.mcml_blocks import MCMLBlocks
from nearfar.solvers import Iterate, Status
from nearfar.solvers.projected_gradient import projected_descent
from nearfar.solvers.quasi_newton import Memory, descend
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]

SOLVERS = ("quasi-newton", "projected-gradient")
INSIDE = 0.5  # share of the tolerance that less pull may cost a bound
MOST_INSIDE = 0.5  # of the pull that is taken away
INSIDE_STEPS = 100  # of the descent with less pull
WORTHWHILE = 3  # times the tolerance: the expected gap at which a certificate is computed


class MCML(MetricLearner):
    """Maximally collapsing metric learning: maps each class to one place, far from the others.

    Every point chooses a neighbour at random, near ones more likely: ``p(j|i) ∝ exp(-D(i, j))``
    with D the squared learned distance. Under the learned metric M = LᵀL this choice is as close as
    possible to a uniform choice among the other points of the class: it minimises
    ``Σ KL[p0(·|i) ‖ p(·|i)]``. ``shrinkage`` puts a price on the trace of M and keeps some of the
    distance of the inputs.

    For a square metric the problem is convex, and ``duality_gap_`` proves how close the answer is
    to the optimum. See ``docs/algorithms/mcml.md`` for the mathematics.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map. None learns the full metric; its map then has as many rows as the metric
        has rank. If the rank of the metric is lower, the last rows are zero.
    reduce : {"learn", "project"}, default="project"
        How to get fewer rows: "project" the full metric on its leading directions, as the paper
        does (with shrinkage, the images on their principal components), or "learn" a rectangular
        map (not convex).
    shrinkage : float or "auto", default="auto"
        From 0 to below 1: how much of the distance of the inputs is kept. With few points for the
        number of features the paper's program (0) fits noise; shrinkage puts a price on the
        trace of the metric and, for a full one, keeps it above a multiple of the identity (see
        ``docs/algorithms/mcml.md``). "auto" is 64d / (64d + n) for n points and d features, and
        keeps a mean of distances: of the inputs, of features at one scale, and of discriminant
        analysis of both, weighted by how well each classifies points that are left out (see
        ``prior_components_``). For a number, bring features to one scale first.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, by which those of their rows are multiplied: "balanced" gives all
        classes the same weight, and classes that a dict does not name have the weight 1.
    init : {"auto", "identity", "pca", "lda"} or array of shape (rows, n_features), default="auto"
        Where to start. It decides the speed for a full metric, and the answer for a learned
        rectangular map. "auto" would be the optimum if differences were Gaussian; the other words
        are scaled to the same length, and an array is used as it is.
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
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    warm_start : bool, default=False
        Start from the map of the last fit.
    checkpoint : path or None, default=None
        File to write the state to, about twice a second, and to continue from if it exists. It is
        removed when the fit has converged.

    Attributes
    ----------
    components_ : ndarray or torch.Tensor of shape (n_components, n_features)
        The map L, its rows sorted by decreasing length.
    shrinkage_ : float
        The shrinkage that was used.
    prior_components_ : ndarray of shape (rows, n_features) or None
        The map W whose distance ``shrinkage="auto"`` keeps: the program is about points W x. None
        for the inputs as they are.
    objective_ : float or None
        The paper's objective with the shrinkage, for weights of mean 1, computed from the data in
        float64; with ``reduce="project"`` that of the full metric.
        None, like the gap, if it could not be computed within twice ``max_seconds``.
    duality_gap_ : float or None
        Proved bound on (objective − optimum) relative to the objective, or to 1 if that is larger;
        None for a learned rectangular map.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the maps, at most two, whose soft
        neighbours are the dual point, and the weights of the rows. Without weights, None for a
        learned rectangular map, and if all points are equal.
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
    data is computed in float32, and then in float64 if float32 finds no further step before the
    tolerance is met. Each class should form one cluster, since it is collapsed to one place. Sparse
    input is refused.

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
        shrinkage: float | str = "auto",
        class_weight: str | dict[Any, float] | None = None,
        init: str | ArrayLike = "auto",
        solver: str = "quasi-newton",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.reduce = reduce
        self.shrinkage = shrinkage
        self.class_weight = class_weight
        self.init = init
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.warm_start = warm_start
        self.checkpoint = checkpoint

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MCML:
        """Learn the metric.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points. Float32 stays float32; tensors are computed on their device, and Dask arrays
            and tables block by block, on the cluster of the current client if there is one.
        y : array-like of shape (n_samples,)
            Class labels: numbers, strings, booleans or categories.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows, of which only ratios matter; a row of weight 0 is dropped. A row
            counts by its weight as a point and as a neighbour of others.

        Returns
        -------
        MCML
            The fitted estimator.
        """
        given_rows = validated_labelled_points(self, X, y, sample_weight, accept_dask=True)
        X, labels = given_rows.X, given_rows.labels
        check_parameters(self, self.n_features_in_)
        check_init(self.init)
        check_choice("solver", self.solver, SOLVERS)
        rows = learned_rows(self.n_components, self.reduce, self.n_features_in_)
        convex = rows is None
        solver = self.solver if convex else "quasi-newton"
        given = given_start(self, rows)

        points, prior = framed_points(self, X, labels, AUTO_OF_PAIRS)
        X, centre = points if isinstance(points, Blocks) else X, centre_of(points)
        kind = MCMLBlocks if isinstance(points, Blocks) else MCMLProblem
        problem = kind.shrunk(
            points, centre, labels.starts, self.shrinkage_, given_rows.masses, floored=convex
        )
        if problem.P.size == 0:
            return self._store_without_variation(X, given_rows, problem, rows)
        if given is None:
            start = named_start(problem, points, labels, str(self.init), rows)
        else:
            start = start_from(self, problem, of_points(given, None, prior))
        if convex:
            start = problem.opened(start)
        elif given is not None:
            check_start(problem, start)

        def descent(L: Matrix, memory: Memory | None) -> Iterator[Iterate]:
            return collapse(problem, L, memory, self.tol, convex, solver)

        def attributes(components: Matrix) -> dict[str, Any]:
            if problem.floor.any() and self.n_components is not None:
                components = principal_rows(components, points)
                components = components if prior is None else components @ prior[0]
            else:
                components = in_inputs(components, None, prior)
            return {"components_": as_components(components, self.n_components, X)}

        settings = [self.n_components, self.reduce, self.shrinkage_, solver, problem.masses]
        checkpoint = open_checkpoint(
            self.checkpoint, points, labels.starts, type(self).__name__, *settings
        )
        training = Training(self, given_rows.X, y, checkpoint=checkpoint)
        solution = run_descent(training, problem, start, descent, attributes)

        L = solution.iterate.point
        fitted = attributes(problem.returned(L))
        self.components_ = fitted["components_"]
        ending = certified_ending(problem, L, solution.status, self.tol, convex)
        self.proof_: Proof | None = given_rows.proof or None
        if ending.dual_factors is not None:
            maps = (problem.dual_map(L) for L in ending.dual_factors)
            maps = (L if prior is None else L @ prior[0] for L in maps)
            self.proof_ = map_proof(maps) | given_rows.proof
        store_ending(
            self,
            ending.status,
            ending.objective,
            ending.gap,
            training.history,
            if_stalled=remedy_of_stalling(self),
            unrounded=solution.iterate.value,
            points=None if isinstance(X, Blocks) else X,
        )
        training.finish(ending.status, fitted)
        return self

    def _store_without_variation(
        self, X: Array, given: LabelledPoints, problem: MCMLProblem, rows: int | None
    ) -> MCML:
        """All points are equal: keep the identity."""
        warn_of_no_variation()
        d = self.n_features_in_
        self.components_ = as_components(np.eye(rows or d, d), self.n_components, X)
        self.proof_ = given.proof or None
        objective = problem.in_double().evaluate(np.zeros((0, 0))).value
        store_ending(self, Status.CONVERGED, objective, 0.0 if rows is None else None, [])
        return self


# -- shared with KernelMCML ------------------------------------------------------------------------


def check_parameters(estimator: Any, n_features: int) -> None:
    """Raise if a parameter is out of range; the map has at most ``n_features`` rows."""
    check_limits(estimator)
    check_shrinkage(estimator.shrinkage)
    if estimator.n_components is not None:
        check_number("n_components", estimator.n_components, Integral, 1, n_features)
    check_choice("reduce", estimator.reduce, ("learn", "project"))


def collapse(
    problem: MCMLProblem,
    start: Matrix,
    memory: Memory | None,
    tol: float,
    convex: bool,
    solver: str = "quasi-newton",
) -> Iterator[Iterate]:
    """Iterates of a descent; those whose gap may meet ``tol`` are certified if it is convex.

    In float32 a descent ends early, because near the optimum a step gains less than the sums of
    float32 resolve, long before the gradient, and with it the certificate, is as good as it can be.
    It then continues in float64.
    """

    def residual(at: CollapsePoint, gain: float = 0.0) -> float | None:
        if not convex:
            return expected_gain(gain, at.value, least=0.0)
        if problem.expected_gap(at) > WORTHWHILE * tol:
            return None
        return problem.certify(at).gap  # in working precision

    if solver == "projected-gradient":
        iterates = projected_descent(problem.evaluate, problem.slope, start, residual)
    else:
        newton = problem.preconditioner
        iterates = descend(problem.evaluate, start, residual, memory=memory, preconditioner=newton)
    for iterate in iterates:
        if convex and iterate.residual is not None and iterate.residual <= tol:
            gap = problem.prove(iterate.point).gap
            iterate = replace(iterate, residual=gap, certified=True)
        yield iterate
    if problem.is_single:
        yield from collapse(problem.in_double(), iterate.point, None, tol, convex, solver)


@dataclass(frozen=True)
class Ending:
    """How a fit ended, for the map that is returned; None where there was no time to compute it."""

    status: Status
    objective: float | None = None
    gap: float | None = None
    dual_factors: tuple[Matrix, ...] | None = None  # whose soft neighbours are the dual point


def certified_ending(
    problem: MCMLProblem, L: Matrix, status: Status, tol: float, convex: bool
) -> Ending:
    """The ending of a run at a factor: objective and gap are computed from the data in float64."""
    clock = fit_clock()
    if not convex:
        return Ending(status, clock.in_time(lambda: problem.objective(problem.returned(L))))
    certificate = clock.in_time(lambda: problem.prove(L))
    if certificate is None:
        return Ending(status)
    if status is Status.STALLED and certificate.gap > tol:
        inside = partial(bounded_from_inside, problem.in_double(), L, certificate, tol)
        certificate = clock.in_time(inside) or certificate
    status = settled(status, certificate.gap, tol)
    return Ending(status, certificate.objective, certificate.gap, certificate.factors)


def bounded_from_inside(
    problem: MCMLProblem, L: Matrix, certificate: Certificate, tol: float
) -> Certificate:
    """The certificate of a factor, with a better bound if a descent with less pull finds one.

    Where the soft neighbours of the factor miss feasibility by rounding errors only, `certify` may
    find none near them that are feasible. The optimum of the problem with a little less pull has
    some, and it is close to this factor.
    """
    size, pull = max(certificate.objective, 1.0), float(np.vdot(L @ problem.P, L))
    share = min(INSIDE * tol * size / max(pull, INSIDE * tol * size), MOST_INSIDE)
    inner = problem.with_less_pull(share)
    for iterate in islice(descend(inner.evaluate, L, lambda _at, _gain: None), INSIDE_STEPS):
        found = problem.certify(problem.evaluate(iterate.point))
        if found.bound > certificate.bound:
            certificate = replace(certificate, bound=found.bound, factors=found.factors)
        if certificate.gap <= tol:
            break
    return certificate


def remedy_of_stalling(estimator: Any) -> str | None:
    """What to do if rounding errors ended the fit; None for what holds for all estimators."""
    if estimator.shrinkage_ > 0:
        return None
    return (
        "Set shrinkage, for example to 0.1: without it the best metric may be infinite, or the"
        " bound too weak to prove that it was found."
    )
