"""nearfar learns distances: metrics from labels, with a proof of how optimal they are.

>>> from nearfar import LMNN
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearfar.estimators import (
        LMNN,
        MCML,
        MMC,
        MVU,
        NCA,
        POLA,
        RCA,
        ClassicalMDS,
        DMLEig,
        EnergyClassifier,
        KernelLMNN,
        KernelMCML,
        KernelMMC,
        KernelPOLA,
        LandmarkMVU,
        LinearMetric,
        LocalMDS,
        MetricMDS,
        MultiMetricLMNN,
        NearestNeighborClassifier,
        NonmetricMDS,
        PairClassifier,
        SensorLocalization,
        VariationalMVU,
        as_metric,
    )
    from nearfar.graphs import NeighborhoodGraph
    from nearfar.io import TRUSTED_TYPES, load, save
    from nearfar.proofs import Verification, verify
    from nearfar.supervision import Tuples, make_chunklets, make_pairs, make_triplets

__version__ = "0.1.0.dev0"

_HOME = {
    "MVU": "nearfar.estimators",
    "NCA": "nearfar.estimators",
    "MCML": "nearfar.estimators",
    "ClassicalMDS": "nearfar.estimators",
    "DMLEig": "nearfar.estimators",
    "EnergyClassifier": "nearfar.estimators",
    "KernelLMNN": "nearfar.estimators",
    "KernelMCML": "nearfar.estimators",
    "KernelMMC": "nearfar.estimators",
    "KernelPOLA": "nearfar.estimators",
    "LandmarkMVU": "nearfar.estimators",
    "LMNN": "nearfar.estimators",
    "LinearMetric": "nearfar.estimators",
    "LocalMDS": "nearfar.estimators",
    "MMC": "nearfar.estimators",
    "MetricMDS": "nearfar.estimators",
    "MultiMetricLMNN": "nearfar.estimators",
    "NearestNeighborClassifier": "nearfar.estimators",
    "NeighborhoodGraph": "nearfar.graphs",
    "NonmetricMDS": "nearfar.estimators",
    "POLA": "nearfar.estimators",
    "PairClassifier": "nearfar.estimators",
    "RCA": "nearfar.estimators",
    "SensorLocalization": "nearfar.estimators",
    "TRUSTED_TYPES": "nearfar.io",
    "Tuples": "nearfar.supervision",
    "VariationalMVU": "nearfar.estimators",
    "Verification": "nearfar.proofs",
    "as_metric": "nearfar.estimators",
    "load": "nearfar.io",
    "make_chunklets": "nearfar.supervision",
    "make_pairs": "nearfar.supervision",
    "make_triplets": "nearfar.supervision",
    "save": "nearfar.io",
    "verify": "nearfar.proofs",
}

__all__ = [
    "LMNN",
    "MCML",
    "MMC",
    "MVU",
    "NCA",
    "POLA",
    "RCA",
    "TRUSTED_TYPES",
    "ClassicalMDS",
    "DMLEig",
    "EnergyClassifier",
    "KernelLMNN",
    "KernelMCML",
    "KernelMMC",
    "KernelPOLA",
    "LandmarkMVU",
    "LinearMetric",
    "LocalMDS",
    "MetricMDS",
    "MultiMetricLMNN",
    "NearestNeighborClassifier",
    "NeighborhoodGraph",
    "NonmetricMDS",
    "PairClassifier",
    "SensorLocalization",
    "Tuples",
    "VariationalMVU",
    "Verification",
    "as_metric",
    "load",
    "make_chunklets",
    "make_pairs",
    "make_triplets",
    "save",
    "verify",
]


if not TYPE_CHECKING:  # type checkers have the names above, and are to know no others

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that ``import nearfar`` is quick."""
        if name not in _HOME:
            message = f"module 'nearfar' has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__])
        return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
