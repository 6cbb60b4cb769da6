"""MVU of many points by a descent in few columns: the low-rank solver on a component."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._graph_layout import Component, Unfolded
from nearfar.estimators._pair_limits import PairLimits
from nearfar.estimators._small_program import (
    ScaledGraph,
    principal_axes,
    solve_program,
    with_noise,
)
from nearfar.estimators._staircase import COLUMNS, Stair, check_staircase_memory
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.cliques import has_flat_clique
from nearfar.kernels import Array, gram_kernels_for, to_device_of, to_host
from nearfar.limits import fit_clock
from nearfar.problems.mvu import THICKNESS, edge_prices, least_at
from nearfar.problems.mvu_low_rank import Certificate, Evaluation, LowRankProgram
from nearfar.problems.unfolding_bound import Repaired, WholeProgram
from nearfar.problems.unfolding_hessian import Curvature
from nearfar.problems.variational_mvu import VariationalProgram
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.rank_increasing import Proof
from nearfar.solvers.staircase import staircase

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

EIGENVECTORS = 15  # smooth functions of the start, the default of `VariationalMVU`
STRETCH = 0.01  # at which it begins: the first changes of squared lengths
ENTRIES = 3e7  # of a factor of the curvature, at most
SHARE = 0.25  # of the memory that it may take
SPARE = 1e-4  # share of the gap: relative variance below which a column is to spare
SHORT = 0.05  # of the mean square: shorter edges are as stiff as one of that length


@dataclass(frozen=True)
class LowRankAnswer:
    """The solution of a component."""

    component: Component
    limits: PairLimits  # none
    graph: NeighborhoodGraph  # with the lengths of the program
    Y: Matrix  # (n, r) in the units of the data, along axes of decreasing variance
    weights: Matrix  # (m,) y of (3) of `nearfar.problems.mvu`; 0 if nothing was proved
    certificate: Certificate
    proved: bool
    thickness: float
    status: Status

    @property
    def n_edges(self) -> int:
        """All constraints are edges."""
        return self.graph.n_edges

    @property
    def dual_point(self) -> tuple[Index, Matrix]:
        """Ends (m, 2) of the edges, and y in the units of the data beside δ, (m, 2)."""
        ends = np.stack([self.graph.heads, self.graph.tails], axis=1)
        return ends, np.stack([self.weights, np.full(len(ends), self.thickness)], axis=1)

    @property
    def forces(self) -> Matrix:
        """y / D of all edges."""
        return self.weights / self.graph.lengths**2

    def unfolded(self, n_components: int) -> Unfolded:
        """The places of the nodes, and what every unfolding reports of them."""
        given = self.component.graph.lengths**2
        heads, tails = self.graph.heads, self.graph.tails
        squares = ((self.Y[heads] - self.Y[tails]) ** 2).sum(axis=1)
        return Unfolded(
            embedding=self.Y[:, :n_components],
            eigenvalues=(self.Y * self.Y).sum(axis=0),
            max_distortion=float(np.abs(squares / given - 1).max()),
            objective=self.certificate.objective,
            duality_gap=self.certificate.gap if self.proved else None,
            status=self.status,
            gap_unit=self.certificate.unit,
        )


def solve_low_rank(
    estimator: Any,
    component: Component,
    limits: PairLimits,
    reference: Array,
    run: Callable[..., Solution],
    random: RandomState,
    stair: Stair,
) -> LowRankAnswer:
    """Solve the program of MVU for a component, in as many columns as it needs."""
    graph, thickness = _program_graph(component.graph, estimator.constraints)
    m = graph.n_edges
    check_staircase_memory(graph, reference, "Lower n_neighbors, or use VariationalMVU")
    scaled = ScaledGraph.of(graph, reference, EIGENVECTORS, random)
    prices = edge_prices(estimator.constraints, estimator.slack_weight, m)
    least = float(scaled.spectrum.values[0])
    if np.isfinite(prices[0]).all() and prices[0][0] * least <= 1:
        raise InvalidInputError(
            f"with slack_weight={estimator.slack_weight} the variance grows without bound; on this"
            f" graph it must be above {1 / (1 + least):.6g}. Set it nearer to 1."
        )
    whole = WholeProgram(scaled.edges, graph, scaled.spectrum, scaled.pull(STRETCH))
    smooth = VariationalProgram.build(scaled.edges, scaled.spectrum.vectors, whole.pull)
    with stair.repeating():
        shape = solve_program(smooth, scaled, estimator.n_components, run)
    program = LowRankProgram.of_prices(scaled.edges, 0.5 * whole.pull, prices)
    allowed = to_host(program.lower), to_host(program.upper)
    start, landing, newton = with_noise(shape.wide, random), stair.landing, None
    if estimator.constraints != "shrink":  # whose forces are small: there Lap(w) does better
        newton = _affordable(Curvature.of(graph, scaled.edges.on_host()[1]))
    if newton is not None:
        start, program = principal_axes(start)[0][:, :COLUMNS], program.for_newton()
    if landing is not None:
        start, program = landing.Y, landing.program(program)
    # Feasible forces of the least bound so far.
    best = None if landing is None else landing.feasible
    repaired: Repaired | None = None
    proved: tuple[float, Matrix] = np.inf, start  # the least gap so far, and its points

    def prove(at: Evaluation) -> Proof:
        nonlocal best, repaired, proved
        forces = to_host(at.forces)
        repaired = whole.feasible(forces, random, allowed, repaired, principal_axes(at.Y)[0])
        found = None if repaired is None else repaired.forces
        if found is not None and (best is None or program.bound(found) < program.bound(best)):
            best = found
        gap = np.inf if best is None else program.certificate(to_host(at.Y), best)[1].gap
        lacking, variances = at.Y[:, :0], principal_axes(at.Y)[1]
        # A minimum of F with a column to spare is one for all K.
        spare = newton is not None and variances[-1] <= SPARE * gap * variances.sum()
        if repaired is not None and not spare:
            lacking = to_device_of(at.Y, repaired.directions)
        if gap < proved[0]:
            proved = gap, to_host(at.Y)
        return Proof(gap, lacking)

    def embedding(iterate: Iterate) -> Array:
        Y, _ = principal_axes(iterate.point)
        return scaled.unit * Y[:, : estimator.n_components]

    def save(iterate: Iterate) -> None:
        stair.save(iterate.state, best)

    renewed = None if newton is None else newton.inverse
    iterates = staircase(program, start, scaled.spectrum.inverse, prove, renewed)
    solution = run(iterates, embedding, stage="low rank", save=save)
    save(solution.iterate)
    if best is None:
        fit_clock().in_time(lambda: prove(solution.iterate.state))
    forces = np.zeros(m) if best is None else best
    answers = [
        program.certificate(principal_axes(Y)[0], forces)
        for Y in (solution.iterate.point, proved[1])
    ]
    Y, certificate = min(answers, key=lambda answer: answer[1].gap)
    status = solution.status
    if best is not None and certificate.gap <= estimator.tol:
        status = Status.CONVERGED
    return LowRankAnswer(
        component,
        limits,
        graph,
        scaled.unit * Y,
        forces / program.pull * graph.lengths**2,
        certificate.in_units(scaled.unit**2),
        best is not None,
        thickness,
        status,
    )


def _affordable(curvature: Curvature) -> Curvature | None:
    """The curvature if its factors are small enough, else None."""
    w, entries = curvature.weights, curvature.entries * COLUMNS**2
    fits = 12.0 * entries <= SHARE * gram_kernels_for(w).total_memory(w)
    return curvature if entries <= ENTRIES and fits else None


def _program_graph(graph: NeighborhoodGraph, constraints: str) -> tuple[NeighborhoodGraph, float]:
    """The graph with the lengths of the program and the stiffness of its edges, and δ."""
    squares, thickness = graph.lengths**2, 0.0
    if constraints == "equal" and has_flat_clique(graph.n_nodes, graph.heads, graph.tails, squares):
        least = least_at(graph.heads, graph.tails, squares, graph.n_nodes)
        thickness = THICKNESS
        squares = squares + thickness * (least[graph.heads] + least[graph.tails])
    mean = squares.mean()
    weights = mean / np.maximum(squares, SHORT * mean)
    return replace(graph, lengths=np.sqrt(squares), weights=weights), thickness
