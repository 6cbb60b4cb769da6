"""An embedding in the plane, with labels, a scale or thumbnails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import (
    checked_labels,
    checked_places,
    images_of,
    known_labels,
    known_points,
    name_of,
    principal_plane,
)
from nearfar.errors import InvalidInputError
from nearfar.kernels import to_host
from nearfar.plots._canvas import (
    COLOURS,
    FAINT,
    MOST_KINDS,
    RASTERISED,
    Axes,
    Floats,
    Index,
    Kinds,
    add_outline,
    as_images,
    despine,
    grey_levels,
    kinds_or_scale,
    legend_beside,
    map_axes,
    pyplot,
    spread_rows,
)
from nearfar.validation import check_choice, check_number

NAMES = ("auto", "legend", "map", "none")
APART = 0.045  # of the extent of the map, between names on it
INK = 4e4  # square points of all markers together, before they shrink to the smallest
CROWDED = 20_000  # points without labels from which colours show how many overlap
CELLS = 200  # along the longer side of the map, in which overlapping points are counted
JITTER = 0.1  # of the extent, by which points of one dimension are spread across


@dataclass(eq=False, repr=False)
class EmbeddingDisplay:
    """Points in the plane: an embedding, or the images of points under a learned metric.

    Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    embedding : ndarray of shape (n_samples, 1) or (n_samples, 2)
        The places.
    labels : ndarray of shape (n_samples,) or None, default=None
        Classes or numbers that colour the points.
    images : ndarray of shape (n_samples, height, width) or (n_samples, height, width, 3), or None
        Pictures of the points.
    axis_labels : tuple of str, default=("axis 1", "axis 2")
        What the axes are called.
    name : str, default=""
        What is drawn, the title.
    note : str, default=""
        A second line of the title: of an unfolding its certified gap, and how much of the variance
        lies in the axes that are drawn.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure around it.
    points_ : list of matplotlib PathCollection
        The points, a collection for each marker.
    thumbnails_ : ndarray of int
        The rows whose pictures are drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LMNN
    >>> from nearfar.plots import EmbeddingDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> display = EmbeddingDisplay.from_estimator(LMNN().fit(X, y), X, y)
    """

    embedding: Floats
    labels: NDArray[Any] | None = None
    images: NDArray[Any] | None = None
    axis_labels: Sequence[str] = ("axis 1", "axis 2")
    name: str = ""
    note: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        components: Sequence[int] | None = None,
        images: Any = None,
        image_shape: Sequence[int] | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **drawing: Any,
    ) -> EmbeddingDisplay:
        """Draw where a fitted model puts points.

        Parameters
        ----------
        estimator : fitted estimator
            An embedding, a metric learner, a classifier around one, or any transformer or pipeline.
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None, default=None
            The points. None is those of ``fit``, where the model has them or their places.
        y : array-like of shape (n_samples,) or None, default=None
            Classes, or numbers on a scale: those that are not whole or of more than 50 kinds.
            Points whose number is NaN are grey; the title says how many there are.
        components : two ints or None, default=None
            Which columns to draw. None is the first two of an embedding in two dimensions, and else
            the two principal axes of all columns, which no rotation of the map changes.
        images : array-like of shape (n_samples, height, width[, 3]) or None, default=None
            Pictures of the points.
        image_shape : (height, width) or None, default=None
            The rows of X, or of ``images`` if they are given, are pictures of this shape.
        name : str or None, default=None
            Title. None is the name of the class.
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a figure.
        **drawing
            See `plot`.

        Returns
        -------
        EmbeddingDisplay
            The display.
        """
        places = images_of(estimator, X)
        labels = known_labels(estimator) if X is None and y is None else y
        if images is None and image_shape is not None:
            images = known_points(estimator) if X is None else X
        return cls.from_predictions(
            places,
            labels,
            components=components,
            images=images,
            image_shape=image_shape,
            name=name_of(estimator) if name is None else name,
            note=_certificate_note(estimator) if X is None and components is None else "",
            ax=ax,
            **drawing,
        )

    @classmethod
    def from_predictions(
        cls,
        embedding: Any,
        y: Any = None,
        *,
        components: Sequence[int] | None = None,
        images: Any = None,
        image_shape: Sequence[int] | None = None,
        name: str = "",
        note: str = "",
        ax: Axes | None = None,
        **drawing: Any,
    ) -> EmbeddingDisplay:
        """Draw places that are given.

        Parameters
        ----------
        embedding : array-like or torch.Tensor of shape (n_samples, n_components)
            The places.
        y : array-like of shape (n_samples,) or None, default=None
            Classes, or numbers on a scale.
        components, images, image_shape, ax, **drawing
            See `from_estimator`.
        name : str, default=""
            Title.
        note : str, default=""
            Its second line.

        Returns
        -------
        EmbeddingDisplay
            The display.
        """
        places, axis_labels = _in_plane(checked_places(embedding), components)
        n = len(places)
        pictures = None if images is None else as_images(to_host(images), image_shape, n)
        display = cls(places, checked_labels(y, n), pictures, axis_labels, name, note)
        return display.plot(ax=ax, **drawing)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        names: str = "auto",
        max_thumbnails: int = 150,
        thumbnail_size: float = 0.07,
        label_name: str = "",
        cmap: str = "viridis",
        image_cmap: str = "gray",
        max_points: int = 100_000,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> EmbeddingDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a figure.
        names : {"auto", "legend", "map", "none"}, default="auto"
            Whether the names of classes stand in a legend beside the picture, on the map in the
            midst of each class, or nowhere. "auto" is a legend for up to ten classes, and the map
            for up to fifty if there are no pictures.
        max_thumbnails : int, default=150
            Most pictures to draw; fewer where they would overlap.
        thumbnail_size : float, default=0.07
            Their larger side, relative to the width of the map.
        label_name : str, default=""
            What the labels are: the title of the legend or of the scale.
        cmap : str, default="viridis"
            Colours of a scale.
        image_cmap : str, default="gray"
            Colours of pictures that have one channel.
        max_points : int, default=100_000
            Most points to draw; of more a random sample, and the picture says so. Without labels,
            colours of more than 20 000 points show how many overlap.
        scatter_kwargs : dict or None, default=None
            Passed to ``Axes.scatter``.

        Returns
        -------
        EmbeddingDisplay
            The display itself.
        """
        check_choice("names", names, NAMES)
        check_number("max_points", max_points, Integral, 1, None)
        check_number("max_thumbnails", max_thumbnails, Integral, 0, None)
        check_number("thumbnail_size", thumbnail_size, Real, 0, 1, open_ends=True)
        places = self._places()
        ax = self.ax_ = despine(map_axes(ax, places))
        self.figure_ = ax.figure
        rows = spread_rows(len(places), max_points)
        kinds = None if self.labels is None else kinds_or_scale(self.labels)
        if kinds is None and len(rows) > CROWDED and not {"c", "color"} & set(scatter_kwargs or {}):
            kinds, label_name = _neighbour_counts(places), label_name or "points around"
        pictured = self.images is not None and max_thumbnails > 0
        style = _style(len(rows), faint=pictured) | (scatter_kwargs or {})
        self.points_ = _scatter(ax, places, rows, kinds, style, cmap)
        ax.set_aspect("equal", adjustable="datalim")
        self.thumbnails_ = np.empty(0, dtype=np.intp)
        if pictured:
            box = thumbnail_size * self._box(places)
            self.thumbnails_ = _non_overlapping(places, rows, 1.1 * box, max_thumbnails)
            self._draw_thumbnails(ax, kinds, box, image_cmap)
        if isinstance(kinds, Kinds):
            self._name(ax, places, kinds, names, label_name)
        elif kinds is not None and names != "none":
            bar = self.figure_.colorbar(self.points_[0], ax=ax, shrink=0.8, label=label_name)
            bar.solids.set_alpha(1)
        unknown = 0
        if kinds is not None and not isinstance(kinds, Kinds):
            unknown = len(_unknown_first(kinds, rows)[0])
        self._describe(ax, len(rows), unknown)
        return self

    def _places(self) -> Floats:
        """Places in the plane; points of one dimension are spread across it at random."""
        if self.embedding.shape[1] == 2:
            return self.embedding
        reach = JITTER * (float(np.ptp(self.embedding)) or 1.0)
        height = np.random.default_rng(0).uniform(-reach, reach, len(self.embedding))
        return np.column_stack([self.embedding[:, 0], height])

    def _box(self, places: Floats) -> Floats:
        """Width and height of a picture as large as the map."""
        assert self.images is not None
        height, width = self.images.shape[1:3]
        extent = float(np.ptp(places, axis=0).max()) or 1.0
        box: Floats = extent * np.array([width, height]) / max(height, width)
        return box

    def _draw_thumbnails(
        self, ax: Axes, kinds: Kinds | Floats | None, box: Floats, cmap: str
    ) -> None:
        from matplotlib.patches import Rectangle

        assert self.images is not None
        places, levels, half = self._places(), grey_levels(self.images, cmap), box / 2
        for row in self.thumbnails_:
            left, low = places[row] - half
            right, high = places[row] + half
            ax.imshow(
                self.images[row],
                extent=(left, right, low, high),
                aspect=ax.get_aspect(),
                zorder=3,
                **levels,
            )
            colour = kinds.colour(kinds.codes[row]) if isinstance(kinds, Kinds) else FAINT
            edge: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": 1.5}
            ax.add_patch(Rectangle((left, low), *box, zorder=4, **edge))
        ax.use_sticky_edges = False  # a margin around pictures too
        ax.autoscale_view()

    def _name(self, ax: Axes, places: Floats, kinds: Kinds, names: str, title: str) -> None:
        if names == "auto":
            pictured = len(self.thumbnails_) > 0
            many = len(kinds) > len(COLOURS)
            names = "map" if many else "legend"
            names = "none" if len(kinds) > MOST_KINDS or (many and pictured) else names
        if names == "legend":
            legend_beside(ax, kinds.handles(), title)
        elif names == "map":
            middles = [np.median(places[kinds.codes == c], axis=0) for c in range(len(kinds))]
            for name, middle in zip(
                kinds.names, _separate_labels(np.array(middles), places), strict=True
            ):
                text = ax.text(*middle, str(name), ha="center", va="center", zorder=5)
                text.set_fontweight("bold")
                add_outline(text)

    def _describe(self, ax: Axes, drawn: int, unknown: int) -> None:
        ax.set_xlabel(self.axis_labels[0])
        if self.embedding.shape[1] > 1:
            ax.set_ylabel(self.axis_labels[1])
        else:
            ax.set_yticks([])
            ax.spines["left"].set_visible(False)
        title = [self.name] if self.name else []
        if drawn < len(self.embedding):
            title.append(f"{drawn} of {len(self.embedding)} points")
        if unknown:
            title.append(f"{unknown} without a number (grey)")
        ax.set_title("\n".join(filter(None, [", ".join(title), self.note])))


