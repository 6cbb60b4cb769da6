"""Variational maximum variance unfolding as a scikit-learn transformer.

The thesis' recipe (3.1.8), of which `LandmarkMVU` and `SensorLocalization` use the parts below:

1. smooth functions on the graph, a few bottom eigenvectors;
2. the semidefinite program on these functions gives the shape (`solve_program`);
3. if ``gap_tol`` asks for it, a descent in more dimensions until the best unfolding is proved
   (`unfold_whole`);
4. conjugate gradients on the points themselves, first in as many dimensions as the program has,
   which flattens the shape, and then in those of the embedding, which corrects what the projection
   has done (`refine`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError
from nearfar.estimators._graph_layout import (
    ENDED,
    SEVERITY,
    Component,
    Layout,
    Unfolded,
    as_returned,
    check_graph_parameters,
    graph_input,
    max_distortion,
    run_component,
    store_layout,
)
from nearfar.estimators._staircase import (
    COLUMNS,
    Stair,
    Stairs,
    check_staircase_memory,
    open_checkpoint,
)
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.spectrum import Spectrum, bottom_spectrum
from nearfar.kernels import Array, kernels_for, single_threaded_blas, to_device_of, to_host
from nearfar.limits import fit_clock
from nearfar.problems.landmark_mvu import lle_matrix, lle_weights
from nearfar.problems.mvu_low_rank import Evaluation, LowRankProgram
from nearfar.problems.stress import Stress
from nearfar.problems.unfolding_bound import Bound, Repaired, WholeProgram
from nearfar.problems.variational_mvu import Certificate, Edges, VariationalProgram
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.conjugate_gradient import conjugate_gradient
from nearfar.solvers.quadratic_cone import quadratic_cone
from nearfar.solvers.rank_increasing import Proof
from nearfar.solvers.staircase import staircase
from nearfar.validation import check_choice, check_number

Matrix = NDArray[np.float64]
Run = Callable[..., Solution]  # `run_component` of a component

BASES = ("laplacian", "lle")
CUT_SHORT = (*ENDED, Status.MAX_SECONDS)  # no further stage follows
TENSION = 0.1  # stretch at which folds are pulled flat, before lengths become those asked for
LOOSER = 10.0  # times tol, for the descents that are followed by another
NOISE = 0.05  # of their entries, in units of the mean squared length
FLAT = 1e-3  # variance along an axis, relative to the largest, that is none


class VariationalMVU(Unfolding):
    """Maximum variance unfolding of many points: by smooth functions first, then point by point.

    The Gram matrix of the unfolded points is that of a few smooth functions on the neighbourhood
    graph, K = U Z Uᵀ, so that the semidefinite program in Z is tiny however many points there are.
    It trades the variance of the points against squared changes of squared lengths, and is solved
    to a certified gap. Conjugate gradients then improve the points themselves, in as many
    dimensions as there are functions and, at last, in ``n_components``.

    See ``docs/algorithms/variational_mvu.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding.
    n_neighbors : int, default=5
        Neighbours of each point in the graph.
    angles : bool, default=True
        Whether the distances among the neighbours of a point are kept, too.
    n_eigenvectors : int, default=15
        Number of smooth functions, at least ``n_components``.
    basis : {"laplacian", "lle"}, default="laplacian"
        Which functions are smooth: bottom eigenvectors of the graph's Laplacian, or of the matrix
        of locally linear embedding, which needs points.
    stretch : float, default=0.01
        How much longer squared lengths may become on average for the sake of variance, relative to
        their mean. 0 fits lengths alone.
    refine : bool, default=True
        Whether conjugate gradients follow the semidefinite program.
    gap_tol : float or None, default=None
        If given, a refinement descends in ten dimensions or more, until the certified gap of the
        points there, ``whole_gap_``, is at most this; 1e-3 is a matter of seconds for 2000 points.
    metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
        Whether X holds points, distances or a kernel matrix.
    on_disconnected : {"link", "error", "separate"}, default="link"
        What to do with a graph of several components: link them by edges between near points,
        with a warning that names their sizes; raise an error; or unfold each by itself about the
        origin.
    tol : float, default=1e-4
        Where to stop: the certified relative gap of the program, and for a refinement what its last
        ten steps gained, relative to misfit and variance together.
    max_iter : int, default=500
        Largest number of iterations of each stage.
    max_seconds : float or None, default=None
        Largest time in seconds.
    memory_limit : float or None, default=None
        Gigabytes for the descent of ``gap_tol``, for the graph of a Dask array, and for its rows if
        there is no cluster; None is all memory. What needs more is refused before it is computed.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws the links of ``on_disconnected="link"`` and the start of the eigenvector search.
    checkpoint : path or None, default=None
        File to write the state of the descent that ``gap_tol`` asks for to, about twice a second,
        and to continue from if it exists. It is removed when the fit has converged.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        Positions of the points, along axes of decreasing variance.
    eigenvalues_ : ndarray
        Eigenvalues of the Gram matrix before the projection on ``n_components``, largest first.
        The number of large ones is an estimate of the dimension.
    max_distortion_ : float
        Largest relative change of a squared length before the projection.
    objective_ : float
        ``2 * stretch * λ * trace - Σ weight * change²`` of the embedding, or of the program without
        ``refine``; in units in which the mean squared length is 1.
    duality_gap_ : float or None
        Certified gap of the embedding: how far its objective is at most from that of the best
        points in any number of dimensions, relative as ``program_gap_``. None if there was no time
        or memory for the proof.
    whole_gap_ : float or None
        The same of the points in all their dimensions, before the projection on ``n_components``.
    program_objective_ : float
        Objective of the program.
    program_gap_ : float
        Its certified relative gap.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations of all stages.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (in a refinement the relative gain
        of ten steps, which is no bound), duality_gap (certified, of the program, and of the points
        once ``gap_tol`` was proved; None elsewhere), stage, component; on the way to ``gap_tol``
        also estimated_gap, now and then, which proves nothing.
    graph_ : NeighborhoodGraph
        The graph.
    component_labels_ : ndarray of shape (n_samples,)
        The component of each point.
    X_fit_ : ndarray, torch.Tensor, Dask array or None
        The points, if there are any.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points, e edges and m eigenvectors the program takes O(e m⁴) time once and O(m⁶) an
    iteration, a step of the refinement O((e + f) m), where f is the size of a sparse factor of the
    Laplacian: O(n log n) on a manifold of two dimensions. Memory is O(e + f + n m). Factor, sums
    over edges and descents are where the data is; Lanczos' vectors are on the host.

    References
    ----------
    Weinberger, Metric learning with convex optimization, PhD thesis, University of Pennsylvania,
    2007, section 3.1.8; Weinberger, Sha, Zhu & Saul, Graph Laplacian regularization for large-scale
    semidefinite programming, NIPS 2006.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import VariationalMVU
    >>> X, _ = make_swiss_roll(600, random_state=0)
    >>> unfolding = VariationalMVU(n_neighbors=6).fit(X)
    >>> unfolding.embedding_.shape, unfolding.program_gap_ <= 1e-4
    ((600, 2), True)
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = 5,
        *,
        angles: bool = True,
        n_eigenvectors: int = 15,
        basis: str = "laplacian",
        stretch: float = 0.01,
        refine: bool = True,
        gap_tol: float | None = None,
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-4,
        max_iter: int = 500,
        max_seconds: float | None = None,
        memory_limit: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.n_eigenvectors = n_eigenvectors
        self.basis = basis
        self.stretch = stretch
        self.refine = refine
        self.gap_tol = gap_tol
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.random_state = random_state
        self.checkpoint = checkpoint

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Unfold the points.

        Parameters
        ----------
        X : array-like, torch.Tensor, Dask array or table, sparse array or NeighborhoodGraph
            Points (n_samples, n_features), or a graph, which then takes the place of
            ``n_neighbors``, ``angles`` and ``metric``. The rows of a Dask array stay where they
            are; their graph comes to this machine, which unfolds it. With
            ``metric="precomputed"`` distances (n_samples, n_samples), dense with NaN or infinity
            where one is not known, or sparse with the known ones stored; with ``metric="kernel"`` a
            kernel matrix.
        y : None
            Not used.

        Returns
        -------
        VariationalMVU
            The fitted estimator.
        """
        self._check_parameters()
        given = graph_input(self, X, blocks=True)
        checkpoint = open_checkpoint(self, given)
        training = Training(self, X, y, checkpoint=checkpoint, bounded=False)
        stairs = Stairs(training)
        layout = Layout(given, self.n_components)
        random = check_random_state(self.random_state)
        shapes: list[Shape] = []
        for component in map(Component.in_near_order, layout.components()):
            run = partial(run_component, training, layout, component)
            count = self.n_eigenvectors if self.basis == "laplacian" else 1
            scaled = ScaledGraph.of(component.graph, given.reference, count, random)
            functions = scaled.spectrum.vectors
            if self.basis == "lle":
                Phi = lle_matrix_of(component.graph, type(self).__name__)
                functions = lle_functions(Phi, self.n_eigenvectors, random)
            program = VariationalProgram.build(scaled.edges, functions, scaled.pull(self.stretch))
            stair = stairs.of(component.number)
            with stair.repeating():
                shape = solve_program(program, scaled, self.n_components, run)
            if self.refine and shape.status not in CUT_SHORT:
                shape = refine(shape, self, run, random, stair)
            shape = with_bound(shape, self.stretch, random)
            layout.place(component, shape.unfolded(self.n_components, given.reference))
            shapes.append(shape)
        store_layout(self, layout)
        store_shapes(self, shapes)
        status, gap = program_status(self, layout), layout.duality_gap
        store_ending(self, status, layout.objective, gap, training.history)
        training.finish(status, layout.attributes())
        return self

    def _check_parameters(self) -> None:
        check_graph_parameters(self)
        check_limits(self)
        check_stretch(self)
        check_choice("basis", self.basis, BASES)
        check_number("n_eigenvectors", self.n_eigenvectors, Integral, 1, None)
        if self.n_eigenvectors < self.n_components:
            raise InvalidInputError(
                f"n_eigenvectors must be at least n_components={self.n_components}; got"
                f" {self.n_eigenvectors}. Raise n_eigenvectors: the program has no more dimensions"
                " than functions."
            )


def check_stretch(estimator: Any) -> None:
    """Validate ``stretch``, ``refine``, ``gap_tol`` and ``checkpoint``."""
    check_number("stretch", estimator.stretch, Real, 0, None)
    if not isinstance(estimator.refine, bool | np.bool_):
        raise InvalidInputError(f"refine must be True or False; got {estimator.refine!r}.")
    if estimator.gap_tol is not None:
        check_number("gap_tol", estimator.gap_tol, Real, 0, None)
        if not (estimator.refine and estimator.stretch > 0):
            raise InvalidInputError(
                "gap_tol is the goal of a refinement that maximises the variance; it needs"
                f" refine=True and stretch above 0, got refine={estimator.refine!r} and"
                f" stretch={estimator.stretch!r}. Change them, or set gap_tol=None."
            )
    elif estimator.checkpoint is not None:
        raise InvalidInputError(
            "a checkpoint holds the descent towards gap_tol; got checkpoint="
            f"{str(estimator.checkpoint)!r} and gap_tol=None. Set gap_tol, or checkpoint=None."
        )


# -- smooth functions ------------------------------------------------------------------------


@dataclass(frozen=True)
class ScaledGraph:
    """A graph in units of its mean squared length, and the bottom of its Laplacian."""

    graph: NeighborhoodGraph
    edges: Edges
    unit: float  # of length
    spectrum: Spectrum

    @classmethod
    def of(
        cls, graph: NeighborhoodGraph, reference: Array, n_eigenvectors: int, random: RandomState
    ) -> ScaledGraph:
        """The edges are on the device of the reference, in float64."""
        edges, unit = Edges.build(
            graph.n_nodes, graph.heads, graph.tails, graph.lengths, graph.weights, reference
        )
        laplacian = graph.laplacian(edges.on_host()[1])
        count = min(n_eigenvectors, graph.n_nodes - 1)
        return cls(graph, edges, unit, bottom_spectrum(laplacian, count, random, edges.squares[:0]))

    def pull(self, stretch: float) -> float:
        """2ρλ of the program, the weight of the variance."""
        return 2 * float(stretch) * float(self.spectrum.values[0])


def lle_matrix_of(graph: NeighborhoodGraph, name: str) -> Any:
    """The matrix of locally linear embedding, for the estimator of this name."""
    if graph.points is None:
        raise InvalidInputError(
            f"{name} with basis='lle' reconstructs points from their neighbours, but got only"
            " distances. Set basis='laplacian'."
        )
    return lle_matrix(lle_weights(graph))


def lle_functions(Phi: Any, count: int, random: RandomState) -> Matrix:
    """Bottom eigenvectors (n, count) of the matrix of locally linear embedding."""
    return bottom_spectrum(Phi, min(count, Phi.shape[0] - 1), random, by_products=False).vectors


# -- program and refinement ------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Points in the unit of a graph: the solution of the program, or its refinement."""

    scaled: ScaledGraph
    wide: Matrix  # (n, m), in all dimensions of the program
    Y: Matrix  # (n, r), of which the first n_components columns are the embedding
    status: Status
    certificate: Certificate  # of the program
    refined: Stress | None = None  # what a refinement minimised
    bound: Bound | None = None  # on the objective of all points

    def unfolded(self, n_components: int, reference: Array) -> Unfolded:
        """The places of the nodes as they are returned, their objective and its gap."""
        unit, refined, bound = self.scaled.unit, self.refined, self.bound
        Y = as_returned(unit * self.Y[:, :n_components], reference)
        objective = self.certificate.objective
        if refined is not None:
            objective = -refined.place(Y / unit).value
        return Unfolded(
            embedding=Y,
            eigenvalues=unit**2 * principal_axes(self.wide)[1],
            max_distortion=max_distortion(unit * self.wide, self.scaled.graph),
            objective=objective,
            duality_gap=None if bound is None else bound.gap(objective),
            status=self.status,
            gap_unit=self.certificate.reached if bound is None else bound.reached,
        )

    def whole_gap(self, stretch: float) -> float | None:
        """The gap of the points in all dimensions."""
        if self.bound is None:
            return None
        stress = Stress(self.scaled.edges, self.scaled.pull(stretch))
        return self.bound.gap(-stress.place(self.wide).value)


