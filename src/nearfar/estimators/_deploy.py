"""A learned map for other software: a faiss index, an ONNX model, compiled, or for queries alone.

(1)  D(q, x)² = ‖Lq − Lx‖²
(2)           = qᵀMq − 2 [(Mq)·x − ½ xᵀMx],  M = LᵀL

By (1) anything that compares vectors by the Euclidean distance compares them by the learned one if
it holds Lx in place of x. By (2) an index by inner product can keep the x as they are: it is asked
with Mq, and one number a document, its offset ½ xᵀMx, completes the ranking. ``docs/deployment.md``
shows the stores that need nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar import __version__
from nearfar.errors import InvalidInputError, MissingExtraError
from nearfar.files import atomic_writer, check_target
from nearfar.kernels import Array, to_host
from nearfar.validation import check_number

if TYPE_CHECKING:
    import faiss
    import onnx

Floats = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

# MatMul last changed in opset 13, whose IR version is 7. These are the oldest versions that suffice
# here, so that every runtime since the end of 2020 reads the model (onnxruntime 1.6).
ONNX_OPSET = 13
ONNX_IR_VERSION = 7
FIRST_CANDIDATES = 4  # times k, that the first search of a query index asks for


def faiss_index(
    components: Array,
    X: Array | None,
    index: str | faiss.Index | None,
    offset: Array | None = None,
) -> faiss.IndexPreTransform:
    """An index that maps vectors by ``components`` (r, d) and searches among their images.

    ``offset`` (r,) is added to the images, if there is one.

    The points X, already validated, are added. See `MetricLearner.to_faiss`.
    """
    matrix = _in_dtype(to_host(components), np.float32, "components_")
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError.for_extra("faiss", "faiss") from error
    n_components, n_features = matrix.shape
    transform = faiss.LinearTransform(n_features, n_components, offset is not None)
    inner = _index_of_images(index, n_components)
    faiss.copy_array_to_vector(matrix.ravel(), transform.A)
    if offset is not None:
        faiss.copy_array_to_vector(_in_dtype(offset, np.float32, "the offset"), transform.b)
    transform.is_trained = True
    searched = faiss.IndexPreTransform(transform, inner)
    if X is None:
        return searched
    points = _in_dtype(to_host(X), np.float32, "X")
    if not searched.is_trained:
        try:
            searched.train(points)
        except RuntimeError as error:
            raise InvalidInputError(
                f"faiss cannot train {index!r} on {len(points)} rows: {error}. Give more rows,"
                " or an index with fewer cells."
            ) from error
    searched.add(points)
    return searched


@dataclass(frozen=True)
class QueryIndex:
    """An index of documents as they are, searched by a learned distance; see `query_index`.

    ``index`` is the faiss index, ``offsets`` the ½ xᵀMx of its documents, (n,), and ``components``
    the map L, (r, d).
    """

    index: Any
    offsets: NDArray[np.float64]
    components: NDArray[np.float64]

    def search(self, queries: Any, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The k nearest documents of each query by the learned distance.

        Parameters
        ----------
        queries : array-like of shape (n_queries, n_features)
            Vectors as they were before the map.
        k : int
            How many documents to return for each.

        Returns
        -------
        squared_distances : ndarray of shape (n_queries, k)
            *Squared* learned distances, ascending, as those of ``to_faiss``.
        rows : ndarray of shape (n_queries, k)
            The documents, by their row numbers in the index. Where an approximate index returned
            fewer than k, they end with -1, at an infinite distance.

        Notes
        -----
        The candidates are the documents with the largest (Mq)·x. A document outside of them has a
        score (Mq)·x − offset of at most the smallest product among them minus the smallest offset
        of all; while the k-th best score found is below that, there may be a better one, and twice
        as many candidates are asked for. So the answer is exact if the index is.
        """
        n = len(self.offsets)
        check_number("k", k, Integral, 1, n)
        asked = np.asarray(to_host(queries), dtype=np.float64)
        if asked.ndim != 2 or asked.shape[1] != self.components.shape[1]:
            raise InvalidInputError(
                f"queries must have shape (n_queries, {self.components.shape[1]}); got"
                f" {asked.shape}. Give vectors as they are before the map, a row each."
            )
        images = asked @ self.components.T
        mapped = _in_dtype(images @ self.components, np.float32, "queries")
        rows = np.full((len(asked), k), -1, dtype=np.int64)
        scores = np.full((len(asked), k), -np.inf)
        open_queries, n_candidates = np.arange(len(asked)), min(n, FIRST_CANDIDATES * k)
        while len(open_queries):
            products, found = self.index.search(mapped[open_queries], n_candidates)
            gains = np.where(found >= 0, products - self.offsets[found], -np.inf)
            best = np.argsort(-gains, axis=1, kind="stable")[:, :k]
            scores[open_queries] = np.take_along_axis(gains, best, axis=1)
            rows[open_queries] = np.take_along_axis(found, best, axis=1)
            most_elsewhere = products[:, -1] - self.offsets.min()
            proved = (scores[open_queries, -1] >= most_elsewhere) | (found[:, -1] < 0)
            if n_candidates == n:
                break
            open_queries, n_candidates = open_queries[~proved], min(n, 2 * n_candidates)
        squared = np.vecdot(images, images)[:, None] - 2 * scores  # (2)
        return np.maximum(squared, 0), rows


