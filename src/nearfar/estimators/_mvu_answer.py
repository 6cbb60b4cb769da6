"""The solution of the program of MVU: what is stored of it, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._graph_layout import Component, Layout, Unfolded
from nearfar.estimators._mvu_low_rank import LowRankAnswer
from nearfar.estimators._pair_limits import PairLimits, codes
from nearfar.estimators._proofs import Proof
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import Array, gram_kernels_for, kernels_for
from nearfar.problems.mvu import Certificate, MVUProgram, State
from nearfar.solvers import Status

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

CONTRADICTION = 1e-3  # change of a length that equal lengths would need, above which none exist
KEPT = 1e-6  # change of a squared length that is none
NAMED = 5  # edges that a message names
FLAT = 0.01  # share of the variance that may be lost without a warning
LOCAL = 0.25  # of the variance: the squared length of edges that are short enough to follow a sheet
HELD = 0.95  # share of the variance along the axes that count as dimensions, where edges are longer
SOLVED = (Status.CONVERGED, Status.STALLED)  # as far as it can be


@dataclass(frozen=True)
class Answer:
    """The solution of the program of a component."""

    component: Component
    limits: PairLimits  # the last constraints of the program
    program: MVUProgram  # the one that was solved last, see `iterates_of`
    state: State
    K: Array  # (n, n), in the units of the data
    eigenvalues: Matrix  # of K, largest first
    columns: Array  # (n, n) its eigenvectors, scaled by the roots of their eigenvalues
    certificate: Certificate
    status: Status

    @property
    def thickness(self) -> float:
        """δ of the program."""
        return self.program.thickness

    @property
    def dual_point(self) -> tuple[Index, Matrix]:
        """Ends (m, 2) of the constraints, and y in the units of the data beside δ, (m, 2)."""
        return self.program.dual_point(self.state)

    @property
    def forces(self) -> Matrix:
        """y / D of all constraints."""
        forces: Matrix = kernels_for(self.state.y).to_host(self.state.y / self.program.squares)
        return forces

    @property
    def n_edges(self) -> int:
        """How many constraints of the program are edges of the graph."""
        return len(self.program.squares) - len(self.limits)

    def unfolded(self, n_components: int) -> Unfolded:
        """The places of the nodes, and what every unfolding reports of them."""
        program, state = self.program, self.state
        return Unfolded(
            embedding=self.columns[:, :n_components],
            eigenvalues=np.maximum(self.eigenvalues, 0.0),
            max_distortion=float(abs(program.changes(state.K))[: self.n_edges].max()),
            objective=self.certificate.objective,
            duality_gap=self.certificate.gap,
            status=self.status,
            gap_unit=max(program.mean_square, abs(program.bound(state))),
        )


def scaled_eigenvectors(K: Array, count: int) -> tuple[Matrix, Array]:
    """The largest eigenvalues of K, on the host, and its vectors scaled by their roots."""
    values, vectors = gram_kernels_for(K).eigh(K)
    values, vectors = values[-count:], vectors[:, -count:]
    columns = vectors * values.clip(0, None) ** 0.5
    order = kernels_for(K).index(np.arange(len(values))[::-1].copy(), K)
    return kernels_for(K).to_host(values[order]), columns[:, order]


def joint_proof(answers: list[Answer | LowRankAnswer], layout: Layout) -> Proof:
    """The dual points of all components, by the rows of X."""
    no_pairs: Any = np.empty((0, 2), dtype=np.int32)
    no_rows = np.empty((0, 5))
    edges, weights, pairs, limits = [no_pairs], [no_rows[:, :2]], [no_pairs], [no_rows]
    for answer in answers:
        ends, values = answer.dual_point
        ends = layout.first_copies[answer.component.rows[ends]].astype(np.int32)
        m, held = answer.n_edges, answer.limits
        edges.append(ends[:m])
        weights.append(values[:m])
        pairs.append(ends[m:])
        limits.append(np.column_stack([held.squares, held.no_longer, held.no_shorter, values[m:]]))
    proof: Proof = {"edges": np.concatenate(edges), "weights": np.concatenate(weights)}
    if sum(map(len, pairs)):
        proof |= {"pairs": np.concatenate(pairs), "limits": np.concatenate(limits)}
    return proof


def joint_factor(answers: list[Answer | LowRankAnswer], layout: Layout) -> Matrix:
    """Y (n, r) with K = YYᵀ of all components; a component with a matrix K has its columns."""
    factors = [
        answer.Y
        if isinstance(answer, LowRankAnswer)
        else kernels_for(answer.columns).to_host(answer.columns)
        for answer in answers
    ]
    width = max(factor.shape[1] for factor in factors)
    whole = np.zeros((len(layout.first_copies), width))
    for answer, factor in zip(answers, factors, strict=True):
        whole[answer.component.rows, : factor.shape[1]] = factor
    return whole[layout.distinct]


def joint_forces(answers: list[Answer | LowRankAnswer], layout: Layout) -> Matrix:
    """y / D of the edges of the graph; of those that copies of points share, on the first."""
    graph, distinct, n = layout.graph, layout.distinct, len(layout.first_copies)
    code, first = np.unique(
        codes(distinct[graph.heads], distinct[graph.tails], n), return_index=True
    )
    forces = np.zeros(graph.n_edges)
    for answer in answers:
        heads, tails = answer.component.rows[answer.dual_point[0]].T
        own = codes(heads, tails, n)
        there = np.isin(own, code)
        np.add.at(forces, first[np.searchsorted(code, own[there])], answer.forces[there])
    return forces


# -- what cannot be kept ---------------------------------------------------------------------


def refuse_contradictions(program: MVUProgram, state: State, graph: NeighborhoodGraph) -> None:
    """Raise if no points have these lengths: some forbidden change remains at any price."""
    to_host = kernels_for(state.y).to_host
    changes = to_host(program.forbidden(program.lengths(state.K) - 1))
    if np.abs(changes).max() <= CONTRADICTION:
        return
    worst = np.argsort(-np.abs(changes))
    worst = worst[np.abs(changes[worst]) > CONTRADICTION]
    if (program.rounding(state)[worst] > CONTRADICTION).any():
        raise too_different(graph)
    heads, tails = to_host(program.heads), to_host(program.tails)
    edges = ", ".join(
        f"{heads[e]}-{tails[e]} ({(1 + changes[e]) ** 0.5 - 1:+.1%})" for e in worst[:NAMED]
    )
    raise InvalidInputError(
        f"no points have these distances: {len(worst)} of {len(changes)} edges would have to"
        f" change, most of all {edges}. Set constraints='slack' or 'shrink', or correct them.",
        np.unique([heads[worst], tails[worst]]),
    )


def warn_of_changes(answers: list[Answer], tol: float) -> None:
    """Warn of lengths that should have been kept and were not, and name the likely cause."""
    violations = [answer.program.violation(answer.state) for answer in answers]
    violation = max(violations, default=0.0)
    if violation <= max(tol, KEPT):
        return
    worst = answers[violations.index(violation)]
    cause = "the graph is too stiff, or they contradict each other. Lower n_neighbors"
    if worst.program.rounding(worst.state).max() >= violation:
        cause = "they are so different that rounding changes the short ones. Leave out outliers"
    warn(
        f"squared lengths could be kept only to {violation:.0e} of themselves: {cause}, or set"
        " constraints='slack'.",
        DataWarning,
    )


def too_different(graph: NeighborhoodGraph) -> InvalidInputError:
    """An error that names the shortest and the longest edge."""
    short, long = int(graph.lengths.argmin()), int(graph.lengths.argmax())
    (i, j), (k, m) = ((int(graph.heads[e]), int(graph.tails[e])) for e in (short, long))
    return InvalidInputError(
        "lengths must not be so different that rounding a matrix of inner products changes the"
        f" short ones; edge {i}-{j} is {graph.lengths[short]:.2g} long and edge {k}-{m}"
        f" {graph.lengths[long]:.2g}. Leave out outliers, make points equal that are nearly so, or"
        " set constraints='slack'.",
        [i, j, k, m],
    )


def dimension(spectrum: Matrix, graph: NeighborhoodGraph) -> int:
    """How many axes are longer than an edge; where edges are long, how many hold the variance."""
    edge, total = (graph.lengths**2).mean() * graph.n_nodes, spectrum.sum()
    if edge <= LOCAL * total:
        return max(1, int((spectrum >= edge).sum()))
    return 1 + int(np.searchsorted(np.cumsum(spectrum), HELD * total))


def is_locked_up(points: Any, spectrum: Matrix, n_components: int) -> bool:
    """Whether the variance is that of the points, although they are not flat."""
    if points is None:
        return False
    kernels = kernels_for(points)
    X = np.asarray(kernels.to_host(points), dtype=np.float64)
    before = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    lost = before[n_components:].sum() / max(before.sum(), np.finfo(float).tiny)
    return bool(lost > FLAT and spectrum.sum() < (1 + FLAT) * before.sum())
