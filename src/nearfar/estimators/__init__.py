"""What users call: estimators that validate, build a problem, run a solver and store the answer.

The classes are those of `nearfar.registry`, each imported when it is first used. `nearfar` has the
same names, with types.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from nearfar.registry import ENTRIES as _ENTRIES

_HOME = {entry.name: entry.module for entry in _ENTRIES}
_HOME["as_metric"] = "nearfar.estimators.linear_metric"

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        message = f"module 'nearfar.estimators' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
