"""LMNN of Dask arrays: the answer in memory, on any number of workers, whatever happens to them."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from nearfar import LMNN, verify
from nearfar.blocks import rows
from nearfar.blocks.engine import Threads
from nearfar.errors import ClusterError, ConvergenceWarning, InvalidInputError
from nearfar.problems import lmnn_shard_search
from nearfar.problems.lmnn_blocks import LMNNBlocks
from nearfar.solvers import checkpoint
from tests.callbacks import Recorder, interrupt_at, needs_callbacks

da = pytest.importorskip("dask.array")

TOL = 1e-2


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks are laid out by the client alone, so that workers need not know of it."""
    monkeypatch.setattr(rows, "BLOCK_ROWS", 100)


@pytest.fixture(scope="module")
def data():
    """Three overlapping classes, in an order that has nothing to do with them: three blocks."""
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=300)
    X = rng.normal(size=(300, 6)) * [1, 2, 3, 1, 1, 9]
    X[:, 0] += 2 * y
    X[:, 1] -= 3 * (y == 1)
    return X, y


def lazy(X, chunk=70):
    return da.from_array(X, chunks=(chunk, 4))


@pytest.fixture(scope="module")
def expected(data):
    """The map that threads of this machine find, in the blocks of these tests."""
    X, y = data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_ROWS", 100)
        return LMNN(tol=TOL).fit(lazy(X), y).components_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [{}, {"shrinkage": 0}, {"n_passes": 2, "n_neighbors": 1}, {"n_components": 2}],
    ids=lambda options: "-".join(options) or "default",
)
def test_the_answer_is_that_in_memory(data, dtype, options):
    """`verify` recomputes objective and bound from the data in float64, by other code."""
    X, y = data[0].astype(dtype), data[1]
    model = LMNN(tol=TOL, **options).fit(lazy(X), da.from_array(y, chunks=110))
    peer = LMNN(tol=TOL, **options).fit(X, y)
    assert model.status_ == peer.status_ == "converged"
    assert abs(model.objective_ - peer.objective_) <= TOL * peer.objective_
    np.testing.assert_array_equal(model.proof_["targets"], peer.proof_["targets"])
    assert isinstance(model.components_, np.ndarray)
    assert model.components_.dtype == dtype
    report = verify(model, X, y)
    assert report.objective == pytest.approx(model.objective_, rel=1e-6)
    if "n_components" not in options:
        assert model.duality_gap_ <= TOL
        assert report.gap <= TOL * (1 + 1e-6)


def test_weights_of_rows_count(data):
    X, y = data
    weights = np.random.default_rng(0).integers(4, size=len(X)).astype(float)
    model = LMNN(tol=TOL).fit(lazy(X), y, sample_weight=da.from_array(weights, chunks=99))
    peer = LMNN(tol=TOL).fit(X, y, sample_weight=weights)
    assert abs(model.objective_ - peer.objective_) <= TOL * peer.objective_
    assert verify(model, X, y).gap <= TOL * (1 + 1e-6)


def test_pairs_of_equal_rows_of_different_classes_are_counted(data):
    X, y = data
    X, y = np.vstack([X, X[:4]]), np.concatenate([y, (y[:4] + 1) % 3])
    with pytest.warns(UserWarning, match="4 pairs of equal points have different labels"):
        model = LMNN(tol=TOL).fit(lazy(X), y)
    assert verify(model, X, y).gap <= TOL * (1 + 1e-6)


@pytest.mark.parametrize("options", [{}, {"n_components": 2, "reduce": "learn"}])
def test_a_checkpoint_changes_nothing(data, tmp_path, monkeypatch, options):
    """It holds the multipliers that are not zero, and a fit may need the others, too."""
    X, y = data
    expected = LMNN(tol=1e-3, **options).fit(lazy(X), y)
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    model = LMNN(tol=1e-3, checkpoint=tmp_path / "fit.npz", **options).fit(lazy(X), y)
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert model.n_iter_ == expected.n_iter_


def test_data_without_variation():
    X = da.from_array(np.ones((150, 3)), chunks=(40, 3))
    with pytest.warns(UserWarning, match="all points are equal"):
        model = LMNN().fit(X, np.arange(150) % 2)
    np.testing.assert_array_equal(model.components_, np.eye(3))


def test_options_that_need_rows_in_memory_are_refused(data):
    X, y = data
    with pytest.raises(InvalidInputError, match="validation_fraction needs rows in memory"):
        LMNN(validation_fraction=0.2).fit(lazy(X), y)
    with pytest.raises(InvalidInputError, match="LMNN needs rows in memory here"):
        LMNN(unlabeled_weight=0.5).fit(lazy(X), y)


