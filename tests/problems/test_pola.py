"""Losses and differences by plain loops."""

import numpy as np
import pytest

from nearfar.problems import pola
from nearfar.problems.pola import POLAProblem


@pytest.fixture
def case(rng):
    """Eleven points, 30 pairs of them, a metric and a threshold."""
    X = rng.normal(size=(11, 3)) + 100
    heads, tails = rng.integers(11, size=(2, 30))
    A = rng.normal(size=(2, 3))
    return X, heads, tails, rng.random(30) < 0.5, A.T @ A, 2.5


@pytest.fixture(autouse=True, params=[1, 10**6], ids=["small blocks", "one block"])
def _block(request, monkeypatch):
    monkeypatch.setattr(pola, "BLOCK_ENTRIES", request.param)


def test_losses(case, dtype, backend):
    X, heads, tails, near, M, b = case
    X = X.astype(dtype)
    found = POLAProblem(backend.asarray(X), heads, tails, near).losses(M, b)
    assert found.dtype == np.float64
    for loss, i, j, is_near in zip(found, heads, tails, near, strict=True):
        x = X[i].astype(np.float64) - X[j].astype(np.float64)
        y = 1 if is_near else -1
        assert loss == pytest.approx(max(0.0, 1 - y * (b - x @ M @ x)))


def test_blocks_are_the_pairs_in_their_order(case, dtype, backend):
    """In float64 whatever the dtype, so that equal values give equal answers."""
    X, heads, tails, near, _, _ = case
    X, order = X.astype(dtype), np.array([7, 3, 3, 29])
    problem = POLAProblem(backend.asarray(X), heads, tails, near)
    differences, signs = (
        np.concatenate(parts) for parts in zip(*problem.blocks(order), strict=True)
    )
    wide = X.astype(np.float64)
    np.testing.assert_array_equal(differences, (wide[heads] - wide[tails])[order])
    np.testing.assert_array_equal(signs, np.where(near, 1, -1)[order])
    assert len(list(problem.blocks())) == (30 if pola.BLOCK_ENTRIES == 1 else 1)
