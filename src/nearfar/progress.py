"""Progress of a fit on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

# ruff: noqa: ARG002 (the callback protocol of scikit-learn fixes the signatures)

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

_SECONDS_BETWEEN_LINES = 10.0
_ITERATION = "iteration"  # the task of a fit whose record is the last of its history
# What some methods count in each iteration, in words.
_COUNTS = {
    "active_triplets": "active triplets",
    "pairs_at_hand": "pairs at hand",
    "n_updates": "updates",
}


@contextmanager
def progress(model: Any, write: Callable[[str], None] | None = None) -> Iterator[None]:
    """Show the iterations of ``model.fit`` on stderr; do nothing before scikit-learn 1.9.

    A terminal gets a bar, if rich is installed. Elsewhere ``write`` gets a line every ten seconds.
    """
    if not hasattr(model, "set_callbacks"):
        yield
        return
    on_terminal = sys.stderr.isatty() and find_spec("rich") is not None
    others = getattr(model, "_skl_callbacks", ())
    model.set_callbacks(*others, ShowIterations(Bar() if on_terminal else Lines(write)))
    try:
        yield
    finally:
        model.set_callbacks(*others)


def announce(line: str) -> None:
    """Write a line to stderr."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 (`verbose` asked for it)


class Display(Protocol):
    """Where iterations are shown."""

    def start(self) -> None:
        """Open it."""

    def show(self, text: str, done: float) -> None:
        """Show an iteration, and the share of the way that is done."""

    def stop(self) -> None:
        """Close it."""


class ShowIterations:
    """Pass each iteration of a fit on to a display; scikit-learn's ``FitCallback`` protocol."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.residual: float | None = None  # the last that was known; many iterations compute none

    def setup(self, estimator: Any, context: Any) -> None:
        """Open the display."""
        self.display.start()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Show nothing yet."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Show an iteration, the last of the history so far, and let the fit go on."""
        if context.task_name == _ITERATION:
            record = estimator.history_[-1]
            if record["residual"] is not None:
                self.residual = record["residual"]
            done = share_done(self.residual, getattr(estimator, "tol", 0.0))
            if self.residual is None:
                done = record["n_iter"] / estimator.max_iter
            self.display.show(describe(record, self.residual), done)
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Close the display."""
        self.display.stop()


def describe(record: dict[str, Any], residual: float | None) -> str:
    """One iteration in words, with the last residual that is known; infinity is left out.

    Only a gap that this very iteration certified is called certified.
    """
    facts = [f"#{record['n_iter']} objective {record['objective']:.6g}"]
    if record["duality_gap"] is not None:
        facts.append(f"certified gap {record['duality_gap']:.1e}")
    elif "sampled_gap" in record:
        confidence = f"{record['gap_confidence']:.1%} confidence"
        facts.append(f"gap at most {record['sampled_gap']:.1e} with {confidence}")
    elif residual is not None and math.isfinite(residual):
        facts.append(f"estimated gain left {residual:.1e}")
    facts += [f"{record[key]} {words}" for key, words in _COUNTS.items() if key in record]
    return ", ".join(facts)


def share_done(residual: float | None, tol: float) -> float:
    """How far the residual has come from 1 to `tol`, on a logarithmic scale."""
    if residual is None or residual >= 1 or not 0 < tol < 1:
        return 0.0
    return 1.0 if residual <= tol else math.log(residual) / math.log(tol)


class Lines:
    """A line every ten seconds, on stderr unless there is something else that writes."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or announce

    def start(self) -> None:
        """Start the clock."""
        self._last = time.monotonic()

    def show(self, text: str, done: float) -> None:
        """Write the text if the last line is old enough."""
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._write(text)

    def stop(self) -> None:
        """Leave the lines where they are."""


class Bar:
    """A bar on stderr, gone when the fit is done."""

    def start(self) -> None:
        """Draw an empty bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            BarColumn(bar_width=15),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=1.0)
        self._bar.start()

    def show(self, text: str, done: float) -> None:
        """Draw the bar up to its share, with the text beside it."""
        self._bar.update(self._task, description=text, completed=done)

    def stop(self) -> None:
        """Erase the bar."""
        self._bar.stop()
