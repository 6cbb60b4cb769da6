"""What benchmarks ask the workers of a cluster, and say of the machine that they ran on."""

import os
import time
from pathlib import Path

from benchmarks import common
from benchmarks.papers.records import facts

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def processor_seconds():
    """Of this process, so far."""
    return time.process_time()


def memory_now():
    """Resident memory of this process, in megabytes; its peak counts from here on, on Linux.

    What ``getrusage`` calls the peak includes that of the process which started this one.
    """
    if not STATUS.exists():
        return peak_memory()
    CLEAR.write_text("5")
    return _status("VmRSS")


def peak_memory():
    """Largest resident memory of this process, in megabytes."""
    if STATUS.exists():
        return _status("VmHWM")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * common.MAXRSS_BYTES / 1e6


def _status(name):
    """Megabytes of a line of the process's status, which counts in units of 1024 bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise KeyError(name)


def about_machine():
    """Facts of a record, before the runs; `with_load` completes them."""
    return {"commit": common.commit(), "date": common.now(), **facts("cpu")}


def with_load(about):
    """The facts with the mean number of busy programs of the last 15 minutes, and the cores."""
    return {**about, "load": os.getloadavg()[2], "cores": os.cpu_count()}


def measured_on(about, module):
    """Lines of a page: the machine, its load and the command."""
    lines = [
        f"Measured on {about['machine'].get('cpu', 'this machine')}, commit {about['commit']}, in",
        "one run.",
    ]
    if "load" in about:
        lines += [
            f"The load was {about['load']:.1f} on {about['cores']} cores: if it is more than the",
            "benchmark's own two processes, other programs took part of the time, and the seconds",
            "of processors count.",
        ]
    return [*lines, f"Repeat it with `python -m benchmarks.dask.{module}`."]
