"""Rows that stream through a device: validation, and images under a map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from nearfar.blocks import Streamed
from nearfar.kernels import Array, kernels_for, to_host


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
