"""Classical scaling against principal components, scikit-learn and Gower's formula by hand."""

import numpy as np
import pytest
import sklearn.manifold
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances

from nearfar import ClassicalMDS
from nearfar.errors import InvalidInputError


def aligned(Y, Z):
    """Y with the signs of the columns of Z."""
    return Y * np.sign((Y * Z).sum(axis=0))


def test_of_points_it_is_pca(wine):
    X, _ = wine
    model, pca = ClassicalMDS(n_components=3).fit(X), PCA(3).fit(X)
    np.testing.assert_allclose(aligned(pca.transform(X), model.embedding_), model.embedding_)
    variances = model.eigenvalues_[:3] / (len(X) - 1)
    np.testing.assert_allclose(variances, pca.explained_variance_)


def test_of_euclidean_distances_it_is_pca_too(wine):
    X, _ = wine
    by_points = ClassicalMDS().fit(X)
    by_distances = ClassicalMDS(metric="precomputed").fit(pairwise_distances(X))
    np.testing.assert_allclose(by_distances.embedding_, by_points.embedding_, atol=1e-9)
    np.testing.assert_allclose(by_distances.eigenvalues_[:13], by_points.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(by_distances.eigenvalues_[13:], 0, atol=1e-8)
    assert by_distances.objective_ == pytest.approx(by_points.objective_, rel=1e-9)


def test_more_features_than_points(rng):
    """Then the inner products are decomposed, with the same answer."""
    X = rng.normal(size=(20, 50))
    wide = ClassicalMDS(n_components=3).fit(X)
    pca = PCA(3).fit(X)
    np.testing.assert_allclose(
        aligned(pca.transform(X), wide.embedding_), wide.embedding_, atol=1e-9
    )
    new = rng.normal(size=(5, 50))
    expected = aligned(wide.components_.T, pca.components_.T).T
    np.testing.assert_allclose(expected, pca.components_, atol=1e-9)
    np.testing.assert_allclose(wide.transform(new), (new - X.mean(axis=0)) @ wide.components_.T)


@pytest.mark.skipif(
    not hasattr(sklearn.manifold, "ClassicalMDS"), reason="scikit-learn has none before 1.8"
)
def test_the_same_as_scikit_learn_where_that_is_defined(rng):
    D = pairwise_distances(rng.normal(size=(25, 6)))
    expected = sklearn.manifold.ClassicalMDS(n_components=3, metric="precomputed").fit(D)
    model = ClassicalMDS(n_components=3, metric="precomputed").fit(D)
    np.testing.assert_allclose(
        aligned(expected.embedding_, model.embedding_), model.embedding_, atol=1e-9
    )
    np.testing.assert_allclose(model.eigenvalues_[:3], expected.eigenvalues_)


def test_distances_that_are_not_euclidean():
    """Three points at distance 1, a fourth at 0.5 of each: too near for any Euclidean space.

    G has the eigenvalue ½ twice (the triangle) and a negative one, whose square is the strain: the
    third column is zero, where a root would be NaN.
    """
    D = np.ones((4, 4)) - np.eye(4)
    D[3, :3] = D[:3, 3] = 0.5
    model = ClassicalMDS(n_components=3, metric="precomputed").fit(D)
    np.testing.assert_allclose(model.eigenvalues_, [0.5, 0.5, 0, -0.0625], atol=1e-12)
    assert not model.embedding_[:, 2].any()
    assert model.objective_ == pytest.approx(0.0625**2)
    assert np.isfinite(model.transform(D)).all()


def test_no_other_embedding_has_less_strain(rng):
    D = rng.uniform(0.5, 2, size=(12, 12))
    D = np.triu(D, 1) + np.triu(D, 1).T
    model = ClassicalMDS(metric="precomputed").fit(D)
    H = np.eye(12) - 1 / 12
    G = -0.5 * H @ D**2 @ H
    Y = model.embedding_
    assert np.sum((G - Y @ Y.T) ** 2) == pytest.approx(model.objective_)
    for size in (1e-3, 1e-2, 0.1, 1):
        Z = Y + size * rng.normal(size=Y.shape)
        assert np.sum((G - Z @ Z.T) ** 2) > model.objective_


def test_fewer_dimensions_than_asked_for(rng):
    """Points of a line, with and without distances."""
    X = rng.normal(size=(10, 1)) @ rng.normal(size=(1, 5))
    for model in (
        ClassicalMDS(3).fit(X),
        ClassicalMDS(3).fit(X[:, :1]),
        ClassicalMDS(3, metric="precomputed").fit(pairwise_distances(X)),
    ):
        assert model.embedding_.shape == (10, 3)
        assert not model.embedding_[:, 1:].any()
        assert model.embedding_[:, 0].any()


# -- new points --------------------------------------------------------------------------------


@pytest.fixture
def plane(rng):
    """Old and new points of a plane."""
    return rng.normal(size=(20, 2)), rng.normal(size=(6, 2))


def test_new_points_of_a_plane_keep_all_distances(backend, plane):
    old, new = plane
    D, to_old = pairwise_distances(old), pairwise_distances(new, old)
    model = ClassicalMDS(metric="precomputed").fit(backend.asarray(D))
    places = backend.to_numpy(model.transform(backend.asarray(to_old)))
    old_places = backend.to_numpy(model.embedding_)
    np.testing.assert_allclose(pairwise_distances(places, old_places), to_old, rtol=1e-9)
    np.testing.assert_allclose(pairwise_distances(places), pairwise_distances(new), atol=1e-9)


def test_gower_by_hand():
    """Points −1, 0 and 1 of a line, a new one at 3 and one beside the line above 0.

    Of the last, squared distances are 1 + h², h² and 1 + h²: it falls on 0.
    """
    D = np.abs(np.subtract.outer([-1.0, 0, 1], [-1.0, 0, 1]))
    model = ClassicalMDS(1, metric="precomputed").fit(D)
    sign = np.sign(model.embedding_[2, 0])
    h = 2.0
    new = np.array([[4.0, 3.0, 2.0], [np.sqrt(1 + h**2), h, np.sqrt(1 + h**2)]])
    np.testing.assert_allclose(sign * model.transform(new)[:, 0], [3, 0], atol=1e-12)


def test_old_points_go_where_they_are(backend, dtype):
    X = load_wine().data.astype(dtype)  # features of very different sizes
    size = np.abs(ClassicalMDS().fit(X).embedding_).max()
    model = ClassicalMDS().fit(backend.asarray(X))
    found = backend.to_numpy(model.transform(backend.asarray(X)))
    assert found.dtype == dtype
    atol = 1e3 * np.finfo(dtype).eps * size
    np.testing.assert_allclose(found, backend.to_numpy(model.embedding_), atol=atol)


def test_in_batches(plane):
    old, new = plane
    for X, Q, metric in (
        (old, new, "euclidean"),
        (pairwise_distances(old), pairwise_distances(new, old), "precomputed"),
    ):
        model = ClassicalMDS(metric=metric).fit(X)
        batches = np.vstack([model.transform(Q[:2]), model.transform(Q[2:])])
        np.testing.assert_allclose(batches, model.transform(Q), rtol=1e-12)


def test_bad_new_points(plane):
    old, new = plane
    model = ClassicalMDS(metric="precomputed").fit(pairwise_distances(old))
    with pytest.raises(ValueError, match="X has 2 features, but ClassicalMDS is expecting 20"):
        model.transform(new)
    with pytest.raises(InvalidInputError, match="must not be negative") as caught:
        model.transform(-pairwise_distances(new, old))
    assert len(caught.value.indices) == 120
    with pytest.raises(ValueError, match="NaN"):
        model.transform(np.full((1, 20), np.nan))
    by_points = ClassicalMDS().fit(old)
    with pytest.raises(ValueError, match="X has 3 features, but ClassicalMDS is expecting 2"):
        by_points.transform(np.ones((1, 3)))


@pytest.mark.torch
def test_new_points_must_live_where_the_old_ones_do(plane, torch):
    old, new = plane
    model = ClassicalMDS().fit(torch.tensor(old))
    with pytest.raises(InvalidInputError, match="was fitted on torch device cpu and X is on NumPy"):
        model.transform(new)
