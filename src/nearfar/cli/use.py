"""``nearfar transform`` and ``nearfar evaluate``: what a model file is for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.cli import tell
from nearfar.cli.fit import KEPT_HASHES
from nearfar.cli.output import (
    POINT_SUFFIXES,
    check_output,
    echo,
    is_builtin,
    print_comparison,
    refuse_target,
    shown_warnings,
    without_names,
    write_points,
)
from nearfar.datasets import Table, load_builtin, load_table
from nearfar.errors import InvalidInputError
from nearfar.estimators.pair_classifier import PairClassifier
from nearfar.evaluation import Split, compare_fitted
from nearfar.evaluation.compare import last_step, model_name
from nearfar.files import row_hashes
from nearfar.io import load, read_provenance
from nearfar.progress import progress

TOO_MANY_SEEN = 0.2  # share of test rows that the model or the vote has seen; some rows are alike
DEFAULT_NEIGHBORS = 3  # that vote where a model has no number of its own


def transform_table(
    model_path: Path, table_path: Path, output: Path, target: str | None, force: bool
) -> None:
    """Map the points of a table and write them; a target column is left out."""
    check_output(output, force, [model_path, table_path])
    if output.suffix.lower() not in POINT_SUFFIXES:
        raise InvalidInputError(
            f"{output}: cannot write the format {output.suffix!r}. Expected one of "
            f"{', '.join(POINT_SUFFIXES)}. Give the output another suffix."
        )
    model, names = load_model(model_path)
    if not hasattr(model, "transform"):
        raise InvalidInputError(
            f"{model_path}: a {model_name(model)} has no map of all points that could be "
            "written. Give the model of another method, such as lmnn."
        )
    if is_builtin(table_path):
        refuse_target(target, str(table_path))
    with shown_warnings():
        table = _read(table_path, target, names, labelled=False, sparse=True)
        check_width(table, model, table_path)
        with model_in_use(model_path):
            points = model.transform(table.X)
            columns = [str(name) for name in model.get_feature_names_out()]
    write_points(output, points, columns)
    echo(f"saved {output}: {points.shape[0]} rows, {points.shape[1]} columns")


def evaluate_model(
    model_path: Path,
    train_path: Path,
    test_path: Path,
    target: str | None,
    neighbors: int | None,
    as_json: bool,
) -> None:
    """Print the kNN errors of the model and of the usual distances on the same tables."""
    model, names = load_model(model_path)
    if not (hasattr(model, "transform") or hasattr(model, "predict")):
        raise InvalidInputError(
            f"{model_path}: a {model_name(model)} places the points of its fit and no others, "
            "so that there is no error to measure. Give the model of another method, such as lmnn."
        )
    train, test = read_tables(model, names, (train_path, test_path), target)
    split = Split(train.X, train.y, test.X, test.y)
    n_neighbors = _voters(model, neighbors)
    _check_labels(model, split.y_test, test_path)
    with shown_warnings(), model_in_use(model_path):
        compared = compare_fitted(
            model,
            split,
            n_neighbors,
            caution=_caution(model_path, split, test_path),
            watched=partial(progress, write=tell),
        )
    if as_json:
        report = {
            "n_neighbors": n_neighbors,
            "n_train": len(train.X),
            "n_test": len(test.X),
            "rows": [row.as_dict() for row in compared.rows],
            "verdict": compared.verdict._asdict(),
        }
        echo(json.dumps(report, indent=2))
    else:
        print_comparison(compared, n_neighbors)


def _caution(model_path: Path, split: Split, test_path: Path) -> str | None:
    """Why the test rows cannot judge the model, with a warning, or None."""
    tested = row_hashes(split.X_test)
    voting = float(np.isin(tested, row_hashes(split.X_train)).mean())
    learned = _learned_hashes(model_path)
    # Only the smallest hashes of the learned rows are known, and larger ones say nothing.
    known = tested[tested <= learned.max()] if len(learned) == KEPT_HASHES else tested
    seen = float(np.isin(known, learned).mean()) if len(known) and len(learned) else 0.0
    if max(voting, seen) < TOO_MANY_SEEN:
        return None
    rows = f"{max(voting, seen):.0%} of the test rows"
    reason = f"{rows} are training rows" if voting >= seen else f"the model learned from {rows}"
    tell(
        f"warning: {test_path}: {reason}, and errors on them are too small. Give rows that the"
        " model has not seen."
    )
    return reason


def _learned_hashes(path: Path) -> Any:
    """Hashes of learned rows in a model file; none if it says nothing that makes sense."""
    said = (read_provenance(path) or {}).get("learned_rows", [])
    sound = isinstance(said, list) and all(type(h) is int and 0 <= h < 2**64 for h in said)
    return np.array(said if sound else [], dtype=np.uint64)


def read_tables(
    model: Any, names: tuple[str, ...] | None, paths: tuple[Path, Path], target: str | None
) -> tuple[Table, Table]:
    """Two labelled tables with the features of the model."""
    if all(is_builtin(path) for path in paths):
        refuse_target(target, str(paths[0]))
    first, second = (_read(path, target, names) for path in paths)
    for path, table in zip(paths, (first, second), strict=True):
        check_width(table, model, path)
    return first, second


def load_model(path: Path) -> tuple[Any, tuple[str, ...] | None]:
    """The model and the names of its features; of a classifier of pairs, its metric.

    The tables are read by these names, in this order; the model then sees plain arrays.
    """
    model = load(path)
    if isinstance(model, PairClassifier):
        model = model.metric_
    return model, without_names(model)


@contextmanager
def model_in_use(path: Path) -> Iterator[None]:
    """Tell what a model from a file raises while it is used as an error of that file.

    Loading checks what all models have in common. A file that was changed by hand can still hold
    values that no fit gives, of attributes and parameters that few models have.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"{path}: this model cannot be used here ({type(error).__name__}: {error}). Fit and "
            "save it again; if that does not help, report it with the output of --debug."
        ) from error


