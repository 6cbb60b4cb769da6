"""The records as Markdown: docs/results/lmnn.md is written by ``python -m benchmarks.lmnn``."""

from itertools import pairwise
from statistics import median

from benchmarks.tables import SPEED_UP, digits, facts, markdown, seconds_at, seconds_cell, speed_up

INTRODUCTION = """\
# LMNN: speed, objective, certificate

`python -m benchmarks.lmnn --table` writes this page from `benchmarks/results/lmnn-*.json`;
do not edit it. `benchmarks/README.md` says how to repeat the runs.

Every method learns from the same training part with k = 3 and mu = 0.5, nearfar with `shrinkage=0`
as the others do, in a process of its own.
*Seconds* are those of `fit` alone, the shortest of five where it takes less than a second. *Peak*
is the largest resident memory of the whole process.
*Objective* is the papers' objective over all impostors, computed in float64 by one evaluator that
shares no code with any method, after giving each learned L its best scalar scale. *Certified gap*
is the relative duality gap that the method itself proves; only nearfar has one. *Error* is the
3-NN error on the test part. "stopped": the method ran into the time limit, and the best L that it
had until then is judged; "over": it ran into the limit and gave no L.
"""

INTRODUCTION_SPEED_UP = """\
### Speed-up at equal objective

*nearfar* is the time after which nearfar had an objective at or below the one that the peer ended
with: seconds of its history, and all that `fit` spends outside its iterations. *Judged* is the
evaluator's objective of a second fit that was cut off at that iteration. In bold: the lowest
objective of any peer.
"""

CERTIFIED = """\
### Seconds to a certified relative gap

From the start of `fit`, the shortest of nearfar's runs. nearfar computes a certificate when it
expects it to meet `tol`, so a coarser gap may have held earlier.
"""

SCALING = """\
### Cost between the full searches

Iterations of nearfar that touch only the active triplets, on the first n of MNIST's shuffled
training rows: medians over these iterations, and the seconds of one iteration that searches all
pairs.
"""


def page(records):
    """docs/results/lmnn.md from the records, one section a machine."""
    return "\n".join([INTRODUCTION, *(_section(record) for record in records)])


def _section(record):
    machine, runs = record["machine"], record["runs"]
    title = machine.get("device") or machine["cpu"]
    parts = [f"## {title}\n", facts(record, runs + record["scaling"])]
    if runs:
        parts.append(_measurements(runs))
        parts.append(_certified(runs))
        parts.append(_speed_up(runs))
    if record["scaling"]:
        parts.append(_scaling(record["scaling"]))
    return "\n".join(part for part in parts if part)


def _measurements(runs):
    rows = [
        [
            f"{run['data']} {run['rows']} x {run['columns']}",
            run["method"],
            seconds_cell(run),
            digits(run.get("peak_mb"), "{:.0f}"),
            digits(run.get("objective"), "{:.6g}"),
            digits(run.get("duality_gap"), "{:.1e}"),
            digits(run.get("test_error"), "{:.2%}"),
        ]
        for run in runs
    ]
    header = ["data", "method", "seconds", "peak MB", "objective", "certified gap", "error"]
    return markdown(header, rows)


def seconds_to_gap(run, gap):
    """Seconds after which the run had certified a relative gap of ``gap``, or None."""
    history = run["history"]
    for n_iter, value in zip(history["n_iter"], history["duality_gap"], strict=True):
        if value is not None and value <= gap:
            return seconds_at(run, n_iter)
    return run["seconds"] if run["duality_gap"] <= gap else None


def finest(runs):
    """The nearfar run with the longest history of each data set."""
    chosen = {}
    for run in runs:
        if run["program"] == "nearfar" and "history" in run:
            known = chosen.get(run["data"])
            if known is None or run["options"]["tol"] < known["options"]["tol"]:
                chosen[run["data"]] = run
    return chosen


def peers(runs, data):
    """The peers' runs on a data set that ended with an objective."""
    return [
        run
        for run in runs
        if run["data"] == data
        and run["program"] not in ("nearfar", "euclidean")
        and "objective" in run
    ]


def _certified(runs):
    rows = []
    for data, finest_run in finest(runs).items():
        ours = [r for r in runs if r["data"] == data and r["program"] == "nearfar"]
        ours = [run for run in ours if "history" in run]
        row = [data]
        for gap in (1e-1, 1e-2, 1e-3):
            times = [seconds_to_gap(run, gap) for run in ours]
            row.append(digits(min((t for t in times if t is not None), default=None), "{:.3g}"))
        rows.append([*row, digits(finest_run["duality_gap"], "{:.1e}")])
    if not rows:
        return ""
    header = ["data", "1e-1", "1e-2", "1e-3", "smallest gap"]
    return CERTIFIED + "\n" + markdown(header, rows)


def _speed_up(runs):
    rows = [row for data in finest(runs) for row in speed_up(data, peers(runs, data))]
    if not rows:
        return ""
    return INTRODUCTION_SPEED_UP + "\n" + markdown(SPEED_UP, rows)


def between_searches(history):
    """Medians over the iterations that made no full search, as a dict, or None if none is known.

    active_triplets, seconds of such an iteration, and seconds of an iteration with a search.
    """
    if "searched" not in history:
        return None
    steps = []
    columns = ("n_iter", "seconds", "active_triplets", "searched")
    entries = list(zip(*(history[column] for column in columns), strict=True))
    for (n_iter, seconds, *_), (next_iter, end, active, searched) in pairwise(entries):
        if next_iter > n_iter:
            steps.append((bool(searched), (end - seconds) / (next_iter - n_iter), active))
    plain = [(duration, active) for searched, duration, active in steps if not searched]
    full = [duration for searched, duration, _ in steps if searched]
    if not plain:
        return None
    return {
        "active_triplets": median(active for _, active in plain),
        "seconds": median(duration for duration, _ in plain),
        "search_seconds": median(full) if full else None,
        "searches": len(full),
    }


def _scaling(runs):
    rows = []
    for run in runs:
        found = between_searches(run.get("history", {})) or {}
        active, seconds = found.get("active_triplets"), found.get("seconds")
        rows.append(
            [
                str(run["rows"]),
                digits(active, "{:.0f}"),
                digits(seconds and 1e3 * seconds, "{:.3g}"),
                digits(active and 1e6 * seconds / active, "{:.3g}"),
                digits(seconds and 1e9 * seconds / run["rows"] ** 2, "{:.3g}"),
                digits(found.get("search_seconds"), "{:.3g}"),
                digits(found.get("searches"), "{}"),
                seconds_cell(run),
                digits(run.get("peak_mb"), "{:.0f}"),
                digits(run.get("duality_gap"), "{:.1e}"),
            ]
        )
    header = [
        "n",
        "active triplets",
        "ms an iteration",
        "us a triplet",
        "ns / n²",
        "s a search",
        "searches",
        "seconds in all",
        "peak MB",
        "certified gap",
    ]
    return SCALING + "\n" + markdown(header, rows)
