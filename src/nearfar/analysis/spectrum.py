"""How the variance is spread over directions, before and after learning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.analysis.models import Floats
from nearfar.analysis.study import Study
from nearfar.analysis.views import metric_name, sampled_axes
from nearfar.evaluation.spectra import variance_shares

DIRECTIONS = 20  # that are shown
COUNTED = 200  # that are computed
MOST_METRICS = 5
MOST = 0.95  # the share of the variance that is counted


class Spectrum(NamedTuple):
    """Shares of the variance along the leading directions, and how many hold 95 % of it.

    ``n_most`` is None where more directions are needed than were computed.
    """

    name: str
    shares: Floats
    n_most: int | None


def spectra(study: Study, random_state: int) -> list[Spectrum]:
    """Before learning, if there are points, then after it."""
    found = []
    if study.old is not None:
        found.append(_of_points("before learning", study.old, random_state))
    if study.unfolds and study.images is not None:
        values = getattr(study.metric, "eigenvalues_", None)
        values = np.var(study.images, axis=0) if values is None else values
        found.append(_of_shares("after learning", variance_shares(values)))
    elif study.images is not None:
        found.append(_of_points("after learning", study.images, random_state))
    elif study.maps is not None and study.X is not None:
        for number, components in enumerate(study.maps[:MOST_METRICS]):
            name = f"metric of {metric_name(study, number)}"
            found.append(_of_points(name, study.X @ components.T, random_state))
    return found


def _of_points(name: str, points: Floats, random_state: int) -> Spectrum:
    return _of_shares(name, sampled_axes(points, COUNTED, random_state)[1])


def _of_shares(name: str, shares: Floats) -> Spectrum:
    enough = np.cumsum(shares) >= MOST - 1e-9
    n_most = int(np.argmax(enough)) + 1 if enough.any() else None
    return Spectrum(name, shares[:DIRECTIONS], n_most)