def _certificate_note(estimator: Any) -> str:
    """What an unfolding proves of its embedding, and what its spectrum holds."""
    values, gap = getattr(estimator, "eigenvalues_", None), getattr(estimator, "duality_gap_", None)
    if values is None or gap is None or not np.sum(values) > 0:
        return ""
    drawn = min(2, np.shape(estimator.embedding_)[1])
    share = float(np.sum(values[:drawn]) / np.sum(values))
    return f"certified gap {gap:.1e}; {share:.1%} of the variance in {drawn} of {len(values)} axes"


def _neighbour_counts(places: Floats) -> Floats:
    """How many points lie in the cell of each one; cells are squares."""
    low, extent = places.min(axis=0), float(np.ptp(places, axis=0).max()) or 1.0
    columns, rows = ((places - low) * (CELLS / extent)).astype(np.intp).T
    cell = columns * (CELLS + 1) + rows
    counts: Floats = np.bincount(cell)[cell].astype(np.float64)
    return counts


def _in_plane(places: Floats, components: Sequence[int] | None) -> tuple[Floats, tuple[str, ...]]:
    """The columns to draw, or the principal axes of more than two, and what they are called."""
    if components is not None:
        chosen = np.asarray(components)
        good = chosen.shape == (2,) and chosen.dtype.kind in "iu" and len(set(chosen)) == 2
        if not good or chosen.min() < 0 or chosen.max() >= places.shape[1]:
            raise InvalidInputError(
                "components must be two different columns of the embedding, numbered from 0;"
                f" got {components!r}, and it has {places.shape[1]} columns."
            )
        return places[:, chosen], tuple(f"axis {column + 1}" for column in chosen)
    if places.shape[1] <= 2:
        return places, ("axis 1", "axis 2")
    axes, names = principal_plane(places)
    return (places - places.mean(axis=0)) @ axes.T, names


