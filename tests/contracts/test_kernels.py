"""The kernels: `on_numpy` and `on_torch` offer the same functions and equal the plain loops.

A new kernel joins by being written in `reference` (its specification) or listed in `PLUMBING`.
"""

import inspect
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest

from nearfar.kernels import (
    kernels_for,
    numpy_edges,
    numpy_impostors,
    numpy_neighbors,
    numpy_regression,
    numpy_similarities,
    on_numpy,
    parallel,
    reference,
)

LAYOUTS = {
    "balanced": (8, 8, 8, 8),
    "one large class": (30, 2, 3),
    "singletons": (1, 1, 1, 9, 1),
    "many tiny classes": (2,) * 14,
    "one class": (12,),
}
# What both twins need beside the kernels: conversions, matrix products, and one-liners that NumPy
# and torch spell differently.
PLUMBING = {
    "apply",
    "compact",
    "concatenate",
    "arange",
    "cumsum",
    "detached",
    "double",
    "searches_are_cheap",
    "searchsorted",
    "gram",
    "index",
    "like",
    "repeat",
    "segment_max",
    "smallest",
    "single",
    "sqrt",
    "to_host",
    "unique",
    "flatnonzero",
}


@dataclass(frozen=True)
class Sample:
    """Points sorted by class, in a library and in NumPy."""

    Z: np.ndarray
    starts: np.ndarray
    on_device: object
    kernels: ModuleType

    def index(self, values):
        return self.kernels.index(values, self.on_device)


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def sizes(request):
    """How many points each class has."""
    return request.param


any_layout = pytest.mark.parametrize("sizes", [(12, 1, 20)], indirect=True, ids=["any layout"])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, request):
    """Blocks and tiles so small that the data of these tests fill several, and no spare neighbours
    that would make up for a wrong choice."""
    monkeypatch.setattr(numpy_neighbors, "FEWEST_POINTS", 15)  # some of the classes are larger
    monkeypatch.setattr(numpy_impostors, "TILE", 5)
    monkeypatch.setattr(parallel, "GATHER_BYTES", 0)  # the least block, 64 rows
    monkeypatch.setattr(parallel, "GEMM_ROWS", 7)
    monkeypatch.setattr(numpy_edges, "SCATTER_ROWS", 3)
    monkeypatch.setattr(parallel, "TABLE_ENTRIES", 90)
    monkeypatch.setattr(numpy_neighbors, "CENTRE_ROWS", 10)
    monkeypatch.setattr(numpy_similarities, "SOFTMAX_BYTES", 400)
    monkeypatch.setattr(numpy_similarities, "SOFTMAX_ROWS", 2)
    monkeypatch.setattr(numpy_similarities, "SOFTMAX_SHARES", 3)
    monkeypatch.setattr(numpy_regression, "STRIP_BYTES", 400)
    monkeypatch.setattr(numpy_regression, "SOFTMAX_ROWS", 2)
    monkeypatch.setattr(numpy_regression, "SOFTMAX_SHARES", 3)
    if request.node.get_closest_marker("torch") is not None:
        from nearfar.kernels import on_torch

        monkeypatch.setattr(on_torch, "_tile", lambda _: 5)
        monkeypatch.setattr(on_torch, "EDGE_BLOCK", 1024)
        monkeypatch.setattr(on_torch, "SPARE", 0)


@pytest.fixture
def make(backend, dtype, rng, sizes):
    """Makes a sample of points, spoiled by a function if one is given."""

    def make(spoil=lambda Z: Z, r=3):
        Z = spoil(rng.normal(size=(sum(sizes), r))).astype(dtype)
        starts = np.cumsum([0, *sizes])
        on_device = backend.asarray(Z)
        return Sample(Z, starts, on_device, kernels_for(on_device))

    return make


def with_duplicates(Z):
    """Every third point is a copy of the first, across all classes."""
    Z[::3] = Z[0]
    return Z


def far_away(Z):
    """Differences of 1e-2 at 1e6, whose squares ‖a‖² + ‖b‖² − 2a·b would lose in float64."""
    return np.round(Z, 2) + 1e6


def clustered(Z):
    """Two groups so far apart that no common centre brings all points near the origin."""
    Z[::2] += 3e7
    return Z


def with_outlier(Z):
    """One point that carries away the mean of its class, and with it any centre made of means."""
    Z[-1] = 1e12
    return Z


SPOILS = {
    "random": lambda Z: Z,
    "duplicates": with_duplicates,
    "far": far_away,
    "clustered": clustered,
    "outlier": with_outlier,
}
spoils = pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS.keys())
# Layouts decide how classes are cut into blocks, values what rounding does: every layout is tried
# on two kinds of values, and every kind of values on two or more layouts.
COVERING = [
    *((layout, "random") for layout in LAYOUTS),
    ("balanced", "far"),
    ("one large class", "duplicates"),
    ("one large class", "clustered"),
    ("one large class", "outlier"),
    ("singletons", "outlier"),
    ("many tiny classes", "duplicates"),
    ("many tiny classes", "clustered"),
    ("one class", "far"),
]
layouts_and_spoils = pytest.mark.parametrize(
    ("sizes", "spoil"),
    [(LAYOUTS[layout], SPOILS[spoil]) for layout, spoil in COVERING],
    ids=[" ".join(pair) for pair in COVERING],
    indirect=["sizes"],
)
without_outliers = pytest.mark.parametrize(
    ("sizes", "spoil"),
    [(LAYOUTS[layout], SPOILS[spoil]) for layout, spoil in COVERING if spoil != "outlier"],
    ids=[" ".join(pair) for pair in COVERING if pair[1] != "outlier"],
    indirect=["sizes"],
)


