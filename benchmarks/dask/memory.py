"""Workers that learn from more rows than one may hold: ``python -m benchmarks.dask.memory``.

Wide rows of well separated classes are made where they are used. `LMNN` of few components is fitted
to them on two processes of one thread each, under a memory limit below the size of the rows. A
record has how much the memory of each worker grew, beside its bound: three times its share of the
rows, the blocks in flight, and what a worker needs for any number of rows, which is the memory that
its C library keeps after it was freed, and some matrices of all features in float64.
"""

import json
import tempfile
import time
import warnings
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

WORKERS, CLASSES, COMPONENTS = 2, 200, 10
FACTORS, APART, NOISE = 16, np.float32(6.0), np.float32(0.3)
MATRICES = 6  # of d × d numbers in float64 that a task has at a time: maps, and sums over rows
RECORD = common.ROOT / "benchmarks" / "results" / "dask_memory.json"
PAGE = common.ROOT / "docs" / "results" / "dask_memory.md"


def rows_of_block(n_features, block_info=None):
    """The rows of one block, by its number: few factors and noise, around centres of classes."""
    place = block_info[None]
    (first, last), *_ = place["array-location"]
    rng, fixed = np.random.default_rng(place["chunk-location"][0]), np.random.default_rng(0)
    centres = APART * fixed.standard_normal((CLASSES, FACTORS), dtype=np.float32)
    loadings = fixed.standard_normal((FACTORS, n_features), dtype=np.float32)
    factors = rng.standard_normal((last - first, FACTORS), dtype=np.float32)
    factors += centres[np.arange(first, last) % CLASSES]
    rows = rng.standard_normal((last - first, n_features), dtype=np.float32)
    rows *= NOISE
    rows += factors @ loadings
    return rows


def lazy_rows(n_rows, n_features, size=4096):
    """Lazy rows; row i is of class i modulo CLASSES."""
    import dask.array as da

    sizes = tuple(min(size, n_rows - first) for first in range(0, n_rows, size))
    return da.map_blocks(
        rows_of_block,
        n_features,
        chunks=(sizes, (n_features,)),
        dtype=np.float32,
        meta=np.empty((0, 0), dtype=np.float32),
    )


def measure(n_rows, n_features, limit, max_iter):
    """One fit, and the memory of its workers in megabytes; ``limit`` is that of each, too."""
    import dask
    from distributed import Client, LocalCluster

    from nearfar import LMNN
    from nearfar.blocks.malloc import TRIM_BYTES, growth_bytes
    from nearfar.blocks.rows import BATCH, IN_FLIGHT, block_starts

    X, y = lazy_rows(n_rows, n_features), np.arange(n_rows) % CLASSES
    model = LMNN(n_components=COMPONENTS, shrinkage=0, max_iter=max_iter, tol=1e-2)
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"temporary-directory": folder}),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=int(limit * 1e6),
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # few iterations do not reach tol
        LMNN(max_iter=2).fit(X[:2000, :20].rechunk({1: -1}), y[:2000])  # imports
        before, used = client.run(memory_now), client.run(processor_seconds)
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        after, used_after = client.run(peak_memory), client.run(processor_seconds)
    if set(before) != set(after):
        raise RuntimeError("a worker was restarted for its memory. Raise the limit.")
    starts = block_starts((n_rows, n_features), np.float32)
    megabytes, block = 4e-6 * n_rows * n_features, 4e-6 * n_features * float(np.diff(starts).max())
    flight = (IN_FLIGHT + 1) * BATCH * block
    constant = 1e-6 * (growth_bytes(limit * 1e6) + TRIM_BYTES + MATRICES * 8 * n_features**2)
    return {
        "rows": n_rows,
        "features": n_features,
        "workers": WORKERS,
        "memory_limit_megabytes": limit,
        "megabytes": megabytes,
        "block_megabytes": block,
        "n_blocks": len(starts) - 1,
        "in_flight_megabytes": flight,
        "constant_megabytes": constant,
        "bound_megabytes": 3 * megabytes / WORKERS + flight + constant,
        "before_megabytes": list(before.values()),
        "growth_megabytes": [after[name] - before[name] for name in before],
        "processor_seconds_of_workers": [used_after[name] - used[name] for name in used],
        "seconds": seconds,
        "iterations": model.n_iter_,
        "objective": model.objective_,
    }


def page(record):
    """The page of a record."""
    lines = [
        "# Memory of workers",
        "",
        f"`LMNN` of {COMPONENTS} components learns from rows that are made where they are used, on",
        "two processes of one thread each, whose memory limit is smaller than the rows. *Growth*",
        "is how much the memory of the worker that needs more grew at its peak, beside what its",
        "programs take. *Bound* is three times its share of the rows, the blocks in flight, and",
        "what it needs for any number of rows: freed memory that its C library keeps, and",
        f"{MATRICES} matrices of all features. No worker was restarted.",
        "",
        "| rows | MB | limit of a worker, MB | share, MB | in flight, MB | any rows, MB | bound, MB"
        " | growth, MB | growth, in shares | seconds | iterations |",
        "|" + " ---: |" * 11,
    ]
    for run in record["runs"]:
        share, growth = run["megabytes"] / run["workers"], max(run["growth_megabytes"])
        lines.append(
            f"| {run['rows']} × {run['features']} | {run['megabytes']:.0f} |"
            f" {run['memory_limit_megabytes']:.0f} | {share:.0f} |"
            f" {run['in_flight_megabytes']:.0f} | {run['constant_megabytes']:.0f} |"
            f" {run['bound_megabytes']:.0f} | {growth:.0f} | {growth / share:.1f} |"
            f" {run['seconds']:.0f} | {run['iterations']} |"
        )
    lines += [
        "",
        "Triplets take memory, too, some 100 bytes each: rows of few features in classes that",
        "overlap have many, as [MNIST](dask_lmnn.md) has. What does not fit under the limit is",
        "written to disk by Dask until it is needed.",
        "",
        *measured_on(record["facts"], "memory"),
        "",
    ]
    return "\n".join(lines)


def main(arguments=None):
    """Measure, write the record and the page."""
    parser = common.page_parser("dask.memory", __doc__, RECORD, PAGE)
    parser.add_argument("--smoke", action="store_true", help="few rows, as in CI; keeps no files")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--limit", type=float, default=1000.0, help="megabytes of a worker")
    parser.add_argument("--iterations", type=int, default=3)
    options = parser.parse_args(arguments)
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "record.json"
            run = measure(4000, 50, 1000.0, 2)
            common.write_runs(record, {"facts": with_load(about_machine()), "runs": [run]})
            print(page(json.loads(record.read_text(encoding="utf-8"))))
        return
    if not options.table:
        about = about_machine()
        run = measure(options.rows, options.features, options.limit, options.iterations)
        common.write_runs(options.record, {"facts": with_load(about), "runs": [run]})
    record = json.loads(options.record.read_text(encoding="utf-8"))
    common.write_text(options.page, page(record))


if __name__ == "__main__":
    main()
