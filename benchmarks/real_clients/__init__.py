"""nearfar inside other people's code: each use is a function that fails where something breaks."""

from __future__ import annotations

from importlib import import_module

from benchmarks.real_clients.uses import USES, Use

MODULES = ("scikit_learn", "tables", "neighbors", "files", "frameworks")


def collect() -> list[Use]:
    """All uses, in the order of the modules."""
    for module in MODULES:
        import_module(f"benchmarks.real_clients.{module}")
    return list(USES.values())
