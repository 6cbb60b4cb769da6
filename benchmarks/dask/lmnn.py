"""LMNN of MNIST on a cluster and in memory: ``python -m benchmarks.dask.lmnn``, minutes.

The same rows, tolerance and cores: in memory with two threads, on a cluster of one process of one
thread, and on one of two. A record has seconds, and the processor time of all processes, which
tells more where other programs run beside it; objective and certified gap; and how much a worker's
memory grew beside its share of the rows and the blocks in flight.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import common
from benchmarks.dask.rca import _peak
from benchmarks.lmnn.data import load
from benchmarks.papers.records import facts

TOL = 1e-2
THREADS = 2
RECORD = common.ROOT / "benchmarks" / "results" / "dask_lmnn.json"
PAGE = common.ROOT / "docs" / "results" / "dask_lmnn.md"


def rows_of_file(path, block_info=None):
    """The rows of one chunk, from a file that all workers can read."""
    (first, last), *_ = block_info[None]["array-location"]
    return np.array(np.load(path, mmap_mode="r")[first:last])


def lazy_rows(path, shape, chunk=5000):
    import dask.array as da

    sizes = tuple(min(chunk, shape[0] - first) for first in range(0, shape[0], chunk))
    return da.map_blocks(
        rows_of_file,
        str(path),
        chunks=(sizes, (shape[1],)),
        dtype=np.float32,
        meta=np.empty((0, 0), dtype=np.float32),
    )


def _processor_seconds():
    return time.process_time()


def _facts_of(model, seconds, processor):
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "objective": model.objective_,
        "gap": model.duality_gap_,
        "iterations": model.n_iter_,
        "status": model.status_,
    }


def in_memory(X, y):
    """Fit with the threads that the environment allows."""
    from nearfar import LMNN

    start, processor = time.perf_counter(), time.process_time()
    model = LMNN(tol=TOL).fit(X, y)
    return {
        "where": "memory",
        **_facts_of(model, time.perf_counter() - start, time.process_time() - processor),
    }


def on_cluster(path, shape, y, n_workers):
    """Fit on a cluster of so many processes."""
    from distributed import Client, LocalCluster

    from nearfar import LMNN
    from nearfar.blocks.rows import block_starts

    rows = lazy_rows(path, shape)
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        LMNN(tol=0.5, max_iter=2).fit(rows[:2000], y[:2000])  # so that no timed task imports
        before, used = client.run(_peak), client.run(_processor_seconds)
        start, processor = time.perf_counter(), time.process_time()
        model = LMNN(tol=TOL).fit(rows, y)
        seconds = time.perf_counter() - start
        processor = time.process_time() - processor
        after, used_after = client.run(_peak), client.run(_processor_seconds)
    starts = block_starts(shape, np.float32)
    workers = [used_after[name] - used[name] for name in used]
    return {
        "where": "cluster",
        "workers": n_workers,
        **_facts_of(model, seconds, processor + sum(workers)),
        "processor_seconds_of_workers": workers,
        "megabytes": 4e-6 * shape[0] * shape[1],
        "block_megabytes": 4e-6 * shape[1] * float(np.diff(starts).max()),
        "n_blocks": len(starts) - 1,
        "growth_megabytes": [after[name] - before[name] for name in before],
    }


def measure(name):
    """All runs on a data set."""
    X, _, y, _ = load(name)
    X = X.astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        runs = []
        for work in (
            lambda: on_cluster(path, X.shape, y, 2),
            lambda: in_memory(X, y),
            lambda: on_cluster(path, X.shape, y, 1),
        ):
            runs.append(work())
            print(json.dumps({"data": name, **runs[-1]}), flush=True)
    return {"data": name, "rows": X.shape[0], "features": X.shape[1], "runs": runs}


def page(record):
    """The page of a record."""
    lines = [
        "# LMNN on a cluster, and in memory",
        "",
        f"`LMNN(tol={TOL:g})` of MNIST in float32, to a certified gap: in memory with {THREADS}",
        "threads, and on a `LocalCluster` of one and of two processes with one thread each.",
        "*Processor* is the time of all processes together, the scheduler's included. *Growth* is",
        "how much the peak memory of a worker grew during the fit, beside its share of the rows",
        "and the size of a block, of which it works on a few at a time, in float64.",
        "",
        "| rows | where | seconds | processor, s | seconds, ratio | processor, ratio | iterations |"
        " objective | gap | growth, MB | share, MB | block, MB |",
        "|" + " --- |" * 2 + " ---: |" * 10,
    ]
    for data in record["sets"]:
        peer = next(run for run in data["runs"] if run["where"] == "memory")
        for run in data["runs"]:
            workers = run.get("workers")
            memory = "| | | |"
            if workers:
                memory = (
                    f"| {max(run['growth_megabytes']):.0f} | {run['megabytes'] / workers:.0f} |"
                    f" {run['block_megabytes']:.0f} |"
                )
            where = f"{workers} worker{'s' * (workers > 1)}" if workers else "memory"
            lines.append(
                f"| {data['rows']} × {data['features']} | {where} | {run['seconds']:.0f} |"
                f" {run['processor_seconds']:.0f} | {run['seconds'] / peer['seconds']:.2f} |"
                f" {run['processor_seconds'] / peer['processor_seconds']:.2f} |"
                f" {run['iterations']} | {run['objective']:.6g} | {run['gap']:.1e} {memory}"
            )
    about = record["facts"]
    lines += ["", "From one worker to two:", ""]
    for data in record["sets"]:
        two, one = (
            next(run for run in data["runs"] if run.get("workers") == count) for count in (2, 1)
        )
        busiest = max(two["processor_seconds_of_workers"])
        lines.append(
            f"- {data['rows']} rows: {one['seconds'] / two['seconds']:.2f} times as fast; by"
            f" processor time, {sum(one['processor_seconds_of_workers']) / busiest:.2f} times less"
            " work for the busier worker."
        )
    lines += [
        "",
        f"Measured on {about['machine'].get('cpu', 'this machine')}, commit {about['commit']}, in",
        f"one run, with a load of {about['load']:.1f} on {about['cores']} cores: where it is more",
        "than these, other programs took part of the time, and ratios of processor time count.",
        "Repeat it with `python -m benchmarks.dask.lmnn`.",
        "",
    ]
    return "\n".join(lines)


def main(arguments=None):
    """Measure, write the record and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dask.lmnn")
    parser.add_argument("--smoke", action="store_true", help="few rows, no files: as in CI")
    parser.add_argument("--table", action="store_true", help="only write the page anew")
    parser.add_argument("--data", nargs="+", default=["mnist60000"])
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    if options.smoke:
        measure("digits")
        return
    if not options.table:
        about = {"commit": common.commit(), "date": common.now(), **facts("cpu")}
        about |= {"cores": os.cpu_count()}
        sets = [measure(name) for name in options.data]
        about["load"] = os.getloadavg()[0]
        common.write_runs(options.record, {"facts": about, "sets": sets})
    record = json.loads(options.record.read_text(encoding="utf-8"))
    common.write_text(options.page, page(record))


if __name__ == "__main__":
    main()
