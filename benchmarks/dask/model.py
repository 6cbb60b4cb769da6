"""What larger clusters would take, on paper: ``python -m benchmarks.dask.model``, two minutes.

Measured here: rows whose scatter a core sums in a second, pairs of rows whose distances a core
searches in a second, the scheduler's seconds for a task; and of a fit of LMNN to generated rows,
how often it searches for impostors, its rounds over the shards, and a core's seconds for a row
outside of searches. Assumed are the bytes that a machine receives in a second. With n rows of d
features in float32, M machines of C cores, and blocks of S bytes:

(1) blocks    B = 4 n d / S
(2) one pass  B tasks, no rows moved; seconds = max(n / (rows a second · M C), B t) + d³-work
(3) all pairs B² tasks, and each of M machines receives all blocks once;
              seconds = max(n² / (pairs a second · M C), B² t, 4 n d / bytes a second)
(4) LMNN      s searches of B²/2 pairs of blocks, four tasks each, and k rounds of B tasks;
              seconds = s max(n² / (2 pairs a second · min(M C, B²/2)), 2 B² t, 4 n d / bytes)
              + max(n w / min(M C, B), k B t), with w a core's seconds for a row in all rounds

t is the scheduler's time for a task: it is one process, and the most that a cluster can do.
"""

import argparse
import time

import numpy as np

from benchmarks import common

PAGE = common.ROOT / "docs" / "beyond_one_machine.md"
BEGIN, END = "<!-- model -->\n", "<!-- end of model -->\n"
ROUNDS = ("line_search", "gradient", "move", "place", "advance", "bound", "curvature")
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


def measured_fit(pairs, n=8000, classes=10):
    """Searches and rounds of a fit of LMNN, and a core's seconds for a row outside of searches."""
    import dask.array as da

    from nearfar import LMNN
    from nearfar.blocks.engine import Threads

    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, n)
    X = rng.normal(size=(n, FEATURES)) + 1.5 * rng.normal(size=(classes, FEATURES))[y] / 4
    maps, plain = [], Threads.map

    def noting(self, *args, name, **more):
        maps.append(name)
        return plain(self, *args, name=name, **more)

    Threads.map = noting
    try:
        start = time.process_time()
        model = LMNN(tol=1e-2).fit(da.from_array(X.astype(np.float32), chunks=(2000, FEATURES)), y)
        seconds = time.process_time() - start
    finally:
        Threads.map = plain
    assert model.duality_gap_ <= 1e-2
    searches = maps.count("impostor_images")
    rounds = sum(maps.count(name) for name in ROUNDS)
    return searches, rounds, max(seconds - searches * n * n / 2 / pairs, 0.0) / n


def lmnn_table(pairs, task, searches, rounds, row):
    """The lines of the table of LMNN."""
    lines = [
        f"A fit of `LMNN(tol=0.01)` to generated rows searched {searches} times, took {rounds}"
        f" rounds over the shards, and {1e3 * row:.2g} ms of a core for each row outside of"
        " searches. If more rows need no more of either, a fit takes:",
        "",
        "| rows | machines | tasks | GB moved | hours of searches | hours of rounds | all, hours |"
        " machines that rounds can use |",
        "|" + " ---: |" * 8,
    ]
    for n in (1e7, 1e8, 1e9):
        blocks = max(8, round(4 * n * FEATURES / BLOCK))
        for machines in (10, 100, 1000):
            cores, tasks, moved = machines * CORES, 2 * blocks**2, 4 * n * FEATURES
            busy = min(cores, blocks**2 // 2)  # no more pairs of blocks than that
            search = searches * max(n**2 / (2 * pairs * busy), tasks * task, moved / BYTES)
            turns = max(n * row / min(cores, blocks), rounds * blocks * task)
            lines.append(
                f"| {n:.0e} | {machines} | {searches * tasks + rounds * blocks:,} |"
                f" {1e-9 * searches * moved * machines:,.0f} | {search / 3600:,.2g} |"
                f" {turns / 3600:,.2g} | {(search + turns) / 3600:,.2g} | {-(-blocks // CORES):,} |"
            )
    return lines


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
    constants = measured()
    lines = [*table(*constants), "", *lmnn_table(*constants[1:], *measured_fit(constants[1]))]
    text = "\n".join(lines) + "\n"
    if options.smoke:
        print(text)
        return
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    common.write_text(PAGE, head + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