def query_index(components: Array, index: faiss.Index, offsets: Any) -> QueryIndex:
    """The documents of an index by inner product, ranked by the map; see `MetricLearner`."""
    if offsets is None:
        raise InvalidInputError(
            "a query index needs the offset of each of its documents, ½ xᵀMx, and got none. Compute"
            " them with document_offsets(X) and store them beside the documents."
        )
    missing = [
        name for name in ("search", "ntotal", "metric_type", "d") if not hasattr(index, name)
    ]
    if missing:
        raise InvalidInputError(
            f"index must be a faiss.Index of the documents as they are; got {type(index).__name__}."
            " For another store use map_queries and document_offsets, as docs/deployment.md shows."
        )
    matrix = np.asarray(to_host(components), dtype=np.float64)
    numbers = np.asarray(to_host(offsets), dtype=np.float64)
    if numbers.shape != (index.ntotal,):
        raise InvalidInputError(
            f"offsets must have one number for each of the {index.ntotal} documents of the index,"
            f" in their order; got shape {numbers.shape}. Compute them with document_offsets(X)."
        )
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise InvalidInputError(
            "offsets must be finite and not negative, since they are ½ xᵀMx; got"
            f" {numbers[~(np.isfinite(numbers) & (numbers >= 0))][0]}. Compute them with"
            " document_offsets(X)."
        )
    if index.d != matrix.shape[1]:
        raise InvalidInputError(
            f"index must hold vectors of length {matrix.shape[1]}, as they are before the map; its"
            f" vectors have length {index.d}. For images under the map use to_faiss."
        )
    if index.metric_type != 0:  # faiss.METRIC_INNER_PRODUCT
        raise InvalidInputError(
            "index must compare by faiss.METRIC_INNER_PRODUCT, because documents are ranked by"
            f" (Mq)·x minus their offset; its metric_type is {index.metric_type}. Make it with"
            " faiss.IndexFlatIP or METRIC_INNER_PRODUCT."
        )
    return QueryIndex(index, numbers, matrix)


def onnx_model(
    components: Array,
    name: str,
    feature_names: Sequence[str] | None,
    path: str | os.PathLike[str] | None,
    dtype: DTypeLike | None,
    offset: Array | None = None,
) -> onnx.ModelProto:
    """A model that multiplies rows by ``components`` (r, d), written to a file if there is a path.

    ``offset`` (r,) is added to the images, if there is one and it is not zero.
    ``name`` is that of the estimator's class. See `MetricLearner.to_onnx`.
    """
    matrix = to_host(components)
    matrix = _in_dtype(matrix, matrix.dtype if dtype is None else _floating(dtype), "components_")
    if path is not None:
        _check_target(path)
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError as error:
        raise MissingExtraError.for_extra("onnx", "onnx") from error
    n_components, n_features = matrix.shape
    kind = TensorProto.FLOAT if matrix.dtype == np.float32 else TensorProto.DOUBLE
    product, nodes = "transformed", []
    arrays = [numpy_helper.from_array(np.ascontiguousarray(matrix.T), "map")]
    if offset is not None and np.any(offset):
        product = "product"
        nodes = [helper.make_node("Add", ["product", "offset"], ["transformed"])]
        arrays.append(
            numpy_helper.from_array(_in_dtype(offset, matrix.dtype, "the offset"), "offset")
        )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["features", "map"], [product]), *nodes],
        name,
        [helper.make_tensor_value_info("features", kind, ["rows", n_features])],
        [helper.make_tensor_value_info("transformed", kind, ["rows", n_components])],
        arrays,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", ONNX_OPSET)],
        ir_version=ONNX_IR_VERSION,
        producer_name="nearfar",
        producer_version=__version__,
    )
    metadata = {"class": name, "nearfar_version": __version__}
    if feature_names is not None:
        metadata["feature_names"] = json.dumps(list(feature_names))
    helper.set_model_props(model, metadata)
    checker.check_model(model)
    if path is not None:
        with atomic_writer(path) as stream:
            stream.write(model.SerializeToString(deterministic=True))
    return model


