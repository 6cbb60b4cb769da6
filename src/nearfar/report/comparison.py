"""Errors before and after learning, on the same rows, with confidence.

With w wrong of m rows, p = w / m and z = 1.96, Wilson's interval for the true error is

(1) (p + z²/2m ± z √(p(1 − p)/m + z²/4m²)) / (1 + z²/m).

Two methods on the same rows differ only in rows where one is right and the other wrong. If both
were equally good, these would be tosses of a fair coin: McNemar's exact test is the binomial one.

[wilson1927] Wilson, Probable inference, the law of succession, and statistical inference, JASA 22.
[mcnemar1947] McNemar, Note on the sampling error of the difference between correlated proportions
or percentages, Psychometrika 12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr
from sklearn.preprocessing import StandardScaler

from nearfar.report.neighbors import Neighbors, neighbors
from nearfar.report.study import Index, Study
from nearfar.supervision.neighbors import vote

Z = 1.959963984540054  # the quantile of the normal distribution for 95 %


@dataclass(frozen=True)
class Outcome:
    """What one method says of the tested rows; ``predicted`` are class numbers."""

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
    """Rows that are wrong by another method only, or after learning only; and McNemar's test."""

    mended: int
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
        mended = int((other.wrong & ~self.after.wrong).sum())
        broken = int((~other.wrong & self.after.wrong).sum())
        return Changes(mended, broken, mcnemar(mended, broken))


def wilson_interval(wrong: int, n: int) -> tuple[float, float]:
    """(1)"""
    share, extra = wrong / n, Z * Z / n
    middle = share + extra / 2
    half = Z * math.sqrt(share * (1 - share) / n + extra / (4 * n))
    low, high = (middle - half) / (1 + extra), (middle + half) / (1 + extra)
    return max(0.0, low) if wrong else 0.0, min(1.0, high) if wrong < n else 1.0


def mcnemar(mended: int, broken: int) -> float:
    """How probable so uneven or more uneven counts are, if both methods are equally good."""
    fewer, differing = min(mended, broken), mended + broken
    return min(1.0, 2 * float(bdtr(fewer, differing, 0.5)))  # both tails, equal by symmetry


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
        winners: Index = vote(codes[near], len(classes))
        return winners

    scaled = StandardScaler().fit(study.X[study.voters]).transform(study.X)
    standardised = neighbors(scaled, study.tested, study.voters, study.n_neighbors)
    if study.decides and study.held_out:
        told = study.model.predict(study.given[study.tested])
        predicted = np.searchsorted(classes, told).clip(0, len(classes) - 1)
        predicted = np.where(classes[predicted] == told, predicted, -1)
    else:
        predicted = voted(after)
    return Comparison(
        outcome("Euclidean distance", voted(before)),
        outcome("standardised features", voted(standardised)),
        outcome(type(study.model).__name__, predicted),
    )
