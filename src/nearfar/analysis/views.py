"""Points in the plane, before and after learning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.analysis.models import Floats, Index, sample_rows
from nearfar.analysis.study import Study
from nearfar.evaluation.spectra import principal_axes

AXES_FROM = 20_000  # rows, at most, whose principal directions are the axes
MOST_METRICS = 12  # that have a view of their own


class View(NamedTuple):
    """Places of the shown rows in the plane (m, 2), and what the axes are."""

    name: str
    places: Floats
    note: str


def views(study: Study, shown: Index, random_state: int) -> list[View]:
    """Views after learning, then the view before."""
    found = []
    if study.unfolds:
        found.append(_embedding(study, shown))
    elif study.images is not None:
        found.append(_principal("after learning", study.images, shown, random_state))
    elif study.maps is not None and study.X is not None:
        for number, components in enumerate(study.maps[:MOST_METRICS]):
            name = f"by the metric of {metric_name(study, number)}"
            found.append(_principal(name, study.X @ components.T, shown, random_state))
    if study.old is not None:
        found.append(_principal("before learning", study.old, shown, random_state))
    first = found[0].places
    return [found[0], *(view._replace(places=_turned(view.places, first)) for view in found[1:])]


def metric_name(study: Study, number: int) -> str:
    """What has this one of several metrics: a class, or a cluster."""
    by_class = getattr(study.metric, "partition", None) == "class"
    return str(study.metric.classes_[number]) if by_class else f"cluster {number + 1}"


def _embedding(study: Study, shown: Index) -> View:
    images = study.images
    assert images is not None  # an unfolding has places
    r = images.shape[1]
    places = np.zeros((len(shown), 2))
    places[:, : min(r, 2)] = images[shown, :2]
    note = "the embedding" if r <= 2 else f"the first two of the {r} coordinates of the embedding"
    return View("after learning", places, note)


def _principal(name: str, points: Floats, shown: Index, random_state: int) -> View:
    """Along the two principal directions of a sample of all rows."""
    axes, shares = sampled_axes(points, 2, random_state)
    r = len(shares)
    places = np.zeros((len(shown), 2))
    places[:, :r] = (points[shown] - points.mean(axis=0)) @ axes.T
    which = "the two principal directions" if r == 2 else "the only direction"
    return View(name, places, f"{which}, {100 * shares.sum():.0f} % of the variance")


def sampled_axes(points: Floats, count: int, random_state: int) -> tuple[Floats, Floats]:
    """The principal axes of a sample of the rows, and their shares of the variance."""
    sample = points[sample_rows(np.arange(len(points)), AXES_FROM, random_state)]
    return principal_axes(sample, count, random_state)


def _turned(places: Floats, first: Floats) -> Floats:
    """Mirror axes where that brings points nearer to where they are in the first view."""
    signs = np.where((places * first).sum(axis=0) < 0, -1.0, 1.0)
    return places * signs
