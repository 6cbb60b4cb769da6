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

from nearfar.analysis.models import Floats, Index
from nearfar.evaluation.spectra import principal_axes
from nearfar.linalg import signed

TINY = np.finfo(np.float64).tiny


class Features(NamedTuple):
    """The share of each feature before learning (d,); for each metric share and stretch (m, d)."""

    before: Floats
    after: Floats
    stretch: Floats

    @property
    def order(self) -> Index:
        """The features, those that count most after learning first."""
        return np.argsort(-self.after.max(axis=0), kind="stable")


def feature_shares(maps: Floats, variances: Floats) -> Features:
    """(1), (2) and (3) of maps (m, r, d) and the variances (d,) of the features."""
    diagonal = np.square(maps, dtype=np.float64).sum(axis=1)  # (m, d)
    total = max(float(variances.sum()), TINY)
    stretched = (diagonal @ variances)[:, None].clip(TINY, None)
    before = variances / total  # (1)
    after = diagonal * variances / stretched  # (2)
    stretch = np.sqrt(diagonal * total / stretched)  # (3)
    return Features(before, after, stretch)


def learned_axes(L: Floats, points: Floats) -> Floats:
    """The rows of L turned to the principal axes of the images, the largest variance first."""
    directions, _ = principal_axes(points @ L.T)
    return signed(directions @ L)
