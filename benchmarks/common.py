"""What every benchmark shares: peers' environments, measured processes, records.

Only the standard library is imported here. A child process starts with the peak memory of the
process that starts it, so the process that starts the measured ones has to stay small.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# maxrss is in kilobytes on Linux and in bytes on macOS
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


class UnavailableError(Exception):
    """A peer or a data set cannot be used here; the message says why."""


def data_file(name: str) -> Path:
    """The file ``<name>.npz`` in the folder that the environment variable NEARFAR_DATA names."""
    folder = os.environ.get("NEARFAR_DATA")
    if not folder:
        raise UnavailableError(
            f"{name} needs its data file, and NEARFAR_DATA is not set; set it to the folder that "
            f"holds {name}.npz"
        )
    path = Path(folder) / f"{name}.npz"
    if not path.exists():
        raise UnavailableError(f"{name} needs {path.name}, and NEARFAR_DATA has none; put it there")
    return path


@dataclass(frozen=True)
class Environment:
    """A virtual environment of Python 3.11 with pinned packages.

    ``build`` is what a peer without a wheel is built with, installed first. ``stand_ins`` maps
    files below site-packages to their text: modules that a peer imports although the benchmark
    never uses them.
    """

    requirements: tuple[str, ...]
    build: tuple[str, ...] = ()
    stand_ins: dict[str, str] = field(default_factory=dict)


ENVIRONMENTS = {
    "metric-learn": Environment(
        ("metric-learn==0.7.0", "scikit-learn==1.7.2", "numpy==2.4.*", "scipy==1.17.*")
    ),
    "pylmnn": Environment(
        ("pylmnn==1.6.4", "scikit-learn==1.2.2", "numpy==1.23.5", "scipy==1.10.1", "six"),
        stand_ins={
            "GPyOpt/__init__.py": "",
            "GPyOpt/methods.py": "class BayesianOptimization:\n    pass\n",
        },
    ),
    "mlpack": Environment(("mlpack==4.8.0", "numpy==2.4.*")),
    # these two only get their arrays from NumPy and SciPy
    "clarabel": Environment(("clarabel==0.11.1", "numpy", "scipy")),
    "scs": Environment(("scs==3.3.1", "numpy", "scipy")),
    "pydml": Environment(
        (
            "pyDML==0.1.0",
            "six",
            "pandas==1.5.3",
            "matplotlib==3.7.*",
            "seaborn==0.12.*",
            "scikit-learn==1.2.2",
            "numpy==1.23.5",
            "scipy==1.10.1",
        ),
        # its setup.py imports NumPy and the Cython of its time
        build=("setuptools<66", "wheel", "Cython==0.29.*", "numpy==1.23.5"),
    ),
}

_VERSIONS = """
import importlib.metadata, json, sys, sysconfig
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps([sysconfig.get_path("purelib"), {n: version(n) for n in sys.argv[1:]}]))
"""


def python_of(peer: str, folder: Path) -> Path:
    """The interpreter of the peer's environment ``folder / peer``, made if it is missing."""
    environment, home = ENVIRONMENTS[peer], folder / peer
    python = home / "bin" / "python"
    if not python.exists():
        interpreter = _python_311()
        print(f"making the environment {home}", flush=True)
        _call([interpreter, "-m", "venv", str(home)], f"{peer}: no virtual environment")
    site_packages, missing = _missing(python, environment.requirements)
    if missing:
        install = [str(python), "-m", "pip", "install", "--quiet"]
        if environment.build:
            _call([*install, *environment.build], f"{peer}: what builds it does not install")
            install.append("--no-build-isolation")
        _call([*install, *environment.requirements], f"{peer} does not install")
    for name, text in environment.stand_ins.items():
        path = site_packages / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return python


def _python_311() -> str:
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which("python3.11")
    if found is None:
        raise UnavailableError(
            f"the peers need Python 3.11, this is {platform.python_version()} and no python3.11 "
            "is on the path; install it, or give --peers '' to run nearfar alone"
        )
    return found