def solve_program(
    program: VariationalProgram, scaled: ScaledGraph, n_components: int, run: Run
) -> Shape:
    """Solve the semidefinite program on smooth functions."""

    def embedding(iterate: Iterate) -> Array:
        return scaled.unit * program.embedding(iterate.point)[:, :n_components]

    solution = run(quadratic_cone(program), embedding, stage="program")
    Z = solution.iterate.point
    Y = kernels_for(scaled.edges.squares).to_host(program.embedding(Z))
    return Shape(scaled, Y, Y, solution.status, program.exact_certificate(Z))


def refine(shape: Shape, estimator: Any, run: Run, random: RandomState, stair: Stair) -> Shape:
    """Descend from the solution of the program on the points themselves.

    In all dimensions of the program first: at a higher tension than asked for, which pulls folds
    flat, and then at that asked for; at last in ``n_components``.
    """
    stretch, n_components, tol = estimator.stretch, estimator.n_components, estimator.tol
    scaled, wide = shape.scaled, shape.wide[:, : n_wide_axes(shape.wide, n_components)]
    final = Stress(scaled.edges, scaled.pull(stretch))
    problems = (
        [final] if stretch >= TENSION else [Stress(scaled.edges, scaled.pull(TENSION)), final]
    )
    shape = replace(shape, refined=final)
    if estimator.gap_tol is not None:
        shape = unfold_whole(replace(shape, wide=wide), estimator, run, random, stair)
        problems, wide = [], shape.wide
        if shape.status in CUT_SHORT:
            return shape
    for problem in problems if shape.wide.shape[1] > n_components else []:
        solution = descend(problem, wide, scaled, n_components, run, tol=LOOSER * tol, stage="wide")
        wide = principal_axes(solution.iterate.point)[0]
        if solution.status in CUT_SHORT:
            return replace(shape, wide=wide, Y=wide, status=solution.status)
    start = wide[:, :n_components]
    solution = descend(final, start, scaled, n_components, run, tol=tol, stage="final")
    Y = principal_axes(solution.iterate.point)[0]
    status = solution.status
    if estimator.gap_tol is not None:
        status = max(shape.status, status, key=SEVERITY.index)
    return replace(shape, wide=wide, Y=Y, status=status)


