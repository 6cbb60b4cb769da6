"""The base classes: an estimator, a metric, and a metric learner whose map is a matrix."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from nearfar.blocks import Streamed, is_dask
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import lazy_rows, streamed_images
from nearfar.estimators._deploy import (
    LinearDistance,
    QueryIndex,
    faiss_index,
    onnx_model,
    query_index,
)
from nearfar.estimators._input import (
    check_device,
    floating_tensor,
    validated_points,
    validated_rows,
)
from nearfar.estimators._training import CallbackSupportMixin
from nearfar.kernels import (
    Array,
    as_dtype_of,
    is_torch,
    kernels_for,
    single_threaded_blas,
    to_host,
)
from nearfar.supervision import Tuples
from nearfar.validation import check_in_memory

if TYPE_CHECKING:
    import faiss
    import onnx

Index = NDArray[np.intp]
Vector = NDArray[np.float64]


class Estimator(BaseEstimator):
    """The base of all estimators of nearfar, whose diagram in a notebook says how the fit ended.

    scikit-learn draws an estimator, alone or inside a pipeline or a search, from what
    ``_sk_visual_block_`` returns. Should another version of scikit-learn not understand that, the
    diagram is scikit-learn's own, without these facts.
    """

    # What every fit that minimises something leaves behind; see `store_ending`.
    objective_: float | None
    duality_gap_: float | None
    status_: str
    n_iter_: int
    history_: list[dict[str, Any]]

    def _sk_visual_block_(self) -> Any:
        from sklearn.utils._repr_html.estimator import _VisualBlock

        own = {
            name: getattr(self, f"{name}_", part) for name, part in self.get_params(False).items()
        }
        parts = {  # fitted estimators, which know how their fits ended
            name: part
            for name, part in own.items()
            if hasattr(part, "fit") and not isinstance(part, type)
        }
        facts = fit_facts(self)
        if facts or not parts:
            return _VisualBlock(
                "single",
                self,
                names=type(self).__name__,
                name_details=str(self),
                name_caption=" · ".join(facts) or None,
            )
        return _VisualBlock(
            "parallel",
            list(parts.values()),
            names=[f"{name}: {type(part).__name__}" for name, part in parts.items()],
            name_details=[str(part) for part in parts.values()],
        )


class Metric(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """The Euclidean distance between the images of points under a learned map of any form."""

    _fitted_by: str  # the attribute that a fitted estimator has
    # Fitted arrays and a letter for each of their axes, for the validation of model files: equal
    # letters are equal lengths, d is the number of features.
    _axes: ClassVar[dict[str, str]] = {}

    def _image_differences(self, first: Array, second: Array) -> Array:
        """The images of the first points minus those of the second."""
        raise NotImplementedError

    @single_threaded_blas()
    def pair_distance(self, pairs: Any) -> Any:
        """Learned distance within each pair.

        Parameters
        ----------
        pairs : array-like, torch.Tensor or Tuples of shape (n_pairs, 2, n_features)
            The pairs; each point of `Tuples` is mapped once.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_pairs,)
            The length of the difference of the images, not squared. The gradient of a tensor is
            kept.
        """
        check_is_fitted(self, self._fitted_by)
        check_in_memory(pairs, "pairs")
        if is_torch(pairs):
            pairs = floating_tensor(pairs, type(self).__name__, differentiable=True)
        elif not isinstance(pairs, Tuples):
            pairs = check_array(pairs, dtype=[np.float64, np.float32], allow_nd=True)
        if pairs.ndim != 3 or tuple(pairs.shape[1:]) != (2, self.n_features_in_):
            raise InvalidInputError(
                f"pairs must have shape (n_pairs, 2, {self.n_features_in_}); got"
                f" {tuple(pairs.shape)}. Stack them with numpy.stack([a, b], axis=1)."
            )
        if isinstance(pairs, Tuples):
            pairs = pairs.in_memory()
            points = validated_points(self, pairs.points, reset=False, differentiable=True)
            return self._edge_distances(points, *pairs.indices.T)
        difference = self._image_differences(pairs[:, 0], pairs[:, 1])
        kernels = kernels_for(difference)
        exact = kernels.double(difference)  # squares of 1e-25 or 1e20 leave the range of float32
        return as_dtype_of(difference, kernels.sqrt((exact * exact).sum(1)))

    def _edge_distances(self, points: Array, heads: Index, tails: Index) -> Array:
        """Learned distances between rows of points.

        Images are taken relative to the first point, which keeps digits far from the origin.
        """
        kernels, images = kernels_for(points), self._image_differences(points, points[:1])
        edges = (kernels.index(rows, points) for rows in (heads, tails))
        lengths = kernels.sqrt(kernels.sq_lengths(kernels.double(images), *edges))
        return as_dtype_of(images, lengths)

    def pair_score(self, pairs: Any) -> Any:
        """Minus the learned distance within each pair: larger means more alike."""
        return -self.pair_distance(pairs)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class MetricLearner(Metric):
    """A metric D(a, b) = ‖L(a − b)‖ with L = ``components_``.

    Computation follows the data: NumPy arrays in, NumPy arrays out; torch tensors in, tensors out
    on their device.
    """

    components_: Array
    _fitted_by = "components_"
    _axes: ClassVar[dict[str, str]] = {"components_": "rd"}

    @single_threaded_blas()
    def transform(self, X: Any) -> Any:
        """Map points so that the Euclidean distance between images is the learned distance.

        Parameters
        ----------
        X : array-like, sparse array, torch.Tensor or Dask array of shape (n_samples, n_features)
            The points, or `Streamed` of them; sparse rows are not made dense.

        Returns
        -------
        ndarray, torch.Tensor or Dask array of shape (n_samples, n_components)
            ``X @ components_.T``, of the dtype of X. The gradient of a tensor is kept, and a Dask
            array or table gives a Dask array, which is not computed yet.
        """
        check_is_fitted(self, "components_")
        if is_dask(X):
            check_device(self, X._meta, self.components_)
            return lazy_rows(self, X, _mapped, self.components_, width=len(self.components_))
        if isinstance(X, Streamed):
            return streamed_images(self, X, self.components_)
        return self._images(validated_rows(self, X))

    def get_metric(self) -> Callable[..., float]:
        """The learned distance as a function of two vectors, for scikit-learn's ``metric=``.

        The function takes ``squared=True`` to return the squared distance. It can be pickled, and
        code that numba compiles, such as that of pynndescent and umap, can call it. ``transform``
        with ``metric="euclidean"`` is faster everywhere.
        """
        check_is_fitted(self, "components_")
        return LinearDistance(to_host(self.components_).astype(np.float64))

    @single_threaded_blas()
    def get_mahalanobis_matrix(self) -> NDArray[np.float64]:
        """M = LᵀL, on the host in float64."""
        check_is_fitted(self, "components_")
        components = to_host(self.components_).astype(np.float64)
        return components.T @ components

    def to_faiss(self, X: Any = None, index: str | faiss.Index | None = None) -> faiss.Index:
        """A faiss index that takes vectors as they are and searches by the learned distance.

        Needs the extra ``faiss``. faiss computes in float32: vectors and ``components_`` in float64
        are rounded.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features) or None, default=None
            Points to add; an index that needs training is trained on them first.
        index : str, faiss.Index or None, default=None
            What searches among the images: a string for ``faiss.index_factory``, such as "HNSW32",
            or an index for vectors of length n_components by the Euclidean distance. By default
            ``IndexFlatL2``, which is exact. An index that is given is filled, not copied.

        Returns
        -------
        faiss.IndexPreTransform
            Its ``add``, ``train`` and ``search`` take vectors of length n_features; ``search``
            returns *squared* learned distances, ``pair_distance(...) ** 2``.
            ``faiss.write_index`` stores the map with it.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from nearfar import LMNN
        >>> X, y = load_iris(return_X_y=True)
        >>> index = LMNN().fit(X, y).to_faiss(X)
        >>> squared_distances, rows = index.search(X[:2], 3)
        >>> rows[:, 0].tolist()
        [0, 1]
        """
        check_is_fitted(self, "components_")
        points = None if X is None else validated_points(self, X, reset=False)
        return faiss_index(self.components_, points, index)

    @single_threaded_blas()
    def map_queries(self, queries: Any) -> Any:
        """Mq for each query q, to search documents that stay as they are.

        D(q, x)² = qᵀMq − 2 [(Mq)·x − ½ xᵀMx]: the nearest document has the largest inner product
        with Mq after its own offset, ½ xᵀMx (`document_offsets`), is subtracted.

        Parameters
        ----------
        queries : array-like, sparse array, torch.Tensor or Dask array (n_queries, n_features)
            What is searched for.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_queries, n_features)
            ``queries @ components_.T @ components_``, of the dtype of the queries.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from nearfar import LMNN
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LMNN().fit(X, y)
        >>> scores = model.map_queries(X[:1]) @ X.T - model.document_offsets(X)
        >>> pairs = np.stack([np.repeat(X[:1], len(X), axis=0), X], axis=1)
        >>> bool(scores[0].argmax() == model.pair_distance(pairs).argmin())
        True
        """
        check_is_fitted(self, "components_")
        if is_dask(queries):
            return lazy_rows(
                self, queries, _mapped_back, self.components_, width=self.n_features_in_
            )
        images = self._images(validated_rows(self, queries))
        return kernels_for(images).apply(images, self.components_.T)

    @single_threaded_blas()
    def document_offsets(self, X: Any) -> Any:
        """½ xᵀMx for each document x: the one number to store beside it for `map_queries`.

        Parameters
        ----------
        X : array-like, sparse array, torch.Tensor or Dask array of shape (n_samples, n_features)
            The documents.

        Returns
        -------
        ndarray or torch.Tensor of shape (n_samples,)
            Half the squared lengths of the images, in float64.
        """
        check_is_fitted(self, "components_")
        if is_dask(X):
            return lazy_rows(self, X, _offsets, self.components_, width=None, dtype=np.float64)
        images = self._images(validated_rows(self, X))
        return _half_squares(images)

    def query_index(self, index: faiss.Index, offsets: Any = None) -> QueryIndex:
        """Search a faiss index of untouched documents by the learned distance.

        Only queries are mapped. The index, which may be large or belong to someone else, is neither
        changed nor copied, and serves several metrics at a time, each with its own offsets.

        Parameters
        ----------
        index : faiss.Index
            Documents as they are, by inner product: ``faiss.IndexFlatIP`` or another with
            ``METRIC_INNER_PRODUCT``.
        offsets : array-like of shape (n_documents,)
            ``document_offsets(X)`` of the documents, in their order in the index. Required.

        Returns
        -------
        QueryIndex
            Its ``search(queries, k)`` returns *squared* learned distances and row numbers, as that
            of `to_faiss` does, exactly if the index is exact. It asks the index for candidates,
            and for more until their number is proved to suffice.

        Examples
        --------
        >>> import faiss
        >>> from sklearn.datasets import load_iris
        >>> from nearfar import LMNN
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LMNN().fit(X, y)
        >>> index = faiss.IndexFlatIP(4)
        >>> index.add(X.astype("float32"))
        >>> squared_distances, rows = model.query_index(index, model.document_offsets(X)).search(
        ...     X[:2], 3
        ... )
        >>> rows[:, 0].tolist()
        [0, 1]
        """
        check_is_fitted(self, "components_")
        return query_index(self.components_, index, offsets)

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike | None = None
    ) -> onnx.ModelProto:
        """``transform`` as an ONNX model: one MatMul, for any number of rows.

        Needs the extra ``onnx``; running the model needs a runtime such as onnxruntime.

        Parameters
        ----------
        path : path-like or None, default=None
            File to write, completely or not at all; one that exists is replaced.
        dtype : float32, float64 or None, default=None
            Type of the input, of the output and of the matrix. By default that of
            ``components_``.

        Returns
        -------
        onnx.ModelProto
            Input "features" of shape (rows, n_features), output "transformed" of shape
            (rows, n_components); opset 13. Its metadata names the class, the version of nearfar
            and, if there are any, the features (as JSON).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from nearfar import LMNN
        >>> model = LMNN().fit(*load_iris(return_X_y=True)).to_onnx()
        >>> [node.op_type for node in model.graph.node]
        ['MatMul']
        """
        check_is_fitted(self, "components_")
        names = getattr(self, "feature_names_in_", None)
        return onnx_model(self.components_, type(self).__name__, names, path, dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _image_differences(self, first: Array, second: Array) -> Array:
        return self._images(first - second)

    def _images(self, X: Array) -> Array:
        """X Lᵀ in the dtype of X, which must be on the device of L."""
        check_device(self, X, self.components_)
        if sparse.issparse(X):
            return X @ np.ascontiguousarray(self.components_.T, dtype=X.dtype)
        return kernels_for(X).apply(X, self.components_)


def _mapped(rows: Array, components: Array) -> Array:
    return kernels_for(rows).apply(rows, components)


def _mapped_back(rows: Array, components: Array) -> Array:
    return _mapped(_mapped(rows, components), components.T)


def _offsets(rows: Array, components: Array) -> Array:
    return _half_squares(_mapped(rows, components))


def _half_squares(images: Array) -> Array:
    images = kernels_for(images).double(images)
    return (images * images).sum(1) / 2


def fit_facts(estimator: Any) -> list[str]:
    """How a fit ended, in a few words each; no facts if nothing was fitted or minimised.

    ``["converged", "certified gap 3.0e-04", "objective 226.7", "25 iterations", "0.029 s"]``
    """
    if getattr(estimator, "objective_", None) is None:
        return []
    gap, n_iter, history = estimator.duality_gap_, estimator.n_iter_, estimator.history_
    facts = [
        estimator.status_,
        "no certificate" if gap is None else f"certified gap {gap:.1e}" if gap else "exact",
        f"objective {estimator.objective_:.4g}",
    ]
    if n_iter:
        facts.append("1 iteration" if n_iter == 1 else f"{n_iter} iterations")
    if history:
        facts.append(f"{history[-1]['seconds']:.2g} s")
    return facts
