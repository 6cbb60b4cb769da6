"""How much of the variance lies along each axis: of the inputs, and of what was learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from nearfar.analysis.models import holds, images_of, known_points, metric_of, name_of
from nearfar.errors import InvalidInputError
from nearfar.evaluation.spectra import input_spectrum, principal_axes, variance_shares
from nearfar.kernels import to_host
from nearfar.plots._canvas import AFTER, BEFORE, COLOURS, Axes, Floats, hide_outer_spines, one_axes
from nearfar.validation import check_choice, check_number

KINDS = ("bars", "stacked", "cumulative")
SHOWN = 1e-3  # share of the variance below which all eigenvalues but one are left out
NUMBERED = 4  # per cent of the variance from which a part of a stack has its number


@dataclass(eq=False, repr=False)
class SpectrumDisplay:
    """Eigenvalues as shares of their sum, largest first: how many dimensions the data has.

    Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    spectra : dict of str to ndarray
        Shares of the variance by name, each of them descending and of sum 1.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure around it.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import MVU
    >>> from nearfar.plots import SpectrumDisplay
    >>> X, _ = make_swiss_roll(100, random_state=0)
    >>> display = SpectrumDisplay.from_estimator(MVU(tol=1e-4).fit(X))
    """

    spectra: dict[str, Floats]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **drawing: Any,
    ) -> SpectrumDisplay:
        """Draw the spectrum of the points and that of what was learned.

        Parameters
        ----------
        estimator : fitted estimator
            An embedding, whose ``eigenvalues_`` are drawn if it has any, or a metric learner, of
            which the variances of the images of X are.
        X : array-like or torch.Tensor of shape (n_samples, n_features), or None, default=None
            The points, or the distances or kernel values that the model takes. None is the points
            of ``fit`` where the model keeps them; an embedding of distances is drawn alone.
        name : str or None, default=None
            What to call the model. None is the name of the class.
        ax, **drawing
            See `plot`.

        Returns
        -------
        SpectrumDisplay
            The display.
        """
        model = metric_of(estimator)
        points, held = (known_points(model), "euclidean") if X is None else (X, holds(model))
        spectra = {} if points is None else {"PCA of the inputs": input_spectrum(points, held)}
        if hasattr(model, "embedding_"):
            learned = getattr(model, "eigenvalues_", None)
            learned = principal_axes(model.embedding_)[1] if learned is None else learned
        else:
            learned = principal_axes(images_of(estimator, points))[1]
        spectra[name or name_of(estimator)] = to_host(learned)
        return cls.from_predictions(spectra, ax=ax, **drawing)

    @classmethod
    def from_predictions(
        cls, eigenvalues: Mapping[str, Any] | Any, *, ax: Axes | None = None, **drawing: Any
    ) -> SpectrumDisplay:
        """Draw eigenvalues that are given.

        Parameters
        ----------
        eigenvalues : array-like, or mapping of str to array-like
            The eigenvalues, or several lists of them by name. Negative ones count as 0.
        ax, **drawing
            See `plot`.

        Returns
        -------
        SpectrumDisplay
            The display.
        """
        if not isinstance(eigenvalues, Mapping):
            eigenvalues = {"": eigenvalues}
        spectra = {name: _checked(name, values) for name, values in eigenvalues.items()}
        return cls(spectra).plot(ax, **drawing)

    def plot(
        self, ax: Axes | None = None, *, kind: str = "bars", n_values: int = 10
    ) -> SpectrumDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a figure.
        kind : {"bars", "stacked", "cumulative"}, default="bars"
            A bar for each eigenvalue, one stack for each spectrum as in the papers on MVU, or
            a line of the share that the first eigenvalues have together.
        n_values : int, default=10
            Most eigenvalues to draw.

        Returns
        -------
        SpectrumDisplay
            The display itself.
        """
        check_choice("kind", kind, KINDS)
        check_number("n_values", n_values, Integral, 1, None)
        heights = {"stacked": 0.8 + 0.7 * len(self.spectra)}
        ax = self.ax_ = hide_outer_spines(one_axes(ax, (6.0, heights.get(kind, 3.6))))
        self.figure_ = ax.figure
        longest = max(int((shares >= SHOWN).sum()) for shares in self.spectra.values())
        count = min(n_values, longest + 1)
        shown = {name: _padded(100 * shares, count) for name, shares in self.spectra.items()}
        {"bars": _bars, "stacked": _stacks, "cumulative": _lines}[kind](ax, shown)
        return self


def _checked(name: str, eigenvalues: Any) -> Floats:
    """Shares of the sum, largest first."""
    shares = variance_shares(eigenvalues)
    if not np.isfinite(shares).all() or not shares.any():
        what = f" of {name}" if name else ""
        raise InvalidInputError(
            f"eigenvalues{what} must be finite and one of them positive; got"
            f" {to_host(eigenvalues)}. Check that the points differ from each other."
        )
    return shares


def _padded(shares: Floats, count: int) -> Floats:
    padded = np.zeros(count)
    padded[: len(shares)] = shares[:count]
    return padded


def _colours(count: int) -> list[str]:
    if count == 1:
        return [AFTER]
    return [BEFORE, AFTER, *COLOURS[1:]][:count]


def _bars(ax: Axes, spectra: dict[str, Floats]) -> None:
    width = 0.8 / len(spectra)
    colours = _colours(len(spectra))
    for number, (name, shares) in enumerate(spectra.items()):
        places = np.arange(1, len(shares) + 1) - 0.4 + (number + 0.5) * width
        ax.bar(places, shares, width, label=name, color=colours[number])
    ax.set(xlabel="eigenvalue, largest first", ylabel="share of variance (%)")
    ax.set_xticks(np.arange(1, len(shares) + 1))
    if any(spectra):
        ax.legend(frameon=False)


def _lines(ax: Axes, spectra: dict[str, Floats]) -> None:
    colours = _colours(len(spectra))
    for (name, shares), colour in zip(spectra.items(), colours, strict=True):
        places = np.arange(1, len(shares) + 1)
        ax.plot(places, np.cumsum(shares), marker="o", label=name, color=colour)
    ax.set(xlabel="number of eigenvalues", ylabel="share of variance (%)", ylim=(0, 104))
    ax.set_xticks(places)
    if any(spectra):
        ax.legend(frameon=False, loc="lower right")


def _stacks(ax: Axes, spectra: dict[str, Floats]) -> None:
    shades = np.linspace(1.0, 0.25, max(len(shares) for shares in spectra.values()))
    for number, (shares, colour) in enumerate(
        zip(spectra.values(), _colours(len(spectra)), strict=True)
    ):
        starts = np.cumsum(shares) - shares
        for start, share, shade in zip(starts, shares, shades, strict=True):
            edge = {"edgecolor": "white", "linewidth": 1.0}
            ax.barh(number, share, left=start, height=0.7, color=colour, alpha=shade, **edge)
            if share >= NUMBERED:
                ink = "white" if shade > 0.6 else "black"
                place = (start + share / 2, number)
                ax.text(*place, f"{share:.0f}", ha="center", va="center", color=ink)
    ax.set_yticks(range(len(spectra)), list(spectra))
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set(xlabel="share of variance (%)", xlim=(0, 100))
