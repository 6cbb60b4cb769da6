"""Errors before and after learning, on the same rows, with confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from nearfar.analysis.models import Index, take_rows
from nearfar.analysis.neighbors import Neighbors, nearest_rows
from nearfar.analysis.study import Study
from nearfar.evaluation.statistics import mcnemar, wilson_interval
from nearfar.supervision.neighbors import vote


@dataclass(frozen=True)
class Outcome:
    """The predictions of one method for the tested rows; ``predicted`` are class numbers."""

    name: str
    predicted: Index
    wrong: NDArray[np.bool_]

    @property
    def error(self) -> float:
        """The share of wrong answers."""
        return float(self.wrong.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Between which the true error lies, with a confidence of 95 %."""
        return wilson_interval(int(self.wrong.sum()), len(self.wrong))


class Changes(NamedTuple):
    """How many rows learning fixed and broke, and the p-value of McNemar's test."""

    fixed: int
    broken: int
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """Errors on the same rows: before learning, with standardised features, and after learning."""

    before: Outcome
    standardised: Outcome
    after: Outcome

    @property
    def outcomes(self) -> tuple[Outcome, Outcome, Outcome]:
        """All three."""
        return self.before, self.standardised, self.after

    def changes(self, other: Outcome) -> Changes:
        """What learning does to the rows, compared with another method."""
        fixed = int((other.wrong & ~self.after.wrong).sum())
        broken = int((~other.wrong & self.after.wrong).sum())
        return Changes(fixed, broken, mcnemar(fixed, broken))


def compare_errors(study: Study, before: Neighbors | None, after: Neighbors) -> Comparison | None:
    """The comparison on the tested rows; None without labels or points.

    ``before`` and ``after`` are neighbours of rows that begin with the tested ones.
    """
    labelled = study.classes
    if labelled is None or before is None or study.X is None or not len(study.tested):
        return None
    classes, codes = labelled
    truth = codes[study.tested]

    def outcome(name: str, predicted: Index) -> Outcome:
        return Outcome(name, predicted, predicted != truth)

    def voted(found: Neighbors) -> Index:
        near = found.rows[: len(study.tested), : study.n_neighbors]
        return vote(codes[near], len(classes))

    scaled = StandardScaler().fit(study.X[study.voters]).transform(study.X)
    standardised = nearest_rows(scaled, study.tested, study.voters, study.n_neighbors)
    if study.decides and study.held_out:
        answers = study.model.predict(take_rows(study.given, study.tested))
        predicted = np.searchsorted(classes, answers).clip(0, len(classes) - 1)
        predicted = np.where(classes[predicted] == answers, predicted, -1)
    else:
        predicted = voted(after)
    return Comparison(
        outcome("Euclidean distance", voted(before)),
        outcome("standardised features", voted(standardised)),
        outcome(type(study.model).__name__, predicted),
    )