def unfold_whole(
    shape: Shape, estimator: Any, run: Run, random: RandomState, stair: Stair
) -> Shape:
    """Descend in as many dimensions as needed until the gap over all points is ``gap_tol``."""
    scaled, n_components = shape.scaled, int(estimator.n_components)
    check_staircase_memory(
        scaled.graph,
        scaled.edges.squares,
        "Set gap_tol=None, lower n_neighbors",
        scaled.spectrum.structure,
    )
    whole = WholeProgram(
        scaled.edges, scaled.graph, scaled.spectrum, scaled.pull(estimator.stretch)
    )
    landing = stair.landing
    feasible = None if landing is None else landing.feasible  # forces of the least bound so far
    best = None if feasible is None else whole.bound_by(feasible)
    repaired: Repaired | None = None

    def prove(at: Evaluation) -> Proof:
        nonlocal best, feasible, repaired
        m, objective = to_host(at.forces), -2 * at.value
        goal = Bound.goal(scaled.edges, objective, estimator.gap_tol)
        repaired = whole.feasible(m, random, previous=repaired, goal=goal)
        if repaired is None:
            return Proof(np.inf, at.Y[:, :0])
        bound, lacking = whole.bound_of(repaired), to_device_of(at.Y, repaired.directions)
        if bound is None:
            return Proof(whole.estimate(m, repaired).gap(objective), lacking, certified=False)
        if best is None or bound.value < best.value:
            best, feasible = bound, repaired.forces
        return Proof(best.gap(objective), lacking)

    def embedding(iterate: Iterate) -> Array:
        return scaled.unit * principal_axes(iterate.point)[0][:, :n_components]

    program = LowRankProgram.of_squares(scaled.edges, 0.5 * whole.pull)

    def save(iterate: Iterate) -> None:
        stair.save(iterate.state, feasible)

    start = with_noise(shape.wide, random) if landing is None else landing.Y
    iterates = staircase(program, start, scaled.spectrum.inverse, prove)
    solution = run(iterates, embedding, tol=estimator.gap_tol, stage="whole", save=save)
    save(solution.iterate)
    Y = principal_axes(solution.iterate.point)[0]
    return replace(shape, wide=Y, Y=Y, status=solution.status, bound=best)


