"""Clusters to compute on, and tables on disk that are read where they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from nearfar.blocks.engine import import_dask
from nearfar.errors import ClusterError, InvalidInputError, MissingExtraError

SECONDS = 10  # after which a scheduler that does not answer is given up


@contextmanager
def cluster(address: str | None, n_workers: int) -> Iterator[Any]:
    """A client of the scheduler at an address, or of processes on this machine, one thread each."""
    import_dask()
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingExtraError.for_extra("distributed", "dask") from error
    if address is None:
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
            ) as workers,
            Client(workers) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=SECONDS)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {SECONDS} s. Start one with `dask"
            " scheduler`, and give the address that it prints."
        ) from error
    with client:
        yield client


class LazyTable(NamedTuple):
    """Rows of Parquet files: features and labels, none of which is read yet."""

    X: Any  # a Dask table
    y: Any  # its column of labels


def read_parquet(pattern: str, target: str | None, drop: Sequence[str]) -> LazyTable:
    """The columns of numbers in one or many Parquet files, and a column of labels."""
    import_dask()
    import dask.dataframe

    check_columns(pattern)
    try:
        table = dask.dataframe.read_parquet(pattern)
        names = list(map(str, table.columns))
    except (OSError, ValueError) as error:
        raise _unreadable(pattern, error) from error
    if not names:
        raise InvalidInputError(
            f"{pattern}: cannot read Parquet files: there is no such file. Check the path, and"
            " quote a pattern such as 'data/*.parquet'."
        )
    for column in [target, *drop]:
        if column not in names:
            what = "no target is named" if column is None else f"there is no column {column!r}"
            raise InvalidInputError(f"{pattern}: {what}. Choose from: {', '.join(names)}")
    X = table.drop(columns=[target, *drop])
    text = [name for name, kind in X.dtypes.items() if not _is_number(kind)]
    if text or not len(X.columns):
        found = f"column {text[0]!r} holds {X.dtypes[text[0]]}" if text else "there is none"
        raise InvalidInputError(
            f"{pattern}: features must be columns of numbers; {found}. Leave columns out with"
            " --drop, or encode them."
        )
    return LazyTable(X, table[target])


def check_columns(pattern: str) -> None:
    """Raise unless all files have the same columns of the same types; reads their ends alone."""
    try:
        from fsspec.core import url_to_fs
        from pyarrow.parquet import read_schema
    except ImportError as error:
        raise MissingExtraError.for_extra("pyarrow", "dask") from error

    files, path = url_to_fs(pattern)
    names = [
        inside
        for name in sorted(files.glob(path))
        for inside in (sorted(files.find(name)) if files.isdir(name) else [name])
        if inside == name or inside.endswith((".parquet", ".parq"))
    ]
    first: dict[str, Any] = {}
    for name in names:
        try:
            with files.open(name) as file:
                schema = read_schema(file)
        except (OSError, ValueError) as error:
            raise _unreadable(name, error) from error
        columns = dict(zip(schema.names, map(str, schema.types), strict=True))
        columns = {key: kind for key, kind in columns.items() if not key.startswith(_INDEX)}
        if not first:
            first, example = columns, name
        if columns.keys() != first.keys():
            differing = sorted(columns.keys() ^ first.keys())[0]
            has, has_not = (name, example) if differing in columns else (example, name)
            raise InvalidInputError(
                f"{pattern}: all files must have the same columns; {has} has a column"
                f" {differing!r}, and {has_not} has none. Write the files anew, or choose those"
                " that agree by another pattern."
            )
        for column, kind in columns.items():
            if kind != first[column]:
                raise InvalidInputError(
                    f"{pattern}: a column must have one type in all files; {column!r} holds"
                    f" {first[column]} in {example}, and {kind} in {name}. Write the files anew"
                    " with one type."
                )


def _unreadable(pattern: str, error: Exception) -> InvalidInputError:
    reason = str(error).splitlines()[0][:300].rstrip(".")
    return InvalidInputError(
        f"{pattern}: cannot read Parquet files: {reason}. Check the path, and quote a pattern"
        " such as 'data/*.parquet'."
    )


def _is_number(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "fiub"


def split_table(table: LazyTable, test_share: float, seed: int) -> tuple[LazyTable, LazyTable]:
    """Training and test rows, drawn at random in each partition."""
    if not test_share:
        return table, LazyTable(table.X.partitions[:0], table.y.partitions[:0])
    together = table.X.assign(**{_LABELS: table.y})
    parts = together.random_split([1 - test_share, test_share], random_state=seed)
    train, test = (LazyTable(part.drop(columns=[_LABELS]), part[_LABELS]) for part in parts)
    return train, test


_INDEX = "__index_level_"  # how pandas names columns of row names
_LABELS = "__labels__"
