"""NPY files (one matrix, the last column is the target) and NPZ files (X and y).

Instead of X an NPZ file may hold the arrays of a CSR matrix, as ``scipy.sparse.save_npz`` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from scipy.sparse import csr_array

from nearfar.datasets.table import LIMIT, Request, Table, as_labels, as_points, suggest
from nearfar.errors import InvalidInputError
from nearfar.files import DAMAGE, Archive, UnsafeFileError, read_array

CSR_PARTS = ("data", "indices", "indptr", "shape")
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
    with _open_file(path) as (stream, start):
        if start == _ARRAY:
            _read_whole(stream)
            raise InvalidInputError(
                "expected arrays X and y; found one array. Rename the file to .npy."
            )
        archive = Archive(stream, LIMIT, compressed=True)
        is_csr = "X" not in archive.names and set(CSR_PARTS) <= set(archive.names)
        X = _csr(archive, request) if is_csr else as_points(_array(archive, "X"))
        if not request.labelled:
            return Table(X=X, y=None, feature_names=None, target_name=None)
        y = as_labels(_array(archive, target), target)
    if len(y) != X.shape[0]:
        raise InvalidInputError(
            f"X has {X.shape[0]} rows and {target!r} has {len(y)}. Give every row one label."
        )
    return Table(X=X, y=y, feature_names=None, target_name=target)


def _array(archive: Archive, name: str) -> np.ndarray:
    if name not in archive.names:
        raise InvalidInputError(f"there is no array {name!r}. {suggest(name, archive.names)}")
    return archive.array(name)


def _csr(archive: Archive, request: Request) -> csr_array:
    """The CSR matrix whose arrays are in an archive."""
    if not request.sparse:
        raise InvalidInputError(
            "X is sparse: the file holds the arrays of a CSR matrix. A dense array is needed here;"
            " nearfar transform and nearfar verify take sparse tables. Learn from it in Python, by"
            " LMNN(n_components=50).fit(scipy.sparse.load_npz(path), y), or save X.toarray()."
        )
    data, indices, indptr, shape = (archive.array(name) for name in CSR_PARTS)
    kind = archive.array("format").item() if "format" in archive.names else b"csr"
    if kind not in (b"csr", "csr"):
        raise InvalidInputError(
            f"sparse points must be a CSR matrix; found the format {kind!r}. Write"
            " X.tocsr() by scipy.sparse.save_npz."
        )
    as_points(np.atleast_2d(data) if len(data) else np.zeros((1, 1)))  # finite numbers
    small = data.dtype.kind == "f" and data.dtype.itemsize <= 4
    try:
        rows, columns = (int(number) for number in shape)
        X = csr_array(
            (data.astype(np.float32 if small else np.float64), indices, indptr),
            shape=(rows, columns),
        )
        X.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the arrays of the CSR matrix do not fit together: {error}. Write it again by"
            " scipy.sparse.save_npz."
        ) from None
    if rows == 0 or columns == 0:
        raise InvalidInputError(
            f"the sparse points have shape {rows, columns}. Give at least one row and one column."
        )
    return X


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
    """A file and its first two bytes; what its parsers raise becomes an InvalidInputError."""
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