def assert_close(got, expected, dtype, scale=1.0):
    """Equal up to the rounding of sums of a few dozen terms of the given size."""
    bound = 200 * np.finfo(dtype).eps * scale
    np.testing.assert_allclose(got, expected, rtol=bound / scale, atol=bound)


def random_edges(rng, n, m):
    """Edges with repeats, and an edge from a point to itself."""
    heads, tails = rng.integers(n, size=(2, m))
    tails[0] = heads[0]
    return heads, tails


# -- the functions that exist ---


def functions(module):
    """The public ones: those that the module lists in ``__all__``, or defines."""
    listed = getattr(module, "__all__", None)
    return {
        name: function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if (function.__module__ == module.__name__ if listed is None else name in listed)
        and not name.startswith("_")
    }


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.torch
def test_twins_have_the_same_functions_with_the_same_parameters():
    from nearfar.kernels import on_torch

    numpy_twin, torch_twin = functions(on_numpy), functions(on_torch)
    assert numpy_twin.keys() == torch_twin.keys()
    for name, function in numpy_twin.items():
        assert parameters(function) == parameters(torch_twin[name]), name
        assert function.__doc__, name
        assert torch_twin[name].__doc__, name


def test_every_kernel_has_a_specification_with_the_same_parameters():
    twin, specification = functions(on_numpy), functions(reference)
    assert twin.keys() == specification.keys() | PLUMBING
    for name, function in specification.items():
        expected = parameters(function)
        assert parameters(twin[name])[: len(expected)] == expected, name
        for _, _, default in parameters(twin[name])[len(expected) :]:
            assert default is not inspect.Parameter.empty, name


# -- neighbours and impostor_pairs ---


@layouts_and_spoils
@pytest.mark.parametrize(("k", "r"), [(2, 3), (40, 3), (2, 20)])
def test_nearest_in_class(make, backend, k, r, spoil, dtype):
    """Heads are exact; among equally near tails any may be taken, so distances are compared.

    A large class is searched by scikit-learn: 3 dimensions with a tree, 20 with products.
    """
    sample = make(spoil, r)
    heads, tails = map(
        backend.to_numpy, sample.kernels.nearest_in_class(sample.on_device, sample.starts, k)
    )
    expected_heads, expected_tails = reference.nearest_in_class(sample.Z, sample.starts, k)
    np.testing.assert_array_equal(heads, expected_heads)
    code = heads * len(sample.Z) + tails
    assert len(np.unique(code)) == len(code), "a neighbour is named twice"
    assert (heads != tails).all(), "a point is its own neighbour"
    labels = np.repeat(np.arange(len(sample.starts) - 1), np.diff(sample.starts))
    np.testing.assert_array_equal(labels[heads], labels[tails])
    double = sample.Z.astype(np.float64)
    found = reference.sq_lengths(double, heads, tails)
    expected = reference.sq_lengths(double, expected_heads, expected_tails)
    np.testing.assert_allclose(found, expected, rtol=200 * np.finfo(dtype).eps, atol=0)


@layouts_and_spoils
@pytest.mark.parametrize("k", [1, 3, 200])
def test_kth_squares(make, spoil, k):
    """A distance that errs by more than the rounding of its own differences is found exactly."""
    sample = make(spoil)
    found = sample.kernels.kth_squares(sample.on_device, sample.starts, k)
    found = np.asarray(sample.kernels.to_host(found))
    assert found.dtype == np.float64
    expected = reference.kth_squares(sample.Z, sample.starts, k)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-30)


@layouts_and_spoils
def test_impostor_pairs(make, backend, rng, spoil):
    """From a reach that finds almost nothing to one that finds all."""
    sample = make(spoil)
    for size in (0.3, 3.0, 1e30):
        reach = size * rng.uniform(0.5, 1.5, size=len(sample.Z))
        expected = reference.impostor_pairs(sample.Z, reach, sample.starts)
        found = sample.kernels.impostor_pairs(
            sample.on_device, backend.asarray(reach), sample.starts
        )
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(backend.to_numpy(got), wanted)


@layouts_and_spoils
def test_a_screen_in_float32_does_not_change_the_impostor_pairs(make, backend, rng, spoil):
    """The reach of each point is its exact distance to another one, which is then just outside;
    and then the next larger number, which takes it in. Float32 alone could not tell."""
    sample = make(spoil)
    kernels, n = sample.kernels, len(sample.Z)
    double = kernels.double(sample.on_device)
    others = sample.index(rng.permutation(n))
    exact = backend.to_numpy(kernels.sq_lengths(double, sample.index(np.arange(n)), others))
    for reach in (exact, np.nextafter(exact, np.inf)):
        reach = backend.asarray(reach)
        expected = kernels.impostor_pairs(double, reach, sample.starts, double)
        found = kernels.impostor_pairs(double, reach, sample.starts, kernels.single(double))
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(backend.to_numpy(got), backend.to_numpy(wanted))


def test_a_reach_of_minus_infinity_finds_nothing(make, backend):
    """A point without targets has no margin: segment_max gives it −inf."""
    sample = make()
    reach = np.full(len(sample.Z), -np.inf)
    reach[-1] = 1e30
    found = sample.kernels.impostor_pairs(sample.on_device, backend.asarray(reach), sample.starts)
    heads, tails = map(backend.to_numpy, found)
    others = np.arange(sample.starts[-2])
    np.testing.assert_array_equal(tails, others)
    np.testing.assert_array_equal(heads, np.full(len(others), len(sample.Z) - 1))


