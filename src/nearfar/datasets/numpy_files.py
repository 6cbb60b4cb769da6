"""NPY files (one matrix, the last column is the target) and NPZ files (X and y)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np

from nearfar.datasets.table import LIMIT, Request, Table, as_labels, as_points, suggest
from nearfar.errors import InvalidInputError
from nearfar.files import DAMAGE, Archive, UnsafeFileError, read_array

_ARRAY, _ARCHIVE = b"\x93N", b"PK"  # how files begin


def read_npy(path: os.PathLike[str], request: Request) -> Table:
    """Read one matrix; the target is the number of a column, from 0, or from -1 backwards."""
    with _open_file(path) as (stream, start):
        if start == _ARCHIVE:
            Archive(stream, LIMIT, compressed=True)
            raise _no_matrix("an archive")
        values = _read_whole(stream)
    if values.ndim != 2:
        raise _no_matrix(f"shape {values.shape}")
    if request.target is None and not request.labelled:
        return Table(X=as_points(values), y=None, feature_names=None, target_name=None)
    column = _column_number("-1" if request.target is None else request.target, values.shape[1])
    X = as_points(np.delete(values, column, axis=1))
    if not request.labelled:
        return Table(X=X, y=None, feature_names=None, target_name=None)
    y = as_labels(values[:, column], str(column))
    return Table(X=X, y=y, feature_names=None, target_name=str(column))


def read_npz(path: os.PathLike[str], request: Request) -> Table:
    """Read the arrays ``X`` and ``y``, and no others; the target names another array of labels."""
    target = "y" if request.target is None else request.target
    wanted = ["X", target] if request.labelled else ["X"]
    with _open_file(path) as (stream, start):
        if start == _ARRAY:
            _read_whole(stream)
            raise InvalidInputError(
                "expected arrays X and y; found one array. Rename the file to .npy."
            )
        archive = Archive(stream, LIMIT, compressed=True)
        arrays = []
        for name in wanted:
            if name not in archive.names:
                raise InvalidInputError(
                    f"there is no array {name!r}. {suggest(name, archive.names)}"
                )
            arrays.append(archive.array(name))
    X = as_points(arrays[0])
    if not request.labelled:
        return Table(X=X, y=None, feature_names=None, target_name=None)
    y = as_labels(arrays[1], target)
    if len(y) != len(X):
        raise InvalidInputError(
            f"X has {len(X)} rows and {target!r} has {len(y)}. Give every row one label."
        )
    return Table(X=X, y=y, feature_names=None, target_name=target)


def _no_matrix(found: str) -> InvalidInputError:
    return InvalidInputError(
        f"expected one matrix, a row for each point; found {found}. Save a matrix, or X and y "
        "in an NPZ file."
    )


def _read_whole(stream: IO[bytes]) -> np.ndarray:
    """The array that is the whole of a file."""
    size = os.fstat(stream.fileno()).st_size
    return read_array(stream, size, LIMIT.of(size))


@contextmanager
def _open_file(path: os.PathLike[str]) -> Iterator[tuple[IO[bytes], bytes]]:
    """A file and its first two bytes; what its parsers raise is told as InvalidInputError."""
    with open(path, "rb") as stream:
        try:
            start = stream.read(2)
            stream.seek(0)
            yield stream, start
        except InvalidInputError:
            raise
        except UnsafeFileError as error:
            raise InvalidInputError(
                f"this is not a readable NumPy file: it {error} Write it again with numpy.save or "
                "numpy.savez, uncompressed and without object arrays."
            ) from None
        except DAMAGE as error:
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
