"""Sums over all pairs: blocks of rows equal plain loops, on every backend."""

import math

import numpy as np
import pytest

from nearfar.kernels import all_pairs, kernels_for, reference


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of a few rows."""
    monkeypatch.setattr(all_pairs, "HOST_ENTRIES", 100)
    monkeypatch.setattr(all_pairs, "DEVICE_ENTRIES", 100)
    monkeypatch.setattr(all_pairs, "SORTED_HOST_ENTRIES", 100)
    monkeypatch.setattr(all_pairs, "SORTED_DEVICE_ENTRIES", 100)


def weigh_by(W):
    """d^3 as value of a pair, and W d^2 as its weight, for a matrix W."""

    def weigh(rows, squares):
        return (squares**1.5).sum(), W[rows] * squares

    return weigh


@pytest.mark.parametrize("r", [1, 2, 5])
def test_forces_equal_the_loops(backend, rng, r):
    n = 23
    Y, W = rng.normal(size=(n, r)), rng.uniform(size=(n, n))
    W = W + W.T
    value, expected = 0.0, np.zeros((n, r))
    for i in range(n):
        for j in range(i + 1, n):
            d = math.dist(Y[i], Y[j])
            value += d**3
            force = W[i, j] * d**2 * (Y[i] - Y[j])
            expected[i] += force
            expected[j] -= force
    found, forces = all_pairs.pair_forces(backend.asarray(Y), weigh_by(backend.asarray(W)))
    assert found == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(backend.to_numpy(forces), expected, rtol=1e-10, atol=1e-12)


def test_blocks_do_not_matter(rng, monkeypatch):
    Y, W = rng.normal(size=(40, 2)), np.ones((40, 40))
    value, forces = all_pairs.pair_forces(Y, weigh_by(W))
    monkeypatch.setattr(all_pairs, "HOST_ENTRIES", 1 << 20)
    again, whole = all_pairs.pair_forces(Y, weigh_by(W))
    assert again == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(whole, forces, rtol=1e-12, atol=1e-11)


def test_distances_equal_the_loops(backend, dtype, rng):
    X = rng.normal(size=(23, 4)).astype(dtype)
    expected = [[math.dist(a, b) for b in X.astype(float)] for a in X.astype(float)]
    found = backend.to_numpy(all_pairs.distances(backend.asarray(X)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_distances_of_copies_are_zero_and_of_near_points_exact(backend, rng):
    """By products alone, distances of 1e-7 between points of size 1 would be lost."""
    X = rng.normal(size=(12, 3)) + 100
    X[5] = X[2]
    X[7] = X[3] + [1e-7, 0, 0]
    found = backend.to_numpy(all_pairs.distances(backend.asarray(X)))
    assert found[5, 2] == 0
    assert (np.diag(found) == 0).all()
    assert found[7, 3] == pytest.approx(X[7, 0] - X[3, 0], rel=1e-6)
    np.testing.assert_array_equal(found, found.T)


def test_ranks_equal_the_loops(backend, rng):
    X = rng.normal(size=(30, 3))
    heads = np.sort(rng.integers(0, 30, 50))
    tails = (heads + rng.integers(1, 30, 50)) % 30
    expected = []
    for h, t in zip(heads, tails, strict=True):
        others = [j for j in range(30) if j != h]
        others.sort(key=lambda j: math.dist(X[h], X[j]))
        expected.append(others.index(t))
    np.testing.assert_array_equal(all_pairs.ranks(backend.asarray(X), heads, tails), expected)


def test_ranks_of_equally_far_points_go_by_number(backend):
    X = backend.asarray(np.array([[0.0], [1.0], [-1.0], [1.0], [2.0]]))
    heads, tails = np.array([0, 0, 0, 0]), np.array([1, 2, 3, 4])
    np.testing.assert_array_equal(all_pairs.ranks(X, heads, tails), [0, 1, 2, 3])


def test_ranks_among_points_that_products_cannot_tell_apart(backend, rng):
    """Distances of 1e-9 to 1e-6 between points of size 1, and of 1 to all others."""
    X = np.concatenate([rng.normal(size=(10, 3)), np.zeros((12, 3)) + 1])
    X[10:, 0] += 10 ** np.linspace(-9, -6, 12)
    heads, tails = np.repeat(np.arange(10, 22), 11), np.empty(132, dtype=np.intp)
    expected = []
    for i in range(10, 22):
        others = [j for j in range(10, 22) if j != i]
        others.sort(key=lambda j: abs(X[i, 0] - X[j, 0]))
        tails[11 * (i - 10) : 11 * (i - 9)] = others
        expected.extend(range(11))
    np.testing.assert_array_equal(all_pairs.ranks(backend.asarray(X), heads, tails), expected)


def test_no_edges_have_no_ranks(backend, rng):
    none = np.empty(0, dtype=np.intp)
    assert len(all_pairs.ranks(backend.asarray(rng.normal(size=(8, 2))), none, none)) == 0


def test_results_stay_where_the_data_is(backend, rng):
    Y = backend.asarray(rng.normal(size=(9, 2)))
    forces = all_pairs.pair_forces(Y, lambda _, squares: (squares.sum(), squares))[1]
    assert backend.to_numpy(forces).shape == (9, 2)
    assert kernels_for(forces) is kernels_for(Y)


def rankings(Q, Z):
    parts = all_pairs.over_rankings(Q, Z, lambda rows, order: (rows, order))
    rows = [row for part, _ in parts for row in range(part.start, part.stop)]
    assert rows == list(range(len(Q)))
    return kernels_for(Z).to_host(kernels_for(Z).concatenate([order for _, order in parts]))


@pytest.mark.parametrize("points", ["scattered", "on a grid", "equal", "with an outlier"])
def test_rankings_equal_the_loops(backend, dtype, rng, points):
    """Many of the distances on a grid are equal, and then the row number decides."""
    Z = rng.normal(size=(60, 3)) + 5
    if points == "on a grid":
        Z = rng.integers(0, 3, size=(60, 3)) + 1e6
    elif points == "equal":
        Z[:] = Z[0]
    elif points == "with an outlier":
        Z[17] *= 1e6  # beside it, products cannot tell the others apart
    Z = Z.astype(dtype)
    Q = (Z[::4] + (0 if points == "on a grid" else 0.3)).astype(dtype)
    expected, _ = reference.nearest(Q, Z, len(Z))
    np.testing.assert_array_equal(rankings(backend.asarray(Q), backend.asarray(Z)), expected)


@pytest.mark.parametrize("exponent", [-1000, -540, 540, 1000])
def test_rankings_do_not_depend_on_the_unit(backend, rng, exponent):
    """Although the squares of such numbers vanish or overflow."""
    Z, unit = rng.integers(0, 50, size=(40, 2)) * 1.0, 2.0**exponent
    expected, _ = reference.nearest(Z[:9], Z, len(Z))
    found = rankings(backend.asarray(Z[:9] * unit), backend.asarray(Z * unit))
    np.testing.assert_array_equal(found, expected)


def test_rankings_are_held_for_some_queries_at_a_time(rng, monkeypatch):
    monkeypatch.setattr(all_pairs, "SORTED_HOST_ENTRIES", 200)
    Q, Z = rng.normal(size=(300, 2)), rng.normal(size=(50, 2))
    shapes = all_pairs.over_rankings(Q, Z, lambda _, order: order.shape)
    assert shapes == [(4, 50)] * 75
    found = rankings(Q, Z)
    monkeypatch.setattr(all_pairs, "SORTED_HOST_ENTRIES", 1 << 20)
    np.testing.assert_array_equal(rankings(Q, Z), found)
