"""Figures 1 and 2 of the MCML paper, measured again: ``python -m benchmarks.papers.mcml_figure1``.

Every split of every curve is saved as soon as it is measured, and a run leaves out what is saved,
so that an interrupted one continues where it was.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import joblib

from benchmarks import common
from benchmarks.papers import figure1_data, figure1_page
from benchmarks.papers.figure1_data import NAMES, SPLITS
from benchmarks.papers.figure1_methods import METHODS, Curve, applies, measure
from benchmarks.papers.records import available, chosen, open_records

SMOKE = {"data": ["iris", "digits"], "splits": 2}


def jobs(arguments, records):
    """(data, split, methods) for all that is missing."""
    for data in arguments.data:
        methods = [method for method in arguments.methods if applies(method, data)]
        for split in range(arguments.splits):
            missing = records.missing(data, split, methods)
            if missing:
                yield data, split, missing


def run(job, deadline):
    """All curves of a job, for another process."""
    return job, list(measure(*job, deadline))


def curves(arguments, records, deadline):
    """Yield (data, split, method, curve) as they come."""
    work = list(jobs(arguments, records))
    if arguments.jobs == 1:
        for data, split, methods in work:
            for method, found in measure(data, split, methods, deadline):
                yield data, split, method, found
        return
    with joblib.parallel_config("loky", n_jobs=arguments.jobs, inner_max_num_threads=1):
        parallel = joblib.Parallel(return_as="generator_unordered")
        for (data, split, _), found in parallel(joblib.delayed(run)(job, deadline) for job in work):
            for method, each in found:
                yield data, split, method, each


def measure_all(arguments):
    """Measure what is missing, save it, and say it; what has failed."""
    deadline = time.time() + arguments.max_seconds
    arguments.data = available(arguments.data, figure1_data.check)
    order = [(data, method) for data in NAMES for method in METHODS]
    records, stamp = open_records(arguments, "mcml_figure1", order)
    failures = []
    for data, split, method, found in curves(arguments, records, deadline):
        place = f"{data:<10} {split:>2} {method:<13}"
        if isinstance(found, Curve):
            errors = {str(q): round(error, 6) for q, error in found.errors.items()}
            spectrum = [round(value, 6) for value in found.spectrum]
            records.add(data, method, [split, round(found.seconds, 4), errors, spectrum], stamp)
            shown = " ".join(f"{100 * error:.1f}" for error in found.errors.values())
            print(f"{place} {found.seconds:7.2f} s  {shown}", flush=True)
        else:
            failures.append(f"{place} failed: {found}")
            print(failures[-1], flush=True)
    return failures


def write_page(arguments):
    """The page and the picture from the records of all machines."""
    paths = sorted(arguments.results.glob("mcml_figure1-*.json"))
    records = [json.loads(path.read_text()) for path in paths]
    picture = os.path.relpath(arguments.picture, arguments.page.parent)
    common.write_text(arguments.page, figure1_page.page(records, picture))
    if records:
        figure1_page.draw(records, arguments.picture)


def parse(arguments=None):
    root = common.ROOT
    parser = common.record_parser(
        "papers.mcml_figure1", __doc__, "two splits of iris and digits; writes nothing"
    )
    add = parser.add_argument
    add("--data", type=chosen(NAMES, {}), default=list(NAMES), help=f"of {','.join(NAMES)}")
    add(
        "--methods", type=chosen(METHODS, {}), default=list(METHODS), help=f"of {','.join(METHODS)}"
    )
    add("--splits", type=int, default=SPLITS, help=f"of each data set; default: {SPLITS}")
    add("--jobs", type=int, default=1, help="splits at a time, each in a process of one thread")
    add("--max-seconds", type=float, default=float("inf"), help="then nothing new is begun")
    add("--picture", type=Path, default=root / "docs" / "images" / "mcml_figure1.png")
    parsed = parser.parse_args(arguments)
    parsed.device = "cpu"
    return parsed


def main(arguments=None):
    arguments = parse(arguments)
    if arguments.table:
        write_page(arguments)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            arguments.data, arguments.splits = SMOKE["data"], SMOKE["splits"]
            arguments.results = Path(folder)
            arguments.page, arguments.picture = Path(folder) / "page.md", Path(folder) / "page.png"
        failures = measure_all(arguments)
        write_page(arguments)
        if arguments.smoke:
            print(arguments.page.read_text())
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
