"""Unfoldings of Dask arrays: the graph comes from the blocks, and the fit is the one in memory."""

import importlib
import os
import pickle
import signal
from contextlib import nullcontext

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_swiss_roll

import nearfar
from nearfar import MVU, LandmarkMVU, NeighborhoodGraph, SensorLocalization, VariationalMVU
from nearfar.blocks import Blocks, LazyRows
from nearfar.errors import (
    DataWarning,
    DisconnectedGraphError,
    InvalidInputError,
    MemoryLimitError,
)
from nearfar.registry import entries
from tests.blocks.arrays import untouchable

MODELS = [
    VariationalMVU(n_neighbors=6, n_eigenvectors=6, random_state=0),
    VariationalMVU(n_neighbors=6, n_eigenvectors=6, basis="lle", refine=False, random_state=0),
    LandmarkMVU(n_neighbors=6, n_landmarks=8, random_state=0),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 100)


@pytest.fixture(scope="module")
def roll():
    """A roll with copies of some points, and new points, of which the first are old ones."""
    X, _ = make_swiss_roll(420, random_state=0)
    X[300:310] = X[:10]
    return X, np.vstack([X[5:8], make_swiss_roll(40, random_state=1)[0]])


def lazy(X, size=130):
    return da.from_array(X, chunks=(size, 2))


def copy_of(model, **more):
    return type(model)(**(model.get_params() | more))


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_fit_is_the_one_in_memory(roll, model, dtype):
    X = roll[0].astype(dtype)
    expected = copy_of(model).fit(X)
    found = copy_of(model).fit(lazy(X))
    np.testing.assert_array_equal(found.graph_.lengths, expected.graph_.lengths)
    np.testing.assert_allclose(
        found.embedding_, expected.embedding_, atol=1e-9 if dtype == np.float64 else 1e-4
    )
    assert found.embedding_.dtype == dtype
    assert isinstance(found.X_fit_, da.Array)
    assert found.n_features_in_ == 3
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-7)
    assert found.duality_gap_ == pytest.approx(expected.duality_gap_, rel=1e-6)


