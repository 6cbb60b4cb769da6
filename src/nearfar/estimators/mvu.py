"""Maximum variance unfolding as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._graph_layout import (
    Component,
    Layout,
    Unfolded,
    check_graph_parameters,
    graph_input,
    run_component,
    store_layout,
)
from nearfar.estimators._proofs import Proof
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import Array, check_memory, gram_kernels_for, kernels_for, single_threaded_blas
from nearfar.problems.mvu import (
    Certificate,
    IllConditionedError,
    MVUProgram,
    State,
    UnboundedError,
    least_rounding,
)
from nearfar.solvers import Iterate, Status
from nearfar.solvers.interior_point import interior_point
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

CONSTRAINTS = ("equal", "exact", "shrink", "slack")
CONTRADICTION = 1e-3  # change of a length that equal lengths would need, above which none exist
KEPT = 1e-6  # change of a squared length that is none
NAMED = 5  # edges that a message names
FLAT = 0.01  # share of the variance that may be lost without a warning
HELD = 0.95  # share of the variance along the axes that count as dimensions, at least
SOLVED = (Status.CONVERGED, Status.STALLED)  # as far as it can be


class MVU(Unfolding):
    """Maximum variance unfolding: points as far apart as the distances of neighbours allow.

    Finds the Gram matrix K of largest trace, the variance, among those that keep the lengths of all
    edges of a neighbourhood graph: a semidefinite program, solved to a certified gap. Its leading
    eigenvectors are the embedding. See ``docs/algorithms/mvu.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding. The program itself does not depend on it.
    n_neighbors : int, default=5
        Neighbours of each point in the graph. Too few leave it loose, too many lock it up or tie
        layers together. ``choose_n_neighbors`` compares several.
    angles : bool, default=True
        Whether the distances among the neighbours of a point are kept, too.
    constraints : {"equal", "exact", "shrink", "slack"}, default="equal"
        Lengths stay equal, may shrink but not grow ("shrink"), or may change at a price ("slack").
        A graph in which more points are tied to each other than their dimension needs, such as the
        five of ``n_neighbors=4`` in three dimensions, is stiff: unfolding would have to change some
        length, however little. There "equal" gives each point a small dimension of its own, which
        makes lengths up to 1 % longer and lets the graph bend (see ``thickness_``), and "exact"
        does not.
    slack_weight : float, default=0.99
        The thesis' omega between 0 and 1, the weight of the changes of squared lengths against the
        variance; for "slack" only.
    variance : {"max", "min"}, default="max"
        Whether to maximise the variance or, for comparison, to minimise it.
    metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
        Whether X holds points, distances or a kernel matrix.
    on_disconnected : {"link", "error", "separate"}, default="link"
        What to do with a graph of several components: link them by edges between near points,
        with a warning that names their sizes; raise an error; or unfold each by itself about the
        origin.
    tol : float, default=1e-6
        Certified relative gap at which to stop.
    max_iter : int, default=100
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. A problem that
        needs more is refused before any work.
    random_state : int, RandomState instance or None, default=None
        Draws the links of ``on_disconnected="link"``.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        The leading eigenvectors of the solution, scaled by the roots of their eigenvalues.
    eigenvalues_ : ndarray of shape (n_points,)
        Eigenvalues of the solution, largest first, summed over components: as many as the largest
        component has different points.
    intrinsic_dimension_ : int
        The number of axes along which the points of the largest component vary by more than the
        length of an edge (root mean square), or that hold 95 % of the variance if that is more.
    kernel_ : ndarray or torch.Tensor of shape (n_samples, n_samples)
        The solution K, in float64; copies of a point have the same rows, and it is centred over
        different points.
    locked_up_ : bool
        Whether nothing was unfolded: the variance is that of the points themselves. False where
        `fit` saw no points, but distances or a kernel.
    dimacs_ : dict
        The DIMACS error measures of the solution, "err1" to "err6"; of the largest component.
        Changes of lengths that are allowed or paid for are no errors.
    max_distortion_ : float
        Largest relative change of a squared length.
    thickness_ : float
        0, or 0.01 for a stiff graph. The squared length of an edge has then grown by this times the
        squares of the shortest edges at both its ends. These longer lengths were kept, and
        ``duality_gap_`` and ``dimacs_`` refer to them.
    objective_ : float
        The variance, the trace of K over different points; for "slack" less the price of the
        changes, both as in ``trace − omega / (1 − omega) Σ |change|``; negative for
        ``variance="min"``.
    duality_gap_ : float or None
        How far the objective can be from the optimum, relative to the bound by the dual (or to the
        mean squared length if that is larger): its distance from the bound, and what lengths that
        are not quite kept may have gained. At least the largest relative change of a squared length
        that was to be kept. None if an interrupted fit did not reach all components.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the edges with their dual
        weights y, and the thickness with which each was kept.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, bound, violation, mu (mean
        complementary product), duality_gap (certified), residual (the same), component.
    graph_ : NeighborhoodGraph
        The graph.
    component_labels_ : ndarray of shape (n_samples,)
        The component of each point.
    X_fit_ : ndarray, torch.Tensor or None
        The points, if there are any.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and m edges an iteration takes O(m³ + n³) time, and 8 m² + 24 m n + 100 n² bytes
    (16 m² on a GPU); some 15 to 25 iterations are needed, twice as many where the graph turns out
    to be stiff. With 5 neighbours m is about 6 n. Everything is computed in float64, where the data
    is. Points that coincide are unfolded as one.

    References
    ----------
    Weinberger, Metric learning with convex optimization, PhD thesis, University of Pennsylvania,
    2007, chapter 3; Weinberger & Saul, Unsupervised learning of image manifolds by semidefinite
    programming, IJCV 70 (2006).

    Examples
    --------
    >>> from sklearn.datasets import make_s_curve
    >>> from nearfar import MVU
    >>> X, _ = make_s_curve(150, noise=0.05, random_state=0)
    >>> mvu = MVU(constraints="slack", slack_weight=0.999).fit(X)
    >>> mvu.status_, mvu.embedding_.shape
    ('converged', (150, 2))
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = 5,
        *,
        angles: bool = True,
        constraints: str = "equal",
        slack_weight: float = 0.99,
        variance: str = "max",
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-6,
        max_iter: int = 100,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.constraints = constraints
        self.slack_weight = slack_weight
        self.variance = variance
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Unfold the points.

        Parameters
        ----------
        X : array-like, torch.Tensor, sparse array or NeighborhoodGraph
            Points (n_samples, n_features), or a graph, which then takes the place of
            ``n_neighbors``, ``angles`` and ``metric``. With ``metric="precomputed"`` distances
            (n_samples, n_samples), dense with NaN or infinity where one is not known, or sparse
            with the known ones stored; with ``metric="kernel"`` a kernel matrix.
        y : None
            Not used.

        Returns
        -------
        MVU
            The fitted estimator.
        """
        self._check_parameters()
        given = graph_input(self, X)
        training = Training(self, X, y, bounded=False)
        layout = Layout(given, self.n_components)
        answers: list[Answer] = []
        for component in layout.components():
            program = self._program(component.graph, given.reference)
            answer = self._solve(program, component, layout, training)
            layout.place(component, answer.unfolded(self.n_components))
            answers.append(answer)
        store_layout(self, layout)
        self._store_answers(answers, layout)
        status, gap = layout.status(self.tol), layout.duality_gap
        store_ending(self, status, layout.objective, gap, training.history)
        training.finish(status, layout.attributes())
        return self

    # -- validate ----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_graph_parameters(self)
        check_limits(self)
        check_choice("constraints", self.constraints, CONSTRAINTS)
        check_number("slack_weight", self.slack_weight, Real, 0, 1, open_ends=True)
        check_choice("variance", self.variance, ("max", "min"))
        if self.variance == "min" and self.constraints == "shrink":
            raise InvalidInputError(
                "the least variance of lengths that may shrink is zero, with all points in one"
                " place. Set constraints='equal' or variance='max'."
            )

    # -- build the problem -------------------------------------------------------------------

    def _program(self, graph: NeighborhoodGraph, reference: Array) -> MVUProgram:
        """The program of a connected graph, where the reference lives."""
        double = kernels_for(reference).double(reference[:0])
        n, m = graph.n_nodes, graph.n_edges
        check_memory(
            8 * gram_kernels_for(double).SCHUR_COPIES * m**2 + 24 * m * n + 100 * n**2,
            f"exact unfolding of {n} points and {m} edges",
            "Use VariationalMVU or LandmarkMVU, which take memory in proportion to the number of"
            " points, lower n_neighbors",
            double,
        )
        if self.constraints != "slack" and least_rounding(graph.lengths, n) > CONTRADICTION:
            raise _too_different(graph)
        try:
            return MVUProgram.build(
                graph.heads,
                graph.tails,
                graph.lengths**2,
                n,
                double,
                "equal" if self.constraints == "exact" else self.constraints,
                float(self.slack_weight),
                maximise=self.variance == "max",
                may_thicken=self.constraints == "equal",
            )
        except IllConditionedError:
            raise _too_different(graph) from None
        except UnboundedError as error:
            raise InvalidInputError(
                f"with slack_weight={self.slack_weight:g} the variance grows without bound; on this"
                f" graph it must be above {error.least:.6g}. Set it nearer to 1."
            ) from None

    # -- solve -------------------------------------------------------------------------------

    def _solve(
        self, program: MVUProgram, component: Component, layout: Layout, training: Training
    ) -> Answer:
        """Solve the program of a component, and compute the certificate of the solution."""

        def embedding(iterate: Iterate) -> Array:
            program, state = iterate.state
            return scaled_eigenvectors(program.scale * state.K, self.n_components)[1]

        try:
            solution = run_component(training, layout, component, iterates_of(program), embedding)
        except IllConditionedError:
            raise _too_different(component.graph) from None
        program, state = solution.iterate.state
        K, status = program.scale * state.K, solution.status
        eigenvalues, columns = scaled_eigenvectors(K, program.n)
        certificate = program.certificate(state, eigenvalues)
        if status in SOLVED:
            if self.constraints in ("equal", "exact"):
                _refuse_contradictions(program, state, component.graph)
            status = Status.CONVERGED if certificate.gap <= self.tol else Status.STALLED
        return Answer(component, program, state, K, eigenvalues, columns, certificate, status)

    # -- store -------------------------------------------------------------------------------

    def _store_answers(self, answers: list[Answer], layout: Layout) -> None:
        """Store what only MVU has; the first answer is that of the largest component."""
        spectrum = layout.found[0][1].eigenvalues
        graph = answers[0].component.graph if answers else self.graph_
        self.intrinsic_dimension_ = _dimension(spectrum, graph)
        self.dimacs_ = answers[0].certificate.dimacs if answers else {}
        self.thickness_ = max((answer.program.thickness for answer in answers), default=0.0)
        self.locked_up_ = (
            bool(answers)
            and answers[0].status in SOLVED
            and self.variance == "max"
            and _is_locked_up(answers[0].component.graph.points, spectrum, self.n_components)
        )
        if self.locked_up_:
            warn(
                "MVU has locked up: the variance is that of the points themselves, so that nothing"
                " was unfolded. Lower n_neighbors, set angles=False, or constraints='slack'.",
                DataWarning,
            )
        _warn_of_changes([answer for answer in answers if answer.status in SOLVED], self.tol)
        blocks = [(answer.component, answer.K) for answer in answers]
        self.kernel_ = layout.join_matrices(blocks)
        self.proof_ = _joint_proof(answers, layout)


@dataclass(frozen=True)
class Answer:
    """The solution of the program of a component."""

    component: Component
    program: MVUProgram  # the one that was solved last, see `iterates_of`
    state: State
    K: Array  # (n, n), in the units of the data
    eigenvalues: Matrix  # of K, largest first
    columns: Array  # (n, n) its eigenvectors, scaled by the roots of their eigenvalues
    certificate: Certificate
    status: Status

    def unfolded(self, n_components: int) -> Unfolded:
        """The places of the nodes, and what every unfolding tells of them."""
        program, state = self.program, self.state
        return Unfolded(
            embedding=self.columns[:, :n_components],
            eigenvalues=np.maximum(self.eigenvalues, 0.0),
            max_distortion=float(abs(program.changes(state.K)).max()),
            objective=self.certificate.objective,
            duality_gap=self.certificate.gap,
            status=self.status,
            gap_unit=max(program.mean_square, abs(program.bound(state))),
        )


def iterates_of(program: MVUProgram | None) -> Iterator[Iterate]:
    """Iterates of a program, and then of those that `MVUProgram.successor` names.

    The state of an iterate is the program that it belongs to, and its point.
    """
    while program is not None:
        path: Iterator[Iterate] = interior_point(program)
        for iterate in path:
            state = iterate.state
            yield replace(iterate, state=(program, state))
        program = program.successor(state)


def scaled_eigenvectors(K: Array, count: int) -> tuple[Matrix, Array]:
    """The largest eigenvalues of K, on the host, and its vectors scaled by their roots."""
    values, vectors = gram_kernels_for(K).eigh(K)
    values, vectors = values[-count:], vectors[:, -count:]
    columns = vectors * values.clip(0, None) ** 0.5
    order = kernels_for(K).index(np.arange(len(values))[::-1].copy(), K)
    return kernels_for(K).to_host(values[order]), columns[:, order]


def _joint_proof(answers: list[Answer], layout: Layout) -> Proof:
    """The dual points of all components, by the rows of X."""
    edges, weights = [np.empty((0, 2), dtype=np.intp)], [np.empty((0, 2))]
    for answer in answers:
        ends, values = answer.program.dual_point(answer.state)
        edges.append(layout.first_copies[answer.component.rows[ends]])
        weights.append(values)
    return {"edges": np.concatenate(edges).astype(np.int32), "weights": np.concatenate(weights)}


# -- what cannot be kept ---------------------------------------------------------------------


def _refuse_contradictions(program: MVUProgram, state: State, graph: NeighborhoodGraph) -> None:
    """Raise if no points have these equal lengths: some length changes at any price."""
    lengths = kernels_for(state.y).to_host(program.lengths(state.K))
    if np.abs(lengths - 1).max() <= CONTRADICTION:
        return
    worst = np.argsort(-np.abs(lengths - 1))
    worst = worst[np.abs(lengths[worst] - 1) > CONTRADICTION]
    if (program.rounding(state)[worst] > CONTRADICTION).any():
        raise _too_different(graph)
    edges = ", ".join(
        f"{graph.heads[e]}-{graph.tails[e]} ({lengths[e] ** 0.5 - 1:+.1%})" for e in worst[:NAMED]
    )
    raise InvalidInputError(
        f"no points have these distances: {len(worst)} of {graph.n_edges} edges would have to"
        f" change, most of all {edges}. Set constraints='slack' or 'shrink', or correct them.",
        np.unique([graph.heads[worst], graph.tails[worst]]),
    )


def _warn_of_changes(answers: list[Answer], tol: float) -> None:
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


def _too_different(graph: NeighborhoodGraph) -> InvalidInputError:
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


def _dimension(spectrum: Matrix, graph: NeighborhoodGraph) -> int:
    """How many axes are longer than an edge, or hold all but a small share of the variance."""
    long = int((spectrum >= (graph.lengths**2).mean() * graph.n_nodes).sum())
    return max(long, 1 + int(np.searchsorted(np.cumsum(spectrum), HELD * spectrum.sum())))


def _is_locked_up(points: Any, spectrum: Matrix, n_components: int) -> bool:
    """Whether the variance is that of the points, although they are not flat."""
    if points is None:
        return False
    kernels = kernels_for(points)
    X = np.asarray(kernels.to_host(points), dtype=np.float64)
    before = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    lost = before[n_components:].sum() / max(before.sum(), np.finfo(float).tiny)
    return bool(lost > FLAT and spectrum.sum() < (1 + FLAT) * before.sum())