def _read(
    path: Path,
    target: str | None,
    names: tuple[str, ...] | None,
    labelled: bool = True,
    sparse: bool = False,
) -> Table:
    """A file by the names of the features, or a built-in set, which has its own labels."""
    if is_builtin(path):
        return load_builtin(str(path))
    return load_table(path, target, features=names, labelled=labelled, sparse=sparse)


def _voters(model: Any, asked: int | None) -> int:
    """The number of voting neighbours: as asked for, else the model's own, else 3."""
    own: int | None = getattr(last_step(model), "n_neighbors", None)
    if asked is not None and asked != own and not hasattr(model, "transform"):
        raise InvalidInputError(
            f"--neighbors {asked} does not go with a {model_name(model)}, which classifies by "
            "itself. Leave it out."
        )
    return asked or own or DEFAULT_NEIGHBORS


def _check_labels(model: Any, labels: Any, path: Path) -> None:
    """Raise if a classifier cannot predict these labels."""
    if not hasattr(model, "transform") and not np.isin(labels, model.classes_).any():
        raise InvalidInputError(
            f"{path}: none of its labels is known to the model, which predicts "
            f"{', '.join(map(str, model.classes_[:5]))}. Write the labels as for the fit."
        )


def check_width(table: Table, model: Any, path: Path) -> None:
    """Raise unless the table has as many features as the model."""
    if not hasattr(model, "n_features_in_"):
        raise InvalidInputError(
            f"{path}: the model was fitted on a graph and knows no features, so that it has no use "
            "for a table. Fit on points or distances."
        )
    if table.X.shape[1] != model.n_features_in_:
        raise InvalidInputError(
            f"{path}: the model has {model.n_features_in_} features, the table has "
            f"{table.X.shape[1]}. Leave out a column of labels with --target, or give the table "
            "that the model was made for."
        )