def test_points_that_coincide_invade_any_positive_reach(make, backend):
    """‖z − z‖² = 0 < reach, also 1e6 from the origin and for the smallest reach."""
    sample = make(lambda Z: 0 * Z + 1e6 / 3)
    reach = np.full(len(sample.Z), np.finfo(sample.Z.dtype).tiny)
    found = sample.kernels.impostor_pairs(sample.on_device, backend.asarray(reach), sample.starts)
    n, sizes = len(sample.Z), np.diff(sample.starts)
    assert len(backend.to_numpy(found[0])) == n * n - (sizes**2).sum()


def test_no_points_and_no_edges(backend, dtype):
    Z = backend.asarray(np.empty((0, 2), dtype))
    kernels = kernels_for(Z)
    none = kernels.index([], Z)
    starts = np.array([0])
    for heads, tails in (
        kernels.impostor_pairs(Z, Z[:, 0], starts),
        kernels.nearest_in_class(Z, starts, 3),
    ):
        assert len(backend.to_numpy(heads)) == len(backend.to_numpy(tails)) == 0
    Z = backend.asarray(np.ones((3, 2), dtype))
    assert len(backend.to_numpy(kernels.sq_lengths(Z, none, none))) == 0
    assert not backend.to_numpy(kernels.laplacian_matmul(none, none, Z[:0, 0], Z)).any()


@pytest.fixture
def queries(rng):
    """Makes queries for a sample: some of its points, and others amid them."""

    def queries(sample):
        Z = sample.Z
        others = rng.permutation(Z)[:8] + rng.normal(size=(min(8, len(Z)), Z.shape[1]))
        return np.concatenate([Z[::4], others.astype(Z.dtype)])

    return queries


def assert_same_rows(found, expected, Q, Z):
    """The same rows in the same order, but for distances that float64 cannot tell apart: swapped
    rows must agree in rational arithmetic to 4 eps. Rows (m, ·), −1 for none."""
    for t, place in zip(*np.nonzero(found != expected), strict=True):
        assert min(found[t, place], expected[t, place]) >= 0
        one, other = (
            sum(
                (Fraction(float(q)) - Fraction(float(z))) ** 2
                for q, z in zip(Q[t], Z[j], strict=True)
            )
            for j in (found[t, place], expected[t, place])
        )
        assert abs(one - other) <= 4 * Fraction(2) ** -52 * one


@layouts_and_spoils
@pytest.mark.parametrize("k", [1, 3, None], ids=["one", "three", "all"])
def test_nearest(make, backend, queries, k, spoil):
    """Differences decide, and ties go by row number; no row is named twice."""
    sample = make(spoil)
    Q = queries(sample)
    k = len(sample.Z) if k is None else k
    found = sample.kernels.nearest(backend.asarray(Q), sample.on_device, k)
    near, lengths = map(backend.to_numpy, found)
    expected, squares = reference.nearest(Q, sample.Z, k)
    assert near.dtype == np.int64
    assert lengths.dtype == np.float64
    np.testing.assert_allclose(lengths, squares, rtol=1e-12, atol=0)
    assert_same_rows(near, expected, Q, sample.Z)
    assert all(len(set(row)) == k for row in near.tolist())


@pytest.fixture
def cross(backend, rng, queries):
    """Makes what `cross_impostor_pairs` takes for a sample: labels are as mixed as they can be."""

    def cross(sample, Q=None, n_labels=3):
        Q = queries(sample) if Q is None else Q
        labels, others = (rng.integers(n_labels, size=len(side)) for side in (Q, sample.Z))

        def found(reach, screen=None):
            arrays = backend.asarray(Q), backend.asarray(reach), sample.on_device
            if screen is not None:
                screen = screen(arrays[0]), screen(sample.on_device)
            pairs = sample.kernels.cross_impostor_pairs(
                *arrays, sample.index(labels), sample.index(others), screen
            )
            return [backend.to_numpy(ends) for ends in pairs]

        def expected(reach):
            return reference.cross_impostor_pairs(Q, reach, sample.Z, labels, others)

        return Q, found, expected

    return cross


@any_layout
@spoils
def test_cross_impostor_pairs(make, rng, cross, spoil):
    """From a reach that finds almost nothing to one that finds all, with rows of both kinds."""
    sample = make(spoil)
    Q, found, expected = cross(sample)
    for size in (0.3, 3.0, 1e30):
        reach = size * rng.uniform(0.5, 1.5, size=len(Q))
        reach[:2] = np.inf, -np.inf
        wanted = expected(reach)
        assert size == 0.3 or len(wanted[0]) > 2
        for got, ends in zip(found(reach), wanted, strict=True):
            np.testing.assert_array_equal(got, ends)
            assert got.dtype == np.int64


