"""Maximum variance unfolding as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._graph_layout import (
    SEVERITY,
    Component,
    Layout,
    Unfolded,
    as_returned,
    check_graph_parameters,
    graph_input,
    run_component,
    store_layout,
)
from nearfar.estimators._mvu import (
    CONTRADICTION,
    SOLVED,
    Answer,
    Lengths,
    LowRankAnswer,
    PairLimits,
    dimension,
    is_locked_up,
    joint_factor,
    joint_forces,
    joint_proof,
    refuse_contradictions,
    scaled_eigenvectors,
    solve_low_rank,
    too_different,
    warn_of_changes,
)
from nearfar.estimators._small_program import (
    CUT_SHORT,
    ScaledGraph,
    Stairs,
    descend,
    open_checkpoint,
    principal_axes,
)
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import (
    Array,
    check_memory,
    gram_kernels_for,
    is_torch,
    kernels_for,
    single_threaded_blas,
)
from nearfar.problems.mvu import (
    IllConditionedError,
    MVUProgram,
    State,
    UnboundedError,
    least_rounding,
)
from nearfar.problems.stress import Stress
from nearfar.solvers import Iterate, Status
from nearfar.solvers.interior_point import interior_point
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

STRETCH = 0.01  # of a refinement, the default of `VariationalMVU`
STEPS = 10  # of a refinement, for each iteration that `max_iter` allows
REFINED = 1e-4  # relative gain of ten steps at which a refinement ends
LARGEST = 3000  # nodes up to which "auto" is the interior point method
SOLVERS = ("auto", "interior_point", "low_rank")
CONSTRAINTS = ("equal", "exact", "shrink", "slack")


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
        Neighbours of each point in the graph. With too few the graph is loose; with too many
        nothing unfolds, or layers are tied together. ``choose_n_neighbors`` compares several.
    angles : bool, default=True
        Whether the distances among the neighbours of a point are kept, too.
    constraints : {"equal", "exact", "shrink", "slack"}, default="equal"
        Lengths stay equal, may shrink but not grow ("shrink"), or may change at a price ("slack").
        A graph is stiff if more points are tied to each other than their dimension needs, such as
        the five of ``n_neighbors=4`` in three dimensions: unfolding would have to change some
        length, however little. For a stiff graph, "equal" gives each point a small dimension of its
        own, which makes lengths up to 1 % longer and lets the graph bend (see ``thickness_``);
        "exact" does not.
    slack_weight : float or tuple of two, default=0.99
        The thesis' omega between 0 and 1: the weight of the changes of squared lengths, relative to
        the variance. Two numbers are the weights of growing and of shrinking; the second may be 0.
        Only for "slack".
    variance : {"max", "min"}, default="max"
        Whether to maximise the variance or, for comparison, to minimise it.
    solver : {"auto", "interior_point", "low_rank"}, default="auto"
        The interior point method finds the whole Gram matrix to high accuracy, in O(m³ + n³) time.
        The low-rank one is a descent in ten or more dimensions, and takes memory in proportion to
        the number of points. Its gap is certified, too, but seldom gets far below 1e-2 ("shrink"),
        or below 1e-3 ("slack" and "equal"; 3 to 15 % on large graphs whose factor is dense). Set
        ``tol`` accordingly. It maximises the variance without ``pairs``. "auto" is the interior
        point method for up to 3000 points, for tensors, and for what only it can do.
    refine : bool, default=False
        Whether conjugate gradients follow the program, as in `VariationalMVU`. In ``n_components``
        dimensions they correct the lengths that the projection has changed, at a ``stretch`` of
        0.01. They change only ``embedding_``; all other attributes describe the program.
    metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
        Whether X holds points, distances or a kernel matrix.
    on_disconnected : {"link", "error", "separate"}, default="link"
        What to do with a graph of several components: link them by edges between near points,
        with a warning that names their sizes; raise an error; or unfold each by itself about the
        origin.
    tol : float, default=1e-6
        Certified relative gap at which to stop.
    max_iter : int, default=100
        Largest number of iterations of the program; a refinement may take ten times as many. An
        iteration of the low-rank solver is fifty steps.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. A problem that
        needs more is refused before any work.
    random_state : int, RandomState instance or None, default=None
        Draws the links of ``on_disconnected="link"``.
    checkpoint : path or None, default=None
        File to write the state of the low-rank solver to, about twice a second, and to continue
        from if it exists. It is removed when the fit has converged.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        The leading eigenvectors of the solution, scaled by the roots of their eigenvalues; with
        ``refine`` what conjugate gradients make of them.
    eigenvalues_ : ndarray of shape (n_points,)
        Eigenvalues of the solution, largest first, summed over components: as many as the largest
        component has different points, or as ``factor_`` has columns.
    intrinsic_dimension_ : int
        The number of axes along which the points of the largest component vary by more than the
        length of an edge (root mean square of those up to five times the median). Where edges are
        half as long as the points are spread out, or longer, it is the number of axes that hold
        95 % of the variance.
    kernel_ : ndarray or torch.Tensor of shape (n_samples, n_samples), or None
        The solution K, in float64; None after the low-rank solver. Copies of a point have the same
        rows, and it is centred over different points.
    factor_ : ndarray of shape (n_samples, n_columns) or None
        After the low-rank solver Y, along axes of decreasing variance; over the rows of a component
        K is Y Yᵀ.
    locked_up_ : bool
        Whether nothing was unfolded: the variance is that of the points themselves. False where
        `fit` saw no points, but distances or a kernel, or was given ``pairs``.
    edge_forces_ : ndarray of shape (n_edges,)
        The force on each edge of ``graph_``, per unit of its length: positive if the edge would
        otherwise grow, negative if it would shrink. With the Laplacian L of these
        weights ``L @ kernel_`` is ``kernel_``: forces balance the pull of each point away from
        the mean (its negative for ``variance="min"``). An edge of copies of a point has 0.
    dimacs_ : dict
        The DIMACS error measures of the solution, "err1" to "err6"; of the largest component; empty
        after the low-rank solver.
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
        weights y, and the thickness with which each was kept; and the same of ``pairs``.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, bound, violation, mu (mean
        complementary product), duality_gap (certified), residual (the same), component. For each
        step of a refinement, whose stage is "refinement": objective (minus the stress), and
        residual (the relative gain of ten steps).
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
    (16 m² on a GPU); some 12 to 25 iterations are needed, twice as many where the graph turns out
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
        slack_weight: float | tuple[float, float] = 0.99,
        variance: str = "max",
        solver: str = "auto",
        refine: bool = False,
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-6,
        max_iter: int = 100,
        max_seconds: float | None = None,
        verbose: int = 0,
        memory_limit: float | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.constraints = constraints
        self.slack_weight = slack_weight
        self.variance = variance
        self.solver = solver
        self.refine = refine
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.checkpoint = checkpoint

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None, *, pairs: Any = None, distances: Any = None) -> Self:
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
        pairs : array-like of int, of shape (n_pairs, 2), or None, default=None
            Rows of X whose distance is limited, too; they need not be neighbours.
        distances : array-like of shape (n_pairs,) or (n_pairs, 2), or None, default=None
            The distance that each pair must have, whatever ``constraints`` is, or the least and the
            largest; 0 and infinity are no limits. A pair with a largest distance takes the place of
            its edge in the graph.

        Returns
        -------
        MVU
            The fitted estimator.
        """
        self._check_parameters()
        given = graph_input(self, X)
        limits = PairLimits.of(pairs, distances, given.graph.n_nodes)
        if len(limits) and self.refine:
            raise InvalidInputError(
                "a refinement would change the distances of pairs, and got both. Set refine=False,"
                " or leave pairs out."
            )
        checkpoint = open_checkpoint(self, given)
        training = Training(self, X, y, checkpoint=checkpoint, bounded=False)
        stairs = Stairs(training)
        layout = Layout(given, self.n_components)
        limits.check_nodes(layout)
        random = check_random_state(self.random_state)
        answers: list[Answer | LowRankAnswer] = []
        for component in layout.components():
            mine = limits.inside(component, layout)
            answer: Answer | LowRankAnswer
            if self._is_low_rank(component, mine, given.reference):
                component = component.in_near_order()
                run = partial(run_component, training, layout, component)
                stair = stairs.of(component.number)
                answer = solve_low_rank(self, component, mine, given.reference, run, random, stair)
            else:
                program = self._program(component.graph, given.reference, mine)
                answer = self._solve(program, component, mine, layout, training)
            unfolded = answer.unfolded(self.n_components)
            if self.refine and answer.status not in CUT_SHORT:
                unfolded = self._refined(unfolded, component, layout, training)
            layout.place(component, unfolded)
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
        weights = self.slack_weight
        if isinstance(weights, tuple | list) and len(weights) == 2:
            check_number("slack_weight[0]", weights[0], Real, 0, 1, open_ends=True)
            if weights[1] != 0:  # 0 makes shrinking free
                check_number("slack_weight[1]", weights[1], Real, 0, 1, open_ends=True)
            free = self.constraints == "slack" and weights[1] == 0
        else:
            check_number("slack_weight", weights, Real, 0, 1, open_ends=True)
            free = False
        check_choice("variance", self.variance, ("max", "min"))
        check_choice("solver", self.solver, SOLVERS)
        if self.solver == "low_rank" and self.variance == "min":
            raise InvalidInputError(
                "solver='low_rank' only maximises the variance; got variance='min'. Set"
                " solver='interior_point'."
            )
        if self.solver == "interior_point" and self.checkpoint is not None:
            raise InvalidInputError(
                "a checkpoint holds the state of the low-rank solver; got checkpoint="
                f"{str(self.checkpoint)!r} and solver='interior_point'. Set solver='low_rank', or"
                " checkpoint=None."
            )
        if not isinstance(self.refine, bool | np.bool_):
            raise InvalidInputError(f"refine must be True or False; got {self.refine!r}.")
        if self.variance == "min" and (free or self.constraints == "shrink"):
            raise InvalidInputError(
                "the least variance of lengths that may shrink is zero, with all points in one"
                " place. Set constraints='equal' or variance='max'."
            )

    def _is_low_rank(self, component: Component, limits: PairLimits, reference: Array) -> bool:
        """Whether a component is unfolded by the low-rank solver."""
        if self.solver != "auto":
            if self.solver == "low_rank" and len(limits):
                raise InvalidInputError(
                    "solver='low_rank' knows the edges of the graph alone, and got pairs. Set"
                    " solver='interior_point', or leave pairs out."
                )
            return bool(self.solver == "low_rank")
        fits = self.variance == "max" and not len(limits) and not is_torch(reference)
        return fits and component.graph.n_nodes > LARGEST

    # -- build the problem -------------------------------------------------------------------

    def _program(
        self, graph: NeighborhoodGraph, reference: Array, limits: PairLimits
    ) -> MVUProgram:
        """The program of a connected graph with limits of pairs, where the reference lives."""
        double = kernels_for(reference).double(reference[:0])
        edges = Lengths.of(graph, limits, self.constraints, self.slack_weight)
        n, m = graph.n_nodes, len(edges.squares)
        check_memory(
            8 * gram_kernels_for(double).SCHUR_COPIES * m**2 + 24 * m * n + 100 * n**2,
            f"exact unfolding of {n} points and {m} edges",
            "Set solver='low_rank', or use VariationalMVU or LandmarkMVU, which take memory in"
            " proportion to the number of points, lower n_neighbors",
            double,
        )
        if self.constraints != "slack" and least_rounding(graph.lengths, n) > CONTRADICTION:
            raise too_different(graph)
        try:
            return MVUProgram.build(
                edges.heads,
                edges.tails,
                edges.squares,
                n,
                double,
                edges.prices,
                maximise=self.variance == "max",
                may_thicken=self.constraints == "equal",
            )
        except IllConditionedError:
            raise too_different(graph) from None
        except UnboundedError as error:
            raise InvalidInputError(
                f"with slack_weight={self.slack_weight} the variance grows without bound; on this"
                f" graph it must be above {error.least:.6g}. Set it nearer to 1."
            ) from None

    # -- solve -------------------------------------------------------------------------------

    def _solve(
        self,
        program: MVUProgram,
        component: Component,
        limits: PairLimits,
        layout: Layout,
        training: Training,
    ) -> Answer:
        """Solve the program of a component, and compute the certificate of the solution."""

        def embedding(iterate: Iterate) -> Array:
            program, state = iterate.state
            return scaled_eigenvectors(program.scale * state.K, self.n_components)[1]

        try:
            solution = run_component(training, layout, component, iterates_of(program), embedding)
        except IllConditionedError:
            raise too_different(component.graph) from None
        program, state = solution.iterate.state
        K, status = program.scale * state.K, solution.status
        eigenvalues, columns = scaled_eigenvectors(K, program.n)
        certificate = program.certificate(state, eigenvalues)
        if status in SOLVED:
            if self.constraints in ("equal", "exact") or len(limits):
                refuse_contradictions(program, state, component.graph)
            status = Status.CONVERGED if certificate.gap <= self.tol else Status.STALLED
        return Answer(
            component, limits, program, state, K, eigenvalues, columns, certificate, status
        )

    def _refined(
        self, unfolded: Unfolded, component: Component, layout: Layout, training: Training
    ) -> Unfolded:
        """Places after conjugate gradients from those of the program."""
        random, reference = check_random_state(self.random_state), layout.reference
        scaled = ScaledGraph.of(component.graph, reference, 1, random)
        start = kernels_for(unfolded.embedding).to_host(unfolded.embedding) / scaled.unit
        run = partial(run_component, training, layout, component, times=STEPS)
        stress = Stress(scaled.edges, scaled.pull(STRETCH))
        solution = descend(
            stress, start, scaled, self.n_components, run, tol=REFINED, stage="refinement"
        )
        Y = as_returned(scaled.unit * principal_axes(solution.iterate.point)[0], reference)
        status = max(unfolded.status, solution.status, key=SEVERITY.index)
        return replace(unfolded, embedding=Y, status=status)

    # -- store -------------------------------------------------------------------------------

    def _store_answers(self, answers: list[Answer | LowRankAnswer], layout: Layout) -> None:
        """Store what only MVU has; the first answer is that of the largest component."""
        spectrum = layout.found[0][1].eigenvalues
        graph = answers[0].component.graph if answers else self.graph_
        exact = [answer for answer in answers if isinstance(answer, Answer)]
        self.intrinsic_dimension_ = dimension(spectrum, graph)
        self.dimacs_ = exact[0].certificate.dimacs if exact and exact[0] is answers[0] else {}
        self.thickness_ = max((answer.thickness for answer in answers), default=0.0)
        self.locked_up_ = (
            bool(answers)
            and answers[0].status in SOLVED
            and not len(answers[0].limits)
            and self.variance == "max"
            and is_locked_up(answers[0].component.graph.points, spectrum, self.n_components)
        )
        if self.locked_up_:
            warn(
                "MVU has locked up: the variance is that of the points themselves, so that nothing"
                " was unfolded. Lower n_neighbors, set angles=False, or constraints='slack'.",
                DataWarning,
            )
        warn_of_changes([answer for answer in exact if answer.status in SOLVED], self.tol)
        self.kernel_, self.factor_ = None, None
        if len(exact) == len(answers):
            blocks = [(answer.component, answer.K) for answer in exact]
            self.kernel_ = layout.join_matrices(blocks)
        else:
            self.factor_ = joint_factor(answers, layout)
        self.proof_ = joint_proof(answers, layout)
        self.edge_forces_ = joint_forces(answers, layout)


def iterates_of(program: MVUProgram | None) -> Iterator[Iterate]:
    """Iterates of a program, of that with prices `MVUProgram.raised`, and of its successor.

    The state of an iterate is the program that it belongs to, and its point. The residual leaves
    room for rounding, so that the certificate of an iterate that meets the tolerance meets it, too.
    """
    start: State | None = None
    while program is not None:
        raised = None
        path: Iterator[Iterate] = interior_point(program, start)
        for iterate in path:
            state = iterate.state
            assert iterate.residual is not None  # its gap
            residual = iterate.residual + program.hidden(state)
            yield replace(iterate, residual=residual, state=(program, state))
            raised = program.raised(state)
            if raised is not None:
                break
        program, start = raised or (program.successor(state), None)
