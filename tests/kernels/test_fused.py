"""The fused searches: half precision loses no pair, and exact differences decide.

On a machine without a CUDA device the Triton programs run in Triton's interpreter, in a process of
its own: the interpreter must be chosen before Triton is imported.
"""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearfar.kernels import reference

pytestmark = pytest.mark.torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TRITON = importlib.util.find_spec("triton") is not None
SHAPES = [((37, 20), 20), ((1, 1, 50), 3), ((9,) * 6, 164), ((20, 0, 19), 300)]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cpu" and not INTERPRETED:
        pytest.skip("is run by test_in_the_interpreter")
    return request.param


@pytest.fixture
def times(device):
    """How many times more points a test has on a card, whose tiles cannot be as small."""
    return 1 if device == "cpu" else 4


@pytest.fixture
def fused(times, monkeypatch):
    """The module, with several bands, chunks and parts for few points."""
    from nearfar.kernels import fused

    if times == 1:
        of = fused.Shape.of
        monkeypatch.setattr(fused.Shape, "of", lambda points: replace(of(points), BM=32, BN=32))
    monkeypatch.setattr(fused, "MASK_BYTES", 1)
    monkeypatch.setattr(fused, "MASK_ROWS", 32 * times)
    monkeypatch.setattr(fused, "WORDS", 500)
    monkeypatch.setattr(fused, "DENSE", 1.0)
    monkeypatch.setattr(fused, "OUTLIERS", 0.6)
    monkeypatch.setattr(fused, "CHUNKS_EACH", 1)
    monkeypatch.setattr(fused, "SAMPLE", 50)
    monkeypatch.setattr(fused, "BLOCK", 9000)
    with np.errstate(invalid="ignore"):  # the interpreter adds ∞ and −∞ by NumPy
        yield fused


@pytest.mark.skipif(INTERPRETED or not HAS_TRITON, reason="needs Triton, and is not run by itself")
def test_in_the_interpreter():
    run = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-q", "-p", "no:cacheprovider", "-m", "not gpu"],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


def starts_of(sizes):
    return np.cumsum([0, *sizes])


def ordinary(rng, n, r):
    return rng.normal(size=(n, r))


def far_away(rng, n, r):
    """Differences of 1e-2 at 1e6, of which float16 knows nothing without the centre."""
    return np.round(rng.normal(size=(n, r)), 2) + 1e6


def with_duplicates(rng, n, r):
    Z = rng.normal(size=(n, r))
    Z[rng.integers(n, size=n // 2)] = Z[0]
    return Z


def all_equal(rng, n, r):
    return np.full((n, r), rng.normal())


def with_outliers(rng, n, r):
    """Two points beyond float16, if the others are to be told apart."""
    Z = rng.normal(size=(n, r))
    Z[[3, n - 3]] = [[1e7], [-1e12]]
    return Z


def of_many_sizes(rng, n, r):
    """Among large points, small ones that are zero or subnormal in float16."""
    return rng.normal(size=(n, r)) * 10.0 ** rng.integers(-9, 2, size=(n, 1))


POINTS = [ordinary, far_away, with_duplicates, all_equal, with_outliers, of_many_sizes]


def in_turn(points, shapes):
    """Each kind of points with one of the shapes."""
    return [(kind, *shape) for kind, shape in zip(points, shapes * len(points), strict=False)]


def impostors(fused, Z, reach, starts, device):
    import torch

    from nearfar.kernels import on_torch

    Z, reach = torch.tensor(Z, device=device), torch.tensor(reach, device=device)
    code = fused.impostor_pairs(Z, reach, starts, lambda i, j: on_torch.sq_lengths(Z, i, j))
    labels = torch.tensor(np.repeat(np.arange(len(starts) - 1), np.diff(starts)), device=device)
    heads, tails = torch.nonzero(labels[:, None] != labels, as_tuple=True)
    near = on_torch.sq_lengths(Z, heads, tails) < reach[heads]
    return code, heads[near] * len(Z) + tails[near]


@pytest.mark.parametrize(("points", "sizes", "r"), in_turn(POINTS, SHAPES))
def test_impostors_equal_all_differences(fused, device, times, rng, dtype, points, sizes, r):
    """Some reaches are distances themselves, so that they exclude that pair by no margin."""
    starts = times * starts_of(sizes)
    n = starts[-1]
    Z = points(rng, n, r).astype(dtype)
    reach = reference.sq_lengths(Z, np.arange(n), rng.permutation(n)).astype(np.float64)
    reach[::3] *= 0.1
    reach[::7], reach[1], reach[2] = -np.inf, 0, np.inf
    found, expected = impostors(fused, Z, reach, starts, device)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e15])