@any_layout
@spoils
@pytest.mark.parametrize("dtype", [np.float64], ids=["float64"])
def test_a_screen_in_float32_does_not_change_the_cross_impostor_pairs(make, rng, cross, spoil):
    """As for impostors: the reach is the exact distance to some point, or just above it."""
    sample = make(spoil)
    kernels, n = sample.kernels, len(sample.Z)
    Q, found, _ = cross(sample, n_labels=40)
    stack = kernels.like(np.concatenate([Q, sample.Z]), sample.on_device)
    queries, points = np.arange(len(Q)), len(Q) + rng.integers(n, size=len(Q))
    exact = kernels.sq_lengths(stack, sample.index(queries), sample.index(points))
    exact = kernels.to_host(exact)
    counts = []
    for reach in (exact, np.nextafter(exact, np.inf)):
        screened = found(reach, kernels.single)
        for got, wanted in zip(screened, found(reach), strict=True):
            np.testing.assert_array_equal(got, wanted)
        counts.append(len(screened[0]))
    assert counts[0] < counts[1]


@any_layout
@pytest.mark.parametrize("screened", [False, True])
def test_squares_that_overflow_hide_no_impostor(make, backend, dtype, rng, cross, screened):
    """Norms are just below and just above the largest number of the type of the products, while
    distances are a hundredth of it."""
    kind = np.float32 if screened else dtype
    edge = np.sqrt(float(np.finfo(kind).max) / 3)
    sample = make(lambda Z: edge * (1 + 0.01 * Z))
    Q, found, expected = cross(sample)
    reach = (0.015 * edge) ** 2 * rng.uniform(0.5, 1.5, size=len(Q))
    wanted = expected(reach)
    assert 0 < len(wanted[0]) < len(Q) * len(sample.Z) / 2
    single = sample.kernels.single if screened else None
    for got, ends in zip(found(reach, single), wanted, strict=True):
        np.testing.assert_array_equal(got, ends)
    reach = np.resize(reach, len(sample.Z))
    pairs = sample.kernels.impostor_pairs(
        sample.on_device,
        backend.asarray(reach),
        sample.starts,
        single and single(sample.on_device),
    )
    wanted = reference.impostor_pairs(sample.Z, reach, sample.starts)
    for got, ends in zip(pairs, wanted, strict=True):
        np.testing.assert_array_equal(backend.to_numpy(got), ends)


@any_layout
@spoils
@pytest.mark.parametrize("screened", [False, True])
def test_mutual_impostor_pairs(make, backend, rng, queries, spoil, screened):
    """Both ways at once, where some rows of either side seek nobody, and others everybody."""
    sample = make(spoil)
    kernels, Q = sample.kernels, queries(sample)
    labels, others = (rng.integers(3, size=len(side)) for side in (Q, sample.Z))
    reach, back = (3 * rng.uniform(0.5, 1.5, size=len(side)) for side in (Q, sample.Z))
    reach[:2], back[1:3] = (np.inf, -np.inf), (-np.inf, np.inf)
    wanted = reference.mutual_impostor_pairs(Q, reach, sample.Z, back, labels, others)
    placed, screen = backend.asarray(Q), None
    if screened:
        screen = kernels.single(placed), kernels.single(sample.on_device)
    reaches = backend.asarray(reach), sample.on_device, backend.asarray(back)
    codes = sample.index(labels), sample.index(others)
    found = kernels.mutual_impostor_pairs(placed, *reaches, *codes, screen)
    for pairs, expected in zip(found, wanted, strict=True):
        assert len(expected[0]) > 2
        for got, ends in zip(pairs, expected, strict=True):
            np.testing.assert_array_equal(backend.to_numpy(got), ends)


def test_cross_impostor_pairs_of_nobody(backend, dtype):
    Z = backend.asarray(np.ones((3, 2), dtype))
    kernels = kernels_for(Z)
    labels, reach = kernels.index([0, 1, 2], Z), kernels.double(Z[:, 0])
    for first, second in ((Z[:0], Z), (Z, Z[:0]), (Z[:0], Z[:0])):
        heads, tails = kernels.cross_impostor_pairs(
            first, reach[: len(first)], second, labels[: len(first)], labels[: len(second)]
        )
        assert len(backend.to_numpy(heads)) == len(backend.to_numpy(tails)) == 0


def test_the_nearest_of_points_that_coincide_are_the_first(make, backend):
    sample = make(lambda Z: 0 * Z + 1e6 / 3)
    near, lengths = sample.kernels.nearest(sample.on_device, sample.on_device, 4)
    np.testing.assert_array_equal(backend.to_numpy(near), np.tile(np.arange(4), (len(sample.Z), 1)))
    assert not backend.to_numpy(lengths).any()


@layouts_and_spoils
def test_nearest_of_classes(make, backend, queries, spoil):
    sample = make(spoil)
    Q = queries(sample)
    found = sample.kernels.nearest_of_classes(
        backend.asarray(Q), sample.on_device, sample.starts, 3
    )
    expected = reference.nearest_of_classes(Q, sample.Z, sample.starts, 3)
    assert found.shape == expected.shape
    shape = (len(Q), -1)
    assert_same_rows(backend.to_numpy(found).reshape(shape), expected.reshape(shape), Q, sample.Z)


@pytest.fixture
def check_hinge_sums(backend, dtype, rng, queries):
    """Compares with the plain loops, from no hinge to all of them, some bars being −inf.

    Distances err by up to a hundredth unless they are `exact`, and by the rounding of the sums.
    """

    def check(sample, k, targets, exact=True):
        Q, n_classes = queries(sample), len(sample.starts) - 1
        share = 1000 * np.finfo(dtype).eps if exact else 0.02
        for size in (0.3, 3.0, 30.0):
            reach = size * rng.uniform(0.5, 1.5, size=(len(Q), n_classes, k))
            reach[rng.uniform(size=reach.shape) < 0.2] = -np.inf
            radius = size * rng.uniform(0.5, 1.5, size=(len(sample.Z), targets))
            radius[rng.uniform(size=radius.shape) < 0.2] = -np.inf
            found = sample.kernels.hinge_sums(
                backend.asarray(Q),
                sample.on_device,
                sample.starts,
                backend.asarray(reach),
                backend.asarray(radius),
            )
            expected = reference.hinge_sums(Q, sample.Z, sample.starts, reach, radius)
            for got, wanted in zip(found, expected, strict=True):
                got = backend.to_numpy(got)
                assert got.dtype == np.float64
                np.testing.assert_allclose(
                    got, wanted, rtol=share, atol=share * size * len(sample.Z)
                )

    return check


