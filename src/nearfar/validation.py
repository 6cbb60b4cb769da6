"""Validation of arguments: numbers in a range, and words from a list."""

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
