"""Workers hold their share of the rows, few blocks of others, and the triplets of one search."""

import numpy as np
import pytest

from nearfar import LMNN
from nearfar.blocks import rows
from nearfar.blocks.engine import TASK_SHARE, Cluster
from nearfar.errors import ConvergenceWarning, MemoryLimitError
from nearfar.kernels import GIGABYTE, check_memory
from tests.blocks.conftest import QUIET

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

WORKERS, CLASSES, FEATURES = 2, 10, 400
LIMIT = 4e-3  # gigabytes of triplets of a shard, which do not suffice for all that are found
TRIPLET_BYTES = 200  # of arrays of pairs and triplets, of two placements and of a line


class CountBytes(distributed.WorkerPlugin):
    """Counts the bytes of the arrays that a worker holds as results, whenever it has one more."""

    name = "count_bytes"

    def setup(self, worker):
        """Begin to count."""
        self.worker, self.most, self.most_shards, self.n_triplets = worker, 0, 0, 0

    def transition(self, key, start, finish, **more):
        """Look at all results; arrays that several of them share count once."""
        del key, start, more
        if finish != "memory":
            return
        arrays, shards, triplets = {}, 0, 0
        for value in list(self.worker.data.values()):
            _distinct(value, arrays)
            if type(value).__name__ == "Shard":
                shards, triplets = shards + 1, triplets + len(value.at.triplets)
        self.most = max(self.most, sum(arrays.values()))
        self.most_shards = max(self.most_shards, shards)
        self.n_triplets = max(self.n_triplets, triplets)


def _distinct(value, found):
    """Memory of arrays in containers and objects, by the array that owns it."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        found[id(value)] = value.nbytes
    elif isinstance(value, dict):
        for item in value.values():
            _distinct(item, found)
    elif isinstance(value, tuple | list):
        for item in value:
            _distinct(item, found)
    elif hasattr(value, "__dict__"):
        _distinct(vars(value), found)


def counts(dask_worker):
    """What a worker has counted."""
    plugin = dask_worker.plugins["count_bytes"]
    return plugin.most, plugin.most_shards, plugin.n_triplets


def separated(n):
    """Rows of few factors and noise, in classes that are far apart, so that triplets are few."""
    rng = np.random.default_rng(3)
    y = np.arange(n) % CLASSES
    factors = rng.normal(size=(n, 8)) + 4 * rng.normal(size=(CLASSES, 8))[y]
    X = factors @ rng.normal(size=(8, FEATURES)) + 0.1 * rng.normal(size=(n, FEATURES))
    return X.astype(np.float32), y


@pytest.mark.slow
def test_workers_hold_three_times_their_share(monkeypatch):
    """With the blocks in flight, and triplets, which are no rows: bytes are counted, not measured.

    A worker has few tasks under way at a time, each with one block of another worker. Nothing on it
    is written to disk, and it holds shards of one search, before and after a step.
    """
    import dask

    X, y = separated(3200)
    monkeypatch.setattr(rows, "BLOCK_BYTES", X.nbytes // 16)
    n_blocks = len(rows.block_starts(X.shape, X.dtype)) - 1
    share, block = X.nbytes / WORKERS, X.nbytes / n_blocks
    with (
        dask.config.set(QUIET),
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        lazy = da.map_blocks(_chunk, n_rows=len(X), chunks=((400,) * 8, (FEATURES,)), dtype="f4")
        client.register_plugin(CountBytes())
        with pytest.warns(ConvergenceWarning):
            LMNN(n_components=4, shrinkage=0, max_iter=4, tol=1e-2).fit(lazy, y)
        found = client.run(counts)
    assert n_blocks == 16
    for most, most_shards, n_triplets in found.values():
        in_flight = (rows.IN_FLIGHT + 1) * rows.BATCH * block
        assert most <= 3 * share + in_flight + TRIPLET_BYTES * n_triplets
        assert most_shards <= n_blocks + 2  # of two workers' halves, before and after a step


def _chunk(n_rows, block_info=None):
    (first, last), *_ = block_info[None]["array-location"]
    return separated(n_rows)[0][first:last]


def refused(needed):
    """What a task hears that needs so much."""
    try:
        check_memory(needed, "a search", "Fit to fewer rows", np.empty(0))
    except MemoryLimitError as error:
        return str(error)
    return None


def limit_of(dask_worker):
    return dask_worker.memory_manager.memory_limit


def test_a_task_needs_its_part_of_the_limit_of_a_worker(client):
    limit = min(client.run(limit_of).values())
    cluster = Cluster(client)
    tasks = cluster.map(refused, [0.9 * TASK_SHARE * limit, 1.1 * TASK_SHARE * limit], name="ask")
    granted, message = cluster.results(tasks)
    assert granted is None
    assert f"above the limit of {TASK_SHARE * limit / GIGABYTE:.2g} GB. Fit to fewer" in message


def test_triplets_beyond_the_limit_are_left_out(monkeypatch):
    """Where a search finds too many, the descent takes active ones, nearer to the last search."""
    from nearfar.blocks import engine

    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1500)
    X = rng.normal(size=(1500, 5)) + y[:, None]
    lazy = da.from_array(X, chunks=(400, 5))
    monkeypatch.setattr(rows, "BLOCK_ROWS", 500)
    free = LMNN(tol=1e-2).fit(lazy, y)
    plain, refusals = engine.run_task, []

    def limited(function, *args):
        try:
            with engine.memory_limit(LIMIT if function.__name__ == "shard_of" else None):
                return plain(function, *args)
        except MemoryLimitError:
            refusals.append(function.__name__)
            raise

    monkeypatch.setattr(engine, "run_task", limited)
    model = LMNN(tol=1e-2).fit(lazy, y)
    assert refusals
    assert abs(model.objective_ - free.objective_) <= 1e-2 * free.objective_