@layouts_and_spoils
def test_hinge_sums(make, check_hinge_sums, spoil):
    check_hinge_sums(make(spoil), 3, 2, exact=spoil in (SPOILS["random"], with_duplicates))


@any_layout
@pytest.mark.parametrize(("k", "targets"), [(3, 0), (0, 2)])
def test_hinge_sums_without_bars_of_one_kind(make, check_hinge_sums, k, targets):
    check_hinge_sums(make(), k, targets)


def test_no_queries_and_no_neighbours(backend, dtype):
    Z = backend.asarray(np.ones((3, 2), dtype))
    kernels, starts = kernels_for(Z), np.array([0, 2, 3])
    bars = kernels.double(Z)
    assert [part.shape for part in kernels.nearest(Z[:0], Z, 2)] == [(0, 2), (0, 2)]
    assert [part.shape for part in kernels.nearest(Z, Z, 0)] == [(3, 0), (3, 0)]
    assert kernels.nearest_of_classes(Z[:0], Z, starts, 2).shape == (0, 2, 2)
    nothing = kernels.hinge_sums(Z[:0], Z, starts, bars[:0, :, None], bars)
    assert [part.shape for part in nothing] == [(0, 2), (0, 2)]
    nobody = kernels.hinge_sums(Z, Z[:0], np.array([0, 0, 0]), bars[:, :, None], bars[:0])
    assert [backend.to_numpy(part).tolist() for part in nobody] == [[[0.0] * 2] * 3] * 2


# -- edges ---


@pytest.fixture(params=[1, 150], ids=["one edge", "many edges"])
def edges(request, rng, sizes):
    return random_edges(rng, sum(sizes), request.param)


@any_layout
def test_sq_lengths(make, backend, dtype, edges):
    sample = make()
    got = sample.kernels.sq_lengths(sample.on_device, *map(sample.index, edges))
    assert backend.to_numpy(got).dtype == dtype
    assert_close(backend.to_numpy(got), reference.sq_lengths(sample.Z, *edges), dtype, 10)


@any_layout
def test_sq_lengths_far_from_the_origin(make, backend, edges):
    """Differences on the grid of the type are exact, and so are their short squares."""
    sample = make(lambda Z: np.round(4 * Z) / 4 + 2**20)
    got = sample.kernels.sq_lengths(sample.on_device, *map(sample.index, edges))
    np.testing.assert_array_equal(backend.to_numpy(got), reference.sq_lengths(sample.Z, *edges))


@any_layout
def test_edge_products(make, backend, rng, dtype, edges):
    sample = make()
    D = rng.normal(size=sample.Z.shape).astype(dtype)
    got = sample.kernels.edge_products(
        sample.on_device, backend.asarray(D), *map(sample.index, edges)
    )
    expected = reference.edge_products(sample.Z, D, *edges)
    for values, wanted in zip(got, expected, strict=True):
        assert_close(backend.to_numpy(values), wanted, dtype, 10)


@any_layout
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=lambda share: f"{share:g} used")
def test_laplacian_matmul(make, backend, rng, dtype, edges, share):
    """Weights of both signs, some of them zero; the float64 weights do not change the type."""
    sample = make()
    weights = rng.normal(size=len(edges[0])) * (rng.uniform(size=len(edges[0])) < share)
    got = sample.kernels.laplacian_matmul(
        *map(sample.index, edges), backend.asarray(weights), sample.on_device
    )
    assert backend.to_numpy(got).dtype == dtype
    expected = reference.laplacian_matmul(*edges, weights, sample.Z.astype(np.float64))
    assert_close(backend.to_numpy(got), expected, dtype, 20)


@any_layout
def test_laplacian_matmul_is_the_gradient_of_the_weighted_lengths(make, backend, rng, edges, dtype):
    """⟨Z, Lap(w) Z⟩ = Σ wₑ ‖z_h − z_t‖²."""
    sample = make()
    weights = rng.normal(size=len(edges[0]))
    product = sample.kernels.laplacian_matmul(
        *map(sample.index, edges), backend.asarray(weights), sample.on_device
    )
    total = np.vdot(sample.Z, backend.to_numpy(product))
    assert total == pytest.approx(
        weights @ reference.sq_lengths(sample.Z, *edges), abs=1e4 * float(np.finfo(dtype).eps)
    )


@any_layout
def test_apply_centred(make, backend, rng, monkeypatch):
    """In float64 whatever the type of the points, and the same in blocks of rows."""
    sample = make()
    centre, L = rng.normal(size=sample.Z.shape[1]), rng.normal(size=(2, sample.Z.shape[1]))
    expected = reference.apply_centred(sample.Z, centre, L)
    for step in (None, 1):
        if step is not None:
            monkeypatch.setattr(parallel, "GEMM_ROWS", step)
            if backend.name == "torch":
                monkeypatch.setattr(sample.kernels, "EDGE_BLOCK", step)
        got = sample.kernels.apply_centred(sample.on_device, backend.asarray(centre), L)
        assert backend.to_numpy(got).dtype == np.float64
        np.testing.assert_allclose(backend.to_numpy(got), expected, rtol=1e-11, atol=1e-12)


