"""Which of several methods to use, from their errors on the same test points.

Methods are compared by McNemar's exact test on the points where they differ (`statistics`), at the
level of 5 %:

(1) A learned method is a clear gain if it is better than *every* simple one. The hypothesis that
    some simple method is at least as good is rejected if it is for each of them, so that the
    largest of the p-values counts, whatever their number (an intersection-union test [berger1982]).
    The model is tried with and without standardised features: the p-value is doubled (Bonferroni).
(2) A model is harmful if a distance that learns nothing, Euclidean or standardised, is better; of
    the two the better one is picked afterwards, and so the p-value is doubled as well.
(3) Where nothing is a clear gain, the simplest method is kept whose errors exceed the fewest of a
    simple one by at most a standard error, √(points on which the two differ) [breiman1984, 3.4.3].

Few test points decide little: five points on which two methods differ give no p-value below 0.06.

[berger1982] Berger, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24.
[breiman1984] Breiman, Friedman, Olshen, Stone, Classification and regression trees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.statistics import mcnemar, standard_error, wilson_interval

LEVEL = 0.05
FEW = 20  # points on which two methods differ

Role = Literal["unlearned", "simple", "model", "companion"]
Mask = NDArray[np.bool_]

_IN_A_SENTENCE = {"Euclidean": "the Euclidean distance", "standardised": "standardised features"}
STANDARDISED = ", standardised"  # the end of the name of a model on standardised features


@dataclass(frozen=True)
class Row:
    """How one method did on the test points.

    Attributes
    ----------
    method : name of the method
    role : "unlearned" (the method uses no labels), "simple" (LDA), "model" (the one that is judged)
        or "companion" (the model with standardised features if it has none, else without)
    dimensions : number of coordinates in which the neighbours were searched
    wrong : which of the test points are classified wrongly
    seconds : wall time of the fit, or None if nothing was fitted
    duality_gap : certified relative gap of the fit, or None where there is no certificate
    reason : why the method could not be computed, and then all of the above are None
    """

    method: str
    role: Role
    dimensions: int | None = None
    wrong: Mask | None = None
    seconds: float | None = None
    duality_gap: float | None = None
    reason: str | None = None

    @property
    def error(self) -> float | None:
        """The share of test points that are classified wrongly."""
        return None if self.wrong is None else float(self.wrong.mean())

    @property
    def standard_error(self) -> float | None:
        """The binomial standard error of `error`."""
        return None if self.wrong is None else standard_error(self.wrong.mean(), len(self.wrong))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Between which the true error lies, with a confidence of 95 %."""
        if self.wrong is None:
            return None
        return wilson_interval(int(self.wrong.sum()), len(self.wrong))

    @property
    def phrase(self) -> str:
        """The method as a sentence names it."""
        if self.method.endswith(STANDARDISED):
            return f"{self.method.removesuffix(STANDARDISED)} on standardised features"
        return _IN_A_SENTENCE.get(self.method, self.method)

    def as_dict(self) -> dict[str, Any]:
        """The numbers of the row, without the mask of the test points."""
        names = ("method", "role", "dimensions", "error", "standard_error", "seconds")
        return {name: getattr(self, name) for name in (*names, "duality_gap", "reason")}


class Changes(NamedTuple):
    """Numbers of points that only one of two methods has wrong, for each, and McNemar's p."""

    fixed: int
    broken: int
    p_value: float


