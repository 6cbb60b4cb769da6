"""Validation of arguments: numbers in a range, words from a list, and rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from nearfar.errors import InvalidInputError


def check_number(
    name: str,
    value: Any,
    kind: type,
    low: float,
    high: float | None = None,
    *,
    open_ends: bool = False,
    infinite: bool = False,
) -> None:
    """Raise unless value is a number of this kind from low to high.

    ``open_ends`` excludes low and high themselves; ``infinite`` allows infinity.
    """
    what = "an integer" if kind is Integral else "a number"
    ends = "between" if open_ends else "from"
    joint = "and" if open_ends else "to"
    least = f"above {low}" if open_ends else f"of at least {low}"
    span = least if high is None else f"{ends} {low} {joint} {high}"
    good = isinstance(value, kind) and not isinstance(value, bool | np.bool_)
    if good and open_ends:
        good = low < value and (high is None or value < high)
    elif good:
        good = value >= low and (high is None or value <= high)
    if not good:
        raise InvalidInputError(f"{name} must be {what} {span}; got {value!r}.")
    if kind is not Integral and not infinite and not np.isfinite(value):
        raise InvalidInputError(f"{name} must be finite; got {value!r}. Give a large number.")


def check_choice(name: str, value: Any, choices: Sequence[str], or_else: str = "") -> None:
    """Raise unless value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InvalidInputError(f"{name} must be one of {listed}{or_else}; got {value!r}.")


def check_in_memory(X: Any, name: str = "X") -> None:
    """Raise if X is a query or a stream of rows, such as a lazy table or a loader of batches."""
    kind = type(X)
    if hasattr(kind, "__dask_graph__"):
        raise InvalidInputError(
            f"the rows of {name} must be in memory; got a Dask {kind.__name__}. Pass a sample of"
            " the rows, computed."
        )
    if hasattr(kind, "__array__") or hasattr(X, "shape"):
        return
    if hasattr(kind, "collect"):
        raise InvalidInputError(
            f"the rows of {name} must be in memory; got a {kind.__name__}, which is a query."
            f" Pass {name}.collect()."
        )
    if hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        raise InvalidInputError(
            f"{name} must be an array, a table or a tensor; got a {kind.__name__}, which gives rows"
            " one after the other. Put them together first, for example with numpy.concatenate or"
            " torch.cat."
        )
