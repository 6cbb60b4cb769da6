"""The list of uses, and how one of them is run."""

from __future__ import annotations

import importlib.util
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass

USES: dict[str, Use] = {}


@dataclass(frozen=True)
class Use:
    """A way in which another library uses nearfar."""

    name: str
    run: Callable[[], None]
    needs: tuple[str, ...]  # modules to import
    theirs: str | None  # why it fails, if that is the fault of the other library

    def missing(self) -> list[str]:
        """The modules that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def use(*needs: str, theirs: str | None = None) -> Callable[[Callable[[], None]], Callable]:
    """Enter a function into the list; its docstring is the name of the use."""

    def enter(function: Callable[[], None]) -> Callable[[], None]:
        name = (function.__doc__ or "").strip().rstrip(".")
        assert name not in USES, name
        USES[name] = Use(name, function, needs, theirs)
        return function

    return enter


@dataclass(frozen=True)
class Outcome:
    """What became of a use."""

    verdict: str  # "works", "broke", "theirs", "mended" (theirs, but it works) or "not installed"
    why: str
    seconds: float


def outcome_of(one: Use) -> Outcome:
    """Run a use, unless a module is missing. nearfar's own warnings are errors."""
    missing = one.missing()
    if missing:
        return Outcome("not installed", ", ".join(missing), 0.0)
    start, error = time.perf_counter(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=nearfar_warning())
        try:
            one.run()
        except Exception as raised:  # whatever another library raises is what we are here to see
            error = raised
    seconds = time.perf_counter() - start
    if error is None:
        return Outcome("works" if one.theirs is None else "mended", one.theirs or "", seconds)
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:300]
    why = f"{type(error).__name__}: {said} ({last.filename}:{last.lineno})"
    return Outcome("broke" if one.theirs is None else "theirs", one.theirs or why, seconds)


def nearfar_warning() -> type[Warning]:
    from nearfar.errors import NearfarWarning

    return NearfarWarning


def refusal(call: Callable[[], object]) -> str:
    """What nearfar says to input that it does not take."""
    from nearfar.errors import InvalidInputError

    try:
        call()
    except InvalidInputError as error:
        return str(error)
    raise AssertionError("nothing was refused")
