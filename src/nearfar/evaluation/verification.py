"""How well distances separate near pairs from far ones.

A pair counts as near where its distance is at most a threshold. The true-positive rate is the share
of the near pairs that count as near, the false-positive rate the share of the far ones.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from nearfar.errors import InvalidInputError
from nearfar.kernels import kernels_for
from nearfar.supervision.pairs import check_both_kinds, near_kinds
from nearfar.supervision.thresholds import CRITERIA, Cuts
from nearfar.validation import check_choice, check_number

Floats = NDArray[np.floating]


def roc(y: Any, distances: Any) -> tuple[Floats, Floats, Floats]:
    """The ROC curve of distances: what every threshold does.

    Parameters
    ----------
    y : array-like of shape (n_pairs,)
        +1 for near and -1 for far pairs.
    distances : array-like or torch.Tensor of shape (n_pairs,)
        Their distances, for example from ``pair_distance``.

    Returns
    -------
    false_positive_rates, true_positive_rates, thresholds : ndarray
        Ascending, from (0, 0) to (1, 1). Distances are the thresholds; the first is -inf, under
        which no pair counts as near.
    """
    near, distances = _checked(y, distances)
    false_positives, true_positives, scores = roc_curve(near, -distances, drop_intermediate=False)
    return false_positives, true_positives, -scores


def equal_error_rate(y: Any, distances: Any) -> float:
    """The error at the threshold where near and far pairs are taken wrongly equally often.

    Where no threshold does that, the ROC curve is followed from one threshold to the next.

    Parameters
    ----------
    y : array-like of shape (n_pairs,)
        +1 for near and -1 for far pairs.
    distances : array-like or torch.Tensor of shape (n_pairs,)
        Their distances.

    Returns
    -------
    float
        0 if a threshold separates near from far pairs, 0.5 for a guess, at most 1.
    """
    false_positives, true_positives, _ = roc(y, distances)
    excess = false_positives - (1 - true_positives)  # ascends from −1 to 1
    after = int(np.argmax(excess >= 0))
    low, high = excess[after - 1], excess[after]
    share = -low / (high - low)
    return float((1 - share) * false_positives[after - 1] + share * false_positives[after])


def true_positive_rate_at(y: Any, distances: Any, false_positive_rate: float) -> float:
    """The largest true-positive rate at a false-positive rate that may not be exceeded.

    Parameters
    ----------
    y : array-like of shape (n_pairs,)
        +1 for near and -1 for far pairs.
    distances : array-like or torch.Tensor of shape (n_pairs,)
        Their distances.
    false_positive_rate : float
        From 0 to 1.

    Returns
    -------
    float
        From 0 to 1.
    """
    check_number("false_positive_rate", false_positive_rate, Real, 0, 1)
    false_positives, true_positives, _ = roc(y, distances)
    return float(true_positives[false_positives <= false_positive_rate][-1])


def best_threshold(
    y: Any, distances: Any, criterion: str = "accuracy", *, beta: float = 1.0, rate: float = 0.95
) -> float:
    """The distance up to which pairs should count as near.

    Parameters
    ----------
    y : array-like of shape (n_pairs,)
        +1 for near and -1 for far pairs.
    distances : array-like or torch.Tensor of shape (n_pairs,)
        Their distances.
    criterion : {"accuracy", "f_beta", "true_positive_rate", "equal_error"}, default="accuracy"
        The largest share of right answers, which depends on how many pairs are near; the largest
        F-score; the smallest threshold that finds a share ``rate`` of the near pairs; or equal
        shares of errors among near and far pairs, as nearly as can be.
    beta : float, default=1.0
        Of the F-score: how much more recall counts than precision.
    rate : float, default=0.95
        The true-positive rate that is asked for.

    Returns
    -------
    float
        Half way between two distances, or beyond all of them.
    """
    check_choice("criterion", criterion, CRITERIA)
    check_number("beta", beta, Real, 0, None)
    check_number("rate", rate, Real, 0, 1)
    near, distances = _checked(y, distances)
    return Cuts.of(distances, near).best(criterion, beta, rate)


def _checked(y: Any, distances: Any) -> tuple[NDArray[np.bool_], Floats]:
    """Kinds and distances on the host; both kinds occur."""
    kinds, lengths = (np.asarray(kernels_for(values).to_host(values)) for values in (y, distances))
    lengths = lengths.astype(np.float64)  # minus a distance is no unsigned integer
    if kinds.ndim != 1 or lengths.shape != kinds.shape:
        raise InvalidInputError(
            "there must be a distance and a +1 or -1 for each pair; got"
            f" distances of shape {lengths.shape} and y of shape {kinds.shape}."
            " Check that they belong together."
        )
    bad = np.flatnonzero(~np.isfinite(lengths))
    if len(bad):
        raise InvalidInputError(
            f"distances must be finite; that of pair {bad[0]} is {lengths[bad[0]]}"
            f" ({len(bad)} in all). Drop them.",
            bad,
        )
    near = near_kinds(kinds)
    check_both_kinds(near, "Add pairs of the other kind.")
    return near, lengths
