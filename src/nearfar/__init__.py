"""nearfar learns distances: metrics from labels, with a proof of how optimal they are.

>>> from nearfar import LMNN
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearfar.registry import ENTRIES as _ENTRIES
from nearfar.registry import lazy_names as _lazy_names

# Type checkers cannot run the registry; tests/contracts/test_registry.py compares these with it.
if TYPE_CHECKING:
    from nearfar.blocks import Streamed as Streamed
    from nearfar.estimators.classical_mds import ClassicalMDS as ClassicalMDS
    from nearfar.estimators.covariance import Covariance as Covariance
    from nearfar.estimators.dml_eig import DMLEig as DMLEig
    from nearfar.estimators.energy import EnergyClassifier as EnergyClassifier
    from nearfar.estimators.gmml import GMML as GMML
    from nearfar.estimators.itml import ITML as ITML
    from nearfar.estimators.kernel_lmnn import KernelLMNN as KernelLMNN
    from nearfar.estimators.kernel_mcml import KernelMCML as KernelMCML
    from nearfar.estimators.kernel_metric import KernelMetric as KernelMetric
    from nearfar.estimators.kernel_mmc import KernelMMC as KernelMMC
    from nearfar.estimators.kernel_pola import KernelPOLA as KernelPOLA
    from nearfar.estimators.landmark_mvu import LandmarkMVU as LandmarkMVU
    from nearfar.estimators.lfda import LFDA as LFDA
    from nearfar.estimators.linear_metric import LinearMetric as LinearMetric
    from nearfar.estimators.linear_metric import as_metric as as_metric
    from nearfar.estimators.linear_metric import to_faiss as to_faiss
    from nearfar.estimators.linear_metric import to_onnx as to_onnx
    from nearfar.estimators.lmnn import LMNN as LMNN
    from nearfar.estimators.local_mds import LocalMDS as LocalMDS
    from nearfar.estimators.lsml import LSML as LSML
    from nearfar.estimators.mcml import MCML as MCML
    from nearfar.estimators.metric_mds import MetricMDS as MetricMDS
    from nearfar.estimators.mlkr import MLKR as MLKR
    from nearfar.estimators.mmc import MMC as MMC
    from nearfar.estimators.multi_metric_lmnn import MultiMetricLMNN as MultiMetricLMNN
    from nearfar.estimators.mvu import MVU as MVU
    from nearfar.estimators.nca import NCA as NCA
    from nearfar.estimators.nearest import NearestNeighborClassifier as NearestNeighborClassifier
    from nearfar.estimators.nonmetric_mds import NonmetricMDS as NonmetricMDS
    from nearfar.estimators.pair_classifier import PairClassifier as PairClassifier
    from nearfar.estimators.pola import POLA as POLA
    from nearfar.estimators.rca import RCA as RCA
    from nearfar.estimators.scml import SCML as SCML
    from nearfar.estimators.sdml import SDML as SDML
    from nearfar.estimators.sensor_localization import SensorLocalization as SensorLocalization
    from nearfar.estimators.variational_mvu import VariationalMVU as VariationalMVU
    from nearfar.graphs import NeighborhoodGraph as NeighborhoodGraph
    from nearfar.io import TRUSTED_TYPES as TRUSTED_TYPES
    from nearfar.io import load as load
    from nearfar.io import save as save
    from nearfar.proofs import Verification as Verification
    from nearfar.proofs import verify as verify
    from nearfar.supervision import Tuples as Tuples
    from nearfar.supervision import make_chunklets as make_chunklets
    from nearfar.supervision import make_pairs as make_pairs
    from nearfar.supervision import make_quadruplets as make_quadruplets
    from nearfar.supervision import make_ranked_triplets as make_ranked_triplets
    from nearfar.supervision import make_relevant_targets as make_relevant_targets
    from nearfar.supervision import make_triplets as make_triplets

__version__ = "0.1.0"

# Every public name and the module that it is loaded from.
_HOME = {entry.name: entry.module for entry in _ENTRIES} | {
    "NeighborhoodGraph": "nearfar.graphs",
    "TRUSTED_TYPES": "nearfar.io",
    "Streamed": "nearfar.blocks",
    "Tuples": "nearfar.supervision",
    "Verification": "nearfar.proofs",
    "as_metric": "nearfar.estimators.linear_metric",
    "load": "nearfar.io",
    "make_chunklets": "nearfar.supervision",
    "make_pairs": "nearfar.supervision",
    "make_quadruplets": "nearfar.supervision",
    "make_relevant_targets": "nearfar.supervision",
    "make_ranked_triplets": "nearfar.supervision",
    "make_triplets": "nearfar.supervision",
    "save": "nearfar.io",
    "to_faiss": "nearfar.estimators.linear_metric",
    "to_onnx": "nearfar.estimators.linear_metric",
    "verify": "nearfar.proofs",
}

__all__ = sorted(_HOME)

if not TYPE_CHECKING:  # type checkers have the names above, and are to know no others
    __getattr__, __dir__ = _lazy_names(__name__, _HOME)