def compiled_distance(components: Floats) -> Any:
    """‖L(u − v)‖ with L = ``components`` (r, d), compiled by numba; L is a constant in it."""
    import numba  # installed, since only numba's own code asks for this

    @numba.njit
    def distance(u: Any, v: Any) -> Any:  # pragma: no cover - runs compiled
        total = 0.0
        for row in range(components.shape[0]):
            image = 0.0
            for column in range(components.shape[1]):
                image += components[row, column] * (u[column] - v[column])
            total += image * image
        return total**0.5

    return distance


def _index_of_images(index: Any, n_components: int) -> Any:
    """The index that searches among the images, validated."""
    import faiss

    if index is None:
        return faiss.IndexFlatL2(n_components)
    if isinstance(index, str):
        try:
            return faiss.index_factory(n_components, index)
        except RuntimeError as error:
            raise InvalidInputError(
                f"faiss.index_factory cannot make {index!r} for vectors of length {n_components}:"
                f" {error}. Try 'Flat', 'HNSW32' or 'IVF100,Flat'."
            ) from error
    if not isinstance(index, faiss.Index):
        raise InvalidInputError(
            "index must be a string for faiss.index_factory, a faiss.Index or None; got"
            f" {type(index).__name__}. Leave it out for an exact search."
        )
    if index.d != n_components:
        raise InvalidInputError(
            f"index must take vectors of length {n_components}, the images under the learned map;"
            f" it takes {index.d}. Make it with d = {n_components}."
        )
    if index.metric_type != faiss.METRIC_L2:
        raise InvalidInputError(
            "index must compare by faiss.METRIC_L2, because the learned distance is the Euclidean"
            f" distance of images; its metric_type is {index.metric_type}. Make it with METRIC_L2."
        )
    return index


def _floating(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype, which must be float32 or float64."""
    for known in (np.float32, np.float64):
        try:
            if np.dtype(dtype) == known:
                return np.dtype(known)
        except TypeError:
            break
    raise InvalidInputError(f"dtype must be float32, float64 or None; got {dtype!r}. Leave it out.")


def _in_dtype(array: NDArray[Any], dtype: DTypeLike, name: str) -> Floats:
    """The array in C order and in the dtype, whose range its values must not exceed."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype=dtype)
    if not np.isfinite(converted).all():
        raise InvalidInputError(
            f"{name} does not fit into {converted.dtype}: its largest value is"
            f" {np.abs(array).max():.0e}. Scale your data and fit again."
        )
    return converted


def _check_target(path: str | os.PathLike[str]) -> None:
    """Raise if the path cannot become a file."""
    check_target(path)
    if not Path(path).absolute().parent.is_dir():
        raise InvalidInputError(
            f"the folder of path {str(path)!r} does not exist. Create it first."
        )


# -- distances as functions of two vectors ---------------------------------------------------------


class Distance:
    """A learned distance as a function of two vectors; it can be pickled."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} between vectors of {self._n_features} features>"

    def __call__(self, u: Any, v: Any, squared: bool = False) -> float:
        """The distance between two vectors of numbers of any type, or its square."""
        first, second = (np.asarray(x, dtype=np.float64) for x in (u, v))
        expected = (self._n_features,)
        if first.shape != expected or second.shape != expected:
            raise InvalidInputError(
                f"the metric compares two vectors of {expected[0]} features; got shapes"
                f" {first.shape} and {second.shape}. For many points, take pair_distance."
            )
        difference = self._image_difference(first, second)
        square = float(np.vecdot(difference, difference))
        return square if squared else square**0.5

    @property
    def _n_features(self) -> int:
        raise NotImplementedError

    def _image_difference(self, u: Vector, v: Vector) -> Vector:
        """The image of u minus that of v."""
        raise NotImplementedError

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of an argument of compiled code, such as that of pynndescent and umap."""
        raise TypeError(  # numba hides a ValueError
            f"code that numba compiles cannot call a {type(self).__name__}; it was given one as"
            " metric. Give it the images transform(X), with metric='euclidean'."
        )


@dataclass(frozen=True, eq=False, repr=False)  # as functions, equal only to itself
class LinearDistance(Distance):
    """‖L(u − v)‖."""

    components: NDArray[np.float64]

    @property
    def _n_features(self) -> int:
        return int(self.components.shape[1])

    def _image_difference(self, u: Vector, v: Vector) -> Vector:
        # Row by row: the digits of a matrix product depend on the threads of BLAS.
        images: Vector = np.vecdot(self.components, u - v)
        return images

    @property
    def _numba_type_(self) -> Any:
        from numba import typeof

        return typeof(self._compiled)

    @cached_property
    def _compiled(self) -> Any:
        return compiled_distance(self.components)

    def __getstate__(self) -> dict[str, Any]:
        return {"components": self.components}  # compiled again where it is needed
