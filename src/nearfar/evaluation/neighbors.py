"""The choice of n_neighbors for an unfolding: the recipe of the thesis [weinberger2007, 3.1.12].

Too few neighbours do not hold the graph together, or leave strings of points; too many lock the
points up, so that nothing unfolds. So it is unfolded for one number after the other, and spectra
and measures are compared, as in Figure 3.28 there. The edges of k neighbours are among those of
k + 1, hence what is locked up for k stays so for all larger numbers.

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from nearfar.errors import DisconnectedGraphError, InvalidInputError, NearfarWarning
from nearfar.evaluation.embeddings import EmbeddingMeasures, measure_embedding
from nearfar.evaluation.spectra import all_distances, input_spectrum, variance_shares
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import kernels_for
from nearfar.validation import check_number

Floats = NDArray[np.float64]

TRIED = (3, 4, 5, 6, 7, 8)
LIKE = 0.02  # total variation between two normalised spectra that are the same
FAR = 0.05  # of the share: what is so much below the best has not unfolded as far
EQUAL = 0.01  # difference of two harmonic means that is none


@dataclass(frozen=True)
class NeighborTrial:
    """One number of neighbours.

    Attributes
    ----------
    n_neighbors : the number
    outcome : "unfolded", "locked up", "disconnected" or "refused"
    reason : why it was not unfolded, or the warnings of the fit; may be empty
    model : the fitted unfolding, or None
    spectrum : its eigenvalues as shares of their sum, or None
    share : of the variance in the dimensions of the embedding, or None
    measures : how faithful the embedding is, or None
    seconds : wall time of the fit
    """

    n_neighbors: int
    outcome: str
    reason: str
    model: Any
    spectrum: Floats | None
    share: float | None
    measures: EmbeddingMeasures | None
    seconds: float

    @property
    def mean(self) -> float:
        """The harmonic mean of continuity, trust and intersection; 0 where nothing unfolded."""
        return self.measures.harmonic_mean if self.measures is not None else 0.0


@dataclass(frozen=True)
class NeighborChoice:
    """What was tried, and which number of neighbours to take; ``str`` shows it as a table.

    Attributes
    ----------
    trials : one for each number, in rising order; none after the first that was locked up
    n_neighbors : the recommended number, or None if nothing unfolded
    """

    trials: tuple[NeighborTrial, ...]
    n_neighbors: int | None

    @property
    def best(self) -> NeighborTrial | None:
        """The recommended trial, with its fitted model."""
        return next((t for t in self.trials if t.n_neighbors == self.n_neighbors), None)

    def __str__(self) -> str:
        head = f"{'k':>3} {'outcome':<12} {'share':>6} {'contin.':>8} {'trust':>6}"
        lines = [f"{head} {'inters.':>8} {'mean':>6} {'seconds':>8}"]
        lines += [_line(trial) for trial in self.trials]
        found = self.best
        if found is None:
            lines.append("recommended: none, since nothing unfolded. " + _remedy(self.trials))
        else:
            lines.append(
                f"recommended: n_neighbors={found.n_neighbors}, with {found.share:.0%} of the"
                f" variance in {found.model.n_components} dimensions"
            )
        return "\n".join(lines)


def choose_n_neighbors(
    X: Any,
    unfolding: Any = None,
    n_neighbors: Iterable[int] = TRIED,
    *,
    measured: int = 15,
    beyond_lock_up: bool = False,
) -> NeighborChoice:
    """Unfold for several numbers of neighbours, and recommend one.

    A number qualifies if its graph is connected, if the points unfold (the shares of the
    eigenvalues differ from those of the input), and if the share of the variance in the dimensions
    of the embedding is at most 0.05 below the largest one. The numbers that qualify are compared by
    the harmonic mean of local continuity, local trust and neighbourhood intersection of their
    embeddings. The best one is recommended, or the smallest of those within 0.01 of it.

    Parameters
    ----------
    X : array-like, torch.Tensor or sparse array
        What the unfolding is fitted on: points, distances or a kernel matrix by its ``metric``.
        Embeddings are measured against it unless distances are missing.
    unfolding : estimator or None, default=None
        An unfolding with a parameter ``n_neighbors``; a copy is fitted for each number. None is
        ``MVU()``. With ``on_disconnected="link"``, its default, graphs that are not connected are
        linked only if no number gives a connected one that unfolds.
    n_neighbors : iterable of int, default=(3, 4, 5, 6, 7, 8)
        The numbers to try. Below 3 neighbours embeddings degenerate to strings.
    measured : int, default=15
        How many neighbours are compared by the measures; at most a third of the points are.
    beyond_lock_up : bool, default=False
        Whether to go on after the first number that locked up; larger numbers lock up, too.

    Returns
    -------
    NeighborChoice
        All trials, with their fitted unfoldings, and the recommended number.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import MVU
    >>> from nearfar.evaluation import choose_n_neighbors
    >>> t = np.linspace(0, 1, 40)
    >>> X = np.stack([np.cos(4 * t), np.sin(4 * t)], axis=1)
    >>> choice = choose_n_neighbors(X, MVU(1, angles=False), (2, 3))
    >>> choice.n_neighbors, [trial.outcome for trial in choice.trials]
    (2, ['unfolded', 'unfolded'])
    """
    from nearfar.estimators.mvu import MVU

    unfolding = MVU() if unfolding is None else unfolding
    if isinstance(X, BaseEstimator) or not isinstance(unfolding, BaseEstimator):
        raise InvalidInputError(
            "choose_n_neighbors takes the points first and the unfolding second; got"
            f" {type(X).__name__} and {type(unfolding).__name__}. Write"
            " choose_n_neighbors(X, MVU())."
        )
    if isinstance(X, NeighborhoodGraph):
        raise InvalidInputError(
            "a graph has its neighbours already. Pass the points or distances it was made of."
        )
    if "n_neighbors" not in unfolding.get_params():
        raise InvalidInputError(
            f"{type(unfolding).__name__} has no parameter n_neighbors. Pass an unfolding such as"
            " MVU()."
        )
    numbers = sorted(set(n_neighbors))
    if not numbers:
        raise InvalidInputError("n_neighbors must name at least one number; got none.")
    for number in numbers:
        check_number("n_neighbors", number, Integral, 1, None)
    check_number("measured", measured, Integral, 1, None)
    given = _Given.of(X, unfolding.metric)
    links = unfolding.get_params().get("on_disconnected") == "link"
    strict = {"on_disconnected": "error"} if links else {}
    trials: list[NeighborTrial] = []
    for number in numbers:
        trials.append(_tried(X, unfolding, int(number), given, measured, **strict))
        if trials[-1].outcome == "locked up" and not beyond_lock_up:
            break
    if links and _recommended(trials) is None:
        trials = [
            _tried(X, unfolding, trial.n_neighbors, given, measured)
            if trial.outcome == "disconnected"
            else trial
            for trial in trials
        ]
    return NeighborChoice(tuple(trials), _recommended(trials))


@dataclass(frozen=True)
class _Given:
    """The input as the measures want it; None where distances are missing."""

    points: Any  # points or distances
    metric: str
    spectrum: Floats | None

    @classmethod
    def of(cls, X: Any, metric: str) -> _Given:
        if metric == "euclidean":
            points = kernels_for(X).to_host(X) if hasattr(X, "device") else np.asarray(X)
            points = np.asarray(points, dtype=np.float64)
            if points.ndim != 2 or not np.isfinite(points).all():
                return cls(None, "euclidean", None)  # the fit raises the error
            return cls(points, "euclidean", input_spectrum(points, "euclidean"))
        if not isinstance(X, np.ndarray) and not hasattr(X, "__array__"):
            return cls(None, "precomputed", None)
        D = np.asarray(X, dtype=np.float64)
        if D.ndim != 2 or D.shape[0] != D.shape[1] or not np.isfinite(D).all():
            return cls(None, "precomputed", None)
        D = all_distances(D, metric)
        return cls(D, "precomputed", input_spectrum(D, "precomputed"))


def _tried(
    X: Any, unfolding: Any, number: int, given: _Given, measured: int, **during: Any
) -> NeighborTrial:
    """Fit a copy of the unfolding; ``during`` are its parameters only while it is fitted."""
    model = clone(unfolding).set_params(n_neighbors=number, **during)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NearfarWarning)
        try:
            model.fit(X)
        except DisconnectedGraphError as error:
            return _failed(number, "disconnected", error, began)
        except InvalidInputError as error:
            return _failed(number, "refused", error, began)
    seconds = time.perf_counter() - began
    model.set_params(**{name: getattr(unfolding, name) for name in during})
    warned = [w for w in caught if issubclass(w.category, NearfarWarning)]
    for w in (w for w in caught if not issubclass(w.category, NearfarWarning)):
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    spectrum = variance_shares(model.eigenvalues_)
    share = float(spectrum[: model.n_components].sum())
    locked = getattr(model, "locked_up_", False) or _is_like(spectrum, given.spectrum, share)
    measures = None
    if given.points is not None:
        n = len(given.points)
        k = max(1, min(measured, n // 3))
        Y = kernels_for(model.embedding_).to_host(model.embedding_)
        measures = measure_embedding(
            given.points, Y, k, metric=given.metric, name=f"n_neighbors={number}"
        )
    return NeighborTrial(
        number,
        "locked up" if locked else "unfolded",
        " ".join(str(w.message) for w in warned),
        model,
        spectrum,
        share,
        measures,
        seconds,
    )


def _failed(number: int, outcome: str, error: Exception, began: float) -> NeighborTrial:
    seconds = time.perf_counter() - began
    return NeighborTrial(number, outcome, str(error), None, None, None, None, seconds)


def _is_like(spectrum: Floats, own: Floats | None, share: float) -> bool:
    """Whether a spectrum is that of the input, which needs more dimensions than were asked for."""
    if own is None or share > 1 - LIKE:
        return False
    both = np.zeros((2, max(len(spectrum), len(own))))
    both[0, : len(spectrum)], both[1, : len(own)] = spectrum, own
    return bool(0.5 * np.abs(both[0] - both[1]).sum() <= LIKE)


def _recommended(trials: list[NeighborTrial]) -> int | None:
    unfolded = [trial for trial in trials if trial.outcome == "unfolded"]
    if not unfolded:
        return None
    widest = max(unfolded, key=lambda trial: trial.share or 0.0)
    if widest.measures is None:  # nothing to measure against
        return widest.n_neighbors
    far = [trial for trial in unfolded if (trial.share or 0.0) >= (widest.share or 0.0) - FAR]
    best = max(trial.mean for trial in far)
    return next(trial.n_neighbors for trial in far if trial.mean >= best - EQUAL)


def _line(trial: NeighborTrial) -> str:
    numbers = f"{trial.n_neighbors:>3} {trial.outcome:<12}"
    found = trial.measures
    cells = (
        (trial.share, 6),
        (found and found.local_continuity, 8),
        (found and found.local_trust, 6),
        (found and found.neighborhood_intersection, 8),
        (found and found.harmonic_mean, 6),
    )
    for value, width in cells:
        numbers += f" {'-' if value is None else format(value, '.2f'):>{width}}"
    return f"{numbers} {trial.seconds:>8.1f}"


def _remedy(trials: tuple[NeighborTrial, ...]) -> str:
    outcomes = {trial.outcome for trial in trials}
    if outcomes == {"disconnected"}:
        return "Try larger numbers, or on_disconnected='link'."
    if outcomes == {"refused"}:
        return "The reasons of the trials tell why."
    return "Set constraints='slack', angles=False, or on_disconnected='link' with smaller numbers."
