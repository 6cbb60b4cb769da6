"""``nearfar fit``: read, split, learn, save, compare."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar.analysis.convergence import proved_gap
from nearfar.analysis.models import sample_rows
from nearfar.analysis.neighbors import nearest_rows
from nearfar.cli import INTERRUPTED, OK, tell
from nearfar.cli.methods import make_model, takes_chunklets
from nearfar.cli.output import (
    check_folder,
    check_output,
    echo,
    is_builtin,
    print_comparison,
    refuse_target,
    shown_warnings,
    typed_command,
    without_names,
)
from nearfar.datasets import Table, load_builtin, load_table
from nearfar.datasets.table import suggest
from nearfar.errors import InvalidInputError, TimeLimitError
from nearfar.evaluation import Split, compare_fitted, split_points, with_fewer_tests
from nearfar.files import check_target, fingerprint, row_hashes
from nearfar.io import save
from nearfar.limits import operations_per_second
from nearfar.progress import progress
from nearfar.report.versions import versions
from nearfar.supervision.neighbors import vote

LARGE_FILE = 20.0  # megabytes from which reading a file is announced
LARGE_WORK = 1e11  # operations of a pass over all pairs from which its cost is announced: seconds
COMPARED_PAIRS = 1 << 29  # of training and test rows in the comparison: some seconds a method
LOOK = 0.02  # share of the time limit that one look at all pairs may take
LINEAR_TIME = ("rca", "pola")  # methods whose time grows with the rows, not with all pairs
KEPT_HASHES = 1000  # of the rows that were learned, the smallest: by them they are known again
DIFFERENT_UNITS = 10.0  # factor between standard deviations from which units may differ
TRIED_ROWS = 2000  # training rows, at most, on which standardising is tried
LEAST_IDENTIFIERS = 10  # rows from which whole numbers in order look like identifiers
LEAST_TESTS = 1000  # test rows that are compared in any case


@dataclass(frozen=True)
class FitOptions:
    """The options of ``nearfar fit``, as the command line gives them."""

    table: Path | None
    target: str | None
    drop: tuple[str, ...]
    output: Path
    standardise: bool | None
    method: str
    neighbors: int
    test_share: float
    seed: int
    rows: int | None
    force: bool
    dask: bool
    scheduler: str | None
    given: Mapping[str, Any]  # those of `PARAMETERS` that were named


def run(options: FitOptions) -> int:
    """Do it, and return the exit code."""
    if options.dask or options.scheduler is not None:
        from nearfar.cli.fit_dask import run as run_on_cluster

        return run_on_cluster(options)
    model = make_model(options.method, options.given, options.neighbors, options.seed)
    _check_options(options)
    waits = _megabytes(options) >= LARGE_FILE
    if waits:  # an error that would make the wait vain comes first
        _check_output(options)
    table = _read_table(options)
    if not waits:  # an error in the table comes before that of a file that exists
        _check_output(options)
    with shown_warnings():
        code = _fit_and_report(options, table, model)
    return code


def _check_options(options: FitOptions) -> None:
    reduce, checkpoint = options.given.get("reduce"), options.given.get("checkpoint")
    if reduce is not None and "components" not in options.given:
        raise InvalidInputError(f"--reduce {reduce} needs --components R. Give both.")
    if checkpoint is not None:
        check_target(checkpoint)
        check_folder(checkpoint)


def _check_output(options: FitOptions) -> None:
    inputs = [options.table, options.given.get("checkpoint")]
    check_output(options.output, options.force, inputs)


def _megabytes(options: FitOptions) -> float:
    """The size of the table's file; 0 if there is none."""
    table = options.table
    return table.stat().st_size / 1e6 if table is not None and table.is_file() else 0.0


def _read_table(options: FitOptions) -> Table:
    name = "digits" if options.table is None else str(options.table)
    if options.table is None or is_builtin(options.table):
        refuse_target(options.target, name)
        return without_columns(load_builtin(name), options.drop, name)
    megabytes = _megabytes(options)
    if megabytes >= LARGE_FILE:
        tell(f"reading {name} ({megabytes:.0f} MB)")
    start = time.perf_counter()
    table = load_table(options.table, options.target, drop=options.drop)
    if megabytes >= LARGE_FILE or is_large(table):
        n, d = table.X.shape
        seconds = time.perf_counter() - start
        tell(f"read {n:,} rows and {d} features in {seconds:.1f} s")
    return table


