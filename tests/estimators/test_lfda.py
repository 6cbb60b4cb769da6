"""LFDA as an estimator: kinds of embedding, classes in pieces, and difficult data."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearfar import LFDA
from nearfar.errors import InvalidInputError
from nearfar.kernels import numpy_similarities


def test_certified_and_closed(overlapping, dtype):
    X, y = overlapping
    model = LFDA(shrinkage=0).fit(X.astype(dtype), y)
    assert model.components_.dtype == dtype
    assert model.duality_gap_ <= (1e-12 if dtype == np.float64 else 1e-5)
    assert (model.status_, model.n_iter_, model.history_) == ("converged", 0, [])
    assert model.shrinkage_ == 0.0


def test_a_class_in_two_pieces_is_told_apart_where_fisher_cannot(rng):
    """One class on both sides of the other: Fisher's direction is noise, the local one is not."""
    side = np.repeat([-6.0, 0.0, 6.0], 30)
    y = np.repeat([0, 1, 0], 30)
    X = np.column_stack([side, np.zeros(90)]) + rng.normal(size=(90, 2)) * [1, 3]
    first = LFDA(1, shrinkage=0).fit(X, y).components_[0]
    assert abs(first[0]) > 3 * abs(first[1])
    fisher = LinearDiscriminantAnalysis().fit(X, y).scalings_[:, 0]
    images = X @ fisher
    assert abs(images[y == 0].mean() - images[y == 1].mean()) < images.std()


def test_orthonormal_rows(overlapping):
    L = LFDA(3, embedding_type="orthonormalized", shrinkage=0).fit(*overlapping).components_
    np.testing.assert_allclose(L @ L.T, np.eye(3), atol=1e-12)


def test_kinds_of_embedding_span_the_same(overlapping):
    maps = [
        LFDA(2, embedding_type=kind, shrinkage=0).fit(*overlapping)
        for kind in ("weighted", "plain")
    ]
    first, second = (np.linalg.svd(model.components_)[2][:2] for model in maps)
    np.testing.assert_allclose(first.T @ first, second.T @ second, atol=1e-9)
    assert maps[0].objective_ == pytest.approx(maps[1].objective_, rel=1e-9)


def test_scale_of_the_data_gives_the_same_images(overlapping):
    X, y = overlapping
    images = LFDA(shrinkage=0).fit_transform(X, y)
    for scale in (1e-60, 1e60):
        np.testing.assert_allclose(LFDA(shrinkage=0).fit_transform(scale * X, y), images, rtol=1e-6)


def test_blocks_do_not_matter(overlapping, monkeypatch):
    X, y = overlapping
    whole = LFDA(shrinkage=0).fit(X, y)
    monkeypatch.setattr(numpy_similarities, "SOFTMAX_BYTES", 1)
    monkeypatch.setattr(numpy_similarities, "SOFTMAX_ROWS", 3)
    np.testing.assert_allclose(
        LFDA(shrinkage=0).fit(X, y).components_, whole.components_, rtol=1e-9
    )


def test_the_papers_program_needs_all_directions(rng):
    y = np.repeat([0, 1], 10)
    X = np.column_stack([rng.normal(size=(20, 2)), y])
    message = r"in all 3 directions .* they differ in 2, .* no maximum in the other 1\. Set"
    with pytest.raises(InvalidInputError, match=message):
        LFDA(shrinkage=0).fit(X, y)
    assert LFDA().fit(X, y).shrinkage_ == 12 / (12 + 20)


def test_the_inputs_distance_stays_where_no_points_differ(rng):
    X, y = rng.normal(size=(12, 40)), np.arange(12) % 3
    for kind in ("weighted", "plain"):
        M = LFDA(embedding_type=kind, shrinkage=1 - 1e-9).fit(X, y).get_mahalanobis_matrix()
        np.testing.assert_allclose(M / M[0, 0], np.eye(40), atol=1e-6)


def test_auto_brings_features_to_one_scale_where_that_helps(overlapping):
    X, y = overlapping
    noise = 1e4 * np.sin(np.arange(60.0) ** 2)
    X = np.column_stack([X[:, :4], noise])
    model = LFDA().fit(X, y)
    scale = model.feature_scale_
    assert scale[4] < 1e-3 * scale[0]
    twin = LFDA(shrinkage=model.shrinkage_).fit(X * scale, y)
    np.testing.assert_allclose(
        model.pair_distance(X[None, :2]), twin.pair_distance((X * scale)[None, :2])
    )


def test_copies_and_classes_of_one_point(overlapping):
    X, y = overlapping
    X, y = np.vstack([X, np.repeat(X[:1], 20, axis=0), X[:1] + 1]), [*y, *[0] * 20, 9]
    model = LFDA(shrinkage=0).fit(X, y)
    assert np.isfinite(model.components_).all()
    assert model.duality_gap_ < 1e-9


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1; got 0"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5; got 6"),
        ({"embedding_type": "other"}, "embedding_type must be one of 'weighted', 'orthonormalized"),
        ({"shrinkage": -1}, "shrinkage must be a number from 0 to below 1"),
    ],
)
def test_parameters_that_cannot_be_used_are_an_error(overlapping, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        LFDA(**parameters).fit(*overlapping)


def test_points_and_labels_that_cannot_be_used_are_an_error(overlapping):
    X, y = overlapping
    with pytest.raises(InvalidInputError, match="LFDA needs points that differ; all n_samples=60"):
        LFDA(shrinkage=0).fit(np.ones_like(X), y)
    with pytest.raises(InvalidInputError, match="LFDA needs at least two classes; y has 1 class"):
        LFDA(shrinkage=0).fit(X, np.zeros(60))


@pytest.mark.torch
def test_tensors(overlapping, torch):
    X, y = overlapping
    model, expected = LFDA(shrinkage=0).fit(torch.tensor(X.copy()), y), LFDA(shrinkage=0).fit(X, y)
    assert isinstance(model.components_, torch.Tensor)
    np.testing.assert_allclose(model.components_.numpy(), expected.components_, rtol=1e-7)
