"""Scatter matrices of blocks equal those of all rows."""

import numpy as np
import pytest

from nearfar.blocks.scatter import NONE, scatter_of_rows, sum_of_scatters
from nearfar.errors import InvalidInputError


def direct(X, codes, weights):
    """W and the means by their definitions."""
    W, means = np.zeros((X.shape[1],) * 2), []
    for code in np.unique(codes[codes != NONE]):
        rows = codes == code
        mean = np.average(X[rows], axis=0, weights=weights[rows])
        means.append(mean)
        W += (weights[rows, None] * (X[rows] - mean)).T @ (X[rows] - mean)
    return W, np.array(means)


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_give_the_scatter_within_groups_of_all_rows(rng, weighted, monkeypatch):
    monkeypatch.setattr("nearfar.blocks.scatter.TILE_BYTES", 8 * 3 * 7)  # tiles of seven rows
    X = rng.normal(size=(60, 3)) + 1e6
    codes = rng.integers(-1, 4, 60)
    weights = rng.uniform(1, 3, 60) if weighted else np.ones(60)
    parts = [
        scatter_of_rows(X[a:b], X[0], codes[a:b], None, weights[a:b] if weighted else None, None, a)
        for a, b in ((0, 20), (20, 21), (21, 60))
    ]
    found = sum_of_scatters(parts)
    W, means = direct(X, codes, weights)
    np.testing.assert_allclose(found.within, W, rtol=1e-9)
    np.testing.assert_allclose(found.means + X[0], means, rtol=1e-14)
    np.testing.assert_allclose(found.weight, weights[codes != NONE].sum())
    np.testing.assert_allclose(
        found.squares, (weights[:, None] * (X - X[0]) ** 2).sum(axis=0), rtol=1e-12
    )


def test_within_and_between_are_the_scatter_of_all(rng):
    X, codes = rng.normal(size=(40, 4)), rng.integers(0, 3, 40)
    found = scatter_of_rows(X, X[0], codes)
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(found.within + found.between, centred.T @ centred, atol=1e-12)


def test_images_are_summed_in_place_of_rows(rng):
    X, L, codes = rng.normal(size=(30, 4)), rng.normal(size=(2, 4)), rng.integers(0, 3, 30)
    found = scatter_of_rows(X, X[0], codes, L=L)
    W, means = direct((X - X[0]) @ L.T, codes, np.ones(30))
    np.testing.assert_allclose(found.within, W, atol=1e-12)
    np.testing.assert_allclose(found.means, means, atol=1e-14)


def test_a_constant_feature_has_exactly_no_spread(rng):
    X = rng.normal(size=(50, 2))
    X[:, 1] = 0.1
    found = scatter_of_rows(X, X[0], rng.integers(0, 3, 50))
    assert found.squares[1] == 0
    assert not found.within[1].any()


def test_rows_in_no_group_count_for_the_spread_of_features_alone(rng):
    X = rng.normal(size=(5, 2))
    found = scatter_of_rows(X, X[0], np.full(5, NONE))
    assert found.weight == 0
    assert not found.within.any()
    assert (found.squares > 0).all()


def test_a_row_that_is_not_finite_is_named_by_its_number_among_all(rng):
    X = rng.normal(size=(10, 2))
    X[3, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 103 has NaN or infinity"):
        scatter_of_rows(X, np.zeros(2), first_row=100)
