"""Many small problems: blocks join to the whole."""

import numpy as np
import pytest

from nearfar.kernels import batched, parallel, single_threaded_blas
from nearfar.kernels.batched import eigh, in_blocks


@pytest.mark.parametrize("m", [0, 1, 64, 100])
@pytest.mark.parametrize("threaded", [False, True], ids=["one thread", "threads"])
def test_blocks_join_in_order(backend, monkeypatch, m, threaded):
    monkeypatch.setattr(batched, "HOST_ENTRIES", 70)
    monkeypatch.setattr(batched, "DEVICE_ENTRIES", 70)
    monkeypatch.setattr(parallel, "THREADED_BYTES", 0 if threaded else 1 << 40)
    rows = backend.asarray(np.arange(2.0 * m).reshape(m, 2))
    sizes = []

    def work(part):
        sizes.append(len(rows[part]))
        return 3 * rows[part]

    with single_threaded_blas():
        found = backend.to_numpy(in_blocks(work, m, 7, rows))
    np.testing.assert_array_equal(found, 3 * backend.to_numpy(rows))
    assert max(sizes) <= 10
    assert sum(sizes) == m


def test_a_problem_that_does_not_fit_goes_alone(monkeypatch):
    monkeypatch.setattr(batched, "HOST_ENTRIES", 5)
    rows = np.arange(3.0)
    np.testing.assert_array_equal(in_blocks(lambda part: rows[part], 3, 100, rows), rows)


def test_break_downs_do_not_warn():
    zeros = np.zeros(4)
    assert np.isnan(in_blocks(lambda part: zeros[part] / zeros[part], 4, 1, zeros)).all()


def test_eigenvalues_ascend_and_vectors_are_columns(backend, rng):
    A = rng.normal(size=(6, 3, 3))
    A = A + A.swapaxes(1, 2)
    values, vectors = map(backend.to_numpy, eigh(backend.asarray(A)))
    assert (np.diff(values, axis=1) >= 0).all()
    np.testing.assert_allclose(
        vectors @ (values[..., None] * vectors.swapaxes(1, 2)), A, atol=1e-12
    )
