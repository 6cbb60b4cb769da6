"""The neighbourhood graph [weinberger2007, 3.1.4 and 3.1.12].

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from nearfar.blocks import LazyRows, is_lazy
from nearfar.errors import InvalidInputError
from nearfar.graphs.block_distances import AnyDistances, BlockDistances, check_graph_size
from nearfar.graphs.checks import checked_edges, edge_numbers, merged_edges, weights_of
from nearfar.graphs.cliques import has_flat_clique
from nearfar.graphs.components import check_one_component, component_labels, split_components
from nearfar.graphs.distances import (
    PointDistances,
    check_neighbors,
    check_size,
    checked_points,
    given_distances,
)
from nearfar.graphs.edges import ANGLE, BOTH, angle_edges, undirected
from nearfar.graphs.landmarks import farthest_first
from nearfar.graphs.linking import links
from nearfar.graphs.report import GraphReport
from nearfar.graphs.walks import connecting_edges, low_outliers, walk_probabilities
from nearfar.kernels import is_torch, kernels_for
from nearfar.validation import check_number

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

NEIGHBORS = 4  # by default
CONNECT = (  # what to do with a graph of several components
    "Raise n_neighbors, set on_disconnected='link' to join them by edges between near points, or"
    " on_disconnected='separate' to unfold each by itself."
)


@dataclass(frozen=True, eq=False, repr=False)
class NeighborhoodGraph:
    """Nodes, and the distances between neighbouring nodes.

    Make one with `from_points`, `from_distances` or `from_edges`. Graphs are immutable: methods
    that change something return a new graph. Every unfolding estimator accepts a graph instead of
    points.

    Attributes
    ----------
    n_nodes : int
        Number of nodes.
    heads, tails : ndarray of int, of shape (n_edges,)
        The edges, each once, with head < tail, sorted by head and then by tail.
    lengths : ndarray of shape (n_edges,)
        Lengths of the edges: distances, not squared, in float64.
    weights : ndarray of shape (n_edges,) or None
        Weight of each edge, or None if all are equal.
    points : ndarray, torch.Tensor, Dask array or None
        The points from which the graph was made, if any. Of a Dask array, parts of the graph have
        `LazyRows`, which know their row numbers.
    directions : ndarray of uint8, of shape (n_edges,) or None
        1 if the tail is a neighbour of the head, 2 if the head is a neighbour of the tail, 3 if
        both hold, and 0 if both are neighbours of a third node. None means 3 everywhere.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import NeighborhoodGraph
    >>> X, _ = make_swiss_roll(600, noise=0.5, random_state=0)
    >>> graph = NeighborhoodGraph.from_points(X, n_neighbors=7)
    >>> print(graph.report())
    nodes       600 (connected)
    edges       5152 (2679 of them angles)
    degrees     7 to 26, mean 17.2
    lengths     0.102 to 8.7, mean 3.16
    duplicates  none
    >>> graph.cut_bad_edges()
    <NeighborhoodGraph: 600 nodes, 5055 edges>
    """

    n_nodes: int
    heads: Index
    tails: Index
    lengths: Floats
    weights: Floats | None = None
    points: Any = None
    directions: NDArray[np.uint8] | None = None

    # -- making one --------------------------------------------------------------------------

    @classmethod
    def from_points(
        cls,
        X: Any,
        n_neighbors: int | None = None,
        *,
        radius: float | None = None,
        angles: bool = True,
    ) -> NeighborhoodGraph:
        """Join each point to its nearest neighbours.

        Parameters
        ----------
        X : array-like, torch.Tensor, Dask array or table, of shape (n_samples, n_features)
            The points. For tensors the ``n_neighbors`` nearest are searched on their device, and
            neighbours within a radius on the host. Rows of a Dask array stay where they are: they
            are searched over pairs of blocks, and only the graph comes to this machine.
        n_neighbors : int or None, default=None
            Number of neighbours of a point; the largest number if ``radius`` is given as well.
            None means 4, or no limit if ``radius`` is given.
        radius : float or None, default=None
            Largest distance of a neighbour.
        angles : bool, default=True
            Whether to join the neighbours of a point with each other as well, which fixes the
            angles at that point [weinberger2007, 3.1.4].

        Returns
        -------
        NeighborhoodGraph
            The graph.

        Notes
        -----
        Of equal points only the first has neighbours and is one; its copies are joined to it by
        edges of length 0. With n points, d features and k neighbours, the search takes O(n d log n)
        if d is small enough for trees, otherwise O(n² d); the rest takes O(n k² d) time and O(n k²)
        memory.
        """
        if n_neighbors is None and radius is None:
            n_neighbors = NEIGHBORS
        if is_lazy(X):
            return cls._of_blocks(X, n_neighbors, radius, angles)
        X = checked_points(X)
        return cls._of(PointDistances.of(X), n_neighbors, radius, angles, points=X)

    @classmethod
    def _of_blocks(
        cls, X: Any, n_neighbors: int | None, radius: float | None, angles: bool
    ) -> NeighborhoodGraph:
        """The graph of rows that stay where they are; what can be refused is, before the search."""
        rows = LazyRows.of(X)
        check_size(len(rows))
        check_neighbors(n_neighbors, radius, len(rows))
        if n_neighbors is None:
            raise InvalidInputError(
                "the number of neighbours within a radius is not known before they are found; for"
                " the rows of a Dask array it needs a limit, so that the graph fits into memory."
                " Give n_neighbors, too."
            )
        check_graph_size(len(rows), int(n_neighbors), angles=angles)
        points = rows if isinstance(X, LazyRows) else rows.array
        return cls._of(BlockDistances.of(rows), n_neighbors, radius, angles, points=points)

    @classmethod
    def from_distances(
        cls,
        D: Any,
        n_neighbors: int | None = None,
        *,
        radius: float | None = None,
        angles: bool = False,
        weights: Any = None,
    ) -> NeighborhoodGraph:
        """Join nodes with known distances, or the nearest of them.

        Parameters
        ----------
        D : array-like, torch.Tensor or sparse array of shape (n_samples, n_samples)
            Symmetric matrix of distances, not squared. Dense: NaN or infinity marks unknown
            distances. Sparse: the stored entries, zeros included, are the known distances; one
            direction suffices, so that graphs of nearest neighbours by scikit-learn
            (``kneighbors_graph`` or ``KNeighborsTransformer``) can be given. Tensors are copied to
            the host.
        n_neighbors : int or None, default=None
            Number of neighbours of a node, or fewer if fewer of its distances are known. None means
            all nodes with a known distance.
        radius : float or None, default=None
            Largest distance of a neighbour.
        angles : bool, default=False
            Whether to join the neighbours of a node with each other as well, if their distance is
            known. Has no effect if neither ``n_neighbors`` nor ``radius`` is given.
        weights : array-like or sparse array of shape (n_samples, n_samples), or None, default=None
            Weight of each distance: positive and symmetric for the distances that are used.

        Returns
        -------
        NeighborhoodGraph
            The graph.

        Notes
        -----
        Takes O(n²) time and O(n_edges) memory beside a dense D, O(m log m) time for m known
        distances of a sparse one.
        """
        graph = cls._of(given_distances(D), n_neighbors, radius, angles)
        if weights is None:
            return graph
        return replace(graph, weights=weights_of(weights, graph.n_nodes, graph.heads, graph.tails))

    @classmethod
    def from_edges(
        cls, heads: Any, tails: Any, lengths: Any, n_nodes: int, weights: Any = None
    ) -> NeighborhoodGraph:
        """Make a graph from a list of edges.

        Parameters
        ----------
        heads, tails : array-like of int, of shape (n_edges,)
            The nodes of each edge, numbered from 0, in any order. An edge may be given in both
            directions, with the same length.
        lengths : array-like of shape (n_edges,)
            Distances, not squared.
        n_nodes : int
            Number of nodes.
        weights : array-like of shape (n_edges,) or None, default=None
            Weight of each edge, positive.

        Returns
        -------
        NeighborhoodGraph
            The graph. Takes O(n_edges log n_edges) time.
        """
        check_size(n_nodes)
        return cls(n_nodes, *checked_edges(n_nodes, heads, tails, lengths, weights))

    @classmethod
    def _of(
        cls,
        distances: AnyDistances,
        n_neighbors: int | None,
        radius: float | None,
        angles: bool,
        points: Any = None,
    ) -> NeighborhoodGraph:
        n = distances.n
        heads, tails, directions = undirected(n, *distances.neighbors(n_neighbors, radius))
        lengths = distances.lengths(heads, tails)
        graph = cls(n, heads, tails, lengths, None, points, directions)
        return graph._with_angles(distances) if angles else graph

    # -- looking at it -----------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<NeighborhoodGraph: {self.n_nodes} nodes, {self.n_edges} edges>"

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.heads)

    def degrees(self) -> Index:
        """Number of edges (n_nodes,) of each node."""
        ends = np.concatenate([self.heads, self.tails])
        return np.bincount(ends, minlength=self.n_nodes)

    def components(self) -> Index:
        """Component number (n_nodes,) of each node; that of the first node is number 0."""
        return component_labels(self.n_nodes, self.heads, self.tails)

    def component_sizes(self) -> tuple[int, ...]:
        """Number of nodes of each component, largest first."""
        return tuple(np.sort(np.bincount(self.components()))[::-1].tolist())

    def is_consistent(self) -> bool:
        """Whether node numbers are in range, and every array has one entry per edge."""
        arrays = (self.heads, self.tails, self.lengths, self.weights, self.directions)
        sizes = {len(values) for values in arrays if values is not None}
        ends = np.concatenate([self.heads, self.tails])
        return len(sizes) == 1 and bool(((ends >= 0) & (ends < self.n_nodes)).all())

    def adjacency(self, values: Any = None) -> sparse.csr_array:
        """Symmetric sparse matrix (n_nodes, n_nodes) of a value per edge, by default its length.

        Values of zero are stored, as scipy's graph algorithms expect.
        """
        values = self.lengths if values is None else np.asarray(values)
        nodes = np.array([self.heads, self.tails], dtype=np.int32)  # scipy 1.13 takes no others
        ends = nodes.ravel(), nodes[::-1].ravel()
        shape = (self.n_nodes, self.n_nodes)
        return sparse.csr_array((np.concatenate([values, values]), ends), shape=shape)

    def laplacian(self, weights: Any = None) -> sparse.csr_array:
        """Sparse L = diag(W1) − W with the weights of the edges, or with 1 if there are none."""
        if weights is None:
            weights = np.ones(self.n_edges) if self.weights is None else self.weights
        W = self.adjacency(np.asarray(weights, dtype=np.float64))
        return (sparse.diags_array(W.sum(axis=1)) - W).tocsr()

    def report(self) -> GraphReport:
        """Summary to check before unfolding: components, duplicates, degrees, lengths."""
        degrees, positive = self.degrees(), self.lengths[self.lengths > 0]
        zero = self._part(self.lengths == 0)
        return GraphReport(
            n_nodes=self.n_nodes,
            n_edges=self.n_edges,
            n_angles=int((self._directions() == ANGLE).sum()),
            component_sizes=self.component_sizes(),
            n_duplicates=self.n_nodes - int(zero.components().max()) - 1,
            min_degree=int(degrees.min()),
            mean_degree=float(degrees.mean()),
            max_degree=int(degrees.max()),
            min_length=float(positive.min()) if len(positive) else 0.0,
            mean_length=float(positive.mean()) if len(positive) else 0.0,
            max_length=float(positive.max(initial=0.0)),
        )

    def is_stiff(self) -> bool:
        """Whether the graph has a flat clique.

        That is a set of nodes, all joined to each other, that span fewer dimensions than so many
        independent points would, such as five in space or four in a plane. None of their distances
        can change alone, however little, and unfolding has to keep them all to the last digit.
        """
        return has_flat_clique(self.n_nodes, self.heads, self.tails, self.lengths**2)

    def check_connected(self, name: str, remedy: str = CONNECT) -> None:
        """Raise a `DisconnectedGraphError` that names the estimator if there are components.

        ``remedy`` is the last sentence of the message.
        """
        check_one_component(self.components(), name, remedy)

    # -- changing it -------------------------------------------------------------------------

    def with_angles(self, distances: Any = None) -> NeighborhoodGraph:
        """Join the neighbours of each node with each other [weinberger2007, 3.1.4].

        Distances are computed from the points. A graph that was not made from points takes them
        from the matrix ``distances``, if known. Edges of length 0 make no angles.
        """
        return self._with_angles(self._distances(distances, "angles"))

    def _with_angles(self, distances: AnyDistances) -> NeighborhoodGraph:
        heads, tails = angle_edges(self.n_nodes, self.heads, self.tails, self._wide_directions())
        lengths = distances.lengths(heads, tails)
        known = ~np.isnan(lengths)
        return self._and(heads[known], tails[known], lengths[known], ANGLE)

    def without_angles(self) -> NeighborhoodGraph:
        """The graph without the edges that only join neighbours of a third node."""
        return self.without(self._directions() == ANGLE)

    def without(self, edges: Any) -> NeighborhoodGraph:
        """The graph without some edges, given by their numbers or as a mask of all edges."""
        kept = np.ones(self.n_edges, dtype=bool)
        kept[edge_numbers(edges, self.n_edges)] = False
        return self._part(kept)

    def linked(self, distances: Any = None, *, random_state: Any = None) -> NeighborhoodGraph:
        """Join the components by edges between near nodes [weinberger2007, 3.1.12].

        For a random node x of a component, let x' be the node outside it that is nearest to x, and
        x'' the node of the component that is nearest to x'; the new edge joins x' and x''. All
        components except the largest get such an edge, and this is repeated until the graph is
        connected.

        Parameters
        ----------
        distances : array-like or sparse array of shape (n_nodes, n_nodes), or None, default=None
            Distances of the nodes, if the graph was not made from points. Unknown distances make
            no links.
        random_state : int, RandomState instance or None, default=None
            Draws the nodes x.

        Returns
        -------
        NeighborhoodGraph
            The linked graph. If edges have weights, new edges get the mean weight. Takes
            O(n log n) time for points of few features; tensors are copied to the host.
        """
        labels = self.components()
        if not labels.any():
            return self
        known = self._distances(distances, "links")
        heads, tails = links(labels, known, check_random_state(random_state))
        return self._and(heads, tails, known.lengths(heads, tails), BOTH)

    def separated(self) -> list[tuple[Index, NeighborhoodGraph]]:
        """Split into components, largest first: the nodes of each, and their graph."""
        parts, place = [], np.empty(self.n_nodes, dtype=np.intp)
        for rows, edges in split_components(self.components(), self.heads):
            place[rows] = np.arange(len(rows))
            graph = replace(
                self._part(edges),
                n_nodes=len(rows),
                heads=place[self.heads[edges]],
                tails=place[self.tails[edges]],
                points=rows_of(self.points, rows),
            )
            parts.append((rows, graph))
        return parts

    def merged(self) -> tuple[Index, NeighborhoodGraph]:
        """Merge nodes at distance 0; returns the new number of each node, and the smaller graph.

        A merged node keeps the point and the order of its first node. Edges that become one must
        have equal lengths; their weights are summed.
        """
        zero, rest = self._part(self.lengths == 0), self._part(self.lengths > 0)
        labels = zero.components()
        firsts = np.unique(labels, return_index=True)[1]
        heads, tails, lengths, weights, directions = merged_edges(
            labels, rest.heads, rest.tails, rest.lengths, rest.weights, rest._directions()
        )
        points = rows_of(self.points, firsts)
        return labels, type(self)(len(firsts), heads, tails, lengths, weights, points, directions)

    # -- judging it --------------------------------------------------------------------------

    def edge_probabilities(self, steps: int = 7, sigma: float | None = None) -> Floats:
        """Probability that a random walk from one end of an edge reaches the other.

        A walk takes an edge of length x with probability proportional to exp(−x / sigma). Long
        edges with few alternative routes get low values [weinberger2007, 3.1.12].

        Parameters
        ----------
        steps : int, default=7
            Number of steps within which the other end must be reached.
        sigma : float or None, default=None
            Length scale. None means half of the median edge length, which is about 1, the value of
            the thesis, on its Swiss roll.

        Returns
        -------
        ndarray of shape (n_edges,)
            The sum of the probabilities of both directions, between 0 and 2.

        Notes
        -----
        With b nodes within ``steps`` / 2 steps of a node, the time is O(n b) times the degree of
        a node, and the memory O(n_edges).
        """
        check_number("steps", steps, Integral, 1)
        if sigma is None:
            sigma = 0.5 * float(np.median(self.lengths)) if self.lengths.any() else 1.0
        check_number("sigma", sigma, Real, 0, open_ends=True, infinite=True)
        return walk_probabilities(
            self.n_nodes, self.heads, self.tails, self.lengths, int(steps), float(sigma)
        )

    def bad_edges(
        self, steps: int = 7, sigma: float | None = None, *, threshold: float = 2.0
    ) -> Index:
        """Edges that seem to be short circuits between distant parts of the data.

        These are the low outliers of the logarithm of `edge_probabilities`, except edges that
        connect components: a short circuit is never the only way. Edges that only join neighbours
        of a third node would support short circuits; they are left out of the walk and are never
        returned.

        Parameters
        ----------
        steps, sigma : int, float or None
            As in `edge_probabilities`.
        threshold : float, default=2.0
            An outlier lies more than this many interquartile ranges below the lower quartile.
            Cutting a good edge does little harm; keeping a bad one prevents the unfolding.

        Returns
        -------
        ndarray of int
            Numbers of the edges.
        """
        check_number("threshold", threshold, Real, 0, infinite=True)
        direct = self._part(self._directions() != ANGLE)
        walked = direct.lengths > 0
        if not walked.any():
            return np.empty(0, dtype=np.intp)
        q = np.full(direct.n_edges, np.inf)
        q[walked] = direct._part(walked).edge_probabilities(steps, sigma)
        doubtful = walked & low_outliers(q, threshold)
        held = connecting_edges(self.n_nodes, direct.heads, direct.tails, q, doubtful)
        return np.flatnonzero(self._directions() != ANGLE)[doubtful & ~held]

    def cut_bad_edges(
        self, steps: int = 7, sigma: float | None = None, *, threshold: float = 2.0
    ) -> NeighborhoodGraph:
        """The graph without its `bad_edges`, and without the angles that exist only due to them."""
        bad = np.zeros(self.n_edges, dtype=bool)
        bad[self.bad_edges(steps, sigma, threshold=threshold)] = True
        angle = self._directions() == ANGLE
        if not angle.any():
            return self.without(bad)
        left = self._part(~angle & ~bad)
        more = angle_edges(self.n_nodes, left.heads, left.tails, left._wide_directions())
        kept = np.isin(self.heads * self.n_nodes + self.tails, more[0] * self.n_nodes + more[1])
        return self._part(~bad & (~angle | kept))

    # -- choosing from it --------------------------------------------------------------------

    def landmarks(self, count: int, *, method: str = "farthest", random_state: Any = None) -> Index:
        """Choose nodes that represent all others.

        Parameters
        ----------
        count : int
            Number of landmarks.
        method : {"farthest", "random"}, default="farthest"
            "farthest" starts at a random node and repeatedly adds the node that is farthest along
            the graph from all chosen nodes; components without a landmark come first. "random"
            draws all of them.
        random_state : int, RandomState instance or None, default=None
            Draws the first node, or all landmarks.

        Returns
        -------
        ndarray of int, of shape (count,)
            Node numbers, in the order in which they were chosen.
        """
        check_number("count", count, Integral, 1, self.n_nodes)
        random = check_random_state(random_state)
        if method == "farthest":
            return farthest_first(self.adjacency(), int(count), random)
        if method == "random":
            drawn: Index = random.permutation(self.n_nodes)[:count]
            return drawn
        raise InvalidInputError(f"method must be 'farthest' or 'random'; got {method!r}.")

    # -- parts -------------------------------------------------------------------------------

    def _directions(self) -> NDArray[np.uint8]:
        if self.directions is None:
            return np.full(self.n_edges, BOTH, dtype=np.uint8)
        return self.directions

    def _wide_directions(self) -> NDArray[np.uint8]:
        """Directions, with 0 for edges of length 0: a point and its copy make no angles."""
        return np.where(self.lengths > 0, self._directions(), ANGLE).astype(np.uint8)

    def _part(self, edges: Any) -> NeighborhoodGraph:
        """The same nodes with some of the edges, by number or mask."""
        return replace(
            self,
            heads=self.heads[edges],
            tails=self.tails[edges],
            lengths=self.lengths[edges],
            weights=None if self.weights is None else self.weights[edges],
            directions=None if self.directions is None else self.directions[edges],
        )

    def _and(
        self, heads: Index, tails: Index, lengths: Floats, direction: int
    ) -> NeighborhoodGraph:
        """The graph with additional edges, which must be new."""
        weights, more = self.weights, np.full(len(heads), direction, dtype=np.uint8)
        if weights is not None:
            weights = np.concatenate([weights, np.full(len(heads), weights.mean())])
        graph = replace(
            self,
            heads=np.concatenate([self.heads, heads]),
            tails=np.concatenate([self.tails, tails]),
            lengths=np.concatenate([self.lengths, lengths]),
            weights=weights,
            directions=np.concatenate([self._directions(), more]),
        )
        return graph._part(np.argsort(graph.heads * self.n_nodes + graph.tails, kind="stable"))

    def _distances(self, given: Any, what: str) -> AnyDistances:
        """Distances of the points, or the given ones."""
        if given is not None:
            distances = given_distances(given)
            if distances.n != self.n_nodes:
                raise InvalidInputError(
                    f"distances must be those of the {self.n_nodes} nodes; got a matrix of"
                    f" {distances.n}."
                )
            return distances
        if self.points is None:
            raise InvalidInputError(
                f"{what} need distances that are not in the graph, which was not made from points."
                " Pass the matrix as distances=."
            )
        return (BlockDistances if is_lazy(self.points) else PointDistances).of(self.points)


def rows_of(points: Any, rows: Index) -> Any:
    """Rows of the points, where they are; None stays None."""
    if points is None:
        return None
    if is_lazy(points):
        return LazyRows.of(points)[rows]
    points = points if is_torch(points) else np.asarray(points)
    return points[kernels_for(points).index(rows, points)]