@pytest.fixture(scope="module")
def expected(roll):
    """The embedding found by threads, without a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearfar.blocks.rows.BLOCK_ROWS", 100)
        return copy_of(MODELS[2], refine=False).fit(lazy(roll[0])).embedding_


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(client_of, roll, expected, count):
    with client_of(count):
        model = copy_of(MODELS[2], refine=False).fit(lazy(roll[0], 60 * count))
    np.testing.assert_array_equal(model.embedding_, expected)


def test_a_killed_worker_changes_nothing(client_to_lose, roll, expected, monkeypatch):
    """One of two, after the graph was made and before the weights of landmarks are."""
    before, linked = set(client_to_lose.run(os.getpid).values()), NeighborhoodGraph.linked

    def killing(self, *args, **options):
        os.kill(min(before), signal.SIGKILL)
        return linked(self, *args, **options)

    monkeypatch.setattr(NeighborhoodGraph, "linked", killing)
    model = copy_of(MODELS[2], refine=False).fit(lazy(roll[0]))
    np.testing.assert_array_equal(model.embedding_, expected)
    client_to_lose.wait_for_workers(2)
    assert set(client_to_lose.run(os.getpid).values()) != before


@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]], ids=repr)
def test_components(roll, model):
    X = roll[0].copy()
    X[:, 1] += 100 * (X[:, 1] // 7.1)
    for on_disconnected, told in (
        ("link", pytest.warns(DataWarning, match="3 components.*linked them by 2 edges")),
        ("separate", nullcontext()),
    ):
        options = {"on_disconnected": on_disconnected, "refine": False}
        with told:
            expected, found = (copy_of(model, **options).fit(rows) for rows in (X, lazy(X)))
        np.testing.assert_allclose(found.embedding_, expected.embedding_, atol=1e-7)
        new = X[:40] + 0.01
        np.testing.assert_allclose(found.transform(new), expected.transform(new), atol=1e-6)
    with pytest.raises(DisconnectedGraphError, match="needs a connected neighbourhood graph"):
        copy_of(model, on_disconnected="error").fit(lazy(X))


@pytest.mark.parametrize("method", [None, "sdp+cg", "sdp+patch", "lle"])
def test_new_points_are_placed_as_in_memory(roll, method):
    X, new = roll
    expected = copy_of(MODELS[1]).fit(X)
    found = copy_of(MODELS[1]).fit(lazy(X))
    found.embedding_ = expected.embedding_  # which differs by rounding
    places = expected.transform(new, method=method)
    for given in (new, lazy(new, 20)):  # at once, since the rows of the fit are lazy
        np.testing.assert_allclose(found.transform(given, method=method), places, atol=1e-9)
    np.testing.assert_array_equal(found.transform(X[:9]), found.embedding_[:9])
    stays = expected.transform(lazy(new, 20), method=method)
    assert isinstance(stays, da.Array)
    np.testing.assert_allclose(stays.compute(), places, atol=1e-9)


UNFOLDINGS = [
    entry
    for kind in ("unfolding", "scaling")
    for entry in entries(kind=kind)
    if entry.name not in ("MetricMDS", "NonmetricMDS")  # place no new points
]


@pytest.mark.parametrize("entry", UNFOLDINGS, ids=lambda entry: entry.name)
def test_places_of_new_points_stay_lazy_for_every_unfolding(entry, rng):
    X = rng.normal(size=(40, 2))
    D = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    of_distances = entry.learns_from == "distances"
    model = getattr(importlib.import_module(entry.module), entry.name)()
    if of_distances and "metric" in model.get_params() and entry.kind == "scaling":
        model.set_params(metric="precomputed")
    model.fit(D if of_distances else X)
    new = D[:15] if of_distances else X[:15] + 0.1
    places = model.transform(untouchable((40, new.shape[1])))
    assert isinstance(places, da.Array)
    assert places.shape == (40, 2)
    found = model.transform(da.from_array(new, chunks=(6, 2)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.compute(), model.transform(new), atol=1e-9)
    with pytest.raises(ValueError, match="features, but"):
        model.transform(untouchable((40, 7)))


def test_unknown_distances_of_new_sensors_may_be_lazy(rng):
    X = rng.normal(size=(40, 2))
    D = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    model = SensorLocalization().fit(D)
    new = D[:9].copy()
    new[:, ::3] = np.nan
    found = model.transform(da.from_array(new, chunks=(4, 40))).compute()
    np.testing.assert_allclose(found, model.transform(new), atol=1e-9)


def test_a_table_and_its_names():
    X, _ = make_swiss_roll(150, random_state=0)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LandmarkMVU(refine=False, random_state=0).fit(dd.from_pandas(table, npartitions=3))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(table[["b", "a", "c"]])
    np.testing.assert_array_equal(model.transform(table), model.embedding_)
    expected = LandmarkMVU(refine=False, random_state=0).fit(table)
    lazily = expected.transform(dd.from_pandas(table + 0.1, npartitions=3))
    np.testing.assert_allclose(lazily.compute(), expected.transform(table + 0.1), atol=1e-9)


def test_a_graph_of_blocks_is_unfolded_and_its_parts_are(roll):
    X = roll[0].copy()
    X[:200] += 100
    graph = NeighborhoodGraph.from_points(lazy(X), 6)
    rows, part = graph.separated()[0]
    expected = NeighborhoodGraph.from_points(X, 6).separated()[0][1]
    model = copy_of(MODELS[2]).fit(part)
    np.testing.assert_allclose(
        model.embedding_, copy_of(MODELS[2]).fit(expected).embedding_, atol=1e-9
    )
    np.testing.assert_array_equal(model.transform(X[rows[:4]]), model.embedding_[:4])
    with pytest.raises(InvalidInputError, match="MVU does not learn from Dask arrays"):
        MVU().fit(graph)


@pytest.mark.parametrize("cls", [VariationalMVU, LandmarkMVU])
def test_what_cannot_be_is_refused_before_anything_is_computed(cls):
    X = untouchable((4000, 3))
    with pytest.raises(InvalidInputError, match="metric='precomputed' needs an array in memory"):
        cls(metric="precomputed").fit(untouchable((40, 40)))
    with pytest.raises(InvalidInputError, match="metric='kernel' needs an array in memory"):
        cls(metric="kernel").fit(untouchable((40, 40)))
    with pytest.raises(InvalidInputError, match="n_neighbors=4000 needs at least 4001 points"):
        cls(n_neighbors=4000).fit(X)
    with pytest.raises(MemoryLimitError, match=r"above the limit of 0\.005 GB.*memory_limit"):
        cls(memory_limit=0.005).fit(X)


def test_a_pickle_keeps_the_recipe_of_the_rows_and_a_model_file_keeps_none(roll, tmp_path):
    X, new = roll
    model = copy_of(MODELS[1]).fit(lazy(X))
    places = model.transform(new)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(new), places)
    with pytest.warns(DataWarning, match="which a model file does not hold"):
        nearfar.save(model, tmp_path / "model.nearfar")
    loaded = nearfar.load(tmp_path / "model.nearfar")
    np.testing.assert_array_equal(loaded.embedding_, model.embedding_)
    assert loaded.graph_.points is None
    for given in (new, untouchable()):
        with pytest.raises(InvalidInputError, match="Set X_fit_ of the model to that array"):
            loaded.transform(given)
    for kept in (lazy(X), X):
        loaded.X_fit_ = kept
        np.testing.assert_allclose(loaded.transform(new), places, atol=1e-9)


def test_rows_are_not_gathered_on_this_machine(roll, monkeypatch):
    """One measures the spread, of the graph and of its links, and a link is found from two."""
    X, taken, take = roll[0].copy(), [], Blocks.take
    X[:150] += 100
    monkeypatch.setattr(
        Blocks, "take", lambda self, rows: taken.append(len(rows)) or take(self, rows)
    )
    monkeypatch.setattr(LazyRows, "on_this_machine", None)
    with pytest.warns(DataWarning, match="linked them by 1 edge"):
        LandmarkMVU(n_landmarks=8, refine=False, random_state=0).fit(lazy(X))
    assert taken == [1, 1, 1, 1]
