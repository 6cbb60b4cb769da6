"""SCML as an estimator: forms of input, sparsity, scores and difficult data."""

import numpy as np
import pytest

from nearfar import SCML, Tuples, load, make_triplets, save
from nearfar.errors import DataWarning, InvalidInputError


@pytest.fixture
def triplets(overlapping):
    return make_triplets(*overlapping, 200, random_state=0)


def objective(model, X, indices, weight):
    M = model.get_mahalanobis_matrix()
    size = np.mean(np.sum((X[indices[:, 0]] - X[indices[:, 2]]) ** 2, axis=1))
    total = weight * size * np.trace(M)
    for a, b, c in X[indices]:
        total += max(1 + (a - b) @ M @ (a - b) - (a - c) @ M @ (a - c), 0) / len(indices)
    return total


def test_the_objective_is_that_of_the_loops_and_certified(overlapping, triplets):
    X, _ = overlapping
    model = SCML(sparsity_weight=1e-2).fit(triplets)
    assert model.objective_ == pytest.approx(objective(model, X, triplets.indices, 1e-2), rel=1e-8)
    assert model.status_ == "converged"
    assert model.duality_gap_ <= 1e-3
    M = (model.bases_.T * model.weights_) @ model.bases_
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), M, atol=1e-9)


def test_more_sparsity_means_fewer_vectors(triplets):
    used = [
        int((SCML(sparsity_weight=weight, tol=1e-9).fit(triplets).weights_ > 0).sum())
        for weight in (1e-5, 1e-1)
    ]
    assert 0 < used[1] < used[0]


def test_dense_triplets_and_tuples_are_learned_from_alike(triplets, dtype):
    points = triplets.points.astype(dtype)
    model = SCML().fit(Tuples(points, triplets.indices))
    dense = SCML().fit(points[triplets.indices])
    assert model.components_.dtype == dense.components_.dtype == dtype
    assert dense.objective_ == pytest.approx(model.objective_, rel=1e-3)


def test_scale_of_the_data_gives_the_same_images(overlapping):
    X, y = overlapping
    images = SCML(random_state=0).fit_transform(X, y)
    for scale in (1e-60, 1e60):
        other = SCML(random_state=0).fit_transform(scale * X, y)
        np.testing.assert_allclose(other, images, atol=1e-6 * np.abs(images).max())


def test_labels_draw_triplets(overlapping):
    X, y = overlapping
    model = SCML(n_triplets=200, random_state=0).fit(X, y)
    by_hand = SCML().fit(make_triplets(X, y, 200, random_state=0))
    np.testing.assert_allclose(model.components_, by_hand.components_)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert not hasattr(by_hand, "classes_")
    assert model.score(X, y) > 0.6


def test_the_score_is_the_share_of_triplets_that_hold(overlapping, triplets):
    X, _ = overlapping
    model = SCML().fit(triplets)
    a, b, c = X[triplets.indices].transpose(1, 0, 2)
    near, far = (model.pair_distance(np.stack([a, other], axis=1)) for other in (b, c))
    assert model.score(triplets) == pytest.approx(np.mean(near < far))


def test_too_much_sparsity_warns(triplets):
    with pytest.warns(DataWarning, match="all weights are 0: .* sparsity_weight=1e"):
        model = SCML(sparsity_weight=1e6).fit(triplets)
    assert model.objective_ == 1.0
    assert not model.components_.any()


def test_contradictory_triplets_are_data(overlapping):
    X, _ = overlapping
    with pytest.warns(DataWarning) as caught:
        model = SCML(sparsity_weight=1e3).fit(Tuples(X, [[0, 1, 2], [0, 2, 3], [2, 0, 1]]))
    assert [str(w.message)[:17] for w in caught] == ["all weights are 0"]
    assert model.status_ == "converged"


def test_tuples_that_cannot_be_used_are_an_error(overlapping, triplets):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="SCML takes triplets without y"):
        SCML().fit(triplets, np.ones(200))
    with pytest.raises(InvalidInputError, match=r"SCML takes triplets of shape .*got \(1, 2, 5\)"):
        SCML().fit(Tuples(X, [[0, 1]]))
    with pytest.raises(
        InvalidInputError, match="whose first and last points differ; they are equal"
    ):
        SCML().fit(Tuples(X, [[0, 1, 0]]))
    message = "needs points of different classes that differ"
    with pytest.raises(InvalidInputError, match=message), pytest.warns(DataWarning):
        SCML().fit(np.ones_like(X), y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sparsity_weight": 0}, "sparsity_weight must be a number above 0; got 0"),
        ({"n_bases": 0}, "n_bases must be an integer of at least 1; got 0"),
        ({"n_triplets": 0}, "n_triplets must be an integer of at least 1; got 0"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
    ],
)
def test_parameters_that_cannot_be_used_are_an_error(overlapping, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        SCML(**parameters).fit(*overlapping)


@pytest.mark.torch
def test_tensors(triplets, torch):
    moved = Tuples(torch.tensor(triplets.points.copy()), triplets.indices)
    model, expected = SCML().fit(moved), SCML().fit(triplets)
    assert isinstance(model.components_, torch.Tensor)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)


def test_round_trip_through_a_file(overlapping, triplets, tmp_path):
    X, _ = overlapping
    model = SCML().fit(triplets)
    save(model, tmp_path / "model.nearfar")
    twin = load(tmp_path / "model.nearfar")
    np.testing.assert_array_equal(twin.transform(X), model.transform(X))
    np.testing.assert_array_equal(twin.weights_, model.weights_)
