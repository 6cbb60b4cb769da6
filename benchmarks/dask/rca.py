"""RCA of rows that no machine holds: ``python -m benchmarks.dask.rca``, three minutes.

Rows are made where they are used and never stored. On the same cluster, two processes of one thread
each under a memory limit that is smaller than the rows, three things are timed in turn: to make the
rows, to make them and multiply each block, ``X.T @ X`` of NumPy, and to fit RCA to them.
"""

import json
import time

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

FEATURES, CLASSES = 64, 10
LIMIT = 1.5  # gigabytes of a worker
RECORD = common.ROOT / "benchmarks" / "results" / "dask_rca.json"
PAGE = common.ROOT / "docs" / "results" / "dask_rca.md"


def rows_of_block(block_info=None):
    """The rows of one block, by its number: uniform, so that they are cheap to make."""
    place = block_info[None]
    rng = np.random.Generator(np.random.SFC64(place["chunk-location"][0]))
    return rng.random(place["chunk-shape"])


def labels_of_block(block_info=None):
    """The labels of the same rows."""
    place = block_info[None]
    rng = np.random.Generator(np.random.SFC64([1, place["chunk-location"][0]]))
    return rng.integers(0, CLASSES, place["chunk-shape"], dtype=np.int16)


def arrays(n_rows, size=1 << 16):
    """Lazy rows and labels."""
    import dask.array as da

    sizes = (size,) * (n_rows // size) + ((n_rows % size,) if n_rows % size else ())
    X = da.map_blocks(
        rows_of_block, chunks=(sizes, (FEATURES,)), dtype=np.float64, meta=np.empty((0, 0))
    )
    y = da.map_blocks(labels_of_block, chunks=(sizes,), dtype=np.int16, meta=np.empty(0, np.int16))
    return X, y


def _made(block):
    return float(block[0, 0])


def _product(block):
    return block.T @ block


def _warm():
    import nearfar  # noqa: F401 - so that no timed task imports it
    from nearfar.supervision import labelled_blocks  # noqa: F401


def measure(n_rows, n_workers, repeats):
    """Seconds of each, of the clock and of the workers' processors, and the workers' memory."""
    from distributed import Client, LocalCluster

    from nearfar import RCA
    from nearfar.blocks.collections import Stream

    X, y = arrays(n_rows)
    seconds = {"rows": [], "product": [], "rca": [], "auto": []}
    processors = {name: [] for name in seconds}
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=f"{LIMIT}GB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(_warm)
        small = arrays(1 << 17)
        RCA(shrinkage=0.1).fit(*small)  # so that no timed task imports anything
        before = sorted(client.run(memory_now).values())
        for _ in range(repeats):
            for name, work in (
                ("rows", lambda: Stream.of(X).results(_made, name="rows")),
                ("product", lambda: sum(Stream.of(X).results(_product, name="product"))),
                ("rca", lambda: RCA(shrinkage=0.1).fit(X, y)),
                ("auto", lambda: RCA().fit(X, y)),
            ):
                used = sum(client.run(processor_seconds).values())
                start = time.perf_counter()
                work()
                seconds[name].append(time.perf_counter() - start)
                processors[name].append(sum(client.run(processor_seconds).values()) - used)
        after = sorted(client.run(peak_memory).values())
    return {
        "rows": n_rows,
        "workers": n_workers,
        "gigabytes": 8e-9 * n_rows * FEATURES,
        "memory_limit_gigabytes": LIMIT,
        "seconds": {name: min(values) for name, values in seconds.items()},
        "processor_seconds": {name: min(values) for name, values in processors.items()},
        "peak_megabytes_before": before,
        "peak_megabytes_after": after,
    }


def page(record):
    """The page of a record."""
    lines = [
        "# RCA of rows that no machine holds",
        "",
        "Rows of 64 features in 10 classes are made block by block, used and forgotten. On the",
        f"same workers, one thread each, with a limit of {LIMIT} GB: the processor seconds of all",
        "workers to make the rows, to make them and multiply each block (NumPy's `X.T @ X`), and",
        "to fit `RCA(shrinkage=0.1)`, labels counted. *Ratio* is RCA over the product; *without",
        "rows*, after the seconds to make the rows are taken off both. `RCA()` also chooses",
        "shrinkage, from a sample of 20 000 rows on this machine, which takes some seconds however",
        "many rows there are; its column is the time of the clock.",
        "",
        "| rows | gigabytes | workers | rows made, s | `X.T @ X`, s | RCA, s | ratio | without rows"
        " | `RCA()`, s | peak of a worker, MB | before, MB |",
        "|" + " ---: |" * 11,
    ]
    for run in record["runs"]:
        spent = run["processor_seconds"]
        made, product, rca = (spent[name] for name in ("rows", "product", "rca"))
        lines.append(
            f"| {run['rows']:.0e} | {run['gigabytes']:.2g} | {run['workers']} | {made:.1f} |"
            f" {product:.1f} | {rca:.1f} | {rca / product:.2f} |"
            f" {(rca - made) / (product - made):.2f} | {run['seconds']['auto']:.1f} |"
            f" {run['peak_megabytes_after'][-1]:.0f} | {run['peak_megabytes_before'][-1]:.0f} |"
        )
    about = record["facts"]
    lines += [
        "",
        "A worker never holds more than the few blocks of 32 MB that it works on: its peak does",
        "not grow with the rows, and its share of them is larger than its limit.",
        "",
        *measured_on(about, "rca"),
        "",
    ]
    return "\n".join(lines)


def main(arguments=None):
    """Measure, write the record and the page."""
    parser = common.page_parser("dask.rca", __doc__, RECORD, PAGE)
    parser.add_argument("--smoke", action="store_true", help="few rows, no files: as in CI")
    parser.add_argument("--rows", type=int, default=10**7)
    options = parser.parse_args(arguments)
    if options.smoke:
        run = measure(200_000, 2, 1)
        print(json.dumps(run["seconds"]))
        return
    if not options.table:
        about = about_machine()
        runs = []
        for n_rows in (options.rows, options.rows // 4):
            runs.append(measure(n_rows, 2, 1))
            common.write_runs(options.record, {"facts": with_load(about), "runs": runs})
    record = json.loads(options.record.read_text(encoding="utf-8"))
    common.write_text(options.page, page(record))


if __name__ == "__main__":
    main()
