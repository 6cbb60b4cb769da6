"""Distances before and after an embedding: the Shepard diagram, and how edges changed."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from nearfar.analysis.distances import best_factor, edge_lengths, given_lengths, random_pairs
from nearfar.analysis.models import (
    checked_places,
    holds,
    images_of,
    known_points,
    metric_of,
    name_of,
    row_count,
)
from nearfar.errors import InvalidInputError
from nearfar.graphs import NeighborhoodGraph
from nearfar.plots._canvas import (
    FAINT,
    FAR,
    NEAR,
    RASTERISED,
    Axes,
    Floats,
    hide_outer_spines,
    legend_above,
    several_axes,
)
from nearfar.validation import check_choice, check_number

BINS = 40
METRICS = ("euclidean", "precomputed", "kernel")
MOST_EDGES = 20_000  # or other pairs, in the diagram


@dataclass(eq=False, repr=False)
class ShepardDisplay:
    """Distances of pairs in the embedding against those that were given.

    Points on the line keep their distance. With a graph, its edges stand out, and a second panel
    shows by how much their lengths changed. Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    given, embedded : ndarray of shape (n_pairs,)
        Distances of pairs before and after.
    edges : tuple of two ndarray of shape (n_edges,), or None, default=None
        Lengths of the edges of a graph before and after.
    slope : float or None, default=None
        Of the line that is drawn; None is that of the least squared errors.
    name : str, default=""
        What the embedding is called.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The diagram, and with edges their changes.
    figure_ : matplotlib Figure
        The figure around them.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import MVU
    >>> from nearfar.plots import ShepardDisplay
    >>> X, _ = make_swiss_roll(100, random_state=0)
    >>> display = ShepardDisplay.from_estimator(MVU(tol=1e-4).fit(X))
    """

    given: Floats
    embedded: Floats
    edges: tuple[Floats, Floats] | None = None
    slope: float | None = None
    name: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        n_pairs: int = 5000,
        random_state: int | None = 0,
        name: str | None = None,
        ax: Any = None,
        **drawing: Any,
    ) -> ShepardDisplay:
        """Draw how a fitted model changed distances.

        Parameters
        ----------
        estimator : fitted estimator
            An embedding, a metric learner, a classifier around one, or any transformer or pipeline.
        X : array-like, torch.Tensor or NeighborhoodGraph, or None, default=None
            What the model was fitted on, points or with ``metric="precomputed"`` distances; for
            metric learners any points. None is what the model keeps: points, or the graph alone.
        n_pairs : int, default=5000
            Pairs to draw at random.
        random_state : int or None, default=0
            Seed of the draw.
        name : str or None, default=None
            Title. None is the name of the class.
        ax, **drawing
            See `plot`.

        Returns
        -------
        ShepardDisplay
            The display.
        """
        model = metric_of(estimator)
        embeds = hasattr(model, "embedding_")
        places = images_of(estimator, None if embeds else X)
        graph, metric = getattr(model, "graph_", None), holds(model)
        if isinstance(X, NeighborhoodGraph):
            X, graph, metric = X.points, X, "euclidean"
        if X is None:
            X, metric = known_points(model if embeds else estimator), "euclidean"
        if X is None and graph is None:
            raise InvalidInputError(
                f"{name_of(model)} does not keep what it was fitted on. Give it as X."
            )
        keeps_lengths = embeds and name_of(model) != "NonmetricMDS"
        return cls.from_predictions(
            X,
            places,
            graph=graph,
            metric=metric,
            slope=1.0 if keeps_lengths else None,
            n_pairs=n_pairs,
            random_state=random_state,
            name=name_of(estimator) if name is None else name,
            ax=ax,
            **drawing,
        )

    @classmethod
    def from_predictions(
        cls,
        X: Any,
        embedding: Any,
        *,
        graph: NeighborhoodGraph | None = None,
        metric: str = "euclidean",
        slope: float | None = 1.0,
        n_pairs: int = 5000,
        random_state: int | None = 0,
        name: str = "",
        ax: Any = None,
        **drawing: Any,
    ) -> ShepardDisplay:
        """Draw how given places keep the distances of points.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None
            The points; or all distances or kernel values, as ``metric`` says, NaN or infinite where
            they are not known. None with a graph, whose edges alone are drawn.
        embedding : array-like or torch.Tensor of shape (n_samples, n_components)
            Their places.
        graph : NeighborhoodGraph or None, default=None
            A graph of the points, whose edges are compared too.
        metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
            What X holds.
        slope : float or None, default=1.0
            Of the line that is drawn: 1 is equal distances, None the best factor.
        n_pairs, random_state, ax, **drawing
            See `from_estimator`.
        name : str, default=""
            Title.

        Returns
        -------
        ShepardDisplay
            The display.
        """
        check_number("n_pairs", n_pairs, Integral, 1, None)
        check_choice("metric", metric, METRICS)
        places = checked_places(embedding)
        n = len(places)
        given, embedded = np.empty(0), np.empty(0)
        if X is not None:
            rows = row_count(X)
            if rows != n:
                raise InvalidInputError(
                    f"the embedding must have a row for each of the {rows} points; it has {n}."
                    " Check that they belong together."
                )
            heads, tails = random_pairs(n, n_pairs, random_state)
            given = given_lengths(X, heads, tails, metric)
            known = np.isfinite(given)
            given, embedded = given[known], edge_lengths(places, heads[known], tails[known])
        edges = None
        if graph is not None:
            edges = graph.lengths, edge_lengths(places, graph.heads, graph.tails)
        return cls(given, embedded, edges, slope, name).plot(ax, **drawing)

    def rank_correlation(self) -> float:
        """Spearman's correlation of the distances of pairs before and after."""
        return float(spearmanr(self.given, self.embedded).statistic)

    def plot(self, ax: Any = None, *, bins: int = BINS) -> ShepardDisplay:
        """Draw it.

        Parameters
        ----------
        ax : array of matplotlib Axes or None, default=None
            One axes, or with edges two; None makes a figure.
        bins : int, default=40
            Bars of the changes of edges.

        Returns
        -------
        ShepardDisplay
            The display itself.
        """
        panels = ["distances"] if self.edges is None else ["distances", "edges"]
        self.axes_ = several_axes(ax, panels, (4.4, 4.0))
        self.figure_ = self.axes_[0].figure
        self._draw_diagram(hide_outer_spines(self.axes_[0]))
        if self.edges is not None:
            self._draw_changes(hide_outer_spines(self.axes_[1]), *self.edges, bins)
        return self

    def _draw_diagram(self, ax: Axes) -> None:
        end = 0.0
        for label, colour, lengths in (
            ("pairs", FAINT, (self.given, self.embedded)),
            ("edges", NEAR, self.edges or (np.empty(0), np.empty(0))),
        ):
            count = len(lengths[0])
            if not count:
                continue
            before, after = (part[:: max(1, count // MOST_EDGES)] for part in lengths)
            style = {"s": 6, "alpha": 0.4, "linewidths": 0, "rasterized": len(before) > RASTERISED}
            ax.scatter(before, after, color=colour, label=label, **style)
            end = max(end, float(lengths[0].max()))
        slope = self._slope()
        word = "equal" if self.slope == 1.0 else f"factor {slope:.3g}"
        ax.plot([0, end], [0, slope * end], color=FAR, linewidth=1.2, linestyle="--", label=word)
        ax.set(xlabel="distance given", ylabel="distance in the embedding")
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        title = [self.name] if self.name else []
        if len(self.given) > 1:
            title.append(f"rank correlation {self.rank_correlation():.3f}")
        legend_above(ax, ", ".join(title))

    def _slope(self) -> float:
        if self.slope is not None:
            return self.slope
        before, after = self.given, self.embedded
        if self.edges is not None and not len(before):
            before, after = self.edges
        return best_factor(before, after)

    def _draw_changes(self, ax: Axes, before: Floats, after: Floats, bins: int) -> None:
        ratios = after[before > 0] / before[before > 0]
        changes = 100 * (ratios / (self._slope() or 1.0) - 1)
        ax.hist(changes, bins, color=NEAR)
        ax.axvline(0, color=FAR, linewidth=1.2, linestyle="--")
        ax.set(xlabel="change of length (%)", ylabel="edges")
        sizes = np.abs(changes)
        facts = f"median {np.median(sizes):.3g}%, most {sizes.max():.3g}%"
        ax.set_title(f"{len(changes)} edges: {facts}", fontsize="medium", pad=24)
