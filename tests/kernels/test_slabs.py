"""The pruned search for impostors: the same answer as that of all pairs, where it is worthwhile."""

import tracemalloc

import joblib
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from nearfar import LMNN
from nearfar.kernels import numpy_impostors, on_numpy, parallel, reference, slabs

SIZES = [(40, 40), (70, 1, 9), (1, 1, 60), (3,) * 25, (25, 0, 25), (50,)]


@pytest.fixture
def always(monkeypatch):
    """Every search is pruned, by blocks of few points and in small parts."""
    monkeypatch.setattr(slabs, "FEWEST_POINTS", 1)
    monkeypatch.setattr(slabs, "WORTHWHILE", 1.0)
    monkeypatch.setattr(slabs, "MOST_BLOCKS", 100)
    monkeypatch.setattr(slabs, "SHARED", 2)
    monkeypatch.setattr(slabs, "MASK_BYTES", 500)
    monkeypatch.setattr(slabs, "PRODUCT_ENTRIES", 50)
    monkeypatch.setattr(slabs, "GATHER_BYTES", 0)  # the least, 64 rows
    monkeypatch.setattr(slabs, "ROWS", 16)


@pytest.fixture
def never(monkeypatch):
    """No search is pruned."""
    monkeypatch.setattr(slabs, "FEWEST_POINTS", np.inf)


def pruned(Z, reach, starts):
    """What the pruned search finds, in order; that it was done is part of the test."""
    code = slabs.pruned_impostor_pairs(Z, reach, starts, parallel.in_threads)
    assert code is not None, "the search was not pruned"
    return np.divmod(np.sort(code), len(Z))


def by_differences(Z, reach, starts):
    """All pairs by their lengths as the kernels compute them, to the last bit."""
    labels = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    heads, tails = np.nonzero(labels[:, None] != labels)
    near = on_numpy.sq_lengths(Z, heads, tails) < reach[heads]
    return heads[near], tails[near]


def assert_same(found, expected):
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def starts_of(sizes):
    return np.cumsum([0, *sizes])


def in_groups(rng, n, r):
    """Points around a few places, so that many pairs of blocks are far apart."""
    return rng.normal(size=(n, r)) + 6 * rng.integers(3, size=(n, 1))


def with_duplicates(rng, n, r):
    Z = in_groups(rng, n, r)
    Z[rng.integers(n, size=n // 2)] = Z[0]
    return Z


def far_away(rng, n, r):
    """Differences of 1e-2 at 1e6: squares by products in float32 could not tell them."""
    return np.round(in_groups(rng, n, r), 2) + 1e6


def with_outlier(rng, n, r):
    Z = in_groups(rng, n, r)
    Z[rng.integers(n)] = 1e12
    return Z


def of_many_sizes(rng, n, r):
    """From 1e-6 to 1e6, so that no rounding suits all."""
    return rng.normal(size=(n, r)) * 10.0 ** rng.uniform(-6, 6, size=(n, 1))


POINTS = [in_groups, with_duplicates, far_away, with_outlier, of_many_sizes]


# The values are compared by rounding, which the number of dimensions and the type of float decide;
# the sizes of the classes decide the blocks alone, and take turns.
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("points", "r", "sizes"),
    [
        (points, r, SIZES[(i + j) % len(SIZES)])
        for i, points in enumerate(POINTS)
        for j, r in enumerate([1, 2, 3, 20])
    ]
    + [(with_duplicates, 2, sizes) for sizes in SIZES],
)
def test_equals_all_differences(rng, dtype, points, sizes, r):
    """Reaches of all sizes: none, each point's distance to another one, which is just outside, the
    next larger number, which takes it in, and all."""
    n, starts = sum(sizes), starts_of(sizes)
    Z = points(rng, n, r).astype(dtype)
    other = rng.permutation(n)
    lengths = on_numpy.sq_lengths(Z, np.arange(n), other).astype(np.float64)
    next_lengths = np.nextafter(lengths.astype(dtype), dtype(np.inf)).astype(np.float64)
    for reach in (
        rng.choice([-np.inf, -1.0, 0.0], n),
        lengths,
        next_lengths,
        rng.choice([-np.inf, 0.3, 3.0, 30.0, np.inf], n),
        np.full(n, np.inf),
    ):
        assert_same(pruned(Z, reach, starts), by_differences(Z, reach, starts))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12])
