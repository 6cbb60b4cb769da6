"""Metrics in the plane as ellipses of equal distance [weinberger2007, Fig. 2.11].

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.ellipses import ellipse, group_matrices, median_stretch, plane_of
from nearfar.analysis.models import (
    checked_labels,
    has_several_metrics,
    known_labels,
    known_points,
    metric_of,
    name_of,
)
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators.linear_metric import as_metric
from nearfar.kernels import to_host
from nearfar.plots._canvas import (
    RASTERISED,
    Axes,
    Floats,
    Kinds,
    hide_outer_spines,
    ink,
    legend_beside,
    map_axes,
    spread_rows,
)
from nearfar.validation import check_number

USUAL = 0.35  # median radius of the ellipses in deviations of the points, where none is given
FARTHEST = 3.0  # extents of the points, beyond which an ellipse is cut


@dataclass(eq=False, repr=False)
class EllipsesDisplay:
    """Points in the plane, with an ellipse of equal distance around the mean of each class.

    The distance is measured by the metric of the class or cluster. Where an ellipse is narrow, its
    metric stretches, along the line that is drawn in it. If there are more than two features, the
    plane of the first two principal components is drawn, with the sections of the ellipsoids.
    Create it with `from_estimator`.

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
            `MultiMetricLMNN`, a linear metric learner or a pipeline of linear steps, whose one
            metric is drawn around every class, or a classifier around one.
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None, default=None
            The points. None is those that the model keeps.
        y : array-like of shape (n_samples,) or None, default=None
            Their class labels.
        name : str or None, default=None
            Title. None is the name of the class.
        ax, **drawing
            See `plot`.

        Returns
        -------
        EllipsesDisplay
            The display.
        """
        model = metric_of(estimator)
        if hasattr(model, "steps"):
            model = as_metric(model)
        if not has_several_metrics(model) and not isinstance(model, MetricLearner):
            raise InvalidInputError(
                f"ellipses are drawn of linear metrics; {name_of(model)} is none. Use"
                " MultiMetricLMNN, or a learner with components_."
            )
        if X is None:
            X, y = known_points(estimator), known_labels(estimator) if y is None else y
        if X is None or y is None:
            raise InvalidInputError("ellipses are drawn around classes. Give points and labels.")
        points = to_host(X).astype(np.float64)
        labels = checked_labels(y, len(points))
        assert labels is not None
        plane, axis_labels = plane_of(points, getattr(model, "feature_names_in_", None))
        groups, matrices = group_matrices(model, points, labels, plane)
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
        ax = self.ax_ = hide_outer_spines(map_axes(ax, self.points))
        self.figure_ = ax.figure
        names, codes = np.unique(self.groups, return_inverse=True)
        kinds = Kinds(names, codes.reshape(-1))
        rows = spread_rows(len(self.points), max_points)
        small = {"linewidths": 0, "rasterized": len(rows) > RASTERISED}
        size = float(np.clip(2e4 / len(rows), 2, 16))
        ax.scatter(*self.points[rows].T, s=size, c=kinds.colours()[rows], alpha=0.35, **small)
        deviation = float(self.points.std(axis=0).max()) or 1.0
        usual = USUAL * deviation * median_stretch(self.matrices) or 1.0
        self.radius_ = usual if radius is None else float(radius)
        reach = FARTHEST * float(np.ptp(self.points, axis=0).max() or 1.0)
        limits = ax.get_xlim(), ax.get_ylim()
        for code in range(len(kinds)):
            middle = self.points[kinds.codes == code].mean(axis=0)
            rim, axis = ellipse(self.matrices[code], middle, self.radius_, reach)
            ax.plot(*rim.T, color=ax.get_facecolor(), linewidth=4, zorder=3)
            ax.plot(*rim.T, color=kinds.colour(code), linewidth=2.2, zorder=4)
            ax.plot(*axis.T, color=ink(), zorder=5)
        ax.set_aspect("equal", adjustable="datalim")
        ax.update_datalim(np.column_stack(limits))
        ax.autoscale_view()
        ax.set(xlabel=self.axis_labels[0], ylabel=self.axis_labels[1])
        ax.set_title(f"{self.name}: distance {self.radius_:.2g} from each middle".lstrip(": "))
        legend_beside(ax, kinds.handles())
        return self
