"""How far LMNN scales on one machine: ``python -m benchmarks.lmnn.millions --device cuda``.

Digits deformed as in infinite MNIST, covertype and MNIST: seconds, peak memory, certified gap and
3-NN test error, and what a fit to 60000 of the rows would have given instead. A judge that shares
no code with nearfar recomputes the objective on drawn rows against all points, and the bound from
the dual point (`millions_fit`). On CUDA all fits share a process, which has one start of the
device; on the CPU each has its own, whose peak is its own. A fit is saved in the place of an
earlier one.
"""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks import common
from benchmarks.lmnn.millions_page import page
from benchmarks.papers.records import facts, record_path, run_script

TASKS = {  # data, rows, columns, tol
    "mnist60000": ("mnist", 60_000, 164, 1e-2),
    "mnist60000 1e-3": ("mnist", 60_000, 164, 1e-3),
    "digits1e5": ("digits", 100_000, 128, 1e-2),
    "digits2e5": ("digits", 200_000, 128, 1e-2),
    "digits5e5": ("digits", 500_000, 128, 1e-2),
    "digits1e6": ("digits", 1_000_000, 128, 1e-2),
    "covertype": ("covertype", 571_012, 54, 1e-2),
    "digits2e6": ("digits", 2_000_000, 164, 1e-2),
    "digits8.1e6": ("digits", 8_100_000, 164, 1e-2),
}
SMOKE = {"made2000": ("made", 2000, 12, 1e-2)}
STREAMED = " in "  # so many GB of the device: rows in host memory, a block at a time
LIMIT = 700  # seconds of a fit: max_seconds
ERRORS = 5  # standard errors by which the judge's estimate may differ
AGREEMENT = 1e-6  # of the judge's bound and objective_ − gap


def faults(row):
    """What a row says of itself that the judge does not find."""
    if "reason" in row:
        yield f"{row['name']}: {row['reason']}"
        return
    if row["gap"] is None:
        return
    off = abs(row["judged_objective"] - row["objective"])
    if off > ERRORS * row["judged_error"] + AGREEMENT * row["objective"]:
        judged = row["judged_objective"]
        yield f"{row['name']}: objective {row['objective']:.6g}, judged {judged:.6g}"
    claimed = row["objective"] * (1 - row["gap"])
    if row["judged_bound"] < claimed * (1 - AGREEMENT):
        yield f"{row['name']}: bound {claimed:.8g}, judged {row['judged_bound']:.8g}"
    if row["judged_targets"] < 1:
        yield f"{row['name']}: targets are not the nearest of their class"


def measure(names, tasks, arguments):
    """Rows of the record, and processes of their own for those that the CPU measures."""
    keys = ("data", "rows", "columns", "tol")
    shared = arguments.device.startswith("cuda")
    more = {} if arguments.memory is None else {"memory_limit": arguments.memory}
    suffix = "".join(f"{STREAMED}{memory:g} GB" for memory in more.values())
    for group in [names] if shared else [[name] for name in names]:
        with tempfile.TemporaryDirectory() as folder:
            given, output, log = (Path(folder) / name for name in ("tasks", "rows", "log"))
            text = {
                "device": arguments.device,
                "warm_up": [
                    ("mnist", 10_000, columns) for columns in {tasks[name][2] for name in group}
                ],
                "seconds": arguments.seconds,
                "limit": arguments.limit,
                "memory": arguments.memory,
                "tasks": [
                    {"name": name + suffix} | more | dict(zip(keys, tasks[name], strict=True))
                    for name in group
                ],
            }
            given.write_text(json.dumps(text))
            program = "benchmarks.lmnn.millions_fit"
            outcome = common.run_measured(
                [sys.executable, "-m", program, str(given), str(output)],
                log=log,
                started=output,
                limit=arguments.seconds + 4 * arguments.limit,
                environment=common.threads_environment(arguments.threads),
            )
            if not output.exists():
                lines = log.read_text().strip().splitlines()
                raise SystemExit(lines[-1] if lines else f"exit code {outcome.returncode}")
            yield from json.loads(output.read_text())


def measure_all(arguments):
    """Measure, save and say what was asked for; what has failed."""
    about = facts(arguments.device)
    tasks = SMOKE if arguments.smoke else TASKS
    path = record_path(arguments, "millions", about["machine"])
    rows = json.loads(path.read_text())["runs"] if path.exists() else []
    failures = []
    for row in measure(arguments.tasks or list(tasks), tasks, arguments):
        failures += faults(row)
        print(json.dumps(row), flush=True)
        rows = [other for other in rows if other["name"] != row["name"]] + [row]
        rows.sort(key=lambda row: [*TASKS, *tasks].index(row["name"].split(STREAMED)[0]))
        common.write_runs(path, about | {"threads": arguments.threads, "runs": rows})
    return failures


def parse(arguments=None):
    parser = common.record_parser(
        "lmnn.millions", __doc__, "2000 made-up rows on the CPU; nothing is kept"
    )
    parser.set_defaults(page=common.ROOT / "docs" / "results" / "millions.md")
    add = parser.add_argument
    add("--device", default="cpu", help="cpu or cuda; default: cpu")
    add("--tasks", help=f"with commas between them, of: {', '.join(TASKS)}")
    add("--memory", type=float, help="keep rows in host memory; GB of the device for fits")
    add("--threads", type=int, default=2, help="default: 2")
    add("--limit", type=float, default=LIMIT, help=f"seconds of a fit; default: {LIMIT}")
    add("--seconds", type=float, default=1e9, help="after which no other fit begins")
    parsed = parser.parse_args(arguments)
    if parsed.tasks:
        parsed.tasks = [name.strip() for name in parsed.tasks.split(",")]
        unknown = [name for name in parsed.tasks if name not in TASKS]
        if unknown:
            parser.error(f"no task {unknown[0]!r}; expected some of {', '.join(TASKS)}")
    return parsed


def main(arguments=None):
    return run_script(parse(arguments), "millions", measure_all, page)


if __name__ == "__main__":
    sys.exit(main())
