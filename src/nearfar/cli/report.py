"""``nearfar report`` and ``nearfar explore``: a page on a model and a table."""

from __future__ import annotations

import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.cli import tell
from nearfar.cli.output import check_output, echo, is_builtin, shown_warnings, typed_command
from nearfar.cli.use import check_width, load_model, model_in_use
from nearfar.datasets import Table, load_builtin, load_table
from nearfar.errors import InvalidInputError
from nearfar.evaluation import split_points
from nearfar.evaluation.compare import (
    MOST_REFIT_SECONDS,
    companion_of,
    last_step,
    model_name,
)
from nearfar.files import fingerprint
from nearfar.io import read_provenance
from nearfar.report import Origin, explore

LONG_FIT = 2.0  # seconds of a fit that is announced
TEST_SHARE, SEED = 0.3, 0  # as of `nearfar fit`
NAMED = (".csv", ".tsv", ".parquet")  # tables whose columns have names


@dataclass(frozen=True)
class ReportOptions:
    """The options of ``nearfar report`` and ``explore``, as the command line gives them."""

    model: Path
    table: Path | None
    target: str | None
    output: Path | None
    test: Path | None
    test_share: float | None
    seed: int | None
    neighbors: int | None
    rows: list[int] | None
    image_shape: tuple[int, int] | None
    show: tuple[str, ...]
    force: bool
    opens: bool = False


@dataclass(frozen=True)
class Rows:
    """Which rows vote and which are tested, and what is to be said of that."""

    train: Any = None
    test: Any = None
    note: str | None = None


