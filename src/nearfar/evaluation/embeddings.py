"""How faithful an embedding is to what it was made of [weinberger2007, 3.1.9 and 3.1.10].

With N(xᵢ) the l nearest neighbours of a point among the inputs and N(yᵢ) among the outputs, sums
over all i and j in N(xᵢ) in (1), in N(yᵢ) in (2), and dᵢⱼ the distances of the inputs:

(1) local continuity        C = 1 − min_s Σ (s ‖yᵢ − yⱼ‖ − dᵢⱼ)² / Σ dᵢⱼ²                     (3.27)
(2) local trust             T = 1 − min_s Σ (s dᵢⱼ − ‖yᵢ − yⱼ‖)² / Σ ‖yᵢ − yⱼ‖²               (3.28)
(3) intersection            N = Σᵢ |N(xᵢ) ∩ N(yᵢ)| / (n l)                                    (3.29)
(4) alignment error         err(A, B) = min_Q ‖A − B Q‖_F                                     (3.34)

For vectors a and b, min_s ‖s a − b‖² is reached at s = a·b / a·a, where it is
‖b‖² − (a·b)² / ‖a‖²; so (1) and (2) are squared cosines,

(5) (Σ dᵢⱼ ‖yᵢ − yⱼ‖)² / (Σ dᵢⱼ² Σ ‖yᵢ − yⱼ‖²).

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from nearfar.errors import InvalidInputError
from nearfar.graphs.distances import BLOCK_ENTRIES, DenseDistances, checked_points
from nearfar.kernels import Array, kernels_for, single_threaded_blas
from nearfar.kernels.all_pairs import ranks, ranks_in
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

METRICS = ("euclidean", "precomputed")


@dataclass(frozen=True)
class EmbeddingMeasures:
    """How faithful one embedding is; 1 is perfect in each number.

    Attributes
    ----------
    name : what the embedding is called
    n_neighbors : number l of neighbours
    local_continuity, local_trust, neighborhood_intersection : of the thesis
    trustworthiness : of Venna and Kaski, as in scikit-learn, or None where 2 n_neighbors is not
        below the number of points
    """

    name: str
    n_neighbors: int
    local_continuity: float
    local_trust: float
    neighborhood_intersection: float
    trustworthiness: float | None

    @property
    def harmonic_mean(self) -> float:
        """Of the three measures of the thesis, as in its Figure 3.28."""
        values = (self.local_continuity, self.local_trust, self.neighborhood_intersection)
        return 3 / sum(1 / value for value in values) if min(values) > 0 else 0.0


def local_continuity(X: Any, Y: Any, n_neighbors: int = 15, *, metric: str = "euclidean") -> float:
    """How well the embedding keeps the distances between neighbours of the input, eq. (3.27).

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features) or (n_samples, n_samples)
        The input: points, or for ``metric="precomputed"`` all distances between them.
    Y : array-like or torch.Tensor of shape (n_samples, n_components)
        The embedding. Its scale does not matter.
    n_neighbors : int, default=15
        Number of neighbours l. A point is not its own neighbour; of equally near ones the first
        count.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        What X holds.

    Returns
    -------
    float
        From 0 to 1; 0 also if all of these distances are 0 in the input or in the embedding.
    """
    return _Comparison.of(X, Y, n_neighbors, metric).local_continuity


def local_trust(X: Any, Y: Any, n_neighbors: int = 15, *, metric: str = "euclidean") -> float:
    """How well the embedding's distances between its neighbours match the input's, eq. (3.28).

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features) or (n_samples, n_samples)
        The input: points, or for ``metric="precomputed"`` all distances between them.
    Y : array-like or torch.Tensor of shape (n_samples, n_components)
        The embedding. Its scale does not matter.
    n_neighbors : int, default=15
        Number of neighbours l.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        What X holds.

    Returns
    -------
    float
        From 0 to 1; 0 also if all of these distances are 0 in the input or in the embedding.
    """
    return _Comparison.of(X, Y, n_neighbors, metric).local_trust


def neighborhood_intersection(
    X: Any, Y: Any, n_neighbors: int = 15, *, metric: str = "euclidean"
) -> float:
    """The share of neighbours in the input that are neighbours in the embedding, eq. (3.29).

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features) or (n_samples, n_samples)
        The input: points, or for ``metric="precomputed"`` all distances between them.
    Y : array-like or torch.Tensor of shape (n_samples, n_components)
        The embedding.
    n_neighbors : int, default=15
        Number of neighbours l. The larger, the easier: a random embedding has
        l / (n_samples − 1).
    metric : {"euclidean", "precomputed"}, default="euclidean"
        What X holds.

    Returns
    -------
    float
        From 0 to 1.
    """
    return _Comparison.of(X, Y, n_neighbors, metric).neighborhood_intersection


def trustworthiness(X: Any, Y: Any, n_neighbors: int = 5, *, metric: str = "euclidean") -> float:
    """How little neighbours in the embedding intrude, by their ranks in the input.

    ``1 - 2 / (n k (2n - 3k - 1)) Σ (r(i, j) - k)`` over all i and all j among the k nearest of i in
    the embedding but not in the input, where r(i, j) is the rank of j by its distance to i in the
    input. As in scikit-learn, and in blocks of rows.

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features) or (n_samples, n_samples)
        The input: points, or for ``metric="precomputed"`` all distances between them.
    Y : array-like or torch.Tensor of shape (n_samples, n_components)
        The embedding.
    n_neighbors : int, default=5
        Number of neighbours k, less than half as many as there are points.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        What X holds.

    Returns
    -------
    float
        From 0 to 1.

    References
    ----------
    Venna & Kaski, Neighborhood preservation in nonlinear projection methods, ICANN 2001.
    """
    found = _Comparison.of(X, Y, n_neighbors, metric)
    if 2 * found.k >= found.n:
        raise InvalidInputError(
            f"trustworthiness needs more than 2 * n_neighbors = {2 * found.k} points; got"
            f" {found.n}. Lower n_neighbors."
        )
    return found.trustworthiness


def measure_embedding(
    X: Any, Y: Any, n_neighbors: int = 15, *, metric: str = "euclidean", name: str = ""
) -> EmbeddingMeasures:
    """All measures of one embedding.

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features) or (n_samples, n_samples)
        The input: points, or for ``metric="precomputed"`` all distances between them.
    Y : array-like or torch.Tensor of shape (n_samples, n_components)
        The embedding.
    n_neighbors : int, default=15
        Number of neighbours.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        What X holds.
    name : str, default=""
        What to call it.

    Returns
    -------
    EmbeddingMeasures
        The measures.
    """
    return compare_embeddings(X, {name: Y}, n_neighbors, metric=metric)[0]


def compare_embeddings(
    X: Any, embeddings: Mapping[str, Any], n_neighbors: int = 15, *, metric: str = "euclidean"
) -> list[EmbeddingMeasures]:
    """All measures of several embeddings of the same points, whose neighbours are found once.

    Parameters
    ----------
    X : array-like or torch.Tensor of shape (n_samples, n_features) or (n_samples, n_samples)
        The input: points, or for ``metric="precomputed"`` all distances between them.
    embeddings : mapping of str to array-like of shape (n_samples, n_components)
        The embeddings by name.
    n_neighbors : int, default=15
        Number of neighbours.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        What X holds.

    Returns
    -------
    list of EmbeddingMeasures
        One for each, in their order.
    """
    side = _side(X, n_neighbors, metric)
    rows = []
    for name, Y in embeddings.items():
        found = _Comparison.with_input(side, Y)
        rows.append(
            EmbeddingMeasures(
                name,
                found.k,
                found.local_continuity,
                found.local_trust,
                found.neighborhood_intersection,
                found.trustworthiness if 2 * found.k < found.n else None,
            )
        )
    return rows


def alignment_error(A: Any, B: Any) -> float:
    """How far one embedding is from every linear map of another, min_Q ‖A − B Q‖_F of eq. (3.34).

    Parameters
    ----------
    A, B : array-like or torch.Tensor of shape (n_samples, n_components)
        Embeddings of the same points; they may differ in their number of components.

    Returns
    -------
    float
        In the units of A. Q is any matrix: it may rotate, scale and shear, but not move.
    """
    A, B = (np.asarray(kernels_for(E).to_host(checked_points(E)), np.float64) for E in (A, B))
    if len(A) != len(B):
        raise InvalidInputError(
            f"both embeddings must be of the same points; they have {len(A)} and {len(B)} rows."
        )
    Q = np.linalg.lstsq(B, A)[0]
    return float(np.linalg.norm(A - B @ Q))


def out_of_sample_consistency(
    estimator: Any, X: Any, *, held_out: float = 1 / 3, random_state: Any = None
) -> float:
    """How much ``transform`` varies with the points that were fitted, relative to ``fit``.

    The points are split at random into A, B and C, of which A and B have the same size. C is mapped
    by ``transform`` of an estimator fitted on A and of one fitted on B, and the error of aligning
    the two is divided by that of C embedded by ``fit`` with A and with B: eq. (3.34).

    Parameters
    ----------
    estimator : transformer with ``embedding_``
        It is cloned and fitted four times.
    X : array-like or torch.Tensor of shape (n_samples, n_features)
        The points.
    held_out : float, default=1/3
        Share of the points that belong to C.
    random_state : int, RandomState instance or None, default=None
        Draws the split.

    Returns
    -------
    float
        Below 1 if ``transform`` varies less than ``fit`` does; infinite if ``fit`` does not vary.
    """
    check_number("held_out", held_out, Real, 0, 1, open_ends=True)
    X = checked_points(X)
    size = int((1 - held_out) * len(X)) // 2
    if size < 2 or len(X) - 2 * size < 2:
        raise InvalidInputError(
            f"held_out={held_out:g} leaves fewer than 2 of {len(X)} points to a part. Add points,"
            " or bring held_out nearer to one third."
        )
    order = check_random_state(random_state).permutation(len(X))
    index = kernels_for(X).index
    A, B, C = (index(rows, X) for rows in (order[:size], order[size : 2 * size], order[2 * size :]))
    mapped, fitted = [], []
    for part in (A, B):
        mapped.append(clone(estimator).fit(X[part]).transform(X[C]))
        both = kernels_for(X).concatenate([part, C])
        fitted.append(clone(estimator).fit(X[both]).embedding_[size:])
    error, usual = alignment_error(*mapped), alignment_error(*fitted)
    return error / usual if usual > 0 else float("inf")


# -- the two sides of a comparison -------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """Points, and who is near."""

    points: Array  # (n, d) in float64, where they live
    k: int  # neighbours of a point

    @property
    def n(self) -> int:
        return len(self.points)

    @cached_property
    def neighbors(self) -> Index:
        """(n, k), nearest first."""
        kernels = kernels_for(self.points)
        _, near = kernels.nearest_in_class(self.points, np.array([0, self.n]), self.k)
        return np.asarray(kernels.to_host(near), dtype=np.intp).reshape(self.n, self.k)

    def lengths(self, heads: Index, tails: Index) -> Floats:
        """Distances along edges, on the host."""
        kernels = kernels_for(self.points)
        edges = (kernels.index(rows, self.points) for rows in (heads, tails))
        squares = kernels.to_host(kernels.sq_lengths(self.points, *edges))
        lengths: Floats = np.sqrt(squares)
        return lengths

    def ranks(self, heads: Index, tails: Index) -> Index:
        """The number of points that are nearer to each head than its tail is."""
        return ranks(self.points, heads, tails)


@dataclass(frozen=True)
class _Given:
    """A matrix of all distances."""

    distances: DenseDistances
    k: int  # neighbours of a point

    @property
    def n(self) -> int:
        return self.distances.n

    @cached_property
    def neighbors(self) -> Index:
        """(n, k), nearest first."""
        return self.distances.neighbors(self.k, None)[1].reshape(self.n, self.k)

    def lengths(self, heads: Index, tails: Index) -> Floats:
        """Distances along edges."""
        return self.distances.lengths(heads, tails)

    def ranks(self, heads: Index, tails: Index) -> Index:
        """The number of points that are nearer to each head than its tail is."""
        step, parts = max(1, BLOCK_ENTRIES // self.n), [np.empty(0, dtype=np.intp)]
        for start in range(0, self.n, step):
            table = self.distances.known(slice(start, min(start + step, self.n)))
            first, last = np.searchsorted(heads, [start, start + step])
            parts.append(ranks_in(table, start, heads[first:last], tails[first:last]))
        return np.concatenate(parts)


@dataclass(frozen=True)
class _Comparison:
    """An input and its embedding."""

    input: _Points | _Given
    output: _Points

    @classmethod
    def of(cls, X: Any, Y: Any, n_neighbors: Any, metric: Any) -> _Comparison:
        return cls.with_input(_side(X, n_neighbors, metric), Y)

    @classmethod
    def with_input(cls, side: _Points | _Given, Y: Any) -> _Comparison:
        output = _points(Y, side.k)
        if output.n != side.n:
            raise InvalidInputError(
                f"the embedding must have a row for each of the {side.n} points; it has"
                f" {output.n}. Check that they belong together."
            )
        return cls(side, output)

    @property
    def n(self) -> int:
        return self.input.n

    @property
    def k(self) -> int:
        return self.input.k

    @cached_property
    def local_continuity(self) -> float:
        return self._cosine(self.input.neighbors)  # (1)

    @cached_property
    def local_trust(self) -> float:
        return self._cosine(self.output.neighbors)  # (2)

    @cached_property
    def neighborhood_intersection(self) -> float:
        return float(1 - len(self._intruders[0]) / (self.n * self.k))  # (3)

    @cached_property
    def trustworthiness(self) -> float:
        n, k = self.n, self.k
        with single_threaded_blas():
            excess = self.input.ranks(*self._intruders) + 1 - k
        return float(1 - 2 * excess.sum() / (n * k * (2 * n - 3 * k - 1)))

    @cached_property
    def _intruders(self) -> tuple[Index, Index]:
        """Neighbours in the embedding that are none in the input, by point."""
        heads = np.repeat(np.arange(self.n), self.k)
        before, after = (
            heads * self.n + side.neighbors.ravel() for side in (self.input, self.output)
        )
        new = ~np.isin(after, before)
        return heads[new], self.output.neighbors.ravel()[new]

    def _cosine(self, neighbors: Index) -> float:
        """(5) along the edges to neighbours."""
        heads, tails = np.repeat(np.arange(self.n), self.k), neighbors.ravel()
        before, after = (side.lengths(heads, tails) for side in (self.input, self.output))
        if not (before.any() and after.any()):
            return 0.0
        before, after = before / before.max(), after / after.max()  # whose squares do not overflow
        return float((before @ after) ** 2 / ((before @ before) * (after @ after)))


def _side(X: Any, n_neighbors: Any, metric: Any) -> _Points | _Given:
    check_choice("metric", metric, METRICS)
    check_number("n_neighbors", n_neighbors, Integral, 1, None)
    if metric == "euclidean":
        return _points(X, n_neighbors)
    given = DenseDistances.of(X)
    if not np.isfinite(given.matrix.sum(dtype=np.float64)):
        bad = np.argwhere(~np.isfinite(given.matrix))
        raise InvalidInputError(
            f"the measures need all distances; that of points {bad[0][0]} and {bad[0][1]} is"
            f" not known ({len(bad)} in all). Give them all, or the points.",
            bad,
        )
    _check_enough(given.n, n_neighbors)
    return _Given(given, int(n_neighbors))


def _points(X: Any, n_neighbors: Any) -> _Points:
    points = checked_points(X)
    _check_enough(len(points), n_neighbors)
    points = kernels_for(points).double(points)
    return _Points(points - points[:1], int(n_neighbors))  # so that a far offset costs no digits


def _check_enough(n: int, n_neighbors: int) -> None:
    if n <= n_neighbors:
        raise InvalidInputError(
            f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} points; there are {n}."
            " Lower n_neighbors."
        )
