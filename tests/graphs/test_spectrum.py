"""Bottom eigenvectors by the three ways there are, against the dense decomposition."""

import numpy as np
import pytest
from scipy import sparse

from nearfar import NeighborhoodGraph
from nearfar.graphs import spectrum
from nearfar.graphs.spectrum import bottom_spectrum, pseudoinverse


@pytest.fixture
def strip(rng):
    """A long strip: eigenvalues crowd near zero."""
    X = rng.uniform(size=(400, 2)) * [20, 1]
    return NeighborhoodGraph.from_points(X, 6).linked(random_state=0).laplacian()


@pytest.fixture
def cloud(rng):
    """Points of ten dimensions: eigenvalues are well apart from zero."""
    return NeighborhoodGraph.from_points(rng.normal(size=(400, 10)), 6).laplacian()


def check(found, A, count):
    values = np.linalg.eigvalsh(A.toarray())
    np.testing.assert_allclose(found.values, values[1 : count + 1], rtol=1e-3)
    assert found.vectors.shape == (A.shape[0], count)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(count), atol=1e-8)
    np.testing.assert_allclose(found.vectors.sum(axis=0), 0, atol=1e-9)
    left = A @ found.vectors - found.vectors * found.values
    assert np.linalg.norm(left, axis=0).max() < 0.02 * values[count]


def random(seed=0):
    return np.random.RandomState(seed)


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("small", [0, 1000])
def test_by_a_factor_and_by_the_dense_matrix(strip, monkeypatch, count, small):
    monkeypatch.setattr(spectrum, "SMALL", small)
    found = bottom_spectrum(strip, count, random())
    check(found, strip, count)
    G = np.random.default_rng(0).normal(size=(400, 3))
    expected = np.linalg.pinv(strip.toarray(), rcond=1e-12, hermitian=True) @ G
    np.testing.assert_allclose(found.inverse(G), expected, atol=1e-6 * np.abs(expected).max())


def test_by_products(cloud, monkeypatch):
    """The inverse is exact on the eigenvectors that were found."""
    monkeypatch.setattr(spectrum, "FACTORED", 100)
    monkeypatch.setattr(spectrum, "splu", None)  # would fail if it were called
    found = bottom_spectrum(cloud, 5, random())
    check(found, cloud, 5)
    np.testing.assert_allclose(
        found.inverse(found.vectors), found.vectors / found.values, atol=1e-8
    )
    G = np.random.default_rng(0).normal(size=(400, 3))
    image = found.inverse(G)
    np.testing.assert_allclose(image.sum(axis=0), 0, atol=1e-10)
    assert np.linalg.eigvalsh(G.T @ image)[0] > 0


def test_products_give_way_to_a_factor(strip, monkeypatch):
    """A strip needs more restarts than are made."""
    monkeypatch.setattr(spectrum, "FACTORED", 100)
    monkeypatch.setattr(spectrum, "RESTARTS", 1)
    check(bottom_spectrum(strip, 5, random()), strip, 5)


def test_patience_where_the_factor_would_be_dense(strip, monkeypatch):
    """The strip counts as dense if any entry does; then only the sample is factored."""
    monkeypatch.setattr(spectrum, "FACTORED", 100)
    monkeypatch.setattr(spectrum, "RESTARTS", 1)
    monkeypatch.setattr(spectrum, "DENSE", 0)
    sizes, factor = [], spectrum.sparse_factor
    monkeypatch.setattr(spectrum, "sparse_factor", lambda A: sizes.append(A.shape[0]) or factor(A))
    check(bottom_spectrum(strip, 5, random()), strip, 5)
    assert sizes == [100]


def test_the_answer_does_not_depend_on_the_start(strip):
    one, other = (bottom_spectrum(strip, 4, random(seed)) for seed in (0, 1))
    np.testing.assert_allclose(np.abs(np.sum(one.vectors * other.vectors, axis=0)), 1, atol=1e-4)


def test_all_eigenvectors_of_a_tiny_graph():
    """A triangle: both eigenvalues are 3."""
    triangle = sparse.csr_array(3 * np.eye(3) - 1)
    found = bottom_spectrum(triangle, 2, random())
    np.testing.assert_allclose(found.values, 3)


def test_a_factor_inverts_on_vectors_of_mean_zero(cloud):
    x = np.random.default_rng(1).normal(size=400)
    np.testing.assert_allclose(pseudoinverse(cloud)(cloud @ x), x - x.mean(), atol=1e-7)
