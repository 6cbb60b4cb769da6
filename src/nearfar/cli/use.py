"""``nearfar transform`` and ``nearfar evaluate``: what a model file is for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from nearfar.cli.output import (
    POINT_SUFFIXES,
    check_output,
    print_rows,
    shown_warnings,
    write_points,
)
from nearfar.datasets import Table, load_table
from nearfar.errors import InvalidInputError
from nearfar.evaluation import Split, measure
from nearfar.io import load


def transform_table(
    model_path: Path, table_path: Path, output: Path, target: str | None, force: bool
) -> None:
    """Map the points of a table and write them; a target column is left out."""
    if output.suffix.lower() not in POINT_SUFFIXES:
        raise InvalidInputError(
            f"{output}: cannot write the format {output.suffix!r}. Expected one of "
            f"{', '.join(POINT_SUFFIXES)}. Give the output another suffix."
        )
    check_output(output, force, [model_path, table_path])
    model, names = _load_model(model_path)
    with shown_warnings():
        table = load_table(table_path, target, features=names, labelled=False)
        _check_width(table, model, table_path)
        points = model.transform(table.X)
    write_points(output, points, [str(name) for name in model.get_feature_names_out()])
    click.echo(f"saved {output}: {points.shape[0]} rows, {points.shape[1]} columns")


def evaluate_model(
    model_path: Path,
    train_path: Path,
    test_path: Path,
    target: str | None,
    neighbors: int | None,
    as_json: bool,
) -> None:
    """Print the kNN error of the Euclidean distance and of the model on the same tables."""
    model, names = _load_model(model_path)
    tables = []
    for path in (train_path, test_path):
        table = load_table(path, target, features=names)
        _check_width(table, model, path)
        tables.append(table)
    train, test = tables
    split = Split(train.X, train.y, test.X, test.y)
    n_neighbors = model.n_neighbors if neighbors is None else neighbors
    with shown_warnings():
        rows = [measure(transformer, split, n_neighbors) for transformer in (None, model)]
    if as_json:
        report = {
            "n_neighbors": n_neighbors,
            "n_train": len(train.X),
            "n_test": len(test.X),
            "rows": [asdict(row) for row in rows],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        print_rows(rows, n_neighbors)


def _load_model(path: Path) -> tuple[Any, tuple[str, ...] | None]:
    """The model and the names of its features.

    The tables are read by these names, in this order; the model then sees plain arrays, for which
    scikit-learn would warn that they carry no names.
    """
    model = load(path)
    names = vars(model).pop("feature_names_in_", None)
    return model, None if names is None else tuple(names)


def _check_width(table: Table, model: Any, path: Path) -> None:
    if table.X.shape[1] != model.n_features_in_:
        raise InvalidInputError(
            f"{path}: the model has {model.n_features_in_} features, the table has "
            f"{table.X.shape[1]}. Leave out a column of labels with --target, or give the table "
            "that the model was made for."
        )
