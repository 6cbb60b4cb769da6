"""Charts of how the fit went."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearfar.analysis import convergence
from nearfar.analysis.convergence import Trace
from nearfar.report.charts import Line

POINTS = 300  # of a curve, at most
WIDE = 50  # largest value by the least, from which a scale goes by powers of ten
COUNTS = ("active_triplets", "pairs_at_hand", "n_updates")


class Panel(NamedTuple):
    """One chart over seconds."""

    title: str
    lines: list[Line]
    log: bool


def panels(model: Any) -> list[Panel]:
    """Objective, gap and what the method counts, each where the history has it."""
    trace = Trace(getattr(model, "history_", None) or [])
    if len(trace.history) < 2:
        return []
    charts = [
        ("objective", [_thinned("objective", trace.line("objective"))]),
        ("gap", _gaps(trace)),
        *((key, [_thinned(trace.title(key), trace.line(key))]) for key in COUNTS),
    ]
    found = []
    for title, lines in charts:
        values = np.concatenate([np.empty(0), *(line.y for line in lines)])
        if len({second for line in lines for second in line.x.tolist()}) < 2:
            continue
        wide = title == "gap" or values.max() > WIDE * values.min()
        label = lines[0].name if len(lines) == 1 else title
        found.append(Panel(label, lines, bool((values > 0).all()) and wide))
    return found


def _gaps(trace: Trace) -> list[Line]:
    """What was proved, and what was only estimated, as far as there is either."""
    key = "duality_gap" if len(trace.line("duality_gap").x) else "sampled_gap"
    proved = _thinned(trace.title(key), trace.line(key))
    estimated = _thinned(trace.title("residual"), trace.estimates())
    if not len(proved.x):
        return [estimated] if len(estimated.x) else []
    if not len(estimated.x):
        return [proved]
    return [estimated._replace(style=0), proved._replace(marks="only")]


def _thinned(name: str, line: convergence.Line) -> Line:
    """At most `POINTS` points of a line; the last is kept."""
    last = len(line.x) - 1
    kept = np.unique(np.linspace(0, last, POINTS).astype(int)) if last >= 0 else slice(0)
    return Line(name, line.x[kept], line.y[kept])
