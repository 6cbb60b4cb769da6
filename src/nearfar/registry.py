"""The list of estimators: every public class has one entry here and stands in no other list.

Public names, lazy imports, model files, ``nearfar fit --method``, the contract tests and the table
of docs/choosing.md are made of this list. What cannot be made of it, the pages and the imports that
type checkers read, is compared with it by ``tests/contracts/test_registry.py``, which prints each
missing line and where it belongs. This module imports no estimator, so that ``import nearfar`` and
``nearfar --help`` stay cheap.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["metric", "classifier", "unfolding", "scaling"]
Supervision = Literal[
    "labels",
    "pairs",
    "triplets",
    "quadruplets",
    "chunklets",
    "numbers",
    "points",
    "metric",
    "neighbours",
    "distances",
]


class Entry(NamedTuple):
    """What the library knows of an estimator without importing it.

    Parameters
    ----------
    name : str
        The class.
    stem : str
        The name of its module, ``estimators/<stem>.py``, and of its page,
        ``docs/algorithms/<stem>.md``.
    kind : {"metric", "classifier", "unfolding", "scaling"}
        The contract that it keeps, in ``tests/contracts``.
    learns_from : Supervision
        What its ``fit`` is made for; a learner of pairs, triplets, quadruplets or chunklets takes
        labels too, one of points needs none, and one of numbers learns for regression.
    kernel : bool, default=False
        Whether the metric is one of the feature space of a kernel.
    command : bool, default=False
        Whether ``nearfar fit --method`` offers it, by the stem with hyphens.
    blocks : bool, default=False
        Whether it learns from Dask arrays and tables.
    page : str or None, default=None
        Its page, relative to the root of the repository, if it is not named by the stem.
    """

    name: str
    stem: str
    kind: Kind
    learns_from: Supervision
    kernel: bool = False
    command: bool = False
    blocks: bool = False
    page: str | None = None

    @property
    def module(self) -> str:
        """The module that defines the class."""
        return f"nearfar.estimators.{self.stem}"

    @property
    def method(self) -> str:
        """What ``--method`` calls the class."""
        return self.stem.replace("_", "-")

    @property
    def path(self) -> str:
        """The page, relative to the root of the repository."""
        return self.page or f"docs/algorithms/{self.stem}.md"


_MDS = "docs/algorithms/mds.md"
_LINEAR = "docs/algorithms/linear_metric.md"

# In the order in which the command line and the messages name them.
ENTRIES: tuple[Entry, ...] = (
    Entry("LMNN", "lmnn", "metric", "labels", command=True, blocks=True),
    Entry("MultiMetricLMNN", "multi_metric_lmnn", "classifier", "labels", command=True),
    Entry("KernelLMNN", "kernel_lmnn", "metric", "labels", kernel=True, command=True),
    Entry("MCML", "mcml", "metric", "labels", command=True, blocks=True),
    Entry("KernelMCML", "kernel_mcml", "metric", "labels", kernel=True, command=True),
    Entry("NCA", "nca", "metric", "labels", command=True, blocks=True),
    Entry("LFDA", "lfda", "metric", "labels", command=True),
    Entry("MMC", "mmc", "metric", "pairs", command=True, blocks=True),
    Entry("KernelMMC", "kernel_mmc", "metric", "pairs", kernel=True, command=True),
    Entry("DMLEig", "dml_eig", "metric", "pairs", command=True, blocks=True),
    Entry("POLA", "pola", "metric", "pairs", command=True),
    Entry("KernelPOLA", "kernel_pola", "metric", "pairs", kernel=True, command=True),
    Entry("ITML", "itml", "metric", "pairs", command=True, blocks=True),
    Entry("SDML", "sdml", "metric", "pairs", command=True, blocks=True),
    Entry("LSML", "lsml", "metric", "quadruplets", command=True),
    Entry("SCML", "scml", "metric", "triplets", command=True),
    Entry("GMML", "gmml", "metric", "pairs", command=True, blocks=True),
    Entry("RCA", "rca", "metric", "chunklets", command=True, blocks=True),
    Entry("MLKR", "mlkr", "metric", "numbers"),
    Entry("Covariance", "covariance", "metric", "points", blocks=True),
    Entry("LinearMetric", "linear_metric", "metric", "metric", blocks=True),
    Entry("KernelMetric", "kernel_metric", "metric", "metric", kernel=True, page=_LINEAR),
    Entry("NearestNeighborClassifier", "nearest", "classifier", "metric", blocks=True),
    Entry("EnergyClassifier", "energy", "classifier", "metric"),
    Entry("PairClassifier", "pair_classifier", "classifier", "metric", page="docs/pairs.md"),
    Entry("MVU", "mvu", "unfolding", "neighbours"),
    Entry("VariationalMVU", "variational_mvu", "unfolding", "neighbours", blocks=True),
    Entry("LandmarkMVU", "landmark_mvu", "unfolding", "neighbours", blocks=True),
    Entry("LocalMDS", "local_mds", "unfolding", "neighbours", page=_MDS),
    Entry("SensorLocalization", "sensor_localization", "unfolding", "distances"),
    Entry("ClassicalMDS", "classical_mds", "scaling", "distances", page=_MDS),
    Entry("MetricMDS", "metric_mds", "scaling", "distances", page=_MDS),
    Entry("NonmetricMDS", "nonmetric_mds", "scaling", "distances", page=_MDS),
)


def entries(
    *,
    kind: Kind | None = None,
    learns_from: Supervision | None = None,
    kernel: bool | None = None,
    command: bool | None = None,
    blocks: bool | None = None,
) -> list[Entry]:
    """The entries with the given properties; ``None`` stands for any."""
    wanted = {
        "kind": kind,
        "learns_from": learns_from,
        "kernel": kernel,
        "command": command,
        "blocks": blocks,
    }
    given = {field: value for field, value in wanted.items() if value is not None}
    return [
        entry
        for entry in ENTRIES
        if all(getattr(entry, field) == value for field, value in given.items())
    ]


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports each name when it is first used.

    ``homes`` maps each name to the module that defines it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        return getattr(importlib.import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted([*vars(sys.modules[package]), *homes])

    return load, names
