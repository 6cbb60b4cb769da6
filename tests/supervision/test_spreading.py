"""Labels that spread over a graph of nearest neighbours."""

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances

from nearfar.errors import InvalidInputError
from nearfar.limits import memory_limit
from nearfar.supervision.spreading import ALPHA, NEIGHBORS, spread_labels


def dense_answer(X, codes, n_classes):
    """F = (1 − α) (I − α S)⁻¹ Y for the graph of all pairs of a matrix of distances."""
    n, D = len(X), pairwise_distances(X)
    np.fill_diagonal(D, np.inf)
    A = np.zeros((n, n))
    for i, near in enumerate(D.argsort(axis=1)[:, :NEIGHBORS]):
        A[i, near] = A[near, i] = 1
    scale = 1 / np.sqrt(A.sum(axis=1))
    Y = np.zeros((n, n_classes))
    Y[codes >= 0, codes[codes >= 0]] = 1
    return (1 - ALPHA) * np.linalg.solve(np.eye(n) - ALPHA * scale[:, None] * A * scale, Y)


def test_labels_and_confidence_are_those_of_the_linear_system(rng):
    X = rng.standard_normal((60, 3))
    codes = np.where(np.arange(60) < 9, np.arange(60) % 3, -1)
    labels, confidence = spread_labels(X, codes, 3)
    F = dense_answer(X, codes, 3)
    shares = np.sort(F / F.sum(axis=1, keepdims=True), axis=1)
    np.testing.assert_array_equal(labels[9:], F[9:].argmax(axis=1))
    np.testing.assert_allclose(confidence[9:], (shares[:, 2] - shares[:, 1])[9:], atol=1e-3)
    np.testing.assert_array_equal(labels[:9], codes[:9])
    np.testing.assert_array_equal(confidence[:9], 1)


def test_each_part_of_the_graph_has_its_own_labels(rng):
    """Three groups far from each other; no label reaches the last."""
    X = np.concatenate([rng.standard_normal((20, 2)) + 100 * group for group in range(3)])
    codes = np.full(60, -1)
    codes[[0, 20]] = [0, 1]
    labels, confidence = spread_labels(X, codes, 2)
    assert labels.tolist() == [0] * 20 + [1] * 20 + [-1] * 20
    assert confidence.tolist() == [1] * 40 + [0] * 20


def test_equal_points_and_few_points():
    codes = np.array([0, -1, 1])
    labels, confidence = spread_labels(np.zeros((3, 2)), codes, 2)
    assert labels.tolist()[::2] == [0, 1]
    assert confidence[1] == pytest.approx(0)
    many = np.repeat([[0.0], [1.0]], 20, axis=0)
    codes = np.where(np.arange(40) % 20 == 0, np.arange(40) // 20, -1)
    labels, _ = spread_labels(many, codes, 2)
    assert set(labels[:20]) <= {0, -1}
    assert set(labels[20:]) <= {1, -1}


def test_too_much_memory_is_refused():
    with (
        memory_limit(1e-6),
        pytest.raises(InvalidInputError, match="labels of 50 rows spread over 2 classes needs"),
    ):
        spread_labels(np.zeros((50, 1)), np.full(50, -1), 2)
