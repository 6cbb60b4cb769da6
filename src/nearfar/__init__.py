"""nearfar learns distances: metrics from labels, with a proof of how optimal they are.

>>> from nearfar import LMNN
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearfar.estimators import (
        LMNN,
        EnergyClassifier,
        KernelLMNN,
        MultiMetricLMNN,
        NearestNeighborClassifier,
    )
    from nearfar.io import TRUSTED_TYPES, load, save

__version__ = "0.1.0.dev0"

_HOME = {
    "EnergyClassifier": "nearfar.estimators",
    "KernelLMNN": "nearfar.estimators",
    "LMNN": "nearfar.estimators",
    "MultiMetricLMNN": "nearfar.estimators",
    "NearestNeighborClassifier": "nearfar.estimators",
    "TRUSTED_TYPES": "nearfar.io",
    "load": "nearfar.io",
    "save": "nearfar.io",
}

__all__ = [
    "LMNN",
    "TRUSTED_TYPES",
    "EnergyClassifier",
    "KernelLMNN",
    "MultiMetricLMNN",
    "NearestNeighborClassifier",
    "load",
    "save",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import nearfar`` is quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