def test_impostors_equal_the_plain_loops_in_any_unit(fused, device, rng, dtype, scale):
    starts = starts_of((60, 80))
    Z = (rng.integers(-3, 4, size=(140, 5)) * 2.0 ** round(np.log2(scale))).astype(dtype)
    reach = reference.sq_lengths(Z, np.arange(140), rng.permutation(140)).astype(np.float64)
    found, _ = impostors(fused, Z, reach, starts, device)
    heads, tails = reference.impostor_pairs(Z, reach, starts)
    assert found.tolist() == (heads * 140 + tails).tolist()


@pytest.mark.parametrize("r", [1, 2])
def test_no_pair_is_lost_that_is_hardly_near_enough(fused, device, times, rng, dtype, r):
    """Along a line, the rounding of two points to float16 can add up in full."""
    n = 75 * times
    Z, starts = rng.uniform(1, 2, size=(n, r)).astype(dtype), np.array([0, n // 2, n])
    other = np.roll(np.arange(n), n // 2)
    reach = (1 + 1e-9) * reference.sq_lengths(Z, np.arange(n), other).astype(np.float64)
    found, expected = impostors(fused, Z, reach, starts, device)
    assert found.tolist() == expected.tolist()


def test_one_class_has_no_impostors(fused, device, rng):
    found, _ = impostors(
        fused, rng.normal(size=(200, 4)), np.full(200, 9.0), starts_of([200]), device
    )
    assert found.tolist() == []


@pytest.mark.parametrize(("points", "n", "r"), in_turn(POINTS, [(150, 20), (129, 3), (130, 130)]))
def test_nearest_equal_all_differences(fused, device, times, rng, torch, dtype, points, n, r):
    Z = torch.tensor(points(rng, times * n - 1, r).astype(dtype), device=device)
    Q = torch.tensor(points(rng, 40, r).astype(dtype), device=device)
    for rows, others in ((Q, False), (Z, True)):
        squares = (rows.double()[:, None] - Z.double()).square().sum(2)
        if others:
            squares.fill_diagonal_(torch.inf)
        expected = squares.sort(dim=1)  # ties by rounding are in any order
        near, lengths = fused.nearest(rows, Z, 3, others=others)
        assert all(len(set(row)) == 3 for row in near.tolist())
        for found in (lengths, squares.gather(1, near)):
            np.testing.assert_allclose(found.cpu(), expected.values[:, :3].cpu(), rtol=1e-12)


def test_the_kernels_use_it(fused, device, times, rng, monkeypatch):
    """Whole numbers, so that ties are exact; a class with too few points is searched otherwise."""
    import torch

    from nearfar.kernels import on_torch

    monkeypatch.setattr(on_torch, "_fused", lambda _: fused)
    Z, starts = (
        rng.integers(-4, 5, size=(170 * times, 3)).astype(np.float32),
        times * starts_of((165, 5)),
    )
    reach = rng.integers(1, 4, size=170 * times).astype(np.float64)
    mixed = rng.integers(3, size=len(Z))
    points, limits, labels = (torch.tensor(part, device=device) for part in (Z, reach, mixed))
    for found, expected in (
        (on_torch.nearest_in_class(points, starts, 3), reference.nearest_in_class(Z, starts, 3)),
        (on_torch.nearest(points[:9], points, 4), reference.nearest(Z[:9], Z, 4)),
        (
            on_torch.cross_impostor_pairs(points[:40], limits[:40], points, labels[:40], labels),
            reference.cross_impostor_pairs(Z[:40], reach[:40], Z, mixed[:40], mixed),
        ),
        (
            on_torch.impostor_pairs(points, limits, starts),
            reference.impostor_pairs(Z, reach, starts),
        ),
    ):
        for got, wanted in zip(found, expected, strict=True):
            assert got.tolist() == wanted.tolist()


def test_where_half_precision_cannot_help_there_is_no_answer(
    fused, device, times, rng, monkeypatch
):
    """Too many candidates; too few points for the k nearest; too many points beyond float16."""
    import torch

    n = 75 * times
    Z, starts, reach = rng.normal(size=(n, 4)), np.array([0, n // 3, n]), np.full(n, 99.0)
    points = torch.tensor(Z, device=device)
    assert fused.nearest(points, points, 2) is not None
    assert fused.nearest(points, points, 4) is None
    assert impostors(fused, Z, reach, starts, device)[0] is not None
    monkeypatch.setattr(fused, "DENSE", 0.1)
    monkeypatch.setattr(fused, "WORDS", 10)
    assert impostors(fused, Z, reach, starts, device)[0] is None
    assert fused.nearest(points, points, 2) is None
    Z[::20] *= 1e9
    monkeypatch.setattr(fused, "DENSE", 1.0)
    assert impostors(fused, Z, reach, starts, device)[0] is not None
    monkeypatch.setattr(fused, "OUTLIERS", 0.01)
    assert impostors(fused, Z, reach, starts, device)[0] is None
    points = torch.tensor(Z, device=device)
    assert fused.nearest(points, points, 2) is None


def test_bound_on_products_covers_truncated_sums(fused, rng):
    """Products are exact, and sums of which every addition is cut off to 24 bits are within (3)."""
    import torch

    rows = torch.tensor(rng.normal(size=(2, 300)), dtype=torch.float16).abs()
    exact = rows[0].double() * rows[1].double()
    assert (exact.float().double() == exact).all()
    total = 0.0
    for product in exact.tolist():
        total += product
        unit = 2.0 ** (np.frexp(total)[1] - 24)
        total = np.floor(total / unit) * unit
    halves = 0.5 * float((rows.double() ** 2).sum())
    assert 0 < float(exact.sum()) - total <= fused._gamma(rows) * halves


@pytest.mark.parametrize("r", [1, 20, 130])
def test_edges_equal_the_plain_loops(fused, device, rng, dtype, r):
    import torch

    Z, D = rng.normal(size=(2, 30, r)).astype(dtype)
    edges = rng.integers(30, size=(2, 70))
    points, changes = (torch.tensor(part, device=device) for part in (Z, np.asfortranarray(D)))
    heads, tails = torch.tensor(edges, device=device)
    found = (
        fused.sq_lengths(points, heads, tails),
        *fused.edge_products(points, changes.T.contiguous().T, heads[:], tails),
    )
    expected = reference.sq_lengths(Z, *edges), *reference.edge_products(Z, D, *edges)
    for got, wanted in zip(found, expected, strict=True):
        scale = 1 if dtype == np.float32 else 1e-9
        np.testing.assert_allclose(got.cpu(), wanted, rtol=2e-5 * scale, atol=2e-5 * scale)
        assert str(got.dtype) == f"torch.{np.dtype(dtype).name}"


@pytest.mark.parametrize(
    ("r", "c", "own", "both", "weighted"),
    [(5, 3, True, True, False), (20, 20, False, False, True), (40, 170, True, True, True)],
)
def test_soft_neighbors_equal_the_plain_loops(device, rng, r, c, own, both, weighted):
    """Errors are those of float32, also for points far from the origin."""
    import torch

    from nearfar.kernels.fused_softmax import softmax_neighbors

    n, starts = 75, np.array([0, 1, 40, 75])
    Z, Y = rng.normal(size=(n, r)) * 1.5 / r**0.5, rng.normal(size=(n, c))
    Z, Y = np.round(4096 * Z).astype(np.float32) / 4096, Y.astype(np.float32)
    masses = rng.uniform(0.1, 9, n) if weighted else None
    expected = reference.softmax_neighbors(Z, Y, starts, own, both, masses)
    points, values = (torch.tensor(part, device=device) for part in (Z + 64, Y))
    found = softmax_neighbors(points, values, starts, own, both, masses)
    for got, wanted in zip(found, expected, strict=True):
        if wanted is None:
            assert got is None
        else:
            assert str(got.dtype) == f"torch.{wanted.dtype}"
            size = np.abs(wanted).max()
            np.testing.assert_allclose(got.cpu(), wanted, rtol=0, atol=3e-6 * size)


def test_soft_neighbors_without_an_answer(device, rng, monkeypatch):
    """Points in float64, too many features, points of too different sizes, a small card."""
    import torch

    from nearfar.kernels import fused_softmax
    from nearfar.kernels.fused_softmax import softmax_neighbors

    Z = torch.tensor(rng.normal(size=(40, 300)), device=device)
    starts = np.array([0, 20, 40])
    few = Z[:, :9].float()
    outlier = few.clone()
    outlier[3] *= 1e6
    for points, values in ((Z[:, :9], few), (Z.float(), few), (few, Z.float()), (outlier, few)):
        assert softmax_neighbors(points, values, starts, True, True) is None
    assert softmax_neighbors(few, few, starts, True, True) is not None
    monkeypatch.setattr(fused_softmax, "shared_memory", lambda _: 8 << 10)
    assert softmax_neighbors(few, few, starts, True, True) is None
    assert [fused_softmax._tile_rows(192, 192, kib << 10) for kib in (227, 164, 99)] == [
        128,
        64,
        None,
    ]
