"""Descent by quasi-Newton steps: known minima, what is told of each iterate, and how it ends."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import optimize

from nearfar.solvers import Status, run
from nearfar.solvers.lbfgs import LBFGS
from nearfar.solvers.quasi_newton import FIRST_STEP, descend

SHAPE = (3, 4)


@dataclass(frozen=True)
class Evaluated:
    L: np.ndarray
    value: float
    gradient: np.ndarray


def by_gain(at, gain):
    """The gain to expect, relative to the value or 1."""
    return gain / max(abs(at.value), 1.0)


@pytest.fixture
def bowl(rng):
    """½‖R(L − M)‖² with a condition number of about 1e4, and its minimiser M."""
    R = np.diag(np.geomspace(1, 100, 12)) @ np.linalg.qr(rng.normal(size=(12, 12)))[0]
    minimiser = rng.normal(size=SHAPE)

    def evaluate(L):
        residual = R @ (L - minimiser).ravel()
        return Evaluated(L, 0.5 * residual @ residual, (R.T @ residual).reshape(SHAPE))

    return evaluate, minimiser


def rosenbrock(L):
    """Of the four numbers of a (2, 2) matrix; its minimum is 0, where all are 1."""
    x = L.ravel()
    return Evaluated(L, float(optimize.rosen(x)), optimize.rosen_der(x).reshape(2, 2))


# -- minima ----------------------------------------------------------------------------------------


def test_a_quadratic(bowl):
    evaluate, minimiser = bowl
    solution = run(descend(evaluate, np.ones(SHAPE), by_gain), tol=1e-14, max_iter=200)
    assert solution.status is Status.CONVERGED
    np.testing.assert_allclose(solution.iterate.point, minimiser, atol=1e-5)
    assert solution.n_iter < 100


def test_a_curved_valley():
    """As scipy's L-BFGS does, within twice as many iterations."""
    start = np.array([[-1.2, 1.0], [-1.2, 1.0]])
    solution = run(descend(rosenbrock, start, by_gain), tol=1e-16, max_iter=500)
    np.testing.assert_allclose(solution.iterate.point, np.ones((2, 2)), atol=1e-6)
    peer = optimize.minimize(
        optimize.rosen, start.ravel(), jac=optimize.rosen_der, method="L-BFGS-B"
    )
    assert solution.n_iter <= 2 * peer.nit + 10


def test_values_fall(bowl):
    evaluate, _ = bowl
    iterates = list(itertools.islice(descend(evaluate, np.ones(SHAPE), by_gain), 30))
    values = [iterate.value for iterate in iterates]
    assert all(after < before for before, after in itertools.pairwise(values))
    assert values == [evaluate(iterate.point).value for iterate in iterates]


def test_a_wall_is_not_crossed():
    """x − log x is infinite below 0; its minimum is at 1, far from a start at 1e-3."""

    def evaluate(L):
        x = L[0, 0]
        value = x - np.log(x) if x > 0 else np.inf
        return Evaluated(L, float(value), np.array([[1 - 1 / x if x > 0 else -np.inf]]))

    with np.errstate(invalid="ignore"):
        solution = run(descend(evaluate, np.array([[1e-3]]), by_gain), tol=1e-12, max_iter=100)
    assert solution.iterate.point[0, 0] == pytest.approx(1, abs=1e-4)


def test_a_slope_that_misleads_the_memory_is_followed_anew(bowl):
    """Gradients that are turned by half a circle for a while: no step of theirs lowers the value,
    and the descent ends; from there a new one with true gradients goes on."""
    evaluate, minimiser = bowl

    def turned(L):
        at = evaluate(L)
        return Evaluated(L, at.value, -at.gradient)

    stuck = list(descend(turned, np.ones(SHAPE), by_gain))
    assert len(stuck) == 2
    assert stuck[1].residual > 1e-3
    solution = run(descend(evaluate, stuck[0].point, by_gain), tol=1e-14, max_iter=200)
    np.testing.assert_allclose(solution.iterate.point, minimiser, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, -1e40], ids=["uphill", "too far"])
def test_memory_that_misleads_is_forgotten(bowl, monkeypatch, factor):
    """Its third direction is replaced; steepest descent and a new memory follow."""
    evaluate, minimiser = bowl
    direction, calls = LBFGS.direction, []

    def misled(memory, gradient):
        calls.append(len(memory))
        return factor * gradient if len(calls) == 3 else direction(memory, gradient)

    monkeypatch.setattr(LBFGS, "direction", misled)
    iterates = list(itertools.islice(descend(evaluate, np.ones(SHAPE), by_gain), 150))
    values = [iterate.value for iterate in iterates[:-1]]
    assert calls[:5] == [1, 2, 3, 1, 2]
    assert all(after < before for before, after in itertools.pairwise(values))
    np.testing.assert_allclose(iterates[-1].point, minimiser, atol=1e-5)


