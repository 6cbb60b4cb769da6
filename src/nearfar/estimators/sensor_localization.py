"""Positions of sensors from distances between near ones, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.blocks import is_dask
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._blocks import lazy_places, refuse_dask
from nearfar.estimators._graph_layout import (
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
from nearfar.estimators._out_of_sample import (
    move_single_nodes,
    place_by_neighbors,
    place_untrusted_nodes,
)
from nearfar.estimators._small_program import (
    CUT_SHORT,
    LOOSER,
    TENSION,
    Run,
    ScaledGraph,
    descend,
    n_wide_axes,
    principal_axes,
    solve_program,
)
from nearfar.estimators._training import Training, check_limits, store_ending, with_callbacks
from nearfar.estimators._unfolding import Unfolding
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.checks import checked_anchors
from nearfar.graphs.geodesics import geodesic_layout
from nearfar.kernels import is_torch, kernels_for, single_threaded_blas
from nearfar.problems.sensor_localization import (
    Elasticity,
    affine_rank,
    align_to_anchors,
    core,
    has_mirror_image,
)
from nearfar.problems.stress import Stress
from nearfar.problems.unfolding_bound import Bound
from nearfar.problems.variational_mvu import VariationalProgram
from nearfar.solvers import Solution, Status
from nearfar.solvers.batched import conjugate_gradients
from nearfar.validation import check_number

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

LANDMARKS = 30  # of the layout by path lengths
CORRECTIONS = 10  # rounds of moves of nodes on the wrong side, at most
WORTHWHILE = 1e-6  # fall of the misfit after such moves, relative
MORE_EDGES = "Measure more distances"
REMEDY = f"{MORE_EDGES}, or set on_disconnected='separate' to locate each by itself."
LOOSE = 50.0  # times the error of a node whose neighbours are known, at which it is not pinned down
SAMPLES = 12  # of errors, from which standard errors and looseness are estimated
SOLVED = 1e-3  # relative error of the moves that errors cause: soft motions must show
TREMBLING = 1e-4  # and of those that show looseness: one loose node among many must show
STEPS = 1000  # to solve for them, at most


class SensorLocalization(Unfolding):
    """Positions of sensors from noisy distances between near ones.

    Starts from the unfolding of `VariationalMVU` and fits the distances by conjugate gradients. The
    result is a local minimum of ``Σ weight * (‖y_i − y_j‖² − d_ij²)²``, the global one if the start
    is good. Sensors whose positions are known (anchors) fix the position of the network; without
    them it is found up to a rigid motion and reflection. See
    ``docs/algorithms/sensor_localization.md``.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the field.
    anchors : dict, array-like of shape (n_samples, n_components) or None, default=None
        Known positions: a dict from node numbers to positions, or an array with rows of NaN for
        nodes whose position is not known.
    n_eigenvectors : int, default=10
        Bottom eigenvectors of the graph's Laplacian on which the start is found.
    on_disconnected : {"link", "error", "separate"}, default="error"
        What to do with a network of several components: link them by edges between near points,
        which needs a graph of points, since all distances that were measured are edges already;
        raise an error; or locate each by itself.
    tol : float, default=1e-5
        Stop when ten steps of the descent gain at most this, relative to the misfit.
    max_iter : int, default=1000
        Largest number of iterations of each stage.
    max_seconds : float or None, default=None
        Largest time in seconds.
    verbose : int, default=0
        1 shows the iterations while fitting: a bar, or lines if stderr is no terminal.
    random_state : int, RandomState instance or None, default=None
        Draws the start of the eigenvector search, and the samples of ``standard_errors_``.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        The positions; those of anchors are as given.
    standard_errors_ : ndarray of shape (n_samples,)
        Estimated error of each position, from the misfit of the distances and how firmly they hold
        the node; relative to the anchors, or to the whole network. Infinite if the node is not
        pinned.
    pinned_ : ndarray of bool, of shape (n_samples,)
        Whether the distances determine the position of the node: it has more than ``n_components``
        distances to nodes that also have as many, its mirror image does not fit as well, and its
        looseness is at most 50.
    looseness_ : ndarray of shape (n_samples,)
        The error of a node, relative to its error if the positions of its neighbours were known and
        they lay all around it.
    eigenvalues_ : ndarray
        Eigenvalues of the Gram matrix before the projection on ``n_components``, largest first.
    max_distortion_ : float
        Largest relative misfit of a squared distance.
    objective_ : float
        Minus the sum of squared misfits of squared distances, in units in which their mean is 1.
    duality_gap_ : float or None
        Certified gap: the misfit relative to that of all nodes at one point. The misfit cannot be
        negative, so this bounds how much better positions in any dimension could be.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations of all stages.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, residual (in a descent the relative gain of
        ten steps, which is no bound), duality_gap (certified, of the program; None in a descent),
        stage, component.
    graph_ : NeighborhoodGraph
        The network.
    component_labels_ : ndarray of shape (n_samples,)
        The component of each node.
    X_fit_ : ndarray, torch.Tensor or None
        The points, if the graph was made of points.
    n_features_in_ : int
        Number of nodes, or of features if the graph was made of points.

    Notes
    -----
    With n nodes and e distances a step takes O(e + f) time, where f is the size of a sparse factor
    of the Laplacian, or O(e + n m) where m eigenvectors serve instead. Memory is O(e + f + n m).

    References
    ----------
    Weinberger, Metric learning with convex optimization, PhD thesis, University of Pennsylvania,
    2007, section 3.1.8; Weinberger, Sha, Zhu & Saul, Graph Laplacian regularization for large-scale
    semidefinite programming, NIPS 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import NeighborhoodGraph, SensorLocalization
    >>> rng = np.random.default_rng(0)
    >>> places = rng.uniform(size=(300, 2))
    >>> graph = NeighborhoodGraph.from_points(places, radius=0.2, angles=False)
    >>> noisy = graph.lengths * rng.uniform(0.9, 1.1, size=graph.n_edges)
    >>> network = NeighborhoodGraph.from_edges(graph.heads, graph.tails, noisy, 300)
    >>> anchors = {node: places[node] for node in range(5)}
    >>> sensors = SensorLocalization(anchors=anchors, random_state=0).fit(network)
    >>> errors = np.linalg.norm(sensors.embedding_ - places, axis=1)
    >>> bool(np.median(errors) < 0.01), bool(sensors.pinned_.all())
    (True, True)
    """

    # A network is given by its distances, all of which count.
    metric = "precomputed"
    n_neighbors = None
    angles = False

    def __init__(
        self,
        n_components: int = 2,
        *,
        anchors: Any = None,
        n_eigenvectors: int = 10,
        on_disconnected: str = "error",
        tol: float = 1e-5,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.anchors = anchors
        self.n_eigenvectors = n_eigenvectors
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @single_threaded_blas()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Locate the sensors.

        Parameters
        ----------
        X : array-like, torch.Tensor, sparse array or NeighborhoodGraph
            Distances (n_samples, n_samples), dense with NaN or infinity where one is not known in
            either direction, or sparse with the known ones stored; or a graph, which may have
            weights.
        y : None
            Not used.

        Returns
        -------
        SensorLocalization
            The fitted estimator.
        """
        check_graph_parameters(self)
        check_limits(self)
        check_number("n_eigenvectors", self.n_eigenvectors, Integral, self.n_components, None)
        network = X if isinstance(X, NeighborhoodGraph) else _distances(self, X, reset=True)
        given = graph_input(self, network, more_edges=MORE_EDGES, remedy=REMEDY)
        n = given.graph.n_nodes
        fixed, positions = checked_anchors(self.anchors, n, self.n_components)
        training = Training(self, X, y, bounded=False)
        layout = Layout(given, self.n_components, merge=False, mirrors=self.anchors is None)
        random = check_random_state(self.random_state)
        firmness = Firmness.unknown(n)
        for component in map(Component.in_near_order, layout.components()):
            rows, graph = component.rows, component.graph
            _check_not_all_zero(component)
            run = partial(run_component, training, layout, component)
            scaled = ScaledGraph.of(graph, given.reference, self.n_eigenvectors, random)
            unit = scaled.unit
            found = self._locate(scaled, fixed[rows], positions[rows] / unit, random, run)
            Y = as_returned(unit * found.Y, given.reference) / unit
            place = found.problem.place(Y)
            excess = kernels_for(place.excess).to_host(place.excess)
            bound = Bound.of_misfit(scaled.edges)
            firmness.put(rows, measure_firmness(scaled, Y, excess, fixed[rows], random))
            unfolded = Unfolded(
                embedding=unit * Y,
                eigenvalues=unit**2 * principal_axes(found.wide)[1],
                max_distortion=max_distortion(unit * Y, graph),
                objective=-place.value,
                duality_gap=bound.gap(-place.value),
                status=found.status,
                gap_unit=bound.reached,
            )
            layout.place(component, unfolded)
        store_layout(self, layout)
        self._store_firmness(firmness, fixed, positions)
        status = layout.status(self.tol)
        store_ending(self, status, layout.objective, layout.duality_gap, training.history)
        training.finish(status, layout.attributes() | {"embedding_": self.embedding_})
        return self

    def _locate(
        self, scaled: ScaledGraph, fixed: Mask, positions: Matrix, random: RandomState, run: Run
    ) -> Located:
        """Fit the distances of a component, in the unit of its graph.

        The solution of a semidefinite program, unfolded under tension, and a layout by lengths of
        paths are two starts of a descent; the better end is moved to the anchors and corrected.
        """
        r, tol = self.n_components, self.tol
        program = VariationalProgram.build(
            scaled.edges, scaled.spectrum.vectors, scaled.pull(TENSION)
        )
        shape = solve_program(program, scaled, r, run)
        fit_points = partial(descend, scaled=scaled, n_components=r, run=run)
        wide, smooth, status = shape.wide, shape.wide[:, :r], shape.status
        if status not in CUT_SHORT and wide.shape[1] > smooth.shape[1]:
            tense = Stress(scaled.edges, scaled.pull(TENSION))
            start = wide[:, : n_wide_axes(wide, smooth.shape[1])]
            solution = fit_points(tense, start, tol=LOOSER * tol, stage="wide")
            wide, status = principal_axes(solution.iterate.point)[0], solution.status
            smooth = wide[:, : smooth.shape[1]]
        found = Located(Stress(scaled.edges), wide, smooth, status)
        if status not in CUT_SHORT:
            ends = [fit_points(found.problem, smooth, tol=tol, stage="final")]
            if ends[0].status not in CUT_SHORT:
                start = paths_layout(scaled, r, random)[:, : smooth.shape[1]]
                ends.append(fit_points(found.problem, start, tol=tol, stage="final"))
            best = min(ends, key=lambda solution: solution.iterate.value)
            status = ends[-1].status if ends[-1].status in CUT_SHORT else best.status
            found = replace(found, Y=principal_axes(best.iterate.point)[0], status=status)
        if fixed.any():
            Y = align_to_anchors(found.Y, fixed, positions)
            problem = replace(found.problem, free=np.where(fixed, 0.0, 1.0)[:, None])
            found = replace(found, Y=Y, problem=problem)
            if found.status not in CUT_SHORT:
                solution = fit_points(problem, Y, tol=tol, stage="anchored")
                found = replace(found, Y=solution.iterate.point, status=solution.status)
        found = correct(found, scaled, fixed, partial(fit_points, tol=tol, stage="corrected"))
        return found if fixed.any() else replace(found, Y=principal_axes(found.Y)[0])

    def _store_firmness(self, firmness: Firmness, fixed: Mask, positions: Matrix) -> None:
        """Store how well positions are known, and put anchors exactly where they are."""
        self.standard_errors_, self.looseness_ = firmness.errors, firmness.looseness
        self.pinned_ = firmness.pinned
        if not fixed.any():
            return
        self.standard_errors_[fixed], self.looseness_[fixed], self.pinned_[fixed] = 0.0, 0.0, True
        kernels = kernels_for(self.embedding_)
        exact = kernels.like(positions[fixed], self.embedding_)
        self.embedding_[kernels.index(np.flatnonzero(fixed), self.embedding_)] = exact
        labels, r = self.component_labels_, self.n_components
        unheld = ~np.isin(labels, labels[fixed])
        self.pinned_[unheld], self.standard_errors_[unheld] = False, np.inf
        _warn_of_open_motions(labels, r, fixed, positions)

    @single_threaded_blas()
    def transform(self, X: Any) -> Any:  # type: ignore[override]
        """Locate new sensors among those of `fit`, which stay where they are.

        Parameters
        ----------
        X : array-like, sparse array or Dask array of shape (n_samples, n_fit)
            Distances to the sensors of `fit`, with NaN or infinity where one is not known, or
            sparse with the known ones stored. Places for a Dask array are lazy.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            The positions with the least sum of squared misfits of squared distances.
        """
        check_is_fitted(self, "embedding_")
        if is_dask(X):
            return lazy_places(self, X, dtype=np.float64)
        X = sparse.csr_array(known_entries(_distances(self, X, reset=False)))
        counts = np.diff(X.indptr)
        if not counts.all():
            bad = np.flatnonzero(counts == 0)
            raise InvalidInputError(
                f"a new sensor needs distances to some of those that were fitted; row {bad[0]} has"
                f" none ({len(bad)} in all). Leave it out.",
                bad,
            )
        kernels = kernels_for(self.embedding_)
        places = np.empty((X.shape[0], self.n_components))
        for count in np.unique(counts):
            rows = np.flatnonzero(counts == count)
            at = X.indptr[rows][:, None] + np.arange(count)
            found = place_by_neighbors(self.embedding_, X.indices[at], X.data[at] ** 2, "sdp+cg")
            places[rows] = kernels.to_host(found)
        return kernels.like(places, self.embedding_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclass(frozen=True)
class Located:
    """Points of a component that fit its distances, in the unit of its graph."""

    problem: Stress  # what was minimised last
    wide: Matrix  # (n, m), before the projection on n_components
    Y: Matrix  # (n, r)
    status: Status


def paths_layout(scaled: ScaledGraph, n_components: int, random: RandomState) -> Matrix:
    """A layout by lengths of paths: another start, better for networks that are bent."""
    graph = scaled.graph
    landmarks = graph.landmarks(min(LANDMARKS, graph.n_nodes), random_state=random)
    return geodesic_layout(graph, landmarks, n_components) / scaled.unit


def correct(
    found: Located, scaled: ScaledGraph, fixed: Mask, fit_points: Callable[..., Solution]
) -> Located:
    """Move nodes that are on the wrong side of their neighbours, as long as the misfit falls."""
    value = found.problem.place(found.Y).value
    moves = [move_single_nodes, place_untrusted_nodes]
    for _ in range(CORRECTIONS):
        if found.status in CUT_SHORT or not moves:
            break
        start, n_moved = moves[0](scaled.graph, *scaled.edges.on_host(), found.Y, fixed)
        if n_moved == 0:
            moves = moves[1:]
            continue
        solution = fit_points(found.problem, start)
        if solution.iterate.value < (1 - WORTHWHILE) * value:
            value = solution.iterate.value
            found = replace(found, Y=solution.iterate.point, status=solution.status)
        else:
            moves = moves[1:]
            if solution.status in CUT_SHORT:
                found = replace(found, status=solution.status)
    return found


# -- what is given -----------------------------------------------------------------------------


def _check_not_all_zero(component: Component) -> None:
    if not component.graph.lengths.any():
        raise InvalidInputError(
            f"all distances between {component.graph.n_nodes} nodes are 0, so that they have one"
            " position. Leave out all but one of the nodes.",
            component.rows,
        )


def _distances(estimator: Any, X: Any, reset: bool) -> Any:
    """Real numbers of the right shape, where they live; unknown ones are not read.

    Among the nodes of a fit, what is known in one direction is known in both.
    """
    refuse_dask(estimator, X)
    if is_torch(X):
        return X
    X = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=np.float64,
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
    )
    least = float(np.nanmin(X.data if sparse.issparse(X) else X, initial=0.0))
    if least < 0:
        raise InvalidInputError(
            "Negative values in data: SensorLocalization takes the distances between points, 0 or"
            f" more, and not the points themselves; the smallest entry is {least:.3g}. Compute"
            " distances with sklearn.metrics.pairwise_distances, or use MVU or MDS on points."
        )
    if reset and not sparse.issparse(X) and X.shape[0] == X.shape[1]:
        return np.where(np.isfinite(X), X, X.T)
    return X


