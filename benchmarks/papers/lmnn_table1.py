"""Table 1 of the LMNN paper, measured again: ``python -m benchmarks.papers.lmnn_table1``.

Every split of every row is saved as soon as it is measured, and a run leaves out what is saved, so
that an interrupted one continues where it was.
"""

import sys
import time

import joblib

from benchmarks import common
from benchmarks.papers import table1_data, table1_page
from benchmarks.papers.records import available, chosen, open_records, run_script
from benchmarks.papers.table1_methods import GROUPS, METHODS, Result, applies, measure
from benchmarks.papers.table1_paper import PROTOCOLS

SMOKE = {"data": ["iris", "wine"], "splits": 2}


def jobs(arguments, records):
    """(data, split, methods) for all that is missing."""
    for data in arguments.data:
        methods = [method for method in arguments.methods if applies(method, data)]
        splits = PROTOCOLS[data].splits
        for split in range(min(splits, arguments.splits or splits)):
            missing = records.missing(data, split, methods)
            if missing:
                yield data, split, missing


def run(job, device, deadline):
    """All results of a job, for another process."""
    return job, list(measure(*job, device, deadline))


def results(arguments, records, deadline):
    """Yield (data, split, method, result) as they come."""
    work = list(jobs(arguments, records))
    if arguments.jobs == 1:
        for data, split, methods in work:
            if time.time() > deadline:
                return
            for method, result in measure(data, split, methods, arguments.device, deadline):
                yield data, split, method, result
        return
    with joblib.parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        parallel = joblib.Parallel(return_as="generator_unordered")
        tasks = (joblib.delayed(run)(job, arguments.device, deadline) for job in work)
        for (data, split, _), found in parallel(tasks):
            for method, result in found:
                yield data, split, method, result


def parse(arguments=None):
    parser = common.record_parser(
        "papers.lmnn_table1", __doc__, "two splits of iris and wine; writes nothing"
    )
    add = parser.add_argument
    add("--data", type=chosen(PROTOCOLS, {}), default=list(PROTOCOLS), help="default: all")
    groups = ", ".join(GROUPS)
    add(
        "--methods",
        type=chosen(METHODS, GROUPS),
        default=list(METHODS),
        help=f"of {', '.join(METHODS)}, or {groups}; default: all",
    )
    add("--splits", type=int, help="at most so many of each data set; default: the paper's")
    add("--device", default="cpu", help="cpu or cuda, for nearfar on the large sets")
    add("--jobs", type=int, default=1, help="splits at a time, each in a process of one thread")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    return parser.parse_args(arguments)


def main(arguments=None):
    return run_script(parse(arguments), "lmnn_table1", measure_all, table1_page.page)


def measure_all(arguments):
    """Measure what is missing, save it, and say it; what has failed."""
    deadline = time.time() + arguments.max_seconds
    if arguments.smoke:
        arguments.data, arguments.splits = SMOKE["data"], SMOKE["splits"]
    arguments.data = available(arguments.data, table1_data.check)
    order = [(data, method) for data in PROTOCOLS for method in METHODS]
    records, stamp = open_records(arguments, "lmnn_table1", order)
    failures = []
    for data, split, method, result in results(arguments, records, deadline):
        place = f"{data:<9} {split:>2} {method:<20}"
        if isinstance(result, Result):
            times = (round(result.learning, 4), round(result.predicting, 4))
            entry = [split, round(result.error, 6), *times, result.remark]
            records.add(data, method, entry, stamp)
            seconds = f"{result.learning:8.2f} s {result.predicting:8.2f} s"
            print(f"{place} {result.error:7.2%} {seconds}  {result.remark}", flush=True)
        else:
            failures.append(f"{place} failed: {result}")
            print(failures[-1], flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