# -- what is told ----------------------------------------------------------------------------------


def test_the_start_is_told_first_with_nothing_known_of_the_gain(bowl):
    evaluate, _ = bowl
    gains = []
    first = next(descend(evaluate, np.ones(SHAPE), lambda _, gain: gains.append(gain)))
    np.testing.assert_array_equal(first.point, np.ones(SHAPE))
    assert first.residual is None
    assert gains == [np.inf]


def test_the_gain_is_at_least_that_of_the_step_before(bowl):
    evaluate, _ = bowl
    gains = []
    iterates = descend(evaluate, np.ones(SHAPE), lambda _, gain: gains.append(gain))
    values = [iterate.value for iterate in itertools.islice(iterates, 20)]
    for gain, (before, after) in zip(gains[1:], itertools.pairwise(values), strict=True):
        assert gain >= before - after


def test_info_is_passed_on(bowl):
    evaluate, _ = bowl
    first = next(descend(evaluate, np.ones(SHAPE), by_gain, lambda at: {"double": 2 * at.value}))
    assert first.info == {"double": 2 * first.value}


def test_the_first_step_is_short_compared_with_the_start(bowl):
    """A line search begins at a tenth of the length of the start, whatever the gradient's is."""
    evaluate, _ = bowl
    asked = []

    def counted(L):
        asked.append(L)
        return evaluate(L)

    start = np.ones(SHAPE)
    next(iterates := descend(counted, start, by_gain))
    next(iterates)
    assert np.linalg.norm(asked[1] - start) == pytest.approx(FIRST_STEP * np.linalg.norm(start))


# -- the end ---------------------------------------------------------------------------------------


def test_it_ends_by_itself_at_the_rounding_of_the_minimum(bowl):
    """The last iterate is told again, with what its slope alone lets expect: next to nothing."""
    evaluate, minimiser = bowl
    iterates = list(itertools.islice(descend(evaluate, np.ones(SHAPE), by_gain), 2000))
    assert len(iterates) < 2000
    np.testing.assert_allclose(iterates[-1].point, minimiser, atol=1e-8)
    np.testing.assert_array_equal(iterates[-1].point, iterates[-2].point)
    assert iterates[-1].residual < 1e-12


def test_it_ends_at_once_where_the_gradient_vanishes():
    """A start at the minimum: there is no gain of a step before, and none is left by the slope."""
    iterates = list(descend(rosenbrock, np.ones((2, 2)), by_gain))
    assert [iterate.residual for iterate in iterates] == [np.inf, 0.0]


def test_a_start_so_near_the_minimum_that_a_usual_step_is_far_too_long():
    """A narrow valley far from the origin: x = 1e6 + 1e-3, y = 1 beside a minimum at (1e6, 0)."""
    centre, widths = np.array([[1e6, 0.0]]), np.array([[1e4, 1.0]])

    def evaluate(L):
        x = (L - centre) * widths
        return Evaluated(L, 0.5 * float(np.sum(x**2)), x * widths)

    start = centre + np.array([[1e-3, 1.0]])
    solution = run(descend(evaluate, start, by_gain), tol=1e-9, max_iter=100)
    assert solution.status is Status.CONVERGED
    assert solution.iterate.value < 1e-6


def test_rounding_that_hides_the_gain_is_a_stall():
    """x² in steps of 1e-3: where no step is seen to lower it, the slope is still large."""

    def evaluate(L):
        return Evaluated(L, float(np.round((L**2).sum(), 3)), 2 * L)

    solution = run(descend(evaluate, np.array([[1.0, 0.5]]), by_gain), tol=1e-9, max_iter=100)
    assert solution.status in (Status.STALLED, Status.CONVERGED)
    assert solution.iterate.value <= 1e-3


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_a_descent_continues_from_an_iterate_as_if_it_had_not_ended(count):
    """With the memory the same steps follow; without it, others."""
    start = np.array([[-1.2, 1.0], [-1.2, 1.0]])
    whole = list(itertools.islice(descend(rosenbrock, start, by_gain), count + 10))
    last = whole[count - 1]
    rest = descend(rosenbrock, last.point, by_gain, memory=last.state)
    for iterate, expected in zip(rest, whole[count - 1 :], strict=False):
        np.testing.assert_array_equal(iterate.point, expected.point)
        assert (iterate.value, iterate.residual) == (expected.value, expected.residual)
    anew = list(itertools.islice(descend(rosenbrock, last.point, by_gain), 3))
    if count > 1:
        assert not np.array_equal(anew[2].point, whole[count + 1].point)
