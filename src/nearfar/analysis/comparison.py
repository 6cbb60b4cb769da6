"""Errors of a model and of the usual methods on the same rows, with confidence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import Floats, Index, take_rows
from nearfar.analysis.neighbors import Neighbors, nearest_rows
from nearfar.analysis.study import Study
from nearfar.evaluation.compare import model_name, simple_rows, targets_for, with_companion
from nearfar.evaluation.verdict import Comparison, Role, Row
from nearfar.supervision.neighbors import vote


class Outcome(NamedTuple):
    """What one method predicts for the tested rows, as class numbers, and where it is wrong."""

    predicted: Index
    wrong: NDArray[np.bool_]


class TestedRows(NamedTuple):
    """The comparison on the tested rows, with the predictions before and after learning."""

    comparison: Comparison
    before: Outcome
    after: Outcome


def compare_errors(study: Study, before: Neighbors | None, after: Neighbors) -> TestedRows | None:
    """The comparison on the tested rows; None without labels or points.

    ``before`` and ``after`` are neighbours of rows that begin with the tested ones.
    """
    if study.classes is None or before is None or study.X is None or not len(study.tested):
        return None
    X, y, voters = study.X, study.y, study.voters
    assert y is not None  # there are classes
    classes, codes = study.classes
    truth = codes[study.tested]

    def voted(found: Neighbors) -> Index:
        near = found.rows[: len(study.tested), : study.n_neighbors]
        return vote(codes[near], len(classes))

    def row(name: str, role: Role, images: Floats) -> Row:
        near = nearest_rows(images, study.tested, voters, study.n_neighbors)
        return Row(name, role, images.shape[1], voted(near) != truth)

    def fitted(name: str, role: Role, transformer: Any) -> Row:
        return row(name, role, transformer.fit(X[voters], y[voters]).transform(X))

    def refit(copy: Any, name: str) -> Row:
        copy.fit(X[voters], targets_for(copy, y[voters]))
        if hasattr(copy, "transform"):
            return row(name, "companion", copy.transform(X))
        wrong = _codes(copy.predict(X[study.tested]), classes) != truth
        return Row(name, "companion", X.shape[1], wrong)

    predicted = voted(after)
    if study.decides and study.held_out:
        predicted = _codes(study.model.predict(take_rows(study.given, study.tested)), classes)
    first, last = (Outcome(found, found != truth) for found in (voted(before), predicted))
    width = X.shape[1] if study.images is None else study.images.shape[1]
    own = Row(model_name(study.model), "model", width, last.wrong)
    rows = [
        Row("Euclidean", "unlearned", X.shape[1], first.wrong)
        if study.old is X
        else row("Euclidean", "unlearned", X),
        *simple_rows(X[voters], y[voters], fitted),
        *([own] if study.unfolds else with_companion(study.model, own, refit)),
    ]
    caution = None if study.held_out else "no row was held out"
    return TestedRows(Comparison(tuple(rows), caution), first, last)


def _codes(answers: Any, classes: Any) -> Index:
    """Class numbers of predicted labels, -1 for those that no row has."""
    found = np.searchsorted(classes, answers).clip(0, len(classes) - 1)
    return np.where(classes[found] == answers, found, -1)
