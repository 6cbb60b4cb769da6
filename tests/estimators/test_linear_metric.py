"""LinearMetric, and as_metric of whatever is linear."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from scipy.spatial.distance import pdist
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import (
    NMF,
    PCA,
    FactorAnalysis,
    FastICA,
    IncrementalPCA,
    KernelPCA,
    SparsePCA,
    TruncatedSVD,
)
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_approximation import RBFSampler
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

import nearfar
from nearfar import (
    LMNN,
    KernelLMNN,
    LinearMetric,
    NearestNeighborClassifier,
    Tuples,
    as_metric,
)
from nearfar.errors import InvalidInputError
from nearfar.estimators import linear_metric

LINEAR = [
    PCA(3),
    PCA(3, whiten=True),
    LinearDiscriminantAnalysis(),
    LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=1),
    NeighborhoodComponentsAnalysis(2, max_iter=5, random_state=0),
    FactorAnalysis(2),
    FastICA(2, random_state=0, max_iter=1000),
    IncrementalPCA(3),
    SparsePCA(2, random_state=0, max_iter=5),
    TruncatedSVD(3, random_state=0),
    PLSRegression(2),
    StandardScaler(),
    MinMaxScaler(),
    MaxAbsScaler(),
    RobustScaler(),
    GaussianRandomProjection(3, random_state=0),
    SparseRandomProjection(3, density=0.5, random_state=0),
    SelectKBest(k=4),
    FunctionTransformer(lambda X: X[:, ::2] - 7),
    make_pipeline(StandardScaler(), PCA(5), LinearDiscriminantAnalysis()),
    make_union(PCA(2), StandardScaler()),
    make_column_transformer((StandardScaler(), [0, 4]), ("passthrough", [2])),
    LMNN(tol=0.1),
]
BENT = [
    PolynomialFeatures(2),
    KernelPCA(2, kernel="poly"),
    RBFSampler(random_state=0),
    Normalizer(),
    QuantileTransformer(n_quantiles=20),
    MinMaxScaler(clip=True),
    FunctionTransformer(np.abs),
    FunctionTransformer(np.arcsinh),
    FunctionTransformer(lambda X: np.clip(X, -500, 500)),
    make_pipeline(StandardScaler(), PolynomialFeatures(2)),
    KernelLMNN(rank=5, tol=0.1),
]


@pytest.fixture(scope="module")
def wine_in_units():
    """Wine as it is, in its own units and far from zero."""
    from sklearn.datasets import load_wine

    return load_wine(return_X_y=True)


@pytest.mark.parametrize("transformer", LINEAR, ids=lambda t: str(t)[:40])
def test_distances_are_those_of_the_images(transformer, wine_in_units):
    X, y = wine_in_units
    images = transformer.fit(X, y).transform(X)
    images = images if isinstance(images, np.ndarray) else images.toarray()
    metric = as_metric(transformer)
    expected = pdist(images)
    np.testing.assert_allclose(pdist(metric.transform(X)), expected, atol=1e-12 * expected.max())
    assert metric.n_features_in_ == 13
    assert metric.components_.shape == (*metric.transform(X).shape[1:], 13)


@pytest.mark.parametrize("transformer", BENT, ids=lambda t: str(t)[:40])
def test_what_is_not_linear_is_refused(transformer, wine):
    X, y = wine
    transformer.fit(X, y)
    with pytest.raises(InvalidInputError, match=r"linear up to a shift; .* is not: its images"):
        as_metric(transformer)


def test_what_does_not_take_every_number_is_refused(wine_in_units):
    X, y = wine_in_units
    with pytest.raises(InvalidInputError, match=r"it refused: Negative values .* in NMF\. Only a"):
        as_metric(NMF(2, max_iter=1000, init="nndsvda").fit(X))
    divide = FunctionTransformer(lambda X: np.where(X == 0, np.nan, 1.0)).fit(X, y)
    with pytest.raises(InvalidInputError, match="needs finite numbers of shape"):
        as_metric(divide)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (PCA, InvalidInputError, "needs a fitted transformer such as"),
        ("pca", InvalidInputError, "needs a fitted transformer such as"),
        (PCA(), NotFittedError, "not fitted yet"),
        (FunctionTransformer(), NotFittedError, "not fitted"),
    ],
)
def test_what_is_no_fitted_transformer(given, error, message):
    with pytest.raises((error, InvalidInputError), match=f"{message}|needs n_features_in_"):
        as_metric(given)


def test_a_constant_is_refused(wine):
    X, _ = wine
    with pytest.raises(InvalidInputError, match="maps all points to the same image"):
        as_metric(FunctionTransformer(lambda X: 0 * X + 3).fit(X))


def test_a_large_shift_costs_no_digits(wine):
    """The images of unit vectors differ from that of zero by 1e-9 of it."""
    X, _ = wine
    scaler = StandardScaler().fit(X + 1e9)
    lengths = np.linalg.norm(as_metric(scaler).components_, axis=1)
    np.testing.assert_allclose(lengths, np.sort(1 / scaler.scale_)[::-1], rtol=1e-14)


def test_rows_of_equal_length_keep_their_order(wine):
    """Any rotation of PCA's rows gives the same distances; we keep PCA's own, but for signs."""
    X, _ = wine
    pca = PCA(4).fit(X)
    L = as_metric(pca).components_
    np.testing.assert_allclose(np.abs(L), np.abs(pca.components_), atol=1e-12)
    white = as_metric(PCA(4, whiten=True).fit(X)).components_  # the least variance comes first
    directions = white / np.linalg.norm(white, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(directions), np.abs(pca.components_[::-1]), atol=1e-9)


def test_frames_and_columns_by_name(wine_in_units):
    X, _ = wine_in_units
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(13)])
    transformer = make_column_transformer((StandardScaler(), ["f1", "f5"]), (PCA(1), ["f0", "f2"]))
    transformer.set_output(transform="pandas").fit(frame)
    metric = as_metric(transformer)
    np.testing.assert_allclose(
        pdist(metric.transform(frame)), pdist(transformer.transform(frame)), rtol=1e-9
    )
    assert list(metric.feature_names_in_) == list(frame.columns)


def test_names_do_no_harm_without_pandas(wine, monkeypatch):
    X, _ = wine
    pca = PCA(2).fit(pandas.DataFrame(X, columns=[f"f{i}" for i in range(13)]))
    expected = as_metric(pca)

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(linear_metric, "importlib", SimpleNamespace(import_module=missing))
    np.testing.assert_array_equal(as_metric(pca).components_, expected.components_)


def test_many_features_are_asked_for_in_blocks(wine, monkeypatch):
    X, _ = wine
    pca = PCA(3).fit(X)
    expected = as_metric(pca)
    monkeypatch.setattr("nearfar.estimators.linear_metric.PROBE_ENTRIES", 40)  # 3 rows of 13
    np.testing.assert_array_equal(as_metric(pca).components_, expected.components_)


def test_a_file_and_a_classifier(wine, tmp_path):
    X, y = wine
    metric = as_metric(LinearDiscriminantAnalysis().fit(X, y))
    nearfar.save(metric, tmp_path / "lda.nearfar")
    twin = nearfar.load(tmp_path / "lda.nearfar")
    np.testing.assert_array_equal(twin.transform(X), metric.transform(X))
    assert twin.status_ == "converged"
    model = NearestNeighborClassifier(metric).fit(X[::2], y[::2])
    assert model.metric_ is metric
    assert model.score(X[1::2], y[1::2]) > 0.95


# -- a map that is given -------------------------------------------------------------------------


def test_the_identity_is_the_euclidean_distance(wine):
    X, _ = wine
    metric = LinearMetric().fit(X)
    np.testing.assert_array_equal(metric.components_, np.eye(13))
    np.testing.assert_allclose(pdist(metric.transform(X)), pdist(X))
    assert (metric.objective_, metric.duality_gap_, metric.history_) == (None, None, [])


@pytest.mark.parametrize("shape", [(2, 13), (13, 13), (20, 13)])
def test_a_given_map_keeps_its_distances(wine, rng, shape):
    X, _ = wine
    L = rng.normal(size=shape)
    metric = LinearMetric(L).fit(X)
    np.testing.assert_allclose(metric.get_mahalanobis_matrix(), L.T @ L, atol=1e-9)
    assert metric.components_.shape == (min(shape), 13)
    np.testing.assert_array_equal(metric.components, L)


def test_a_map_of_less_rank_has_fewer_rows(wine, rng):
    X, _ = wine
    L = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 13))
    assert LinearMetric(L).fit(X).components_.shape == (2, 13)
    assert LinearMetric(np.eye(13)[[0, 0]] * [[1], [0]]).fit(X).components_.shape == (1, 13)


@pytest.mark.parametrize(
    ("components", "message"),
    [
        (np.eye(4), r"the map of components must have shape \(rows, 13\).*it has shape \(4, 4\)"),
        (np.ones(13), r"it has shape \(13,\)"),
        ([["a"] * 13], "holds <U1"),
        (np.zeros((2, 13)), "must be finite and not zero"),
        (np.full((2, 13), np.nan), "must be finite and not zero"),
    ],
)
def test_bad_maps(wine, components, message):
    X, _ = wine
    with pytest.raises(InvalidInputError, match=message):
        LinearMetric(components).fit(X)


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors(wine, rng, device, torch):
    X, _ = wine
    L = rng.normal(size=(3, 13))
    points = torch.tensor(X, dtype=torch.float32, device=device)
    metric = LinearMetric(torch.tensor(L, device=device)).fit(points)
    assert metric.components_.dtype == metric.transform(points).dtype == torch.float32
    assert metric.transform(points).device.type == device
    np.testing.assert_allclose(
        pdist(metric.transform(points).cpu()), pdist(X @ L.T), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_distances_in_float32_whose_squares_are_out_of_its_range(scale, rng):
    points = (scale * rng.normal(size=(20, 3))).astype(np.float32)
    model, rows = LinearMetric(np.eye(3)).fit(points), rng.integers(0, 20, (15, 2))
    exact = points.astype(np.float64)
    expected = np.linalg.norm(exact[rows[:, 0]] - exact[rows[:, 1]], axis=1)
    for pairs in (points[rows], Tuples(points, rows)):
        found = model.pair_distance(pairs)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-6)