def _style(n: int, faint: bool) -> dict[str, Any]:
    """How so many points are drawn."""
    return {
        "s": float(np.clip(INK / n, 1.5, 30.0)),
        "alpha": 0.3 if faint else (0.85 if n <= RASTERISED else 0.5),
        "linewidths": 0,
        "rasterized": n > RASTERISED,
    }


def _scatter(
    ax: Axes,
    places: Floats,
    rows: Index,
    kinds: Kinds | Floats | None,
    style: dict[str, Any],
    cmap: str,
) -> list[Any]:
    """The points, a collection for each marker."""
    if kinds is None:
        return [ax.scatter(*places[rows].T, **({"color": COLOURS[0]} | style))]
    if not isinstance(kinds, Kinds):
        rows = np.concatenate(_unknown_first(kinds, rows))
        scale = {"cmap": cmap, "plotnonfinite": True} | style
        scale["cmap"] = pyplot().get_cmap(scale["cmap"]).with_extremes(bad=FAINT)
        return [ax.scatter(*places[rows].T, c=kinds[rows], **scale)]
    colours = kinds.colours()
    markers = kinds.codes[rows] // len(COLOURS)
    return [
        ax.scatter(
            *places[rows[markers == number]].T,
            c=colours[rows[markers == number]],
            marker=kinds.marker(number * len(COLOURS)),
            **style,
        )
        for number in np.unique(markers)
    ]


