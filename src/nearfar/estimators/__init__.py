"""What users call: estimators that validate, build a problem, run a solver and store the answer.

The classes are those of `nearfar.registry`, each imported when it is first used. `nearfar` has the
same names, with types.
"""

from __future__ import annotations

from nearfar.registry import ENTRIES as _ENTRIES
from nearfar.registry import lazy_names as _lazy_names

_HOME = {entry.name: entry.module for entry in _ENTRIES}
_HOME["as_metric"] = "nearfar.estimators.linear_metric"

__all__ = sorted(_HOME)
__getattr__, __dir__ = _lazy_names(__name__, _HOME)
