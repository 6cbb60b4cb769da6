"""What the NumPy kernels promise beyond their contract: results that ignore the threads."""

import tracemalloc

import joblib
import numpy as np
import pytest

from nearfar.kernels import (
    numpy_impostors,
    numpy_neighbors,
    numpy_regression,
    on_numpy,
    parallel,
    reference,
)

N, R, M = 700, 5, 3000


@pytest.fixture
def threads(monkeypatch):
    """Sets the number of threads, all of them used however small the work."""
    monkeypatch.setattr(parallel, "THREADED_BYTES", 0)
    monkeypatch.setattr(parallel, "GEMM_ROWS", 64)
    monkeypatch.setattr(numpy_impostors, "TILE", 50)
    monkeypatch.setattr(parallel, "TABLE_ENTRIES", 50 * N)

    def threads(count):
        monkeypatch.setattr(joblib, "cpu_count", lambda: count)

    return threads


def everything(Z, D, weights, edges, starts):
    """The results of all kernels that use threads."""
    reach = np.full(len(Z), 2.0)
    return [
        *on_numpy.impostor_pairs(Z, reach, starts),
        on_numpy.sq_lengths(Z, *edges),
        *on_numpy.edge_products(Z, D, *edges),
        on_numpy.laplacian_matmul(*edges, weights, Z),
        on_numpy.apply(Z, D[:4].astype(np.float64)),
        on_numpy.gram(Z, D),
        on_numpy.edge_scatter(Z, *edges),
        on_numpy.group_scatter(Z, edges[0], np.array([0, *range(3, len(edges[0]), 7)])),
        *on_numpy.nearest(D, Z, 3),
        *on_numpy.kernel_regression(Z, D, weights[: len(Z)]),
        *on_numpy.hinge_sums(D, Z, starts, np.full((len(D), 2, 2), 3.0), np.full((len(Z), 2), 2.0)),
    ]


@pytest.mark.parametrize("count", [2, 3])
def test_results_are_the_same_bits_for_any_number_of_threads(rng, dtype, threads, count):
    Z, D = rng.normal(size=(2, N, R)).astype(dtype)
    arguments = Z, D, rng.normal(size=M), rng.integers(N, size=(2, M)), np.array([0, 300, N])
    threads(1)
    expected = everything(*arguments)
    threads(count)
    for got, wanted in zip(everything(*arguments), expected, strict=True):
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes()


def test_exponentials_that_are_not_held_are_computed_again(rng, dtype, monkeypatch):
    """The same bits, also for a point of which all weights vanish."""
    Z, y = rng.normal(size=(N, R)).astype(dtype), rng.normal(size=N)
    Z[3] *= 100
    held = on_numpy.kernel_regression(Z, Z, y)
    monkeypatch.setattr(numpy_regression, "HELD_BYTES", 0)
    for got, wanted in zip(on_numpy.kernel_regression(Z, Z, y), held, strict=True):
        assert got.tobytes() == wanted.tobytes()


def test_an_error_in_a_thread_is_raised(threads):
    threads(2)
    with pytest.raises(IndexError, match="out of bounds"):
        on_numpy.sq_lengths(np.ones((3, 2)), np.array([0, 3]), np.array([1, 1]))


def test_data_of_the_caller_is_not_written(rng, dtype, threads, read_only):
    threads(2)
    Z, D = (read_only(part) for part in rng.normal(size=(2, 60, 3)).astype(dtype))
    weights, edges = read_only(rng.normal(size=90)), read_only(rng.integers(60, size=(2, 90)))
    everything(Z, D, weights, edges, read_only(np.array([0, 25, 60])))
    on_numpy.nearest_in_class(Z, np.array([0, 25, 60]), 3)


def test_fortran_order_gives_the_same(rng, dtype):
    Z = rng.normal(size=(60, 4)).astype(dtype)
    starts = np.array([0, 25, 60])
    reach = np.full(60, 2.0)
    for kernel, arguments in (
        (on_numpy.impostor_pairs, (reach, starts)),
        (on_numpy.nearest_in_class, (starts, 3)),
    ):
        got = kernel(np.asfortranarray(Z), *arguments)
        np.testing.assert_array_equal(got, kernel(Z, *arguments))


def test_a_laplacian_holds_its_answer_and_few_rows_more(rng):
    """Not the product of all rows with the points beside it."""
    Z = rng.normal(size=(20_000, 64))
    heads, tails = rng.integers(len(Z), size=(2, 18_000))
    weights = rng.random(len(heads))
    assert parallel.is_worth_threads(2 * len(heads) * Z[0].nbytes)
    on_numpy.laplacian_matmul(heads, tails, weights, Z)
    tracemalloc.start()
    try:
        on_numpy.laplacian_matmul(heads, tails, weights, Z)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.6 * Z.nbytes


def _mixed(rng):
    """Two clusters far apart, which float32 does not resolve, among points that it does."""
    Z = rng.normal(size=(400, 20))
    Z[:150] = 1e-4 * Z[:150] + 50 * (np.arange(150) % 2)[:, None]
    return Z


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(lambda rng: rng.normal(size=(400, 20)), id="normal"),
        pytest.param(lambda rng: 1e-150 * rng.normal(size=(400, 20)), id="tiny"),
        pytest.param(lambda rng: 1e150 * rng.normal(size=(400, 20)), id="huge"),
        pytest.param(lambda rng: np.round(rng.normal(size=(400, 4))), id="ties"),
        pytest.param(lambda rng: 10.0 ** rng.uniform(-30, 0, size=(400, 2)), id="of all sizes"),
        pytest.param(_mixed, id="partly too near for float32"),
        pytest.param(lambda rng: _mixed(rng)[:150], id="too near for float32"),
        pytest.param(lambda rng: np.zeros((400, 3)), id="equal"),  # noqa: ARG005
    ],
)
@pytest.mark.parametrize("k", [1, 5])
def test_a_product_in_float32_loses_no_neighbour(rng, points, k):
    Z = points(rng)
    for Q in (Z[::3], Z[:1] + np.abs(Z).max() * rng.normal(size=(40, Z.shape[1]))):
        near, squares = on_numpy.nearest(Q, Z, k)
        expected, distances = reference.nearest(Q, Z, k)
        np.testing.assert_array_equal(near, expected)
        np.testing.assert_allclose(squares, distances, rtol=1e-13)


def test_a_product_in_float32_is_left_where_it_is_no_use(rng):
    near, far = rng.normal(size=(2, 100, 4))
    k = 3
    assert numpy_neighbors._Screen.single(near, near, k) is not None
    both = np.concatenate([1e-3 * near - 100, 1e-3 * far + 100])
    assert numpy_neighbors._Screen.single(both, both, k) is None
    single = near.astype(np.float32)
    assert numpy_neighbors._Screen.single(single, single, k) is None
