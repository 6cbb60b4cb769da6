"""Sparse rows: mapped and learned from without becoming dense, and refused with a remedy else."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD

import nearfar
from nearfar import LMNN, NCA, RCA, LinearMetric
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
        r" 1\.4e-05 GB\..* Reduce it first, .*TruncatedSVD.*docs/large_data\.md"
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


# -- learning --------------------------------------------------------------------------------------


@pytest.fixture
def texts(rng):
    """Counts of 40 words in 150 texts about three topics, most of them zero."""
    topics = np.arange(150) % 3
    words = rng.gamma(0.3, size=(3, 40))
    return rng.poisson(words[topics]).astype(np.float64), topics


@pytest.fixture
def many_words(rng):
    """As above, with 2000 words."""
    topics = np.arange(120) % 3
    words = rng.gamma(0.05, size=(3, 2000))
    return sparse.csr_array(rng.poisson(words[topics]).astype(np.float64)), topics


def never_dense(monkeypatch, most):
    """Let arrays of more than so many columns be made dense nowhere."""

    def refused(self, *args, **options):
        assert min(self.shape) <= 1 or self.shape[1] <= most, f"{self.shape} is made dense"
        return made_dense(self, *args, **options)

    made_dense = sparse.csr_array.toarray
    monkeypatch.setattr(sparse.csr_array, "toarray", refused)
    monkeypatch.setattr(sparse.csr_array, "todense", refused)


@pytest.mark.parametrize("init", ["auto", "pca", "lda", "identity"])
@pytest.mark.parametrize("n_components", [2, 5])
def test_lmnn_of_few_sparse_features_is_that_of_dense_ones(texts, init, n_components):
    X, y = texts
    dense = LMNN(n_components=n_components, shrinkage=0.3, init=init).fit(X, y)
    found = LMNN(n_components=n_components, shrinkage=0.3, init=init).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(found.components_, dense.components_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.objective_, dense.objective_, rtol=1e-10)
    assert (found.n_iter_, found.duality_gap_) == (dense.n_iter_, None)


@pytest.mark.parametrize("init", ["auto", "pca", "lda", "identity"])
@pytest.mark.parametrize("n_components", [2, 25])
def test_nca_of_few_sparse_features_is_that_of_dense_ones(texts, rng, init, n_components):
    X, y = texts
    weights = rng.integers(0, 3, len(y)).astype(float)
    nca = NCA(n_components=n_components, shrinkage=0.3, init=init)
    dense = clone(nca).fit(X, y, sample_weight=weights)
    found = clone(nca).fit(sparse.csr_array(X), y, sample_weight=weights)
    np.testing.assert_allclose(found.objective_, dense.objective_, rtol=1e-8)
    metrics = (model.get_mahalanobis_matrix() for model in (found, dense))
    np.testing.assert_allclose(*metrics, atol=1e-5)


def test_nca_learns_from_many_words_without_making_them_dense(many_words, monkeypatch):
    """The objective is that of dense rows, by a sum over all pairs."""
    X, y = many_words
    dense = X.toarray()
    never_dense(monkeypatch, 120)  # tables of distances between rows have as many columns
    model = NCA(n_components=3, shrinkage="auto").fit(X, y)
    assert (model.components_.shape, model.feature_scale_) == ((3, 2000), None)
    near = np.sort(((dense[:, None] - dense) ** 2).sum(2) + 1e9 * (y[:, None] != y), axis=1)
    live, rho = (dense != dense[0]).any(0).sum(), model.shrinkage_
    price = rho / (1 - rho) * near[:, 1:4].mean(axis=1).sum() / 8 / live
    Z = dense @ model.components_.T
    closeness = np.exp(-((Z[:, None] - Z) ** 2).sum(2)) * (1 - np.eye(len(y)))
    right = ((closeness / closeness.sum(1, keepdims=True)) * (y[:, None] == y)).sum()
    expected = right - price * (model.components_**2).sum()
    np.testing.assert_allclose(model.objective_, expected, rtol=1e-9)
    assert right > 100


@pytest.mark.parametrize("shrinkage", [0.1, 0.6])
@pytest.mark.parametrize("n_words", [40, 130])
def test_rca_of_sparse_rows_is_that_of_dense_ones(rng, shrinkage, n_words):
    """Directly with 40 words, by Lanczos' method with 130; more directions than rows have zeros."""
    y = np.arange(90) % 5 - 1  # a fifth is in no chunklet
    X = rng.poisson(rng.gamma(0.3, size=(5, n_words))[y]).astype(np.float64)
    weights = rng.integers(0, 3, len(y)).astype(float)
    rca = RCA(n_components=4, shrinkage=shrinkage)
    dense = clone(rca).fit(X, y, sample_weight=weights)
    found = clone(rca).fit(sparse.csr_array(X), y, sample_weight=weights)
    np.testing.assert_allclose(found.components_, dense.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.objective_, dense.objective_, rtol=1e-9)
    assert found.duality_gap_ < 1e-9
    assert found.n_chunklets_ == dense.n_chunklets_


