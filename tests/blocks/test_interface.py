"""Dask arrays and tables in estimators: who takes them, and what nobody computes unasked."""

import importlib

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import nearfar
from nearfar import RCA, Covariance, LinearMetric
from nearfar.errors import InvalidInputError
from nearfar.registry import ENTRIES, entries
from tests.blocks.arrays import untouchable

ABLE = {entry.name for entry in entries(blocks=True)}


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if not entry.blocks], ids=lambda entry: entry.name
)
def test_who_cannot_use_dask_says_who_can_and_computes_nothing(entry):
    model = getattr(importlib.import_module(entry.module), entry.name)()
    with pytest.raises(InvalidInputError, match="Dask") as caught:
        model.fit(untouchable(), np.arange(40) % 2)
    message = str(caught.value)
    assert "computed" in message or "compute()" in message
    if "in memory" not in message:
        assert set(message.replace(",", "").split()) >= ABLE


def test_a_learner_from_a_stream_says_so():
    with pytest.raises(InvalidInputError, match=r"POLA does not learn from Dask arrays.*stream"):
        nearfar.POLA().fit(untouchable(), np.arange(40) % 2)


@pytest.mark.parametrize("method", ["transform", "map_queries", "document_offsets"])
def test_results_of_a_linear_metric_stay_lazy(rng, method):
    X = rng.normal(size=(50, 3)).astype(np.float32)
    model = Covariance(n_components=2).fit(X)
    lazy = getattr(model, method)(untouchable())
    assert isinstance(lazy, da.Array)
    found = getattr(model, method)(da.from_array(X, chunks=(20, 2)))
    expected = getattr(model, method)(X)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.compute(), expected, rtol=1e-5, atol=1e-6)


def test_names_of_a_table_are_kept_and_checked(rng):
    table = pd.DataFrame(rng.normal(size=(30, 3)), columns=["a", "b", "c"])
    lazy = dd.from_pandas(table, npartitions=4)
    model = Covariance().fit(lazy)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.components_, Covariance().fit(table).components_)
    images = model.transform(lazy)
    assert isinstance(images, da.Array)
    np.testing.assert_allclose(images.compute(), model.transform(table), atol=1e-12)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(lazy[["b", "a", "c"]])


def test_the_number_of_features_is_checked_before_anything_is_computed(rng):
    model = Covariance().fit(rng.normal(size=(20, 4)))
    with pytest.raises(ValueError, match="X has 3 features, but Covariance is expecting 4"):
        model.transform(untouchable())


def test_a_map_that_is_given_needs_no_rows():
    assert LinearMetric().fit(untouchable()).components_.shape == (3, 3)


@pytest.mark.parametrize("estimator", [RCA(), Covariance()])
def test_text_and_wrong_axes_are_refused(estimator):
    with pytest.raises(InvalidInputError, match="X must hold numbers"):
        estimator.fit(da.from_array(np.array([["a", "b"]] * 4)), np.zeros(4))
    with pytest.raises(InvalidInputError, match="with 2 axes"):
        estimator.fit(da.zeros(5), np.zeros(5))


def test_nan_in_a_block_of_lazy_rows_is_told_when_it_is_computed(rng):
    X = rng.normal(size=(20, 2))
    model = Covariance().fit(X)
    X[13, 1] = np.nan
    lazy = model.transform(da.from_array(X, chunks=(5, 2)))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        lazy.compute()