@dataclass(frozen=True)
class Fitted:
    """What the model file says of its fit; it is believed only as far as it fits the table."""

    command: str
    target: str | None
    digest: str
    test_share: float
    seed: int
    n_rows: int
    n_train: int
    n_learned: int  # of the training rows; fewer with --rows
    versions: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Fitted | None:
        """From the file; None where it says nothing, or nothing that makes sense."""
        said = read_provenance(path)
        if said is None:
            return None
        try:
            target = said["target"]
            fitted = cls(
                str(said["command"]),
                None if target is None else str(target),
                str(said["digest"]),
                float(said["test_share"]),
                int(said["seed"]),
                int(said["n_rows"]),
                int(said["n_train"]),
                int(said.get("n_learned", said["n_train"])),
                {str(name): str(version) for name, version in said["versions"].items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None
        return fitted if 0 <= fitted.test_share < 1 and 0 <= fitted.seed < 2**32 else None


def run(options: ReportOptions) -> None:
    """Read, write the page, and say where it is."""
    _check_options(options)
    if options.output is not None:
        check_output(options.output, options.force, [options.model, options.table, options.test])
    model, names = load_model(options.model)
    fitted = Fitted.read(options.model)
    title = model_name(model)
    data: dict[str, Any] = {"feature_names": names}
    facts = {"model file": str(options.model)}
    rows = Rows()
    if options.table is not None:
        table = _read(options.table, options, names, fitted, model)
        X, y = table.X, table.y
        title += f" on {options.table.name}"
        facts["table"] = str(options.table)
        if options.test is not None:
            rows, X, y = _with_test_table(options, table, names, fitted, model)
            facts["tested rows"] = str(options.test)
        elif y is not None:
            rows = _split(table, options, fitted, facts)
        facts["rows and features"] = " × ".join(map(str, X.shape))
        facts["digest of the table"] = fingerprint(table.X, table.y)
        columns = {name: _column(options, name, names) for name in options.show}
        data |= {"X": X, "y": y, "columns": columns}
        data["feature_names"] = names or table.feature_names
        data["target_name"] = options.target or table.target_name or "label"
        _check_rows(options.rows, len(X))
    else:
        _check_rows(options.rows, len(_kept_points(model, options.model)))
    commands = {} if fitted is None else {"The fit": fitted.command}
    origin = Origin(
        held_out=rows.note,
        first_row=1,
        commands={**commands, "This report": typed_command()},
        facts=facts,
        fit_versions={} if fitted is None else fitted.versions,
    )
    _announce(model, data.get("y"))
    with shown_warnings(), model_in_use(options.model):
        page = explore(
            model,
            train=rows.train,
            test=rows.test,
            n_neighbors=options.neighbors,
            rows=options.rows,
            image_shape=options.image_shape,
            title=title,
            origin=origin,
            random_state=options.seed or SEED,
            **data,
        )
    output = options.output or _temporary_file()
    page.save(output)
    size = f"saved {output}, {output.stat().st_size / 1e6:.2f} MB"
    if options.opens and webbrowser.open(output.resolve().as_uri()):
        echo(f"{size}: opened in the browser")
    else:
        echo(f"{size}: open it in a browser")


def _temporary_file() -> Path:
    """A file in a folder of its own, which stays until the system clears its temporary files."""
    return Path(tempfile.mkdtemp(prefix="nearfar-")) / "explore.html"


def _announce(model: Any, labels: Any) -> None:
    """Say that a second fit follows, if the first one took so long that one waits for it."""
    history = getattr(last_step(model), "history_", None)
    seconds = history[-1]["seconds"] if history else 0.0
    copy = None if labels is None else companion_of(model)
    if copy is not None and LONG_FIT <= seconds <= MOST_REFIT_SECONDS:
        tell(f"fitting {model_name(copy)} for comparison, which may take {seconds:.0f} s or more")


def _check_options(options: ReportOptions) -> None:
    if options.table is None:
        for name in ("target", "test", "test_share", "show"):
            if getattr(options, name) not in (None, ()):
                raise InvalidInputError(
                    f"--{name.replace('_', '-')} goes with TABLE. Name the table too."
                )
    if options.test is not None and options.test_share is not None:
        raise InvalidInputError(
            "--test and --test-share both say which rows are tested. Give one of them."
        )


def _check_rows(rows: list[int] | None, n: int) -> None:
    """Raise if a chosen row does not exist; rows count from 0 here, and from 1 for the user."""
    for row in rows or ():
        if row >= n:
            raise InvalidInputError(
                f"--rows {row + 1}: there are {n} rows. Give numbers from 1 to {n}."
            )


def _kept_points(model: Any, path: Path) -> Any:
    """What the report shows of a model without a table."""
    for name in ("points_", "X_fit_", "embedding_"):
        kept = getattr(model, name, None)
        if kept is not None:
            return kept
    raise InvalidInputError(f"{path}: this model keeps no points. Name the table after MODEL.")


def _read(
    path: Path,
    options: ReportOptions,
    names: tuple[str, ...] | None,
    fitted: Fitted | None,
    model: Any,
) -> Table:
    """The table, with labels if they are asked for or found."""
    if is_builtin(path):
        table = load_builtin(str(path))
    else:
        table = _read_file(path, options.target, names, fitted, model)
    check_width(table, model, path)
    return table


def _read_file(
    path: Path,
    target: str | None,
    names: tuple[str, ...] | None,
    fitted: Fitted | None,
    model: Any,
) -> Table:
    if target is not None:
        return load_table(path, target, features=names)
    named = path.suffix.lower() in NAMED
    likely = fitted.target if fitted is not None and named else None
    if likely is not None or not named:
        try:
            table = load_table(path, likely, features=names)
            if table.X.shape[1] == model.n_features_in_:
                return table
        except InvalidInputError:
            pass  # there are no labels under the likely name
    return load_table(path, features=names, labelled=False)


def _split(
    table: Table, options: ReportOptions, fitted: Fitted | None, facts: dict[str, str]
) -> Rows:
    """The rows that were held out at the fit, if this is its table, else rows drawn anew."""
    same_table = fitted is not None and fitted.digest == fingerprint(table.X, table.y)
    share, seed = TEST_SHARE, SEED
    if fitted is not None and same_table:
        share, seed = fitted.test_share, fitted.seed
    asked = (share, seed)
    share = share if options.test_share is None else options.test_share
    seed = seed if options.seed is None else options.seed
    note = _said_of_split(fitted, same_table, same_table and (share, seed) == asked)
    facts["split"] = f"share {share:g} of the rows tested, seed {seed}"
    if share == 0:
        return Rows(note=note)
    drawn = split_points(np.arange(len(table.X)), table.y, share, seed)
    return Rows(drawn.X_train, drawn.X_test, note)


def _said_of_split(fitted: Fitted | None, same_table: bool, same_split: bool) -> str:
    too_small = "If the model was fitted to them, its error is too small."
    if fitted is None:
        return f"The model file does not say which rows the model was fitted to. {too_small}"
    if not same_table:
        return f"This is not the table of the fit, or it has changed since. {too_small}"
    if not same_split:
        return f"The fit had another split of this table. {too_small}"
    if fitted.test_share == 0:
        return "The model was fitted to all rows of this table."
    return "They were held out at the fit, by the same split of the same table."


def _with_test_table(
    options: ReportOptions,
    table: Table,
    names: tuple[str, ...] | None,
    fitted: Fitted | None,
    model: Any,
) -> tuple[Rows, Any, Any]:
    """All rows of both tables: those of the first vote, those of the second are tested."""
    assert options.test is not None
    other = _read(options.test, options, names, fitted, model)
    if table.y is None or other.y is None:
        raise InvalidInputError(
            "--test needs labels in both tables, and there are none. Name them by --target."
        )
    if (table.y.dtype.kind in "biuf") != (other.y.dtype.kind in "biuf"):
        raise InvalidInputError(
            f"labels are {table.y.dtype} in {options.table} and {other.y.dtype} in {options.test}:"
            " they cannot be compared. Write the labels the same way in both."
        )
    n, m = len(table.X), len(other.X)
    note = f"They are the rows of {options.test}, numbered from {n + 1} here."
    rows = Rows(np.arange(n), np.arange(n, n + m), note)
    return rows, np.concatenate([table.X, other.X]), np.concatenate([table.y, other.y])


def _column(options: ReportOptions, name: str, names: tuple[str, ...] | None) -> Any:
    """A column of numbers or text that is not a feature."""
    paths = [path for path in (options.table, options.test) if path is not None]
    return np.concatenate([column_of(path, name, names) for path in paths])


def column_of(path: Path, name: str, names: tuple[str, ...] | None) -> Any:
    """A column of a table by name, as numbers or else as text; ``names`` are features."""
    suffix = path.suffix.lower()
    if is_builtin(path) or suffix not in (*NAMED, ".npz"):
        raise InvalidInputError(
            f"--show {name} goes with a table whose columns have names; {path} has none besides its"
            " features. Leave it out, or convert the table to CSV."
        )
    if suffix in NAMED:
        try:
            return load_table(path, features=[name], labelled=False).X[:, 0]
        except InvalidInputError:
            pass  # it holds text: then it can be read as labels
    return load_table(path, name, features=None if names is None else names[:1]).y
