"""Neighbourhood graphs of Dask arrays: ``python -m benchmarks.dask.graph``, two minutes.

The graph of the same points is made in memory and from blocks, on a cluster of two processes of one
thread each, and compared: it must have the same edges and lengths, bit by bit.
"""

import json
import time

import numpy as np

from benchmarks import common
from benchmarks.papers.records import facts

NEIGHBORS = 5
RECORD = common.ROOT / "benchmarks" / "results" / "dask_graph.json"
PAGE = common.ROOT / "docs" / "results" / "dask_graph.md"


def points(n, features):
    """A Swiss roll; of more than three features, turned into them in float32, with noise."""
    from sklearn.datasets import make_swiss_roll

    X, _ = make_swiss_roll(n, random_state=0)
    if features == 3:
        return X
    rng = np.random.default_rng(0)
    wide = X @ rng.normal(size=(3, features)) + 0.01 * rng.normal(size=(n, features))
    return wide.astype(np.float32)


def measure(n, features, client):
    """Processor seconds in memory and from blocks, and whether both graphs are the same."""
    import dask.array as da

    from nearfar import NeighborhoodGraph

    X = points(n, features)
    rows = da.from_array(X, chunks=(max(n // 10, 1), features))
    start = time.process_time()
    expected = NeighborhoodGraph.from_points(X, NEIGHBORS)
    memory = time.process_time() - start
    used, start = sum(client.run(time.process_time).values()), time.process_time()
    began = time.perf_counter()
    found = NeighborhoodGraph.from_points(rows, NEIGHBORS)
    seconds = time.perf_counter() - began
    here = time.process_time() - start
    workers = sum(client.run(time.process_time).values()) - used
    same = all(
        np.array_equal(getattr(found, field), getattr(expected, field))
        for field in ("heads", "tails", "lengths", "directions")
    )
    return {
        "points": n,
        "features": features,
        "edges": found.n_edges,
        "memory_seconds": memory,
        "worker_seconds": workers,
        "client_seconds": here,
        "clock_seconds": seconds,
        "same": same,
    }


def measure_all(sizes):
    """The record of each size, on one cluster."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        measure(2000, 3, client)  # so that no timed task imports anything
        return [measure(n, features, client) for n, features in sizes]


def page(record):
    """The page of a record."""
    lines = [
        "# Neighbourhood graphs of Dask arrays",
        "",
        f"The graph of {NEIGHBORS} neighbours and their angles, of a Swiss roll: in three features",
        "and float64, or turned into 64 features in float32, with noise. Processor seconds in",
        "memory, and from blocks: those of two workers of one thread, and those of the machine to",
        "which the graph comes. *Same*: all edges and lengths are those in memory, bit by bit.",
        "",
        "| points | features | edges | in memory, s | workers, s | this machine, s | same |",
        "|" + " ---: |" * 7,
    ]
    lines += [
        f"| {run['points']:,} | {run['features']} | {run['edges']:,} |"
        f" {run['memory_seconds']:.1f} | {run['worker_seconds']:.1f} |"
        f" {run['client_seconds']:.1f} |"
        f" {'yes' if run['same'] else 'no'} |"
        for run in record["runs"]
    ]
    about = record["facts"]
    lines += [
        "",
        f"Measured on {about['machine'].get('cpu', 'this machine')}, commit {about['commit']}, in",
        "one run. Other programs ran beside it, hence the seconds of processors. Repeat",
        "it with `python -m benchmarks.dask.graph`.",
        "",
    ]
    return "\n".join(lines)


def main(arguments=None):
    """Measure, write the record and the page."""
    parser = common.page_parser("dask.graph", __doc__, RECORD, PAGE)
    parser.add_argument("--smoke", action="store_true", help="few points, no files: as in CI")
    options = parser.parse_args(arguments)
    if options.smoke:
        runs = measure_all([(3000, 3)])
        print(json.dumps(runs))
        if not runs[0]["same"]:
            raise SystemExit("the graph from blocks is not the one in memory")
        return
    if not options.table:
        about = {"commit": common.commit(), "date": common.now(), **facts("cpu")}
        runs = measure_all([(100_000, 3), (400_000, 3), (30_000, 64)])
        common.write_runs(options.record, {"facts": about, "runs": runs})
    record = json.loads(options.record.read_text(encoding="utf-8"))
    common.write_text(options.page, page(record))


if __name__ == "__main__":
    main()
