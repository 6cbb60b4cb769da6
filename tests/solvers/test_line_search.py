"""Steps against known minimisers, conditions and ends."""

from dataclasses import dataclass

import numpy as np
import pytest

from nearfar.solvers.line_search import backtrack, exact_step, quartic_step, wolfe_step

# -- exact steps ---


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


# -- exact steps on polynomials of degree four ---


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_step_is_the_best_on_a_grid(rng, scale):
    """At a unit of t that may be far from 1."""
    for _ in range(50):
        c = rng.normal(size=4)
        c[0], c[3] = abs(c[0]), -abs(c[3])
        t = quartic_step(c * scale ** -np.arange(4.0, 0, -1))
        grid = scale * np.geomspace(1e-3, 1e3, 4001)
        values = np.polyval([*c, 0], np.append(grid, t) / scale)
        assert t > 0
        assert values[-1] <= values[:-1].min() + 1e-9


@pytest.mark.parametrize("c", [(1, 0, 1, 0), (1, 0, 1, 2), (0, 0, 0, -1), (1, np.nan, 0, -1)])
def test_no_step_where_nothing_falls_or_all_does(c):
    """No slope, a rise, a fall without end (which no problem here has), no number."""
    assert quartic_step(np.array(c, dtype=float)) == 0


# -- the strong Wolfe conditions ---


@dataclass(frozen=True)
class Evaluated:
    L: np.ndarray
    value: float
    gradient: np.ndarray


class Parabola:
    """½ a ‖L‖², and the points that were asked for."""

    def __init__(self, a):
        self.a, self.asked = a, []

    def __call__(self, L):
        self.asked.append(L)
        return Evaluated(L, 0.5 * self.a * float(np.sum(L**2)), self.a * L)


@pytest.mark.parametrize("length", [1e-3, 0.7, 1.0, 1.9, 50.0])
def test_a_step_that_meets_the_strong_wolfe_conditions(length):
    """Along −length · gradient from 1: f(t) = ½(1 − length t)², whatever the first step is."""
    f = Parabola(1.0)
    at = f(np.ones((2, 2)))
    direction = -length * at.gradient
    new = wolfe_step(f, at, direction)
    slope = np.vdot(at.gradient, direction)
    t = float((new.L - at.L)[0, 0] / direction[0, 0])
    assert new.value <= at.value + 1e-4 * t * slope
    assert abs(np.vdot(new.gradient, direction)) <= 0.9 * abs(slope)


def test_a_point_is_evaluated_once():
    """The search asks for value and slope apart; a step of 1 is the minimum here."""
    f = Parabola(1.0)
    at = f(np.ones((2, 3)))
    new = wolfe_step(f, at, -at.gradient)
    np.testing.assert_array_equal(new.L, np.zeros((2, 3)))
    assert len(f.asked) == 2


def test_no_step_uphill():
    f = Parabola(1.0)
    at = f(np.ones((2, 2)))
    assert wolfe_step(f, at, at.gradient) is None


# -- halving ---


def test_the_first_trial_that_succeeds_counts():
    assert backtrack(lambda t: "found" if t <= 0.3 else None, 1.0, 5) == ("found", 0.25)


def test_only_so_many_trials():
    asked = []
    assert backtrack(asked.append, 2.0, 3) is None
    assert asked == [2.0, 1.0, 0.5]
