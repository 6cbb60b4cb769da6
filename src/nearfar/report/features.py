"""Which features a linear metric stretched.

With M = LᵀL and vⱼ the variance of feature j, the mean squared distance of two rows before learning
is 2 Σ vⱼ. Of what a feature adds by itself, before and after learning,

(1) before_j = vⱼ / Σ vₖ
(2) after_j  = Mⱼⱼ vⱼ / Σ Mₖₖ vₖ
(3) stretch_j = √(Mⱼⱼ Σ vₖ / Σ Mₖₖ vₖ),  so that  after_j = stretch_j² before_j.

A stretch of 1 leaves a feature what it was, compared with the others. What features do together,
the entries of M off the diagonal, is not in these numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from nearfar.report.study import Floats, Index, Study

SHOWN = 20  # features that the table names


class Features(NamedTuple):
    """Of each feature its share before (d,), and for each metric its share and stretch (m, d)."""

    before: Floats
    after: Floats
    stretch: Floats

    @property
    def order(self) -> Index:
        """The features, those that count most after learning first."""
        return np.argsort(-self.after.max(axis=0), kind="stable")


def feature_shares(study: Study) -> Features | None:
    """(1), (2) and (3); None for a metric that has no linear map."""
    maps = study.maps
    if maps is None or study.X is None:
        return None
    variances = np.var(study.X[study.voters], axis=0, dtype=np.float64)
    diagonal = np.square(maps, dtype=np.float64).sum(axis=1)  # (m, d)
    total, stretched = variances.sum(), diagonal @ variances
    if total == 0 or not stretched.all():
        return None
    before = variances / total  # (1)
    after = diagonal * variances / stretched[:, None]  # (2)
    stretch = np.sqrt(diagonal * total / stretched[:, None])  # (3)
    return Features(before, after, stretch)


def learned_axes(study: Study) -> Floats:
    """Weights (r, d) of features in units of their standard deviations, for one linear map L.

    Along the principal axes V of the images, whose covariance is L Σ Lᵀ: the rows of Vᵀ L times the
    standard deviations, the axis with the largest variance first.
    """
    assert study.maps is not None  # asked for linear maps only
    assert study.images is not None
    assert study.X is not None
    images = study.images[study.voters].astype(np.float64)
    _, V = linalg.eigh(np.atleast_2d(np.cov(images, rowvar=False)))
    axes: Floats = (V.T[::-1] @ study.maps[0]) * np.std(study.X[study.voters], axis=0)
    return axes
