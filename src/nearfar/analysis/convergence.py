"""How a fit went, from the history that it left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nearfar.analysis.models import Floats
from nearfar.solvers import Status

TITLES = {
    "objective": "objective",
    "active_triplets": "active triplets",
    "duality_gap": "certified gap",
    "sampled_gap": "gap from a sample",
    "residual": "estimated gain left",
    "validation_error": "error on held-out rows",
    "violation": "violation of the constraints",
    "pairs_at_hand": "pairs at hand",
    "n_updates": "updates",
}
PARTS = ("component", "stage", "pass", "metrics")  # what a fit does one after the other


class Line(NamedTuple):
    """Numbers of a history over seconds or iterations."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class Trace:
    """The records of ``history_`` as lines to draw."""

    history: list[dict[str, Any]]

    @property
    def keys(self) -> list[str]:
        """The names of all numbers that can be drawn."""
        keys = dict.fromkeys(key for record in self.history for key in record)
        return [k for k in keys if k not in ("n_iter", "seconds") and len(self.line(k).y)]

    def line(self, key: str, x: str = "seconds") -> Line:
        """All numbers of this name."""
        records = [record for record in self.history if _is_number(record.get(key))]
        over, values = (np.array([r[k] for r in records], dtype=float) for k in (x, key))
        return Line(over, values)

    def estimates(self, x: str = "seconds") -> Line:
        """Residuals without any proof; zeros only say that the fit could end."""
        proofs = ("duality_gap", "sampled_gap")
        records = [r for r in self.history if not any(map(r.get, proofs)) and r.get("residual")]
        return Trace(records).line("residual", x)

    def title(self, key: str) -> str:
        """What a panel with these numbers is called."""
        title = TITLES.get(key, key.replace("_", " "))
        if key == "sampled_gap":
            shares = {f"{r['gap_confidence']:.1%}" for r in self.history if key in r}
            return f"{title}, {' and '.join(sorted(shares))} confidence"
        # A fit in stages proves its program, the first of them, and refines it without proof.
        staged = key == "duality_gap" and "stage" in self.history[0]
        return f"{title} of the program" if staged else title

    def turns(self, x: str) -> list[float]:
        """Where another component, stage or pass begins."""
        parts = [tuple(record.get(key) for key in PARTS) for record in self.history]
        pairs = zip(parts, parts[1:], self.history[1:], strict=False)
        return [record[x] for before, after, record in pairs if before != after]


def proved_gap(model: Any) -> str | None:
    """The gap of a model in words that say how sure it is; None where no gap is known."""
    if model.duality_gap_ is not None:
        return f"certified gap {model.duality_gap_:.1e}"
    sampled = getattr(model, "sampled_gap_", None)
    if sampled is None:
        return None
    return f"gap at most {sampled:.1e} with {model.gap_confidence_:.1%} confidence"


def ending(model: Any) -> str | None:
    """Why the fit ended, as a sentence without its full stop; None where nothing was minimised."""
    status = getattr(model, "status_", None)
    if getattr(model, "objective_", None) is None or status is None:
        return None
    if not model.n_iter_:
        return "there is a closed form, and no iteration"
    return Status(status).sentence


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(np.isfinite(value))
