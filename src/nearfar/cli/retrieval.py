"""``nearfar evaluate --retrieval``: how well searches under a model find rows of the same class."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.preprocessing import StandardScaler

from nearfar.cli.output import echo, print_table, shown_warnings
from nearfar.cli.use import load_model, model_in_use, read_tables
from nearfar.errors import InvalidInputError
from nearfar.evaluation import RetrievalMeasures, retrieval_measures
from nearfar.evaluation.compare import model_name
from nearfar.evaluation.rankings import MEASURES

DEFAULT_RANK = 10  # up to which precision, recall, hit rate and nDCG look


@dataclass(frozen=True)
class _Row:
    """One method and how well it finds."""

    method: str
    dimensions: int
    found: RetrievalMeasures

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN."""
        found = self.found
        errors = {found.title(name): error for name, error in found.standard_errors.items()}
        return {
            "method": self.method,
            "dimensions": self.dimensions,
            **{found.title(name): getattr(found, name) for name in MEASURES},
            "standard_errors": {
                title: None if math.isnan(error) else error for title, error in errors.items()
            },
        }

    def cells(self) -> list[str]:
        """A column of the table."""
        cells = [str(self.dimensions)]
        for name, error in self.found.standard_errors.items():
            cell = f"{getattr(self.found, name):.3f}"
            cells.append(cell if math.isnan(error) else f"{cell} ± {error:.3f}")
        return cells


def evaluate_retrieval(
    model_path: Path,
    train_path: Path,
    test_path: Path,
    target: str | None,
    neighbors: int | None,
    as_json: bool,
) -> None:
    """Print the measures of searches for the test rows among the training rows.

    If both are the same table, each row is searched for among the others.
    """
    model, names = load_model(model_path)
    if not hasattr(model, "transform"):
        raise InvalidInputError(
            f"{model_path}: a {model_name(model)} has no map of all points, among whose images "
            "to search. Leave --retrieval out, or give the model of another method, such as lmnn."
        )
    train, test = read_tables(model, names, (train_path, test_path), target)
    themselves = train_path.resolve() == test_path.resolve()
    queries = {} if themselves else {"queries": test.X, "query_labels": test.y}
    k = neighbors or DEFAULT_RANK

    def row(method: str, metric: Any) -> _Row:
        found = retrieval_measures(train.X, train.y, **queries, k=k, metric=metric)
        image = train.X[:1] if metric is None else metric.transform(train.X[:1])
        return _Row(method, image.shape[1], found)

    with shown_warnings(), model_in_use(model_path):
        rows = [
            row("as they are", None),
            row("standardised", StandardScaler().fit(train.X)),
            row(model_name(model), model),
        ]
    left_out = rows[0].found.n_without_relevant
    if as_json:
        report = {
            "k": k,
            "n_train": len(train.X),
            "n_test": len(test.X),
            "n_without_relevant": left_out,
            "among_themselves": themselves,
            "rows": [row.as_dict() for row in rows],
        }
        echo(json.dumps(report, indent=2))
        return
    if themselves:
        echo(f"each of {len(train.X)} rows is searched for among the others")
    else:
        echo(f"{len(test.X)} test rows are searched for among {len(train.X)} training rows")
    if left_out:
        echo(f"left out, since no other row has their label: {left_out}")
    titles = [_words(rows[0].found.title(name)) for name in MEASURES]
    columns = {row.method: row.cells() for row in rows}
    print_table({"measure": ["dimensions", *titles], **columns})


def _words(title: str) -> str:
    """The name of a measure as it is written in a text."""
    return title.replace("ndcg", "nDCG").replace("r_p", "R-p").replace("_", " ")