@any_layout
@spoils
def test_edge_scatter(make, edges, spoil):
    """In float64, whatever the type of the points."""
    sample = make(spoil)
    got = sample.kernels.edge_scatter(sample.on_device, *map(sample.index, edges))
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.float64
    expected = reference.edge_scatter(sample.Z, *edges)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())


@any_layout
def test_edge_scatter_with_weights(make, edges, backend, rng):
    sample, weights = make(), rng.uniform(0, 3, len(edges[0]))
    got = sample.kernels.edge_scatter(
        sample.on_device, *map(sample.index, edges), backend.asarray(weights)
    )
    assert got.dtype == np.float64
    expected = reference.edge_scatter(sample.Z, *edges, weights)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())


@layouts_and_spoils
def test_group_scatter(make, rng, sizes, spoil):
    """Groups in any order, not of all rows; far from the origin the means still have their digits.

    An error of δ in a mean adds m δδᵀ for m rows, and δ is a few roundings of the largest entry.
    """
    sample = make(spoil)
    rows = rng.permutation(len(sample.Z))
    starts = np.cumsum([0, *sizes])[:-1] if len(sizes) > 1 else np.array([0, 5, 6, 11])
    rows = rows[: starts[-1]]
    got = sample.kernels.group_scatter(sample.on_device, sample.index(rows), starts)
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.float64
    expected = reference.group_scatter(sample.Z, rows, starts)
    rounding = len(rows) * (1e-15 * float(np.abs(sample.Z).max())) ** 2
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12 * scale + rounding)


def test_group_scatter_of_nothing(backend):
    Z = backend.asarray(np.ones((3, 2)))
    kernels = kernels_for(Z)
    got = kernels.group_scatter(Z, kernels.index([], Z), np.array([0]))
    np.testing.assert_array_equal(got, np.zeros((2, 2)))


@any_layout
def test_segment_sum(make, backend, rng, dtype, edges):
    sample = make()
    weights = rng.normal(size=len(edges[0])).astype(dtype)
    got = sample.kernels.segment_sum(
        sample.index(edges[0]), backend.asarray(weights), len(sample.Z)
    )
    assert backend.to_numpy(got).dtype == np.float64
    expected = reference.segment_sum(edges[0], weights, len(sample.Z))
    np.testing.assert_allclose(backend.to_numpy(got), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("count", [0, 1, 7, 50, 51])
def test_smallest(backend, rng, dtype, count):
    values = rng.permutation(50).astype(dtype)
    on_device = backend.asarray(values)
    found = backend.to_numpy(kernels_for(on_device).smallest(on_device, count))
    np.testing.assert_array_equal(values[found], np.arange(min(count, 50)))


@any_layout
def test_segment_max(make, backend, rng, dtype, edges):
    sample = make()
    values = rng.normal(size=len(edges[0])).astype(dtype)
    got = sample.kernels.segment_max(sample.index(edges[0]), backend.asarray(values), len(sample.Z))
    expected = [max(values[edges[0] == i], default=-np.inf) for i in range(len(sample.Z))]
    np.testing.assert_array_equal(backend.to_numpy(got), expected)


@any_layout
@spoils
def test_first_equal(make, backend, spoil):
    sample = make(spoil)
    got = backend.to_numpy(sample.kernels.first_equal(sample.on_device))
    np.testing.assert_array_equal(got, reference.first_equal(sample.Z))


class NoHash:
    """Draws factors of zero, so that all rows have the same hash."""

    def integers(self, _low, _high, size, dtype=np.int64):
        return np.zeros(size, dtype)


def test_first_equal_compares_values_and_not_bits_or_hashes(backend, dtype, monkeypatch):
    """0 equals −0, whatever the order in memory, and rows of one hash may differ."""
    Z = np.array([[0.0, 1.0], [3.0, 1.0], [-0.0, 1.0], [3.0, 2.0], [3.0, 1.0]], dtype)
    expected = [0, 1, 0, 3, 1]
    for Z_device in (backend.asarray(Z), backend.asarray(np.asfortranarray(Z))):
        kernels = kernels_for(Z_device)
        np.testing.assert_array_equal(backend.to_numpy(kernels.first_equal(Z_device)), expected)
    monkeypatch.setattr(np.random, "default_rng", lambda _: NoHash())
    np.testing.assert_array_equal(backend.to_numpy(kernels.first_equal(Z_device)), expected)


def test_first_equal_of_rows_that_differ_in_one_column_of_many(backend, dtype, rng):
    """Whichever of 100 columns it is; 0 equals −0."""
    values = rng.integers(3, size=12)
    expected = [values.tolist().index(value) for value in values]
    for column in range(100):
        Z = np.zeros((12, 100), dtype)
        Z[:, column], Z[::2, column - 1] = values, -0.0
        Z = backend.asarray(Z)
        found = backend.to_numpy(kernels_for(Z).first_equal(Z))
        np.testing.assert_array_equal(found, expected)


# -- plumbing ---


def test_gram_sums_blocks_in_float64(backend, dtype):
    """Blocks sum to 2²⁵, 1 and 1. Float32 has no 2²⁵ + 1; the sum in float64 is exact."""
    A = np.zeros((3 * 8192, 1), dtype)
    A[[0, 8192, 2 * 8192]] = [[2.0**25], [1.0], [1.0]]
    A = backend.asarray(A)
    kernels = kernels_for(A)
    total = kernels.gram(A, 0 * A + 1)
    assert isinstance(total, np.ndarray)
    assert total.dtype == np.float64
    assert total.item() == 2.0**25 + 2


@any_layout
def test_gram_is_a_product(make, backend, rng, dtype):
    sample = make()
    B = rng.normal(size=(len(sample.Z), 5)).astype(dtype)
    got = sample.kernels.gram(sample.on_device, backend.asarray(B))
    assert_close(got, sample.Z.astype(np.float64).T @ B, dtype, 20)


@any_layout
def test_apply_is_a_product_with_a_factor_on_the_host(make, backend, rng, dtype):
    """The float64 factor does not change the type."""
    sample = make()
    L = rng.normal(size=(4, 3))
    got = backend.to_numpy(sample.kernels.apply(sample.on_device, L))
    assert got.dtype == dtype
    assert_close(got, sample.Z.astype(np.float64) @ L.T, dtype, 10)


def test_image_squares(make, backend, rng, dtype):
    """The float64 factor does not change the type."""
    sample = make()
    L = rng.normal(size=(4, 3))
    got = backend.to_numpy(sample.kernels.image_squares(sample.on_device, L))
    assert got.dtype == dtype
    assert_close(got, reference.image_squares(sample.Z, L), dtype, 10)


def test_conversions(backend, dtype):
    reference_array = backend.asarray(np.ones(1, dtype))
    kernels = kernels_for(reference_array)
    alike = kernels.like([1.5, 2.5], reference_array)
    assert backend.to_numpy(alike).dtype == dtype
    assert backend.to_numpy(kernels.double(alike)).dtype == np.float64
    assert backend.to_numpy(kernels.single(alike)).dtype == np.float32
    assert backend.to_numpy(kernels.index([3, 1], reference_array)).dtype == np.int64
    host = kernels.to_host(alike)
    assert isinstance(host, np.ndarray)
    np.testing.assert_array_equal(host, [1.5, 2.5])


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("flatnonzero", [[True, False, True]], [0, 2]),
        ("flatnonzero", [[False, False]], []),
        ("unique", [[3, 1, 3, 2, 1]], [1, 2, 3]),
        ("unique", [np.empty(0, np.int64)], []),
        ("repeat", [[5, 6, 7], [2, 0, 1]], [5, 5, 7]),
        ("cumsum", [[2, 0, 3]], [2, 2, 5]),
        ("searchsorted", [[1, 3, 3, 7], [0, 3, 4, 9]], [0, 1, 3, 4]),
    ],
)
def test_one_liners(backend, name, arguments, expected):
    given = [backend.asarray(np.asarray(argument)) for argument in arguments]
    got = backend.to_numpy(getattr(kernels_for(given[0]), name)(*given))
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.int64


