"""Table 2.1 of the thesis, measured again: ``python -m benchmarks.papers.thesis_table21``.

A run has three turns: held-out errors for each number of neighbours k on all splits, then for each
number of passes with the best k, then the rows of the table. Everything is saved as soon as it is
measured, and a run leaves out what is saved.
"""

import sys
import time

import joblib

from benchmarks import common
from benchmarks.papers import table1_data, table21_methods, table21_page
from benchmarks.papers.records import available, chosen, open_records, run_script
from benchmarks.papers.table1_paper import PROTOCOLS
from benchmarks.papers.table21_paper import DATA, METHODS, VALIDATED

SMOKE = {"data": ["wine", "iris"], "splits": 2}
TURNS = ("k", "n_passes", "rows")


def jobs(arguments, records, turn):
    """(turn, data, split, methods, device, k, passes) for what is missing, splits in turn."""
    splits = {data: range(min(PROTOCOLS[data].splits, arguments.splits)) for data in arguments.data}
    for split in range(max(map(len, splits.values()), default=0)):
        for data in arguments.data:
            names = [turn] if turn != "rows" else arguments.methods
            unneeded = data in VALIDATED or "passes" not in arguments.methods
            if split not in splits[data] or (turn == "n_passes" and unneeded):
                continue
            missing = records.missing(data, split, names)
            if missing:
                choice = (None, None) if turn == "k" else choices(records, data)
                yield turn, data, split, missing, arguments.device, *choice


def choices(records, data):
    """k and the number of passes that were best on held-out rows; None if that is not known."""
    k = table21_methods.chosen_k(records.rows[data, "k"]["splits"])
    passes = records.rows.get((data, "n_passes"))
    return k, None if passes is None else table21_methods.chosen_passes(passes["splits"])


def work(turn, data, split, methods, device, k, n_passes):
    """Yield (data, split, method, entry) for what one job measures."""
    if turn == "k":
        yield data, split, "k", [table21_methods.errors_by_k(data, split, device)]
    elif turn == "n_passes":
        yield data, split, "n_passes", [table21_methods.errors_by_passes(data, split, device, k)]
    else:
        for method, entry in table21_methods.measure(data, split, methods, device, k, n_passes):
            yield data, split, method, entry


def work_done(*task):
    """All that one job measures, for a process that cannot send a generator."""
    return list(work(*task))


def measure_all(arguments):
    """Measure what is missing, save it, and say it; what has failed."""
    deadline = time.time() + arguments.max_seconds
    if arguments.smoke:
        arguments.data, arguments.splits = SMOKE["data"], SMOKE["splits"]
    arguments.data = available(arguments.data, table1_data.check)
    order = [(data, name) for data in DATA for name in (*TURNS[:2], *METHODS)]
    records, stamp = open_records(arguments, "thesis_table21", order)
    failures = []
    for turn in TURNS:
        if time.time() > deadline:
            break
        tasks = jobs(arguments, records, turn)
        for data, split, name, entry in results(tasks, arguments, deadline):
            print(f"{data:<9} {split:>2} {name:<8} {entry}", flush=True)
            if isinstance(entry, str):
                failures.append(f"{data} {split} {name} failed: {entry}")
            else:
                records.add(data, name, [split, *entry], stamp)
    return failures


def results(tasks, arguments, deadline):
    """What the jobs measure, as it comes; nothing new is begun after the deadline."""
    if arguments.jobs == 1:
        for task in tasks:
            if time.time() > deadline:
                return
            for found in work(*task):
                yield found
                if time.time() > deadline:
                    return
        return
    with joblib.parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs")
        known = list(tasks)
        begun = (joblib.delayed(work_done)(*task) for task in known if time.time() <= deadline)
        for found in parallel(begun):
            yield from found


def parse(arguments=None):
    parser = common.record_parser(
        "papers.thesis_table21", __doc__, "two splits of iris and wine; writes nothing"
    )
    add = parser.add_argument
    add("--data", type=chosen(DATA, {}), default=list(DATA), help="default: all")
    add("--methods", type=chosen(METHODS, {}), default=list(METHODS), help="default: all")
    add("--splits", type=int, default=100, help="at most so many of each data set")
    add("--device", default="cpu", help="cpu or cuda, for the large sets")
    add("--jobs", type=int, default=1, help="splits at a time, each in a process of one thread")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(parse(arguments), "thesis_table21", measure_all, table21_page.page)


if __name__ == "__main__":
    sys.exit(main())
