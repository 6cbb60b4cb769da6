"""Soft neighbours over pairs of blocks equal those over all points at once."""

import itertools

import numpy as np
import pytest

from nearfar.kernels import on_numpy, soft_pairs
from nearfar.kernels.soft_pairs import Side, WeightedSide, joined_totals

CUTS = [slice(0, 1), slice(1, 40), slice(40, 41), slice(41, 90)]


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    """Several tiles in a block, of which the last ones are smaller."""
    monkeypatch.setattr(soft_pairs, "HOST_TILE", (16, 23))


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def as_array(request):
    if request.param == "numpy":
        return lambda values: values
    return request.getfixturevalue("torch").as_tensor


def case(rng, scale, weighted, dtype):
    """Points in four classes, one of which has one member, and an outlier far from all others."""
    codes = np.sort(np.concatenate([[2], rng.choice([0, 1, 3], size=89)]))
    Z = (rng.normal(size=(90, 3)) * scale).astype(dtype)
    Z[60] += 12 * scale
    Y = rng.normal(size=(90, 2)).astype(dtype)
    return Z, Y, codes, rng.uniform(0.1, 3, size=90) if weighted else None


def over_pairs(work):
    """Results of all pairs of blocks, summed up by row: ``work`` takes a block and another or None.

    It returns lists of what is added to the rows of the first and of the second.
    """
    found = [[] for _ in CUTS]
    for a, b in itertools.combinations_with_replacement(range(len(CUTS)), 2):
        first, second = work(CUTS[a], None if a == b else CUTS[b])
        found[a].append(first)
        if a != b:
            found[b].append(second)
    return found


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [0.4, 3.0, 40.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_over_pairs_of_blocks_are_those_over_all_points(
    rng, as_array, dtype, scale, weighted, own
):
    """At scale 40 nearest neighbours are so far apart that exp(-D) is zero in float32."""
    Z, Y, codes, masses = case(rng, scale, weighted, dtype)
    starts = np.searchsorted(codes, np.arange(5))
    logs, shares, degrees, forward, backward = on_numpy.softmax_neighbors(
        Z, Y, starts, own=own, both=True, masses=masses
    )
    eps = np.finfo(dtype).eps * max(float((Z.astype(float) ** 2).sum(1).max()), 1.0)
    images, values = as_array(Z), as_array(Y)

    def side(rows):
        return Side(images[rows], codes[rows], None if masses is None else masses[rows])

    def totals(first, second):
        return soft_pairs.soft_totals(side(first), None if second is None else side(second))

    found = np.hstack([joined_totals(*parts) for parts in over_pairs(totals)])
    np.testing.assert_allclose(found[0] + np.log(found[1]), logs, atol=30 * eps)
    np.testing.assert_allclose(found[2] / found[1], shares, atol=30 * eps)

    counted = np.repeat(np.diff(starts) > 1, np.diff(starts)) * (1.0 if masses is None else masses)
    inside, outside = counted, counted
    if own:
        inside, outside = counted * (1 - shares), -counted * shares

    def weighted_side(rows):
        of = side(rows)
        factors = inside[rows], outside[rows]
        if not own:
            factors = (inside[rows],) * 2
        return WeightedSide(of.Z, of.codes, of.masses, values[rows], logs[rows], *factors)

    def products(first, second):
        other = None if second is None else weighted_side(second)
        result = soft_pairs.soft_products(weighted_side(first), other, both=True)
        return np.column_stack(result[:2]), np.column_stack(result[2:])

    found = np.vstack([sum(parts) for parts in over_pairs(products)])
    np.testing.assert_allclose(found[:, 0], degrees, atol=300 * eps)
    np.testing.assert_allclose(found[:, 1:], forward + backward, atol=300 * eps)


def test_differences_keep_what_a_product_loses():
    """Far from the origin squared lengths hide distances: one of 1e-4 beside lengths of 1e16."""
    Z = np.array([[1e8], [1e8 + 0.01], [-1e8]])
    side = Side(Z, np.zeros(3, dtype=np.intp), None)
    exact, _ = soft_pairs.soft_totals(side, None, differences=True)
    np.testing.assert_allclose((exact[0] + np.log(exact[1]))[:2], -1e-4, rtol=1e-5)
    rough, _ = soft_pairs.soft_totals(side, None)
    assert abs(rough[0, 0] + 1e-4) > 1e-3


def test_rounding_far_from_the_origin_does_not_overflow(rng, as_array):
    """Squares of 1e9 in float32 round by hundreds, and so do exponents of about zero."""
    Z = (3e4 + rng.normal(size=(60, 2))).astype(np.float32)
    codes = np.repeat([0, 1], 30)
    side = Side(as_array(Z), codes, None)
    totals, _ = soft_pairs.soft_totals(side, None)
    logs = totals[0] + np.log(totals[1])
    assert np.isfinite(logs).all()
    assert logs.max() > 20
    weighted = WeightedSide(side.Z, codes, None, side.Z, logs, *(np.ones(60),) * 2)
    degrees, product, *_ = soft_pairs.soft_products(weighted, None, both=False)
    assert np.isfinite(degrees).all()
    assert np.isfinite(np.asarray(product)).all()