class Verdict(NamedTuple):
    """What the comparison says.

    Attributes
    ----------
    kind : "use" (a learned method is a clear gain), "keep" (none is), "harmful" (the model is worse
        than learning nothing) or "none" (the test points cannot judge the model)
    sentence : the verdict in words
    method : the method to use, or None without a verdict
    p_value : adjusted for the number of comparisons, or None without a verdict
    """

    kind: Literal["use", "keep", "harmful", "none"]
    sentence: str
    method: str | None = None
    p_value: float | None = None

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Comparison:
    """Errors of several methods on the same points, from the simplest to the model.

    Attributes
    ----------
    rows : tuple of Row
        In the order of a table; one of them is of the model.
    caution : str or None
        Why the test points cannot judge the model, if they cannot.
    """

    rows: tuple[Row, ...]
    caution: str | None = None

    @property
    def model(self) -> Row:
        """The row of the model that is judged."""
        return next(row for row in self.rows if row.role == "model")

    def changes(self, other: Row) -> Changes:
        """What the model fixes and breaks, compared with another method that was computed."""
        return changes(self.model, other)

    @cached_property
    def verdict(self) -> Verdict:
        """Which method to use."""
        if self.caution is not None:
            return Verdict("none", f"No verdict: {self.caution}.")
        simple = self._computed("unlearned", "simple")
        learned = self._computed("model", "companion")
        best = min(simple, key=_errors)  # of equal ones the simplest
        chosen, p_value = min(
            ((row, len(learned) * _largest_p(row, simple)) for row in learned),
            key=lambda found: (found[1], _errors(found[0])),
        )
        use = None
        if p_value < LEVEL:
            sentence = f"Use {chosen.phrase}: {_instead(chosen, best)} ({_p(p_value)})."
            use = Verdict("use", sentence, chosen.method, p_value)
        return self._harm(use) or use or self._kept(simple, learned)

    def _computed(self, *roles: Role) -> list[Row]:
        return [row for row in self.rows if row.role in roles and row.wrong is not None]

    def _harm(self, use: Verdict | None) -> Verdict | None:
        """The verdict on a model that is worse than learning nothing (2), else None."""
        unlearned = self._computed("unlearned")
        least = min(unlearned, key=_errors)
        p_value = len(unlearned) * _p_better(least, self.model)
        if p_value >= LEVEL:
            return None
        sentence = (
            f"Do not use {self.model.phrase}: learning makes it worse,"
            f" {_instead(self.model, least)} with {least.phrase} ({_p(p_value)})."
        )
        if use is not None:
            sentence += f" {use.sentence}"
        return Verdict("harmful", sentence, use.method if use else least.method, p_value)

    def _kept(self, simple: list[Row], learned: list[Row]) -> Verdict:
        """No clear gain: which of the simple methods to keep (3)."""
        fewest = min(simple, key=_errors)
        kept = next(row for row in simple if _within_one_error(changes(row, fewest)))
        best = min(learned, key=_errors)
        found = changes(best, kept)
        n, differing = len(_mask(kept)), found.fixed + found.broken
        p_value = min(1.0, len(learned) * found.p_value)
        if not differing:
            same = f"{best.phrase} makes the same mistakes"
            why = same if _errors(best) else "neither makes a mistake"
        elif found.fixed <= found.broken:
            why = f"{best.phrase} has {_instead(best, kept)}"
        else:
            only = "only " if differing <= FEW else ""
            why = (
                f"{best.phrase} has {_instead(best, kept)}, which could be chance: they disagree"
                f" on {only}{differing:,} of {n:,} rows ({_p(p_value)})"
            )
        return Verdict("keep", f"No clear gain: keep {kept.phrase}; {why}.", kept.method, p_value)


def changes(row: Row, other: Row) -> Changes:
    """What one method fixes and breaks, compared with another; both were computed."""
    mine, others = _mask(row), _mask(other)
    fixed, broken = int((others & ~mine).sum()), int((mine & ~others).sum())
    return Changes(fixed, broken, mcnemar(fixed, broken))


def _mask(row: Row) -> Mask:
    assert row.wrong is not None  # rows without errors were left out before
    return row.wrong


def _errors(row: Row) -> int:
    return int(_mask(row).sum())


def _p_better(row: Row, other: Row) -> float:
    """The p-value of the hypothesis that a method is no better; 1 if it looks no better."""
    found = changes(row, other)
    return found.p_value if found.fixed > found.broken else 1.0


def _within_one_error(found: Changes) -> bool:
    return found.broken - found.fixed <= math.sqrt(found.broken + found.fixed)


def _largest_p(row: Row, others: list[Row]) -> float:
    return max(_p_better(row, other) for other in others)


def _instead(row: Row, other: Row) -> str:
    """Two errors, with as many digits as tell them apart."""
    first, second = 100 * _mask(row).mean(), 100 * _mask(other).mean()
    if first == second:
        return f"{first:.1f} % wrong as well"
    digits = next((k for k in (1, 2) if f"{first:.{k}f}" != f"{second:.{k}f}"), 3)
    return f"{first:.{digits}f} % instead of {second:.{digits}f} % wrong"


def _p(p_value: float) -> str:
    return "p < 0.0001" if p_value < 1e-4 else f"p = {min(1.0, p_value):.2g}"
