"""The judge of unfoldings, on answers that are known."""

import json

import numpy as np
import pytest

from benchmarks.mvu import evaluate

# Three points in a row at distance 1 stretch to -1, 0, 1: a variance of 2. With y = (1, 1) the
# Laplacian of the path has the eigenvalues 0, 1 and 3, so that sum y = 2 is a bound, and reached.
PATH = np.array([0, 1]), np.array([1, 2]), np.array([1.0, 1.0])
ROW = np.array([-1.0, 0.0, 1.0])
K, Y = np.outer(ROW, ROW), np.ones(2)


def judged(K=K, y=Y, edges=PATH):
    return evaluate.evaluate(*edges, np.array(K), np.array(y))


def test_the_optimum_of_a_path():
    found = judged()
    assert found["objective"] == pytest.approx(2)
    assert found["violation"] == pytest.approx(0, abs=1e-12)
    assert found["bound"] == pytest.approx(2)
    assert found["gap"] == pytest.approx(0, abs=1e-12)
    json.dumps(found)


def test_only_the_centred_symmetric_part_counts():
    """Points that are moved, and an antisymmetric matrix more."""
    turn = np.array([[0, 3.0, 0], [-3, 0, 1], [0, -1, 0]])
    found = judged(np.outer(ROW + 7, ROW + 7) + turn)
    assert found["objective"] == pytest.approx(2)
    assert found["violation"] == pytest.approx(0, abs=1e-12)


def test_violation_is_the_largest_relative_change():
    """Steps of 1 and 1.1 between points: squares 1 and 1.21."""
    found = judged(np.outer([0, 1, 2.1], [0, 1, 2.1]))
    assert found["violation"] == pytest.approx(0.21)
    longer = PATH[0], PATH[1], np.array([1.0, 2.42])
    found = judged(np.outer([0, 1, 2.1], [0, 1, 2.1]), edges=longer)
    assert found["violation"] == pytest.approx(0.5)


def test_negative_eigenvalues_are_left_out():
    """K less 0.3 times the projection on (1, -2, 1), which K has not: the same as K."""
    other = np.array([1.0, -2.0, 1.0]) / np.sqrt(6)
    assert judged(K - 0.3 * np.outer(other, other))["objective"] == pytest.approx(2)
    assert judged(K + 0.3 * np.outer(other, other))["objective"] == pytest.approx(2.3)


@pytest.mark.parametrize("share", [1.0, 0.999, 0.7])
def test_a_dual_point_outside_is_scaled_into_the_cone(share):
    """The bound of share * y is that of y, as exactly as scales are tried: by powers of 2."""
    bound = judged(y=share * Y)["bound"]
    assert bound >= 2 * (1 - 1e-12)
    assert bound <= 2 * share / (1 - min(2 * (1 - share), 0.5)) + 1e-9


def test_a_dual_point_inside_proves_a_weaker_bound():
    assert judged(y=3 * Y)["bound"] == pytest.approx(6)
    assert judged(y=3 * Y)["gap"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("y", [[1.0, -1.0], [0.1, 0.1]])
def test_no_bound_without_a_dual_point(y):
    assert judged(y=y)["bound"] is None
    assert judged(y=y)["gap"] is None


def test_every_bound_holds(rng):
    """Whatever y: no bound is below the variance of points that keep the lengths."""
    X = rng.normal(size=(12, 2))
    heads, tails = np.triu_indices(12, 1)
    squares = ((X[heads] - X[tails]) ** 2).sum(1)
    X = X - X.mean(0)
    bounds = []
    for scale in (0.01, 0.03, 0.1, 0.3, 1.0):
        y = scale * squares * rng.uniform(0.5, 1.5, len(heads))
        bounds.append(evaluate.evaluate(heads, tails, squares, X @ X.T, y)["bound"])
    known = [bound for bound in bounds if bound is not None]
    assert len(known) >= 2
    assert min(known) >= (X**2).sum()


def test_laplacian(rng):
    weights = rng.normal(size=2)
    expected = np.zeros((3, 3))
    for i, j, weight in zip(PATH[0], PATH[1], weights, strict=True):
        a = np.eye(3)[i] - np.eye(3)[j]
        expected += weight * np.outer(a, a)
    np.testing.assert_allclose(evaluate.laplacian(*PATH[:2], weights, 3), expected, atol=1e-15)