def _unknown_first(scale: Floats, rows: Index) -> tuple[Index, Index]:
    """The rows whose number is not finite, which lie below the others, and the others."""
    known = np.isfinite(scale[rows])
    return rows[~known], rows[known]


def _non_overlapping(places: Floats, rows: Index, box: Floats, most: int) -> Index:
    """Rows whose pictures of this width and height do not overlap, the first in this order."""
    chosen: list[int] = []
    free = rows
    while len(free) and len(chosen) < most:
        chosen.append(int(free[0]))
        free = free[(np.abs(places[free] - places[free[0]]) >= box).any(axis=1)]
    return np.array(chosen, dtype=np.intp)


def _separate_labels(middles: Floats, places: Floats) -> Floats:
    """Middles of classes, moved where their names would hide each other."""
    least = APART * np.ptp(places, axis=0).max()
    moved: Floats = middles + 1e-3 * least * np.random.default_rng(0).normal(size=middles.shape)
    for _ in range(100):
        gaps = moved[:, None] - moved[None]
        lengths = np.linalg.norm(gaps, axis=2) + 2 * least * np.eye(len(moved))
        if lengths.min() >= least:
            break
        pushes = (least / np.maximum(lengths, 1e-3 * least)).clip(1, None) - 1
        moved += 0.5 * (pushes[..., None] * gaps).sum(axis=1)
    return moved
