"""LMNN of MNIST on a cluster and in memory: ``python -m benchmarks.dask.lmnn``, minutes.

The same rows, tolerance and cores: in memory with two threads, on a cluster of one process of one
thread, and on one of two. A record has seconds, and the processor time of all processes, which
tells more where other programs run beside it; objective and certified gap; and how much a worker's
memory grew beside its share of the rows and the blocks in flight.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import common
from benchmarks.dask.workers import (
    about_machine,
    measured_on,
    memory_now,
    peak_memory,
    processor_seconds,
    with_load,
)
from benchmarks.lmnn.data import load

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
        before, used = client.run(memory_now), client.run(processor_seconds)
        start, processor = time.perf_counter(), time.process_time()
        model = LMNN(tol=TOL).fit(rows, y)
        seconds = time.perf_counter() - start
        processor = time.process_time() - processor
        after, used_after = client.run(peak_memory), client.run(processor_seconds)
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
            runs.append({"data": name, "rows": X.shape[0], "features": X.shape[1], **work()})
            print(json.dumps(runs[-1]), flush=True)
    return runs


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
    sets = {name: [run for run in record["runs"] if run["data"] == name] for name in names(record)}
    for runs in sets.values():
        peer = next(run for run in runs if run["where"] == "memory")
        for run in runs:
            workers = run.get("workers")
            memory = "| | | |"
            if workers:
                memory = (
                    f"| {max(run['growth_megabytes']):.0f} | {run['megabytes'] / workers:.0f} |"
                    f" {run['block_megabytes']:.0f} |"
                )
            where = f"{workers} worker{'s' * (workers > 1)}" if workers else "memory"
            lines.append(
                f"| {run['rows']} × {run['features']} | {where} | {run['seconds']:.0f} |"
                f" {run['processor_seconds']:.0f} | {run['seconds'] / peer['seconds']:.2f} |"
                f" {run['processor_seconds'] / peer['processor_seconds']:.2f} |"
                f" {run['iterations']} | {run['objective']:.6g} | {run['gap']:.1e} {memory}"
            )
    lines += ["", "From one worker to two:", ""]
    for runs in sets.values():
        two, one = (next(run for run in runs if run.get("workers") == count) for count in (2, 1))
        busiest = max(two["processor_seconds_of_workers"])
        lines.append(
            f"- {one['rows']} rows: {one['seconds'] / two['seconds']:.2f} times as fast; by"
            f" processor time, {sum(one['processor_seconds_of_workers']) / busiest:.2f} times less"
            " work for the busier worker."
        )
    return "\n".join([*lines, "", *measured_on(record["facts"], "lmnn"), ""])


def names(record):
    """The data sets of a record, in their order."""
    return list(dict.fromkeys(run["data"] for run in record["runs"]))


def main(arguments=None):
    """Measure, write the record and the page."""
    parser = common.page_parser("dask.lmnn", __doc__, RECORD, PAGE)
    parser.add_argument("--smoke", action="store_true", help="few rows, as in CI; keeps no files")
    parser.add_argument("--data", nargs="+", default=["mnist60000"])
    options = parser.parse_args(arguments)
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            measure_all(["digits"], Path(folder) / "record.json", Path(folder) / "page.md")
    elif options.table:
        write_page(options.record, options.page)
    else:
        measure_all(options.data, options.record, options.page)


def measure_all(data, record, page_path):
    """Measure, write the record and the page."""
    about = about_machine()
    runs = [run for name in data for run in measure(name)]
    common.write_runs(record, {"facts": with_load(about), "runs": runs})
    write_page(record, page_path)


def write_page(record, path):
    """Write the page of a record's file."""
    common.write_text(path, page(json.loads(record.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
