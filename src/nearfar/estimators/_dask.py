"""Validation of Dask arrays and tables, of which nothing is computed, and lazy results."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from nearfar.blocks import is_dask
from nearfar.blocks.collections import as_array, feature_template, map_rows
from nearfar.errors import InvalidInputError
from nearfar.kernels import single_threaded_blas, to_host
from nearfar.registry import entries


def refuse_dask(estimator: Any, X: Any) -> None:
    """Raise if X is lazy, and name the estimators that learn from such rows."""
    if not is_dask(X):
        return
    name, able = type(estimator).__name__, [entry.name for entry in entries(blocks=True)]
    if name in able:
        raise InvalidInputError(
            f"{name} needs rows in memory here; got a Dask {type(X).__name__}. Pass a sample of"
            " the rows, computed."
        )
    stream = ""
    if hasattr(estimator, "partial_fit"):
        stream = " It learns from a stream: give computed blocks to partial_fit, one by one."
    raise InvalidInputError(
        f"{name} does not learn from Dask arrays; got a Dask {type(X).__name__}.{stream} Take"
        f" {', '.join(able[:-1])} or {able[-1]}, or pass X.compute() if it fits into memory."
    )


def validated_dask(estimator: Any, X: Any, reset: bool) -> Any:
    """A lazy array of rows (n, d); n may not be known.

    ``reset`` stores the number and the names of the features; otherwise they must be those of fit.
    """
    array = as_array(X)
    if array.shape[1] == 0:
        raise InvalidInputError(
            f"{type(estimator).__name__} needs at least one feature; X has 0 columns. Add some."
        )
    validate_data(estimator, feature_template(X), reset=reset, skip_check_array=True)
    return array


def lazy_rows(
    estimator: Any,
    X: Any,
    function: Callable[..., Any],
    *args: Any,
    width: int | None,
    dtype: Any = None,
) -> Any:
    """``function(rows, *args)`` as a lazy array of so many columns; None for no axis of columns.

    Each block is validated when it is computed. ``dtype`` None is that of the rows.
    """
    array = validated_dask(estimator, X, reset=False)
    if dtype is None:
        dtype = np.float32 if array.dtype == np.float32 else np.float64
    name = type(estimator).__name__
    return map_rows(array, _of_block, function, name, *args, width=width, dtype=dtype)


def lazy_images(model: Any, X: Any) -> Any:
    """The images of a Dask array under any fitted transformer, as a lazy array."""
    if hasattr(model, "document_offsets"):  # a linear metric, which does it itself
        return model.transform(X)
    array, model = as_array(X), _without_names(model)
    probe = _images_of_block(np.zeros((1, array.shape[1]), dtype=array.dtype), model)
    return map_rows(array, _images_of_block, model, width=probe.shape[1], dtype=probe.dtype)


def lazy_places(model: Any, X: Any, *, dtype: Any = None, **options: Any) -> Any:
    """What the ``transform`` of an unfolding fitted in memory returns for X, as a lazy array.

    ``options`` are those of its ``transform``; ``dtype`` None is that of the rows. Each block is
    validated when it is computed.
    """
    array = validated_dask(model, X, reset=False)
    if dtype is None:
        dtype = np.float32 if array.dtype == np.float32 else np.float64
    width, model = model.embedding_.shape[1], _without_names(model)
    return map_rows(array, _images_of_block, model, width, options, width=width, dtype=dtype)


def _without_names(model: Any) -> Any:
    """A shallow copy that expects no names, as blocks of tables have none.

    Else each block would warn, and filters of warnings are not for several threads at a time.
    """
    if not hasattr(model, "__dict__"):  # such as "passthrough", a step of a pipeline
        return model
    nameless = copy(model)
    vars(nameless).pop("feature_names_in_", None)
    if hasattr(nameless, "steps"):
        nameless.steps = [(name, _without_names(step)) for name, step in nameless.steps]
    return nameless


def _images_of_block(block: Any, model: Any, width: int = 0, options: Any = None) -> Any:
    if not len(block):
        return np.empty((0, width))
    return to_host(model.transform(block, **(options or {})))


def _of_block(block: Any, function: Callable[..., Any], name: str, *args: Any) -> Any:
    rows = check_array(
        block,
        dtype=[np.float64, np.float32],
        ensure_min_samples=0,
        estimator=name,
        input_name="X",
    )
    with single_threaded_blas():
        return function(rows, *args)
