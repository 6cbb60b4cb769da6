"""What users call: estimators that validate, build a problem, run a solver and store the answer."""

from __future__ import annotations

from nearfar.estimators.classical_mds import ClassicalMDS
from nearfar.estimators.dml_eig import DMLEig
from nearfar.estimators.energy import EnergyClassifier
from nearfar.estimators.kernel_lmnn import KernelLMNN
from nearfar.estimators.kernel_mcml import KernelMCML
from nearfar.estimators.kernel_mmc import KernelMMC
from nearfar.estimators.kernel_pola import KernelPOLA
from nearfar.estimators.landmark_mvu import LandmarkMVU
from nearfar.estimators.linear_metric import LinearMetric, as_metric
from nearfar.estimators.lmnn import LMNN
from nearfar.estimators.local_mds import LocalMDS
from nearfar.estimators.mcml import MCML
from nearfar.estimators.metric_mds import MetricMDS
from nearfar.estimators.mmc import MMC
from nearfar.estimators.multi_metric_lmnn import MultiMetricLMNN
from nearfar.estimators.mvu import MVU
from nearfar.estimators.nca import NCA
from nearfar.estimators.nearest import NearestNeighborClassifier
from nearfar.estimators.nonmetric_mds import NonmetricMDS
from nearfar.estimators.pair_classifier import PairClassifier
from nearfar.estimators.pola import POLA
from nearfar.estimators.rca import RCA
from nearfar.estimators.sensor_localization import SensorLocalization
from nearfar.estimators.variational_mvu import VariationalMVU

__all__ = [
    "LMNN",
    "MCML",
    "MMC",
    "MVU",
    "NCA",
    "POLA",
    "RCA",
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
    "NonmetricMDS",
    "PairClassifier",
    "SensorLocalization",
    "VariationalMVU",
    "as_metric",
]
