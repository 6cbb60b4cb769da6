"""A learned map in other people's search: a faiss index, an ONNX model.

D(a, b)² = ‖La − Lb‖², so that any store which compares vectors by the Euclidean distance searches
by the learned one, if it holds Lx in place of x. ``docs/deployment.md`` shows the stores that need
nothing but ``transform``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar import __version__
from nearfar.errors import InvalidInputError, MissingExtraError
from nearfar.files import atomic_writer, check_target
from nearfar.kernels import Array, kernels_for

if TYPE_CHECKING:
    import faiss
    import onnx

# MatMul last changed in opset 13, whose IR version is 7. These are the oldest that say all there is
# to say here, so that every runtime since the end of 2020 reads the model (onnxruntime 1.6).
ONNX_OPSET = 13
ONNX_IR_VERSION = 7


class DeployMixin:
    """Exports of a metric learner whose map is the matrix ``components_`` (r, d)."""

    components_: Array

    if TYPE_CHECKING:

        def _validated(self, X: Any, reset: bool) -> Array: ...

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
        components = self._map_to_deploy(np.float32)
        try:
            import faiss
        except ImportError as error:
            raise MissingExtraError.for_extra("faiss", "faiss") from error
        n_components, n_features = components.shape
        inner = _inner_index(index, n_components)
        transform = faiss.LinearTransform(n_features, n_components, False)
        faiss.copy_array_to_vector(components.ravel(), transform.A)
        transform.is_trained = True
        searched = faiss.IndexPreTransform(transform, inner)
        if X is None:
            return searched
        X = self._validated(X, reset=False)
        points = _in_dtype(kernels_for(X).to_host(X), np.float32, "X")
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
        components = self._map_to_deploy(dtype)
        if path is not None:
            _check_target(path)
        try:
            from onnx import TensorProto, checker, helper, numpy_helper
        except ImportError as error:
            raise MissingExtraError.for_extra("onnx", "onnx") from error
        n_components, n_features = components.shape
        kind = TensorProto.FLOAT if components.dtype == np.float32 else TensorProto.DOUBLE
        matrix = np.ascontiguousarray(components.T)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["features", "map"], ["transformed"])],
            type(self).__name__,
            [helper.make_tensor_value_info("features", kind, ["rows", n_features])],
            [helper.make_tensor_value_info("transformed", kind, ["rows", n_components])],
            [numpy_helper.from_array(matrix, "map")],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", ONNX_OPSET)],
            ir_version=ONNX_IR_VERSION,
            producer_name="nearfar",
            producer_version=__version__,
        )
        metadata = {"class": type(self).__name__, "nearfar_version": __version__}
        if hasattr(self, "feature_names_in_"):
            metadata["feature_names"] = json.dumps(list(self.feature_names_in_))
        helper.set_model_props(model, metadata)
        checker.check_model(model)
        if path is not None:
            with atomic_writer(path) as stream:
                stream.write(model.SerializeToString(deterministic=True))
        return model

    def _map_to_deploy(self, dtype: DTypeLike | None) -> NDArray[np.floating[Any]]:
        """``components_`` (r, d) on the host, in rows, of the dtype."""
        check_is_fitted(self, "components_")
        components = kernels_for(self.components_).to_host(self.components_)
        wanted = components.dtype if dtype is None else _floating(dtype)
        return _in_dtype(components, wanted, "components_")


def _inner_index(index: Any, n_components: int) -> Any:
    """The index that searches among the images, checked."""
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
    """The dtype, if it is one of the two that are used here."""
    for known in (np.float32, np.float64):
        try:
            if np.dtype(dtype) == known:
                return np.dtype(known)
        except TypeError:
            break
    raise InvalidInputError(f"dtype must be float32, float64 or None; got {dtype!r}. Leave it out.")


def _in_dtype(array: NDArray[Any], dtype: DTypeLike, name: str) -> NDArray[Any]:
    """The array in rows of the dtype, refused where that has no room for its values."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype=dtype)
    if not np.isfinite(converted).all():
        raise InvalidInputError(
            f"{name} does not fit into {converted.dtype}: its largest value is"
            f" {np.abs(array).max():.0e}. Scale your data and fit again."
        )
    return converted


def _check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot become a file."""
    check_target(path)
    if not Path(path).absolute().parent.is_dir():
        raise InvalidInputError(
            f"the folder of path {str(path)!r} does not exist. Create it first."
        )
