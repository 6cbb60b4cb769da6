"""Pictures are drawn into memory and closed after each test."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import matplotlib
import matplotlib.pyplot
import pytest
from sklearn.datasets import load_digits, make_swiss_roll

import nearfar


@pytest.fixture(autouse=True)
def plt() -> Iterator[ModuleType]:
    matplotlib.use("Agg")
    yield matplotlib.pyplot
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="session")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400]


@pytest.fixture(scope="session")
def lmnn(digits) -> nearfar.LMNN:
    return nearfar.LMNN(tol=0.1).fit(*digits)


@pytest.fixture(scope="session")
def roll() -> Any:
    return make_swiss_roll(100, random_state=0)[0]


@pytest.fixture(scope="session")
def mvu(roll) -> nearfar.MVU:
    return nearfar.MVU(tol=1e-4).fit(roll)


def _metric_learners(X: Any, y: Any) -> dict[str, Any]:
    small = {
        "LMNN": nearfar.LMNN(tol=0.1),
        "MCML": nearfar.MCML(tol=0.1),
        "NCA": nearfar.NCA(tol=0.1),
        "MMC": nearfar.MMC(tol=0.1),
        "DMLEig": nearfar.DMLEig(tol=0.1),
        "POLA": nearfar.POLA(max_iter=2, random_state=0),
        "RCA": nearfar.RCA(),
        "LinearMetric": nearfar.LinearMetric(),
        "KernelLMNN": nearfar.KernelLMNN(tol=0.1),
        "KernelMCML": nearfar.KernelMCML(tol=0.1),
        "KernelMMC": nearfar.KernelMMC(tol=0.1),
        "KernelPOLA": nearfar.KernelPOLA(max_iter=2, random_state=0),
    }
    return {name: model.fit(X, y) for name, model in small.items()}


def _embeddings(X: Any) -> dict[str, Any]:
    models = {
        "MVU": nearfar.MVU(tol=1e-4),
        "VariationalMVU": nearfar.VariationalMVU(n_neighbors=6, random_state=0),
        "LandmarkMVU": nearfar.LandmarkMVU(n_neighbors=6, n_landmarks=15, random_state=0),
        "ClassicalMDS": nearfar.ClassicalMDS(),
        "MetricMDS": nearfar.MetricMDS(random_state=0),
        "NonmetricMDS": nearfar.NonmetricMDS(random_state=0),
        "LocalMDS": nearfar.LocalMDS(n_neighbors=6, random_state=0),
    }
    fitted = {name: model.fit(X) for name, model in models.items()}
    graph = nearfar.NeighborhoodGraph.from_points(X[:, [0, 2]], 8, angles=False)
    fitted["SensorLocalization"] = nearfar.SensorLocalization(random_state=0).fit(graph)
    return fitted


@pytest.fixture(scope="session")
def metric_learners(iris) -> dict[str, Any]:
    """Every metric learner, by name, fitted to a third of iris."""
    return _metric_learners(iris[0][::3], iris[1][::3])


@pytest.fixture(scope="session")
def embeddings(roll) -> dict[str, Any]:
    """Every embedding, by name."""
    return _embeddings(roll)
