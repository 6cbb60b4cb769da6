"""SCML as an estimator: forms of input, sparsity, scores and difficult data."""

import numpy as np
import pytest

from nearfar import SCML, Tuples, make_triplets, verify
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
    model = SCML(n_triplets=200, shrinkage=0, random_state=0).fit(X, y)
    by_hand = SCML().fit(make_triplets(X, y, 200, random_state=0))
    np.testing.assert_allclose(model.components_, by_hand.components_)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert not hasattr(by_hand, "classes_")
    assert model.score(X, y) > 0.6


@pytest.mark.parametrize("shrinkage", ["auto", 0.3])
def test_shrinkage_keeps_a_distance_in_the_program(overlapping, shrinkage):
    """(8) by plain loops, in coordinates Wx; "auto" of labels has a W, and a number has none."""
    X, y = overlapping
    model = SCML(n_triplets=200, shrinkage=shrinkage, random_state=0).fit(X, y)
    W, rho = model.prior_components_, model.shrinkage_
    if shrinkage == "auto":
        assert rho == 64 * 5 / (64 * 5 + len(X))
    else:
        assert W is None
        W = np.eye(5)
    framed, inverse = X @ W.T, np.linalg.inv(W)
    triplets = model.proof_["triplets"]
    near = framed[triplets[:, 0]] - framed[triplets[:, 1]]
    floor = rho / (1 - rho) / (near * near).sum(axis=1).mean()
    M = inverse.T @ model.get_mahalanobis_matrix() @ inverse
    learned = (model.bases_.T * model.weights_) @ model.bases_
    np.testing.assert_allclose(M, floor * np.eye(5) + learned, atol=1e-9 * np.trace(M))
    size = np.mean(np.sum((framed[triplets[:, 0]] - framed[triplets[:, 2]]) ** 2, axis=1))
    expected = 1e-3 * size * np.trace(learned)
    for a, b, c in framed[triplets]:
        expected += max(1 + (a - b) @ M @ (a - b) - (a - c) @ M @ (a - c), 0) / len(triplets)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.duality_gap_ <= model.tol
    assert verify(model, X, y).proved


def test_a_metric_below_what_is_kept_is_refuted(overlapping):
    X, y = overlapping
    model = SCML(random_state=0).fit(X, y)
    model.prior_components_ = np.eye(5)
    assert not verify(model, X, y).proved
    model = SCML(random_state=0).fit(X, y)
    model.components_ = 0.9 * model.components_
    assert "below its floor" in str(verify(model, X, y))


@pytest.mark.parametrize("shrinkage", ["auto", 0.3])
@pytest.mark.parametrize("noise", [1e-4, 1e-8, 1e-15])
def test_classes_of_near_copies_are_proved(rng, dtype, shrinkage, noise):
    """What is kept meets all margins; its trace is much larger than the price of one."""
    X = rng.normal(size=(5, 3))[np.arange(60) % 5]
    X = (X + noise * rng.normal(size=X.shape)).astype(dtype)
    if len(np.unique(X, axis=0)) == 5:
        pytest.skip("float32 holds no such noise")
    model = SCML(shrinkage=shrinkage, random_state=0).fit(X, np.arange(60) % 5)
    assert model.objective_ < 1e-4
    assert model.status_ == "converged"
    assert verify(model, X, np.arange(60) % 5).proved


@pytest.mark.filterwarnings("ignore:1 of 6 features vary by less:nearfar.errors.DataWarning")
@pytest.mark.parametrize("column", [np.ones(60), 1e-20 * np.arange(60.0)], ids=["equal", "dead"])
@pytest.mark.parametrize("shrinkage", ["auto", 0.3])
def test_features_that_do_not_vary_get_no_weight(overlapping, column, shrinkage):
    X, y = overlapping
    model = SCML(shrinkage=shrinkage, random_state=0).fit(np.c_[X, column], y)
    assert not model.components_[:, 5].any()
    assert verify(model, np.c_[X, column], y).proved


def test_triplets_keep_nothing_unless_asked(triplets):
    model = SCML().fit(triplets)
    assert (model.shrinkage_, model.prior_components_) == (0, None)
    assert SCML(shrinkage=0.5).fit(triplets).shrinkage_ == 0.5


def test_where_the_kept_distance_meets_the_margins_no_weight_is_no_fault():
    """Two classes far apart: nothing is left to learn."""
    X = np.array([[0.0, 0], [0, 1], [1, 0], [100, 0], [100, 1], [101, 0]])
    model = SCML(shrinkage=0.5, random_state=0).fit(X, [0, 0, 0, 1, 1, 1])
    assert not model.weights_.any()
    assert model.objective_ == 0
    assert np.linalg.matrix_rank(model.components_) == 2


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
        ({"shrinkage": 1.5}, "shrinkage must be a number from 0 to below 1, or 'auto'; got 1.5"),
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
