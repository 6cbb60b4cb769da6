"""The classes that a model file may hold. The list is closed: no other name is looked up."""

from __future__ import annotations

import importlib
from typing import Any

from nearfar.registry import ENTRIES

# Every class that a model file may hold, and its module. The list is closed: a name in a file is
# looked up here and never imported.
MODEL_CLASSES = {entry.name: entry.module for entry in ENTRIES}
# What estimators hold beside plain data and each other: ``graph_`` of the unfoldings, and distances
# as functions, which ``get_metric`` gives to estimators of other libraries.
_PARTS = (
    "nearfar.estimators._deploy.LinearDistance",
    "nearfar.estimators._kernel.Kernel",
    "nearfar.estimators._kernel.KernelDistance",
    "nearfar.graphs.neighborhood.NeighborhoodGraph",
)
#: What ``skops.io.load(path, trusted=nearfar.TRUSTED_TYPES)`` has to trust.
TRUSTED_TYPES = sorted([*_PARTS, *(f"{module}.{name}" for name, module in MODEL_CLASSES.items())])


class UnusableFile(Exception):
    """Why a file cannot be loaded, to be said after its path."""


def is_ours(model: Any) -> bool:
    """Whether `model` is of a class of the registry, not of a subclass."""
    name = type(model).__name__
    return name in MODEL_CLASSES and type(model) is model_class(name)


def model_class(name: str) -> Any:
    """The class of the registry with this name."""
    return getattr(importlib.import_module(MODEL_CLASSES[name]), name)
