"""Estimators as JSON and arrays, and back. `nearfar.io` describes the format."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from nearfar import __version__
from nearfar.blocks import is_lazy
from nearfar.errors import DataWarning, ModelFileError, upgrade_command, warn
from nearfar.files import (
    ARRAY_KINDS,
    STORED,
    Archive,
    check_shape,
)
from nearfar.graphs import NeighborhoodGraph
from nearfar.io.checks import check_account, check_shapes
from nearfar.io.classes import MODEL_CLASSES, UnusableFile, is_ours, model_class
from nearfar.kernels import is_torch

_SCALARS = {np.dtype(code).name for code in "?bhilqBHILQefd"}
# scikit-learn's attributes that belong to the running program, not to the model.
_NOT_STORED = ("_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx", "_metadata_request")


class Arrays:
    """The arrays of a model file by name, each read when it is first asked for."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            self._read[name] = self._archive.array(name)
        return self._read[name]


def decode_model(value: dict[str, Any], arrays: Arrays, writer: str = "that wrote it") -> Any:
    """The inverse of `encode_model`; the attributes of a fitted model are checked."""
    name = value["class"]
    if name not in MODEL_CLASSES:
        raise UnusableFile(
            f"holds a model of class {name!r}; nearfar {__version__} knows "
            f"{', '.join(MODEL_CLASSES)}. Load it with the nearfar {writer}, or upgrade: "
            f"{upgrade_command()}"
        )
    cls = model_class(name)
    parameters = decode(value["parameters"], arrays)
    attributes = decode(value["attributes"], arrays)
    unknown = sorted(set(parameters) - set(cls._get_param_names()))
    unknown += sorted(key for key in attributes if not key.isidentifier() or hasattr(cls, key))
    if unknown:
        raise UnusableFile(
            f"sets {', '.join(unknown)}, which {name} of nearfar {__version__} does not "
            f"have. Load it with the nearfar {writer}, or fit and save again."
        )
    model = cls(**parameters)
    if attributes:
        if isinstance(attributes.get("history_"), list):
            attributes["history_"] = [_with_residual(record) for record in attributes["history_"]]
        vars(model).update(attributes)
        check_is_fitted(model)
        check_account(model)
        check_shapes(model)
    return model


def _with_residual(record: Any) -> Any:
    """A line of the trace of a fit, from before residuals and duality gaps had two names.

    What such a line calls duality_gap may be an estimate, and so it is the residual.
    """
    if not isinstance(record, dict) or "duality_gap" not in record or "residual" in record:
        return record
    return {**record, "residual": record["duality_gap"], "duality_gap": None}


def encode_model(model: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Class, parameters and fitted attributes; names of arrays begin with the prefix."""
    values = {
        attribute: encode(_without_lazy(value, attribute), prefix + attribute, arrays)
        for attribute, value in model.__getstate__().items()
        if attribute not in _NOT_STORED
    }
    parameters = {key: values.pop(key) for key in model.get_params(deep=False)}
    return {"class": type(model).__name__, "parameters": parameters, "attributes": values}


def _without_lazy(value: Any, attribute: str) -> Any:
    """The value of an attribute; None for points of a fit that are a Dask array."""
    if attribute != "X_fit_" or not is_lazy(value):
        return value
    warn(
        "the points of the fit are a Dask array, which a model file does not hold. To place new"
        " points by the loaded model, set its X_fit_ to the array.",
        DataWarning,
    )
    return None


def encode(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """`value` as JSON; arrays go to `arrays` under the name `where`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
        return {"$scalar": value.dtype.name, "value": encode(value.item(), where, arrays)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, os.PathLike):
        return {"$path": os.fspath(value)}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{where}.{i}", arrays) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        items = [encode(item, f"{where}.{i}", arrays) for i, item in enumerate(value.values())]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(zip(value, items, strict=True))
        keys = [encode(key, where, arrays) for key in value]
        return {"$dict": list(zip(keys, items, strict=True))}
    if isinstance(value, FrozenEstimator) and is_ours(value.estimator):
        return {"$frozen": encode_model(value.estimator, f"{where}.", arrays)}
    if is_ours(value):
        return {"$model": encode_model(value, f"{where}.", arrays)}
    if isinstance(value, NeighborhoodGraph):
        return {"$graph": _encode_graph(value, where, arrays)}
    if is_torch(value):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in ARRAY_KINDS:
        same = (name for name, array in arrays.items() if array is value)
        name = next(same, where)  # an array that several attributes share is stored once
        arrays[name] = value
        return {"$array": name}
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        items = [encode(item, f"{where}.{i}", arrays) for i, item in enumerate(value.flat)]
        return {"$objects": items, "shape": list(value.shape)}
    raise ModelFileError(
        f"{where.split('.')[0]} cannot be saved: expected arrays, numbers, strings, lists or "
        f"dicts, found a {type(value).__name__}. Set it to plain data first (for random_state, an "
        "integer; for a kernel of your own, 'precomputed')."
    )


def _encode_graph(graph: NeighborhoodGraph, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """The fields of a neighbourhood graph."""
    values = {field.name: getattr(graph, field.name) for field in dataclasses.fields(graph)}
    points = values["points"]
    if is_lazy(points):
        values["points"] = None
    elif points is not None and not is_torch(points):
        values["points"] = np.asarray(points)
    return {name: encode(value, f"{where}.{name}", arrays) for name, value in values.items()}


def _decode_graph(value: dict[str, Any], arrays: Arrays) -> NeighborhoodGraph:
    fields = {name: decode(item, arrays) for name, item in value["$graph"].items()}
    graph = NeighborhoodGraph(**fields)
    if not graph.is_consistent():
        raise ValueError("the edges of a graph do not fit its nodes")
    return graph


def decode(value: Any, arrays: Arrays) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: decode(item, arrays) for key, item in value.items()}
    return _DECODERS[tag](value, arrays)


def _decode_objects(value: dict[str, Any], arrays: Arrays) -> np.ndarray:
    items = decode(value["$objects"], arrays)
    if not items:
        check_shape(value["shape"], 0, STORED.floor)
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return array.reshape(value["shape"])


def _decode_scalar(value: dict[str, Any], arrays: Arrays) -> Any:
    if value["$scalar"] not in _SCALARS:
        raise ValueError(f"{value['$scalar']!r} is not the name of a number type")
    return np.dtype(value["$scalar"]).type(decode(value["value"], arrays))


_DECODERS: dict[str, Callable[[dict[str, Any], Arrays], Any]] = {
    "$array": lambda value, arrays: arrays[value["$array"]],
    "$objects": _decode_objects,
    "$scalar": _decode_scalar,
    "$float": lambda value, _: float(value["$float"]),
    "$path": lambda value, _: Path(value["$path"]),
    "$tuple": lambda value, arrays: tuple(decode(value["$tuple"], arrays)),
    "$dict": lambda value, arrays: dict(decode(value["$dict"], arrays)),
    "$graph": _decode_graph,
    "$model": lambda value, arrays: decode_model(value["$model"], arrays),
    "$frozen": lambda value, arrays: FrozenEstimator(decode_model(value["$frozen"], arrays)),
}
