"""Reconstruction from neighbours and from landmarks."""

import numpy as np
import pytest
from sklearn.manifold._locally_linear import barycenter_weights

from nearfar import NeighborhoodGraph
from nearfar.problems import landmark_mvu as module
from nearfar.problems.landmark_mvu import lle_matrix, lle_weights, reconstruction


@pytest.fixture
def graph(rng):
    return NeighborhoodGraph.from_points(rng.normal(size=(60, 3)), 6, angles=False)


def neighbors_of(graph, node):
    return np.sort(
        np.concatenate([graph.tails[graph.heads == node], graph.heads[graph.tails == node]])
    )


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_weights_are_those_of_locally_linear_embedding(graph, monkeypatch, block):
    """Row by row by scikit-learn, with the neighbours that the graph gives."""
    monkeypatch.setattr(module, "BLOCK_ENTRIES", block)
    W, X = lle_weights(graph).toarray(), np.asarray(graph.points)
    np.testing.assert_allclose(W.sum(axis=1), 1)
    for i in range(60):
        near = neighbors_of(graph, i)
        expected = barycenter_weights(X[i : i + 1], X[near], np.arange(len(near))[None], reg=1e-3)
        np.testing.assert_allclose(W[i, near], expected[0], rtol=1e-8)
        assert np.count_nonzero(W[i]) == len(near)


def test_the_matrix_is_that_of_the_residuals(graph, rng):
    W, y = lle_weights(graph).toarray(), rng.normal(size=60)
    expected = sum((y[i] - W[i] @ y) ** 2 for i in range(60))
    assert y @ (lle_matrix(lle_weights(graph)) @ y) == pytest.approx(expected)


def test_landmarks_stay_and_the_others_leave_the_least_residual(graph):
    """Any other places of the others have more: the slope there is zero."""
    Phi, landmarks = lle_matrix(lle_weights(graph)), np.array([3, 17, 40, 58])
    Q = reconstruction(Phi, landmarks)
    np.testing.assert_array_equal(Q[landmarks], np.eye(4))
    np.testing.assert_allclose(Q.sum(axis=1), 1, atol=1e-6)
    others = np.setdiff1d(np.arange(60), landmarks)
    slopes = (Phi @ Q)[others]
    np.testing.assert_allclose(slopes, 0, atol=1e-8)


def test_points_of_a_plane_follow_their_landmarks_exactly(rng):
    """Weights reproduce all affine functions of the points, so these follow from landmarks."""
    X = rng.uniform(size=(80, 2))
    graph = NeighborhoodGraph.from_points(X, 8, angles=False)
    Phi = lle_matrix(lle_weights(graph))
    landmarks = graph.landmarks(12, random_state=0)
    Q = reconstruction(Phi, landmarks)
    np.testing.assert_allclose(Q @ X[landmarks], X, atol=0.02)


def test_all_nodes_may_be_landmarks(graph):
    np.testing.assert_array_equal(
        reconstruction(lle_matrix(lle_weights(graph)), np.arange(60)), np.eye(60)
    )
