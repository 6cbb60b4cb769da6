"""Roots of decreasing functions."""

import numpy as np

from nearfar.solvers.bisection import decreasing_root


def test_roots_of_many_functions(rng):
    roots = rng.uniform(0.1, 3, size=50)
    found = decreasing_root(lambda t: roots**3 - t**3, np.zeros(50), np.full(50, 4.0))
    np.testing.assert_allclose(found, roots, rtol=1e-15)


def test_a_root_much_nearer_to_one_end():
    found = decreasing_root(lambda t: 1e-15 - t, np.zeros(1), np.ones(1))
    np.testing.assert_allclose(found, 1e-15, rtol=1e-4)


def test_no_root_inside():
    low, high = np.zeros(2), np.ones(2)
    found = decreasing_root(lambda t: np.array([-1.0, 1.0]) - t * 0.1, low, high)
    np.testing.assert_allclose(found, [0, 1], atol=1e-15)


def test_the_ends_are_not_changed():
    low, high = np.zeros(3), np.ones(3)
    decreasing_root(lambda t: 0.5 - t, low, high)
    assert (low == 0).all()
    assert (high == 1).all()
