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
from tests.registered import instances


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
    special = [cls(max_iter=2, random_state=0) for cls in (nearfar.POLA, nearfar.KernelPOLA)]
    models = instances(special, common={"tol": 0.1}, kind="metric")
    return {type(model).__name__: model.fit(X, y) for model in models}


def _embeddings(X: Any) -> dict[str, Any]:
    special = [
        nearfar.MVU(tol=1e-4),
        nearfar.VariationalMVU(n_neighbors=6, random_state=0),
        nearfar.LandmarkMVU(n_neighbors=6, n_landmarks=15, random_state=0),
        nearfar.LocalMDS(n_neighbors=6, random_state=0),
    ]
    seed = {"random_state": 0}
    models = instances(special, common=seed, kind="unfolding", learns_from="neighbours")
    models += instances(common=seed, kind="scaling")
    fitted = {type(model).__name__: model.fit(X) for model in models}
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
