"""Thresholds on distances that separate near from far pairs, from pairs of known kind.

A pair counts as near if its distance is at most the threshold. With the m distances sorted, a
threshold makes the first k of them near, for any k = 0 … m at which the next distance is larger. If
there are P near and N far pairs, TP near and FP far ones among the first k, the criteria are::

    accuracy             (TP + N − FP) / m, the largest
    f_beta               (1 + β²) TP / (TP + FP + β² P), the largest; 0 if TP = 0
    true_positive_rate   TP / P at least the rate, with the smallest k
    equal_error          FP / N and 1 − TP / P, the nearest to each other

Ties go to the smallest k. The threshold is half way between one distance and the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Mask = NDArray[np.bool_]

CRITERIA = ("accuracy", "f_beta", "true_positive_rate", "equal_error")


@dataclass(frozen=True)
class Cuts:
    """Counts for all thresholds on pairs of known kind: one entry for each k."""

    thresholds: Floats  # ascending, in the dtype of the distances
    true_positives: NDArray[np.intp]  # near pairs up to the threshold
    false_positives: NDArray[np.intp]  # far pairs up to the threshold

    @classmethod
    def of(cls, distances: Any, near: Mask) -> Cuts:
        """From distances (m,) on the host and their kinds. Time O(m log m)."""
        distances = np.asarray(distances)
        order = np.argsort(distances, kind="stable")
        ordered, kinds = distances[order], near[order]
        ends = np.flatnonzero(np.append(ordered[1:] > ordered[:-1], True))  # of equal distances
        values = ordered[ends]
        below = values[:1] / 2 if values[0] > 0 else values[:1] - 1  # nothing is near
        middle = values[:-1] + (values[1:] - values[:-1]) / 2
        middle = np.where(middle < values[1:], middle, values[:-1])  # neighbouring numbers
        return cls(
            np.concatenate([below, middle, values[-1:]]),
            np.concatenate([[0], np.cumsum(kinds)[ends]]),
            np.concatenate([[0], np.cumsum(~kinds)[ends]]),
        )

    @property
    def true_positive_rates(self) -> Floats:
        """Share of the near pairs that count as near."""
        rates: Floats = self.true_positives / self.true_positives[-1]
        return rates

    @property
    def false_positive_rates(self) -> Floats:
        """Share of the far pairs that count as near."""
        rates: Floats = self.false_positives / self.false_positives[-1]
        return rates

    def best(self, criterion: str, beta: float, rate: float) -> float:
        """The threshold that one of `CRITERIA` asks for."""
        TP, FP = self.true_positives, self.false_positives
        if criterion == "accuracy":
            place = (TP - FP).argmax()
        elif criterion == "f_beta":
            # At least 1 for all k > 0, so that only 0 / 0, for k = 0 and β = 0, becomes 0 / 1.
            denominator = np.maximum(TP + FP + beta**2 * TP[-1], 1)
            place = ((1 + beta**2) * TP / denominator).argmax()
        elif criterion == "true_positive_rate":
            place = np.searchsorted(TP, rate * TP[-1] * (1 - 4 * np.finfo(np.float64).eps))
        else:
            errors = self.false_positive_rates - (1 - self.true_positive_rates)
            place = np.abs(errors).argmin()
        return float(self.thresholds[place])