def test_concatenate_and_arange(backend):
    one = backend.asarray(np.array([1, 2]))
    kernels = kernels_for(one)
    joined = kernels.concatenate([one, one[:0], one])
    np.testing.assert_array_equal(backend.to_numpy(joined), [1, 2, 1, 2])
    np.testing.assert_array_equal(backend.to_numpy(kernels.arange(3, one)), [0, 1, 2])


@any_layout
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid", "cosine", "laplacian"])
def test_similarities(make, backend, dtype, kernel):
    """A row of zeros has a cosine of zero to every other."""
    sample = make(lambda Z: Z * (np.arange(len(Z)) > 0)[:, None])
    parameters = {"gamma": 0.3, "degree": 2, "coef0": 0.5}
    double = sample.Z.astype(np.float64)
    got = sample.kernels.similarities(sample.on_device, sample.on_device[:7], kernel, **parameters)
    assert backend.to_numpy(got).dtype == dtype
    expected = reference.similarities(double, double[:7], kernel, **parameters)
    assert_close(backend.to_numpy(got), expected, dtype, 20)


def test_rounding_takes_no_rbf_similarity_beyond_one(backend, rng):
    """Squared distances of points far from the origin to themselves may round below zero."""
    points = backend.asarray(rng.normal(size=(200, 5)) + 100)
    values = kernels_for(points).similarities(points, points, "rbf", gamma=1e6)
    assert backend.to_numpy(values).max() <= 1


# -- soft neighbours ---------------------------------------------------------------------------


def check_softmax(sample, Y, own, both, rtol, masses=None):
    """Weights are at most 1, so that their sums err by the size of Y."""
    on_device = sample.kernels.like(Y, sample.on_device)
    found = sample.kernels.softmax_neighbors(
        sample.on_device, on_device, sample.starts, own, both, masses
    )
    expected = reference.softmax_neighbors(sample.Z, Y, sample.starts, own, both, masses)
    assert (found[4] is None) == (expected[4] is None) == (not both)
    for part, wanted in zip(found, expected, strict=True):
        if part is not None:
            part = sample.kernels.to_host(part)
            assert part.dtype == wanted.dtype
            np.testing.assert_allclose(part, wanted, rtol=rtol, atol=rtol * np.abs(Y).max())


