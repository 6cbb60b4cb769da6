"""The evaluator of the metrics against plain loops and derived answers."""

import json
import math

import numpy as np
import pytest

from benchmarks.lmnn import evaluate as lmnn_evaluate
from benchmarks.metrics import evaluate


def problem(seed, n=24, d=3, classes=3):
    """Points, labels of classes of different sizes, and a map."""
    generator = np.random.default_rng(seed)
    y = np.minimum(generator.integers(classes + 1, size=n), classes - 1)
    y[: 2 * classes] = np.repeat(np.arange(classes), 2)
    X = generator.normal(size=(n, d)) + y[:, None]
    X.flags.writeable = False
    return X, y, generator.normal(size=(d, d))


def probabilities(Z, scale):
    n = len(Z)
    p = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                p[i, j] = math.exp(-scale * ((Z[i] - Z[j]) ** 2).sum())
        p[i] /= p[i].sum()
    return p


def divergence(Z, y, scale):
    p, total = probabilities(Z, scale), 0.0
    for i in range(len(Z)):
        others = [j for j in range(len(Z)) if j != i and y[j] == y[i]]
        for j in others:
            wanted = 1 / len(others)
            total += wanted * math.log(wanted / p[i, j])
    return total


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("block", [7, 2**24])
def test_mcml_equals_the_divergences(monkeypatch, scale, block):
    monkeypatch.setattr(lmnn_evaluate, "BLOCK", block)
    X, y, L = problem(seed=1)
    value, *_ = evaluate.mcml(X @ L.T, y, scale)
    assert value == pytest.approx(divergence(X @ L.T, y, scale), rel=1e-10)


def test_mcml_leaves_out_a_point_that_is_alone_in_its_class():
    X, y, L = problem(seed=2)
    y = np.where(np.arange(len(y)) == 5, 9, y)
    value, *_ = evaluate.mcml(X @ L.T, y)
    assert value == pytest.approx(divergence(X @ L.T, y, 1.0), rel=1e-10)


