"""Roots of many decreasing functions of one variable at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any

HALVINGS = 64  # more than float64 has digits: the root may be much nearer to low than to high


def decreasing_root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The roots (m,) of decreasing functions between low and high.

    ``function`` gives the values (m,) at the points (m,). Where all of them are negative, the root
    is low, and where all are positive it is high.
    """
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = function(middle) > 0
        low, high = low + above * (middle - low), high - ~above * (high - middle)
    return 0.5 * (low + high)
