"""How the fit went, from the trace that it left behind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearfar.report.charts import Line
from nearfar.solvers import Status

POINTS = 300  # of a curve, at most
WIDE = 50  # largest value by the least, from which a scale goes by powers of ten
COUNTS = {
    "active_triplets": "active triplets",
    "pairs_at_hand": "pairs at hand",
    "n_updates": "updates",
}


class Panel(NamedTuple):
    """One chart over seconds."""

    title: str
    lines: list[Line]
    log: bool


def panels(model: Any) -> list[Panel]:
    """Objective, gap and what the method counts, each where the trace has it."""
    history = getattr(model, "history_", None) or []
    if len(history) < 2:
        return []
    lines = [
        ("objective", [_line(history, "objective", "objective")]),
        ("gap", _gaps(history)),
        *((name, [_line(history, key, name)]) for key, name in COUNTS.items()),
    ]
    found = []
    for title, several in lines:
        values = np.concatenate([np.empty(0), *(line.y for line in several)])
        if len({second for line in several for second in line.x.tolist()}) < 2:
            continue
        wide = title == "gap" or values.max() > WIDE * values.min()
        label = several[0].name if len(several) == 1 else title
        found.append(Panel(label, several, bool((values > 0).all()) and wide))
    return found


def ending(model: Any) -> str | None:
    """Why the fit ended, as a sentence without its end; None where nothing was minimised."""
    status = getattr(model, "status_", None)
    if getattr(model, "objective_", None) is None or status is None:
        return None
    if not model.n_iter_:
        return "there is a closed form, and no iteration"
    return Status(status).sentence


def has_estimates(history: list[dict[str, Any]]) -> bool:
    """Whether some gain left was estimated, and not proved."""
    return bool(len(_estimates(history).x))


def _gaps(history: list[dict[str, Any]]) -> list[Line]:
    """What was proved, and what was only estimated, as far as there is either."""
    # A fit in stages proves its program, the first of them, and refines the answer without proof.
    name = "certified gap of the program" if "stage" in history[0] else "certified gap"
    proved, estimated = _line(history, "duality_gap", name), _estimates(history)
    if not len(proved.x):
        return [estimated] if len(estimated.x) else []
    if not len(estimated.x):
        return [proved]
    return [estimated._replace(style=0), proved._replace(marks="only")]


def _estimates(history: list[dict[str, Any]]) -> Line:
    """Residuals that are not certified; zeros only say that the fit could end."""
    records = [r for r in history if r.get("duality_gap") is None and r.get("residual")]
    return _line(records, "residual", "estimated gain left")


def _line(history: list[dict[str, Any]], key: str, name: str) -> Line:
    """The records that have this number, thinned; the last is kept."""
    records = [record for record in history if _is_number(record.get(key))]
    last = max(0, len(records) - 1)
    thin = (
        [records[i] for i in np.unique(np.linspace(0, last, POINTS).astype(int))] if records else []
    )
    seconds = np.array([record["seconds"] for record in thin], dtype=float)
    return Line(name, seconds, np.array([record[key] for record in thin], dtype=float))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(np.isfinite(value))
