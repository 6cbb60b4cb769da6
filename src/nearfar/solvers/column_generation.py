"""Linear programs of which few rows and columns matter, solved with ever more of them.

For minimise 1/m Σ [c − Fw]₊ + β Σ w over w >= 0, such as `nearfar.problems.scml`. Each program with
some of the rows and columns is solved by HiGHS. Rows that its answer breaks join, and so do columns
that its dual prices too cheaply. A row that is left out has a dual weight of 0, so that the dual
point of a part is one of the whole.
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

COLUMNS = 80  # that a program begins with, and that join at a time
ROWS = 150  # the same
ROUNDING = 1e-9  # of a price, relative to β, and of a margin


class ColumnProgram(Protocol):
    """What the solver asks of a problem; `nearfar.problems.scml` explains each part."""

    @property
    def F(self) -> Matrix: ...  # noqa: D102
    @property
    def penalty(self) -> float: ...  # noqa: D102
    @property
    def needed(self) -> Matrix: ...  # noqa: D102
    @property
    def first_prices(self) -> Matrix: ...  # noqa: D102
    def value(self, w: Matrix) -> float: ...  # noqa: D102
    def prices(self, alpha: Matrix) -> Matrix: ...  # noqa: D102
    def bound(self, alpha: Matrix) -> float: ...  # noqa: D102


def column_generation(program: ColumnProgram) -> Iterator[Iterate]:
    """Iterates towards the optimum; the residual is the relative gap, certified.

    The certificate of an iterate is the dual point. It ends where no column is too cheap.
    """
    F, c, m = program.F, program.needed, len(program.F)
    columns = np.argsort(-program.first_prices, kind="stable")[:COLUMNS]
    margins = F[:, columns].mean(axis=1) - (c - 1)
    rows = np.argsort(margins, kind="stable")[:ROWS]  # of small margins
    while True:
        check_time()
        found, weights = _solved(F[np.ix_(rows, columns)], c[rows], program.penalty, 1 / m)
        w, alpha = np.zeros(F.shape[1]), np.zeros(m)
        w[columns], alpha[rows] = found, weights
        value, bound = program.value(w), program.bound(alpha)
        gap = max(value - bound, 0.0) / max(value, 1.0)
        info = {"n_columns": len(columns), "n_rows": len(rows)}
        yield Iterate(w, value, gap, True, info, certified=True, certificate=alpha)
        more_rows = _largest(c - F @ w, rows, ROUNDING, ROWS)
        prices = program.prices(alpha)
        more_columns = _largest(prices, columns, program.penalty * (1 + ROUNDING), COLUMNS)
        if not len(more_rows) and not len(more_columns):
            return
        rows, columns = np.append(rows, more_rows), np.append(columns, more_columns)


def _largest(values: Matrix, known: Index, least: float, count: int) -> Index:
    """The places of the largest values above the least, without the known ones."""
    values = values.copy()
    values[known] = -np.inf
    order = np.argsort(-values, kind="stable")[:count]
    return order[values[order] > least]


def _solved(F: Matrix, c: Matrix, penalty: float, most: float) -> tuple[Matrix, Matrix]:
    """w and α of the program with some rows and columns of F.

    HiGHS is given the dual, maximise Σ cα over 0 <= α <= most with Fᵀα <= β: it has few rows.
    """
    count = F.shape[1]
    found = linprog(
        -c,
        A_ub=F.T,
        b_ub=np.full(count, penalty),
        bounds=(0, most),
        method="highs-ds",
        options={"presolve": False},  # F is dense: there is nothing to remove
    )
    assert found.status == 0, found.message  # α = 0 is feasible, and the range is bounded
    return np.maximum(-found.ineqlin.marginals, 0.0), np.asarray(found.x)