def test_rca_of_many_words_does_not_make_them_dense(many_words, monkeypatch):
    X, y = many_words
    never_dense(monkeypatch, 120)
    model = RCA(n_components=5).fit(X.astype(np.float32), y)
    assert (model.components_.shape, model.components_.dtype) == ((5, 2000), np.float32)
    live = int((X.max(axis=0).toarray() > X.min(axis=0).toarray()).sum())
    assert model.shrinkage_ == 4 * live / (4 * live + 120 - 3)
    few = RCA(n_components=500).fit(X[:20], y[:20])  # 20 points vary in 19 directions
    lengths = np.linalg.norm(few.components_, axis=1)
    assert (np.count_nonzero(lengths), len(lengths)) == (19, 500)


@pytest.mark.parametrize("parameters", [{}, {"pca_components": 5}, {"shrinkage": 0}])
def test_rca_says_how_to_learn_from_sparse_rows(words, rng, parameters):
    message = r"needs dense points.*set n_components, leave pca_components=None.*TruncatedSVD"
    settings = parameters and {"n_components": 4} | parameters
    with pytest.raises(InvalidInputError, match=message):
        RCA(**settings).fit(sparse.csr_array(words), rng.integers(0, 3, 60))


def test_rca_needs_sparse_rows_that_differ_within_chunklets():
    X = sparse.csr_array(np.repeat(np.eye(4, 30), 3, axis=0))
    with pytest.raises(InvalidInputError, match="needs points that differ within a chunklet"):
        RCA(n_components=2).fit(X, np.repeat(np.arange(4), 3))


def test_lmnn_of_sparse_rows_keeps_weights_passes_and_targets(texts, rng):
    X, y = texts
    weights = rng.integers(0, 3, len(y)).astype(float)
    targets = np.array([[row + 3 if row + 3 < len(y) else row - 3] for row in range(len(y))])
    for fitted in (
        lambda X: LMNN(n_components=4, shrinkage=0.3).fit(X, y, sample_weight=weights),
        lambda X: LMNN(n_components=4, shrinkage=0.3, n_passes=2).fit(X, y),
        lambda X: LMNN(n_components=4, shrinkage=0.3).fit(X, y, targets),
    ):
        dense, found = fitted(X), fitted(sparse.csr_array(X))
        np.testing.assert_allclose(found.objective_, dense.objective_, rtol=1e-9)
        np.testing.assert_allclose(found.components_, dense.components_, rtol=1e-6, atol=1e-8)


def test_lmnn_learns_from_many_words_without_making_them_dense(many_words, monkeypatch):
    X, y = many_words
    never_dense(monkeypatch, 120)  # tables of distances between rows have as many columns
    model = LMNN(n_components=4, shrinkage="auto").fit(X, y)
    assert model.components_.shape == (4, 2000)
    assert model.shrinkage_ == 4 * 2000 / (4 * 2000 + 120)
    assert model.status_ == "converged"
    Z = model.transform(X)
    ours = np.mean([np.linalg.norm(Z[y == c] - Z[y == c].mean(0), axis=1).mean() for c in range(3)])
    assert ours < np.linalg.norm(Z - Z.mean(0), axis=1).mean()


