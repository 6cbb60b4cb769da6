"""Axes, pictures, and colours that the colour-blind can tell apart, for all displays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError, MissingExtraError

Axes = Any
"""matplotlib.axes.Axes, which is loaded only when something is drawn."""

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

# Any two differ by at least 27 (CIEDE2000), and by 15 as protanopes and deuteranopes see them.
COLOURS = (
    *("#2b7bba", "#f59a12", "#0e874e", "#e5090d", "#bb9bff"),
    *("#3bd5ca", "#a1316a", "#393220", "#351bd2", "#af908c"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # of the first, second, ... ten classes
NEAR, FAR = "#0072B2", "#D55E00"  # Okabe & Ito: right and wrong, same and different, after
BEFORE, AFTER = "#8a8a8a", NEAR
FAINT = "#8a8a8a"
MOST_KINDS = 50  # numbers of more kinds are a scale, and more names than these are not shown
RASTERISED = 3000  # points from which a vector graphic holds them as pixels


def pyplot() -> Any:
    """The module matplotlib.pyplot."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError.for_extra("matplotlib", "plot") from error
    return plt


def one_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes that were given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    _, ax = pyplot().subplots(figsize=size, layout="constrained")
    return ax


def map_axes(ax: Axes | None, places: Floats) -> Axes:
    """Axes for a map of places (n, 2), whose figure is made as high as they need."""
    width, height = np.ptp(places, axis=0)
    share = float(np.clip(height / width, 0.4, 1.1)) if width > 0 else 1.0
    return one_axes(ax, (6.4, 5.0 * share + 0.9))


def several_axes(ax: Any, names: Sequence[str], size: tuple[float, float]) -> NDArray[Any]:
    """Axes for each named panel: those that were given, or a new figure with this size of each."""
    count = len(names)
    if ax is None:
        _, axes = pyplot().subplots(
            1, count, figsize=(size[0] * count, size[1]), layout="constrained", squeeze=False
        )
        return np.asarray(axes[0])
    given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(given) != count:
        raise InvalidInputError(
            f"there are {count} panels ({', '.join(names)}) and {len(given)} axes. Give an array of"
            f" {count} axes, or choose other panels."
        )
    return given


def despine(ax: Axes) -> Axes:
    """Axes without the lines above and beside the picture."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def blank(ax: Axes) -> Axes:
    """Axes without ticks and lines."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    return ax


def spread_rows(n: int, most: int) -> Index:
    """At most ``most`` of n rows in random order, so that no class hides another."""
    return np.random.default_rng(0).permutation(n)[:most]


# -- labels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kinds:
    """Labels as classes: colour and marker by number, the latter changing every ten classes."""

    names: NDArray[Any]
    codes: Index

    def __len__(self) -> int:
        return len(self.names)

    def colour(self, code: int) -> str:
        """The colour of a class."""
        return COLOURS[code % len(COLOURS)]

    def marker(self, code: int) -> str:
        """The marker of a class."""
        return MARKERS[code // len(COLOURS) % len(MARKERS)]

    def colours(self) -> NDArray[np.str_]:
        """The colour of each row."""
        return np.array(COLOURS)[self.codes % len(COLOURS)]

    def handles(self) -> list[Any]:
        """Entries of a legend."""
        from matplotlib.lines import Line2D

        return [
            Line2D(
                [], [], ls="", marker=self.marker(code), color=self.colour(code), label=str(name)
            )
            for code, name in enumerate(self.names)
        ]


def kinds_or_scale(labels: NDArray[Any]) -> Kinds | Floats:
    """Labels as classes, or numbers on a scale: not whole, or of more than `MOST_KINDS` kinds."""
    try:
        names, codes = np.unique(labels, return_inverse=True)
    except TypeError:  # labels of several types, such as words and None
        names, codes = np.unique(labels.astype(str), return_inverse=True)
    if labels.dtype.kind in "fiu":
        if len(names) > MOST_KINDS or (names != np.round(names)).any():
            return labels.astype(np.float64)
        names = names.astype(np.int64)
    return Kinds(names, codes.reshape(-1))


def legend_beside(ax: Axes, handles: list[Any], title: str = "") -> None:
    """A legend to the right of the axes, where it hides nothing."""
    ax.legend(
        handles=handles,
        title=title or None,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
        frameon=False,
    )


def legend_above(ax: Axes, title: str = "") -> None:
    """A legend in a line over the axes, and a title above it."""
    legend = ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
        frameon=False,
        borderaxespad=0.2,
        columnspacing=1.2,
        handletextpad=0.5,
        markerscale=1.5,
    )
    for handle in legend.legend_handles:
        handle.set_alpha(1)
    ax.set_title(title, fontsize="medium", pad=24)


def add_outline(text: Any) -> None:
    """Give a text a rim of the background, so that it can be read over points."""
    from matplotlib import patheffects

    background = text.axes.get_facecolor()
    text.set_path_effects([patheffects.withStroke(linewidth=3, foreground=background)])


def ink() -> str:
    """The colour of texts, which is that of lines over points too."""
    return str(pyplot().rcParams["text.color"])


# -- pictures ----------------------------------------------------------------------------------


def as_images(images: NDArray[Any], image_shape: Sequence[int] | None, n: int) -> NDArray[Any]:
    """Pictures (n, height, width) or, in colour, (n, height, width, 3 or 4)."""
    if image_shape is not None and images.ndim == 2:
        if int(np.prod(image_shape)) != images.shape[1]:
            raise InvalidInputError(
                f"image_shape={tuple(image_shape)} needs {int(np.prod(image_shape))} values a row;"
                f" there are {images.shape[1]}. Correct it, or give images."
            )
        images = images.reshape(len(images), *image_shape)
    coloured = images.ndim == 4 and images.shape[3] in (3, 4)
    if not (images.ndim == 3 or coloured) or len(images) != n:
        raise InvalidInputError(
            f"images must have shape ({n}, height, width), or ({n}, height, width, 3) in colour;"
            f" got {images.shape}. For one row of values each give image_shape=(height, width)."
        )
    if coloured and images.dtype.kind == "f":
        return images.clip(0, 1) if images.max() <= 1 else images.astype(np.uint8)
    return images


def grey_levels(images: NDArray[Any], cmap: str) -> dict[str, Any]:
    """Arguments with which ``imshow`` draws all of these pictures on one scale."""
    if images.ndim == 4:
        return {}
    return {"cmap": cmap, "vmin": images.min(), "vmax": images.max()}
