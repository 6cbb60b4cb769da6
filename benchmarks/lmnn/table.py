"""The records as Markdown: docs/results/lmnn.md is written by ``python -m benchmarks.lmnn``."""

from itertools import pairwise
from statistics import median

INTRODUCTION = """\
# LMNN: speed, objective, certificate

`python -m benchmarks.lmnn --table` writes this page from `benchmarks/results/lmnn-*.json`;
do not edit it. `benchmarks/README.md` says how to repeat the runs.

Every method learns from the same training part with k = 3 and mu = 0.5, in a process of its own.
*Seconds* are those of `fit` alone. *Peak* is the largest resident memory of the whole process.
*Objective* is the papers' objective over all impostors, computed in float64 by one evaluator that
shares no code with any method, after giving each learned L its best scalar scale. *Certified gap*
is the relative duality gap that the method itself proves; only nearfar has one. *Error* is the
3-NN error on the test part. "stopped": the method ran into the time limit, and the best L that it
had until then is judged; "over": it ran into the limit and gave no L.
"""

SPEED_UP = """\
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
    machine = record["machine"]
    title = machine.get("device") or machine["cpu"]
    runs = record["runs"]
    commits = sorted({run["commit"] for run in runs + record["scaling"]})
    dates = sorted({run["date"] for run in runs + record["scaling"]})
    facts = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}; {record['threads']} threads; seed {record['seed']}; "
        f"limit {record['limit']:g} s; {_span(dates)}; commit {', '.join(commits)}."
    )
    parts = [f"## {title}\n", facts + "\n", "Versions: " + _versions(runs) + ".\n"]
    if runs:
        parts.append(_measurements(runs))
        parts.append(_certified(runs))
        parts.append(_speed_up(runs))
    if record["scaling"]:
        parts.append(_scaling(record["scaling"]))
    return "\n".join(part for part in parts if part)


def _span(dates):
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "no runs"


def _versions(runs):
    """Each program with the packages beside it, once."""
    lines = {}
    for run in runs:
        if "versions" in run:
            found = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            lines[run["program"]] = f"{run['program']} ran in {run['dtype']} with {found}"
    return "; ".join(lines.values()) or "none"


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _measurements(runs):
    rows = [
        [
            f"{run['data']} {run['rows']} x {run['columns']}",
            run["method"],
            _seconds(run),
            _digits(run.get("peak_mb"), "{:.0f}"),
            _digits(run.get("objective"), "{:.6g}"),
            _digits(run.get("duality_gap"), "{:.1e}"),
            _digits(run.get("test_error"), "{:.2%}"),
        ]
        for run in runs
    ]
    header = ["data", "method", "seconds", "peak MB", "objective", "certified gap", "error"]
    return _table(header, rows)


def _seconds(run):
    if "reason" in run:
        return run["reason"]
    if run["status"] == "killed":
        return f"over {run['limit']:g}"
    text = _digits(run.get("seconds"), "{:.3g}")
    if run["status"] == "stopped":
        return f"{text} (stopped)"
    return text


def _digits(value, form):
    return "" if value is None else form.format(value)


def first_at_or_below(history, objective):
    """The number of the first iteration whose objective is at or below ``objective``, or None."""
    for n_iter, value in zip(history["n_iter"], history["objective"], strict=True):
        if value is not None and value <= objective:
            return int(n_iter)
    return None


def seconds_at(run, n_iter):
    """Seconds from the start of fit to the end of an iteration.

    All that fit does outside its iterations counts as if it were done before.
    """
    history = run["history"]
    outside = run["seconds"] - history["seconds"][-1]
    numbers = history["n_iter"]
    return outside + next(
        s for n, s in zip(numbers, history["seconds"], strict=True) if n >= n_iter
    )


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
            row.append(_digits(min((t for t in times if t is not None), default=None), "{:.3g}"))
        rows.append([*row, _digits(finest_run["duality_gap"], "{:.1e}")])
    if not rows:
        return ""
    header = ["data", "1e-1", "1e-2", "1e-3", "smallest gap"]
    return CERTIFIED + "\n" + _table(header, rows)


def _speed_up(runs):
    rows = []
    for data in finest(runs):
        rivals = peers(runs, data)
        lowest = min((peer["objective"] for peer in rivals), default=None)
        for peer in rivals:
            reached = peer.get("nearfar") or {}
            seconds = reached.get("seconds")
            row = [
                data,
                peer["method"],
                _digits(peer["objective"], "{:.6g}"),
                _seconds(peer),
                _digits(seconds, "{:.3g}") or "not reached",
                _digits(seconds and peer["seconds"] / seconds, "{:.3g} x"),
                _digits(reached.get("objective"), "{:.6g}"),
            ]
            bold = peer["objective"] == lowest
            rows.append([f"**{cell}**" if bold and cell else cell for cell in row])
    if not rows:
        return ""
    header = ["data", "peer", "its objective", "its seconds", "nearfar", "speed-up", "judged"]
    return SPEED_UP + "\n" + _table(header, rows)


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
                _digits(active, "{:.0f}"),
                _digits(seconds and 1e3 * seconds, "{:.3g}"),
                _digits(active and 1e6 * seconds / active, "{:.3g}"),
                _digits(seconds and 1e9 * seconds / run["rows"] ** 2, "{:.3g}"),
                _digits(found.get("search_seconds"), "{:.3g}"),
                _digits(found.get("searches"), "{}"),
                _seconds(run),
                _digits(run.get("peak_mb"), "{:.0f}"),
                _digits(run.get("duality_gap"), "{:.1e}"),
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
    return SCALING + "\n" + _table(header, rows)
