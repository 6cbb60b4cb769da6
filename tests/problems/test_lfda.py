"""LFDA: equations (1) to (8), against plain loops and a dense eigenproblem."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.covariance import shrunk_covariance

from nearfar.kernels import kernels_for
from nearfar.problems.lfda import LFDAProblem
from nearfar.supervision import class_order

D, K = 4, 3


@pytest.fixture
def data(rng):
    """Classes of 6, 9 and 15 points, of features in different units."""
    y = rng.permutation(np.repeat([0, 1, 2], [6, 9, 15]))
    X = rng.normal(size=(30, D)) + rng.normal(size=(3, D))[y]
    return X * [1, 5, 0.2, 2] + 10, y


def loops(X, y, k=K):
    """S of (3) and B of (4), pair by pair."""
    n = len(X)
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    S, B = np.zeros((D, D)), np.zeros((D, D))
    scale = [np.sort(distances[i, y == y[i]])[k] for i in range(n)]
    for i in range(n):
        for j in range(n):
            outer = 0.5 * np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] != y[j]:
                B += outer / n
                continue
            affinity = np.exp(-(distances[i, j] ** 2) / (scale[i] * scale[j]))
            size = np.sum(y == y[i])
            S += affinity / size * outer
            B += affinity * (1 / n - 1 / size) * outer
    return S, B


def posed(X, y, weight=0.0, backend=None):
    X = X if backend is None else backend.asarray(X)
    return LFDAProblem.build(kernels_for(X), X, class_order(y, "LFDA"), K, weight)


def test_the_scatters_are_those_of_the_loops(data, backend):
    problem = posed(*data, backend=backend)
    S, B = loops(*data)
    np.testing.assert_allclose(problem.S, problem.white @ S @ problem.white.T, atol=1e-9)
    np.testing.assert_allclose(problem.B, problem.white @ B @ problem.white.T, atol=1e-9)
    np.testing.assert_allclose(problem.white @ problem.dual, np.eye(D), atol=1e-10)


def test_the_scatter_between_classes_is_positive_semidefinite(data):
    assert np.linalg.eigvalsh(posed(*data).B).min() > -1e-9


@pytest.mark.parametrize("rows", [1, 2, None])
@pytest.mark.parametrize("embedding", ["weighted", "plain", "orthonormalized"])
def test_the_map_is_that_of_the_dense_eigenproblem(data, rows, embedding):
    S, B = loops(*data)
    values, vectors = linalg.eigh(B, S)
    values, vectors = values[::-1][:rows], vectors[:, ::-1][:, :rows]
    if embedding == "weighted":
        vectors = vectors * np.sqrt(values)
    elif embedding == "orthonormalized":
        vectors = linalg.qr(vectors, mode="economic")[0]
    problem = posed(*data)
    L = problem.solution(rows, embedding)
    expected = vectors @ vectors.T
    np.testing.assert_allclose(L.T @ L, expected, atol=1e-9 * np.abs(expected).max())
    objective, gap = problem.objective_and_gap(L)
    assert objective == pytest.approx(values.sum(), rel=1e-9)
    assert gap < 1e-12


def test_no_other_map_is_better(data, rng):
    """(5) by its formula, at maps of two rows."""
    S, B = loops(*data)
    problem = posed(*data)
    best, _ = problem.objective_and_gap(problem.solution(2, "plain"))
    for _ in range(5):
        L = rng.normal(size=(2, D))
        value = np.trace(np.linalg.solve(L @ S @ L.T, L @ B @ L.T))
        objective, gap = problem.objective_and_gap(L)
        assert objective == pytest.approx(value, rel=1e-9)
        assert gap == pytest.approx((best - value) / max(value, 1), rel=1e-9)
        assert value < best


def test_shrinkage_is_that_of_covariances(data):
    """Of both scatters, in the coordinates of the features."""
    X, y = data
    plain, shrunk = posed(X, y), posed(X, y, 0.3)
    for name in ("S", "B"):
        whole = plain.dual @ getattr(plain, name) @ plain.dual.T
        expected = shrunk_covariance(whole, 0.3)
        np.testing.assert_allclose(getattr(shrunk, name), expected, rtol=1e-9, atol=1e-9)


def test_with_equal_affinities_it_is_the_discriminant_of_fisher(rng):
    """Classes of two points: each has one pair, at the distance of both scales, so a = 1/e."""
    X = rng.normal(size=(8, 2))
    y = np.repeat(np.arange(4), 2)
    problem = posed(X, y)
    half = (X[::2] - X[1::2]) / 2
    S = np.exp(-1) * 2 * half.T @ half
    np.testing.assert_allclose(problem.S, problem.white @ S @ problem.white.T, rtol=1e-9)


def test_flat_directions_are_counted(rng):
    """The last feature differs between classes only."""
    y = np.repeat([0, 1], 10)
    X = np.column_stack([rng.normal(size=(20, 2)), y])
    problem = posed(X, y)
    assert (problem.rank, problem.n_flat) == (3, 1)
