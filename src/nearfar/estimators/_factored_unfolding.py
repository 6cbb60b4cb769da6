"""Unfolding in few unknowns: a small semidefinite program first, then the points themselves.

The thesis' recipe (3.1.8): the program on a basis of smooth functions gives the shape, a descent in
as many dimensions as there are functions flattens it, and one in the dimensions of the embedding
corrects what the projection has done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.errors import InvalidInputError
from nearfar.estimators._unfolding import ENDED, Task, Unfolded, Unfolding, max_distortion
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.ordering import in_near_order
from nearfar.graphs.spectrum import Spectrum, bottom_spectrum
from nearfar.kernels import kernels_for
from nearfar.problems.stress import Stress
from nearfar.problems.variational_mvu import Certificate, Edges, VariationalProgram
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.conjugate_gradient import conjugate_gradient
from nearfar.solvers.quadratic_cone import quadratic_cone
from nearfar.validation import check_number

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

BASES = ("laplacian", "lle")
CUT_SHORT = (*ENDED, Status.MAX_SECONDS)  # no further stage follows
TENSION = 0.1  # stretch at which folds are pulled flat, before lengths become those asked for
LOOSER = 10.0  # times tol, for the descents that are followed by another
ORDERED = 20000  # nodes from which on their order matters to caches
FLAT = 1e-3  # variance along an axis, relative to the largest, that is none


@dataclass(frozen=True)
class Relaxed:
    """A graph in units of its mean squared length, and its unfolding on smooth functions."""

    edges: Edges
    unit: float  # of length
    spectrum: Spectrum
    certificate: Certificate
    Y: Matrix  # (n, m), on the host
    status: Status
    details: dict[str, Any]  # of the functions


def relaxed(
    graph: NeighborhoodGraph,
    task: Task,
    functions: Callable[[Spectrum], tuple[Matrix, dict[str, Any]]],
    count: int,
    stretch: float,
    n_components: int,
) -> Relaxed:
    """Solve the small semidefinite program on what ``functions`` makes of ``count`` eigenvectors.

    These are of the Laplacian; ``functions`` also gives details that are passed on.
    """
    edges, unit = Edges.build(
        graph.n_nodes, graph.heads, graph.tails, graph.lengths, graph.weights, task.reference
    )
    kernels = kernels_for(edges.squares)
    laplacian = graph.laplacian(kernels.to_host(edges.weights))
    spectrum = bottom_spectrum(laplacian, min(count, graph.n_nodes - 1), task.random)
    pull = 2 * stretch * float(spectrum.values[0])
    basis, details = functions(spectrum)
    program = VariationalProgram.build(edges, basis, pull)
    solution = task.run(
        quadratic_cone(program),
        lambda iterate: unit * program.embedding(iterate.point)[:, :n_components],
        stage="program",
    )
    Z = solution.iterate.point
    Y = kernels.to_host(program.embedding(Z))
    certificate = program.exact_certificate(Z)
    return Relaxed(edges, unit, spectrum, certificate, Y, solution.status, details)


def refined(
    problem: Stress,
    Y: Matrix,
    task: Task,
    precondition: Callable[[Matrix], Matrix],
    unit: float,
    n_components: int,
    *,
    tol: float | None = None,
    turn: bool = True,
    stage: str,
) -> Solution:
    """Descend from Y; callbacks see the points in their own unit, turned to their leading axes."""

    def embedding(iterate: Iterate) -> Matrix:
        Y = along_axes(iterate.point)[0] if turn else iterate.point
        return unit * Y[:, :n_components]

    return task.run(
        conjugate_gradient(problem, Y, precondition),
        embedding,
        tol=tol,
        stage=stage,
    )


def along_axes(Y: Matrix) -> tuple[Matrix, Matrix]:
    """Points about their mean, turned to axes of decreasing variance, and n times the variances."""
    centred = Y - Y.mean(axis=0)
    values, axes = linalg.eigh(centred.T @ centred)
    return centred @ axes[:, ::-1], np.maximum(values[::-1], 0.0)


def ordered(part: tuple[Index, NeighborhoodGraph]) -> tuple[Index, NeighborhoodGraph]:
    """The nodes of a component and its graph, neighbours near each other if there are many."""
    rows, graph = part
    if graph.n_nodes < ORDERED:
        return part
    order, graph = in_near_order(graph)
    return rows[order], graph


def n_wide(Y: Matrix, n_components: int) -> int:
    """Along how many axes points have variance; at least one more than are asked for."""
    variances = (Y * Y).sum(axis=0)
    return max(int((variances > FLAT * variances[0]).sum()), n_components + 1)


class FactoredUnfolding(Unfolding):
    """Shared by the unfoldings whose program is on K = U Z Uᵀ with few functions U."""

    stretch: float
    refine: bool
    tol: float

    def _ordered(self, part: tuple[Index, NeighborhoodGraph]) -> tuple[Index, NeighborhoodGraph]:
        return ordered(part)

    def _functions(
        self, graph: NeighborhoodGraph, spectrum: Spectrum, task: Task
    ) -> tuple[Matrix, dict[str, Any]]:
        """A basis (n, m) of smooth functions, and details for `_store_details`."""
        raise NotImplementedError

    def _n_eigenvectors(self) -> int:
        """Of the Laplacian, that `_functions` needs; at least 1."""
        return 1

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("stretch", self.stretch, Real, 0, None)
        if not isinstance(self.refine, bool | np.bool_):
            raise InvalidInputError(f"refine must be True or False; got {self.refine!r}.")

    def _unfold(self, graph: NeighborhoodGraph, task: Task) -> Unfolded:
        found = relaxed(
            graph,
            task,
            lambda spectrum: self._functions(graph, spectrum, task),
            self._n_eigenvectors(),
            float(self.stretch),
            self.n_components,
        )
        if not self.refine or found.status in CUT_SHORT:
            return self._unfolded(graph, found, found.Y, found.Y, found.status, None, task)
        pull = 2 * float(self.stretch) * float(found.spectrum.values[0])
        final = Stress(found.edges, pull)
        wide = found.Y[:, : n_wide(found.Y, self.n_components)]
        for problem in self._wide_problems(found, final):
            solution = self._descent(problem, wide, found, task, "wide", LOOSER)
            wide = along_axes(solution.iterate.point)[0]
            if solution.status in CUT_SHORT:
                return self._unfolded(graph, found, wide, wide, solution.status, final, task)
        solution = self._descent(final, wide[:, : self.n_components], found, task, "final")
        Y = along_axes(solution.iterate.point)[0]
        return self._unfolded(graph, found, wide, Y, solution.status, final, task)

    def _wide_problems(self, found: Relaxed, final: Stress) -> list[Stress]:
        """What is minimised in all dimensions of the program, first under tension."""
        if found.Y.shape[1] <= self.n_components:
            return []
        tense = Stress(found.edges, 2 * TENSION * float(found.spectrum.values[0]))
        return [tense, final] if self.stretch < TENSION else [final]

    def _descent(
        self,
        problem: Stress,
        Y: Matrix,
        found: Relaxed,
        task: Task,
        stage: str,
        looser: float = 1.0,
    ) -> Solution:
        return refined(
            problem,
            Y,
            task,
            found.spectrum.inverse,
            found.unit,
            self.n_components,
            tol=looser * self.tol,
            stage=stage,
        )

    def _unfolded(
        self,
        graph: NeighborhoodGraph,
        found: Relaxed,
        whole: Matrix,
        Y: Matrix,
        status: Status,
        final: Stress | None,
        task: Task,
    ) -> Unfolded:
        """``whole`` is the solution in all dimensions; without ``final`` it is the program's."""
        certificate, unit = found.certificate, found.unit
        Y = task.returned(unit * Y[:, : self.n_components])
        return Unfolded(
            embedding=Y,
            eigenvalues=unit**2 * along_axes(whole)[1],
            max_distortion=max_distortion(unit * whole, graph),
            objective=certificate.objective if final is None else -final.place(Y / unit).value,
            duality_gap=certificate.gap if final is None else None,
            status=status,
            details={"program": certificate, **found.details},
            gap_unit=certificate.reached,
        )

    def _store_details(self, parts: list[tuple[Index, Unfolded]]) -> None:
        programs = [found.details["program"] for _, found in parts if "program" in found.details]
        self.program_objective_ = float(sum(program.objective for program in programs))
        self.program_gap_ = max((program.gap for program in programs), default=0.0)


def check_points(graph: NeighborhoodGraph, name: str) -> None:
    """Refuse a graph without points where these are reconstructed from each other."""
    if graph.points is None:
        raise InvalidInputError(
            f"{name} with basis='lle' reconstructs points from their neighbours, but got only"
            " distances. Set basis='laplacian'."
        )