@pytest.mark.torch
def test_tensors_compute_by_torch(data, torch):
    X, y = data
    blocks = lazy(X).rechunk({1: -1}).map_blocks(torch.from_numpy, meta=np.empty((0, 0)))
    model = LMNN(tol=TOL).fit(blocks, y)
    peer = LMNN(tol=TOL).fit(X, y)
    assert isinstance(model.components_, np.ndarray)
    assert abs(model.objective_ - peer.objective_) <= TOL * peer.objective_
    assert verify(model, X, y).gap <= TOL * (1 + 1e-6)


def test_tasks_have_the_names_of_their_work(data, monkeypatch):
    """What the dashboard of a cluster shows."""
    X, y = data
    names, plain = set(), Threads.map

    def noting(self, *args, name, **more):
        names.add(name)
        return plain(self, *args, name=name, **more)

    monkeypatch.setattr(Threads, "map", noting)
    LMNN(tol=TOL).fit(lazy(X), y)
    assert {"nearest_targets", "impostor_search", "gradient", "line_search", "prove"} <= names


def test_certificates_are_from_images_in_float64(data, monkeypatch):
    """Other searches are in the type of the rows, as in memory."""
    X, y = data[0].astype(np.float32), data[1]
    searched, kinds, proofs = lmnn_shard_search.searched, [], []
    plain = {name: getattr(LMNNBlocks, name) for name in ("certify", "certify_returned")}

    def noting(head, other):
        kinds.append({str(head.images.dtype), str(other.images.dtype)})
        return searched(head, other)

    def proving(name):
        def prove(self, *args, **more):
            first = len(kinds)
            found = plain[name](self, *args, **more)
            proofs.extend(range(first, len(kinds)))
            return found

        return prove

    monkeypatch.setattr(lmnn_shard_search, "searched", noting)
    for name in plain:
        monkeypatch.setattr(LMNNBlocks, name, proving(name))
    LMNN(tol=TOL).fit(lazy(X), y)
    assert proofs
    for number, kind in enumerate(kinds):
        assert kind == {"float64" if number in proofs else "float32"}


# -- on a cluster ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(client_of, data, expected, count):
    X, y = data
    with client_of(count):
        model = LMNN(tol=TOL).fit(lazy(X, 40 * count), y)
    np.testing.assert_array_equal(model.components_, expected)


@needs_callbacks
def test_a_killed_worker_changes_nothing(client_to_lose, data, expected):
    """Its blocks and shards, with their multipliers, are computed again: the same bits."""
    X, y = data
    before = set(client_to_lose.run(os.getpid).values())

    def kill():
        os.kill(min(before), signal.SIGKILL)

    callback = Recorder(6, kill)
    model = LMNN(tol=TOL).set_callbacks(callback).fit(lazy(X), y)
    assert len(callback.records) > 6
    np.testing.assert_array_equal(model.components_, expected)
    client_to_lose.wait_for_workers(2)
    assert set(client_to_lose.run(os.getpid).values()) != before


@needs_callbacks
def test_a_worker_that_joins_later_changes_nothing(client_of, data, expected):
    X, y = data
    with client_of(2) as client:

        def join():
            client.cluster.scale(3)
            client.wait_for_workers(3)

        model = LMNN(tol=TOL).set_callbacks(Recorder(3, join)).fit(lazy(X), y)
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 3
    np.testing.assert_array_equal(model.components_, expected)


@needs_callbacks
def test_an_interruption_keeps_the_best_map(client, data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="LMNN was interrupted"):
        model = LMNN(tol=TOL).set_callbacks(interrupt_at(4)).fit(lazy(X), y)
    assert model.n_iter_ == 4
    assert verify(model, X, y).objective == pytest.approx(model.objective_)
    assert client.status == "running"


SCHEDULER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None,
                      protocol="tcp", host="127.0.0.1") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@needs_callbacks
def test_a_dead_scheduler_is_an_error_and_a_checkpoint_goes_on_elsewhere(
    data, tmp_path, monkeypatch
):
    from distributed import Client

    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    X, y = data
    model = LMNN(tol=TOL, checkpoint=tmp_path / "fit.npz")
    script = tmp_path / "cluster.py"
    script.write_text(SCHEDULER)
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        client = Client(process.stdout.readline().strip())
        callback = Recorder(6, process.kill)
        with pytest.raises(ClusterError, match="the Dask scheduler is gone"):
            model.set_callbacks(callback).fit(lazy(X), y)
        client.close(timeout=1)
    resumed = model.set_callbacks().fit(lazy(X), y)
    assert resumed.status_ == "converged"
    assert resumed.n_iter_ >= 6
    peer = LMNN(tol=TOL).fit(X, y)
    assert abs(resumed.objective_ - peer.objective_) <= TOL * peer.objective_
    assert verify(resumed, X, y).gap <= TOL * (1 + 1e-6)
