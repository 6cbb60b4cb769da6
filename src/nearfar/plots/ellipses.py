"""Metrics in the plane as ellipses of equal distance [weinberger2007, Fig. 2.11].

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.plots._canvas import (
    RASTERISED,
    Axes,
    Floats,
    Index,
    Kinds,
    ink,
    legend_beside,
    map_axes,
    spread_rows,
    tidied,
)
from nearfar.plots._models import (
    checked_labels,
    host,
    known_labels,
    known_points,
    metric_of,
    name_of,
    principal_plane,
    unwrapped,
    without_classifier,
)
from nearfar.validation import check_number

USUAL = 0.35  # median radius of the ellipses in deviations of the points, where none is given
FARTHEST = 3.0  # extents of the points, beyond which an ellipse is cut
AROUND = 200  # points of an ellipse


@dataclass(eq=False, repr=False)
class EllipsesDisplay:
    """Points in the plane, and around the middle of each class what lies at one distance of it.

    The distance is measured by the metric of the class or cluster, so that the ellipses can be
    compared: where one is narrow its metric stretches, along the line that is drawn in it. Of more
    than two features the plane of the first two principal components is drawn, and of ellipsoids
    their section with it. Make it by `from_estimator`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, 2)
        The points in the plane.
    groups : ndarray of shape (n_samples,)
        Names of the class or cluster of each point.
    matrices : ndarray of shape (n_groups, 2, 2)
        The metrics of the groups in the plane, in the order of the sorted names.
    axis_labels : tuple of str, default=("axis 1", "axis 2")
        What the axes are called.
    name : str, default=""
        What was learned.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure around it.
    radius_ : float
        The distance at which the ellipses lie.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import MultiMetricLMNN
    >>> from nearfar.plots import EllipsesDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MultiMetricLMNN().fit(X, y)
    >>> display = EllipsesDisplay.from_estimator(model)
    """

    points: Floats
    groups: NDArray[Any]
    matrices: Floats
    axis_labels: tuple[str, str] = ("axis 1", "axis 2")
    name: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **drawing: Any,
    ) -> EllipsesDisplay:
        """Draw the metrics of a fitted model.

        Parameters
        ----------
        estimator : fitted estimator
            `MultiMetricLMNN`, a linear metric learner, whose one metric is drawn around every
            class, or a classifier around one.
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None, default=None
            The points. None is those that the model keeps.
        y : array-like of shape (n_samples,) or None, default=None
            Their class labels.
        name : str or None, default=None
            Title. None is the name of the class.
        ax, **drawing
            As of `plot`.

        Returns
        -------
        EllipsesDisplay
            The display.
        """
        _refuse_pipeline(unwrapped(estimator))
        model = metric_of(estimator)
        several = hasattr(model, "_metric_of_new")
        if not several and not isinstance(model, MetricLearner):
            raise InvalidInputError(
                f"ellipses are drawn of linear metrics; {name_of(model)} is none. Use"
                " MultiMetricLMNN, or a learner with components_."
            )
        if X is None:
            X, y = known_points(estimator), known_labels(estimator) if y is None else y
        if X is None or y is None:
            raise InvalidInputError("ellipses are drawn around classes. Give points and labels.")
        points = host(X).astype(np.float64)
        labels = checked_labels(y, len(points))
        assert labels is not None
        maps = host(model.components_).astype(np.float64)
        groups, metrics = _groups(model, points, labels) if several else _classes(labels)
        plane, axis_labels = _plane(points, getattr(model, "feature_names_in_", None))
        seen = (maps if several else maps[None])[metrics] @ plane.T
        matrices = seen.transpose(0, 2, 1) @ seen
        title = name_of(estimator) if name is None else name
        display = cls(points @ plane.T, groups, matrices, axis_labels, title)
        return display.plot(ax, **drawing)

    def plot(
        self, ax: Axes | None = None, *, radius: float | None = None, max_points: int = 20_000
    ) -> EllipsesDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a figure.
        radius : float or None, default=None
            The distance at which the ellipses lie, the same for all. None is chosen so that they
            can be seen among the points.
        max_points : int, default=20_000
            Most points to draw; of more a random sample.

        Returns
        -------
        EllipsesDisplay
            The display itself.
        """
        if radius is not None:
            check_number("radius", radius, Real, 0, None, open_ends=True)
        ax = self.ax_ = tidied(map_axes(ax, self.points))
        self.figure_ = ax.figure
        names, codes = np.unique(self.groups, return_inverse=True)
        kinds = Kinds(names, codes.reshape(-1))
        rows = spread_rows(len(self.points), max_points)
        small = {"linewidths": 0, "rasterized": len(rows) > RASTERISED}
        size = float(np.clip(2e4 / len(rows), 2, 16))
        ax.scatter(*self.points[rows].T, s=size, c=kinds.colours()[rows], alpha=0.35, **small)
        deviation = float(self.points.std(axis=0).max()) or 1.0
        self.radius_ = self._usual_radius(deviation) if radius is None else float(radius)
        reach = FARTHEST * float(np.ptp(self.points, axis=0).max() or 1.0)
        limits = ax.get_xlim(), ax.get_ylim()
        for code in range(len(kinds)):
            middle = self.points[kinds.codes == code].mean(axis=0)
            self._draw_ellipse(ax, self.matrices[code], middle, kinds.colour(code), reach)
        ax.set_aspect("equal", adjustable="datalim")
        ax.update_datalim(np.column_stack(limits))
        ax.autoscale_view()
        ax.set(xlabel=self.axis_labels[0], ylabel=self.axis_labels[1])
        ax.set_title(f"{self.name}: distance {self.radius_:.2g} from each middle".lstrip(": "))
        legend_beside(ax, kinds.handles())
        return self

    def _usual_radius(self, deviation: float) -> float:
        """Under which the median of the radii of the ellipses is a share of the deviation."""
        stretches = np.sqrt(np.linalg.eigvalsh(self.matrices).clip(0, None)).max(axis=1)
        usual = float(np.median(stretches))
        return USUAL * deviation * usual if usual > 0 else 1.0

    def _draw_ellipse(self, ax: Axes, M: Floats, middle: Floats, colour: str, reach: float) -> None:
        values, vectors = np.linalg.eigh(M)
        stretches = np.sqrt(values.clip(0, None))
        radii = self.radius_ / np.maximum(stretches, self.radius_ / reach)
        angles = np.linspace(0, 2 * np.pi, AROUND)
        rim = middle + (radii * np.column_stack([np.cos(angles), np.sin(angles)])) @ vectors.T
        ax.plot(*rim.T, color=ax.get_facecolor(), linewidth=4, zorder=3)
        ax.plot(*rim.T, color=colour, linewidth=2.2, zorder=4)
        along = radii[1] * vectors[:, 1]
        ax.plot(*np.column_stack([middle - along, middle + along]), color=ink(), zorder=5)


