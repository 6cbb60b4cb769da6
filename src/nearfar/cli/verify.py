"""``nearfar verify``: a model checked by the proof that it carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearfar.cli import OK, REFUTED
from nearfar.cli.fit import drawn_rows
from nearfar.cli.output import echo, is_builtin, refuse_target
from nearfar.cli.report import Fitted
from nearfar.cli.use import check_width, load_model
from nearfar.datasets import load_builtin, load_table
from nearfar.evaluation import split_points
from nearfar.evaluation.compare import last_step
from nearfar.proofs import verify


def verify_model(model_path: Path, table_path: Path, target: str | None) -> int:
    """Print what holds, and return the exit code."""
    model, names = load_model(model_path)
    fitted = Fitted.read(model_path)
    labelled = not hasattr(last_step(model), "graph_")
    if is_builtin(table_path):
        refuse_target(target, str(table_path))
        table = load_builtin(str(table_path))
    else:
        if target is None and fitted is not None and labelled:
            target = fitted.target
        table = load_table(table_path, target, features=names, labelled=labelled, sparse=True)
    check_width(table, model, table_path)
    X, y = (table.X, table.y) if labelled else (table.X, None)
    X, y = _training_rows(X, y, fitted)
    found = verify(model, X, y)
    echo(found.sentence)
    if found.bound is not None:
        echo(f"objective {found.objective:.8g}, bound {found.bound:.8g}, {X.shape[0]} rows")
    return OK if found.proved else REFUTED


def _training_rows(X: Any, y: Any, fitted: Fitted | None) -> tuple[Any, Any]:
    """The rows that the model learned from, if the table is as long as that of the fit."""
    if fitted is None or y is None:
        return X, y
    if X.shape[0] == fitted.n_rows:
        split = split_points(X, y, fitted.test_share, fitted.seed)
        X, y = split.X_train, split.y_train
    if X.shape[0] == fitted.n_train and 0 < fitted.n_learned < fitted.n_train:
        rows = drawn_rows(fitted.n_train, fitted.n_learned, fitted.seed)
        X, y = X[rows], y[rows]
    return X, y
