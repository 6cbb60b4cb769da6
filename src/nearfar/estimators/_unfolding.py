"""What unfolding estimators share: input, components of the graph, copies, limits, endings.

A subclass has the parameters that `Unfolding` names and implements `_unfold`, which is given the
graph of one component and places its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._base import as_dtype_of
from nearfar.estimators._callbacks import CallbackObserver, CallbackSupportMixin, with_callbacks
from nearfar.estimators._graph_input import METRICS, GraphInput, graph_input
from nearfar.estimators._iterative import IterativeLearner
from nearfar.estimators._new_points import NewPoints
from nearfar.estimators._notebook import Estimator
from nearfar.estimators._out_of_sample import METHODS, placed
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.neighborhood import CONNECT
from nearfar.graphs.report import listed
from nearfar.kernels import Array, is_torch, kernels_for, one_pool
from nearfar.solvers import Iterate, Record, Solution, Status, run
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

LONGEST = 1e140  # edge, so that sums of squares are floats; the longest is at least 1 / LONGEST
SHORTEST = 1e-70  # edge of different nodes, relative to the longest: squares of squares are floats

ON_DISCONNECTED = ("link", "error", "separate")  # what to do with several components
NO_LINKS = (
    "It tells no distances by which to link them: fit on graph.linked(distances), or set"
    " on_disconnected='separate' to unfold each by itself."
)
ENDED = (Status.INTERRUPTED, Status.STOPPED)  # nothing more is to be done
SEVERITY = (  # of components that end differently, the last of these tells
    Status.CONVERGED,
    Status.EARLY_STOPPED,
    Status.STALLED,
    Status.MAX_ITER,
    Status.MAX_SECONDS,
    *reversed(ENDED),
)


@dataclass(frozen=True)
class Unfolded:
    """Where the nodes of a connected graph go, and what is known of that."""

    embedding: Array  # (n, r), r at most n_components, on the host or where the data is
    eigenvalues: Matrix  # variances along the axes of the whole solution, largest first
    max_distortion: float  # of squared lengths, relative, in the whole solution
    objective: float
    duality_gap: float | None
    status: Status
    details: dict[str, Any] = field(default_factory=dict)  # for `_store_details`
    gap_unit: float = 1.0  # what the gap is relative to


class Task:
    """Where to compute, and how to run a solver within the limits of one fit.

    ``reference`` is an array on the device of the data and of its dtype, ``random`` the source of
    all that is random, ``history`` the trace of all runs so far, and ``rows`` are the nodes of the
    component at hand among all that differ.
    """

    def __init__(self, owner: Unfolding, X: Any, y: Any, reference: Array) -> None:
        self.reference = reference
        self.random = check_random_state(owner.random_state)
        self.history: list[Record] = []
        self.rows: Index = np.empty(0, dtype=np.intp)
        self._owner = owner
        self._marks: dict[str, Any] = {}
        self._fixed: dict[str, Any] = {}
        self._embedding: Callable[[Iterate], Array] = lambda iterate: iterate.point
        self._whole: Callable[[Array], Array] = lambda embedding: embedding
        self._callbacks = CallbackObserver(owner, X, y, None, self._attributes)

    def run(
        self,
        iterates: Iterator[Iterate],
        embedding: Callable[[Iterate], Array],
        *,
        tol: float | None = None,
        max_iter: int | None = None,
        **marks: Any,
    ) -> Solution:
        """Run a solver; ``embedding`` gives the places (n, r) at an iterate, for callbacks.

        ``tol`` and ``max_iter`` are the owner's unless given; ``marks`` are put into the records.
        The solution's history is that of all runs so far.
        """
        owner = self._owner
        self._embedding = embedding

        def observe(iterate: Iterate, trace: list[Record]) -> Status | None:
            trace[-1].update(self._marks, **marks)
            return self._callbacks(iterate, trace)

        solution = run(
            iterates,
            tol=owner.tol if tol is None else tol,
            max_iter=len(self.history) + (owner.max_iter if max_iter is None else max_iter),
            observers=[observe],
            history=self.history,
        )
        self.history = solution.history
        return solution

    def returned(self, Y: Matrix) -> Matrix:
        """Places on the host as they will be returned: rounded if the data is float32."""
        rounded = _beside(self.reference, Y)
        return np.asarray(kernels_for(rounded).to_host(rounded), dtype=np.float64)

    def begin_component(
        self, number: int, whole: Callable[[Array], Array], fixed: dict[str, Any]
    ) -> None:
        """Mark what follows as work on a component.

        ``whole`` puts its nodes among all; ``fixed`` are fitted attributes that are known already.
        """
        self._marks, self._whole, self._fixed = {"component": number}, whole, fixed

    def finish(self, attributes: dict[str, Any]) -> None:
        """Tell callbacks of the end."""
        self._callbacks.finish(lambda: attributes)

    def _attributes(self, iterate: Iterate) -> dict[str, Any]:
        return {**self._fixed, "embedding_": self._whole(self._embedding(iterate))}


class Unfolding(
    IterativeLearner,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    Estimator,
):
    """A transformer that lays out the nodes of a neighbourhood graph in few dimensions."""

    n_components: int
    n_neighbors: int | None
    angles: bool
    metric: str
    on_disconnected: str
    random_state: Any

    embedding_: Array
    graph_: NeighborhoodGraph
    component_labels_: Index
    X_fit_: Array | None

    _merges = True  # whether nodes at distance 0 are unfolded as one
    _more_edges = "Raise n_neighbors"  # how a graph becomes connected
    _connect = CONNECT  # that, or what else to do
    # What model files are checked for; see `nearfar.estimators._base.Metric`.
    _axes: ClassVar[dict[str, str]] = {"embedding_": "nr", "component_labels_": "n"}
    _mirrors = True  # whether an embedding and its mirror images are the same answer

    def _unfold(self, graph: NeighborhoodGraph, task: Task) -> Unfolded:
        """Place the nodes of a connected graph of at least two nodes."""
        raise NotImplementedError

    def _ordered(self, part: tuple[Index, NeighborhoodGraph]) -> tuple[Index, NeighborhoodGraph]:
        """The nodes of a component and its graph, in another order if that is of use."""
        return part

    def _store_details(self, parts: list[tuple[Index, Unfolded]]) -> None:
        """Store the fitted attributes that only a subclass has.

        There is one part, or with ``on_disconnected="separate"`` one for each component, largest
        first: its rows in the graph without copies, and what became of them.
        """

    # -- fitting -----------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> Self:
        """Lay out the points.

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
        estimator
            The fitted estimator.
        """
        self._check_parameters()
        with one_pool():
            given = graph_input(self, X, self.metric, self.n_neighbors, self.angles)
            _check_squares(given.graph)
            check_number("n_components", self.n_components, Integral, 1, given.graph.n_nodes - 1)
            graph = self._connected(given)
            task = Task(self, X, y, given.reference)
            fixed = {
                "X_fit_": given.points,
                "graph_": graph,
                "component_labels_": graph.components(),
            }
            self._lay_out(graph, task, fixed)
            task.finish({**fixed, "embedding_": self.embedding_})
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Lay out the points, and return where they go.

        Parameters
        ----------
        X, y
            As of `fit`.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            ``embedding_``.
        """
        return self.fit(X, y).embedding_

    def _check_parameters(self) -> None:
        """Refuse parameters that all share; subclasses add their own."""
        check_choice("metric", self.metric, METRICS)
        check_choice("on_disconnected", self.on_disconnected, ON_DISCONNECTED)
        if not isinstance(self.angles, bool | np.bool_):
            raise InvalidInputError(f"angles must be True or False; got {self.angles!r}.")
        check_number("n_components", self.n_components, Integral, 1, None)
        if self.n_neighbors is not None:
            check_number("n_neighbors", self.n_neighbors, Integral, 1, None)
        self._check_limits()

    def _connected(self, given: GraphInput) -> NeighborhoodGraph:
        """The graph, after what ``on_disconnected`` asks for."""
        graph, name = given.graph, type(self).__name__
        if self.on_disconnected == "separate":
            return graph
        if self.on_disconnected == "error":
            graph.check_connected(name, self._connect)
            return graph
        if graph.points is None and given.distances is None:
            graph.check_connected(name, NO_LINKS)
            return graph
        linked = graph.linked(given.distances, random_state=self.random_state)
        if linked is not graph:
            sizes, added = graph.component_sizes(), linked.n_edges - graph.n_edges
            warn(
                f"the neighbourhood graph has {len(sizes)} components, of {listed(sizes)} points;"
                f" {name} linked them by {added} edge{'s' * (added > 1)} between near points."
                f" {self._more_edges}, or set on_disconnected='separate' or 'error'.",
                DataWarning,
            )
        return linked

    def _lay_out(self, graph: NeighborhoodGraph, task: Task, fixed: dict[str, Any]) -> None:
        """Unfold each component, and store what every fit leaves behind."""
        for name, value in fixed.items():
            setattr(self, name, value)
        places, distinct = np.arange(graph.n_nodes), graph
        if self._merges and not graph.lengths.all():
            places, distinct = graph.merged()
        parts: list[tuple[Index, Unfolded]] = []
        for number, (rows, part) in enumerate(map(self._ordered, distinct.separated())):
            done = [(nodes, found.embedding) for nodes, found in parts]
            task.rows = rows
            task.begin_component(
                number,
                lambda embedding, rows=rows, done=done: self._whole(  # type: ignore[misc]
                    [*done, (rows, embedding)], places, task.reference
                ),
                fixed,
            )
            before = parts[-1][1].status if parts else None
            if part.n_nodes == 1:
                found = _alone()
            elif before in ENDED:
                found = _unreached(part.n_nodes, before)
            else:
                found = self._unfold(part, task)
            parts.append((rows, found))
        results = [found for _, found in parts]
        self.embedding_ = self._whole(
            [(rows, found.embedding) for rows, found in parts], places, task.reference
        )
        self.eigenvalues_ = _summed([found.eigenvalues for found in results])
        self.max_distortion_ = max(found.max_distortion for found in results)
        self._store_details(parts)
        status = max((found.status for found in results), key=SEVERITY.index)
        gap = _joint_gap(results)
        if status is Status.STALLED and gap is not None and gap <= self.tol:
            status = Status.CONVERGED  # as a whole
        self._store_ending(status, sum(found.objective for found in results), gap, task.history)

    def _whole(self, parts: list[tuple[Index, Array]], places: Index, reference: Array) -> Array:
        """Places of all nodes; those that are in no part lie at the origin, copies together."""
        kernels, n, r = kernels_for(reference), int(places.max()) + 1, self.n_components
        rows = [nodes for nodes, _ in parts]
        left_out = np.setdiff1d(np.arange(n), np.concatenate(rows))
        blocks = [_columns(embedding, r, reference, self._mirrors) for _, embedding in parts]
        blocks.append(kernels.like(np.zeros((len(left_out), r)), reference))
        order = np.argsort(np.concatenate([*rows, left_out]))
        return kernels.concatenate(blocks)[kernels.index(order[places], reference)]

    # -- new points --------------------------------------------------------------------------

    @one_pool()
    def transform(self, X: Any, *, method: str | None = None) -> Any:
        """Place new points beside those of `fit`, whose own places stay as they are.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            The points, or after a fit on distances the distances (n_samples, n_fit) to all points
            of `fit`. A point of `fit` goes where it was. After a fit on a kernel it is refused:
            kernel values with other points do not tell distances.
        method : {"sdp", "sdp+cg", "lle"} or None, default=None
            How a point is placed among its neighbours: by the semidefinite program of the thesis,
            by the least squared errors of squared distances, or by the weights that reconstruct
            it from its neighbours, for which `fit` must have seen points. None is the first,
            unless the class has a way of its own.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            Their places. With ``on_disconnected="separate"`` a point belongs to the component of
            the nearest point of `fit`.
        """
        check_is_fitted(self, "embedding_")
        if method is not None:
            check_choice("method", method, METHODS, or_else=", or None")
        if self.metric == "kernel":
            raise InvalidInputError(
                "kernel values do not tell the distances of new points to those of fit. Fit with"
                " metric='precomputed' on the distances sqrt(k_ii - 2 k_ij + k_jj), and transform"
                " those of new points."
            )
        search = NewPoints.of(self, X, self.X_fit_, self.graph_.n_nodes)
        labels, nodes = self.component_labels_, self._distinct()
        near, squares = search.nearest(np.arange(len(search)), nodes, self._n_placing(nodes))
        component, new = labels[near[:, 0]], squares[:, 0] > 0
        inside = (labels[near] == component[:, None]).all(axis=1)
        places = self.embedding_[kernels_for(self.embedding_).index(near[:, 0], self.embedding_)]
        for number in np.unique(component[new]):
            rows = np.flatnonzero(new & (component == number))
            if inside[rows].all():
                neighbors = near[rows], squares[rows]
            else:
                nodes = self._originals(number)
                neighbors = search.nearest(rows, nodes, self._n_placing(nodes))
            if method is None:
                found = self._place(*neighbors)
            else:
                found = placed(self.embedding_, *neighbors, method, self.X_fit_)
            places[kernels_for(places).index(rows, places)] = _beside(places, found)
        return as_dtype_of(search.new, places)

    def _place(self, near: Index, squares: Matrix) -> Array:
        """Places (m, r) of new points from their neighbours (m, k) and squared distances."""
        return placed(self.embedding_, near, squares)

    def _n_placing(self, nodes: Index) -> int:
        """How many of the nodes place a new point: as in the graph, or enough to pin it down."""
        return min(max(self.n_neighbors or 0, 2 * self.n_components + 1), len(nodes))

    def _distinct(self) -> Index:
        """All nodes, of copies only the first."""
        if not self._merges or self.graph_.lengths.all():
            return np.arange(self.graph_.n_nodes)
        firsts: Index = np.unique(self.graph_.merged()[0], return_index=True)[1]
        return firsts

    def _originals(self, component: int) -> Index:
        """The nodes of a component, of copies only the first."""
        nodes = self._distinct()
        inside: Index = nodes[self.component_labels_[nodes] == component]
        return inside

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric != "euclidean"
        tags.input_tags.sparse = self.metric == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def max_distortion(embedding: Array, graph: NeighborhoodGraph) -> float:
    """The largest |‖yᵢ − yⱼ‖² − Dᵢⱼ| / Dᵢⱼ over the edges of length above 0, D being squares."""
    kernels, wide = kernels_for(embedding), graph.lengths > 0
    edges = (kernels.index(nodes[wide], embedding) for nodes in (graph.heads, graph.tails))
    squares = kernels.to_host(kernels.sq_lengths(kernels.double(embedding), *edges))
    ratios = np.sqrt(squares) / graph.lengths[wide]  # D itself may be too small for a float
    return float(np.abs(ratios**2 - 1).max(initial=0.0))


