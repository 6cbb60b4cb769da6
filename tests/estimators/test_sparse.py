"""Sparse rows: mapped without becoming dense, and refused with a remedy where they cannot be."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

import nearfar
from nearfar import LMNN, LinearMetric
from nearfar.errors import InvalidInputError
from nearfar.estimators._base import MetricLearner
from nearfar.registry import entries

LINEAR = [
    entry.name
    for entry in entries(kind="metric", kernel=False)
    if issubclass(getattr(nearfar, entry.name), MetricLearner)
]
FORMS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array]


@pytest.fixture
def words(rng):
    """Counts of 30 words in 60 texts, most of them zero, of both dtypes."""
    return rng.poisson(0.3, size=(60, 30)).astype(np.float64)


@pytest.mark.parametrize("form", FORMS)
def test_images_of_sparse_rows_are_those_of_dense_ones(words, dtype, form):
    X = words.astype(dtype)
    metric = LinearMetric(np.eye(30)[:7] - 0.5).fit(X)
    rows = form(X)
    for method in ("transform", "map_queries", "document_offsets"):
        found, expected = getattr(metric, method)(rows), getattr(metric, method)(X)
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_integers_become_floats(words):
    metric = LinearMetric(np.eye(30)[:3]).fit(words)
    found = metric.transform(sparse.csr_array(words.astype(int)))
    np.testing.assert_array_equal(found, metric.transform(words))
    assert found.dtype == np.float64


def test_rows_are_not_made_dense():
    """5000 rows of 40000 words are 1.6 GB; their images are 0.4 MB."""
    X = sparse.random_array((5000, 40_000), density=2e-4, format="csr", rng=0)
    L = np.ones((10, 40_000)) + np.eye(10, 40_000)
    tracemalloc.start()
    images = LinearMetric(L).fit(np.zeros((1, 40_000))).transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert images.shape == (5000, 10)
    assert peak < 50e6  # the map takes 3


def test_two_maps_of_words_are_one(words, rng):
    """TruncatedSVD, then LMNN: the folded map takes the words themselves."""
    X, y = sparse.csr_array(words), rng.integers(0, 3, 60)
    svd = TruncatedSVD(8, random_state=0).fit(X)
    lmnn = LMNN(n_components=4, shrinkage=0.5).fit(svd.transform(X), y)
    metric = LinearMetric(lmnn.components_ @ svd.components_).fit(np.zeros((1, 30)))
    expected, found = lmnn.transform(svd.transform(X)), metric.transform(X)
    for Z in (expected, found):
        Z -= Z[0].copy()
    np.testing.assert_allclose(
        np.linalg.norm(found, axis=1), np.linalg.norm(expected, axis=1), rtol=1e-8
    )


@pytest.mark.parametrize("name", LINEAR)
def test_a_fit_to_sparse_rows_says_what_to_do(name, words, rng):
    message = (
        rf"{name} needs dense points; got a sparse array of shape \(60, 30\), which would take"
        r" 1\.4e-05 GB\. Reduce it first, .*TruncatedSVD.*docs/large_data\.md"
    )
    with pytest.raises(InvalidInputError, match=message):
        getattr(nearfar, name)().fit(sparse.csr_array(words), rng.integers(0, 3, 60))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_sparse_rows_must_be_finite_and_have_the_features_of_fit(words, number):
    metric = LinearMetric().fit(words)
    words[3, 4] = number
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        metric.transform(sparse.csr_array(words))
    with pytest.raises(ValueError, match="has 29 features"):
        metric.transform(sparse.csr_array(np.nan_to_num(words[:, 1:], posinf=0)))
