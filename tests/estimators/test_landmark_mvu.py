"""Landmark unfolding: what it unrolls, and that points follow their landmarks."""

import numpy as np
import pytest
from sklearn.datasets import make_swiss_roll

from nearfar import LandmarkMVU, NeighborhoodGraph
from nearfar.errors import InvalidInputError
from nearfar.problems.landmark_mvu import lle_matrix, lle_weights, reconstruction


@pytest.fixture(scope="module")
def roll():
    X, t = make_swiss_roll(600, noise=0.05, random_state=0)
    arc = 0.5 * (t * np.sqrt(1 + t * t) + np.arcsinh(t))
    X.setflags(write=False)
    return X, np.column_stack([arc, X[:, 1]])


@pytest.mark.parametrize("basis", ["lle", "laplacian"])
def test_a_swiss_roll_is_unrolled(roll, basis):
    X, sheet = roll
    model = LandmarkMVU(n_neighbors=6, basis=basis, random_state=0).fit(X)
    Y, T = (A - A.mean(axis=0) for A in (model.embedding_, sheet))
    left, _, right = np.linalg.svd(Y.T @ T)
    errors = np.linalg.norm(Y @ (left @ right) - T, axis=1) / np.ptp(T[:, 0])
    assert np.median(errors) < 0.01
    assert model.status_ == "converged"
    assert model.program_gap_ <= 1e-4


def test_points_follow_their_landmarks(roll):
    """Without refinement Y = Q Y_landmarks, less the mean."""
    X = roll[0][:250]
    model = LandmarkMVU(5, 6, n_landmarks=12, refine=False, random_state=0).fit(X)
    landmarks = model.landmarks_
    assert len(np.unique(landmarks)) == 12
    Q = reconstruction(lle_matrix(lle_weights(model.graph_)), landmarks)
    expected = Q @ model.embedding_[landmarks]
    np.testing.assert_allclose(
        model.embedding_, expected - expected.mean(axis=0), atol=1e-4 * np.abs(expected).max()
    )


def test_landmarks_are_rows_also_where_points_coincide(roll):
    """Every third point twice, one after the other: the first of two is the landmark."""
    X = np.repeat(roll[0][:120], np.where(np.arange(120) % 3, 1, 2), axis=0)
    model = LandmarkMVU(n_landmarks=15, max_iter=20, tol=1, on_disconnected="link", random_state=0)
    rows = model.fit(X).landmarks_
    first = (X[rows] == X[rows - 1]).all(axis=1)
    assert len(rows) == 15
    assert not first.any()
    np.testing.assert_array_equal(model.embedding_[0], model.embedding_[1])


def test_landmarks_of_each_component(rng):
    X = np.vstack([rng.normal(size=(40, 2)), 100 + rng.normal(size=(30, 2))])
    model = LandmarkMVU(n_landmarks=8, on_disconnected="separate", max_iter=50, tol=1e-2).fit(X)
    assert sorted(model.component_labels_[model.landmarks_]) == [0] * 8 + [1] * 8


def test_distances_alone_use_the_laplacian():
    chain = NeighborhoodGraph.from_edges([0, 1, 2], [1, 2, 3], [1.0, 2.0, 1.0], 4)
    model = LandmarkMVU(n_components=1, stretch=0.001, tol=1e-8, max_iter=2000).fit(chain)
    np.testing.assert_allclose(np.abs(np.diff(model.embedding_[:, 0])), [1, 2, 1], rtol=1e-2)
    with pytest.raises(InvalidInputError, match=r"got only distances. Set basis='laplacian'"):
        LandmarkMVU(n_components=1, basis="lle").fit(chain)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_landmarks": 2}, "n_landmarks must be more than n_components=2; got 2"),
        ({"n_landmarks": 1}, "n_landmarks must be an integer of at least 2; got 1"),
        ({"basis": "none"}, "basis must be one of 'laplacian', 'lle' or None; got 'none'"),
    ],
)
def test_bad_parameters(roll, parameters, text):
    with pytest.raises(InvalidInputError, match=text):
        LandmarkMVU(**parameters).fit(roll[0][:50])