def _columns(embedding: Array, count: int, reference: Array, mirrors: bool) -> Array:
    """An embedding of so many columns, beside the reference and of its dtype.

    If it may be mirrored, the entry of the largest size in each column becomes positive.
    """
    kernels = kernels_for(embedding)
    embedding = embedding[:, :count]
    n, r = embedding.shape
    if mirrors:
        tops = embedding[abs(embedding).argmax(0), kernels.arange(r, embedding)]
        embedding = embedding * (2.0 * (tops >= 0) - 1.0)
    if r < count:
        zeros = kernels.like(np.zeros((count - r, n)), embedding)
        embedding = kernels.concatenate([embedding.T, zeros]).T
    return _beside(reference, embedding)


def _check_squares(graph: NeighborhoodGraph) -> None:
    """Refuse lengths whose squares, or ratios of these, leave the range of float64."""
    longest = float(graph.lengths.max(initial=0.0))
    if longest > LONGEST or 0 < longest < 1 / LONGEST:
        raise InvalidInputError(
            f"the longest distance must lie between {1 / LONGEST:.0e} and {LONGEST:.0e}, so that"
            f" distances can be squared; it is {longest:.2g}. Divide the data by it."
        )
    short = (graph.lengths > 0) & (graph.lengths < SHORTEST * longest)
    if short.any():
        e = int(np.where(short, graph.lengths, np.inf).argmin())
        i, j = graph.heads[e], graph.tails[e]
        raise InvalidInputError(
            f"distances must be at least {SHORTEST:.0e} of the longest, {longest:.2g}; that of"
            f" nodes {i} and {j} is {graph.lengths[e]:.2g} ({short.sum()} such in all). Make nodes"
            " that are so near equal, or leave out outliers.",
            np.unique([graph.heads[short], graph.tails[short]]),
        )


