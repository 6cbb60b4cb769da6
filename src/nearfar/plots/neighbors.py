"""The nearest neighbours of some points before learning and after it, as pictures or words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import (
    checked_labels,
    has_several_metrics,
    holds,
    images_of,
    known_labels,
    known_points,
    metric_of,
    name_of,
    row_count,
    row_numbers,
)
from nearfar.analysis.neighbors import nearest_by_distances, nearest_by_own_metrics, nearest_rows
from nearfar.errors import InvalidInputError
from nearfar.evaluation.spectra import all_distances
from nearfar.kernels import to_host
from nearfar.plots._canvas import (
    FAINT,
    FAR,
    NEAR,
    Axes,
    Index,
    as_images,
    blank,
    grey_levels,
    one_axes,
)
from nearfar.validation import check_choice, check_number

SHOW = ("changed", "helped", "hurt", "random")
GAP, WIDE_GAP = 0.08, 0.3  # between cells and between groups of them, in inches
PICTURE = 0.75  # width of a cell with a picture, in inches
WORDS = (1.75, 0.66)  # width and height of a cell with words, in inches
LETTERS = 22  # of a text that stand in a line of a cell
LINES = 4  # of a text that stand in a cell


@dataclass(eq=False, repr=False)
class NeighborsDisplay:
    """Points with their nearest neighbours, one row a point: before learning, and after it.

    Frames show whether a neighbour has the label of the point: full and blue if it has, dashed and
    red if not. Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    queries : ndarray of shape (n_queries,)
        The points whose neighbours are known, as row numbers.
    before, after : ndarray of shape (n_queries, n_neighbors)
        Their neighbours as row numbers, nearest first.
    labels : ndarray of shape (n_samples,) or None, default=None
        Labels of all rows.
    images : ndarray of shape (n_samples, height, width) or (n_samples, height, width, 3), or None
        Pictures of all rows.
    texts : sequence of str or None, default=None
        Words for all rows, where there are no pictures.
    names : (str, str), default=("before", "after")
        What stands over the neighbours before and after.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure around it.
    rows_ : ndarray of int
        The rows that were drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import LMNN
    >>> from nearfar.plots import NeighborsDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LMNN().fit(X[:900], y[:900])
    >>> display = NeighborsDisplay.from_estimator(
    ...     model, X, y, queries=range(900, 1797), image_shape=(8, 8)
    ... )
    """

    queries: Index
    before: Index
    after: Index
    labels: NDArray[Any] | None = None
    images: NDArray[Any] | None = None
    texts: Sequence[str] | None = None
    names: tuple[str, str] = ("before", "after")

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        queries: Any = None,
        n_neighbors: int = 3,
        baseline: Any = None,
        images: Any = None,
        image_shape: Sequence[int] | None = None,
        texts: Sequence[str] | None = None,
        name: str | None = None,
        max_queries: int = 1000,
        ax: Axes | None = None,
        **drawing: Any,
    ) -> NeighborsDisplay:
        """Find and draw neighbours by the Euclidean distance and by a fitted model.

        Parameters
        ----------
        estimator : fitted estimator
            A metric learner, with one metric or several, a classifier around one, an embedding, or
            any transformer or pipeline.
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None, default=None
            The points, or the distances or kernel values that the model takes. None is the points
            that the model keeps.
        y : array-like of shape (n_samples,) or None, default=None
            Their labels.
        queries : array-like of int or None, default=None
            The rows of X whose neighbours are found. They are searched among the other rows, for
            example those of training, or among all rows if every row is a query. None is every
            row.
        n_neighbors : int, default=3
            How many neighbours.
        baseline : fitted transformer or None, default=None
            What to compare with. None is the Euclidean distance of X.
        images : array-like of shape (n_samples, height, width[, 3]) or None, default=None
            Pictures of the points.
        image_shape : (height, width) or None, default=None
            The rows of X, or of ``images`` if they are given, are pictures of this shape.
        texts : sequence of str or None, default=None
            Words for the points, where there are no pictures.
        name : str or None, default=None
            What to call the model. None is the name of the class.
        max_queries : int, default=1000
            Most queries to find neighbours of; of more a random sample.
        ax, **drawing
            See `plot`.

        Returns
        -------
        NeighborsDisplay
            The display.
        """
        fitted = X is None
        if fitted:
            X, y = (
                known_points(metric_of(estimator)),
                y if y is not None else known_labels(estimator),
            )
            if X is None:
                raise InvalidInputError(
                    f"{name_of(estimator)} does not keep the points that it was fitted on. Give"
                    " them as X."
                )
        n = row_count(X)
        labels = checked_labels(y, n)
        check_number("n_neighbors", n_neighbors, Integral, 1, None)
        check_number("max_queries", max_queries, Integral, 1, None)
        rows = np.arange(n) if queries is None else _some_rows("queries", queries, n)
        others = np.setdiff1d(np.arange(n), rows)
        others = np.arange(n) if not len(others) else others
        if len(rows) > max_queries:
            rows = np.sort(np.random.default_rng(0).choice(rows, max_queries, replace=False))
        _check_enough(len(others) - bool(np.isin(rows, others).any()), n_neighbors)
        held = "euclidean" if fitted else holds(metric_of(estimator))
        if baseline is not None:
            before = nearest_rows(images_of(baseline, X), rows, others, n_neighbors).rows
        elif held == "euclidean":
            points = to_host(X).astype(np.float64)
            before = nearest_rows(points, rows, others, n_neighbors).rows
        else:
            D = all_distances(X, held)
            before = nearest_by_distances(D, rows, others, n_neighbors).rows
        after = _nearest_learned(estimator, X, labels, rows, others, n_neighbors)
        if images is None and image_shape is not None:
            images = X
        return cls.from_predictions(
            rows,
            before,
            after,
            labels,
            images=images,
            image_shape=image_shape,
            texts=texts,
            names=(
                f"before: {'Euclidean' if baseline is None else name_of(baseline)}",
                f"after: {name or name_of(estimator)}",
            ),
            ax=ax,
            **drawing,
        )

    @classmethod
    def from_predictions(
        cls,
        queries: Any,
        before: Any,
        after: Any,
        y: Any = None,
        *,
        images: Any = None,
        image_shape: Sequence[int] | None = None,
        texts: Sequence[str] | None = None,
        names: tuple[str, str] = ("before", "after"),
        ax: Axes | None = None,
        **drawing: Any,
    ) -> NeighborsDisplay:
        """Draw neighbours that are given.

        Parameters
        ----------
        queries : array-like of int, of shape (n_queries,)
            The points, as row numbers.
        before, after : array-like of int, of shape (n_queries, n_neighbors)
            Their neighbours, as row numbers, nearest first.
        y : array-like of shape (n_samples,) or None, default=None
            Labels of all rows.
        images, image_shape, texts, ax, **drawing
            See `from_estimator`; for all rows.
        names : (str, str), default=("before", "after")
            What stands over the neighbours before and after.

        Returns
        -------
        NeighborsDisplay
            The display.
        """
        rows, old, new = (to_host(numbers).astype(np.intp) for numbers in (queries, before, after))
        if rows.ndim != 1 or old.ndim != 2 or old.shape != new.shape or len(old) != len(rows):
            raise InvalidInputError(
                "before and after must have shape (n_queries, n_neighbors); got"
                f" {old.shape} and {new.shape} for {len(rows)} queries. Check that they belong"
                " together."
            )
        least = 1 + int(max(part.max(initial=-1) for part in (rows, old, new)))
        n = len(to_host(y)) if y is not None else least
        pictures = None
        if images is not None:
            pictures = to_host(images)
            n = max(n, len(pictures))
            pictures = as_images(pictures, image_shape, n)
        if texts is not None and len(texts) < least:
            raise InvalidInputError(
                f"texts must have an entry for each row; there are {len(texts)}, and row"
                f" {least - 1} is to be shown. Give them all."
            )
        labels = checked_labels(y, max(n, least))
        return cls(rows, old, new, labels, pictures, texts, names).plot(ax, **drawing)

    def agreement(self) -> tuple[float, float]:
        """The share of neighbours that have the label of their query, before and after."""
        if self.labels is None:
            raise InvalidInputError("labels are needed to tell which neighbours agree. Give y.")
        own = self.labels[self.queries][:, None]
        before, after = (float((self.labels[near] == own).mean()) for near in self._both())
        return before, after

    def plot(
        self,
        ax: Axes | None = None,
        *,
        show: str | Sequence[int] = "changed",
        n_rows: int = 6,
        cmap: str = "gray",
    ) -> NeighborsDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a figure of the right size.
        show : {"changed", "helped", "hurt", "random"} or array-like of int, default="changed"
            Which queries to draw: those with the most new neighbours, those that gained or lost the
            most neighbours of their label, some at random, or these row numbers.
        n_rows : int, default=6
            Most queries to draw.
        cmap : str, default="gray"
            Colours of pictures.

        Returns
        -------
        NeighborsDisplay
            The display itself.
        """
        check_number("n_rows", n_rows, Integral, 1, None)
        chosen = self._select_queries(show, n_rows)
        if not len(chosen):
            raise InvalidInputError(
                f"no query was {show}, so that there is nothing to draw. Choose another show."
            )
        self.rows_ = self.queries[chosen]
        k, (width, height) = self.before.shape[1], self._cell()
        lefts = np.array([0, *range(k), *range(k)]) * (width + GAP)
        lefts[1:] += width + WIDE_GAP
        lefts[1 + k :] += k * (width + GAP) + WIDE_GAP - GAP
        right, depth = lefts[-1] + width, len(chosen) * (height + GAP)
        if ax is None:
            ax = one_axes(None, (right + 0.2, depth + 0.6))
        self.ax_, self.figure_ = blank(ax), ax.figure
        levels = {} if self.images is None else grey_levels(self.images, cmap)
        for place, row in enumerate(chosen):
            top = place * (height + GAP)
            query = int(self.queries[row])
            items = [query, *self.before[row], *self.after[row]]
            for left, item in zip(lefts, items, strict=True):
                self._draw_cell(ax, (left, top), int(item), query, levels)
        for left, head in zip(lefts[[0, 1, 1 + k]], self._heads(), strict=True):
            ax.text(left, -0.5 * GAP, head, ha="left", va="bottom")
        ax.set_xlim(-GAP / 2, right + GAP / 2)
        ax.set_ylim(depth - GAP / 2, -GAP / 2)
        ax.set_aspect("equal" if self.images is not None else "auto")
        return self

    def _cell(self) -> tuple[float, float]:
        """Width and height of a cell in inches."""
        if self.images is None:
            return WORDS
        return PICTURE, PICTURE * float(self.images.shape[1] / self.images.shape[2])

    def _label_gain(self) -> Index:
        """How many more neighbours of a query have its label after learning."""
        assert self.labels is not None
        own = self.labels[self.queries][:, None]
        old, new = ((self.labels[near] == own).sum(axis=1) for near in self._both())
        return np.asarray(new - old)

    def _both(self) -> tuple[Index, Index]:
        return self.before, self.after

    def _select_queries(self, show: Any, n_rows: int) -> Index:
        """Places among the queries."""
        if not isinstance(show, str):
            rows = _some_rows("show", show, int(self.queries.max()) + 1)
            places = [np.flatnonzero(self.queries == row) for row in rows]
            if any(len(place) == 0 for place in places):
                raise InvalidInputError(
                    "show must name queries whose neighbours are known. Give them as queries."
                )
            return np.concatenate(places)[:n_rows]
        check_choice("show", show, SHOW, or_else=", or row numbers")
        if show == "random":
            order = np.random.default_rng(0).permutation(len(self.queries))[:n_rows]
            return np.sort(order)
        if show == "changed":
            score = np.array([len(np.setdiff1d(*both)) for both in zip(*self._both(), strict=True)])
            if self.labels is not None:  # among equals, changes of the label tell more
                score = score + np.abs(self._label_gain()) / (1 + self.before.shape[1])
        else:
            if self.labels is None:
                raise InvalidInputError(f"show={show!r} needs labels. Give y.")
            score = self._label_gain() if show == "helped" else -self._label_gain()
        best = np.argsort(-score, kind="stable")[:n_rows]
        return best if show == "changed" else np.asarray(best[score[best] > 0])

    def _draw_cell(
        self, ax: Axes, corner: tuple[float, float], item: int, query: int, levels: Any
    ) -> None:
        from matplotlib.patches import Rectangle

        (left, top), (width, height) = corner, self._cell()
        style: dict[str, Any] = {"edgecolor": FAINT, "linewidth": 1.0}
        if item != query and self.labels is not None:
            same = self.labels[item] == self.labels[query]
            style = {"edgecolor": NEAR if same else FAR, "linewidth": 2.2}
            style["linestyle"] = "-" if same else (0, (2, 1.2))
        frame = Rectangle((left, top), width, height, fill=False, clip_on=False, **style)
        ax.add_patch(frame)
        if self.images is not None:
            extent = (left, left + width, top + height, top)
            ax.imshow(self.images[item], extent=extent, **levels)
        else:
            middle = (left + width / 2, top + height / 2)
            text = ax.text(*middle, self._words(item), ha="center", va="center", fontsize="small")
            text.set_clip_path(frame)

    def _words(self, item: int) -> str:
        """What a cell without a picture says."""
        if self.texts is None:
            label = "" if self.labels is None else f"{self.labels[item]}\n"
            return f"{label}row {item}"
        from textwrap import wrap

        lines = wrap(str(self.texts[item]), LETTERS) or [""]
        if len(lines) > LINES:
            lines = [*lines[: LINES - 1], lines[LINES - 1][: LETTERS - 1] + "…"]
        return "\n".join(lines)

    def _heads(self) -> list[str]:
        """What stands over the three groups, with the agreement over all queries."""
        heads = list(self.names)
        if self.labels is not None:
            shares = zip(heads, self.agreement(), strict=True)
            heads = [f"{head}\n{share:.1%} of the same label" for head, share in shares]
        return ["query", *heads]


def _nearest_learned(
    estimator: Any, X: Any, labels: NDArray[Any] | None, rows: Index, others: Index, k: int
) -> Index:
    model = metric_of(estimator)
    if not has_several_metrics(model):
        keeps = X is known_points(model) and hasattr(model, "embedding_")
        return nearest_rows(images_of(estimator, None if keeps else X), rows, others, k).rows
    if labels is None:
        raise InvalidInputError(
            f"{name_of(model)} measures the distance to a point by the metric of its label. Give y."
        )
    return nearest_by_own_metrics(model, X, labels, rows, others, k).rows


def _some_rows(name: str, rows: Any, n: int) -> Index:
    numbers = row_numbers(name, rows, n)
    if not len(numbers):
        raise InvalidInputError(f"{name} must name at least one row; got none.")
    return numbers


def _check_enough(n: int, k: int) -> None:
    if n < k:
        raise InvalidInputError(
            f"n_neighbors={k} needs as many points to search among; there are {n}. Lower it, or"
            " leave more rows out of queries."
        )