def _missing(python: Path, requirements: tuple[str, ...]) -> tuple[Path, list[str]]:
    """The site-packages folder of ``python``, and the requirements that it does not meet."""
    pins = dict([*requirement.split("=="), "*"][:2] for requirement in requirements)
    command = [str(python), "-c", _VERSIONS, *pins]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(
            f"{python} does not run: {error}; delete its environment to have it made anew"
        ) from error
    site_packages, versions = json.loads(answer.stdout)
    missing = [
        name
        for name, pin in pins.items()
        if versions[name] is None or not _matches(versions[name], pin)
    ]
    return Path(site_packages), missing


def _matches(version: str, pin: str) -> bool:
    return version == pin or (pin.endswith("*") and f"{version}.".startswith(pin.rstrip("*")))


def _call(command: list[str], failure: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise UnavailableError(f"{failure}: {lines[-1]}")


@dataclass(frozen=True)
class Outcome:
    """How a measured process ended: ``killed`` if it ran past its limit."""

    returncode: int
    peak_mb: float
    killed: bool


def run_measured(
    command: list[str], *, log: Path, started: Path, limit: float, environment: dict[str, str]
) -> Outcome:
    """Run ``command`` in a process group of its own and kill that group past ``limit`` seconds.

    The limit counts from the moment at which the process creates the file ``started``, so that
    imports and loading are free; without that file it counts from 5 minutes after the start.
    """
    with log.open("w") as stream:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline, clock, killed = time.monotonic() + 300 + limit, False, False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if not clock and started.exists():
            deadline, clock = time.monotonic() + limit, True
        if not killed and time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            killed = True
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(process.returncode, usage.ru_maxrss * MAXRSS_BYTES / 1e6, killed)


def threads_environment(threads: int) -> dict[str, str]:
    """This process's environment with every thread pool set to ``threads``."""
    names = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM")
    return os.environ | {f"{name}_THREADS": str(threads) for name in names}


def machine() -> dict[str, object]:
    """The processor, its cores, the memory and the system, without the machine's name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_gb": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cores() -> int | None:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux, where taskset gives fewer
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit(root: Path = ROOT) -> str:
    """The commit of the checkout ``root``, with ``+changes`` if the files differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def record_parser(module: str, description: str, smoke: str) -> argparse.ArgumentParser:
    """Options of a script that keeps records, and makes a page of those of all machines."""
    stem = module.rpartition(".")[2] if module.startswith("papers.") else module.replace(".", "_")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}", description=description.splitlines()[0]
    )
    add = parser.add_argument
    add("--machine", help="the name in the record's file name; default: the processor")
    add("--results", type=Path, default=ROOT / "benchmarks" / "results", help="the records")
    add("--page", type=Path, default=ROOT / "docs" / "results" / f"{stem}.md", help="the page")
    add("--table", action="store_true", help="only write the page anew")
    add("--smoke", action="store_true", help=smoke)
    return parser


def page_parser(module: str, description: str, record: Path, page: Path) -> argparse.ArgumentParser:
    """Options of a script that keeps one record, and makes a page of it."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=description)
    parser.add_argument("--record", type=Path, default=record)
    parser.add_argument("--page", type=Path, default=page)
    parser.add_argument("--table", action="store_true", help="run nothing, write the page anew")
    return parser


def write_page(arguments: argparse.Namespace, stem: str, page: Callable[[list], str]) -> str:
    """The page from the records of all machines."""
    text = page(read_records(arguments.results, stem))
    write_text(arguments.page, text)
    return text


def read_records(folder: Path, stem: str) -> list:
    """The records of all machines."""
    paths = sorted(folder.glob(f"{stem}-*.json"))
    return [json.loads(path.read_text()) for path in paths]


def write_runs(path: Path, record: dict) -> None:
    """Write a record as JSON, one of its runs a line."""
    head = json.dumps({name: value for name, value in record.items() if name != "runs"})[:-1]
    runs = ",\n".join(json.dumps(run) for run in record["runs"])
    write_text(path, f'{head}, "runs": [\n{runs}\n]}}\n')


def write_text(path: Path, text: str) -> None:
    """Write ``text`` by way of a temporary file, so that the file is never half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(text)
    temporary.replace(path)
