"""``nearfar doctor``: what nearfar runs on, and whether it computes what it should.

The tests have known answers. An optimum is right if the certified interval of the fit, from the
bound of the dual up to the objective, holds the known one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import threadpoolctl
from sklearn.datasets import load_digits, load_wine

import nearfar
from nearfar.cli import FAULT, OK
from nearfar.cli.output import echo
from nearfar.errors import install_command
from nearfar.kernels.devices import on_device, torch_devices
from nearfar.limits import machine_memory


class Package(NamedTuple):
    """A package as pyproject.toml asks for it."""

    name: str
    module: str
    oldest: str
    extra: str | None = None  # none of a package that nearfar cannot do without
    purpose: str = ""

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        return install_command(self.extra) if self.extra else f"pip install --upgrade {self.name}"


PACKAGES = (
    Package("numpy", "numpy", "2.0"),
    Package("scipy", "scipy", "1.13"),
    Package("scikit-learn", "sklearn", "1.7"),
    Package("joblib", "joblib", "1.4"),
    Package("threadpoolctl", "threadpoolctl", "3.5"),
    Package("torch", "torch", "2.4", "torch", "tensors on any device"),
    Package("distributed", "distributed", "2025.1", "dask", "arrays and tables on a cluster"),
    Package("click", "click", "8.1", "cli", "this command"),
    Package("rich", "rich", "14.1", "cli", "tables and progress of this command"),
    Package("pyarrow", "pyarrow", "17", "cli", "Parquet files"),
    Package("jinja2", "jinja2", "3.1", "report", "reports"),
    Package("matplotlib", "matplotlib", "3.8", "plot", "pictures"),
    Package("skops", "skops", "0.13", "skops", "models in skops files"),
    Package("faiss-cpu", "faiss", "1.9", "faiss", "to_faiss"),
    Package("onnx", "onnx", "1.17", "onnx", "to_onnx"),
    Package("hnswlib", "hnswlib", "0.8", "hnswlib", "an index on what transform returns"),
)
LIMITS_OF_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# Of LMNN(shrinkage=0) on standardised wine, solved to a certified gap of 1e-7.
WINE_OPTIMUM = 208.91117
SECONDS_ON_DIGITS = 6.0  # at most, so that all take about ten
CHAIN = 20  # links of length 1; stretched out their variance is n(n² − 1)/12


def examine() -> int:
    """Print what there is and what works, and return the exit code."""
    echo(f"nearfar {nearfar.__version__} · Python {platform.python_version()}")
    echo(f"{platform.platform()}")
    troubles = [*_tell("Packages", _packages()), *_tell("Machine", _machine())]
    troubles += _tell("Self-test", _tests())
    echo("")
    if not troubles:
        echo("All is well.")
        return OK
    needs = "needs" if len(troubles) == 1 else "need"
    echo(f"{len(troubles)} of these {needs} attention: {', '.join(troubles)}.")
    return FAULT


class Finding(NamedTuple):
    """A line of the report."""

    name: str
    text: str
    well: bool = True


def _tell(title: str, findings: Iterator[Finding]) -> list[str]:
    """Print each finding as it comes, and return the names of those that are not well."""
    echo(f"\n{title}")
    troubles = []
    for name, text, well in findings:
        echo(f"{' ' if well else '!'} {name:<22} {text}")
        if not well:
            troubles.append(name)
    return troubles


def _packages() -> Iterator[Finding]:
    for package in PACKAGES:
        try:
            version = _version(package)
        except Exception as error:  # a broken package breaks here what it breaks elsewhere
            yield Finding(package.name, f"cannot be imported: {error}", False)
            continue
        if version is None:
            text = f"not installed, for {package.purpose}: {package.remedy}"
            yield Finding(package.name, text, package.extra is not None)
        elif version and _numbers(version) < _numbers(package.oldest):
            text = f"{version}, older than {package.oldest}: {package.remedy}"
            yield Finding(package.name, text, False)
        else:
            yield Finding(package.name, version or "installed")


def _version(package: Package) -> str | None:
    """The installed version; empty if unknown, None if nothing is installed."""
    if importlib.util.find_spec(package.module) is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages among themselves
        module = importlib.import_module(package.module)
    try:
        return importlib.metadata.version(package.name)
    except importlib.metadata.PackageNotFoundError:  # under another name, as faiss-gpu
        return str(getattr(module, "__version__", ""))


def _numbers(version: str) -> list[int]:
    """1.13.0rc1 and 1.13.0+cpu as 1, 13, 0."""
    return [int(part) for part in re.findall(r"(?:^|\.)(\d+)", version.partition("+")[0])]


def _machine() -> Iterator[Finding]:
    limits = [f"{name}={os.environ[name]}" for name in LIMITS_OF_THREADS if name in os.environ]
    yield Finding("cores", ", ".join([f"{joblib.cpu_count()} of {os.cpu_count()}", *limits]))
    memory = machine_memory()
    yield Finding("memory", "unknown" if memory is None else f"{memory / 2**30:.1f} GiB")
    for pool in sorted(threadpoolctl.threadpool_info(), key=lambda pool: pool["filepath"]):
        parts = [pool["internal_api"], pool["version"], pool.get("architecture")]
        threads = "1 thread" if pool["num_threads"] == 1 else f"{pool['num_threads']} threads"
        home = Path(pool["filepath"]).parent.name
        name = {"blas": "BLAS", "openmp": "OpenMP"}.get(pool["user_api"], pool["user_api"])
        yield Finding(name, f"{' '.join(filter(None, parts))}, {threads}, from {home}")
    devices = torch_devices()
    yield from (Finding(name, text) for name, text in devices.items() if name != "cpu")
    if not devices:
        yield Finding("GPU", "needs torch")
    elif len(devices) == 1:
        card = shutil.which("nvidia-smi") is not None
        remedy = ", though nvidia-smi is here: install torch with CUDA, see pytorch.org"
        yield Finding("GPU", f"none that torch can use{remedy if card else ''}")


def _tests() -> Iterator[Finding]:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    tests: dict[str, Callable[[], str]] = {
        "LMNN, float64": partial(_optimum, X, y),
        "LMNN, float32": partial(_optimum, X.astype(np.float32), y),
        "MVU": _chain,
        "model file": partial(_round_trip, X, y),
        "LMNN on digits": _digits,
    }
    for device in torch_devices():
        tests[f"LMNN, torch on {device}"] = partial(_optimum, X, y, device)
    for name, test in tests.items():
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the status says the same
                text, well = test(), True
        except Exception as error:
            text, well = f"failed: {type(error).__name__}: {error}", False
        yield Finding(name, f"{text}, {time.perf_counter() - start:.2f} s", well)


def _certified(model: Any, value: float) -> str:
    """That the interval of a fit holds a known value, with the gap."""
    gap, objective = model.duality_gap_, model.objective_
    if not abs(objective - value) <= gap * max(1.0, abs(value)) + 1e-6 * abs(value):
        raise ArithmeticError(
            f"the optimum is {value:.6g}, but the fit found {objective:.6g} with a gap of {gap:.1e}"
        )
    return f"certified gap {gap:.1e}"


def _optimum(X: Any, y: Any, device: str | None = None) -> str:
    points = X if device is None else on_device(X, device)
    return _certified(nearfar.LMNN(shrinkage=0).fit(points, y), WINE_OPTIMUM)


def _chain() -> str:
    links = np.arange(CHAIN - 1)
    graph = nearfar.NeighborhoodGraph.from_edges(links, links + 1, np.ones(len(links)), CHAIN)
    model = nearfar.MVU(angles=False).fit(graph)
    return _certified(model, CHAIN * (CHAIN**2 - 1) / 12)


def _round_trip(X: Any, y: Any) -> str:
    model = nearfar.RCA().fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.nearfar"
        nearfar.save(model, path)
        images = nearfar.load(path).transform(X)
    if not np.array_equal(images, model.transform(X)):
        raise ArithmeticError("the model that was read maps points elsewhere")
    return "read as written"


def _digits() -> str:
    model = nearfar.LMNN(max_seconds=SECONDS_ON_DIGITS).fit(*load_digits(return_X_y=True))
    gap = model.duality_gap_
    return f"{model.status_}, {'no gap yet' if gap is None else f'certified gap {gap:.1e}'}"
