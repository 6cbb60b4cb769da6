"""Fixtures for all tests.

A test that needs torch is marked `torch`, one that needs a CUDA device `gpu`; the marks alone
skip it, with the reason, where these are missing. NEARFAR_REQUIRE_TORCH=1 turns a skip for want
of torch into a failure. NEARFAR_TEST_SEEDS sets the seeds of every random test: "7", or "0-9".
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

# scikit-learn skips its array API checks unless this is set before SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest
from numpy.typing import NDArray

DEFAULT_SEEDS = "42"


def require_torch() -> ModuleType:
    """The module torch; without it the test is skipped, or fails if torch must be there."""
    if importlib.util.find_spec("torch") is None:
        if os.environ.get("NEARFAR_REQUIRE_TORCH") == "1":
            pytest.fail("torch is not installed, but NEARFAR_REQUIRE_TORCH=1", pytrace=False)
        pytest.skip("torch is not installed: pip install 'nearfar[torch]'")
    return importlib.import_module("torch")


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs_gpu = item.get_closest_marker("gpu") is not None
    if needs_gpu or item.get_closest_marker("torch") is not None:
        torch = require_torch()
        if needs_gpu and not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def _seeds() -> list[int]:
    first, _, last = os.environ.get("NEARFAR_TEST_SEEDS", DEFAULT_SEEDS).partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.fixture(params=_seeds(), ids=lambda seed: f"seed{seed}")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a random test, which must pass for every one of them."""
    return int(request.param)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator seeded with `seed`."""
    return np.random.default_rng(seed)


@pytest.fixture
def torch() -> ModuleType:
    """The module torch, for a test whose marks cannot say that it needs it."""
    return require_torch()


@dataclass(frozen=True)
class Backend:
    """An array library on a device, as far as a test needs to know it."""

    name: str
    device: str = "cpu"

    def asarray(self, array: NDArray[Any]) -> Any:
        """A copy of a NumPy array in this library, of the same dtype."""
        if self.name == "numpy":
            return array.copy()
        return require_torch().tensor(array, device=self.device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """The array in NumPy; anything that is not this library's own fails the test."""
        if self.name == "numpy":
            assert isinstance(array, np.ndarray)
            return array
        assert isinstance(array, require_torch().Tensor)
        assert array.device.type == self.device
        return array.detach().cpu().numpy()


@pytest.fixture(
    params=[
        Backend("numpy"),
        pytest.param(Backend("torch"), marks=pytest.mark.torch),
        pytest.param(Backend("torch", "cuda"), marks=[pytest.mark.torch, pytest.mark.gpu]),
    ],
    ids=lambda backend: f"{backend.name}-{backend.device}",
)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Runs the test on NumPy, on torch and on torch with CUDA."""
    return request.param


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> type[np.floating[Any]]:
    """Runs the test in both precisions."""
    return request.param


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


@pytest.fixture
def read_only() -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Copies an array so that writing to the copy raises."""
    return _read_only


def _standardised(data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return _read_only(X), _read_only(data.target)


@pytest.fixture(scope="session")
def iris() -> tuple[NDArray[Any], NDArray[Any]]:
    """Iris, standardised: X (150 x 4) and y, both read-only."""
    from sklearn.datasets import load_iris

    return _standardised(load_iris())


@pytest.fixture(scope="session")
def wine() -> tuple[NDArray[Any], NDArray[Any]]:
    """Wine, standardised: X (178 x 13) and y, both read-only."""
    from sklearn.datasets import load_wine

    return _standardised(load_wine())
