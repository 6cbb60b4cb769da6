"""The programs of MVU: lengths between any pairs, the descent in few columns, and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._graph_layout import Component, Layout, Unfolded
from nearfar.estimators._small_program import (
    COLUMNS,
    ScaledGraph,
    Stair,
    check_staircase_memory,
    principal_axes,
    solve_program,
    with_noise,
)
from nearfar.estimators._training import Proof
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.cliques import has_flat_clique
from nearfar.kernels import Array, gram_kernels_for, kernels_for, to_device_of, to_host
from nearfar.limits import fit_clock
from nearfar.problems.mvu import THICKNESS, Certificate, MVUProgram, State, edge_prices, least_at
from nearfar.problems.mvu_low_rank import Certificate as LowRankCertificate
from nearfar.problems.mvu_low_rank import Evaluation, LowRankProgram
from nearfar.problems.unfolding_bound import Repaired, WholeProgram
from nearfar.problems.unfolding_hessian import Curvature
from nearfar.problems.variational_mvu import VariationalProgram
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.rank_increasing import Proof as RankProof
from nearfar.solvers.staircase import staircase

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

FORMS = "pairs must be row numbers of shape (n_pairs, 2), and distances of shape (n_pairs,) or"
EIGENVECTORS = 15  # smooth functions of the start, the default of `VariationalMVU`
STRETCH = 0.01  # at which it begins: the first changes of squared lengths
ENTRIES = 3e7  # of a factor of the curvature, at most
SHARE = 0.25  # of the memory that it may take
SPARE = 1e-4  # share of the gap: relative variance below which a column is to spare
SHORT = 0.05  # of the mean square: shorter edges are as stiff as one of that length
CONTRADICTION = 1e-3  # change of a length that equal lengths would need, above which none exist
KEPT = 1e-6  # change of a squared length that is none
NAMED = 5  # edges that a message names
FLAT = 0.01  # share of the variance that may be lost without a warning
FAR = 5.0  # times the median length of an edge: longer ones leave the neighbourhood
LOCAL = 0.25  # of the variance: the squared length of edges that are short enough to follow a sheet
HELD = 0.95  # share of the variance along the axes that count as dimensions, where edges are longer
SOLVED = (Status.CONVERGED, Status.STALLED)  # as far as it can be


@dataclass(frozen=True)
class PairLimits:
    """Pairs of rows of X with limits of their squared distances, beside the lengths of the graph.

    As constraints of `nearfar.problems.mvu`, a distance that is given is one that forbids both
    changes; a least and a largest distance are one that forbids shrinking and one that forbids
    growing.
    """

    ends: Index  # (q, 2)
    squares: Matrix  # (q,)
    no_longer: Matrix  # (q,) 1 where growing is forbidden, and 0 elsewhere
    no_shorter: Matrix  # (q,) the same of shrinking

    @classmethod
    def of(cls, pairs: Any, distances: Any, n: int) -> Self:
        """From what ``fit`` is given, for n points."""
        if pairs is None and distances is None:
            return cls(np.empty((0, 2), np.intp), *np.empty((3, 0)))
        ends, low, high = _validated(pairs, distances, n)
        same, finite = low == high, np.isfinite(high)
        parts = [
            (ends[some], limit[some] ** 2, np.full(some.sum(), up), np.full(some.sum(), down))
            for some, limit, up, down in (
                (same, high, 1.0, 1.0),
                (~same & finite, high, 1.0, 0.0),
                (~same & (low > 0), low, 0.0, 1.0),
            )
        ]
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def __len__(self) -> int:
        return len(self.ends)

    def check_nodes(self, layout: Layout) -> None:
        """Raise if a pair is one point, or in different components."""
        distinct, labels = layout.distinct, layout.component_labels
        for what, bad in (
            ("are copies of one point", distinct[self.ends[:, 0]] == distinct[self.ends[:, 1]]),
            ("are in different components", labels[self.ends[:, 0]] != labels[self.ends[:, 1]]),
        ):
            if bad.any():
                i, j = self.ends[bad][0]
                raise InvalidInputError(
                    f"pairs must be different points of one component of the graph; rows {i} and"
                    f" {j} {what} ({bad.sum()} such in all). Leave them out, or set"
                    " on_disconnected='link'.",
                    self.ends[bad],
                )

    def inside(self, component: Component, layout: Layout) -> PairLimits:
        """Those of a component, by its own numbers of nodes."""
        place = np.full(len(layout.first_copies), -1)
        place[component.rows] = np.arange(len(component.rows))
        ends = place[layout.distinct[self.ends]]
        mine = ends[:, 0] >= 0
        arrays = (self.squares, self.no_longer, self.no_shorter)
        return PairLimits(ends[mine], *(array[mine] for array in arrays))


@dataclass(frozen=True)
class Lengths:
    """The constraints of a component: edges of its graph, and after them limits of pairs.

    A pair with a largest distance takes the place of its edge.
    """

    heads: Index
    tails: Index
    squares: Matrix
    prices: tuple[Matrix, Matrix]  # of growing and of shrinking, see `edge_prices`
    n_edges: int  # how many of them are edges of the graph

    @classmethod
    def of(cls, graph: Any, limits: PairLimits, constraints: str, slack_weight: Any) -> Lengths:
        """Of a connected graph, and of limits by its numbers of nodes."""
        prices = edge_prices(constraints, slack_weight, graph.n_edges)
        edges = cls(graph.heads, graph.tails, graph.lengths**2, prices, graph.n_edges)
        return edges.with_limits(limits, graph.n_nodes) if len(limits) else edges

    def with_limits(self, limits: PairLimits, n: int) -> Lengths:
        """These edges, and limits of pairs of n nodes."""
        held = limits.ends[limits.no_longer > 0]
        kept = ~np.isin(codes(self.heads, self.tails, n), codes(held[:, 0], held[:, 1], n))
        forbidden = (np.where(no > 0, np.inf, 0.0) for no in (limits.no_longer, limits.no_shorter))
        up, down = (
            np.concatenate([price[kept], limit])
            for price, limit in zip(self.prices, forbidden, strict=True)
        )
        return replace(
            self,
            heads=np.concatenate([self.heads[kept], limits.ends[:, 0]]),
            tails=np.concatenate([self.tails[kept], limits.ends[:, 1]]),
            squares=np.concatenate([self.squares[kept], limits.squares]),
            prices=(up, down),
            n_edges=int(kept.sum()),
        )


def codes(heads: Index, tails: Index, n: int) -> Index:
    """A number for each pair of n nodes, whatever its order."""
    return np.asarray(np.minimum(heads, tails) * n + np.maximum(heads, tails))


def _validated(pairs: Any, distances: Any, n: int) -> tuple[Index, Matrix, Matrix]:
    """Different pairs (p, 2), and their least and largest distances (p,)."""
    if pairs is None or distances is None:
        raise InvalidInputError(f"{FORMS} (n_pairs, 2); got only one of the two. Pass both.")
    ends, limits = to_host(pairs), to_host(distances)
    if limits.ndim == 1:
        limits = np.stack([limits, limits], axis=1)
    if ends.ndim != 2 or ends.shape[1] != 2 or ends.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{FORMS} (n_pairs, 2); got pairs of {ends.dtype} and shape {ends.shape}. Correct them."
        )
    if limits.shape != ends.shape or limits.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"{FORMS} (n_pairs, 2), the least and the largest; got {limits.dtype} of shape"
            f" {limits.shape} for {len(ends)} pairs. Correct them."
        )
    if len(ends) and not 0 <= ends.min() <= ends.max() < n:
        raise InvalidInputError(
            f"pairs must be row numbers from 0 to {n - 1}; got {ends.min()} to {ends.max()}. Count"
            " rows from 0."
        )
    heads, tails = ends.astype(np.intp).T
    first, place = np.unique(codes(heads, tails, n), return_inverse=True)
    low, high = np.zeros(len(first)), np.full(len(first), np.inf)
    with np.errstate(invalid="ignore"):
        np.maximum.at(low, place, limits[:, 0])  # a pair that is given twice must meet both
        np.minimum.at(high, place, limits[:, 1])
    unique = np.stack(np.divmod(first, n), axis=1)
    bad = ~((low >= 0) & (low <= high) & (high > 0) & ((low > 0) | (high < np.inf)))
    bad |= (low == np.inf) | (unique[:, 0] == unique[:, 1])
    if bad.any():
        i, j = unique[bad][0]
        raise InvalidInputError(
            "the least distance of a pair of different points must not be above the largest, which"
            f" must be above 0, and one of them must limit it; got {low[bad][0]:g} and"
            f" {high[bad][0]:g} for rows {i} and {j} ({bad.sum()} such in all). Correct them.",
            unique[bad],
        )
    return unique, low, high


# -- in few columns --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LowRankAnswer:
    """The solution of a component."""

    component: Component
    limits: PairLimits  # none
    graph: NeighborhoodGraph  # with the lengths of the program
    Y: Matrix  # (n, r) in the units of the data, along axes of decreasing variance
    weights: Matrix  # (m,) y of (3) of `nearfar.problems.mvu`; 0 if nothing was proved
    certificate: LowRankCertificate
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

    def prove(at: Evaluation) -> RankProof:
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
        return RankProof(gap, lacking)

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


# -- the answer: what is stored of it, and what is said of it --------------------------------------


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
    """How many axes are longer than an edge; where edges are long, how many hold the variance.

    Edges that lead far away, as to an outlier or between components, say nothing of a sheet.
    """
    lengths = graph.lengths[graph.lengths <= FAR * np.median(graph.lengths)]
    edge, total = (lengths**2).mean() * graph.n_nodes, spectrum.sum()
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
