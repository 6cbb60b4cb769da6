"""One cluster of two processes for all tests of blocks."""

from contextlib import contextmanager

import pytest

pytest.importorskip("distributed")

QUIET = {
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.low-level-log-length": 100_000,  # else it forgets the first tasks of a fit
}


@pytest.fixture(scope="session")
def cluster():
    """Two workers, each a process with one thread; no client is current."""
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set(QUIET),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as found,
    ):
        yield found


@pytest.fixture
def client(cluster):
    """The current client of the cluster."""
    from distributed import Client

    found = Client(cluster)
    yield found
    if found.status != "closed":  # closed twice, it would leave its scheduler in Dask's settings
        found.close()


@pytest.fixture
def client_of():
    """For a number of workers, the current client of a new cluster, as a context.

    Tests that change a cluster have one of their own: after workers have come and gone, a cluster
    may end with an error of its own.
    """
    import dask
    from distributed import Client, LocalCluster

    @contextmanager
    def started(count):
        with (
            dask.config.set(QUIET),
            LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0") as found,
            Client(found) as client,
        ):
            yield client

    return started


@pytest.fixture
def client_to_lose(client_of):
    """The current client of a cluster of its own, of which a test may kill workers."""
    with client_of(2) as client:
        yield client
