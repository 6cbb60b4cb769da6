"""MMC and DMLEig of pairs in shards: the answer in memory, on any number of workers."""

import os
import signal

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import MMC, DMLEig, Tuples, verify
from nearfar.blocks import rows
from nearfar.errors import DataWarning, InvalidInputError
from nearfar.problems import near_pairs_blocks
from tests.blocks.arrays import untouchable
from tests.callbacks import Recorder, needs_callbacks

da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks are laid out by the client alone, so that workers need not know of it."""
    monkeypatch.setattr(rows, "BLOCK_ROWS", 40)


def classes():
    return np.random.default_rng(2).integers(3, size=200)


@pytest.fixture(scope="module")
def data():
    """Rows in other units, and near and far pairs of some of them, in no order."""
    rng, y = np.random.default_rng(5), classes()
    X = rng.normal(size=(200, 5)) * [1, 2, 3, 1, 9] + 5
    X[:, 0] += 2 * y
    X[:, 1] -= 3 * (y == 1)
    edges = rng.integers(0, 150, size=(400, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    return X, edges, np.where(y[edges[:, 0]] == y[edges[:, 1]], 1, -1)


@pytest.fixture(scope="module")
def in_other_units(data):
    """The same, where shrinkage="auto" scales features, and a feature does not vary."""
    X, edges, kinds = data
    return np.column_stack([X * [1, 1, 1, 1, 1e5], np.full(len(X), 7.0)]), edges, kinds


def lazy(X, edges, chunk=70):
    return Tuples(da.from_array(X, chunks=(chunk, 4)), edges)


LEARNERS = [
    MMC(),
    MMC(shrinkage=0),
    MMC(n_components=2, shrinkage=0.2),
    MMC(n_components=2, reduce="project"),
    MMC(diagonal=True),
    MMC(diagonal=True, shrinkage=0),
    MMC(init=np.diag([1.0, 2, 3, 4, 5])),
    DMLEig(),
    DMLEig(shrinkage=0),
    DMLEig(n_components=2),
    DMLEig(solver="lecture", max_iter=30, tol=0.9),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_the_answer_is_that_in_memory(data, dtype, learner):
    """`verify` recomputes objective and bound from the rows in float64, by other code."""
    X, edges, kinds = data[0].astype(dtype), *data[1:]
    named = np.unique(edges)
    model = clone(learner).fit(lazy(X, edges), kinds)
    peer = clone(learner).fit(Tuples(X[named], np.searchsorted(named, edges)), kinds)
    assert model.status_ == peer.status_ == "converged"
    assert model.shrinkage_ == peer.shrinkage_
    assert model.components_.dtype == dtype
    assert abs(model.objective_ - peer.objective_) <= learner.tol * peer.objective_
    if dtype is np.float64:
        assert model.objective_ == pytest.approx(peer.objective_, rel=1e-9)
    if learner.n_components is None:
        report = verify(model, Tuples(X, edges), kinds)
        assert report.proved
        assert model.duality_gap_ <= learner.tol
        assert report.objective == pytest.approx(model.objective_, rel=1e-7)
        assert report.gap == pytest.approx(model.duality_gap_, abs=1e-6)


@pytest.mark.parametrize("learner", [*LEARNERS[:6], LEARNERS[7], LEARNERS[9]], ids=repr)
def test_units_and_constant_features_are_dealt_with_as_in_memory(in_other_units, learner):
    X, edges, kinds = in_other_units
    model = clone(learner).fit(lazy(X, edges), kinds)
    peer = clone(learner).fit(Tuples(X, edges), kinds)
    assert model.shrinkage_ == peer.shrinkage_
    if learner.shrinkage == "auto":
        assert peer.feature_scale_ is not None
        np.testing.assert_array_equal(model.feature_scale_, peer.feature_scale_)
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-6)
    assert model.duality_gap_ == pytest.approx(peer.duality_gap_, abs=1e-6)


KINDS = [MMC, DMLEig]


@pytest.mark.parametrize("kind", KINDS)
def test_dense_pairs_give_the_same_bits_whatever_their_chunks(data, kind):
    X, edges, kinds = data
    pairs = X[edges]
    models = [
        kind().fit(da.from_array(pairs, chunks=chunks), da.from_array(kinds, chunks=90))
        for chunks in ((50, 2, 5), (170, 1, 3))
    ]
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    assert models[0].objective_ == models[1].objective_
    peer = kind().fit(pairs, kinds)
    assert models[0].n_features_in_ == 5
    assert models[0].shrinkage_ == peer.shrinkage_  # n counts each row once
    assert models[0].objective_ == pytest.approx(peer.objective_, rel=1e-9)
    assert verify(models[0], pairs, kinds).gap == pytest.approx(models[0].duality_gap_, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dense_array_whose_length_is_not_known(data, kind):
    X, edges, kinds = data
    pairs = da.from_array(X[edges], chunks=(50, 2, 5))
    some = da.from_array(kinds, chunks=50) != 0  # all of them, which Dask does not know
    assert np.isnan(pairs[some].shape[0])
    found = kind().fit(pairs[some], kinds)
    np.testing.assert_array_equal(found.components_, kind().fit(pairs, kinds).components_)


@pytest.mark.parametrize("kind", KINDS)
def test_triplets_are_near_and_far_pairs(data, kind):
    X, y = data[0], classes()
    triplets = np.random.default_rng(1).integers(len(X), size=(600, 3))
    a, b, c = y[triplets].T
    triplets = triplets[(triplets[:, 0] != triplets[:, 1]) & (a == b) & (a != c)]
    model = kind().fit(lazy(X, triplets))
    dense = kind().fit(da.from_array(X[triplets], chunks=(60, 3, 5)))
    peer = kind().fit(Tuples(X, triplets))
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-9)
    assert dense.objective_ == pytest.approx(peer.objective_, rel=1e-9)
    assert verify(model, Tuples(X, triplets)).gap <= 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_pairs_count(data, kind):
    X, edges, kinds = data
    w = np.random.default_rng(0).integers(4, size=len(edges)).astype(float)
    model = kind().fit(lazy(X, edges), kinds, sample_weight=da.from_array(w, chunks=99))
    peer = kind().fit(Tuples(X, edges), kinds, sample_weight=w)
    dense = kind().fit(da.from_array(X[edges], chunks=(60, 2, 5)), kinds, sample_weight=w)
    again = kind().fit(
        Tuples(X, np.repeat(edges, w.astype(int), axis=0)), np.repeat(kinds, w.astype(int))
    )
    for found in (peer, dense):
        assert model.objective_ == pytest.approx(found.objective_, rel=1e-9)
    assert model.objective_ == pytest.approx(again.objective_, rel=1e-3)
    report = verify(model, Tuples(X, edges), kinds)
    assert report.objective == pytest.approx(model.objective_, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_labelled_rows_are_drawn_as_in_memory(wine, kind):
    X, y = wine
    w = 1.0 + np.arange(len(y)) % 3
    settings = {"n_pairs": 200, "random_state": 0, "class_weight": {1: 2.0}}
    found = kind(**settings).fit(da.from_array(X, chunks=50), da.from_array(y, chunks=60), w)
    expected = kind(**settings).fit(X, y, w)
    for name in ("near", "far"):
        np.testing.assert_array_equal(found.proof_[name], expected.proof_[name])
    assert found.objective_ == pytest.approx(expected.objective_, rel=0.05)  # of the rows named
    assert verify(found, X, y).proved


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_pairs_are_refused_or_warned_of_as_in_memory(data, kind):
    X, edges, kinds = data
    rows_of = da.from_array(X, chunks=50)
    with pytest.raises(InvalidInputError, match="near and far pairs are both needed"):
        kind().fit(Tuples(rows_of, edges), np.ones(len(edges)))
    with pytest.raises(InvalidInputError, match=r"y must be \+1 .* y\[3\] is 5"):
        kind().fit(Tuples(rows_of, edges), np.where(np.arange(len(edges)) == 3, 5, kinds))
    with pytest.raises(InvalidInputError, match=r"got \(10, 4, 3\)"):
        kind().fit(untouchable((10, 12)).reshape(10, 4, 3))
    copies = np.vstack([X, X[:1]])
    twice, said = np.vstack([edges, [[0, len(X)]]]), np.append(kinds, -1)
    with pytest.warns(DataWarning, match=f"left out.*: pair {len(edges)} "):
        model = kind().fit(lazy(copies, twice), said)
    np.testing.assert_allclose(model.components_, kind().fit(lazy(X, edges), kinds).components_)
    X = X.copy()
    X[edges[0, 0], 2] = np.inf
    with pytest.raises(InvalidInputError, match=f"row {edges[0, 0]} does"):
        kind().fit(lazy(X, edges), kinds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [{"n_components": 9}, {"shrinkage": 2}, {"tol": -1}])
def test_wrong_parameters_are_refused_before_a_block_is_computed(kind, wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        kind(**wrong).fit(Tuples(untouchable(), [[0, 1], [1, 2]]), [1, -1])


@pytest.mark.parametrize("learner", LEARNERS[:6:4], ids=repr)
def test_an_unbounded_problem_is_refused(data, learner):
    """Near pairs agree in a feature in which two far pairs differ."""
    X, edges, kinds = data
    X = X.copy()
    X[:, 4] = 0
    X[edges[kinds < 0][7, 0], 4] = 1
    kept = (kinds < 0) | (X[edges, 4] == 0).all(1)
    edges, kinds = edges[kept], kinds[kept]
    far = np.ptp(X[edges[kinds < 0], 4], axis=1) > 0
    learner = clone(learner).set_params(shrinkage=0)
    with pytest.raises(InvalidInputError, match=f"{far.sum()} of {(kinds < 0).sum()} far") as found:
        learner.fit(lazy(X, edges), kinds)
    np.testing.assert_array_equal(found.value.indices, np.flatnonzero(far))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_span_fewer_directions_than_features(data, kind):
    """Rounding errors of sums over shards are no directions."""
    X, edges, kinds = data
    X = X @ np.random.default_rng(0).normal(size=(5, 8))
    model = kind(shrinkage=1e-4).fit(lazy(X, edges), kinds)
    peer = kind(shrinkage=1e-4).fit(Tuples(X, edges), kinds)
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-6)
    model, peer = (
        MMC(shrinkage=0).fit(lazy(X, edges), kinds),
        MMC(shrinkage=0).fit(Tuples(X, edges), kinds),
    )
    assert model.components_.shape == (5, 8)
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-6)


def test_a_warning_says_where_hardly_anything_limits_the_metric(in_other_units):
    X, edges, kinds = in_other_units
    said = "near pairs hardly differ in 4 of 5 directions, along which 253 of 253 far pairs"
    with pytest.warns(DataWarning, match=said):
        peer = DMLEig(shrinkage=0).fit(Tuples(X, edges), kinds)
    with pytest.warns(DataWarning, match=said):
        model = DMLEig(shrinkage=0).fit(lazy(X, edges), kinds)
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-6)


def test_far_pairs_whose_squares_are_lost_are_refused():
    """One of two, next to a near pair that is longer by 200 powers of ten."""
    X = np.array([[0.0], [1e100], [0.0], [1e-100], [5.0]])
    pairs = Tuples(da.from_array(X, chunks=2), [[0, 1], [2, 3], [0, 4]])
    with pytest.raises(InvalidInputError, match=r"of 1 of 2 far pairs.* range of float64"):
        DMLEig(shrinkage=0.5).fit(pairs, [1, -1, -1])


def test_a_triangular_factor_of_all_near_pairs_comes_from_those_of_shards(data, monkeypatch):
    """Of more shards than are stacked at a time."""
    monkeypatch.setattr(near_pairs_blocks, "FAN_IN", 2)
    X, edges, _ = data
    blocks = rows.Blocks.of(da.from_array(X, chunks=50))
    near = near_pairs_blocks.differences(blocks, *edges.T, np.full(len(edges), 3.0))
    assert len(near) == rows.BLOCKS
    x = X[edges[:, 0]] - X[edges[:, 1]]
    np.testing.assert_array_equal(near.take(np.arange(len(edges))), 3 * x)
    shards = near_pairs_blocks.PairBlocks(near, near, [None] * 4, 1.0, x[0] > 0, x[0], x.dtype)
    factor = shards.near_rows()
    assert factor.shape == (5, 5)
    np.testing.assert_allclose(factor.T @ factor, 9 * x.T @ x, rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_compute_by_torch(data, torch, kind, monkeypatch):
    X, edges, kinds = data
    seen, differences = set(), near_pairs_blocks._differences

    def watched(*args):
        found = differences(*args)
        seen.add(type(found))
        return found

    monkeypatch.setattr(near_pairs_blocks, "_differences", watched)
    blocks = da.from_array(X, chunks=(70, 5)).map_blocks(torch.from_numpy, meta=np.empty((0, 0)))
    model = kind().fit(Tuples(blocks, edges), kinds)
    assert seen == {torch.Tensor}
    assert isinstance(model.components_, np.ndarray)
    peer = kind().fit(Tuples(X, edges), kinds)
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-9)


# -- on a cluster ----------------------------------------------------------------------------------


SHORT = {MMC: MMC(tol=1e-5), DMLEig: DMLEig(tol=1e-6)}


@pytest.fixture(scope="module")
def expected(data):
    """What threads of this machine find, in the blocks of these tests."""
    X, edges, kinds = data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_ROWS", 40)
        return {kind: clone(SHORT[kind]).fit(lazy(X, edges), kinds) for kind in SHORT}


@pytest.mark.parametrize("count", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_any_number_of_workers_gives_the_same_bits(client_of, data, expected, count):
    X, edges, kinds = data
    with client_of(count):
        models = {
            kind: clone(model).fit(lazy(X, edges, 30 * count), kinds)
            for kind, model in SHORT.items()
        }
    for kind, model in models.items():
        np.testing.assert_array_equal(model.components_, expected[kind].components_)
        assert model.objective_ == expected[kind].objective_
        assert model.duality_gap_ == expected[kind].duality_gap_


@needs_callbacks
@pytest.mark.parametrize("kind", list(SHORT))
def test_a_killed_worker_changes_nothing(client_to_lose, data, expected, kind):
    """Its shards are made again, from rows that were freed: the same bits."""
    X, edges, kinds = data
    before = set(client_to_lose.run(os.getpid).values())
    callback = Recorder(2, lambda: os.kill(min(before), signal.SIGKILL))
    model = clone(SHORT[kind]).set_callbacks(callback).fit(lazy(X, edges), kinds)
    assert len(callback.records) > 2
    np.testing.assert_array_equal(model.components_, expected[kind].components_)
    client_to_lose.wait_for_workers(2)
    assert set(client_to_lose.run(os.getpid).values()) != before


METRIC, WORKING_PAIR = 8 * 5 * 5, 8 * 7  # bytes; a pair with its length and number


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("learner", "most"),
    [(MMC(shrinkage=0), 2 * METRIC + 50), (DMLEig(shrinkage=0), 36 * WORKING_PAIR)],
    ids=["MMC", "DMLEig"],
)
def test_no_large_result_comes_to_this_machine(data, monkeypatch, learner, most):
    """Beside digests of rows a task of MMC returns two metrics, and one of DMLEig few pairs."""
    from nearfar.blocks.engine import Cluster, bytes_in

    X, edges, kinds = data
    largest, results = [0], Cluster.results

    def watched(self, tasks):
        found = results(self, tasks)
        names = {str(task.key).rpartition("-")[0] for task in tasks}
        if names != {"equal_rows"}:
            largest.append(max(map(bytes_in, found)))
        return found

    monkeypatch.setattr(Cluster, "results", watched)
    clone(learner).fit(lazy(X, edges), kinds)
    assert 0 < max(largest) <= most


def test_the_dashboard_shows_named_tasks(client, data):
    X, edges, kinds = data

    def names_of(dask_scheduler):
        return {str(event[0]).rpartition("-")[0] for event in dask_scheduler.transition_log}

    MMC().fit(lazy(X, edges), kinds)
    names = client.run_on_scheduler(names_of)
    assert {"differences", "shard", "place", "gradient", "line_search", "objective"} <= names