def test_equals_the_plain_loops_in_any_unit(rng, dtype, scale):
    """Squares of 1e-60 vanish in float32, where all points must then be kept."""
    Z = (scale * in_groups(rng, 80, 3)).astype(dtype)
    reach = (3 * np.float64(scale)) ** 2 * rng.uniform(0.5, 1.5, size=80)
    starts = np.array([0, 40, 80])
    assert_same(pruned(Z, reach, starts), reference.impostor_pairs(Z, reach, starts))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("points", "r"), [(in_groups, 2), (with_duplicates, 20), (far_away, 3)])
def test_mutual_pairs_equal_all_differences(rng, dtype, points, r):
    """Between two sets, of which each has a class that the other lacks."""
    sizes, others = (9, 0, 40, 1), (30, 17, 3, 0)
    starts = starts_of([*sizes, *others])
    n, first = int(starts[-1]), sum(sizes)
    labels = np.concatenate([np.repeat(np.arange(4), side) for side in (sizes, others)])
    Z = points(rng, n, r).astype(dtype)
    reach = rng.choice([-np.inf, 0.3, 3.0, 30.0, np.inf], n)
    code = slabs.pruned_mutual_pairs(Z, reach, labels, first, parallel.in_threads)
    side = np.arange(n) < first
    heads, tails = np.nonzero((labels[:, None] != labels) & (side[:, None] != side))
    near = on_numpy.sq_lengths(Z, heads, tails) < reach[heads]
    assert_same(np.divmod(np.sort(code), n), (heads[near], tails[near]))
    found = on_numpy.mutual_impostor_pairs(
        Z[:first], reach[:first], Z[first:], reach[first:], labels[:first], labels[first:]
    )
    for (i, j), own, other in ((found[0], 0, first), (found[1], first, 0)):
        chosen = near & (side[heads] == (own == 0))
        assert_same((own + i, other + j), (heads[chosen], tails[chosen]))


@pytest.mark.usefixtures("always")
def test_mutual_pairs_of_labels_in_any_order_are_not_pruned(rng):
    Z, labels = in_groups(rng, 40, 2), rng.integers(3, size=40)
    pairs = slabs.pruned_mutual_pairs(Z, np.ones(40), labels, 20, parallel.in_threads)
    assert pairs is None