def without_columns(table: Table, drop: Sequence[str], name: str) -> Table:
    """A built-in set without some of its features."""
    names = list(table.feature_names or ())
    for column in drop:
        if column not in names:
            raise InvalidInputError(
                f"{name}: there is no column {column!r}. {suggest(column, names)}"
            )
    kept = [i for i, column in enumerate(names) if column not in drop]
    return replace(table, X=table.X[:, kept], feature_names=tuple(names[i] for i in kept))


def identifiers(table: Table) -> list[str]:
    """Features that look like identifiers: different whole numbers, in order."""
    if len(table.X) < LEAST_IDENTIFIERS:
        return []
    steps = np.diff(table.X, axis=0)
    ordered = (steps > 0).all(axis=0) | (steps < 0).all(axis=0)
    found = np.flatnonzero(ordered & (np.rint(table.X) == table.X).all(axis=0))
    names = table.feature_names
    return [str(i) if names is None else names[i] for i in found.tolist()]


def warn_of_identifiers(table: Table) -> None:
    """Name the features that look like identifiers."""
    for column in identifiers(table):
        ending = "" if table.feature_names is None else f" with --drop {shlex.quote(column)}"
        tell(
            f"warning: column {column!r} holds different whole numbers in order, as identifiers"
            f" do, and would be learned from. Leave it out{ending}, unless it is a measurement."
        )


def _standardises(options: FitOptions, split: Split) -> bool:
    """Whether to standardise: as asked for, else where units differ and it helps; said aloud."""
    if options.standardise is not None:
        return options.standardise
    factor = scale_ratio(split.X_train)
    if factor < DIFFERENT_UNITS:
        return False
    given, standardised = errors_without_learning(
        split.X_train, split.y_train, options.neighbors, options.seed
    )
    if standardised >= given:
        return False
    echo(
        f"standard deviations of features differ by a factor of {factor:.2g}: they are"
        f" standardised ({100 * standardised:.1f} % instead of {100 * given:.1f} % of the training"
        " rows are misclassified by the others); --no-standardise takes them as they are"
    )
    return True


def scale_ratio(X: Any) -> float:
    """The largest standard deviation of a feature relative to the smallest that is not zero."""
    scales = np.std(X, axis=0, dtype=np.float64)
    varying = scales[scales > 0]
    return float(varying.max() / varying.min()) if len(varying) else 1.0


def errors_without_learning(X: Any, y: Any, n_neighbors: int, seed: int) -> tuple[float, float]:
    """Shares of training rows that the others classify wrongly: as given, and standardised."""
    rows = sample_rows(np.arange(len(X)), TRIED_ROWS, seed)
    points, (classes, codes) = X[rows], np.unique(y[rows], return_inverse=True)
    everyone, k = np.arange(len(rows)), min(n_neighbors, len(rows) - 1)

    def error(images: Any) -> float:
        near = nearest_rows(images, everyone, everyone, k)
        return float(np.mean(vote(codes[near.rows], len(classes)) != codes))

    return error(points), error(StandardScaler().fit_transform(points))


def is_large(table: Table) -> bool:
    """Whether work on it takes so long that its cost should be announced."""
    n, d = table.X.shape
    return bool(n * n * d > LARGE_WORK)


