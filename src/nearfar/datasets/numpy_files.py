"""NPY files (one matrix, the last column is the target) and NPZ files (X and y)."""

from __future__ import annotations

import os
import zipfile
from typing import Any

import numpy as np

from nearfar.datasets.table import Request, Table, as_labels, as_points, suggest
from nearfar.errors import InvalidInputError


def read_npy(path: os.PathLike[str], request: Request) -> Table:
    """Read one matrix; the target is the number of a column, from 0, or from -1 backwards."""
    values = _load(path)
    if not isinstance(values, np.ndarray) or values.ndim != 2:
        found = f"shape {values.shape}" if isinstance(values, np.ndarray) else "an archive"
        raise InvalidInputError(
            f"expected one matrix, a row for each point; found {found}. Save a matrix, or X and y "
            "in an NPZ file."
        )
    if request.target is None and not request.labelled:
        return Table(X=as_points(values), y=None, feature_names=None, target_name=None)
    column = _column_number("-1" if request.target is None else request.target, values.shape[1])
    X = as_points(np.delete(values, column, axis=1))
    if not request.labelled:
        return Table(X=X, y=None, feature_names=None, target_name=None)
    y = as_labels(values[:, column], str(column))
    return Table(X=X, y=y, feature_names=None, target_name=str(column))


def read_npz(path: os.PathLike[str], request: Request) -> Table:
    """Read the arrays ``X`` and ``y``; the target names another array of labels."""
    arrays = _load(path)
    if isinstance(arrays, np.ndarray):
        raise InvalidInputError(
            "expected arrays X and y; found one array. Rename the file to .npy."
        )
    target = "y" if request.target is None else request.target
    for name in ["X", target] if request.labelled else ["X"]:
        if name not in arrays:
            raise InvalidInputError(f"there is no array {name!r}. {suggest(name, list(arrays))}")
    X = as_points(arrays["X"])
    if not request.labelled:
        return Table(X=X, y=None, feature_names=None, target_name=None)
    y = as_labels(arrays[target], target)
    if len(y) != len(X):
        raise InvalidInputError(
            f"X has {len(X)} rows and {target!r} has {len(y)}. Give every row one label."
        )
    return Table(X=X, y=y, feature_names=None, target_name=target)


def _load(path: os.PathLike[str]) -> Any:
    """The array of an NPY file or the arrays of an NPZ file, never unpickled."""
    with open(path, "rb") as stream:
        try:
            content = np.load(stream, allow_pickle=False)
            return content if isinstance(content, np.ndarray) else dict(content)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise InvalidInputError(
                f"this is not a readable NumPy file: {error}. Write it again with numpy.save or "
                "numpy.savez, without object arrays."
            ) from None


def _column_number(target: str, width: int) -> int:
    try:
        number = int(target)
    except ValueError:
        number = width
    if not -width <= number < width:
        raise InvalidInputError(
            f"there is no column {target!r}: an NPY file has no names, and this one has columns "
            f"0 to {width - 1}. Give the number of the target column, or -1 for the last."
        )
    return number % width
