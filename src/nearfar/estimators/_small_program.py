"""Unfolding by a small semidefinite program: its solution, a refinement, and what is proved.

`VariationalMVU` and `LandmarkMVU` differ in the matrix by which all points follow from a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.estimators._graph_layout import (
    ENDED,
    SEVERITY,
    GraphInput,
    Layout,
    Unfolded,
    as_returned,
    max_distortion,
    store_layout,
)
from nearfar.estimators._training import Arrays, Training, store_ending
from nearfar.files import fingerprint
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.fronts import Structure
from nearfar.graphs.spectrum import Spectrum, bottom_spectrum, has_dense_factor
from nearfar.kernels import Array, check_memory, kernels_for, to_device_of, to_host
from nearfar.limits import fit_clock
from nearfar.problems.landmark_mvu import lle_matrix, lle_weights
from nearfar.problems.mvu_low_rank import Evaluation, LowRankProgram
from nearfar.problems.stress import Stress
from nearfar.problems.unfolding_bound import Bound, Repaired, WholeProgram
from nearfar.problems.variational_mvu import Certificate, Edges, VariationalProgram
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.conjugate_gradient import conjugate_gradient
from nearfar.solvers.quadratic_cone import quadratic_cone
from nearfar.solvers.rank_increasing import Proof
from nearfar.solvers.staircase import MEMORY, staircase
from nearfar.validation import check_number

Matrix = NDArray[np.float64]

Run = Callable[..., Solution]  # `run_component` of a component
BASES = ("laplacian", "lle")
CUT_SHORT = (*ENDED, Status.MAX_SECONDS)  # no further stage follows
TENSION = 0.1  # stretch at which folds are pulled flat, before lengths become those asked for
LOOSER = 10.0  # times tol, for the descents that are followed by another
NOISE = 0.05  # of their entries, in units of the mean squared length
FLAT = 1e-3  # variance along an axis, relative to the largest, that is none
NAMES = ("Y", "forces", "stiffness", "feasible")  # of a `Landing`
COLUMNS = 10  # in which the descent begins, at least
FACTOR_ENTRIES = 100  # entries per node of a sparse factor, about
# Parameters that may change between a fit and its continuation; links are part of the graph.
CHANGEABLE = (
    "tol",
    "gap_tol",
    "max_iter",
    "max_seconds",
    "memory_limit",
    "verbose",
    "checkpoint",
    "random_state",
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


def unfolded_by(
    program: VariationalProgram,
    scaled: ScaledGraph,
    estimator: Any,
    run: Run,
    random: RandomState,
    stair: Stair,
) -> Shape:
    """Solve the program, refine its solution if ``estimator.refine``, and bound what is left."""
    with stair.repeating():
        shape = solve_program(program, scaled, estimator.n_components, run)
    if estimator.refine and shape.status not in CUT_SHORT:
        shape = refine(shape, estimator, run, random, stair)
    return with_bound(shape, estimator.stretch, random)


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


def store_programs(estimator: Any, layout: Layout, shapes: list[Shape], training: Training) -> None:
    """Store the layout, what was proved of the programs and of their points, and the ending."""
    store_layout(estimator, layout)
    certificates = [shape.certificate for shape in shapes]
    estimator.program_objective_ = float(sum(found.objective for found in certificates))
    estimator.program_gap_ = max((found.gap for found in certificates), default=0.0)
    gaps = [shape.whole_gap(estimator.stretch) for shape in shapes]
    proved = [gap for gap in gaps if gap is not None]
    estimator.whole_gap_ = max(proved, default=0.0) if len(proved) == len(gaps) else None
    status = layout.status(estimator.tol)
    small = not estimator.refine and estimator.program_gap_ <= estimator.tol
    if status is Status.STALLED and small:  # rounding ended the program
        status = Status.CONVERGED
    store_ending(estimator, status, layout.objective, layout.duality_gap, training.history)
    training.finish(status, layout.attributes())


# -- the descent in many columns: its memory, and its checkpoint -----------------------------------


def check_staircase_memory(
    graph: NeighborhoodGraph, reference: Array, remedy: str, structure: Structure | None = None
) -> None:
    """Raise if the descent and its proofs need more memory than there may be.

    The ``structure`` is that of a factor in blocks, if it is known.
    """
    n, m = graph.n_nodes, graph.n_edges
    if structure is not None:
        factor = 2 * structure.factor_entries
    else:
        factor = n * n if has_dense_factor(graph.laplacian()) else 2 * FACTOR_ENTRIES * n
    check_memory(
        8.0 * (3 * MEMORY * COLUMNS * n + 30 * m + factor),
        f"low-rank unfolding of {n} points and {m} edges",
        remedy,
        kernels_for(reference).double(reference[:0]),
    )


def open_checkpoint(estimator: Any, given: GraphInput) -> Checkpoint | None:
    """The checkpoint of a fit of this unfolding to this graph; None if there is to be none."""
    if estimator.checkpoint is None:
        return None
    graph, parameters = given.graph, estimator.get_params(deep=False)
    settings = sorted((name, value) for name, value in parameters.items() if name not in CHANGEABLE)
    edges = (graph.heads, graph.tails, graph.lengths, graph.weights)
    return Checkpoint(estimator.checkpoint, fingerprint(*edges, type(estimator).__name__, settings))


@dataclass(frozen=True)
class Landing:
    """A place of the descent from which it continues."""

    Y: Matrix  # (n, r)
    forces: Matrix  # (e,) m, the centre of the next smoothed program
    stiffness: Matrix  # (e,) β
    feasible: Matrix | None  # (e,) forces of the least bound so far

    @classmethod
    def of(cls, at: Evaluation, feasible: Matrix | None) -> Landing:
        """From a place on any device."""
        return cls(to_host(at.Y), to_host(at.forces), to_host(at.stiffness), feasible)

    def program(self, first: LowRankProgram) -> LowRankProgram:
        """The program to continue with; ``first`` is that of the beginning."""
        return first.continued(self.forces, self.stiffness)


class Stairs:
    """The descents of all components of a fit, and its checkpoint."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.arrays: Arrays = {} if training.saved is None else dict(training.saved[0])

    def of(self, number: int) -> Stair:
        """The descent of a component."""
        return Stair(self, number)


@dataclass(frozen=True)
class Stair:
    """The descent of one component, in the checkpoint of a fit."""

    stairs: Stairs
    number: int

    @property
    def landing(self) -> Landing | None:
        """Where an earlier fit was, or None."""
        found = {name: self.stairs.arrays.get(self._key(name)) for name in NAMES}
        return None if found["Y"] is None else Landing(**found)  # type: ignore[arg-type]

    def save(self, at: Evaluation, feasible: Matrix | None) -> None:
        """Write a place with feasible forces to the checkpoint, if there is one."""
        landing = Landing.of(at, feasible)
        for name in NAMES:
            array = getattr(landing, name)
            if array is not None:
                self.stairs.arrays[self._key(name)] = array
        self.stairs.training.save(self.stairs.arrays, {})

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """What is done again before the descent continues: the history has its records already."""
        training, known = self.stairs.training, self.stairs.training.history
        yield
        if self.landing is not None:
            training.history = known

    def _key(self, name: str) -> str:
        return f"{name}_{self.number}"
