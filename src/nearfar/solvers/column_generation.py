"""Linear programs with many columns of which few are used, solved with ever more of them.

For minimise 1/m Σ [1 − Fw]₊ + β Σ w over w >= 0, such as `nearfar.problems.scml`. Each program with
some of the columns is solved by HiGHS. Its dual prices the others: those that are too cheap join.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from nearfar.limits import check_time
from nearfar.solvers.run import Iterate

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

COLUMNS = 20  # that a program begins with, and that join at a time
ROUNDING = 1e-9  # of a price, relative to β


class ColumnProgram(Protocol):
    """What the solver asks of a problem; `nearfar.problems.scml` explains each part."""

    @property
    def F(self) -> Matrix: ...  # noqa: D102
    @property
    def penalty(self) -> float: ...  # noqa: D102
    @property
    def first_prices(self) -> Matrix: ...  # noqa: D102
    def value(self, w: Matrix) -> float: ...  # noqa: D102
    def prices(self, alpha: Matrix) -> Matrix: ...  # noqa: D102
    def bound(self, alpha: Matrix) -> float: ...  # noqa: D102


def column_generation(program: ColumnProgram) -> Iterator[Iterate]:
    """Iterates towards the optimum; the residual is the relative gap, certified.

    The certificate of an iterate is the dual point. It ends where no column is too cheap.
    """
    columns = np.argsort(-program.first_prices, kind="stable")[:COLUMNS]
    while True:
        check_time()
        found, alpha = _solved(program.F[:, columns], program.penalty)
        w = np.zeros(program.F.shape[1])
        w[columns] = found
        value, bound = program.value(w), program.bound(alpha)
        gap = max(value - bound, 0.0) / max(value, 1.0)
        info = {"n_columns": len(columns)}
        yield Iterate(w, value, gap, True, info, certified=True, certificate=alpha)
        prices = program.prices(alpha)
        prices[columns] = -np.inf
        order = np.argsort(-prices, kind="stable")[:COLUMNS]
        cheap = order[prices[order] > program.penalty * (1 + ROUNDING)]
        if not len(cheap):
            return
        columns = np.concatenate([columns, cheap])


def _solved(F: Matrix, penalty: float) -> tuple[Matrix, Matrix]:
    """w and α of the program with the columns F.

    HiGHS is given the dual, maximise Σ α over 0 <= α <= 1/m with Fᵀα <= β: it has few rows.
    """
    m, count = F.shape
    found = linprog(
        -np.ones(m),
        A_ub=F.T,
        b_ub=np.full(count, penalty),
        bounds=(0, 1 / m),
        method="highs-ds",
    )
    assert found.status == 0, found.message  # α = 0 is feasible, and the range is bounded
    return np.maximum(-found.ineqlin.marginals, 0.0), np.asarray(found.x)
