"""The training rows of a study whose labels are likely to be wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.analysis.models import Floats, Index, sample_rows
from nearfar.analysis.study import Study
from nearfar.evaluation.suspicious import other_labels, ranked, triplet_weights

NEIGHBORS = 10  # of each row, that are compared with it
LEAST = 0.5  # share of other labels among the neighbours
PAIRS = 500_000_000  # of training rows that are compared, at most
PRODUCTS = 20_000_000_000  # of coordinates, at most, for these


class Suspicion(NamedTuple):
    """Rows most of whose neighbours have other labels, the most suspicious first.

    ``scores`` and ``weights`` are those of `nearfar.evaluation.suspicious_labels`. Of the
    ``n_rows`` training rows ``n_searched`` were examined, by ``n_neighbors`` neighbours.
    """

    rows: Index
    scores: Floats
    weights: Floats | None
    n_neighbors: int
    n_searched: int
    n_rows: int


def suspicion(study: Study, random_state: int) -> Suspicion | None:
    """Rank training rows; None without labels, or without points before and after learning."""
    if study.unfolds or study.old is None or study.images is None or study.classes is None:
        return None
    voters, (_, codes) = study.voters, study.classes
    numbers = np.arange(len(voters))
    width = study.old.shape[1] + study.images.shape[1]
    count = max(1, min(PAIRS, PRODUCTS // width) // len(voters))
    part = sample_rows(numbers, count, random_state)
    k = min(NEIGHBORS, len(voters) - 1)
    before, after = (
        other_labels(points, codes, voters[part], voters, k) for points in (study.old, study.images)
    )
    weights = triplet_weights(study.metric, codes[voters])
    weights = None if weights is None else weights[part]
    order, scores = ranked(before, after, weights)
    order = order[scores[order] >= LEAST]
    rows = voters[part[order]]
    found = None if weights is None else weights[order]
    return Suspicion(rows, scores[order], found, k, len(part), len(voters))
