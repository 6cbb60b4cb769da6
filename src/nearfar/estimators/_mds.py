"""The input of multidimensional scaling, its initial places, and the base of its classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra, shortest_path
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from nearfar.errors import DisconnectedGraphError, InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.estimators._graph_layout import set_features
from nearfar.estimators._input import validated_points
from nearfar.estimators._training import CallbackSupportMixin, check_limits
from nearfar.graphs import NeighborhoodGraph
from nearfar.graphs.checks import weights_of
from nearfar.graphs.components import component_labels
from nearfar.graphs.distances import DenseDistances, SparseDistances
from nearfar.kernels import Array, is_torch, kernels_for
from nearfar.kernels.all_pairs import distances
from nearfar.limits import check_time
from nearfar.linalg import signed
from nearfar.problems.classical_mds import gram_of_distances, leading_axes
from nearfar.problems.mds import AllPairs, SomePairs, many
from nearfar.validation import check_choice, check_number

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

METRICS = ("euclidean", "precomputed")
STARTS = ("classical", "random")
SMALL = 1e-8  # share of the value with all points in one place: smaller ones count as this
PATH_ENTRIES = 1 << 20  # of lengths of paths between two checks of the clock
NUDGE = 1e-3  # of the spread: random moves of points that start in one place or one line
SAME_WEIGHTS = 1e-6  # relative difference of weights that should be equal


Edges = tuple[Index, Index, Floats, Floats | None]
"""Heads, tails, lengths and weights of pairs, each pair once, on the host."""


@dataclass(frozen=True)
class KnownDistances:
    """The distances that are known, in a unit: a matrix where the data is, or edges on the host."""

    n: int
    reference: Array  # of no rows, on the device, in float64
    matrix: Array | None = None  # (n, n), 0 where unknown
    weights: Array | None = None  # (n, n) beside it, 0 where unknown; None if all count alike
    few: Edges | None = None  # in place of a matrix
    unit: float = 1.0  # a power of two, near the largest distance

    @classmethod
    def of_graph(cls, graph: NeighborhoodGraph, reference: Array) -> KnownDistances:
        """The lengths of the edges in the unit of the data, on the device of the reference."""
        edges = graph.heads, graph.tails, graph.lengths, graph.weights
        return cls(graph.n_nodes, kernels_for(reference).double(reference[:0]), few=edges)

    def pairs(self) -> AllPairs | SomePairs:
        """The form in which stress is computed."""
        if self.matrix is not None:
            return AllPairs.of(self.matrix, self.weights)
        return self.some_pairs()

    def some_pairs(self, *, on_host: bool = False) -> SomePairs:
        """The known distances as edges."""
        heads, tails, lengths, weights = self.edges()
        reference = np.empty(0) if on_host else self.reference
        return SomePairs.of(self.n, (heads, tails), lengths, weights, reference)

    def size(self) -> float:
        """The standard deviation of random coordinates for which the mean of d² is that of δ²."""
        lengths = self.edges()[2]
        return float(np.sqrt(np.mean(lengths**2) / 2))

    def complete(self) -> Array:
        """The matrix (n, n), with the shortest paths along known distances where unknown."""
        if self.matrix is not None and self.weights is None:
            return self.matrix
        heads, tails, lengths, _ = self.edges()
        ends = heads.astype(np.int32), tails.astype(np.int32)  # scipy 1.13 takes no others
        graph = sparse.csr_array((lengths, ends), shape=(self.n, self.n))
        whole = _path_lengths(graph)
        whole[heads, tails] = whole[tails, heads] = lengths
        return kernels_for(self.reference).like(whole, self.reference)

    def check_connected(self, name: str) -> None:
        """Raise if the known distances leave parts whose relative positions are undetermined."""
        if self.matrix is not None and self.weights is None:
            return
        heads, tails, _, _ = self.edges()
        labels = component_labels(self.n, heads, tails)
        if not labels.any():
            return
        sizes = np.bincount(labels)
        count, shown = len(sizes), np.sort(sizes)[::-1].tolist()
        listed = ", ".join(map(str, shown[:5])) + (", ..." if count > 5 else "")
        raise DisconnectedGraphError(
            f"{name} needs known distances that connect all points; these leave {count} parts, of"
            f" {listed} points, whose relative positions are undetermined. Add distances"
            " between the parts, or embed each by itself.",
            np.flatnonzero(labels != sizes.argmax()),
            shown,
        )

    def edges(self) -> Edges:
        """The known distances, pair by pair."""
        if self.few is not None:
            return self.few
        kernels = kernels_for(self.matrix)
        matrix = np.asarray(kernels.to_host(self.matrix))
        if self.weights is None:
            heads, tails = np.triu_indices(self.n, 1)
            return heads, tails, matrix[heads, tails], None
        weights = np.asarray(kernels.to_host(self.weights))
        heads, tails = np.nonzero(np.triu(weights, 1))
        return heads, tails, matrix[heads, tails], weights[heads, tails]


def known_distances(estimator: Any, X: Any, weights: Any) -> tuple[KnownDistances, Array]:
    """The known distances of X, and an array of the library, device and dtype of the answer.

    Sets ``n_features_in_``, and ``feature_names_in_`` where X has names.
    """
    if isinstance(X, NeighborhoodGraph):
        return _of_graph(estimator, X, weights)
    if estimator.metric == "euclidean":
        points = validated_points(estimator, X, reset=True)
        check_components(estimator, len(points))
        double = kernels_for(points).double(points)
        double = double - double[:1]
        unit = power_of_two(float(abs(double).max()))
        W = None if weights is None else checked_weights(weights, len(points))
        return _of_matrix(distances(double / unit), W, unit), points
    X = validated_distances(estimator, X)
    if sparse.issparse(X):
        given = SparseDistances.of(X)
        check_components(estimator, given.n)
        once = given.origins < given.targets
        edges = given.origins[once], given.targets[once]
        W = None if weights is None else weights_of(weights, given.n, *edges)
        known = _of_edges(given.n, np.empty(0), (*edges, given.values[once], W))
        return known, np.empty(0, X.dtype)
    matrix = DenseDistances.of(X).matrix  # on the host, for what is refused
    check_components(estimator, len(matrix))
    finite = np.isfinite(matrix)
    np.fill_diagonal(finite, True)
    W = None if weights is None else checked_weights(weights, len(matrix))
    if not finite.all():
        W = finite * (1.0 - np.eye(len(matrix)) if W is None else W)
    full: Floats = np.where(finite, matrix, 0.0).astype(np.float64)
    unit = power_of_two(float(full.max()))
    full = 0.5 * (full / unit + full.T / unit)
    np.fill_diagonal(full, 0.0)
    reference = X if is_torch(X) else np.empty(0, X.dtype)
    double = kernels_for(reference).double(reference)
    return _of_matrix(kernels_for(double).like(full, double), W, unit), reference


def power_of_two(largest: float) -> float:
    """The power of two below a number, by which division changes no digit; 1 for 0."""
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if largest > 0 else 1.0


def _of_edges(n: int, reference: Array, edges: Edges) -> KnownDistances:
    """Edges whose lengths are not yet in a unit."""
    heads, tails, lengths, weights = edges
    unit = power_of_two(float(lengths.max(initial=0.0)))
    return KnownDistances(n, reference, few=(heads, tails, lengths / unit, weights), unit=unit)


def _of_matrix(matrix: Array, W: Floats | None, unit: float) -> KnownDistances:
    """A matrix in a unit and weights, as edges where these are few."""
    kernels, n = kernels_for(matrix), len(matrix)
    reference = matrix[:0, 0]
    if W is None:
        return KnownDistances(n, reference, matrix, unit=unit)
    heads, tails = np.nonzero(np.triu(W, 1))
    if many(n, len(heads)):
        return KnownDistances(n, reference, matrix, kernels.like(W, matrix), unit=unit)
    index = (kernels.index(rows, matrix) for rows in (heads, tails))
    lengths = np.asarray(kernels.to_host(matrix[tuple(index)]))
    return KnownDistances(n, reference, few=(heads, tails, lengths, W[heads, tails]), unit=unit)


def _of_graph(
    estimator: Any, graph: NeighborhoodGraph, weights: Any
) -> tuple[KnownDistances, Array]:
    if weights is not None:
        raise InvalidInputError(
            "a NeighborhoodGraph has weights of its own; got weights beside it. Give them to the"
            " graph, or pass distances."
        )
    reference: Array = np.empty(0)
    if graph.points is None:
        set_features(estimator, graph.n_nodes)
    else:
        reference = validated_points(estimator, graph.points, reset=True)
    check_components(estimator, graph.n_nodes)
    double = kernels_for(reference).double(reference[:0])
    edges = (graph.heads, graph.tails, graph.lengths, graph.weights)
    return _of_edges(graph.n_nodes, double, edges), reference


def validated_distances(estimator: Any, X: Any, *, missing: bool = True) -> Any:
    """Validate a matrix of distances where it lives, and set ``n_features_in_``."""
    if is_torch(X):
        set_features(estimator, int(X.shape[-1]))
        X = kernels_for(X).detached(X)
        X = X if X.is_floating_point() else X.double()
    else:
        X = validate_data(
            estimator,
            X,
            reset=True,
            accept_sparse=missing,
            dtype=[np.float64, np.float32],
            ensure_all_finite=not missing,
        )
    check_not_negative(X.tocoo().data if sparse.issparse(X) else X)
    return X


def check_not_negative(D: Array) -> None:
    """Raise unless all distances are at least 0."""
    if bool((D < 0).any()):
        bad = np.argwhere(np.asarray(kernels_for(D).to_host(D < 0)))
        where = "" if D.ndim == 1 else f", in row {bad[0][0]} and column {bad[0][1]} for one"
        raise InvalidInputError(
            "Negative values in data: distances must not be negative, and"
            f" {len(bad)} of them are{where}. Check how they were computed.",
            bad,
        )


def check_components(estimator: Any, n: int) -> None:
    """Raise unless there are at least 2 points, and more than ``n_components``."""
    name = type(estimator).__name__
    if n < 2:
        raise InvalidInputError(f"{name} needs at least 2 points; got n_samples={n}. Add points.")
    check_number("n_components", estimator.n_components, Integral, 1, n - 1)


def checked_weights(weights: Any, n: int) -> Floats:
    """A symmetric matrix of weights, none negative, with zeros on the diagonal, on the host."""
    given = weights.toarray() if sparse.issparse(weights) else kernels_for(weights).to_host(weights)
    W: Floats = np.array(given, dtype=np.float64)
    if W.shape != (n, n):
        raise InvalidInputError(
            f"weights must have the shape of the distances, {(n, n)}; got {W.shape}."
        )
    np.fill_diagonal(W, 0.0)
    bad = np.argwhere(~(np.isfinite(W) & (W >= 0)))
    if len(bad):
        i, j = bad[0]
        raise InvalidInputError(
            f"weights must be finite and not negative; that of points {i} and {j} is {W[i, j]:g}"
            f" ({len(bad)} in all). Use 0 for what does not count.",
            bad,
        )
    bad = np.argwhere(np.abs(W - W.T) > SAME_WEIGHTS * np.maximum(W, W.T))
    if len(bad):
        i, j = bad[0]
        raise InvalidInputError(
            f"weights must be symmetric; from point {i} to {j} it is {W[i, j]:g}, and back"
            f" {W[j, i]:g} ({len(bad)} in all). Make them so, for example by (W + W.T) / 2.",
            bad,
        )
    W = 0.5 * (W + W.T)
    return W


def _path_lengths(graph: sparse.csr_array) -> Floats:
    """Lengths (n, n) of all shortest paths, by Dijkstra's method unless most pairs are known."""
    n = graph.shape[0]
    if 4 * graph.nnz >= n * n:
        dense: Floats = shortest_path(graph, directed=False)
        return dense
    whole = np.empty((n, n))
    step = max(1, PATH_ENTRIES // n)
    for first in range(0, n, step):
        check_time()
        rows = np.arange(first, min(first + step, n))
        whole[rows] = dijkstra(graph, directed=False, indices=rows)
    return whole


# -- where to start ----------------------------------------------------------------------------


def initial_places(known: KnownDistances, r: int, init: Any, random_state: Any) -> Array:
    """Places (n, r) to start from, no two of them equal."""
    kernels, random = kernels_for(known.reference), check_random_state(random_state)
    if isinstance(init, str) and init == "classical":
        vectors, roots = leading_axes(gram_of_distances(known.complete()), r)
        Y = np.asarray(kernels.to_host(vectors * roots))
    elif isinstance(init, str):
        Y = random.normal(size=(known.n, r)) * known.size() / np.sqrt(r)
    else:
        Y = given_places(init, known.n, r) / known.unit
    spread = np.linalg.norm(Y, axis=0) / np.sqrt(known.n)
    flat = spread <= np.finfo(float).eps * spread.max()
    if flat.any() or len(np.unique(Y, axis=0)) < known.n:
        # Forces never part what lies in one place, nor lead out of a line or plane.
        Y = Y + NUDGE * (spread.max() or known.size()) * random.normal(size=Y.shape)
    return kernels.like(Y, known.reference)


def given_places(init: Any, n: int, r: int) -> Floats:
    """Validate initial places that are given as an array."""
    Y = np.asarray(kernels_for(init).to_host(init))
    if Y.shape != (n, r) or Y.dtype.kind not in "iuf" or not np.isfinite(Y).all():
        raise InvalidInputError(
            f"init must be 'classical', 'random' or finite numbers of shape {(n, r)}; got an array"
            f" of shape {Y.shape} of {Y.dtype}."
        )
    return Y.astype(np.float64)


def principal_places(Y: Array) -> Array:
    """Y about its mean and along its principal axes, each with a positive largest entry."""
    kernels = kernels_for(Y)
    host = np.asarray(kernels.to_host(Y), dtype=np.float64)
    U, lengths, _ = np.linalg.svd(host - host.mean(axis=0), full_matrices=False)
    return kernels.like(signed(U.T).T * lengths, Y)


# -- iterative scaling -------------------------------------------------------------------------


class IterativeMDS(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator
):
    """A transformer that places the points of its fit by descending a stress."""

    metric: str
    embedding_: Array

    _axes: ClassVar[dict[str, str]] = {"embedding_": "nr"}

    def fit(self, X: Any, y: Any = None, *, weights: Any = None) -> Self:
        """Place the points; each class has its own."""
        raise NotImplementedError

    def fit_transform(self, X: Any, y: Any = None, *, weights: Any = None) -> Any:
        """Fit, and return the embedding.

        Parameters
        ----------
        X, y, weights
            As in `fit`.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            ``embedding_``.
        """
        return self.fit(X, y, weights=weights).embedding_

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = self.metric == "precomputed"
        tags.input_tags.pairwise = tags.input_tags.positive_only = given
        tags.input_tags.sparse = tags.input_tags.allow_nan = given
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_scaling_parameters(estimator: Any) -> None:
    """Validate the parameters that iterative scaling shares."""
    check_limits(estimator)
    check_choice("metric", estimator.metric, METRICS)
    if isinstance(estimator.init, str):
        check_choice("init", estimator.init, STARTS, " or an array")


def in_unit_beside(Y: Array, start: Array, unit: float) -> Array:
    """The returned places divided by the unit, in the dtype and on the device of the start."""
    Y = np.asarray(kernels_for(Y).to_host(Y), dtype=np.float64)
    return kernels_for(start).like(Y / unit, start)


def relative_gain(scale: float) -> Callable[[Any, float], float]:
    """The gain that is left, relative to the value or, if that is tiny, to a share of ``scale``."""
    return lambda at, gain: gain / max(at.value, SMALL * scale)
