"""``nearfar fit --dask``: tables larger than the memory of this machine."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar.blocks.clusters import LazyTable, cluster, read_parquet, split_table
from nearfar.blocks.collections import Stream, as_array
from nearfar.cli import INTERRUPTED, OK, tell
from nearfar.cli.methods import METHODS, make_model, takes_chunklets
from nearfar.cli.output import check_output, echo, shown_warnings, typed_command, without_names
from nearfar.datasets.table import as_labels
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import lazy_images
from nearfar.evaluation import knn_error
from nearfar.io import save
from nearfar.progress import progress
from nearfar.registry import entries
from nearfar.report.versions import versions

if TYPE_CHECKING:
    from nearfar.cli.fit import FitOptions

TESTED_ROWS = 1000  # that are classified by all training rows


def run(options: FitOptions) -> int:
    """Do it on a cluster, and return the exit code."""
    able = [method for method in METHODS if METHODS[method] in _names()]
    if options.method not in able:
        raise InvalidInputError(
            f"--method {options.method} does not learn from tables in blocks. Choose from:"
            f" {', '.join(able)}, or leave --dask out."
        )
    if options.rows is not None:
        raise InvalidInputError(
            "--rows draws rows of a table in memory, and does not go with --dask. Leave it out, or"
            " pass fewer files."
        )
    if options.table is None or options.table.suffix not in (".parquet", ""):
        raise InvalidInputError(
            f"--dask reads Parquet files, such as 'data/*.parquet'; got {options.table}. Convert"
            " the table, or leave --dask out."
        )
    model = make_model(options.method, options.given, options.neighbors, options.seed)
    check_output(options.output, options.force, [options.given.get("checkpoint")])
    with cluster(options.scheduler, os.cpu_count() or 1) as client, shown_warnings():
        workers = len(client.scheduler_info()["workers"])
        tell(f"{workers} workers; dashboard: {client.dashboard_link}")
        return _fit(options, model)


def _names() -> set[str]:
    return {entry.name for entry in entries(blocks=True)}


def _fit(options: FitOptions, learner: Any) -> int:
    table = read_parquet(str(options.table), options.target, options.drop)
    if table.y.dtype.kind == "f":
        labels = table.y.map_partitions(_labels, options.target, meta=table.y._meta.astype("int64"))
        table = table._replace(y=labels)
    train, test = split_table(table, options.test_share, options.seed)
    y = train.y
    if takes_chunklets(options.method) and y.dtype.kind in "iuf":
        y = y.astype(str)  # chunklet -1 stands for no chunklet; a class may have that label
    start = time.perf_counter()
    scaler, X = None, train.X
    if options.standardise:
        scaler = _fitted_scaler(train.X)
        X = lazy_images(scaler, train.X)
    with progress(learner, tell):
        learner.fit(X, y)
    seconds = time.perf_counter() - start
    model = learner if scaler is None else make_pipeline(scaler, learner)
    provenance = {
        "command": typed_command(),
        "table": str(options.table),
        "target": options.target,
        "test_share": options.test_share,
        "seed": options.seed,
        "versions": versions(),
    }
    save(model, options.output, provenance=provenance)
    gap = learner.duality_gap_
    echo(
        f"{learner.n_features_in_} features; {options.method}: {learner.status_} in"
        f" {seconds:.2f} s, objective {learner.objective_:.6g},"
        f" {'no certificate' if gap is None else f'certified gap {gap:.1e}'}\n"
        f"saved {options.output}"
    )
    if options.test_share:
        _compare(options, model, train, test)
    return INTERRUPTED if learner.status_ == "interrupted" else OK


def _labels(part: Any, name: str) -> Any:
    """Whole numbers as labels; the names of rows stay."""
    return type(part)(as_labels(part.to_numpy(), name), index=part.index, name=part.name)


def _fitted_scaler(X: Any) -> StandardScaler:
    """scikit-learn's scaler, from the scatter of all rows in one pass."""
    scatter, centre = Stream.of(X).scatter()
    variances = np.diag(scatter.within) / scatter.weight
    scaler = StandardScaler()
    scaler.mean_, scaler.var_ = centre + scatter.mean, variances
    scaler.scale_ = np.sqrt(np.where(variances > 0, variances, 1.0))
    scaler.n_features_in_, scaler.n_samples_seen_ = len(variances), scatter.n_rows
    scaler.feature_names_in_ = np.array(list(X.columns), dtype=object)
    return scaler


def _compare(options: FitOptions, model: Any, train: LazyTable, test: LazyTable) -> None:
    """Print how many test rows their nearest training rows misclassify, before and after."""
    n_partitions, rows, labels = test.X.npartitions, [], []
    for part in range(n_partitions):  # as many partitions as are needed for enough rows
        rows.append(test.X.partitions[part].compute())
        labels.append(test.y.partitions[part].compute())
        if sum(map(len, rows)) >= TESTED_ROWS:
            break
    asked = np.concatenate([np.asarray(part) for part in rows])[:TESTED_ROWS]
    truth = np.concatenate([np.asarray(part) for part in labels])[:TESTED_ROWS]
    bad = np.flatnonzero(~np.isfinite(asked).all(axis=0))
    if len(bad):
        raise InvalidInputError(
            f"column {test.X.columns[bad[0]]!r} has missing or infinite values among the test rows;"
            f" {options.output} is saved and was not tested. Fill them in, drop these rows, or give"
            " --test-share 0."
        )
    without_names(model)  # the comparison is of plain arrays
    known, k = as_array(train.X), options.neighbors
    before, after = (knn_error(metric, known, train.y, asked, truth, k) for metric in (None, model))
    echo(
        f"{k}-NN error of {len(asked)} test rows: {100 * before:.2f} % by the Euclidean distance,"
        f" {100 * after:.2f} % by the learned one"
    )
