"""``nearfar fit``: read, split, learn, save, compare."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from nearfar.cli import INTERRUPTED, OK
from nearfar.cli.output import check_folder, check_output, print_rows, shown_warnings
from nearfar.cli.progress import progress
from nearfar.datasets import BUILTIN_NAMES, Table, load_builtin, load_table
from nearfar.errors import InvalidInputError
from nearfar.estimators.lmnn import LMNN
from nearfar.evaluation import baselines, measure, split_points
from nearfar.io import save


@dataclass(frozen=True)
class FitOptions:
    """The options of ``nearfar fit``, as the command line gives them."""

    table: Path | None
    target: str | None
    output: Path
    method: str
    neighbors: int
    push_weight: float
    components: int | None
    reduce: str | None
    tol: float
    max_iter: int
    max_seconds: float | None
    test_share: float
    seed: int
    checkpoint: Path | None
    force: bool


def run(options: FitOptions) -> int:
    """Do it, and return the exit code."""
    _check_options(options)
    table = _read_table(options)
    model = _make_model(options)
    with shown_warnings():
        code = _fit_and_report(options, table, model)
    return code


def _check_options(options: FitOptions) -> None:
    if options.reduce is not None and options.components is None:
        raise InvalidInputError(f"--reduce {options.reduce} needs --components R. Give both.")
    check_output(options.output, options.force, [options.table, options.checkpoint])
    if options.checkpoint is not None:
        check_folder(options.checkpoint)


def _read_table(options: FitOptions) -> Table:
    name = "digits" if options.table is None else str(options.table)
    if options.table is None or (name in BUILTIN_NAMES and not options.table.exists()):
        if options.target is not None:
            raise InvalidInputError(
                f"--target {options.target} goes with a file; the built-in set {name} has its own. "
                "Name a file too, or leave --target out."
            )
        return load_builtin(name)
    return load_table(options.table, options.target)


def _make_model(options: FitOptions) -> Any:
    return LMNN(
        n_neighbors=options.neighbors,
        push_weight=options.push_weight,
        n_components=options.components,
        reduce=options.reduce or "learn",
        tol=options.tol,
        max_iter=options.max_iter,
        max_seconds=options.max_seconds,
        checkpoint=options.checkpoint,
        random_state=options.seed,
    )


def _fit_and_report(options: FitOptions, table: Table, model: Any) -> int:
    split = split_points(table.X, table.y, options.test_share, options.seed)
    n, d = split.X_train.shape
    start = time.perf_counter()
    with progress(model):
        model.fit(split.X_train, split.y_train)
    seconds = time.perf_counter() - start
    if table.feature_names is not None:
        model.feature_names_in_ = np.array(table.feature_names, dtype=object)
    save(model, options.output)  # before the comparison, so that an interruption loses nothing
    gap = (
        "no certificate"
        if model.duality_gap_ is None
        else f"certified gap {model.duality_gap_:.1e}"
    )
    click.echo(
        f"{n} training and {len(split.X_test)} test rows, {d} features, "
        f"{len(model.classes_)} classes\n"
        f"{options.method}: {model.status_} after {model.n_iter_} iterations and {seconds:.2f} s, "
        f"objective {model.objective_:.6g}, {gap}\n"
        f"saved {options.output}"
    )
    if len(split.X_test):
        rows = baselines(split, options.neighbors, options.components)
        rows.append(measure(model, split, options.neighbors, seconds))
        print_rows(rows, options.neighbors)
    return INTERRUPTED if model.status_ == "interrupted" else OK