def with_noise(Y: Matrix, random: RandomState) -> Matrix:
    """Points of at least COLUMNS columns that all differ from zero."""
    start = np.zeros((len(Y), max(COLUMNS, Y.shape[1])))
    start[:, : Y.shape[1]] = Y
    start += NOISE * random.normal(size=start.shape)
    return np.asarray(start - start.mean(axis=0))


def descend(
    problem: Stress,
    Y: Matrix,
    scaled: ScaledGraph,
    n_components: int,
    run: Run,
    *,
    tol: float,
    stage: str,
) -> Solution:
    """Conjugate gradients from Y, preconditioned by the Laplacian.

    Callbacks see the points in the unit of the data, along their principal axes unless some are
    fixed.
    """
    unit, free = scaled.unit, problem.free
    if free is not None:
        free = to_device_of(scaled.edges.squares, free)
        problem = replace(problem, free=free)

    def precondition(gradient: Array) -> Array:
        image = scaled.spectrum.inverse(gradient)
        return image if free is None else free * image

    def embedding(iterate: Iterate) -> Matrix:
        Y = principal_axes(iterate.point)[0] if free is None else to_host(iterate.point)
        return unit * Y[:, :n_components]

    iterates = conjugate_gradient(problem, Y, precondition)
    solution = run(iterates, embedding, tol=tol, stage=stage)
    on_host = replace(solution.iterate, point=to_host(solution.iterate.point))
    return replace(solution, iterate=on_host)