def _refuse_pipeline(model: Any) -> None:
    if hasattr(model, "steps"):
        ends = without_classifier(model) is model
        step, k = ("last step", 1) if ends else ("step before the classifier", 2)
        raise InvalidInputError(
            f"ellipses are drawn of one model, not of a pipeline. Give its {step}, pipeline[-{k}],"
            f" with X=pipeline[:-{k}].transform(X)."
        )


def _groups(model: Any, points: Floats, labels: NDArray[Any]) -> tuple[NDArray[Any], Index]:
    """The class or cluster of each point, and the metric of each of these."""
    if model.partition == "class":
        names = np.unique(labels)
        return labels, np.searchsorted(model.classes_, names)
    known = host(model.points_)
    if points.shape == known.shape and (points == known).all():
        clusters = host(model.metric_of_)
    else:
        clusters = model._metric_of_new(points)[:, 0]
    return np.array([f"cluster {cluster}" for cluster in clusters]), _sorted_by_name(clusters)


def _sorted_by_name(clusters: Index) -> Index:
    numbers = np.unique(clusters)
    order = np.argsort([f"cluster {number}" for number in numbers])
    return numbers[order]


def _classes(labels: NDArray[Any]) -> tuple[NDArray[Any], Index]:
    return labels, np.zeros(len(np.unique(labels)), dtype=np.intp)


def _plane(points: Floats, names: Any) -> tuple[Floats, tuple[str, str]]:
    """An orthonormal basis (2, d) of the plane to draw, and what its axes are called."""
    d = points.shape[1]
    if d < 2:
        raise InvalidInputError("ellipses need at least two features; there is one.")
    if d == 2:
        labels = ("feature 0", "feature 1") if names is None else (str(names[0]), str(names[1]))
        return np.eye(2), labels
    return principal_plane(points)
