"""Whitening by near pairs: sums against loops, and one decomposition against the careful way."""

from dataclasses import replace

import numpy as np
import pytest

from nearfar.kernels import kernels_for, on_numpy
from nearfar.problems import near_pairs
from nearfar.problems.near_pairs import PairsInMemory, near_scatter, whitened_by_near_pairs
from nearfar.supervision import Pairs, class_order
from nearfar.supervision.pairs import pairs_of_labels


def drawn(rng, X, n_near, n_far):
    heads, tails = rng.integers(0, len(X), (2, n_near + n_far))
    tails = np.where(heads == tails, (tails + 1) % len(X), tails)
    return Pairs(X, heads, tails, np.arange(n_near + n_far) < n_near)


def by_loops(pairs):
    heads, tails = pairs.near_edges()
    return sum(np.outer(x, x) for x in pairs.points[heads] - pairs.points[tails])


def whiten(pairs, regularization):
    """R, G and free of points about the first."""
    rows = pairs.points - pairs.points[0]
    known = PairsInMemory(
        on_numpy, rows, pairs, lambda U: on_numpy.sq_lengths(U, *pairs.far_edges())
    )
    return whitened_by_near_pairs(known, regularization)


@pytest.fixture(params=["labels", "pairs"])
def pairs(request, rng):
    X = rng.normal(size=(25, 4)) * [1.0, 20.0, 0.01, 1.0] + 3.0
    if request.param == "labels":
        y = np.repeat([0, 1, 2], [4, 12, 9])
        return pairs_of_labels(X, class_order(y, "test"), None, None, "test")
    return drawn(rng, X, 40, 20)


def test_the_near_scatter_is_that_of_the_pairs(pairs, backend, monkeypatch):
    """Also in blocks."""
    expected = by_loops(pairs)
    X = backend.asarray(pairs.points)
    kernels = kernels_for(X)
    there = Pairs(X, pairs.heads, pairs.tails, pairs.near, pairs.labels)
    np.testing.assert_allclose(near_scatter(kernels, there), expected, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(near_pairs, "BLOCK_ENTRIES", 7 * X.shape[1])
    np.testing.assert_allclose(near_scatter(kernels, there), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("regularization", [0.0, 1e-9, 0.1])
def test_one_decomposition_and_the_careful_way_agree(pairs, regularization, monkeypatch):
    """RᵀHR = I, and R Rᵀ = H⁻¹ depends neither on the way nor on blocks; G is the inverse of R."""
    H = by_loops(pairs)
    H += regularization * np.trace(H) / 4 * np.eye(4)
    found = []
    for steady, entries in ((near_pairs.STEADY, 1 << 22), (np.inf, 1 << 22), (np.inf, 28)):
        monkeypatch.setattr(near_pairs, "STEADY", steady)
        monkeypatch.setattr(near_pairs, "BLOCK_ENTRIES", entries)
        R, G, free = whiten(pairs, regularization)
        np.testing.assert_allclose(R.T @ H @ R, np.eye(4), atol=1e-9)
        np.testing.assert_allclose(R.T @ G, np.eye(4), atol=1e-9)
        found.append((R @ R.T, free.shape[1]))
    inverse = np.linalg.inv(H)
    scale = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    for metric, _ in found:
        np.testing.assert_allclose(metric / scale, inverse / scale, atol=1e-8)
    assert found[0][1] == found[1][1] == found[2][1]


def test_directions_that_the_ridge_makes_are_told(rng):
    """A feature in which near pairs agree, and three in which they do not."""
    X = rng.normal(size=(30, 4))
    y = np.repeat([0, 1, 2], 10)
    X[:, 3] = y
    pairs = pairs_of_labels(X, class_order(y, "test"), None, None, "test")
    R, _, free = whiten(pairs, 1e-9)
    assert free.shape == (4, 1)
    along = R @ free[:, 0]  # which feature this direction reads
    np.testing.assert_allclose(along[:3] / along[3], 0, atol=1e-3)


def test_directions_in_which_no_pair_differs_get_no_weight(rng):
    """Points without a pair vary in the third feature, and in no other way."""
    X = rng.normal(size=(40, 3))
    X[:30, 2] = X[:30, 0] + X[:30, 1]
    used = drawn(rng, X[:30], 30, 20)
    pairs = replace(used, points=X)
    R, _, _ = whiten(pairs, 0.0)
    assert R.shape == (3, 2)
    np.testing.assert_allclose(np.array([1.0, 1.0, -1.0]) @ R, 0, atol=1e-9 * np.abs(R).max())


def test_rounding_errors_of_a_factor_of_many_near_pairs_are_no_directions(rng, monkeypatch):
    """Points span two of four features, however many blocks the near pairs are in."""
    X = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 4))
    pairs = drawn(rng, X, 40, 20)
    expected, *_ = whiten(pairs, 0.0)
    monkeypatch.setattr(near_pairs, "BLOCK_ENTRIES", 7 * 4)
    R, *_ = whiten(pairs, 0.0)
    assert R.shape == expected.shape == (4, 2)
    U, V = (X - X[0]) @ R, (X - X[0]) @ expected
    np.testing.assert_allclose(U @ U.T, V @ V.T, atol=1e-9)


def test_a_ridge_is_that_of_the_features(rng):
    """A feature twice: H is that of the features, with the ridge, on what the points span."""
    X = rng.normal(size=(30, 3))
    X[:, 2] = X[:, 1]
    pairs = drawn(rng, X, 40, 20)
    R, _, _ = whiten(pairs, 0.3)
    H = by_loops(pairs)
    H += 0.3 * np.trace(H) / 3 * np.eye(3)
    x = X[3] - X[8]
    assert np.sum((x @ R) ** 2) == pytest.approx(x @ np.linalg.inv(H) @ x, rel=1e-9)


@pytest.mark.parametrize("of_labels", [True, False])
@pytest.mark.parametrize("regularization", [1e-8, 0.05])
def test_near_pairs_much_shorter_than_the_points_are_apart(rng, of_labels, regularization):
    """Near pairs differ along (1, 2) only, by 1e-14 of the length of far pairs, along (1, 1).

    Differences of the points as they were given are exact, and not those of any other coordinates.
    R Rᵀ = H⁻¹ is compared in units of T, by cofactors.
    """
    X = np.repeat([[0.126, 0.126], [-0.132, -0.132]], 4, axis=0)
    X += rng.normal(size=(8, 1)) * [1e-14, 2e-14]
    heads, tails = np.triu_indices(8, 1)
    near = (heads < 4) == (tails < 4)
    order = class_order(np.repeat([0, 1], 4), "test")
    pairs = Pairs(X, heads, tails, near, order if of_labels else None)
    H = by_loops(pairs)
    unit = np.trace(H)
    H = H / unit + regularization / 2 * np.eye(2)
    inverse = np.array([[H[1, 1], -H[0, 1]], [-H[1, 0], H[0, 0]]]) / np.linalg.det(H)
    R, _, _ = whiten(pairs, regularization)
    np.testing.assert_allclose(unit * R @ R.T, inverse, rtol=1e-6)
