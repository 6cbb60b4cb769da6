"""Successive projections onto the margins of pairs and onto the cone of metrics.

The numbers at line ends are those of `nearfar.problems.pola` and, for coordinates that grow, of
`nearfar.problems.kernel_pola`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas

from nearfar.errors import InvalidInputError
from nearfar.limits import fit_clock
from nearfar.solvers.run import Iterate
from nearfar.solvers.shifted_inverse import ShiftedInverse

Matrix = NDArray[np.float64]

NEW_DIRECTION = 1e-10  # share of a squared length above which a direction is new, not rounding
INDEFINITE = 1e-6  # negative share of a squared length that may be rounding of a kernel


@dataclass
class MarginProjections:
    """A metric M and a threshold b that learn from one pair after another.

    The answer depends on the order of the pairs, but not on how they are split into blocks.
    """

    M: Matrix  # (d, d) in Fortran order, of which the lower triangle counts
    b: float = 1.0
    scale: float | None = None  # s; None for the mean length of the pairs so far
    beta: float = 0.0  # losses up to beta cause no update
    total_length: float = 0.0  # of the pairs so far
    n_seen: int = 0
    n_updates: int = 0
    squared_loss: float = 0.0  # Σ ℓ² over the updates
    inverse: ShiftedInverse = field(default_factory=ShiftedInverse)  # of M

    @property
    def matrix(self) -> Matrix:
        """M, both triangles, as a copy."""
        return np.tril(self.M) + np.tril(self.M, -1).T

    def learn(self, X: Matrix, signs: Matrix) -> Matrix:
        """Visit pairs with differences X (m, d) in turn; returns the losses (m,) before updates.

        O(d²) a pair, and O(d³) once in some hundred near pairs with a loss.
        """
        losses = np.zeros(len(X))
        for t, (x, sign) in enumerate(zip(X, signs.tolist(), strict=True)):
            length = math.sqrt(x @ x)
            losses[t] = loss = self._loss(x, length, sign)
            if loss > self.beta:
                self._correct(x, length, sign, loss)
        return losses

    def copied(self) -> Self:
        """A copy of the current state."""
        twin = copy.copy(self)
        twin.M, twin.inverse = self.M.copy(order="F"), ShiftedInverse()
        return twin

    def _loss(self, x: Matrix, length: float, sign: float) -> float:
        self.total_length += length
        self.n_seen += 1
        distance = float(x @ blas.dsymv(1.0, self.M, x, lower=1)) if len(x) else 0.0  # (1)
        return max(0.0, 1.0 - sign * (self.b - distance))  # (3)

    def _correct(self, x: Matrix, length: float, sign: float, loss: float) -> None:
        """Project onto the margin of a pair with a loss, and then onto the cone.

        A pair of length zero, which a kernel may give two different points, moves b alone.
        """
        alpha = loss  # (4)
        if length > 0:
            s = self.total_length / self.n_seen if self.scale is None else self.scale
            square = (length / s) * (length / s)
            alpha = loss / (square * square + 1)  # (4)
            weight, x = alpha / s**2, x / s  # alpha / s**4, which may leave the range of floats
            if sign < 0:
                self.M = self.inverse.add(self.M, weight, x)  # (4)
            else:
                self.M = self.inverse.subtract_and_project(self.M, weight, x)  # (4), (5)
        self.b = max(1.0, self.b + sign * alpha)  # (4), (5)
        self.n_updates += 1
        self.squared_loss += loss * loss


@dataclass
class GrowingProjections(MarginProjections):
    """The same for vectors given by their inner products, in a growing number of coordinates.

    M is the N of `nearfar.problems.kernel_pola`.
    """

    M: Matrix = field(default_factory=lambda: np.zeros((0, 0), order="F"))
    L: Matrix = field(default_factory=lambda: np.zeros((0, 0)))  # (r, r), lower triangular
    limit: int | None = None  # of r

    def learn_from_products(
        self, old: Matrix, new: Matrix, signs: Matrix
    ) -> tuple[Matrix, list[int]]:
        """Visit m pairs in turn; returns the losses (m,) and the numbers of pairs added to L.

        There are fewer losses if the time of the fit is up. ``old`` (m, r) are the products of the
        pairs with those of L, ``new`` (m, m) with each other. O(r²) a pair, and O(r³) once in
        some hundred near pairs with a loss.
        """
        (m, r), clock = old.shape, fit_clock()
        C = np.zeros((m, r + m))
        if r:
            C[:, :r] = linalg.solve_triangular(self.L, old.T, lower=True).T  # (3)
        losses, joined = np.zeros(m), list[int]()
        for t, sign in enumerate(signs.tolist()):
            if t and clock.is_up:
                return losses[:t], joined
            square = float(new[t, t])
            length = math.sqrt(max(square, 0.0))
            losses[t] = loss = self._loss(C[t, :r], length, sign)
            if not loss > self.beta:
                continue
            rest = square - float(C[t, :r] @ C[t, :r])  # (4)
            known = max(square, (self.total_length / self.n_seen) ** 2)
            if rest < -INDEFINITE * known:
                raise InvalidInputError(
                    "a kernel must not give a negative squared length; one vector has"
                    f" {rest:.2g} beside lengths of {known:.2g}. Take another kernel or other"
                    " parameters of it."
                )
            if rest > NEW_DIRECTION * known and (self.limit is None or r < self.limit):
                C[t:, r] = (new[t:, t] - C[t:, :r] @ C[t, :r]) / math.sqrt(rest)
                r += 1
                self._grow(C[t, :r])
                joined.append(t)
            self._correct(C[t, :r], length, sign, loss)
        return losses, joined

    def _grow(self, row: Matrix) -> None:
        """Add a coordinate; ``row`` (r + 1,) are those of the pair that needs it."""
        r = len(self.L)
        M, L = np.zeros((r + 1, r + 1), order="F"), np.zeros((r + 1, r + 1))
        M[:r, :r], L[:r, :r], L[r] = self.M, self.L, row
        self.M, self.L = M, L
        self.inverse.grow()


Stream = TypeVar("Stream", bound=MarginProjections)


def epochs(stream: Stream, once: Callable[[], Iterable[Matrix]]) -> Iterator[Iterate[Stream, None]]:
    """Visit all pairs repeatedly, until no loss exceeds beta.

    ``once()`` lets the stream learn from every pair and yields the losses, block by block. An
    iterate's ``value`` is their sum, its ``state`` a copy of the stream after the epoch. The
    residual is zero if no loss exceeded beta: then the epoch changed nothing, and its losses are
    those of the answer. Otherwise it is None. When the time of the fit is up, the epoch ends early:
    there is an answer after every pair.
    """
    clock = fit_clock()
    while True:
        before, total, largest, cut_short = stream.n_updates, 0.0, 0.0, False
        for losses in once():
            total += float(losses.sum())
            largest = max(largest, float(losses.max(initial=0.0)))
            cut_short = clock.is_up
            if cut_short:
                break
        yield Iterate(
            stream.M,
            total,
            0.0 if largest <= stream.beta and not cut_short else None,
            info={
                "largest_loss": largest,
                "n_updates": stream.n_updates - before,
                "squared_threshold": stream.b,
            },
            state=stream.copied(),
        )