def test_mcml_derivatives_are_those_of_its_values():
    """Central differences of f for f', and of f' for f''."""
    X, y, L = problem(seed=3)
    Z, step = X @ L.T, 1e-5
    _, slope, curvature = evaluate.mcml(Z, y, 0.7)
    after, before = evaluate.mcml(Z, y, 0.7 + step), evaluate.mcml(Z, y, 0.7 - step)
    assert slope == pytest.approx((after[0] - before[0]) / (2 * step), rel=1e-6)
    assert curvature == pytest.approx((after[1] - before[1]) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_best_scale_of_mcml_is_a_minimum(size):
    X, y, L = problem(seed=4)
    Z = size * X @ L.T
    scale = evaluate.best_scale(Z, y)
    best = evaluate.mcml(Z, y, scale)[0]
    for factor in (0.99, 1.01):
        assert divergence(Z, y, factor * scale) > best


def test_where_classes_do_not_differ_the_best_scale_is_zero():
    """Two classes on the same two places: nearer means the other class."""
    Z, y = np.array([[0.0], [1], [0], [1]]), np.array([0, 0, 1, 1])
    assert evaluate.best_scale(Z, y) == 0
    assert evaluate.mcml(Z, y, 0.0)[0] == pytest.approx(4 * math.log(3))


def test_nca_is_the_expected_number_of_correct_points():
    X, y, L = problem(seed=5)
    p = probabilities(X @ L.T, 1.0)
    expected = sum(p[i, j] for i in range(len(y)) for j in range(len(y)) if y[i] == y[j])
    assert evaluate.nca(X @ L.T, y) == pytest.approx(expected, rel=1e-10)


def test_nca_of_points_that_are_far_from_all_others():
    """exp(-D) is zero for every pair: only differences of D count, and the nearest is chosen."""
    Z, y = np.array([[0.0], [100], [300]]), np.array([0, 0, 1])
    assert evaluate.nca(Z, y) == pytest.approx(2)


def test_all_lengths_are_those_of_all_pairs():
    X, y, _ = problem(seed=6)
    near, far = evaluate.all_lengths(X, y)
    rows = np.stack(np.triu_indices(len(X), 1), axis=1)
    lengths = evaluate.pair_lengths(X, rows)
    same = y[rows[:, 0]] == y[rows[:, 1]]
    np.testing.assert_allclose(near, lengths[same])
    np.testing.assert_allclose(far, lengths[~same])


def test_mmc_by_hand():
    """Near 1 and 3, far 4 and 9: (2 + 3) / (1 + 3)^1/2, whatever the scale."""
    near, far = np.array([1.0, 3]), np.array([4.0, 9])
    assert evaluate.mmc(near, far) == (2.5, 5, 4)
    assert evaluate.mmc(49 * near, 49 * far)[0] == pytest.approx(2.5)


def test_dml_eig_is_the_smallest_whitened_far_distance_at_trace_d():
    X, y, L = problem(seed=7)
    rows = np.stack(np.triu_indices(len(X), 1), axis=1)
    differences, same = X[rows[:, 0]] - X[rows[:, 1]], y[rows[:, 0]] == y[rows[:, 1]]
    H = differences[same].T @ differences[same]
    values, vectors = np.linalg.eigh(H)
    root = vectors * np.sqrt(values) @ vectors.T
    M = root @ L.T @ L @ root
    M *= 3 / np.trace(M)
    whitened = differences[~same] @ np.linalg.inv(root)
    expected = np.einsum("ij,jk,ik->i", whitened, M, whitened).min()
    value, _, trace = evaluate.dml_eig(*evaluate.all_lengths(X @ L.T, y), 3)
    assert value == pytest.approx(expected, rel=1e-10)
    L = L / np.sqrt(trace)
    assert evaluate.dml_eig(*evaluate.all_lengths(X @ L.T, y), 3) == pytest.approx(
        (expected, expected, 1), rel=1e-10
    )


def test_rca_is_least_for_the_inverse_of_the_covariance():
    """N (d + log det C) at A = C^-1, more elsewhere, and any scale of it does as well."""
    X, y, other = problem(seed=8)
    chunklets = np.where(np.arange(len(y)) % 5 == 0, -1, y)
    rows = [np.flatnonzero(chunklets == c) for c in range(3)]
    within = np.concatenate([X[part] - X[part].mean(0) for part in rows])
    C = within.T @ within / len(within)
    L = np.linalg.inv(np.linalg.cholesky(C))
    least = len(within) * (3 + np.log(np.linalg.det(C)))
    assert evaluate.rca(X, chunklets, L) == pytest.approx((least, least))
    assert evaluate.rca(X, chunklets, 7 * L)[0] == pytest.approx(least)
    assert evaluate.rca(X, chunklets, 7 * L)[1] > least + 1
    assert evaluate.rca(X, chunklets, other)[0] > least
    assert evaluate.rca(X, chunklets, L[:2]) == (np.inf, np.inf)


@pytest.mark.parametrize("task", ["mcml", "nca", "mmc", "dml-eig", "dml-eig-one", "rca"])
def test_judgement_of_a_folder(tmp_path, task):
    """Twice the map has the same objective at the best scale, but for NCA, which learns it."""
    X, y, L = problem(seed=9)
    rows = np.stack(np.triu_indices(len(X), 1), axis=1)
    same = y[rows[:, 0]] == y[rows[:, 1]]
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", X=X + 1e3, y=y)
    np.savez(tmp_path / "pairs.npz", near=rows[same], far=rows[~same])
    np.save(tmp_path / "chunklets.npy", y)
    one = evaluate.evaluate(task, tmp_path, L, {"reported_objective": 1.0})
    two = evaluate.evaluate(task, tmp_path, 2 * L, {})
    assert (two["objective"] == pytest.approx(one["objective"], rel=1e-6)) is (task != "nca")
    assert 0 <= one["test_error"] <= 1
    assert {"objective_as_given", "excess"} <= set(one)
    assert "objective_as_given" not in two
    json.dumps(one)
