"""Mehrotra's predictor-corrector steps, and the step lengths that stay inside a cone.

A primal-dual interior-point method follows the points at which all products of primal and dual
variables are equal, X Z = τI or x z = τ, for τ falling to zero. Newton's method gives directions:

(1) predictor  towards τ = 0, as far as the boundary of the cones: there the mean product is σμ
(2) corrector  towards τ = σ³μ, with the products of the predictor's changes added, which Newton's
               method leaves out; the share a + bt of the way to the boundary, with t the shorter
               length of the step before: long steps may come near it, short ones may not

A corrector can serve as the predictor of another one, which costs little once the linear system is
factored. Correctors of correctors tend to overshoot in turns, primal and dual steps becoming long
and short; the products of a mean of the last ones damp that.

References
----------
Mehrotra, On the implementation of a primal-dual interior point method, SIAM J. Optim. 2 (1992).
Toh, Todd & Tütüncü, SDPT3 - a Matlab software package for semidefinite programming, Optim. Methods
Softw. 11 (1999), for the share 0.9 + 0.09 t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack

from nearfar.linalg import symmetric

Array = Any
Matrix = NDArray[np.float64]

LEAST_TARGET = 1e-6  # relative to the mean product
PAYS = 0.97  # share to which another corrector must reduce the mean product
REACH = 0.9  # share of the step lengths that it must keep
MISSES = 1  # correctors that may fail to pay
DAMPING = 0.7  # weight of the last corrector in the mean, by default
LANCZOS = 60  # largest number of Lanczos steps for the length of a step
CLOSE = 0.02  # relative error of that length
FRESH = 0.1  # share of a new start beside a given one, so that no direction is missed


class Step(Protocol):
    """A direction, and the lengths of its primal and its dual step."""

    @property
    def primal(self) -> float: ...  # noqa: D102
    @property
    def dual(self) -> float: ...  # noqa: D102


Move = TypeVar("Move", bound=Step)


class Share(NamedTuple):
    """How much of the way to the boundary of the cones a step may go, a + bt in (2)."""

    least: float  # a
    more: float = 0.0  # b

    def after(self, step: Step) -> float:
        """The share of a step that follows this one."""
        return self.least + self.more * min(step.primal, step.dual)


class NewtonSystem(Protocol[Move]):
    """Newton's method at a point inside the cones."""

    @property
    def mu(self) -> float:
        """The mean product."""

    def direction(self, target: float, predictor: Move | None) -> Move:
        """Direction to products equal to the target, with second-order terms of a predictor."""

    def limited(self, step: Move, share: float) -> Move:
        """The step with lengths of this share of the way to the boundary, at most 1."""

    def mean_product(self, step: Move) -> float:
        """The mean product after a step, not below zero."""


def predictor_corrector(
    system: NewtonSystem[Move], share: Share, correctors: int = 1, damping: float = DAMPING
) -> Move:
    """The predictor step, corrected at most ``correctors`` times, as long as that pays."""
    step = system.limited(system.direction(0.0, None), 1.0)  # (1)
    target, best, least, reach = system.mu, step, np.inf, 0.0
    predictor, misses = step, 0
    for number in range(correctors):
        sigma = system.mean_product(step) / system.mu
        target = min(target, system.mu * max(sigma**3, LEAST_TARGET))
        step = system.limited(system.direction(target, predictor), share.after(step))  # (2)
        left = system.mean_product(step)
        if left > PAYS * least or step.primal + step.dual < REACH * reach:
            misses += 1
            if misses > MISSES:
                break
        else:
            best, least, reach = step, left, step.primal + step.dual
        if number + 1 < correctors:
            predictor = _mean(predictor, step, damping) if number else step
    return best


def _mean(first: Move, second: Move, weight: float) -> Move:
    """The mean of two steps, dataclasses of arrays, with this weight of the second."""
    names = [field.name for field in fields(second)]  # type: ignore[arg-type] # see above
    values = {
        name: (1 - weight) * getattr(first, name) + weight * getattr(second, name) for name in names
    }
    return replace(second, **values)  # type: ignore[type-var] # the same


def positive_step(values: Array, changes: Array) -> float:
    """The largest t with values + t·changes ≥ 0, where values are positive."""
    least = float((changes / values).min())
    return -1 / least if least < 0 else np.inf


def definite_step(root: Matrix, change: Matrix) -> float:
    """The largest t with root·rootᵀ + t·change ⪰ 0, root being a lower Cholesky factor."""
    half = linalg.solve_triangular(root, change, lower=True)
    whole = linalg.solve_triangular(root, half.T, lower=True)
    least = linalg.eigvalsh(symmetric(whole), subset_by_index=(0, 0))[0]
    return -1 / float(least) if least < 0 else np.inf


def definite_step_by_lanczos(
    solve: Callable[[Array, bool], Array],
    change: Array,
    close: float | None = None,
    start: Array | None = None,
) -> tuple[float, Array]:
    """About the largest t with A + t·change definite, for large matrices on any device.

    ``solve(b, transposed)`` gives L⁻¹b or L⁻ᵀb for the Cholesky factor L of A. Uses Lanczos' method
    for the smallest eigenvalue of L⁻¹·change·L⁻ᵀ, minus its error, which is at most the share
    ``close`` of it, or CLOSE. Also returns its eigenvector: as the ``start`` for a similar change
    it saves more than half of the steps.
    """
    close = CLOSE if close is None else close
    q = change.diagonal()
    q = 1 + q / (1e-300 + abs(q).max())  # any start other than a vector of ones
    if float(abs(q).max()) < 1e-6:  # if all entries were equal and negative
        q = (q * 0 + 1).cumsum(0)
    if start is not None:
        q = start + FRESH / float(q @ q) ** 0.5 * q
    w, size, rows = q, float(q @ q) ** 0.5, 0 * q[:LANCZOS, None] * q
    diagonal: list[float] = []
    off: list[float] = []
    for row in range(len(rows)):
        rows[row], basis = w / size, rows[: row + 1]
        w = solve(change @ solve(rows[row], True), False)
        products = basis @ w
        diagonal.append(float(products[-1]))
        w = w - products @ basis
        w = w - (basis @ w) @ basis  # again, against rounding
        size = float(w @ w) ** 0.5
        ends = size <= 1e-12 * max(size, *map(abs, diagonal + off)) or row + 1 == len(rows)
        if ends or row % 2 == 0:  # looking at every second of them is enough
            least, vector = _least_of_tridiagonal(diagonal, off)
            error = abs(size * float(vector[-1]))
            if ends or error <= close * abs(least):
                break
        off.append(size)
    bound, last = least - error, 0 * q
    for weight, row_vector in zip(vector, basis, strict=True):
        last = last + float(weight) * row_vector
    return np.inf if bound >= 0 else -1 / bound, last


def _least_of_tridiagonal(diagonal: list[float], off: list[float]) -> tuple[float, Matrix]:
    """The least eigenvalue of a symmetric tridiagonal matrix, and its vector.

    What scipy.linalg.eigh_tridiagonal does, without its checks: they take most of its time.
    """
    if not off:
        return diagonal[0], np.ones(1)
    by_index, tol = 2, 0.0  # of LAPACK's: as exact as can be
    _, values, block, split, failed = lapack.dstebz(
        diagonal, off, by_index, 0.0, 0.0, 1, 1, tol, b"B"
    )
    if not failed:
        vectors, failed = lapack.dstein(diagonal, off, values[:1], block, split)
    if failed:
        raise linalg.LinAlgError(f"LAPACK found no least eigenvalue (info={failed})")
    return float(values[0]), vectors[:, 0]
