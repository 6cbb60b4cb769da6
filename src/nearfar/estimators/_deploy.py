"""A learned map for other software: as a faiss index or as an ONNX model.

D(a, b)² = ‖La − Lb‖², so that anything that compares vectors by the Euclidean distance compares
them by the learned one if it holds Lx in place of x. ``docs/deployment.md`` shows the stores that
need nothing but ``transform``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar import __version__
from nearfar.errors import InvalidInputError, MissingExtraError
from nearfar.files import atomic_writer, check_target
from nearfar.kernels import Array, to_host

if TYPE_CHECKING:
    import faiss
    import onnx

Floats = NDArray[np.floating[Any]]

# MatMul last changed in opset 13, whose IR version is 7. These are the oldest versions that suffice
# here, so that every runtime since the end of 2020 reads the model (onnxruntime 1.6).
ONNX_OPSET = 13
ONNX_IR_VERSION = 7


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