def principal_axes(Y: Array) -> tuple[Matrix, Matrix]:
    """Points about their mean, turned to axes of decreasing variance, and n times the variances.

    Both are on the host.
    """
    Y = to_host(Y)
    centred = Y - Y.mean(axis=0)
    values, axes = linalg.eigh(centred.T @ centred)
    return centred @ axes[:, ::-1], np.maximum(values[::-1], 0.0)


def n_wide_axes(Y: Matrix, n_components: int) -> int:
    """Along how many axes points have variance; at least one more than ``n_components``."""
    variances = (Y * Y).sum(axis=0)
    return max(int((variances > FLAT * variances[0]).sum()), n_components + 1)


def with_bound(shape: Shape, stretch: float, random: RandomState) -> Shape:
    """The shape with a bound on all Gram matrices, unless time or memory do not suffice."""
    if shape.bound is not None:
        return shape
    scaled = shape.scaled
    program = WholeProgram(scaled.edges, scaled.graph, scaled.spectrum, scaled.pull(stretch))
    return replace(shape, bound=fit_clock().in_time(lambda: program.bound(shape.wide, random)))


def program_status(estimator: Any, layout: Layout) -> Status:
    """How the fit ended; a program that rounding ended has converged if its gap is small."""
    status = layout.status(estimator.tol)
    if (
        status is Status.STALLED
        and not estimator.refine
        and estimator.program_gap_ <= estimator.tol
    ):
        return Status.CONVERGED
    return status


def store_shapes(estimator: Any, shapes: list[Shape]) -> None:
    """Store what was proved of the programs of all components, and of their points."""
    certificates = [shape.certificate for shape in shapes]
    estimator.program_objective_ = float(sum(found.objective for found in certificates))
    estimator.program_gap_ = max((found.gap for found in certificates), default=0.0)
    gaps = [shape.whole_gap(estimator.stretch) for shape in shapes]
    proved = [gap for gap in gaps if gap is not None]
    estimator.whole_gap_ = max(proved, default=0.0) if len(proved) == len(gaps) else None
