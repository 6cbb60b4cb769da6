"""One pool of threads: the kernels' own, of the size that BLAS was allowed."""

from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import threadpoolctl

from nearfar.kernels import on_numpy, parallel, single_threaded_blas, threads
from nearfar.kernels.threads import n_threads


@pytest.fixture
def blas():
    """The controls of the BLAS libraries in this process."""
    controls = threadpoolctl.ThreadpoolController().select(user_api="blas")
    if not controls.info():
        pytest.skip("threadpoolctl knows no BLAS here")
    return controls


def counts(blas):
    return [library["num_threads"] for library in blas.info()]


def inside():
    """How many threads the kernels may use in a pool that is opened here."""
    with single_threaded_blas():
        return n_threads()


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 64)


def test_as_many_threads_as_cores():
    assert n_threads() == 64


def test_inside_blas_has_one_thread_and_the_kernels_what_it_had(blas):
    """A user's limit on BLAS holds for the kernels too, whatever the number of cores."""
    with blas.limit(limits=2):
        before = counts(blas)
        with single_threaded_blas():
            assert set(counts(blas)) == {1}
            assert n_threads() == max(before)
            with single_threaded_blas():
                assert n_threads() == max(before)
                assert set(counts(blas)) == {1}
            assert set(counts(blas)) == {1}
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(inside).result() == 1, "threads of threads"
        assert counts(blas) == before
    assert n_threads() == 64


def test_a_blas_with_openmp_threads_does_not_count_beside_another(monkeypatch):
    """Such as that of faiss, whose limit another thread does not see."""

    class Controls:
        def __init__(self, **pools):
            self._pools = [
                {"num_threads": number, "threading_layer": layer} for layer, number in pools.items()
            ]

        def info(self):
            return self._pools

    monkeypatch.setattr(threads, "_blas", lambda: Controls(pthreads=1, openmp=2))
    assert threads._blas_threads() == 1
    monkeypatch.setattr(threads, "_blas", lambda: Controls(openmp=2))
    assert threads._blas_threads() == 2
    monkeypatch.setattr(threads, "_blas", Controls)
    assert threads._blas_threads() == 64


def test_an_error_gives_the_threads_back(blas):
    before = counts(blas)
    with pytest.raises(ZeroDivisionError), single_threaded_blas():
        raise ZeroDivisionError
    assert counts(blas) == before
    assert n_threads() == 64


def test_as_a_decorator_it_opens_anew_at_each_call(blas):
    @single_threaded_blas()
    def seen():
        return counts(blas)

    with blas.limit(limits=2):
        before = counts(blas)
        assert set(seen()) == set(seen()) == {1}
        assert counts(blas) == before


def test_the_kernels_obey(monkeypatch):
    """Work of more parts than threads: the pool has as many workers as are allowed."""
    asked = []
    pool = parallel.ThreadPoolExecutor

    def noted(count):
        asked.append(count)
        return pool(count)

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", noted)
    monkeypatch.setattr(parallel, "THREADED_BYTES", 0)
    on_numpy.sq_lengths(np.ones((5, 2)), np.array([0, 1]), np.array([1, 2]))
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    on_numpy.sq_lengths(np.ones((5, 2)), np.array([0, 1]), np.array([1, 2]))
    assert asked == [64]
