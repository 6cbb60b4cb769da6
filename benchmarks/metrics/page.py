"""The records as Markdown: ``python -m benchmarks.metrics`` writes docs/results/metrics.md."""

from benchmarks.metrics.tasks import TASKS
from benchmarks.tables import SPEED_UP, digits, facts, markdown, seconds_cell, speed_up

INTRODUCTION = """\
# The other learners: speed, objective, certificate

`python -m benchmarks.metrics --table` writes this page from `benchmarks/results/metrics-*.json`;
do not edit it. `benchmarks/README.md` says how to repeat the runs.

Every program learns from the same points and the same supervision in a process of its own.
*Seconds* are those of `fit` alone, the shortest of five where it takes less than a second. *Memory*
is by how much the resident memory rose during `fit`; a star: with what a first fit loads, which
else a fit to a few points loads before. *Objective* is that of the method's paper, computed in
float64 by one evaluator that shares no code with any program. *Certified gap* is the relative
duality gap that the program itself proves; only nearfar has one, and none where the problem is not
convex. *Error* is the 3-NN error on the test part. "over": it ran into the limit.

*Speed-up at equal objective*: *nearfar* is the time after which nearfar had an objective at least
as good as the one that the peer ended with: seconds of its history, and all that `fit` spends
outside its iterations. *Judged* is the evaluator's objective of a second fit that was cut off at
that iteration. In bold: the best objective of any peer.
"""


EIGENDECOMPOSITION = """\
Seconds against NumPy's of one eigendecomposition in float64, where that takes more than a
millisecond, and against those with all that comes before it:
"""
WORTH = 1e-3  # seconds


def page(records):
    """docs/results/metrics.md from the records, one section a machine."""
    return "\n".join([INTRODUCTION, *(_section(record) for record in records)])


def _section(record):
    machine, runs = record["machine"], record["runs"]
    parts = [f"## {machine.get('device') or machine['cpu']}\n", facts(record, runs)]
    for name in TASKS:
        chosen = [run for run in runs if run["task"] == name]
        if chosen:
            parts.append(_task(name, chosen))
    return "\n".join(parts)


def _task(name, runs):
    task = TASKS[name]
    parts = [f"### {task.title}\n", f"Objective: {' '.join(task.objective.split())}.\n"]
    parts.append(_measurements(runs))
    data = dict.fromkeys(run["data"] for run in runs)
    rows = [row for each in data for row in speed_up(each, rivals(runs, name, each), task.sense)]
    if rows:
        parts.append("Speed-up at equal objective:\n\n" + markdown(SPEED_UP, rows))
    ratios = [row for each in data for row in _against_eigh(runs, each)]
    if ratios:
        header = ["data", "method", "times one eigendecomposition", "times one with its scatter"]
        parts.append(EIGENDECOMPOSITION + "\n" + markdown(header, ratios))
    return "\n".join(parts)


def _measurements(runs):
    rows = [
        [
            f"{run['data']} {run['rows']} x {run['columns']}",
            run["method"],
            seconds_cell(run),
            digits(run.get("n_iter"), "{}"),
            _memory(run),
            digits(run.get("objective"), "{:.6g}"),
            digits(run.get("duality_gap"), "{:.1e}"),
            digits(run.get("test_error"), "{:.2%}"),
        ]
        for run in runs
    ]
    header = ["data", "method", "seconds", "iterations", "memory MB", "objective"]
    return markdown([*header, "certified gap", "error"], rows)


def _memory(run):
    if "peak_device_mb" in run:
        return digits(run["peak_device_mb"], "{:.0f}")
    return digits(run.get("fit_mb"), "{:.0f}" if run.get("loaded") else "{:.0f} *")


def _against_eigh(runs, data):
    """How many times the eigendecomposition's seconds the programs took, for one data set."""
    chosen = [run for run in runs if run["data"] == data and "seconds" in run]
    bare, whole = (
        [r["seconds"] for r in chosen if r["program"] == "eigh" and r["options"]["whole"] is both]
        for both in (False, True)
    )
    if not bare or not whole or bare[0] < WORTH:
        return []
    return [
        [data, run["method"], *(f"{run['seconds'] / base:.3g} x" for base in (bare[0], whole[0]))]
        for run in chosen
        if run["program"] != "eigh"
    ]


def finest(runs, name, data):
    """The last nearfar run of a task on a data set: the one with the smallest tolerance."""
    found = [r for r in runs if r["task"] == name and r["data"] == data]
    found = [run for run in found if run["program"] == "nearfar" and "history" in run]
    return found[-1] if found else None


def rivals(runs, name, data):
    """The peers' runs of a task on a data set that ended with an objective."""
    return [
        run
        for run in runs
        if run["task"] == name
        and run["data"] == data
        and run["program"] not in ("nearfar", "eigh")
        and "objective" in run
    ]
