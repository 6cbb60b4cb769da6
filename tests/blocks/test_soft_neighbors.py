"""MCML and NCA of Dask arrays: the answer in memory, on any number of workers, come what may."""

import os
import signal

import numpy as np
import pytest
from sklearn.base import clone

from nearfar import MCML, NCA, verify
from nearfar.blocks import rows
from nearfar.blocks.pairs import first_equal_rows, met_once
from nearfar.errors import ConvergenceWarning, DataWarning, InvalidInputError
from nearfar.problems.nca import nearest_squares
from nearfar.problems.nca_blocks import nearest_squares_of
from nearfar.problems.soft_neighbors_blocks import BlockRows
from tests.callbacks import Recorder, interrupt_at, needs_callbacks

da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks are laid out by the client alone, so that workers need not know of it."""
    monkeypatch.setattr(rows, "BLOCK_ROWS", 50)


@pytest.fixture(scope="module")
def data():
    """Three overlapping classes, in an order that has nothing to do with them: four blocks."""
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=200)
    X = rng.normal(size=(200, 5)) * [1, 2, 3, 1, 9]
    X[:, 0] += 2 * y
    X[:, 1] -= 3 * (y == 1)
    return X, y


def lazy(X, chunk=70):
    return da.from_array(X, chunks=(chunk, 4))


LEARNERS = [
    MCML(),
    MCML(shrinkage=0),
    MCML(n_components=2, reduce="learn", shrinkage=0.2),
    MCML(n_components=2),
    MCML(solver="projected-gradient"),
    NCA(),
    NCA(n_components=2),
    NCA(diagonal=True, shrinkage=0.3),
    NCA(init="lda", class_weight="balanced"),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_the_answer_is_that_in_memory(data, dtype, learner):
    """`verify` recomputes objective and bound from the data in float64, by other code."""
    X, y = data[0].astype(dtype), data[1]
    model = clone(learner).fit(lazy(X), da.from_array(y, chunks=110))
    peer = clone(learner).fit(X, y)
    assert model.status_ == peer.status_ == "converged"
    assert model.shrinkage_ == peer.shrinkage_
    assert abs(model.objective_ - peer.objective_) <= learner.tol * peer.objective_
    assert isinstance(model.components_, np.ndarray)
    assert model.components_.dtype == dtype
    report = verify(model, X, y)
    if learner.n_components is None or model.duality_gap_ is None:  # else that of the full metric
        rounded = dtype is np.float32 and getattr(model, "prior_components_", None) is not None
        assert report.objective == pytest.approx(model.objective_, rel=1e-7 if rounded else 1e-9)
    if isinstance(learner, MCML) and learner.n_components is None:
        assert model.duality_gap_ <= learner.tol
        assert report.gap == pytest.approx(model.duality_gap_, abs=1e-7)
        assert {name: np.shape(part) for name, part in model.proof_.items()} == {
            name: np.shape(part) for name, part in peer.proof_.items()
        }


@pytest.mark.parametrize("kind", [MCML, NCA])
def test_weights_of_rows_count(data, kind):
    X, y = data
    weights = np.random.default_rng(0).integers(4, size=len(X)).astype(float)
    model = kind(class_weight={1: 2.0}).fit(
        lazy(X), y, sample_weight=da.from_array(weights, chunks=99)
    )
    peer = kind(class_weight={1: 2.0}).fit(X, y, sample_weight=weights)
    assert abs(model.objective_ - peer.objective_) <= model.tol * peer.objective_
    report = verify(model, X, y)
    assert report.objective == pytest.approx(model.objective_, rel=1e-9)
    if kind is MCML:
        assert report.gap <= model.tol


def test_features_in_other_units_are_scaled_as_in_memory(data):
    X, y = data
    X = X * [1, 1, 1, 1, 1e4]
    model, peer = MCML().fit(lazy(X), y), MCML().fit(X, y)
    np.testing.assert_allclose(model.prior_components_, peer.prior_components_, rtol=1e-9)
    np.testing.assert_allclose(model.components_, peer.components_, rtol=1e-6, atol=1e-9)
    model, peer = (NCA(diagonal=True).fit(rows, y) for rows in (lazy(X), X))
    assert peer.feature_scale_ is not None
    np.testing.assert_array_equal(model.feature_scale_, peer.feature_scale_)


@pytest.mark.parametrize("kind", [MCML, NCA])
def test_far_outliers_are_no_trouble(data, kind):
    """A row whose soft neighbours are all below the smallest number of float32."""
    X, y = data[0].astype(np.float32), data[1]
    X[7] *= 100
    model, peer = kind(shrinkage=0.1).fit(lazy(X), y), kind(shrinkage=0.1).fit(X, y)
    assert np.isfinite(model.components_).all()
    assert abs(model.objective_ - peer.objective_) <= model.tol * peer.objective_


def test_equal_rows_in_several_blocks_are_found(data):
    X, y = data
    X, y = (
        np.vstack([X, X[:4], -0.0 * X[:1], 0 * X[:1]]),
        np.concatenate([y, (y[:4] + 1) % 3, [0, 1]]),
    )
    blocks = rows.Blocks.of(lazy(X))
    expected = [*range(200), 0, 1, 2, 3, 204, 204]
    np.testing.assert_array_equal(first_equal_rows(blocks), expected)
    with pytest.warns(DataWarning, match="5 pairs of equal points have different labels"):
        MCML(max_iter=2, tol=0.5).fit(lazy(X), y)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_nearest_that_differ_are_those_in_memory(data, weighted):
    """Copies of a row, in other blocks too, count as one neighbour, and not of themselves."""
    X, y = data
    X, y = np.vstack([X, X[:30], X[:30]]), np.concatenate([y, y[:30], y[:30]])
    order = np.argsort(y, kind="stable")
    starts = np.searchsorted(y[order], np.arange(4))
    masses = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else None
    blocks = rows.Blocks.of(lazy(X), order)
    assert len(blocks) > 3
    found = nearest_squares_of(BlockRows.of(blocks, X[0], starts, masses))
    assert found == pytest.approx(nearest_squares(X[order], starts, masses), rel=1e-12)


@pytest.mark.parametrize("kind", [MCML, NCA])
def test_data_without_variation(kind):
    X = da.from_array(np.ones((150, 3)), chunks=(40, 3))
    with pytest.warns(UserWarning, match="all points are equal"):
        model = kind().fit(X, np.arange(150) % 2)
    np.testing.assert_array_equal(model.components_, np.eye(3))
    with pytest.warns(UserWarning, match="all points are equal"):
        peer = kind().fit(np.ones((150, 3)), np.arange(150) % 2)
    assert model.objective_ == pytest.approx(peer.objective_)


@pytest.mark.parametrize("kind", [MCML, NCA])
def test_wrong_arguments_are_refused_before_a_block_is_computed(kind):
    def fail(_):
        raise AssertionError("a block was computed")

    X = da.zeros((40, 3), chunks=(10, 3)).map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
    y = np.arange(40) % 2
    with pytest.raises(InvalidInputError, match="n_components"):
        kind(n_components=4).fit(X, y)
    with pytest.raises(InvalidInputError, match="shrinkage"):
        kind(shrinkage=2).fit(X, y)
    with pytest.raises(InvalidInputError, match="X has 40 rows and y has 39"):
        kind().fit(X, y[1:])
    with pytest.raises(InvalidInputError, match="must have shape"):
        kind(init=np.eye(2)).fit(X, y)


def test_blocks_are_small_enough_for_many_workers():
    from nearfar.problems.soft_neighbors_blocks import ROWS

    starts = rows.block_starts((10**6, 3), np.float32, most_rows=ROWS)
    assert np.diff(starts).max() <= ROWS
    assert len(rows.block_starts((10**6, 3), np.float32)) < len(starts)


@pytest.mark.torch
@pytest.mark.parametrize("kind", [MCML, NCA])
def test_tensors_compute_by_torch(data, torch, kind, monkeypatch):
    from nearfar.kernels import soft_pairs

    X, y = data
    seen, exponents = set(), soft_pairs._exponents

    def watched(A, *more):
        seen.add(type(A))
        return exponents(A, *more)

    monkeypatch.setattr(soft_pairs, "_exponents", watched)
    blocks = lazy(X).rechunk({1: -1}).map_blocks(torch.from_numpy, meta=np.empty((0, 0)))
    model, peer = kind().fit(blocks, y), kind().fit(X, y)
    assert seen == {torch.Tensor}
    assert isinstance(model.components_, np.ndarray)
    assert abs(model.objective_ - peer.objective_) <= model.tol * peer.objective_
    assert verify(model, X, y).objective == pytest.approx(model.objective_, rel=1e-9)


def test_pairs_of_blocks_meet_once(data):
    for n in (100, 150, 200):
        blocks = rows.Blocks.of(lazy(data[0][:n]))
        met = [pair for pairs, _ in met_once(blocks, _nothing, name="meet") for pair in pairs]
        assert len(blocks) == n // 50
        assert len({frozenset(pair) for pair in met}) == len(met)
        assert len(met) == len(blocks) * (len(blocks) + 1) // 2


def _nothing(*_):
    return 0


# -- on a cluster ----------------------------------------------------------------------------------


SHORT = {MCML: MCML(tol=1e-2, shrinkage=0.1), NCA: NCA(tol=1e-2, init="identity")}


@pytest.fixture(scope="module")
def few(data):
    """Three blocks."""
    X, y = data
    return X[:150], y[:150]


@pytest.fixture(scope="module")
def expected(few):
    """The maps that threads of this machine find, in the blocks of these tests."""
    X, y = few
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_ROWS", 50)
        return {kind: clone(SHORT[kind]).fit(lazy(X), y).components_ for kind in SHORT}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(client_of, few, expected, count):
    X, y = few
    with client_of(count):
        models = [clone(model).fit(lazy(X, 40 * count), y) for model in SHORT.values()]
    for model in models:
        np.testing.assert_array_equal(model.components_, expected[type(model)])


@needs_callbacks
def test_a_killed_worker_changes_nothing(client_to_lose, few, expected):
    """Its blocks and its part of the sums are computed again: the same bits."""
    X, y = few
    before = set(client_to_lose.run(os.getpid).values())
    callback = Recorder(2, lambda: os.kill(min(before), signal.SIGKILL))
    model = clone(SHORT[MCML]).set_callbacks(callback).fit(lazy(X), y)
    assert len(callback.records) > 2
    np.testing.assert_array_equal(model.components_, expected[MCML])
    client_to_lose.wait_for_workers(2)
    assert set(client_to_lose.run(os.getpid).values()) != before


@needs_callbacks
def test_an_interruption_keeps_the_best_map_and_a_checkpoint_goes_on(
    client, few, expected, tmp_path
):
    X, y = few
    model = clone(SHORT[NCA]).set_params(checkpoint=tmp_path / "fit.npz")
    with pytest.warns(ConvergenceWarning, match="NCA was interrupted"):
        model.set_callbacks(interrupt_at(2)).fit(lazy(X), y)
    assert model.n_iter_ == 2
    assert verify(model, X, y).objective == pytest.approx(model.objective_)
    assert client.status == "running"
    resumed = model.set_callbacks().fit(lazy(X), y)
    assert resumed.n_iter_ > 2
    assert resumed.status_ == "converged"
    np.testing.assert_array_equal(resumed.components_, expected[NCA])


def test_the_dashboard_shows_named_tasks(client, few):
    """The scheduler remembers the last thousand steps of tasks."""
    X, y = few

    def names_of(dask_scheduler):
        return {str(event[0]).rpartition("-")[0] for event in dask_scheduler.transition_log}

    clone(SHORT[MCML]).fit(lazy(X), y)
    names = client.run_on_scheduler(names_of)
    assert {"send", "soft_neighbors", "totals", "gradient"} <= names
