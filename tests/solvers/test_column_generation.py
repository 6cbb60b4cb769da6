"""Column generation on a program whose optimum is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from nearfar.solvers import column_generation as module
from nearfar.solvers.column_generation import column_generation


def program(F, penalty):
    m = len(F)

    def bound(alpha):
        alpha = np.clip(alpha, 0, 1 / m)
        return min(1, penalty / max((F.T @ alpha).max(), 1e-300)) * alpha.sum()

    return SimpleNamespace(
        F=F,
        penalty=penalty,
        needed=np.ones(m),
        first_prices=F.mean(axis=0),
        value=lambda w: float(np.maximum(1 - F @ w, 0).mean() + penalty * w.sum()),
        prices=lambda alpha: F.T @ alpha,
        bound=bound,
    )


def test_the_column_that_is_best_on_its_own_is_not_enough(monkeypatch):
    """Two rows: columns (1, 0), (0, 1) and (2, −8) of which the last looks best nowhere.

    Both rows reach 1 by w = (1, 1, 0) at the price 2β: for β = 0.1 that is 0.2, while one column
    alone leaves a hinge of ½.
    """
    monkeypatch.setattr(module, "COLUMNS", 1)
    F = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, -8.0]])
    iterates = list(column_generation(program(F, 0.1)))
    assert [iterate.info["n_columns"] for iterate in iterates] == [1, 2]
    assert iterates[0].value == pytest.approx(0.6)
    np.testing.assert_allclose(iterates[-1].point, [1, 1, 0], atol=1e-9)
    assert iterates[-1].value == pytest.approx(0.2)
    assert iterates[-1].residual < 1e-12


def test_it_ends_at_once_where_nothing_is_worth_its_price():
    iterates = list(column_generation(program(np.ones((3, 2)), 5.0)))
    assert [iterate.value for iterate in iterates] == [1.0]
    assert iterates[0].residual < 1e-12


def test_rows_that_hold_are_left_out(monkeypatch, rng):
    """One column that all rows but ten of a hundred satisfy from w = 1 on; ten need w = 2.

    The optimum is that of all rows at once, and most of them are never in a program.
    """
    monkeypatch.setattr(module, "ROWS", 5)
    F = np.where(np.arange(100) % 10 == 3, 0.5, 1.0)[:, None] + rng.uniform(0, 1e-3, (100, 1))
    *_, last = column_generation(program(F, 1e-3))
    assert last.residual < 1e-12
    assert last.value == pytest.approx(min(program(F, 1e-3).value(1 / f) for f in F))
    assert last.info["n_rows"] < 30
