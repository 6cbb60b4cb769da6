"""Pictures of what was learned, by scikit-learn's convention for displays.

``from_estimator`` or ``from_predictions`` computes what is to be seen and draws it; the display
keeps it, and ``plot`` draws it again, elsewhere or otherwise, without computing it anew. matplotlib
is loaded when something is drawn (``pip install 'nearfar[plot]'``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

    def __getattr__(name: str) -> Any:
        """Import a display when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module 'nearfar.plots' has no attribute {name!r}")
        module = name.removesuffix("Display").lower()
        return getattr(importlib.import_module(f"nearfar.plots.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
