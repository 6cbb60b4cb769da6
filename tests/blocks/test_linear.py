"""RCA and the covariance of Dask arrays: the in-memory answer, whatever the chunks and workers."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA, FastICA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler

from nearfar import RCA, Covariance, as_metric, make_chunklets
from nearfar.errors import DataWarning, InvalidInputError


def assert_alike(lazy, model, rtol=1e-9):
    scale = np.abs(model.components_).max()
    np.testing.assert_allclose(lazy.components_, model.components_, atol=rtol * scale)
    assert lazy.objective_ == pytest.approx(model.objective_, rel=rtol, abs=rtol)
    assert lazy.duality_gap_ < 1e-9
    assert isinstance(lazy.components_, np.ndarray)
    assert lazy.components_.dtype == model.components_.dtype


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shrinkage": 0},
        {"shrinkage": 0, "n_components": 2},
        {"n_components": 3},
        {"pca_components": 5, "shrinkage": 0.1},
        {"pca_components": 0.9},
        {"class_weight": "balanced"},
    ],
    ids=str,
)
def test_rca_of_blocks_is_rca_of_all_rows(wine, options):
    X, y = wine
    rows = np.random.default_rng(0).permutation(len(X))
    X, y = X[rows], y[rows]
    model = RCA(**options).fit(X, y)
    lazy = RCA(**options).fit(da.from_array(X, chunks=(37, 5)), da.from_array(y, chunks=50))
    assert_alike(lazy, model)
    assert lazy.shrinkage_ == model.shrinkage_
    assert lazy.n_chunklets_ == model.n_chunklets_ == 3


def test_chunklets_that_lie_in_one_block_and_in_several(monkeypatch, rng):
    monkeypatch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 16)
    X = rng.normal(size=(200, 4)) * [1, 10, 0.1, 1] + 100
    y = make_chunklets(np.repeat([0, 1], 100), random_state=0)
    y[:30] = np.repeat(1000 + np.arange(15), 2)  # neighbours in a block
    y[30:40] = -1
    model, lazy = RCA().fit(X, y), RCA().fit(da.from_array(X, chunks=(23, 4)), y)
    assert lazy.n_chunklets_ == model.n_chunklets_
    assert_alike(lazy, model)


def test_weights_are_those_of_repeated_rows(wine):
    X, y = wine
    w = np.arange(len(y)) % 3
    model = RCA(shrinkage=0.1).fit(X, y, sample_weight=w)
    lazy = RCA(shrinkage=0.1).fit(
        da.from_array(X, chunks=(50, 13)), y, sample_weight=da.from_array(w, chunks=70)
    )
    assert_alike(lazy, model)


def test_float32_rows_give_a_float32_map(wine):
    X, y = wine[0].astype(np.float32), wine[1]
    assert_alike(RCA().fit(da.from_array(X, chunks=60), y), RCA().fit(X, y), rtol=1e-6)
    assert_alike(Covariance().fit(da.from_array(X, chunks=60)), Covariance().fit(X), rtol=1e-6)


@pytest.mark.parametrize("text", [False, True])
def test_a_table_with_unknown_sizes_and_a_column_of_labels(iris, text):
    X, y = iris
    labels = np.array(["a", "b", "c"])[y] if text else y
    table = pd.DataFrame(X, columns=list("abcd")).assign(label=labels)
    lazy = dd.from_pandas(table, npartitions=3)
    lazy = lazy[lazy["a"] > -1e9]  # so that the numbers of rows are not known
    found = RCA().fit(lazy[list("abcd")], lazy["label"])
    assert_alike(found, RCA().fit(table[list("abcd")], labels))
    assert found.feature_names_in_.tolist() == list("abcd")


def test_any_workers_and_chunks_give_the_same_bits(client, monkeypatch, rng):
    monkeypatch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 64)
    X, y = rng.normal(size=(1000, 6)), rng.integers(0, 4, 1000)
    first, second = client.scheduler_info()["workers"]
    found = []
    for chunks, workers in ((100, [first, second]), (333, [first]), (1000, [second])):
        others = [w for w in (first, second) if w not in workers]
        with dask.annotate(workers=workers, allow_other_workers=not others):
            lazy = da.from_array(X, chunks=chunks)
            found.append(RCA(n_components=3).fit(lazy, y).components_)
            found.append(Covariance().fit(lazy).components_)
    for other in (2, 4):
        np.testing.assert_array_equal(found[0], found[other])
        np.testing.assert_array_equal(found[1], found[other + 1])


def test_what_is_wrong_is_told_as_for_rows_in_memory(rng):
    X = da.from_array(rng.normal(size=(40, 3)), chunks=(10, 3))
    with pytest.raises(InvalidInputError, match="requires y to be passed"):
        RCA().fit(X)
    with pytest.raises(InvalidInputError, match="y must have a value for each of the 40 rows"):
        RCA().fit(X, np.zeros(39))
    with pytest.raises(InvalidInputError, match="needs a chunklet of two or more points; got 40"):
        RCA().fit(X, np.arange(40))
    with pytest.raises(InvalidInputError, match="no value in row 25"):
        RCA().fit(X, np.where(np.arange(40) == 25, np.nan, 0.0))
    with pytest.raises(InvalidInputError, match="all n_samples=40 are equal"):
        Covariance().fit(da.ones((40, 3), chunks=(10, 3)))
    with pytest.raises(InvalidInputError, match="those of every chunklet are equal"):
        RCA().fit(da.ones((40, 3), chunks=(10, 3)), np.zeros(40))
    bad = X.map_blocks(lambda block: np.where(block == block[0, 0], np.nan, block))
    with pytest.raises(InvalidInputError, match="row 0 has NaN"):
        RCA().fit(bad, np.zeros(40))
    with pytest.raises(InvalidInputError, match="leave the range of float64"):
        Covariance().fit(X * 1e200)


def test_a_dead_feature_gets_no_weight(rng):
    X = rng.normal(size=(60, 3)) * [1, 1, 1e-14]
    with pytest.warns(DataWarning, match="columns 2"):
        model = RCA(shrinkage=0.1).fit(da.from_array(X, chunks=20), np.arange(60) % 3)
    assert not model.components_[:, 2].any()


@pytest.mark.parametrize(
    "transformer",
    [
        StandardScaler(),
        PCA(3),
        PCA(0.9, whiten=True),
        PCA(),
        LinearDiscriminantAnalysis(),
        LinearDiscriminantAnalysis(n_components=1),
        LinearDiscriminantAnalysis(solver="eigen"),
    ],
    ids=str,
)
def test_transformers_of_scikit_learn_become_metrics_of_all_rows(wine, transformer):
    X, y = wine
    lazy = as_metric(transformer, da.from_array(X, chunks=(50, 4)), da.from_array(y, chunks=60))
    expected = as_metric(transformer, X, y)
    pairs = np.stack([X[:-1], X[1:]], axis=1)
    found, wanted = lazy.pair_distance(pairs), expected.pair_distance(pairs)
    unit = 1.0
    if "Discriminant" in str(transformer):  # whose unit differs between versions
        unit = wanted[0] / found[0]
        assert unit == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(unit * found, wanted, rtol=1e-6)
    assert lazy.components_.shape == expected.components_.shape


def test_a_transformer_whose_map_does_not_follow_from_scatters_is_refused(rng):
    X = da.from_array(rng.normal(size=(20, 3)), chunks=(5, 3))
    with pytest.raises(InvalidInputError, match=r"StandardScaler, PCA and LinearDisc.* FastICA"):
        as_metric(FastICA(), X)
    with pytest.raises(InvalidInputError, match="needs shrinkage to be None; got 'auto'"):
        as_metric(LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"), X, np.zeros(20))
    with pytest.raises(InvalidInputError, match="needs n_components to be None; got 'mle'"):
        as_metric(PCA("mle"), X)
    with pytest.raises(InvalidInputError, match="needs at least two classes; y has 1"):
        as_metric(LinearDiscriminantAnalysis(), X, np.zeros(20))
