"""What the commands write: tables to stdout, warnings to stderr, points to files."""

from __future__ import annotations

import csv
import io
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from nearfar.cli import tell
from nearfar.cli.text import printable
from nearfar.datasets import BUILTIN_NAMES
from nearfar.errors import InvalidInputError, MissingExtraError, NearfarWarning
from nearfar.evaluation import Comparison, Row, Verdict
from nearfar.evaluation.compare import first_step
from nearfar.files import atomic_writer, check_target

WIDTH_OF_FILES = 200  # characters of a line where stdout is no terminal: nothing is cut
POINT_SUFFIXES = (".csv", ".npy", ".npz", ".parquet")


def typed_command() -> str:
    """The command that is running, as it can be typed again."""
    return shlex.join(["nearfar", *(click.get_current_context().find_root().obj or [])])


def is_builtin(table: Path) -> bool:
    """Whether a name means a built-in set rather than a file."""
    return str(table) in BUILTIN_NAMES and not table.exists()


def refuse_target(target: str | None, name: str) -> None:
    """Raise if --target is given with a built-in set."""
    if target is not None:
        raise InvalidInputError(
            f"--target {target} goes with a file; the built-in set {name} has its own. "
            f"Give a file instead of {name}, or leave --target out."
        )


def check_output(path: Path, force: bool, inputs: Sequence[Path | None] = ()) -> None:
    """Raise before any work if `path` could not be written after it."""
    if str(path) == "-":
        raise InvalidInputError(
            "- is not a file: results are written to files, whole or not at all, and never to"
            " standard output. Name a file."
        )
    check_target(path)
    check_folder(path)
    for file in inputs:
        if file is not None and path.resolve() == file.resolve():
            raise InvalidInputError(f"{path} is an input too. Give the output another name.")
    if path.exists() and not force:
        raise InvalidInputError(f"{path} exists. Give another name, or --force to replace it.")


def check_folder(path: Path) -> None:
    """Raise if no file can be made beside `path`, or where it points to if it is a link."""
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInputError(
            f"cannot write to the folder {folder}: {error.strerror}. Create it, or give "
            "another one."
        ) from None


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Show each of nearfar's warnings as one line on stderr, and those of others not at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", NearfarWarning)
        warnings.showwarning = _show_warning  # type: ignore[assignment]  # the rest is not shown
        yield


def _show_warning(message: Warning | str, *_: Any) -> None:
    tell(f"warning: {' '.join(str(message).split())}")


def without_names(model: Any) -> tuple[str, ...] | None:
    """Take the names of its features from a model, which then sees plain arrays, and return them.

    scikit-learn would warn that arrays have no names.
    """
    names = vars(first_step(model)).pop("feature_names_in_", None)
    return None if names is None else tuple(names)


def echo(text: str) -> None:
    """Print a line, or lines, of which a terminal obeys nothing."""
    click.echo(printable(text))


def print_comparison(comparison: Comparison, n_neighbors: int) -> None:
    """Print one line for each method, then the verdict; an empty column is left out."""
    rows = comparison.rows
    columns = {
        "method": [_name(row, comparison) for row in rows],
        "dimensions": ["" if row.dimensions is None else str(row.dimensions) for row in rows],
        f"{n_neighbors}-NN error": [
            "not computed"
            if row.error is None or row.standard_error is None
            else f"{100 * row.error:.2f} ± {100 * row.standard_error:.2f} %"
            for row in rows
        ],
        "seconds": ["" if row.seconds is None else f"{row.seconds:.2f}" for row in rows],
        "certified gap": [
            "" if row.duality_gap is None else f"{row.duality_gap:.1e}" for row in rows
        ],
    }
    print_table({name: cells for name, cells in columns.items() if any(cells)})
    for row in rows:
        if row.reason is not None:
            echo(f"{row.method} was not computed: {row.reason}")
    echo(f"* {comparison.model.method} is this model")
    print_verdict(comparison.verdict)


def _name(row: Row, comparison: Comparison) -> str:
    return f"{row.method} *" if row is comparison.model else row.method


def print_verdict(verdict: Verdict) -> None:
    """Print the verdict, on a terminal in its colour: red for a model that does harm."""
    colour = {"use": "green", "harmful": "red", "keep": None, "none": "yellow"}[verdict.kind]
    click.secho(printable(verdict.sentence), fg=colour, bold=True)


def print_table(columns: Mapping[str, Sequence[str]]) -> None:
    """Print columns of cells under their names, all but the first aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    console.print(table)


def write_points(path: Path, X: np.ndarray, names: Sequence[str]) -> None:
    """Write points in the format of the suffix, completely or not at all."""
    with atomic_writer(path) as stream:
        match path.suffix.lower():
            case ".npy":
                np.save(stream, X, allow_pickle=False)
            case ".npz":
                np.savez(stream, X=X)
            case ".csv":
                text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                writer = csv.writer(text, lineterminator=os.linesep)
                writer.writerow(names)
                writer.writerows(X.tolist())
                text.detach()
            case ".parquet":
                try:
                    import pyarrow
                    import pyarrow.parquet
                except ImportError:
                    raise MissingExtraError.for_extra("pyarrow", "cli") from None
                columns = [pyarrow.array(column) for column in X.T]
                table = pyarrow.Table.from_arrays(columns, names=list(names))
                pyarrow.parquet.write_table(table, stream)
