"""How a fit went: objective, active triplets, gap and more, by seconds or iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.analysis.convergence import Line, Trace, proved_gap
from nearfar.analysis.models import metric_of, name_of, unwrapped, without_classifier
from nearfar.errors import InvalidInputError
from nearfar.plots._canvas import COLOURS, FAINT, Axes, Floats, despine, several_axes
from nearfar.validation import check_choice

USUAL = (
    "objective",
    "active_triplets",
    "duality_gap",
    "sampled_gap",
    "residual",
    "validation_error",
)
WIDE = 5.0  # ratio of the largest to the least number from which the scale is logarithmic
LOGARITHMIC = ("duality_gap", "sampled_gap", "residual", "violation")
GAPS = ("duality_gap", "sampled_gap")  # in place of estimates
MOST_MARKERS = 60  # iterations up to which each is marked


@dataclass(eq=False, repr=False)
class ConvergenceDisplay:
    """What every iteration of a fit reached.

    Create it with `from_estimator`, or from a history.

    Parameters
    ----------
    history : list of dict
        What ``history_`` holds: n_iter, seconds, objective, residual, duality_gap and more.
    tol : float or None, default=None
        The residual at which the fit was to stop.
    name : str, default=""
        What was fitted, the title.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for each panel.
    figure_ : matplotlib Figure
        The figure around them.
    panels_ : tuple of str
        What the panels show.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LMNN
    >>> from nearfar.plots import ConvergenceDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> display = ConvergenceDisplay.from_estimator(LMNN().fit(X, y))
    """

    history: list[dict[str, Any]]
    tol: float | None = None
    name: str = ""

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: Any = None, **drawing: Any
    ) -> ConvergenceDisplay:
        """Draw how the fit of a model went.

        Parameters
        ----------
        estimator : fitted estimator
            One with ``history_``, or a classifier around it.
        name : str or None, default=None
            Title. None is the name of the class and why the fit ended.
        ax, **drawing
            See `plot`.

        Returns
        -------
        ConvergenceDisplay
            The display.
        """
        model = without_classifier(unwrapped(estimator))
        model = metric_of(model.steps[-1][1] if hasattr(model, "steps") else model)
        if not getattr(model, "history_", None):
            reason = "was not iterated" if hasattr(model, "history_") else "keeps no history_"
            raise InvalidInputError(
                f"there is nothing to draw: the fit of {name_of(model)} {reason}. Use it for models"
                " that are found step by step, such as LMNN or MVU."
            )
        if name is None:
            name = f"{name_of(model)}: {model.status_.replace('_', ' ')}"
            gap = proved_gap(model)
            name += "" if gap is None else f", {gap}"
        display = cls(model.history_, getattr(model, "tol", None), name)
        return display.plot(ax, **drawing)

    def plot(
        self,
        ax: Any = None,
        *,
        x: str = "seconds",
        panels: Sequence[str] | None = None,
        color: str = COLOURS[0],
        label: str | None = None,
    ) -> ConvergenceDisplay:
        """Draw it.

        Parameters
        ----------
        ax : array of matplotlib Axes or None, default=None
            An axes for each panel; None makes a figure. Give ``axes_`` of another display to draw
            over it.
        x : {"seconds", "n_iter"}, default="seconds"
            What the horizontal axis shows.
        panels : sequence of str or None, default=None
            Which numbers of the history to draw. None is those of "objective", "active_triplets",
            "duality_gap" and "validation_error" that it has, with "residual" in place of
            "duality_gap" where nothing was certified. Estimates between certified gaps are drawn
            as a dashed line in the panel of these.
        color : str, default="#2b7bba"
            Colour of the lines.
        label : str or None, default=None
            Name of the lines, where several fits are drawn together.

        Returns
        -------
        ConvergenceDisplay
            The display itself.
        """
        check_choice("x", x, ("seconds", "n_iter"))
        self.panels_ = self._usual_panels() if panels is None else tuple(panels)
        for panel in self.panels_:
            if not len(self._trace.line(panel).y):
                raise InvalidInputError(
                    f"the history has no numbers called {panel!r}; it has"
                    f" {', '.join(self._trace.keys)}. Choose among these."
                )
        self.axes_ = several_axes(ax, self.panels_, (3.6, 3.2))
        self.figure_ = self.axes_[0].figure
        for axes, panel in zip(self.axes_, self.panels_, strict=True):
            self._draw(despine(axes), panel, x, color, label)
        if label is not None:
            self.axes_[0].legend(frameon=False)
        if ax is None:
            self.figure_.suptitle(self.name)
        return self

    def _draw(self, ax: Axes, panel: str, x: str, color: str, label: str | None) -> None:
        places, values = self._trace.line(panel, x)
        others = ax.get_xlim() if ax.has_data() else None  # of another fit in these axes
        marker = "." if len(values) <= MOST_MARKERS else None
        ax.plot(places, values, color=color, marker=marker, linewidth=1.5, label=label)
        beside = self._beside(panel, x)
        if beside is not None and len(beside[1].x):
            word = None if label else beside[0]
            ax.plot(*beside[1], color=color, alpha=0.6, linestyle="--", label=word)
            if label is None:
                ax.legend(frameon=False)
        for place in self._trace.turns(x):
            ax.axvline(place, color=FAINT, linewidth=0.6, linestyle=":", zorder=0)
        if values.min() > 0 and (panel in LOGARITHMIC or values.max() > WIDE * values.min()):
            ax.set_yscale("log")
            if panel not in LOGARITHMIC:
                _plain_numbers(ax, values)
        if panel in (*GAPS, "residual") and self.tol:
            self._draw_tolerance(ax)
        elif panel == "objective":
            reach = max(np.ptp(values), abs(values[-1]))
            ax.set_ylim(  # bounds may be far away at first
                bottom=max(ax.get_ylim()[0], values.min() - reach),
                top=min(ax.get_ylim()[1], values.max() + reach),
            )
        low, high = self._span(x)
        ax.set_xlim((low, high) if others is None else (min(low, others[0]), max(high, others[1])))
        if ax.get_xscale() == "linear":
            ax.locator_params(axis="x", nbins=5)
        ax.set_xlabel("seconds" if x == "seconds" else "iterations")
        ax.set_title(self._trace.title(panel), fontsize="medium")

    def _draw_tolerance(self, ax: Axes) -> None:
        assert self.tol is not None
        ax.axhline(self.tol, color=FAINT, linewidth=1, linestyle="--", zorder=0)
        across = {"transform": ax.get_yaxis_transform(), "ha": "left", "va": "bottom"}
        ax.text(0.02, self.tol, f"tol={self.tol:g}", **across)
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, self.tol / 3), max(high, 10 * self.tol))

    @property
    def _trace(self) -> Trace:
        return Trace(self.history)

    def _usual_panels(self) -> tuple[str, ...]:
        """What is drawn by default; estimates have a panel where there was no proof."""
        known = [panel for panel in USUAL if len(self._trace.line(panel).y)]
        if set(GAPS) & set(known) or not len(self._trace.estimates().y):
            known = [panel for panel in known if panel != "residual"]
        return tuple(known)

    def _beside(self, panel: str, x: str) -> tuple[str, Line] | None:
        """Name and points of the dashed line of a panel: the bound, or what is only estimated."""
        if panel == "objective":
            return "bound", self._trace.line("bound", x)
        if panel in GAPS:
            return "estimate", self._trace.estimates(x)
        return None

    def _span(self, x: str) -> tuple[float, float]:
        """The horizontal axis, the same in all panels."""
        last = float(self.history[-1][x])
        first = 0.0 if x == "seconds" else 1.0
        return first, first + 1.02 * (last - first) if last > first else first + 1


def _plain_numbers(ax: Axes, values: Floats) -> None:
    """Write 2k for 2·10³ on a logarithmic scale, also between powers of ten if these are few."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    few = values.max() < 100 * values.min()
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    ax.yaxis.set_minor_formatter(EngFormatter(sep="") if few else NullFormatter())
