"""Odd data: ties, copies, dead columns, mixed units, few levels, tiny classes, outliers.

A draw is a small grid of integers or of normal numbers that is then spoiled in a few named ways, so
that a failing example shrinks to few rows, small integers and the one oddity that matters. It
prints as code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

UNITS = (1e-300, 1e-170, 1e-33, 1e-12, 1e-3, 1.0, 1e4, 1e9, 1e33, 1e170, 1e300)
GRID_TYPES = ("float64", "float32", "int64", "int8", "uint8", "uint16")
MOST_ROWS = 14
LARGEST = 1e306  # so that differences and sums of some entries are numbers
FEW_FEATURES = 4
MANY_FEATURES = 18  # more than rows


@dataclass(frozen=True)
class Data:
    """Points X (n, d) and labels y (n,)."""

    X: np.ndarray
    y: np.ndarray

    def __repr__(self) -> str:
        dtype = "" if self.X.dtype == np.float64 else f", dtype=np.{self.X.dtype}"
        return f"Data(np.array({self.X.tolist()}{dtype}), np.array({self.y.tolist()}))"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002
        printer.text(repr(self))  # hypothesis would print the fields, without commas in rows

    @property
    def exact(self) -> np.ndarray:
        """X in extended precision, whose range holds the squares of every float64."""
        return self.X.astype(np.longdouble)

    @property
    def live(self) -> np.ndarray:
        """Which columns vary by more than 1e-12 of what the median one does: others get none.

        In float64, in which the limit may be met to the last digit.
        """
        X = self.X.astype(np.float64)
        spreads = np.abs(X - X[:1]).mean(axis=0)
        varying = spreads[spreads > 0]
        return spreads > 1e-12 * (np.median(varying) if len(varying) else 0)

    @property
    def spread(self) -> float:
        """The largest distance of an entry from the median of its column."""
        X = self.X.astype(np.float64)
        return float(np.abs(X - np.median(X, axis=0)).max())

    @property
    def is_tame(self) -> bool:
        """Whether columns are of sizes at which a general solver can be believed."""
        X = self.X.astype(np.float64)
        span = np.ptp(X, axis=0)
        span = span[span > 0]
        return len(span) > 0 and bool(span.min() > 0.1 and span.max() < 100)


def data(X: Any, y: Any, dtype: str = "float64") -> Data:
    """An example that is written by hand."""
    return Data(np.array(X, dtype=dtype), np.array(y))


@st.composite
def grids(draw: Any, n: int, d: int) -> np.ndarray:
    """Integers of few levels, (n, d): ties, copies and contradictions are common."""
    level = draw(st.sampled_from([1, 2, 4, 9]))
    entries = st.integers(0, level)
    rows = st.lists(entries, min_size=d, max_size=d)
    return np.array(draw(st.lists(rows, min_size=n, max_size=n)), dtype=np.float64)


@st.composite
def clouds(draw: Any, n: int, d: int) -> np.ndarray:
    """Normal numbers, (n, d), rounded so that an example can be read."""
    seed = draw(st.integers(0, 999))
    return np.random.default_rng(seed).normal(size=(n, d)).round(3)


def labels(n: int) -> st.SearchStrategy[np.ndarray]:
    """Up to four classes of any sizes; mostly at least two, and one with two members."""
    some = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    even = st.integers(2, 3).map(lambda count: [row % count for row in range(n)])
    rare = st.integers(1, 2).map(lambda few: [int(row < few) for row in range(n)])
    return st.one_of(even, some, some, rare).map(lambda y: np.array(y, dtype=np.int64))


# -- what spoils data ----------------------------------------------------------------------------


@st.composite
def _copied(draw: Any, X: np.ndarray) -> np.ndarray:
    """Rows drawn with replacement."""
    n = len(X)
    return X[draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n))]


@st.composite
def _constant(draw: Any, X: np.ndarray) -> np.ndarray:
    """A dead column."""
    X = X.copy()
    X[:, draw(st.integers(0, X.shape[1] - 1))] = draw(st.sampled_from([0.0, 3.0, 1e8]))
    return X


@st.composite
def _collinear(draw: Any, X: np.ndarray) -> np.ndarray:
    """One more column, the sum or a copy of others, exact or nearly so."""
    left, right = (draw(st.integers(0, X.shape[1] - 1)) for _ in range(2))
    column = X[:, left] + X[:, right] if left != right else X[:, left]
    error = draw(st.sampled_from([0.0, 1e-14, 1e-9, 1e-5]))
    wave = np.sin(np.arange(len(X)) ** 2)
    return np.column_stack([X, column + error * wave])


@st.composite
def _in_units(draw: Any, X: np.ndarray) -> np.ndarray:
    """Each column in units of its own."""
    d = X.shape[1]
    return X * np.array(draw(st.lists(st.sampled_from(UNITS), min_size=d, max_size=d)))


@st.composite
def _scaled(draw: Any, X: np.ndarray) -> np.ndarray:
    """All columns in other units."""
    return X * draw(st.sampled_from(UNITS))


@st.composite
def _outlying(draw: Any, X: np.ndarray) -> np.ndarray:
    """One entry, or one row, far away."""
    X = X.copy()
    row = draw(st.integers(0, len(X) - 1))
    size = draw(st.sampled_from([1e3, 1e6, 1e9, 1e12]))
    if draw(st.booleans()):
        X[row] = size
    else:
        X[row, draw(st.integers(0, X.shape[1] - 1))] = size
    return X


@st.composite
def _nearly_dead(draw: Any, X: np.ndarray) -> np.ndarray:
    """A column of rounding errors, as sentence encoders have."""
    X = X.copy()
    column = draw(st.integers(0, X.shape[1] - 1))
    size = draw(st.sampled_from([1e-33, 1e-20, 1e-12, 1e-9]))
    X[:, column] = size * (1.7 + np.sin(1 + np.arange(len(X)) ** 2))
    return X


@st.composite
def _shifted(draw: Any, X: np.ndarray) -> np.ndarray:
    """Far from the origin."""
    return X + draw(st.sampled_from([1.0, -100.0, 1e6, 2.0**40]))


SPOILERS = (
    _copied,
    _constant,
    _collinear,
    _in_units,
    _scaled,
    _outlying,
    _nearly_dead,
    _shifted,
)


@st.composite
def odd_data(draw: Any) -> Data:
    """Data that is odd in up to two ways."""
    n = draw(st.integers(4, MOST_ROWS))
    wide = draw(st.sampled_from([False, False, False, True]))
    d = draw(st.integers(n, MANY_FEATURES) if wide else st.integers(1, FEW_FEATURES))
    grid = draw(st.booleans())
    X = draw(grids(n, d) if grid else clouds(n, d))
    y = draw(labels(n))
    spoilers = draw(st.lists(st.sampled_from(SPOILERS), max_size=2))
    for spoiler in spoilers:
        with np.errstate(over="ignore"):
            spoiled = draw(spoiler(X))
        if np.abs(spoiled).max() < LARGEST:
            X = spoiled
    if grid and not spoilers:
        X = X.astype(draw(st.sampled_from(GRID_TYPES)))
    elif np.abs(X).max() < 1e30 and draw(st.sampled_from([False, False, True])):
        X = X.astype(np.float32)
    return Data(X, y)
