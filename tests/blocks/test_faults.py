"""What happens to workers and to the user's patience does not change the answer of LMNN."""

import os
import time

import numpy as np
import pytest

from nearfar import LMNN, verify
from nearfar.blocks import rows
from nearfar.blocks.engine import Cluster
from tests.blocks.conftest import QUIET
from tests.callbacks import Recorder, needs_callbacks

da = pytest.importorskip("dask.array")

TOL = 1e-2
LIMIT = 6e8  # bytes of a worker


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks are laid out by the client alone, so that workers need not know of it."""
    monkeypatch.setattr(rows, "BLOCK_ROWS", 100)


@pytest.fixture
def data():
    rng = np.random.default_rng(6)
    y = rng.integers(3, size=300)
    X = rng.normal(size=(300, 5)) * [1, 2, 3, 1, 9]
    X[:, 0] += 2 * y
    return X, y


def lazy(X):
    return da.from_array(X, chunks=(70, X.shape[1]))


def exceed_memory_once(marker):
    """Take more memory than a worker may have, unless it was done before."""
    if os.path.exists(marker):
        return os.getpid()
    with open(marker, "w"):
        pass
    taken = np.ones(int(LIMIT) // 8)
    for _ in range(600):  # until the nanny ends this process
        time.sleep(0.1)
    raise AssertionError(f"a worker with {taken.nbytes} bytes was left alive")


@needs_callbacks
def test_a_worker_restarted_for_memory_changes_nothing(data, tmp_path):
    """In the middle of a fit; its shards, with their multipliers, are computed again elsewhere."""
    import dask
    from distributed import Client, LocalCluster

    X, y = data
    expected = LMNN(tol=TOL).fit(lazy(X), y)
    quick = QUIET | {"distributed.worker.memory.pause": False}
    with (
        dask.config.set(quick),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=int(LIMIT), dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        before = client.run(os.getpid)
        hungry = []

        def take_memory():
            marker, first = str(tmp_path / "exceeded"), list(before)[:1]
            hungry.append(
                client.submit(exceed_memory_once, marker, workers=first, allow_other_workers=True)
            )

        callback = Recorder(6, take_memory)
        model = LMNN(tol=TOL).set_callbacks(callback).fit(lazy(X), y)
        assert len(callback.records) > 6
        client.gather(hungry)
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != set(before.values())
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert model.objective_ == expected.objective_


def wait_long(number):
    time.sleep(60)
    return number


def test_ctrl_c_cancels_the_tasks(client, monkeypatch):
    """The wait for results is interrupted; no task of it is left on the cluster."""
    engine = Cluster(client)
    tasks = engine.map(wait_long, range(4), name="wait")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client, "gather", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.results(tasks)
    assert {task.status for task in tasks} == {"cancelled"}
    states = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    assert not [key for key in states if str(key).startswith("wait-")]
    client.restart()  # ends what the workers had begun


@pytest.mark.torch
def test_tensors_on_processes_of_a_cluster(client, data, torch):
    """Blocks are tensors on the workers, move as tensors, and compute by torch: the same bits."""
    X, y = data
    blocks = lazy(X).map_blocks(torch.from_numpy, meta=np.empty((0, 0)))
    kinds = client.gather(
        client.map(
            lambda block: type(block).__module__, client.compute(list(blocks.to_delayed().ravel()))
        )
    )
    assert set(kinds) == {"torch"}
    model = LMNN(tol=TOL).fit(blocks, y)
    client.close()
    threads = LMNN(tol=TOL).fit(blocks, y)
    np.testing.assert_array_equal(model.components_, threads.components_)
    assert isinstance(model.components_, np.ndarray)
    assert verify(model, X, y).gap <= TOL * (1 + 1e-6)
