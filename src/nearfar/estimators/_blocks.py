"""Rows in blocks: Dask arrays and streamed rows; their validation, their start, lazy results."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

from nearfar.blocks import Blocks, Streamed, is_dask
from nearfar.blocks.collections import as_array, feature_template, map_rows
from nearfar.blocks.rows import rows_at_a_time
from nearfar.errors import InvalidInputError
from nearfar.estimators._shrinkage import PRIOR_ROWS, Prior, chosen_prior, framed, value_keys
from nearfar.estimators._start import SAMPLE_ROWS, central_point, check_spread, dead_features
from nearfar.files import fingerprint
from nearfar.kernels import Array, kernels_for, single_threaded_blas, to_host
from nearfar.problems.soft_neighbors_tasks import differing
from nearfar.registry import entries

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]


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


# -- rows that stream through a device -------------------------------------------------------------


def validated_streamed(estimator: Any, X: Streamed, reset: bool) -> Streamed:
    """The rows; their features are stored with ``reset``, or must be those of fit."""
    template = np.empty((0, X.shape[1]))
    validate_data(estimator, template, reset=reset, skip_check_array=True)
    return X


def streamed_images(estimator: Any, X: Streamed, components: Array) -> NDArray[Any]:
    """The images of the rows under a map, which may be on any device: an array in host memory."""
    validated_streamed(estimator, X, reset=False)
    L = to_host(components)
    images = np.empty((len(X), len(L)), dtype=X.dtype)
    for rows, block in X.pieces():
        images[rows] = to_host(kernels_for(block).apply(block, L))
    return images


# -- how learners from labels start: centre, live features, scale, a prior -------------------------


def live_blocks(X: Any, order: Index, most_rows: int | None = None) -> tuple[Blocks, Mask]:
    """The rows of X in an order, with zeros for dead features, and which features vary.

    X is a Dask array, or streamed rows. Blocks have at most so many rows.
    """
    if isinstance(X, Streamed):
        blocks = X.blocks(order, most_rows)
    else:
        blocks = Blocks.of(X, order, most_rows=most_rows)
    first = blocks.take(np.zeros(1, dtype=np.intp))
    spreads = blocks.total(_spreads, name="spread", shared=(first,)) / blocks.shape[0]
    dead = dead_features(spreads)
    if dead.any():
        parts = blocks.map(_without, name="dead_features", shared=(dead,))
        blocks = blocks.with_parts(parts, blocks.shape[1], blocks.dtype)
    return blocks, (spreads > 0) & ~dead


def varying_in_blocks(blocks: Blocks) -> Mask:
    """Which features differ between rows."""
    first = blocks.take(np.zeros(1, dtype=np.intp))
    return np.asarray(blocks.total(differing, name="varying", shared=(first,))) > 0


def central_row(blocks: Blocks) -> Matrix:
    """As `nearfar.estimators._start.central_point`: the row nearest to the median."""
    n = blocks.shape[0]
    sample = np.asarray(to_host(blocks.take(np.arange(0, n, -(-n // SAMPLE_ROWS)))), np.float64)
    median = np.median(sample, axis=0)
    found = blocks.results(_distances, name="centre", shared=(median,))
    check_spread(max(largest for _, largest in found))
    spread = sum(total for total, _ in found) / n
    nearest = blocks.results(_nearest, name="centre", shared=(median, spread + (spread == 0)))
    _, row = min(nearest, key=lambda score_and_row: score_and_row[0])
    return np.asarray(row)


def centre_of(points: Array | Blocks) -> Array:
    """The central point of points in memory or in blocks."""
    return central_row(points) if isinstance(points, Blocks) else central_point(points)


def scaled_blocks(blocks: Blocks, scale: Matrix) -> Blocks:
    """The rows, with features multiplied by a scale."""
    parts = blocks.map(_scaled, name="scale", shared=(scale,))
    return blocks.with_parts(parts, blocks.shape[1], blocks.dtype)


def framed_blocks(blocks: Blocks, W: Matrix) -> Blocks:
    """`framed` of the rows, about their centre."""
    parts = blocks.map(framed, name="frame", shared=(W, central_row(blocks)))
    return blocks.with_parts(parts, len(W), blocks.dtype)


def near_squares(blocks: Blocks, components: Matrix, rows: Index, count: int) -> Matrix:
    """Squared distances from the images of some rows to the nearest images of all rows."""
    first = blocks.take(np.zeros(1, dtype=np.intp))
    images = to_host(_images(blocks.take(rows), components, first))
    found = blocks.results(_near, name="nearest", shared=(components, first, images, count))
    return np.sort(np.concatenate(found, axis=1), axis=1)[:, :count]


def block_prior(blocks: Blocks, codes: Index, n_neighbors: int, varies: Mask) -> Prior | None:
    """`chosen_prior`, from the same sample of rows as in memory, which vote on the workers."""
    engine, n = blocks.engine, blocks.shape[0]
    rows = np.arange(0, n, -(-n // PRIOR_ROWS))
    some = to_host(blocks.take(rows))

    def mapped(*columns: Any, shared: Any) -> list[float]:
        return engine.results(engine.map(*columns, name="votes", shared=shared))

    return chosen_prior(some, codes[rows], n_neighbors, varies, n, mapped)


def block_keys(blocks: Blocks) -> Matrix:
    """`value_keys` of all rows, in their order."""
    return np.concatenate(blocks.results(value_keys, name="keys", shared=(central_row(blocks),)))


def block_fingerprint(blocks: Blocks) -> str:
    """A digest of all rows, in their order."""
    return fingerprint(*blocks.results(_fingerprint, name="fingerprint"))


def _spreads(block: Array, first: Array) -> Matrix:
    kernels = kernels_for(block)
    sums = [
        to_host(abs(kernels.double(rows) - kernels.double(first)).sum(0))
        for rows in rows_at_a_time(block)
    ]
    return np.asarray(np.sum(sums, axis=0))


def _without(block: Array, dead: Mask) -> Array:
    return block * kernels_for(block).like(~dead, block)


def _scaled(block: Array, scale: Matrix) -> Array:
    return block * kernels_for(block).like(scale, block)


def _images(block: Array, components: Matrix, first: Array) -> Array:
    kernels = kernels_for(block)
    return kernels.apply(kernels.double(block) - kernels.double(first), components)


def _near(block: Array, components: Matrix, first: Array, images: Matrix, count: int) -> Matrix:
    kernels, own = kernels_for(block), _images(block, components, first)
    return to_host(kernels.nearest(kernels.like(images, own), own, min(count, len(own)))[1])


def _far(block: Array, centre: Matrix) -> Array:
    kernels = kernels_for(block)
    points = kernels.double(block)
    return abs(points - kernels.like(centre, points))


def _distances(block: Array, median: Matrix) -> tuple[Matrix, float]:
    sums, largest = [], 0.0
    for rows in rows_at_a_time(block):
        far = _far(rows, median)
        sums.append(to_host(far.sum(0)))
        largest = max(largest, float(far.max()))
    return np.sum(sums, axis=0), largest


def _nearest(block: Array, median: Matrix, spread: Matrix) -> tuple[float, Matrix]:
    parts = [(to_host(_far(rows, median)) / spread).sum(1) for rows in rows_at_a_time(block)]
    scores = np.concatenate(parts)
    row = int(scores.argmin())
    return float(scores[row]), np.asarray(to_host(block[row]), dtype=np.float64)


def _fingerprint(block: Array) -> str:
    return fingerprint(to_host(block))
