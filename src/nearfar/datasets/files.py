"""Read a table from a file of any supported format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nearfar.datasets.builtin import BUILTIN_NAMES
from nearfar.datasets.delimited import read_delimited
from nearfar.datasets.numpy_files import read_npy, read_npz
from nearfar.datasets.parquet import read_parquet
from nearfar.datasets.table import Request, Table, suggest
from nearfar.errors import InvalidInputError

SUFFIXES = (".csv", ".tsv", ".parquet", ".npy", ".npz")


def load_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    *,
    features: Sequence[str] | None = None,
    labelled: bool = True,
    drop: Sequence[str] = (),
    sparse: bool = False,
) -> Table:
    """Read a table of numbers, and the class labels in it.

    Parameters
    ----------
    path : path-like
        A ``.csv`` (or ``.tsv``), ``.parquet``, ``.npy`` or ``.npz`` file.
    target : str or None
        The column of labels. CSV and Parquet files need it. In an NPY file it is the number of a
        column ("0", "-1"), by default the last; in an NPZ file, the name of an array beside
        ``X``, by default ``y``.
    features : sequence of str or None
        The columns to use, in this order; None means all but the target. Files without names
        (NPY, NPZ) ignore it.
    labelled : bool
        False reads no labels and needs no target; one that is given is only left out of the
        features.
    drop : sequence of str
        Columns to leave out, where ``features`` is None.
    sparse : bool
        Whether points may be a CSR matrix: an NPZ file with the arrays of
        ``scipy.sparse.save_npz``, and labels beside them. False refuses such a file.

    Returns
    -------
    table : Table
        float32 columns stay float32; integers and booleans become float64.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    InvalidInputError
        A column is missing, text stands where numbers belong, a value is missing, or the file
        cannot be read. Rows are counted from 1, without the line of names.
    MissingExtraError
        A Parquet file without pyarrow.
    """
    path = Path(path)
    if drop and path.suffix.lower() in (".npy", ".npz"):
        raise InvalidInputError(
            f"{path}: its columns have no names, so that {', '.join(drop)} cannot be left out."
            " Convert the table to CSV, or write it without that column."
        )
    request = Request(target, features, labelled, drop, sparse)
    try:
        match path.suffix.lower():
            case ".csv" | ".tsv":
                return read_delimited(path, request)
            case ".parquet":
                return read_parquet(path, request)
            case ".npy":
                return read_npy(path, request)
            case ".npz":
                return read_npz(path, request)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}", error.indices) from None
    if not path.suffix and not path.exists():
        raise InvalidInputError(
            f"{path}: there is no such file. Give a file with its suffix, or a built-in set (in "
            f"Python by load_builtin). {suggest(str(path), BUILTIN_NAMES)}"
        )
    raise InvalidInputError(
        f"{path}: cannot tell the format from the suffix {path.suffix!r}. Expected one of "
        f"{', '.join(SUFFIXES)}. Rename or convert the file."
    )