@pytest.mark.parametrize("own", [False, True], ids=["all", "own class"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
def test_softmax_neighbors(make, rng, dtype, own, both):
    sample = make()
    Y = rng.normal(size=(len(sample.Z), 4)).astype(dtype)
    check_softmax(sample, Y, own, both, 1e-12 if dtype == np.float64 else 1e-5)


@any_layout
@pytest.mark.parametrize("own", [False, True], ids=["all", "own class"])
def test_softmax_neighbors_of_different_masses(make, rng, dtype, own):
    sample = make()
    masses = np.exp(rng.normal(size=len(sample.Z)))
    Y = rng.normal(size=(len(sample.Z), 4)).astype(dtype)
    check_softmax(sample, Y, own, True, 1e-12 if dtype == np.float64 else 2e-5, masses)


@any_layout
@pytest.mark.parametrize("own", [False, True], ids=["all", "own class"])
def test_softmax_neighbors_far_apart_do_not_vanish(make, dtype, own):
    """exp(−D) of the nearest is zero in float32 and in float64; D errs by its own rounding."""
    sample = make(lambda Z: 40 * Z)
    assert reference.softmax_neighbors(sample.Z, sample.Z, sample.starts)[0].min() < -800
    check_softmax(sample, sample.Z, own, True, 1e-10 if dtype == np.float64 else 1e-2)


@any_layout
def test_softmax_neighbors_of_equal_points_are_even(make):
    sample = make(lambda Z: 0 * Z)
    n = len(sample.Z)
    logs, shares, *_ = map(
        sample.kernels.to_host,
        sample.kernels.softmax_neighbors(sample.on_device, sample.on_device, sample.starts)[:4],
    )
    sizes = np.diff(sample.starts)
    np.testing.assert_allclose(logs, np.log(n - 1), rtol=1e-6)
    np.testing.assert_allclose(shares, np.repeat(sizes - 1, sizes) / (n - 1), rtol=1e-6)


@any_layout
@pytest.mark.parametrize("own", [False, True], ids=["all", "own class"])
def test_softmax_neighbors_give_the_gradient(make, rng, dtype, own):
    """Along a change of Z: of Σ log Z over points that are not alone, or of Σ shares."""
    if dtype == np.float32:
        pytest.skip("differences of float32 sums are too rough")
    sample = make()
    change = rng.normal(size=sample.Z.shape)
    alone = np.repeat(np.diff(sample.starts) == 1, np.diff(sample.starts))

    def value(step):
        logs, shares, *_ = reference.softmax_neighbors(
            sample.Z + step * change, sample.Z, sample.starts
        )
        return shares.sum() if own else logs[~alone].sum()

    parts = sample.kernels.softmax_neighbors(
        sample.on_device, sample.on_device, sample.starts, own, True
    )
    _, _, degrees, forward, backward = map(sample.kernels.to_host, parts)
    gradient = -2 * (degrees[:, None] * sample.Z - forward - backward)
    slope = (value(1e-6) - value(-1e-6)) / 2e-6
    assert np.vdot(gradient, change) == pytest.approx(slope, rel=1e-5)


@any_layout
@pytest.mark.parametrize("scale", [1.0, 40.0], ids=["near", "far apart"])
def test_kernel_regression(make, rng, dtype, scale):
    """Far apart, exp(−D) of the nearest is zero; D errs by its own rounding.

    There the scatter is what is left of weights that cancel, and errs by their size.
    """
    sample = make(lambda Z: scale * Z)
    y, U = rng.normal(size=len(sample.Z)), sample.Z[:, :2] / scale
    on_device = sample.kernels.like(U, sample.on_device)
    found = sample.kernels.kernel_regression(sample.on_device, on_device, y)
    expected = reference.kernel_regression(sample.Z, U, y)
    exact = 1e-10 if dtype == np.float64 else 1e-4 * scale
    for part, wanted in zip(found, expected, strict=True):
        assert part.dtype == np.float64
        np.testing.assert_allclose(part, wanted, rtol=exact, atol=exact)
    estimates, scatter = sample.kernels.kernel_regression(sample.on_device, on_device[:, :0], y)
    np.testing.assert_allclose(estimates, found[0], rtol=exact, atol=exact)
    assert scatter.shape == (0, 0)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_local_laplacian(make, rng, dtype, offset):
    """Far from the origin distances err by the rounding of the points, not of their squares."""
    sample = make(lambda Z: Z + offset)
    scales = rng.uniform(0.2, 2, size=len(sample.Z))
    on_device = sample.kernels.like(scales, sample.on_device)
    found = sample.kernels.local_laplacian(sample.on_device, on_device, sample.starts)
    expected = reference.local_laplacian(sample.Z, scales.astype(dtype), sample.starts)
    found = sample.kernels.to_host(found)
    assert found.dtype == dtype
    rtol = 1e-11 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(found, expected, atol=rtol * np.abs(expected).max() + rtol)


@without_outliers
@pytest.mark.parametrize("k", [1, 5, 200])
@pytest.mark.parametrize("large", [False, True])
def test_neighbor_laplacian(make, spoil, dtype, monkeypatch, k, large):
    """With equal points, whose scales are zero, and classes whose table would be too large.

    An outlier takes digits from the affinities of all others, in every library.
    """
    if large:
        monkeypatch.setattr(numpy_neighbors, "TABLE_ENTRIES", 1)
    sample = make(spoil)
    found = sample.kernels.neighbor_laplacian(sample.on_device, sample.starts, k, 1e-6)
    expected = reference.neighbor_laplacian(sample.Z, sample.starts, k, 1e-6)
    found = sample.kernels.to_host(found)
    assert found.dtype == dtype
    rtol = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(found, expected, atol=rtol * np.abs(expected).max() + rtol)
