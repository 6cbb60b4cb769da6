"""What larger clusters would take, on paper: ``python -m benchmarks.dask.model``, a minute.

Three constants are measured here: rows whose scatter a core sums in a second, pairs of rows whose
distances a core searches in a second, and the scheduler's seconds for a task. The fourth, the bytes
that a machine receives in a second, is assumed. With n rows of d features in float32, M machines of
C cores, and blocks of S bytes:

(1) blocks    B = 4 n d / S
(2) one pass  B tasks, no rows moved; seconds = max(n / (rows a second · M C), B t) + d³-work
(3) all pairs B² tasks, and each of M machines receives all blocks once;
              seconds = max(n² / (pairs a second · M C), B² t, 4 n d / bytes a second)

t is the scheduler's time for a task: it is one process, and the most that a cluster can do.
"""

import argparse
import time

import numpy as np

from benchmarks import common

PAGE = common.ROOT / "docs" / "beyond_one_machine.md"
BEGIN, END = "<!-- model -->\n", "<!-- end of model -->\n"
FEATURES, CORES, BLOCK, BYTES = 64, 8, 2**25, 1e9  # of a machine: 1 GB received in a second


def best(work, repeats=5):
    """Least processor seconds of some runs: other programs do not count."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measured():
    """Rows and pairs a second of a core, and seconds of a task."""
    from distributed import Client

    from nearfar.blocks.scatter import scatter_of_rows
    from nearfar.kernels import kernels_for
    from nearfar.kernels.threads import one_thread

    rng = np.random.default_rng(0)
    X = rng.random((1 << 17, FEATURES), dtype=np.float32)
    codes = rng.integers(0, 10, len(X))
    with one_thread():
        rows = len(X) / best(lambda: scatter_of_rows(X, X[0].astype(float), codes))
        Z = X[: 1 << 13]
        pairs = len(Z) ** 2 / best(lambda: kernels_for(Z).nearest(Z, Z, 3))
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        client.gather(client.map(abs, range(100)))
        task = best(lambda: client.gather(client.map(abs, range(1000), pure=False)), 3) / 1000
    return rows, pairs, task


def table(rows, pairs, task):
    """The lines of the table."""
    lines = [
        f"Measured on one core: the scatter of {rows / 1e6:.1f} million rows of {FEATURES} features"
        f" a second, {pairs / 1e6:.0f} million pairs of rows searched a second, and"
        f" {1e3 * task:.1f} ms of the scheduler for a task. Assumed: machines of {CORES} cores that"
        " receive 1 GB a second, rows in float32.",
        "",
        "| rows | machines | blocks | one pass: tasks, seconds | all pairs once: tasks | GB moved"
        " | seconds | what limits it |",
        "|" + " ---: |" * 7 + " --- |",
    ]
    for n in (1e7, 1e8, 1e9):
        for machines in (10, 100, 1000):
            blocks = max(8, round(4 * n * FEATURES / BLOCK))
            once = max(n / (rows * machines * CORES), blocks * task)
            parts = {
                "arithmetic": n**2 / (pairs * machines * CORES),
                "scheduler": blocks**2 * task,
                "network": 4 * n * FEATURES / BYTES,
            }
            limit = max(parts, key=parts.get)
            moved = 4e-9 * n * FEATURES * machines
            lines.append(
                f"| {n:.0e} | {machines} | {blocks:,} | {blocks:,}, {once:.2g} | {blocks**2:,} |"
                f" {moved:,.0f} | {parts[limit]:,.2g} | {limit} |"
            )
    return lines


def main(arguments=None):
    """Write the table into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dask.model")
    parser.add_argument("--smoke", action="store_true", help="print it, and write nothing")
    options = parser.parse_args(arguments)
    text = "\n".join(table(*measured())) + "\n"
    if options.smoke:
        print(text)
        return
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    common.write_text(PAGE, head + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
