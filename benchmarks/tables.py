"""What the pages of the benchmarks share: cells, tables, facts of a record, times in a history."""


def facts(record, runs):
    """The machine, the commits and the versions behind a record."""
    machine = record["machine"]
    commits = sorted({run["commit"] for run in runs})
    dates = sorted({run["date"] for run in runs})
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}; {record['threads']} threads; seed {record['seed']}; "
        f"limit {record['limit']:g} s; {_span(dates)}; commit {', '.join(commits)}.\n\n"
        f"Versions: {_versions(runs)}.\n"
    )


def measured_on(record, how, commits=None):
    """The last line of a page of one record: the machine, how it was used, versions and commits."""
    machine, commits = record["machine"], commits or [record["commit"]]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['system']}{how};"
        f" {versions}; {record['date']}, commit{'s' if len(commits) > 1 else ''}"
        f" {', '.join(commits)}.\n"
    )


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


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def seconds_cell(run):
    if "reason" in run:
        return run["reason"]
    if run["status"] == "killed":
        return f"over {run['limit']:g}"
    text = digits(run.get("seconds"), "{:.3g}")
    if run["status"] == "stopped":
        return f"{text} (stopped)"
    return text


def digits(value, form):
    return "" if value is None else form.format(value)


def first_at_or_below(history, objective, sense=1):
    """The number of the first iteration whose objective is at or below ``objective``, or None.

    With ``sense`` -1: at or above it.
    """
    for n_iter, value in zip(history["n_iter"], history["objective"], strict=True):
        if value is not None and sense * value <= sense * objective:
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


SPEED_UP = ["data", "peer", "its objective", "its seconds", "nearfar", "speed-up", "judged"]


def speed_up(data, rivals, sense=1):
    """The rows of a table with the header SPEED_UP; in bold the rival with the best objective."""
    best = min((sense * rival["objective"] for rival in rivals), default=None)
    rows = []
    for rival in rivals:
        reached = rival.get("nearfar") or {}
        seconds = reached.get("seconds")
        row = [
            data,
            rival["method"],
            digits(rival["objective"], "{:.6g}"),
            seconds_cell(rival),
            digits(seconds, "{:.3g}") or "not reached",
            digits(seconds and rival["seconds"] / seconds, "{:.3g} x"),
            digits(reached.get("objective"), "{:.6g}"),
        ]
        bold = sense * rival["objective"] == best
        rows.append([f"**{cell}**" if bold and cell else cell for cell in row])
    return rows
