"""Metrics of classes or clusters in a plane, and their ellipses of equal distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import (
    Floats,
    Index,
    has_several_metrics,
    linear_maps,
    principal_plane,
)
from nearfar.errors import InvalidInputError
from nearfar.kernels import to_host

AROUND = 200  # points of an ellipse


def group_matrices(
    model: Any, points: Floats, labels: NDArray[Any], plane: Floats
) -> tuple[NDArray[Any], Floats]:
    """The class or cluster of each point, and the metric (2, 2) of each of these in a plane.

    The metrics are in the order of the sorted names of classes or clusters.
    """
    groups, metrics = _groups(model, points, labels)
    seen = linear_maps(model).astype(np.float64)[metrics] @ plane.T
    return groups, seen.transpose(0, 2, 1) @ seen


def ellipse(M: Floats, middle: Floats, radius: float, reach: float) -> tuple[Floats, Floats]:
    """The points at this distance from the middle, and the ends of the ellipse's short axis.

    Where the metric hardly measures anything, the ellipse ends at ``reach``.
    """
    values, vectors = np.linalg.eigh(M)
    stretches = np.sqrt(values.clip(0, None))
    radii = radius / np.maximum(stretches, radius / reach)
    angles = np.linspace(0, 2 * np.pi, AROUND)
    rim = middle + (radii * np.column_stack([np.cos(angles), np.sin(angles)])) @ vectors.T
    along = radii[1] * vectors[:, 1]
    return rim, np.array([middle - along, middle + along])


def median_stretch(matrices: Floats) -> float:
    """The median over the metrics of how much each stretches at most."""
    return float(np.median(np.sqrt(np.linalg.eigvalsh(matrices).clip(0, None)).max(axis=1)))


def plane_of(points: Floats, names: Any) -> tuple[Floats, tuple[str, str]]:
    """An orthonormal basis (2, d) of the plane to draw, and what its axes are called."""
    d = points.shape[1]
    if d < 2:
        raise InvalidInputError("ellipses need at least two features; there is one.")
    if d == 2:
        labels = ("feature 0", "feature 1") if names is None else (str(names[0]), str(names[1]))
        return np.eye(2), labels
    return principal_plane(points)


def _groups(model: Any, points: Floats, labels: NDArray[Any]) -> tuple[NDArray[Any], Index]:
    """The class or cluster of each point, and the number of the metric of each of these."""
    if not has_several_metrics(model):
        return labels, np.zeros(len(np.unique(labels)), dtype=np.intp)
    if model.partition == "class":
        names = np.unique(labels)
        return labels, np.searchsorted(model.classes_, names)
    known = to_host(model.points_)
    if points.shape == known.shape and (points == known).all():
        clusters = to_host(model.metric_of_)
    else:
        clusters = model._metric_of_new(points)[:, 0]
    numbers = np.unique(clusters)
    order = np.argsort([f"cluster {number}" for number in numbers])
    return np.array([f"cluster {cluster}" for cluster in clusters]), numbers[order]
