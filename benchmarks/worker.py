"""What the measured processes share: clock, limit, device, versions.

It is imported by the interpreters of the peers' environments, so it needs NumPy alone.
"""

import argparse
import contextlib
import importlib.metadata
import json
import platform
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.common import MAXRSS_BYTES

SEED = 0
SHORT, REPEATS = 1.0, 5


class OverLimit(BaseException):
    """The time limit has come; not an Exception, so that no method catches it."""


class Clock:
    """Seconds since start, without the time spent in ``paused``."""

    def __init__(self, started):
        started.touch()
        self._pause = 0.0
        self._start = time.perf_counter()

    def seconds(self):
        return time.perf_counter() - self._start - self._pause

    def paused(self, function):
        def call(*arguments):
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._pause += time.perf_counter() - begin

        return call


def stopped_after(limit, fit):
    """Call ``fit`` for at most ``limit`` seconds; whether it ended by itself."""

    def raise_over_limit(*_):
        raise OverLimit

    signal.signal(signal.SIGALRM, raise_over_limit)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        fit()
        return True
    except OverLimit:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Memory:
    """How far the resident memory rises above what it is now, and its peak in all."""

    def __init__(self):
        self._earlier = peak_mb()
        with contextlib.suppress(OSError):  # only Linux can forget the peak
            Path("/proc/self/clear_refs").write_text("5")
        self._start = peak_mb()

    def facts(self):
        now = peak_mb()
        return {"fit_mb": now - self._start, "peak_mb": max(now, self._earlier)}


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / 1e6


def as_numpy(array):
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()


def number(value):
    """A JSON value with 8 digits."""
    if value is None or isinstance(value, bool | str):
        return value
    return float(f"{float(value):.8g}")


def columns(history):
    """A list of records as a dict of columns."""
    names = dict.fromkeys(key for entry in history for key in entry)
    return {name: [number(entry.get(name)) for entry in history] for name in names}


class Job:
    """The command line, and what it means for data and clock."""

    def __init__(self, arguments):
        self.limit = arguments.limit
        self.threads = arguments.threads
        self.device = arguments.device
        self.dtype = arguments.dtype
        self.output = arguments.output

    def clock(self):
        return Clock(self.output / "started")

    def timed(self, fit, synchronize=lambda: None, small=None):
        """What ``fit()`` answers, with its seconds and its memory.

        Where it takes less than SHORT seconds it is repeated, and the shortest time counts. Memory
        is that of the first time, after ``small()``, a fit to a few points that loads what the
        program needs; what it answers, or whether it can, does not matter.
        """
        if small is not None:
            with contextlib.suppress(Exception):
                small()

        def once():
            begin = time.perf_counter()
            answer = fit()
            synchronize()
            return time.perf_counter() - begin, answer

        memory = Memory()
        (self.output / "started").touch()
        seconds, answer = once()
        facts = memory.facts()
        if seconds < SHORT:
            others = [once() for _ in range(REPEATS - 1)]
            seconds, answer = min([(seconds, answer), *others], key=lambda pair: pair[0])
        facts |= {"loaded": small is not None}
        return answer, {"seconds": seconds, "status": "finished", **facts}

    def on_device(self, X):
        """X in the asked precision on the asked device, and a function that waits for it."""
        X = X.astype(self.dtype)
        if self.device == "cpu":
            return X, lambda: None
        import torch

        tensor = torch.from_numpy(X).to(self.device)
        tensor[:2] @ tensor[:2].T  # starts the device's BLAS, which is part of importing torch
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return tensor, torch.cuda.synchronize

    def device_facts(self):
        if self.device == "cpu":
            return {}
        import torch

        return {
            "device": torch.cuda.get_device_name(self.device),
            "peak_device_mb": torch.cuda.max_memory_allocated(self.device) / 1e6,
        }


def versions(packages):
    """The versions of Python and of the packages that a method computes with."""
    found = {"python": platform.python_version()}
    for name in packages:
        if name == "torch" and "torch" not in sys.modules:
            continue
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"  # nearfar may run from its source tree
    return found


def parse(description, programs):
    """The arguments of a measured process."""
    warnings.simplefilter("ignore")  # what they say stands in the status
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", choices=programs)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--options", type=json.loads, default={}, help="of the method, as JSON")
    parser.add_argument("--limit", type=float, default=240)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float64")
    return parser.parse_args()


def write_answer(job, L, result, packages):
    """Write L.npy, if there is one, and result.json."""
    result = {"dtype": "float64", "peak_mb": peak_mb(), **result, **job.device_facts()}
    result["versions"] = versions(packages) | result.get("versions", {})
    if L is not None:
        np.save(job.output / "L.npy", np.asarray(L, dtype=np.float64))
    (job.output / "result.json").write_text(json.dumps(result))
