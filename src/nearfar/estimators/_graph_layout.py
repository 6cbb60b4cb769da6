"""The graph that an unfolding is given, its components, and the places of all nodes.

`graph_input` makes the neighbourhood graph of what ``fit`` is given, and links its components or
refuses them. `Layout` holds the components, in which copies of a point are one node, and puts
together the places that are found for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import LazyRows, is_dask, is_lazy
from nearfar.blocks.collections import array_of_known_rows
from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._blocks import refuse_dask, validated_dask
from nearfar.estimators._input import validated_points
from nearfar.estimators._training import Training
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.neighborhood import CONNECT
from nearfar.graphs.ordering import in_near_order
from nearfar.graphs.report import format_sizes
from nearfar.kernels import Array, as_dtype_of, is_torch, kernels_for
from nearfar.solvers import Iterate, Solution, Status
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

METRICS = ("euclidean", "precomputed", "kernel")
ON_DISCONNECTED = ("link", "error", "separate")
LONGEST = 1e140  # edge, so that sums of squares are floats; the longest is at least 1 / LONGEST
SHORTEST = 1e-70  # edge of different nodes, relative to the longest: squares of squares are floats
NOT_POSITIVE = 1e-8  # of the largest kernel value: a squared distance may be so far below zero
ORDERED = 20000  # nodes from which on their order matters to caches

NO_LINKS = (
    "It has no distances by which to link them: fit on graph.linked(distances), or set"
    " on_disconnected='separate' to unfold each by itself."
)
ENDED = (Status.INTERRUPTED, Status.STOPPED)  # no further component is unfolded
SEVERITY = (  # if components end differently, the last of these is the status of the fit
    Status.CONVERGED,
    Status.EARLY_STOPPED,
    Status.STALLED,
    Status.MAX_ITER,
    Status.MAX_SECONDS,
    *reversed(ENDED),
)


# -- from X to a graph -------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphInput:
    """The graph that ``fit`` works on, and what it was made of."""

    graph: NeighborhoodGraph
    points: Any  # (n, d) where they are, perhaps lazy; None if only distances are known
    distances: Any  # (n, n), dense or sparse, if they were given
    reference: Array  # an array of the device and dtype of what is returned


def check_graph_parameters(estimator: Any) -> None:
    """Validate the parameters that all unfoldings share, except limits."""
    check_choice("metric", estimator.metric, METRICS)
    check_choice("on_disconnected", estimator.on_disconnected, ON_DISCONNECTED)
    if not isinstance(estimator.angles, bool | np.bool_):
        raise InvalidInputError(f"angles must be True or False; got {estimator.angles!r}.")
    check_number("n_components", estimator.n_components, Integral, 1, None)
    if estimator.n_neighbors is not None:
        check_number("n_neighbors", estimator.n_neighbors, Integral, 1, None)


def graph_input(
    estimator: Any,
    X: Any,
    *,
    blocks: bool = False,
    more_edges: str = "Raise n_neighbors",
    remedy: str = CONNECT,
) -> GraphInput:
    """The graph of X, with its components linked unless ``on_disconnected`` says otherwise.

    Sets ``n_features_in_``. ``blocks`` says that the estimator takes rows of Dask arrays.
    ``more_edges`` and ``remedy`` are the advice in the warning about links and in the error about a
    disconnected graph.
    """
    if isinstance(X, NeighborhoodGraph):
        given = _given_graph(estimator, X, blocks)
    elif is_dask(X):
        given = _graph_of_blocks(estimator, X, blocks)
    elif estimator.metric == "euclidean":
        points = validated_points(estimator, X, reset=True)
        graph = NeighborhoodGraph.from_points(
            points, estimator.n_neighbors, angles=estimator.angles
        )
        given = GraphInput(graph, points, None, points)
    else:
        D = distances_of_kernel(X) if estimator.metric == "kernel" else X
        graph = NeighborhoodGraph.from_distances(D, estimator.n_neighbors, angles=estimator.angles)
        set_features(estimator, graph.n_nodes)
        reference = X if is_torch(X) and X.is_floating_point() else np.empty(0)
        given = GraphInput(graph, None, D, reference)
    _check_lengths(given.graph)
    check_number("n_components", estimator.n_components, Integral, 1, given.graph.n_nodes - 1)
    graph = _connected(given, estimator, more_edges, remedy)
    _check_lengths(graph)  # of links, too
    return replace(given, graph=graph)


def _given_graph(estimator: Any, graph: NeighborhoodGraph, blocks: bool) -> GraphInput:
    if graph.points is None:
        set_features(estimator, graph.n_nodes)
        return GraphInput(graph, None, None, np.empty(0))
    if is_lazy(graph.points):
        array = LazyRows.of(graph.points).array
        if not blocks:
            refuse_dask(estimator, array)
        validated_dask(estimator, array, reset=True)
        return GraphInput(graph, graph.points, None, _floats_like(array))
    points = validated_points(estimator, graph.points, reset=True)
    return GraphInput(graph, points, None, points)


def _graph_of_blocks(estimator: Any, X: Any, blocks: bool) -> GraphInput:
    """The graph of the rows of a Dask array, which stay where they are."""
    if not blocks:
        refuse_dask(estimator, X)
    if estimator.metric != "euclidean":
        raise InvalidInputError(
            f"metric={estimator.metric!r} needs an array in memory; got a Dask {type(X).__name__}."
            " Give points with metric='euclidean', or known distances as a sparse array."
        )
    array = array_of_known_rows(validated_dask(estimator, X, reset=True))
    graph = NeighborhoodGraph.from_points(array, estimator.n_neighbors, angles=estimator.angles)
    return GraphInput(graph, array, None, _floats_like(array))


def _floats_like(array: Any) -> Array:
    """An empty array in the type in which embeddings of such rows are returned."""
    return np.empty(0, dtype=np.float32 if array.dtype == np.float32 else np.float64)


def set_features(estimator: Any, count: int) -> None:
    """Store the number of features, which have no names."""
    estimator.n_features_in_ = count
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _connected(
    given: GraphInput, estimator: Any, more_edges: str, remedy: str
) -> NeighborhoodGraph:
    """The graph, after what ``on_disconnected`` asks for."""
    graph, name = given.graph, type(estimator).__name__
    if estimator.on_disconnected == "separate":
        return graph
    if estimator.on_disconnected == "error":
        graph.check_connected(name, remedy)
        return graph
    if graph.points is None and given.distances is None:
        graph.check_connected(name, NO_LINKS)
        return graph
    linked = graph.linked(given.distances, random_state=estimator.random_state)
    if linked is not graph:
        sizes, added = graph.component_sizes(), linked.n_edges - graph.n_edges
        warn(
            f"the neighbourhood graph has {len(sizes)} components, of {format_sizes(sizes)} points;"
            f" {name} linked them by {added} edge{'s' * (added > 1)} between near points."
            f" {more_edges}, or set on_disconnected='separate' or 'error'.",
            DataWarning,
        )
    return linked


def _check_lengths(graph: NeighborhoodGraph) -> None:
    """Raise unless squares of the lengths, and their ratios, are in the range of float64."""
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


def distances_of_kernel(K: Any) -> Matrix:
    """√(kᵢᵢ − 2kᵢⱼ + kⱼⱼ) of a kernel matrix, on the host. Memory O(n²)."""
    if sparse.issparse(K):
        raise InvalidInputError(
            "a kernel matrix must be dense; got a sparse one. Use K.toarray(), or give sparse"
            " distances with metric='precomputed'."
        )
    K = np.asarray(kernels_for(K).to_host(K), dtype=np.float64)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not np.isfinite(K).all():
        raise InvalidInputError(
            "a kernel matrix must be square and finite, (n_samples, n_samples); got shape"
            f" {K.shape}. For points use metric='euclidean'."
        )
    diagonal = K.diagonal()
    squares: Matrix = diagonal[:, None] + diagonal - 2 * K
    np.fill_diagonal(squares, 0.0)
    least = np.unravel_index(squares.argmin(), squares.shape)
    if squares[least] < -NOT_POSITIVE * np.abs(diagonal).max():
        i, j = map(int, least)
        raise InvalidInputError(
            "a kernel matrix must be positive semidefinite; the squared distance k_ii - 2 k_ij +"
            f" k_jj of {i} and {j} is {squares[least]:g}. Check that these are kernel values: for"
            " distances use metric='precomputed'.",
            [[i, j]],
        )
    distances: Matrix = np.sqrt(squares.clip(0, None))
    return distances


# -- components and their places ---------------------------------------------------------------


@dataclass(frozen=True)
class Component:
    """A connected part of the graph."""

    number: int  # 0 is the largest
    rows: Index  # its nodes, numbered among the different nodes of the whole graph
    graph: NeighborhoodGraph

    def in_near_order(self) -> Component:
        """The component with neighbours near each other in memory, if it is large."""
        if self.graph.n_nodes < ORDERED:
            return self
        order, graph = in_near_order(self.graph)
        return replace(self, rows=self.rows[order], graph=graph)


@dataclass(frozen=True)
class Unfolded:
    """The places of the nodes of a component, and what is known of them."""

    embedding: Array  # (n, r), r at most n_components, on the host or where the data is
    eigenvalues: Matrix  # variances along the axes of the whole solution, largest first
    max_distortion: float  # of squared lengths, relative, in the whole solution
    objective: float
    duality_gap: float | None
    status: Status
    gap_unit: float = 1.0  # what the gap is relative to


class Layout:
    """The components of a graph, and the places of their nodes as they are found.

    Copies of a point are one node if ``merge``. An embedding and its mirror images are the same
    answer if ``mirrors``; then the largest entry of each column becomes positive.
    """

    def __init__(
        self, given: GraphInput, n_components: int, *, merge: bool = True, mirrors: bool = True
    ) -> None:
        graph = given.graph
        self.reference = given.reference
        self._n_components, self._mirrors = n_components, mirrors
        self._attributes: dict[str, Any] = {
            "X_fit_": given.points,
            "graph_": graph,
            "component_labels_": graph.components(),
        }
        # The number of each node among different ones, (n,).
        self.distinct: Index = np.arange(graph.n_nodes)
        if merge and not graph.lengths.all():
            self.distinct, graph = graph.merged()
        self._n_distinct = graph.n_nodes
        self.first_copies: Index = np.unique(self.distinct, return_index=True)[1]
        parts = enumerate(graph.separated())
        self._components = [Component(number, *part) for number, part in parts]
        self.found: list[tuple[Component, Unfolded]] = []  # largest first

    def components(self) -> Iterator[Component]:
        """Yield the components to unfold, largest first; the caller stores each by `place`.

        A single node is placed at the origin, and so are all components after an interruption or
        after a callback has asked to stop.
        """
        for component in self._components:
            status = self.found[-1][1].status if self.found else None
            if component.graph.n_nodes == 1:
                self.place(component, _single_node())
            elif status in ENDED:
                self.place(component, _not_reached(component.graph.n_nodes, status))
            else:
                yield component

    def place(self, component: Component, unfolded: Unfolded) -> None:
        """Store the places of a component."""
        self.found.append((component, unfolded))

    def attributes(
        self, component: Component | None = None, embedding: Array | None = None
    ) -> dict[str, Any]:
        """The fitted attributes at this stage, perhaps with the places of one more component."""
        more = [] if component is None else [(component.rows, embedding)]
        return {**self._attributes, "embedding_": self._join(more)}

    def _join(self, more: list[tuple[Index, Array]]) -> Array:
        """Places of all nodes; nodes that were not placed yet lie at the origin."""
        blocks = [(component.rows, unfolded.embedding) for component, unfolded in self.found] + more
        kernels, n, r = kernels_for(self.reference), self._n_distinct, self._n_components
        rows = [nodes for nodes, _ in blocks]
        others = np.setdiff1d(np.arange(n), np.concatenate(rows))
        places = [_columns(Y, r, self.reference, self._mirrors) for _, Y in blocks]
        places.append(kernels.like(np.zeros((len(others), r)), self.reference))
        order = np.argsort(np.concatenate([*rows, others]))
        index = kernels.index(order[self.distinct], self.reference)
        return kernels.concatenate(places)[index]

    def join_matrices(self, blocks: list[tuple[Component, Array]]) -> Array:
        """The block-diagonal matrix of all nodes, on the device of its blocks."""
        whole = np.zeros((self._n_distinct, self._n_distinct))
        for component, block in blocks:
            rows = component.rows
            whole[np.ix_(rows, rows)] = kernels_for(block).to_host(block)
        whole = whole[np.ix_(self.distinct, self.distinct)]
        like = blocks[0][1] if blocks else whole
        return kernels_for(like).like(whole, like)

    @property
    def graph(self) -> NeighborhoodGraph:
        """The whole graph, with all copies of a point."""
        graph: NeighborhoodGraph = self._attributes["graph_"]
        return graph

    @property
    def component_labels(self) -> Index:
        """The component of each row of X."""
        labels: Index = self._attributes["component_labels_"]
        return labels

    @property
    def eigenvalues(self) -> Matrix:
        """Sums over components: the variance of all nodes along each axis."""
        spectra = [unfolded.eigenvalues for _, unfolded in self.found]
        total = np.zeros(max(map(len, spectra)))
        for values in spectra:
            total[: len(values)] += values
        return total

    @property
    def objective(self) -> float:
        """The sum of the objectives of all components."""
        return float(sum(unfolded.objective for _, unfolded in self.found))

    @property
    def duality_gap(self) -> float | None:
        """The gap of the sum of the objectives, relative to the sum of their units.

        It is never above the largest gap of a component, and None if a component has none.
        """
        total, unit = 0.0, sum(unfolded.gap_unit for _, unfolded in self.found)
        for _, unfolded in self.found:
            if unfolded.duality_gap is None:
                return None
            total += unfolded.duality_gap * unfolded.gap_unit
        return total / (unit or 1.0)

    def status(self, tol: float) -> Status:
        """The worst ending of a component; converged if the gap of all together meets tol."""
        status = max((unfolded.status for _, unfolded in self.found), key=SEVERITY.index)
        gap = self.duality_gap
        if status is Status.STALLED and gap is not None and gap <= tol:
            return Status.CONVERGED
        return status


def run_component(
    training: Training,
    layout: Layout,
    component: Component,
    iterates: Iterator[Iterate],
    embedding: Callable[[Iterate], Array],
    *,
    tol: float | None = None,
    stage: str | None = None,
    times: int = 1,
    save: Callable[[Iterate], None] | None = None,
) -> Solution:
    """Run a solver on a component; ``embedding`` gives its places at an iterate, for callbacks.

    ``times`` the ``max_iter`` of the estimator limits the iterations of this run alone. The records
    of the history hold the number of the component, and the stage if there is one. ``save`` is
    that of `Training.run`.
    """
    marks: dict[str, Any] = {"component": component.number}
    return training.run(
        iterates,
        lambda iterate: layout.attributes(component, embedding(iterate)),
        tol=tol,
        max_iter=len(training.history) + times * training.max_iter,
        marks=marks if stage is None else marks | {"stage": stage},
        save=save,
    )


def store_layout(estimator: Any, layout: Layout) -> None:
    """Store what every unfolding leaves behind, except how its fit ended."""
    for name, value in layout.attributes().items():
        setattr(estimator, name, value)
    estimator.eigenvalues_ = layout.eigenvalues
    estimator.max_distortion_ = max(unfolded.max_distortion for _, unfolded in layout.found)


def max_distortion(embedding: Array, graph: NeighborhoodGraph) -> float:
    """The largest |‖yᵢ − yⱼ‖² − Dᵢⱼ| / Dᵢⱼ over the edges of length above 0, D being squares."""
    kernels, wide = kernels_for(embedding), graph.lengths > 0
    edges = (kernels.index(nodes[wide], embedding) for nodes in (graph.heads, graph.tails))
    squares = kernels.to_host(kernels.sq_lengths(kernels.double(embedding), *edges))
    ratios = np.sqrt(squares) / graph.lengths[wide]  # D itself may be too small for a float
    return float(np.abs(ratios**2 - 1).max(initial=0.0))


def to_type_of(reference: Array, X: Array) -> Array:
    """X, which is on the host or on the device of the reference, there and of its dtype."""
    if is_torch(X):
        return as_dtype_of(reference, X)
    return kernels_for(reference).like(X, reference)


def as_returned(Y: Matrix, reference: Array) -> Matrix:
    """Places on the host in float64, as they will be returned: rounded if the data is float32."""
    rounded = to_type_of(reference, Y)
    return np.asarray(kernels_for(rounded).to_host(rounded), dtype=np.float64)


def _columns(embedding: Array, count: int, reference: Array, mirrors: bool) -> Array:
    """An embedding of ``count`` columns, beside the reference and of its dtype."""
    kernels = kernels_for(embedding)
    embedding = embedding[:, :count]
    n, r = embedding.shape
    if mirrors:
        tops = embedding[abs(embedding).argmax(0), kernels.arange(r, embedding)]
        embedding = embedding * (2.0 * (tops >= 0) - 1.0)
    if r < count:
        zeros = kernels.like(np.zeros((count - r, n)), embedding)
        embedding = kernels.concatenate([embedding.T, zeros]).T
    return to_type_of(reference, embedding)


def _single_node() -> Unfolded:
    """A node without edges, at the origin."""
    return Unfolded(np.zeros((1, 1)), np.zeros(1), 0.0, 0.0, 0.0, Status.CONVERGED, gap_unit=0.0)


def _not_reached(n: int, status: Status) -> Unfolded:
    """A component that the fit did not reach: all nodes at the origin, and no proof."""
    return Unfolded(np.zeros((n, 1)), np.zeros(1), 1.0, 0.0, None, status)