def test_the_objective_of_many_words_is_that_of_dense_ones(many_words):
    """An independent sum over all triplets, from dense rows."""
    X, y = many_words
    model = LMNN(n_components=4, shrinkage=0.5).fit(X, y)
    dense = X.toarray()
    squares = ((dense[:, None] - dense) ** 2).sum(2)
    D = ((dense @ model.components_.T)[:, None] - dense @ model.components_.T) ** 2
    D, pull, push, length = D.sum(2), 0.0, 0.0, 0.0
    for i in range(len(y)):
        mates = np.flatnonzero((y == y[i]) & (np.arange(len(y)) != i))
        for j in mates[np.argsort(squares[i, mates], kind="stable")[:3]]:
            pull += D[i, j]
            length += squares[i, j]
            push += np.maximum(1 + D[i, j] - D[i, y != y[i]], 0).sum()
    n_live = (dense != dense[0]).any(0).sum()
    price = length / n_live * (model.components_**2).sum()
    np.testing.assert_allclose(model.objective_, 0.5 * (pull + price) + 0.5 * push, rtol=1e-9)


@pytest.mark.parametrize("model", [LMNN(n_components=3, tol=0.5), NCA(n_components=3)])
def test_float32_stays_float32(many_words, model):
    X, y = many_words
    X = X.astype(np.float32)
    model = clone(model).fit(X, y)
    assert model.components_.dtype == model.transform(X).dtype == np.float32


def test_held_out_rows_stop_a_fit_to_words(many_words):
    X, y = many_words
    model = LMNN(n_components=3, validation_fraction=0.3, random_state=0).fit(X, y)
    assert "validation_error" in model.history_[0]


@pytest.mark.parametrize("learner", [LMNN, NCA])
def test_a_checkpoint_of_sparse_rows_continues(many_words, tmp_path, learner):
    X, y = many_words
    whole = learner(n_components=4, shrinkage=0.3, tol=1e-4).fit(X, y)
    part = learner(n_components=4, shrinkage=0.3, tol=1e-4, checkpoint=tmp_path / "state")
    with pytest.warns(nearfar.errors.ConvergenceWarning, match="max_iter"):
        part.set_params(max_iter=3).fit(X, y)
    assert (tmp_path / "state").exists()
    part.set_params(max_iter=1000).fit(X, y)
    np.testing.assert_allclose(part.objective_, whole.objective_, rtol=1e-2)


def test_rows_that_are_not_canonical_are_not_changed(texts):
    X, y = sparse.csr_array(texts[0]), texts[1]
    twice = sparse.csr_array(
        (np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape
    )
    before = twice.data.copy()
    found = LMNN(n_components=4, shrinkage=0.3).fit(twice, y)
    np.testing.assert_array_equal(twice.data, before)
    expected = LMNN(n_components=4, shrinkage=0.3).fit(X, y)
    np.testing.assert_array_equal(found.components_, expected.components_)


@pytest.mark.parametrize("learner", [LMNN, NCA])
def test_rows_of_zeros_do_not_vary(texts, learner):
    X = sparse.csr_array((150, 40))
    with pytest.warns(nearfar.errors.DataWarning, match="all points are equal"):
        model = learner(n_components=4).fit(X, texts[1])
    assert model.components_.shape == (4, 40)


@pytest.mark.parametrize("parameters", [{}, {"n_components": 4, "reduce": "project"}])
def test_lmnn_says_how_to_learn_from_sparse_rows(words, rng, parameters):
    message = r"needs dense points.*set n_components, and leave reduce='learn'.*TruncatedSVD"
    with pytest.raises(InvalidInputError, match=message):
        LMNN(**parameters).fit(sparse.csr_array(words), rng.integers(0, 3, 60))


@pytest.mark.parametrize("parameters", [{}, {"n_components": 4, "diagonal": True}])
def test_nca_says_how_to_learn_from_sparse_rows(words, rng, parameters):
    message = r"needs dense points.*set n_components, and leave diagonal=False.*TruncatedSVD"
    with pytest.raises(InvalidInputError, match=message):
        NCA(**parameters).fit(sparse.csr_array(words), rng.integers(0, 3, 60))
