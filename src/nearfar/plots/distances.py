"""Distances of near and of far pairs: their distributions, and the ROC curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.distances import RocCurve, labelled_pairs, learned_lengths, pair_lengths
from nearfar.analysis.models import holds, known_labels, known_points, metric_of, name_of, unwrapped
from nearfar.errors import InvalidInputError
from nearfar.evaluation.spectra import all_distances
from nearfar.kernels import to_host
from nearfar.plots._canvas import (
    AFTER,
    BEFORE,
    COLOURS,
    FAINT,
    FAR,
    NEAR,
    Axes,
    Floats,
    hide_outer_spines,
    ink,
    several_axes,
)
from nearfar.supervision import Tuples

BINS = 40


@dataclass(eq=False, repr=False)
class DistancesDisplay:
    """Distances of near pairs, as of the same class, and of far ones, with the ROC curve.

    Create it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    near : ndarray of bool, of shape (n_pairs,)
        Which pairs are near.
    distances : dict of str to ndarray of shape (n_pairs,)
        Their distances by the name of the measure.
    curves : dict of str to RocCurve
        The ROC curve of each measure.
    thresholds : dict of str to float
        Distances up to which pairs count as near, of those measures that have one.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for each measure, and the last for the curves.
    figure_ : matplotlib Figure
        The figure around them.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LMNN
    >>> from nearfar.plots import DistancesDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LMNN().fit(X[::2], y[::2])
    >>> display = DistancesDisplay.from_estimator(model, X[1::2], y[1::2])
    """

    near: NDArray[np.bool_]
    distances: dict[str, Floats]
    curves: dict[str, RocCurve]
    thresholds: dict[str, float]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        baseline: bool = True,
        n_pairs: int = 5000,
        random_state: Any = 0,
        name: str | None = None,
        ax: Any = None,
        **drawing: Any,
    ) -> DistancesDisplay:
        """Draw the distances under a fitted model, and the Euclidean ones before.

        Parameters
        ----------
        estimator : fitted estimator
            A metric learner, a classifier around one, an embedding, or any transformer or pipeline.
            The threshold of `PairClassifier` or `POLA` is drawn.
        X : array-like, torch.Tensor or Tuples, or None, default=None
            Points (n_samples, n_features) with class labels, of which pairs are drawn (or the
            distances or kernel values that the model takes), or pairs (n_pairs, 2, n_features).
            None is the points that the model keeps.
        y : array-like of shape (n_samples,) or (n_pairs,)
            Class labels, or for pairs +1 for near and -1 for far.
        baseline : bool, default=True
            Whether to draw the Euclidean distance of the points too.
        n_pairs : int, default=5000
            Largest number of near pairs, and of far pairs, to draw from labelled points.
        random_state : int, RandomState instance or None, default=0
            Seed of the draw.
        name : str or None, default=None
            What to call the model. None is the name of the class.
        ax, **drawing
            See `plot`.

        Returns
        -------
        DistancesDisplay
            The display.
        """
        model, name = metric_of(estimator), name or name_of(estimator)
        fitted = X is None
        if fitted:
            X, y = known_points(estimator), known_labels(estimator) if y is None else y
            X = known_points(model) if X is None else X
        if y is None:
            raise InvalidInputError(
                "distances are compared between near and far pairs. Give class labels of points, or"
                " +1 and -1 of pairs, as y."
            )
        if X is None and hasattr(model, "embedding_"):  # of distances: its places are all there is
            X, baseline = to_host(model.embedding_), False
        if X is None:
            raise InvalidInputError(f"{name} keeps no points. Give them as X.")
        pairs, kinds = labelled_pairs(X, y, n_pairs, random_state)
        held = "euclidean" if fitted else holds(model)
        measured = {}
        if baseline and held == "euclidean":
            measured["Euclidean distance"] = pair_lengths(pairs)
        elif baseline:
            measured["distance given"] = all_distances(X, held)[tuple(pairs.indices.T)]
        if fitted and hasattr(model, "embedding_"):
            pairs = Tuples(to_host(model.embedding_), pairs.indices)
            measured[name] = pair_lengths(pairs)
        else:
            measured[name] = learned_lengths(estimator, model, pairs)
        threshold = getattr(unwrapped(estimator), "threshold_", None)
        thresholds = {} if threshold is None else {name: float(threshold)}
        return cls.from_predictions(kinds, measured, thresholds=thresholds, ax=ax, **drawing)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        distances: Mapping[str, Any] | Any,
        *,
        thresholds: Mapping[str, float] | None = None,
        ax: Any = None,
        **drawing: Any,
    ) -> DistancesDisplay:
        """Draw distances that are given.

        Parameters
        ----------
        y : array-like of shape (n_pairs,)
            +1 for near and -1 for far pairs.
        distances : array-like of shape (n_pairs,), or mapping of str to such
            The distances of the pairs, or several measures of them by name.
        thresholds : mapping of str to float or None, default=None
            Distances up to which pairs count as near, by the same names.
        ax, **drawing
            See `plot`.

        Returns
        -------
        DistancesDisplay
            The display.
        """
        if not isinstance(distances, Mapping):
            distances = {"distance": distances}
        measured = {name: to_host(values).astype(np.float64) for name, values in distances.items()}
        curves = {name: RocCurve.of(y, values) for name, values in measured.items()}
        display = cls(to_host(y) > 0, measured, curves, dict(thresholds or {}))
        return display.plot(ax, **drawing)

    def plot(self, ax: Any = None, *, bins: int = BINS) -> DistancesDisplay:
        """Draw it.

        Parameters
        ----------
        ax : array of matplotlib Axes or None, default=None
            An axes for each measure and one for the ROC curves; None makes a figure.
        bins : int, default=40
            Bars of each distribution.

        Returns
        -------
        DistancesDisplay
            The display itself.
        """
        self.axes_ = several_axes(ax, [*self.distances, "ROC"], (3.9, 3.4))
        self.figure_ = self.axes_[0].figure
        for axes, name in zip(self.axes_, self.distances, strict=False):
            self._draw_distribution(hide_outer_spines(axes), name, bins)
        self._draw_curves(hide_outer_spines(self.axes_[-1]))
        return self

    def _draw_distribution(self, ax: Axes, name: str, bins: int) -> None:
        lengths = self.distances[name]
        edges = np.linspace(0, lengths.max() or 1.0, bins + 1)
        for chosen, colour, label in ((~self.near, FAR, "different"), (self.near, NEAR, "same")):
            weights = np.full(chosen.sum(), 100 / chosen.sum())
            style = {"color": colour, "alpha": 0.45, "histtype": "stepfilled"}
            ax.hist(lengths[chosen], edges, weights=weights, label=label, **style)
            style = {"color": colour, "histtype": "step", "linewidth": 1.5}
            ax.hist(lengths[chosen], edges, weights=weights, **style)
        if name in self.thresholds:
            ax.axvline(self.thresholds[name], color=ink(), linestyle="--", label="threshold")
        ax.set(xlabel="distance", ylabel="share of pairs (%)")
        ax.set_title(name, fontsize="medium")
        ax.legend(frameon=False)

    def _draw_curves(self, ax: Axes) -> None:
        colours = [AFTER] if len(self.curves) == 1 else [BEFORE, AFTER, *COLOURS[1:]]
        for (name, curve), colour in zip(self.curves.items(), colours, strict=False):
            text = f"{name}\nAUC {curve.area:.3f}, equal error {curve.equal_error_rate:.1%}"
            rates = 100 * curve.false_positive_rates, 100 * curve.true_positive_rates
            ax.plot(*rates, color=colour, label=text)
        ax.plot([0, 100], [100, 0], color=FAINT, linewidth=0.8, linestyle=":")
        ax.set(xlabel="false positives (%)", ylabel="true positives (%)")
        ax.set(xlim=(-1, 101), ylim=(-1, 101), aspect="equal")
        ax.set_title("ROC", fontsize="medium")
        ax.legend(loc="lower right", fontsize="small", edgecolor="none", framealpha=1)