def _beside(reference: Array, X: Array) -> Array:
    """What was computed on the host or on the device of the reference, there and of its dtype."""
    if is_torch(X):
        return as_dtype_of(reference, X)
    return kernels_for(reference).like(X, reference)


def _alone() -> Unfolded:
    """A component of a single node, at the origin."""
    return Unfolded(np.zeros((1, 1)), np.zeros(1), 0.0, 0.0, 0.0, Status.CONVERGED, gap_unit=0.0)


def _unreached(n: int, status: Status) -> Unfolded:
    """A component that an interrupted fit did not reach: all nodes at the origin, no proof."""
    return Unfolded(np.zeros((n, 1)), np.zeros(1), 1.0, 0.0, None, status)


def _summed(spectra: list[Matrix]) -> Matrix:
    """Sums over components: the variance of all nodes along each axis."""
    total = np.zeros(max(map(len, spectra)))
    for values in spectra:
        total[: len(values)] += values
    return total


def _joint_gap(results: list[Unfolded]) -> float | None:
    """The gap of the sum of the objectives, relative to the sum of their units; None if one is.

    It is never above the largest of theirs.
    """
    total, unit = 0.0, sum(found.gap_unit for found in results)
    for found in results:
        if found.duality_gap is None:
            return None
        total += found.duality_gap * found.gap_unit
    return total / (unit or 1.0)
