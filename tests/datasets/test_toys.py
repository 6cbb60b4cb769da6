"""The made-up sets: seeds, shapes, and the geometry that their docstrings promise."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from nearfar.datasets import make_concentric_circles, make_half_square, make_zebra_stripes
from nearfar.errors import InvalidInputError

MAKERS = (make_concentric_circles, make_half_square, make_zebra_stripes)


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_fixes_the_set_and_another_makes_another(make, seed):
    X, y = make(random_state=seed)
    again, labels = make(random_state=np.random.RandomState(seed))
    np.testing.assert_array_equal(again, X)
    np.testing.assert_array_equal(labels, y)
    assert not np.array_equal(make(random_state=seed + 1)[0], X)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [12, 300])
def test_shapes_and_types(make, n, seed):
    X, y = make(n, random_state=seed)
    assert X.shape == (n, 2)
    assert X.dtype == np.float64
    assert y.shape == (n,)
    assert y.dtype == np.int64
    assert set(y) <= {0, 1}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [0, 2.5])
def test_a_bad_number_of_points_is_refused(make, n):
    with pytest.raises(InvalidInputError, match=rf"n_samples must be a.*; got {n}"):
        make(n)


def test_circles_need_their_share_on_every_arc():
    with pytest.raises(InvalidInputError, match="must be a multiple of 6; got 40"):
        make_concentric_circles(40)


def test_zebra_needs_two_stripes():
    with pytest.raises(
        InvalidInputError, match="n_stripes must be an integer of at least 2; got 1"
    ):
        make_zebra_stripes(n_stripes=1)


def test_every_point_is_nearest_to_the_other_circle(seed):
    X, y = make_concentric_circles(random_state=seed)
    radii = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(radii[y == 0], 1)
    np.testing.assert_allclose(radii[y == 1], radii[y == 1][0])
    nearest = NearestNeighbors(n_neighbors=1).fit(X).kneighbors(return_distance=False)[:, 0]
    assert (y[nearest] != y).all()


def test_stripes_alternate_and_lie_in_two_far_sets(seed):
    X, y = make_zebra_stripes(n_stripes=4, offset=50, random_state=seed)
    across, along = X.T
    right = across >= 50
    stripe, place = np.divmod(across - 50 * right, 1)
    assert set(stripe) == {0, 1, 2, 3}
    np.testing.assert_array_equal(y, stripe % 2)
    assert place.max() <= 0.5
    assert 0 <= along.min() < 1
    assert 99 < along.max() <= 100
    assert 0.45 < right.mean() < 0.55


def test_the_upper_half_of_the_square_is_one_class(seed):
    X, y = make_half_square(random_state=seed)
    assert X.min() >= 0
    assert X.max() <= 10
    np.testing.assert_array_equal(y, X[:, 1] > 5)
