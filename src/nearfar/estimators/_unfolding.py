"""The base class of unfoldings: what they do after the fit, and new points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from nearfar.blocks import LazyRows, is_dask, is_lazy
from nearfar.blocks.collections import array_of_known_rows
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import Estimator
from nearfar.estimators._blocks import lazy_places, validated_dask
from nearfar.estimators._graph_layout import to_type_of
from nearfar.estimators._input import check_device, validated_points
from nearfar.estimators._out_of_sample import METHODS, descend_on_patches, place_by_neighbors
from nearfar.estimators._training import CallbackSupportMixin
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import (
    Array,
    as_dtype_of,
    is_torch,
    kernels_for,
    single_threaded_blas,
    to_host,
)
from nearfar.kernels.search import Search
from nearfar.supervision.neighbor_blocks import nearest_in_blocks
from nearfar.validation import check_choice

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

TREE_QUERIES = 256  # that are worth building a tree; it finds the same points
TREE_DIMENSIONS = 8  # in which a tree is quicker


class Unfolding(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """A transformer that lays out the nodes of a neighbourhood graph in few dimensions."""

    n_components: int
    n_neighbors: int | None
    metric: str

    embedding_: Array
    graph_: NeighborhoodGraph
    component_labels_: Index
    X_fit_: Any  # points in memory, lazy points, or None

    # What model files are checked for; see `nearfar.estimators._base.Metric`.
    _axes: ClassVar[dict[str, str]] = {"embedding_": "nr", "component_labels_": "n"}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Lay out the points; each unfolding has its own."""
        raise NotImplementedError

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Fit, and return the embedding.

        Parameters
        ----------
        X, y, **options
            As in `fit`.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples, n_components)
            ``embedding_``.
        """
        return self.fit(X, y, **options).embedding_

    @single_threaded_blas()
    def transform(self, X: Any, *, method: str | None = None) -> Any:
        """Place new points beside those of `fit`, whose own places stay as they are.

        Parameters
        ----------
        X : array-like, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points, or after a fit on distances the distances (n_samples, n_fit) to all points
            of `fit`. A point of `fit` goes where it was. After a fit on a kernel it is refused:
            kernel values with other points do not determine distances.
        method : {"sdp", "sdp+cg", "sdp+patch", "lle"} or None, default=None
            How a point is placed among its neighbours: by the semidefinite program of the thesis,
            by the least squared errors of squared distances, by the same with its neighbours moved,
            too, for each point by itself, or by the weights that reconstruct it from its
            neighbours, for which `fit` must have seen points. None is "sdp".

        Returns
        -------
        ndarray, torch.Tensor or Dask array of shape (n_samples, n_components)
            Their places. With ``on_disconnected="separate"`` a point belongs to the component of
            the nearest point of `fit`. Of a Dask array they are lazy, unless the points of `fit`
            are one, too: then the blocks of both are searched at once, and places are in memory.
        """
        check_is_fitted(self, "embedding_")
        if method is not None:
            check_choice("method", method, METHODS, or_else=", or None")
        if self.metric == "kernel":
            raise InvalidInputError(
                "kernel values do not determine the distances of new points to those of fit. Fit"
                " with metric='precomputed' on the distances sqrt(k_ii - 2 k_ij + k_jj), and"
                " transform those of new points."
            )
        self._check_points_kept()
        if is_dask(X) and not is_lazy(self.X_fit_):
            check_device(self, X._meta, self.embedding_)
            return lazy_places(self, X, method=method)
        search = NewPoints.of(self, X, self.X_fit_, self.graph_.n_nodes)
        labels, nodes = self.component_labels_, self._first_copies()
        near, squares = search.nearest(np.arange(len(search)), nodes, self._n_neighbors_used(nodes))
        component, new = labels[near[:, 0]], squares[:, 0] > 0
        inside = (labels[near] == component[:, None]).all(axis=1)
        kernels = kernels_for(self.embedding_)
        places = self.embedding_[kernels.index(near[:, 0], self.embedding_)]
        for number in np.unique(component[new]):
            rows = np.flatnonzero(new & (component == number))
            if inside[rows].all():
                neighbors = near[rows], squares[rows]
            else:
                own = nodes[labels[nodes] == number]
                neighbors = search.nearest(rows, own, self._n_neighbors_used(own))
            found = self._place(*neighbors, method or "sdp")
            if method == "sdp+patch":
                Y = np.asarray(to_host(self.embedding_), dtype=np.float64)
                found = descend_on_patches(Y, self.graph_, *neighbors, to_host(found))
            places[kernels.index(rows, places)] = to_type_of(places, found)
        return as_dtype_of(search.new, places)

    def _check_points_kept(self) -> None:
        """Raise if the fit was on points that the model has lost."""
        if self.X_fit_ is None and self.n_features_in_ != self.graph_.n_nodes:
            raise InvalidInputError(
                f"{type(self).__name__} was fitted on the rows of a Dask array, which are not in a"
                " model file, and new points are placed by the nearest of them. Set X_fit_ of the"
                " model to that array, lazy or computed."
            )

    def _place(self, near: Index, squares: Matrix, method: str) -> Array:
        """Places of new points; of lazy points of `fit`, only rows that are needed are computed."""
        if method != "lle" or not is_lazy(self.X_fit_):
            return place_by_neighbors(self.embedding_, near, squares, method, self.X_fit_)
        rows, places = np.unique(near, return_inverse=True)
        points = LazyRows.of(self.X_fit_)[rows].on_this_machine()
        places = places.reshape(near.shape)
        return place_by_neighbors(self.embedding_[rows], places, squares, method, to_host(points))

    def _first_copies(self) -> Index:
        """All nodes, of copies of a point only the first."""
        if self.graph_.lengths.all():
            return np.arange(self.graph_.n_nodes)
        return np.unique(self.graph_.merged()[0], return_index=True)[1]

    def _n_neighbors_used(self, nodes: Index) -> int:
        """How many of the nodes place a new point: as in the graph, or enough to determine it."""
        return min(max(self.n_neighbors or 0, 2 * self.n_components + 1), len(nodes))

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric != "euclidean"
        tags.input_tags.sparse = self.metric == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True)
class NewPoints:
    """New points (m, d) and fitted ones (n, d), or the distances (m, n) between them."""

    new: Array  # or lazy points, if the fitted ones are
    fitted: Any  # in memory, or lazy; None: ``new`` are distances

    @classmethod
    def of(cls, estimator: Any, X: Any, fitted: Any, n_fitted: int) -> NewPoints:
        """Validate the X of ``transform``; without fitted points it must be distances."""
        if is_dask(X):
            return cls(array_of_known_rows(validated_dask(estimator, X, reset=False)), fitted)
        if fitted is not None:
            X = validated_points(estimator, X, reset=False)
            check_device(estimator, X, fitted)
            return cls(X, fitted)
        if sparse.issparse(X):
            raise InvalidInputError(
                f"{type(estimator).__name__} needs the distances of each new point to all"
                f" {n_fitted} fitted ones; got a sparse matrix, which leaves some out. Pass a dense"
                " one, for example from sklearn.metrics.pairwise_distances."
            )
        X = check_array(kernels_for(X).to_host(X), dtype=[np.float64, np.float32])
        if X.shape[1] != n_fitted:
            raise InvalidInputError(
                f"{type(estimator).__name__} was fitted on distances of {n_fitted} points and needs"
                f" those of each new point to all of them; got {X.shape[1]}."
            )
        bad = np.argwhere(X < 0)
        if len(bad):
            raise InvalidInputError(
                f"distances must not be negative; row {bad[0][0]} has one in column {bad[0][1]}"
                f" ({len(bad)} in all). Check how they were computed.",
                bad,
            )
        return cls(X, None)

    def __len__(self) -> int:
        return len(self.new)

    def nearest(self, rows: Index, nodes: Index, k: int) -> tuple[Index, Matrix]:
        """Of some new points the k nearest of some fitted ones, and squared distances.

        Both (len(rows), k), on the host, nearest first, ties by number.
        """
        if self.fitted is None:
            block = self.new[np.ix_(rows, nodes)].astype(np.float64)
            order = np.argsort(block, axis=1, kind="stable")[:, :k]
            return nodes[order], np.take_along_axis(block, order, axis=1) ** 2
        if is_lazy(self.fitted):
            blocks = LazyRows.of(self.fitted)[nodes].blocks()
            new = self.new[rows] if not is_dask(self.new) else LazyRows(self.new, rows).blocks()
            near, squares = nearest_in_blocks(blocks, new, k)
            return nodes[near], squares
        kernels = kernels_for(self.fitted)
        new = self.new[kernels.index(rows, self.new)]
        fitted = self.fitted[kernels.index(nodes, new)]
        few = len(new) < TREE_QUERIES or new.shape[1] > TREE_DIMENSIONS or is_torch(new)
        near, squares = Search.of(fitted, "brute" if few else "kd_tree").nearest(new, k)
        return nodes[kernels.to_host(near)], kernels.to_host(squares).astype(np.float64)
