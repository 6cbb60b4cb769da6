"""Small charts as SVG: drawn once, coloured by the page's style, readable without JavaScript."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.analysis.models import Floats

WIDTH, HEIGHT = 380, 230
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 12, 44
BAR_WIDTH = 170
# Stops of cividis, a scale that the colour-blind and grey printers keep in order.
# Nuñez, Anderton & Renslow, PLOS ONE 13 (2018).
CIVIDIS = ("00224e", "35456c", "666970", "948e77", "c8b866", "fee838")


class Line(NamedTuple):
    """A curve with its name; ``style`` numbers its look, 0 being what others are compared with."""

    name: str
    x: Floats
    y: Floats
    style: int = 1
    marks: str = ""  # "dots" on the line, or "only" dots


def line_chart(
    lines: Sequence[Line], x_label: str, y_label: str, *, log: bool = False, whole: bool = False
) -> str:
    """Curves over one pair of axes, the y axis in powers of ten if ``log``.

    If ``whole``, x are counts, and only whole numbers stand below the axis.
    """
    xs, ys = (np.concatenate([getattr(line, axis) for line in lines]) for axis in "xy")
    x_ticks = _ticks(float(xs.min()), float(xs.max()))
    if whole:
        x_ticks = sorted({math.ceil(tick) for tick in x_ticks})
    if log:
        y_ticks = _powers(float(ys.min()), float(ys.max()))
    else:
        low, high = float(ys.min()), float(ys.max())
        near_zero = 0 <= low < 0.75 * high  # else it would flatten the curve
        y_ticks = _ticks(0.0 if near_zero else low, high)
    x_low, x_high = float(xs.min()), float(xs.max())
    y_low, y_high = min(y_ticks[0], float(ys.min())), max(y_ticks[-1], float(ys.max()))

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - x_low) / ((x_high - x_low) or 1)

    def up(y: float) -> float:
        low, high, value = (math.log10(v) if log else v for v in (y_low, y_high, y))
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / ((high - low) or 1)

    parts = []
    for tick in y_ticks:
        y = up(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, number(tick), "end"))
    parts += [
        _text(across(tick), HEIGHT - BOTTOM + 18, number(tick), "middle")
        for tick in x_ticks
        if x_low <= tick <= x_high
    ]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle", "axis"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" transform="translate(11 {middle}) rotate(-90)">'
        f"{escape(y_label)}</text>"
    )
    for line in lines:
        points = [(across(x), up(y)) for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if line.marks != "only":
            parts.append(f'<polyline class="line s{line.style}" points="{path}"/>')
        if line.marks:
            for (x, y), value in zip(points, line.y.tolist(), strict=True):
                title = escape(f"{line.name}: {number(value)} {y_label}")
                parts.append(
                    f'<circle class="dot s{line.style}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                    f"<title>{title}</title></circle>"
                )
    label = escape(f"{y_label} against {x_label}: " + ", ".join(line.name for line in lines))
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def interval_bar(value: float, low: float, high: float, most: float) -> str:
    """A mark with its interval on a line from 0 to ``most``."""
    x, x0, x1 = (2 + (BAR_WIDTH - 8) * v / (most or 1) for v in (value, low, high))
    return (
        f'<svg class="bar" viewBox="0 0 {BAR_WIDTH} 18" width="{BAR_WIDTH}" height="18" '
        'aria-hidden="true">'
        f'<line class="grid" x1="2" x2="{BAR_WIDTH - 2}" y1="9" y2="9"/>'
        f'<line class="whisker" x1="{x0:.1f}" x2="{x1:.1f}" y1="9" y2="9"/>'
        f'<circle class="mark" cx="{x:.1f}" cy="9" r="5"/></svg>'
    )


def error_curve(steps: Floats, errors: Floats) -> str:
    """The error over the steps of the slider, with a mark that the page moves."""
    width, height, edge = 300, 44, 8
    xs = edge + (width - 2 * edge) * steps
    most = float(errors.max()) or 1.0
    ys = height - edge - (height - 2 * edge) * errors / most
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    words = escape(f"error from {errors[0]:.1%} to {errors[-1]:.1%}")
    return (
        f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{words}">'
        f'<line class="grid" x1="{edge}" x2="{width - edge}" y1="{height - edge}"'
        f' y2="{height - edge}"/><polyline class="line s1" points="{path}"/>'
        f'<circle class="mark" id="curve-mark" cx="{xs[-1]:.1f}" cy="{ys[-1]:.1f}" r="4"/></svg>'
    )


def paired_bars(before: float, after: float, most: float) -> str:
    """Two bars, the upper one before learning."""
    widths = [max(0.5, (BAR_WIDTH - 2) * v / (most or 1)) for v in (before, after)]
    return (
        f'<svg class="bar" viewBox="0 0 {BAR_WIDTH} 18" width="{BAR_WIDTH}" height="18" '
        'aria-hidden="true">'
        f'<rect class="before" x="0" y="2" width="{widths[0]:.1f}" height="6"/>'
        f'<rect class="after" x="0" y="10" width="{widths[1]:.1f}" height="6"/></svg>'
    )


def picture(values: Floats, *, diverging: bool = False) -> str:
    """A matrix as the address of a PNG image, in cividis from its least value to its largest.

    If it is diverging, 0 is in the middle of the scale.
    """
    low, high = float(values.min()), float(values.max())
    if diverging:
        high = max(abs(low), abs(high))
        low = -high
    scaled = (values - low) / ((high - low) or 1)
    stops = np.array([[int(stop[i : i + 2], 16) for i in (0, 2, 4)] for stop in CIVIDIS])
    places = np.linspace(0, 1, len(stops))
    colours = np.stack([np.interp(scaled, places, stops[:, i]) for i in range(3)], axis=-1)
    return "data:image/png;base64," + base64.b64encode(_png(colours.astype(np.uint8))).decode()


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """An RGB image (rows, columns, 3) in the PNG format."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def number(value: float) -> str:
    """A number in few characters: 0.25, 1200, 3e-05."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        text = f"{value:.4g}"
        return f"{value:.0f}" if "e" in text else text
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from at most low to at least high."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(raw))
    step = size * next(nice for nice in (1, 2, 2.5, 5, 10) if raw <= nice * size * (1 + 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten from at most low to at least high, at most seven of them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    step = math.ceil((last - first) / 6)
    return [10.0**i for i in range(first, last + step, step)]
