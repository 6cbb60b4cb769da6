"""``nearfar fit``: read, split, learn, save, compare."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.cli import INTERRUPTED, OK
from nearfar.cli.methods import make_model
from nearfar.cli.output import (
    check_folder,
    check_output,
    echo,
    is_builtin,
    print_rows,
    refuse_target,
    shown_warnings,
    typed_command,
)
from nearfar.cli.progress import progress
from nearfar.datasets import Table, load_builtin, load_table
from nearfar.errors import InvalidInputError
from nearfar.evaluation import baselines, measure, split_points
from nearfar.files import check_target
from nearfar.io import save
from nearfar.report.versions import versions
from nearfar.solvers.checkpoint import fingerprint


@dataclass(frozen=True)
class FitOptions:
    """The options of ``nearfar fit``, as the command line gives them."""

    table: Path | None
    target: str | None
    output: Path
    method: str
    neighbors: int
    test_share: float
    seed: int
    force: bool
    given: Mapping[str, Any]  # those of `PARAMETERS` that were named


def run(options: FitOptions) -> int:
    """Do it, and return the exit code."""
    model = make_model(options.method, options.given, options.neighbors, options.seed)
    _check_options(options)
    table = _read_table(options)
    with shown_warnings():
        code = _fit_and_report(options, table, model)
    return code


def _check_options(options: FitOptions) -> None:
    reduce, checkpoint = options.given.get("reduce"), options.given.get("checkpoint")
    if reduce is not None and "components" not in options.given:
        raise InvalidInputError(f"--reduce {reduce} needs --components R. Give both.")
    check_output(options.output, options.force, [options.table, checkpoint])
    if checkpoint is not None:
        check_target(checkpoint)
        check_folder(checkpoint)


def _read_table(options: FitOptions) -> Table:
    name = "digits" if options.table is None else str(options.table)
    if options.table is None or is_builtin(options.table):
        refuse_target(options.target, name)
        return load_builtin(name)
    return load_table(options.table, options.target)


def _provenance(options: FitOptions, table: Table, n_train: int) -> dict[str, Any]:
    """How the model comes about, for `nearfar.io.read_provenance`."""
    return {
        "command": typed_command(),
        "table": "digits" if options.table is None else str(options.table),
        "target": table.target_name,
        "digest": fingerprint(table.X, table.y),
        "test_share": options.test_share,
        "seed": options.seed,
        "n_rows": len(table.X),
        "n_train": n_train,
        "versions": versions(),
    }


def _fit_and_report(options: FitOptions, table: Table, model: Any) -> int:
    split = split_points(table.X, table.y, options.test_share, options.seed)
    n, d = split.X_train.shape
    if options.neighbors > n:
        raise InvalidInputError(
            f"--neighbors {options.neighbors} is more than the {n} training rows. Lower it."
        )
    classes, codes = np.unique(split.y_train, return_inverse=True)
    y = codes if options.method == "rca" else split.y_train  # RCA takes -1 for no label
    start = time.perf_counter()
    with progress(model):
        model.fit(split.X_train, y)
    seconds = time.perf_counter() - start
    if table.feature_names is not None:
        model.feature_names_in_ = np.array(table.feature_names, dtype=object)
    # Before the comparison, so that an interruption loses nothing.
    save(model, options.output, provenance=_provenance(options, table, n))
    gap = (
        "no certificate"
        if model.duality_gap_ is None
        else f"certified gap {model.duality_gap_:.1e}"
    )
    iterations = (
        f"after {model.n_iter_} iterations and" if model.n_iter_ else "without iterations in"
    )
    echo(
        f"{n} training and {len(split.X_test)} test rows, {d} features, {len(classes)} classes\n"
        f"{options.method}: {model.status_} {iterations} {seconds:.2f} s, "
        f"objective {model.objective_:.6g}, {gap}\n"
        f"saved {options.output}"
    )
    if len(split.X_test):
        rows = baselines(split, options.neighbors, options.given.get("components"))
        rows.append(measure(model, split, options.neighbors, seconds))
        print_rows(rows, options.neighbors)
    return INTERRUPTED if model.status_ == "interrupted" else OK
