"""A learned metric: its matrix, the share of each feature, and its directions as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.features import Features, feature_shares, learned_axes
from nearfar.analysis.models import has_several_metrics, linear_maps, metric_of, name_of
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.estimators._kernel import KernelMetricLearner
from nearfar.estimators.linear_metric import as_metric
from nearfar.evaluation.spectra import principal_axes
from nearfar.kernels import to_host
from nearfar.linalg import canonical_factor
from nearfar.plots._canvas import (
    AFTER,
    BEFORE,
    Axes,
    Floats,
    blank,
    despine,
    legend_above,
    one_axes,
)
from nearfar.validation import check_choice, check_number

KINDS = ("matrix", "features", "images")
MOST_NAMES = 40  # features whose names stand beside the matrix
COMMON = 0.98  # share of the entries of M that are within the scale of colours
LARGE_RATIO = 50.0  # of the largest share of a feature to the least, for a logarithmic scale
COLUMNS = 8  # of a table of pictures


@dataclass(eq=False, repr=False)
class MetricDisplay:
    """What a linear map L does to the features; the metric is M = LᵀL.

    Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_features)
        A map L of the metric, its rows in the order in which they are shown.
    feature_names : sequence of str
        Names of the features.
    scales : ndarray of shape (n_features,) or None, default=None
        Standard deviations of the features, in which they are measured; None is their own units.
    image_shape : (height, width) or None, default=None
        The features are the pixels of pictures of this shape.
    baseline : ndarray of shape (n_directions, n_features) or None, default=None
        Principal directions of the points, to be compared with.
    name : str, default=""
        What was learned.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure around it.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LMNN
    >>> from nearfar.plots import MetricDisplay
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = LMNN().fit(X, y)
    >>> display = MetricDisplay.from_estimator(model, X, kind="features")
    """

    components: Floats
    feature_names: Sequence[str]
    scales: Floats | None = None
    image_shape: Sequence[int] | None = None
    baseline: Floats | None = None
    name: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        kind: str | None = None,
        metric: int | None = None,
        feature_names: Sequence[str] | None = None,
        image_shape: Sequence[int] | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **drawing: Any,
    ) -> MetricDisplay:
        """Draw the metric of a fitted model.

        Parameters
        ----------
        estimator : fitted estimator
            A metric learner, one with ``kernel="linear"``, a classifier around one, or any linear
            transformer or pipeline: directions learned on principal components are drawn as
            pictures of the pixels.
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None, default=None
            Points. With them features are measured in their standard deviations, and principal
            directions are drawn beside those of the metric. None is no points.
        kind, ax, **drawing
            See `plot`. ``kind=None`` is "images" with ``image_shape``, and "matrix" otherwise.
        metric : int or None, default=None
            Which of several metrics.
        feature_names : sequence of str or None, default=None
            Names. None is those of the columns of X or of ``fit``, or numbers.
        image_shape : (height, width) or None, default=None
            The features are the pixels of pictures of this shape.
        name : str or None, default=None
            What to call the model. None is the name of the class.

        Returns
        -------
        MetricDisplay
            The display.
        """
        model = metric_of(estimator)
        components = _map_of(model, metric)
        if feature_names is None:
            feature_names = getattr(X, "columns", getattr(model, "feature_names_in_", None))
        if name is None:
            name = name_of(model) if metric is None else f"{name_of(model)}, metric {metric}"
        return cls.from_predictions(
            components,
            X,
            kind=kind,
            feature_names=feature_names,
            image_shape=image_shape,
            name=name,
            ax=ax,
            **drawing,
        )

    @classmethod
    def from_predictions(
        cls,
        components: Any,
        X: Any = None,
        *,
        kind: str | None = None,
        feature_names: Sequence[str] | None = None,
        image_shape: Sequence[int] | None = None,
        name: str = "",
        ax: Axes | None = None,
        **drawing: Any,
    ) -> MetricDisplay:
        """Draw a linear map that is given.

        Parameters
        ----------
        components : array-like of shape (rows, n_features)
            The map L.
        X, kind, feature_names, image_shape, name, ax, **drawing
            See `from_estimator`.

        Returns
        -------
        MetricDisplay
            The display.
        """
        L = to_host(components).astype(np.float64)
        if L.ndim != 2 or not np.isfinite(L).all():
            raise InvalidInputError(
                "components must be a finite map of shape (rows, n_features); got shape"
                f" {L.shape}. Give L, not M = LᵀL of several metrics."
            )
        d = L.shape[1]
        names = [f"feature {j}" for j in range(d)] if feature_names is None else feature_names
        if len(names) != d:
            raise InvalidInputError(
                f"there are {len(names)} feature_names for {d} features. Give one for each."
            )
        if image_shape is not None and int(np.prod(image_shape)) != d:
            raise InvalidInputError(
                f"image_shape={tuple(image_shape)} has {int(np.prod(image_shape))} pixels, and"
                f" there are {d} features. Correct it."
            )
        if kind is None:
            kind = "matrix" if image_shape is None else "images"
        scales = baseline = None
        if X is None:
            L = canonical_factor(L)
        else:
            points = _checked_points(X, d)
            L, scales = learned_axes(L, points), points.std(axis=0)
            baseline = None if image_shape is None else principal_axes(points)[0]
        display = cls(L, list(map(str, names)), scales, image_shape, baseline, name)
        return display.plot(ax, kind=kind, **drawing)

    def contributions(self) -> Floats:
        """The share of squared distances that each feature contributes by itself.

        ``M_jj s_j²`` relative to its sum, with the standard deviations s of the features; their
        products with others, ``M_jk`` for j ≠ k, are left out.
        """
        shares: Floats = self._shares().after[0]
        return shares

    def _shares(self) -> Features:
        """In units of the features, if their standard deviations are not known."""
        scales = np.ones(len(self.feature_names)) if self.scales is None else self.scales
        return feature_shares(self.components[None], scales**2)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        kind: str = "matrix",
        n_shown: int | None = None,
        cmap: str = "RdBu_r",
    ) -> MetricDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a figure.
        kind : {"matrix", "features", "images"}, default="matrix"
            M as a heat map; the share of squared distances that each feature makes, against the
            equal share that it has after standardising, or without X its share of the trace of M;
            or the
            rows of L as pictures, each to its own scale. They are orthogonal and the longest comes
            first; with X they are the principal axes of the images, that along which the points
            differ most first, and a pixel is what its standard deviation does.
        n_shown : int or None, default=None
            Most features (None is 20) or pictures (None is 16) to draw.
        cmap : str, default="RdBu_r"
            Colours of the heat map and of pictures; zero is in the middle.

        Returns
        -------
        MetricDisplay
            The display itself.
        """
        check_choice("kind", kind, KINDS)
        if n_shown is not None:
            check_number("n_shown", n_shown, Integral, 1, None)
        if kind == "matrix":
            self._draw_matrix(one_axes(ax, (6.0, 5.0)), cmap)
        elif kind == "features":
            count = min(n_shown or 20, len(self.feature_names))
            self._draw_features(one_axes(ax, (6.4, 1.1 + 0.27 * count)), count)
        else:
            self._draw_images(ax, n_shown or 2 * COLUMNS, cmap)
        self.figure_ = self.ax_.figure
        return self

    def _scaled(self) -> Floats:
        return self.components if self.scales is None else self.components * self.scales

    def _draw_matrix(self, ax: Axes, cmap: str) -> None:
        self.ax_ = ax
        L = self._scaled()
        M = L.T @ L
        sizes = np.abs(M)
        end = float(np.quantile(sizes, COMMON)) or float(sizes.max()) or 1.0
        image = ax.imshow(M, cmap=cmap, vmin=-end, vmax=end, interpolation="nearest")
        unit = "" if self.scales is None else ", per standard deviation"
        extend = "both" if sizes.max() > end else "neither"
        ax.figure.colorbar(image, ax=ax, shrink=0.85, label=f"entry of M{unit}", extend=extend)
        if len(M) <= MOST_NAMES:
            places = range(len(M))
            ax.set_xticks(places, self.feature_names, rotation=90, fontsize="small")
            ax.set_yticks(places, self.feature_names, fontsize="small")
        else:
            ax.set(xlabel="feature", ylabel="feature")
        ax.set_title(self.name)

    def _draw_features(self, ax: Axes, count: int) -> None:
        self.ax_ = despine(ax)
        after = 100 * self.contributions()
        order = np.argsort(-after, kind="stable")[:count]
        places, shown = np.arange(count), after[order]
        if self.scales is not None:
            equal = 100 / len(after)
            ax.hlines(places, equal, shown, color=BEFORE, linewidth=1, alpha=0.6)
            ax.axvline(equal, color=BEFORE, linestyle="--", label="standardised features")
        ax.plot(shown, places, "D", color=AFTER, label=self.name or "learned distance")
        ax.set_yticks(places, [self.feature_names[j] for j in order])
        ax.set_ylim(count - 0.4, -0.6)
        ax.grid(axis="x", alpha=0.3)
        whole = "the trace of M" if self.scales is None else "squared distances"
        ax.set_xlabel(f"share of {whole} (%)")
        if shown.min() > 0 and shown.max() > LARGE_RATIO * shown.min():
            ax.set_xscale("log")
        else:
            ax.set_xlim(left=0)
        rest = 100 - shown.sum()
        legend_above(
            ax, "" if count == len(after) else f"{len(after) - count} more features: {rest:.0f}%"
        )

    def _draw_images(self, ax: Axes | None, count: int, cmap: str) -> None:
        if self.image_shape is None:
            raise InvalidInputError(
                "pictures need the shape of an image. Give image_shape=(height, width)."
            )
        blocks = {self.name or "learned": self._scaled()}
        if self.baseline is not None:
            blocks["PCA"] = self.baseline
        count = min(count, *map(len, blocks.values()))
        tables = [_table(rows[:count], self.image_shape) for rows in blocks.values()]
        pad = np.full((max(2, self.image_shape[0] // 4), tables[0].shape[1]), np.nan)
        joined = np.concatenate([part for table in tables for part in (table, pad)][:-1])
        height, width = joined.shape
        if ax is None:
            ax = one_axes(None, (7.0, 7.0 * height / width + 0.3))
        self.ax_ = blank(ax)
        ax.imshow(joined, cmap=cmap, vmin=-1, vmax=1, interpolation="nearest")
        starts = np.cumsum([0] + [len(table) + len(pad) for table in tables])[:-1]
        middles = [start + len(table) / 2 for start, table in zip(starts, tables, strict=True)]
        ax.set_yticks(middles, list(blocks), rotation=90, va="center")
        ax.tick_params(length=0)


def _map_of(model: Any, metric: int | None) -> NDArray[Any]:
    """The linear map L of a fitted model."""
    if has_several_metrics(model):
        last = len(model.components_) - 1
        if metric is None:
            raise InvalidInputError(
                f"{name_of(model)} has {last + 1} metrics, of which one is drawn. Choose it by"
                f" metric=0 to metric={last}."
            )
        check_number("metric", metric, Integral, 0, last)
        return np.asarray(to_host(model.components_)[metric])
    if metric is not None:
        raise InvalidInputError(f"{name_of(model)} has one metric. Leave metric={metric!r} out.")
    if not isinstance(model, MetricLearner | KernelMetricLearner):
        model = as_metric(model)
    return np.asarray(linear_maps(model)[0])


def _checked_points(X: Any, d: int) -> Floats:
    points = to_host(X).astype(np.float64)
    if points.ndim != 2 or points.shape[1] != d:
        raise InvalidInputError(
            f"X must have the {d} features of the metric; got shape {points.shape}. Give the points"
            " that it measures."
        )
    return points


def _table(rows: Floats, shape: Sequence[int]) -> Floats:
    """Pictures side by side, each divided by its largest value, with empty lines between them."""
    height, width = shape
    columns = min(COLUMNS, len(rows))
    lines = -(-len(rows) // columns)
    gap = max(1, min(shape) // 12)
    table = np.full((lines * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for number, row in enumerate(rows):
        top = number // columns * (height + gap)
        left = number % columns * (width + gap)
        largest = float(np.abs(row).max()) or 1.0
        table[top : top + height, left : left + width] = row.reshape(height, width) / largest
    return table
