"""Scatter matrices of rows that lie in blocks: what covariances, RCA, LDA and PCA are made of.

With group g of weight n_g and mean m_g, of which a part of weight n_bg and mean m_bg lies in block
b, where its first row is f_bg:

(1) block   W_b = Σ_i w_i (x_i − f)(x_i − f)ᵀ − Σ_g n_bg (m_bg − f_bg)(m_bg − f_bg)ᵀ,  f that of x_i
(2) within  W = Σ_b W_b + Σ_b Σ_g n_bg (m_bg − m_g)(m_bg − m_g)ᵀ                           [CGL83]
(3) between B = Σ_g n_g (m_g − m)(m_g − m)ᵀ,  W + B the scatter about the mean of all rows

Each row is relative to another one of its group, so that no digits are lost however far rows are
from the origin or groups from each other, and constant features are exactly zero. Sums are in
float64 and in the order of the blocks: they depend neither on the number of workers nor on which of
them ends first.

[CGL83] Chan, Golub & LeVeque, Algorithms for computing the sample variance, 1983.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.kernels import single_threaded_blas

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

TILE_BYTES = 1 << 20  # of rows in float64 that are centred at a time, which then stay in the cache
NONE = -1  # the group of rows that count for no scatter


@dataclass(frozen=True)
class Scatter:
    """The sums of some rows: (2), and the groups, whose other rows may lie elsewhere."""

    n_rows: int  # with those in no group
    squares: Matrix  # (d,) Σ w (x − centre)² of all rows, exactly 0 for constant features
    weight: float  # of the rows in groups
    within: Matrix  # (d, d) W of (2)
    groups: NDArray[Any]  # (g,) names of groups, ascending; of some, if others are complete
    weights: Matrix  # (g,) n_g
    means: Matrix  # (g, d) m_g, relative to the centre

    def with_means_of(self, groups: NDArray[np.bool_]) -> Scatter:
        """The same sums, with weights and means of these groups alone."""
        return replace(
            self,
            groups=self.groups[groups],
            weights=self.weights[groups],
            means=self.means[groups],
        )

    @property
    def mean(self) -> Matrix:
        """m of (3), relative to the centre."""
        return np.asarray(self.weights @ self.means / self.weights.sum())

    @property
    def between(self) -> Matrix:
        """B of (3)."""
        about = (self.means - self.mean) * np.sqrt(self.weights)[:, None]
        return np.asarray(about.T @ about)  # (3)


@np.errstate(over="ignore", invalid="ignore")  # sums that overflow are refused by their range
@single_threaded_blas()
def scatter_of_rows(
    X: Any,
    centre: Matrix,
    codes: Index | None = None,
    names: NDArray[Any] | None = None,
    weights: Matrix | None = None,
    L: Matrix | None = None,
    first_row: int = 0,
) -> Scatter:
    """The sums of the rows of one block, in one pass over them.

    Parameters
    ----------
    X : array of shape (n, d), float32 or float64
        The rows, at least one; a row that is not finite raises an error that names it.
    centre : ndarray of shape (d,)
        What all rows of all blocks are relative to: one of them.
    codes : ndarray of shape (n,) or None
        The number of each row's group, from 0, or NONE; None if all rows are one group.
    names : ndarray or None
        The names of the groups, by number; None for the numbers themselves.
    weights : ndarray of shape (n,) or None
        Weights of the rows, above 0.
    L : ndarray of shape (r, d) or None
        The sums are then those of the images (x − centre) Lᵀ.
    first_row : int
        The number of the first row among those of all blocks, for messages.
    """
    n, d = X.shape
    codes = np.zeros(n, dtype=np.int16) if codes is None else _narrow(codes)
    one = bool((codes == codes[0]).all())
    order = None if one and codes[0] >= 0 else np.argsort(codes, kind="stable")
    ordered = codes if order is None else codes[order]
    begin = int(np.searchsorted(ordered, 0))  # the rows in groups
    cuts = begin + np.flatnonzero(np.diff(ordered[begin:], prepend=NONE))
    first = _images(X[cuts if order is None else order[cuts]], centre, L)
    width, size = first.shape[1], max(1, TILE_BYTES // (8 * d))
    gram, sums = np.zeros((width, width)), np.zeros((len(cuts), width))
    tile = np.empty((min(size, n), d))
    for start in range(begin, n, size):
        rows = slice(start, min(start + size, n))
        Z = tile[: rows.stop - rows.start]
        np.subtract(X[rows] if order is None else X[order[rows]], centre, out=Z)
        Z = Z if L is None else Z @ L.T
        runs = slice(np.searchsorted(cuts, start, "right") - 1, np.searchsorted(cuts, rows.stop))
        breaks = np.maximum(cuts[runs] - start, 0)
        sizes = np.diff(breaks, append=len(Z))
        Z -= first[runs] if len(sizes) == 1 else np.repeat(first[runs], sizes, axis=0)
        if weights is not None:
            w = np.sqrt(weights[rows] if order is None else weights[order[rows]])[:, None]
            Z *= w
            sums[runs] += np.add.reduceat(Z * w, breaks, axis=0)
        else:
            sums[runs] += np.add.reduceat(Z, breaks, axis=0)
        gram += Z.T @ Z
    masses = np.diff(cuts, append=n).astype(np.float64)
    if weights is not None:
        masses = np.add.reduceat(weights if order is None else weights[order], cuts)
    steps = sums / masses[:, None]
    within = gram - (steps * masses[:, None]).T @ steps  # (1)
    others = X[:0] if order is None else X[order[:begin]]
    if not np.isfinite(within).all() or not np.isfinite(others).all():
        _check_finite(X, first_row)
    squares = np.diag(gram) + (first * (2 * sums + masses[:, None] * first)).sum(axis=0)
    if order is not None and begin:
        w = np.ones(begin) if weights is None else weights[order[:begin]]
        squares = squares + w @ _images(others, centre, L) ** 2
    groups = ordered[cuts].astype(np.intp)
    groups = groups if names is None else names[groups]
    return Scatter(n, squares, float(masses.sum()), within, groups, masses, first + steps)


def _images(rows: Any, centre: Matrix, L: Matrix | None) -> Matrix:
    centred = rows - centre
    return np.asarray(centred if L is None else centred @ L.T)


def sum_of_scatters(parts: Sequence[Scatter]) -> Scatter:
    """The sums of all rows, in the order of the parts."""
    names = np.unique(np.concatenate([part.groups for part in parts]))
    weights = np.zeros(len(names))
    sums = np.zeros((len(names), parts[0].means.shape[1]))
    within = np.zeros_like(parts[0].within)
    places = [np.searchsorted(names, part.groups) for part in parts]
    for place, part in zip(places, parts, strict=True):
        weights[place] += part.weights
        sums[place] += part.weights[:, None] * part.means
        within += part.within
    means = sums / weights[:, None]
    for place, part in zip(places, parts, strict=True):
        about = (part.means - means[place]) * np.sqrt(part.weights)[:, None]
        within += about.T @ about  # (2)
    return Scatter(
        sum(part.n_rows for part in parts),
        np.sum([part.squares for part in parts], axis=0),
        sum(part.weight for part in parts),
        (within + within.T) / 2,
        names,
        weights,
        means,
    )


def _narrow(codes: Index) -> NDArray[Any]:
    """The same numbers as 16-bit ones if they fit: these are sorted by counting."""
    return codes.astype(np.int16) if codes.max() < np.iinfo(np.int16).max else codes


def _check_finite(X: Any, first_row: int) -> None:
    """Raise if a row is not finite; sums of finite rows may have left the range of float64."""
    rows = np.flatnonzero(~np.isfinite(np.asarray(X)).all(axis=1)) + first_row
    if len(rows):
        raise InvalidInputError(
            f"X must be finite; row {rows[0]} has NaN or infinity ({len(rows)} such rows in its"
            " block). Drop or impute these rows.",
            rows,
        )
