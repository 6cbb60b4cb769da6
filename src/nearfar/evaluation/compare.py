"""One metric beside the usual ones, on the same split: always the same rows.

The rows are the Euclidean distance, standardised features, linear discriminant analysis, the same
with a shrunk covariance, and the model with and without standardised features.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar.errors import InvalidInputError, NearfarError, NearfarWarning
from nearfar.estimators.rca import NONE
from nearfar.evaluation.knn import knn_mistakes
from nearfar.evaluation.split import Split
from nearfar.evaluation.verdict import STANDARDISED, Comparison, Role, Row
from nearfar.registry import entries

MOST_REFIT_SECONDS = 30.0  # of a fit that is repeated with or without standardised features
MOST_SHRUNK_FEATURES = 5000  # whose covariances, (d, d) for each class, are shrunk in seconds
_CHUNKLETS = {entry.name for entry in entries(learns_from="chunklets")}


def compare(
    model: Any, split: Split, n_neighbors: int = 3, n_components: int | None = None
) -> Comparison:
    """Fit `model` and the usual linear maps, classify the test points with each, and judge.

    Parameters
    ----------
    model : transformer, pipeline or classifier
        It is fitted here, to the training points. So is a copy of it: with a StandardScaler in
        front if the model does not begin with one, and without it otherwise. If the first fit took
        more than half a minute, there is no copy.
    split : Split
        The points that all methods share.
    n_neighbors : int
        How many neighbours vote.
    n_components : int or None
        The most dimensions of LDA; None are all its directions.

    Returns
    -------
    Comparison
        Its ``rows`` are those of `baselines`, then the model as it was given and on standardised
        features; its ``verdict`` says which of them to use.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LMNN
    >>> from nearfar.evaluation import compare, split_points
    >>> found = compare(LMNN(), split_points(*load_wine(return_X_y=True), 0.5, seed=0))
    >>> [row.method for row in found.rows]
    ['Euclidean', 'standardised', 'LDA', 'shrunk LDA', 'LMNN', 'LMNN, standardised']
    >>> found.verdict.kind, found.verdict.method
    ('keep', 'shrunk LDA')
    """
    if not hasattr(model, "fit") or not isinstance(split, Split):
        raise InvalidInputError(
            "compare takes a model first and the split points second; got"
            f" {type(model).__name__} and {type(split).__name__}. Write"
            " compare(LMNN(), split_points(X, y, 0.3, seed=0))."
        )
    start = time.perf_counter()
    model.fit(split.X_train, targets_for(model, split.y_train))
    seconds = time.perf_counter() - start
    return compare_fitted(model, split, n_neighbors, n_components, seconds=seconds)


def compare_fitted(
    model: Any,
    split: Split,
    n_neighbors: int = 3,
    n_components: int | None = None,
    *,
    seconds: float | None = None,
    learned_rows: Any = None,
    caution: str | None = None,
    watched: Callable[[Any], AbstractContextManager[None]] = nullcontext,
) -> Comparison:
    """`compare` for a model that was fitted before.

    Parameters
    ----------
    model, split, n_neighbors, n_components
        As of `compare`.
    seconds : float or None
        How long the fit took; None takes it from the model's history.
    learned_rows : array of row numbers or None
        The training points that the model learned from, and its copy learns from; None are all.
    caution : str or None
        Why the test points cannot judge the model, if they cannot; then there is no verdict.
    watched : callable
        From the copy of the learner, the context in which it is fitted, to show its progress.

    Returns
    -------
    Comparison
        As of `compare`.
    """
    part = slice(None) if learned_rows is None else learned_rows

    def refit(copy: Any, name: str) -> Row:
        start = time.perf_counter()
        with watched(last_step(copy)):
            copy.fit(split.X_train[part], targets_for(copy, split.y_train[part]))
        return measure(
            copy, split, n_neighbors, time.perf_counter() - start, name, role="companion"
        )

    own = measure(model, split, n_neighbors, seconds, model_name(model))
    rows = [*baselines(split, n_neighbors, n_components), *with_companion(model, own, refit)]
    return Comparison(tuple(rows), caution)


def baselines(split: Split, n_neighbors: int = 3, n_components: int | None = None) -> list[Row]:
    """The rows for Euclidean, standardised, LDA and shrunk LDA.

    If a method cannot be computed for these points, such as LDA where no class varies, its row
    gives the reason.
    """

    def fitted(name: str, role: Role, transformer: Any) -> Row:
        start = time.perf_counter()
        transformer.fit(split.X_train, split.y_train)
        return measure(
            transformer, split, n_neighbors, time.perf_counter() - start, name, role=role
        )

    euclidean = measure(None, split, n_neighbors, method="Euclidean", role="unlearned")
    return [euclidean, *simple_rows(split.X_train, split.y_train, fitted, n_components)]


def simple_rows(
    X: Any, y: Any, fitted: Callable[[str, Role, Any], Row], n_components: int | None = None
) -> list[Row]:
    """The rows between the Euclidean distance and the model, from training points and labels.

    ``fitted`` fits one of scikit-learn's transformers and measures it. They refuse some points, and
    the reason then stands in the row.
    """
    n_classes, d = len(np.unique(y)), X.shape[1]
    most = max(1, min(n_classes - 1, d))
    count = min(n_components or most, most)
    methods: list[tuple[str, Role, Any]] = [
        ("standardised", "unlearned", StandardScaler()),
        ("LDA", "simple", LinearDiscriminantAnalysis(n_components=count)),
        (
            "shrunk LDA",
            "simple",
            LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=count),
        ),
    ]
    rows = []
    for name, role, transformer in methods:
        reason = None
        if role == "simple" and not 1 < n_classes < len(X):
            reason = "it needs two classes, and more training rows than classes"
        elif name == "shrunk LDA" and d > MOST_SHRUNK_FEATURES:
            reason = f"covariances of {d:,} features take too long to shrink"
        if reason is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # LDA's, of variables that are collinear
                    rows.append(fitted(name, role, transformer))
                continue
            except (ArithmeticError, IndexError, ValueError) as error:
                reason = str(error).splitlines()[0]
                if not _varies_within_classes(X, y):
                    reason = "no class has two different training rows"
        rows.append(Row(name, role, reason=reason))
    return rows


def with_companion(model: Any, own: Row, refit: Callable[[Any, str], Row]) -> list[Row]:
    """The row of a fitted model and that of its copy, the one without standardised features first.

    ``refit`` fits the copy and measures it. If there is no copy, its row gives the reason.
    """
    copy = companion_of(model)
    if copy is None:
        return [own]
    name, seconds = model_name(copy), own.seconds
    if seconds is None:
        history = getattr(last_step(model), "history_", None)
        seconds = history[-1]["seconds"] if history else 0.0
    if getattr(last_step(model), "status_", None) == "interrupted":
        row = Row(name, "companion", reason=f"the fit of {own.method} was interrupted")
    elif seconds > MOST_REFIT_SECONDS:
        row = Row(name, "companion", reason=f"the fit of {own.method} took {seconds:.0f} s")
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NearfarWarning)  # the model's own fit has warned
                row = refit(copy, name)
        except (NearfarError, ArithmeticError, ValueError) as error:
            row = Row(name, "companion", reason=str(error).splitlines()[0])
    return [row, own] if is_standardised(model) else [own, row]


def companion_of(model: Any) -> Any:
    """An unfitted copy with a StandardScaler in front, or without the one that is there.

    None for a map that is given rather than learned.
    """
    steps = [clone(step) for step in _steps(model)]
    last = steps[-1]
    frozen = any(isinstance(part, FrozenEstimator) for part in last.get_params().values())
    if frozen or not hasattr(last, "fit") or type(last).__name__ == "LinearMetric":
        return None
    if hasattr(last, "checkpoint"):
        last.set_params(checkpoint=None)  # it is of the fit of the model
    if hasattr(last, "max_seconds"):
        limit = MOST_REFIT_SECONDS if last.max_seconds is None else last.max_seconds
        last.set_params(max_seconds=min(limit, MOST_REFIT_SECONDS))
    if not is_standardised(model):
        return make_pipeline(StandardScaler(), *steps)
    rest = steps[1:]
    return None if not rest else rest[0] if len(rest) == 1 else make_pipeline(*rest)


def model_name(model: Any) -> str:
    """The class names of the steps, and "standardised" if the first is a StandardScaler."""
    steps = [type(step).__name__ for step in _steps(model)]
    if is_standardised(model) and len(steps) > 1:
        return ", ".join(steps[1:]) + STANDARDISED
    return ", ".join(steps)


def is_standardised(model: Any) -> bool:
    """Whether the first step of a pipeline is a StandardScaler."""
    return isinstance(first_step(model), StandardScaler)


def first_step(model: Any) -> Any:
    """The first step of a pipeline, else the model itself."""
    return _steps(model)[0]


def last_step(model: Any) -> Any:
    """The last step of a pipeline, else the model itself."""
    return _steps(model)[-1]


def targets_for(model: Any, y: Any) -> Any:
    """The labels to fit a model to: for chunklets another one in place of -1, which is none."""
    labels = np.asarray(y)
    if type(last_step(model)).__name__ not in _CHUNKLETS or labels.dtype.kind not in "if":
        return y
    return np.where(labels == NONE, labels.max() + 1, labels)


def measure(
    transformer: Any,
    split: Split,
    n_neighbors: int = 3,
    seconds: float | None = None,
    method: str | None = None,
    role: Role = "model",
) -> Row:
    """The row for a fitted transformer, or for None, the Euclidean distance.

    A classifier without ``transform``, such as `MultiMetricLMNN`, predicts by itself. `method` is
    by default the name of the transformer's class.
    """
    dimensions = split.X_train.shape[1]
    if transformer is None or hasattr(transformer, "transform"):
        wrong = knn_mistakes(
            transformer, split.X_train, split.y_train, split.X_test, split.y_test, n_neighbors
        )
    else:
        wrong = np.asarray(transformer.predict(split.X_test) != split.y_test)
    if hasattr(transformer, "transform"):
        dimensions = transformer.transform(split.X_train[:1]).shape[1]
    return Row(
        method=method or type(transformer).__name__,
        role=role,
        dimensions=dimensions,
        wrong=wrong,
        seconds=seconds,
        duality_gap=getattr(last_step(transformer), "duality_gap_", None),
    )


def _steps(model: Any) -> list[Any]:
    return [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]


def _varies_within_classes(X: Any, y: Any) -> bool:
    """Whether some class has training points that differ."""
    X, y = np.asarray(X), np.asarray(y)
    return any(bool((X[y == label] != X[y == label][0]).any()) for label in np.unique(y))
