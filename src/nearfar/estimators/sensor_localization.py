"""Positions of sensors from distances between near ones, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._factored_unfolding import (
    CUT_SHORT,
    LOOSER,
    TENSION,
    Relaxed,
    along_axes,
    n_wide,
    ordered,
    refined,
    relaxed,
)
from nearfar.estimators._out_of_sample import placed
from nearfar.estimators._parameters import check_number
from nearfar.estimators._relocation import relocated, resettled
from nearfar.estimators._unfolding import Task, Unfolded, Unfolding, max_distortion
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.geodesics import geodesic_layout
from nearfar.kernels import Array, is_torch, kernels_for, one_pool
from nearfar.problems.sensor_localization import Elasticity, core, mirrored
from nearfar.problems.stress import Stress
from nearfar.solvers import Status
from nearfar.solvers.linear_cg import linear_cg

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

LANDMARKS = 30  # of the layout by path lengths
CORRECTIONS = 10  # rounds of moves of nodes on the wrong side, at most
WORTHWHILE = 1e-6  # fall of the misfit after such moves, relative
LOOSE = 50.0  # times the error of a node whose neighbours are known, at which it is not pinned down
SAMPLES = 12  # of errors, from which standard errors and looseness are estimated
SOLVED = 1e-3  # relative error of the moves that errors cause: soft motions must show
TREMBLING = 1e-4  # and of those that tell looseness: one loose node among many must show
STEPS = 1000  # to solve for them, at most
FLAT_ANCHORS = 1e-6  # extent of anchors, relative to the largest, that is none


class SensorLocalization(Unfolding):
    """Where sensors are, from noisy distances between those that are near each other.

    Starts from the unfolding of `VariationalMVU` and fits the distances by conjugate gradients: a
    local minimum of ``Σ weight * (‖y_i − y_j‖² − d_ij²)²``, and where the start is good the global
    one. Sensors whose positions are known (anchors) fix where the network lies; without them it is
    found up to a rigid motion and reflection. See ``docs/algorithms/sensor_localization.md``.

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
        What ten steps of the descent gain at which it stops, relative to the misfit.
    max_iter : int, default=1000
        Largest number of iterations of each stage.
    max_seconds : float or None, default=None
        Largest time in seconds.
    random_state : int, RandomState instance or None, default=None
        Draws where the search for eigenvectors starts, and the samples of ``standard_errors_``.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        The positions; those of anchors are as given.
    standard_errors_ : ndarray of shape (n_samples,)
        Estimated error of each position, from how badly distances fit and how firmly they hold the
        node; relative to the whole network, or to the anchors. Infinite where it is not pinned
        down.
    pinned_ : ndarray of bool, of shape (n_samples,)
        Whether the distances pin the node down: it has more than ``n_components`` distances to
        nodes that have as many, too, no mirror image of it fits as well, and its looseness is at
        most 50.
    looseness_ : ndarray of shape (n_samples,)
        How many times larger the error of a node is than if its neighbours were known and lay all
        around it.
    eigenvalues_ : ndarray
        Of the Gram matrix before the projection on ``n_components``, largest first.
    max_distortion_ : float
        Largest relative misfit of a squared distance.
    objective_ : float
        Minus the sum of squared misfits of squared distances, in units in which their mean is 1.
    duality_gap_ : None
        There is no certificate: the problem is not convex.
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
    _merges = False
    _more_edges = "Measure more distances"
    _connect = f"{_more_edges}, or set on_disconnected='separate' to locate each by itself."

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
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.anchors = anchors
        self.n_eigenvectors = n_eigenvectors
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    @property
    def _mirrors(self) -> bool:  # type: ignore[override]
        return self.anchors is None

    def fit(self, X: Any, y: Any = None) -> SensorLocalization:
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
        if not isinstance(X, NeighborhoodGraph):
            X = _distances(self, X, reset=True)
        super().fit(X, y)
        return self

    @one_pool()
    def transform(self, X: Any) -> Any:  # type: ignore[override]
        """Locate new sensors among those of `fit`, which stay where they are.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples, n_fit)
            Distances to the sensors of `fit`, with NaN or infinity where one is not known, or
            sparse with the known ones stored.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            The places with the least sum of squared misfits of squared distances.
        """
        check_is_fitted(self, "embedding_")
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
            found = placed(self.embedding_, X.indices[at], X.data[at] ** 2, "sdp+cg")
            places[rows] = kernels.to_host(found)
        return kernels.like(places, self.embedding_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("n_eigenvectors", self.n_eigenvectors, Integral, self.n_components, None)

    def _ordered(self, part: tuple[Index, NeighborhoodGraph]) -> tuple[Index, NeighborhoodGraph]:
        return ordered(part)

    def _unfold(self, graph: NeighborhoodGraph, task: Task) -> Unfolded:
        known, positions = checked_anchors(self.anchors, self.graph_.n_nodes, self.n_components)
        fixed = known[task.rows]
        if not graph.lengths.any():
            raise InvalidInputError(
                f"all distances between {graph.n_nodes} nodes are 0, and only those of different"
                " places tell where these are. Leave out all but one of the nodes.",
                task.rows,
            )
        found = relaxed(
            graph,
            task,
            lambda spectrum: (spectrum.vectors, {}),
            self.n_eigenvectors,
            TENSION,
            self.n_components,
        )
        whole, Y, status = found.Y, found.Y[:, : self.n_components], found.status
        r = Y.shape[1]
        if status not in CUT_SHORT and found.Y.shape[1] > r:
            tense = Stress(found.edges, 2 * TENSION * float(found.spectrum.values[0]))
            start = found.Y[:, : n_wide(found.Y, r)]
            solution = self._descent(tense, start, found, task, "wide", LOOSER)
            whole, status = along_axes(solution.iterate.point)[0], solution.status
            Y = whole[:, :r]
        problem, least, smooth = Stress(found.edges), np.inf, Y
        layouts: tuple[Callable[[], Matrix], ...] = (
            lambda: smooth,
            lambda: self._paths(graph, task)[:, :r] / found.unit,
        )
        for layout in layouts:
            if status not in CUT_SHORT:
                solution = self._descent(problem, layout(), found, task, "final")
                if solution.iterate.value < least or solution.status in CUT_SHORT:
                    status = solution.status
                if solution.iterate.value < least:
                    least, Y = solution.iterate.value, along_axes(solution.iterate.point)[0]
        if fixed.any():
            Y = aligned(Y, fixed, positions[task.rows] / found.unit)
            problem = replace(problem, free=np.where(fixed, 0.0, 1.0)[:, None])
            if status not in CUT_SHORT:
                solution = self._descent(problem, Y, found, task, "anchored")
                Y, status = solution.iterate.point, solution.status
        Y, status = self._corrected(graph, problem, Y, found, task, fixed, status)
        if not fixed.any():
            Y = along_axes(Y)[0]
        Y = task.returned(found.unit * Y) / found.unit
        place = problem.place(Y)
        errors, looseness, pinned = self._firmness(graph, place.excess, found, Y, fixed, task)
        return Unfolded(
            embedding=found.unit * Y,
            eigenvalues=found.unit**2 * along_axes(whole)[1],
            max_distortion=max_distortion(found.unit * Y, graph),
            objective=-place.value,
            duality_gap=None,
            status=status,
            details={"errors": errors, "looseness": looseness, "pinned": pinned},
        )

    def _corrected(
        self,
        graph: NeighborhoodGraph,
        problem: Stress,
        Y: Matrix,
        found: Relaxed,
        task: Task,
        fixed: Mask,
        status: Status,
    ) -> tuple[Matrix, Status]:
        """Points and status after nodes on the wrong side were moved, while the misfit falls."""
        value, moves = problem.place(Y).value, [relocated, resettled]
        for _ in range(CORRECTIONS):
            if status in CUT_SHORT or not moves:
                break
            start, n_moved = moves[0](graph, *found.edges.on_host(), Y, fixed)
            if n_moved == 0:
                moves = moves[1:]
                continue
            solution = self._descent(problem, start, found, task, "corrected")
            if solution.iterate.value < (1 - WORTHWHILE) * value:
                Y, value, status = solution.iterate.point, solution.iterate.value, solution.status
            else:
                moves = moves[1:]
                status = solution.status if solution.status in CUT_SHORT else status
        return Y, status

    def _paths(self, graph: NeighborhoodGraph, task: Task) -> Matrix:
        """A layout by path lengths: another start, better for networks that are bent."""
        landmarks = graph.landmarks(min(LANDMARKS, graph.n_nodes), random_state=task.random)
        return geodesic_layout(graph, landmarks, self.n_components)

    def _descent(
        self,
        problem: Stress,
        Y: Matrix,
        found: Relaxed,
        task: Task,
        stage: str,
        looser: float = 1.0,
    ) -> Any:
        def precondition(gradient: Matrix) -> Matrix:
            image = found.spectrum.inverse(gradient)
            return image if problem.free is None else problem.free * image

        return refined(
            problem,
            Y,
            task,
            precondition,
            found.unit,
            self.n_components,
            tol=looser * self.tol,
            turn=problem.free is None,
            stage=stage,
        )

    def _firmness(
        self,
        graph: NeighborhoodGraph,
        excess: Array,
        found: Relaxed,
        Y: Matrix,
        fixed: Mask,
        task: Task,
    ) -> tuple[Matrix, Matrix, Mask]:
        """Standard errors, looseness, and which nodes are pinned down."""
        edges, kernels = found.edges, kernels_for(excess)
        n, r = Y.shape
        elasticity = Elasticity.build(
            graph.heads, graph.tails, kernels.to_host(edges.weights), Y, fixed
        )
        misfits = kernels.to_host(excess)
        signs = task.random.choice([-1.0, 1.0], size=(len(misfits), SAMPLES))
        spare = len(misfits) - r * (n - int(fixed.sum()))  # a fit hides errors of its own number
        inflated = misfits * np.sqrt(len(misfits) / max(spare, 1))

        def precondition(X: Matrix) -> Matrix:
            image = found.spectrum.inverse(X.reshape(n, -1)).reshape(X.shape)
            return elasticity.free[:, :, None] * image

        def solved(right: Matrix, tol: float) -> Matrix:
            return linear_cg(elasticity.product, right, precondition, tol, STEPS)

        shaken = solved(elasticity.shaken(task.random, SAMPLES), TREMBLING)
        looseness = elasticity.looseness(elasticity.squares_beside_most(shaken, task.random))
        moved = solved(elasticity.moved_by(inflated[:, None] * signs), SOLVED)
        errors = found.unit * np.sqrt(elasticity.squares(moved))
        kept = core(n, graph.heads, graph.tails, r + 1, fixed)
        twofold = mirrored(graph.heads, graph.tails, edges.on_host()[0], Y)
        pinned = fixed | (kept & (looseness <= LOOSE) & ~twofold)
        return np.where(pinned, errors, np.inf), looseness, pinned

    def _store_details(self, parts: list[tuple[Index, Unfolded]]) -> None:
        n = len(self.component_labels_)
        self.standard_errors_, self.looseness_ = np.full(n, np.inf), np.full(n, np.inf)
        self.pinned_ = np.zeros(n, dtype=bool)
        for rows, found in parts:
            if "pinned" in found.details:
                self.standard_errors_[rows] = found.details["errors"]
                self.looseness_[rows] = found.details["looseness"]
                self.pinned_[rows] = found.details["pinned"]
        fixed, positions = checked_anchors(self.anchors, n, self.n_components)
        if not fixed.any():
            return
        self.standard_errors_[fixed], self.looseness_[fixed], self.pinned_[fixed] = 0.0, 0.0, True
        kernels = kernels_for(self.embedding_)
        exact = kernels.like(positions[fixed], self.embedding_)
        self.embedding_[kernels.index(np.flatnonzero(fixed), self.embedding_)] = exact
        self._warn_of_open_motions(fixed, positions)

    def _warn_of_open_motions(self, fixed: Mask, positions: Matrix) -> None:
        labels, r = self.component_labels_, self.n_components
        ranks = np.zeros(labels.max() + 1, dtype=np.intp)
        for component in np.unique(labels[fixed]):
            ranks[component] = affine_rank(positions[fixed & (labels == component)])
        loose = ranks < np.minimum(r, np.bincount(labels) - 1)
        unheld = ~np.isin(labels, labels[fixed])
        self.pinned_[unheld], self.standard_errors_[unheld] = False, np.inf
        if loose.any():
            warn(
                f"the anchors of {loose.sum()} of {len(ranks)} components do not tell how these"
                f" lie: that takes {r + 1} in general position in each. Turned and mirrored"
                " networks fit as well. Add anchors.",
                DataWarning,
            )


def _distances(estimator: Any, X: Any, reset: bool) -> Any:
    """Real numbers of the right shape, where they live; unknown ones are not looked at.

    Among the nodes of a fit, what is known in one direction is known in both.
    """
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


def checked_anchors(anchors: Any, n: int, r: int) -> tuple[Mask, Matrix]:
    """Which of n nodes are fixed, and their positions (n, r), NaN for the others."""
    positions = np.full((n, r), np.nan)
    if anchors is None:
        return np.zeros(n, dtype=bool), positions
    if isinstance(anchors, Mapping):
        for node, position in anchors.items():
            if not isinstance(node, int | np.integer) or not 0 <= node < n:
                raise InvalidInputError(
                    f"anchors must be a dict from node numbers, from 0 to {n - 1}, to positions;"
                    f" got the node {node!r}. Count nodes from 0."
                )
            place = np.asarray(kernels_for(position).to_host(position), dtype=np.float64)
            if place.shape != (r,) or not np.isfinite(place).all():
                raise InvalidInputError(
                    f"the position of an anchor must be n_components={r} finite numbers; node"
                    f" {node} has {position!r}.",
                    [node],
                )
            positions[node] = place
    else:
        given = np.asarray(kernels_for(anchors).to_host(anchors), dtype=np.float64)
        if given.shape != (n, r):
            raise InvalidInputError(
                f"anchors must be a dict, or an array of shape ({n}, {r}) with rows of NaN for"
                f" nodes whose position is not known; got shape {given.shape}."
            )
        positions = given
    unknown = np.isnan(positions)
    bad = np.flatnonzero((unknown.any(axis=1) & ~unknown.all(axis=1)) | np.isinf(positions).any(1))
    if len(bad):
        raise InvalidInputError(
            f"a position must be known in all its {r} coordinates or not at all; node {bad[0]} has"
            f" {positions[bad[0]]} ({len(bad)} in all). Fill in the row, or make it NaN.",
            bad,
        )
    return ~unknown.any(axis=1), positions


def aligned(Y: Matrix, fixed: Mask, positions: Matrix) -> Matrix:
    """Y (n, r), moved rigidly, mirrored perhaps, to where anchors are, and these put in place."""
    known, r = positions[fixed], positions.shape[1]
    Y = np.pad(Y, ((0, 0), (0, r - Y.shape[1])))
    centre = Y[fixed].mean(axis=0)
    left, _, right = np.linalg.svd((Y[fixed] - centre).T @ (known - known.mean(axis=0)))
    moved: Matrix = (Y - centre) @ (left @ right) + known.mean(axis=0)
    moved[fixed] = known
    return moved


def affine_rank(points: Matrix) -> int:
    """Dimensions of the least flat space that holds some points."""
    sizes = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return int((sizes > FLAT_ANCHORS * sizes.max(initial=0.0)).sum()) if sizes.any() else 0
