"""What users call: estimators that validate, build a problem, run a solver and store the answer."""

from __future__ import annotations

from nearfar.estimators.energy import EnergyClassifier
from nearfar.estimators.kernel_lmnn import KernelLMNN
from nearfar.estimators.lmnn import LMNN
from nearfar.estimators.multi_metric_lmnn import MultiMetricLMNN
from nearfar.estimators.nearest import NearestNeighborClassifier

__all__ = [
    "LMNN",
    "EnergyClassifier",
    "KernelLMNN",
    "MultiMetricLMNN",
    "NearestNeighborClassifier",
]
