"""Quasi-Newton directions against the two-loop recursion, and steps against known minimisers."""

import numpy as np
import pytest
from scipy import linalg

from nearfar.solvers.lbfgs import LBFGS, exact_step

SHAPE = (3, 4)


@pytest.fixture
def quadratic(rng):
    """A positive definite matrix on the entries of a (3, 4) matrix."""
    A = rng.normal(size=(12, 12))
    return A @ A.T + np.eye(12)


def remembered(rng, quadratic, count, memory):
    """A memory after so many random steps on the quadratic, and its pairs."""
    lbfgs, pairs = LBFGS(memory), []
    for _ in range(count):
        step = rng.normal(size=SHAPE)
        change = (quadratic @ step.ravel()).reshape(SHAPE)
        lbfgs.remember(step, change)
        pairs.append((step, change))
    return lbfgs, pairs


def two_loops(pairs, gradient, rows=None):
    """Nocedal & Wright, Numerical Optimization, algorithm 7.4, with H₀ = γ rows and γ = s·y / y·H₀y
    of the last."""
    q, backwards = gradient.copy(), []
    for s, y in reversed(pairs):
        weight = np.vdot(s, q) / np.vdot(s, y)
        q -= weight * y
        backwards.append(weight)
    s, y = pairs[-1]
    rows = np.eye(len(y)) if rows is None else rows
    q = np.vdot(s, y) / np.vdot(y, rows @ y) * (rows @ q)
    for (s, y), weight in zip(pairs, reversed(backwards), strict=True):
        q += (weight - np.vdot(y, q) / np.vdot(s, y)) * s
    return -q


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_direction_is_that_of_the_two_loops(rng, quadratic, count):
    """A memory of 5 pairs: of 9, the last 5 count."""
    lbfgs, pairs = remembered(rng, quadratic, count, 5)
    assert len(lbfgs) == min(count, 5)
    gradient = rng.normal(size=SHAPE)
    expected = two_loops(pairs[-5:], gradient)
    np.testing.assert_allclose(lbfgs.direction(gradient), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("before", [0, 2, 7])
def test_a_preconditioner_is_the_first_guess(rng, quadratic, before):
    """Given before some of 7 steps, or after them; it turns with no rotation, but is dropped."""
    A = rng.normal(size=(3, 3))
    rows = A @ A.T + np.eye(3)
    lbfgs, pairs = remembered(rng, quadratic, before, 5)
    lbfgs.precondition(rows)
    gradient = rng.normal(size=SHAPE)
    for _ in range(before, 7):
        step = rng.normal(size=SHAPE)
        pairs.append((step, (quadratic @ step.ravel()).reshape(SHAPE)))
        lbfgs.remember(*pairs[-1])
    expected = two_loops(pairs[-5:], gradient, rows)
    np.testing.assert_allclose(lbfgs.direction(gradient), expected, rtol=1e-8, atol=1e-10)
    lbfgs.transform(np.eye(3))
    expected = two_loops(pairs[-5:], gradient)
    np.testing.assert_allclose(lbfgs.direction(gradient), expected, rtol=1e-8, atol=1e-10)


def test_without_memory_a_preconditioner_multiplies_steepest_descent(rng):
    lbfgs, gradient = LBFGS(5), rng.normal(size=SHAPE)
    lbfgs.precondition(np.diag([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(lbfgs.direction(gradient), -gradient * [[1], [2], [4]])


def test_direction_obeys_the_secant_equation(rng, quadratic):
    """H y = s for the last pair, so that −Hy = −s."""
    lbfgs, pairs = remembered(rng, quadratic, 4, 5)
    step, change = pairs[-1]
    np.testing.assert_allclose(lbfgs.direction(change), -step, rtol=1e-8)


def test_exact_steps_end_on_a_quadratic_after_as_many_steps_as_it_has_dimensions(rng, quadratic):
    """BFGS with exact steps makes conjugate directions: 12 steps reach the minimum, 11 do not."""
    lbfgs, x, target = LBFGS(12), np.zeros(12), rng.normal(size=12)
    norms = []
    for _ in range(12):
        gradient = quadratic @ (x - target)
        norms.append(np.linalg.norm(gradient))
        direction = lbfgs.direction(gradient)
        step = -(gradient @ direction) / (direction @ quadratic @ direction) * direction
        lbfgs.remember(step, quadratic @ step)
        x = x + step
    assert norms[-1] > 1e-6 * norms[0]
    assert np.linalg.norm(quadratic @ (x - target)) < 1e-7 * norms[0]


def test_without_memory_the_direction_is_steepest_descent(rng, quadratic):
    lbfgs, _ = remembered(rng, quadratic, 3, 5)
    lbfgs.forget()
    assert len(lbfgs) == 0
    gradient = rng.normal(size=SHAPE)
    np.testing.assert_array_equal(lbfgs.direction(gradient), -gradient)


@pytest.mark.parametrize("sign", [-1, 0])
def test_pairs_without_positive_curvature_are_not_kept(rng, quadratic, sign):
    lbfgs, _ = remembered(rng, quadratic, 2, 5)
    gradient = rng.normal(size=SHAPE)
    before = lbfgs.direction(gradient)
    step = rng.normal(size=SHAPE)
    lbfgs.remember(step, sign * step)
    assert len(lbfgs) == 2
    np.testing.assert_array_equal(lbfgs.direction(gradient), before)


def test_a_step_of_another_size_starts_anew(rng, quadratic):
    lbfgs, _ = remembered(rng, quadratic, 3, 5)
    step = rng.normal(size=(2, 4))
    lbfgs.remember(step, 2 * step)
    assert len(lbfgs) == 1
    np.testing.assert_allclose(lbfgs.direction(step), -0.5 * step)


def test_what_is_remembered_is_a_copy(rng, quadratic):
    lbfgs, pairs = remembered(rng, quadratic, 1, 5)
    gradient = rng.normal(size=SHAPE)
    before = lbfgs.direction(gradient)
    for part in pairs[0]:
        part[:] = 0
    np.testing.assert_array_equal(lbfgs.direction(gradient), before)


def test_a_rotation_of_the_rows_rotates_directions(rng, quadratic):
    """H turns with the variables: direction(Qg) = Q direction(g)."""
    lbfgs, _ = remembered(rng, quadratic, 4, 5)
    rotation, _ = linalg.qr(rng.normal(size=(3, 3)))
    gradient = rng.normal(size=SHAPE)
    expected = rotation @ lbfgs.direction(gradient)
    lbfgs.transform(rotation)
    assert len(lbfgs) == 4
    np.testing.assert_allclose(lbfgs.direction(rotation @ gradient), expected, atol=1e-10)


def test_new_rows_have_no_memory(rng, quadratic):
    """Along rows that no step has touched, H is γI, as in the recursion with padded pairs."""
    lbfgs, pairs = remembered(rng, quadratic, 4, 5)
    old = lbfgs.direction(gradient := rng.normal(size=SHAPE))
    lbfgs.transform(np.vstack([np.eye(3), np.zeros((2, 3))]))
    new = rng.normal(size=(2, 4))
    step, change = pairs[-1]
    gamma = np.vdot(step, change) / np.vdot(change, change)
    expected = np.vstack([old, -gamma * new])
    np.testing.assert_allclose(lbfgs.direction(np.vstack([gradient, new])), expected, atol=1e-10)


def test_dropped_rows_leave_the_memory_of_the_others(rng, quadratic):
    """The recursion on what is left of each pair, where that has positive curvature."""
    lbfgs, pairs = remembered(rng, quadratic, 4, 5)
    kept = linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    lbfgs.transform(kept)
    left = [(kept @ s, kept @ y) for s, y in pairs]
    left = [(s, y) for s, y in left if np.vdot(s, y) > 0]
    assert len(lbfgs) == len(left)
    gradient = rng.normal(size=(2, 4))
    np.testing.assert_allclose(lbfgs.direction(gradient), two_loops(left, gradient), atol=1e-10)


def test_nothing_is_transformed_without_memory(rng):
    lbfgs = LBFGS(3)
    lbfgs.transform(np.eye(2))
    gradient = rng.normal(size=(2, 2))
    np.testing.assert_array_equal(lbfgs.direction(gradient), -gradient)


# -- the step ---


def parabola(minimiser):
    return lambda t: ((t - minimiser) ** 2, 2 * (t - minimiser), 2.0)


def quartic(minimiser):
    return lambda t: (
        (t - minimiser) ** 4,
        4 * (t - minimiser) ** 3,
        12 * (t - minimiser) ** 2,
    )


def barrier(minimiser):
    """(1 + t)/(1 + minimiser) − log(1 + t)."""
    return lambda t: (
        (1 + t) / (1 + minimiser) - np.log1p(t),
        1 / (1 + minimiser) - 1 / (1 + t),
        (1 + t) ** -2,
    )


def huber(minimiser):
    """A parabola of width 0.1 around the minimiser and straight lines beyond: no curvature."""

    def along(t):
        x = t - minimiser
        if abs(x) < 0.1:
            return x * x / 2, x, 1.0
        return 0.1 * (abs(x) - 0.05), 0.1 * np.sign(x), 0.0

    return along


@pytest.mark.parametrize("shape", [parabola, quartic, barrier, huber])
@pytest.mark.parametrize("minimiser", [0.02, 0.3, 1.0, 1.7, 3.9])
def test_step_to_a_minimiser(shape, minimiser):
    """The slope has fallen to a twentieth of that at 0, and the value too."""
    along = shape(minimiser)
    t = exact_step(along, 4.0)
    assert 0 < t <= 4
    assert abs(along(t)[1]) <= 0.05 * abs(along(0.0)[1])
    assert along(t)[0] < along(0.0)[0]


@pytest.mark.parametrize("minimiser", [0.02, 0.3, 1.7])
def test_a_kink_is_approached_from_below(minimiser):
    """|t − m| has no small slope: bisection ends close below the kink."""
    t = exact_step(lambda t: (abs(t - minimiser), np.sign(t - minimiser), 0.0), 4.0)
    assert t == pytest.approx(minimiser, abs=1e-4)


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_no_step_where_the_function_does_not_fall(slope):
    assert exact_step(lambda t: (slope * t, slope, 0.0), 4.0) == 0.0


@pytest.mark.parametrize("limit", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    "along", [parabola(10.0), lambda t: (-t, -1.0, 0.0), lambda t: (-t * t - t, -2 * t - 1, -2.0)]
)
def test_a_step_ends_at_the_limit(along, limit):
    """Minimisers beyond it, or none at all; the function is not asked beyond it."""

    def checked(t):
        assert t <= limit
        return along(t)

    assert exact_step(checked, limit) == limit


def test_a_value_above_the_start_is_not_accepted():
    """cos has its slope zero at 0, π, 2π: from t = 0.1 the minimum at π lies within the limit; a
    hill before it must not be taken for it."""
    t = exact_step(lambda t: (np.cos(t + 0.1), -np.sin(t + 0.1), -np.cos(t + 0.1)), 4.0)
    assert t == pytest.approx(np.pi - 0.1, abs=0.05)


def test_a_first_step_can_be_given():
    asked = []

    def along(t):
        asked.append(t)
        return parabola(0.25)(t)

    assert exact_step(along, 4.0, first=0.25) == 0.25
    assert asked == [0.0, 0.25]


@pytest.mark.parametrize("size", [1e-140, 1e-150, 1e-161, 1e-170])
@pytest.mark.parametrize("curvature", [1e-20, 1.0, 1e20])
def test_steps_whose_products_vanish_are_not_kept(rng, size, curvature):
    """Their squares are no normal numbers, and the direction would not be finite."""
    lbfgs = LBFGS(5)
    for _ in range(5):
        step = size * rng.normal(size=SHAPE)
        lbfgs.remember(step, curvature * step * rng.uniform(0.5, 2, SHAPE))
    assert np.isfinite(lbfgs.direction(np.ones(SHAPE))).all()
