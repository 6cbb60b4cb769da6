"""Pictures of what was learned, by scikit-learn's convention for displays.

``from_estimator`` or ``from_predictions`` computes the numbers and draws them; the display keeps
them, and ``plot`` draws them again, on other axes or in another style. matplotlib
is loaded when something is drawn (the extra ``plot``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearfar.registry import lazy_names as _lazy_names

if TYPE_CHECKING:
    from nearfar.plots.convergence import ConvergenceDisplay
    from nearfar.plots.distances import DistancesDisplay
    from nearfar.plots.ellipses import EllipsesDisplay
    from nearfar.plots.embedding import EmbeddingDisplay
    from nearfar.plots.metric import MetricDisplay
    from nearfar.plots.neighbors import NeighborsDisplay
    from nearfar.plots.shepard import ShepardDisplay
    from nearfar.plots.spectrum import SpectrumDisplay

__all__ = [
    "ConvergenceDisplay",
    "DistancesDisplay",
    "EllipsesDisplay",
    "EmbeddingDisplay",
    "MetricDisplay",
    "NeighborsDisplay",
    "ShepardDisplay",
    "SpectrumDisplay",
]

if not TYPE_CHECKING:  # type checkers have the names above, and are to know no others
    _HOME = {name: f"nearfar.plots.{name.removesuffix('Display').lower()}" for name in __all__}
    __getattr__, __dir__ = _lazy_names(__name__, _HOME)
