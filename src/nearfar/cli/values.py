"""Values of options: how their text is read, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A finite number in a range; click alone would accept nan and inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or an error that names the option."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def number_or_share(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """A count from 1 as an integer, or a share between 0 and 1."""
    if text is None:
        return None
    try:
        number = int(text) if text.isdecimal() else float(text)
    except ValueError:
        number = 0
    if 0 < number < 1 or (isinstance(number, int) and number >= 1):
        return number
    raise click.BadParameter(f"{text!r} is neither a count from 1 nor a share between 0 and 1.")


def auto_or_share(_: click.Context, __: click.Parameter, text: str | None) -> float | str | None:
    """The word auto, or a number from 0 to below 1."""
    if text is None or text == "auto":
        return text
    try:
        number = float(text)
    except ValueError:
        number = -1
    if 0 <= number < 1:
        return number
    raise click.BadParameter(f"{text!r} is neither auto nor a number from 0 to below 1.")


def row_numbers(_: click.Context, __: click.Parameter, text: str | None) -> list[int] | None:
    """Row numbers as on the page, from 1, as row numbers from 0."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of row numbers from 1, such as 3,17.")
    return [int(part) - 1 for part in parts]


def two_sizes(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Rows and columns of a picture."""
    if text is None:
        return None
    rows, _x, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise click.BadParameter(f"{text!r} is not two sizes, such as 28x20.")
    return int(rows), int(columns)