def known_entries(X: Any) -> Any:
    """A sparse array of the distances that are known; zeros among them are stored."""
    if sparse.issparse(X):
        return X
    X = np.asarray(kernels_for(X).to_host(X), dtype=np.float64)
    rows, columns = np.nonzero(np.isfinite(X))
    return sparse.coo_array((X[rows, columns], (rows, columns)), shape=X.shape)


def _warn_of_open_motions(labels: NDArray[np.intp], r: int, fixed: Mask, positions: Matrix) -> None:
    """Warn of components that can be turned or mirrored about their anchors."""
    ranks = np.zeros(labels.max() + 1, dtype=np.intp)
    for component in np.unique(labels[fixed]):
        ranks[component] = affine_rank(positions[fixed & (labels == component)])
    loose = ranks < np.minimum(r, np.bincount(labels) - 1)
    if loose.any():
        warn(
            f"the anchors of {loose.sum()} of {len(ranks)} components do not determine how these"
            f" lie: that takes {r + 1} in general position in each. Rotated and mirrored"
            " networks fit as well. Add anchors.",
            DataWarning,
        )


# -- how well positions are known: standard errors, looseness, and which are pinned ----------------


@dataclass(frozen=True)
class Firmness:
    """How well the positions of nodes are known; all (n,)."""

    errors: Matrix
    looseness: Matrix
    pinned: Mask

    @classmethod
    def unknown(cls, n: int) -> Firmness:
        """Of nodes of which nothing is known."""
        return cls(np.full(n, np.inf), np.full(n, np.inf), np.zeros(n, dtype=bool))

    def put(self, rows: NDArray[np.intp], part: Firmness) -> None:
        """Fill in some nodes."""
        self.errors[rows], self.looseness[rows] = part.errors, part.looseness
        self.pinned[rows] = part.pinned


