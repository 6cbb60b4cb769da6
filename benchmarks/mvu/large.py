"""Unfolding and localisation of many points: ``python -m benchmarks.mvu.large``.

Swiss rolls, handwritten twos and threes, sensors in a square and on the map of the United States:
the experiments of section 3.1.8 of Weinberger's thesis. Every fit is a process of its own, so that
its memory is its own, and is judged by `judge`, which shares no code with nearfar. A fit is saved
when it is done, in the place of an earlier one of the same name. MVU itself is solved by both of
its solvers, whose proved intervals have to meet.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import common
from benchmarks.mvu.large_page import page
from benchmarks.papers.records import facts, record_path, run_script

LOW_RANK = {"shrink": 1e-2, "slack": 1e-2, "equal": 1e-2}  # gaps that the low-rank solver aims at
EIGENVECTORS = (2, 4, 6, 8, 10, 15, 20)  # of Figure 3.21


def both_solvers(data, form):
    """The tasks of a form of MVU on one roll, by the interior point method and in few columns."""
    options = {"constraints": form, "slack_weight": 0.999}
    return {
        f"{data} {form} exact": (data, "mvu", options | {"solver": "interior_point", "tol": 1e-6}),
        f"{data} {form} low rank": (
            data,
            "mvu",
            options | {"solver": "low_rank", "tol": LOW_RANK[form]},
        ),
    }


TASKS = {  # what is placed, by what, options
    **{
        f"roll{n} laplacian": (f"roll{n}", "variational", {}) for n in (10000, 20000, 50000, 100000)
    },
    "roll10000 laplacian, 10": ("roll10000", "variational", {"n_eigenvectors": 10}),
    "roll10000 lle": ("roll10000", "variational", {"basis": "lle"}),
    "roll10000 landmarks": ("roll10000", "landmark", {}),
    "digits laplacian": ("digits", "variational", {}),
    **{
        f"{data} gap {gap:.0e}": (data, "variational", {"gap_tol": gap})
        for data, gap in (
            ("roll10000", 1e-2),
            ("roll10000", 1e-3),
            ("roll100000", 1e-2),
            ("digits", 1e-2),
        )
    },
    **{
        name: task
        for data, form in (
            *((f"mvu{n}", form) for n in (200, 500, 1000) for form in LOW_RANK),
            ("mvu2000", "equal"),
        )
        for name, task in both_solvers(data, form).items()
    },
    **{
        f"{field} {name}": (field, method, options)
        for field in ("square20000", "cities")
        for name, method, options in (
            ("program", "variational", {"n_eigenvectors": 10, "refine": False, "stretch": 0.0}),
            ("random start", "random", {}),
            ("sensors", "sensors", {}),
            ("sensors, 10 anchors", "sensors", {"n_anchors": 10}),
        )
    },
    **{
        f"cities {count} eigenvectors": (
            "cities",
            "variational",
            {"n_eigenvectors": count, "refine": False, "stretch": 0.0, "tol": 1e-6},
        )
        for count in EIGENVECTORS
    },
}
DEVICE_TASKS = {  # with tensors: graph, descent and proof on the device, eigenvectors on the host
    f"{data} gap {gap:.0e}": (data, "variational", {"gap_tol": gap, "max_seconds": seconds})
    for data, gap, seconds in (("roll100000", 1e-3, 120), ("roll1000000", 1e-2, 420))
}
LARGER_TASKS = {  # how the times of a host grow; by --tasks only
    f"{data} gap 1e-02": (data, "variational", {"gap_tol": 1e-2})
    for data in ("roll200000", "roll300000")
}
ALL_TASKS = {**TASKS, **LARGER_TASKS, **DEVICE_TASKS}
SMOKE = {
    "roll1000 laplacian": ("roll1000", "variational", {}),
    "roll1000 landmarks": ("roll1000", "landmark", {}),
    "roll1000 gap 1e-02": ("roll1000", "variational", {"gap_tol": 1e-2}),
    **both_solvers("mvu100", "shrink"),
    "square300 program": (
        "square300",
        "variational",
        {"n_eigenvectors": 10, "refine": False, "stretch": 0.0},
    ),
    "square300 random start": ("square300", "random", {}),
    "square300 sensors": ("square300", "sensors", {}),
}
AGREEMENT = {"sensors": 1e-9, "variational": 2e-3, "landmark": 2e-3, "mvu": 1e-6}
# The eigenvalue λ of the middle two is known to 1e-4.
LIMIT = 1800  # seconds
LIMITS = {"roll100000 gap 1e-03": 170, "roll1000000 gap 1e-02": 560}  # of all of a task


def measure(name, tasks, folder, arguments):
    """One fit in a process of its own: a row of the record."""
    output, threads = folder / "row.json", arguments.threads
    task = [json.dumps(tasks[name]), str(output), arguments.device]
    outcome = common.run_measured(
        [sys.executable, "-m", "benchmarks.mvu.large_fit", *task],
        log=folder / "log",
        started=folder / "started",
        limit=LIMITS.get(name, LIMIT),
        environment=common.threads_environment(threads),
    )
    if outcome.returncode:
        lines = (folder / "log").read_text().strip().splitlines()
        raise common.UnavailableError(lines[-1] if lines else f"exit code {outcome.returncode}")
    return {"name": name, **json.loads(output.read_text())}


def faults(row):
    """What a row says of itself that the judge does not find."""
    allowed, reported = AGREEMENT.get(row["method"]), row.get("reported_objective")
    if allowed is not None and abs(reported - row["objective"]) > allowed * abs(row["objective"]):
        yield f"{row['name']}: objective_ is {reported:.8g}, the judge finds {row['objective']:.8g}"
    low_rank = row["name"].endswith("low rank")  # which goes as far as it gets
    if row.get("status", "converged") != "converged" and not low_rank:
        yield f"{row['name']}: {row['status']}"


def disagreements(rows):
    """Forms of MVU of which the two solvers prove intervals that do not meet."""
    found = {row["name"]: row for row in rows}
    for name, low in found.items():
        exact = found.get(name.replace("low rank", "exact"))
        if not name.endswith("low rank") or exact is None:
            continue
        ends = [
            (row["objective"] - row["embedding_gap"] * abs(row["bound"]), row["bound"])
            for row in (exact, low)
        ]
        if max(low for low, _ in ends) > min(high for _, high in ends) * (1 + 1e-5):
            yield f"{name}: the proved intervals {ends} do not meet"


def measure_all(arguments):
    """Measure, save and say what was asked for; what has failed."""
    about = facts(arguments.device)
    tasks = tasks_of(arguments)
    path = record_path(arguments, "mvu_large", about["machine"])
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    failures = []
    for task in arguments.tasks or tasks:
        with tempfile.TemporaryDirectory() as folder:
            stamp = {"commit": common.commit(), "date": common.now(), "load": os.getloadavg()[0]}
            try:
                row = measure(task, tasks, Path(folder), arguments) | stamp
            except common.UnavailableError as error:
                print(f"{task}: left out: {error}", flush=True)
                failures += [f"{task}: {error}"] if arguments.smoke else []
                continue
        failures += faults(row)
        print(f"{task:<28} {row['seconds']:8.2f} s  {row['fit_mb']:6.0f} MB", flush=True)
        rows = [other for other in rows if other["name"] != task] + [row]
        rows.sort(key=lambda row: [*ALL_TASKS, *tasks].index(row["name"]))
        record = about | {"threads": arguments.threads, "rows": rows}
        common.write_text(path, json.dumps(record, indent=1) + "\n")
    return [*failures, *disagreements(rows)]


def parse(arguments=None):
    parser = common.record_parser("mvu.large", __doc__, "few points; nothing is kept")
    add = parser.add_argument
    add("--tasks", help=f"with semicolons between them, of: {'; '.join(TASKS)}")
    add("--threads", type=int, default=2, help="default: 2")
    add("--device", default="cpu", help="such as cuda: rolls of 100000 and 1000000 points there")
    parsed = parser.parse_args(arguments)
    if parsed.tasks:
        parsed.tasks = [name.strip() for name in parsed.tasks.split(";")]
        unknown = [name for name in parsed.tasks if name not in ALL_TASKS]
        if unknown:
            parser.error(f"no task {unknown[0]!r}; expected some of {'; '.join(ALL_TASKS)}")
    return parsed


def tasks_of(arguments):
    """All tasks, of which ``--tasks`` chooses some."""
    if arguments.smoke:
        return SMOKE
    if arguments.tasks:
        return ALL_TASKS
    return TASKS if arguments.device == "cpu" else DEVICE_TASKS


def main(arguments=None):
    return run_script(parse(arguments), "mvu_large", measure_all, page)


if __name__ == "__main__":
    sys.exit(main())