def drawn_rows(n: int, rows: int, seed: int) -> Any:
    """The numbers of the rows, of n training rows, that a fit with ``--rows`` learns from."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:rows])


def _provenance(options: FitOptions, table: Table, n_train: int, X: Any) -> dict[str, Any]:
    """How the model comes about, for `nearfar.io.read_provenance`; X are the rows it learned."""
    return {
        "command": typed_command(),
        "table": "digits" if options.table is None else str(options.table),
        "target": table.target_name,
        "digest": fingerprint(table.X, table.y),
        "test_share": options.test_share,
        "seed": options.seed,
        "n_rows": len(table.X),
        "n_train": n_train,
        "n_learned": len(X),
        "learned_rows": np.sort(row_hashes(X))[:KEPT_HASHES].tolist(),
        "versions": versions(),
    }


def _affordable_rows(seconds: float, d: int) -> int:
    """As many as a fit has time for: a pass over all their pairs takes LOOK of the time."""
    rows = (LOOK * seconds * operations_per_second() / d) ** 0.5
    return max(100, int(float(f"{rows:.1g}")))


def _learned_rows(options: FitOptions, n: int, d: int) -> int:
    """How many of n training rows to learn from: those asked for, or what --max-seconds allows.

    Before work that takes long, its cost is announced. A method that does not look at all pairs
    takes all rows.
    """
    rows, limit = min(options.rows or n, n), options.given.get("max_seconds")
    if options.rows is not None and options.rows > n:
        tell(f"--rows {options.rows:,} is more than the {n:,} training rows: all of them are used")
    if options.method in LINEAR_TIME or n * n * d < LARGE_WORK:
        return rows
    if limit is None:
        ends = "set --max-seconds to limit learning, or --rows to learn from fewer rows"
    else:
        ends = f"learning ends after --max-seconds {limit:g}, at the latest after twice that"
        if options.rows is None:
            rows = min(rows, _affordable_rows(limit, d))
    part = "" if rows == n else f" of {n:,}, drawn at random"
    tell(
        f"learning from {rows:,} rows{part}: one look at all {rows * (rows - 1) / 2:.1e} pairs"
        f" takes up to about {rows * rows * d / operations_per_second():.2g} s here; {ends}"
    )
    return rows


def _fit_and_report(options: FitOptions, table: Table, learner: Any) -> int:
    split = split_points(table.X, table.y, options.test_share, options.seed)
    n, d = split.X_train.shape
    if options.neighbors > n:
        raise InvalidInputError(
            f"--neighbors {options.neighbors} is more than the number of training rows, {n}."
            " Lower it or --test-share, or add rows."
        )
    warn_of_identifiers(table)
    scaler = StandardScaler() if _standardises(options, split) else None
    classes, codes = np.unique(split.y_train, return_inverse=True)
    # Chunklet -1 stands for no chunklet; a class may have that label.
    y = codes if takes_chunklets(options.method) else split.y_train
    learned = None
    rows = _learned_rows(options, n, d)
    if rows < n:
        learned = drawn_rows(n, rows, options.seed)
    X = split.X_train if learned is None else split.X_train[learned]
    start = time.perf_counter()
    try:
        images = X if scaler is None else scaler.fit_transform(X)
        with progress(learner, tell):
            learner.fit(images, y if learned is None else y[learned])
    except TimeLimitError:
        limit = options.given["max_seconds"]
        count = n if learned is None else len(learned)
        raise TimeLimitError(
            f"--max-seconds {limit:g} is too short for a first answer on {count} rows. Raise it, or"
            f" learn from fewer of them, for example --rows {_affordable_rows(limit, d)}."
        ) from None
    seconds = time.perf_counter() - start
    model = learner if scaler is None else make_pipeline(scaler, learner)
    if table.feature_names is not None:
        first = learner if scaler is None else scaler
        first.feature_names_in_ = np.array(table.feature_names, dtype=object)
    # Before the comparison, so that an interruption loses nothing.
    save(model, options.output, provenance=_provenance(options, table, n, X))
    gap = proved_gap(learner) or "no certificate"
    part = "" if learned is None else f"; learned from {len(learned)} of the training rows"
    objective = (
        "objective not known in time"
        if learner.objective_ is None
        else f"objective {learner.objective_:.6g}"
    )
    iterations = (
        f"after {learner.n_iter_} iterations and" if learner.n_iter_ else "without iterations in"
    )
    echo(
        f"{n} training and {len(split.X_test)} test rows, {d} features, {len(classes)} classes"
        f"{part}\n"
        f"{options.method}: {learner.status_} {iterations} {seconds:.2f} s, "
        f"{objective}, {gap}\n"
        f"saved {options.output}"
    )
    if len(split.X_test):
        n_tests = len(split.X_test)
        split = with_fewer_tests(split, COMPARED_PAIRS, LEAST_TESTS)
        if len(split.X_test) < n_tests:
            echo(f"compared on {len(split.X_test):,} of {n_tests:,} test rows")
        without_names(model)  # the comparison is of plain arrays
        compared = compare_fitted(
            model,
            split,
            options.neighbors,
            options.given.get("components"),
            seconds=seconds,
            learned_rows=learned,
            watched=progress,
        )
        print_comparison(compared, options.neighbors)
    return INTERRUPTED if learner.status_ == "interrupted" else OK
