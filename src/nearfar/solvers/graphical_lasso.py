"""The graphical lasso to a growing accuracy, by scikit-learn's coordinate descent.

Each iterate solves the problem anew, a hundred times as accurately as the one before. The blocks of
a problem are solved one by one. See Friedman, Hastie & Tibshirani, Sparse inverse covariance
estimation with the graphical lasso, Biostatistics 9 (2008).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn import covariance
from sklearn.exceptions import ConvergenceWarning

from nearfar.limits import check_time
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

ACCURACIES = 10.0 ** -np.arange(2, 13, 2)  # of the sum of a block's diagonal
SWEEPS = 1000  # over all features, at most


class SparseProblem(Protocol):
    """What the solver asks of a problem; `nearfar.problems.sdml` explains each part."""

    @property
    def S(self) -> Matrix: ...  # noqa: D102
    @property
    def penalty(self) -> float: ...  # noqa: D102
    @property
    def blocks(self) -> list[Index]: ...  # noqa: D102
    def value(self, A: Matrix) -> float: ...  # noqa: D102
    def dual_point(self, W: Matrix) -> Matrix: ...  # noqa: D102
    def gap(self, value: float, W: Matrix) -> float: ...  # noqa: D102


def graphical_lasso(problem: SparseProblem) -> Iterator[Iterate]:
    """Iterates A towards the smallest objective; the residual is the relative gap, certified."""
    for accuracy in ACCURACIES:
        try:
            A, W = solution(problem, float(accuracy))
        except FloatingPointError:  # rounding hides what is left
            return
        value, dual = problem.value(A), problem.dual_point(W)
        yield Iterate(
            A, value, problem.gap(value, dual), certified=True, exact=True, certificate=dual
        )


def solution(problem: SparseProblem, accuracy: float) -> tuple[Matrix, Matrix]:
    """A and its inverse W, up to the accuracy."""
    A, W = np.zeros_like(problem.S), np.zeros_like(problem.S)
    for block in problem.blocks:
        check_time()
        rows = np.ix_(block, block)
        S = problem.S[rows]
        if len(block) == 1:
            A[rows], W[rows] = 1 / S, S
            continue
        size = float(np.trace(S)) / len(S)
        with _global_random_state_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the gap says what was reached
            found, inverse = covariance.graphical_lasso(
                S / size,
                alpha=problem.penalty / size,
                tol=accuracy * len(S),
                enet_tol=0.1 * accuracy,
                max_iter=SWEEPS,
            )
        W[rows], A[rows] = found * size, (inverse + inverse.T) / (2 * size)
    return A, W


@contextmanager
def _global_random_state_kept() -> Iterator[None]:
    """Put NumPy's global random state back, which scikit-learn draws from (to no effect here)."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