@pytest.mark.parametrize("n", [3000, 12000])
@pytest.mark.parametrize("r", [2, 7, 30])
def test_equals_the_search_of_all_pairs(monkeypatch, rng, dtype, n, r):
    """With blocks as they are, on more points than plain loops could search."""
    monkeypatch.setattr(slabs, "FEWEST_POINTS", 1000)
    monkeypatch.setattr(slabs, "WORTHWHILE", 1.0)
    Z = in_groups(rng, n, r).astype(dtype)
    Z[:, 0] += np.arange(n) // (n // 4)
    starts = np.array([0, n // 2, n // 2 + 1, n - 100, n])
    reach = rng.uniform(0, r, size=n)
    found = pruned(Z, reach, starts)
    expected = np.sort(numpy_impostors._screened_impostor_pairs(Z, reach, starts, Z))
    np.testing.assert_array_equal(found[0] * n + found[1], expected)
    assert len(expected) > 0


@pytest.mark.usefixtures("always")
def test_blocks_hold_each_point_once_and_one_class_each(rng):
    Z, starts = in_groups(rng, 90, 2), np.array([0, 30, 30, 31, 90])
    blocks = slabs.Blocks.build(Z, np.ones(90), starts, parallel.in_threads)
    np.testing.assert_array_equal(np.sort(blocks.order), np.arange(90))
    labels = np.repeat(np.arange(4), np.diff(starts))
    for a, label in enumerate(blocks.labels):
        rows = blocks.order[blocks.rows(a)]
        assert len(rows) > 0
        assert set(labels[rows]) == {label}
        np.testing.assert_allclose(
            blocks.centres[a], (Z[rows] - np.median(Z[::6], axis=0)).mean(axis=0), atol=1e-5
        )


def test_bounds_leave_few_pairs_of_classes_that_touch(rng):
    """Two classes that share a side of a square: impostors live along it, and so do nearly all of
    the pairs that are left."""
    Z = rng.uniform(size=(12000, 2))
    Z = Z[np.argsort(Z[:, 0] > 0.5, kind="stable")]
    starts = np.array([0, np.count_nonzero(Z[:, 0] <= 0.5), 12000])
    reach = np.full(len(Z), 1e-4)
    blocks = slabs.Blocks.build(Z, reach, starts, parallel.in_threads)
    found = slabs.Slabs.build(blocks, Z, reach, parallel.in_threads)
    assert 0 < found.share() < 0.02
    assert slabs.pruned_impostor_pairs(Z, reach, starts, parallel.in_threads) is not None


@pytest.mark.usefixtures("always")
def test_share_is_that_of_all_blocks_if_all_are_tried(monkeypatch, rng):
    monkeypatch.setattr(slabs, "TRIED", 10**6)
    sizes = np.array([50, 30, 20])
    Z, starts = in_groups(rng, 100, 3), starts_of(sizes)
    blocks = slabs.Blocks.build(Z, np.ones(100), starts, parallel.in_threads)
    found = slabs.Slabs.build(blocks, Z, np.ones(100), parallel.in_threads)
    everyone = np.arange(len(blocks))
    widths = np.diff(blocks.cuts)
    left = sum(
        ((found.kept(a, everyone) & found.near[a][:, None]) * widths[:, None]).sum()
        for a in range(len(blocks))
    )
    assert found.share() == pytest.approx(left / (100**2 - (sizes**2).sum()))


def test_mixed_classes_are_not_worthwhile(rng):
    """Each point has others all around it: the search of all pairs takes over."""
    Z, starts = rng.normal(size=(12000, 40)), np.array([0, 6000, 12000])
    reach = np.full(12000, 70.0)
    assert slabs.pruned_impostor_pairs(Z, reach, starts, parallel.in_threads) is None


HALVES = np.array([0, 5000, 10_000])


@pytest.mark.parametrize(
    ("spoil", "starts"),
    [
        (lambda Z: Z[:5000], np.array([0, 2500, 5000])),
        (lambda Z: Z, np.arange(0, 10_001, 2)),
        (lambda Z: Z[:, :0], HALVES),
        (lambda Z: Z * 1e17, HALVES),
        (lambda Z: Z * 1e300, HALVES),
        (lambda Z: np.where(Z > 0, np.inf, Z), HALVES),
        (lambda Z: np.where(Z > 0, np.nan, Z), HALVES),
    ],
    ids=["few points", "many classes", "no dimension", "large", "overflow", "inf", "nan"],
)
def test_where_blocks_cannot_help_all_pairs_are_searched(rng, spoil, starts):
    Z = spoil(rng.normal(size=(10_000, 2)))
    assert slabs.pruned_impostor_pairs(Z, np.ones(len(Z)), starts, parallel.in_threads) is None


@pytest.mark.parametrize("search", ["always", "never"])
def test_reaches_and_points_beyond_float32(request, search, rng):
    """Finite in float64 and infinite in float32: neither a warning nor another answer."""
    request.getfixturevalue(search)
    Z, starts = in_groups(rng, 60, 2), np.array([0, 20, 60])
    Z[5], Z[40] = 1e200, -1e308
    reach = rng.choice([1.0, 1e39, 1e300, np.inf], 60)
    with np.errstate(over="ignore"):
        expected = reference.impostor_pairs(Z, reach, starts)
    assert_same(on_numpy.impostor_pairs(Z, reach, starts), expected)


@pytest.mark.parametrize("search", ["always", "never"])
@pytest.mark.parametrize("count", [2, 3])
def test_the_same_for_any_number_of_threads(request, monkeypatch, search, count, rng, dtype):
    request.getfixturevalue(search)
    monkeypatch.setattr(parallel, "THREADED_BYTES", 0)
    Z = in_groups(rng, 300, 3).astype(dtype)
    arguments = Z, np.full(300, 2.0), np.array([0, 100, 180, 300])
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    expected = on_numpy.impostor_pairs(*arguments)
    monkeypatch.setattr(joblib, "cpu_count", lambda: count)
    for got, wanted in zip(on_numpy.impostor_pairs(*arguments), expected, strict=True):
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("prune", [True, False])
def test_memory_is_that_of_the_answer(monkeypatch, rng, prune):
    """All of 2 x 1500 points lie within each other's reach: 4.5 million pairs. Beside the two
    arrays of the answer there is what it is made of, and little else: five of 36 MB in all."""
    monkeypatch.setattr(slabs, "FEWEST_POINTS", 1 if prune else np.inf)
    monkeypatch.setattr(slabs, "WORTHWHILE", 1.0)
    Z, starts = rng.normal(size=(3000, 2)), np.array([0, 1500, 3000])
    tracemalloc.start()
    try:
        heads, _ = on_numpy.impostor_pairs(Z, np.full(3000, 1e3), starts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(heads) == 2 * 1500**2
    assert peak < 5.5 * heads.nbytes + 60e6


def test_a_fit_is_the_same(request, iris):
    """To the last bit: the same pairs in the same order."""
    request.getfixturevalue("never")
    expected = LMNN().fit(*iris)
    request.getfixturevalue("always")
    found = LMNN().fit(*iris)
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert found.objective_ == expected.objective_


@pytest.mark.torch
@pytest.mark.usefixtures("always")
def test_tensors_on_the_host_are_pruned_too(monkeypatch, torch, rng, dtype):
    from nearfar.kernels import on_torch

    done = []

    def noted(*arguments):
        done.append(True)
        return slabs.pruned_impostor_pairs(*arguments)

    monkeypatch.setattr(numpy_impostors, "pruned_impostor_pairs", noted)
    Z, starts = in_groups(rng, 80, 3).astype(dtype), np.array([0, 30, 80])
    reach = rng.uniform(1, 9, size=80)
    expected = reference.impostor_pairs(Z, reach, starts)
    tensor = torch.tensor(Z)
    for screen in (None, tensor.float()):
        found = on_torch.impostor_pairs(tensor, torch.tensor(reach), starts, screen)
        for got, wanted in zip(found, expected, strict=True):
            assert got.dtype == torch.int64
            np.testing.assert_array_equal(got.numpy(), wanted)
    assert len(done) == 2


def test_a_screen_leaves_out_directions_that_hardly_matter(rng):
    """Of 40 directions 30 have a hundredth of the others' scale: distances change by little."""
    scales = np.where(np.arange(40) < 10, 1.0, 0.01)
    turned = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    points = (rng.normal(size=(300, 40)) * scales @ turned).astype(np.float32)
    screen = slabs.leading(points, np.full(300, 2.0))
    assert screen.shape == (300, 16)
    squares, exact = (cdist(P, P, "sqeuclidean") for P in (screen, points.astype(np.float64)))
    assert (squares <= exact * (1 + 1e-4) + 1e-6).all()
    assert np.abs(squares - exact).max() < 0.1
    for reach in (1e-9, np.inf):
        assert slabs.leading(points, np.full(300, reach)).shape == (300, 40)
    assert slabs.leading(points[:, :8], np.full(300, 2.0)).shape == (300, 8)
    assert slabs.leading(points, np.full(300, 1e9)).shape == (300, slabs.STEP)
    assert slabs.leading(points * np.float32(1e20), np.full(300, 2.0)) is None


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_all_pairs_are_screened_in_leading_directions(monkeypatch, rng, dtype, offset):
    """30 of 40 directions hardly matter, points may lie far from zero, and the pairs found are
    those of plain differences to the last bit; some are at the reach of others exactly."""
    monkeypatch.setattr(numpy_impostors, "LEADING_ROWS", 1)
    scales = np.where(np.arange(40) < 10, 1.0, 0.01)
    Z = (rng.normal(size=(240, 40)) * scales + offset).astype(dtype)
    starts = np.array([0, 100, 240])
    reach = on_numpy.sq_lengths(Z, np.arange(240), rng.permutation(240)).astype(np.float64)
    screens = []

    def noted(*arguments):
        screens.append(slabs.leading(*arguments))
        return screens[-1]

    monkeypatch.setattr(numpy_impostors, "leading", noted)
    expected = by_differences(Z, reach, starts)
    for screen in (None, Z.astype(np.float32)):
        assert_same(on_numpy.impostor_pairs(Z, reach, starts, screen), expected)
    assert all(points.shape[1] < 40 for points in screens)
    assert screens