def measure_firmness(
    scaled: ScaledGraph, Y: Matrix, misfits: Matrix, fixed: Mask, random: RandomState
) -> Firmness:
    """Standard errors, looseness, and which nodes are pinned down, from points Y and their misfits.

    Motions of the network are sampled: those that errors of the size of the misfits cause, and
    those of a network that trembles.
    """
    graph, (squares, weights), (n, r) = scaled.graph, scaled.edges.on_host(), Y.shape
    elasticity = Elasticity.build(graph.heads, graph.tails, weights, Y, fixed)
    signs = random.choice([-1.0, 1.0], size=(len(misfits), SAMPLES))
    spare = len(misfits) - r * (n - int(fixed.sum()))  # a fit hides errors of its own number
    inflated = misfits * np.sqrt(len(misfits) / max(spare, 1))

    def precondition(X: Matrix) -> Matrix:
        image: Matrix = scaled.spectrum.inverse(X.reshape(n, -1)).reshape(X.shape)
        return np.asarray(elasticity.free[:, :, None] * image)

    def solve(right: Matrix, tol: float) -> Matrix:
        return conjugate_gradients(elasticity.product, right, precondition, tol, STEPS)

    displacements = solve(elasticity.noise_forces(random, SAMPLES), TREMBLING)
    looseness = elasticity.looseness(elasticity.squares_beside_most(displacements, random))
    moved = solve(elasticity.moved_by(inflated[:, None] * signs), SOLVED)
    errors = scaled.unit * np.sqrt(elasticity.squares(moved))
    kept = core(n, graph.heads, graph.tails, r + 1, fixed)
    twofold = has_mirror_image(graph.heads, graph.tails, squares, Y)
    pinned = fixed | (kept & (looseness <= LOOSE) & ~twofold)
    return Firmness(np.where(pinned, errors, np.inf), looseness, pinned)
